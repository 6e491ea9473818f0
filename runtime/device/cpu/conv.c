/*
 * conv.c - convolutions of 1 to 3 dimensions, any stride, dilation, padding, groups; forward,
 * gradient of the data (which is ConvTranspose's forward), gradient of the weights (samples added
 * in order).
 *
 * Each sample is computed by itself, in a fixed order, so bits depend neither on the rows of a
 * microbatch nor on the threads; threads share out samples.  What conv_winograd.c and conv_merged.h
 * take is computed over the samples of a call.  bf16 and f16 are summed in float32; of them the
 * weights' gradient is float32 (pp.h).  Scratch memory is one block for all convolutions of a
 * PpLibrary, as large as the largest needs.
 */
#include "core/core.h"
#include "core/number.h"
#include "device/cpu/cpu.h"
#include "device/cpu/conv_narrow.h"
#include "device/cpu/gemm.h"
#include "device/library.h"

#include <stdlib.h>
#include <string.h>

_Thread_local PpLibrary *pp_library;

/* ---- which line of an image each line of a row of gathered columns is read from ---- */

/* A tap, and output lines [line, line + lines). */
typedef struct {
    int64_t kd, kh, kw, line, lines;
} TapLines;

static TapLines tap_lines(const PpConv *v, int64_t k, int64_t line, int64_t lines)
{
    return (TapLines){k / (v->kernel[1] * v->kernel[2]), k / v->kernel[2] % v->kernel[1],
                      k % v->kernel[2], line, lines};
}

/* Output lines one after the other: no division for each. */
typedef struct {
    int64_t d, h;
} LineAt;
static LineAt first_line(const PpConv *v, const TapLines *t)
{
    return (LineAt){t->line / v->out[1], t->line % v->out[1]};
}

/* Where the tap reads for the output line, and on to the next: an input's line, from its column 0
 * on; -1: outside of it. */
static int64_t next_line(const PpConv *v, const TapLines *t, LineAt *at)
{
    int64_t id = at->d * v->stride[0] + t->kd * v->dilation[0] - v->pad[0],
            ih = at->h * v->stride[1] + t->kh * v->dilation[1] - v->pad[1];
    if (++at->h == v->out[1])
        at->h = 0, at->d++;
    return id < 0 || id >= v->in[0] || ih < 0 || ih >= v->in[1] ? -1
                                                                : (id * v->in[1] + ih) * v->in[2];
}

/* The input's column of output 0. */
static int64_t tap_column(const PpConv *v, const TapLines *t)
{
    return t->kw * v->dilation[2] - v->pad[2];
}

/* ---- the element types ---- */

/* What conv_depthwise.h takes of the direct ones: float32's alone. */
#ifdef PP_DEPTHWISE
static int f32_slides_forward(const PpConv *v, int64_t n, const float *x, const float *w, float *y,
                              const Then *then)
{
    if (v->way.depthwise)
        depthwise_forward(v, n, x, w, y, then);
    return v->way.depthwise;
}

static int f32_slides_data(const PpConv *v, const float *dy, const float *w, float *dx, float *room)
{
    int fits = v->way.depthwise && v->stride[1] == 1;
    if (fits)
        depthwise_data(v, dy, w, dx, room);
    return fits;
}
#else
#define f32_slides_forward(...) 0
#define f32_slides_data(...) 0
#endif
#define f64_slides_forward(...) 0
#define f64_slides_data(...) 0

#define T float
#define S float
#define SUM_RESULT 0
#define NAME(x) f32_##x
#include "conv_body.h"
#include "conv_merged.h"
#undef T
#undef S
#undef NAME
#define T double
#define S double
#define NAME(x) f64_##x
#include "conv_body.h"
#undef T
#undef S
#undef SUM_RESULT
#undef NAME
#define HALF
#define T uint16_t
#define S float
#define SUM_RESULT PP_F32
#define NAME(x) bf16_##x
#include "conv_body.h"
#undef NAME
#define NAME(x) f16_##x
#include "conv_body.h"

