/*
 * conv_body.h - the body of conv.c for one element type: T and NAME(x) are defined by the includer,
 * and S, the type of sums, as SUM_RESULT is in products.  Where T is a half type (HALF), sums are of
 * float and rounded once, when all that belongs to them is added.
 *
 * A sample's convolution is a matrix product over blocks of output lines: col[K][lines * width], K
 * = channels of a group x kernel taps, is gathered from the input (im2col) for as many lines as
 * stay in the second-level cache. Groups of few channels (depthwise) go without a product:
 * conv_direct.h, conv_narrow.h.
 */

/* One row of col, from the channel x of the input. */
static void NAME(gather_row)(const PpConv *v, const T *x, const TapLines *t, T *col)
{
    int64_t ow = v->out[2], lo = v->edge.lo[t->kw], hi = v->edge.hi[t->kw], step = v->stride[2];
    LineAt line = first_line(v, t);
    for (int64_t l = 0; l < t->lines; l++, col += ow) {
        int64_t at = next_line(v, t, &line);
        if (at < 0) {
            memset(col, 0, (size_t)ow * sizeof(T));
            continue;
        }
        const T *row = x + at + tap_column(v, t);
        for (int64_t j = 0; j < lo; j++)
            col[j] = 0;
        if (step == 1)
            memcpy(col + lo, row + lo, (size_t)(hi - lo) * sizeof(T));
        else if (step == 2) /* vectors of every other one */
            for (int64_t j = lo; j < hi; j++)
                col[j] = row[2 * j];
        else
            for (int64_t j = lo; j < hi; j++)
                col[j] = row[j * step];
        for (int64_t j = hi; j < ow; j++)
            col[j] = 0;
    }
}

/* The reverse: adds one row of col back into the input's gradient. */
static void NAME(scatter_row)(const PpConv *v, S *x, const TapLines *t, const S *col)
{
    int64_t ow = v->out[2], lo = v->edge.lo[t->kw], hi = v->edge.hi[t->kw];
    LineAt line = first_line(v, t);
    for (int64_t l = 0; l < t->lines; l++, col += ow) {
        int64_t at = next_line(v, t, &line);
        if (at < 0)
            continue;
        S *row = x + at + tap_column(v, t);
        for (int64_t j = lo; j < hi; j++)
            row[j * v->stride[2]] += col[j];
    }
}

/* pb: from a row of col to the next */
static void NAME(gather)(const PpConv *v, const T *x, int64_t line, int64_t lines, int64_t pb,
                         T *col)
{
    for (int64_t c = 0; c < v->cg; c++, x += v->in_size)
        for (int64_t k = 0; k < v->taps; k++, col += pb) {
            const TapLines t = tap_lines(v, k, line, lines);
            NAME(gather_row)(v, x, &t, col);
        }
}

static void NAME(scatter)(const PpConv *v, S *x, int64_t line, int64_t lines, int64_t pb,
                          const S *col)
{
    for (int64_t c = 0; c < v->cg; c++, x += v->in_size)
        for (int64_t k = 0; k < v->taps; k++, col += pb) {
            const TapLines t = tap_lines(v, k, line, lines);
            NAME(scatter_row)(v, x, &t, col);
        }
}

#ifndef HALF
#include "device/cpu/conv_direct.h"
#endif

/* Sample n.  A pointwise one is cut into pieces of a length at which the result is in the caches
   when it is complete. */
