/*
 * gemm_wide.h - float32 products by vectors of 512 bits and fused multiply-adds, where the program
 * is compiled for a CPU that has them (PP_GEMM_WIDE); gemm.c's alone.  For products for which a
 * library's entry and packing are too much, and for A B^T, whose B libraries read across its rows.
 *
 * In the manner of Goto and van de Geijn (2008): a panel of B, 32 columns by a part of k, is packed
 * and stays in the first-level cache, while tiles of at most 14 rows of A pass it.  The 28 vectors
 * of a tile's sums, two of B and one of A fill the registers.  A is read where it is, and so is B
 * for few rows of A.  m is divided into tiles of as equal a height as there is.
 */
#ifndef PP_GEMM_WIDE_H
#define PP_GEMM_WIDE_H

#if defined __AVX512F__ && defined __x86_64__
#define PP_GEMM_WIDE

#include <immintrin.h>
#include <stdint.h>

/* It is the faster one, seen beside oneDNN 2.6, from LEAST rows and columns on: up to WIDE
   multiply-adds, and for A B^T from a depth of LONG on.  Where there is no library, it always is.
 */
enum { LEAST = 16, WIDE = 1 << 22, LONG = 1024 };

/* Is it?  By the sides and transposes only. */
static inline int gemm_wide_pays(int ta, int tb, int64_t m, int64_t n, int64_t k)
{
    if (m < LEAST || n < LEAST)
        return 0;
#if !defined PP_DNNL && !defined PP_CBLAS
    return 1; /* of loops */
#endif
    return (tb && !ta && k >= LONG) || (m <= WIDE && n <= WIDE / m && k <= WIDE / m / n);
}

enum {
    WIDE_ROWS = 14,    /* of a tile */
    WIDE_COLUMNS = 32, /* of a panel */
    WIDE_DEEP = 256,
    WIDE_HIGH = 512, /* rows of A that pass one packing of B */
    WIDE_FEW = 56    /* rows of A for which B is not worth packing */
};

#define WIDE_INLINE static inline __attribute__((always_inline))

/* One tile of C: `rows` rows, `vectors` of 16 columns, of the last one those in `last`.  Both are
   known where it is called.  A's element (i, p) is a[i * as + p * ap]; rows of B are `bs` apart. */
WIDE_INLINE void tile(const int rows, const int vectors, int64_t k, const float *a, int64_t as,
                      int64_t ap, const float *b, int64_t bs, float alpha, float beta, float *c,
                      int64_t ldc, __mmask16 last)
{
    __m512 sum[WIDE_ROWS][2];
    /* of every third row: the others are once and twice `as` behind it */
    const float *third[(WIDE_ROWS + 2) / 3] = {a, a + 3 * as, a + 6 * as, a + 9 * as, a + 12 * as};
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
        if (vectors > 1)
            _mm_prefetch((const char *)(c + i * ldc + 16), _MM_HINT_T0);
    }
#pragma GCC unroll 2
    for (int64_t p = 0; p < k; p++, b += bs) {
        const __m512 b0 = _mm512_loadu_ps(b), b1 = vectors > 1 ? _mm512_loadu_ps(b + 16) : b0;
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            const __m512 x = _mm512_set1_ps(third[i / 3][i % 3 * as]);
            sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
            if (vectors > 1)
                sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
        }
#pragma GCC unroll 5
        for (int q = 0; q < (rows + 2) / 3; q++)
            third[q] += ap;
    }
    const __m512 scale = _mm512_set1_ps(alpha), keep = _mm512_set1_ps(beta);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *to = c + i * ldc + 16 * v;
            const __mmask16 which = v == vectors - 1 ? last : (__mmask16)0xffff;
            __m512 x = _mm512_mul_ps(scale, sum[i][v]);
            if (beta != 0) /* else C may hold anything */
                x = _mm512_fmadd_ps(keep, _mm512_maskz_loadu_ps(which, to), x);
            _mm512_mask_storeu_ps(to, which, x);
        }
}

/* tile_R_V: the rows of A `apart` from each other; turned_R_V: the columns, of an A that is stored
   transposed. */
#define TILE(R, V)                                                                                 \
    static void tile_##R##_##V(int64_t k, const float *a, int64_t apart, const float *b,           \
                               int64_t bs, float alpha, float beta, float *c, int64_t ldc,         \
                               __mmask16 last)                                                     \
    {                                                                                              \
        tile(R, V, k, a, apart, 1, b, bs, alpha, beta, c, ldc, last);                              \
    }                                                                                              \
    static void turned_##R##_##V(int64_t k, const float *a, int64_t apart, const float *b,         \
                                 int64_t bs, float alpha, float beta, float *c, int64_t ldc,       \
                                 __mmask16 last)                                                   \
    {                                                                                              \
        tile(R, V, k, a, 1, apart, b, bs, alpha, beta, c, ldc, last);                              \
    }
/* clang-format off */
#define EACH(X, V) X(1, V) X(2, V) X(3, V) X(4, V) X(5, V) X(6, V) X(7, V) X(8, V) X(9, V)         \
    X(10, V) X(11, V) X(12, V) X(13, V) X(14, V)
/* clang-format on */
EACH(TILE, 1)
EACH(TILE, 2)

typedef void (*Tile)(int64_t k, const float *a, int64_t apart, const float *b, int64_t bs,
                     float alpha, float beta, float *c, int64_t ldc, __mmask16 last);
