/*
 * sums.h - reductions over any axes, norms, softmax, choices; products and convolutions.
 */
#ifndef FUZZ_SUMS_H
#define FUZZ_SUMS_H

#include "elementwise.h"

/* ---- sums, norms ----------------------------------------------------------------------------- */

static int some_axes(Fuzz *f, ValueId x, int64_t *axes)
{
    Shape s = shape(f, x);
    int n = 0;
    for (int d = f->r->rows && !mixes(f, 10) ? 1 : 0; d < s.rank; d++)
        if (chance(f, 45))
            axes[n++] = d;
    if (n == 0 && s.rank)
        axes[n++] = axis_of(f, x);
    return n;
}

static ValueId reduced(Fuzz *f, ValueId x)
{
    static const Op op[] = {OP_ReduceSum, OP_ReduceMean, OP_ReduceMean,
                            OP_ReduceMax, OP_ReduceMin,  OP_ReduceProd};
    int64_t *axes = ints(f);
    int n = some_axes(f, x, axes);
    Op o = op[below(f, 6)];
    if (n == 0)
        return x;
    int64_t count = 1;
    for (int i = 0; i < n; i++)
        count *= shape(f, x).d[axes[i]];
    /* a product of many is nothing, or all there is */
    o = o == OP_ReduceProd && count > 12 ? OP_ReduceMean : o;
    if (o == OP_ReduceProd)
        x = g_add(f->g, scaled(f, bounded(f, x), 0.3), number(f, 1));
    bool extreme = n == 1 && (o == OP_ReduceMax || o == OP_ReduceMin);
    ValueId m = extreme ? op1(f, o, x, (Attr){.n = 1, .axes = axes, .to_first = (int)below(f, 2)})
                        : g_reduce(f->g, o, x, n, axes);
    return o == OP_ReduceSum ? scaled(f, m, 0.2) : m;
}

static ValueId do_reduce(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    return reduced(f, x);
}

static ValueId do_minus_reduced(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    ValueId m = reduced(f, x);
    return chance(f, 70) ? g_sub(f->g, x, m) : scaled(f, g_mul(f->g, bounded(f, m), x), 0.5);
}

static ValueId do_norm(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    int64_t *axes = ints(f);
    int n = some_axes(f, x, axes);
    (void)y;
    if (n == 0)
        return x;
    ValueId d = chance(f, 80) ? g_sub(g, x, g_mean(g, x, n, axes)) : x;
    ValueId v = g_add(g, g_mean(g, g_mul(g, d, d), n, axes), number(f, 0.1));
    d = chance(f, 50) ? g_div(g, d, g_unary(g, OP_Sqrt, v))
                      : g_mul(g, d, g_unary(g, OP_Reciprocal, g_unary(g, OP_Sqrt, v)));
    return chance(f, 60) ? g_add(g, g_mul(g, d, fitting(f, d)), fitting(f, d)) : d;
}

static ValueId do_softmax(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    if (shape(f, x).rank == 0)
        return x;
    return chance(f, 65) ? g_softmax(f->g, x, axis_of(f, x))
                         : g_log_softmax(f->g, x, axis_of(f, x));
}

/* log of a sum of exponentials, written out. */
static ValueId do_log_sum_exp(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    int64_t *axes = ints(f);
    int n = some_axes(f, x, axes);
    (void)y;
    if (n == 0)
        return x;
    ValueId m = g_reduce(g, OP_ReduceMax, x, n, axes);
    ValueId l = g_add(
        g,
        g_unary(g, OP_Log, g_reduce(g, OP_ReduceSum, g_unary(g, OP_Exp, g_sub(g, x, m)), n, axes)),
        m);
    return chance(f, 50) ? l : g_sub(g, x, l);
}

