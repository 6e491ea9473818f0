/*
 * resize.c - Resize (opset 10 on) and Upsample (7, 9) to core ops, one axis after the other.
 * All modes are separable with coefficients known at import: nearest takes elements at constant
 * places (slices, repetitions or a Gather), linear and cubic are products with a constant matrix
 * [out, in], antialiased or not.
 */
#include "frontend/low/low.h"

#include <math.h>
#include <string.h>

#include "frontend/low/state.h"

typedef enum { NEAREST, LINEAR, CUBIC } Interp;
typedef enum {
    HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    TF_HALF_PIXEL,
    TF_CROP
} Coord;
typedef enum { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL } Rounding;

typedef struct {
    Interp interp;
    Coord coord;
    Rounding rounding;
    double cubic_a, outside_value;
    bool exclude_outside, antialias;
    bool pytorch; /* align_corners is of the result's own length, not of what the scale says */
} Mode;

typedef struct {
    int64_t in, out;
    double scale, roi[2];
} Axis;

static Mode read_mode(const Import *im)
{
    static const Interp interps[] = {NEAREST, LINEAR, CUBIC, LINEAR};
    /* ONNX's own cases divide by scale * length - 1, which may be no whole number; PyTorch, whose
       corners are those of the result, exports the scale all the same */
    Mode m = {.interp = interps[low_choice(im, "mode", "nearest", "nearest linear cubic bilinear")],
              .coord = ASYMMETRIC,
              .rounding = FLOOR,
              .pytorch = im->state->m->from_pytorch};
    if (im->op == OP_Upsample || im->opset < 11)
        return m;
    m.coord = (Coord)low_choice(im, "coordinate_transformation_mode", "half_pixel",
                                "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners "
                                "asymmetric tf_half_pixel_for_nn tf_crop_and_resize");
    m.rounding = (Rounding)low_choice(im, "nearest_mode", "round_prefer_floor",
                                      "round_prefer_floor round_prefer_ceil floor ceil");
    m.cubic_a = im_float(im, "cubic_coeff_a", -0.75);
    m.outside_value = im_float(im, "extrapolation_value", 0);
    m.exclude_outside = im_int(im, "exclude_outside", 0) != 0;
    m.antialias = im_int(im, "antialias", 0) != 0 && m.interp != NEAREST;
    return m;
}

/* Where output i lies in the input. */
static double source(const Mode *m, const Axis *a, int64_t i)
{
    double x = (double)i, in = (double)a->in, out = a->scale * in;
    if (m->coord == ALIGN_CORNERS && m->pytorch)
        out = (double)a->out;
    switch (m->coord) {
    case ASYMMETRIC: return x / a->scale;
    case ALIGN_CORNERS: return out == 1 || a->out == 1 ? 0 : x * (in - 1) / (out - 1);
    case TF_HALF_PIXEL: return (x + 0.5) / a->scale;
    case PYTORCH_HALF_PIXEL:
        return out == 1 || a->out == 1 ? (m->interp == NEAREST ? 0 : -0.5)
                                       : (x + 0.5) / a->scale - 0.5;
    case HALF_PIXEL_SYMMETRIC:
        return in / 2 * (1 - (double)a->out / out) + (x + 0.5) / a->scale - 0.5;
    case TF_CROP:
        if (a->out == 1)
            return 0.5 * (a->roi[0] + a->roi[1]) * (in - 1);
        return a->roi[0] * (in - 1) + x * (a->roi[1] - a->roi[0]) * (in - 1) / (out - 1);
    case HALF_PIXEL: break;
    }
    return (x + 0.5) / a->scale - 0.5;
}

static int64_t clamp_index(double x, int64_t n)
{
    return x < 0 ? 0 : x > (double)(n - 1) ? n - 1 : (int64_t)x;
}

static int64_t nearest(const Mode *m, double x, int64_t n)
{
    switch (m->rounding) {
    case PREFER_FLOOR: return clamp_index(ceil(x - 0.5), n);
    case PREFER_CEIL: return clamp_index(floor(x + 0.5), n);
    case FLOOR: return clamp_index(floor(x), n);
    case CEIL: return clamp_index(ceil(x), n);
    }
    return 0;
}

/* The interpolation kernel: a triangle, or Keys' cubic convolution. */
static double kernel(const Mode *m, double t)
{
    double a = m->cubic_a;
    t = fabs(t);
    if (m->interp == LINEAR)
        return t < 1 ? 1 - t : 0;
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    if (t < 2)
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
    return 0;
}

/* One row of the matrix: weights of the input elements around x; those outside fall on the border,
 * or are left out. */
