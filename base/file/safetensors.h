/*
 * safetensors.h - strict reader and streaming writer of .safetensors, and the reader of our link
 * index (the same header as plain JSON, each tensor naming a file and an offset instead of
 * data_offsets). Used by the compiler and by every generated program; needs libc only.
 *
 * All functions return 0, or -1 with a message in err (one line, no newline).
 */
#ifndef PP_SAFETENSORS_H
#define PP_SAFETENSORS_H

#include "base/file/json.h"
#include "base/file/map.h"
#include "base/file/memory.h"
#include "base/file/sha256.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { ST_MAX_RANK = 16, ST_ERR = 512 };

typedef struct {
    const char *name; /* UTF-8, unescaped */
    int dtype;  /* TensorProto.DataType number: 1 F32, 2 U8, 3 I8, 4 U16, 5 I16, 6 I32, 7 I64, 9
                   BOOL,  10 F16, 11 F64, 12 U32, 13 U64, 16 BF16 */
    int rank;
    int64_t dim[ST_MAX_RANK];
    int64_t bytes;
    const char *data; /* in the mapping; NULL in a link index */
    const char *file; /* link index: file the bytes lie in, relative to the index; NULL else */
    int64_t offset;   /* link index: where in that file */
    int transposed;   /* link index: the bytes hold the transpose of this rank-2 tensor */
} StTensor;

typedef struct {
    const char *key, *value;
} StMeta;

typedef struct {
    Pool pool;
    StTensor *tensor; /* in the order of the header */
    int n;
    int *by_name; /* positions sorted by name */
    FileMap *map;
} StFile;

int st_fail(char *err, size_t nerr, const char *path, const char *what); /* -1; err: "PATH: WHAT" */
int st_open(StFile *f, const char *path, char *err, size_t nerr);
int st_open_link(StFile *f, const char *path, char *err, size_t nerr); /* stageN.link.json */
/* The path of the file in which a tensor of a link index lies; NULL: no memory */
const char *st_linked(Pool *p, const StFile *f, const StTensor *t);
const StTensor *st_find(const StFile *f, const char *name);
void st_close(StFile *f);

/* bytes of an element, 0: no such dtype here */
int64_t st_dtype_size(int dtype);
const char *st_dtype_name(int dtype);                        /* "F32" ..., NULL */
int st_read_dtype(Json *j, int *dtype);                      /* its name */
int st_read_bytes(Json *j, const char *name, int dtype, int rank, const int64_t *dim,
                  int64_t *bytes);

/* safetensors_write.c: declare every tensor, begin, then write all bytes in the order of
   declaration, then end.  The caller names a temporary path and renames it.  -1: errno */
typedef struct {
    Pool pool;
    FILE *f;
    StTensor *tensor;
    int n;
    StMeta *meta;
    int n_meta;
    int64_t total, written;
    int64_t header; /* bytes before those of the first tensor, once begun */
    char header_sha256[SHA256_TEXT];
    int failed;
} StWriter;

void stw_init(StWriter *w);
void stw_meta(StWriter *w, const char *key, const char *value);
void stw_declare(StWriter *w, const char *name, int dtype, int rank, const int64_t *dim);
/* What stands before the tensors, so that these begin at a multiple of `align`; -1: no memory */
int stw_header(const StWriter *w, size_t align, Memory *to);
int stw_begin(StWriter *w, const char *path);
void stw_write(StWriter *w, const void *data, int64_t bytes); /* failures are kept for stw_end */
/* sync: fsync before close; frees w in any case */
int stw_end(StWriter *w, int sync);
void stw_abandon(StWriter *w);

#endif
