/*
 * npy.h - tensors in files: .npy (versions 1 to 3) read and written, TensorProto .pb read.
 * Functions return 0, or -1 with a one-line message in err.
 */
#ifndef PP_NPY_H
#define PP_NPY_H

#include "base/file/map.h"

#include <stdint.h>

enum { NPY_MAX_RANK = 16 };
enum {
#define DTYPE(name, number, ...) NPY_##name = number,
#include "dtype.def"
#undef DTYPE
};

typedef struct {
    int dtype; /* TensorProto.DataType number */
    int rank;
    int64_t dim[NPY_MAX_RANK];
    int64_t bytes;
    const char *data; /* in the mapping (any alignment) or in `own` */
    char *own;
    FileMap *map;
} NpyFile;

/* by content: .npy magic, else TensorProto */
int npy_open(NpyFile *f, const char *path, char *err, size_t nerr);
/* A file that holds numbers of type dtype and nothing else, as a tensor of rank 1 */
int npy_open_raw(NpyFile *f, const char *path, int dtype, char *err, size_t nerr);
void npy_close(NpyFile *f);
/* Is it one of i8 to i64, u8 and u16? */
int npy_is_integer(int dtype);
/* Numbers of these types, or of u32 and u64, at any alignment; stride: bytes from one to the next
 */
int64_t npy_integer(const char *at, int dtype);
int npy_holds(int dtype, int64_t v); /* is it a number of this type? */
void npy_integers(const char *at, int dtype, int64_t stride, int64_t n, int64_t *to);
/* "[3, 4]"; rows: a dimension that is said as such, "[rows, 4]", or -1 */
void dims_text(char *to, size_t n, int rank, const int64_t *dim, int rows);
/* Whole or not at all (replace.h) */
int npy_write(const char *path, int dtype, int rank, const int64_t *dim, const void *data,
              char *err, size_t nerr);

#endif
