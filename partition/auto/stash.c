/*
 * stash.c - which values a stage must keep for its backward, before there is one.
 *
 * A product keeps the other operand, a nonlinear function its result, a division what it divides
 * by.  What is cheap to make again from less is not kept, but that is: one look at a time, node
 * after node, at what the min-cut of autodiff/stash.c weighs as a whole.
 */
#include <string.h>

#include "model.h"

typedef struct {
    Model *m;
    uint32_t *at; /* by value: its number in the CutGraph as a thing kept */
    Ids leaf;
} Stash;

/* Does v come for nothing: constants, parameters, masks? */
static bool is_there(const Model *m, ValueId v) { return !m->data[v] || m->pure[v]; }

static bool is_again(const Graph *g, const Node *x)
{
    return op_is_cheap(x->op) || op_is_view(x->op) ||
           (g->gathers_again && x->op == OP_AllGather);
}

/*
 * Bytes that must be kept so that v can be had in backward, beside those that are kept anyway; adds
 * to leaf[] what backward reads.  looks: so many values more are looked at.
 */
static int64_t leaves_of(const Stash *s, ValueId v, uint32_t *looks, Ids *leaf)
{
    const Model *m = s->m;
    const Value *x = val(m->g, v);
    uint32_t before = leaf->n;
    if (is_there(m, v))
        return 0;
    int64_t bytes = s->at[v] == NONE ? value_bytes(m->g, v) : 0, sum = 0;
    const Node *by = x->kind == V_NODE ? &m->g->node.at[x->node] : NULL;
    if (bytes > 0 && by && is_again(m->g, by) && *looks > 0) {
        --*looks;
        for (uint32_t i = 0; i < node_reads_training(by) && sum <= bytes; i++)
            sum += leaves_of(s, by->in[i], looks, leaf);
        if (sum < bytes || (sum == bytes && op_is_view(by->op)))
            return sum;
    }
    leaf->n = before;
    vec_push(m->a, leaf, v);
    return bytes;
}

static void keep_leaf(Stash *s, ValueId v, uint32_t by)
{
    Model *m = s->m;
    const Value *x = val(m->g, v);
    uint32_t from = x->kind == V_NODE ? m->out->of[x->node] : NONE;
    if (s->at[v] == NONE || from == NONE) { /* an input is each reader's own */
        CutValue c = {.from = from == NONE ? by : from, .kept = value_bytes(m->g, v)};
        s->at[v] = m->out->cut.value.n;
        vec_push(m->a, &m->out->cut.value, c);
    }
    CutValue *c = &m->out->cut.value.at[s->at[v]];
    CutRead r = {.node = by, .keeps = true};
    if (c->read.n == 0 || c->read.at[c->read.n - 1].node != by)
        vec_push(m->a, &c->read, r);
}

static void keep(Stash *s, ValueId v, NodeId reader)
{
    enum { LOOKS = 64 };
    uint32_t looks = LOOKS;
    s->leaf.n = 0;
    leaves_of(s, v, &looks, &s->leaf);
    for (uint32_t i = 0; i < s->leaf.n; i++)
        keep_leaf(s, s->leaf.at[i], s->m->out->of[reader]);
}

/* Of a product of two: each is kept for the other's gradient. */
static void keep_others(Stash *s, NodeId n)
{
    const Node *x = &s->m->g->node.at[n];
    for (uint32_t i = 0; i < x->nin; i++)
        for (uint32_t k = 0; k < x->nin; k++)
            if (k != i && s->m->grad[x->in[k]])
                keep(s, x->in[i], n);
}

static void keep_of(Stash *s, NodeId n)
{
    const Node *x = &s->m->g->node.at[n];
    if (op_is_linear(x->op))
        return;
    if (x->op == OP_FlashAttention) {
        for (uint32_t i = 0; i < 3; i++)
            keep(s, x->in[i], n);
        for (uint32_t i = 0; i < 2; i++)
            keep(s, x->out[i], n);
    } else if (op_is_product(x->op) || x->op == OP_Mul) {
        keep_others(s, n);
    } else if (x->nout == 2) { /* a mask, or indices */
        keep(s, x->out[1], n);
    } else if (x->op == OP_Gather || x->op == OP_GatherElements || x->op == OP_GatherND) {
        keep(s, x->in[1], n);
    } else if (op_is_map(x->op) && x->nin > 1) {
        for (uint32_t i = 0; i < x->nin; i++)
            keep(s, x->in[i], n);
    } else {
        keep(s, x->out[0], n);
    }
}

void add_stash(Model *m)
{
    const Graph *g = m->g;
    Stash s = {.m = m, .at = arena_array(m->a, uint32_t, g->value.n + 1)};
    memset(s.at, 0xff, g->value.n * sizeof *s.at);
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        bool asked = false;
        for (uint32_t i = 0; i < x->nin && m->out->of[n] != NONE; i++)
            asked |= m->grad[x->in[i]];
        for (uint32_t i = 0; i < x->nout && asked; i++)
            if (m->grad[x->out[i]]) {
                keep_of(&s, n);
                break;
            }
    }
}
