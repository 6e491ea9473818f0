/*
 * norm.c - a norm that the file writes as several nodes is one of its nodes, as a
 * LayerNormalization is.  In: a Graph as it is imported.  Out: the same; the nodes of each norm
 * have the origin of the last of them, and its name, so no cut divides it, and the factors of its
 * gradient cancel (autodiff/vjp/tidy.c).
 *
 *     d / Sqrt(mean(d d) + eps), or d times its reciprocal, where d = x or x - mean(x)
 *
 * They stand one behind another, in one module.
 */
#include <string.h>

#include "ir/facts/facts.h"

enum { MOST_PARTS = 12 };

typedef struct {
    const Graph *g;
    NodeId part[MOST_PARTS];
    uint32_t n;
    bool of_samples; /* its mean is one of each sample */
} Norm;

/* The node that makes v, now a part; NULL: it is no such operation. */
static const Node *take(Norm *t, ValueId v, Op op)
{
    const Node *n = graph_maker(t->g, v);
    if (!n || n->op != op || t->n == MOST_PARTS)
        return NULL;
    t->part[t->n++] = val(t->g, v)->node;
    return n;
}

/* v, or what a Cast makes it of. */
static ValueId uncast(Norm *t, ValueId v)
{
    const Node *n = take(t, v, OP_Cast);
    return n ? n->in[0] : v;
}

/* Of mean(d d) + eps: d; NONE: it is something else. */
static ValueId deviation(Norm *t, ValueId v)
{
    const Node *add = take(t, v, OP_Add), *mean, *square;
    double eps;
    if (!add)
        return NONE;
    v = g_const_double(t->g, add->in[0], &eps) ? add->in[1] : add->in[0];
    mean = take(t, uncast(t, v), OP_ReduceMean);
    t->of_samples = mean && mean->attr.n > 0 && mean->attr.axes[0] > 0;
    square = mean ? take(t, uncast(t, mean->in[0]), OP_Mul) : NULL;
    return square && square->in[0] == square->in[1] ? square->in[0] : NONE;
}

/* The parts above d, where it is x - mean(x); is it? */
static bool centred(Norm *t, ValueId d)
{
    const Node *sub = graph_maker(t->g, d), *mean;
    mean = sub && sub->op == OP_Sub ? graph_maker(t->g, sub->in[1]) : NULL;
    return mean && mean->op == OP_ReduceMean && mean->in[0] == sub->in[0] && take(t, d, OP_Sub) &&
           take(t, sub->in[1], OP_ReduceMean);
}

/* What is made of d and the root, behind it. */
static bool quotient(Norm *t, NodeId root, ValueId d)
{
    const Graph *g = t->g;
    ValueId s = g->node.at[root].out[0], r = NONE;
    for (NodeId i = root + 1; i < g->node.n && i <= root + MOST_PARTS && t->n < MOST_PARTS; i++) {
        const Node *n = &g->node.at[i];
        bool inverse = n->op == OP_Reciprocal && n->in[0] == s,
             scaled = n->op == OP_Mul && r != NONE &&
                      ((n->in[0] == d && n->in[1] == r) || (n->in[0] == r && n->in[1] == d)),
             divided = n->op == OP_Div && n->in[0] == d && n->in[1] == s;
        if (inverse || scaled || divided)
            t->part[t->n++] = i;
        r = inverse ? n->out[0] : r;
        if (scaled || divided)
            return true;
    }
    return false;
}

/* Do they stand together, in one module that the file puts into one stage? */
static bool together(const Norm *t, NodeId last)
{
    const Graph *g = t->g;
    const Origin *x = &g->origin.at[g->node.at[last].origin];
    NodeId first = last;
    for (uint32_t i = 0; i < t->n; i++) {
        const Origin *y = &g->origin.at[g->node.at[t->part[i]].origin];
        first = t->part[i] < first ? t->part[i] : first;
        if (strcmp(graph_scope(g, last), graph_scope(g, t->part[i])) != 0 || y->split_marker ||
            x->pipeline_stage != y->pipeline_stage)
            return false;
    }
    return last - first + 1 == t->n;
}

void graph_norms(Graph *g)
{
    for (NodeId n = 0; n < g->node.n; n++) {
        if (g->node.at[n].op != OP_Sqrt)
            continue;
        Norm t = {.g = g, .part = {n}, .n = 1};
        ValueId d = deviation(&t, g->node.at[n].in[0]);
        const bool by_mean = d != NONE && centred(&t, d);
        if (d == NONE || !quotient(&t, n, d) || !together(&t, t.part[t.n - 1]))
            continue;
        const uint32_t origin = g->node.at[t.part[t.n - 1]].origin;
        bool several = false;
        for (uint32_t i = 0; i < t.n; i++) {
            const uint32_t own = g->node.at[t.part[i]].origin;
            several |= own != origin;
            g->origin.at[own].norm = origin;
            g->node.at[t.part[i]].origin = origin;
        }
        if (several && t.of_samples)
            g->origin.at[origin].type = by_mean ? "LayerNormalization" : "RMSNormalization";
    }
}
