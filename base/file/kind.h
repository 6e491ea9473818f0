/*
 * kind.h - files that are mistaken for others, by their first bytes: what a file is that is no
 * ONNX model and no array, and what its owner can do.
 */
#ifndef PP_FILE_KIND_H
#define PP_FILE_KIND_H

#include <stddef.h>

typedef struct {
    const char *is;       /* "a .npz archive (numpy.savez)" */
    const char *as_model; /* what to do where a model was wanted */
    const char *as_array; /* where one array was */
} FileKind;

/* Of a file that begins with these n bytes; NULL: none of those known here. */
const FileKind *file_kind(const void *at, size_t n);

#endif
