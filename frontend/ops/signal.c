/*
 * signal.c - windows, Fourier transforms and the mel scale.  In: the ONNX nodes; a complex
 * number is two elements of the last dim.  Out: constants, and products with the matrices of
 * cosines and sines, which a transform of a fixed length is.
 */
#include <math.h>

#include "frontend/low/low.h"

enum { MOST_NUMBERS = 1 << 26 }; /* of a table */
static const double tau = 6.283185307179586476925287;

/* ---- windows ---- */

static int64_t const_size(const Import *im, int input, int64_t least)
{
    int64_t n = im_const_int(im, input, 0);
    if (n < least || n > 1 << 24)
        low_fatal(im, input, "a size of %lld", (long long)n);
    return n;
}

static Dtype output_type(const Import *im)
{
    Dtype t = im_dtype(im, "output_datatype", DT_F32);
    if (t <= DT_NONE || t > DT_LAST || dtype_held(t) == DT_NONE)
        low_fatal(im, -1, "output_datatype %d is not supported", (int)t);
    return dtype_held(t);
}

static void filled(Import *im, Shape s, const double *at)
{
    ValueId v = low_const_doubles(im->g, DT_F64, s, at);
    im->out[0] = g_cast(im->g, v, output_type(im));
}

/* c0 - c1 cos(x) + c2 cos(2 x), over a period or, symmetric, with its end. */
static void window(Import *im, double c0, double c1, double c2)
{
    int64_t n = const_size(im, 0, 1), period = im_int(im, "periodic", 1) ? n : n - 1;
    double *at = arena_array(im->arena, double, n);
    for (int64_t i = 0; i < n; i++) {
        double x = period ? tau * (double)i / (double)period : 0;
        at[i] = period ? c0 - c1 * cos(x) + c2 * cos(2 * x) : 1;
    }
    filled(im, (Shape){1, {n}}, at);
}

void import_hann_window(Import *im) { window(im, 0.5, 0.5, 0); }
void import_hamming_window(Import *im) { window(im, 25.0 / 46, 21.0 / 46, 0); }
void import_blackman_window(Import *im) { window(im, 0.42, 0.5, 0.08); }

/* ---- MelWeightMatrix ---- */

/* The spectrogram's bins at the mel bins' lower edges and two more, as the definition rounds them.
 */
static int64_t *mel_edges(const Import *im, int64_t bins, int64_t length)
{
    double rate = im_const_double(im, 2, 0), low = im_const_double(im, 3, 0),
           high = im_const_double(im, 4, 0);
    int64_t *edge = arena_array(im->arena, int64_t, bins + 2);
    if (!(rate > 0) || !(low >= 0) || !(high >= low))
        low_fatal(im, 2, "a rate of %g, from %g to %g Hz", rate, low, high);
    double from = 2595 * log10(1 + low / 700),
           step = (2595 * log10(1 + high / 700) - from) / (double)(bins + 2);
    for (int64_t i = 0; i < bins + 2; i++) {
        double hz = 700 * (pow(10, ((double)i * step + from) / 2595) - 1);
        edge[i] = (int64_t)floor((double)(length + 1) * hz / rate);
        if (edge[i] > length / 2)
            low_fatal(im, 4, "%g Hz is above the half of the rate", high);
    }
    return edge;
}

void import_mel_weight_matrix(Import *im)
{
    int64_t bins = const_size(im, 0, 1), length = const_size(im, 1, 1), rows = length / 2 + 1;
    if (rows > MOST_NUMBERS / bins)
        low_fatal(im, 0, "a matrix of %lld x %lld", (long long)rows, (long long)bins);
    const int64_t *edge = mel_edges(im, bins, length);
    double *at = arena_array(im->arena, double, rows *bins);
    for (int64_t i = 0; i < bins; i++) {
        int64_t low = edge[i], mid = edge[i + 1], high = edge[i + 2];
        if (mid == low)
            at[mid * bins + i] = 1;
        for (int64_t j = low; mid > low && j <= mid; j++)
            at[j * bins + i] = (double)(j - low) / (double)(mid - low);
        for (int64_t j = mid; j < high; j++)
            at[j * bins + i] = (double)(high - j) / (double)(high - mid);
    }
    filled(im, (Shape){2, {rows, bins}}, at);
}

/* ---- transforms ---- */

typedef struct {
    Graph *g;
    int64_t in, out, length; /* elements of the operand that are used, results */
    bool inverse, halved;    /* halved: of a symmetric spectrum, its half */
} Fourier;

/* [in, out]: cos or sin of every angle; inverse: divided by the length. */
static ValueId angles(const Fourier *f, Dtype t, bool sine)
{
    double *at = arena_array(f->g->arena, double, f->in * f->out);
    for (int64_t i = 0; i < f->in; i++)
        for (int64_t k = 0; k < f->out; k++) {
            double x = tau * (double)(i * k % f->length) / (double)f->length, scale = 1;
            if (f->inverse)
                scale = 1 / (double)f->length;
            if (f->inverse && f->halved && i > 0 && 2 * i < f->length)
                scale *= 2;
            at[i * f->out + k] = scale * (sine ? sin(x) : cos(x));
        }
    return low_const_doubles(f->g, t, (Shape){2, {f->in, f->out}}, at);
}

