/* Convolutions against seven nested loops in double: 1 to 3 dimensions, strides, dilations, uneven
   padding, groups, depthwise, pointwise; forward, both gradients, float, double, bf16 and f16; the bits
   for any rows and threads, and what follows a forward part by part or as a formula. */
#include "runtime/api/pp.h"
#include "runtime/api/pp_half.h"
#include "runtime/device/library.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static int number, failed;
static void ok(int good, const char *what)
{
    printf("%sok %d - %s\n", good ? "" : "not ", ++number, what);
    failed |= !good;
}

static uint32_t state = 1;
static double uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)((float)(state >> 8) / 8388608.0f - 1.0f);
}

typedef struct {
    const double *x, *w, *dy;
    double *y, *dx, *dw;
} Naive;

/* In three dimensions: of fewer the first are 1. */
typedef struct {
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
} Sides;

static Sides sides(const PpConvShape *s)
{
    Sides z = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
    for (int i = 0, k = 3 - s->spatial; i < s->spatial; i++, k++) {
        z.in[k] = s->in[i], z.out[k] = s->out[i], z.kernel[k] = s->kernel[i];
        z.stride[k] = s->stride[i], z.dilation[k] = s->dilation[i], z.pad[k] = s->pad_begin[i];
    }
    return z;
}

/* Output y at o, from a channel's input at x with its weights at w, in all three uses: tap by tap. */
static void taps(const Sides *z, const int64_t *o, int64_t y, int64_t x, int64_t w, const Naive *v)
{
    int64_t from[3];
    for (int i = 0; i < 3; i++)
        from[i] = o[i] * z->stride[i] - z->pad[i];
    for (int64_t i = 0, a = from[0]; i < z->kernel[0]; i++, a += z->dilation[0])
        for (int64_t j = 0, b = from[1]; j < z->kernel[1]; j++, b += z->dilation[1])
            for (int64_t k = 0, c = from[2]; k < z->kernel[2]; k++, c += z->dilation[2], w++) {
                if (a < 0 || a >= z->in[0] || b < 0 || b >= z->in[1] || c < 0 || c >= z->in[2])
                    continue;
                int64_t at = x + (a * z->in[1] + b) * z->in[2] + c;
                v->y[y] += v->x[at] * v->w[w];
                v->dx[at] += v->dy[y] * v->w[w];
                v->dw[w] += v->dy[y] * v->x[at];
            }
}

static void naive(const PpConvShape *s, int64_t rows, const Naive *v)
{
    const Sides z = sides(s);
    int64_t cg = s->c / s->group, mg = s->m / s->group, y = 0, o[3],
            in = z.in[0] * z.in[1] * z.in[2], taken = z.kernel[0] * z.kernel[1] * z.kernel[2];
    for (int64_t n = 0; n < rows; n++)
        for (int64_t m = 0; m < s->m; m++)
            for (o[0] = 0; o[0] < z.out[0]; o[0]++)
                for (o[1] = 0; o[1] < z.out[1]; o[1]++)
                    for (o[2] = 0; o[2] < z.out[2]; o[2]++, y++)
                        for (int64_t c = 0; c < cg; c++)
                            taps(&z, o, y, (n * s->c + m / mg * cg + c) * in, (m * cg + c) * taken,
                                 v);
}

static double value(const void *p, int64_t i, int dtype)
{
    switch (dtype) {
    case PP_F64: return ((const double *)p)[i];
    case PP_BF16: return (double)pp_from_bf16(((const uint16_t *)p)[i]);
    case PP_F16: return (double)pp_from_f16(((const uint16_t *)p)[i]);
    default: return (double)((const float *)p)[i];
    }
}

static double off(const void *got, const double *want, int64_t n, int dtype)
{
    double e = 0, scale = 1;
    for (int64_t i = 0; i < n; i++) {
        scale = fmax(scale, fabs(want[i]));
        e = fmax(e, fabs(value(got, i, dtype) - want[i]));
    }
    return e / scale;
}

