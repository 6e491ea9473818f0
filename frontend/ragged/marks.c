/*
 * marks.c - what is noted of values whose size depends on the data (ragged.h), and of masks.
 */
#include "ragged.h"

#include <stdarg.h>

typedef struct RaggedValues {
    IdMap of, mask_of; /* by ValueId */
    VEC(Ragged) at;
    VEC(RaggedMask *) mask;
    StrMap made; /* masks, by how they are made */
    Ids first;   /* values of which no other is computed alike */
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

RaggedMask *ragged_mask(ImportState *s, ValueId mask)
{
    RaggedValues *all = values_of(s);
    uint32_t *at = idmap_at(s->g->arena, &all->mask_of, mask);
    if (*at == NONE) {
        RaggedMask *p = arena_new_of(s->g->arena, RaggedMask);
        *p = (RaggedMask){.mask = mask, .packed = NONE, .count = NONE};
        *at = all->mask.n;
        vec_push(s->g->arena, &all->mask, p);
    }
    return all->mask.at[*at];
}

bool ragged_same_extent(const Extent *a, const Extent *b)
{
    if (!a || !b || a->known != b->known || a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->mask[i] != b->mask[i] || a->times[i] != b->times[i])
            return false;
    return true;
}

ValueId ragged_with_extent(ImportState *s, const Extent *e)
{
    const RaggedValues *all = values_of(s);
    for (uint32_t i = 0; i < all->mask.n; i++)
        if (ragged_same_extent(all->mask.at[i]->extent, e))
            return all->mask.at[i]->mask;
    return NONE;
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
