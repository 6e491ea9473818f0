/*
 * kept.c - the table of what a stage has in memory after its forward: values of the stash, of its
 * parts, and outputs, of float types, in the model's order.  A run that meets a number that is not
 * finite looks through it for the first one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "write.h"

typedef struct {
    ValueId value;
    uint32_t order;                                     /* of its node in the forward */
    int64_t part, output, offset, bytes;                /* as in PpKept */
} Kept;

static int by_order(const void *a, const void *b)
{
    const Kept *x = a, *y = b;
    return x->order != y->order ? (x->order > y->order) - (x->order < y->order)
                                : (x->value > y->value) - (x->value < y->value);
}

/* Roots stand one behind the other: up to where the next one begins. */
static int64_t bytes_of(const StageGen *sg, uint32_t root)
{
    uint32_t part = sg->stash_part.at[root];
    int64_t at = sg->stash_at.at[root],
            end = part == NONE ? sg->bytes_stash
                               : sg->again.at[part].at + sg->again.at[part].bytes;
    for (uint32_t i = 0; i < sg->stash_at.n; i++)
        if (sg->stash_at.at[i] > at && sg->stash_at.at[i] < end)
            end = sg->stash_at.at[i];
    return end - at;
}

/* As a run says it: by the model's name, or by the node that it is a part of. */
static const char *called(const StageGen *sg, ValueId value)
{
    const Value *v = val(sg->g, value);
    uint32_t origin = v->kind == V_NODE ? sg->g->node.at[v->node].origin : NONE;
    if (!strchr(v->name, '%') || origin >= sg->g->origin.n)
        return arena_printf(sg->a, "'%s'", v->name);
    const Origin *o = &sg->g->origin.at[origin];
    return arena_printf(sg->a, "a value inside of node '%s' (%s)", o->name, o->type);
}

uint32_t cg_kept_print(const StageGen *sg, const char *table, Text *t)
{
    const Stage *s = sg->stage;
    const Graph *g = sg->g;
    VEC(Kept) all = {0};
    for (uint32_t i = 0; i < sg->stash.n; i++) {
        uint32_t part = sg->stash_part.at[i];
        int64_t from = part == NONE ? 0 : sg->again.at[part].at;
        Kept k = {.value = sg->stash.at[i],
                  .part = part == NONE ? -1 : (int64_t)part,
                  .output = -1,
                  .offset = sg->stash_at.at[i] - from,
                  .bytes = bytes_of(sg, i)};
        vec_push(sg->a, &all, k);
    }
    for (uint32_t i = 0; i < s->output.n; i++) {
        Kept k = {.value = s->output.at[i].value, .part = -1, .output = i};
        vec_push(sg->a, &all, k);
    }
    IdMap order = {0};
    for (uint32_t i = 0; i < s->forward.n; i++)
        *idmap_at(sg->a, &order, s->forward.at[i]) = i;
    uint32_t n = 0;
    for (uint32_t i = 0; i < all.n; i++) {
        const Value *v = val(g, all.at[i].value);
        all.at[n] = all.at[i];
        all.at[n].order = v->kind == V_NODE ? idmap_get(&order, v->node) : 0;
        n += dtype_is_float(v->dtype);
    }
    if (n == 0)
        return 0;
    qsort(all.at, n, sizeof *all.at, by_order);
    text_line(t, "static const PpKept stage%u%s_kept[] = {", s->index, table);
    for (uint32_t i = 0; i < n; i++) {
        const Kept *k = &all.at[i];
        const Value *v = val(g, k->value);
        text_line(t, "    {%s, %d, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "},",
                  cg_string(sg->a, called(sg, k->value)), (int)v->dtype, k->part, k->output, k->offset,
                  k->bytes);
    }
    text_line(t, "};");
    return n;
}
