/*
 * memory.c - in: what is printed to a stream; out: its bytes, all of them or none.  And arrays that
 * grow.
 */
#include "memory.h"

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
        at = realloc(at, (size_t)(*n ? 2 * *n : 1) * size);
        if (!at)
            return NULL;
        memcpy(list, &at, sizeof at);
    }
    return memset(at + (size_t)(*n)++ * size, 0, size);
}
