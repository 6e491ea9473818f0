/*
 * memory.h - a stream that writes into memory.  As open_memstream(), whose streams say nothing of
 * what they had no memory for: a text with a hole in it passes for whole.  Needs libc only.
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
/* 0; or -1 when something is missing, and m->at is NULL then.  f may be NULL. */
int memory_close(FILE *f, Memory *m);

#endif