/* re, im: [..., in] (im NONE: real) to [..., out, 2], or [..., out, 1] where the result is real. */
static ValueId transform(const Fourier *f, ValueId re, ValueId im)
{
    Graph *g = f->g;
    Dtype t = low_dtype(g, re);
    int last = low_shape(g, re).rank;
    ValueId c = angles(f, t, false), s = angles(f, t, true), y[2];
    y[0] = g_matmul_single(g, re, c), y[1] = g_matmul_single(g, re, s);
    if (!f->inverse)
        y[1] = g_neg(g, y[1]);
    if (im != NONE) {
        ValueId cos_part = g_matmul_single(g, im, c), sin_part = g_matmul_single(g, im, s);
        y[0] = f->inverse ? g_sub(g, y[0], sin_part) : g_add(g, y[0], sin_part);
        y[1] = g_add(g, y[1], cos_part);
    }
    if (f->inverse && f->halved)
        return low_unsqueeze(g, y[0], last);
    for (int i = 0; i < 2; i++)
        y[i] = low_unsqueeze(g, y[i], last);
    return g_concat(g, 2, y, last);
}

/* The part of a complex [..., 1 or 2]; NONE where there is none. */
static ValueId part(Graph *g, ValueId x, int64_t which)
{
    const Shape s = low_shape(g, x);
    return which < s.d[s.rank - 1] ? low_at(g, x, s.rank - 1, which) : NONE;
}

/* Cut or filled with zeros to n along the last dim. */
static ValueId fitted(Graph *g, ValueId x, int64_t n)
{
    int64_t begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    Shape s = low_shape(g, x);
    int last = s.rank - 1;
    if (s.d[last] >= n)
        return g_slice_axis(g, x, last, 0, n);
    end[last] = n - s.d[last];
    return g_pad(g, x, begin, end, PAD_CONSTANT, 0);
}

void import_dft(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    Shape s = low_need_rank(im, 0, 2, MAX_RANK);
    bool inverse = im_int(im, "inverse", 0) != 0, onesided = im_int(im, "onesided", 0) != 0;
    int64_t named = im->opset < 20 ? im_int(im, "axis", 1) : im_const_int(im, 2, -2);
    int axis = low_axis(im, named, s.rank);
    if (axis == s.rank - 1 || (s.d[s.rank - 1] != 1 && s.d[s.rank - 1] != 2))
        low_fatal(im, 0, "%s: the last dim holds real and imaginary parts, 1 or 2",
                  shape_print(im->arena, low_dtype(g, x), &s));
    if (onesided && !inverse && s.d[s.rank - 1] != 1)
        low_fatal(im, 0, "a half of the spectrum of complex numbers does not say all of it");
    int64_t length = s.d[axis];
    if (inverse && onesided)
        length = 2 * (length - 1);
    if (im_in(im, 1) != NONE)
        length = const_size(im, 1, 1);
    if (length < 1 || length > 1 << 14)
        low_fatal(im, 1, "a transform of length %lld", (long long)length);
    int64_t half = length / 2 + 1;
    Fourier f = {.g = g, .length = length, .inverse = inverse, .halved = onesided};
    f.in = inverse && onesided ? half : length;
    f.out = !inverse && onesided ? half : length;
    ValueId y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = part(g, x, i);
        if (y[i] != NONE)
            y[i] = fitted(g, low_move_dim(g, y[i], axis, s.rank - 2), f.in);
    }
    /* [..., out, 2]: the axis goes back where it was, the parts stay last */
    im->out[0] = low_move_dim(g, transform(&f, y[0], y[1]), s.rank - 2, axis);
}

/* signal [rows, length, 1 or 2] -> [rows, frames, bins, 2] */
void import_stft(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0), window = im_in(im, 2), y[2];
    Shape s = low_need_rank(im, 0, 3, 3);
    int64_t step = const_size(im, 1, 1), width;
    if (s.d[2] != 1 && s.d[2] != 2)
        low_fatal(im, 0, "%s: the last dim holds real and imaginary parts, 1 or 2",
                  shape_print(im->arena, low_dtype(g, x), &s));
    if (window != NONE)
        width = low_need_rank(im, 2, 1, 1).d[0];
    else
        width = const_size(im, 3, 1);
    if (im_in(im, 3) != NONE && const_size(im, 3, 1) != width)
        low_fatal(im, 3, "a frame of another length than the window's %lld", (long long)width);
    if (width > s.d[1] || width > 1 << 14)
        low_fatal(im, 0, "%lld samples, a frame has %lld", (long long)s.d[1], (long long)width);
    int64_t frames = (s.d[1] - width) / step + 1;
    if (frames > MOST_NUMBERS / width)
        low_fatal(im, 0, "%lld frames of %lld", (long long)frames, (long long)width);
    int64_t *at = arena_array(im->arena, int64_t, frames * width);
    for (int64_t i = 0; i < frames * width; i++)
        at[i] = i / width * step + i % width;
    bool onesided = im_int(im, "onesided", 1) != 0 && s.d[2] == 1;
    Fourier f = {.g = g, .length = width, .in = width, .out = onesided ? width / 2 + 1 : width};
    Shape apart = {3, {s.d[0], frames, width}};
    for (int i = 0; i < 2; i++) {
        y[i] = part(g, x, i);
        if (y[i] == NONE)
            continue;
        y[i] = g_reshape(g, low_take(g, y[i], 1, frames * width, at), &apart);
        if (window != NONE)
            y[i] = g_mul(g, y[i], g_cast(g, window, low_dtype(g, x)));
    }
    im->out[0] = transform(&f, y[0], y[1]);
}
