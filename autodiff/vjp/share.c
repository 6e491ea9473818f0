/*
 * share.c - what the VJP rules share: zeros that know their batch dimension, placing a piece among
 * zeros, indices.
 */
#include "vjp.h"

void vjp_give(Vjp *v, uint32_t i, ValueId d)
{
    Shape s = v->g->value.at[v->in[i]].shape;
    v->din[i] = g_sum_to(v->g, d, &s);
}

ValueId vjp_scale(Graph *g, ValueId x, double c)
{
    double one;
    if (g_const_double(g, x, &one) && one == 1 && val(g, x)->shape.rank == 0)
        return g_like(g, x, c);
    return c == 1 ? x : g_mul(g, x, g_like(g, x, c));
}

ValueId vjp_square(Graph *g, ValueId x) { return g_mul(g, x, x); }

ValueId vjp_zeros(Graph *g, Dtype t, const Shape *s, int batch)
{
    ValueId z = g_full(g, t, s, 0);
    if (batch >= 0)
        g->value.at[z].batch = batch;
    return z;
}

ValueId vjp_zeros_like(Graph *g, ValueId x)
{
    Value like = *val(g, x);
    return vjp_zeros(g, like.dtype, &like.shape, like.batch);
}

ValueId vjp_zeros_for(Graph *g, ValueId x, ValueId dy)
{
    Value like = *val(g, x);
    return vjp_zeros(g, val(g, dy)->dtype, &like.shape, like.batch);
}

static bool never_negative(const Graph *g, ValueId index)
{
    const Value *v = val(g, index);
    if (v->kind != V_CONST)
        return false;
    int64_t n = shape_elements(&v->shape);
    for (int64_t i = 0; i < n; i++)
        if (element_int(v->dtype, v->data, i) < 0)
            return false;
    return true;
}

ValueId vjp_wrap_index(Graph *g, ValueId index, ValueId extent)
{
    if (never_negative(g, index))
        return index;
    ValueId negative = g_binary(g, OP_Less, index, g_like(g, index, 0));
    return g_where(g, negative, g_add(g, index, g_cast(g, extent, val(g, index)->dtype)), index);
}

ValueId vjp_iota_batch(Graph *g, int rank, int axis, int64_t n, int batch)
{
    ValueId v = g_iota(g, DT_I64, rank, axis, n);
    if (batch >= 0)
        g->value.at[v].batch = batch;
    return v;
}

int64_t *vjp_ints(Graph *g, int n) { return arena_array(g->arena, int64_t, n > 0 ? n : 1); }

ValueId vjp_place(Graph *g, ValueId x, int axis, int64_t at, int64_t extent)
{
    Shape s = val(g, x)->shape;
    int64_t begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    begin[axis] = at;
    end[axis] = extent - at - s.d[axis];
    if (begin[axis] == 0 && end[axis] == 0)
        return x;
    return g_pad(g, x, begin, end, PAD_CONSTANT, 0);
}

ValueId vjp_scatter_into(Graph *g, Op op, ValueId into, ValueId index, ValueId updates,
                         int64_t axis, int mode)
{
    const ValueId in[3] = {into, index, updates};
    return graph_node(g, op, 3, in, (Attr){.axis = axis, .reduction = mode});
}
