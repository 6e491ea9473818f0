/*
 * pool_cuda.cu - pools without indices by cuDNN, where it was there at build (PP_WITH_CUDNN).  In:
 * a shape and how many planes. Out: true when cuDNN took it; else nothing was done, and the
 * caller's own kernel has to.
 *
 * cuDNN divides an average by the whole window or by its places inside, and knows no rounding up:
 * windows that reach beyond the padding are left to the own kernel, and so is uneven padding.
 * Descriptors are made when a shape is first seen and stay. So is the handle: where kernels wait
 * for other ranks (pp_cuda_waits) that is too late, and own kernels do all pools.
 */
#include "api/pp_cuda_calls.h"

#ifdef PP_WITH_CUDNN
#include <vector>

#include "cudnn_shape.h"

namespace {

struct Pool {
    PpPoolShape shape;
    int64_t rows, planes;
    bool able;
    cudnnPoolingDescriptor_t window;
    cudnnTensorDescriptor_t x, y;
};

/* One per host thread: a rank's. */
struct Pools {
    cudnnHandle_t handle = nullptr;
    std::vector<Pool> made;
    ~Pools() {
        for (Pool &p : made) {
            if (p.window)
                cudnnDestroyPoolingDescriptor(p.window);
            if (p.x)
                cudnnDestroyTensorDescriptor(p.x);
            if (p.y)
                cudnnDestroyTensorDescriptor(p.y);
        }
        if (handle)
            cudnnDestroy(handle);
    }
};
thread_local Pools pools;

bool fine(cudnnStatus_t e) { return e == CUDNN_STATUS_SUCCESS; }

bool set_window(cudnnPoolingDescriptor_t w, const PpPoolShape &s) {
    const cudnnPoolingMode_t mode = s.kind == PP_POOL_MAX ? CUDNN_POOLING_MAX_DETERMINISTIC
                                    : s.kind == PP_POOL_INSIDE
                                        ? CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
                                        : CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING;
    int kernel[3], pad[3], stride[3];
    const int n = cudnn_spatial(s.spatial);
    for (int i = 0; i < n; i++) {
        kernel[i] = cudnn_at(s.spatial, s.kernel, i, 1);
        pad[i] = cudnn_at(s.spatial, s.pad, i, 0);
        stride[i] = cudnn_at(s.spatial, s.stride, i, 1);
    }
    return fine(cudnnSetPoolingNdDescriptor(w, mode, CUDNN_PROPAGATE_NAN, n, kernel, pad, stride));
}

/* All windows lie within the padded plane, and there are as many as fit: rounded down. */
bool rounds_down(const PpPoolShape &s) {
    for (int i = 0; i < s.spatial; i++)
        if ((s.in[i] + 2 * s.pad[i] - s.kernel[i]) / s.stride[i] + 1 != s.out[i] ||
            s.pad[i] >= s.kernel[i])
            return false;
    return true;
}

bool same(const PpPoolShape &a, const PpPoolShape &b)
{
    bool is = a.dtype == b.dtype && a.spatial == b.spatial && a.kind == b.kind;
    for (int i = 0; i < a.spatial; i++)
        is = is && a.in[i] == b.in[i] && a.out[i] == b.out[i] && a.kernel[i] == b.kernel[i] &&
             a.stride[i] == b.stride[i] && a.pad[i] == b.pad[i];
    return is;
}

/* cuDNN sees samples and channels, as it is used to. */
Pool &pool_of(const PpPoolShape *s, int64_t rows, int64_t planes) {
    for (Pool &p : pools.made)
        if (same(p.shape, *s) && p.rows == rows && p.planes == planes)
            return p;
    Pool p = {};
    p.shape = *s;
    p.rows = rows;
    p.planes = planes;
    p.able = rows > 0 && planes > 0 && planes % rows == 0 && planes < INT32_MAX &&
             rounds_down(*s) && fine(cudnnCreatePoolingDescriptor(&p.window)) &&
             fine(cudnnCreateTensorDescriptor(&p.x)) && fine(cudnnCreateTensorDescriptor(&p.y)) &&
             set_window(p.window, *s) &&
             fine(cudnn_set_tensor(p.x, s->dtype, rows, planes / rows, s->spatial, s->in)) &&
             fine(cudnn_set_tensor(p.y, s->dtype, rows, planes / rows, s->spatial, s->out));
    pools.made.push_back(p);
    return pools.made.back();
}

} // namespace

bool pp_cuda_pool_forward(const PpCtx *c, const PpPoolShape *s, int64_t planes, const void *x,
                          void *y)
{
    if (pp_cuda_waits)
        return false;
    Pool &p = pool_of(s, c->rows, planes);
    if (!p.able || (!pools.handle && !fine(cudnnCreate(&pools.handle))) ||
        !fine(cudnnSetStream(pools.handle, static_cast<cudaStream_t>(c->stream))))
        return false;
    const float one = 1, zero = 0;
    const double one2 = 1, zero2 = 0;
    const bool twice = s->dtype == PP_F64;
    PP_TIMED("cudnnPoolingForward", static_cast<cudaStream_t>(c->stream));
    p.able = fine(cudnnPoolingForward(pools.handle, p.window,
                                      twice ? static_cast<const void *>(&one2) : &one, p.x, x,
                                      twice ? static_cast<const void *>(&zero2) : &zero, p.y, y));
    if (!p.able)
        cudaGetLastError(); /* what cuDNN tried is not the next launch's error */
    return p.able;
}

#else

bool pp_cuda_pool_forward(const PpCtx *, const PpPoolShape *, int64_t, const void *, void *)
{
    return false;
}

#endif
