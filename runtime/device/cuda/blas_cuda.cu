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
 */
#include "api/pp_cuda_calls.h"

#include <limits.h>

namespace {

template <class T> struct Product {
    int ta, tb;
    int64_t m, n, k;
    T alpha;
    const T *a;
    int64_t lda;
    const T *b;
    int64_t ldb;
    T beta;
    T *c;
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

/* Thread i: where the operands of product first + i are. */
template <class T>
__global__ void list_operands(Batch batch, int64_t first, int count, const T *a, const T *b, T *c,
                              const T **list_a, const T **list_b, T **list_c)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= count)
        return;
    Step from = at(batch, first + i);
    list_a[i] = a + from.a;
    list_b[i] = b + from.b;
    list_c[i] = c + from.c;
}

/* An empty sum: C = beta C.  The matrix of product first + blockIdx.y, row by row. */
template <class T>
__global__ void scale(Batch batch, int64_t first, T *c, int64_t m, int64_t n, int64_t ldc, T beta)
{
    T *mine = c + at(batch, first + blockIdx.y).c;
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < m * n;
         i += step) {
        T *to = mine + i / n * ldc + i % n;
        *to = beta == 0 ? 0 : beta * *to;
    }
}

template <class T> void launch_scale(cudaStream_t stream, const Product<T> &p, const Batch &batch) {
    constexpr int64_t BLOCK = 256, MOST = 1024, MATRICES = 65535;
    int64_t blocks = (p.m * p.n + BLOCK - 1) / BLOCK;
    for (int64_t i = 0; i < batch.total; i += MATRICES) {
        int64_t some = batch.total - i < MATRICES ? batch.total - i : MATRICES;
        dim3 grid(static_cast<unsigned>(blocks < MOST ? blocks : MOST),
                  static_cast<unsigned>(some));
        PP_LAUNCH(scale<T>, grid, static_cast<unsigned>(BLOCK), 0, stream, batch, i, p.c, p.m, p.n,
                  p.ldc, p.beta);
    }
}

/* ---- cuBLAS: one function for both types; column-major ---- */

struct Sizes {
    cublasOperation_t ta, tb;
    int m, n, k, lda, ldb, ldc;
};

cublasStatus_t strided(cublasHandle_t h, const Sizes &s, const float *alpha, const float *a,
                       const float *b, const float *beta, float *c, const Step &by)
{
    if (by.count == 1)
        return cublasSgemm(h, s.ta, s.tb, s.m, s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c, s.ldc);
    return cublasSgemmStridedBatched(h, s.ta, s.tb, s.m, s.n, s.k, alpha, a, s.lda, by.a, b, s.ldb,
                                     by.b, beta, c, s.ldc, by.c, static_cast<int>(by.count));
}

cublasStatus_t strided(cublasHandle_t h, const Sizes &s, const double *alpha, const double *a,
                       const double *b, const double *beta, double *c, const Step &by)
{
    if (by.count == 1)
        return cublasDgemm(h, s.ta, s.tb, s.m, s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c, s.ldc);
    return cublasDgemmStridedBatched(h, s.ta, s.tb, s.m, s.n, s.k, alpha, a, s.lda, by.a, b, s.ldb,
                                     by.b, beta, c, s.ldc, by.c, static_cast<int>(by.count));
}

cublasStatus_t listed(cublasHandle_t h, const Sizes &s, const float *alpha, const float *const *a,
                      const float *const *b, const float *beta, float *const *c, int count)
{
    return cublasSgemmBatched(h, s.ta, s.tb, s.m, s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c,
                              s.ldc, count);
}

cublasStatus_t listed(cublasHandle_t h, const Sizes &s, const double *alpha, const double *const *a,
                      const double *const *b, const double *beta, double *const *c, int count)
{
    return cublasDgemmBatched(h, s.ta, s.tb, s.m, s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, c,
                              s.ldc, count);
}

/* ---- a batch ---- */

/* What the next call does: `count` products. */
template <class T> void note_work(const Product<T> &p, int64_t count) {
    const double n = static_cast<double>(count),
                 mn = static_cast<double>(p.m) * static_cast<double>(p.n),
                 k = static_cast<double>(p.k);
    const double moved =
        static_cast<double>(p.m) * k + k * static_cast<double>(p.n) + mn * (p.beta == 0 ? 1 : 2);
    PP_WORK("product", 2 * n * mn * k, n * moved * static_cast<double>(sizeof(T)));
}

template <class T>
void run_strided(const PpCtx *ctx, const Product<T> &p, const Sizes &s, const Step &by)
{
    note_work(p, by.count);
    PP_TIMED(by.count > 1 ? "cublas gemm batched" : "cublas gemm",
             static_cast<cudaStream_t>(ctx->stream));
    PP_BLAS(strided(static_cast<PpBlas *>(ctx->blas)->handle, s, &p.alpha, p.b, p.a, &p.beta, p.c,
                    Step{by.count, by.b, by.a, by.c}));
}

