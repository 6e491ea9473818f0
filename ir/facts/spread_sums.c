/*
 * spread_sums.c - reductions and what else looks along an axis: ways_f and build_f of ops.def.
 *
 * A sum over the divided dimension is a partial one in each chunk.  A maximum is that of the
 * chunks' maxima, which all members gather.  Softmax over it is made of both: e^(x - max) over the
 * sum of the chunks' sums, as Megatron's vocabulary-parallel cross entropy (Shoeybi et al. 2019,
 * section 3).
 */
#include <math.h>
#include <string.h>

#include "spread_rules.h"

static double elements(const Ways *w, uint32_t slot)
{
    return (double)shape_elements(ways_shape(w, slot));
}

static bool in_axes(const Attr *t, int dim)
{
    for (int i = 0; i < t->n; i++)
        if (t->axes[i] == dim)
            return true;
    return false;
}

/* ---- beside the axis ---- */

/* Is it an S beside the axis?  Keeps the way. */
static bool beside(Ways *w, Place at)
{
    bool is = at.dim != w->n->attr.axis;
    if (is && at.dim >= 0)
        ways_all(w, at);
    return is;
}

void ways_topk(Ways *w, uint32_t slot, Place at)
{
    if (!beside(w, at))
        ways_choose(w, slot, at, "it chooses among the rows", NONE);
}

/* ArgMax, ArgMin: a chunk's own, of a chunk that is alone */
void ways_arg(Ways *w, uint32_t slot, Place at)
{
    if (beside(w, at) || slot != 0 || !w->of->alone)
        return;
    w->at[0] = at;
    w->way.meets = true;
    ways_keep(w);
}

/* Collectives of another axis; AllToAll is divided along axis and then along to_axis.  Of what is
 * united each member's part has the groups, of what is divided each part some of them. */
void ways_collective(Ways *w, uint32_t slot, Place at)
{
    const Op op = w->n->op;
    const Attr *t = &w->n->attr;
    const int64_t members = w->of->g->mesh[t->mesh].members;
    const bool unites = op == OP_AllGather || (op == OP_AllToAll && at.dim == t->axis),
               whole = op == OP_AllReduce ||
                       (at.dim != t->axis && (op != OP_AllToAll || at.dim != t->to_axis));
    const int64_t more = unites == (slot == 0) ? 1 : members; /* in this slot, over the least */
    if (whole) {
        ways_all(w, at);
    } else if (w->of->alone) {
        ways_refuse(w, "the rows are divided among the members", NONE);
    } else if (!at.mirrored && at.groups % more == 0) {
        const int64_t least = at.groups / more;
        w->at[0] = place_s(at.dim, unites ? least : least * members);
        w->at[1] = place_s(at.dim, unites ? least * members : least);
        ways_keep(w);
    }
}

void ways_cumsum(Ways *w, uint32_t slot, Place at)
{
    (void)slot;
    w->way.meets = at.dim == w->n->attr.axis;
    if (!w->way.meets || w->of->alone)
        ways_all(w, at);
}

/* ---- reductions ---- */

static bool is_sum(const Node *n) { return n->op == OP_ReduceSum || n->op == OP_ReduceMean; }

/* May the chunks' results be reduced once more?  Gradients of equal maxima are shared among them
   all, unless the first alone has it: of several groups that is not the first chunk's. */
static bool again(const Node *n, Place at, bool real)
{
    if (n->op == OP_ReduceMax || n->op == OP_ReduceMin)
        return !real || (n->attr.to_first && at.groups == 1);
    return n->op == OP_ReduceProd || (n->op == OP_ReduceSum && !real);
}

void ways_reduce(Ways *w, uint32_t slot, Place at)
{
    bool real = dtype_is_float(val(w->of->g, w->n->in[0])->dtype);
    bool along = at.dim >= 0 && in_axes(&w->n->attr, at.dim);
    if (at.dim == PLACE_P ? !is_sum(w->n) : along && slot == 1)
        return;
    if (!along) {
        ways_all(w, at);
    } else if (is_sum(w->n) && (real || w->of->alone)) {
        w->at[0] = at;
        w->at[1] = place_p();
        ways_keep(w);
    } else if ((again(w->n, at, real) && ways_is_even(w, 0, at)) || w->of->alone) {
        w->at[0] = at;
        w->way.moved = (double)w->of->chunks * elements(w, 1);
        w->way.meets = true;
        ways_keep(w);
    }
}

