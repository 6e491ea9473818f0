/*
 * cublas.cpp - cuBLAS on the CPU's library.  A column-major product is the row-major product of the
 * operands swapped.
 *
 * Every operand's rows are checked against the allocations, as kernels' accesses are; C is read
 * only where beta is not 0.  Lists of pointers are read when the operation runs, as on a GPU.
 * Products of one batch run at the same time: what two of them write, or one writes and another
 * reads, is a race.
 */
#include "cublas_v2.h"
#include "../../runtime/api/pp.h"
#include "../../runtime/api/pp_half.h"
#include "shim.h"
#include "shim_blas.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <type_traits>

struct cublasContext {
    int number = 0, device = 0;
    cudaStream_t stream = nullptr;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
    void *workspace = nullptr;                          /* null: the library's own */
};

namespace shim {

static std::set<cublasContext *> &handles(void) {
    static auto *all = new std::set<cublasContext *>;
    return *all;
}
static int numbers;

void report_blas_leaks(void) {
    for (const cublasContext *h : handles())
        report(("blas" + std::to_string(h->number)).c_str(),
               "leak: cuBLAS handle %d is never destroyed", h->number);
}

/* Half types are apart here; products take their bits. */
struct Bf16 { uint16_t bits; };
struct F16 { uint16_t bits; };

static int type_of(const float *) { return PP_F32; }
static int type_of(const double *) { return PP_F64; }
static int type_of(const Bf16 *) { return PP_BF16; }
static int type_of(const F16 *) { return PP_F16; }

static float wide(float x) { return x; }
static float wide(Bf16 x) { return pp_from_bf16(x.bits); }
static float wide(F16 x) { return pp_from_f16(x.bits); }
static double wide(double x) { return x; }
static void put(float *to, float x) { *to = x; }
static void put(double *to, double x) { *to = x; }
static void put(Bf16 *to, float x) { to->bits = pp_to_bf16(x); }
static void put(F16 *to, float x) { to->bits = pp_to_f16(x); }

template <class In, class Out = In, class Factor = In> struct Gemm {
    bool ta, tb;
    int m, n, k;
    Factor alpha, beta;
    const Factor *device_alpha, *device_beta;
    const In *a, *b;
    Out *c;
    int lda, ldb, ldc;
    long long stride_a, stride_b, stride_c;
    int count;
    const In *const *list_a, *const *list_b;            /* of a batch that is a list; or null */
    Out *const *list_c;
    /* tensor cores may take 16 bytes at a time */
    bool fast;
    const Out *bias;                                    /* of each row, or null */
    void *workspace;                                    /* which others may have too, or null */
};

/* Any product may leave parts of its sums there: two of them at the same time, in one place? */
static bool use_workspace(void *p)
{
    enum { SOME = 256 };
    return !p || shadow_range(p, SOME, true, false);
}

/* A column-major matrix: every column in device memory? */
template <class T> static bool matrix(const T *p, bool t, int rows, int columns, int ld, bool write)
{
    int length = t ? columns : rows, lines = t ? rows : columns;
    for (int i = 0; i < lines; i++) {
        const T *line = p + static_cast<int64_t>(i) * ld;
        size_t bytes = static_cast<size_t>(length) * sizeof(T);
        const Allocation *x = allocation_near(line);
        uintptr_t at = reinterpret_cast<uintptr_t>(line);
        if (!x || !x->live || at < x->base || at - x->base + bytes > x->bytes) {
            const char *wrong = x && x->live && at >= x->base
                                    ? reinterpret_cast<const char *>(line) + bytes
                                    : reinterpret_cast<const char *>(line);
            report("blas bounds",
                   "out of bounds: %s: a matrix of %d x %d, leading dimension %d, at %p: %s",
                   running.name.c_str(), rows,
                   columns, ld, static_cast<const void *>(p), describe(wrong).c_str());
            sticky = cudaErrorIllegalAddress;
            return false;
        }
        if (!x->pinned && !shadow_range(line, bytes, write, false))
            return false;
    }
    return true;
}

/* The pointers of all products, in device memory? */
template <class P> static bool list(const char *operand, const P *p, int count) {
    const Allocation *x = allocation_near(p);
    const uintptr_t a = reinterpret_cast<uintptr_t>(p);
    const size_t bytes = static_cast<size_t>(count) * sizeof(P);
    if (!x || !x->live || x->pinned || a < x->base || a - x->base + bytes > x->bytes ||
        a % sizeof(P)) {
        const bool from_here = x && x->live && !x->pinned && a >= x->base;
        report("blas list",
               "cuBLAS: %s: the list of %d pointers to %s at %p is not in device memory: %s",
               running.name.c_str(), count, operand, static_cast<const void *>(p),
               describe(from_here ? reinterpret_cast<const char *>(p) + bytes
                                  : reinterpret_cast<const char *>(p))
                   .c_str());
        sticky = cudaErrorIllegalAddress;
        return false;
    }
    return shadow_range(p, bytes, false, false);
}

/* Product i of the batch. */
template <class In, class Out, class Factor>
static bool product_of(const Gemm<In, Out, Factor> &g, int i, const In **a, const In **b, Out **c)
{
    *a = g.list_a ? g.list_a[i] : g.a + i * g.stride_a;
    *b = g.list_a ? g.list_b[i] : g.b + i * g.stride_b;
    *c = g.list_a ? g.list_c[i] : g.c + i * g.stride_c;
    const uintptr_t bits = reinterpret_cast<uintptr_t>(*a) | reinterpret_cast<uintptr_t>(*b) |
                           reinterpret_cast<uintptr_t>(*c);
    const size_t unit = g.list_a && g.fast ? 16 : sizeof(In);
    if (bits % unit == 0 && reinterpret_cast<uintptr_t>(*c) % sizeof(Out) == 0)
        return true;
    report("blas align", "misaligned: %s: operands %p %p %p of product %d are no multiples of %zu",
           running.name.c_str(), static_cast<const void *>(*a), static_cast<const void *>(*b),
           static_cast<void *>(*c), i, unit);
    sticky = cudaErrorMisalignedAddress;
    return false;
}

/* A stretch of memory that a product uses. */
struct Piece { uintptr_t from, to; int product; };

template <class T>
static void pieces(std::vector<Piece> *all, const T *p, bool t, int rows, int columns, int ld,
                   int i)
{
    const int length = t ? columns : rows, lines = t ? rows : columns;
    const bool whole = ld == length || lines == 1;
    for (int l = 0; l < (whole ? 1 : lines); l++) {
        const uintptr_t from = reinterpret_cast<uintptr_t>(p + static_cast<int64_t>(l) * ld);
        all->push_back(Piece{from,
                             from + sizeof(T) * static_cast<size_t>(length) *
                                        static_cast<size_t>(whole ? lines : 1),
                             i});
    }
}

static bool race(const Piece &x, const Piece &y, const char *does) {
    report("blas race", "race: %s: product %d of the batch writes %s, which product %d %s",
           running.name.c_str(), x.product,
           describe(reinterpret_cast<const void *>(std::max(x.from, y.from))).c_str(), y.product,
           does);
    return false;
}

/* No product's result lies in another's, nor in any operand? */
template <class In, class Out, class Factor> static bool apart(const Gemm<In, Out, Factor> &g) {
    std::vector<Piece> written, read;
    for (int i = 0; i < g.count; i++) {
        const In *a, *b;
        Out *c;
        if (!product_of(g, i, &a, &b, &c))
            return false;
        pieces(&written, c, false, g.m, g.n, g.ldc, i);
        if (g.alpha == 0 || g.k == 0)
            continue;
        pieces(&read, a, g.ta, g.m, g.k, g.lda, i);
        pieces(&read, b, g.tb, g.k, g.n, g.ldb, i);
    }
    std::sort(written.begin(), written.end(),
              [](const Piece &x, const Piece &y) { return x.from < y.from; });
    for (size_t i = 1; i < written.size(); i++)
        if (written[i].from < written[i - 1].to)
            return race(written[i - 1], written[i], "writes too");
    for (const Piece &r : read) {
        auto w = std::upper_bound(written.begin(), written.end(), r.from,
                                  [](uintptr_t from, const Piece &x) { return from < x.to; });
        if (w != written.end() && w->from < r.to)
            return race(*w, r, "reads");
    }
    return true;
}

/* A column-major C = alpha op(A) op(B) + beta C. */
template <class In, class Out, class Factor, class To>
static void product(const Gemm<In, Out, Factor> &g, const In *a, const In *b, To *c, int ldc)
{
    const float alpha = static_cast<float>(g.alpha);
    PpGemm p = {};
    p.type = type_of(a), p.result = type_of(c);
    p.ta = g.tb, p.tb = g.ta, p.m = g.n, p.n = g.m, p.k = g.k;
    p.a = b, p.lda = g.ldb, p.b = a, p.ldb = g.lda, p.c = c, p.ldc = ldc;
    p.alpha = &alpha, p.adds = g.beta != 0;
    for (int64_t j = 0; j < g.n && g.beta != 0 && g.beta != 1; j++)
        for (int64_t i = 0; i < g.m; i++)
            put(c + j * ldc + i, static_cast<Factor>(wide(c[j * ldc + i])) * g.beta);
    pp_gemm(&p);
}

template <class In, class Out, class Factor> static void run(Gemm<In, Out, Factor> g) {
    if (!use_workspace(g.workspace))
        return;
    if (g.device_alpha) {
        if (!matrix(g.device_alpha, false, 1, 1, 1, false) ||
            !matrix(g.device_beta, false, 1, 1, 1, false))
            return;
        g.alpha = *g.device_alpha;
        g.beta = *g.device_beta;
    }
    if (g.list_a && (!list("A", g.list_a, g.count) || !list("B", g.list_b, g.count) ||
                     !list("C", g.list_c, g.count)))
        return;
    if (!apart(g))
        return;
    for (int i = 0; i < g.count; i++) {
        const In *a, *b;
        Out *c;
        product_of(g, i, &a, &b, &c);
        bool reads = g.alpha != 0 && g.k > 0;
        if ((reads && (!matrix(a, g.ta, g.m, g.k, g.lda, false) ||
                       !matrix(b, g.tb, g.k, g.n, g.ldb, false))) ||
            (g.beta != 0 && !matrix<Out>(c, false, g.m, g.n, g.ldc, false)) ||
            !matrix<Out>(c, false, g.m, g.n, g.ldc, true))
            return;
        product(g, a, b, c, g.ldc);
    }
}

/* Sums of float32, a bias for each row, one rounding. */
template <class T> static void run_with_bias(const Gemm<T, T, float> &g)
{
    if (!use_workspace(g.workspace) || !matrix(g.bias, false, g.m, 1, g.m, false) || !apart(g))
        return;
    std::vector<float> sum(static_cast<size_t>(g.m) * static_cast<size_t>(g.n));
    for (int i = 0; i < g.count; i++) {
        const T *a, *b;
        T *d;
        product_of(g, i, &a, &b, &d);
        if (!matrix(a, g.ta, g.m, g.k, g.lda, false) || !matrix(b, g.tb, g.k, g.n, g.ldb, false) ||
            !matrix(d, false, g.m, g.n, g.ldc, true))
            return;
        product(g, a, b, sum.data(), g.m);
        for (int64_t j = 0; j < g.n; j++)
            for (int64_t r = 0; r < g.m; r++)
                put(d + j * g.ldc + r, sum[static_cast<size_t>(j * g.m + r)] + wide(g.bias[r]));
    }
}

static FILE *products(void) {
    static const char *name = setting("SHIM_PRODUCTS", "");
    static FILE *to = *name ? fopen(name, "w") : nullptr;
    return to;
}

/* SHIM_PRODUCTS=FILE: a line for each call: rows and columns of its row-major result, the length of
 * its sums, how many there are; how many bytes rows of A, B and the result are apart. */
template <class In, class Out, class Factor>
static void log_product(const Gemm<In, Out, Factor> &g)
{
    FILE *to = products();
    if (to) {
        const size_t in = sizeof(In), out = sizeof(Out);
        fprintf(to, "%d %d %d %d %zu %zu %zu\n", g.n, g.m, g.k, g.count,
                static_cast<size_t>(g.ldb) * in, static_cast<size_t>(g.lda) * in,
                static_cast<size_t>(g.ldc) * out);
        fflush(to);
    }
}

static int at_least_1(int n) { return n > 1 ? n : 1; }

static cublasStatus_t status(cudaError_t e) {
    return e == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <class In, class Out, class Factor>
static cublasStatus_t gemm(const char *name, cublasHandle_t h, const Factor *alpha,
                           const Factor *beta, Gemm<In, Out, Factor> g)
{
    if (enter(name) != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    Lock lock(machine);
    if (!handles().count(h))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (g.m < 0 || g.n < 0 || g.k < 0 || g.count < 0 || g.lda < at_least_1(g.ta ? g.k : g.m) ||
        g.ldb < at_least_1(g.tb ? g.n : g.k) || g.ldc < at_least_1(g.m) || !alpha || !beta) {
        report("blas value",
               "cuBLAS: %s: m %d n %d k %d lda %d ldb %d ldc %d are no product",
               name, g.m, g.n, g.k, g.lda, g.ldb, g.ldc);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (g.m == 0 || g.n == 0 || g.count == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (h->pointers == CUBLAS_POINTER_MODE_DEVICE) {
        g.device_alpha = alpha;
        g.device_beta = beta;
    } else {
        g.alpha = *alpha;
        g.beta = *beta;
    }
    const int tf32 = CUBLAS_TF32_TENSOR_OP_MATH;
    g.workspace = h->workspace;
    g.fast |= std::is_same<In, float>::value && (h->math & tf32) == tf32;
    CUstream_st *s = stream_of(h->stream);
    if (!s)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    log_product(g);
    enqueue(s, name, [g, name, s](Driver &) {
        shadow_op(name, s);
        run(g);
        return true;
    });
    return status(sticky);
}

template <class T>
static cublasStatus_t biased(const char *name, CUstream_st *s, const BiasProduct &p)
{
    Gemm<T, T, float> g = {};
    g.ta = p.ta, g.tb = p.tb, g.m = p.m, g.n = p.n, g.k = p.k;
    g.alpha = 1;
    g.lda = p.lda, g.ldb = p.ldb, g.ldc = p.ldd, g.count = p.count;
    g.stride_a = p.stride_a, g.stride_b = p.stride_b, g.stride_c = p.stride_d;
    g.a = static_cast<const T *>(p.a);
    g.b = static_cast<const T *>(p.b);
    g.c = static_cast<T *>(p.d);
    g.bias = static_cast<const T *>(p.bias);
    g.workspace = p.workspace;
    log_product(g);
    enqueue(s, name, [g, name, s](Driver &) {
        shadow_op(name, s);
        run_with_bias(g);
        return true;
    });
    return status(sticky);
}

cublasStatus_t product_with_bias(const char *name, cublasHandle_t h, cudaStream_t stream,
                                 const BiasProduct &p)
{
    if (enter(name) != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    Lock lock(machine);
    CUstream_st *s = handles().count(h) ? stream_of(stream) : nullptr;
    if (!s || h->stream != stream)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return p.type == CUDA_R_32F    ? biased<float>(name, s, p)
           : p.type == CUDA_R_16BF ? biased<Bf16>(name, s, p)
                                   : biased<F16>(name, s, p);
}

template <class T>
static Gemm<T> described(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                         const T *a, int lda, const T *b, int ldb, T *c, int ldc, int count)
{
    Gemm<T> g = {};
    g.ta = ta != CUBLAS_OP_N;
    g.tb = tb != CUBLAS_OP_N;
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = a;
    g.lda = lda;
    g.b = b;
    g.ldb = ldb;
    g.c = c;
    g.ldc = ldc;
    g.count = count;
    return g;
}

/* Every function of a handle: injected errors, is it a handle? */
static cublasStatus_t enter_blas(const char *name, cublasHandle_t h) {
    if (enter(name) != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    Lock lock(machine);
    if (handles().count(h))
        return CUBLAS_STATUS_SUCCESS;
    report("blas handle", "cuBLAS: %s: %p is no handle, or one that was destroyed", name,
           static_cast<void *>(h));
    return CUBLAS_STATUS_NOT_INITIALIZED;
}

}   // namespace shim

using namespace shim;

#define ENTER_BLAS(h)                                                                              \
    do {                                                                                           \
        cublasStatus_t entered = enter_blas(__func__, h);                                          \
        if (entered != CUBLAS_STATUS_SUCCESS)                                                      \
            return entered;                                                                        \
    } while (0)

cublasStatus_t cublasCreate(cublasHandle_t *h) {
    if (enter(__func__) != cudaSuccess)
        return CUBLAS_STATUS_ALLOC_FAILED;
    Lock lock(machine);
    *h = new cublasContext;
    (*h)->number = ++numbers;
    (*h)->device = current_device;
    handles().insert(*h);
    at_exit_once();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t h) {
    ENTER_BLAS(h);
    Lock lock(machine);
    drive_all(lock);
    handles().erase(h);
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t, int *version) {
    *version = CUDART_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s) {
    ENTER_BLAS(h);
    Lock lock(machine);
    h->stream = s;
    h->workspace = nullptr;                             /* as cuBLAS does */
    return stream_of(s) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGetStream(cublasHandle_t h, cudaStream_t *s) {
    ENTER_BLAS(h);
    *s = h->stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode) {
    ENTER_BLAS(h);
    h->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t h, cublasMath_t *mode) {
    ENTER_BLAS(h);
    *mode = h->math;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t h, cublasPointerMode_t mode) {
    ENTER_BLAS(h);
    h->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode(cublasHandle_t h, cublasPointerMode_t *mode) {
    ENTER_BLAS(h);
    *mode = h->pointers;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t h, void *workspace, size_t bytes) {
    ENTER_BLAS(h);
    Lock lock(machine);
    const Allocation *x = allocation_near(workspace);
    uintptr_t a = reinterpret_cast<uintptr_t>(workspace);
    bool fits = bytes == 0 || (x && x->live && !x->pinned && a % 256 == 0 && a >= x->base &&
                               a - x->base + bytes <= x->bytes);
    if (fits)
        h->workspace = bytes < 256 ? nullptr : workspace;
    else
        report("blas workspace",
               "cuBLAS: the workspace %p (%zu bytes) is not device memory at a multiple of 256",
               workspace, bytes);
    return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static const struct { cublasStatus_t e; const char *name, *text;
} blas_texts[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the functionality requested is not supported"},
};

const char *cublasGetStatusString(cublasStatus_t e) {
    for (const auto &t : blas_texts)
        if (t.e == e)
            return t.text;
    return "unknown cuBLAS status";
}

const char *cublasGetStatusName(cublasStatus_t e) {
    for (const auto &t : blas_texts)
        if (t.e == e)
            return t.name;
    return "unknown cuBLAS status";
}

#define GEMM(NAME, T)                                                                              \
    cublasStatus_t NAME(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,       \
                        int n, int k, const T *alpha, const T *a, int lda, const T *b, int ldb,    \
                        const T *beta, T *c, int ldc)                                              \
    {                                                                                              \
        return gemm(__func__, h, alpha, beta,                                                      \
                    described(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, 1));                        \
    }                                                                                              \
    cublasStatus_t NAME##StridedBatched(                                                           \
        cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,         \
        const T *alpha, const T *a, int lda, long long sa, const T *b, int ldb, long long sb,      \
        const T *beta, T *c, int ldc, long long sc, int count)                                     \
    {                                                                                              \
        Gemm<T> g = described(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, count);                     \
        g.stride_a = sa;                                                                           \
        g.stride_b = sb;                                                                           \
        g.stride_c = sc;                                                                           \
        return gemm(__func__, h, alpha, beta, g);                                                  \
    }                                                                                              \
    cublasStatus_t NAME##Batched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,     \
                                 int m, int n, int k, const T *alpha, const T *const a[], int lda, \
                                 const T *const b[], int ldb, const T *beta, T *const c[],         \
                                 int ldc, int count)                                               \
    {                                                                                              \
        Gemm<T> g =                                                                                \
            described<T>(ta, tb, m, n, k, nullptr, lda, nullptr, ldb, nullptr, ldc, count);        \
        g.list_a = a;                                                                              \
        g.list_b = b;                                                                              \
        g.list_c = c;                                                                              \
        return gemm(__func__, h, alpha, beta, g);                                                  \
    }
GEMM(cublasSgemm, float)
GEMM(cublasDgemm, double)

/* A product of In with a result of Out, in one place or by lists. */
template <class In, class Out, class Factor> struct Types {
    using G = Gemm<In, Out, Factor>;
    using F = Factor;
    static G of(const void *a, const void *b, void *c)
    {
        G g = {};
        g.a = static_cast<const In *>(a);
        g.b = static_cast<const In *>(b);
        g.c = static_cast<Out *>(c);
        return g;
    }
    static G of(const void *const *a, const void *const *b, void *const *c)
    {
        G g = {};
        g.list_a = reinterpret_cast<const In *const *>(a);
        g.list_b = reinterpret_cast<const In *const *>(b);
        g.list_c = reinterpret_cast<Out *const *>(c);
        return g;
    }
};

/* The sizes of a product, to be filled into a Gemm of any types. */
using Sizes = Gemm<float>;

template <class T, class A, class B, class C>
static cublasStatus_t gemm_of(const char *name, cublasHandle_t h, const void *alpha,
                              const void *beta, const Sizes &s, A a, B b, C c, bool fast)
{
    typename T::G g = T::of(a, b, c);
    g.ta = s.ta, g.tb = s.tb, g.m = s.m, g.n = s.n, g.k = s.k;
    g.lda = s.lda, g.ldb = s.ldb, g.ldc = s.ldc, g.count = s.count;
    g.stride_a = s.stride_a, g.stride_b = s.stride_b, g.stride_c = s.stride_c;
    g.fast = fast;
    return gemm(name, h, static_cast<const typename T::F *>(alpha),
                static_cast<const typename T::F *>(beta), g);
}

template <class A, class B, class C>
static cublasStatus_t gemm_ex(const char *name, cublasHandle_t h, const void *alpha,
                              const void *beta, const Sizes &s, A a, cudaDataType type_a, B b,
                              cudaDataType type_b, C c, cudaDataType type_c,
                              cublasComputeType_t compute)
{
    const bool half = type_a == CUDA_R_16BF || type_a == CUDA_R_16F, twice = type_a == CUDA_R_64F,
               fast = compute == (half ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_FAST_TF32);
    if (type_a != type_b || (type_c != type_a && !(half && type_c == CUDA_R_32F)) ||
        twice != (compute == CUBLAS_COMPUTE_64F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (twice)
        return gemm_of<Types<double, double, double>>(name, h, alpha, beta, s, a, b, c, fast);
    if (!half)
        return gemm_of<Types<float, float, float>>(name, h, alpha, beta, s, a, b, c, fast);
    if (type_a == CUDA_R_16BF && type_c == type_a)
        return gemm_of<Types<Bf16, Bf16, float>>(name, h, alpha, beta, s, a, b, c, fast);
    if (type_a == CUDA_R_16BF)
        return gemm_of<Types<Bf16, float, float>>(name, h, alpha, beta, s, a, b, c, fast);
    if (type_c == type_a)
        return gemm_of<Types<F16, F16, float>>(name, h, alpha, beta, s, a, b, c, fast);
    return gemm_of<Types<F16, float, float>>(name, h, alpha, beta, s, a, b, c, fast);
}

static Sizes sizes(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, int lda,
                   int ldb, int ldc, int count)
{
    return described<float>(ta, tb, m, n, k, nullptr, lda, nullptr, ldb, nullptr, ldc, count);
}

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType type_a,
                            int lda, const void *b, cudaDataType type_b, int ldb, const void *beta,
                            void *c, cudaDataType type_c, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t)
{
    return gemm_ex(__func__, h, alpha, beta, sizes(ta, tb, m, n, k, lda, ldb, ldc, 1), a, type_a,
                     b, type_b, c, type_c, compute);
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType type_a, int lda, long long stride_a,
    const void *b, cudaDataType type_b, int ldb, long long stride_b, const void *beta, void *c,
    cudaDataType type_c, int ldc, long long stride_c, int count, cublasComputeType_t compute,
    cublasGemmAlgo_t)
{
    Sizes s = sizes(ta, tb, m, n, k, lda, ldb, ldc, count);
    s.stride_a = stride_a;
    s.stride_b = stride_b;
    s.stride_c = stride_c;
    return gemm_ex(__func__, h, alpha, beta, s, a, type_a, b, type_b, c, type_c, compute);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                   int m, int n, int k, const void *alpha, const void *const a[],
                                   cudaDataType type_a, int lda, const void *const b[],
                                   cudaDataType type_b, int ldb, const void *beta, void *const c[],
                                   cudaDataType type_c, int ldc, int count,
                                   cublasComputeType_t compute, cublasGemmAlgo_t)
{
    return gemm_ex(__func__, h, alpha, beta, sizes(ta, tb, m, n, k, lda, ldb, ldc, count), a,
                     type_a, b, type_b, c, type_c, compute);
}
