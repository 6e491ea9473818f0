/*
 * bias.c - products whose bias the target's library adds.  In: a stage.  Out: chains of nodes that
 * become one MatMulBias when lists are lowered.  On CPUs those of half types alone: float32's sums
 * are as fast with the bias in the next loop.
 *
 *     f32         MatMul   Add of a bias
 *     bf16, f16   MatMul to f32   Add of a bias, cast to f32   Cast   (autocast, and Gemm)
 *
 * Both are what one call of the library computes: a sum in float32, the bias added to it, one
 * rounding where the type is half.  A product that is itself half has a rounding of its own before
 * the bias, and stays a product and a nest.  So does what follows: the library's ReLU may lose a
 * NaN, and its GELU is another polynomial than pp_tanh's.
 *
 * A bias is one row of parameters or constants.  What lies inside of a chain is read by the next
 * node alone, and each list of the stage has all of a chain or nothing of it.
 */
#include "plan.h"

typedef struct {
    const Graph *g;
    const bool *leaves;             /* by value: it is seen outside of the stage's lists */
    const NodeId *reader;           /* by value: its only one; NONE: there is none, or several */
    const uint32_t *lists;          /* by node: in which of the stage's lists, a bit for each */
} Search;

static Op op_of(const Search *x, NodeId n) { return n == NONE ? OP_NONE : x->g->node.at[n].op; }

/* The next node of a chain: v's only reader, in the same lists as its maker. */
static NodeId next(const Search *x, ValueId v, Op op)
{
    NodeId n = x->leaves[v] ? NONE : x->reader[v];
    bool same = op_of(x, n) == op && x->lists[n] == x->lists[val(x->g, v)->node];
    return same ? n : NONE;
}

/* Can lists that have `chain` read v: a parameter, its half copy, a constant, or a view of one? */
static bool standing(const Search *x, const StageGen *sg, ValueId v, NodeId chain)
{
    const Value *y = val(x->g, v);
    if (y->kind != V_NODE)
        return y->kind == V_PARAM || y->kind == V_CONST;
    const Node *n = &x->g->node.at[y->node];
    if (cg_copied(sg, y->node) != NONE)
        return true;
    return op_is_view(n->op) && n->nin == 1 && n->nout == 1 &&
           (x->lists[chain] & ~x->lists[y->node]) == 0 && standing(x, sg, n->in[0], chain);
}

/* One number for each of n columns, in the order of memory. */
static bool is_row(const Graph *g, ValueId v, int64_t n)
{
    const Shape *s = &val(g, v)->shape;
    return s->rank >= 1 && s->d[s->rank - 1] == n && shape_elements(s) == n;
}

/* The bias that an Add adds to v, as the library reads it; NONE: it adds something else. */
static ValueId bias_of(const Search *x, const StageGen *sg, const Node *add, ValueId v, Dtype t,
                       NodeId chain)
{
    const Graph *g = x->g;
    ValueId b = add->in[0] == v ? add->in[1] : add->in[0];
    const Shape *s = &val(g, v)->shape;
    if (b == v || !shape_equal(&val(g, add->out[0])->shape, s) ||
        !is_row(g, b, s->d[s->rank - 1]))
        return NONE;
    if (dtype_is_half(t)) {
        const Value *wide = val(g, b);
        if (wide->kind != V_NODE || op_of(x, wide->node) != OP_Cast)
            return NONE;
        b = g->node.at[wide->node].in[0];
    }
    return val(g, b)->dtype == t && standing(x, sg, b, chain) ? b : NONE;
}

static bool chain_from(const Search *x, const StageGen *sg, NodeId product, Chain *c)
{
    const Graph *g = x->g;
    const Node *n = &g->node.at[product];
    ValueId y = n->out[0];
    Dtype t = val(g, n->in[0])->dtype;
    const Shape *w = &val(g, n->in[1])->shape;
    if (!(dtype_is_half(t) || (sg->device && t == DT_F32)) || val(g, y)->dtype != DT_F32 ||
        w->rank != 2 || w->d[0] < 1 || w->d[1] < 2)
        return false;
    NodeId add = next(x, y, OP_Add), last = add;
    if (add == NONE)
        return false;
    ValueId bias = bias_of(x, sg, &g->node.at[add], y, t, product);
    if (bias == NONE)
        return false;
    if (dtype_is_half(t)) {
        last = next(x, g->node.at[add].out[0], OP_Cast);
        if (last == NONE || g->node.at[last].attr.to != t)
            return false;
    }
    *c = (Chain){product, add, last, bias};
    return true;
}

/* ---- a stage --------------------------------------------------------------------------------- */

typedef struct { const Ids *at[F_COUNT]; int n; } Lists;

static Lists lists_of(const Stage *s)
{
    Lists all = {{&s->forward, &s->infer, &s->backward, &s->backward_input, &s->backward_weight},
                 F_AGAIN};
    for (uint32_t i = 0; i < s->again.n; i++)
        all.at[all.n++] = &s->again.at[i].node;
    return all;
}

static bool *leaves(Arena *a, const Graph *g, const Stage *s)
{
    bool *is = arena_array(a, bool, g->value.n + 1);
    for (uint32_t i = 0; i < s->output.n; i++)
        is[s->output.at[i].value] = true;
    for (uint32_t i = 0; i < g->update.n; i++)
        is[g->update.at[i].value] = true;
    for (uint32_t i = 0; i < s->stash.n; i++)
        is[s->stash.at[i]] = true;
    for (uint32_t i = 0; i < s->saved.n; i++)
        is[s->saved.at[i]] = true;
    for (uint32_t i = 0; i < s->input.n + s->param.n; i++)
        for (uint32_t j = 0; j < stage_grads(s, i)->n; j++)
            is[stage_grads(s, i)->at[j]] = true;
    return is;
}

static void add(StageGen *sg, Chain c)
{
    const NodeId part[] = {c.product, c.add, c.last};
    for (size_t k = 0; k < sizeof part / sizeof *part; k++)
        *idmap_at(sg->a, &sg->position.chain, part[k]) = sg->chain.n;
    vec_push(sg->a, &sg->chain, c);
}

void cg_chains(StageGen *sg)
{
    const Graph *g = sg->g;
    Arena *a = arena_within(sg->a);
    const Lists all = lists_of(sg->stage);
    uint32_t *in = arena_array(a, uint32_t, g->node.n + 1);
    NodeId *reader = arena_array(a, NodeId, g->value.n + 1);
    bool *read = arena_array(a, bool, g->value.n + 1);
    for (int k = 0; k < all.n; k++)
        for (uint32_t i = 0; i < all.at[k]->n; i++)
            in[all.at[k]->at[i]] |= UINT32_C(1) << k;
    for (NodeId id = 0; id < g->node.n; id++)
        for (uint32_t j = 0; in[id] && j < g->node.at[id].nin; j++) {
            ValueId v = g->node.at[id].in[j];
            if (v == NONE)
                continue;
            reader[v] = read[v] ? NONE : id;
            read[v] = true;
        }
    for (ValueId v = 0; v < g->value.n; v++)
        if (!read[v])
            reader[v] = NONE;
    const Search x = {g, leaves(a, g, sg->stage), reader, in};
    for (NodeId id = 0; id < g->node.n; id++) {
        Chain c;
        if (in[id] && g->node.at[id].op == OP_MatMul && chain_from(&x, sg, id, &c))
            add(sg, c);
    }
    arena_free(a);
}
