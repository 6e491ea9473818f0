/*
 * build.c - builders: lowerings and VJPs read like formulas through these.  Each makes one core
 * node, or the few that NumPy's convention needs around it; shapes broadcast.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir.h"

static const Shape *dims(const Graph *g, ValueId v) { return &val(g, v)->shape; }

ValueId g_unary(Graph *g, Op op, ValueId x) { return graph_node(g, op, 1, &x, (Attr){0}); }

ValueId g_binary(Graph *g, Op op, ValueId x, ValueId y)
{
    return graph_node(g, op, 2, (ValueId[]){x, y}, (Attr){0});
}

ValueId g_add(Graph *g, ValueId x, ValueId y) { return g_binary(g, OP_Add, x, y); }
ValueId g_sub(Graph *g, ValueId x, ValueId y) { return g_binary(g, OP_Sub, x, y); }
ValueId g_mul(Graph *g, ValueId x, ValueId y) { return g_binary(g, OP_Mul, x, y); }
ValueId g_div(Graph *g, ValueId x, ValueId y) { return g_binary(g, OP_Div, x, y); }
ValueId g_neg(Graph *g, ValueId x) { return g_unary(g, OP_Neg, x); }

ValueId g_where(Graph *g, ValueId cond, ValueId x, ValueId y)
{
    return graph_node(g, OP_Where, 3, (ValueId[]){cond, x, y}, (Attr){0});
}

ValueId g_cast(Graph *g, ValueId x, Dtype to)
{
    return graph_node(g, OP_Cast, 1, &x, (Attr){.to = to});
}

/* ---- constants ---- */

ValueId g_scalar(Graph *g, Dtype t, double v)
{
    Tensor wide = {.dtype = DT_F64, .data = &v}, out = {.dtype = t};
    eval_node(g->arena, OP_Cast, 1, &wide, &(Attr){.to = t}, 1, &out);
    return graph_const(g, NULL, out);
}

ValueId g_like(Graph *g, ValueId x, double v) { return g_scalar(g, val(g, x)->dtype, v); }

ValueId g_full(Graph *g, Dtype t, const Shape *s, double v)
{
    return g_expand(g, g_scalar(g, t, v), s);
}

ValueId g_ints(Graph *g, int rank, const int64_t *d, const int64_t *v)
{
    Tensor t = {.dtype = DT_I64, .shape = {.rank = rank}};
    INSIST(rank >= 0 && rank <= MAX_RANK);
    for (int i = 0; i < rank; i++)
        t.shape.d[i] = d[i];
    int64_t n = shape_elements(&t.shape), *copy = arena_array(g->arena, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        copy[i] = v[i];
    t.data = copy;
    return graph_const(g, NULL, t);
}

ValueId g_iota(Graph *g, Dtype t, int rank, int axis, int64_t n)
{
    enum { MOST_NUMBERS = 1 << 26 };
    Shape s = {.rank = rank};
    INSIST(axis >= 0 && axis < rank && rank <= MAX_RANK && n >= 0);
    if (n > MOST_NUMBERS) {
        diag_hint("this dimension is numbered, as classes are, and is too long for that; export "
                  "the model with a shorter one");
        diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, -1),
                   "the numbers from 0 to %" PRId64 " would be a constant: more than %d",
                   n - 1, MOST_NUMBERS);
    }
    for (int i = 0; i < rank; i++)
        s.d[i] = i == axis ? n : 1;
    int64_t *v = arena_array(g->arena, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        v[i] = i;
    Tensor ints = {.dtype = DT_I64, .shape = s, .data = v}, out = {.dtype = t, .shape = s};
    if (t == DT_I64)
        return graph_const(g, NULL, ints);
    eval_node(g->arena, OP_Cast, 1, &ints, &(Attr){.to = t}, 1, &out);
    return graph_const(g, NULL, out);
}

/* ---- views and data movement ---- */

ValueId g_reshape(Graph *g, ValueId x, const Shape *s)
{
    return graph_node(g, OP_Reshape, 1, &x, (Attr){.n = s->rank, .dims = s->d});
}

ValueId g_transpose(Graph *g, ValueId x, const int64_t *perm)
{
    return graph_node(g, OP_Transpose, 1, &x, (Attr){.n = dims(g, x)->rank, .perm = perm});
}

