/*
 * conv_cudnn.cu - convolutions by cuDNN, where it was there at build (PP_WITH_CUDNN).  In: a shape
 * whose padding is the same on both sides; out: the algorithms cuDNN expects to be the fastest, of
 * those that give the same bits every time.
 *
 * float32 is computed as float32 unless pp_cuda_tf32 allows TF32; products of bf16 and f16 are
 * exact, and summed in float32: no algorithm is taken that transforms them first.  Their weights'
 * gradient, which is float32, cuDNN's functions have only in the operands' type: our kernels make
 * it.  The workspace is what the chosen algorithms need for all rows; fewer rows (microbatches
 * differ by one, and the last may be smaller still) are computed by the same ones.
 *
 * An algorithm runs once, on zeros, before it is chosen: cuDNN proposes some that it then refuses
 * to run, and what it loads or compiles for one is there before the first step.  What cuDNN does
 * not take (a shape, a device) is no error: own kernels do.
 */
#include "conv_cuda.h"

#ifdef PP_WITH_CUDNN
#include <algorithm>
#include <cudnn.h>
#include <vector>

/* cuDNN 8 has no categories. */
#ifndef CUDNN_STATUS_CATEGORY
#define CUDNN_STATUS_CATEGORY(e)                                                                   \
    ((e) == CUDNN_STATUS_ARCH_MISMATCH ? CUDNN_STATUS_NOT_SUPPORTED : (e))
#endif

/* ---- shapes as cuDNN wants them: of two spatial dimensions or three, 1-d as 2-d of height one ---- */

static cudnnDataType_t cudnn_type(int dtype)
{
    switch (dtype) {
    case PP_F64: return CUDNN_DATA_DOUBLE;
    case PP_BF16: return CUDNN_DATA_BFLOAT16;
    case PP_F16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
    }
}

static bool cudnn_half(int dtype) { return dtype == PP_BF16 || dtype == PP_F16; }

