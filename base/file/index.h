/*
 * index.h - a checkpoint as its readers see it: a folder step_N with files of tensors and
 * index.json, which is written last and without which it is none.  Used by `ppsplit merge` and by
 * every generated program; needs libc only.
 *
 *     {"format": "ppsplit checkpoint 2", "model": "m.onnx", "model_hash": "...", "step": 500,
 *      "state":   {"rows": "16000", ...},        where the run was; texts, as all that follows
 *      "options": {"batch": "32", ...},          options of the run that change its numbers
 *      "data":    {"x 1": "...", ...},           of each file of its inputs a SHA-256
 *      "files":   {"rank0.safetensors": {"bytes": 4096, "header": 320, "sha256": "..."}, ...},
 *      "tensors": {"w": {"dtype": "F32", "shape": [3, 4],
 *                        "pieces": [{"file": "rank0.safetensors", "offset": 320, "bytes": 48,
 *                                    "sha256": "..."}]}, ...},
 *      "index_sha256": "..."}                    of all bytes before this key's comma
 *
 * A tensor is its pieces, one after the other: those of several writers where states are divided.
 * Offsets are those in the file.  Every byte of a checkpoint is under a checksum: a file's header
 * under its own.  Functions return 0, or -1 with a one-line message in err.
 */
#ifndef PP_INDEX_H
#define PP_INDEX_H

#include "base/file/map.h"
#include "base/file/sha256.h"

#include <stddef.h>
#include <stdint.h>

enum { INDEX_MAX_RANK = 16, INDEX_ERR = 600 };

typedef struct {
    char *key, *value;
} IndexText;

typedef struct {
    char *name;
    int64_t bytes, header;
    char sha256[SHA256_TEXT]; /* of the header */
    FileMap *map;
} IndexFile;

typedef struct {
    int file; /* its number */
    int64_t offset, bytes;
    char sha256[SHA256_TEXT];
} IndexPiece;

typedef struct {
    char *name;
    int dtype, rank; /* TensorProto.DataType number */
    int64_t dim[INDEX_MAX_RANK], bytes;
    IndexPiece *piece;
    int n_piece;
    char *whole; /* of several pieces, once they were asked for */
} IndexTensor;

typedef struct {
    char *path;           /* of the folder */
    char sha256[SHA256_TEXT]; /* of index.json, and so of all that it has checksums of */
    char note[INDEX_ERR]; /* for whoever opened it: why a newer one was not taken */
    char *model;
    uint64_t model_hash;
    int64_t step;
    IndexText *state, *option, *data;
    int n_state, n_option, n_data;
    IndexFile *file;
    int n_file;
    IndexTensor *tensor; /* in the order of their names */
    int n_tensor;
} Index;

/* Is there an index.json? */
int index_there(const char *folder);
/* The checkpoint in `folder`: what index.json says, and files of those sizes with those headers. */
int index_open(Index *x, const char *folder, char *err, size_t nerr);
void index_close(Index *x);
const char *index_state(const Index *x, const char *key);  /* NULL: it has none */
const char *index_option(const Index *x, const char *key); /* likewise */
const char *index_data(const Index *x, const char *key);   /* likewise */
const IndexTensor *index_find(const Index *x, const char *name);
/* Its bytes, which have their checksums; they stay as long as x. Not from two threads at once. */
const void *index_bytes(Index *x, const IndexTensor *t, char *err, size_t nerr);
/* Of all pieces, numbered over all tensors, every `parts`th from `part` on is read: -1 where one is
 * not what was written.  states: those of the optimizer too */
int index_check(const Index *x, int states, int part, int parts, char *err, size_t nerr);
/* Bytes first to first + bytes of it to `to`; of its pieces those are read that hold any of them. */
int index_copy(const Index *x, const IndexTensor *t, int64_t first, int64_t bytes, void *to,
               char *err, size_t nerr);

/* index_steps.c: folders of checkpoints */
/* The newest step_N in `folder` that can be opened, of a step before `below`, or `folder` itself where
 * it is a checkpoint: its path, to be freed; NULL: there is none.  err: why a newer one, if any, is
 * not whole; "" where no step is there at all. */
char *index_newest(const char *folder, int64_t below, char *err, size_t nerr);
/* The numbers of all step_N in `folder` with an index, ascending, to be freed; n < 0: errno */
int64_t *index_steps(const char *folder, int *n);

#endif
