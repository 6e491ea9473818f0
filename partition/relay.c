/*
 * relay.c - a value with a gradient that several stages read goes from each to the next.
 *
 * In: the stages' lists of nodes.  Out: of a value's readers each but the last hands it on, as a
 * copy that its last node makes.  The gradient comes back the same way: a stage adds what it gets
 * to its own contributions, in the order in which the maker would (autodiff/reverse.c), so it sends
 * one sum.  Sent to the maker, contributions of all but the last stage would have to travel one by
 * one, two for each layer of a decoder that attends to an encoder.
 */
#include "pipe_int.h"

/* By value: the last stage that has it, and as what. */
typedef struct {
    uint32_t stage;
    ValueId as;
} Holder;

/* Another value for v, which stage t has as `as`, made by the last node of t; its name says both.
 */
static ValueId hand_on(Build *b, uint32_t t, ValueId v, ValueId as)
{
    Graph *g = b->g;
    const char *name = arena_printf(b->a, "%s%%%u", val(g, v)->name, t);
    const Placed last = {g->node.n, g->node.n};
    const ValueId to = pipe_copy(g, as, name, g->node.at[val(g, as)->node].origin);
    g->value.at[to].made = true;
    vec_push(b->a, &b->list[t], last);
    return to;
}

void relay(Build *b)
{
    Graph *g = b->g;
    Holder *held = arena_array(b->a, Holder, b->values + 1);
    for (ValueId v = 0; v < b->values; v++)
        held[v] = (Holder){val(g, v)->kind == V_NODE ? b->home[val(g, v)->node] : NONE, v};
    for (uint32_t t = 0; t < b->stages; t++)
        for (uint32_t k = 0; k < b->list[t].n; k++) {
            const NodeId n = b->list[t].at[k].node;
            for (uint32_t i = 0; i < g->node.at[n].nin; i++) {
                const ValueId v = g->node.at[n].in[i];
                if (v >= b->values || held[v].stage == NONE || !b->grad[v])
                    continue;
                const uint32_t maker = b->home[val(g, v)->node], was = held[v].stage;
                if (was != maker && was != t)
                    held[v].as = hand_on(b, was, v, held[v].as);
                held[v].stage = t;
                g->node.at[n].in[i] = held[v].as;
            }
        }
}
