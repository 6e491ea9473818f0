/*
 * blas_cuda.cu - matrix products on the device.  In: row-major operands with any leading dimension,
 * as gemm.c takes them; out: C = alpha op(A) op(B) + beta C, in the order of the stream of
 * PpCtx.blas.
 *
 * cuBLAS is column-major: a row-major C = A B is its C^T = B^T A^T, so operands and sizes change
 * places and nothing is copied.  The handle's stream and math mode (float32, or TF32 where --tf32
 * allows it) are the runtime's.  A batch of several dimensions is folded where strides allow it. If
 * one dimension is left, cuBLAS takes its stride; if more, a kernel writes the pointers of all
 * products into the stage's list (PpBlas), and cuBLAS takes that: one call after another would
 * leave most of the card idle.
 *
 * Half operands are added up in float32 (CUBLAS_COMPUTE_32F), and a half result is rounded once.
 */
#include "api/pp_cuda_calls.h"
#include "api/pp_half.h"

#include <limits.h>
#include <utility>

namespace {

/* Types of products: of operands, of results, of factors. */
struct Single {
    using In = float;
    using Out = float;
    using Factor = float;
};
struct Double {
    using In = double;
    using Out = double;
    using Factor = double;
};
/* cuBLAS's name of the half type; its results are of that type, or of float32 */
template <cudaDataType_t Type, class Result> struct Half {
    using In = uint16_t;
    using Out = Result;
    using Factor = float;
    static constexpr cudaDataType_t in = Type, out = sizeof(Result) == 4 ? CUDA_R_32F : Type;
};

template <class Kind> struct Product {
    int ta, tb;
    int64_t m, n, k;
    typename Kind::Factor alpha;
    const typename Kind::In *a;
    int64_t lda;
    const typename Kind::In *b;
    int64_t ldb;
    typename Kind::Factor beta;
    typename Kind::Out *c;
    int64_t ldc;
};

/* Many products: in each dimension how many, and from one to the next.  The last dimension counts
 * first. */
/* into so many a generated call may cut a batch */
enum { MOST_DIMS = 32 };
struct Step { int64_t count, a, b, c; };
struct Batch {
    int n = 0;
    int64_t total = 1;
    Step dim[MOST_DIMS];
};

/* ---- kernels ---- */

__device__ inline Step at(const Batch &batch, int64_t product) {
    Step sum = {1, 0, 0, 0};
    for (int d = batch.n - 1; d >= 0; d--) {
        const Step &by = batch.dim[d];
        int64_t q = product % by.count;
        product /= by.count;
        sum.a += q * by.a;
        sum.b += q * by.b;
        sum.c += q * by.c;
    }
    return sum;
}

/* Where the operands of `count` products are; aligned: all at multiples of 16 bytes */
template <class Kind> struct Lists {
    const typename Kind::In **a, **b;
    typename Kind::Out **c;
    int count;
    bool aligned;
};

/* Thread i: those of product first + i. */
template <class Kind>
__global__ void list_operands(Batch batch, int64_t first, Product<Kind> p, Lists<Kind> to)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= to.count)
        return;
    Step from = at(batch, first + i);
    to.a[i] = p.a + from.a;
    to.b[i] = p.b + from.b;
    to.c[i] = p.c + from.c;
}

/* beta C, of each type */
__device__ inline void scale_one(Single, float beta, float *c) { *c *= beta; }
__device__ inline void scale_one(Double, double beta, double *c) { *c *= beta; }
template <cudaDataType_t Type> __device__ void scale_one(Half<Type, float>, float beta, float *c)
{
    *c *= beta;
}
__device__ inline void scale_one(Half<CUDA_R_16BF, uint16_t>, float beta, uint16_t *c)
{
    *c = pp_to_bf16(beta * pp_from_bf16(*c));
}
__device__ inline void scale_one(Half<CUDA_R_16F, uint16_t>, float beta, uint16_t *c)
{
    *c = pp_to_f16(beta * pp_from_f16(*c));
}

/* An empty sum: C = beta C.  The matrix of product first + blockIdx.y, row by row. */
template <class Kind>
__global__ void scale(Batch batch, int64_t first, typename Kind::Out *c, int64_t m, int64_t n,
                      int64_t ldc, typename Kind::Factor beta)
{
    typename Kind::Out *mine = c + at(batch, first + blockIdx.y).c;
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < m * n;
         i += step) {
        typename Kind::Out *to = mine + i / n * ldc + i % n;
        if (beta == 0)
            *to = 0;
        else
            scale_one(Kind(), beta, to);
    }
}