static void matrix_row(const Mode *m, const Axis *a, double x, double *row)
{
    double narrow = m->antialias && a->scale < 1 ? a->scale : 1,
           reach = (m->interp == LINEAR ? 1 : 2) / narrow, sum = 0;
    int64_t from = (int64_t)floor(x - reach), to = (int64_t)ceil(x + reach);
    for (int64_t i = from; i <= to; i++) {
        double w = kernel(m, ((double)i - x) * narrow);
        if (w == 0 || (m->exclude_outside && (i < 0 || i >= a->in)))
            continue;
        row[clamp_index((double)i, a->in)] += w;
        sum += w;
    }
    for (int64_t i = 0; (m->exclude_outside || m->antialias) && sum != 0 && i < a->in; i++)
        row[i] /= sum;
}

/* x times a matrix [out, in] along an axis. */
static ValueId product_along(Graph *g, ValueId x, int axis, int64_t out, ValueId matrix)
{
    Shape s = low_shape(g, x), flat = s, result = s;
    const int64_t after = shape_between(&s, axis + 1, s.rank);
    result.d[axis] = out;
    flat.rank = axis + 2;
    flat.d[axis + 1] = after;
    if (after == 1) {
        flat.rank = axis + 1;
        x = g_matmul_single(g, g_reshape(g, x, &flat), g_swap_last(g, matrix));
    } else {
        x = g_matmul_single(g, matrix, g_reshape(g, x, &flat));
    }
    return g_reshape(g, x, &result);
}

enum { RESIZE_MAX = 1 << 24 };

static ValueId resize_axis(const Import *im, const Mode *m, const Axis *a, ValueId x, int axis)
{
    Graph *g = im->g;
    if (a->out > RESIZE_MAX / low_max(a->in, 1))
        low_fatal(im, -1, "dim %d is too large to be resized", axis);
    if (m->interp == NEAREST) {
        int64_t *idx = arena_array(im->arena, int64_t, a->out + 1);
        for (int64_t i = 0; i < a->out; i++)
            idx[i] = nearest(m, source(m, a, i), a->in);
        x = low_take(g, x, axis, a->out, idx);
    } else {
        double *w = arena_array(im->arena, double, a->out * a->in + 1);
        for (int64_t i = 0; i < a->out; i++)
            matrix_row(m, a, source(m, a, i), w + i * a->in);
        x = product_along(g, x, axis, a->out,
                          low_const_doubles(g, low_dtype(g, x), shape_of(2, a->out, a->in), w));
    }
    if (m->coord != TF_CROP)
        return x;
    uint8_t *outside = arena_array(g->arena, uint8_t, a->out + 1);
    for (int64_t i = 0; i < a->out; i++)
        outside[i] = source(m, a, i) < 0 || source(m, a, i) > (double)(a->in - 1);
    ValueId out = low_const(g, DT_BOOL, shape_of(1, a->out), outside);
    return g_formula(g, "out, x, double other: out ? other : x",
                     low_line(g, out, axis, low_shape(g, x).rank), x, m->outside_value);
}

/* The numbers of a constant float operand; false when it is absent or empty. */
static bool const_doubles(const Import *im, uint32_t i, double **at, int64_t *n)
{
    ValueId v = im_in(im, i);
    if (v == NONE)
        return false;
    Value c = *val(im->g, v);
    *n = shape_elements(&c.shape);
    if (*n == 0)
        return false;
    if (c.kind != V_CONST)
        low_fatal(im, (int)i, "the operand must be constant");
    *at = arena_array(im->arena, double, *n);
    for (int64_t k = 0; k < *n; k++)
        (*at)[k] = low_const_at(&c, k);
    return true;
}

/* All axes get the scale that keeps the aspect: the smallest for not_larger, the largest for
 * not_smaller. */
static void keep_aspect(const Import *im, Axis *axis, int n, const int *which)
{
    int policy =
        low_choice(im, "keep_aspect_ratio_policy", "stretch", "stretch not_larger not_smaller");
    double scale = policy == 1 ? (double)INFINITY : 0;
    if (policy == 0)
        return;
    for (int i = 0; i < n; i++) {
        double s = axis[which[i]].scale;
        if (policy == 1 ? s < scale : s > scale)
            scale = s;
    }
    for (int i = 0; i < n; i++) {
        Axis *a = &axis[which[i]];
        a->scale = scale;
        a->out = (int64_t)(scale * (double)a->in + 0.5);
    }
}

