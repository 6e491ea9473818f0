/*
 * conv_lines.h - between lines of an image and a row of gathered columns, float32, where the
 * program is compiled for vectors of 512 bits with masks; conv_body.h's alone, which goes element
 * by element elsewhere.
 *
 * Small images have lines of 7 or 14 outputs, for which calls of memcpy and remainders of loops
 * take more than what they copy.  A vector holds 16 outputs of a line, of a stride of 2 the even
 * ones of 32 elements; what lies beside the line its mask leaves out, and it is the same for all
 * lines of a tap.
 */
#ifndef PP_CONV_LINES_H
#define PP_CONV_LINES_H

#include "device/cpu/conv.h"

/* A tap, and output lines [line, line + lines). */
typedef struct {
    int64_t kd, kh, kw, line, lines;
} TapLines;

static inline TapLines tap_lines(const PpConv *v, int64_t k, int64_t line, int64_t lines)
{
    return (TapLines){k / (v->kernel[1] * v->kernel[2]), k / v->kernel[2] % v->kernel[1],
                      k % v->kernel[2], line, lines};
}

/* Output lines one after the other: no division for each. */
typedef struct {
    int64_t d, h;
} LineAt;
static inline LineAt first_line(const PpConv *v, const TapLines *t)
{
    return (LineAt){t->line / v->out[1], t->line % v->out[1]};
}

/* Where the tap reads for the output line, and on to the next: an input's line, from its column 0
 * on; -1: outside of it. */
static inline int64_t next_line(const PpConv *v, const TapLines *t, LineAt *at)
{
    int64_t id = at->d * v->stride[0] + t->kd * v->dilation[0] - v->pad[0],
            ih = at->h * v->stride[1] + t->kh * v->dilation[1] - v->pad[1];
    if (++at->h == v->out[1])
        at->h = 0, at->d++;
    return id < 0 || id >= v->in[0] || ih < 0 || ih >= v->in[1] ? -1
                                                                : (id * v->in[1] + ih) * v->in[2];
}

/* The input's column of output 0. */
static inline int64_t tap_column(const PpConv *v, const TapLines *t)
{
    return t->kw * v->dilation[2] - v->pad[2];
}

/* Of types that go element by element. */
static inline int no_lines(const PpConv *v, const TapLines *t, const void *from, void *to)
{
    (void)v, (void)t, (void)from, (void)to;
    return 0;
}

#if defined __AVX512F__ && defined __x86_64__
#include <immintrin.h>

enum { LINE_LANES = 16, LINE_AT_ONCE = 16 };

/* Bits [lo, hi) of vector j on. */
static inline uint32_t line_mask(int64_t lo, int64_t hi, int64_t j)
{
    lo = lo > j ? lo - j : 0;
    hi = hi - j < LINE_LANES ? hi - j : LINE_LANES;
    return lo < hi ? (1u << hi) - (1u << lo) : 0;
}

/* Each bit with a zero above it. */
static inline uint32_t line_spread(uint32_t m)
{
    m = (m | m << 8) & 0x00ff00ff;
    m = (m | m << 4) & 0x0f0f0f0f;
    m = (m | m << 2) & 0x33333333;
    return (m | m << 1) & 0x55555555;
}

/* The outputs of a line from j on, as the tap reads them. */
static inline __m512 line_take(const float *from, int two, uint32_t which)
{
    if (!two)
        return _mm512_maskz_loadu_ps((__mmask16)which, from);
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(_mm512_maskz_loadu_ps((__mmask16)which, from), even,
                                  _mm512_maskz_loadu_ps((__mmask16)(which >> 16), from + 16));
}

static inline void line_add(float *to, int two, uint32_t which, __m512 x)
{
    if (!two) {
        _mm512_mask_storeu_ps(to, (__mmask16)which,
                              _mm512_add_ps(_mm512_maskz_loadu_ps((__mmask16)which, to), x));
        return;
    }
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                  high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __mmask16 lower = (__mmask16)which, upper = (__mmask16)(which >> 16);
    _mm512_mask_storeu_ps(
        to, lower, _mm512_add_ps(_mm512_maskz_loadu_ps(lower, to), _mm512_permutexvar_ps(low, x)));
    _mm512_mask_storeu_ps(
        to + 16, upper,
        _mm512_add_ps(_mm512_maskz_loadu_ps(upper, to + 16), _mm512_permutexvar_ps(high, x)));
}

