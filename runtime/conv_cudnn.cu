/*
 * conv_cudnn.cu - convolutions by cuDNN, where it was there at build (PP_WITH_CUDNN).  In: a shape whose padding is the same on
 * both sides; out: the algorithms cuDNN expects to be the fastest, of those that give the same bits every time.
 *
 * float32 is computed as float32 unless pp_cuda_tf32 allows TF32.  The workspace is what the chosen algorithms need for all rows;
 * for fewer rows (a last, smaller microbatch) algorithms are chosen once more, from those that fit into it.
 */
#include "conv_cuda.h"

#ifdef PP_WITH_CUDNN
#include <algorithm>
#include <vector>

#include "cudnn_shape.h"

static bool pp_cuda_ok(cudnnStatus_t e, const char *call, const char *file, int line) {
    if (e != CUDNN_STATUS_SUCCESS)
        pp_cuda_note(call, cudnnGetErrorString(e), file, line);
    return e == CUDNN_STATUS_SUCCESS;
}
#define PP_DNN(call) pp_cuda_ok((call), #call, __FILE__, __LINE__)

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
    int64_t limit;                                      /* of later choices' workspaces */
};

namespace {

enum : int64_t { WORKSPACE = 512 << 20 };               /* the most that one convolution may ask for */

bool set_tensor(cudnnTensorDescriptor_t t, const PpConvShape &s, int64_t rows, int64_t channels, const int64_t *extent) {
    return PP_DNN(cudnn_set_tensor(t, s.dtype, rows, channels, s.spatial, extent));
}

bool set_convolution(CudnnConv *c) {
    const PpConvShape &s = c->shape;
    int filter[5] = {static_cast<int>(s.m), static_cast<int>(s.c / s.group)}, pad[3], stride[3], dilation[3];
    const int n = cudnn_spatial(s.spatial);
    for (int i = 0; i < n; i++) {
        filter[2 + i] = cudnn_at(s.spatial, s.kernel, i, 1);
        pad[i] = cudnn_at(s.spatial, s.pad_begin, i, 0);
        stride[i] = cudnn_at(s.spatial, s.stride, i, 1);
        dilation[i] = cudnn_at(s.spatial, s.dilation, i, 1);
    }
    return PP_DNN(cudnnSetFilterNdDescriptor(c->w, cudnn_type(s.dtype), CUDNN_TENSOR_NCHW, 2 + n, filter)) &&
           PP_DNN(cudnnSetConvolutionNdDescriptor(c->conv, n, pad, stride, dilation, CUDNN_CROSS_CORRELATION, cudnn_type(s.dtype))) &&
           PP_DNN(cudnnSetConvolutionGroupCount(c->conv, static_cast<int>(s.group))) &&
           PP_DNN(cudnnSetConvolutionMathType(c->conv, pp_cuda_tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH));
}

/* The first of cuDNN's list, the expected fastest, that is deterministic, keeps to the precision asked for and fits; its workspace. */
template <class Perf, class Algorithm, class Bytes>
int64_t first_fit(const Perf *perf, int n, int64_t limit, Algorithm *algorithm, Bytes bytes_of) {
    for (int i = 0; i < n; i++) {
        const bool rounds = perf[i].mathType != CUDNN_FMA_MATH && perf[i].mathType != CUDNN_DEFAULT_MATH;
        size_t bytes = 0;
        if (perf[i].status != CUDNN_STATUS_SUCCESS || perf[i].determinism != CUDNN_DETERMINISTIC || (rounds && !pp_cuda_tf32) ||
            bytes_of(perf[i].algo, &bytes) != CUDNN_STATUS_SUCCESS || static_cast<int64_t>(bytes) > limit)
            continue;
        *algorithm = perf[i].algo;
        return static_cast<int64_t>(bytes);
    }
    return -1;
}

/* What cuDNN does not have is no error here: own kernels take it. */
void ask(CudnnConv *c, Choice *a, int64_t limit) {
    enum { MOST = 16 };
    cudnnConvolutionFwdAlgoPerf_t forward[MOST];
    cudnnConvolutionBwdDataAlgoPerf_t data[MOST];
    cudnnConvolutionBwdFilterAlgoPerf_t weight[MOST];
    int n = 0;
    a->forward_bytes = a->data_bytes = a->weight_bytes = -1;
    if (cudnnGetConvolutionForwardAlgorithm_v7(c->handle, a->x, c->w, c->conv, a->y, MOST, &n, forward) == CUDNN_STATUS_SUCCESS)
        a->forward_bytes = first_fit(forward, n, limit, &a->forward, [=](cudnnConvolutionFwdAlgo_t algo, size_t *bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(c->handle, a->x, c->w, c->conv, a->y, algo, bytes);
        });
    if (cudnnGetConvolutionBackwardDataAlgorithm_v7(c->handle, c->w, a->y, c->conv, a->x, MOST, &n, data) == CUDNN_STATUS_SUCCESS)
        a->data_bytes = first_fit(data, n, limit, &a->data, [=](cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(c->handle, c->w, a->y, c->conv, a->x, algo, bytes);
        });
    if (cudnnGetConvolutionBackwardFilterAlgorithm_v7(c->handle, a->x, a->y, c->conv, c->w, MOST, &n, weight) == CUDNN_STATUS_SUCCESS)
        a->weight_bytes = first_fit(weight, n, limit, &a->weight, [=](cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes) {
            return cudnnGetConvolutionBackwardFilterWorkspaceSize(c->handle, a->x, a->y, c->conv, c->w, algo, bytes);
        });
}

/* The choice for so many rows, made when it is first asked for; NULL: an error, which is kept. */
const Choice *choose(CudnnConv *c, int64_t rows, int64_t limit) {
    for (const Choice &a : c->choice)
        if (a.rows == rows)
            return &a;
    Choice a = {};
    a.rows = rows;
    const PpConvShape &s = c->shape;
    if (PP_DNN(cudnnCreateTensorDescriptor(&a.x)) && PP_DNN(cudnnCreateTensorDescriptor(&a.y)) && set_tensor(a.x, s, rows, s.c, s.in) &&
        set_tensor(a.y, s, rows, s.m, s.out)) {
        ask(c, &a, limit);
        c->choice.push_back(a);
        return &c->choice.back();
    }
    if (a.x)
        cudnnDestroyTensorDescriptor(a.x);
    if (a.y)
        cudnnDestroyTensorDescriptor(a.y);
    return nullptr;
}

/* Everything of a call that the three have in common; NULL: not by cuDNN. */
const Choice *prepare(CudnnConv *c, cudaStream_t s, int64_t rows, int64_t Choice::*bytes) {
    const Choice *a = choose(c, rows, c->limit);
    return a && a->*bytes >= 0 && PP_DNN(cudnnSetStream(c->handle, s)) ? a : nullptr;
}

/* Factors are double for double tensors and float else. */
struct Factor {
    float single;
    double twice;
    explicit Factor(int n) : single(static_cast<float>(n)), twice(n) {}
    const void *of(const PpConvShape &s) const { return s.dtype == PP_F64 ? static_cast<const void *>(&twice) : &single; }
};

}   // namespace

