/*
 * cudnn.cpp - cuDNN's convolutions by plain loops, in the order of the handle's stream.
 *
 * The list of algorithms is what a careless caller would stumble over, best first: one that is not
 * supported, one whose sums come in any order, one that rounds to TF32, one that asks for more
 * workspace than anyone has, one that is proposed and then refuses to run; then one that is right.
 * Whoever runs another has it reported.  What is run writes all over its workspace.  Without
 * CUDNN_FMA_MATH float32 is rounded to TF32.  bf16 and f16 are summed in float32 or refused.
 */
#include "cudnn.h"
#include "../../runtime/api/pp_half.h"
#include "shim.h"

#include <cmath>
#include <cstring>
#include <set>

struct cudnnContext {
    int number = 0, device = 0;
    cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    std::vector<int> dim;                               /* dense, row-major */
};
struct cudnnFilterStruct : cudnnTensorStruct {};
struct cudnnConvolutionStruct {
    std::vector<int> pad, stride, dilation;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnMathType_t math = CUDNN_DEFAULT_MATH;
    int groups = 1;
};

namespace shim {

static std::set<cudnnContext *> &handles(void) {
    static auto *all = new std::set<cudnnContext *>;
    return *all;
}
static int numbers, descriptors;

void report_dnn_leaks(void) {
    for (const cudnnContext *h : handles())
        report(("dnn" + std::to_string(h->number)).c_str(),
               "leak: cuDNN handle %d is never destroyed", h->number);
    if (descriptors > 0)
        report("dnn descriptors", "leak: %d descriptors of cuDNN are never destroyed", descriptors);
}

static cudnnStatus_t bad(const char *name, const char *what) {
    report((std::string("dnn") + name).c_str(), "cuDNN: %s: %s", name, what);
    return CUDNN_STATUS_BAD_PARAM;
}

static bool half(cudnnDataType_t t) { return t == CUDNN_DATA_HALF || t == CUDNN_DATA_BFLOAT16; }
static size_t size_of(cudnnDataType_t t)
{
    return t == CUDNN_DATA_DOUBLE ? 8 : half(t) ? 2 : 4;
}

/* Elements of each type. */
template <class T> struct Element {
    using Bits = T;
    static double load(T x) { return static_cast<double>(x); }
    static T store(double x) { return static_cast<T>(x); }
};
struct Bf16 {
    using Bits = uint16_t;
    static double load(uint16_t x) { return static_cast<double>(pp_from_bf16(x)); }
    static uint16_t store(double x) { return pp_to_bf16(static_cast<float>(x)); }
};
struct F16 {
    using Bits = uint16_t;
    static double load(uint16_t x) { return static_cast<double>(pp_from_f16(x)); }
    static uint16_t store(double x) { return pp_to_f16(static_cast<float>(x)); }
};

static size_t bytes_of(const cudnnTensorStruct &t) {
    size_t n = size_of(t.type);
    for (int d : t.dim)
        n *= static_cast<size_t>(d);
    return n;
}

/* ---- what is asked for ---- */

enum Kind { FORWARD, DATA, FILTER };
enum : size_t { TOO_MUCH = size_t(1) << 40, SOME = 4096 };

static int winograd(Kind kind) { return kind == FORWARD ? 7 : 5; }

/* What is wrong with running it, by numbers that propose() gives; null: nothing. */
static const char *misuse(Kind kind, int algo, cudnnMathType_t math, bool of_half) {
    if (of_half && algo == winograd(kind))
        return "an algorithm that rounds its transforms to the half type";
    if (algo == (kind == FORWARD ? 4 : 0))
        return "an algorithm whose sums come in any order";
    return kind == FORWARD && algo == 1 && math == CUDNN_FMA_MATH
               ? "an algorithm that rounds to TF32"
               : nullptr;
}

static bool fits(const cudnnTensorStruct &x, const cudnnFilterStruct &w,
                 const cudnnConvolutionStruct &c, const cudnnTensorStruct &y)
{
    const size_t n = x.dim.size();
    if (n < 4 || w.dim.size() != n || y.dim.size() != n || c.pad.size() != n - 2 ||
        x.type != w.type || x.type != y.type ||
        c.compute != (half(x.type) ? CUDNN_DATA_FLOAT : x.type) || x.dim[0] != y.dim[0] ||
        x.dim[1] != w.dim[1] * c.groups || y.dim[1] != w.dim[0] || w.dim[0] % c.groups)
        return false;
    for (size_t i = 2; i < n; i++)
        if (y.dim[i] != (x.dim[i] + 2 * c.pad[i - 2] - c.dilation[i - 2] * (w.dim[i] - 1) - 1) /
                                c.stride[i - 2] +
                            1)
            return false;
    return true;
}

template <class Perf, class Algorithm>
static void propose(Kind kind, const cudnnTensorStruct &x, const cudnnConvolutionStruct &c,
                    int most, int *n, Perf *perf)
{
    struct {
        int algo;
        cudnnStatus_t status;
        cudnnDeterminism_t determinism;
        cudnnMathType_t math;
    } const all[] = {
        {1, CUDNN_STATUS_NOT_SUPPORTED, CUDNN_DETERMINISTIC, c.math},
        {winograd(kind), half(x.type) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED,
         CUDNN_DETERMINISTIC, c.math},
        {kind == FORWARD ? 4 : 0, CUDNN_STATUS_SUCCESS, CUDNN_NON_DETERMINISTIC, c.math},
        {1, CUDNN_STATUS_SUCCESS, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH},
        {2, CUDNN_STATUS_SUCCESS, CUDNN_DETERMINISTIC, c.math},
        {kind == FORWARD ? 0 : 1, CUDNN_STATUS_SUCCESS, CUDNN_DETERMINISTIC, c.math},
    };
    *n = 0;
    for (const auto &a : all)
        if (*n < most) {
            Perf p = {};
            p.algo = static_cast<Algorithm>(a.algo);
            p.status = a.status;
            p.determinism = a.determinism;
            p.mathType = a.math;
            p.time = -1;
            perf[(*n)++] = p;
        }
}

/* Half of the shapes have workspace enough for algorithm 2, which then does not run. */
static size_t workspace(Kind kind, int algo, const cudnnTensorStruct &x) {
    if (algo == 2)
        return x.dim[1] % 2 ? TOO_MUCH : SOME;
    return kind == FILTER ? SOME + static_cast<size_t>(x.dim[0]) * 256 : SOME;
}

/* ---- running ---- */

static bool touch(const void *p, size_t bytes, bool write) {
    const Allocation *x = allocation_near(p);
    const uintptr_t a = reinterpret_cast<uintptr_t>(p);
    if (!x || !x->live || a < x->base || a - x->base + bytes > x->bytes) {
        report("dnn bounds", "out of bounds: %s: %zu bytes at %p: %s", running.name.c_str(), bytes,
               p,
               describe(x && x->live && a >= x->base ? static_cast<const char *>(p) + bytes : p)
                   .c_str());
        sticky = cudaErrorIllegalAddress;
        return false;
    }
    return shadow_range(p, bytes, write, false);
}

struct Convolution {
    Kind kind;
    cudnnTensorStruct x, y;
    cudnnFilterStruct w;
    cudnnConvolutionStruct c;
    const void *first, *second;
    void *result, *work;
    size_t work_bytes;
    double beta;
};

/* Rounded as tensor cores read float32: ten bits after the point. */
static double as_read(double v, const Convolution &k) {
    if (k.x.type == CUDNN_DATA_DOUBLE || k.c.math == CUDNN_FMA_MATH || !std::isfinite(v))
        return v;
    int e;
    const double m = std::frexp(v, &e);
    return std::ldexp(std::nearbyint(m * 2048), e - 11);
}

/* Position `at` of row-major extents; into digits. */
static void digits(int64_t at, const std::vector<int> &dim, size_t first, int *to) {
    for (size_t i = dim.size(); i-- > first;) {
        to[i - first] = static_cast<int>(at % dim[i]);
        at /= dim[i];
    }
}

static int64_t volume(const std::vector<int> &dim) {
    int64_t n = 1;
    for (size_t i = 2; i < dim.size(); i++)
        n *= dim[i];
    return n;
}

/* Calls use(x, w, y) for every product of the convolution: places of its three elements. */
template <class Use> static void each_product(const Convolution &k, Use use) {
    const int64_t in = volume(k.x.dim), out = volume(k.y.dim), taps = volume(k.w.dim);
    const int mg = k.w.dim[0] / k.c.groups, cg = k.w.dim[1];
    int p[3], t[3];
    for (int64_t position = 0; position < out; position++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t from = 0;
            bool inside = true;
            digits(position, k.y.dim, 2, p);
            digits(tap, k.w.dim, 2, t);
            for (size_t i = 0; i < k.c.pad.size(); i++) {
                const int at = p[i] * k.c.stride[i] - k.c.pad[i] + t[i] * k.c.dilation[i];
                inside = inside && at >= 0 && at < k.x.dim[i + 2];
                from = from * k.x.dim[i + 2] + at;
            }
            for (int64_t n = 0; n < k.x.dim[0] && inside; n++)
                for (int m = 0; m < k.w.dim[0]; m++)
                    for (int c = 0; c < cg; c++)
                        use((n * k.x.dim[1] + m / mg * cg + c) * in + from,
                            (static_cast<int64_t>(m) * cg + c) * taps + tap,
                            (n * k.y.dim[1] + m) * out + position);
        }
}

template <class E> static void convolve(const Convolution &k) {
    using T = typename E::Bits;
    const cudnnTensorStruct &r = k.kind == FORWARD ? k.y : k.kind == DATA ? k.x : k.w;
    const T *a = static_cast<const T *>(k.first), *b = static_cast<const T *>(k.second);
    T *to = static_cast<T *>(k.result);
    std::vector<double> sum(bytes_of(r) / sizeof(T), 0.0);
    const auto read = [&](const T *p, int64_t i) { return as_read(E::load(p[i]), k); };
    each_product(k, [&](int64_t x, int64_t w, int64_t y) {
        if (k.kind == FORWARD)                          /* first, second: x, w */
            sum[static_cast<size_t>(y)] += read(a, x) * read(b, w);
        else if (k.kind == DATA)                        /* w, dy */
            sum[static_cast<size_t>(x)] += read(a, w) * read(b, y);
        else                                            /* x, dy */
            sum[static_cast<size_t>(w)] += read(a, x) * read(b, y);
    });
    for (size_t i = 0; i < sum.size(); i++)
        to[i] = E::store(k.beta == 0 ? sum[i] : sum[i] + k.beta * E::load(to[i]));
}

static void run(const Convolution &k) {
    const cudnnTensorStruct &a = k.kind == DATA ? static_cast<const cudnnTensorStruct &>(k.w) : k.x,
                            &b = k.kind == FORWARD ? k.w : k.y;
    const cudnnTensorStruct &r = k.kind == FORWARD ? k.y : k.kind == DATA ? k.x : k.w;
    if (!touch(k.first, bytes_of(a), false) || !touch(k.second, bytes_of(b), false) ||
        (k.beta != 0 && !touch(k.result, bytes_of(r), false)) ||
        !touch(k.result, bytes_of(r), true) || !touch(k.work, k.work_bytes, true))
        return;
    memset(k.work, 0xff, k.work_bytes);
    switch (k.x.type) {
    case CUDNN_DATA_DOUBLE: convolve<Element<double>>(k); break;
    case CUDNN_DATA_FLOAT: convolve<Element<float>>(k); break;
    case CUDNN_DATA_HALF: convolve<F16>(k); break;
    case CUDNN_DATA_BFLOAT16: convolve<Bf16>(k); break;
    }
}

static double factor(const void *p, cudnnDataType_t t) {
    return t == CUDNN_DATA_DOUBLE ? *static_cast<const double *>(p)
                                  : static_cast<double>(*static_cast<const float *>(p));
}

static cudnnStatus_t start(const char *name, cudnnHandle_t h, int algo, size_t needed,
                           const void *alpha, const void *beta, Convolution k)
{
    if (enter(name) != cudaSuccess)
        return CUDNN_STATUS_EXECUTION_FAILED;
    Lock lock(machine);
    if (!handles().count(h))
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (!fits(k.x, k.w, k.c, k.y))
        return bad(name, "the descriptors are no convolution");
    if (k.work_bytes < needed || factor(alpha, k.x.type) != 1)
        return bad(name, "too little workspace, or another factor than 1");
    k.beta = factor(beta, k.x.type);
    /* proposed, and refused: nothing happens, but an error is left behind */
    if (algo == 2) {
        set_error(cudaErrorInvalidValue);
        return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
    }
    if (const char *wrong = misuse(k.kind, algo, k.c.math, half(k.x.type)))
        return bad(name, wrong);
    CUstream_st *s = stream_of(h->stream);
    if (!s || (h->stream && stream_device(s) != h->device))
        return bad(name, "the stream of another device");
    const std::string label = name;
    enqueue(s, label, [k, s, label](Driver &) {
        shadow_op(label, s);
        run(k);
        return true;
    });
    return CUDNN_STATUS_SUCCESS;
}

template <class D> static cudnnStatus_t create(D **d) {
    Lock lock(machine);
    descriptors++;
    at_exit_once();
    *d = new D;
    return CUDNN_STATUS_SUCCESS;
}

template <class D> static cudnnStatus_t destroy(D *d) {
    Lock lock(machine);
    descriptors--;
    delete d;
    return CUDNN_STATUS_SUCCESS;
}

static bool all_above(const std::vector<int> &v, int least) {
    for (int n : v)
        if (n < least)
            return false;
    return !v.empty();
}

}   // namespace shim

