/*
 * memory.h - a stream that writes into memory, and memory that is given back in one go.  Unlike a
 * stream of open_memstream(), the stream reports that memory ran out: there, a text with a hole in
 * it passes for whole.  Needs libc only.
 */
#ifndef PP_MEMORY_H
#define PP_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/* What one owner takes, piece by piece, and gives back at once; {0}: nothing. */
typedef struct {
    struct PoolPiece *last;
    int lost; /* there was no memory for a piece */
} Pool;
/* So many elements, zero, at least one; NULL: no memory */
void *pool_take(Pool *p, int64_t n, size_t size);
/* A copy of n bytes, and a NUL behind them */
char *pool_text(Pool *p, const char *text, size_t n);
__attribute__((format(printf, 2, 3))) char *pool_print(Pool *p, const char *fmt, ...);
/* As memory_added(); what the array has grown out of stays the pool's. */
void *pool_added(Pool *p, void *list, int *n, size_t size);
void pool_free(Pool *p);
/* One that ends with the block in which it stands, however that is left. */
#define POOL(name) __attribute__((cleanup(pool_free))) Pool name = {0}

#ifdef __cplusplus
}
#endif

#endif