ValueId g_swap_last(Graph *g, ValueId x)
{
    int64_t perm[MAX_RANK];
    int rank = dims(g, x)->rank;
    INSIST(rank >= 2);
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    perm[rank - 2] = rank - 1;
    perm[rank - 1] = rank - 2;
    return g_transpose(g, x, perm);
}

/* As ONNX has it: a 1 in s keeps the operand's dimension, and s may have the smaller rank. */
ValueId g_expand(Graph *g, ValueId x, const Shape *s)
{
    const Shape *from = dims(g, x);
    Shape to = {.rank = s->rank > from->rank ? s->rank : from->rank};
    for (int i = 0; i < to.rank; i++) {
        int a = i - (to.rank - from->rank), b = i - (to.rank - s->rank);
        to.d[i] = b < 0 || (s->d[b] == 1 && a >= 0) ? from->d[a] : s->d[b];
    }
    return graph_node(g, OP_Expand, 1, &x, (Attr){.n = to.rank, .dims = to.d});
}

ValueId g_slice(Graph *g, ValueId x, const int64_t *start, const int64_t *size, const int64_t *step)
{
    return graph_node(g, OP_Slice, 1, &x,
                      (Attr){.n = dims(g, x)->rank, .start = start, .size = size, .step = step});
}

ValueId g_slice_axis(Graph *g, ValueId x, int axis, int64_t start, int64_t size)
{
    int64_t starts[MAX_RANK] = {0};
    Shape s = *dims(g, x);
    INSIST(axis >= 0 && axis < s.rank);
    starts[axis] = start;
    s.d[axis] = size;
    return g_slice(g, x, starts, s.d, NULL);
}

ValueId g_flip(Graph *g, ValueId x, int axis)
{
    const Shape s = *dims(g, x);
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK];
    for (int i = 0; i < s.rank; i++)
        step[i] = i == axis ? -1 : 1;
    start[axis] = s.d[axis] - 1;
    return g_slice(g, x, start, s.d, step);
}

ValueId g_concat(Graph *g, uint32_t n, const ValueId *x, int axis)
{
    return graph_node(g, OP_Concat, n, x, (Attr){.axis = axis});
}

ValueId g_split(Graph *g, ValueId x, int axis, int n, const int64_t *sizes)
{
    return graph_node(g, OP_Split, 1, &x, (Attr){.axis = axis, .n = n, .sizes = sizes});
}

ValueId g_pad(Graph *g, ValueId x, const int64_t *begin, const int64_t *end, int mode, double v)
{
    return graph_node(
        g, OP_Pad, 1, &x,
        (Attr){.n = dims(g, x)->rank, .begin = begin, .end = end, .mode = mode, .value = v});
}

ValueId g_only_there(Graph *g, ValueId there, int dim, ValueId x, double otherwise)
{
    Shape line = {.rank = dims(g, x)->rank};
    for (int d = 0; d < line.rank; d++)
        line.d[d] = d == dim ? dims(g, there)->d[0] : 1;
    const ValueId is = g_reshape(g, there, &line);
    return g_where(g, is, x, g_like(g, x, otherwise));
}

ValueId g_gather(Graph *g, ValueId x, ValueId index, int axis)
{
    return graph_node(g, OP_Gather, 2, (ValueId[]){x, index}, (Attr){.axis = axis});
}

/* ---- reductions ---- */

/* axes in any order; over none of them nothing happens. */
ValueId g_reduce(Graph *g, Op op, ValueId x, int n, const int64_t *axes)
{
    int64_t sorted[MAX_RANK];
    int rank = dims(g, x)->rank, count = 0;
    unsigned set = 0;
    for (int i = 0; i < n; i++) {
        INSIST(axes[i] >= 0 && axes[i] < rank);
        set |= 1u << axes[i];
    }
    for (int i = 0; i < rank; i++)
        if (set >> i & 1)
            sorted[count++] = i;
    return count ? graph_node(g, op, 1, &x, (Attr){.n = count, .axes = sorted}) : x;
}

ValueId g_reduce_last(Graph *g, Op op, ValueId x)
{
    int64_t axis = dims(g, x)->rank - 1;
    return axis < 0 ? x : g_reduce(g, op, x, 1, &axis);
}

ValueId g_mean(Graph *g, ValueId x, int n, const int64_t *axes)
{
    return g_reduce(g, OP_ReduceMean, x, n, axes);
}