static void NAME(forward_pieces)(const PpConv *v, int64_t n, const T *x, const T *w, T *y,
                                 const Then *then)
{
    int64_t piece = v->mg <= v->out_size ? PIECE : v->out_size;
    int members = team_most();
    (void)members; /* built without OpenMP */
#pragma omp parallel for collapse(2) num_threads(members) schedule(static) if (members > 1)
    for (int64_t g = 0; g < v->group; g++)
        for (int64_t at = 0; at < v->out_size; at += piece) {
            int64_t len = v->out_size - at < piece ? v->out_size - at : piece;
            const After after = after_from(v, then, n, g * v->mg, at);
            const PpGemm product = {.type = v->dtype,
                                    .m = v->mg,
                                    .n = len,
                                    .k = v->cg,
                                    .a = w + g * v->mg * v->cg,
                                    .lda = v->cg,
                                    .b = x + g * v->cg * v->in_size + at,
                                    .ldb = v->in_size,
                                    .c = y + g * v->mg * v->out_size + at,
                                    .ldc = v->out_size};
            if (!gemm_after(&product, &after))
                run_then(then, n, 1, g * v->mg, v->mg, at, len);
        }
}

static void NAME(forward_sample)(const PpConv *v, int64_t n, const T *x, const T *w, T *y,
                                 const Then *then, T *col)
{
    int64_t K = v->cg * v->taps;
    for (int64_t g = 0; g < v->group; g++)
        for (int64_t line = 0; line < v->lines.all; line += v->lines.at_once) {
            int64_t lines = v->lines.all - line < v->lines.at_once ? v->lines.all - line
                                                                   : v->lines.at_once,
                    pb = lines * v->out[2];
            NAME(gather)(v, x + g * v->cg * v->in_size, line, lines, pb, col);
            const After after = after_from(v, then, n, g * v->mg, line * v->out[2]);
            const PpGemm product = {.type = v->dtype,
                                    .m = v->mg,
                                    .n = pb,
                                    .k = K,
                                    .a = w + g * v->mg * K,
                                    .lda = K,
                                    .b = col,
                                    .ldb = pb,
                                    .c = y + g * v->mg * v->out_size + line * v->out[2],
                                    .ldc = v->out_size};
            if (!gemm_after(&product, &after))
                run_then(then, n, 1, g * v->mg, v->mg, line * v->out[2], pb);
        }
}

/* room: beyond col, for sums that are not of the result's type. */
static void NAME(data_sample)(const PpConv *v, const T *dy, const T *w, T *dx, S *col, S *room)
{
    int64_t K = v->cg * v->taps;
#ifdef HALF
    S *sums = room;
#else
    S *sums = dx;
    (void)room;
#endif
    if (!v->way.pointwise)
        memset(sums, 0, (size_t)(v->c * v->in_size) * sizeof(S));
    for (int64_t g = 0; g < v->group; g++)
        for (int64_t line = 0; line < v->lines.all; line += v->lines.at_once) {
            int64_t lines = v->lines.all - line < v->lines.at_once ? v->lines.all - line
                                                                   : v->lines.at_once,
                    pb = lines * v->out[2];
            PpGemm product = {.type = v->dtype,
                              .ta = 1,
                              .m = K,
                              .n = pb,
                              .k = v->mg,
                              .a = w + g * v->mg * K,
                              .lda = K,
                              .b = dy + g * v->mg * v->out_size + line * v->out[2],
                              .ldb = v->out_size,
                              .c = dx + g * v->cg * v->in_size,
                              .ldc = pb};
            if (!v->way.pointwise) {
                product.result = SUM_RESULT;
                product.c = col;
            }
            pp_gemm(&product);
            if (!v->way.pointwise)
                NAME(scatter)(v, sums + g * v->cg * v->in_size, line, lines, pb, col);
        }
#ifdef HALF
    if (!v->way.pointwise)
        half_round(v->dtype, sums, v->c * v->in_size, dx);
#endif
}

