/*
 * gemm_half.c - matrix products of bf16 and f16: C = alpha op(A) op(B) + beta C, row-major, any
 * leading dimensions.  Sums are float32 from the first product to the last; C is float32 too, or
 * half and rounded once, at the end.
 *
 * Where the machine multiplies bf16 itself (AVX512-BF16, AMX) oneDNN and gemm_pairs.h do;
 * everywhere else, and for f16, blocks of the operands are converted, which is exact, and
 * multiplied by pp_sgemm.  The road is chosen by the machine, by m, n, k and the transposes, blocks
 * by m, n, k alone, so the bits of a product depend on these.  Threads divide C, never k.  All room
 * is on the stack.
 */
#include "api/pp.h"
#include "core/number.h"
#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"
#include "device/cpu/gemm_half.h"
#include "device/cpu/gemm_pairs.h"

#include <stddef.h>

#if defined PP_DNNL && defined __x86_64__
#include <dnnl.h>
/* Exported since 1.0, but in no header; weak: a program starts with a library that lacks it. */
__attribute__((weak)) dnnl_status_t
dnnl_gemm_bf16bf16f32(char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha,
                      const uint16_t *a, dnnl_dim_t lda, const uint16_t *b, dnnl_dim_t ldb,
                      float beta, float *c, dnnl_dim_t ldc);
#endif

/* Sides of the blocks of C: the longer along the longer side of C where oneDNN multiplies; of
 * converted operands, which with their sums stay in the second-level cache. */
enum { LONG = 512, SHORT = 256, ROWS = 128, COLUMNS = 256, DEEP = 256 };

/* ---- what the machine has ---- */

/* PAIRS: there is no library, and gemm_pairs.h has all; else it has what it is faster at */
typedef enum { UNKNOWN, CONVERTED, PAIRS, AVX512, AMX } Road;

static Road find_road(void)
{
#if defined PP_DNNL && defined __x86_64__
    enum { BF16 = dnnl_cpu_isa_avx512_core_bf16, TILES = dnnl_cpu_isa_avx512_core_amx };
    int isa = (int)dnnl_get_effective_cpu_isa(); /* DNNL_MAX_CPU_ISA hides instructions */
    if (dnnl_gemm_bf16bf16f32 && (isa & BF16) == BF16)
        return (isa & TILES) == TILES ? AMX : AVX512;
#elif defined PP_GEMM_PAIRS
    return PAIRS;
#endif
    return CONVERTED;
}

/* Of the process; whoever asks first finds what all others would. */
static Road road_of(int dtype)
{
    static int known;
    int road = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (dtype != PP_BF16)
        return CONVERTED;
    if (road == UNKNOWN) {
        road = (int)find_road();
        __atomic_store_n(&known, road, __ATOMIC_RELAXED);
    }
    return (Road)road;
}

const char *gemm_half_text(int dtype)
{
    switch (road_of(dtype)) {
    case AMX: return "by oneDNN with AMX";
    case AVX512: return "with AVX512-BF16 and oneDNN";
    case PAIRS: return "with AVX512-BF16";
    case UNKNOWN:
    case CONVERTED: break;
    }
    return "as float32, of converted operands";
}

/* ---- one block of C ---- */

static inline uint16_t rounded(int dtype, float x)
{
    return dtype == PP_BF16 ? pp_to_bf16(x) : pp_to_f16(x);
}

static inline float widened(int dtype, uint16_t x)
{
    return dtype == PP_BF16 ? pp_from_bf16(x) : pp_from_f16(x);
}

/* dtype: known where it is called */
static inline __attribute__((always_inline)) void add_half(const Product *q, const Block *o,
                                                           const float *sum, const int dtype)
{
    for (int64_t i = 0; i < o->m; i++, sum += o->n) {
        uint16_t *c = q->half + (o->i + i) * q->ldc + o->j;
        float alpha = q->alpha, beta = q->beta;
        if (q->bias)
            for (int64_t j = 0; j < o->n; j++)
                c[j] = rounded(dtype, sum[j] + widened(dtype, q->bias[o->j + j]));
        else if (beta == 0)
            for (int64_t j = 0; j < o->n; j++)
                c[j] = rounded(dtype, alpha * sum[j]);
        else
            for (int64_t j = 0; j < o->n; j++)
                c[j] = rounded(dtype, beta * widened(dtype, c[j]) + alpha * sum[j]);
    }
}

