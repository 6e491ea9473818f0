/*
 * bias_cuda.cu - matrix products on the device (pp_gemm.h), in the order of the stream of PpCtx.blas:
 * those with a bias for each column; blas_cuda.cu has the others.
 *
 * cuBLASLt adds the bias where the sums are still in registers (its epilogue): what is rounded and
 * written is the result alone.  A row-major C is its column-major transpose, whose rows are C's
 * columns, and one bias for each row is what the epilogue adds.  Sums are float32, also where a
 * product's depth is divided among blocks (its reduction scheme), and rounded once.
 *
 * The library is asked once for an algorithm for a shape, at the alignment that pointers and
 * strides have (a result's also as its bias has it); the answer is kept.  Where it has none, the
 * product goes to cuBLAS as any other and a kernel adds the bias, of 16-bit types through float32
 * sums in the room of the list of pointers, as many rows at a time as fit there: the same numbers,
 * slower.
 */
#include "device/cuda/blas_cuda.h"
#include "device/cuda/element.h"

#include <cublasLt.h>
#include <new>
#include <string.h>

namespace
{

/* ---- algorithms ---- */

/* All that the library's choice may depend on; without room between its members.  step: from one
 * product of a batch to the next. */
struct Shape {
    int64_t m, n, k, lda, ldb, ldc, count, step_a, step_b, step_c;
    int64_t ta, tb, type, sums, align_a, align_b, align_c;
};

struct Known {
    Shape shape;
    bool has;                                           /* an algorithm */
    cublasLtMatmulAlgo_t algorithm;
};

}   // namespace

/* A stage's shapes are few: those of its layers, twice where microbatches differ by a row. */
struct PpBiased {
    static constexpr int MOST = 256;
    Known known[MOST];
    int n, oldest;
};

namespace
{

/* What one call is given, beside numbers: on the stack, made anew each time. */
struct Call {
    cublasLtMatmulDescOpaque_t what;
    cublasLtMatrixLayoutOpaque_t a, b, c;
};

bool layout(cublasLtMatrixLayoutOpaque_t *to, cudaDataType_t type, int64_t rows, int64_t columns,
            int64_t ld, int64_t count, int64_t step)
{
    const int32_t many = static_cast<int32_t>(count);
    if (!PP_BLAS(cublasLtMatrixLayoutInit(to, type, static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), ld)))
        return false;
    return count == 1 ||
           (PP_BLAS(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &many,
                                                     sizeof many)) &&
            PP_BLAS(cublasLtMatrixLayoutSetAttribute(
                to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step)));
}

bool set(cublasLtMatmulDescOpaque_t *to, cublasLtMatmulDescAttributes_t what, const void *value,
         size_t size)
{
    return PP_BLAS(cublasLtMatmulDescSetAttribute(to, what, value, size));
}

/* Column-major: the operands change places. */
bool describe(Call *call, const Shape &s, const void *bias)
{
    const cudaDataType_t type = blas_type(static_cast<int>(s.type));
    const int32_t first = s.tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                  second = s.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    return PP_BLAS(cublasLtMatmulDescInit(
               &call->what, static_cast<cublasComputeType_t>(s.sums), CUDA_R_32F)) &&
           set(&call->what, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) &&
           set(&call->what, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) &&
           set(&call->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           set(&call->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias) &&
           layout(&call->a, type, s.tb ? s.k : s.n, s.tb ? s.n : s.k, s.ldb, s.count, s.step_b) &&
           layout(&call->b, type, s.ta ? s.m : s.k, s.ta ? s.k : s.m, s.lda, s.count, s.step_a) &&
           layout(&call->c, type, s.n, s.m, s.ldc, s.count, s.step_c);
}

bool prefer(cublasLtMatmulPreferenceOpaque_t *to, cublasLtMatmulPreferenceAttributes_t what,
            const void *value, size_t size)
{
    return PP_BLAS(cublasLtMatmulPreferenceSetAttribute(to, what, value, size));
}

/* The library's first choice; has: it has one. */
bool choose(const PpBlas *blas, Call *call, Known *k)
{
    const uint64_t room = static_cast<uint64_t>(blas->bytes_workspace);
    const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = static_cast<uint32_t>(k->shape.align_a),
                   b = static_cast<uint32_t>(k->shape.align_b),
                   c = static_cast<uint32_t>(k->shape.align_c);
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasLtMatmulHeuristicResult_t found = {};
    int n = 0;
    if (!PP_BLAS(cublasLtMatmulPreferenceInit(&wish)) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c))
        return false;
    const cublasStatus_t e = cublasLtMatmulAlgoGetHeuristic(
        reinterpret_cast<cublasLtHandle_t>(blas->handle), &call->what, &call->a, &call->b, &call->c,
        &call->c, &wish, 1, &found, &n);
    if (e != CUBLAS_STATUS_NOT_SUPPORTED && !PP_BLAS(e))
        return false;
    k->has = e == CUBLAS_STATUS_SUCCESS && n > 0 && found.state == CUBLAS_STATUS_SUCCESS;
    k->algorithm = found.algo;
    return true;
}