/* Rounds `in` too, to what the type holds. */
static void to_type(void *out, double *in, int64_t n, int dtype)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == PP_F64)
            ((double *)out)[i] = in[i];
        else if (dtype == PP_F32)
            ((float *)out)[i] = (float)in[i];
        else
            ((uint16_t *)out)[i] =
                dtype == PP_BF16 ? pp_to_bf16((float)in[i]) : pp_to_f16((float)in[i]);
        in[i] = value(out, i, dtype);
    }
}

/* Whose products are over the samples of a call: conv_merged.h and conv_winograd.c. */
static int shares_blocks(const PpConvShape *s)
{
    if (s->dtype == PP_F32 && s->c >= 180 && s->in[0] * s->in[1] < 100)
        return 1;
    return s->dtype == PP_F32 && s->spatial == 2 && s->c / s->group >= 16 &&
           s->m / s->group >= 16 && s->kernel[0] == 3 && s->kernel[1] == 3 && s->stride[0] == 1;
}

/* Takes each element away as it comes: what is left of y is of no use to whoever comes back. */
static void take(const PpPart *of, const void *const *in, void *const *out)
{
    const int64_t *size = in[0];                        /* channels, elements, bytes of one */
    char *y = out[0], *taken = out[1];
    unsigned char *times = out[2];
    for (int64_t n = of->sample; n < of->sample_end; n++)
        for (int64_t c = of->channel; c < of->channel_end; c++)
            for (int64_t j = of->first; j < of->end; j++) {
                int64_t at = (n * size[0] + c) * size[1] + j;
                memcpy(taken + at * size[2], y + at * size[2], (size_t)size[2]);
                memset(y + at * size[2], 0xff, (size_t)size[2]);
                times[at]++;
            }
}

/* What follows in the caches sees the bits that it would see afterwards, each once. */
static int follows(const PpConvShape *s, int threads, const void *x, const void *w, const void *y,
                   int64_t rows, int64_t n, size_t bytes)
{
    int64_t size[3] = {s->m, n / rows / s->m, (int64_t)bytes};
    char *at = calloc((size_t)n, bytes), *taken = calloc((size_t)n, bytes);
    unsigned char *times = calloc((size_t)n, 1);
    PpConv *c = pp_conv_open(s, threads);
    pp_conv_forward_then(c, rows, x, w, at,
                         &(PpFollow){take, (const void *const[]){size},
                                     (void *const[]){at, taken, times}, NULL});
    int good = !memcmp(taken, y, (size_t)n * bytes);
    for (int64_t i = 0; i < n; i++)
        good &= times[i] == 1;
    pp_conv_close(c);
    free(at), free(taken), free(times);
    return good;
}

/* What a formula says, element by element; the one that is being tried. */
static struct { PpAfter of; const float *y; int64_t channels, size; } formula;
static float by_formula(float y, int64_t channel, int64_t at)
{
    const PpAfter *a = &formula.of;
    float s = y + (a->bias ? a->bias[channel] : a->plus);
    if (a->sum)
        s = s + a->sum[at];
    if (a->scale != 0) {
        float t = s * a->scale;
        t = t + a->shift;
        t = t >= 1 ? 1 : t;
        return s * (t <= 0 ? 0 : t);
    }
    s = s <= a->low ? a->low : s;
    return s >= a->high ? a->high : s;
}

static void by_parts(const PpPart *of, const void *const *in, void *const *out)
{
    (void)in, (void)out;
    for (int64_t n = of->sample; n < of->sample_end; n++)
        for (int64_t c = of->channel; c < of->channel_end; c++)
            for (int64_t j = of->first; j < of->end; j++) {
                int64_t at = (n * formula.channels + c) * formula.size + j;
                formula.of.out[at] = by_formula(formula.y[at], c, at);
            }
}

/* A formula gives the bits of what it stands for, where the result stands or elsewhere, over the sum
 * as well; y: the result that nothing follows. */
