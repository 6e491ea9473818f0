/*
 * operations.h - what a step of a random graph (recipe.h) does: operations over all of ops.def, as exporters write them and as they
 * do not, on shapes with ones, along every axis.
 *
 * In: the graph so far and the step's operands x and y, floats of any shape.  Out: a float.  Choices are drawn from the step's own
 * number.  Total: where an operation does not apply, x is the result.  Arguments of functions with poles and edges are brought
 * where they are smooth, so that differences say what the gradient is.
 */
#ifndef FUZZ_OPERATIONS_H
#define FUZZ_OPERATIONS_H

#include <math.h>

#include "../../autodiff/autodiff.h"
#include "recipe.h"

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define I(...) ((const int64_t[]){__VA_ARGS__})

enum { MOST_ELEMENTS = 3000, MOST_DIMS = 6 };

typedef struct {
    Graph *g;
    const Recipe *r;
    Dtype real;
    uint64_t seed;                  /* of the step */
    uint32_t weights, inputs;
} Fuzz;

static int64_t below(Fuzz *f, int64_t n) { return fuzz_below(&f->seed, n); }
static bool chance(Fuzz *f, int percent) { return below(f, 100) < percent; }
static Shape shape(const Fuzz *f, ValueId x) { return val(f->g, x)->shape; }
static ValueId number(Fuzz *f, double v) { return g_scalar(f->g, f->real, v); }
static ValueId op1(Fuzz *f, Op op, ValueId x, Attr a) { return graph_node(f->g, op, 1, &x, a); }
static ValueId op2(Fuzz *f, Op op, ValueId x, ValueId y, Attr a) { return graph_node(f->g, op, 2, (ValueId[]){x, y}, a); }
static ValueId op3(Fuzz *f, Op op, ValueId x, ValueId y, ValueId z, Attr a) { return graph_node(f->g, op, 3, (ValueId[]){x, y, z}, a); }
static ValueId scaled(Fuzz *f, ValueId x, double k) { return g_mul(f->g, x, number(f, k)); }
static ValueId bounded(Fuzz *f, ValueId x) { return g_unary(f->g, OP_Tanh, x); }
static ValueId positive(Fuzz *f, ValueId x) { return g_add(f->g, g_mul(f->g, bounded(f, x), bounded(f, x)), number(f, 0.5)); }

static int64_t *ints(Fuzz *f) { return arena_array(f->g->arena, int64_t, MAX_RANK); }

/* A dimension; the rows of a batch are taken less often: what mixes them is a case of its own. */
static int axis_of(Fuzz *f, ValueId x)
{
    int rank = shape(f, x).rank;
    if (rank > 1 && f->r->rows && !chance(f, 10))
        return 1 + (int)below(f, rank - 1);
    return (int)below(f, rank);
}

static ValueId weight(Fuzz *f, Shape s)
{
    int64_t n = shape_elements(&s);
    Payload bytes = {.at = arena_alloc(f->g->arena, (size_t)n * 8 + 8), .length = (size_t)n * dtype_size(f->real)};
    for (int64_t i = 0; i < n; i++) {
        double v = (double)below(f, 20001) / 10000 - 1;
        if (f->real == DT_F32)
            ((float *)(uintptr_t)bytes.at)[i] = (float)v;
        else
            ((double *)(uintptr_t)bytes.at)[i] = v;
    }
    Param p = {.name = arena_printf(f->g->arena, "w%u", f->weights++), .dtype = f->real, .shape = s, .trainable = true, .bytes = bytes};
    return graph_param(f->g, p);
}

/* A parameter that broadcasts with x: some dimensions are 1, some are left out in front. */
static ValueId fitting(Fuzz *f, ValueId x)
{
    Shape s = shape(f, x), t = {0};
    for (int d = s.rank ? (int)below(f, s.rank + 1) : 0; d < s.rank; d++)
        t.d[t.rank++] = chance(f, 30) || (f->r->rows && d == 0) ? 1 : s.d[d];
    return weight(f, t);
}

