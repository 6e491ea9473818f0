/*
 * blas_cuda.cu - matrix products on the device (pp_gemm.h) without a bias, in the order of the stream
 * of PpCtx.blas.
 *
 * cuBLAS is column-major: a row-major C = A B is its C^T = B^T A^T, so operands and sizes change
 * places and nothing is copied.  The handle's stream and math mode are the runtime's.  A batch of
 * several dimensions is folded where strides allow it. If one dimension is left, cuBLAS takes its
 * stride; if more, a kernel writes the pointers of all products into the stage's list (PpBlas), and
 * cuBLAS takes that: one call after another would leave most of the card idle.
 *
 * float32 is computed as float32, or TF32 where --tf32 allows it.  Half operands are added up in
 * float32, and a half result is rounded once.
 */
#include "device/cuda/blas_cuda.h"

#include <limits.h>

int pp_cuda_tf32;

namespace {

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

/* ---- lists ---- */

/* Where the operands of `count` products are. */
struct Lists {
    const void **a, **b;
    void **c;
    int count;
};

/* Thread i: those of product first + i, of elements of so many bytes. */
__global__ void list_operands(Batch batch, int64_t first, PpGemm g, Step size, Lists to)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= to.count)
        return;
    Step sum = {1, 0, 0, 0};
    int64_t product = first + i;
    for (int d = batch.n - 1; d >= 0; d--) {
        const Step &by = batch.dim[d];
        int64_t q = product % by.count;
        product /= by.count;
        sum.a += q * by.a;
        sum.b += q * by.b;
        sum.c += q * by.c;
    }
    to.a[i] = static_cast<const char *>(g.a) + sum.a * size.a;
    to.b[i] = static_cast<const char *>(g.b) + sum.b * size.b;
    to.c[i] = static_cast<char *>(g.c) + sum.c * size.c;
}

/* ---- cuBLAS, column-major ---- */

struct Sizes {
    cublasOperation_t ta, tb;
    int m, n, k, lda, ldb, ldc;
    cudaDataType_t in, out;
};

/* A number for sums of float64, and for all others. */
struct Factor {
    double twice;
    float single;
    explicit Factor(float x) : twice(static_cast<double>(x)), single(x) {}
    const void *of(const PpGemm &g) const
    {
        return g.type == PP_F64 ? static_cast<const void *>(&twice) : &single;
    }
};

/* `by`: from one product to the next, and how many. */
void run_strided(const PpCtx *ctx, const PpGemm &g, const Sizes &s, const Step &by)
{
    const cublasHandle_t h = static_cast<PpBlas *>(ctx->blas)->handle;
    const Factor alpha(*g.alpha), beta(g.adds ? 1.0f : 0.0f);
    const cublasComputeType_t sums = blas_sums(g.type, false);
    blas_work(g, by.count);
    PP_TIMED(by.count > 1 ? "cublas gemm batched" : "cublas gemm",
             static_cast<cudaStream_t>(ctx->stream));
    if (by.count == 1)
        PP_BLAS(cublasGemmEx(h, s.ta, s.tb, s.m, s.n, s.k, alpha.of(g), g.b, s.in, s.lda, g.a, s.in,
                             s.ldb, beta.of(g), g.c, s.out, s.ldc, sums, CUBLAS_GEMM_DEFAULT));
    else
        PP_BLAS(cublasGemmStridedBatchedEx(
            h, s.ta, s.tb, s.m, s.n, s.k, alpha.of(g), g.b, s.in, s.lda, by.b, g.a, s.in, s.ldb,
            by.a, beta.of(g), g.c, s.out, s.ldc, by.c, static_cast<int>(by.count), sums,
            CUBLAS_GEMM_DEFAULT));
}

/* Is every operand of every product at a multiple of 16 bytes? */
bool aligned(const PpGemm &g, const Batch &batch, const Step &size)
{
    uintptr_t bits = reinterpret_cast<uintptr_t>(g.a) | reinterpret_cast<uintptr_t>(g.b) |
                     reinterpret_cast<uintptr_t>(g.c);
    for (int d = 0; d < batch.n; d++)
        bits |= static_cast<uintptr_t>((batch.dim[d].a | batch.dim[d].b) * size.a |
                                       batch.dim[d].c * size.c);
    return bits % 16 == 0;
}

/* In pieces that the list holds.  The list is free again when the call before, in the same stream,
 * has run.
 *
 * Where cuBLAS's products by list may use tensor cores, NVIDIA wants the pointers in the list at
 * multiples of 16 bytes: it cannot see them when it chooses a kernel, as it sees pointers and
 * strides of its other functions, and the kernel faults where they are not.  Such products are done
 * without tensor cores. */
