/*
 * conv_depthwise.h - depthwise convolutions in two dimensions, float32, where the program is
 * compiled for vectors of 512 bits with masks (PP_DEPTHWISE); conv.c's and conv_narrow.h's alone.
 *
 * The input is read where it is: a vector holds 16 outputs of a line, a tap's operand is a load
 * whose mask leaves out what lies beside the line, and lines that lie above or below the image are
 * passed over.  Several lines are summed at once, so that a line that is read serves all of them;
 * with a stride of 2 two vectors are read and their even and odd elements are two taps'.  Each
 * output is one sum over its taps in their order, those outside of the image left out:
 *   forward   y[i][j]  = sum over taps of w[t] x[i s - p + t d][j s - p + t d]
 *   data      the same with dy and the taps turned by 180 degrees, for a stride of 1
 * The rest, and programs for other processors, go by conv_direct.h.
 */
#ifndef PP_CONV_DEPTHWISE_H
#define PP_CONV_DEPTHWISE_H

#include "device/cpu/conv.h"

#if defined __AVX512F__ && defined __x86_64__
#define PP_DEPTHWISE

#include <immintrin.h>

/* Does the shape ask for it?  Lines that are so short, or so few, fill no vectors. */
enum { DEPTHWISE_LINES = 4, DEPTHWISE_LEAST = 6 };

static int depthwise_fits(const PpConv *v)
{
    int s = (int)v->stride[1];
    return v->way.direct && v->cg == 1 && v->mg == 1 && v->dtype != PP_F64 && v->in[0] == 1 &&
           v->out[0] == 1 && v->kernel[0] == 1 && v->pad[0] == 0 && v->stride[2] == s &&
           (s == 1 || (s == 2 && v->kernel[1] == v->kernel[2] && v->dilation[1] == 1 &&
                       v->dilation[2] == 1 && (v->kernel[1] == 3 || v->kernel[1] == 5))) &&
           v->out[1] >= DEPTHWISE_LINES && v->out[2] >= DEPTHWISE_LEAST &&
           v->in[1] >= DEPTHWISE_LINES && v->in[2] >= DEPTHWISE_LEAST;
}

enum { SLIDE_LANES = 16, SLIDE_HIGH = 7, SLIDE_AHEAD = 512 };

/* One use: an image of h x w gives one of oh x ow. */
typedef struct {
    int64_t h, w, oh, ow, kh, kw, stride, dilation[2], pad_h, pad_w, vectors;
    int64_t ahead; /* how far, in elements, what is read later is asked for */
    /* [vectors][kw]: which of 16 numbers from a tap's first on, or of 32, lie in the line */
    const uint32_t *mask;
} Slide;

/* What is known where a kernel is called: `side` x `side` taps, `apart` from each other, which is 1
   where the stride is not; how many lines are summed at once. */
typedef struct {
    int side, stride, apart, high;
} SlideShape;

/* Where sums of vector v begin.  row: the first tap of the first line, which is line `first` of x;
   taps: of 3 x 3, those of w. */
typedef struct {
    const float *row, *w;
    const __m512 *taps;
    int64_t first, v;
} SlideAt;

/* A channel of y, and what follows it. */
typedef void SlideChannel(const Slide *u, const float *x, const float *w, float *y,
                          const After *after);

#define SLIDE_INLINE static inline __attribute__((always_inline))

SLIDE_INLINE void slide_store_after(const Slide *u, int64_t lines, int64_t v, const int high,
                                    const __m512 *sum, __mmask16 last, const After *after)
{
    const After here = after_at(after, 0, v * SLIDE_LANES); /* a copy, which no store changes */
    const AfterBounds bounds = after_bounds(&here);
    const __m512 bias = after_bias(&here, &bounds, 0);
#pragma GCC unroll 8
    for (int i = 0; i < high; i++)
        if (i < lines)
            after_store(&here, &bounds, sum[i], bias, i * u->ow, last);
    if (here.scale != 0)
        after_swish(&here, lines < high ? lines : high, __builtin_popcount(last), u->ow);
}