/* y where it broadcasts with x to no more than is reasonable, else a parameter that does. */
static ValueId other(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x), t = shape(f, y);
    int64_t n = 1;
    int rank = s.rank > t.rank ? s.rank : t.rank;
    for (int i = 1; i <= rank; i++) {
        int64_t a = i <= s.rank ? s.d[s.rank - i] : 1, b = i <= t.rank ? t.d[t.rank - i] : 1;
        if (a != b && a != 1 && b != 1)
            return fitting(f, x);
        n *= a > b ? a : b;
    }
    bool rows = f->r->rows && rank != (s.rank < t.rank ? s.rank : t.rank);      /* the rows must meet the rows */
    return n <= MOST_ELEMENTS && !rows ? y : fitting(f, x);
}

static ValueId int_const(Fuzz *f, Shape s, int64_t from, int64_t n)
{
    int64_t *v = arena_array(f->g->arena, int64_t, shape_elements(&s) + 1);
    for (int64_t i = 0; i < shape_elements(&s); i++)
        v[i] = from + below(f, n);
    return g_ints(f->g, s.rank, s.d, v);
}

/* Integers that come in with the data, brought below n: i mod n, some counted from the end. */
static ValueId int_input(Fuzz *f, Shape s, int64_t n)
{
    Graph *g = f->g;
    if (f->r->rows && s.rank)
        s.d[0] = f->r->rows;
    ValueId x = graph_input(g, arena_printf(g->arena, "i%u", f->inputs++), DT_I64, &s);
    x = g_binary(g, OP_Mod, x, g_scalar(g, DT_I64, (double)n));
    return chance(f, 25) ? g_sub(g, x, g_scalar(g, DT_I64, (double)n)) : x;
}

/* ---- what comes in ------------------------------------------------------------------------------------------------- */

static ValueId do_input(Fuzz *f, ValueId x, ValueId y)
{
    static const int64_t size[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 17, 33, 70};
    Graph *g = f->g;
    Shape s = {.rank = 1 + (int)below(f, 4)};
    (void)x, (void)y;
    for (int d = 0; d < s.rank; d++) {
        do
            s.d[d] = size[below(f, 12)];
        while (d > 0 && shape_elements(&(Shape){d + 1, {s.d[0], s.d[1], s.d[2], s.d[3]}}) > 600);
        if (d == 0 && f->r->rows)
            s.d[d] = f->r->rows;
    }
    ValueId v = graph_input(g, arena_printf(g->arena, "x%u", f->inputs++), f->real, &s);
    v = g_add(g, v, fitting(f, v));
    return chance(f, 50) ? g_mul(g, v, fitting(f, v)) : v;
}

static ValueId do_weight(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    return g_mul(f->g, x, fitting(f, x));
}

static ValueId do_embedding(Fuzz *f, ValueId x, ValueId y)
{
    int64_t n = 2 + below(f, 6), width = 1 + below(f, 9);
    (void)x, (void)y;
    return g_gather(f->g, weight(f, S(n, width)), int_input(f, S(1 + below(f, 4), 1 + below(f, 5)), n), 0);
}

/* ---- elementwise ---------------------------------------------------------------------------------------------------- */

static ValueId do_unary(Fuzz *f, ValueId x, ValueId y)
{
    static const Op plain[] = {OP_Neg, OP_Abs, OP_Sin, OP_Cos, OP_Atan, OP_Tanh, OP_Asinh, OP_Erf, OP_Sigmoid, OP_Softplus, OP_Relu, OP_Identity};
    static const Op bound[] = {OP_Exp, OP_Sinh, OP_Cosh, OP_Tan};
    static const Op inside[] = {OP_Asin, OP_Acos, OP_Atanh};
    static const Op above[] = {OP_Log, OP_Sqrt, OP_Reciprocal};
    Graph *g = f->g;
    (void)y;
    switch (below(f, 8)) {
    case 0: return g_unary(g, bound[below(f, 4)], bounded(f, x));
    case 1: return g_unary(g, inside[below(f, 3)], scaled(f, bounded(f, x), 0.9));
    case 2: return g_unary(g, above[below(f, 3)], positive(f, x));
    case 3: return g_unary(g, OP_Acosh, g_add(g, positive(f, x), number(f, 1)));
    default: return g_unary(g, plain[below(f, 12)], x);
    }
}

