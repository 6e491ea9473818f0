/*
 * bias_cuda.cu - matrix products with a bias for each column: C = op(A) op(B) + bias, or its ReLU,
 * in the order of the stream of PpCtx.blas.  In: row-major operands with any leading dimension, as
 * blas_cuda.cu takes them.
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
 *
 * What the library's ReLU makes of a NaN its documentation does not say.  A step that has gone
 * wrong must show it, so an algorithm with a ReLU is first tried with a bias of NaN, on the
 * operands of its first call, and where anything else comes out a kernel takes the ReLU.  A sum
 * that began with +0 is never -0, and a ReLU before the rounding gives what one behind it gives: 0
 * of what rounds to 0.
 */
#include "api/pp_cuda_calls.h"
#include "api/pp_half.h"

#include <cublasLt.h>
#include <new>

namespace
{

/* cuBLAS's name of the type of operands, bias and result. */
template <cudaDataType_t Type> struct Half {
    using T = uint16_t;
    static constexpr cudaDataType_t type = Type;
};
struct Single {
    using T = float;
    static constexpr cudaDataType_t type = CUDA_R_32F;
};

template <class Kind> struct Product {
    using T = typename Kind::T;
    int ta, tb;
    bool relu;
    int64_t m, n, k;
    const T *a;
    int64_t lda;
    const T *b;
    int64_t ldb;
    const T *bias;
    T *c;
    int64_t ldc;
};

/* From one product of a batch to the next. */
struct Step {
    int64_t count, a, b, c;
};

/* ---- algorithms ---- */

/* All that the library's choice may depend on. */
struct Shape {
    int64_t m, n, k, lda, ldb, ldc, count, step_a, step_b, step_c;
    int ta, tb, relu, type, compute;
    unsigned align_a, align_b, align_c;
};

bool same(const Shape &x, const Shape &y)
{
    return x.m == y.m && x.n == y.n && x.k == y.k && x.lda == y.lda && x.ldb == y.ldb &&
           x.ldc == y.ldc && x.count == y.count && x.step_a == y.step_a && x.step_b == y.step_b &&
           x.step_c == y.step_c && x.ta == y.ta && x.tb == y.tb && x.relu == y.relu &&
           x.type == y.type && x.compute == y.compute && x.align_a == y.align_a &&
           x.align_b == y.align_b && x.align_c == y.align_c;
}

struct Known {
    Shape shape;
    bool has;                                           /* an algorithm, whose ReLU keeps a NaN */
    bool tried;                                         /* of a ReLU: has says so */
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
    const cudaDataType_t type = static_cast<cudaDataType_t>(s.type);
    const int32_t first = s.tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                  second = s.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = s.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    return PP_BLAS(cublasLtMatmulDescInit(
               &call->what, static_cast<cublasComputeType_t>(s.compute), CUDA_R_32F)) &&
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
    const Shape &s = k->shape;
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasLtMatmulHeuristicResult_t found = {};
    int n = 0;
    if (!PP_BLAS(cublasLtMatmulPreferenceInit(&wish)) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &s.align_b, sizeof s.align_b) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &s.align_a, sizeof s.align_a) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &s.align_c, sizeof s.align_c) ||
        !prefer(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &s.align_c, sizeof s.align_c))
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
Known *known_of(PpBlas *blas, Call *call, const Shape &s)
{
    if (!blas->biased)
        blas->biased = new (std::nothrow) PpBiased();
    PpBiased *all = blas->biased;
    if (!all) {
        pp_cuda_note("gemm", "out of memory", __FILE__, __LINE__);
        return nullptr;
    }
    for (int i = 0; i < all->n; i++)
        if (same(all->known[i].shape, s))
            return &all->known[i];
    Known *k = &all->known[all->n < PpBiased::MOST ? all->n : all->oldest];
    k->shape = s;
    k->tried = false;
    if (!choose(blas, call, k))
        return nullptr;
    if (all->n < PpBiased::MOST)
        all->n++;
    else
        all->oldest = (all->oldest + 1) % PpBiased::MOST;
    return k;
}

/* ---- without an algorithm ---- */

__device__ inline float wide(Single, float x) { return x; }
__device__ inline float wide(Half<CUDA_R_16BF>, uint16_t x) { return pp_from_bf16(x); }
__device__ inline float wide(Half<CUDA_R_16F>, uint16_t x) { return pp_from_f16(x); }
__device__ inline void put(Single, float *to, float x) { *to = x; }
__device__ inline void put(Half<CUDA_R_16BF>, uint16_t *to, float x) { *to = pp_to_bf16(x); }
__device__ inline void put(Half<CUDA_R_16F>, uint16_t *to, float x) { *to = pp_to_f16(x); }

