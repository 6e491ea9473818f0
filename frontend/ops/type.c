/*
 * type.c - element types that files have and the graph does not: casts, bits, and arithmetic
 * modulo 2^n.  In: values that the graph holds in a wider type (ir/type.h: dtype_held), and the
 * type that the file gives them (im_declared).  Out: core operations whose results are numbers of
 * that type.
 *
 * A float of 8 bits or fewer is held in f32, whole numbers of 16 bits or fewer in i32, u32 in i64,
 * u64 as the i64 of the same bits.  Rounding to such a float is arithmetic on multiples of the
 * distance between its neighbours, a power of two: every step is exact but the one that rounds.
 */
#include "frontend/low/low.h"
#include "frontend/low/state.h"

#include <math.h>
#include <string.h>

/* ---- whole numbers ---- */

/* x modulo 2^bits, in the range of t. */
static ValueId wrap(Graph *g, ValueId x, Dtype t)
{
    return g_formula(
        g, dtype_is_signed(t) ? "x, double n: (x + n / 2) % n - n / 2" : "x, double n: x % n", x,
        (double)(UINT64_C(1) << dtype_bits(t)));
}

static bool is_narrow(Dtype t)
{
    return dtype_held(t) != t && !dtype_mini(t) && dtype_bits(t) < dtype_bits(dtype_held(t));
}

static ValueId wrapped(Graph *g, ValueId x, Dtype t) { return is_narrow(t) ? wrap(g, x, t) : x; }

/* The type whose bits are meant. */
static Dtype bits_of(const Import *im)
{
    Dtype t = im_declared(im, 0);
    return t == DT_NONE ? low_dtype(im->g, low_need(im, 0)) : t;
}

void low_wrap_result(Import *im)
{
    Dtype t = im_declared(im, 0);
    switch (im->op) {
    case OP_Add: case OP_Sub: case OP_Mul: case OP_Div: case OP_Neg: case OP_Abs: case OP_Pow:
    case OP_Sum: case OP_ReduceSum: case OP_ReduceProd: case OP_ReduceSumSquare:
    case OP_ReduceL1: case OP_CumSum: case OP_CumProd: case OP_MatMul: case OP_Gemm:
    case OP_Einsum:
        if (im->out[0] != NONE && is_narrow(t) && low_dtype(im->g, im->out[0]) == dtype_held(t))
            im->out[0] = wrap(im->g, im->out[0], t);
        break;
    case OP_ArgMax: case OP_ArgMin: case OP_EyeLike: case OP_NonZero: case OP_OneHot:
    case OP_Shape: case OP_Size: case OP_MatMulInteger: case OP_ConvInteger:
        if (im->declared == DT_NONE && im->out[0] != NONE) /* not of operand 0's type */
            im->declared = low_dtype(im->g, im->out[0]);
        break;
    default: break;
    }
}

void import_bitwise_not(Import *im)
{
    Dtype t = bits_of(im);
    im->out[0] = wrapped(im->g, g_unary(im->g, OP_BitwiseNot, low_need(im, 0)), t);
}

/* floor(x / 2^s) for 0 <= s <= 32. */
static ValueId shift_right(Graph *g, ValueId x, ValueId s)
{
    return g_formula(g, "x, s: p = Pow(2, s); (x - x % p) / p", x, s);
}

/*
 * Shifts are products and quotients with powers of two, in two steps so that no power overflows. By
 * other than 0 to width - 1 places only the sign is left of a shift to the right, and 0 of one to
 * the left.
 */
void import_bit_shift(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), s = low_need(im, 1);
    Dtype t = low_dtype(g, x), bits = bits_of(im);
    bool left = low_choice(im, "direction", "", "RIGHT LEFT");
    if (t != DT_I32 && t != DT_I64)
        low_fatal(im, 0, "BitShift of %s", dtype_name(t));
    x = g_cast(g, x, DT_I64);
    s = g_cast(g, s, DT_I64);
    ValueId out = g_formula(g, "s, double most: s < 0 || s > most", s,
                            (double)(dtype_bits(bits) - 1)),
            y;
    s = g_formula(g, "s, out: out ? 63 : s", s, out);
    ValueId first = g_formula(g, "s: Min(s, 32)", s), second = g_sub(g, s, first);
    if (left) {
        y = g_formula(g, "x, s, t: x * Pow(2, s) * Pow(2, t)", x, first, second);
        y = g_formula(g, "y, out: out ? 0 : y", wrapped(g, y, bits), out);
    } else {
        y = shift_right(g, shift_right(g, x, first), second);
        if (bits == DT_U64) /* s places are copies of the sign */
            y = g_formula(g, "y, s, out: out ? 0 : s > 0 ? BitwiseAnd(y, Pow(2, 64 - s) - 1) : y",
                          y, s, out);
    }
    im->out[0] = g_cast(g, y, t);
}