/* The largest of a line, by its number. */
static ValueId do_argmax(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    ValueId i = op1(f, chance(f, 50) ? OP_ArgMax : OP_ArgMin, x,
                    (Attr){.axis = axis, .select_last = (int)below(f, 2)});
    ValueId hot = g_binary(g, OP_Equal, i, g_iota(g, DT_I64, s.rank, axis, s.d[axis]));
    ValueId z = g_where(g, hot, x, number(f, 0));
    return chance(f, 50) ? z : g_reduce(g, OP_ReduceSum, z, 1, I(axis));
}

/* What an index from outside picks of a line: as losses over classes do. */
static ValueId do_picked(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x), t = s;
    (void)y;
    if (s.rank < 2)
        return x;
    int axis = 1 + (int)below(f, s.rank - 1);
    t.d[axis] = 1;
    if (f->r->rows && s.d[0] != f->r->rows)
        return x;
    ValueId i = int_input(f, t, s.d[axis]);
    ValueId hot = g_binary(g, OP_Equal, i, g_iota(g, DT_I64, s.rank, axis, s.d[axis]));
    return g_reduce(g, OP_ReduceSum, g_where(g, hot, x, number(f, 0)), 1, I(axis));
}

static ValueId do_cumsum(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    if (shape(f, x).rank == 0)
        return x;
    return scaled(f, op1(f, OP_CumSum, x, (Attr){.axis = axis_of(f, x), .scan = (int)below(f, 4)}),
                  0.3);
}

static ValueId do_topk(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    ValueId v =
        op1(f, OP_TopK, x,
            (Attr){.axis = axis, .k = 1 + below(f, s.d[axis]), .largest = (int)below(f, 2)});
    if (chance(f, 70))
        return v;
    return g_mul(g, v, g_cast(g, graph_out(g, v, 1), f->real));
}

/* Boxes side by side, in the order of x: of two neighbours one is taken. */
static ValueId do_suppress(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x), lines = {3, {1, 1, 1}};
    (void)y;
    if (s.rank < 2 || s.d[s.rank - 1] < 1)
        return x;
    int64_t n = lines.d[2] = s.d[s.rank - 1];
    lines.d[0] = s.d[0];
    for (int d = 1; d < s.rank - 1; d++)
        lines.d[1] *= s.d[d];
    ValueId v = op1(f, OP_TopK, g_reshape(g, x, &lines), (Attr){.axis = 2, .k = n, .largest = 1});
    ValueId low = g_mul(g, g_cast(g, g_iota(g, DT_I64, 3, 1, n), f->real), number(f, 0.3)),
            zero = g_mul(g, low, number(f, 0)), one = g_add(g, zero, number(f, 1)),
            line[4] = {low, zero, g_add(g, low, one), one};
    ValueId in[3] = {g_expand(g, g_concat(g, 4, line, 2), &S(s.d[0], n, 4)), graph_out(g, v, 1),
                     g_binary(g, OP_Greater, v, number(f, -0.5))};
    ValueId taken = graph_node(g, OP_Suppress, 3, in, (Attr){.k = 1 + below(f, n), .value = 0.4});
    ValueId count = g_reshape(g, graph_out(g, taken, 1), &S(lines.d[0], lines.d[1], 1));
    ValueId is = g_binary(g, OP_Less, g_iota(g, DT_I64, 3, 2, n), count);
    v = g_where(g, is, g_mul(g, v, g_cast(g, taken, f->real)), number(f, 0));
    return g_reshape(g, v, &s);
}

/* ---- products, convolutions ------------------------------------------------------------------ */

static ValueId do_linear(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0 || (f->r->rows && s.rank < 2))
        return x;
    int64_t k = s.d[s.rank - 1], m = wide_as(f, 1 + below(f, 12));
    ValueId w = chance(f, 50) ? weight(f, S(k, m)) : g_swap_last(f->g, weight(f, S(m, k)));
    ValueId z = scaled(f, g_matmul(f->g, x, w), 1 / sqrt((double)k));
    return chance(f, 50) ? g_add(f->g, z, weight(f, S(m))) : z;
}

