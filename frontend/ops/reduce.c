/*
 * reduce.c - ONNX reductions, arg reductions, scans and TopK to the core's: axes are
 * attributes, ascending and never empty, and the reduced dims stay as 1; a Reshape drops them where
 * ONNX does.
 */
#include "frontend/ragged/ragged.h"

#include <math.h>

/* Which axes a Reduce* node names; n = 0: none (the op then works on single elements). */
static int64_t *reduce_axes(const Import *im, int rank, int *n)
{
    int64_t *given, count = 0;
    if (low_ints_either(im, "axes", 1, &given, &count) && count > 0) {
        *n = (int)count;
        return low_axes(im, given, count, rank);
    }
    int64_t *all = arena_array(im->arena, int64_t, rank + 1);
    for (int d = 0; d < rank; d++)
        all[d] = d;
    *n = im_int(im, "noop_with_empty_axes", 0) ? 0 : rank;
    return all;
}

/* The maximum and minimum of no elements: what any other number replaces. */
static ValueId of_nothing(Graph *g, Op op, ValueId x, int n, const int64_t *axes)
{
    Shape s = low_shape(g, x);
    for (int i = 0; i < n; i++)
        s.d[axes[i]] = 1;
    double least = dtype_is_float(low_dtype(g, x)) ? -(double)INFINITY : 0,
           most = dtype_is_float(low_dtype(g, x)) ? (double)INFINITY : 1;
    return g_full(g, low_dtype(g, x), &s, op == OP_ReduceMax ? least : most);
}

static ValueId reduce(Graph *g, Op op, ValueId x, int n, const int64_t *axes)
{
    Dtype t = low_dtype(g, x);
    for (int i = 0; i < n && (op == OP_ReduceMax || op == OP_ReduceMin); i++)
        if (low_shape(g, x).d[axes[i]] == 0 && (dtype_is_float(t) || t == DT_BOOL))
            return of_nothing(g, op, x, n, axes);
    return n == 0 ? x : g_reduce(g, op, x, n, axes);
}

/* PyTorch's max(dim) and min(dim). */
static ValueId extreme_at_index(Graph *g, Op op, ValueId x, const int64_t *axis)
{
    return graph_node(g, op, 1, &x, (Attr){.n = 1, .axes = axis, .to_first = 1});
}

static ValueId keep_or_drop(const Import *im, ValueId y, int n, const int64_t *axes)
{
    return im_int(im, "keepdims", 1) || n == 0 ? y : low_squeeze(im->g, y, n, axes);
}

void import_reduce(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), y;
    Shape s = low_shape(g, x);
    Dtype t = low_dtype(g, x);
    int n;
    int64_t *axes = reduce_axes(im, s.rank, &n);
    if (im->op == OP_ReduceMean && !dtype_is_float(t)) {
        ValueId count = ragged_along(im->state, x, n, axes, ragged_find(im->state, x));
        y = g_div(g, reduce(g, OP_ReduceSum, x, n, axes), count);
    } else if (t == DT_BOOL) {
        bool empty = shape_elements(&s) == 0;
        y = g_cast(g, reduce(g, im->op, empty ? x : g_cast(g, x, DT_I32), n, axes), DT_BOOL);
    } else if ((im->op == OP_ReduceMax || im->op == OP_ReduceMin) && n == 1 && s.d[axes[0]] > 1 &&
               dtype_is_float(t) && im_has_index(im, (int)axes[0])) {
        y = extreme_at_index(g, im->op, x, axes);
    } else {
        y = reduce(g, im->op, x, n, axes);
    }
    im->out[0] = keep_or_drop(im, y, n, axes);
}

/* log(sum(exp(x))), shifted by the maximum; the gradients through the two uses of the shift cancel.
 */
static ValueId log_sum_exp(Graph *g, ValueId x, int n, const int64_t *axes)
{
    if (n == 0)
        return x;
    ValueId m = reduce(g, OP_ReduceMax, x, n, axes);
    m = g_where(g, g_unary(g, OP_IsInf, m), g_like(g, x, 0), m);
    ValueId sum = reduce(g, OP_ReduceSum, g_unary(g, OP_Exp, g_sub(g, x, m)), n, axes);
    return g_add(g, g_unary(g, OP_Log, sum), m);
}

void import_reduce_composite(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), y;
    Dtype t = low_dtype(g, x);
    int n;
    int64_t *axes = reduce_axes(im, low_shape(g, x).rank, &n);
    bool inexact = im->op != OP_ReduceL1 && im->op != OP_ReduceSumSquare;
    if (inexact && !dtype_is_float(t))
        x = g_cast(g, x, DT_F64);
    if (im->op == OP_ReduceL1)
        x = g_unary(g, OP_Abs, x);
    else if (im->op == OP_ReduceL2 || im->op == OP_ReduceSumSquare)
        x = low_square(g, x);
    y = im->op == OP_ReduceLogSumExp ? log_sum_exp(g, x, n, axes)
                                     : reduce(g, OP_ReduceSum, x, n, axes);
    if (im->op == OP_ReduceL2)
        y = low_safe_sqrt(g, y);
    else if (im->op == OP_ReduceLogSum)
        y = g_unary(g, OP_Log, y);
    im->out[0] = keep_or_drop(im, g_cast(g, y, t), n, axes);
}

void import_arg(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x);
    int64_t axis = low_axis(im, im_int(im, "axis", 0), s.rank);
    int mode = im_int(im, "select_last_index", 0) != 0;
    low_limit_table(im, s.d[axis], 1, "places"); /* codegen numbers them */
    ValueId y = graph_node(g, im->op, 1, &x, (Attr){.axis = axis, .select_last = mode});
    im->out[0] = keep_or_drop(im, y, 1, &axis);
}

void import_cumsum(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    int axis = low_axis(im, im_const_int(im, 1, 0), low_shape(g, x).rank);
    int mode = (im_int(im, "exclusive", 0) ? CUMSUM_EXCLUSIVE : 0) |
               (im_int(im, "reverse", 0) ? CUMSUM_REVERSE : 0);
    im->out[0] = graph_node(g, OP_CumSum, 1, &x, (Attr){.axis = axis, .scan = mode});
}

void import_topk(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    int64_t k = im->opset >= 10 ? im_const_int(im, 1, -1) : im_int(im, "k", -1);
    int axis = low_axis(im, im_int(im, "axis", -1), low_shape(g, x).rank);
    ValueId y = graph_node(g, OP_TopK, 1, &x,
                           (Attr){.axis = axis, .k = k, .largest = im_int(im, "largest", 1) != 0});
    im->out[0] = y;
    if (im->nout > 1)
        im->out[1] = graph_out(g, y, 1);
}