/* `lines` lines of vector v, at most `high`, the first of which begins at y and after. */
SLIDE_INLINE void slide_store(const Slide *u, int64_t lines, int64_t v, const int high,
                              const __m512 *sum, float *y, const After *after)
{
    const int64_t left = u->ow - v * SLIDE_LANES;
    const __mmask16 last = (__mmask16)(left < SLIDE_LANES ? (1u << left) - 1 : 0xffff);
    if (after->out) {
        slide_store_after(u, lines, v, high, sum, last, after);
        return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < high; i++)
        if (i < lines)
            _mm512_mask_storeu_ps(y + v * SLIDE_LANES + i * u->ow, last, sum[i]);
}

/* The sums of the lines of a vector; `whole`, known like the shape: no line is beside the image. */
SLIDE_INLINE void slide(const SlideShape s, const int whole, const Slide *u, const SlideAt *at,
                        __m512 *sum)
{
    const int side = s.side, stride = s.stride, apart = s.apart, high = s.high;
    const int64_t first = at->first, v = at->v;
    const float *row = at->row;
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                            30),
                  odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    __mmask16 mask[SLIDE_HIGH], beyond[SLIDE_HIGH];
#pragma GCC unroll 8
    for (int k = 0; k < side; k += stride) {
        mask[k] = (__mmask16)u->mask[v * side + k];
        beyond[k] = (__mmask16)(u->mask[v * side + k] >> 16);
    }
#pragma GCC unroll 8
    for (int i = 0; i < high; i++)
        sum[i] = _mm512_setzero_ps();
#pragma GCC unroll 20
    for (int r = 0; r < (high - 1) * stride + (side - 1) * apart + 1; r++, row += u->w) {
        if (!whole && (first + r < 0 || first + r >= u->h))
            continue;
        _mm_prefetch((const char *)(row + u->ahead), _MM_HINT_T0);
        if (stride == 2)
            _mm_prefetch((const char *)(row + u->ahead + SLIDE_LANES), _MM_HINT_T0);
#pragma GCC unroll 8
        for (int k = 0; k < side; k += stride) {
            __m512 in[2];
            in[0] = in[1] = _mm512_maskz_loadu_ps(mask[k], row + k * apart);
            if (stride == 2) {
                const __m512 next = _mm512_maskz_loadu_ps(beyond[k], row + k + SLIDE_LANES);
                in[1] = _mm512_permutex2var_ps(in[0], odds, next);
                in[0] = _mm512_permutex2var_ps(in[0], evens, next);
            }
            for (int o = 0; o < stride && k + o < side; o++)
#pragma GCC unroll 8
                for (int i = 0; i < high; i++) {
                    const int t = (r - i * stride) / apart;
                    if (r >= i * stride && (r - i * stride) % apart == 0 && t < side)
                        sum[i] =
                            _mm512_fmadd_ps(side == 3 ? at->taps[t * side + k + o]
                                                      : _mm512_set1_ps(at->w[t * side + k + o]),
                                            in[o], sum[i]);
                }
        }
    }
}

/* `high` lines at a time, vector by vector; of 3 x 3 taps, which stay in registers, those lines of
   which none is beside the image without asking. */
SLIDE_INLINE void slide_channel(const SlideShape s, const Slide *u, const float *x, const float *w,
                                float *y, const After *after)
{
    enum { REGISTERS = 9 };
    const int side = s.side, stride = s.stride, high = s.high;
    __m512 taps[REGISTERS], sum[SLIDE_HIGH];
#pragma GCC unroll 9
    for (int t = 0; t < REGISTERS && side == 3; t++)
        taps[t] = _mm512_set1_ps(w[t]);
    for (int64_t i = 0; i < u->oh; i += high) {
        const int64_t first = i * stride - u->pad_h;
        const int whole = first >= 0 && first + (high - 1) * stride + (side - 1) * s.apart < u->h;
        const After here = after_at(after, 0, i * u->ow);
        const float *row = x + first * u->w - u->pad_w;
        for (int64_t v = 0; v < u->vectors; v++, row += stride * SLIDE_LANES) {
            const SlideAt at = {row, w, taps, first, v};
            if (side == 3 && whole)
                slide(s, 1, u, &at, sum);
            else
                slide(s, 0, u, &at, sum);
            slide_store(u, u->oh - i, v, high, sum, y + i * u->ow, &here);
        }
    }
}

