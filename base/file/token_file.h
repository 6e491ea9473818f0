/*
 * token_file.h - a text as numbers, in the files of those who prepare such: a tensor of rank 1. One
 * row of `formats` (token_file.c) each; what a file is, its bytes say.  Needs libc only.
 */
#ifndef PP_TOKEN_FILE_H
#define PP_TOKEN_FILE_H

#include "base/file/npy.h"

/* raw: the type of a file that holds numbers and nothing else; 0: its format says it.  0, or -1
 * with a one-line message in err; 1 with one: it is of no format that says its type. */
int token_file_open(NpyFile *f, const char *path, int raw, char *err, size_t nerr);
/* How long the sequences of Megatron's index are, *index: 1; or else a .npy, or a TensorProto. */
int token_lengths_open(NpyFile *f, const char *path, int *index, char *err, size_t nerr);
#endif