/* c[i][j] = sum[i][j] + bias[j]; sums may stand where the results do */
template <class Kind, class T = typename Kind::T>
__global__ void add_bias(const float *sum, int64_t ld, const T *bias, T *c, int64_t ldc, int64_t m,
                         int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < m * n;
         i += step) {
        const int64_t row = i / n, column = i % n;
        put(Kind(), c + row * ldc + column, sum[row * ld + column] + wide(Kind(), bias[column]));
    }
}

/* Element i of `count` results of m x n, each `step` behind the one before. */
template <class T>
__device__ inline T *element(T *c, int64_t ld, int64_t step, int64_t m, int64_t n, int64_t i)
{
    return c + i / (m * n) * step + i / n % m * ld + i % n;
}

/* what is not above 0 becomes 0; a NaN stays */
template <class Kind, class T = typename Kind::T>
__global__ void rectify(T *c, int64_t ld, int64_t step, int64_t m, int64_t n, int64_t count)
{
    const int64_t by = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count * m * n;
         i += by) {
        T *x = element(c, ld, step, m, n, i);
        if (wide(Kind(), *x) <= 0)
            put(Kind(), x, 0);
    }
}

/* *to += how many are no NaN */
template <class Kind, class T = typename Kind::T>
__global__ void count_numbers(const T *c, int64_t ld, int64_t step, int64_t m, int64_t n,
                              int64_t count, unsigned long long *to)
{
    const int64_t by = static_cast<int64_t>(gridDim.x) * blockDim.x;
    unsigned long long numbers = 0;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count * m * n;
         i += by) {
        const float x = wide(Kind(), *element(c, ld, step, m, n, i));
        numbers += x == x;
    }
    if (numbers > 0)
        atomicAdd(to, numbers);
}

constexpr unsigned BLOCK = 256;

/* Blocks whose threads stride over n elements. */
unsigned blocks_of(int64_t n)
{
    constexpr int64_t MOST = 1024;
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
    return static_cast<unsigned>(blocks < MOST ? blocks : MOST);
}

template <class Kind>
void launch_bias(const PpCtx *ctx, const float *sum, int64_t ld, const Product<Kind> &p)
{
    PP_WORK("elementwise", p.m * p.n, p.m * p.n * (sizeof(float) + sizeof(*p.c)));
    PP_LAUNCH(add_bias<Kind>, blocks_of(p.m * p.n), BLOCK, 0,
              static_cast<cudaStream_t>(ctx->stream), sum, ld, p.bias, p.c, p.ldc, p.m, p.n);
}

template <class Kind> void launch_relu(const PpCtx *ctx, const Product<Kind> &p, const Step &by)
{
    const int64_t all = by.count * p.m * p.n;
    PP_WORK("elementwise", all, 2 * all * sizeof(*p.c));
    PP_LAUNCH(rectify<Kind>, blocks_of(all), BLOCK, 0, static_cast<cudaStream_t>(ctx->stream), p.c,
              p.ldc, by.c, p.m, p.n, by.count);
}

void sums(const PpCtx *ctx, const Product<Half<CUDA_R_16BF>> &p, float *to, int64_t ld)
{
    pp_cuda_bsgemm(ctx, p.ta, p.tb, p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, 0, to, ld);
}
void sums(const PpCtx *ctx, const Product<Half<CUDA_R_16F>> &p, float *to, int64_t ld)
{
    pp_cuda_hsgemm(ctx, p.ta, p.tb, p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, 0, to, ld);
}

void apart(const PpCtx *ctx, const Product<Single> &p)
{
    pp_cuda_sgemm(ctx, p.ta, p.tb, p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb, 0, p.c, p.ldc);
    launch_bias(ctx, p.c, p.ldc, p);
}

/* In pieces whose sums the list's room holds. */
template <cudaDataType_t Type> void apart(const PpCtx *ctx, const Product<Half<Type>> &p)
{
    constexpr int64_t ROOM = PP_BLAS_LIST_BYTES / static_cast<int64_t>(sizeof(float));
    float *sum = static_cast<float *>(static_cast<PpBlas *>(ctx->blas)->list);
    constexpr int64_t LINE = 128 / static_cast<int64_t>(sizeof(float));
    const int64_t columns = p.n < ROOM ? p.n : ROOM, ld = (columns + LINE - 1) / LINE * LINE,
                  rows = ROOM / ld;
    for (int64_t i = 0; i < p.m; i += rows)
        for (int64_t j = 0; j < p.n; j += columns) {
            Product<Half<Type>> piece = p;
            piece.m = p.m - i < rows ? p.m - i : rows;
            piece.n = p.n - j < columns ? p.n - j : columns;
            piece.a += p.ta ? i : i * p.lda;
            piece.b += p.tb ? j * p.ldb : j;
            piece.bias += j;
            piece.c += i * p.ldc + j;
            sums(ctx, piece, sum, ld);
            launch_bias(ctx, sum, ld, piece);
        }
}

