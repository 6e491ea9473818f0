/*
 * quant.c - quantised numbers: QuantizeLinear and its kin.  In: the ONNX nodes; whole numbers
 * of 8 and 16 bits are held in 32.  Out: core operations on floats and whole numbers.
 *
 * A value that is quantised and at once dequantised is a float all the way, and its gradient goes
 * straight through where it was in range and stops where it was clamped (PyTorch's
 * fake_quantize_per_tensor_affine; Bengio et al. 2013, arXiv 1308.3432).  Scales and zero points
 * have none.
 */
#include "frontend/low/low.h"

#include <string.h>

/* ---- the grid: a scale and a zero point for everything, each index of an axis, or each block ----
 */

typedef struct {
    double least, most;
} Range;

static Range range_of(const Import *im, Dtype t)
{
    switch (t) {
    case DT_U8: return (Range){0, 255};
    case DT_I8: return (Range){-128, 127};
    case DT_U16: return (Range){0, 65535};
    case DT_I16: return (Range){-32768, 32767};
    case DT_U4: return (Range){0, 15};
    case DT_I4: return (Range){-8, 7};
    case DT_U2: return (Range){0, 3};
    case DT_I2: return (Range){-2, 1};
    default: low_fatal(im, -1, "quantisation to %s is not supported", dtype_name(t));
    }
}

/* The type of a zero point, u8 where there is none. */
static Dtype grid_type(const Import *im, uint32_t zero)
{
    int64_t t = im_int(im, "output_dtype", DT_NONE);
    if (im_in(im, zero) != NONE)
        t = im_declared(im, zero);
    return t == DT_NONE ? DT_U8 : (Dtype)t;
}

/* A float type that an attribute names; otherwise where it names none. */
static Dtype float_type(const Import *im, const char *name, Dtype otherwise)
{
    int64_t t = im_int(im, name, DT_NONE);
    if (t != DT_NONE && (t > DT_LAST || !dtype_is_float((Dtype)t)))
        low_fatal(im, -1, "%s %lld is no type of floats that are computed with", name,
                  (long long)t);
    return t == DT_NONE ? otherwise : (Dtype)t;
}

/* Operand i lined up with x: a scalar, a vector along the axis, or blocks of it. */
static ValueId lined_up(const Import *im, uint32_t i, const Shape *x)
{
    Graph *g = im->g;
    ValueId v = im_in(im, i);
    if (v == NONE)
        return NONE;
    Shape s = low_shape(g, v), scalar = {0};
    if (shape_elements(&s) == 1 && s.rank <= 1)
        return g_reshape(g, v, &scalar);
    int axis = low_axis(im, im_int(im, "axis", 1), x->rank);
    if (s.rank == 1 && s.d[0] == x->d[axis])
        return low_line(g, v, axis, x->rank);
    int64_t block = im_int(im, "block_size", 0), n = x->d[axis];
    bool ok = s.rank == x->rank && block > 0 && (n > 0 ? (n - 1) / block + 1 : 0) == s.d[axis];
    for (int d = 0; ok && d < s.rank; d++)
        ok = d == axis || s.d[d] == x->d[d];
    if (!ok)
        low_fatal(im, (int)i, "%s does not fit %s along axis %d",
                  shape_print(im->arena, low_dtype(g, v), &s),
                  shape_print(im->arena, low_dtype(g, im->in[0]), x), axis);
    low_limit_table(im, n, 1, "places");
    int64_t *at = arena_array(im->arena, int64_t, n + 1);
    for (int64_t k = 0; k < n; k++)
        at[k] = k / block;
    return low_take(g, v, axis, n, at);
}

/* x / scale + zero as the nearest float of 8 bits or fewer; as PyTorch's fake quantisation, no
 * gradient passes where it is clamped. */
static ValueId rounded_float(const Import *im, ValueId x, ValueId scale, ValueId zero, Dtype to)
{
    Graph *g = im->g;
    ValueId q = g_div(g, x, scale);
    if (zero != NONE)
        q = g_add(g, q, g_cast(g, zero, low_dtype(g, x)));
    return low_to_mini(im, q, to, im_int(im, "saturate", 1) != 0, true);
}

/* round(x / scale) + zero within the range, as floats. */
static ValueId quantised(Graph *g, ValueId x, ValueId scale, ValueId zero, Range r)
{
    ValueId q = g_unary(g, OP_Round, g_div(g, x, scale));
    if (zero != NONE)
        q = g_add(g, q, g_cast(g, zero, low_dtype(g, x)));
    return g_formula(g, "q, double least, double most: Min(Max(q, least), most)", q, r.least,
                     r.most);
}