/* Steps: no gradient through them, but beside them. */
static ValueId do_round(Fuzz *f, ValueId x, ValueId y)
{
    static const Op op[] = {OP_Sign, OP_Floor, OP_Ceil, OP_Round};
    (void)y;
    return g_mul(f->g, x, g_unary(f->g, op[below(f, 4)], scaled(f, x, 2.5)));
}

static ValueId do_cast(Fuzz *f, ValueId x, ValueId y)
{
    static const Dtype to[] = {DT_I32, DT_I64, DT_BOOL, DT_F64, DT_F32};
    Dtype t = to[below(f, 5)];
    (void)y;
    if (dtype_is_float(t) && f->real == DT_F64)         /* through f32 the value is rounded: no differences */
        t = DT_F64;
    ValueId z = g_cast(f->g, g_cast(f->g, dtype_is_float(t) ? x : scaled(f, x, 3), t), f->real);
    return g_add(f->g, x, z);
}

static ValueId do_arithmetic(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    y = other(f, x, y);
    bool turned = chance(f, 40);
    switch (below(f, 9)) {
    case 0: return turned ? g_sub(g, y, x) : g_sub(g, x, y);
    case 1: return scaled(f, turned ? g_mul(g, y, x) : g_mul(g, x, y), 0.5);
    case 2: return g_binary(g, OP_Min, x, y);
    case 3: return g_binary(g, OP_Max, y, x);
    case 4: return g_div(g, x, positive(f, y));
    case 5: return g_binary(g, OP_Pow, positive(f, x), chance(f, 50) ? bounded(f, y) : number(f, (double)below(f, 4) - 1));
    case 6: return g_binary(g, chance(f, 50) ? OP_Mod : OP_Fmod, x, positive(f, y));
    default: return turned ? g_add(g, y, x) : g_add(g, x, y);
    }
}

static ValueId do_square(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    return g_add(f->g, scaled(f, g_mul(f->g, bounded(f, x), x), 0.5), x);
}

/* ---- conditions ------------------------------------------------------------------------------------------------------- */

/* A condition over x's shape, or one that broadcasts to it, by numbers, by positions, or by both. */
static ValueId condition(Fuzz *f, ValueId x, ValueId y)
{
    static const Op order[] = {OP_Less, OP_LessOrEqual, OP_Greater, OP_GreaterOrEqual}, logic[] = {OP_And, OP_Or, OP_Xor};
    Graph *g = f->g;
    Shape s = shape(f, x);
    ValueId c = g_binary(g, order[below(f, 4)], x, chance(f, 50) ? number(f, 0.1) : other(f, x, y));
    if (s.rank && chance(f, 50)) {
        int a = axis_of(f, x), b = axis_of(f, x);
        Dtype t = chance(f, 50) ? DT_I64 : DT_I32;
        ValueId i = g_iota(g, t, s.rank, a, s.d[a]), j = g_add(g, g_iota(g, t, s.rank, b, s.d[b]), g_scalar(g, t, (double)below(f, 3)));
        ValueId d = g_binary(g, chance(f, 20) ? OP_Equal : order[below(f, 4)], i, j);
        c = chance(f, 30) ? d : g_binary(g, logic[below(f, 3)], c, d);
    }
    return chance(f, 20) ? g_unary(g, OP_Not, c) : c;
}

static ValueId do_where(Fuzz *f, ValueId x, ValueId y)
{
    ValueId c = condition(f, x, y), z = chance(f, 30) ? number(f, 0) : other(f, x, y);
    return chance(f, 50) ? g_where(f->g, c, x, z) : g_where(f->g, c, z, x);
}

static ValueId do_leaky(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    return g_where(f->g, g_binary(f->g, OP_Greater, x, number(f, 0)), x, scaled(f, x, 0.2));
}

/* Two sums of x over different axes, broadcast against each other, as graph attention adds its ends. */
static ValueId do_ends(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank < 2)
        return x;
    ValueId u = g_reduce(g, OP_ReduceSum, g_mul(g, x, fitting(f, x)), 1, I(axis_of(f, x)));
    ValueId v = g_reduce(g, OP_ReduceSum, g_mul(g, x, fitting(f, x)), 1, I(axis_of(f, x)));
    return g_add(g, u, v);
}

