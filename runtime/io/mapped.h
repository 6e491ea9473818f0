/*
 * mapped.h - memory that is a file: what a rank does not need all the time.  The system reads pages
 * when they are touched and writes them back when it wants their memory; the functions here say
 * what will be touched and what will not.
 */
#ifndef PP_MAPPED_H
#define PP_MAPPED_H

#include "base/file/map.h"
#include "core/core.h"

/* Blocks begin at multiples of MAPPED_ALIGN, up to which Linux maps neighbours of a page with it.
   From 6.18 on it maps the whole folio of the file's cache that has the page, 2 MiB at most, as far
   as the mapping goes. */
enum { MAPPED_ALIGN = 64 << 10, MAPPED_AROUND = 2 << 20 };

typedef struct {
    char *base; /* NULL: there is none */
    int64_t bytes;
    int fd;
    void *reserved; /* addresses around it */
    FileMap *map;   /* which is named where the disk fails */
} Mapped;

/* A file without a name in the folder, all its room taken, zeros at first; it is gone with the
 * process. */
PpStatus mapped_open(Mapped *m, int64_t bytes, int rank, const char *option, const char *folder);
void mapped_close(Mapped *m);
/* Is it in the file? */
int mapped_holds(const Mapped *m, const void *p);
/* The block is a mapping of its own: touching it brings nothing of its neighbours, nor these of
   it. */
void mapped_apart(const Mapped *m, const void *p, int64_t bytes);
/* Reading begins, beside the caller. */
void mapped_need(const Mapped *m, const void *p, int64_t bytes);
/* Out of the process; what has been written to it begins to go to the disk. */
void mapped_drop(const Mapped *m, const void *p, int64_t bytes);
/* And with it what came with its first pages, for a walk along the file that does not look back. */
void mapped_drop_behind(const Mapped *m, const void *p, int64_t bytes);
/* Bytes of it that are in the process now; slow, for --verbose; -1: not known. */
int64_t mapped_resident(const Mapped *m);

/* scratch.c */
/* An open file without a name and room for so many bytes; gives errno, *fd -1 or to be closed */
int scratch_file(int *fd, int64_t bytes, const char *folder);
/* A file without a name, of that size, with its room: its descriptor in *fd; -1 after a failure. */
PpStatus scratch_open(int *fd, int64_t bytes, int rank, const char *option, const char *folder);

#endif