template <class Kind>
void launch_scale(cudaStream_t stream, const Product<Kind> &p, const Batch &batch)
{
    constexpr int64_t BLOCK = 256, MOST = 1024, MATRICES = 65535;
    int64_t blocks = (p.m * p.n + BLOCK - 1) / BLOCK;
    for (int64_t i = 0; i < batch.total; i += MATRICES) {
        int64_t some = batch.total - i < MATRICES ? batch.total - i : MATRICES;
        dim3 grid(static_cast<unsigned>(blocks < MOST ? blocks : MOST),
                  static_cast<unsigned>(some));
        PP_LAUNCH(scale<Kind>, grid, static_cast<unsigned>(BLOCK), 0, stream, batch, i, p.c, p.m,
                  p.n, p.ldc, p.beta);
    }
}

/* ---- cuBLAS: one function for all types; column-major ---- */

struct Sizes {
    cublasOperation_t ta, tb;
    int m, n, k, lda, ldb, ldc;
};

/* `by`: from one product to the next, and how many. */
cublasStatus_t strided(cublasHandle_t h, const Sizes &s, const Product<Single> &p, const Step &by)
{
    if (by.count == 1)
        return cublasSgemm(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha, p.a, s.lda, p.b, s.ldb, &p.beta,
                           p.c, s.ldc);
    return cublasSgemmStridedBatched(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha, p.a, s.lda, by.a, p.b,
                                     s.ldb, by.b, &p.beta, p.c, s.ldc, by.c,
                                     static_cast<int>(by.count));
}

cublasStatus_t strided(cublasHandle_t h, const Sizes &s, const Product<Double> &p, const Step &by)
{
    if (by.count == 1)
        return cublasDgemm(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha, p.a, s.lda, p.b, s.ldb, &p.beta,
                           p.c, s.ldc);
    return cublasDgemmStridedBatched(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha, p.a, s.lda, by.a, p.b,
                                     s.ldb, by.b, &p.beta, p.c, s.ldc, by.c,
                                     static_cast<int>(by.count));
}