/* x against y or itself, over batches that broadcast. */
static ValueId do_matmul(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x), t = shape(f, y);
    if (s.rank < 2 || (f->r->rows && s.rank < 3))
        return x;
    int64_t k = s.d[s.rank - 1];
    bool fits = t.rank == s.rank && t.d[t.rank - 2] == k && shape_elements(&t) < MOST_ELEMENTS;
    for (int d = 0; d < s.rank - 2 && fits; d++)
        fits = s.d[d] == t.d[d] || (d > 0 && (s.d[d] == 1 || t.d[d] == 1));
    ValueId z = fits ? y : g_swap_last(g, chance(f, 50) ? x : bounded(f, x));
    /* a weight for each of the last batch dimension */
    if (!fits && chance(f, 25)) {
        Shape w = S(s.rank > 2 ? s.d[s.rank - 3] : 1, k, 1 + below(f, 5));
        z = weight(f, f->r->rows && s.rank == 3 ? S(k, 3) : w);
    }
    z = scaled(f, g_matmul(g, x, z), 1 / sqrt((double)k));
    Shape u = shape(f, z);
    return shape_elements(&u) <= MOST_ELEMENTS ? z : x;
}

/* Each row looks up its matrix, and perhaps a bias: graph_picked() packs them by matrices. */
static ValueId looked_up(Fuzz *f, ValueId x)
{
    Graph *g = f->g;
    Shape s = shape(f, x), line = S(s.d[0], 1, s.d[1]);
    int64_t n = 2 + below(f, 2), m = 8 + below(f, 16); /* a matrix is more than its rows */
    ValueId i = int_input(f, S(s.d[0]), n);
    x = g_matmul(g, g_reshape(g, x, &line), g_gather(g, weight(f, S(n, s.d[1], m)), i, 0));
    if (chance(f, 50))
        x = g_add(g, x, g_gather(g, weight(f, S(n, 1, m)), i, 0));
    if (chance(f, 50))
        x = g_mul(g, x, g_unary(g, OP_Sigmoid, x));
    return g_reshape(g, x, &S(s.d[0], m));
}

/* An expert: the rows that data choose are packed, go through a product and back to their places. */
static ValueId do_packed(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank < 2 || (f->r->rows && s.d[0] != f->r->rows)) /* rows of data: of an input */
        return x;
    Shape rows = S(s.d[0], 1);
    for (int d = 1; d < s.rank; d++)
        rows.d[1] *= s.d[d];
    x = g_reshape(g, bounded(f, x), &rows);
    if (chance(f, 50))
        return looked_up(f, x);
    ValueId mask = g_binary(g, OP_Less, int_input(f, S(s.d[0]), 3), g_scalar(g, DT_I64, 2)),
            w = weight(f, S(rows.d[1], 1 + below(f, 6)));
    x = op2(f, OP_Pack, x, mask, (Attr){.axis = 0});
    x = op3(f, OP_PackedMatMul, x, w, mask, (Attr){.axis = 0});
    if (chance(f, 50))
        x = g_mul(g, x, g_unary(g, OP_Sigmoid, x));
    return op2(f, OP_Unpack, x, mask, (Attr){.axis = 0});
}

/* Attention over a line of x: products, softmax over a last axis, a product. */
static ValueId do_attention(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank < 3 || s.d[s.rank - 2] > 20)
        return x;
    ValueId q = do_linear(f, x, x), k = g_mul(g, x, fitting(f, x)),
            p = g_matmul(g, k, g_swap_last(g, x));
    p = chance(f, 50) ? do_masked_softmax(f, p, p) : g_softmax(g, scaled(f, p, 0.3), s.rank - 1);
    return g_matmul(g, p, q);
}

/* x as [N, C, spatial..]; false: it has not the rank, or is too large. */
static bool spatial(Fuzz *f, ValueId x, int *n)
{
    Shape s = shape(f, x);
    *n = s.rank - 2;
    return s.rank >= 3 && s.rank <= 5 && shape_elements(&s) <= 1200;
}

