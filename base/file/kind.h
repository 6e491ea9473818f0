/*
 * kind.h - recognises, by its first bytes, a file that was given in the place of an ONNX model or
 * an array: what it is, and what the user can do.
 */
#ifndef PP_FILE_KIND_H
#define PP_FILE_KIND_H

#include <stddef.h>

typedef struct {
    const char *is;       /* "a .npz archive (numpy.savez)" */
    const char *as_model; /* what to do where a model was wanted */
    const char *as_array; /* what to do where an array was wanted */
} FileKind;

/* What a file is that begins with these n bytes; NULL: unknown. */
const FileKind *file_kind(const void *at, size_t n);

#endif