ValueId g_sum_to(Graph *g, ValueId x, const Shape *s)
{
    Shape from = *dims(g, x);
    int64_t axes[MAX_RANK];
    int n = 0, lead = from.rank - s->rank;
    INSIST(lead >= 0);
    for (int i = 0; i < from.rank; i++)
        if (i < lead || (s->d[i - lead] == 1 && from.d[i] != 1))
            axes[n++] = i;
    return g_reshape(g, g_reduce(g, OP_ReduceSum, x, n, axes), s);
}

ValueId g_softmax(Graph *g, ValueId x, int axis)
{
    return graph_node(g, OP_Softmax, 1, &x, (Attr){.axis = axis});
}

ValueId g_log_softmax(Graph *g, ValueId x, int axis)
{
    return graph_node(g, OP_LogSoftmax, 1, &x, (Attr){.axis = axis});
}

/* ---- products ---- */

/* A vector is a row on the left and a column on the right; the dimension it was given goes away
 * again. */
static ValueId matmul(Graph *g, ValueId x, ValueId y, Dtype t)
{
    Shape a = *dims(g, x), b = *dims(g, y);
    if (a.rank == 0 || b.rank == 0)
        diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, a.rank == 0 ? 0 : 1),
                   "a scalar in a matrix product");
    bool row = a.rank == 1, column = b.rank == 1;
    if (row)
        x = g_reshape(g, x, &(Shape){2, {1, a.d[0]}});
    if (column)
        y = g_reshape(g, y, &(Shape){2, {b.d[0], 1}});
    ValueId z = graph_node(g, OP_MatMul, 2, (ValueId[]){x, y}, (Attr){.to = t});
    if (!row && !column)
        return z;
    Shape s = *dims(g, z), to = {0};
    for (int i = 0; i < s.rank; i++)
        if (!(row && i == s.rank - 2) && !(column && i == s.rank - 1))
            to.d[to.rank++] = s.d[i];
    return g_reshape(g, z, &to);
}

ValueId g_matmul(Graph *g, ValueId x, ValueId y) { return matmul(g, x, y, DT_NONE); }

ValueId g_matmul_wide(Graph *g, ValueId x, ValueId y)
{
    return matmul(g, x, y, dtype_is_half(val(g, x)->dtype) ? DT_F32 : DT_NONE);
}

ValueId g_matmul_single(Graph *g, ValueId x, ValueId y)
{
    return matmul(g, x, y, val(g, x)->dtype == DT_F32 ? DT_F32 : DT_NONE);
}

/* ---- between the members along an axis of the mesh ---- */

ValueId g_tree_sum(Graph *g, uint32_t n, const ValueId *x)
{
    ValueId *level = arena_array(g->arena, ValueId, n + 1);
    memcpy(level, x, n * sizeof *x);
    for (; n > 1; n = (n + 1) / 2)
        for (uint32_t i = 0; i < (n + 1) / 2; i++) {
            ValueId a = level[2 * i], b = 2 * i + 1 < n ? level[2 * i + 1] : NONE;
            level[i] = a == NONE ? b : b == NONE ? a : g_add(g, a, b);
        }
    return n ? level[0] : NONE;
}

ValueId g_vary(Graph *g, ValueId x, int k)
{
    return k == 1 && g->mesh[g->cur_mesh].members == 1
               ? x
               : graph_node(g, OP_Vary, 1, &x, (Attr){.n = k, .mesh = (int)g->cur_mesh});
}

ValueId g_collective(Graph *g, Op op, ValueId x, Attr attr)
{
    attr.mesh = (int)g->cur_mesh;
    return g->mesh[g->cur_mesh].members == 1 ? x : graph_node(g, op, 1, &x, attr);
}

ValueId g_all_reduce(Graph *g, ValueId x, Dtype t)
{
    const Dtype own = val(g, x)->dtype;
    return g_cast(g, g_collective(g, OP_AllReduce, x, (Attr){.to = t == own ? DT_NONE : t}), t);
}

ValueId g_all_gather(Graph *g, ValueId x, int axis)
{
    return g_collective(g, OP_AllGather, x, (Attr){.axis = axis});
}

ValueId g_shard(Graph *g, ValueId x, int axis)
{
    return g_collective(g, OP_Shard, x, (Attr){.axis = axis});
}

ValueId g_reduce_scatter(Graph *g, ValueId x, int axis)
{
    return g_collective(g, OP_ReduceScatter, x, (Attr){.axis = axis});
}

ValueId g_all_to_all(Graph *g, ValueId x, int from, int to)
{
    return g_collective(g, OP_AllToAll, x, (Attr){.axis = from, .to_axis = to});
}