static int computes(const PpConvShape *s, int threads, const void *x, const void *w, const float *y,
                    int64_t rows, int64_t n)
{
    static const struct { int bias, sum, place; float plus, low, high, scale; } kinds[] = {
        {1, 0, 0, 0, 0, INFINITY, 0},       {1, 1, 1, 0, 0, 1.5f, 0},
        {1, 1, 2, 0, -INFINITY, INFINITY, 0}, {1, 0, 1, 0, -0.25f, 0.5f, 0},
        {0, 1, 0, -0.0f, 0, INFINITY, 0},   {0, 0, 0, 0.5f, 0, 0, 1 / 6.0f},
        {1, 1, 2, 0, 0, 0, 0.2f},
    };
    float *want = calloc((size_t)n, 4), *at = calloc((size_t)n, 4), *other = calloc((size_t)n, 4),
          *sum = calloc((size_t)n, 4), *bias = calloc((size_t)s->m, 4);
    PpConv *c = pp_conv_open(s, threads);
    int good = 1;
    for (int64_t i = 0; i < s->m; i++)
        bias[i] = i % 5 ? (float)uniform() : -0.0f;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int64_t i = 0; i < n; i++)
            sum[i] = i % 7 ? (float)uniform() : i % 2 ? NAN : -0.0f;
        formula.channels = s->m, formula.size = n / rows / s->m, formula.y = at;
        formula.of = (PpAfter){kinds[k].bias ? bias : NULL, kinds[k].sum ? sum : NULL, want,
                               kinds[k].plus, kinds[k].low, kinds[k].high, kinds[k].scale, 0.5f};
        for (int64_t i = 0; i < n; i++)
            want[i] = by_formula(y[i], i / formula.size % s->m, i);
        formula.of.out = kinds[k].place == 0 ? at : kinds[k].place == 1 ? other : sum;
        pp_conv_forward_then(c, rows, x, w, at, &(PpFollow){by_parts, NULL, NULL, &formula.of});
        good &= !memcmp(formula.of.out, want, (size_t)n * 4);
    }
    pp_conv_close(c);
    free(want), free(at), free(other), free(sum), free(bias);
    return good;
}