/* What the processor decides beside the shape. */
static void choose_loops(PpConv *v)
{
#ifdef PP_DEPTHWISE
    v->way.depthwise = v->way.direct && depthwise_fits(v);
    v->way.narrow = narrow_fits(v);
#endif
    (void)v;
}

/* Outputs of tap k of the last dimension that read inside the input. */
static void bound_taps(PpConv *v)
{
    v->edge.hi = v->edge.lo + v->kernel[2];
    for (int64_t k = 0; k < v->kernel[2]; k++) {
        int64_t first = k * v->dilation[2] - v->pad[2], step = v->stride[2],
                lo = first >= 0 ? 0 : (-first + step - 1) / step;
        int64_t hi = v->in[2] - first <= 0 ? 0 : (v->in[2] - first + step - 1) / step;
        v->edge.lo[k] = lo < v->out[2] ? lo : v->out[2];
        v->edge.hi[k] = hi < v->out[2] ? hi : v->out[2];
        if (v->edge.hi[k] < v->edge.lo[k])
            v->edge.hi[k] = v->edge.lo[k];
    }
}

static int grow_scratch(PpLibrary *l, int64_t bytes)
{
    if (bytes <= l->scratch_bytes)
        return 1;
    free(l->scratch);
    l->bytes -= l->scratch_bytes;
    l->scratch_bytes = 0;
    l->scratch = aligned_alloc(PP_ALIGN, (size_t)bytes);
    if (!l->scratch)
        return 0;
    l->scratch_bytes = bytes;
    l->bytes += bytes;
    return 1;
}

static int list_masks(PpConv *v)
{
#ifdef PP_DEPTHWISE
    if (v->way.depthwise || v->way.narrow)
        return depthwise_open(v);
#endif
    (void)v;
    return 1;
}

int pp_conv_size(PpConv *v, const PpConvShape *s)
{
    if (!memcmp(&v->shape, s, sizeof *s))
        return 1;
    v->shape = *s;
    conv_of_shape(v, s);
    choose_loops(v);
    if (!v->edge.lo)
        v->edge.lo = calloc((size_t)(2 * v->kernel[2] + 1), sizeof *v->edge.lo);
    if (v->edge.lo && (!v->way.direct || list_taps(v)) && list_masks(v) &&
        grow_scratch(v->library, conv_scratch(v, v->threads))) {
        bound_taps(v);
        return 1;
    }
    v->library->failure = "no memory for a convolution's scratch";
    return 0;
}

PpConv *pp_conv_open(const PpConvShape *s, int threads)
{
    PpConv *v = calloc(1, sizeof *v);
    if (v) {
        v->threads = threads > 0 ? threads : 1;
        v->library = pp_library ? pp_library : &v->own;
    } else if (pp_library) {
        pp_library->failure = "no memory for a convolution";
    }
    if (v && pp_conv_size(v, s))
        return v;
    pp_conv_close(v);
    return NULL;
}

void pp_conv_close(PpConv *v)
{
    if (!v)
        return;
    pp_library_close(&v->own);
    free(v->planes.at);
    free(v->edge.lo);
    free(v->edge.masks);
    free(v);
}

void pp_library_close(PpLibrary *l)
{
    free(l->scratch);
    *l = (PpLibrary){0};
}

/* Samples are shared out when there are enough; else the products inside one sample are. */
static int team(const PpConv *v, int64_t rows)
{
    int n = v->threads;
    if (team_most() < n) /* half of a compound has half of the threads */
        n = team_most();
    return rows >= n ? n : 1;
}

/* Scratch of the thread that asks, in a team of so many. */
static char *scratch_of(const PpConv *v, int members)
{
    return v->library->scratch + v->scratch.bytes * (members > 1 ? team_thread() : 0);
}