/* The chunks' values, of size 1 along the dimension, of all members there, reduced to one. */
static ValueId gathered(const Spread *s, Op op, ValueId part, int dim, Attr attr)
{
    Graph *g = s->g;
    ValueId all = g_all_gather(g, part, dim);
    attr.n = 1;
    attr.axes = (const int64_t[]){dim};
    return graph_node(g, op, 1, &all, attr);
}

/* Sums of halves are partial in f32. */
static void widen_sums(const Spread *s)
{
    const Node *n = spread_of(s);
    const Shape *whole = spread_whole(s, 0);
    Graph *g = s->g;
    ValueId x = s->in[0], y;
    int dim = s->way->in[0].dim;
    double part = (double)val(g, x)->shape.d[dim] / (double)whole->d[dim];
    x = g_cast(g, x, dtype_sum(val(g, x)->dtype));
    y = graph_node(g, n->op, 1, &x, n->attr);
    /* the mean over a chunk's elements */
    if (n->op == OP_ReduceMean)
        y = g_mul(g, y, g_like(g, y, part));
    s->out[0] = y;
}

void build_reduce(const Spread *s)
{
    const Node *n = spread_of(s);
    Place x = s->way->in[0], y = s->way->out[0];
    if (x.dim >= 0 && y.dim == PLACE_P)
        widen_sums(s);
    else
        spread_same(s, n->attr);
    if (y.dim == PLACE_R)
        s->out[0] = gathered(s, n->op, s->out[0], x.dim, n->attr);
}

/* A number of the shape alone. */
void ways_count(Ways *w, uint32_t slot, Place at)
{
    if (at.dim < 0 || slot != 0 || !ways_is_even(w, slot, at))
        return;
    w->at[0] = at;
    ways_keep(w);
}

void build_count(const Spread *s)
{
    const Node *n = spread_of(s);
    ValueId y = graph_node(s->g, n->op, 1, s->in, n->attr);
    bool along = in_axes(&n->attr, s->way->in[0].dim);
    s->out[0] = along ? g_mul(s->g, y, g_like(s->g, y, s->chunks)) : y;
}

/* ---- Softmax, LogSoftmax ---- */

void ways_softmax(Ways *w, uint32_t slot, Place at)
{
    double rows = elements(w, 0) / (double)ways_shape(w, 0)->d[w->n->attr.axis];
    (void)slot;
    if (at.dim < 0)
        return;
    if (at.dim == w->n->attr.axis) {
        w->way.moved = (double)(w->of->chunks + 2) * rows;
        w->way.moved_back = 2 * rows;
        w->way.meets = true;
    }
    ways_all(w, at);
}

/* x - max, and the logarithm, or the reciprocal, of the sum of its exponentials */
static void softmax_along(const Spread *s)
{
    const Node *n = spread_of(s);
    Graph *g = s->g;
    int axis = (int)n->attr.axis;
    int64_t axes[1] = {axis};
    Dtype type = val(s->whole, n->out[0])->dtype;
    ValueId x = g_cast(g, s->in[0], dtype_sum(type));
    if (spread_is_uneven(s, n->in[0], s->way->in[0]))
        x = spread_filled(s, x, axis, spread_whole(s, 0)->d[axis], -(double)INFINITY);
    ValueId part = g_reduce(g, OP_ReduceMax, g_unary(g, OP_StopGradient, x), 1, axes);
    x = g_sub(g, x, gathered(s, OP_ReduceMax, part, axis, (Attr){0}));
    ValueId sum = g_all_reduce(g, g_reduce(g, OP_ReduceSum, g_unary(g, OP_Exp, x), 1, axes),
                               val(g, x)->dtype);
    bool log = n->op == OP_LogSoftmax;
    ValueId of = g_vary(g, log ? g_unary(g, OP_Log, sum) : sum, 1);
    s->out[0] = g_cast(g, log ? g_sub(g, x, of) : g_div(g, g_unary(g, OP_Exp, x), of), type);
}

void build_softmax(const Spread *s)
{
    if (s->way->in[0].dim == spread_of(s)->attr.axis)
        softmax_along(s);
    else
        build_same(s);
}