/* Fills scale and output size of the axes concerned from scales or sizes. */
static void read_sizes(const Import *im, Axis *axis, int n, const int *which)
{
    double *scale = NULL;
    int64_t ns = 0, nz = 0, *sizes = NULL;
    int at = im->op == OP_Upsample || im->opset < 11 ? 1 : 2, count;
    bool scaled = const_doubles(im, (uint32_t)at, &scale, &ns);
    if (!scaled && im->op == OP_Upsample && im_floats(im, "scales", &scale, &count))
        scaled = true, ns = count;
    if (im->op == OP_Resize && im->opset >= 11 && im_in(im, 3) != NONE)
        im_const_ints(im, 3, &sizes, &nz);
    if (!scaled && nz == 0)
        low_fatal(im, -1, "neither scales nor sizes are given");
    if ((scaled ? ns : nz) != n)
        low_fatal(im, -1, "%lld scales or sizes for %d axes", (long long)(scaled ? ns : nz), n);
    for (int i = 0; i < n; i++) {
        Axis *a = &axis[which[i]];
        if (scaled) {
            a->scale = scale[i];
            if (!(scale[i] > 0 && scale[i] * (double)a->in < 0x1p31))
                low_fatal(im, at, "a scale of %g", scale[i]);
            a->out = (int64_t)floor(scale[i] * (double)a->in);
        } else {
            if (sizes[i] < 0 || sizes[i] > INT32_MAX || a->in == 0)
                low_fatal(im, 3, "a size of %lld", (long long)sizes[i]);
            a->out = sizes[i];
            a->scale = (double)sizes[i] / (double)a->in;
        }
    }
    if (!scaled && im->opset >= 18)
        keep_aspect(im, axis, n, which);
}

/*
 * F.interpolate(antialias=True) steps by the scale that it was given, which its files, of sizes,
 * leave to the metadata; with align_corners by that of the corners, and still lays pixels at their
 * halves (ATen's upsample_bilinear2d_aa).
 */
static void pytorch_antialias(const Import *im, Mode *m, Axis *axis, int rank)
{
    const char *target = m->interp == LINEAR ? "aten._upsample_bilinear2d_aa.default"
                                             : "aten._upsample_bicubic2d_aa.default";
    for (int k = 0; k < 2; k++) {
        Axis *a = &axis[rank - 2 + k];
        double told;
        if (m->coord == ALIGN_CORNERS)
            a->scale = a->in > 1 ? (double)(a->out - 1) / (double)(a->in - 1) : (double)INFINITY;
        else if (im_told(im, target, 3 + k, k ? "scales_w" : "scales_h", &told) && told > 0)
            a->scale = told;
        if (a->out == 1 && m->coord == ALIGN_CORNERS)
            a->scale = (double)INFINITY; /* the first pixel */
    }
    if (m->coord == ALIGN_CORNERS)
        m->coord = HALF_PIXEL;
}

void import_resize(Import *im)
{
    ValueId x = low_need(im, 0);
    Shape s = low_shape(im->g, x);
    Mode m = read_mode(im);
    Axis axis[MAX_RANK];
    int n = s.rank;
    int64_t *given, nr;
    double *roi;
    for (int d = 0; d < s.rank; d++)
        axis[d] = (Axis){s.d[d], s.d[d], 1, {0, 1}};
    const bool named = im->opset >= 18 && im_ints(im, "axes", &given, &n);
    const int *which = low_which(im, named ? given : NULL, n, s.rank);
    read_sizes(im, axis, n, which);
    if (m.pytorch && m.antialias && s.rank == 4)
        pytorch_antialias(im, &m, axis, s.rank);
    if (m.coord == TF_CROP) {
        if (!const_doubles(im, 1, &roi, &nr) || nr != 2 * n)
            low_fatal(im, 1, "tf_crop_and_resize needs the region of every axis");
        for (int i = 0; i < n; i++)
            axis[which[i]].roi[0] = roi[i], axis[which[i]].roi[1] = roi[n + i];
    }
    Dtype t = low_dtype(im->g, x);
    if (m.interp != NEAREST && !dtype_is_float(t))
        x = g_cast(im->g, x, DT_F32);
    for (int d = 0; d < s.rank; d++) {
        const Axis *a = &axis[d];
        bool whole = a->roi[0] == 0 && a->roi[1] == 1;
        /* where lengths vary this may be one size of many, and has the operations of all */
        bool one_of_many = im->g->lengths.left && d >= 2 && m.interp != NEAREST;
        if (a->in == a->out && fabs(a->scale - 1) < 1e-9 && (m.coord != TF_CROP || whole) &&
            !one_of_many)
            continue;
        x = resize_axis(im, &m, a, x, d);
    }
    im->out[0] = g_cast(im->g, x, t);
}
