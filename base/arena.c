/*
 * arena.c - one zeroed arena per run: blocks that double, never freed one by one; growable arrays
 * and a string map live in it.  Out of memory leaves through diag_fatal(), so no caller checks for
 * NULL.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "escape.h"
#include "file/hash.h"

typedef struct Block { struct Block *next; size_t size, used; } Block;
typedef struct Held { struct Held *next; void (*release)(void *); void *at; } Held;
/* next: within the same outer one */
struct Arena { Block *head; Held *held, *unused; Arena *outer, *inner, *next; };

enum { ALIGN = 16, FIRST_BLOCK = 64 << 10, LAST_BLOCK = 8 << 20 };

static size_t round_up(size_t n) { return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

static _Noreturn void no_memory(size_t n)
{
    diag_fatal(EXIT_IO, WHERE_NONE, "out of memory (%zu bytes asked for)", n);
}

Arena *arena_new(void)
{
    Arena *a = calloc(1, sizeof *a);
    if (!a)
        no_memory(sizeof *a);
    return a;
}

Arena *arena_within(Arena *outer)
{
    Arena *a = arena_new();
    a->outer = outer;
    a->next = outer->inner;
    outer->inner = a;
    return a;
}

void arena_free(Arena *a)
{
    if (!a)
        return;
    while (a->inner)
        arena_free(a->inner);
    if (a->outer) {
        Arena **at = &a->outer->inner;
        while (*at != a)
            at = &(*at)->next;
        *at = a->next;
    }
    for (Held *h = a->held; h; h = h->next)
        h->release(h->at);
    for (Block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

/* ---- what is released with it ---- */

void arena_hold(Arena *a, void (*release)(void *), void *at)
{
    Held *h = a->unused;
    if (h)
        a->unused = h->next;
    else
        h = arena_new_of(a, Held);
    *h = (Held){a->held, release, at};
    a->held = h;
}

void arena_drop(Arena *a, void *at)
{
    Held **h = &a->held;
    while ((*h)->at != at)
        h = &(*h)->next;
    Held *found = *h;
    *h = found->next;
    found->next = a->unused;
    a->unused = found;
}

static void close_file(void *f) { fclose(f); }

FILE *arena_fopen(Arena *a, const char *path, const char *mode)
{
    if (!a->unused) /* or, with the file open, there might be no memory for it */
        a->unused = arena_new_of(a, Held);
    FILE *f = fopen(path, mode);
    if (f)
        arena_hold(a, close_file, f);
    return f;
}

int arena_fclose(Arena *a, FILE *f)
{
    arena_drop(a, f);
    return fclose(f);
}

static void unmap(void *at)
{
    FileMap **m = at;
    file_unmap(*m);
}

const void *arena_map(Arena *a, const char *path, int fd, size_t n)
{
    FileMap **m = arena_new_of(a, FileMap *);
    arena_hold(a, unmap, m);
    *m = file_map_open(path, fd, n);
    return *m ? (*m)->at : NULL;
}

typedef struct {
    void *at;
    size_t n;
} Zeros;

static void unmap_zeros(void *at)
{
    const Zeros *z = at;
    munmap(z->at, z->n);
}

const void *arena_zeros(Arena *a, size_t n)
{
    Zeros *z = arena_new_of(a, Zeros);
    void *at = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    *z = (Zeros){at, n};
    arena_hold(a, unmap_zeros, z);
    return at;
}

const FileMap *arena_file(Arena *a, const char *path)
{
    char why[FILE_WHY];
    FileMap **m = arena_new_of(a, FileMap *);
    arena_hold(a, unmap, m);
    *m = file_map(path, why);
    if (!*m)
        diag_fatal(EXIT_IO, WHERE_FILE(path), "cannot open: %s", why);
    return *m;
}

static Block *block_new(Arena *a, size_t n)
{
    size_t size = a->head ? a->head->size * 2 : FIRST_BLOCK;
    if (size > LAST_BLOCK)
        size = LAST_BLOCK;
    if (size < n)
        size = n;
    Block *b = calloc(1, round_up(sizeof *b) + size);
    if (!b)
        no_memory(size);
    b->size = size;
    /* keep filling the roomier block */
    if (a->head && a->head->size - a->head->used > size - n) {
        b->next = a->head->next;
        a->head->next = b;
    } else {
        b->next = a->head;
        a->head = b;
    }
    return b;
}

void *arena_alloc(Arena *a, size_t n)
{
    if (n > SIZE_MAX / 2)
        no_memory(n);
    n = round_up(n ? n : 1);
    Block *b = a->head;
    if (!b || b->size - b->used < n)
        b = block_new(a, n);
    void *p = (char *)b + round_up(sizeof *b) + b->used;
    b->used += n;
    return p;
}

void *arena_calloc(Arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        no_memory(SIZE_MAX);
    return arena_alloc(a, bytes);
}

uint32_t *arena_none(Arena *a, size_t n)
{
    uint32_t *at = arena_array(a, uint32_t, n);
    memset(at, 0xff, n * sizeof *at);
    return at;
}

void *arena_move_(Arena *a, const void *at, size_t bytes, size_t n, size_t size)
{
    void *p = arena_calloc(a, n, size);
    if (bytes > 0)
        memcpy(p, at, bytes);
    return p;
}

void *arena_grow_(Arena *a, void *at, uint32_t *cap, size_t size)
{
    if (*cap >= UINT32_MAX / 2)
        no_memory(SIZE_MAX);
    uint32_t n = *cap ? *cap * 2 : 8;
    void *p = arena_move_(a, at, *cap * size, n, size);
    *cap = n;
    return p;
}

char *arena_strndup(Arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);
    if (n > 0)                                          /* s: of nothing it may be NULL */
        memcpy(p, s, n);
    return p;
}

char *arena_strdup(Arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    INSIST(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    return p;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

const char *diag_escape(Arena *a, const char *s)
{
    size_t size = strlen(s) * 4 + 16;
    char *out = arena_alloc(a, size);
    escape_into(out, size, s);
    return out;
}

/* ---- StrMap: open addressing, FNV-1a, at most half full ---- */

typedef struct StrSlot { const char *key; uint32_t value; } StrSlot;

static StrSlot *strmap_slot(const StrMap *m, const char *key)
{
    uint32_t i = (uint32_t)(hash_bytes(HASH_START, key, strlen(key)) >> 7) & (m->cap - 1);
    while (m->slot[i].key && strcmp(m->slot[i].key, key))
        i = (i + 1) & (m->cap - 1);
    return &m->slot[i];
}

uint32_t strmap_get(const StrMap *m, const char *key)
{
    if (!m->cap)
        return NONE;
    StrSlot *s = strmap_slot(m, key);
    return s->key ? s->value : NONE;
}

uint32_t *strmap_at(StrMap *m, const char *key)
{
    if (2 * (m->n + 1) > m->cap) {
        StrMap old = *m;
        m->cap = old.cap ? old.cap * 2 : 64;
        m->slot = arena_array(m->arena, StrSlot, m->cap);
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.slot[i].key)
                *strmap_slot(m, old.slot[i].key) = old.slot[i];
    }
    StrSlot *s = strmap_slot(m, key);
    if (!s->key) {
        *s = (StrSlot){arena_strdup(m->arena, key), NONE};
        m->n++;
    }
    return &s->value;
}
