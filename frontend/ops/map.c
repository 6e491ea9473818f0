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
#include <strings.h>

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

/* Max, Min, Sum, Mean of any number of operands: a chain from the left.  The larger of x and a
 * number is a clamp: no gradient where they are equal. */
void import_nary(Import *im)
{
    Graph *g = im->g;
    Op op = im->op == OP_Sum || im->op == OP_Mean ? OP_Add : im->op;
    ValueId y = im->op == OP_Mean ? low_need_float(im, 0) : low_need(im, 0);
    for (uint32_t i = 1; i < im->nin; i++) {
        ValueId z = low_need(im, i), x = is_bound(g, y, z) ? y : z, c = x == y ? z : y;
        if (op != OP_Add && is_bound(g, x, c) && !im_shares_ties(im))
            y = low_clip(g, x, op == OP_Max ? c : NONE, op == OP_Min ? c : NONE);
        else
            y = g_binary(g, op, y, z);
    }
    im->out[0] = im->op == OP_Mean ? low_scale(g, y, 1.0 / im->nin) : y;
}

/* x to a small constant power by products, as PyTorch computes it; NONE when there is no such form.
 */
static ValueId small_power(const Import *im, ValueId x, double p)
{
    static const struct {
        double p;
        bool whole;
        const char *text;
    } forms[] = {
        {1, true, "x: x"},         {2, true, "x: x * x"},
        {3, true, "x: x * x * x"}, {-0.5, false, "x: 1 / Sqrt(x)"},
        {-1, false, "x: 1 / x"},   {-2, false, "x: 1 / (x * x)"},
    };
    bool is_float = dtype_is_float(low_dtype(im->g, x));
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (p == forms[i].p && (is_float || forms[i].whole))
            return g_formula(im->g, forms[i].text, x);
    return is_float && p > 0 && p < 1 ? low_root(im, x, p) : NONE;
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
    ValueId x = low_need(im, 0);
    bool pos = im_int(im, "detect_positive", 1) != 0, neg = im_int(im, "detect_negative", 1) != 0;
    im->out[0] = g_formula(im->g,
                           pos && neg ? "x: IsInf(x)"
                           : pos      ? "x: x == inf"
                           : neg      ? "x: x == -inf"
                                      : "x: IsNaN(x) && 0",
                           x);
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
    return g_reshape(g, b, &(Shape){0});
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

/* ---- activations ---- */

/* The exponential of a branch that is not taken sees no positive number. */
static const Activation activations[] = {
    {"Affine", {{"alpha", 1}, {"beta", 0}}, "x, double a, double b: a * x + b", true},
    {"Celu",
     {{"alpha", 1}},
     "x, double a: up = x > 0; up ? x : a * (Exp((up ? 0 : x) / a) - 1)",
     false},
    {"Elu", {{"alpha", 1}}, "x, double a: up = x > 0; up ? x : a * (Exp(up ? 0 : x) - 1)", true},
    {"HardSigmoid",
     {{"alpha", 0.2}, {"beta", 0.5}},
     "x, double a, double b: t = a * x + b; t <= 0 ? 0 : t >= 1 ? 1 : t", true},
    {"HardSwish", {{0}}, "x: t = x * (1 / 6) + 0.5; x * (t <= 0 ? 0 : t >= 1 ? 1 : t)", false},
    {"LeakyRelu", {{"alpha", 0.01}}, "x, double a: x > 0 ? x : a * x", true},
    {"Mish", {{0}}, "x: x * Tanh(Softplus(x))", false},
    {"QuickGelu", {{"alpha", 1.702}}, "x, double a: x * Sigmoid(a * x)", false},
    {"Relu", {{0}}, "x: Relu(x)", true},
    {"ScaledTanh", {{"alpha", 1}, {"beta", 1}}, "x, double a, double b: a * Tanh(b * x)", true},
    {"Selu",
     {{"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}},
     "x, double a, double c: up = x > 0; up ? c * x : c * a * (Exp(up ? 0 : x) - 1)", false},
    {"Shrink",
     {{"lambd", 0.5}, {"bias", 0}},
     "x, double l, double b: x < -l ? x + b : x > l ? x - b : 0", false},
    {"Sigmoid", {{0}}, "x: Sigmoid(x)", true},
    {"Softplus", {{0}}, "x: Softplus(x)", true},
    {"Softsign", {{0}}, "x: x / (Abs(x) + 1)", true},
    {"Swish", {{"alpha", 1}}, "x, double a: x * Sigmoid(a * x)", false},
    {"Tanh", {{0}}, "x: Tanh(x)", true},
    {"ThresholdedRelu", {{"alpha", 1}}, "x, double a: x > a ? x : 0", true},
};

const Activation *low_activation(const char *name)
{
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (!strcasecmp(activations[i].name, name))
            return &activations[i];
    return NULL;
}

static ValueId activated(const Import *im, ValueId x)
{
    const Activation *of = low_activation(im->op_type);
    INSIST(of);
    double number[ACTIVATION_NUMBERS] = {0};
    for (int i = 0; i < ACTIVATION_NUMBERS && of->number[i].name; i++)
        number[i] = im_float(im, of->number[i].name, of->number[i].dflt);
    if (im->op == OP_Celu && number[0] == 0)
        low_fatal(im, -1, "alpha is 0");
    return g_formula(im->g, of->text, x, number[0], number[1]);
}

void import_activation(Import *im)
{
    im->out[0] = low_narrow(im, activated(im, low_need_wide(im, 0)));
}

/* In the operand's own type, also where that is a half. */
void import_own_activation(Import *im)
{
    bool any = im->op == OP_Shrink;
    im->out[0] = activated(im, any ? low_need(im, 0) : low_need_float(im, 0));
}

void import_prelu(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), slope = low_need(im, 1);
    if (low_shape(g, slope).rank > low_shape(g, x).rank)
        low_fatal(im, 1, "the slope has more dims than the operand");
    im->out[0] = g_formula(g, "x, slope: x > 0 ? x : x * slope", x, slope);
}

ValueId low_gelu(Graph *g, ValueId x, bool by_tanh)
{
    return g_formula(
        g,
        by_tanh ? "x: x * 0.5 * (1 + Tanh((x + x * x * x * 0.044715) * 0.79788456080286535588))"
                : "x: x * 0.5 * (1 + Erf(x * 0.70710678118654752440))",
        x);
}

void import_gelu(Import *im)
{
    ValueId x = low_need_wide(im, 0);
    bool by_tanh = low_choice(im, "approximate", "none", "none tanh");
    im->out[0] = low_narrow(im, low_gelu(im->g, x, by_tanh));
}

void import_swiglu(Import *im)
{
    ValueId x = low_need_wide(im, 0), y = low_need_wide(im, 1);
    im->out[0] = low_narrow(im, g_formula(im->g, "x, y, double a: x * Sigmoid(a * x) * y", x, y,
                                          im_float(im, "alpha", 1)));
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
