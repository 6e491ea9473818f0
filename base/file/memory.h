/*
 * memory.h - a stream that writes into memory.  Unlike a stream of open_memstream(), it reports
 * that memory ran out: there, a text with a hole in it passes for whole.  Needs libc only.
 */
#ifndef PP_MEMORY_H
#define PP_MEMORY_H

#include <stddef.h>
#include <stdio.h>

typedef struct {
    char *at; /* n bytes, and a NUL behind them; to be freed */
    size_t n, cap;
} Memory;

/* NULL: no memory.  m stays where it is until memory_close(). */
FILE *memory_open(Memory *m);
/* 0; or -1, with m->at NULL, when something could not be written.  f may be NULL. */
int memory_close(FILE *f, Memory *m);

/* One more element, zero, behind the n of the array that `list` points to; NULL: no memory, all is
   as it was.  n starts at 0, and nothing else makes it more. */
void *memory_added(void *list, int *n, size_t size);

#endif
