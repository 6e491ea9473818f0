/*
 * marks.c - what is noted of values whose size depends on the data (ragged.h), and of masks.
 */
#include "ragged.h"

#include <stdarg.h>

typedef struct RaggedValues {
    IdMap of;       /* by ValueId */
    StrMap made;    /* masks and counts, by how they are made */
    IdMap shuffled; /* masks */
    IdMap sized;    /* masks whose extent is told: its index */
    VEC(const Extent *) extent;
    Ids first; /* values of which no other is computed alike */
    VEC(Ragged) at;
} RaggedValues;

static RaggedValues *values_of(ImportState *s)
{
    if (!s->ragged) {
        s->ragged = arena_new_of(s->g->arena, RaggedValues);
        s->ragged->made.arena = s->g->arena;
    }
    return s->ragged;
}

const Ragged *ragged_find(const ImportState *s, ValueId v)
{
    uint32_t i = s->ragged && v != NONE ? idmap_get(&s->ragged->of, v) : NONE;
    return i == NONE ? NULL : &s->ragged->at.at[i];
}

void ragged_mark(ImportState *s, ValueId v, Ragged r)
{
    RaggedValues *all = values_of(s);
    if (v == NONE)
        return;
    *idmap_at(s->g->arena, &all->of, v) = all->at.n;
    vec_push(s->g->arena, &all->at, r);
}

uint32_t *ragged_made(ImportState *s, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    const char *key = arena_vprintf(s->g->arena, fmt, list);
    va_end(list);
    return strmap_at(&values_of(s)->made, key);
}

ValueId ragged_first_alike(ImportState *s, ValueId v)
{
    RaggedValues *all = values_of(s);
    for (uint32_t i = 0; i < all->first.n; i++) {
        Alike a = {0};
        if (import_alike(s->g, &a, all->first.at[i], v) && !a.other_parameters)
            return all->first.at[i];
    }
    vec_push(s->g->arena, &all->first, v);
    return v;
}

void ragged_shuffle(ImportState *s, ValueId mask)
{
    *idmap_at(s->g->arena, &values_of(s)->shuffled, mask) = 1;
}

bool ragged_shuffled(const ImportState *s, ValueId mask)
{
    return idmap_get(&s->ragged->shuffled, mask) != NONE;
}

const Extent *ragged_extent_noted(const ImportState *s, ValueId mask)
{
    uint32_t i = idmap_get(&s->ragged->sized, mask);
    return i == NONE ? NULL : s->ragged->extent.at[i];
}

void ragged_note_extent(ImportState *s, ValueId mask, const Extent *e)
{
    RaggedValues *all = values_of(s);
    *idmap_at(s->g->arena, &all->sized, mask) = all->extent.n;
    vec_push(s->g->arena, &all->extent, e);
}