/* n vectors of a line, as the tap reads them from `from` on; `last`: what there is of the last. */
static inline void take_line(const float *from, int two, const uint32_t *which, int64_t n,
                             __mmask16 last, float *to)
{
    for (int64_t i = 0; i < n; i++, to += LINE_LANES, from += LINE_LANES << two) {
        const __m512 x = line_take(from, two, which[i]);
        if (i + 1 < n)
            _mm512_storeu_ps(to, x);
        else
            _mm512_mask_storeu_ps(to, last, x);
    }
}

/* Lines that are a vector each: `in` of it are there. */
static inline void take_short(const PpConv *v, const TapLines *t, const float *x, uint32_t in,
                              float *col)
{
    const int64_t ow = v->out[2], first = tap_column(v, t);
    const int two = v->stride[2] == 2;
    const uint32_t which = two ? line_spread(in) : in;
    const __mmask16 all = (__mmask16)line_mask(0, ow, 0);
    LineAt line = first_line(v, t);
    for (int64_t l = 0; l < t->lines; l++) {
        const int64_t at = next_line(v, t, &line);
        _mm512_mask_storeu_ps(col + l * ow, all,
                              at < 0 ? _mm512_setzero_ps() : line_take(x + at + first, two, which));
    }
}

/* One row of col from a channel x; 0: of a stride that is not here. */
static inline int take_lines(const PpConv *v, const TapLines *t, const float *x, float *col)
{
    const int64_t ow = v->out[2], step = v->stride[2], first = tap_column(v, t);
    if (step > 2)
        return 0;
    if (ow <= LINE_LANES) {
        take_short(v, t, x, line_mask(v->lo[t->kw], v->hi[t->kw], 0), col);
        return 1;
    }
    for (int64_t j = 0; j < ow; j += LINE_AT_ONCE * LINE_LANES) {
        uint32_t which[LINE_AT_ONCE];
        int64_t n = 0;
        for (int64_t i = j; n < LINE_AT_ONCE && i < ow; n++, i += LINE_LANES) {
            const uint32_t in = line_mask(v->lo[t->kw], v->hi[t->kw], i);
            which[n] = step == 2 ? line_spread(in) : in;
        }
        const __mmask16 last = (__mmask16)line_mask(0, ow, j + (n - 1) * LINE_LANES);
        const uint32_t nothing[LINE_AT_ONCE] = {0};
        LineAt line = first_line(v, t);
        for (int64_t l = 0; l < t->lines; l++) {
            const int64_t at = next_line(v, t, &line);
            const float *from = x + (at < 0 ? 0 : at + first + j * step);
            const uint32_t *mask = at < 0 ? nothing : which;
            float *to = col + l * ow + j;
            if (step == 2)
                take_line(from, 1, mask, n, last, to);
            else
                take_line(from, 0, mask, n, last, to);
        }
    }
    return 1;
}

/* The reverse: a row of col is added to a channel x. */
static inline int add_lines(const PpConv *v, const TapLines *t, const float *col, float *x)
{
    const int64_t ow = v->out[2], step = v->stride[2], first = tap_column(v, t);
    if (step > 2)
        return 0;
    for (int64_t j = 0; j < ow; j += LINE_LANES) {
        const uint32_t in = line_mask(v->lo[t->kw], v->hi[t->kw], j),
                       which = step == 2 ? line_spread(in) : in;
        LineAt line = first_line(v, t);
        for (int64_t l = 0; l < t->lines; l++) {
            const int64_t at = next_line(v, t, &line);
            if (at >= 0)
                line_add(x + at + first + j * step, step == 2, which,
                         _mm512_maskz_loadu_ps((__mmask16)in, col + l * ow + j));
        }
    }
    return 1;
}
#else
#define take_lines no_lines
#define add_lines no_lines
#endif

/* By the type of what is read: all of it is done, or nothing. */
#define TAKE_LINES(v, t, x, col)                                                                   \
    _Generic((x), const float * : take_lines, default : no_lines)(v, t, x, col)
#define ADD_LINES(v, t, col, x) _Generic((x), float * : add_lines, default : no_lines)(v, t, col, x)

#endif
