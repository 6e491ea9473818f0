/*
 * idmap.c - a map from numbers to numbers in an arena: open addressing, at most half full.  For
 * what few of many values or nodes have: an array over all of them would cost each stage the size
 * of the whole model.
 */
#include "base.h"

typedef struct IdSlot { uint64_t key; uint32_t value; bool used; } IdSlot;

static IdSlot *find(const IdMap *m, uint64_t key)
{
    uint32_t i = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (m->cap - 1);
    while (m->slot[i].used && m->slot[i].key != key)
        i = (i + 1) & (m->cap - 1);
    return &m->slot[i];
}

uint32_t idmap_get(const IdMap *m, uint64_t key)
{
    const IdSlot *s = m->cap ? find(m, key) : NULL;
    return s && s->used ? s->value : NONE;
}

uint32_t *idmap_at(Arena *a, IdMap *m, uint64_t key)
{
    if (2 * (m->n + 1) > m->cap) {
        IdMap old = *m;
        m->cap = old.cap ? old.cap * 2 : 16;
        m->slot = arena_array(a, IdSlot, m->cap);
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.slot[i].used)
                *find(m, old.slot[i].key) = old.slot[i];
    }
    IdSlot *s = find(m, key);
    if (!s->used) {
        *s = (IdSlot){key, NONE, true};
        m->n++;
    }
    return &s->value;
}