/* Scores of which some are -inf, but along the axis not all. */
static ValueId do_masked_softmax(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x), t = shape(f, y);
    y = shape_equal(&s, &t) ? y : x;                    /* the mask is not larger than x: the axis is x's */
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    ValueId first = g_binary(g, OP_Equal, g_iota(g, DT_I64, s.rank, axis, s.d[axis]), g_scalar(g, DT_I64, 0));
    ValueId keep = g_binary(g, OP_Or, condition(f, x, y), first), low = number(f, chance(f, 70) ? -(double)INFINITY : -1e9);
    if (chance(f, 50))
        return g_softmax(g, g_where(g, keep, x, low), axis);
    return g_softmax(g, g_add(g, x, g_where(g, keep, number(f, 0), low)), axis);
}

static ValueId do_integers(Fuzz *f, ValueId x, ValueId y)
{
    static const Op op[] = {OP_Add, OP_Sub, OP_Mul, OP_Min, OP_Max, OP_BitwiseAnd, OP_BitwiseOr, OP_BitwiseXor, OP_Div, OP_Mod};
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    Dtype t = chance(f, 50) ? DT_I64 : DT_I32;
    ValueId i = g_cast(g, scaled(f, bounded(f, x), 5), t), j = g_iota(g, t, s.rank, axis, s.d[axis]);
    for (int k = 0; k < 3; k++) {
        Op o = op[below(f, 10)];
        i = g_binary(g, o, i, o == OP_Div || o == OP_Mod ? g_scalar(g, t, 3) : j);
        i = chance(f, 15) ? g_unary(g, OP_BitwiseNot, i) : chance(f, 15) ? g_unary(g, OP_Abs, i) : i;
    }
    ValueId c = g_binary(g, OP_Equal, g_binary(g, OP_Mod, i, g_scalar(g, t, 2)), g_scalar(g, t, 0));
    return chance(f, 50) ? g_where(g, c, x, scaled(f, x, 0.5)) : g_add(g, x, scaled(f, g_cast(g, i, f->real), 0.01));
}

/* ---- views and moves ------------------------------------------------------------------------------------------------------ */

static ValueId do_reshape(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x), t = {0};
    int from = f->r->rows && !chance(f, 25) ? 1 : 0;
    (void)y;
    for (int d = 0; d < from && d < s.rank; d++)
        t.d[t.rank++] = s.d[d];
    for (int d = from; d < s.rank; d++) {
        int64_t k = s.d[d], p = k % 2 == 0 && k > 2 ? 2 : k % 3 == 0 && k > 3 ? 3 : k % 5 == 0 && k > 5 ? 5 : 1;
        if (t.rank > from && chance(f, 40)) {
            t.d[t.rank - 1] *= k;
        } else if (p > 1 && t.rank < MOST_DIMS - 1 && chance(f, 40)) {
            t.d[t.rank++] = p;
            t.d[t.rank++] = k / p;
        } else {
            t.d[t.rank++] = k;
        }
        if (t.rank < MOST_DIMS - 1 && chance(f, 10))
            t.d[t.rank++] = 1;
    }
    return t.rank <= MOST_DIMS ? g_reshape(f->g, x, &t) : x;
}

/* All dimensions of 1 away, but the first. */
static ValueId do_squeeze(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x), t = {0};
    (void)y;
    for (int d = 0; d < s.rank; d++)
        if (d == 0 || s.d[d] != 1)
            t.d[t.rank++] = s.d[d];
    return g_reshape(f->g, x, &t);
}

static ValueId do_transpose(Fuzz *f, ValueId x, ValueId y)
{
    int64_t *perm = ints(f);
    int rank = shape(f, x).rank, low = f->r->rows && !chance(f, 30) ? 1 : 0;
    (void)y;
    for (int d = 0; d < rank; d++)
        perm[d] = d;
    for (int d = rank - 1; d > low; d--) {
        int e = low + (int)below(f, d - low + 1);
        int64_t t = perm[d];
        perm[d] = perm[e];
        perm[e] = t;
    }
    return g_transpose(f->g, x, perm);
}

