/*
 * blas_cuda.cu - matrix products on the device.  In: row-major operands with any leading dimension, as gemm.c takes them; out:
 * C = alpha op(A) op(B) + beta C, in the order of the stream of PpCtx.blas.
 *
 * cuBLAS is column-major: a row-major C = A B is its C^T = B^T A^T, so operands and sizes change places and nothing is
 * copied.  The handle's stream and math mode (float32, or TF32 where --tf32 allows it) are the runtime's.  A batch of several
 * dimensions is folded where strides allow it; of what is left the longest dimension is one strided batch, the others a loop.
 */
#include "pp_cuda_calls.h"

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

/* Many products: how many, and from one to the next. */
struct Batch { int64_t count, a, b, c; };

cublasStatus_t call(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float *alpha,
                    const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc, const Batch &s) {
    if (s.count == 1)
        return cublasSgemm(h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cublasSgemmStridedBatched(h, ta, tb, m, n, k, alpha, a, lda, s.a, b, ldb, s.b, beta, c, ldc, s.c, static_cast<int>(s.count));
}

cublasStatus_t call(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const double *alpha,
                    const double *a, int lda, const double *b, int ldb, const double *beta, double *c, int ldc, const Batch &s) {
    if (s.count == 1)
        return cublasDgemm(h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cublasDgemmStridedBatched(h, ta, tb, m, n, k, alpha, a, lda, s.a, b, ldb, s.b, beta, c, ldc, s.c, static_cast<int>(s.count));
}

/* An empty sum: C = beta C.  Matrix blockIdx.y, row by row. */
template <class T> __global__ void scale(T *c, int64_t m, int64_t n, int64_t ldc, int64_t stride, T beta) {
    T *mine = c + static_cast<int64_t>(blockIdx.y) * stride;
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < m * n; i += step) {
        T *at = mine + i / n * ldc + i % n;
        *at = beta == 0 ? 0 : beta * *at;
    }
}

template <class T> void launch_scale(cudaStream_t stream, const Product<T> &p, const Batch &s) {
    constexpr int64_t BLOCK = 256, MOST = 1024, MATRICES = 65535;
    int64_t blocks = (p.m * p.n + BLOCK - 1) / BLOCK;
    for (int64_t i = 0; i < s.count; i += MATRICES) {
        int64_t some = s.count - i < MATRICES ? s.count - i : MATRICES;
        dim3 grid(static_cast<unsigned>(blocks < MOST ? blocks : MOST), static_cast<unsigned>(some));
        PP_LAUNCH(scale<T>, grid, static_cast<unsigned>(BLOCK), 0, stream, p.c + i * s.c, p.m, p.n, p.ldc, s.c, p.beta);
    }
}

/* A matrix of one row has no distance between rows: whatever the view says, the row's length is a valid one. */
int64_t leading(int64_t rows, int64_t columns, int64_t ld) { return rows <= 1 && ld < columns ? columns : ld; }

template <class T> void run(const PpCtx *ctx, const Product<T> &p, const Batch &s) {
    cudaStream_t stream = static_cast<cudaStream_t>(ctx->stream);
    if (p.k == 0) {
        launch_scale(stream, p, s);
        return;
    }
    int64_t lda = p.ta ? leading(p.k, p.m, p.lda) : leading(p.m, p.k, p.lda);
    int64_t ldb = p.tb ? leading(p.n, p.k, p.ldb) : leading(p.k, p.n, p.ldb), ldc = leading(p.m, p.n, p.ldc);
    const int64_t sizes[] = {p.m, p.n, p.k, lda, ldb, ldc, s.count};
    for (int64_t size : sizes)
        if (size > INT_MAX) {
            char why[160];
            snprintf(why, sizeof why, "a product of %lld x %lld x %lld, %lld of them: a size is beyond what cuBLAS takes",
                     static_cast<long long>(p.m), static_cast<long long>(p.n), static_cast<long long>(p.k), static_cast<long long>(s.count));
            pp_cuda_note("gemm", why, __FILE__, __LINE__);
            return;
        }
    const double n = static_cast<double>(s.count), mn = static_cast<double>(p.m) * static_cast<double>(p.n), k = static_cast<double>(p.k);
    const double moved = static_cast<double>(p.m) * k + k * static_cast<double>(p.n) + mn * (p.beta == 0 ? 1 : 2);
    PP_WORK("product", 2 * n * mn * k, n * moved * static_cast<double>(sizeof(T)));
    PP_TIMED(s.count > 1 ? "cublas gemm batched" : "cublas gemm", stream);
    PP_BLAS(call(static_cast<cublasHandle_t>(ctx->blas), p.tb ? CUBLAS_OP_T : CUBLAS_OP_N, p.ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                 static_cast<int>(p.n), static_cast<int>(p.m), static_cast<int>(p.k), &p.alpha, p.b, static_cast<int>(ldb), p.a,
                 static_cast<int>(lda), &p.beta, p.c, static_cast<int>(ldc), Batch{s.count, s.b, s.a, s.c}));
}

/* Dimensions of length 1 go, and two that are one walk through memory become one. Returns how many stay. */
int fold(int rank, const int64_t *count, const int64_t *sa, const int64_t *sb, const int64_t *sc, Batch *out) {
    int n = 0;
    for (int d = 0; d < rank; d++) {
        if (count[d] == 1)
            continue;
        Batch inner = {count[d], sa[d], sb[d], sc[d]};
        Batch *outer = n ? &out[n - 1] : nullptr;
        if (outer && outer->a == inner.count * inner.a && outer->b == inner.count * inner.b && outer->c == inner.count * inner.c) {
            inner.count *= outer->count;
            *outer = inner;
        } else
            out[n++] = inner;
    }
    return n;
}

template <class T>
void run_batched(const PpCtx *ctx, const Product<T> &p, int rank, const int64_t *count, const int64_t *sa, const int64_t *sb,
                 const int64_t *sc) {
    Batch dim[PP_MAX_RANK];
    int64_t total = 1;
    for (int d = 0; d < rank; d++)
        total *= count[d];
    if (p.m <= 0 || p.n <= 0 || total <= 0)
        return;
    int n = fold(rank, count, sa, sb, sc, dim), longest = 0;
    if (n == 0) {
        run(ctx, p, Batch{1, 0, 0, 0});
        return;
    }
    for (int d = 1; d < n; d++)
        if (dim[d].count >= dim[longest].count)
            longest = d;
    Batch strided = dim[longest];
    dim[longest].count = 1;
    for (int64_t i = 0; i < total / strided.count; i++) {
        Product<T> one = p;
        int64_t rest = i;
        for (int d = n - 1; d >= 0; d--) {
            int64_t q = rest % dim[d].count;
            rest /= dim[d].count;
            one.a += q * dim[d].a;
            one.b += q * dim[d].b;
            one.c += q * dim[d].c;
        }
        run(ctx, one, strided);
    }
}

}   // namespace

void pp_cuda_sgemm(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                   const float *b, int64_t ldb, float beta, float *out, int64_t ldc) {
    if (m > 0 && n > 0)
        run(c, Product<float>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc}, Batch{1, 0, 0, 0});
}

void pp_cuda_dgemm(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                   const double *b, int64_t ldb, double beta, double *out, int64_t ldc) {
    if (m > 0 && n > 0)
        run(c, Product<double>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc}, Batch{1, 0, 0, 0});
}

void pp_cuda_sgemm_batched(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                           const float *b, int64_t ldb, float beta, float *out, int64_t ldc, int rank, const int64_t *count,
                           const int64_t *stride_a, const int64_t *stride_b, const int64_t *stride_c) {
    run_batched(c, Product<float>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc}, rank, count, stride_a, stride_b, stride_c);
}

void pp_cuda_dgemm_batched(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                           const double *b, int64_t ldb, double beta, double *out, int64_t ldc, int rank, const int64_t *count,
                           const int64_t *stride_a, const int64_t *stride_b, const int64_t *stride_c) {
    run_batched(c, Product<double>{ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc}, rank, count, stride_a, stride_b, stride_c);
}
