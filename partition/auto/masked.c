/*
 * masked.c - which matrices count in part only, because a constant mask hides the rest of the
 * scores of attention.  Code for CPUs leaves out whole tiles of them: codegen/plan/band.c finds
 * which, by the same masks; this is an estimate, for there is no backward yet.
 *
 * In: a Graph.  Out: by value, the part of its tiles that is computed.  A mask's part goes on to
 * what follows, through softmax, and back to what is only read to be masked.
 */
#include "ir/facts/mask.h"
#include "model.h"

static bool same_matrix(const Graph *g, ValueId a, ValueId b)
{
    const Shape *x = &val(g, a)->shape, *y = &val(g, b)->shape;
    return x->rank >= 2 && y->rank >= 2 && x->d[x->rank - 1] == y->d[y->rank - 1] &&
           x->d[x->rank - 2] == y->d[y->rank - 2];
}

/* Of a choice or sum with a mask; 1: it is none. */
static double masked(const Model *m, Masks *masks, const Node *x)
{
    const Graph *g = m->g;
    const Shape *s = &val(g, x->out[0])->shape;
    Mask k = {0};
    bool minus_inf;
    for (uint32_t i = 0; i < x->nin && x->op == OP_Add && !k.yes; i++)
        if (!m->data[x->in[i]] && same_matrix(g, x->in[i], x->out[0]))
            k = mask_of(masks, x->in[i], MASK_HIGH);
    for (uint32_t i = 1; i < 3 && x->op == OP_Where && !k.yes; i++)
        if (same_matrix(g, x->in[0], x->out[0]) && mask_is_low(g, x->in[3 - i], &minus_inf))
            k = mask_of(masks, x->in[0], i == 1 ? MASK_TRUE : MASK_FALSE);
    return k.yes ? band_part(k.band, s->d[s->rank - 2], s->d[s->rank - 1]) : 1;
}

/* The only operand that depends on data, if its matrix is the result's; NONE. */
static ValueId only_operand(const Model *m, const Node *x)
{
    ValueId only = NONE;
    bool elementwise = op_is_map(x->op) || x->op == OP_Softmax || x->op == OP_Dropout ||
                       x->op == OP_Identity || x->op == OP_Expand || x->op == OP_Reshape;
    for (uint32_t i = 0; i < x->nin && elementwise; i++) {
        if (!m->data[x->in[i]])
            continue;
        if (only != NONE)
            return NONE;
        only = x->in[i];
    }
    return only != NONE && same_matrix(m->g, only, x->out[0]) ? only : NONE;
}

void find_masked(Model *m)
{
    const Graph *g = m->g;
    Masks masks = {.g = g, .a = m->a, .at = {0}};
    uint32_t *readers = arena_array(m->a, uint32_t, g->value.n + 1);
    m->part = arena_array(m->a, double, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        m->part[v] = 1;
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        for (uint32_t i = 0; i < x->nin && m->live[n]; i++)
            readers[x->in[i]]++;
        ValueId from = m->live[n] && x->nout > 0 ? only_operand(m, x) : NONE;
        if (from == NONE)
            continue;
        double part = masked(m, &masks, x);
        m->part[x->out[0]] = part < m->part[from] ? part : m->part[from];
    }
    for (NodeId n = g->node.n; n-- > 0;) {
        const Node *x = &g->node.at[n];
        ValueId from = m->live[n] && x->nout > 0 ? only_operand(m, x) : NONE;
        if (from != NONE && readers[from] == 1 && m->part[x->out[0]] < m->part[from])
            m->part[from] = m->part[x->out[0]];
    }
}