template <cudaDataType_t Type, class Result>
cublasStatus_t strided(cublasHandle_t h, const Sizes &s, const Product<Half<Type, Result>> &p,
                       const Step &by)
{
    using Kind = Half<Type, Result>;
    if (by.count == 1)
        return cublasGemmEx(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha, p.a, Kind::in, s.lda, p.b,
                            Kind::in, s.ldb, &p.beta, p.c, Kind::out, s.ldc, CUBLAS_COMPUTE_32F,
                            CUBLAS_GEMM_DEFAULT);
    return cublasGemmStridedBatchedEx(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha, p.a, Kind::in, s.lda,
                                      by.a, p.b, Kind::in, s.ldb, by.b, &p.beta, p.c, Kind::out,
                                      s.ldc, by.c, static_cast<int>(by.count), CUBLAS_COMPUTE_32F,
                                      CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t listed(cublasHandle_t h, const Sizes &s, const Product<Single> &p,
                      const Lists<Single> &l)
{
    return cublasSgemmBatched(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha, l.a, s.lda, l.b, s.ldb,
                              &p.beta, l.c, s.ldc, l.count);
}

cublasStatus_t listed(cublasHandle_t h, const Sizes &s, const Product<Double> &p,
                      const Lists<Double> &l)
{
    return cublasDgemmBatched(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha, l.a, s.lda, l.b, s.ldb,
                              &p.beta, l.c, s.ldc, l.count);
}

template <cudaDataType_t Type, class Result>
cublasStatus_t listed(cublasHandle_t h, const Sizes &s, const Product<Half<Type, Result>> &p,
                      const Lists<Half<Type, Result>> &l)
{
    using Kind = Half<Type, Result>;
    return cublasGemmBatchedEx(h, s.ta, s.tb, s.m, s.n, s.k, &p.alpha,
                               reinterpret_cast<const void *const *>(l.a), Kind::in, s.lda,
                               reinterpret_cast<const void *const *>(l.b), Kind::in, s.ldb, &p.beta,
                               reinterpret_cast<void *const *>(l.c), Kind::out, s.ldc, l.count,
                               l.aligned ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_PEDANTIC,
                               CUBLAS_GEMM_DEFAULT);
}

/* ---- a batch ---- */

/* What the next call does: `count` products. */
template <class Kind> void note_work(const Product<Kind> &p, int64_t count) {
    const double n = static_cast<double>(count),
                 mn = static_cast<double>(p.m) * static_cast<double>(p.n),
                 k = static_cast<double>(p.k);
    const double in = (static_cast<double>(p.m) + static_cast<double>(p.n)) * k * sizeof(*p.a),
                 out = mn * (p.beta == 0 ? 1 : 2) * sizeof(*p.c);
    PP_WORK("product", 2 * n * mn * k, n * (in + out));
}

template <class Kind>
void run_strided(const PpCtx *ctx, const Product<Kind> &p, const Sizes &s, const Step &by)
{
    note_work(p, by.count);
    PP_TIMED(by.count > 1 ? "cublas gemm batched" : "cublas gemm",
             static_cast<cudaStream_t>(ctx->stream));
    Product<Kind> turned = p;
    turned.a = p.b, turned.b = p.a;
    PP_BLAS(strided(static_cast<PpBlas *>(ctx->blas)->handle, s, turned,
                    Step{by.count, by.b, by.a, by.c}));
}

/* Is every operand of every product at a multiple of 16 bytes? */
template <class Kind> bool aligned(const Product<Kind> &p, const Batch &batch) {
    uintptr_t bits = reinterpret_cast<uintptr_t>(p.a) | reinterpret_cast<uintptr_t>(p.b) |
                     reinterpret_cast<uintptr_t>(p.c);
    for (int d = 0; d < batch.n; d++)
        bits |= static_cast<uintptr_t>(batch.dim[d].a | batch.dim[d].b) * sizeof(*p.a) |
                static_cast<uintptr_t>(batch.dim[d].c) * sizeof(*p.c);
    return bits % 16 == 0;
}

/* In pieces that the list holds.  The list is free again when the call before, in the same stream,
 * has run. */
template <class Kind>
void run_listed(const PpCtx *ctx, const Product<Kind> &p, const Sizes &s, const Batch &batch,
                bool is_aligned)
{
    constexpr int BLOCK = 128;
    const PpBlas *blas = static_cast<const PpBlas *>(ctx->blas);
    cudaStream_t stream = static_cast<cudaStream_t>(ctx->stream);
    const auto list_a = static_cast<const typename Kind::In **>(blas->list);
    const auto list_c = static_cast<typename Kind::Out **>(blas->list) + 2 * PP_BLAS_LIST;
    for (int64_t i = 0; i < batch.total; i += PP_BLAS_LIST) {
        const int some =
            static_cast<int>(batch.total - i < PP_BLAS_LIST ? batch.total - i : PP_BLAS_LIST);
        Lists<Kind> list = {list_a, list_a + PP_BLAS_LIST, list_c, some, is_aligned};
        PP_WORK("product", 0, some * 3 * sizeof(void *));
        PP_LAUNCH(list_operands<Kind>, static_cast<unsigned>((some + BLOCK - 1) / BLOCK), BLOCK, 0,
                  stream, batch, i, p, list);
        note_work(p, some);
        PP_TIMED("cublas gemm by list", stream);
        std::swap(list.a, list.b);
        PP_BLAS(listed(blas->handle, s, p, list));
    }
}

/* Where cuBLAS's products by list may use tensor cores, NVIDIA wants the pointers in the list at
   multiples of 16 bytes: it cannot see them when it chooses a kernel, as it sees pointers and
   strides of its other functions, and the kernel faults where they are not.  Such products are done
   without tensor cores: float32 in its default mode, half as listed() asks for. */
template <class Kind>
void run_listed_safely(const PpCtx *ctx, const Product<Kind> &p, const Sizes &s, const Batch &batch)
{
    cublasHandle_t h = static_cast<PpBlas *>(ctx->blas)->handle;
    cublasMath_t mode = CUBLAS_DEFAULT_MATH;
    const bool asked = PP_BLAS(cublasGetMathMode(h, &mode)), is_aligned = aligned(p, batch);
    const int tf32 = CUBLAS_TF32_TENSOR_OP_MATH;
    const bool change = asked && (mode & tf32) == tf32 && !is_aligned;
    if (change)
        PP_BLAS(cublasSetMathMode(h, static_cast<cublasMath_t>(mode & ~tf32)));
    run_listed(ctx, p, s, batch, is_aligned);
    if (change)
        PP_BLAS(cublasSetMathMode(h, mode));
}

/* A matrix of one row has no distance between rows: whatever the view says, the row's length is a
 * valid one. */
int64_t leading(int64_t rows, int64_t columns, int64_t ld)
{
    return rows <= 1 && ld < columns ? columns : ld;
}

template <class Kind> void run(const PpCtx *ctx, const Product<Kind> &p, const Batch &batch) {
    if (p.k == 0) {
        if (p.beta != 1)
            launch_scale(static_cast<cudaStream_t>(ctx->stream), p, batch);
        return;
    }
    const Step by = batch.n == 1 ? batch.dim[0] : Step{1, 0, 0, 0};
    int64_t lda = p.ta ? leading(p.k, p.m, p.lda) : leading(p.m, p.k, p.lda);
    int64_t ldb = p.tb ? leading(p.n, p.k, p.ldb) : leading(p.k, p.n, p.ldb),
            ldc = leading(p.m, p.n, p.ldc);
    const int64_t sizes[] = {p.m, p.n, p.k, lda, ldb, ldc, by.count};
    for (int64_t size : sizes)
        if (size > INT_MAX) {
            char why[160];
            snprintf(
                why, sizeof why,
                "a product of %lld x %lld x %lld, %lld of them: a size is beyond what cuBLAS takes",
                static_cast<long long>(p.m), static_cast<long long>(p.n),
                static_cast<long long>(p.k), static_cast<long long>(batch.total));
            pp_cuda_note("gemm", why, __FILE__, __LINE__);
            return;
        }
    const Sizes s = {p.tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                     p.ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                     static_cast<int>(p.n),
                     static_cast<int>(p.m),
                     static_cast<int>(p.k),
                     static_cast<int>(ldb),
                     static_cast<int>(lda),
                     static_cast<int>(ldc)};
    if (batch.n > 1)
        run_listed_safely(ctx, p, s, batch);
    else
        run_strided(ctx, p, s, by);
}

/* Dimensions of length 1 go, and two that are one walk through memory become one. */
Batch fold(int rank, const int64_t *count, const int64_t *sa, const int64_t *sb, const int64_t *sc)
{
    Batch all;
    for (int d = 0; d < rank; d++) {
        all.total *= count[d];
        if (count[d] == 1)
            continue;
        Step inner = {count[d], sa[d], sb[d], sc[d]};
        Step *outer = all.n ? &all.dim[all.n - 1] : nullptr;
        if (outer && outer->a == inner.count * inner.a && outer->b == inner.count * inner.b &&
            outer->c == inner.count * inner.c) {
            inner.count *= outer->count;
            *outer = inner;
        } else
            all.dim[all.n++] = inner;
    }
    return all;
}

template <class Kind>
void run_batched(const PpCtx *ctx, const Product<Kind> &p, int rank, const int64_t *count,
                 const int64_t *sa, const int64_t *sb, const int64_t *sc)
{
    const Batch batch = fold(rank, count, sa, sb, sc);
    if (p.m <= 0 || p.n <= 0 || batch.total <= 0)
        return;
    for (int d = 0; d < batch.n; d++)
        if (batch.dim[d].c == 0) {
            pp_cuda_note("gemm", "products of one batch have one result, and nothing orders them",
                         __FILE__, __LINE__);
            return;
        }
    run(ctx, p, batch);
}

}   // namespace

using Bf16 = Half<CUDA_R_16BF, uint16_t>;
using F16 = Half<CUDA_R_16F, uint16_t>;
using Bf16Single = Half<CUDA_R_16BF, float>;
using F16Single = Half<CUDA_R_16F, float>;
#define PRODUCT(NAME, KIND, FACTOR, IN, OUT)                                                       \
    void pp_cuda_##NAME(const PpCtx *ctx, int ta, int tb, int64_t m, int64_t n, int64_t k,         \
                        FACTOR alpha, const IN *a, int64_t lda, const IN *b, int64_t ldb,          \
                        FACTOR beta, OUT *c, int64_t ldc)                                          \
    {                                                                                              \
        if (m > 0 && n > 0)                                                                        \
            run(ctx, Product<KIND>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc},          \
                Batch());                                                                          \
    }                                                                                              \
    void pp_cuda_##NAME##_batched(const PpCtx *ctx, int ta, int tb, int64_t m, int64_t n,          \
                                  int64_t k, FACTOR alpha, const IN *a, int64_t lda,               \
                                  const IN *b, int64_t ldb, FACTOR beta, OUT *c, int64_t ldc,      \
                                  int rank, const int64_t *count, const int64_t *stride_a,         \
                                  const int64_t *stride_b, const int64_t *stride_c)                \
    {                                                                                              \
        run_batched(ctx, Product<KIND>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc},      \
                    rank, count, stride_a, stride_b, stride_c);                                    \
    }
PRODUCT(sgemm, Single, float, float, float)
PRODUCT(dgemm, Double, double, double, double)
PRODUCT(bgemm, Bf16, float, uint16_t, uint16_t)
PRODUCT(hgemm, F16, float, uint16_t, uint16_t)
PRODUCT(bsgemm, Bf16Single, float, uint16_t, float)
PRODUCT(hsgemm, F16Single, float, uint16_t, float)
