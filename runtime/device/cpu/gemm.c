/*
 * gemm.c - matrix products (pp_gemm.h) of float32 and float64, one at a time.
 *
 * The library (float32: oneDNN, whose entry costs 0.3 us, else a CBLAS; float64: a CBLAS), and
 * where there is none an own register-tiled kernel, which adds over k in ascending order, one
 * accumulator per element of C and block of k. Small products always take the own one; of float32
 * all but narrow ones take gemm_wide.h's, in a program compiled for AVX-512.  The road is
 * chosen by m, n, k and by what the program was built with, so the bits of a product depend on m,
 * n, k and the transposes alone.  Threads divide the rows or columns of C, never k.
 */
#include "api/pp.h"
#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"
#include "device/cpu/gemm_wide.h"

#include <string.h>

#ifdef PP_DNNL
#include <dnnl.h>
#endif
#if defined PP_MKL
#include <mkl.h>
#elif defined PP_ARMPL
#include <armpl.h>
#elif defined PP_BLIS
#include <blis.h>
#elif defined PP_CBLAS
#include <cblas.h>
#endif
#if defined PP_CBLAS && !defined PP_OPENBLAS
typedef int blasint; /* the lp64 interface, which detect.sh asks for */
#endif

enum { TILE_M = 4, TILE_N = 16, BLOCK_K = 256 };

const char *gemm_first_refused;

const char *gemm_error(void)
{
    const char *why = __atomic_load_n(&gemm_first_refused, __ATOMIC_RELAXED);
    return why ? why : "";
}

const char *gemm_library(void)
{
#ifdef PP_DNNL
#define FIRST "oneDNN"
#define AND " and "
#else
#define FIRST ""
#define AND ""
#endif
#if defined PP_MKL
    return FIRST AND "MKL";
#elif defined PP_ARMPL
    return FIRST AND "Arm Performance Libraries";
#elif defined PP_BLIS
    return FIRST AND "BLIS";
#elif defined PP_OPENBLAS
    return FIRST AND "OpenBLAS";
#elif defined PP_CBLAS
    return FIRST AND "CBLAS";
#else
    return FIRST;
#endif
}

/* Libraries have threads of their own, which the ranks of one machine would start once each.  Of
   MKL and of Arm's library detect.sh takes the sequential one. */
void gemm_prepare(void)
{
#if defined PP_OPENBLAS
    openblas_set_num_threads(1);
#elif defined PP_BLIS
    bli_thread_set_num_threads(1);
#endif
}

/* The own kernel, once per element type; V is a vector of TILE_N elements at any address. */
typedef float VecF __attribute__((vector_size(TILE_N * 4), aligned(4), may_alias));
typedef double VecD __attribute__((vector_size(TILE_N * 8), aligned(8), may_alias));

#define OWN_KERNEL(T, V, NAME)                                                                     \
    /* acc = A (mr x k, element (i,p) at a[i*as + p*ap]) times packed B (k x TILE_N) */            \
    static void NAME##_tile(const PpGemm *q, const T *a, int64_t as, int64_t ap, const T *b,       \
                            int64_t ldb, T acc[TILE_M][TILE_N])                                    \
    {                                                                                              \
        V s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                  \
        const T *a1 = q->m > 1 ? a + as : a, *a2 = q->m > 2 ? a1 + as : a,                         \
                *a3 = q->m > 3 ? a2 + as : a;                                                      \
        for (int64_t p = 0; p < q->k; p++) {                                                       \
            V row = *(const V *)(const void *)(b + p * ldb);                                       \
            s0 += a[p * ap] * row;                                                                 \
            s1 += a1[p * ap] * row;                                                                \
            s2 += a2[p * ap] * row;                                                                \
            s3 += a3[p * ap] * row;                                                                \
        }                                                                                          \
        memcpy(acc[0], &s0, sizeof s0);                                                            \
        memcpy(acc[1], &s1, sizeof s1);                                                            \
        memcpy(acc[2], &s2, sizeof s2);                                                            \
        memcpy(acc[3], &s3, sizeof s3);                                                            \
    }                                                                                              \
    /* One panel of TILE_N columns of B, zero-filled on the right. */                              \
    static void NAME##_pack(const PpGemm *q, T *out)                                               \
    {                                                                                              \
        const T *b = q->b;                                                                         \
        for (int64_t p = 0; p < q->k; p++)                                                         \
            for (int64_t j = 0; j < TILE_N; j++)                                                   \
                out[p * TILE_N + j] =                                                              \
                    j >= q->n ? 0 : q->tb ? b[j * q->ldb + p] : b[p * q->ldb + j];                 \
    }                                                                                              \
    static void NAME##_own(const PpGemm *all)                                                      \
    {                                                                                              \
        T panel[BLOCK_K * TILE_N], acc[TILE_M][TILE_N];                                            \
        const int64_t as = all->ta ? 1 : all->lda, ap = all->ta ? all->lda : 1;                    \
        for (int64_t p = 0; p == 0 || p < all->k; p += BLOCK_K)                                    \
            for (int64_t j = 0; j < all->n; j += TILE_N) {                                         \
                PpGemm column = pp_gemm_from(all, 0, j, p);                                        \
                column.n = least(column.n, TILE_N);                                                \
                column.k = least(column.k, BLOCK_K);                                               \
                const int packs = all->tb || column.n < TILE_N;                                    \
                if (packs)                                                                         \
                    NAME##_pack(&column, panel);                                                   \
                for (int64_t i = 0; i < all->m; i += TILE_M) {                                     \
                    PpGemm q = pp_gemm_from(&column, i, 0, 0);                                     \
                    q.m = least(q.m, TILE_M);                                                      \
                    NAME##_tile(&q, q.a, as, ap, packs ? panel : q.b, packs ? TILE_N : q.ldb,      \
                                acc);                                                              \
                    for (int64_t r = 0; r < q.m; r++)                                              \
                        for (int64_t n = 0; n < q.n; n++) {                                        \
                            T *to = (T *)q.c + r * q.ldc + n, v = (T)*q.alpha * acc[r][n];          \
                            *to = q.adds || p ? *to + v : v;                                       \
                        }                                                                          \
                }                                                                                  \
            }                                                                                      \
    }