/* What is known of the shape, asked for if it is new; NULL: something failed. */
const Known *known_of(PpBlas *blas, Call *call, const Shape &s)
{
    if (!blas->biased)
        blas->biased = new (std::nothrow) PpBiased();
    PpBiased *all = blas->biased;
    if (!all) {
        pp_cuda_note("gemm", "out of memory", __FILE__, __LINE__);
        return nullptr;
    }
    for (int i = 0; i < all->n; i++)
        if (!memcmp(&all->known[i].shape, &s, sizeof s))
            return &all->known[i];
    Known *k = &all->known[all->n < PpBiased::MOST ? all->n : all->oldest];
    k->shape = s;
    if (!choose(blas, call, k))
        return nullptr;
    if (all->n < PpBiased::MOST)
        all->n++;
    else
        all->oldest = (all->oldest + 1) % PpBiased::MOST;
    return k;
}

/* ---- without an algorithm ---- */

/* c[i][j] = sum[i][j] + bias[j], m rows of n; sums may stand where the results do */
template <class Kind, class T = typename Kind::In, class S = typename Kind::Sum>
__global__ void add_bias(PpGemm g, const S *sum, int64_t ld)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    const T *bias = static_cast<const T *>(g.bias);
    T *c = static_cast<T *>(g.c);
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < g.m * g.n;
         i += step) {
        const int64_t row = i / g.n, column = i % g.n;
        c[row * g.ldc + column] = Kind::store(sum[row * ld + column] + Kind::load(bias[column]));
    }
}

/* The product of `piece`, whose sums go to `sum`, and the bias. */
void add_apart(const PpCtx *ctx, const PpGemm &piece, void *sum, int64_t ld)
{
    constexpr int64_t BLOCK = 256, MOST = 1024;
    const int64_t all = piece.m * piece.n, blocks = (all + BLOCK - 1) / BLOCK;
    PpGemm sums = piece;
    sums.bias = nullptr;
    sums.result = PP_F32;
    sums.c = sum;
    sums.ldc = ld;
    cuda_gemm(ctx, sums);
    PP_WORK("elementwise", all, all * (4 + pp_gemm_result_size(&piece)));
    element_kind(piece.type, [&](auto kind) {
        using Kind = decltype(kind);
        PP_LAUNCH(add_bias<Kind>, static_cast<unsigned>(blocks < MOST ? blocks : MOST),
                  static_cast<unsigned>(BLOCK), 0, static_cast<cudaStream_t>(ctx->stream), piece,
                  static_cast<const typename Kind::Sum *>(sum), ld);
    });
}

