/*
 * memory.c - in: what is printed to a stream; out: its bytes, all of them or none.  And arrays that
 * grow, and pieces of memory that go together.
 */
#include "memory.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* What it takes less of than it is given is an error of the stream. */
static ssize_t append(void *to, const char *bytes, size_t n)
{
    Memory *m = to;
    if (n >= m->cap - m->n) {
        size_t cap = 2 * m->cap + n + 256;
        char *grown = realloc(m->at, cap);
        if (!grown)
            return 0;
        m->at = grown;
        m->cap = cap;
    }
    memcpy(m->at + m->n, bytes, n);
    m->n += n;
    m->at[m->n] = 0;
    return (ssize_t)n;
}

FILE *memory_open(Memory *m)
{
    *m = (Memory){calloc(1, 1), 0, 1};
    FILE *f = m->at ? fopencookie(m, "w", (cookie_io_functions_t){.write = append}) : NULL;
    if (!f) {
        free(m->at);
        m->at = NULL;
    }
    return f;
}

int memory_close(FILE *f, Memory *m)
{
    int bad = !f || ferror(f) != 0;
    bad |= f && fclose(f) != 0;
    if (bad) {
        free(m->at);
        m->at = NULL;
        m->n = 0;
    }
    return bad ? -1 : 0;
}

void *memory_added(void *list, int *n, size_t size)
{
    char *at;
    memcpy(&at, list, sizeof at);
    if (!(*n & (*n - 1))) { /* there is room up to the next power of two */
        char *grown = realloc(at, (size_t)(*n ? 2 * *n : 1) * size);
        if (!grown)
            return NULL;
        memcpy(list, &grown, sizeof grown);
        at = grown;
    }
    return memset(at + (size_t)(*n)++ * size, 0, size);
}

/* ---- pools ---- */

/* Its bytes follow. */
struct PoolPiece {
    struct PoolPiece *before;
    max_align_t at[];
};

void *pool_take(Pool *p, int64_t n, size_t size)
{
    size_t bytes;
    n = n > 0 ? n : 1;
    const int large = __builtin_mul_overflow((size_t)n, size, &bytes) ||
                      __builtin_add_overflow(bytes, sizeof(struct PoolPiece), &bytes);
    struct PoolPiece *piece = large ? NULL : calloc(1, bytes);
    if (!piece) {
        p->lost = 1;
        return NULL;
    }
    piece->before = p->last;
    p->last = piece;
    return piece->at;
}

char *pool_text(Pool *p, const char *text, size_t n)
{
    char *to = pool_take(p, (int64_t)n + 1, 1);
    return to ? memcpy(to, text, n) : NULL;
}

char *pool_print(Pool *p, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    char *to = n < 0 ? NULL : pool_take(p, (int64_t)n + 1, 1);
    if (to)
        vsnprintf(to, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return to;
}

void *pool_added(Pool *p, void *list, int *n, size_t size)
{
    char *at;
    memcpy(&at, list, sizeof at);
    if (!(*n & (*n - 1))) {
        char *grown = pool_take(p, *n ? 2 * (int64_t)*n : 1, size);
        if (!grown)
            return NULL;
        if (*n)
            memcpy(grown, at, (size_t)*n * size);
        memcpy(list, &grown, sizeof grown);
        at = grown;
    }
    return at + (size_t)(*n)++ * size;
}

void pool_free(Pool *p)
{
    for (struct PoolPiece *piece = p->last, *before; piece; piece = before) {
        before = piece->before;
        free(piece);
    }
    p->last = NULL;
}