static int one(const PpConvShape *shape, int dtype, int *bits)
{
    enum { ROWS = 5 };
    PpConvShape s = *shape;
    s.dtype = dtype;
    int64_t nx = ROWS * s.c, ny = ROWS * s.m, nw = s.m * s.c / s.group;
    for (int i = 0; i < s.spatial; i++) {
        s.out[i] =
            (s.in[i] + s.pad_begin[i] + s.pad_end[i] - s.dilation[i] * (s.kernel[i] - 1) - 1) /
                s.stride[i] +
            1;
        nx *= s.in[i], ny *= s.out[i], nw *= s.kernel[i];
    }
    double *x = calloc((size_t)nx, 8), *y = calloc((size_t)ny, 8), *w = calloc((size_t)nw, 8),
           *dy = calloc((size_t)ny, 8), *dx = calloc((size_t)nx, 8), *dw = calloc((size_t)nw, 8);
    void *fx = calloc((size_t)nx, 8), *fy = calloc((size_t)ny, 8), *fw = calloc((size_t)nw, 8),
         *fdy = calloc((size_t)ny, 8), *fdx = calloc((size_t)nx, 8), *fdw = calloc((size_t)nw, 8);
    void *again = calloc((size_t)(nx + ny + nw), 8);
    for (int64_t i = 0; i < nx; i++)
        x[i] = uniform();
    for (int64_t i = 0; i < nw; i++)
        w[i] = uniform();
    for (int64_t i = 0; i < ny; i++)
        dy[i] = uniform();
    to_type(fx, x, nx, dtype), to_type(fw, w, nw, dtype), to_type(fdy, dy, ny, dtype);
    Naive v = {x, w, dy, y, dx, dw};
    naive(&s, ROWS, &v);
    PpConv *c = pp_conv_open(&s, 1);
    pp_conv_forward(c, ROWS, fx, fw, fy);
    pp_conv_backward_data(c, ROWS, fdy, fw, fdx);
    pp_conv_backward_weight(c, ROWS, fx, fdy, fdw, 0);
    /* of half types one rounding more, but not of the weights' gradient, which is float32 */
    int half = dtype == PP_BF16 || dtype == PP_F16, sums = half ? PP_F32 : dtype;
    double tol = dtype == PP_F64 ? 1e-13 : 1e-5,
           e = fmax(off(fy, y, ny, dtype), off(fdx, dx, nx, dtype));
    int good = e < (half ? (dtype == PP_BF16 ? 0x1p-8 : 0x1p-11) + tol : tol) &&
               off(fdw, dw, nw, sums) < tol;
    size_t size = dtype == PP_F64 ? 8 : half ? 2 : 4, size_dw = dtype == PP_F64 ? 8 : 4;
    /* more threads: the same bits; and for fewer rows, and accumulated sample by sample, where
     * samples do not share a block */
#ifdef _OPENMP
    omp_set_num_threads(3);
#endif
    PpConv *c3 = pp_conv_open(&s, 3);
    int rows = shares_blocks(&s) ? ROWS : ROWS - 1;
    pp_conv_forward(c3, rows, fx, fw, again);
    *bits &= !memcmp(again, fy, (size_t)(ny / ROWS * rows) * size);
    pp_conv_backward_data(c3, rows, fdy, fw, again);
    *bits &= !memcmp(again, fdx, (size_t)(nx / ROWS * rows) * size);
    pp_conv_backward_weight(c3, ROWS, fx, fdy, again, 0);
    *bits &= !memcmp(again, fdw, (size_t)nw * size_dw);
    /* of each sample by itself, wherever it lay among the others */
    for (int64_t n = 0; n < ROWS && !shares_blocks(&s); n++) {
        size_t in = (size_t)(nx / ROWS) * size, out = (size_t)(ny / ROWS) * size;
        pp_conv_forward(c, 1, (char *)fx + (size_t)n * in, fw, again);
        *bits &= !memcmp(again, (char *)fy + (size_t)n * out, out);
        pp_conv_backward_data(c, 1, (char *)fdy + (size_t)n * out, fw, again);
        *bits &= !memcmp(again, (char *)fdx + (size_t)n * in, in);
    }
    for (int64_t n = 0; n < ROWS; n++)
        pp_conv_backward_weight(c3, 1, (char *)fx + (size_t)(n * nx / ROWS) * size,
                                (char *)fdy + (size_t)(n * ny / ROWS) * size, again, n > 0);
    good &= off(again, dw, nw, sums) < tol;
    *bits &= shares_blocks(&s) || !memcmp(again, fdw, (size_t)nw * size_dw);
    good &= follows(&s, 1, fx, fw, fy, ROWS, ny, size) &&
            follows(&s, 3, fx, fw, fy, ROWS, ny, size) &&
            (shares_blocks(&s) || follows(&s, 3, fx, fw, fy, 1, ny / ROWS, size));
    good &= dtype != PP_F32 || (computes(&s, 1, fx, fw, fy, ROWS, ny) &&
                                computes(&s, 3, fx, fw, fy, ROWS, ny));
    pp_conv_close(c3);
    pp_conv_close(c);
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
    free(x), free(y), free(w), free(dy), free(dx), free(dw), free(fx), free(fy), free(fw),
        free(fdy), free(fdx), free(fdw), free(again);
    return good;
}

/* Scratch is shared by what opens with one library; one that cannot be had is said, and nothing
 * else is touched. */
static void libraries(const PpConvShape *shape)
{
    PpConvShape s = *shape;
    s.dtype = PP_F32;
    for (int i = 0; i < s.spatial; i++)
        s.out[i] = s.in[i];
    PpLibrary library = {0};
    pp_library = &library;
    PpConv *one = pp_conv_open(&s, 1);
    int64_t bytes = library.bytes;
    PpConv *two = pp_conv_open(&s, 1);
    ok(one && two && bytes > 0 && library.bytes == bytes && !library.failure,
       "two convolutions of a library share its scratch");
    ok(bytes == library_conv(&s, 1) && library_conv(&s, 3) >= bytes,
       "which is known before they open");
    ok(!pp_conv_open(&s, 1 << 30) && library.failure,
       "scratch that cannot be had is a failure, not the end of the process");
    pp_library = NULL;
    pp_conv_close(one);
    pp_conv_close(two);
    pp_conv_close(NULL);
    pp_library_close(&library);
}