/* ---- products ---- */

/* The largest power of two that divides where all of it begins; PP_ALIGN at most: which larger one
 * does is a matter of where the plan has put a buffer, and would be a shape of its own, with an
 * algorithm and a trial of its own. */
template <class T> unsigned alignment(const T *p, int64_t ld, int64_t step)
{
    const uintptr_t bits = reinterpret_cast<uintptr_t>(p) |
                           static_cast<uintptr_t>(ld | step) * sizeof(T) | PP_ALIGN;
    return static_cast<unsigned>(bits & (~bits + 1));
}

unsigned least(unsigned x, unsigned y) { return x < y ? x : y; }

template <class Kind> bool shape_of(PpBlas *blas, const Product<Kind> &p, const Step &by, Shape *s)
{
    cublasMath_t mode = CUBLAS_DEFAULT_MATH;
    if (!PP_BLAS(cublasGetMathMode(blas->handle, &mode)))
        return false;
    const bool tf32 = Kind::type == CUDA_R_32F &&
                      (mode & CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_TF32_TENSOR_OP_MATH;
    *s = {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, by.count, by.a, by.b, by.c, p.ta, p.tb, p.relu,
          Kind::type, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
          alignment(p.a, p.lda, by.a), alignment(p.b, p.ldb, by.b),
          least(alignment(p.c, p.ldc, by.c), alignment(p.bias, 0, 0))};
    return true;
}

template <class Kind>
void multiply(const PpCtx *ctx, const Product<Kind> &p, const Step &by, Call *call, const Known *k)
{
    PpBlas *blas = static_cast<PpBlas *>(ctx->blas);
    const float one = 1, zero = 0;
    const double count = static_cast<double>(by.count), mn = static_cast<double>(p.m * p.n),
                 depth = static_cast<double>(p.k);
    PP_WORK("product", count * (2 * depth + 1) * mn,
            count * ((static_cast<double>(p.m) + static_cast<double>(p.n)) * depth + mn) *
                sizeof(*p.c));
    PP_TIMED("cublas gemm bias", static_cast<cudaStream_t>(ctx->stream));
    PP_BLAS(cublasLtMatmul(reinterpret_cast<cublasLtHandle_t>(blas->handle), &call->what, &one, p.b,
                           &call->a, p.a, &call->b, &zero, p.c, &call->c, p.c, &call->c,
                           &k->algorithm, blas->workspace,
                           static_cast<size_t>(blas->bytes_workspace),
                           static_cast<cudaStream_t>(ctx->stream)));
}

/* Does the algorithm's ReLU keep a NaN?  Every sum with a bias of NaN is one; what comes out as
 * something else is counted, where the result will stand. */
template <class Kind>
bool try_relu(const PpCtx *ctx, const Product<Kind> &p, const Step &by, Call *call, Known *k)
{
    constexpr int64_t FRONT = PP_ALIGN;                 /* the number, and the row's alignment */
    PpBlas *blas = static_cast<PpBlas *>(ctx->blas);
    const cudaStream_t stream = static_cast<cudaStream_t>(ctx->stream);
    char *const list = static_cast<char *>(blas->list);
    const int64_t bytes = p.n * static_cast<int64_t>(sizeof *p.c);
    k->tried = true;
    k->has = k->has && bytes <= PP_BLAS_LIST_BYTES - FRONT;
    if (!k->has)
        return true;
    {
        PP_WORK("fill", 0, FRONT + bytes);
        PP_TIMED("cudaMemsetAsync", stream);
        PP_CUDA(cudaMemsetAsync(list, 0, FRONT, stream));
        PP_CUDA(cudaMemsetAsync(list + FRONT, 0xff, static_cast<size_t>(bytes), stream));
    }
    if (!describe(call, k->shape, list + FRONT))
        return false;
    multiply(ctx, p, by, call, k);
    const int64_t all = by.count * p.m * p.n;
    {
        PP_WORK("count", 0, all * sizeof(*p.c));
        PP_LAUNCH(count_numbers<Kind>, blocks_of(all), BLOCK, 0, stream, p.c, p.ldc, by.c, p.m, p.n,
                  by.count, reinterpret_cast<unsigned long long *>(list));
    }
    const bool fetched = pp_cuda_fetch(ctx, 1);
    k->has = fetched && blas->counting->staged[0] == 0;
    return fetched && describe(call, k->shape, p.bias);
}

/* Products that one stride tells apart. */
template <class Kind> void run(const PpCtx *ctx, const Product<Kind> &p, const Step &by)
{
    PpBlas *blas = static_cast<PpBlas *>(ctx->blas);
    Shape s;
    Call call;
    Known *k = nullptr;
    if (!shape_of(blas, p, by, &s))
        return;
    if (p.k > 0) {
        k = describe(&call, s, p.bias) ? known_of(blas, &call, s) : nullptr;
        if (!k || (p.relu && !k->tried && !try_relu(ctx, p, by, &call, k)))
            return;
    }
    if (k && k->has) {
        multiply(ctx, p, by, &call, k);
    } else if (p.relu) {
        Product<Kind> sum = p;
        sum.relu = false;
        run(ctx, sum, by);
        launch_relu(ctx, p, by);
    } else {
        for (int64_t i = 0; i < by.count; i++) {
            Product<Kind> one = p;
            one.a += i * by.a;
            one.b += i * by.b;
            one.c += i * by.c;
            apart(ctx, one);
        }
    }
}

/* A matrix of one row has no distance between rows: the row's length is a valid one. */
int64_t leading(int64_t rows, int64_t columns, int64_t ld)
{
    return rows <= 1 && ld < columns ? columns : ld;
}

/* The last dimension at once, the others one after the other. */
template <class Kind>
void run_all(const PpCtx *ctx, Product<Kind> p, int rank, const int64_t *count, const int64_t *sa,
             const int64_t *sb, const int64_t *sc)
{
    int64_t outer = 1;
    for (int d = 0; d + 1 < rank; d++)
        outer *= count[d];
    const Step by = rank ? Step{count[rank - 1], sa[rank - 1], sb[rank - 1], sc[rank - 1]}
                         : Step{1, 0, 0, 0};
    if (p.m <= 0 || p.n <= 0 || outer * by.count <= 0)
        return;
    p.lda = p.ta ? leading(p.k, p.m, p.lda) : leading(p.m, p.k, p.lda);
    p.ldb = p.tb ? leading(p.n, p.k, p.ldb) : leading(p.k, p.n, p.ldb);
    p.ldc = leading(p.m, p.n, p.ldc);
    for (int64_t i = 0; i < outer; i++) {
        Product<Kind> mine = p;
        for (int64_t d = rank - 2, left = i; d >= 0; left /= count[d--]) {
            mine.a += left % count[d] * sa[d];
            mine.b += left % count[d] * sb[d];
            mine.c += left % count[d] * sc[d];
        }
        run(ctx, mine, by);
    }
}

}   // namespace

