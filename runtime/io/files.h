/*
 * files.h - tensors of a rank from files and to files.
 */
#ifndef PP_FILES_H
#define PP_FILES_H

#include "base/file/index.h"
#include "net/links.h"
#include "options/options.h"

#include <limits.h>

/* Tensors between the host and the rank's device. */
typedef struct {
    Device *dev;
    Links *links;
    char *room; /* pinned, as large as any of them; NULL: they are on the host */
    DeviceEvent done;
} HostCopy;

/* host_copy.c */
/* A tensor's bytes on the host, until the next call */
const void *host_copy(HostCopy *h, const void *p, int64_t bytes);
/* The same to memory of the host, there after host_await(): many in one go */
void host_fetch(HostCopy *h, void *to, const void *p, int64_t bytes);
void host_await(HostCopy *h);
/* Before the first step */
void host_upload(HostCopy *h, void *to, const void *from, int64_t bytes);

/* parts.c: the model's parameter that a stage's is, or is a part of: its shape and bytes; which of
 * them a member has, by its number along the axis of the mesh */
void param_shape(const PpParam *p, int64_t dim[PP_MAX_RANK]);
int64_t param_bytes(const PpParam *p);
/* Of a divided one, along its axis in each group: from where on a member has elements, and how many
 */
int64_t param_from(const PpParam *p, int member);
int64_t param_many(const PpParam *p, int member);
/* of a member by its number in the rank: from where on in the outer dimension, and its bytes */
int64_t param_outer(const PpPlan *model, const PpParam *p, int member);
Box param_box(const PpPlan *model, const PpParam *p, int member);
Box box_piece(Box all, const Piece *piece); /* NULL: all of it */

/* Every parameter of the model under each of its names: for (ParamName i = {0}; param_next(p, &i);)
 */
typedef struct {
    const PpParam *p;
    const char *name;
    int stage, param, nth; /* where the next one is looked for */
} ParamName;
int param_next(const PpPlan *model, ParamName *i);

/* Where parameters come from.  own: the folder params beside the program; given: --params, a folder
 * or files of a state_dict, or NULL; resume: a checkpoint, of which the optimizer's state is loaded
 * too, or NULL; states: files of such a state under PyTorch's names, or NULL. */
typedef struct {
    const char *own, *given, *resume, *states;
} ParamsFrom;
/* params.c */
PpStatus params_load(const Plan *p, HostCopy *h, const ParamsFrom *from, const Options *o);
/* Does --params name files of a state_dict, and no folder? */
int params_is_file(const char *given);
/* A stage's file in a folder of parameters: 1: one that links to the model's own; -1: there is none */
int params_stage_file(char path[PATH_MAX], const char *folder, int stage);
/* How many updates the state in the files of --states has seen */
PpStatus params_updates(const char *states, int64_t *updates);
/* How many elements are -inf; RankParam.lowest is that of a parameter as it was loaded */
int64_t params_lowest(const void *p, int dtype, int64_t bytes);

/* digest.c: of a stage's file in a folder of parameters: its length and blocks of it; of one that
 * links, of what it links to; "" where it has none */
PpStatus params_digest(const char *folder, int stage, char digest[SHA256_TEXT]);
/* Likewise of all files of a state_dict */
PpStatus params_files_digest(const char *files, char digest[SHA256_TEXT]);

/* grads.c; all members call it, the first one writes.  scale: what the loss was multiplied by, a
 * power of two: what is written is of the loss itself */
PpStatus grads_write(const Plan *p, HostCopy *h, Group *members, const char *folder, double scale);
/* When all ranks have written theirs: they get their names, or, after a failure, go. */
PpStatus grads_settle(const Plan *p, const char *folder, PpStatus written);

/* folders.c */
void folder_above(char *path); /* drops the last component */
int files_same(const char *a, const char *b); /* two names of what is there */
PpStatus folder_make(const char *option, const char *path); /* with those above it */
int folder_sync(const char *path); /* 0, or errno */

/* destinations.c */
typedef struct {
    int *fd; /* files without a name, while destinations are tried */
    int n;
} Held;
/* Nothing is written over what is read, once the data are open; resume_place() sees to --checkpoint */
PpStatus destinations_apart(const Options *o, const Index *from);
/* The places of what this rank writes are there and have room; of replicas and members but the
 * first that is a part of checkpoints at most. */
PpStatus destinations_try(Held *h, const Plan *p, const Options *o, int64_t steps);
void destinations_release(Held *h); /* when all ranks have tried */

#endif
