/*
 * kept.c - the table of what a stage has in memory after its forward: values of the stash, of its
 * parts, and outputs, of float types, in the model's order.  A run that meets a number that is not
 * finite looks through it for the first one.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/tables.h"

typedef struct {
    ValueId value;
    uint32_t order;                                     /* of its node in the forward */
    PpKept row;
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
    uint32_t part = sg->stash.part.at[root];
    int64_t at = sg->stash.at.at[root],
            end = part == NONE ? sg->stash.bytes
                               : sg->stash.again.at[part].at + sg->stash.again.at[part].bytes;
    for (uint32_t i = 0; i < sg->stash.at.n; i++)
        if (sg->stash.at.at[i] > at && sg->stash.at.at[i] < end)
            end = sg->stash.at.at[i];
    return end - at;
}

const char *cg_called(const StageGen *sg, ValueId value, Arena *a)
{
    const Value *v = val(sg->g, value);
    uint32_t origin = v->kind == V_NODE ? sg->g->node.at[v->node].origin : NONE;
    if (!v->made || origin >= sg->g->origin.n)
        return arena_printf(a, "'%s'", v->name);
    const Origin *o = &sg->g->origin.at[origin];
    return arena_printf(a, "a value inside of node '%s' (%s)", o->name, o->type);
}

const PpKept *cg_kept(const StageGen *sg, Arena *a, int *n_kept)
{
    const Stage *s = sg->stage;
    VEC(Kept) all = {0};
    uint32_t n = 0;
    *n_kept = 0;
    if (sg->pipe->loss == NONE)
        return NULL;
    for (uint32_t i = 0; i < sg->stash.value.n; i++) {
        uint32_t part = sg->stash.part.at[i];
        int64_t from = part == NONE ? 0 : sg->stash.again.at[part].at;
        const PpKept row = {.part = part == NONE ? -1 : (int)part,
                            .output = -1,
                            .offset = sg->stash.at.at[i] - from,
                            .bytes = bytes_of(sg, i)};
        vec_push(sg->a, &all, ((Kept){sg->stash.value.at[i], 0, row}));
    }
    for (uint32_t i = 0; i < s->output.n; i++)
        vec_push(sg->a, &all, ((Kept){s->output.at[i].value, 0, {.part = -1, .output = (int)i}}));
    IdMap order = {0};
    for (uint32_t i = 0; i < s->forward.n; i++)
        *idmap_at(sg->a, &order, s->forward.at[i]) = i;
    for (uint32_t i = 0; i < all.n; i++) {
        const Value *v = val(sg->g, all.at[i].value);
        all.at[n] = all.at[i];
        all.at[n].order = v->kind == V_NODE ? idmap_get(&order, v->node) : 0;
        n += dtype_is_float(v->dtype);
    }
    PpKept *list = arena_array(a, PpKept, n + 1);
    if (n > 0)
        qsort(all.at, n, sizeof *all.at, by_order);
    for (uint32_t i = 0; i < n; i++) {
        list[i] = all.at[i].row;
        list[i].name = cg_called(sg, all.at[i].value, a);
        list[i].dtype = (int)val(sg->g, all.at[i].value)->dtype;
    }
    *n_kept = (int)n;
    return list;
}
