/*
 * merge.h - shared by the two ways to write a checkpoint's weights: merge.c (the ONNX file) and
 * state_dict.c (files of tensors).
 */
#ifndef PPSPLIT_MERGE_H
#define PPSPLIT_MERGE_H

#include "base/file/index.h"
#include "base/file/replace.h"
#include "skeleton.h"

/* n bytes to be written.  rows and columns: of a matrix that is to be transposed, as it is in
 * memory, else 0.  half: the type that f32 are rounded to, or DT_NONE. */
typedef struct {
    const void *at;
    size_t n, rows, columns;
    Dtype half;
} Piece;
typedef struct {
    VEC(Piece) piece;
    uint64_t n;
} Pieces;

typedef struct {
    FileWhole as;     /* of a file that is to be there */
    const char *gone; /* one that is not; NULL: none */
} Written;

typedef struct {
    Arena *arena;
    const MergeAsk *ask;
    VEC(Written) file; /* which take their places when all are there */
    Index index;
    const char *data_name; /* of the file of weights outside the model; NULL: they are inside */
    Pieces data;
    const FileMap *constants; /* of the output; NULL: not read yet */
    Merged result;
} Merge;

/* ---- merge_read.c: the checkpoint and the skeletons --------------------------------------------
 */

/* A tensor whose bytes the skeleton lacks: a parameter or a long constant. */
typedef struct {
    Shape shape;
    uint64_t dtype;
    const char *name, *parameter, *changed;
    bool transposed;
    VEC(const char *) tied;    /* the parameter's other names */
    PbSpan raw;                /* its bytes, if the skeleton has them */
    const char *file, *sha256; /* of a long constant */
    uint64_t offset, bytes;
} Slot;

/* Refuses an output folder that is being replaced, or whose replacement was interrupted. */
void merge_refuse_half(Merge *m);
/* A checkpoint folder, or the newest step_N in it whose parameters are all undamaged. */
void merge_open_checkpoint(Merge *m);
/* A tensor of the checkpoint; its bytes go to *bytes. */
const IndexTensor *merge_tensor(Merge *m, const char *name, const void **bytes);
/* The mapped skeleton of model i; empty when there are no more.  Its path goes to *path. */
PbSpan merge_open_skeleton(Merge *m, uint32_t i, const char **path);
void merge_check_read(const PbSpan *s, const char *path);
Slot merge_slot(Merge *m, PbSpan body);
/* A parameter's bytes as they are to be written: in the layout of the model's file, or as PyTorch
 * has it. */
Piece merge_parameter(Merge *m, const Slot *s, bool as_in_file);
/* A constant's bytes, which are in a file of the output folder. */
Piece merge_constant(Merge *m, const Slot *s);

/* ---- merge_write.c: files, all of them or none --------------------------------------------------
 */

/* f, which writes files: mappings, and if it fails what is not in its place yet, are let go of */
void merge_run(Merge *m, void (*f)(void *arg), void *arg);

void merge_add(Arena *a, Pieces *to, Piece p);
/* Beside its place, which it takes in merge_place(). */
void merge_write(Merge *m, const char *path, const Pieces *pieces);
void merge_place(Merge *m);
/* "trained.onnx", "trained1.onnx", "trained2.onnx" */
const char *merge_target(Merge *m, const char *name, uint32_t i);

/* ---- state_dict.c -------------------------------------------------------------------------------
 */

/* The parameters of model i as its state_dict, and the states of the optimizer where they are asked
 * for; false: there is no such model. */
bool state_dict_model(Merge *m, uint32_t i);

#endif
