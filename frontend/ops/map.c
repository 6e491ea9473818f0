/*
 * map.c - elementwise ONNX ops to core maps: arithmetic, comparison, activations.
 * The lowerings are chosen for their gradients: what an untaken branch of Where computes must stay
 * finite, and values at the kinks follow PyTorch (a clamp passes no gradient at its bounds, a
 * distance none at 0).
 */
#include "frontend/low/low.h"
#include "frontend/low/state.h"

#include <math.h>
#include <string.h>

/* The operators whose ONNX form is the core form. */
void import_map(Import *im)
{
    if (im->nin == 1) {
        im->out[0] = g_unary(im->g, im->op, low_need(im, 0));
        return;
    }
    if (im->op == OP_Where) {
        im->out[0] = g_where(im->g, low_need(im, 0), low_need(im, 1), low_need(im, 2));
        return;
    }
    if (im->nin != 2)
        low_fatal(im, -1, "%u operands, 2 are needed", im->nin);
    ValueId x = low_need(im, 0), y = low_need(im, 1);
    double one;
    bool inverse = im->op == OP_Div && dtype_is_float(low_dtype(im->g, x)) &&
                   low_dtype(im->g, x) == low_dtype(im->g, y) &&
                   low_shape(im->g, x).rank <= low_shape(im->g, y).rank &&
                   g_const_double(im->g, x, &one) && one == 1;
    im->out[0] = inverse ? g_unary(im->g, OP_Reciprocal, y) : g_binary(im->g, im->op, x, y);
}

/* Is it one number, which Clip and PyTorch's clamp could take as a bound of x? */
static bool is_bound(const Graph *g, ValueId x, ValueId v)
{
    double c;
    return dtype_is_float(low_dtype(g, x)) && low_dtype(g, x) == low_dtype(g, v) &&
           low_shape(g, v).rank <= low_shape(g, x).rank && g_const_double(g, v, &c) && !isnan(c);
}

/* Max, Min, Sum of any number of operands: a chain from the left.  The larger of x and a number is
 * a clamp: no gradient where they are equal. */
void import_nary(Import *im)
{
    Graph *g = im->g;
    Op op = im->op == OP_Sum ? OP_Add : im->op;
    ValueId y = low_need(im, 0);
    for (uint32_t i = 1; i < im->nin; i++) {
        ValueId z = low_need(im, i), x = is_bound(g, y, z) ? y : z, c = x == y ? z : y;
        if (op != OP_Add && is_bound(g, x, c) && !im_shares_ties(im))
            y = low_clip(g, x, op == OP_Max ? c : NONE, op == OP_Min ? c : NONE);
        else
            y = g_binary(g, op, y, z);
    }
    im->out[0] = y;
}

void import_mean(Import *im)
{
    ValueId y = low_need_float(im, 0);
    for (uint32_t i = 1; i < im->nin; i++)
        y = g_add(im->g, y, low_need(im, i));
    im->out[0] = low_scale(im->g, y, 1.0 / im->nin);
}

/* x to a small constant power by products, as PyTorch computes it; NONE when there is no such form.
 */
static ValueId small_power(const Import *im, ValueId x, double p)
{
    Graph *g = im->g;
    bool is_float = dtype_is_float(low_dtype(g, x));
    if (p == 1)
        return x;
    if (p == 2)
        return low_square(g, x);
    if (p == 3)
        return g_mul(g, low_square(g, x), x);
    if (!is_float)
        return NONE;
    if (p > 0 && p < 1)
        return low_root(im, x, p);
    if (p == -0.5)
        return g_unary(g, OP_Reciprocal, g_unary(g, OP_Sqrt, x));
    if (p == -1)
        return g_unary(g, OP_Reciprocal, x);
    if (p == -2)
        return g_unary(g, OP_Reciprocal, low_square(g, x));
    return NONE;
}

void import_pow(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), y = low_need(im, 1);
    Dtype t = low_dtype(g, x), u = low_dtype(g, y);
    double p;
    if (g_const_double(g, y, &p) && low_shape(g, y).rank <= low_shape(g, x).rank) {
        im->out[0] = small_power(im, x, p);
        if (im->out[0] != NONE)
            return;
    }
    if (t != u && !dtype_is_float(t) && dtype_is_float(u)) {
        ValueId z = g_binary(g, OP_Pow, g_cast(g, x, DT_F64), g_cast(g, y, DT_F64));
        im->out[0] = g_cast(g, z, t);
        return;
    }
    im->out[0] = g_binary(g, OP_Pow, x, t == u ? y : g_cast(g, y, t));
}

void import_mod(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), y = low_need(im, 1);
    int64_t fmod = im_int(im, "fmod", 0);
    im->out[0] = g_binary(g, fmod ? OP_Fmod : OP_Mod, x, y);
}

void import_isinf(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    bool pos = im_int(im, "detect_positive", 1) != 0, neg = im_int(im, "detect_negative", 1) != 0;
    if (pos && neg)
        im->out[0] = g_unary(g, OP_IsInf, x);
    else if (pos || neg)
        im->out[0] =
            g_binary(g, OP_Equal, x, g_like(g, x, pos ? (double)INFINITY : -(double)INFINITY));
    else
        im->out[0] = g_binary(g, OP_And, g_unary(g, OP_IsNaN, x), g_scalar(g, DT_BOOL, 0));
}