OWN_KERNEL(float, VecF, single)
OWN_KERNEL(double, VecD, twice)

static void own(const PpGemm *q) { q->type == PP_F64 ? twice_own(q) : single_own(q); }

#ifdef PP_CBLAS
#define CBLAS(NAME, T)                                                                             \
    cblas_##NAME(CblasRowMajor, q->ta ? CblasTrans : CblasNoTrans,                                 \
                 q->tb ? CblasTrans : CblasNoTrans, (blasint)q->m, (blasint)q->n, (blasint)q->k,   \
                 (T)*q->alpha, (const T *)q->a, (blasint)q->lda, (const T *)q->b, (blasint)q->ldb,  \
                 (T)(q->adds != 0), (T *)q->c, (blasint)q->ldc)
#endif

/* On one thread. */
static void by_library(const PpGemm *q)
{
#ifdef PP_DNNL
    if (q->type == PP_F32) {
        if (dnnl_sgemm(q->ta ? 'T' : 'N', q->tb ? 'T' : 'N', q->m, q->n, q->k, *q->alpha, q->a,
                       q->lda, q->b, q->ldb, (float)(q->adds != 0), q->c, q->ldc) != dnnl_success)
            gemm_refused("a product of float32: oneDNN refused it (dnnl_sgemm)");
        return;
    }
#endif
#ifdef PP_CBLAS
    if (q->type == PP_F64)
        CBLAS(dgemm, double);
    else
        CBLAS(sgemm, float);
#else
    own(q);
#endif
}

/* The library picks its blocking, and so the order of additions, by the number of threads, by the
   lengths of the sides and, from a depth of some 800 on, by whether a leading dimension is a
   multiple of 256 or of 1,024 (seen with oneDNN 2.6 for AVX-512).  So it always runs on one thread,
   on pieces of C whose bounds follow from m and n alone, over equal pieces of k of at most DEPTH,
   which cost nothing. */
static void by_depth(const PpGemm *q, const After *after)
{
    const int64_t deep = gemm_depth(q->k);
    (void)after;
    for (int64_t p = 0; p < q->k; p += deep) {
        PpGemm part = pp_gemm_from(q, 0, 0, p);
        part.k = least(part.k, deep);
        part.adds |= p > 0;
        by_library(&part);
    }
}

/* Threads share out pieces of the longer side; one thread has them all, or `whole`, at once. */
static void divide(const PpGemm *q, const After *after, int whole,
                   void (*run)(const PpGemm *, const After *))
{
    const int rows = q->m > q->n, team = team_most();
    const int64_t side = rows ? q->m : q->n, step = whole && team == 1 ? side : PIECE;
    const int alone = team == 1 || side <= PIECE;
    if (alone && team > 1)
        team_set(1); /* nor are there any of a library's */
#pragma omp parallel for schedule(static) if (!alone)
    for (int64_t at = 0; at < side; at += step) {
        PpGemm part = pp_gemm_from(q, rows ? at : 0, rows ? 0 : at, 0);
        const After then = after_at(after, rows ? at : 0, rows ? at * q->ldc : at);
        part.m = least(part.m, rows ? step : part.m);
        part.n = least(part.n, rows ? part.n : step);
        run(&part, &then);
    }
    if (alone && team > 1)
        team_set(team);
}

int gemm_wide_after(const PpGemm *q, const After *after)
{
#ifdef PP_GEMM_WIDE
    const int pays = q->type == PP_F32 && !gemm_small(q) && gemm_wide_pays(q);
    if (pays)
        divide(q, after, 1, gemm_wide);
    return pays;
#else
    (void)q, (void)after;
    return 0;
#endif
}

void gemm_one(const PpGemm *q)
{
    const After none = {.out = NULL};
    if (gemm_small(q))
        own(q);
    else if (!gemm_wide_after(q, &none))
        divide(q, &none, 0, by_depth);
}