/* ---- QuantizeLinear, DequantizeLinear ---- */

void import_quantize_linear(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    Shape s = low_shape(g, x);
    Dtype t = float_type(im, "precision", low_dtype(g, low_need_float(im, 1)));
    ValueId scale = low_stopped(g, g_cast(g, lined_up(im, 1, &s), t)), zero = lined_up(im, 2, &s);
    im->declared = grid_type(im, 2);
    x = g_cast(g, x, t);
    if (dtype_mini(im->declared))
        im->out[0] = rounded_float(im, x, scale, zero, im->declared);
    else
        im->out[0] = g_cast(g, quantised(g, x, scale, zero, range_of(im, im->declared)), DT_I32);
}

/* What QuantizeLinear made: x / scale, rounded and moved by the zero point (raw), then clamped (q).
 */
typedef struct {
    ValueId x, scale, raw, q;
    Range range;
} Quantised;

/* Is v Cast(Min(Max([Add](Round(Div(x, scale)))))) to whole numbers? */
static bool was_quantised(const Graph *g, ValueId v, Quantised *out)
{
    const Node *cast = graph_made_by(g, v, OP_Cast),
               *min = cast ? graph_made_by(g, cast->in[0], OP_Min) : NULL,
               *max = min ? graph_made_by(g, min->in[0], OP_Max) : NULL;
    if (!max || !g_const_double(g, min->in[1], &out->range.most) ||
        !g_const_double(g, max->in[1], &out->range.least))
        return false;
    const Node *moved = graph_made_by(g, max->in[0], OP_Add),
               *round = graph_made_by(g, moved ? moved->in[0] : max->in[0], OP_Round),
               *div = round ? graph_made_by(g, round->in[0], OP_Div) : NULL;
    if (!div || !dtype_is_float(low_dtype(g, div->in[0])))
        return false;
    out->x = div->in[0], out->scale = div->in[1], out->raw = max->in[0], out->q = cast->in[0];
    return true;
}

/* Exactly 0, with the gradient of x where it was in range, times what the scales differ by. */
static ValueId straight(Graph *g, const Quantised *n, ValueId scale)
{
    return g_formula(g,
                     "x, raw, scale, was, double least, double most:"
                     "raw >= least && raw <= most ? (x - StopGradient(x)) * (scale / was) : 0",
                     n->x, n->raw, scale, n->scale, n->range.least, n->range.most);
}

void import_dequantize_linear(Import *im)
{
    Graph *g = im->g;
    ValueId v = low_need(im, 0);
    Shape s = low_shape(g, v);
    Dtype t = float_type(im, "output_dtype", low_dtype(g, low_need_float(im, 1)));
    Quantised n = {0};
    ValueId scale = low_stopped(g, g_cast(g, lined_up(im, 1, &s), t)), zero = lined_up(im, 2, &s);
    bool fake = im->training && was_quantised(g, v, &n) && low_dtype(g, n.x) == t &&
                val(g, n.x)->kind != V_CONST && val(g, n.x)->kind != V_INPUT;
    ValueId y = fake ? g_unary(g, OP_StopGradient, n.q) : g_cast(g, v, t);
    if (zero != NONE)
        y = g_sub(g, y, g_cast(g, zero, t));
    y = g_mul(g, y, scale);
    im->declared = t;
    im->out[0] = fake ? g_add(g, y, straight(g, &n, scale)) : y;
}

/* The scale takes x's range, with 0 in it, to 0 .. 255. */
void import_dynamic_quantize_linear(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    Shape s = low_shape(g, x), scalar = {0};
    int64_t axes[MAX_RANK];
    for (int d = 0; d < s.rank; d++)
        axes[d] = d;
    ValueId most = s.rank ? g_reduce(g, OP_ReduceMax, x, s.rank, axes) : x,
            least = s.rank ? g_reduce(g, OP_ReduceMin, x, s.rank, axes) : x;
    most = g_formula(g, "x: Max(x, 0)", g_reshape(g, most, &scalar));
    least = g_formula(g, "x: Min(x, 0)", g_reshape(g, least, &scalar));
    im->out[1] = low_stopped(g, g_formula(g, "a, b: (b - a) / 255", least, most));
    ValueId divisor = low_not_zero(g, im->out[1]),
            point = quantised(g, low_stopped(g, g_neg(g, least)), divisor, NONE, (Range){0, 255});
    im->declared = DT_U8;
    im->out[0] = g_cast(g, quantised(g, x, divisor, point, (Range){0, 255}), DT_I32);
    im->out[2] = g_cast(g, point, DT_I32);
}

