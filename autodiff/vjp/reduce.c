/*
 * reduce.c - VJP rules of reductions, cumulative sums, sorting and softmax.  Reductions keep their
 * dimensions as 1, so dy broadcasts against x by itself.
 */
#include "vjp.h"

static ValueId expand_like(Graph *g, ValueId d, ValueId x)
{
    Shape s = val(g, x)->shape;
    ValueId e = g_expand(g, d, &s);
    int batch = val(g, x)->batch;
    if (batch >= 0 && e != d && g->value.at[e].batch == BATCH_NONE)
        g->value.at[e].batch = batch; /* the sum ran over the rows: repeat over as many */
    return e;
}

/* y = sum x: dx = dy, repeated */
void vjp_reduce_sum(Vjp *v) { v->din[0] = expand_like(v->g, v->dy[0], v->in[0]); }

/* y = sum x / n: dx = dy / n, 1 / n in the type of the sum.  Over the rows of a microbatch n is
 * known only when the program runs. */
void vjp_reduce_mean(Vjp *v)
{
    Graph *g = v->g;
    const Attr at = vjp_node(v)->attr;
    Value x = *val(g, v->in[0]);
    const Dtype t = val(g, v->dy[0])->dtype, wide = dtype_sum(t);
    double n = 1;
    bool rows = false;
    for (int i = 0; i < at.n; i++) {
        n *= (double)x.shape.d[at.axes[i]];
        rows |= x.batch == at.axes[i];
    }
    ValueId d = g_cast(g, v->dy[0], wide);
    if (rows) {
        ValueId in[1] = {v->in[0]};
        Attr of = {.n = at.n, .axes = at.axes, .to = wide};
        d = g_mul(g, d, g_unary(g, OP_Reciprocal, graph_node(g, OP_Count, 1, in, of)));
    } else {
        d = vjp_scale(g, d, 1 / n);
    }
    d = g_cast(g, d, t);
    v->din[0] = expand_like(g, d, v->in[0]);
}

/* y = max x: dx = dy / (how many equal y) where x = y; or dy at the first of them */
void vjp_extreme(Vjp *v)
{
    Graph *g = v->g;
    const Attr at = vjp_node(v)->attr;
    ValueId x = v->in[0], dy = v->dy[0];
    if (at.to_first) {
        const Op arg = vjp_node(v)->op == OP_ReduceMax ? OP_ArgMax : OP_ArgMin;
        ValueId first = graph_node(g, arg, 1, &x, (Attr){.axis = at.axes[0]});
        v->din[0] = vjp_scatter_into(g, OP_ScatterElements, vjp_zeros_like(g, x), first, dy,
                                     at.axes[0], SCATTER_NONE);
        return;
    }
    ValueId hit = g_binary(g, OP_Equal, x, v->out[0]);
    ValueId hits = g_reduce(g, OP_ReduceSum, g_cast(g, hit, val(g, x)->dtype), at.n, at.axes);
    v->din[0] = g_where(g, hit, g_div(g, dy, hits), g_like(g, dy, 0));
}

/* y = prod x: dx = dy * (product of the others); with P = the product of what is not zero:
   P / x where nothing is zero, P at a single zero, else 0 */
void vjp_reduce_prod(Vjp *v)
{
    Graph *g = v->g;
    const Attr at = vjp_node(v)->attr;
    ValueId x = v->in[0], dy = v->dy[0], zero = g_like(g, x, 0), one = g_like(g, x, 1);
    ValueId is0 = g_binary(g, OP_Equal, x, zero);
    ValueId x1 = g_where(g, is0, one, x);
    ValueId zeros = g_reduce(g, OP_ReduceSum, g_cast(g, is0, val(g, x)->dtype), at.n, at.axes);
    ValueId dyp = g_mul(g, dy, g_reduce(g, OP_ReduceProd, x1, at.n, at.axes));
    ValueId none = g_where(g, g_binary(g, OP_Equal, zeros, zero), dyp, zero);
    ValueId single = g_where(g, g_binary(g, OP_Equal, zeros, one), dyp, zero);
    v->din[0] = g_where(g, is0, single, g_div(g, none, x1));
}

/* y[i] = sum of x[0..i]: dx[i] = sum of dy[i..n], the sum from the other end */
void vjp_cumsum(Vjp *v)
{
    Attr at = vjp_node(v)->attr;
    at.scan ^= CUMSUM_REVERSE;
    v->din[0] = graph_node(v->g, OP_CumSum, 1, v->dy, at);
}

/* values[i] = x[indices[i]]: dx = dy at the indices, which are all different */
void vjp_topk(Vjp *v)
{
    if (v->dy[0] == NONE)
        return;
    v->din[0] = vjp_scatter_into(v->g, OP_ScatterElements, vjp_zeros_like(v->g, v->in[0]),
                                 v->out[1], v->dy[0], vjp_node(v)->attr.axis, SCATTER_NONE);
}

/* y = softmax x: dx = y * (dy - sum(dy * y)) */
void vjp_softmax(Vjp *v)
{
    Graph *g = v->g;
    int64_t axis[1] = {vjp_node(v)->attr.axis};
    ValueId y = v->out[0], dy = v->dy[0];
    ValueId dot = g_reduce(g, OP_ReduceSum, g_mul(g, dy, y), 1, axis);
    v->din[0] = g_mul(g, g_sub(g, dy, dot), y);
}

/* y = log softmax x: dx = dy - e^y * sum(dy) */
void vjp_log_softmax(Vjp *v)
{
    Graph *g = v->g;
    int64_t axis[1] = {vjp_node(v)->attr.axis};
    ValueId dy = v->dy[0];
    ValueId sum = g_reduce(g, OP_ReduceSum, dy, 1, axis);
    v->din[0] = g_sub(g, dy, g_mul(g, g_unary(g, OP_Exp, v->out[0]), sum));
}
