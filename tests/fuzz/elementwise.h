/*
 * elementwise.h - what comes in, elementwise operations, conditions and masks, integers.
 */
#ifndef FUZZ_ELEMENTWISE_H
#define FUZZ_ELEMENTWISE_H

#include "draw.h"

/* ---- what comes in --------------------------------------------------------------------------- */

static ValueId do_input(Fuzz *f, ValueId x, ValueId y)
{
    static const int64_t size[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 17, 33, 70};
    Graph *g = f->g;
    Shape s = {.rank = f->grain ? 2 + (int)below(f, 2) : 1 + (int)below(f, 4)};
    (void)x, (void)y;
    for (int d = 0; d < s.rank; d++) {
        do
            s.d[d] = wide_as(f, size[below(f, 12)]);
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
    return g_gather(f->g, weight(f, S(n, width)),
                    int_input(f, S(1 + below(f, 4), 1 + below(f, 5)), n), 0);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static ValueId do_unary(Fuzz *f, ValueId x, ValueId y)
{
    static const Op plain[] = {OP_Neg,   OP_Abs, OP_Sin,     OP_Cos,      OP_Atan, OP_Tanh,
                               OP_Asinh, OP_Erf, OP_Sigmoid, OP_Softplus, OP_Relu, OP_Identity};
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
    /* through f32 the value is rounded: no differences */
    if (dtype_is_float(t) && f->real == DT_F64)
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
    case 5:
        return g_binary(g, OP_Pow, positive(f, x),
                        chance(f, 50) ? bounded(f, y) : number(f, (double)below(f, 4) - 1));
    case 6: return g_binary(g, chance(f, 50) ? OP_Mod : OP_Fmod, x, positive(f, y));
    default: return turned ? g_add(g, y, x) : g_add(g, x, y);
    }
}

/* What only training computes, and what the other modes have in its place. */
static ValueId do_phase(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    return op2(f, OP_Phase, x, scaled(f, x, 0.5), (Attr){0});
}

static ValueId do_square(Fuzz *f, ValueId x, ValueId y)
{
    (void)y;
    return g_add(f->g, scaled(f, g_mul(f->g, bounded(f, x), x), 0.5), x);
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* A condition over x's shape, or one that broadcasts to it, by numbers, by positions, or by both.
 */
static ValueId condition(Fuzz *f, ValueId x, ValueId y)
{
    static const Op order[] = {OP_Less, OP_LessOrEqual, OP_Greater, OP_GreaterOrEqual},
                    logic[] = {OP_And, OP_Or, OP_Xor};
    Graph *g = f->g;
    Shape s = shape(f, x);
    ValueId c = g_binary(g, order[below(f, 4)], x, chance(f, 50) ? number(f, 0.1) : other(f, x, y));
    if (s.rank && chance(f, 50)) {
        int a = axis_of(f, x), b = axis_of(f, x);
        Dtype t = chance(f, 50) ? DT_I64 : DT_I32;
        ValueId i = g_iota(g, t, s.rank, a, s.d[a]),
                j = g_add(g, g_iota(g, t, s.rank, b, s.d[b]), g_scalar(g, t, (double)below(f, 3)));
        ValueId d = g_binary(g, chance(f, 20) ? OP_Equal : order[below(f, 4)], i, j);
        c = chance(f, 30) ? d : g_binary(g, logic[below(f, 3)], c, d);
    }
    /* drawn beside: kept nets go on meaning what they did */
    uint64_t own = f->seed;
    if (fuzz_below(&own, 10) == 0)
        c = g_binary(g, OP_And, c, g_unary(g, OP_Not, g_unary(g, OP_IsNaN, x)));
    if (fuzz_below(&own, 10) == 0)
        c = g_binary(g, OP_Or, c, g_unary(g, OP_IsInf, x));
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

/* Two sums of x over different axes, broadcast against each other, as graph attention adds its
 * ends. */
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
    /* the mask is not larger than x: the axis is x's */
    y = shape_equal(&s, &t) ? y : x;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    ValueId first =
        g_binary(g, OP_Equal, g_iota(g, DT_I64, s.rank, axis, s.d[axis]), g_scalar(g, DT_I64, 0));
    ValueId keep = g_binary(g, OP_Or, condition(f, x, y), first),
            low = number(f, chance(f, 70) ? -(double)INFINITY : -1e9);
    if (chance(f, 50))
        return g_softmax(g, g_where(g, keep, x, low), axis);
    return g_softmax(g, g_add(g, x, g_where(g, keep, number(f, 0), low)), axis);
}

/* x times the power of two below |x|, in steps of 1/64, by its bits: constant in between.  The steps
   make them the same however x was rounded. */
static ValueId do_bits(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    (void)y;
    if (f->real != DT_F32 && f->real != DT_F64)
        return x;
    ValueId step = g_unary(g, OP_Round, scaled(f, bounded(f, x), 64));
    ValueId bits = g_unary(g, OP_BitCast, scaled(f, step, 1.0 / 64));
    double mask = f->real == DT_F32 ? (double)0x7f800000 : 0x7ffp52;
    bits = g_binary(g, OP_BitwiseAnd, bits, g_like(g, bits, mask));
    return g_mul(g, x, g_unary(g, OP_BitCast, bits));
}

static ValueId do_integers(Fuzz *f, ValueId x, ValueId y)
{
    static const Op op[] = {OP_Add,        OP_Sub,       OP_Mul,        OP_Min, OP_Max,
                            OP_BitwiseAnd, OP_BitwiseOr, OP_BitwiseXor, OP_Div, OP_Mod};
    Graph *g = f->g;
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    Dtype t = chance(f, 50) ? DT_I64 : DT_I32;
    ValueId i = g_cast(g, scaled(f, bounded(f, x), 5), t),
            j = g_iota(g, t, s.rank, axis, s.d[axis]);
    for (int k = 0; k < 3; k++) {
        Op o = op[below(f, 10)];
        i = g_binary(g, o, i, o == OP_Div || o == OP_Mod ? g_scalar(g, t, 3) : j);
        i = chance(f, 15)   ? g_unary(g, OP_BitwiseNot, i)
            : chance(f, 15) ? g_unary(g, OP_Abs, i)
                            : i;
    }
    ValueId c = g_binary(g, OP_Equal, g_binary(g, OP_Mod, i, g_scalar(g, t, 2)), g_scalar(g, t, 0));
    return chance(f, 50) ? g_where(g, c, x, scaled(f, x, 0.5))
                         : g_add(g, x, scaled(f, g_cast(g, i, f->real), 0.01));
}

#endif
