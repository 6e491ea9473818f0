/* ragged_values.c - which values have a size that depends on the data, and how. */
#include "ragged.h"

typedef struct RaggedValues {
    IdMap of;     /* by ValueId */
    IdMap packed; /* by mask */
    IdMap shuffled; /* masks */
    VEC(Ragged) at;
} RaggedValues;

static RaggedValues *values_of(ImportState *s)
{
    if (!s->ragged)
        s->ragged = arena_new_of(s->g->arena, RaggedValues);
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

uint32_t *ragged_packed(ImportState *s, ValueId mask)
{
    return idmap_at(s->g->arena, &values_of(s)->packed, mask);
}

void ragged_shuffle(ImportState *s, ValueId mask)
{
    *idmap_at(s->g->arena, &values_of(s)->shuffled, mask) = 1;
}

bool ragged_shuffled(const ImportState *s, ValueId mask)
{
    return idmap_get(&s->ragged->shuffled, mask) != NONE;
}
