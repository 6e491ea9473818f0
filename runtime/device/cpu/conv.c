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
#include "api/pp_half.h"
#include "core/core.h"
#include "device/cpu/conv.h"
#include "device/library.h"

#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { COL_BYTES = 512 << 10, DIRECT_CHANNELS = 4 };

_Thread_local PpLibrary *pp_library;

static void bf16_widen(float *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = pp_from_bf16(from[i]);
}

static void bf16_narrow(uint16_t *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = pp_to_bf16(from[i]);
}

static void f16_widen(float *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = pp_from_f16(from[i]);
}

static void f16_narrow(uint16_t *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = pp_to_f16(from[i]);
}

#define T float
#define S float
#define NAME(x) f32_##x
#define GEMM pp_sgemm
#define GEMM_SUM pp_sgemm
#include "conv_body.h"
#include "conv_merged.h"
#undef T
#undef S
#undef NAME
#undef GEMM
#undef GEMM_SUM
#define T double
#define S double
#define NAME(x) f64_##x
#define GEMM pp_dgemm
#define GEMM_SUM pp_dgemm
#include "conv_body.h"
#undef T
#undef S
#undef NAME
#undef GEMM
#undef GEMM_SUM
#define HALF
#define T uint16_t
#define S float
#define NAME(x) bf16_##x
#define GEMM pp_bgemm
#define GEMM_SUM pp_bsgemm
#include "conv_body.h"
#undef NAME
#undef GEMM
#undef GEMM_SUM
#define NAME(x) f16_##x
#define GEMM pp_hgemm
#define GEMM_SUM pp_hsgemm
#include "conv_body.h"

/* Shape in three dimensions, sizes, and how many output lines make a block. */
static void normalise(PpConv *v, const PpConvShape *s)
{
    int lead = 3 - s->spatial;
    v->dtype = s->dtype;
    v->group = s->group;
    v->c = s->c;
    v->m = s->m;
    v->cg = s->c / s->group;
    v->mg = s->m / s->group;
    v->taps = v->in_size = v->out_size = 1;
    v->pointwise = 1;
    for (int i = 0; i < 3; i++) {
        int k = i - lead;
        v->in[i] = k < 0 ? 1 : s->in[k];
        v->out[i] = k < 0 ? 1 : s->out[k];
        v->kernel[i] = k < 0 ? 1 : s->kernel[k];
        v->stride[i] = k < 0 ? 1 : s->stride[k];
        v->dilation[i] = k < 0 ? 1 : s->dilation[k];
        v->pad[i] = k < 0 ? 0 : s->pad_begin[k];
        v->taps *= v->kernel[i];
        v->in_size *= v->in[i];
        v->out_size *= v->out[i];
        v->pointwise &=
            v->kernel[i] == 1 && v->stride[i] == 1 && v->pad[i] == 0 && v->in[i] == v->out[i];
    }
    v->direct = v->cg <= DIRECT_CHANNELS && v->mg <= DIRECT_CHANNELS && v->group > 1 &&
                v->in_size > 0 && v->out_size > 0;
    v->lines = v->out[0] * v->out[1];
    int64_t line_bytes = v->cg * v->taps * v->out[2] * (s->dtype == PP_F64 ? 8 : 4);
    v->block =
        line_bytes > 0 && COL_BYTES / line_bytes < v->lines ? COL_BYTES / line_bytes : v->lines;
    if (v->block < 1)
        v->block = 1;
    if (v->pointwise)
        v->block = v->lines;
    v->room_at = v->pointwise ? 0 : align_up(line_bytes * v->block);
    if (v->direct) {
        measure_planes(v);
        v->room_at = align_up(v->planes.room * (s->dtype == PP_F64 ? 8 : 4));
    }
    v->scratch_bytes = v->room_at;
    v->merged = 1;
    v->winograd = winograd_fits(v);
    if (v->winograd) {
        v->scratch_bytes = winograd_bytes(v);
        return;
    }
    v->merged = merged_samples(v);
    if (v->merged > 1)
        v->scratch_bytes = merged_bytes(v);
    if (s->dtype != PP_BF16 && s->dtype != PP_F16)
        return;
    int64_t in = v->c * v->in_size, out = v->m * v->out_size, weights = v->m * v->cg * v->taps;
    if (v->direct)
        v->scratch_bytes += align_up((in + out + weights) * (int64_t)sizeof(float));
    else if (!v->pointwise)
        v->scratch_bytes += align_up(in * (int64_t)sizeof(float));
}

