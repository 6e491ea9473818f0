/*
 * fold.c - constant folding while the graph is built: a pure node of constant operands is computed
 * by the evaluator and becomes a constant.  A large Expand stays what it is, a view; whatever else
 * reads it (or another view of it) and is constant is folded through it.
 */
#include <string.h>

#include "node.h"

/* A model of several lengths is one graph with each of them: what is too large with one is left
 * with all that come later, and nothing is expanded that may grow. */
enum {
    MOST_FOLDED = 1 << 20,
    MOST_FOLDED_VARIED = 1 << 24,
    MOST_EXPANDED = 4096,
    MOST_EXPANDED_VARIED = 16
};

static bool is_constant(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    while (x->kind == V_NODE && op_is_view(g->node.at[x->node].op) &&
           g->node.at[x->node].op != OP_Identity)
        x = val(g, g->node.at[x->node].in[0]);
    return x->kind == V_CONST;
}

/* The bytes of a value for which is_constant() holds. */
static Tensor constant(Graph *g, Arena *scratch, ValueId v)
{
    const Value *x = val(g, v);
    Tensor t = {x->dtype, x->shape, NULL};
    if (x->kind == V_CONST) {
        memcpy(&t.data, &x->data, sizeof t.data); /* operands are only read */
        return t;
    }
    const Node *n = &g->node.at[x->node];
    Tensor from = constant(g, scratch, n->in[0]), *out = arena_array(scratch, Tensor, n->nout);
    for (uint32_t i = 0; i < n->nout; i++) {
        out[i].dtype = val(g, n->out[i])->dtype;
        out[i].shape = val(g, n->out[i])->shape;
    }
    eval_node(scratch, n->op, 1, &from, &n->attr, n->nout, out);
    return out[x->out];
}

/* Do the shapes differ in dimensions of one element alone? */
static bool same_places(const Shape *x, const Shape *y)
{
    int i = 0, j = 0;
    for (;; i++, j++) {
        while (i < x->rank && x->d[i] == 1)
            i++;
        while (j < y->rank && y->d[j] == 1)
            j++;
        if (i == x->rank || j == y->rank)
            return i == x->rank && j == y->rank;
        if (x->d[i] != y->d[j])
            return false;
    }
}

/* Was it so with a length before? */
static bool is_left(const Graph *g, const Draft *d, int64_t elements, bool large)
{
    const uint64_t what = (uint64_t)d->op << 8 | (uint64_t)d->shape[0].rank;
    uint32_t *left;
    if (!g->lengths.left || elements <= MOST_EXPANDED_VARIED)
        return large;
    left = idmap_at(g->lengths.left->arena, &g->lengths.left->of, what << 32 | g->cur_origin);
    *left = large ? 0 : *left;
    return *left != NONE;
}

static bool worth_folding(const Graph *g, const Draft *d)
{
    int64_t in = 0, out = 0, most = g->lengths.left ? MOST_FOLDED_VARIED : MOST_FOLDED;
    bool views = false, large = false;
    for (uint32_t i = 0; i < d->nin; i++) {
        int64_t n = shape_elements(&val(g, d->in[i])->shape);
        views = views || val(g, d->in[i])->kind != V_CONST;
        large |= views && n > most;
        in += n;
    }
    for (uint32_t i = 0; i < d->nout; i++)
        out += shape_elements(&d->shape[i]);
    /* of the greatest length a shorter one is the begin, dimension by dimension */
    if (is_left(g, d, out, large || (out > most && out > in)))
        return false;
    if (g->lengths.left && d->op == OP_Reshape && out > MOST_EXPANDED_VARIED &&
        !same_places(&val(g, d->in[0])->shape, &d->shape[0]))
        return false;
    if (d->op == OP_Expand || (views && op_is_view(d->op)))
        return out <= (g->lengths.left ? MOST_EXPANDED_VARIED : MOST_EXPANDED);
    return true;
}

/* Whole numbers that may be equal with some length. */
static void note_apart(Graph *g, const Draft *d, const Tensor *in)
{
    const int64_t n = shape_elements(&d->shape[0]), x = shape_elements(&in[0].shape),
                  y = shape_elements(&in[1].shape);
    if (dtype_is_float(in[0].dtype) || n > MOST_EXPANDED_VARIED || (x > 1 && x < n) ||
        (y > 1 && y < n))
        return;
    for (int64_t i = 0; i < n; i++) {
        const int64_t by = element_int(in[0].dtype, in[0].data, x > 1 ? i : 0) -
                           element_int(in[1].dtype, in[1].data, y > 1 ? i : 0);
        vec_push(g->arena, &g->lengths.apart, ((Apart){g->cur_origin, by}));
    }
}

ValueId fold(Graph *g, const Draft *d)
{
    enum { FEW = 4 };
    Tensor few_in[FEW], few_out[FEW];
    if (!op_folds(d->op))
        return NONE;
    bool views = false;
    for (uint32_t i = 0; i < d->nin; i++) {
        if (!is_constant(g, d->in[i]) || dtype_size(val(g, d->in[i])->dtype) == 0)
            return NONE;
        views = views || val(g, d->in[i])->kind != V_CONST;
    }
    if (!worth_folding(g, d))
        return NONE;
    Arena *scratch = views || d->nin > FEW || d->nout > FEW ? arena_within(g->arena) : NULL;
    Tensor *in = d->nin <= FEW ? few_in : arena_array(scratch, Tensor, d->nin);
    Tensor *out = d->nout <= FEW ? few_out : arena_array(scratch, Tensor, d->nout);
    for (uint32_t i = 0; i < d->nin; i++)
        in[i] = constant(g, scratch, d->in[i]);
    for (uint32_t i = 0; i < d->nout; i++)
        out[i] = (Tensor){d->dtype[i], d->shape[i], NULL};
    eval_node(g->arena, d->op, d->nin, in, &d->attr, d->nout, out);
    if (g->lengths.left && d->op == OP_Equal)
        note_apart(g, d, in);
    ValueId first = NONE;
    for (uint32_t i = 0; i < d->nout; i++) {
        ValueId v = graph_const(g, NULL, out[i]);
        first = i == 0 ? v : first;
    }
    arena_free(scratch);
    return first;
}