/* The sums of DEPTHWISE_LINES lines from `line` on: any taps, any dilation, a stride of 1. */
static void slide_any_lines(const Slide *u, const float *x, const float *w, int64_t line, int64_t v,
                            __m512 *sum)
{
    const float *from = x + v * SLIDE_LANES - u->pad_w;
    const uint32_t *mask = u->mask + v * u->kw;
    for (int i = 0; i < DEPTHWISE_LINES; i++)
        sum[i] = _mm512_setzero_ps();
    for (int64_t t = 0; t < u->kh; t++)
        for (int i = 0; i < DEPTHWISE_LINES; i++) {
            int64_t at = line + i + t * u->dilation[0] - u->pad_h;
            if (at < 0 || at >= u->h)
                continue;
            const float *row = from + at * u->w;
            _mm_prefetch((const char *)(row + u->ahead), _MM_HINT_T0);
            for (int64_t k = 0; k < u->kw; k++)
                sum[i] = _mm512_fmadd_ps(
                    _mm512_set1_ps(w[t * u->kw + k]),
                    _mm512_maskz_loadu_ps((__mmask16)mask[k], row + k * u->dilation[1]), sum[i]);
        }
}

static void slide_any(const Slide *u, const float *x, const float *w, float *y, const After *after)
{
    __m512 sum[DEPTHWISE_LINES];
    for (int64_t line = 0; line < u->oh; line += DEPTHWISE_LINES)
        for (int64_t v = 0; v < u->vectors; v++) {
            const After here = after_at(after, 0, line * u->ow);
            slide_any_lines(u, x, w, line, v, sum);
            slide_store(u, u->oh - line, v, DEPTHWISE_LINES, sum, y + line * u->ow, &here);
        }
}

#define SLIDE(SIDE, STRIDE, APART, HIGH)                                                           \
    static void slide_##SIDE##_##STRIDE##_##APART##_##HIGH(                                        \
        const Slide *u, const float *x, const float *w, float *y, const After *after)              \
    {                                                                                              \
        slide_channel((SlideShape){SIDE, STRIDE, APART, HIGH}, u, x, w, y, after);                 \
    }
#define SLIDES(SIDE, STRIDE, APART) SLIDE(SIDE, STRIDE, APART, 4) SLIDE(SIDE, STRIDE, APART, 7)
SLIDES(3, 1, 1)
SLIDES(3, 2, 1)
SLIDES(3, 1, 2)
SLIDES(5, 1, 1)
SLIDES(5, 2, 1)
SLIDES(5, 1, 2)
SLIDES(7, 1, 1)

/* By taps, their distance and stride, and by how many lines at a time: 7, where these divide the
 * lines (images of 224). */
static SlideChannel *slide_of_shape(const Slide *u)
{
    static const struct {
        int64_t side, stride, apart;
        SlideChannel *four, *seven;
    } known[] = {{3, 1, 1, slide_3_1_1_4, slide_3_1_1_7}, {3, 2, 1, slide_3_2_1_4, slide_3_2_1_7},
                 {3, 1, 2, slide_3_1_2_4, slide_3_1_2_7}, {5, 1, 1, slide_5_1_1_4, slide_5_1_1_7},
                 {5, 2, 1, slide_5_2_1_4, slide_5_2_1_7}, {5, 1, 2, slide_5_1_2_4, slide_5_1_2_7},
                 {7, 1, 1, slide_7_1_1_4, slide_7_1_1_7}};
    int seven = u->oh % SLIDE_HIGH == 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (u->kh == known[i].side && u->kw == u->kh && u->stride == known[i].stride &&
            u->dilation[0] == known[i].apart && u->dilation[1] == known[i].apart)
            return seven ? known[i].seven : known[i].four;
    return slide_any;
}