/* Half types in pieces whose sums the list's room holds. */
void apart(const PpCtx *ctx, const PpGemm &g)
{
    constexpr int64_t ROOM = PP_BLAS_LIST_BYTES / static_cast<int64_t>(sizeof(float)),
                      LINE = 128 / static_cast<int64_t>(sizeof(float));
    const int64_t columns = g.n < ROOM ? g.n : ROOM, ld = (columns + LINE - 1) / LINE * LINE,
                  rows = ROOM / ld;
    if (g.type == PP_F32) {
        add_apart(ctx, g, g.c, g.ldc);
        return;
    }
    for (int64_t i = 0; i < g.m; i += rows)
        for (int64_t j = 0; j < g.n; j += columns) {
            PpGemm piece = pp_gemm_from(&g, i, j, 0);
            piece.m = piece.m < rows ? piece.m : rows;
            piece.n = piece.n < columns ? piece.n : columns;
            add_apart(ctx, piece, static_cast<PpBlas *>(ctx->blas)->list, ld);
        }
}

/* ---- products ---- */

/* The largest power of two that divides where all of it begins; PP_ALIGN at most: which larger one
 * does is a matter of where the plan has put a buffer, and would be a shape of its own. */
int64_t alignment(const void *p, int64_t ld, int64_t step, int64_t size)
{
    const uintptr_t bits =
        reinterpret_cast<uintptr_t>(p) | static_cast<uintptr_t>((ld | step) * size) | PP_ALIGN;
    return static_cast<int64_t>(bits & (~bits + 1));
}

/* Of one product, or of a batch of one dimension. */
Shape shape_of(const PpGemm &g)
{
    const bool many = g.dims > 0;
    const int64_t size = pp_gemm_size(g.type), a = many ? g.stride_a[0] : 0,
                  b = many ? g.stride_b[0] : 0, c = many ? g.stride_c[0] : 0,
                  to = alignment(g.c, g.ldc, c, size), bias = alignment(g.bias, 0, 0, size);
    return Shape{g.m, g.n, g.k, g.lda, g.ldb, g.ldc, many ? g.count[0] : 1, a, b, c, g.ta, g.tb,
                 g.type, blas_sums(g.type, false), alignment(g.a, g.lda, a, size),
                 alignment(g.b, g.ldb, b, size), to < bias ? to : bias};
}

void run(const PpCtx *ctx, const PpGemm &g)
{
    PpBlas *blas = static_cast<PpBlas *>(ctx->blas);
    const Shape s = shape_of(g);
    const float one = 1, zero = 0;
    Call call;
    const Known *k = nullptr;
    if (g.k > 0) {
        k = describe(&call, s, g.bias) ? known_of(blas, &call, s) : nullptr;
        if (!k)
            return;
    }
    for (int64_t i = 0; !(k && k->has) && i < s.count; i++)
        apart(ctx, pp_gemm_of(&g, g.dims, i));
    if (!k || !k->has)
        return;
    blas_work(g, s.count);
    PP_TIMED("cublas gemm bias", static_cast<cudaStream_t>(ctx->stream));
    PP_BLAS(cublasLtMatmul(reinterpret_cast<cublasLtHandle_t>(blas->handle), &call.what, &one, g.b,
                           &call.a, g.a, &call.b, &zero, g.c, &call.c, g.c, &call.c, &k->algorithm,
                           blas->workspace, static_cast<size_t>(blas->bytes_workspace),
                           static_cast<cudaStream_t>(ctx->stream)));
}

}   // namespace

/* With a bias the last dimension of a batch at once, the others one after the other. */
void pp_cuda_gemm(const PpCtx *ctx, const PpGemm *given)
{
    const PpGemm g = blas_given(*given);
    const int outer = g.dims > 1 ? g.dims - 1 : 0;
    if (!g.bias) {
        cuda_gemm(ctx, g);
        return;
    }
    if (g.m > 0 && g.n > 0 && pp_gemm_count(&g, g.dims) > 0)
        for (int64_t i = 0; i < pp_gemm_count(&g, outer); i++)
            run(ctx, pp_gemm_of(&g, outer, i));
}

void pp_cuda_forget_products(PpBlas *blas)
{
    delete blas->biased;
    blas->biased = nullptr;
}
