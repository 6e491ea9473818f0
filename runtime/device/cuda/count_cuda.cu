/*
 * count_cuda.cu - how many rows the data leave, for products that run over these alone.  In: masks
 * in device memory; out: how many places of each are there, on the host, which gives cuBLAS its
 * sizes.
 *
 * A function asks for all masks that it knows at once: one kernel for many of them, one copy into
 * pinned memory, one event that the host waits for.  Meanwhile it lets messages go on
 * (PpCounting.meanwhile), and gives up when another rank is gone.  Sums are of whole numbers: no
 * order of additions shows.
 */
#include "api/pp_device.h"

#include <sched.h>

namespace {

/* Of one launch: they are handed over as its parameters. */
enum { MOST = 64, THREADS = 1024 };
struct Masks {
    PpMask of[MOST];
};

/* Block b: mask b. */
__global__ void __launch_bounds__(THREADS) count_masks(Masks masks, int64_t *to)
{
    const PpMask mask = masks.of[blockIdx.x];
    int64_t sum = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < mask.n; i += THREADS)
        sum += mask.at[i] != 0;
    sum = pp_block_sum<THREADS>(sum);
    if (threadIdx.x == 0)
        to[blockIdx.x] = sum;
}

void launch(cudaStream_t stream, int n, const PpMask *mask, int64_t *to)
{
    Masks some = {};
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        some.of[i] = mask[i];
        bytes += mask[i].n;
    }
    PP_WORK("count", 0, bytes);
    PP_LAUNCH(count_masks, static_cast<unsigned>(n), static_cast<unsigned>(THREADS), 0, stream,
              some, to);
}

/* False: nobody can say when it will be there. */
bool reached(const PpCounting *c)
{
    enum { SPINS = 2000 };
    for (int i = 0; c->meanwhile; i++) {
        const cudaError_t state = cudaEventQuery(c->event);
        if (state != cudaErrorNotReady)
            return PP_CUDA(state);
        cudaGetLastError();
        if (!c->meanwhile(c->of)) {
            pp_cuda_note("counts", "another rank has failed", __FILE__, __LINE__);
            return false;
        }
        if (i > SPINS)
            sched_yield();
    }
    return PP_CUDA(cudaEventSynchronize(c->event));
}

/* As many as the pinned memory holds; false: something failed. */
bool fetch(const PpCtx *ctx, int n, const PpMask *mask)
{
    const PpBlas *blas = static_cast<const PpBlas *>(ctx->blas);
    const PpCounting *c = blas->counting;
    cudaStream_t stream = static_cast<cudaStream_t>(ctx->stream);
    for (int i = 0; i < n; i += MOST)
        launch(stream, n - i < MOST ? n - i : MOST, mask + i,
               static_cast<int64_t *>(blas->list) + i);
    {
        PP_WORK("transfer", 0, n * sizeof *c->staged);
        PP_TIMED("cudaMemcpyAsync", stream);
        PP_CUDA(cudaMemcpyAsync(c->staged, blas->list, static_cast<size_t>(n) * sizeof *c->staged,
                                cudaMemcpyDeviceToHost, stream));
    }
    return PP_CUDA(cudaEventRecord(c->event, stream)) && reached(c) && !*pp_cuda_error();
}

}   // namespace

void pp_cuda_counts(const PpCtx *ctx, int n, const PpMask *mask, int64_t *const *to)
{
    const PpCounting *c = static_cast<const PpBlas *>(ctx->blas)->counting;
    for (int i = 0; i < n; i += PP_COUNTS) {
        const int some = n - i < PP_COUNTS ? n - i : PP_COUNTS;
        const bool known = fetch(ctx, some, mask + i);
        for (int k = 0; k < some; k++)                  /* after a failure nothing is multiplied */
            *to[i + k] = known ? c->staged[k] : 0;
    }
}

void pp_cuda_zeros(const PpCtx *ctx, void *at, int64_t ld, int64_t rows, int64_t columns,
                   size_t size)
{
    const cudaStream_t stream = static_cast<cudaStream_t>(ctx->stream);
    if (rows <= 0 || columns <= 0)
        return;
    const size_t high = static_cast<size_t>(rows), width = static_cast<size_t>(columns) * size,
                 pitch = static_cast<size_t>(ld) * size;
    PP_WORK("fill", 0, high * width);
    PP_TIMED("cudaMemsetAsync", stream);
    if (pitch == width || rows == 1)
        PP_CUDA(cudaMemsetAsync(at, 0, high * width, stream));
    else
        PP_CUDA(cudaMemset2DAsync(at, pitch, 0, width, high, stream));
}