CudnnConv *conv_cudnn_open(void **handle, const PpConvShape *s, int64_t rows) {
    for (int i = 0; i < s->spatial; i++)
        if (s->pad_begin[i] != s->pad_end[i])
            return nullptr;
    cudnnHandle_t h = static_cast<cudnnHandle_t>(*handle);
    if (!h && !PP_DNN(cudnnCreate(&h)))
        return nullptr;
    *handle = h;
    CudnnConv *c = new CudnnConv{h, *s, nullptr, nullptr, {}, WORKSPACE};
    c->choice.reserve(8);                               /* pointers into it live for a call */
    if (PP_DNN(cudnnCreateFilterDescriptor(&c->w)) && PP_DNN(cudnnCreateConvolutionDescriptor(&c->conv)) && set_convolution(c) &&
        choose(c, rows, WORKSPACE)) {
        c->limit = conv_cudnn_bytes(c);
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

bool conv_cudnn_forward(CudnnConv *c, const ConvScratch *work, cudaStream_t s, int64_t rows, const void *x, const void *w, void *y) {
    const Choice *a = prepare(c, s, rows, &Choice::forward_bytes);
    if (!a)
        return false;
    const Factor one(1), none(0);
    PP_TIMED("cudnn forward", s);
    PP_DNN(cudnnConvolutionForward(c->handle, one.of(c->shape), a->x, x, c->w, w, c->conv, a->forward, work->p,
                                   static_cast<size_t>(a->forward_bytes), none.of(c->shape), a->y, y));
    return true;
}

bool conv_cudnn_data(CudnnConv *c, const ConvScratch *work, cudaStream_t s, int64_t rows, const void *dy, const void *w, void *dx) {
    const Choice *a = prepare(c, s, rows, &Choice::data_bytes);
    if (!a)
        return false;
    const Factor one(1), none(0);
    PP_TIMED("cudnn data", s);
    PP_DNN(cudnnConvolutionBackwardData(c->handle, one.of(c->shape), c->w, w, a->y, dy, c->conv, a->data, work->p,
                                        static_cast<size_t>(a->data_bytes), none.of(c->shape), a->x, dx));
    return true;
}

bool conv_cudnn_weight(CudnnConv *c, const ConvScratch *work, cudaStream_t s, int64_t rows, const void *x, const void *dy, void *dw,
                       int accumulate) {
    const Choice *a = prepare(c, s, rows, &Choice::weight_bytes);
    if (!a)
        return false;
    const Factor one(1), before(accumulate);
    PP_TIMED("cudnn weight", s);
    PP_DNN(cudnnConvolutionBackwardFilter(c->handle, one.of(c->shape), a->x, x, a->y, dy, c->conv, a->weight, work->p,
                                          static_cast<size_t>(a->weight_bytes), before.of(c->shape), c->w, dw));
    return true;
}
#endif