void import_identity(Import *im) { im->out[0] = low_need(im, 0); }

/* ---- clamps ---- */

/* A bound of Clip: a scalar, which must not add dims to x. */
static ValueId bound(const Import *im, uint32_t i, const char *name)
{
    Graph *g = im->g;
    ValueId b = im->opset >= 11 ? im_in(im, i) : NONE;
    if (b == NONE && im_has(im, name))
        return g_like(g, im->in[0], im_float(im, name, 0));
    if (b == NONE)
        return NONE;
    Shape s = low_shape(g, b), scalar = {0};
    if (shape_elements(&s) != 1)
        low_fatal(im, (int)i, "the bound must be a scalar");
    if (low_dtype(g, b) != low_dtype(g, im->in[0]))
        low_fatal(im, (int)i, "the bound has another type than the operand");
    return g_reshape(g, b, &scalar);
}

/* First the lower bound, then the upper, which so wins where they cross. */
ValueId low_clip(Graph *g, ValueId x, ValueId lo, ValueId hi)
{
    if (lo != NONE)
        x = g_where(g, g_binary(g, OP_LessOrEqual, x, lo), lo, x);
    if (hi != NONE)
        x = g_where(g, g_binary(g, OP_GreaterOrEqual, x, hi), hi, x);
    return x;
}

void import_clip(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), lo = bound(im, 1, "min"), hi = bound(im, 2, "max");
    if (!im_shares_ties(im)) {
        im->out[0] = low_clip(g, x, lo, hi);
        return;
    }
    x = lo == NONE ? x : g_binary(g, OP_Max, x, lo);
    im->out[0] = hi == NONE ? x : g_binary(g, OP_Min, x, hi);
}

/* min(max(a x + b, 0), 1), no gradient at the bounds. */
ValueId low_hard_sigmoid(Graph *g, ValueId x, double a, double b)
{
    ValueId t = g_add(g, low_scale(g, x, a), g_like(g, x, b));
    ValueId zero = g_like(g, x, 0), one = g_like(g, x, 1);
    ValueId top = g_where(g, g_binary(g, OP_GreaterOrEqual, t, one), one, t);
    return g_where(g, g_binary(g, OP_LessOrEqual, t, zero), zero, top);
}

void import_hard_sigmoid(Import *im)
{
    double alpha = im_float(im, "alpha", 0.2), beta = im_float(im, "beta", 0.5);
    im->out[0] = low_narrow(im, low_hard_sigmoid(im->g, low_need_wide(im, 0), alpha, beta));
}

void import_hard_swish(Import *im)
{
    ValueId x = low_need_wide(im, 0);
    im->out[0] = low_narrow(im, g_mul(im->g, x, low_hard_sigmoid(im->g, x, 1.0 / 6, 0.5)));
}

ValueId low_thresholded_relu(Graph *g, ValueId x, double alpha)
{
    return g_where(g, g_binary(g, OP_Greater, x, g_like(g, x, alpha)), x, g_like(g, x, 0));
}

void import_thresholded_relu(Import *im)
{
    im->out[0] = low_thresholded_relu(im->g, low_need_float(im, 0), im_float(im, "alpha", 1));
}

void import_shrink(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    double lambd = im_float(im, "lambd", 0.5), bias = im_float(im, "bias", 0);
    ValueId above = g_where(g, g_binary(g, OP_Greater, x, g_like(g, x, lambd)),
                            g_sub(g, x, g_like(g, x, bias)), g_like(g, x, 0));
    im->out[0] = g_where(g, g_binary(g, OP_Less, x, g_like(g, x, -lambd)),
                         g_add(g, x, g_like(g, x, bias)), above);
}

/* ---- activations of two branches ---- */

static ValueId positive(Graph *g, ValueId x) { return g_binary(g, OP_Greater, x, g_like(g, x, 0)); }

ValueId low_leaky_relu(Graph *g, ValueId x, double alpha)
{
    return g_where(g, positive(g, x), x, low_scale(g, x, alpha));
}

void import_leaky_relu(Import *im)
{
    im->out[0] = low_leaky_relu(im->g, low_need_float(im, 0), im_float(im, "alpha", 0.01));
}

void import_prelu(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), slope = low_need(im, 1);
    if (low_shape(g, slope).rank > low_shape(g, x).rank)
        low_fatal(im, 1, "the slope has more dims than the operand");
    im->out[0] = g_where(g, positive(g, x), x, g_mul(g, x, slope));
}

/* top*x where x > 0, else bottom * (exp(x / width) - 1); the exponential sees no positive number.
 */
static ValueId exp_branch(Graph *g, ValueId x, double top, double bottom, double width)
{
    ValueId up = positive(g, x), low = g_where(g, up, g_like(g, x, 0), x);
    ValueId e = g_unary(g, OP_Exp, width == 1 ? low : g_div(g, low, g_like(g, x, width)));
    return g_where(g, up, low_scale(g, x, top), low_scale(g, g_sub(g, e, g_like(g, x, 1)), bottom));
}