static ValueId do_conv(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int n;
    (void)y;
    if (!spatial(f, x, &n))
        return x;
    int64_t group = chance(f, 30) ? s.d[1] : 1, *stride = ints(f), *dilation = ints(f),
            *pad = ints(f);
    Shape w = {.rank = n + 2, .d = {group * (1 + below(f, 3)), s.d[1] / group}};
    int64_t size = w.d[1];
    for (int i = 0; i < n; i++) {
        w.d[i + 2] = 1 + below(f, 3);
        stride[i] = 1 + below(f, 2);
        dilation[i] = 1 + below(f, 2);
        pad[i] = below(f, 2);
        pad[n + i] = below(f, 2);
        size *= w.d[i + 2];
        if ((w.d[i + 2] - 1) * dilation[i] + 1 > s.d[i + 2] + pad[i] + pad[n + i])
            return x;
    }
    Attr a = {.group = group, .n = n, .stride = stride, .dilation = dilation, .pad = pad};
    return scaled(f, op2(f, OP_Conv, x, weight(f, w), a), 1 / sqrt((double)size));
}

static ValueId do_conv_transpose(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int n;
    (void)y;
    if (!spatial(f, x, &n))
        return x;
    int64_t group = chance(f, 30) ? s.d[1] : 1, *stride = ints(f), *dilation = ints(f),
            *pad = ints(f), *out = ints(f), all = s.d[0] * group * 3;
    Shape w = {.rank = n + 2, .d = {s.d[1], 1 + below(f, 3)}};
    for (int i = 0; i < n; i++) {
        w.d[i + 2] = 1 + below(f, 3);
        stride[i] = 1 + below(f, 2);
        dilation[i] = 1;
        pad[i] = below(f, w.d[i + 2] > 1 ? 2 : 1);
        pad[n + i] = pad[i];
        out[i] = (s.d[i + 2] - 1) * stride[i] + w.d[i + 2] - 2 * pad[i] + below(f, stride[i]);
        all *= out[i];
        if (out[i] < 1)
            return x;
    }
    if (all > MOST_ELEMENTS)
        return x;
    Attr a = {.group = group,
              .n = n,
              .stride = stride,
              .dilation = dilation,
              .pad = pad,
              .out_dims = out};
    return scaled(f, op2(f, OP_ConvTranspose, x, weight(f, w), a), 0.3);
}

static ValueId do_pool(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int n;
    (void)y;
    if (!spatial(f, x, &n))
        return x;
    int64_t *stride = ints(f), *dilation = ints(f), *pad = ints(f), *kernel = ints(f);
    bool most = chance(f, 50);
    for (int i = 0; i < n; i++) {
        kernel[i] = 1 + below(f, 3);
        stride[i] = 1 + below(f, 2);
        dilation[i] = most ? 1 + below(f, 2) : 1;
        pad[i] = below(f, kernel[i] > 1 ? 2 : 1);
        pad[n + i] = below(f, kernel[i] > 1 ? 2 : 1);
        if ((kernel[i] - 1) * dilation[i] + 1 > s.d[i + 2])
            return x;
    }
    Attr a = {.n = n,
              .stride = stride,
              .dilation = dilation,
              .pad = pad,
              .kernel = kernel,
              .count_include_pad = most ? 0 : (int)below(f, 2),
              .ceil_mode = below(f, 2)};
    return op1(f, most ? OP_MaxPool : OP_AveragePool, x, a);
}

/* Numbers of x's shape, added to it; some by a seed of the node's own. */
static ValueId do_random(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    Attr at = {.to = dtype_sum(val(f->g, x)->dtype),
               .key = f->g->numbers.draws++,
               .seed = chance(f, 25) ? 12 : 0};
    return g_add(f->g, x, g_cast(f->g, op1(f, OP_Random, x, at), val(f->g, x)->dtype));
}

static ValueId do_dropout(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    double ratio = chance(f, 50) ? 0.25 : 0.5;
    return op1(f, OP_Dropout, x, (Attr){.ratio = ratio, .key = f->g->numbers.draws++});
}

#endif
