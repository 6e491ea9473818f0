/*
 * conv_narrow.h - convolutions of 3 x 3 taps of few channels a group (ResNeXt's, RegNet's),
 * float32, where the program is compiled for vectors of 512 bits with masks; conv.c's alone.
 *
 * As in conv_depthwise.h the input is read where it is.  What is computed at once is a vector of a
 * few lines of two output channels, and the taps of a column of the filter are in registers: so a
 * vector that is read serves up to three lines of both.  Each output is one sum: over the channels
 * of its group, in these over the columns of the filter, in these over its rows.
 *   forward   y[m][i][j] = sum over c and taps of w[m][c][t] x[c][i s - p + t][j s - p + t]
 *   data      the same with dy, m and c exchanged, the taps turned round, for a stride of 1
 */
#ifndef PP_CONV_NARROW_H
#define PP_CONV_NARROW_H

#include "device/cpu/conv_depthwise.h"
#include "device/cpu/gemm.h"

#ifdef PP_DEPTHWISE

/* Beyond so many channels a group products are the faster ones. */
enum { NARROW_TAPS = 9, NARROW_CHANNELS = 32 };

static int narrow_fits(const PpConv *v)
{
    return v->dtype == PP_F32 && v->group > 1 && !v->way.depthwise && v->in[0] == 1 &&
           v->out[0] == 1 && v->kernel[0] == 1 && v->pad[0] == 0 && v->kernel[1] == 3 &&
           v->kernel[2] == 3 && v->dilation[1] == 1 && v->dilation[2] == 1 &&
           v->stride[1] == v->stride[2] && v->stride[1] <= 2 && v->cg <= NARROW_CHANNELS &&
           v->mg <= NARROW_CHANNELS && v->out[1] >= DEPTHWISE_LINES &&
           v->out[2] >= DEPTHWISE_LEAST && v->in[1] >= DEPTHWISE_LINES &&
           v->in[2] >= DEPTHWISE_LEAST;
}

/* Of a group: filters are `next_m` apart by the channels that are written, `next_c` by those that
   are read. */
typedef struct {
    Slide slide;
    int64_t channels, next_m, next_c; /* channels that are read */
} Narrow;

/* `lines` lines of vector v, from `line` on. */
typedef struct {
    int64_t line, lines, v;
} NarrowPart;

/* A part of the channels of y that w begins with. */
typedef void NarrowLines(const Narrow *n, const float *x, const float *w, const NarrowPart *part,
                         float *y, const After *after);

/* What is known where a kernel is called: `many` channels of y at once. */
typedef struct {
    int stride, high, many, turned;
} NarrowShape;

SLIDE_INLINE void narrow(const NarrowShape s, const Narrow *n, const float *x, const float *w,
                         const NarrowPart *part, float *y, const After *after)
{
    const int stride = s.stride, high = s.high, many = s.many, turned = s.turned;
    const int64_t v = part->v;
    const __m512i evens =
                      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                  odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    const Slide *u = &n->slide;
    const int64_t first = part->line * stride - u->pad_h;
    __m512 sum[2][SLIDE_HIGH];
#pragma GCC unroll 2
    for (int m = 0; m < many; m++)
#pragma GCC unroll 8
        for (int i = 0; i < high; i++)
            sum[m][i] = _mm512_setzero_ps();
    x += first * u->w + v * stride * SLIDE_LANES - u->pad_w;
    for (int64_t c = 0; c < n->channels; c++, x += u->h * u->w, w += n->next_c)
#pragma GCC unroll 3
        for (int k = 0; k < 3; k += stride) {
            const uint32_t mask = u->mask[v * 3 + k];
            __m512 tap[2][2][3]; /* columns k and k + 1, channels, rows */
#pragma GCC unroll 2
            for (int o = 0; o < stride; o++)
#pragma GCC unroll 2
                for (int m = 0; m < many; m++)
#pragma GCC unroll 3
                    for (int t = 0; t < 3; t++)
                        if (k + o < 3)
                            tap[o][m][t] = _mm512_set1_ps(
                                w[m * n->next_m + (turned ? 8 - 3 * t - k - o : 3 * t + k + o)]);
#pragma GCC unroll 16
            for (int r = 0; r < (high - 1) * stride + 3; r++) {
                if (first + r < 0 || first + r >= u->h)
                    continue;
                const float *row = x + r * u->w + k;
                __m512 in[2];
                in[0] = in[1] = _mm512_maskz_loadu_ps((__mmask16)mask, row);
                if (stride == 2) {
                    const __m512 next =
                        _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), row + SLIDE_LANES);
                    in[1] = _mm512_permutex2var_ps(in[0], odds, next);
                    in[0] = _mm512_permutex2var_ps(in[0], evens, next);
                }
#pragma GCC unroll 2
                for (int o = 0; o < stride; o++)
#pragma GCC unroll 8
                    for (int i = 0; i < high; i++)
#pragma GCC unroll 2
                        for (int m = 0; m < many; m++) {
                            const int t = r - i * stride;
                            if (t >= 0 && t < 3 && k + o < 3)
                                sum[m][i] = _mm512_fmadd_ps(tap[o][m][t], in[o], sum[m][i]);
                        }
            }
        }