int main(void)
{
    // clang-format off
    static const struct { const char *what; PpConvShape s; } cases[] = {
        {"1-d",                 {.spatial = 1, .group = 1, .c = 3, .m = 5, .in = {17}, .kernel = {4}, .stride = {2}, .dilation = {1}, .pad_begin = {1}, .pad_end = {2}}},
        {"2-d 3x3 same",        {.spatial = 2, .group = 1, .c = 8, .m = 16, .in = {14, 14}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
        {"2-d 7x7 stride 2",    {.spatial = 2, .group = 1, .c = 3, .m = 8, .in = {33, 31}, .kernel = {7, 7}, .stride = {2, 2}, .dilation = {1, 1}, .pad_begin = {3, 3}, .pad_end = {3, 3}}},
        {"2-d 1x1",             {.spatial = 2, .group = 1, .c = 16, .m = 8, .in = {9, 7}, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}},
        {"2-d 1x1 stride 2",    {.spatial = 2, .group = 1, .c = 16, .m = 8, .in = {9, 7}, .kernel = {1, 1}, .stride = {2, 2}, .dilation = {1, 1}}},
        {"2-d dilated, uneven", {.spatial = 2, .group = 1, .c = 5, .m = 6, .in = {15, 12}, .kernel = {3, 2}, .stride = {1, 2}, .dilation = {2, 3}, .pad_begin = {0, 2}, .pad_end = {3, 1}}},
        {"2-d groups",          {.spatial = 2, .group = 2, .c = 16, .m = 12, .in = {8, 8}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
        {"2-d depthwise",       {.spatial = 2, .group = 8, .c = 8, .m = 16, .in = {20, 19}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
        {"2-d depthwise stride 2", {.spatial = 2, .group = 8, .c = 8, .m = 8, .in = {21, 40}, .kernel = {5, 5}, .stride = {2, 2}, .dilation = {1, 1}, .pad_begin = {2, 2}, .pad_end = {2, 2}}},
        {"2-d depthwise small",  {.spatial = 2, .group = 3, .c = 6, .m = 12, .in = {7, 7}, .kernel = {5, 5}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {2, 2}, .pad_end = {2, 2}}},
        {"2-d depthwise wide",   {.spatial = 2, .group = 2, .c = 4, .m = 2, .in = {5, 110}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {2, 2}, .pad_begin = {2, 2}, .pad_end = {2, 2}}},
        {"2-d depthwise 3x3, borders", {.spatial = 2, .group = 3, .c = 3, .m = 3, .in = {14, 33}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
        {"2-d depthwise 3x3 stride 2, one side padded", {.spatial = 2, .group = 3, .c = 3, .m = 3, .in = {14, 37}, .kernel = {3, 3}, .stride = {2, 2}, .dilation = {1, 1}, .pad_begin = {0, 0}, .pad_end = {1, 1}}},
        {"2-d depthwise 5x5, small", {.spatial = 2, .group = 5, .c = 5, .m = 5, .in = {7, 7}, .kernel = {5, 5}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {2, 2}, .pad_end = {2, 2}}},
        {"2-d depthwise 5x5, dilated", {.spatial = 2, .group = 3, .c = 3, .m = 3, .in = {14, 19}, .kernel = {5, 5}, .stride = {1, 1}, .dilation = {2, 2}, .pad_begin = {4, 3}, .pad_end = {4, 5}}},
        {"2-d depthwise 3x3, dilated, few lines", {.spatial = 2, .group = 2, .c = 2, .m = 2, .in = {9, 33}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {2, 2}, .pad_begin = {0, 2}, .pad_end = {1, 1}}},
        {"2-d depthwise 7x7",    {.spatial = 2, .group = 2, .c = 2, .m = 2, .in = {9, 20}, .kernel = {7, 7}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {3, 3}, .pad_end = {3, 3}}},
        {"2-d depthwise 3x5, dilated, uneven padding", {.spatial = 2, .group = 2, .c = 2, .m = 2, .in = {11, 18}, .kernel = {3, 5}, .stride = {1, 1}, .dilation = {2, 3}, .pad_begin = {4, 2}, .pad_end = {0, 7}}},
        {"1-d depthwise, a block and a rest", {.spatial = 1, .group = 4, .c = 8, .m = 4, .in = {70}, .kernel = {3}, .stride = {1}, .dilation = {1}, .pad_begin = {1}, .pad_end = {1}}},
        {"3-d depthwise, input that no tap reads", {.spatial = 3, .group = 2, .c = 2, .m = 4, .in = {7, 8, 60}, .kernel = {2, 1, 2}, .stride = {3, 2, 3}, .dilation = {1, 1, 1}}},
        {"2-d 3x3 of few channels, stride 2, odd", {.spatial = 2, .group = 2, .c = 6, .m = 10, .in = {28, 37}, .kernel = {3, 3}, .stride = {2, 2}, .dilation = {1, 1}, .pad_begin = {1, 0}, .pad_end = {0, 2}}},
        {"2-d 3x3 of few channels, lines by 7", {.spatial = 2, .group = 3, .c = 15, .m = 9, .in = {14, 21}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 2}, .pad_end = {1, 0}}},
        {"2-d patches of 8",    {.spatial = 2, .group = 1, .c = 3, .m = 32, .in = {32, 32}, .kernel = {8, 8}, .stride = {8, 8}, .dilation = {1, 1}}},
        {"2-d wide padding",    {.spatial = 2, .group = 1, .c = 2, .m = 3, .in = {2, 2}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {3, 3}, .pad_begin = {5, 5}, .pad_end = {5, 5}}},
        {"2-d large",           {.spatial = 2, .group = 1, .c = 32, .m = 32, .in = {40, 40}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
        {"2-d 3x3 minimal, odd sides", {.spatial = 2, .group = 1, .c = 17, .m = 35, .in = {13, 11}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}},
        {"2-d 3x3 minimal, wide, groups, no padding", {.spatial = 2, .group = 2, .c = 40, .m = 32, .in = {6, 75}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}}},
        {"2-d 3x3 minimal, uneven padding", {.spatial = 2, .group = 1, .c = 70, .m = 16, .in = {9, 36}, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {2, 0}, .pad_end = {0, 2}}},
        {"2-d 1x1 small image, large weights", {.spatial = 2, .group = 1, .c = 184, .m = 180, .in = {6, 7}, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}},
        {"2-d 3x3 small image, large weights", {.spatial = 2, .group = 2, .c = 180, .m = 90, .in = {11, 9}, .kernel = {3, 3}, .stride = {2, 2}, .dilation = {1, 1}, .pad_begin = {1, 0}, .pad_end = {0, 1}}},
        {"2-d 1x1, images beside each other", {.spatial = 2, .group = 1, .c = 196, .m = 193, .in = {10, 10}, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}},
        {"2-d 1x1, four images beside each other and one, groups", {.spatial = 2, .group = 2, .c = 16, .m = 560, .in = {14, 15}, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}},
        {"2-d 1x1 of one column", {.spatial = 2, .group = 1, .c = 300, .m = 40, .in = {1, 1}, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}},
        {"2-d 1x1, several images in a vector", {.spatial = 2, .group = 1, .c = 70, .m = 29, .in = {3, 3}, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}},
        {"3-d",                 {.spatial = 3, .group = 1, .c = 3, .m = 4, .in = {6, 7, 9}, .kernel = {3, 2, 3}, .stride = {1, 2, 1}, .dilation = {2, 1, 1}, .pad_begin = {1, 0, 1}, .pad_end = {2, 1, 1}}},
    };
    // clang-format on
    int bits = 1;
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        ok(one(&cases[i].s, PP_F32, &bits) && one(&cases[i].s, PP_F64, &bits) &&
               one(&cases[i].s, PP_BF16, &bits) && one(&cases[i].s, PP_F16, &bits),
           cases[i].what);
    libraries(&cases[1].s);
    ok(bits, "the same bits for fewer rows, for three threads, and sample by sample");
    printf("1..%d\n", number);
    return failed;
}