ValueId low_elu(Graph *g, ValueId x, double alpha) { return exp_branch(g, x, 1, alpha, 1); }

void import_elu(Import *im)
{
    double alpha = im_float(im, "alpha", 1);
    im->out[0] = low_narrow(im, low_elu(im->g, low_need_wide(im, 0), alpha));
}

void import_selu(Import *im)
{
    double alpha = im_float(im, "alpha", 1.67326319217681884765625),
           gamma = im_float(im, "gamma", 1.05070102214813232421875);
    ValueId x = low_need_wide(im, 0);
    im->out[0] = low_narrow(im, exp_branch(im->g, x, gamma, gamma * alpha, 1));
}

void import_celu(Import *im)
{
    double alpha = im_float(im, "alpha", 1);
    if (alpha == 0)
        low_fatal(im, -1, "alpha is 0");
    im->out[0] = low_narrow(im, exp_branch(im->g, low_need_wide(im, 0), 1, alpha, alpha));
}

/* ---- smooth activations ---- */

ValueId low_gelu(Graph *g, ValueId x, bool by_tanh)
{
    ValueId inner;
    if (by_tanh) {
        ValueId cube = low_scale(g, g_mul(g, low_square(g, x), x), 0.044715);
        inner = g_unary(g, OP_Tanh, low_scale(g, g_add(g, x, cube), 0.79788456080286535588));
    } else {
        inner = g_unary(g, OP_Erf, low_scale(g, x, 0.70710678118654752440));
    }
    return g_mul(g, low_scale(g, x, 0.5), g_add(g, g_like(g, x, 1), inner));
}

void import_gelu(Import *im)
{
    ValueId x = low_need_wide(im, 0);
    bool by_tanh = low_choice(im, "approximate", "none", "none tanh");
    im->out[0] = low_narrow(im, low_gelu(im->g, x, by_tanh));
}

void import_mish(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_wide(im, 0);
    im->out[0] = low_narrow(im, g_mul(g, x, g_unary(g, OP_Tanh, g_unary(g, OP_Softplus, x))));
}

ValueId low_softsign(Graph *g, ValueId x)
{
    return g_div(g, x, g_add(g, g_unary(g, OP_Abs, x), g_like(g, x, 1)));
}

void import_softsign(Import *im)
{
    im->out[0] = low_narrow(im, low_softsign(im->g, low_need_wide(im, 0)));
}

void import_swish(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_wide(im, 0);
    ValueId gate = g_unary(g, OP_Sigmoid, low_scale(g, x, im_float(im, "alpha", 1)));
    im->out[0] = low_narrow(im, g_mul(g, x, gate));
}

void import_swiglu(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_wide(im, 0), y = low_need_wide(im, 1);
    ValueId gate = g_unary(g, OP_Sigmoid, low_scale(g, x, im_float(im, "alpha", 1)));
    im->out[0] = low_narrow(im, g_mul(g, g_mul(g, x, gate), y));
}

/* ---- Softmax and its kin ---- */

/*
 * Before opset 13 the operand was coerced to two dims at the axis; this is the same as one axis
 * only when no dim of more than 1 follows it.  Gives the operand in its working shape.
 */
static ValueId softmax_operand(Import *im, int *axis)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    Shape s = low_shape(g, x), two = {2, {1, 1}};
    if (s.rank == 0) {
        *axis = 0;
        s.rank = 1, s.d[0] = 1;
        return g_reshape(g, x, &s);
    }
    *axis = low_axis(im, im_int(im, "axis", im->opset < 13 ? 1 : -1), s.rank);
    if (im->opset >= 13)
        return x;
    bool same = true;
    for (int d = 0; d < s.rank; d++) {
        two.d[d >= *axis] *= s.d[d];
        if (d > *axis && s.d[d] != 1)
            same = false;
    }
    if (same)
        return x;
    *axis = 1;
    return g_reshape(g, x, &two);
}

void import_softmax(Import *im)
{
    Graph *g = im->g;
    int axis;
    Shape s = low_shape(g, low_need(im, 0));
    ValueId x = softmax_operand(im, &axis);
    ValueId y = im->op == OP_Softmax ? g_softmax(g, x, axis) : g_log_softmax(g, x, axis);
    if (im->op == OP_Softmax)
        y = low_drop(im, y, im_lost_dropout(im));
    im->out[0] = g_reshape(g, y, &s);
}

/* 1 at the first of the largest. */
void import_hardmax(Import *im)
{
    Graph *g = im->g;
    int axis;
    Shape s = low_shape(g, low_need(im, 0));
    ValueId x = softmax_operand(im, &axis);
    Shape w = low_shape(g, x);
    ValueId best = graph_node(g, OP_ArgMax, 1, &x, (Attr){.axis = axis});
    ValueId hit = g_binary(g, OP_Equal, best, g_iota(g, DT_I64, w.rank, axis, w.d[axis]));
    im->out[0] = g_reshape(g, g_cast(g, hit, low_dtype(g, x)), &s);
}