/* ---- products of quantised numbers: exact in float64, whose 53 bits hold the sums ---- */

/* Operand i less its zero point, which stands along dim `axis` where it is a vector. */
static ValueId centred(const Import *im, uint32_t i, uint32_t zero, int axis)
{
    Graph *g = im->g;
    ValueId x = g_cast(g, low_need(im, i), DT_F64), z = im_in(im, zero);
    if (z == NONE)
        return x;
    Shape s = low_shape(g, x), zs = low_shape(g, z);
    const int64_t n = shape_elements(&zs);
    const bool whole = zs.rank > 1 && zs.rank == s.rank;
    if (!whole && n != 1 && (zs.rank != 1 || axis < 0 || n != s.d[axis]))
        low_fatal(im, (int)zero, "%s does not fit", shape_print(im->arena, low_dtype(g, z), &zs));
    z = g_cast(g, z, DT_F64);
    return g_sub(g, x, whole ? z : low_line(g, z, axis, s.rank));
}

void import_matmul_integer(Import *im)
{
    Graph *g = im->g;
    int a = low_shape(g, low_need(im, 0)).rank, b = low_shape(g, low_need(im, 1)).rank;
    ValueId y = g_matmul(g, centred(im, 0, 2, a - 2), centred(im, 1, 3, b - 1));
    im->out[0] = g_cast(g, y, DT_I32);
}

/* A convolution of float64 with the node's window. */
static ValueId convolved(const Import *im, ValueId x, ValueId w)
{
    ValueId in[2] = {x, w}, out[1] = {NONE};
    Import conv = *im;
    conv.op = OP_Conv, conv.nin = 2, conv.nout = 1, conv.in = in, conv.out = out;
    import_conv(&conv);
    return out[0];
}

void import_conv_integer(Import *im)
{
    low_need_rank(im, 0, 3, 5);
    ValueId y = convolved(im, centred(im, 0, 2, 1), centred(im, 1, 3, 0));
    im->out[0] = g_cast(im->g, y, DT_I32);
}

/* A scale as float32 along dim `axis` of `rank`. */
static ValueId scale_along(const Import *im, uint32_t i, int rank, int axis)
{
    ValueId v = g_cast(im->g, low_need(im, i), DT_F32);
    return low_shape(im->g, v).rank > 1 ? v : low_line(im->g, v, axis, rank);
}

/* Sums of products y to the grid of operands 6 and 7: times a_scale b_scale / y_scale, in float32.
 */
static void regrid(Import *im, ValueId y, ValueId a_scale, ValueId b_scale)
{
    Graph *g = im->g;
    Shape s = low_shape(g, y);
    ValueId ratio = g_div(g, g_mul(g, a_scale, b_scale), scale_along(im, 6, s.rank, 1)),
            zero = im_in(im, 7) == NONE ? NONE : g_reshape(g, im->in[7], &(Shape){0});
    im->declared = grid_type(im, 7);
    ValueId q = g_mul(g, g_cast(g, y, DT_F32), ratio);
    im->out[0] = g_cast(
        g, quantised(g, q, g_scalar(g, DT_F32, 1), zero, range_of(im, im->declared)), DT_I32);
}

void import_qlinear_matmul(Import *im)
{
    Graph *g = im->g;
    int a = low_shape(g, low_need(im, 0)).rank, b = low_shape(g, low_need(im, 3)).rank;
    ValueId y = g_matmul(g, centred(im, 0, 2, a - 2), centred(im, 3, 5, b - 1));
    int rank = low_shape(g, y).rank;
    regrid(im, y, scale_along(im, 1, rank, rank - 2), scale_along(im, 4, rank, rank - 1));
}

void import_qlinear_conv(Import *im)
{
    Graph *g = im->g;
    const int rank = low_need_rank(im, 0, 3, 5).rank;
    ValueId y = convolved(im, centred(im, 0, 2, 1), centred(im, 3, 5, 0));
    if (im_in(im, 8) != NONE)
        y = g_add(g, y, g_cast(g, low_channels(im, 8, low_shape(g, y).d[1], rank), DT_F64));
    regrid(im, y, scale_along(im, 1, rank, 1), scale_along(im, 4, rank, 1));
}
