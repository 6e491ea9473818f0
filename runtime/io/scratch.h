/*
 * scratch.h - files for what a run keeps on a disk while it lasts.
 */
#ifndef PP_SCRATCH_H
#define PP_SCRATCH_H

#include "core/core.h"

/* An open file without a name and room for so many bytes; gives errno, *fd -1 or to be closed */
int scratch_file(int *fd, int64_t bytes, const char *folder);
/* A file without a name, of that size, with its room: its descriptor in *fd; -1 after a failure. */
PpStatus scratch_open(int *fd, int64_t bytes, int rank, const char *option, const char *folder);

#endif
