/*
 * checkpoint.h - writing checkpoints, and resuming from them.  base/file/index.h describes their
 * format.
 *
 * A rank writes the tensors that it owns to a file of its own; when all have, rank 0 writes the
 * index and gives the folder its name.  With --every this happens beside the run, on a thread, from
 * a snapshot: ranks copy their tensors, go on, and look at the end of each step whether all files
 * are written.
 */
#ifndef PP_CHECKPOINT_H
#define PP_CHECKPOINT_H

#include "io/data.h"
#include "io/files.h"

/* ---- where a run is ---- */

enum { MOMENT_FACTS = 16 };
typedef struct {
    int64_t step; /* so many are done */
    struct {
        const char *key;
        char value[200];
    } fact[MOMENT_FACTS]; /* the index's "state" */
    int n;
} Moment;

__attribute__((format(printf, 3, 4))) void moment_add(Moment *m, const char *key, const char *fmt,
                                                      ...);

/* ---- checkpoint.c: writing ---- */

typedef struct Saver Saver;

/* Of the tensors in this rank's file, and how many they are */
int64_t saver_file_bytes(const Plan *p, int *tensors);
/* Of the room for a snapshot; 0: none, writing holds up the run */
int64_t saver_bytes(const Plan *p, const Options *o);
/* None of these is NULL. */
PpStatus saver_open(Saver **s, const Plan *p, HostCopy *h, const Data *d);
void saver_close(Saver *s); /* NULL: nothing; what is not published is lost */
/* All ranks call the next three. */
/* A checkpoint of this moment; the one before is finished first. */
PpStatus saver_save(Saver *s, Group *g, const Moment *m);
/* All ranks' files are written (saver_written() was 1 on every rank): rank 0 publishes them. */
PpStatus saver_collect(Saver *s, Group *g);
/* Waits until all that was saved is durable. */
PpStatus saver_finish(Saver *s, Group *g);
/* 1: a file is being written, and this rank's is done or has failed */
int saver_written(const Saver *s);
/* When the checkpoint that is being written has last grown, in microseconds of pp_now(); 0: none
 * is. Another thread may read it, atomically. */
const int64_t *saver_moved(const Saver *s);

/* ---- publish.c: the folder of a checkpoint ---- */

/* What rank 0 is told of a rank's file, and then of each tensor in it, whole, a part or a piece. */
typedef struct {
    int rank;                 /* the file's number */
    int stage, param, member; /* of the model's stage; param -1: it is the file */
    int state;                /* the optimizer's, -1: the parameter itself */
    int64_t first;            /* byte of the part at which the piece begins */
    int64_t offset, bytes;    /* in the file; of the file: of its header, of all of it */
    char sha256[SHA256_TEXT];
} Record;

/* As the model calls it, or "optimizer/STATE/PARAMETER"; NULL: no memory */
const char *record_name(Pool *p, const PpPlan *model, const Options *o, const Record *r);
const PpParam *record_param(const PpPlan *model, const Record *r);
void record_file(const Record *r, char *to, size_t n); /* rankR.safetensors */

typedef struct {
    const PpPlan *model;
    const Options *opt;
    const Data *data;
    Moment moment;
    Pool pool;
    Record *record; /* of all ranks, in order of ranks */
    int64_t n;
} Publication;

/* step_N.tmp becomes step_N: the index, then the name.  Older ones go by --keep. */
PpStatus checkpoint_publish(const Publication *p);
/* DIR/step_N, or with ".tmp" */
PpStatus checkpoint_folder(char *path, size_t n, const Options *o, int64_t step, const char *end);
/* PP_ERR_IO: its files or folder cannot be written, under the name that it was to have */
PpStatus checkpoint_failed(const Options *o, int64_t step, const char *why);
/* Names each step_N without an index, as interrupted runs of older versions left them, except for
 * one that was noted before. */
void checkpoint_unfinished(const Options *o, const char *noted);
/* One run at a time writes to a folder, where its file system has locks: rank 0's process has it,
 * if it is there.  What an interrupted run has left goes. */
PpStatus checkpoint_claim(const Options *o);
/* The same; the folder for the files of this step. */
PpStatus checkpoint_prepare(const Options *o, int64_t step);

/* ---- resume.c: reading ---- */

/* The newest checkpoint in --resume DIR of a step before `below`: x->path is NULL where there is
 * none and DIR is that of --checkpoint too, which is how a run is begun that may be started again.
 */
PpStatus resume_open(Index *x, const PpPlan *model, const Options *o, int64_t below);
/* The same of --params DIR; x->path NULL: it holds files of stages */
PpStatus params_open(Index *x, const Options *o, int64_t below);
/* PP_ERR_MODEL, "--resume PATH: ..." */
__attribute__((format(printf, 2, 3))) PpStatus resume_refuse(const Index *x, const char *fmt, ...);
/* Options that change numbers are those of the checkpoint, or given on the command line; of
 * ppsplit, too, or accepted by --accept. */
PpStatus resume_options(const Index *x, const PpPlan *p, const Options *o);
/* --groups as it was written: o->machine.groups, which --dp has to divide. */
PpStatus resume_groups(const Index *x, Options *o);
/* digest.c: the data are those it was trained with, as far as their digests say; rank 0 of all */
PpStatus resume_data(const Index *x, const Data *d);
/* A number of its state; PP_ERR_MODEL where it is missing */
PpStatus resume_number(const Index *x, const char *key, int64_t *value);
PpStatus resume_real(const Index *x, const char *key, double *value); /* above 0 */
/* Is the folder of --checkpoint one that this run may write to? */
PpStatus resume_place(const Index *x, const Options *o, int64_t below);

#endif
