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
    const Value was = *val(g, as);
    const char *name = arena_printf(b->a, "%s%%%u", val(g, v)->name, t);
    bool taken = strmap_get(&g->by_name, name) != NONE;
    ValueId to = graph_value(g, V_NODE, taken ? NULL : name, was.dtype, &was.shape);
    Node n = {.op = OP_Identity, .nin = 1, .nout = 1, .origin = g->node.at[was.node].origin};
    n.in = arena_array(g->arena, ValueId, 1);
    n.out = arena_array(g->arena, ValueId, 1);
    n.in[0] = as;
    n.out[0] = to;
    g->value.at[to].batch = was.batch;
    g->value.at[to].node = g->node.n;
    g->value.at[to].made = true;
    Placed last = {g->node.n, g->node.n};
    vec_push(b->a, &b->list[t], last);
    vec_push(g->arena, &g->node, n);
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