/* Is every operand of every product at a multiple of 16 bytes? */
template <class T> bool aligned(const Product<T> &p, const Batch &batch) {
    uintptr_t bits = reinterpret_cast<uintptr_t>(p.a) | reinterpret_cast<uintptr_t>(p.b) |
                     reinterpret_cast<uintptr_t>(p.c);
    for (int d = 0; d < batch.n; d++)
        bits |=
            static_cast<uintptr_t>(batch.dim[d].a | batch.dim[d].b | batch.dim[d].c) * sizeof(T);
    return bits % 16 == 0;
}

/* In pieces that the list holds.  The list is free again when the call before, in the same stream,
 * has run. */
template <class T>
void run_listed(const PpCtx *ctx, const Product<T> &p, const Sizes &s, const Batch &batch)
{
    constexpr int BLOCK = 128;
    const PpBlas *blas = static_cast<const PpBlas *>(ctx->blas);
    cudaStream_t stream = static_cast<cudaStream_t>(ctx->stream);
    const T **list_a = static_cast<const T **>(blas->list), **list_b = list_a + PP_BLAS_LIST;
    T **list_c = static_cast<T **>(blas->list) + 2 * PP_BLAS_LIST;
    for (int64_t i = 0; i < batch.total; i += PP_BLAS_LIST) {
        const int some =
            static_cast<int>(batch.total - i < PP_BLAS_LIST ? batch.total - i : PP_BLAS_LIST);
        PP_WORK("product", 0, some * 3 * sizeof(T *));
        PP_LAUNCH(list_operands<T>, static_cast<unsigned>((some + BLOCK - 1) / BLOCK), BLOCK, 0,
                  stream, batch, i, some, p.a, p.b, p.c, list_a, list_b, list_c);
        note_work(p, some);
        PP_TIMED("cublas gemm by list", stream);
        PP_BLAS(listed(blas->handle, s, &p.alpha, list_b, list_a, &p.beta, list_c, some));
    }
}

/* Where cublasSgemmBatched may use tensor cores, NVIDIA wants the pointers in the list at multiples
   of 16 bytes: it cannot see them when it chooses a kernel, as it sees pointers and strides of its
   other functions, and the kernel faults where they are not.  Such products are done in float32. */
template <class T>
void run_listed_safely(const PpCtx *ctx, const Product<T> &p, const Sizes &s, const Batch &batch)
{
    cublasHandle_t h = static_cast<PpBlas *>(ctx->blas)->handle;
    cublasMath_t mode = CUBLAS_DEFAULT_MATH;
    const bool asked = PP_BLAS(cublasGetMathMode(h, &mode));
    const bool change = asked && mode == CUBLAS_TF32_TENSOR_OP_MATH && !aligned(p, batch);
    if (change)
        PP_BLAS(cublasSetMathMode(h, CUBLAS_DEFAULT_MATH));
    run_listed(ctx, p, s, batch);
    if (change)
        PP_BLAS(cublasSetMathMode(h, mode));
}

/* A matrix of one row has no distance between rows: whatever the view says, the row's length is a
 * valid one. */
int64_t leading(int64_t rows, int64_t columns, int64_t ld)
{
    return rows <= 1 && ld < columns ? columns : ld;
}

template <class T> void run(const PpCtx *ctx, const Product<T> &p, const Batch &batch) {
    if (p.k == 0) {
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

template <class T>
void run_batched(const PpCtx *ctx, const Product<T> &p, int rank, const int64_t *count,
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

void pp_cuda_sgemm(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha,
                   const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *out,
                   int64_t ldc)
{
    if (m > 0 && n > 0)
        run(c, Product<float>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc}, Batch());
}

void pp_cuda_dgemm(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha,
                   const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
                   double *out, int64_t ldc)
{
    if (m > 0 && n > 0)
        run(c, Product<double>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc}, Batch());
}

void pp_cuda_sgemm_batched(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k,
                           float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                           float beta, float *out, int64_t ldc, int rank, const int64_t *count,
                           const int64_t *stride_a, const int64_t *stride_b,
                           const int64_t *stride_c)
{
    run_batched(c, Product<float>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc}, rank,
                count, stride_a, stride_b, stride_c);
}

void pp_cuda_dgemm_batched(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k,
                           double alpha, const double *a, int64_t lda, const double *b, int64_t ldb,
                           double beta, double *out, int64_t ldc, int rank, const int64_t *count,
                           const int64_t *stride_a, const int64_t *stride_b,
                           const int64_t *stride_c)
{
    run_batched(c, Product<double>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc}, rank,
                count, stride_a, stride_b, stride_c);
}