void pp_cuda_forget_products(PpBlas *blas)
{
    delete blas->biased;
    blas->biased = nullptr;
}

#define BIAS_PRODUCT(NAME, KIND, T, RELU)                                                          \
    void pp_cuda_##NAME(const PpCtx *ctx, int ta, int tb, int64_t m, int64_t n, int64_t k,         \
                        const T *a, int64_t lda, const T *b, int64_t ldb, const T *bias, T *c,     \
                        int64_t ldc)                                                               \
    {                                                                                              \
        run_all(ctx, Product<KIND>{ta, tb, RELU, m, n, k, a, lda, b, ldb, bias, c, ldc}, 0,        \
                nullptr, nullptr, nullptr, nullptr);                                               \
    }                                                                                              \
    void pp_cuda_##NAME##_batched(                                                                 \
        const PpCtx *ctx, int ta, int tb, int64_t m, int64_t n, int64_t k, const T *a,             \
        int64_t lda, const T *b, int64_t ldb, const T *bias, T *c, int64_t ldc, int rank,          \
        const int64_t *count, const int64_t *stride_a, const int64_t *stride_b,                    \
        const int64_t *stride_c)                                                                   \
    {                                                                                              \
        run_all(ctx, Product<KIND>{ta, tb, RELU, m, n, k, a, lda, b, ldb, bias, c, ldc}, rank,     \
                count, stride_a, stride_b, stride_c);                                              \
    }
BIAS_PRODUCT(sgemm_bias, Single, float, false)
BIAS_PRODUCT(bgemm_bias, Half<CUDA_R_16BF>, uint16_t, false)
BIAS_PRODUCT(hgemm_bias, Half<CUDA_R_16F>, uint16_t, false)
BIAS_PRODUCT(sgemm_bias_relu, Single, float, true)
BIAS_PRODUCT(bgemm_bias_relu, Half<CUDA_R_16BF>, uint16_t, true)
BIAS_PRODUCT(hgemm_bias_relu, Half<CUDA_R_16F>, uint16_t, true)