static ValueId do_slice(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int64_t *start = ints(f), *size = ints(f), *step = ints(f);
    (void)y;
    for (int d = 0; d < s.rank; d++) {
        start[d] = 0, size[d] = s.d[d], step[d] = 1;
        if (s.d[d] < 2 || (d == 0 && f->r->rows && !chance(f, 5)) || chance(f, 40))
            continue;
        step[d] = 1 + below(f, 3);
        start[d] = below(f, s.d[d]);
        size[d] = 1 + below(f, (s.d[d] - 1 - start[d]) / step[d] + 1);
        if (chance(f, 30)) {
            start[d] = s.d[d] - 1 - start[d];
            step[d] = -step[d];
        }
    }
    return g_slice(f->g, x, start, size, step);
}

static ValueId do_expand(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x), t = s;
    (void)y;
    for (int d = f->r->rows ? 1 : 0; d < s.rank; d++)
        if (s.d[d] == 1 && chance(f, 60))
            t.d[d] = 2 + below(f, 4);
    if (t.rank < MOST_DIMS && (chance(f, 30) || shape_equal(&s, &t))) {         /* a new dimension somewhere */
        int at = (f->r->rows ? 1 : 0) + (int)below(f, s.rank);
        at = at > s.rank ? s.rank : at;
        Shape u = s;
        for (int d = s.rank; d > at; d--) {
            u.d[d] = u.d[d - 1];
            t.d[d] = t.d[d - 1];
        }
        u.rank = t.rank = s.rank + 1;
        u.d[at] = 1;
        t.d[at] = 2 + below(f, 3);
        if (shape_elements(&t) > MOST_ELEMENTS)
            return x;
        x = g_reshape(f->g, x, &u);
    }
    return shape_elements(&t) <= MOST_ELEMENTS ? g_expand(f->g, x, &t) : x;
}

static ValueId do_split(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    int axis = s.rank ? axis_of(f, x) : 0;
    (void)y;
    if (s.rank == 0 || s.d[axis] < 2)
        return x;
    int64_t *part = ints(f);
    int n = 0;
    for (int64_t left = s.d[axis]; left > 0 && n < 5; left -= part[n++])
        part[n] = n == 4 ? left : 1 + below(f, left);
    ValueId p = g_split(g, x, axis, n, part), piece[5];
    for (int i = 0; i < n; i++)
        piece[i] = graph_out(g, p, (uint32_t)i);
    switch (below(f, 3)) {
    case 0: return piece[below(f, n)];
    case 1: return g_concat(g, 2, (ValueId[]){piece[n - 1], bounded(f, piece[0])}, axis);
    default:
        for (int i = 0; i + 1 < n; i += 2) {
            ValueId t = piece[i];
            piece[i] = piece[i + 1];
            piece[i + 1] = t;
        }
        return g_concat(g, (uint32_t)n, piece, axis);
    }
}

static ValueId do_concat(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x), t = shape(f, y);
    if (s.rank == 0 || shape_elements(&s) > MOST_ELEMENTS / 2)
        return x;
    int axis = axis_of(f, x);
    bool fits = s.rank == t.rank;
    for (int d = 0; d < s.rank && fits; d++)
        fits = d == axis || s.d[d] == t.d[d];
    if (!fits || shape_elements(&t) > MOST_ELEMENTS / 2)
        y = chance(f, 50) ? x : g_add(g, g_mul(g, x, number(f, 0)), fitting(f, x));
    return g_concat(g, chance(f, 30) ? 3 : 2, (ValueId[]){x, y, x}, axis);
}

static ValueId do_pad(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int64_t *begin = ints(f), *end = ints(f);
    int mode = chance(f, 50) ? PAD_CONSTANT : (int)below(f, 4);
    (void)y;
    if (s.rank == 0)
        return x;
    for (int d = f->r->rows ? 1 : 0; d < s.rank; d++)
        if (chance(f, 50)) {
            int64_t most = mode == PAD_CONSTANT || mode == PAD_EDGE ? 3 : s.d[d] - (mode == PAD_REFLECT);
            begin[d] = below(f, most < 3 ? most + 1 : 3);
            end[d] = below(f, most < 3 ? most + 1 : 3);
        }
    if (mode == PAD_CONSTANT && chance(f, 20)) {        /* a negative pad crops */
        int d = axis_of(f, x);
        begin[d] = s.d[d] > 1 && !(f->r->rows && d == 0) ? -1 : begin[d];
    }
    ValueId z = g_pad(f->g, x, begin, end, mode, chance(f, 50) ? 0 : 0.25);
    Shape t = shape(f, z);
    return shape_elements(&t) <= MOST_ELEMENTS ? z : x;
}