/* The functions of an element type, of one sample each. */
typedef void Sample(const PpConv *v, int64_t n, const void *a, const void *b, void *result,
                    char *scratch);
typedef struct {
    void (*forward)(const PpConv *v, int64_t n, const void *x, const void *w, void *y,
                    const Then *then, char *scratch);
    Sample *data, *weight;
} Functions;

static const Functions *functions(const PpConv *v)
{
    static const Functions f32 = {f32_forward, f32_data, f32_weight},
                           f64 = {f64_forward, f64_data, f64_weight},
                           bf16 = {bf16_forward, bf16_data, bf16_weight},
                           f16 = {f16_forward, f16_data, f16_weight};
    switch (v->dtype) {
    case PP_F64: return &f64;
    case PP_BF16: return &bf16;
    case PP_F16: return &f16;
    default: return &f32;
    }
}

/* What conv_narrow.h takes, of one sample. */
static void narrow_image(const PpConv *v, int64_t n, const ConvUse *of)
{
#ifdef PP_DEPTHWISE
    int64_t in = v->c * v->in_size, out = v->m * v->out_size;
    narrow_sample(v, of->data, n, (const float *)of->x + n * (of->data ? out : in), of->w,
                  (float *)of->y + n * (of->data ? in : out), &of->then);
#else
    (void)v, (void)n, (void)of;
#endif
}

/* Of all samples. */
static void image(const PpConv *v, const ConvUse *of)
{
    const int data = of->data;
    const int64_t rows = of->rows;
    const int narrow = v->way.narrow && (!data || v->stride[1] == 1),
              turns = !narrow && rows > 1 && v->merged > 1;
    if (v->way.winograd && !narrow) {
        winograd_image(v, of, (float *)(void *)v->library->scratch);
        return;
    }
    const int64_t step = turns ? v->merged : 1, count = (rows + step - 1) / step;
    const int members = team(v, count);
#pragma omp parallel for num_threads(members) schedule(static) if (members > 1)
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = step * i;
        char *scratch = scratch_of(v, members);
        if (narrow)
            narrow_image(v, n, of);
        else if (turns)
            (data ? merged_data : merged_forward)(v, n, of, scratch);
        else if (data)
            functions(v)->data(v, n, of->x, of->w, of->y, scratch);
        else
            functions(v)->forward(v, n, of->x, of->w, of->y, &of->then, scratch);
    }
}

void pp_conv_forward(PpConv *v, int64_t rows, const void *x, const void *w, void *y)
{
    image(v, &(ConvUse){.rows = rows, .x = x, .w = w, .y = y});
}

void pp_conv_forward_then(PpConv *v, int64_t rows, const void *x, const void *w, void *y,
                          const PpFollow *of)
{
    ConvUse use = {.rows = rows, .x = x, .w = w, .y = y, .then = {*of, v->shape.length}};
    if (v->dtype != PP_F32)
        use.then.of.after = NULL;
    image(v, &use);
}

void pp_conv_backward_data(PpConv *v, int64_t rows, const void *dy, const void *w, void *dx)
{
    image(v, &(ConvUse){.data = 1, .rows = rows, .x = dy, .w = w, .y = dx});
}

/* Samples are added in order, or those of a call first. */
void pp_conv_backward_weight(PpConv *v, int64_t rows, const void *x, const void *dy, void *dw,
                             int accumulate)
{
    if (!accumulate)
        memset(dw, 0, (size_t)(v->m * v->cg * v->taps) * (v->dtype == PP_F64 ? 8 : 4));
    if (v->way.winograd)
        winograd_weight(v, rows, x, dy, dw, (float *)(void *)v->library->scratch);
    else if (v->merged > 1 && rows > 1)
        merged_weight(v, rows, x, dy, dw, v->library->scratch);
    else
        for (int64_t n = 0; n < rows; n++)
            functions(v)->weight(v, n, x, dy, dw, v->library->scratch);
}