/* ---- bits as another type ---- */

/* Bits of type t, held in a wider one, as f32, f64, i32 or i64 of the same bits; NONE: no such. */
static ValueId plain_bits(Graph *g, ValueId x, Dtype t)
{
    if (t == DT_U32) /* held in i64 */
        return g_cast(g, wrap(g, x, DT_I32), DT_I32);
    if (t == DT_BOOL)
        return g_cast(g, x, DT_I32);
    bool whole = !dtype_is_float(t) && !dtype_mini(t);
    return whole || t == DT_F32 || t == DT_F64 ? x : NONE;
}

void import_bit_cast(Import *im)
{
    Graph *g = im->g;
    Dtype from = bits_of(im), to = im_dtype(im, "to", 0);
    ValueId x = plain_bits(g, low_need(im, 0), from);
    bool real = to == DT_F32 || to == DT_F64;
    if (x == NONE || to <= DT_NONE || to > DT_LAST || dtype_bits(from) != dtype_bits(to) ||
        (!real && (dtype_is_float(to) || dtype_mini(to) || dtype_held(to) == DT_NONE)))
        low_fatal(im, 0, "the bits of %s as %s", dtype_name(from), dtype_name(to));
    if (real != dtype_is_float(low_dtype(g, x)))
        x = g_unary(g, OP_BitCast, x);
    if (to == DT_BOOL)
        x = g_cast(g, x, DT_BOOL);
    else if (!real)
        x = wrapped(g, g_cast(g, x, dtype_held(to)), to);
    im->declared = to;
    im->out[0] = x;
}

/* ---- floats of 8 bits or fewer ---- */

/* 2^floor(log2 |x|), 0 of a subnormal number, infinity of infinity and NaN: the exponent's bits. */
static ValueId power_below(Graph *g, ValueId x)
{
    ValueId bits = g_unary(g, OP_BitCast, x);
    double exponent = low_dtype(g, x) == DT_F32 ? (double)0x7f800000 : 0x7ffp52;
    return g_unary(g, OP_BitCast, g_binary(g, OP_BitwiseAnd, bits, g_like(g, bits, exponent)));
}

/* NaN stays */
static ValueId clamped(Graph *g, ValueId x, double most)
{
    return g_formula(g, "x, double most: Min(Max(x, -most), most)", x, most);
}

/* The nearest number of format f, ties to even; what is larger than all of them: the table of
 * Cast. */
static ValueId nearest(Graph *g, ValueId x, const MiniFormat *f, bool saturate)
{
    x = clamped(g, x, 2 * f->most); /* infinity has no neighbours */
    ValueId y = g_formula(g,
                          "x, power, double least, double last:"
                          "between = Max(power, least) * last; Round(x / between) * between",
                          x, power_below(g, x), ldexp(1, 1 - f->bias), ldexp(1, -f->fraction));
    if (saturate || f->kind == MINI_FINITE)
        y = clamped(g, y, f->most);
    else
        y = g_formula(g, "y, double most, double limit: Abs(y) > most ? y * limit : y", y, f->most,
                      f->kind == MINI_IEEE ? (double)INFINITY : (double)NAN);
    if (f->kind == MINI_UNSIGNED_ZERO)
        y = g_formula(g, "y: y + 0", y);
    return f->kind == MINI_FINITE ? g_formula(g, "y: IsNaN(y) ? 0 : y", y) : y;
}