/* In which sums are added up. */
static cudnnDataType_t cudnn_sum_type(int dtype)
{
    return dtype == PP_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

static int cudnn_spatial(int spatial) { return spatial < 2 ? 2 : spatial; }

/* Element i of cudnn_spatial() of them. */
static int cudnn_at(int spatial, const int64_t *of, int i, int missing) {
    const int k = i - (cudnn_spatial(spatial) - spatial);
    return k < 0 ? missing : static_cast<int>(of[k]);
}

static bool pp_cuda_ok(cudnnStatus_t e, const char *call, const char *file, int line) {
    if (e != CUDNN_STATUS_SUCCESS)
        pp_cuda_note(call, cudnnGetErrorString(e), file, line);
    return e == CUDNN_STATUS_SUCCESS;
}
#define PP_DNN(call) pp_cuda_ok((call), #call, __FILE__, __LINE__)

/* cuDNN has nothing for it, which is no error; any other failure is kept. */
static bool not_for_cudnn(cudnnStatus_t e, const char *call, int line) {
    if (e == CUDNN_STATUS_SUCCESS)
        return false;
    if (CUDNN_STATUS_CATEGORY(e) != CUDNN_STATUS_NOT_SUPPORTED &&
        CUDNN_STATUS_CATEGORY(e) != CUDNN_STATUS_BAD_PARAM)
        pp_cuda_ok(e, call, __FILE__, line);
    return true;
}
#define PP_DNN_TAKES(call) (!not_for_cudnn((call), #call, __LINE__))

/* Row-major, [rows, channels, extent...]. */
static bool set_tensor(cudnnTensorDescriptor_t t, const PpConvShape &s, int64_t rows,
                       int64_t channels, const int64_t *extent)
{
    int dim[5] = {static_cast<int>(rows), static_cast<int>(channels)}, stride[5];
    const int rank = 2 + cudnn_spatial(s.spatial);
    for (int i = 2; i < rank; i++)
        dim[i] = cudnn_at(s.spatial, extent, i - 2, 1);
    stride[rank - 1] = 1;
    for (int i = rank - 2; i >= 0; i--)
        stride[i] = stride[i + 1] * dim[i + 1];
    return PP_DNN_TAKES(cudnnSetTensorNdDescriptor(t, cudnn_type(s.dtype), rank, dim, stride));
}

/* Algorithms for a number of rows; a workspace below 0: there is none that fits. */
struct Choice {
    int64_t rows;
    cudnnTensorDescriptor_t x, y;
    cudnnConvolutionFwdAlgo_t forward;
    cudnnConvolutionBwdDataAlgo_t data;
    cudnnConvolutionBwdFilterAlgo_t weight;
    int64_t forward_bytes, data_bytes, weight_bytes;
};

struct CudnnConv {
    cudnnHandle_t handle;
    PpConvShape shape;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    std::vector<Choice> choice;                         /* first: all rows */
    /* of workspaces: after the first choice its own */
    int64_t limit;
};

namespace {

/* the most that one convolution may ask for */
enum : int64_t { WORKSPACE = 512 << 20 };

cudnnMathType_t math_of(const PpConvShape &s) {
    return cudnn_half(s.dtype) ? CUDNN_TENSOR_OP_MATH
           : pp_cuda_tf32      ? CUDNN_DEFAULT_MATH
                               : CUDNN_FMA_MATH;
}

bool set_convolution(CudnnConv *c) {
    const PpConvShape &s = c->shape;
    int filter[5] = {static_cast<int>(s.m), static_cast<int>(s.c / s.group)}, pad[3], stride[3],
        dilation[3];
    const int n = cudnn_spatial(s.spatial);
    for (int i = 0; i < n; i++) {
        filter[2 + i] = cudnn_at(s.spatial, s.kernel, i, 1);
        pad[i] = cudnn_at(s.spatial, s.pad_begin, i, 0);
        stride[i] = cudnn_at(s.spatial, s.stride, i, 1);
        dilation[i] = cudnn_at(s.spatial, s.dilation, i, 1);
    }
    return PP_DNN_TAKES(cudnnSetFilterNdDescriptor(c->w, cudnn_type(s.dtype), CUDNN_TENSOR_NCHW,
                                                   2 + n, filter)) &&
           PP_DNN_TAKES(cudnnSetConvolutionNdDescriptor(
               c->conv, n, pad, stride, dilation, CUDNN_CROSS_CORRELATION,
               cudnn_sum_type(s.dtype))) &&
           PP_DNN_TAKES(cudnnSetConvolutionGroupCount(c->conv, static_cast<int>(s.group))) &&
           PP_DNN_TAKES(cudnnSetConvolutionMathType(c->conv, math_of(s)));
}

/* Factors are double for double tensors and float else. */
struct Factor {
    float single;
    double twice;
    explicit Factor(int n) : single(static_cast<float>(n)), twice(n) {}
    const void *of(const PpConvShape &s) const
    {
        return s.dtype == PP_F64 ? static_cast<const void *>(&twice) : &single;
    }
};

/* Operands and result: x, w, y of forward; dy, w, dx; x, dy, dw. */
struct Call {
    const void *first, *second;
    void *result;
    int accumulate;
};

cudnnStatus_t call(const CudnnConv *c, const Choice &a, cudnnConvolutionFwdAlgo_t algo, void *work,
                   int64_t bytes, const Call &of)
{
    const Factor one(1), before(of.accumulate);
    return cudnnConvolutionForward(c->handle, one.of(c->shape), a.x, of.first, c->w, of.second,
                                   c->conv, algo, work, static_cast<size_t>(bytes),
                                   before.of(c->shape), a.y, of.result);
}

cudnnStatus_t call(const CudnnConv *c, const Choice &a, cudnnConvolutionBwdDataAlgo_t algo,
                   void *work, int64_t bytes, const Call &of)
{
    const Factor one(1), before(of.accumulate);
    return cudnnConvolutionBackwardData(c->handle, one.of(c->shape), c->w, of.second, a.y, of.first,
                                        c->conv, algo, work, static_cast<size_t>(bytes),
                                        before.of(c->shape), a.x, of.result);
}

cudnnStatus_t call(const CudnnConv *c, const Choice &a, cudnnConvolutionBwdFilterAlgo_t algo,
                   void *work, int64_t bytes, const Call &of)
{
    const Factor one(1), before(of.accumulate);
    return cudnnConvolutionBackwardFilter(
        c->handle, one.of(c->shape), a.x, of.first, a.y, of.second, c->conv, algo, work,
        static_cast<size_t>(bytes), before.of(c->shape), c->w, of.result);
}

cudnnStatus_t workspace(const CudnnConv *c, const Choice &a, cudnnConvolutionFwdAlgo_t algo,
                        size_t *bytes)
{
    return cudnnGetConvolutionForwardWorkspaceSize(c->handle, a.x, c->w, c->conv, a.y, algo, bytes);
}

cudnnStatus_t workspace(const CudnnConv *c, const Choice &a, cudnnConvolutionBwdDataAlgo_t algo,
                        size_t *bytes)
{
    return cudnnGetConvolutionBackwardDataWorkspaceSize(c->handle, c->w, a.y, c->conv, a.x, algo,
                                                        bytes);
}

cudnnStatus_t workspace(const CudnnConv *c, const Choice &a, cudnnConvolutionBwdFilterAlgo_t algo,
                        size_t *bytes)
{
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(c->handle, a.x, a.y, c->conv, c->w, algo,
                                                          bytes);
}

/* ---- algorithms ---- */

/* Device memory, zeros, for as long as algorithms are tried; NULL when there is no more: then they
 * are believed. */
struct Spare {
    void *p = nullptr;
    explicit Spare(int64_t bytes) {
        if (bytes > 0 && cudaMalloc(&p, static_cast<size_t>(bytes)) != cudaSuccess) {
            cudaGetLastError();
            p = nullptr;
        } else if (bytes > 0) {
            PP_CUDA(cudaMemset(p, 0, static_cast<size_t>(bytes)));
        }
    }
    ~Spare() { PP_CUDA(cudaFree(p)); }
    Spare(const Spare &) = delete;
    Spare &operator=(const Spare &) = delete;
};

/* A convolution's three tensors. */
struct Trial {
    Spare x, w, y;
    static int64_t bytes(const PpConvShape &s, int64_t n, const int64_t *extent) {
        n *= s.dtype == PP_F64 ? 8 : cudnn_half(s.dtype) ? 2 : 4;
        for (int i = 0; i < s.spatial; i++)
            n *= extent[i];
        return n;
    }
    Trial(const PpConvShape &s, int64_t rows)
        : x(bytes(s, rows * s.c, s.in)), w(bytes(s, s.m * (s.c / s.group), s.kernel)),
          y(bytes(s, rows * s.m, s.out))
    {
    }
    Call of(cudnnConvolutionFwdAlgo_t) const { return {x.p, w.p, y.p, 0}; }
    Call of(cudnnConvolutionBwdDataAlgo_t) const { return {y.p, w.p, x.p, 0}; }
    Call of(cudnnConvolutionBwdFilterAlgo_t) const { return {x.p, y.p, w.p, 0}; }
};

/* Does the algorithm fit into the limit, and run?  Its workspace, or -1.  t NULL: in a step nothing
 * is tried. */
template <class Algorithm>
int64_t usable(const CudnnConv *c, const Choice &a, Algorithm algo, const Trial *t)
{
    size_t need = 0;
    if (workspace(c, a, algo, &need) != CUDNN_STATUS_SUCCESS ||
        static_cast<int64_t>(need) > c->limit)
        return -1;
    const int64_t bytes = static_cast<int64_t>(need);
    if (!t || !t->x.p || !t->w.p || !t->y.p)
        return bytes;
    const Spare work(bytes);
    if (bytes > 0 && !work.p)
        return bytes;
    const bool takes = PP_DNN(cudnnSetStream(c->handle, nullptr)) &&
                       PP_DNN_TAKES(call(c, a, algo, work.p, bytes, t->of(algo)));
    if (!takes)
        cudaGetLastError(); /* what cuDNN tried is not the next launch's error */
    return PP_CUDA(cudaStreamSynchronize(nullptr)) && takes ? bytes : -1;
}

/* Does it add up products of the operands themselves?  The transforms of Winograd and Fourier are
 * rounded to the operands' type, which of 16 bits loses far more than the result's rounding. */
bool adds_products(cudnnConvolutionFwdAlgo_t a)
{
    return a == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
           a == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
           a == CUDNN_CONVOLUTION_FWD_ALGO_GEMM || a == CUDNN_CONVOLUTION_FWD_ALGO_DIRECT;
}
bool adds_products(cudnnConvolutionBwdDataAlgo_t a)
{
    return a == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 || a == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
}
bool adds_products(cudnnConvolutionBwdFilterAlgo_t a)
{
    return a == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 || a == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 ||
           a == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3;
}

/* The first of cuDNN's list, the expected fastest, that is deterministic, keeps to the precision
 * asked for and is usable; its workspace. */
template <class Perf, class Algorithm>
int64_t first_usable(const CudnnConv *c, const Choice &a, const Perf *perf, int n,
                     Algorithm *algorithm, const Trial *t)
{
    for (int i = 0; i < n; i++) {
        const bool half = cudnn_half(c->shape.dtype),
                   rounds = half ? !adds_products(perf[i].algo)
                                 : perf[i].mathType != CUDNN_FMA_MATH &&
                                       perf[i].mathType != CUDNN_DEFAULT_MATH && !pp_cuda_tf32;
        if (perf[i].status != CUDNN_STATUS_SUCCESS || perf[i].determinism != CUDNN_DETERMINISTIC ||
            rounds)
            continue;
        const int64_t bytes = usable(c, a, perf[i].algo, t);
        if (bytes < 0)
            continue;
        *algorithm = perf[i].algo;
        return bytes;
    }
    return -1;
}

/* What cuDNN does not have is no error here: own kernels take it. */
void ask(const CudnnConv *c, Choice *a, const Trial *t) {
    enum { MOST = 16 };
    cudnnConvolutionFwdAlgoPerf_t forward[MOST];
    cudnnConvolutionBwdDataAlgoPerf_t data[MOST];
    cudnnConvolutionBwdFilterAlgoPerf_t weight[MOST];
    int n = 0;
    if (cudnnGetConvolutionForwardAlgorithm_v7(c->handle, a->x, c->w, c->conv, a->y, MOST, &n,
                                               forward) == CUDNN_STATUS_SUCCESS)
        a->forward_bytes = first_usable(c, *a, forward, n, &a->forward, t);
    if (cudnnGetConvolutionBackwardDataAlgorithm_v7(c->handle, c->w, a->y, c->conv, a->x, MOST, &n,
                                                    data) == CUDNN_STATUS_SUCCESS)
        a->data_bytes = first_usable(c, *a, data, n, &a->data, t);
    if (!cudnn_half(c->shape.dtype) &&
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(c->handle, a->x, a->y, c->conv, c->w, MOST,
                                                      &n, weight) == CUDNN_STATUS_SUCCESS)
        a->weight_bytes = first_usable(c, *a, weight, n, &a->weight, t);
}

/* The algorithms of all rows, for these. */
void same(const CudnnConv *c, Choice *a, const Choice &all, const Trial *t) {
    a->forward = all.forward;
    a->data = all.data;
    a->weight = all.weight;
    a->forward_bytes = all.forward_bytes < 0 ? -1 : usable(c, *a, a->forward, t);
    a->data_bytes = all.data_bytes < 0 ? -1 : usable(c, *a, a->data, t);
    a->weight_bytes = all.weight_bytes < 0 ? -1 : usable(c, *a, a->weight, t);
}

/* The choice for so many rows, made when it is first asked for; NULL: not by cuDNN. */
Choice *choose(CudnnConv *c, int64_t rows, bool in_step) {
    for (Choice &a : c->choice)
        if (a.rows == rows)
            return &a;
    /* for another size cuDNN may load another kernel */
    if (in_step && pp_cuda_waits)
        return nullptr;
    Choice a = {};
    a.rows = rows;
    a.forward_bytes = a.data_bytes = a.weight_bytes = -1;
    const PpConvShape &s = c->shape;
    if (PP_DNN(cudnnCreateTensorDescriptor(&a.x)) && PP_DNN(cudnnCreateTensorDescriptor(&a.y)) &&
        set_tensor(a.x, s, rows, s.c, s.in) && set_tensor(a.y, s, rows, s.m, s.out)) {
        const Trial *t = in_step ? nullptr : new Trial(s, rows);
        if (c->choice.empty())
            ask(c, &a, t);
        else
            same(c, &a, c->choice.front(), t);
        delete t;
        c->choice.push_back(a);
        return &c->choice.back();
    }
    if (a.x)
        cudnnDestroyTensorDescriptor(a.x);
    if (a.y)
        cudnnDestroyTensorDescriptor(a.y);
    return nullptr;
}

/* Everything that the three have in common; false: not by cuDNN, and nothing was launched. */
template <class Algorithm>
bool run(cudaStream_t s, const PpCudaConv &v, int64_t rows, Algorithm Choice::*algorithm,
         int64_t Choice::*bytes, const char *name, const Call &of)
{
    CudnnConv *c = v.dnn;
    Choice *a = choose(c, rows, true);
    if (!a || a->*bytes < 0 || !PP_DNN(cudnnSetStream(c->handle, s)))
        return false;
    PP_TIMED(name, s);
    const cudnnStatus_t e = call(c, *a, a->*algorithm, v.scratch->p, a->*bytes, of);
    if (CUDNN_STATUS_CATEGORY(e) == CUDNN_STATUS_NOT_SUPPORTED) {
        a->*bytes = -1;                                 /* nor will it the next time */
        cudaGetLastError();
        return false;
    }
    pp_cuda_ok(e, name, __FILE__, __LINE__);
    return true;
}

}   // namespace

CudnnConv *conv_cudnn_open(void **handle, const PpConvShape *s, int64_t rows) {
    for (int i = 0; i < s->spatial; i++)
        if (s->pad_begin[i] != s->pad_end[i])
            return nullptr;
    cudnnHandle_t h = static_cast<cudnnHandle_t>(*handle);
    if (!h && !PP_DNN_TAKES(cudnnCreate(&h)))
        return nullptr;
    *handle = h;
    CudnnConv *c = new CudnnConv{h, *s, nullptr, nullptr, {}, WORKSPACE};
    c->choice.reserve(8);                               /* pointers into it live for a call */
    if (PP_DNN(cudnnCreateFilterDescriptor(&c->w)) &&
        PP_DNN(cudnnCreateConvolutionDescriptor(&c->conv)) && set_convolution(c) &&
        choose(c, rows, false)) {
        c->limit = conv_cudnn_bytes(c);
        /* the smaller ones of uneven microbatches */
        if (rows > 1)
            choose(c, rows - 1, false);
        return c;
    }
    conv_cudnn_close(c);
    return nullptr;
}

int64_t conv_cudnn_bytes(const CudnnConv *c) {
    const Choice &a = c->choice.front();
    return std::max({a.forward_bytes, a.data_bytes, a.weight_bytes, static_cast<int64_t>(0)});
}

void conv_cudnn_close(CudnnConv *c) {
    if (!c)
        return;
    for (Choice &a : c->choice) {
        cudnnDestroyTensorDescriptor(a.x);
        cudnnDestroyTensorDescriptor(a.y);
    }
    if (c->w)
        cudnnDestroyFilterDescriptor(c->w);
    if (c->conv)
        cudnnDestroyConvolutionDescriptor(c->conv);
    delete c;
}

void conv_cudnn_close_handle(void *handle) {
    if (handle)
        cudnnDestroy(static_cast<cudnnHandle_t>(handle));
}

bool conv_cudnn_forward(cudaStream_t s, const PpCudaConv &v, int64_t rows, const void *x,
                        const void *w, void *y)
{
    return run(s, v, rows, &Choice::forward, &Choice::forward_bytes, "cudnnConvolutionForward",
               {x, w, y, 0});
}

bool conv_cudnn_data(cudaStream_t s, const PpCudaConv &v, int64_t rows, const void *dy,
                     const void *w, void *dx)
{
    return run(s, v, rows, &Choice::data, &Choice::data_bytes, "cudnnConvolutionBackwardData",
               {dy, w, dx, 0});
}

bool conv_cudnn_weight(cudaStream_t s, const PpCudaConv &v, int64_t rows, const void *x,
                       const void *dy, void *dw, int accumulate)
{
    return run(s, v, rows, &Choice::weight, &Choice::weight_bytes, "cudnnConvolutionBackwardFilter",
               {x, dy, dw, accumulate});
}
#endif