static Slide slide_of(const PpConv *v, int data)
{
    Slide u = {.h = v->in[1],
               .w = v->in[2],
               .oh = v->out[1],
               .ow = v->out[2],
               .kh = v->kernel[1],
               .kw = v->kernel[2],
               .stride = v->stride[1],
               .dilation = {v->dilation[1], v->dilation[2]},
               .pad_h = v->pad[1],
               .pad_w = v->pad[2],
               .mask = v->edge.masks};
    if (data) {
        u.h = v->out[1], u.w = v->out[2], u.oh = v->in[1], u.ow = v->in[2];
        u.pad_h = (u.kh - 1) * u.dilation[0] - u.pad_h;
        u.pad_w = (u.kw - 1) * u.dilation[1] - u.pad_w;
    }
    int64_t lines = SLIDE_HIGH * u.stride * u.w; /* of the next vectors */
    u.ahead = lines > SLIDE_AHEAD ? lines : SLIDE_AHEAD;
    u.vectors = (u.ow + SLIDE_LANES - 1) / SLIDE_LANES;
    return u;
}

static int64_t slide_mask_count(const PpConv *v)
{
    return slide_of(v, 0).vectors * v->kernel[2];
}

static void slide_masks(const Slide *u, uint32_t *mask)
{
    for (int64_t i = 0; i < u->vectors * u->kw; i++) {
        int64_t at = i / u->kw * SLIDE_LANES * u->stride + i % u->kw * u->dilation[1] - u->pad_w;
        mask[i] = 0;
        for (int64_t l = 0; l < 2 * SLIDE_LANES; l++)
            if (at + l >= 0 && at + l < u->w)
                mask[i] |= UINT32_C(1) << l;
    }
}

/* Masks of both uses, one behind the other; 0: no memory. */
static int depthwise_open(PpConv *v)
{
    Slide f = slide_of(v, 0), d = slide_of(v, 1);
    int64_t n = slide_mask_count(v) + d.vectors * d.kw;
    if (n > v->edge.mask_room) {
        free(v->edge.masks);
        v->edge.masks = calloc((size_t)n, sizeof *v->edge.masks);
        v->edge.mask_room = v->edge.masks ? n : 0;
    }
    if (!v->edge.masks)
        return 0;
    slide_masks(&f, v->edge.masks);
    slide_masks(&d, v->edge.masks + slide_mask_count(v));
    return 1;
}

/* ---- one sample ---- */

static void depthwise_forward(const PpConv *v, int64_t n, const float *x, const float *w, float *y,
                              const Then *then)
{
    Slide u = slide_of(v, 0);
    SlideChannel *channel = slide_of_shape(&u);
    for (int64_t c = 0; c < v->c; c++) {
        const After after = after_from(v, then, n, c, 0);
        channel(&u, x + c * v->in_size, w + c * v->taps, y + c * v->out_size, &after);
        if (!after.out)
            run_then(then, n, 1, c, 1, 0, v->out_size);
    }
}

/* turned: room for a channel's taps */
static void depthwise_data(const PpConv *v, const float *dy, const float *w, float *dx,
                           float *turned)
{
    Slide u = slide_of(v, 1);
    SlideChannel *channel = slide_of_shape(&u);
    u.mask += slide_mask_count(v);
    for (int64_t c = 0; c < v->c; c++) {
        for (int64_t t = 0; t < v->taps; t++)
            turned[t] = w[c * v->taps + v->taps - 1 - t];
        channel(&u, dy + c * v->out_size, turned, dx + c * v->in_size, &(After){.out = NULL});
    }
}
#undef SLIDE
#undef SLIDES
#endif
#endif
