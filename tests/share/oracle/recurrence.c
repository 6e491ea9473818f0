/*
 * recurrence.c - a Recurrence, step after step.
 */
#include <string.h>

#include "ir/eval/eval.h"
#include "oracle.h"

static size_t bytes(const Tensor *t)
{
    return (size_t)shape_elements(&t->shape) * dtype_size(t->dtype);
}

/* Step t of a sequence. */
static Tensor part_of(const Tensor *all, int64_t t)
{
    Tensor part = {.dtype = all->dtype, .shape = {.rank = all->shape.rank - 1}};
    memcpy(part.shape.d, all->shape.d + 1, (size_t)part.shape.rank * sizeof *part.shape.d);
    part.data = (char *)all->data + (size_t)t * bytes(&part);
    return part;
}

void oracle_recurrence(Eval *e)
{
    const Recurrence *r = e->at->recurrence;
    const Graph *b = r->body;
    const int64_t steps = e->in[r->states].shape.d[0];
    Arena *a = arena_within(e->arena);
    NodeId *list = arena_array(a, NodeId, b->node.n + 1);
    for (NodeId n = 0; n < b->node.n; n++)
        list[n] = n;
    for (uint32_t k = 0; k < r->states; k++)
        memcpy(e->out[k].data, e->in[k].data, bytes(&e->in[k]));
    for (int64_t k = 0; k < steps; k++) {
        const int64_t t = r->reverse ? steps - 1 - k : k;
        Arena *step = arena_within(a);
        Tensor *at = arena_array(step, Tensor, b->value.n + 1);
        for (uint32_t i = 0; i < e->nin; i++)
            at[b->input.at[i]] = i < r->states ? e->out[i]
                                 : recurrence_is_sequence(r, i) ? part_of(&e->in[i], t)
                                                                : e->in[i];
        oracle_nodes(b, step, list, b->node.n, at);
        for (uint32_t o = 0; o < e->nout; o++) {
            const Tensor to = o < r->states ? e->out[o] : part_of(&e->out[o], t);
            memcpy(to.data, at[b->output.at[o]].data, bytes(&to));
        }
        arena_free(step);
    }
    arena_free(a);
}
