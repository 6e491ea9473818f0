/*
 * text.c - a text that grows, whose room doubles: what is put together piece by piece takes time
 * and memory by its length, not by its square.
 */
#include <string.h>

#include "base.h"

static void reserve(Text *t, size_t n)
{
    if (t->n + n + 1 <= t->cap)
        return;
    size_t cap = t->cap ? t->cap * 2 : 256;
    while (cap < t->n + n + 1)
        cap *= 2;
    char *at = arena_alloc(t->a, cap);
    if (t->n)
        memcpy(at, t->at, t->n);
    t->at = at;
    t->cap = cap;
}

void text_vadd(Text *t, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    INSIST(n >= 0);
    reserve(t, (size_t)n);
    vsnprintf(t->at + t->n, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n += (size_t)n;
}

void text_add(Text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_vadd(t, fmt, ap);
    va_end(ap);
}

const char *text_all(const Text *t)
{
    return t->at ? t->at : "";
}

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
