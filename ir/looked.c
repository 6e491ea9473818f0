/*
 * looked.c - what was found by looking at all elements of a constant, so that it is looked at once,
 * whoever asks, for however many layers: a mask of 8,192 x 8,192 is 256 MB.
 *
 * A constant's bytes never change and outlive the graph, so where they are says which it is; of
 * equal ones, as each layer may have its own, the first can be asked for.
 */
#include <string.h>

#include "base/file/hash.h"
#include "ir.h"

typedef struct {
    const void *data;
    Dtype dtype;
    Shape shape;
    LookAt *look;
    int what;
    const void *found;
    uint32_t next;                                      /* of the same data; NONE */
} Seen;

typedef struct {
    const void *data;
    size_t n;
    const void *first;                                  /* of the same bytes */
    uint32_t next;                                      /* of the same hash; NONE */
} Met;

struct Looked {
    IdMap by_address, by_hash;
    VEC(Seen) seen;
    VEC(Met) met;
};

const void *graph_look(const Graph *g, Dtype t, const Shape *shape, const void *data, LookAt *look,
                       int what)
{
    struct Looked *k = g->looked;
    uint32_t *first = idmap_at(g->arena, &k->by_address, (uintptr_t)data);
    for (uint32_t i = *first; i != NONE; i = k->seen.at[i].next) {
        const Seen *s = &k->seen.at[i];
        if (s->look == look && s->what == what && s->dtype == t && shape_equal(&s->shape, shape))
            return s->found;
    }
    const void *found = look(g->arena, t, shape, data, what);
    Seen s = {data, t, *shape, look, what, found, *first};
    *first = k->seen.n;
    vec_push(g->arena, &k->seen, s);
    return found;
}

/* Of some of them: equal ones have the same. */
static uint64_t hash_some(const uint8_t *at, size_t n)
{
    enum { PARTS = 16, PART = 64 };
    uint64_t h = hash_value(HASH_START, n);
    if (n <= (size_t)PARTS * PART)
        return hash_bytes(h, at, n);
    for (size_t i = 0; i < PARTS; i++)
        h = hash_bytes(h, at + (n - PART) / (PARTS - 1) * i, PART);
    return h;
}

const void *graph_bytes(const Graph *g, const void *data, size_t n)
{
    struct Looked *k = g->looked;
    uint32_t *last = idmap_at(g->arena, &k->by_hash, hash_some(data, n));
    Met new = {data, n, data, *last};
    for (uint32_t i = *last; i != NONE; i = k->met.at[i].next)
        if (k->met.at[i].data == data && k->met.at[i].n == n)
            return k->met.at[i].first;
    for (uint32_t i = *last; i != NONE && new.first == data; i = k->met.at[i].next)
        if (k->met.at[i].n == n && !memcmp(k->met.at[i].data, data, n))
            new.first = k->met.at[i].first;
    *last = k->met.n;
    vec_push(g->arena, &k->met, new);
    return new.first;
}

Looked *looked_new(Arena *a)
{
    return arena_new_of(a, Looked);
}