static ValueId do_gather(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    Shape t = {.rank = (int)below(f, 3), .d = {1 + below(f, 4), 1 + below(f, 3)}};
    if (s.rank + t.rank - 1 > MOST_DIMS || shape_elements(&s) * shape_elements(&t) > MOST_ELEMENTS * s.d[axis])
        return x;
    bool data = !f->r->rows && chance(f, 40);           /* by what comes in with the data */
    return g_gather(f->g, x, data ? int_input(f, t, s.d[axis]) : int_const(f, t, -s.d[axis], 2 * s.d[axis]), axis);
}

/* Indices of x's rank, not longer than x but along the axis. */
static Shape index_shape(Fuzz *f, ValueId x, int axis)
{
    Shape s = shape(f, x);
    for (int d = f->r->rows ? 1 : 0; d < s.rank; d++)
        s.d[d] = d == axis ? 1 + below(f, 5) : chance(f, 70) ? s.d[d] : 1 + below(f, s.d[d]);
    return s;
}

static ValueId do_gather_elements(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    Shape t = index_shape(f, x, axis);
    if (f->r->rows && axis == 0)
        return x;
    bool data = chance(f, 60);
    return op2(f, OP_GatherElements, x, data ? int_input(f, t, s.d[axis]) : int_const(f, t, -s.d[axis], 2 * s.d[axis]), (Attr){.axis = axis});
}

static ValueId do_gather_nd(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int batch = f->r->rows ? 1 : 0;
    (void)y;
    if (s.rank <= batch)
        return x;
    if (batch) {                                        /* one index for each row */
        ValueId i = int_input(f, S(f->r->rows, 1 + below(f, 4), 1), s.d[1]);
        return op2(f, OP_GatherND, x, i, (Attr){.axis = 1});
    }
    int64_t n = 1 + below(f, 4), k = 1 + below(f, s.rank);
    int64_t *v = arena_array(f->g->arena, int64_t, n * k);
    for (int64_t i = 0; i < n * k; i++)
        v[i] = below(f, 2 * s.d[i % k]) - s.d[i % k];
    return op2(f, OP_GatherND, x, g_ints(f->g, 2, I(n, k), v), (Attr){.axis = 0});
}

/* Without a reduction no place is written twice: which update stays is nobody's promise. */
static ValueId do_scatter_elements(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    int mode = chance(f, 50) ? SCATTER_ADD : (int)below(f, 5), axis = s.rank ? axis_of(f, x) : 0;
    (void)y;
    if (s.rank == 0 || (f->r->rows && axis == 0))
        return x;
    Shape t = index_shape(f, x, axis);
    ValueId i = NONE;
    if (mode == SCATTER_NONE) {
        t.d[axis] = 1 + below(f, s.d[axis]);
        ValueId at = g_sub(g, g_scalar(g, DT_I64, (double)s.d[axis] - 1), g_iota(g, DT_I64, s.rank, axis, t.d[axis]));
        i = g_expand(g, at, &t);
    } else {
        i = chance(f, 60) ? int_input(f, t, s.d[axis]) : int_const(f, t, -s.d[axis], 2 * s.d[axis]);
    }
    int64_t *zero = ints(f), *size = ints(f);
    for (int d = 0; d < s.rank; d++)
        size[d] = t.d[d] < s.d[d] ? t.d[d] : s.d[d];
    ValueId u = g_mul(g, g_slice(g, x, zero, size, NULL), number(f, 0.7));     /* as long as x is */
    for (int d = 0; d < s.rank; d++)
        size[d] = t.d[d] - size[d];
    u = g_pad(g, u, zero, size, PAD_CONSTANT, 0.3);
    if (mode == SCATTER_MAX || mode == SCATTER_MIN || mode == SCATTER_MUL)
        u = g_add(g, u, fitting(f, u));
    return op3(f, OP_ScatterElements, chance(f, 25) ? g_full(g, f->real, &s, 0) : x, i, u, (Attr){.axis = axis, .mode = mode});
}

