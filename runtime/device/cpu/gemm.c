/*
 * gemm.c - matrix products: in row-major operands with any leading dimension, out C = alpha op(A)
 * op(B) + beta C.
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

#define OWN_KERNEL(T, V, P, NAME)                                                                  \
    /* acc = A (mr x k, element (i,p) at a[i*as + p*ap]) times packed B (k x TILE_N) */            \
    static void NAME##_tile(int64_t mr, int64_t k, const T *a, int64_t as, int64_t ap, const T *b, \
                            int64_t ldb, T acc[TILE_M][TILE_N])                                    \
    {                                                                                              \
        V s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                  \
        const T *a1 = mr > 1 ? a + as : a, *a2 = mr > 2 ? a1 + as : a, *a3 = mr > 3 ? a2 + as : a; \
        for (int64_t p = 0; p < k; p++) {                                                          \
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
    /* C += or = alpha * acc; `first` block of k applies beta, the later ones add. */              \
    static void NAME##_store(int64_t mr, int64_t nr, T alpha, T beta, T acc[TILE_M][TILE_N], T *c, \
                             int64_t ldc)                                                          \
    {                                                                                              \
        for (int64_t i = 0; i < mr; i++)                                                           \
            for (int64_t j = 0; j < nr; j++) {                                                     \
                T v = alpha * acc[i][j];                                                           \
                c[i * ldc + j] = beta == 0 ? v : beta * c[i * ldc + j] + v;                        \
            }                                                                                      \
    }                                                                                              \
    /* One panel of TILE_N columns of B, k rows, zero-filled on the right. */                      \
    static void NAME##_pack(int tb, int64_t k, int64_t nr, const T *b, int64_t ldb, T *out)        \
    {                                                                                              \
        for (int64_t p = 0; p < k; p++)                                                            \
            for (int64_t j = 0; j < TILE_N; j++)                                                   \
                out[p * TILE_N + j] = j < nr ? (tb ? b[j * ldb + p] : b[p * ldb + j]) : 0;         \
    }                                                                                              \
    static void NAME##_own(const P *q)                                                             \
    {                                                                                              \
        T panel[BLOCK_K * TILE_N], acc[TILE_M][TILE_N];                                            \
        int64_t as = q->ta ? 1 : q->lda, ap = q->ta ? q->lda : 1;                                  \
        for (int64_t p0 = 0; p0 == 0 || p0 < q->k; p0 += BLOCK_K) {                                \
            int64_t kb = q->k - p0 < BLOCK_K ? q->k - p0 : BLOCK_K;                                \
            for (int64_t j0 = 0; j0 < q->n; j0 += TILE_N) {                                        \
                int64_t nr = q->n - j0 < TILE_N ? q->n - j0 : TILE_N;                              \
                const T *bp = q->tb ? q->b + j0 * q->ldb + p0 : q->b + p0 * q->ldb + j0;           \
                int64_t bs = q->ldb;                                                               \
                if (q->tb || nr < TILE_N) {                                                        \
                    NAME##_pack(q->tb, kb, nr, bp, bs, panel);                                     \
                    bp = panel;                                                                    \
                    bs = TILE_N;                                                                   \
                }                                                                                  \
                for (int64_t i0 = 0; i0 < q->m; i0 += TILE_M) {                                    \
                    int64_t mr = q->m - i0 < TILE_M ? q->m - i0 : TILE_M;                          \
                    NAME##_tile(mr, kb, q->a + i0 * as + p0 * ap, as, ap, bp, bs, acc);            \
                    NAME##_store(mr, nr, q->alpha, p0 ? 1 : q->beta, acc,                          \
                                 q->c + i0 * q->ldc + j0, q->ldc);                                 \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

typedef struct {
    int ta, tb;
    int64_t m, n, k;
    double alpha;
    const double *a;
    int64_t lda;
    const double *b;
    int64_t ldb;
    double beta;
    double *c;
    int64_t ldc;
} Double;

OWN_KERNEL(float, VecF, Wide, sgemm)
OWN_KERNEL(double, VecD, Double, dgemm)

static void sgemm_serial(const Wide *q)
{
#if defined PP_DNNL
    if (dnnl_sgemm(q->ta ? 'T' : 'N', q->tb ? 'T' : 'N', q->m, q->n, q->k, q->alpha, q->a, q->lda,
                   q->b, q->ldb, q->beta, q->c, q->ldc) != dnnl_success)
        gemm_refused("a product of float32: oneDNN refused it (dnnl_sgemm)");
#elif defined PP_CBLAS
    cblas_sgemm(CblasRowMajor, q->ta ? CblasTrans : CblasNoTrans, q->tb ? CblasTrans : CblasNoTrans,
                (blasint)q->m, (blasint)q->n, (blasint)q->k, q->alpha, q->a, (blasint)q->lda, q->b,
                (blasint)q->ldb, q->beta, q->c, (blasint)q->ldc);
#else
    sgemm_own(q);
#endif
}

static void dgemm_serial(const Double *q)
{
#if defined PP_CBLAS
    cblas_dgemm(CblasRowMajor, q->ta ? CblasTrans : CblasNoTrans, q->tb ? CblasTrans : CblasNoTrans,
                (blasint)q->m, (blasint)q->n, (blasint)q->k, q->alpha, q->a, (blasint)q->lda, q->b,
                (blasint)q->ldb, q->beta, q->c, (blasint)q->ldc);
#else
    dgemm_own(q);
#endif
}

#ifdef PP_GEMM_WIDE
/* Threads share out pieces of the longer side. */
static void sgemm_wide(const Wide *all)
{
    const int64_t side = all->m > all->n ? all->m : all->n;
    if (side <= PIECE || team_most() == 1) {
        gemm_wide(all);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < side; at += PIECE) {
        const int64_t len = side - at < PIECE ? side - at : PIECE;
        Wide w = *all;
        if (w.m > w.n) {
            w.m = len;
            w.a += w.ta ? at : at * w.lda;
            w.c += at * w.ldc;
            w.after = after_at(&w.after, at, at * w.ldc);
        } else {
            w.n = len;
            w.b += w.tb ? at * w.ldb : at;
            w.c += at;
            w.after = after_at(&w.after, 0, at);
        }
        gemm_wide(&w);
    }
}
#endif

/* The products that do not go to the library: is this one done? */
static int sgemm_other(const Wide *q)
{
#ifdef PP_GEMM_WIDE
    const int pays = gemm_wide_pays(q->ta, q->tb, q->m, q->n, q->k);
    if (pays)
        sgemm_wide(q);
    return pays;
#else
    (void)q;
    return 0;
#endif
}

static int dgemm_other(const Double *q)
{
    (void)q;
    return 0;
}

int gemm_images_pay(int64_t m, int64_t n)
{
#ifdef PP_GEMM_WIDE
    return m >= LEAST && n >= LEAST;
#else
    (void)m, (void)n;
    return 0;
#endif
}

void gemm_images(const Wide *q)
{
#ifdef PP_GEMM_WIDE
    int members = team_most();
    (void)members; /* built without OpenMP */
#pragma omp parallel for num_threads(members) schedule(static) if (members > 1)
    for (int64_t at = 0; at < q->m; at += WIDE_HIGH) {
        Wide w = *q;
        w.m = q->m - at < WIDE_HIGH ? q->m - at : WIDE_HIGH;
        w.a += q->ta ? at : at * q->lda;
        w.c += at * q->ldc;
        w.after = after_at(&q->after, at, at * q->ldc);
        w.below += q->m - at - w.m;
        gemm_wide(&w);
    }
#else
    (void)q;
#endif
}

int64_t gemm_batch_total(int rank, const int64_t *count)
{
    int64_t total = 1;
    for (int d = 0; d < rank; d++)
        total *= count[d];
    return total;
}

int gemm_batch_team(int64_t total, int64_t m, int64_t n, int64_t k)
{
    int team = team_most();
    return total < team || total < PARALLEL / (m * n * (k ? k : 1)) + 2 ? 1 : team;
}

BatchPlace gemm_batch_place(int64_t i, int rank, const int64_t *count, const int64_t *stride_a,
                            const int64_t *stride_b, const int64_t *stride_c)
{
    BatchPlace at = {0, 0, 0};
    for (int d = rank - 1; d >= 0; d--) {
        int64_t q = i % count[d];
        i /= count[d];
        at.a += q * stride_a[d];
        at.b += q * stride_b[d];
        at.c += q * stride_c[d];
    }
    return at;
}

/* The library picks its blocking, and so the order of additions, by the number of threads, by the
   lengths of the sides and, from a depth of some 800 on, by whether a leading dimension is a
   multiple of 256 or of 1,024 (seen with oneDNN 2.6 for AVX-512).  So it always runs on one thread,
   on pieces of C whose bounds follow from m and n alone, over equal pieces of k of at most DEPTH,
   which cost nothing. */
#define DIVIDED(T, P, NAME)                                                                        \
    static void NAME##_piece(const P *q, int64_t at)                                               \
    {                                                                                              \
        const int64_t deep = gemm_depth(q->k);                                                     \
        P part = *q;                                                                               \
        if (q->m > q->n) {                                                                         \
            part.m = q->m - at < PIECE ? q->m - at : PIECE;                                        \
            part.a += q->ta ? at : at * q->lda;                                                    \
            part.c += at * q->ldc;                                                                 \
        } else {                                                                                   \
            part.n = q->n - at < PIECE ? q->n - at : PIECE;                                        \
            part.b += q->tb ? at * q->ldb : at;                                                    \
            part.c += at;                                                                          \
        }                                                                                          \
        for (int64_t p = 0; p < q->k; p += deep) {                                                 \
            part.k = q->k - p < deep ? q->k - p : deep;                                            \
            NAME##_serial(&part);                                                                  \
            part.a += q->ta ? deep * q->lda : deep;                                                \
            part.b += q->tb ? deep : deep * q->ldb;                                                \
            part.beta = 1;                                                                         \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_product(const P *q)                                                         \
    {                                                                                              \
        if (q->m <= 0 || q->n <= 0)                                                                \
            return;                                                                                \
        if (gemm_small(q->m, q->n, q->k)) {                                                        \
            NAME##_own(q);                                                                         \
            return;                                                                                \
        }                                                                                          \
        if (NAME##_other(q))                                                                       \
            return;                                                                                \
        int64_t side = q->m > q->n ? q->m : q->n;                                                  \
        int team = team_most();                                                                    \
        if (team > 1 && side > PIECE) {                                                            \
            _Pragma("omp parallel for schedule(static)") for (int64_t at = 0; at < side;           \
                                                              at += PIECE)                         \
                NAME##_piece(q, at);                                                               \
            return;                                                                                \
        }                                                                                          \
        if (team > 1)                                                                              \
            team_set(1);                                                                           \
        for (int64_t at = 0; at < side; at += PIECE)                                               \
            NAME##_piece(q, at);                                                                   \
        if (team > 1)                                                                              \
            team_set(team);                                                                        \
    }                                                                                              \
    void pp_##NAME(int ta, int tb, int64_t m, int64_t n, int64_t k, T alpha, const T *a,           \
                   int64_t lda, const T *b, int64_t ldb, T beta, T *c, int64_t ldc)                \
    {                                                                                              \
        NAME##_product(&(P){.ta = ta, .tb = tb, .m = m, .n = n, .k = k, .alpha = alpha, .a = a,    \
                            .lda = lda, .b = b, .ldb = ldb, .beta = beta, .c = c, .ldc = ldc});    \
    }                                                                                              \
    void pp_##NAME##_batched(int ta, int tb, int64_t m, int64_t n, int64_t k, T alpha, const T *a, \
                             int64_t lda, const T *b, int64_t ldb, T beta, T *c, int64_t ldc,      \
                             int rank, const int64_t *count, const int64_t *stride_a,              \
                             const int64_t *stride_b, const int64_t *stride_c)                     \
    {                                                                                              \
        if (m <= 0 || n <= 0)                                                                      \
            return;                                                                                \
        int64_t total = gemm_batch_total(rank, count);                                             \
        int team = gemm_batch_team(total, m, n, k);                                                \
        (void)team; /* built without OpenMP */                                                     \
        _Pragma("omp parallel for num_threads(team) schedule(static) if (team > 1)") for (         \
            int64_t i = 0; i < total; i++)                                                         \
        {                                                                                          \
            BatchPlace at = gemm_batch_place(i, rank, count, stride_a, stride_b, stride_c);        \
            pp_##NAME(ta, tb, m, n, k, alpha, a + at.a, lda, b + at.b, ldb, beta, c + at.c, ldc);  \
        }                                                                                          \
    }

DIVIDED(float, Wide, sgemm)
DIVIDED(double, Double, dgemm)

int gemm_after(const Wide *q)
{
#ifdef PP_GEMM_WIDE
    if (q->after.out && q->m > 0 && q->n > 0 && !gemm_small(q->m, q->n, q->k) &&
        gemm_wide_pays(0, 0, q->m, q->n, q->k)) {
        sgemm_wide(q);
        return 1;
    }
#endif
    Wide plain = *q;
    plain.after = (After){.out = NULL};
    sgemm_product(&plain);
    return 0;
}
