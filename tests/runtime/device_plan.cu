/* The functions of runtime_plan.h on a device: one thread walks the rows of a column, so that
   additions come in the same order and the numbers are the CPU's to the bit where products and sums
   are not contracted. */
#include "runtime/api/pp_cuda_calls.h"

namespace {

#ifndef COLUMNS
#define COLUMNS 3
#endif
constexpr int D = COLUMNS, ROWS = 4, THREADS = D < 256 ? D : 256, ONE = (D + 15) / 16 * 16;

struct Args {
    const float *in[4], *dy[2], *param;
    float *out[2], *dx[2], *grad, *stash, *saved;
    int64_t rows;
};

Args args_of(const PpCtx *c, int in, int out, int dy, int dx) {
    Args a = {};
    for (int i = 0; i < in; i++)
        a.in[i] = static_cast<const float *>(c->in[i]);
    for (int i = 0; i < out; i++)
        a.out[i] = static_cast<float *>(c->out[i]);
    for (int i = 0; i < dy; i++)
        a.dy[i] = static_cast<const float *>(c->dy[i]);
    for (int i = 0; i < dx; i++)
        a.dx[i] = static_cast<float *>(c->dx[i]);
    a.param = reinterpret_cast<const float *>(c->param);
    a.grad = reinterpret_cast<float *>(c->grad);
    a.stash = reinterpret_cast<float *>(c->stash);
    a.saved = reinterpret_cast<float *>(c->saved);
    a.rows = c->rows;
    return a;
}

#define COLUMN(d, i)                                                                               \
    for (int64_t d = threadIdx.x; d < D; d += THREADS)                                             \
        for (int64_t i = d; i < p.rows * D; i += D)

__global__ void first_forward(Args p) {
    COLUMN(d, i) {
        const float a = p.param[d], w = p.param[ONE + d];
        p.out[0][i] = p.in[0][i] * a * w;
        p.out[1][i] = p.in[0][i] + a;
    }
}

__global__ void first_input(Args p) {
    COLUMN(d, i) {
        p.saved[i] = p.dy[0][i];
        p.saved[ROWS * D + i] = p.dy[1][i];
    }
}

__global__ void first_weight(Args p, const float *dh, const float *ds) {
    COLUMN(d, i) {
        const float a = p.param[d], w = p.param[ONE + d];
        p.grad[d] += dh[i] * p.in[0][i] * w + ds[i];
        p.grad[ONE + d] += dh[i] * p.in[0][i] * a;
    }
}

__global__ void middle_forward(Args p, bool keep) {
    COLUMN(d, i) {
        p.out[0][i] = p.in[0][i] * p.in[0][i] * p.param[d];
        if (keep)
            p.stash[i] = p.in[0][i] * p.in[0][i];
    }
}

__global__ void middle_input(Args p) {
    COLUMN(d, i)
        p.dx[0][i] = p.dy[0][i] * 2 * p.in[0][i] * p.param[d];
}

__global__ void middle_weight(Args p) {
    COLUMN(d, i)
        p.grad[d] += p.dy[0][i] * p.stash[i];
}

/* One thread: the loss is one sum. */
__global__ void last_forward(Args p) {
    float sum = 0;
    for (int64_t i = 0; i < p.rows * D; i++) {
        p.out[0][i] = p.in[0][i] * p.param[i % D] + p.in[1][i];
        float e = p.out[0][i] - p.in[2][i % D * p.rows + i / D];
        sum += e * e;
    }
    *p.out[1] = sum * *p.in[3];
}

__global__ void last_input(Args p, bool keep) {
    COLUMN(d, i) {
        float e = 2 * (p.out[0][i] - p.in[2][i % D * p.rows + i / D]) * *p.in[3];
        p.dx[0][i] = e * p.param[d];
        p.dx[1][i] = e;
        if (keep)
            p.saved[i] = e;
    }
}

__global__ void last_weight(Args p, bool saved) {
    COLUMN(d, i) {
        float e =
            saved ? p.saved[i] : 2 * (p.out[0][i] - p.in[2][i % D * p.rows + i / D]) * *p.in[3];
        p.grad[d] += e * p.in[0][i];
    }
}

cudaStream_t stream_of(const PpCtx *c) { return static_cast<cudaStream_t>(c->stream); }

}   // namespace

extern "C" {
void first_forward_cuda(const PpCtx *c)
{
    PP_LAUNCH(first_forward, 1, THREADS, 0, stream_of(c), args_of(c, 1, 2, 0, 0));
}
void first_input_cuda(const PpCtx *c)
{
    PP_LAUNCH(first_input, 1, THREADS, 0, stream_of(c), args_of(c, 1, 0, 2, 0));
}
void first_weight_cuda(const PpCtx *c) {
    Args a = args_of(c, 1, 0, 0, 0);
    PP_LAUNCH(first_weight, 1, THREADS, 0, stream_of(c), a, a.saved, a.saved + ROWS * D);
}
void first_backward_cuda(const PpCtx *c) {
    Args a = args_of(c, 1, 0, 2, 0);
    PP_LAUNCH(first_weight, 1, THREADS, 0, stream_of(c), a, a.dy[0], a.dy[1]);
}
void second_forward_cuda(const PpCtx *c)
{
    PP_LAUNCH(middle_forward, 1, THREADS, 0, stream_of(c), args_of(c, 1, 1, 0, 0), true);
}
void second_infer_cuda(const PpCtx *c)
{
    PP_LAUNCH(middle_forward, 1, THREADS, 0, stream_of(c), args_of(c, 1, 1, 0, 0), false);
}
void second_input_cuda(const PpCtx *c)
{
    PP_LAUNCH(middle_input, 1, THREADS, 0, stream_of(c), args_of(c, 1, 0, 1, 1));
}
void second_weight_cuda(const PpCtx *c)
{
    PP_LAUNCH(middle_weight, 1, THREADS, 0, stream_of(c), args_of(c, 1, 0, 1, 0));
}
void second_backward_cuda(const PpCtx *c) {
    second_input_cuda(c);
    second_weight_cuda(c);
}
void last_forward_cuda(const PpCtx *c)
{
    PP_LAUNCH(last_forward, 1, 1, 0, stream_of(c), args_of(c, 4, 2, 0, 0));
}
void last_input_cuda(const PpCtx *c)
{
    PP_LAUNCH(last_input, 1, THREADS, 0, stream_of(c), args_of(c, 4, 1, 0, 2), true);
}
void last_weight_cuda(const PpCtx *c)
{
    PP_LAUNCH(last_weight, 1, THREADS, 0, stream_of(c), args_of(c, 4, 1, 0, 0), true);
}
void last_backward_cuda(const PpCtx *c) {
    Args a = args_of(c, 4, 1, 0, 2);
    PP_LAUNCH(last_input, 1, THREADS, 0, stream_of(c), a, false);
    PP_LAUNCH(last_weight, 1, THREADS, 0, stream_of(c), a, false);
}
}