void run_listed(const PpCtx *ctx, const PpGemm &g, const Sizes &s, const Batch &batch)
{
    constexpr int BLOCK = 128;
    const PpBlas *blas = static_cast<const PpBlas *>(ctx->blas);
    cudaStream_t stream = static_cast<cudaStream_t>(ctx->stream);
    void **const list = static_cast<void **>(blas->list);
    const Factor alpha(*g.alpha), beta(g.adds ? 1.0f : 0.0f);
    const Step size = {1, pp_gemm_size(g.type), pp_gemm_size(g.type), pp_gemm_result_size(&g)};
    const bool safe = aligned(g, batch, size), half = size.a == 2;
    const cublasComputeType_t sums =
        half && !safe ? CUBLAS_COMPUTE_32F_PEDANTIC : blas_sums(g.type, !safe);
    for (int64_t i = 0; i < batch.total; i += PP_BLAS_LIST) {
        const int some =
            static_cast<int>(batch.total - i < PP_BLAS_LIST ? batch.total - i : PP_BLAS_LIST);
        const Lists to = {const_cast<const void **>(list),
                          const_cast<const void **>(list + PP_BLAS_LIST), list + 2 * PP_BLAS_LIST,
                          some};
        PP_WORK("product", 0, some * 3 * sizeof(void *));
        PP_LAUNCH(list_operands, static_cast<unsigned>((some + BLOCK - 1) / BLOCK), BLOCK, 0,
                  stream, batch, i, g, size, to);
        blas_work(g, some);
        PP_TIMED("cublas gemm by list", stream);
        PP_BLAS(cublasGemmBatchedEx(blas->handle, s.ta, s.tb, s.m, s.n, s.k, alpha.of(g), to.b,
                                    s.in, s.lda, to.a, s.in, s.ldb, beta.of(g), to.c, s.out, s.ldc,
                                    some, sums, CUBLAS_GEMM_DEFAULT));
    }
}

/* ---- a batch ---- */

/* Dimensions of length 1 go, and two that are one walk through memory become one. */
Batch fold(const PpGemm &g)
{
    Batch all;
    for (int d = 0; d < g.dims; d++) {
        all.total *= g.count[d];
        if (g.count[d] == 1)
            continue;
        Step inner = {g.count[d], g.stride_a[d], g.stride_b[d], g.stride_c[d]};
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

/* Can cuBLAS have it?  What not is said. */
bool possible(const PpGemm &g, const Batch &batch)
{
    const int64_t sizes[] = {g.m,   g.n,   g.k,  g.lda,
                             g.ldb, g.ldc, batch.n == 1 ? batch.dim[0].count : 1};
    char why[160];
    for (int d = 0; d < batch.n; d++)
        if (batch.dim[d].c == 0) {
            pp_cuda_note("gemm", "products of one batch have one result, and nothing orders them",
                         __FILE__, __LINE__);
            return false;
        }
    for (int64_t size : sizes)
        if (size > INT_MAX) {
            snprintf(
                why, sizeof why,
                "a product of %lld x %lld x %lld, %lld of them: a size is beyond what cuBLAS takes",
                static_cast<long long>(g.m), static_cast<long long>(g.n),
                static_cast<long long>(g.k), static_cast<long long>(batch.total));
            pp_cuda_note("gemm", why, __FILE__, __LINE__);
            return false;
        }
    return true;
}

}   // namespace

void cuda_gemm(const PpCtx *ctx, const PpGemm &given)
{
    const PpGemm g = blas_given(given);
    const Batch batch = fold(g);
    if (g.m <= 0 || g.n <= 0 || batch.total <= 0 || !possible(g, batch))
        return;
    for (int64_t i = 0; g.k == 0 && !g.adds && i < batch.total; i++) /* empty sums */
        pp_cuda_zeros(ctx, pp_gemm_of(&g, g.dims, i).c, g.ldc, g.m, g.n,
                      static_cast<size_t>(pp_gemm_result_size(&g)));
    if (g.k == 0)
        return;
    const Sizes s = {g.tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                     g.ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                     static_cast<int>(g.n),
                     static_cast<int>(g.m),
                     static_cast<int>(g.k),
                     static_cast<int>(g.ldb),
                     static_cast<int>(g.lda),
                     static_cast<int>(g.ldc),
                     blas_type(g.type),
                     blas_type(g.result)};
    if (batch.n > 1)
        run_listed(ctx, g, s, batch);
    else
        run_strided(ctx, g, s, batch.n == 1 ? batch.dim[0] : Step{1, 0, 0, 0});
}
