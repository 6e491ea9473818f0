/*
 * index.h - a checkpoint as its readers see it: a folder step_N with files of tensors and
 * index.json.  index.json is written last: a folder without it is no checkpoint.  Used by `ppsplit
 * merge` and by every generated program; needs libc only.
 *
 *     {"format": "ppsplit checkpoint 2", "model": "m.onnx", "model_hash": "...", "step": 500,
 *      "state":   {"rows": "16000", ...},        where the run was; all values are texts
 *      "options": {"batch": "32", ...},          options of the run that change its numbers
 *      "data":    {"x 1": "...", ...},           a SHA-256 of each input file
 *      "files":   {"rank0.safetensors": {"bytes": 4096, "header": 320, "sha256": "..."}, ...},
 *      "tensors": {"w": {"dtype": "F32", "shape": [3, 4],
 *                        "pieces": [{"file": "rank0.safetensors", "offset": 320, "bytes": 48,
 *                                    "sha256": "..."}]}, ...},
 *      "index_sha256": "..."}                    covers all bytes before this key's comma
 *
 * A tensor is its pieces, one after the other; it has several where ranks divide a state among
 * them, each writing its part.  Where they divide the tensor itself along a dimension, a piece is
 * of a box of it, and says of which: "start": [0, 2], "size": [3, 2], a number for each dimension
 * of "shape"; or of "view", [3, 2, 4] say for a shape [6, 4], where each of three runs of rows is
 * divided alike.  Boxes come in the order of their starts, the pieces of one in that of its bytes;
 * without "start" a piece is of the whole tensor.
 *
 * Offsets count from the beginning of the file.  Every byte of a checkpoint is under a checksum; a
 * file's header has one of its own.  Functions return 0, or -1 with a one-line message in err.
 */
#ifndef PP_INDEX_H
#define PP_INDEX_H

#include "base/file/box.h"
#include "base/file/map.h"
#include "base/file/memory.h"
#include "base/file/sha256.h"

#include <stddef.h>
#include <stdint.h>

enum { INDEX_MAX_RANK = 16, INDEX_ERR = 600 };

typedef struct {
    const char *key, *value;
} IndexText;

typedef struct {
    const char *name;
    int64_t bytes, header;
    char sha256[SHA256_TEXT]; /* of the header */
    FileMap *map;
} IndexFile;

typedef struct {
    int file; /* its number */
    int64_t offset, bytes;
    Box box; /* which bytes of the tensor they are */
    char sha256[SHA256_TEXT];
    int checked; /* index_copy() has compared it with its checksum */
} IndexPiece;

typedef struct {
    const char *name;
    int dtype, rank; /* TensorProto.DataType number */
    int64_t dim[INDEX_MAX_RANK], bytes;
    IndexPiece *piece;
    int n_piece;
    char *whole; /* several pieces put together, once index_bytes() was asked for them */
} IndexTensor;

typedef struct {
    Pool pool;
    const char *path;     /* of the folder */
    char sha256[SHA256_TEXT]; /* of index.json, which has the checksums of everything else */
    char note[INDEX_ERR]; /* set by the caller: why a newer checkpoint was not taken */
    const char *model;
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
/* Opens the checkpoint in `folder`: reads index.json, and checks that its files have the sizes and
 * headers that index.json says. */
int index_open(Index *x, const char *folder, char *err, size_t nerr);
void index_close(Index *x);
/* the text under this key; NULL: there is none */
const char *index_state(const Index *x, const char *key);
const char *index_option(const Index *x, const char *key);
const char *index_data(const Index *x, const char *key);
const IndexTensor *index_find(const Index *x, const char *name);
/* The tensor's bytes, after their checksums were compared; they stay as long as x.  Not from two
 * threads at once. */
const void *index_bytes(Index *x, const IndexTensor *t, char *err, size_t nerr);
/* Compares pieces with their checksums: of all pieces, numbered over all tensors, every `parts`th
 * from `part` on.  -1: a piece is not what was written.  states: the optimizer's tensors too */
int index_check(const Index *x, int states, int part, int parts, char *err, size_t nerr);
/* Copies a part of the tensor to `to`; reads only the pieces that have some of it.  Not from two
 * threads at once. */
int index_copy(Index *x, const IndexTensor *t, const Box *part, void *to, char *err, size_t nerr);

/* index_steps.c: folders of checkpoints */
/* Opens the newest step_N in `folder` that can be opened and whose step is before `below`; or
 * `folder` itself where it is a checkpoint.  0: there is none.  err: why a newer checkpoint, if any,
 * is not whole; "" where there is no step at all. */
int index_newest(Index *x, const char *folder, int64_t below, char *err, size_t nerr);
/* The numbers of all step_N in `folder` with an index, or of any, ascending, to be freed; n < 0:
 * errno.  Without memory less is known than there is. */
int64_t *index_steps(const char *folder, int any, int *n);

#endif