#pragma GCC unroll 2
    for (int m = 0; m < many; m++) {
        const After here = after_at(after, m, m * u->oh * u->ow);
        slide_store(u, part->lines, v, high, sum[m], y + m * u->oh * u->ow, &here);
    }
}

#define NARROW(STRIDE, HIGH, MANY, TURNED)                                                         \
    static void narrow_##STRIDE##_##HIGH##_##MANY##_##TURNED(                                      \
        const Narrow *n, const float *x, const float *w, const NarrowPart *part, float *y,         \
        const After *after)                                                                        \
    {                                                                                              \
        narrow((NarrowShape){STRIDE, HIGH, MANY, TURNED}, n, x, w, part, y, after);                \
    }
#define NARROWS(STRIDE, TURNED)                                                                    \
    NARROW(STRIDE, 4, 1, TURNED)                                                                   \
    NARROW(STRIDE, 4, 2, TURNED) NARROW(STRIDE, 7, 1, TURNED) NARROW(STRIDE, 7, 2, TURNED)
NARROWS(1, 0)
NARROWS(2, 0)
NARROWS(1, 1)

/* By stride, or the gradient of the data; where 7 lines divide the image, 7; one or two channels.
 */
#define NARROW_ROW(STRIDE, TURNED)                                                                 \
    {                                                                                              \
        {narrow_##STRIDE##_4_1_##TURNED, narrow_##STRIDE##_4_2_##TURNED},                          \
        {                                                                                          \
            narrow_##STRIDE##_7_1_##TURNED, narrow_##STRIDE##_7_2_##TURNED                         \
        }                                                                                          \
    }
static NarrowLines *const narrow_lines[3][2][2] = {NARROW_ROW(1, 0), NARROW_ROW(2, 0),
                                                   NARROW_ROW(1, 1)};

/* A sample, lines by lines of all channels of a group; threads share out groups. */
static void narrow_sample(const PpConv *v, int data, int64_t sample, const float *x, const float *w,
                          float *y, const Then *then)
{
    const int64_t written = data ? v->cg : v->mg, filters = v->mg * v->cg * NARROW_TAPS;
    Narrow n = {slide_of(v, data), data ? v->mg : v->cg, v->cg * NARROW_TAPS, NARROW_TAPS};
    if (data) {
        n.slide.mask += slide_mask_count(v);
        n.next_m = NARROW_TAPS;
        n.next_c = v->cg * NARROW_TAPS;
    }
    const Slide *u = &n.slide;
    const int seven = u->oh % SLIDE_HIGH == 0, high = seven ? SLIDE_HIGH : DEPTHWISE_LINES;
    NarrowLines *const *lines = narrow_lines[data ? 2 : v->stride[1] - 1][seven];
    int members = team_most();
    (void)members; /* built without OpenMP */
#pragma omp parallel for num_threads(members) schedule(static) if (members > 1)
    for (int64_t g = 0; g < v->group; g++)
        for (int64_t i = 0, n_lines; i < u->oh; i += n_lines) {
            float *to = y + g * written * u->oh * u->ow + i * u->ow;
            n_lines = u->oh - i < high ? u->oh - i : high;
            const After after = after_from(v, then, sample, g * written, i * u->ow);
            for (int64_t m = 0; m < written; m += 2) {
                const After here = after_at(&after, m, m * u->oh * u->ow);
                for (int64_t k = 0; k < u->vectors; k++)
                    lines[m + 1 < written](
                        &n, x + g * n.channels * u->h * u->w, w + g * filters + m * n.next_m,
                        &(NarrowPart){i, n_lines, k}, to + m * u->oh * u->ow, &here);
            }
            if (!after.out)
                run_then(then, sample, 1, g * written, written, i * u->ow, n_lines * u->ow);
        }
}
#undef NARROW
#undef NARROWS
#undef NARROW_ROW
#endif
#endif
