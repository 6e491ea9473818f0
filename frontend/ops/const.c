/*
 * const.c - ONNX ops whose result is known at import: constants, shapes, ranges, and the
 * one-hot family, which compares with a constant.  Every shape is static, so Shape and Size always
 * are constants.
 */
#include "frontend/low/low.h"

#include <math.h>
#include <string.h>

static ValueId list_of_doubles(Graph *g, const double *at, int n, bool scalar)
{
    return low_const_doubles(g, DT_F32, scalar ? (Shape){0} : (Shape){1, {n}}, at);
}

void import_constant(Import *im)
{
    Graph *g = im->g;
    Tensor t;
    int64_t *ints, one;
    double *floats;
    int n;
    if (im_tensor(im, "value", &t)) {
        if (dtype_held(t.dtype) != t.dtype)
            low_fatal(im, -1, "a constant of type %s", dtype_name(t.dtype));
        im->out[0] = graph_const(g, NULL, t);
    } else if (im_has(im, "value_float")) {
        double v = im_float(im, "value_float", 0);
        im->out[0] = list_of_doubles(g, &v, 1, true);
    } else if (im_value_int(im, "value_int", &one)) {
        int64_t *v = arena_array(g->arena, int64_t, 1);
        *v = one;
        im->out[0] = low_const(g, DT_I64, (Shape){0}, v);
    } else if (im_floats(im, "value_floats", &floats, &n)) {
        im->out[0] = list_of_doubles(g, floats, n, false);
    } else if (im_value_ints(im, "value_ints", &ints, &n)) {
        int64_t *v = arena_array(g->arena, int64_t, n + 1);
        memcpy(v, ints, (size_t)n * sizeof *v);
        im->out[0] = low_const(g, DT_I64, (Shape){1, {n}}, v);
    } else {
        low_fatal(im, -1, "no value that is supported (strings and sparse tensors are not)");
    }
}

void import_constant_of_shape(Import *im)
{
    Graph *g = im->g;
    Tensor t;
    int64_t *dims, n;
    im_const_ints(im, 0, &dims, &n);
    const Shape s = low_dims(im, 0, dims, n, 0);
    shape_elements(&s);
    ValueId one;
    if (im_tensor(im, "value", &t)) {
        if (shape_elements(&t.shape) != 1)
            low_fatal(im, -1, "the value must be a single number");
        if (dtype_held(t.dtype) != t.dtype)
            low_fatal(im, -1, "a value of type %s", dtype_name(t.dtype));
        t.shape = (Shape){0};
        one = graph_const(g, NULL, t);
    } else {
        one = g_scalar(g, DT_F32, 0);
    }
    im->out[0] = g_expand(g, one, &s);
}

void import_shape(Import *im)
{
    Graph *g = im->g;
    Shape s = low_shape(g, low_need(im, 0));
    int64_t start = im_int(im, "start", 0), end = im_int(im, "end", s.rank);
    if (start < 0)
        start += s.rank;
    if (end < 0)
        end += s.rank;
    start = low_min(low_max(start, 0), s.rank);
    end = low_min(low_max(end, start), s.rank);
    int64_t n = end - start, *v = arena_array(g->arena, int64_t, n + 1);
    memcpy(v, s.d + start, (size_t)n * sizeof *v);
    im->out[0] = low_const(g, DT_I64, (Shape){1, {n}}, v);
}

void import_size(Import *im)
{
    Shape s = low_shape(im->g, low_need(im, 0));
    int64_t *v = arena_array(im->g->arena, int64_t, 1);
    *v = shape_elements(&s);
    im->out[0] = low_const(im->g, DT_I64, (Shape){0}, v);
}

enum { RANGE_MAX = 1 << 26 };