/* |x| as a power of two.  A subnormal number is scaled, so that it has an exponent. */
enum { DOWN, UP, NEAREST };
static ValueId scale_of(Graph *g, ValueId x, const MiniFormat *f, bool saturate, int round)
{
    const double least = ldexp(1, -f->bias), nan = (double)NAN;
    ValueId a = g_unary(g, OP_Abs, x), s = g_formula(g, "a: a < 0x1p-64 ? a * 0x1p64 : a", a),
            p = power_below(g, s);
    if (round != DOWN)
        p = g_formula(
            g, round == NEAREST ? "p, s: s >= p * 1.5 ? p * 2 : p" : "p, s: s > p ? p * 2 : p", p,
            s);
    p = g_formula(g, "p, a: a < 0x1p-64 ? p * 0x1p-64 : p", p, a);
    return g_formula(g,
                     "x, a, p, double most, double over, double least, double under:"
                     "IsNaN(x) ? nan : a < least ? under : p > most ? over : p",
                     x, a, p, f->most, saturate ? f->most : nan, least, saturate ? least : nan);
}

/* y, a rounded x, with the gradient of x where |x| <= most: a cast between floats is the
 * identity. */
static ValueId straight_through(Graph *g, ValueId x, ValueId y, double most)
{
    return g_formula(g,
                     "x, y, double most:"
                     "StopGradient(y) + (Abs(x) <= most ? x - StopGradient(x) : 0)",
                     x, y, most);
}

ValueId low_to_mini(const Import *im, ValueId x, Dtype to, bool saturate, bool stops)
{
    Graph *g = im->g;
    const MiniFormat *f = dtype_mini(to);
    Dtype t = low_dtype(g, x);
    if (t == DT_I32 || t == DT_I64)
        x = g_cast(g, x, DT_F64);
    else if (t != DT_F64)
        x = g_cast(g, x, DT_F32);
    int round = low_choice(im, "round_mode", "up", "down up nearest");
    ValueId y =
        f->kind == MINI_SCALE ? scale_of(g, x, f, saturate, round) : nearest(g, x, f, saturate);
    ValueKind k = val(g, x)->kind;
    if (im->training && dtype_is_float(t) && (k == V_NODE || k == V_PARAM)) {
        double largest = low_dtype(g, x) == DT_F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
        y = straight_through(g, x, y, stops ? f->most : largest);
    }
    return g_cast(g, y, DT_F32);
}

/* ---- casts ---- */

/* u64 is held as the i64 of the same bits. */
static ValueId u64_to_float(Graph *g, ValueId x, Dtype t)
{
    ValueId y = g_cast(g, x, DT_F64);
    return g_cast(g, g_formula(g, "y: y < 0 ? y + 0x1p64 : y", y), t);
}

static ValueId cast(const Import *im, ValueId x, Dtype declared, int64_t to)
{
    Graph *g = im->g;
    if (to <= DT_NONE || to > DT_LAST)
        low_fatal(im, -1, "type %lld is unknown", (long long)to);
    Dtype t = (Dtype)to, wide = dtype_held(t), from = low_dtype(g, x);
    if (wide == DT_NONE)
        low_fatal(im, -1, "a cast to %s is not supported", dtype_name(t));
    if (declared == t)
        return x;
    if (dtype_mini(t))
        return low_to_mini(im, x, t, im_int(im, "saturate", 1) != 0, false);
    if (declared == DT_U64 && dtype_is_float(wide))
        return u64_to_float(g, x, wide);
    ValueId y = g_cast(g, x, wide);
    return from == DT_BOOL ? y : wrapped(g, y, t);
}

void import_cast(Import *im)
{
    if (!im_has(im, "to"))
        low_fatal(im, -1, "attribute 'to' is missing");
    int64_t to = im_int(im, "to", 0);
    /* TorchScript's type promotion writes PyTorch's own number of bfloat16; a Cast to complex
       numbers is none of ONNX's */
    if (to == DT_C128 && im->state->m->from_pytorch)
        to = DT_BF16;
    im->out[0] = cast(im, low_need(im, 0), im_declared(im, 0), to);
    im->declared = (Dtype)to;
}

void import_cast_like(Import *im)
{
    Dtype to = im_declared(im, 1);
    if (to == DT_NONE)
        to = low_dtype(im->g, low_need(im, 1));
    im->out[0] = cast(im, low_need(im, 0), im_declared(im, 0), to);
    im->declared = to;
}