using namespace shim;

const char *cudnnGetErrorString(cudnnStatus_t e) {
    switch (e) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_NOT_SUPPORTED_SHAPE: return "CUDNN_STATUS_NOT_SUPPORTED_SHAPE";
    case CUDNN_STATUS_ARCH_MISMATCH: return "CUDNN_STATUS_ARCH_MISMATCH";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    }
    return "CUDNN_UNKNOWN_STATUS";
}

size_t cudnnGetVersion(void) { return 91900; }

cudnnStatus_t cudnnCreate(cudnnHandle_t *h) {
    if (enter(__func__) != cudaSuccess)
        return CUDNN_STATUS_NOT_INITIALIZED;
    Lock lock(machine);
    *h = new cudnnContext;
    (*h)->number = ++numbers;
    (*h)->device = current_device;
    handles().insert(*h);
    at_exit_once();
    return CUDNN_STATUS_SUCCESS;
}

/* It waits for the device. */
cudnnStatus_t cudnnDestroy(cudnnHandle_t h) {
    Lock lock(machine);
    if (!handles().erase(h))
        return bad(__func__, "no handle, or one that was destroyed");
    drive_all(lock);
    delete h;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s) {
    Lock lock(machine);
    if (!handles().count(h))
        return bad(__func__, "no handle, or one that was destroyed");
    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *t) { return create(t); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t) { return destroy(t); }
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *w) { return create(w); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t w) { return destroy(w); }
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c)
{
    return create(c);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c)
{
    return destroy(c);
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int n,
                                         const int *dim, const int *stride)
{
    int64_t all = 1;
    if (n < 4 || n > 5)
        return bad(__func__, "4 or 5 dimensions");
    for (int i = n - 1; i >= 0; i--) {
        if (dim[i] < 1 || all > 0x7fffffff)             /* at most 2^31 - 1 elements */
            return CUDNN_STATUS_NOT_SUPPORTED;
        if (stride[i] != all)
            return bad(__func__, "the shim has dense tensors only");
        all *= dim[i];
    }
    if (all > 0x7fffffff)
        return CUDNN_STATUS_NOT_SUPPORTED;
    t->type = type;
    t->dim.assign(dim, dim + n);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t w, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int n, const int *dim)
{
    w->type = type;
    w->dim.assign(dim, dim + n);
    return format == CUDNN_TENSOR_NCHW && n >= 4 && all_above(w->dim, 1)
               ? CUDNN_STATUS_SUCCESS
               : bad(__func__, "no dense filter");
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int n, const int *pad,
                                              const int *stride, const int *dilation,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute)
{
    c->pad.assign(pad, pad + n);
    c->stride.assign(stride, stride + n);
    c->dilation.assign(dilation, dilation + n);
    c->compute = compute;
    if (!all_above(c->pad, 0))
        return CUDNN_STATUS_BAD_PARAM;
    return mode == CUDNN_CROSS_CORRELATION && all_above(c->stride, 1) && all_above(c->dilation, 1)
               ? CUDNN_STATUS_SUCCESS
               : bad(__func__, "no convolution");
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups) {
    c->groups = groups;
    return groups >= 1 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math) {
    c->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t c,
                                                     cudnnTensorDescriptor_t y, int most, int *n,
                                                     cudnnConvolutionFwdAlgoPerf_t *perf)
{
    propose<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(FORWARD, *x, *c, most, n,
                                                                      perf);
    return fits(*x, *w, *c, *y) ? CUDNN_STATUS_SUCCESS
                                : bad(__func__, "the descriptors are no convolution");
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t dy,
                                                          cudnnConvolutionDescriptor_t c,
                                                          cudnnTensorDescriptor_t dx, int most,
                                                          int *n,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *perf)
{
    propose<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(DATA, *dx, *c, most,
                                                                              n, perf);
    return fits(*dx, *w, *c, *dy) ? CUDNN_STATUS_SUCCESS
                                  : bad(__func__, "the descriptors are no convolution");
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t dw, int most, int *n,
    cudnnConvolutionBwdFilterAlgoPerf_t *perf)
{
    propose<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(FILTER, *x, *c,
                                                                                  most, n, perf);
    return fits(*x, *dw, *c, *dy) ? CUDNN_STATUS_SUCCESS
                                  : bad(__func__, "the descriptors are no convolution");
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t,
                                                      cudnnConvolutionDescriptor_t,
                                                      cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t algo, size_t *bytes)
{
    *bytes = workspace(FORWARD, algo, *x);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
    cudnnTensorDescriptor_t dx, cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes)
{
    *bytes = workspace(DATA, algo, *dx);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
    cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes)
{
    *bytes = workspace(FILTER, algo, *x);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha,
                                      cudnnTensorDescriptor_t xd, const void *x,
                                      cudnnFilterDescriptor_t wd, const void *w,
                                      cudnnConvolutionDescriptor_t c,
                                      cudnnConvolutionFwdAlgo_t algo, void *work, size_t bytes,
                                      const void *beta, cudnnTensorDescriptor_t yd, void *y)
{
    return start(__func__, h, algo, workspace(FORWARD, algo, *xd), alpha, beta,
                 Convolution{FORWARD, *xd, *yd, *wd, *c, x, w, y, work, bytes, 0});
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha,
                                           cudnnFilterDescriptor_t wd, const void *w,
                                           cudnnTensorDescriptor_t dyd, const void *dy,
                                           cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t algo, void *work,
                                           size_t bytes, const void *beta,
                                           cudnnTensorDescriptor_t dxd, void *dx)
{
    return start(__func__, h, algo, workspace(DATA, algo, *dxd), alpha, beta,
                 Convolution{DATA, *dxd, *dyd, *wd, *c, w, dy, dx, work, bytes, 0});
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha,
                                             cudnnTensorDescriptor_t xd, const void *x,
                                             cudnnTensorDescriptor_t dyd, const void *dy,
                                             cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *work,
                                             size_t bytes, const void *beta,
                                             cudnnFilterDescriptor_t dwd, void *dw)
{
    return start(__func__, h, algo, workspace(FILTER, algo, *xd), alpha, beta,
                 Convolution{FILTER, *xd, *dyd, *dwd, *c, x, dy, dw, work, bytes, 0});
}