void import_range(Import *im)
{
    Graph *g = im->g;
    Dtype t = low_dtype(g, low_need(im, 0));
    int64_t n;
    if (dtype_is_float(t)) {
        double start = im_const_double(im, 0, 0), limit = im_const_double(im, 1, 0),
               delta = im_const_double(im, 2, 1);
        double count = delta == 0 ? (double)NAN : ceil((limit - start) / delta);
        if (!(count <= RANGE_MAX))
            low_fatal(im, -1, "the range has no end or is too long");
        n = count > 0 ? (int64_t)count : 0;
        double *v = arena_array(im->arena, double, n + 1);
        for (int64_t i = 0; i < n; i++)
            v[i] = start + (double)i * delta;
        im->out[0] = low_const_doubles(g, t, (Shape){1, {n}}, v);
        return;
    }
    int64_t start = im_const_int(im, 0, 0), limit = im_const_int(im, 1, 0),
            delta = im_const_int(im, 2, 1), span;
    if (delta == 0 || delta == INT64_MIN || __builtin_sub_overflow(limit, start, &span) ||
        span == INT64_MIN)
        low_fatal(im, -1, "the range has no end");
    n = delta > 0 ? (span > 0 ? (span - 1) / delta + 1 : 0)
                  : (span < 0 ? (-span - 1) / -delta + 1 : 0);
    if (n > RANGE_MAX)
        low_fatal(im, -1, "a range of %lld numbers is too long", (long long)n);
    int64_t *v = arena_array(g->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++)
        v[i] = start + i * delta;
    im->out[0] = g_cast(g, low_const(g, DT_I64, (Shape){1, {n}}, v), t);
}

void import_eye_like(Import *im)
{
    Graph *g = im->g;
    Shape s = low_need_rank(im, 0, 2, 2);
    Dtype t = dtype_held(im_dtype(im, "dtype", low_dtype(g, im->in[0])));
    int64_t k = im_int(im, "k", 0);
    if (t == DT_NONE)
        low_fatal(im, -1, "the type is not supported");
    k = low_max(low_min(k, s.d[1]), -s.d[0]);
    ValueId r = g_add(g, g_iota(g, DT_I64, 2, 0, s.d[0]), g_scalar(g, DT_I64, (double)k));
    im->out[0] = g_cast(g, g_binary(g, OP_Equal, g_iota(g, DT_I64, 2, 1, s.d[1]), r), t);
}

/* Indices outside [-depth, depth) give a row of off. */
void import_one_hot(Import *im)
{
    Graph *g = im->g;
    ValueId index = low_need(im, 0), values = low_need(im, 2);
    double d = im_const_double(im, 1, 0);
    Shape s = low_shape(g, index), vs = low_shape(g, values);
    if (!(d >= 1 && d < 0x1p40))
        low_fatal(im, 1, "a depth of %g", d);
    if (vs.rank != 1 || vs.d[0] != 2)
        low_fatal(im, 2, "two numbers, off and on, are needed");
    if (s.rank >= MAX_RANK)
        low_fatal(im, 0, "more than %d dims", MAX_RANK);
    int64_t depth = (int64_t)d;
    int axis = low_axis(im, im_int(im, "axis", -1), s.rank + 1);
    index = low_unsqueeze(g, g_cast(g, index, DT_I64), axis);
    im->out[0] =
        g_formula(g, "i, class, off, on, double depth: (i < 0 ? i + depth : i) == class ? on : off",
                  index, g_iota(g, DT_I64, s.rank + 1, axis, depth), low_at(g, values, 0, 0),
                  low_at(g, values, 0, 1), d);
}

/* Only of a constant: how many there are must be known. */
void import_non_zero(Import *im)
{
    Graph *g = im->g;
    Value v = *val(g, low_need(im, 0));
    if (v.kind != V_CONST) {
        diag_hint("the number of non-zero elements is known only when the program runs, and every "
                  "shape must be static");
        low_fatal(im, 0, "NonZero of a value that is not constant");
    }
    int64_t total = shape_elements(&v.shape), n = 0;
    for (int64_t i = 0; i < total; i++)
        n += low_const_at(&v, i) != 0;
    int rank = v.shape.rank;
    int64_t *at = arena_array(g->arena, int64_t, n * rank + 1);
    for (int64_t i = 0, k = 0; i < total; i++) {
        if (low_const_at(&v, i) == 0)
            continue;
        for (int64_t d = rank - 1, rest = i; d >= 0; rest /= v.shape.d[d], d--)
            at[d * n + k] = rest % v.shape.d[d];
        k++;
    }
    im->out[0] = low_const(g, DT_I64, (Shape){2, {rank, n}}, at);
}