static void NAME(weight_sample)(const PpConv *v, const T *x, const T *dy, S *dw, T *col)
{
    int64_t K = v->cg * v->taps;
    for (int64_t g = 0; g < v->group; g++)
        for (int64_t line = 0; line < v->lines.all; line += v->lines.at_once) {
            int64_t lines = v->lines.all - line < v->lines.at_once ? v->lines.all - line
                                                                   : v->lines.at_once,
                    pb = lines * v->out[2];
            const T *xg = x + g * v->cg * v->in_size, *b = xg;
            if (!v->way.pointwise) {
                NAME(gather)(v, xg, line, lines, pb, col);
                b = col;
            }
            pp_gemm(&(PpGemm){.type = v->dtype,
                              .result = SUM_RESULT,
                              .tb = 1,
                              .m = v->mg,
                              .n = K,
                              .k = pb,
                              .a = dy + g * v->mg * v->out_size + line * v->out[2],
                              .lda = v->out_size,
                              .b = b,
                              .ldb = pb,
                              .adds = 1,
                              .c = dw + g * v->mg * K,
                              .ldc = K});
        }
}

/* ---- one sample; scratch: col, then room for what is not of type T ---- */

#ifdef HALF
/* Groups of few channels: as float, of operands that are converted whole.  What is NULL is made. */
static void NAME(direct_half)(const PpConv *v, const T *x, const T *w, const T *y, T *result,
                              float *dw, char *scratch)
{
    int64_t in = v->c * v->in_size, out = v->m * v->out_size, weights = v->m * v->cg * v->taps;
    float *planes = (float *)(void *)scratch, *fx = (float *)(void *)(scratch + v->scratch.room_at),
          *fy = fx + in, *fw = fy + out;
    if (x)
        half_widen(v->dtype, x, in, fx);
    if (y)
        half_widen(v->dtype, y, out, fy);
    if (w)
        half_widen(v->dtype, w, weights, fw);
    if (!w) {
        f32_direct_weight(v, fx, fy, dw, planes);
    } else if (!y) {
        f32_direct_forward(v, 0, fx, fw, fy, &(Then){.length = {{0}}}, planes);
        half_round(v->dtype, fy, out, result);
    } else {
        f32_direct_data(v, fy, fw, fx, planes);
        half_round(v->dtype, fx, in, result);
    }
}
#endif

static void NAME(forward)(const PpConv *v, int64_t n, const void *x, const void *w, void *y,
                          const Then *then, char *scratch)
{
    T *out = (T *)y + n * v->m * v->out_size;
    const T *in = (const T *)x + n * v->c * v->in_size;
    if (v->way.pointwise && !v->way.direct) {
        NAME(forward_pieces)(v, n, in, w, out, then);
        return;
    }
    if (!v->way.direct) {
        NAME(forward_sample)(v, n, in, w, out, then, (T *)(void *)scratch);
        return;
    }
#ifdef HALF
    NAME(direct_half)(v, in, w, NULL, out, NULL, scratch);
    run_then(then, n, 1, 0, v->m, 0, v->out_size);
#else
    NAME(direct_forward)(v, n, in, w, out, then, (T *)(void *)scratch);
#endif
}

static void NAME(data)(const PpConv *v, int64_t n, const void *dy, const void *w, void *dx,
                       char *scratch)
{
    T *out = (T *)dx + n * v->c * v->in_size;
    const T *in = (const T *)dy + n * v->m * v->out_size;
    if (!v->way.direct) {
        NAME(data_sample)
        (v, in, w, out, (S *)(void *)scratch, (S *)(void *)(scratch + v->scratch.room_at));
        return;
    }
#ifdef HALF
    NAME(direct_half)(v, NULL, w, in, out, NULL, scratch);
#else
    NAME(direct_data)(v, in, w, out, (T *)(void *)scratch);
#endif
}

static void NAME(weight)(const PpConv *v, int64_t n, const void *x, const void *dy, void *dw,
                         char *scratch)
{
    const T *in = (const T *)x + n * v->c * v->in_size,
            *out = (const T *)dy + n * v->m * v->out_size;
    if (!v->way.direct)
        NAME(weight_sample)(v, in, out, dw, (T *)(void *)scratch);
#ifdef HALF
    else
        NAME(direct_half)(v, in, NULL, out, NULL, dw, scratch);
#else
    else
        NAME(direct_weight)(v, in, out, dw, (T *)(void *)scratch);
#endif
}