static ValueId do_scatter_nd(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    int mode = chance(f, 50) ? SCATTER_ADD : (int)below(f, 5);
    (void)y;
    if (f->r->rows || s.rank == 0)
        return x;
    int64_t n = mode == SCATTER_NONE ? 1 : 1 + below(f, 4), k = 1 + below(f, s.rank), *v = arena_array(g->arena, int64_t, n * k);
    for (int64_t i = 0; i < n * k; i++)
        v[i] = below(f, 2 * s.d[i % k]) - s.d[i % k];
    Shape t = {.rank = 1, .d = {n}};
    for (int d = (int)k; d < s.rank; d++)
        t.d[t.rank++] = s.d[d];
    return op3(f, OP_ScatterND, x, g_ints(g, 2, I(n, k), v), weight(f, t), (Attr){.mode = mode});
}

/* ---- sums, norms ------------------------------------------------------------------------------------------------------------ */

static int some_axes(Fuzz *f, ValueId x, int64_t *axes)
{
    Shape s = shape(f, x);
    int n = 0;
    for (int d = f->r->rows && !chance(f, 10) ? 1 : 0; d < s.rank; d++)
        if (chance(f, 45))
            axes[n++] = d;
    if (n == 0 && s.rank)
        axes[n++] = axis_of(f, x);
    return n;
}

static ValueId reduced(Fuzz *f, ValueId x)
{
    static const Op op[] = {OP_ReduceSum, OP_ReduceMean, OP_ReduceMean, OP_ReduceMax, OP_ReduceMin, OP_ReduceProd};
    int64_t *axes = ints(f);
    int n = some_axes(f, x, axes);
    Op o = op[below(f, 6)];
    if (n == 0)
        return x;
    int64_t count = 1;
    for (int i = 0; i < n; i++)
        count *= shape(f, x).d[axes[i]];
    o = o == OP_ReduceProd && count > 12 ? OP_ReduceMean : o;  /* a product of many is nothing, or all there is */
    if (o == OP_ReduceProd)
        x = g_add(f->g, scaled(f, bounded(f, x), 0.3), number(f, 1));
    ValueId m = g_reduce(f->g, o, x, n, axes);
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
    d = chance(f, 50) ? g_div(g, d, g_unary(g, OP_Sqrt, v)) : g_mul(g, d, g_unary(g, OP_Reciprocal, g_unary(g, OP_Sqrt, v)));
    return chance(f, 60) ? g_add(g, g_mul(g, d, fitting(f, d)), fitting(f, d)) : d;
}

static ValueId do_softmax(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    if (shape(f, x).rank == 0)
        return x;
    return chance(f, 65) ? g_softmax(f->g, x, axis_of(f, x)) : g_log_softmax(f->g, x, axis_of(f, x));
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
    ValueId l = g_add(g, g_unary(g, OP_Log, g_reduce(g, OP_ReduceSum, g_unary(g, OP_Exp, g_sub(g, x, m)), n, axes)), m);
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
    ValueId i = op1(f, chance(f, 50) ? OP_ArgMax : OP_ArgMin, x, (Attr){.axis = axis, .mode = (int)below(f, 2)});
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
    return scaled(f, op1(f, OP_CumSum, x, (Attr){.axis = axis_of(f, x), .mode = (int)below(f, 4)}), 0.3);
}

static ValueId do_topk(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    ValueId v = op1(f, OP_TopK, x, (Attr){.axis = axis, .k = 1 + below(f, s.d[axis]), .mode = (int)below(f, 2)});
    if (chance(f, 70))
        return v;
    return g_mul(g, v, g_cast(g, graph_out(g, v, 1), f->real));
}

/* ---- products, convolutions -------------------------------------------------------------------------------------------------- */

