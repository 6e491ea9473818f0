/*
 * gemm_half.c - matrix products of bf16 and f16 (pp_gemm.h).  Sums are float32 from the first
 * product to the last; C is float32 too, or half and rounded once, at the end.
 *
 * Where the machine multiplies bf16 itself (AVX512-BF16, AMX) oneDNN and gemm_pairs.h do;
 * everywhere else, and for f16, blocks of the operands are converted, which is exact, and
 * multiplied as float32.  The road is chosen by the machine, by m, n, k and the transposes, blocks
 * by m, n, k alone, so the bits of a product depend on these.  Threads divide C, never k.  All room
 * is on the stack.
 */
#include "api/pp.h"
#include "core/number.h"
#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"
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

static inline uint16_t rounded(int type, float x)
{
    return type == PP_BF16 ? pp_to_bf16(x) : pp_to_f16(x);
}

static inline float widened(int type, uint16_t x)
{
    return type == PP_BF16 ? pp_from_bf16(x) : pp_from_f16(x);
}

/* type: known where it is called */
static inline __attribute__((always_inline)) void add_half(const PpGemm *q, const float *sum,
                                                           const int type)
{
    const uint16_t *bias = q->bias;
    const float alpha = *q->alpha;
    for (int64_t i = 0; i < q->m; i++, sum += q->n) {
        uint16_t *c = (uint16_t *)q->c + i * q->ldc;
        if (bias)
            for (int64_t j = 0; j < q->n; j++)
                c[j] = rounded(type, sum[j] + widened(type, bias[j]));
        else if (!q->adds)
            for (int64_t j = 0; j < q->n; j++)
                c[j] = rounded(type, alpha * sum[j]);
        else
            for (int64_t j = 0; j < q->n; j++)
                c[j] = rounded(type, widened(type, c[j]) + alpha * sum[j]);
    }
}

static void add_single(const PpGemm *q, const float *sum)
{
    const float alpha = *q->alpha;
    for (int64_t i = 0; i < q->m; i++, sum += q->n) {
        float *c = (float *)q->c + i * q->ldc;
        if (!q->adds)
            for (int64_t j = 0; j < q->n; j++)
                c[j] = alpha * sum[j];
        else
            for (int64_t j = 0; j < q->n; j++)
                c[j] = c[j] + alpha * sum[j];
    }
}

/* C += or = the block's sums, whose rows lie close together. */
static void add(const PpGemm *q, const float *sum)
{
    if (q->result == PP_F32)
        add_single(q, sum);
    else if (q->type == PP_BF16)
        add_half(q, sum, PP_BF16);
    else
        add_half(q, sum, PP_F16);
}

static void widen(int type, const uint16_t *from, int64_t ld, int64_t lines, int64_t n, float *to)
{
    for (int64_t i = 0; i < lines; i++, from += ld, to += n)
        half_widen(type, from, n, to);
}

/* At most ROWS x COLUMNS. */
static void converted(const PpGemm *q)
{
    float a[ROWS * DEEP], b[DEEP * COLUMNS], sum[ROWS * COLUMNS];
    for (int64_t p = 0; p == 0 || p < q->k; p += DEEP) {
        const PpGemm part = pp_gemm_from(q, 0, 0, p);
        const int64_t k = least(part.k, DEEP);
        widen(q->type, part.a, q->lda, q->ta ? k : q->m, q->ta ? q->m : k, a);
        widen(q->type, part.b, q->ldb, q->tb ? q->n : k, q->tb ? k : q->n, b);
        const PpGemm single = pp_gemm_given(&(PpGemm){.type = PP_F32, .ta = q->ta, .tb = q->tb,
                                                      .m = q->m, .n = q->n, .k = k, .a = a, .b = b,
                                                      .adds = p > 0, .c = sum});
        gemm_one(&single);
    }
    add(q, sum);
}

#if defined PP_DNNL && defined __x86_64__
/* A C of float32. */
static void multiply(const PpGemm *q)
{
    const int64_t deep = gemm_depth(q->k);
    for (int64_t p = 0; p < q->k; p += deep) {
        const PpGemm part = pp_gemm_from(q, 0, 0, p);
        if (dnnl_gemm_bf16bf16f32(q->ta ? 'T' : 'N', q->tb ? 'T' : 'N', q->m, q->n,
                                  least(part.k, deep), *q->alpha, part.a, q->lda, part.b, q->ldb,
                                  q->adds || p > 0, q->c, q->ldc) != dnnl_success)
            gemm_refused("a product of bf16: oneDNN refused it (dnnl_gemm_bf16bf16f32)");
    }
}

/* At most LONG x SHORT, or SHORT x LONG. */
static void by_library(const PpGemm *q)
{
    float sum[LONG * SHORT];
    if (q->result == PP_F32) {
        multiply(q);
        return;
    }
    const float one = 1;
    PpGemm single = *q;
    single.alpha = &one;
    single.adds = 0;
    single.c = sum;
    single.ldc = q->n;
    multiply(&single);
    add(q, sum);
}
#else
static void by_library(const PpGemm *q) { converted(q); }
#endif

/* ---- all of them ---- */

typedef void (*ByBlock)(const PpGemm *block);

/* Who computes it: by the machine, the sides and A's transpose alone, so that a product has the
   same sums whether they are stored or go on to a bias and a rounding. */
static ByBlock way_of(const PpGemm *q)
{
    const Road road = road_of(q->type);
    if (road == CONVERTED)
        return converted;
#ifdef PP_GEMM_PAIRS
    if (gemm_pairs_pay(q, road == AMX) || (road == PAIRS && !gemm_small(q)))
        return gemm_pairs;
#endif
    return gemm_small(q) ? converted : by_library;
}

void gemm_half(const PpGemm *q)
{
    const ByBlock way = way_of(q);
    const int64_t rows = way == converted ? ROWS : way != by_library || q->m > q->n ? LONG : SHORT,
                  columns = way == converted ? COLUMNS : rows == LONG ? SHORT : LONG,
                  across = (q->n + columns - 1) / columns,
                  blocks = (q->m + rows - 1) / rows * across;
    const int team = team_most(), alone = team == 1 || blocks == 1;
    if (alone && team > 1)
        team_set(1); /* a region of one thread would cost as much as a small product */
#pragma omp parallel for schedule(static) if (!alone)
    for (int64_t at = 0; at < blocks; at++) {
        PpGemm block = pp_gemm_from(q, at / across * rows, at % across * columns, 0);
        block.m = least(block.m, rows);
        block.n = least(block.n, columns);
        way(&block);
    }
    if (alone && team > 1)
        team_set(team);
}