static void add_f32(const Product *q, const Block *o, const float *sum)
{
    for (int64_t i = 0; i < o->m; i++, sum += o->n) {
        float *c = q->single + (o->i + i) * q->ldc + o->j, alpha = q->alpha, beta = q->beta;
        if (beta == 0)
            for (int64_t j = 0; j < o->n; j++)
                c[j] = alpha * sum[j];
        else
            for (int64_t j = 0; j < o->n; j++)
                c[j] = beta * c[j] + alpha * sum[j];
    }
}

/* C += or = the block's sums, whose rows lie close together. */
static void add(const Product *q, const Block *o, const float *sum)
{
    if (q->single)
        add_f32(q, o, sum);
    else if (q->dtype == PP_BF16)
        add_half(q, o, sum, PP_BF16);
    else
        add_half(q, o, sum, PP_F16);
}

static void widen(int dtype, const uint16_t *from, int64_t ld, int64_t lines, int64_t n, float *to)
{
    for (int64_t i = 0; i < lines; i++, from += ld, to += n)
        half_widen(dtype, from, n, to);
}

/* At most ROWS x COLUMNS. */
static void converted(const Product *q, const Block *o)
{
    float a[ROWS * DEEP], b[DEEP * COLUMNS], sum[ROWS * COLUMNS];
    for (int64_t p = 0; p == 0 || p < q->k; p += DEEP) {
        int64_t k = q->k - p < DEEP ? q->k - p : DEEP, lda = q->ta ? o->m : k,
                ldb = q->tb ? k : o->n;
        widen(q->dtype, a_at(q, o->i, p), q->lda, q->ta ? k : o->m, lda, a);
        widen(q->dtype, b_at(q, p, o->j), q->ldb, q->tb ? o->n : k, ldb, b);
        pp_sgemm(q->ta, q->tb, o->m, o->n, k, 1, a, lda, b, ldb, p ? 1 : 0, sum, o->n);
    }
    add(q, o, sum);
}

#if defined PP_DNNL && defined __x86_64__
/* C = alpha op(A) op(B) + beta C for a C of float32 */
static void multiply(const Product *q, const Block *o, float alpha, float beta, float *c,
                     int64_t ldc)
{
    int64_t deep = gemm_depth(q->k);
    for (int64_t p = 0; p < q->k; p += deep)
        if (dnnl_gemm_bf16bf16f32(q->ta ? 'T' : 'N', q->tb ? 'T' : 'N', o->m, o->n,
                                  q->k - p < deep ? q->k - p : deep, alpha, a_at(q, o->i, p),
                                  q->lda, b_at(q, p, o->j), q->ldb, p ? 1 : beta, c,
                                  ldc) != dnnl_success)
            gemm_refused("a product of bf16: oneDNN refused it (dnnl_gemm_bf16bf16f32)");
}

/* At most LONG x SHORT, or SHORT x LONG. */
static void by_library(const Product *q, const Block *o)
{
    float sum[LONG * SHORT];
    if (q->single) {
        multiply(q, o, q->alpha, q->beta, q->single + o->i * q->ldc + o->j, q->ldc);
        return;
    }
    multiply(q, o, 1, 0, sum, o->n);
    add(q, o, sum);
}
#else
static void by_library(const Product *q, const Block *o) { converted(q, o); }
#endif

/* ---- all of them ---- */

typedef void (*ByBlock)(const Product *q, const Block *o);

/* Who computes it: by the machine, the sides and A's transpose alone, so that a product has the
   same sums whether they are stored or go on to a bias and a rounding. */
static ByBlock way_of(const Product *q)
{
    const Road road = road_of(q->dtype);
    if (road == CONVERTED)
        return converted;
#ifdef PP_GEMM_PAIRS
    if (gemm_pairs_pay(q->m, q->n, q->k, q->ta, road == AMX) ||
        (road == PAIRS && !gemm_small(q->m, q->n, q->k)))
        return gemm_pairs;
#endif
    return gemm_small(q->m, q->n, q->k) ? converted : by_library;
}

static void block(const Product *q, ByBlock way, int64_t rows, int64_t columns, int64_t i,
                  int64_t j)
{
    way(q, &(Block){.i = i,
                    .j = j,
                    .m = q->m - i < rows ? q->m - i : rows,
                    .n = q->n - j < columns ? q->n - j : columns});
}