static ValueId do_linear(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0 || (f->r->rows && s.rank < 2))
        return x;
    int64_t k = s.d[s.rank - 1], m = 1 + below(f, 12);
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
    if (!fits && chance(f, 25)) {                       /* a weight for each of the last batch dimension */
        Shape w = S(s.rank > 2 ? s.d[s.rank - 3] : 1, k, 1 + below(f, 5));
        z = weight(f, f->r->rows && s.rank == 3 ? S(k, 3) : w);
    }
    z = scaled(f, g_matmul(g, x, z), 1 / sqrt((double)k));
    Shape u = shape(f, z);
    return shape_elements(&u) <= MOST_ELEMENTS ? z : x;
}

/* Attention over a line of x: products, softmax over a last axis, a product. */
static ValueId do_attention(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank < 3 || s.d[s.rank - 2] > 20)
        return x;
    ValueId q = do_linear(f, x, x), k = g_mul(g, x, fitting(f, x)), p = g_matmul(g, k, g_swap_last(g, x));
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
    int64_t group = chance(f, 30) ? s.d[1] : 1, *stride = ints(f), *dilation = ints(f), *pad = ints(f);
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
    Attr a = {.group = group, .n = n, .a = stride, .b = dilation, .c = pad};
    return scaled(f, op2(f, OP_Conv, x, weight(f, w), a), 1 / sqrt((double)size));
}

static ValueId do_conv_transpose(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int n;
    (void)y;
    if (!spatial(f, x, &n))
        return x;
    int64_t group = chance(f, 30) ? s.d[1] : 1, *stride = ints(f), *dilation = ints(f), *pad = ints(f), *out = ints(f), all = s.d[0] * group * 3;
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
    Attr a = {.group = group, .n = n, .a = stride, .b = dilation, .c = pad, .d = out};
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
    Attr a = {.n = n, .a = stride, .b = dilation, .c = pad, .d = kernel, .mode = most ? 0 : (int)below(f, 2), .k = below(f, 2)};
    return op1(f, most ? OP_MaxPool : OP_AveragePool, x, a);
}

static ValueId do_dropout(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    double ratio = chance(f, 50) ? 0.25 : 0.5;
    return op1(f, OP_Dropout, x, (Attr){.f = {ratio}, .axis = f->g->dropout_count++});
}

/* ---- the table ------------------------------------------------------------------------------------------------------------- */

static const struct { const char *name; uint32_t weight; ValueId (*make)(Fuzz *, ValueId, ValueId); } operations[] = {
    {"input", 0, do_input},
    {"weight", 2, do_weight}, {"embedding", 2, do_embedding},
    {"unary", 6, do_unary}, {"round", 1, do_round}, {"cast", 1, do_cast}, {"arithmetic", 10, do_arithmetic}, {"square", 2, do_square},
    {"where", 4, do_where}, {"leaky", 3, do_leaky}, {"ends", 4, do_ends}, {"masked_softmax", 4, do_masked_softmax},
    {"integers", 2, do_integers},
    {"reshape", 6, do_reshape}, {"squeeze", 2, do_squeeze}, {"transpose", 7, do_transpose}, {"slice", 5, do_slice}, {"expand", 5, do_expand},
    {"split", 4, do_split}, {"concat", 4, do_concat}, {"pad", 3, do_pad},
    {"gather", 3, do_gather}, {"gather_elements", 2, do_gather_elements}, {"gather_nd", 2, do_gather_nd},
    {"scatter_elements", 2, do_scatter_elements}, {"scatter_nd", 2, do_scatter_nd},
    {"reduce", 5, do_reduce}, {"minus_reduced", 6, do_minus_reduced}, {"norm", 4, do_norm}, {"softmax", 6, do_softmax},
    {"log_sum_exp", 2, do_log_sum_exp}, {"argmax", 2, do_argmax}, {"picked", 2, do_picked}, {"cumsum", 2, do_cumsum}, {"topk", 2, do_topk},
    {"linear", 5, do_linear}, {"matmul", 5, do_matmul}, {"attention", 3, do_attention},
    {"conv", 3, do_conv}, {"conv_transpose", 2, do_conv_transpose}, {"pool", 2, do_pool}, {"dropout", 1, do_dropout},
};

uint32_t operation_count(void) { return sizeof operations / sizeof *operations; }
uint32_t operation_weight(uint32_t i) { return operations[i].weight; }
const char *operation_name(uint32_t i) { return operations[i].name; }

#endif