#define NAME(R, V) tile_##R##_##V,
static const Tile tiles[2][WIDE_ROWS] = {{EACH(NAME, 1)}, {EACH(NAME, 2)}};
#undef NAME
#define NAME(R, V) turned_##R##_##V,
static const Tile turned_tiles[2][WIDE_ROWS] = {{EACH(NAME, 1)}, {EACH(NAME, 2)}};
#undef NAME

/* ---- packing ---- */

/* The 16 x 16 numbers at x, rows `ld` apart, as columns at y, WIDE_COLUMNS apart. */
WIDE_INLINE void turn(const float *x, int64_t ld, float *y)
{
    __m512 r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_ps(x + i * ld);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) { /* pairs of rows in each of the four quarters of a vector */
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { /* fours: r[i + j] has columns j, j + 4, j + 8, j + 12 */
        const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]),
                      c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* quarters 0 and 2, and 1 and 3, of the four fours */
        const __m512 even0 = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88),
                     odd0 = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd),
                     even1 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88),
                     odd1 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
        _mm512_store_ps(y + j * WIDE_COLUMNS, _mm512_shuffle_f32x4(even0, even1, 0x88));
        _mm512_store_ps(y + (j + 4) * WIDE_COLUMNS, _mm512_shuffle_f32x4(odd0, odd1, 0x88));
        _mm512_store_ps(y + (j + 8) * WIDE_COLUMNS, _mm512_shuffle_f32x4(even0, even1, 0xdd));
        _mm512_store_ps(y + (j + 12) * WIDE_COLUMNS, _mm512_shuffle_f32x4(odd0, odd1, 0xdd));
    }
}

/* The first `vectors` times 16 numbers of k rows, where `last` lacks some in the last one: zeros.
 */
static void pack_rows(int64_t k, int vectors, __mmask16 last, const float *b, int64_t ldb,
                      float *to)
{
    for (int64_t p = 0; p < k; p++, b += ldb, to += WIDE_COLUMNS) {
        _mm512_store_ps(to, _mm512_maskz_loadu_ps(vectors > 1 ? (__mmask16)0xffff : last, b));
        if (vectors > 1)
            _mm512_store_ps(to + 16, _mm512_maskz_loadu_ps(last, b + 16));
    }
}

/* One panel of op(B): k by n, zeros up to a whole vector. */
static void pack(int tb, int64_t k, int64_t n, const float *b, int64_t ldb, float *to)
{
    int vectors = n > 16 ? 2 : 1;
    if (!tb) {
        pack_rows(k, vectors, (__mmask16)(0xffff >> (16 * vectors - n)), b, ldb, to);
        return;
    }
    for (int64_t j = 0; j < n; j += 16) {
        int64_t p = 0;
        if (j + 16 <= n)
            for (; p + 16 <= k; p += 16)
                turn(b + j * ldb + p, ldb, to + p * WIDE_COLUMNS + j);
        for (; p < k; p++)
            for (int64_t i = j; i < j + 16; i++)
                to[p * WIDE_COLUMNS + i] = i < n ? b[i * ldb + p] : 0;
    }
}

/* Rows [0, m) of C, over a part of k. */
static void part(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    _Alignas(64) float panel[WIDE_DEEP * WIDE_COLUMNS];
    const int64_t count = (m + WIDE_ROWS - 1) / WIDE_ROWS;
    for (int64_t j = 0; j < n; j += WIDE_COLUMNS) {
        const int64_t wide = n - j < WIDE_COLUMNS ? n - j : WIDE_COLUMNS;
        const int vectors = wide > 16 ? 2 : 1, packed = tb || wide % 16 || m > WIDE_FEW;
        const __mmask16 last = (__mmask16)(0xffff >> (16 * vectors - wide));
        const float *from = tb ? b + j * ldb : b + j;
        const Tile *of_height = (ta ? turned_tiles : tiles)[vectors - 1];
        if (packed)
            pack(tb, k, wide, from, ldb, panel);
        for (int64_t q = 0, i = 0; q < count; q++) {
            const int64_t end = m * (q + 1) / count;
            of_height[end - i - 1](k, ta ? a + i : a + i * lda, lda, packed ? panel : from,
                                   packed ? WIDE_COLUMNS : ldb, alpha, beta, c + i * ldc + j, ldc,
                                   last);
            i = end;
        }
    }
}

/* C = alpha op(A) op(B) + beta C as pp_sgemm, on one thread; m, n, k at least 1.  Each element of C
   is one sum over k in ascending order, in equal parts of at most 256, whatever m and n are. */
static void gemm_wide(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    const int64_t parts = (k + WIDE_DEEP - 1) / WIDE_DEEP,
                  deep = ((k + parts - 1) / parts + 15) / 16 * 16;
    for (int64_t i = 0; i < m; i += WIDE_HIGH)
        for (int64_t p = 0; p < k; p += deep)
            part(ta, tb, m - i < WIDE_HIGH ? m - i : WIDE_HIGH, n, k - p < deep ? k - p : deep,
                 alpha, a + (ta ? p * lda + i : i * lda + p), lda, tb ? b + p : b + p * ldb, ldb,
                 p ? 1 : beta, c + i * ldc, ldc);
}
#undef EACH
#undef TILE
#undef WIDE_INLINE
#endif
#endif