static void product(const Product *q)
{
    if (q->m <= 0 || q->n <= 0)
        return;
    const ByBlock way = way_of(q);
    int64_t rows = way == converted ? ROWS : way != by_library || q->m > q->n ? LONG : SHORT,
            columns = way == converted ? COLUMNS : rows == LONG ? SHORT : LONG,
            across = (q->n + columns - 1) / columns, blocks = (q->m + rows - 1) / rows * across;
    int team = team_most();
    if (team > 1 && blocks > 1) {
#pragma omp parallel for schedule(static)
        for (int64_t at = 0; at < blocks; at++)
            block(q, way, rows, columns, at / across * rows, at % across * columns);
        return;
    }
    if (team > 1)
        team_set(1); /* a region of one thread would cost as much as a small product */
    for (int64_t at = 0; at < blocks; at++)
        block(q, way, rows, columns, at / across * rows, at % across * columns);
    if (team > 1)
        team_set(team);
}

static void batch(const Product *first, int rank, const int64_t *count, const int64_t *stride_a,
                  const int64_t *stride_b, const int64_t *stride_c)
{
    if (first->m <= 0 || first->n <= 0)
        return;
    int64_t total = gemm_batch_total(rank, count);
    int team = gemm_batch_team(total, first->m, first->n, first->k);
    (void)team; /* built without OpenMP */
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t i = 0; i < total; i++) {
        BatchPlace at = gemm_batch_place(i, rank, count, stride_a, stride_b, stride_c);
        Product q = *first;
        q.a += at.a;
        q.b += at.b;
        if (q.single)
            q.single += at.c;
        else
            q.half += at.c;
        product(&q);
    }
}

/* clang-format off */
#define HALF_PRODUCT(NAME, DTYPE, T, FIELD)                                                        \
    void pp_##NAME(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha,                   \
                   const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb, float beta,     \
                   T *c, int64_t ldc)                                                              \
    {                                                                                              \
        product(&(Product){.dtype = DTYPE, .ta = ta, .tb = tb, .m = m, .n = n, .k = k,             \
                           .alpha = alpha, .a = a, .lda = lda, .b = b, .ldb = ldb, .beta = beta,   \
                           .FIELD = c, .ldc = ldc});                                               \
    }                                                                                              \
    void pp_##NAME##_batched(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha,         \
                             const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb,       \
                             float beta, T *c, int64_t ldc, int rank, const int64_t *count,        \
                             const int64_t *stride_a, const int64_t *stride_b,                     \
                             const int64_t *stride_c)                                              \
    {                                                                                              \
        batch(&(Product){.dtype = DTYPE, .ta = ta, .tb = tb, .m = m, .n = n, .k = k,               \
                         .alpha = alpha, .a = a, .lda = lda, .b = b, .ldb = ldb, .beta = beta,     \
                         .FIELD = c, .ldc = ldc},                                                  \
              rank, count, stride_a, stride_b, stride_c);                                          \
    }
/* clang-format on */

HALF_PRODUCT(bgemm, PP_BF16, uint16_t, half)
HALF_PRODUCT(hgemm, PP_F16, uint16_t, half)
HALF_PRODUCT(bsgemm, PP_BF16, float, single)
HALF_PRODUCT(hsgemm, PP_F16, float, single)

/* clang-format off */
#define BIAS_PRODUCT(NAME, DTYPE)                                                                  \
    void pp_##NAME(int ta, int tb, int64_t m, int64_t n, int64_t k, const uint16_t *a,             \
                   int64_t lda, const uint16_t *b, int64_t ldb, const uint16_t *bias, uint16_t *c, \
                   int64_t ldc)                                                                    \
    {                                                                                              \
        product(&(Product){.dtype = DTYPE, .ta = ta, .tb = tb, .m = m, .n = n, .k = k, .alpha = 1, \
                           .a = a, .lda = lda, .b = b, .ldb = ldb, .half = c, .ldc = ldc,          \
                           .bias = bias});                                                         \
    }                                                                                              \
    void pp_##NAME##_batched(int ta, int tb, int64_t m, int64_t n, int64_t k, const uint16_t *a,   \
                             int64_t lda, const uint16_t *b, int64_t ldb, const uint16_t *bias,    \
                             uint16_t *c, int64_t ldc, int rank, const int64_t *count,             \
                             const int64_t *stride_a, const int64_t *stride_b,                     \
                             const int64_t *stride_c)                                              \
    {                                                                                              \
        batch(&(Product){.dtype = DTYPE, .ta = ta, .tb = tb, .m = m, .n = n, .k = k, .alpha = 1,   \
                         .a = a, .lda = lda, .b = b, .ldb = ldb, .half = c, .ldc = ldc,            \
                         .bias = bias},                                                            \
              rank, count, stride_a, stride_b, stride_c);                                          \
    }
/* clang-format on */

BIAS_PRODUCT(bgemm_bias, PP_BF16)
BIAS_PRODUCT(hgemm_bias, PP_F16)