/* Outputs of tap k of the last dimension that read inside the input. */
static void bound_taps(PpConv *v)
{
    v->hi = v->lo + v->kernel[2];
    for (int64_t k = 0; k < v->kernel[2]; k++) {
        int64_t first = k * v->dilation[2] - v->pad[2], step = v->stride[2],
                lo = first >= 0 ? 0 : (-first + step - 1) / step;
        int64_t hi = v->in[2] - first <= 0 ? 0 : (v->in[2] - first + step - 1) / step;
        v->lo[k] = lo < v->out[2] ? lo : v->out[2];
        v->hi[k] = hi < v->out[2] ? hi : v->out[2];
        if (v->hi[k] < v->lo[k])
            v->hi[k] = v->lo[k];
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

PpConv *pp_conv_open(const PpConvShape *s, int threads)
{
    PpConv *v = calloc(1, sizeof *v);
    if (v) {
        normalise(v, s);
        v->threads = threads > 0 ? threads : 1;
        v->lo = calloc((size_t)(2 * v->kernel[2] + 1), sizeof *v->lo);
        v->library = pp_library ? pp_library : &v->own;
    }
    if (v && v->lo && (!v->direct || list_taps(v)) &&
        grow_scratch(v->library, v->scratch_bytes * (v->winograd ? 1 : v->threads))) {
        bound_taps(v);
        return v;
    }
    if (pp_library)
        pp_library->failure = "no memory for a convolution's scratch";
    pp_conv_close(v);
    return NULL;
}

void pp_conv_close(PpConv *v)
{
    if (!v)
        return;
    pp_library_close(&v->own);
    free(v->planes.at);
    free(v->lo);
    free(v);
}

void pp_library_close(PpLibrary *l)
{
    free(l->scratch);
    *l = (PpLibrary){0};
}

static int thread_number(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Samples are shared out when there are enough; else the products inside one sample are. */
static int team(const PpConv *v, int64_t rows)
{
    int n = v->threads;
#ifdef _OPENMP
    if (omp_get_max_threads() < n) /* half of a compound has half of the threads */
        n = omp_get_max_threads();
#endif
    return rows >= n ? n : 1;
}

/* Turns of several samples are shared out in the same way. */
static void each_turn(const PpConv *v, int64_t rows, int data, const float *a, const float *w,
                      float *result)
{
    int members = team(v, (rows + v->merged - 1) / v->merged);
#pragma omp parallel for num_threads(members) schedule(static) if (members > 1)
    for (int64_t n = 0; n < rows; n += v->merged)
        (data ? merged_data : merged_forward)(
            v, n, rows, a, w, result,
            v->library->scratch + v->scratch_bytes * (members > 1 ? thread_number() : 0));
}

/* The functions of an element type, of one sample each. */
typedef void Sample(const PpConv *v, int64_t n, const void *a, const void *b, void *result,
                    char *scratch);
typedef struct {
    Sample *forward, *data, *weight;
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

static void each_sample(const PpConv *v, Sample *of, int64_t rows, const void *a, const void *b,
                        void *result)
{
    int members = team(v, rows);
#pragma omp parallel for num_threads(members) schedule(static) if (members > 1)
    for (int64_t n = 0; n < rows; n++)
        of(v, n, a, b, result,
           v->library->scratch + v->scratch_bytes * (members > 1 ? thread_number() : 0));
}

void pp_conv_forward(PpConv *v, int64_t rows, const void *x, const void *w, void *y)
{
    if (v->winograd)
        winograd_image(v, 0, rows, x, w, y, (float *)(void *)v->library->scratch);
    else if (v->merged > 1 && rows > 1)
        each_turn(v, rows, 0, x, w, y);
    else
        each_sample(v, functions(v)->forward, rows, x, w, y);
}

void pp_conv_backward_data(PpConv *v, int64_t rows, const void *dy, const void *w, void *dx)
{
    if (v->winograd)
        winograd_image(v, 1, rows, dy, w, dx, (float *)(void *)v->library->scratch);
    else if (v->merged > 1 && rows > 1)
        each_turn(v, rows, 1, dy, w, dx);
    else
        each_sample(v, functions(v)->data, rows, dy, w, dx);
}

/* Samples are added in order, or those of a call first. */
void pp_conv_backward_weight(PpConv *v, int64_t rows, const void *x, const void *dy, void *dw,
                             int accumulate)
{
    if (!accumulate)
        memset(dw, 0, (size_t)(v->m * v->cg * v->taps) * (v->dtype == PP_F64 ? 8 : 4));
    if (v->winograd)
        winograd_weight(v, rows, x, dy, dw, (float *)(void *)v->library->scratch);
    else if (v->merged > 1 && rows > 1)
        merged_weight(v, rows, x, dy, dw, v->library->scratch);
    else
        for (int64_t n = 0; n < rows; n++)
            functions(v)->weight(v, n, x, dy, dw, v->library->scratch);
}
