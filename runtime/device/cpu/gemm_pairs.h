/*
 * gemm_pairs.h - products of bf16 by VDPBF16PS, which adds two products of neighbours in k to a
 * float32 sum, where the program is compiled for a CPU that has it (PP_GEMM_PAIRS); gemm_half.c's
 * alone.
 *
 * As in gemm_wide.h a panel of B, 32 columns by a part of k, is packed, in pairs, and stays in the
 * first-level cache, while tiles of at most 14 rows of A pass it.  A row of A has its pairs side by
 * side; an A whose rows have not, or which caches would not keep, is packed too.
 *
 * An element of C is one sum over k in ascending order, whatever m, n and the pieces of k are,
 * multiplied by alpha and rounded once.
 */
#ifndef PP_GEMM_PAIRS_H
#define PP_GEMM_PAIRS_H

#if defined __AVX512BF16__ && defined __AVX512BW__ && defined __AVX512DQ__ &&                      \
    defined __AVX512VL__ && defined __x86_64__
#define PP_GEMM_PAIRS

#include "api/pp_half.h"
#include "device/cpu/gemm.h"
#include "device/cpu/gemm_turn.h"

#include <immintrin.h>
#include <string.h>

enum {
    PAIRS_ROWS = 14,    /* of a tile */
    PAIRS_COLUMNS = 32, /* of a panel */
    PAIRS_LOW = 128,    /* rows of a block of C, for which less room is enough */
    PAIRS_TALL = 512    /* rows of a block of C, at most */
};

/* It is the faster one, seen beside oneDNN 2.6, from some rows and columns on: always, but for an A
   that is stored transposed and for AMX, with which up to so many multiply-adds. */
static inline int gemm_pairs_pay(const PpGemm *q, int tiles)
{
    const int64_t few = tiles ? 1 << 18 : q->ta ? 1 << 20 : INT64_MAX;
    return q->m >= 8 && q->n >= 8 && q->k > 0 && q->n <= few / q->m && q->k <= few / q->m / q->n;
}

#define PAIRS_INLINE static inline __attribute__((always_inline))

/* ---- packing: 32 bits are a pair, the lower half the earlier one ---- */

/* Rows p and p + 1 of k, n of their numbers, at most 16 vectors: as a row of pairs; beyond n and k
   zeros.  Rows of pairs are `apart`; a vector may write over the beginning of the next one. */
PAIRS_INLINE void pairs_of_rows(const int vectors, int64_t n, int64_t k, const uint16_t *x,
                                int64_t ld, uint32_t *to, int64_t apart)
{
    static const uint16_t order[64] = {
        0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
        11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
        22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
    const __m512i low = _mm512_loadu_si512(order), high = _mm512_loadu_si512(order + 32);
    const __mmask32 which = (__mmask32)(0xffffffffu >> (32 - n));
    for (int64_t p = 0; p < k; p += 2, x += 2 * ld, to += apart) {
        const __m512i even = _mm512_maskz_loadu_epi16(which, x),
                      odd = _mm512_maskz_loadu_epi16(p + 1 < k ? which : 0, x + ld);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, low, odd));
        if (vectors > 1)
            _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi16(even, high, odd));
    }
}

/* The pairs of n rows, at most 16, of k numbers, `ld` apart, as rows of 16 pairs, `apart` from each
   other; behind the n-th of each anything. */
static void pairs_turned(int64_t n, int64_t k, const uint16_t *x, int64_t ld, uint32_t *to,
                         int64_t apart)
{
    const char *rows[16];
    int64_t p = 0;
    for (int64_t i = 0; i < 16; i++)
        rows[i] = (const char *)(x + (i < n ? i : 0) * ld);
    for (; p + 16 <= k / 2; p += 16)
        turn(rows, p, (float *)(to + p * apart), apart);
    for (; 2 * p < k; p++)
        for (int64_t i = 0; i < 16; i++) {
            const uint16_t *at = x + (i < n ? i : 0) * ld + 2 * p;
            to[p * apart + i] = at[0] | (2 * p + 1 < k ? (uint32_t)at[1] << 16 : 0u);
        }
}

/* op(B) of a panel's columns. */
static void pairs_panel(const PpGemm *q, uint32_t *to)
{
    const uint16_t *b = q->b;
    if (!q->tb)
        pairs_of_rows(2, q->n, q->k, b, q->ldb, to, PAIRS_COLUMNS);
    else
        for (int64_t v = 0; v < q->n; v += 16)
            pairs_turned(least(q->n - v, 16), q->k, b + v * q->ldb, q->ldb, to + v, PAIRS_COLUMNS);
}

/* op(A) of a tile's rows. */
static void pairs_tile(const PpGemm *q, uint32_t *to)
{
    if (q->ta)
        pairs_of_rows(1, q->m, q->k, q->a, q->lda, to, PAIRS_ROWS);
    else
        pairs_turned(q->m, q->k, q->a, q->lda, to, PAIRS_ROWS);
}

/* ---- a tile ---- */

/* side = or += the sums of a tile over so many pairs; A's pair (i, p) lies as * i + ap * p bytes
   behind a. */
typedef struct {
    int64_t pairs;
    const char *a;
    int64_t as, ap;
    const uint32_t *panel;
    int first;
    float *side;
} PairsTile;

PAIRS_INLINE void pairs_sum(const int rows, const int vectors, const PairsTile *t)
{
    const int64_t as = t->as, ap = t->ap, pairs = t->pairs;
    const char *a = t->a;
    const uint32_t *panel = t->panel;
    const int first = t->first;
    float *const side = t->side;
    __m512 sum[PAIRS_ROWS][2];
    /* of every third row: the others are once and twice `as` behind it */
    const char *third[(PAIRS_ROWS + 2) / 3] = {a, a + 3 * as, a + 6 * as, a + 9 * as, a + 12 * as};
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = first ? _mm512_setzero_ps()
                              : _mm512_load_ps(side + (int64_t)i * PAIRS_COLUMNS + 16 * v);
#pragma GCC unroll 2
    for (int64_t p = 0; p < pairs; p++, panel += PAIRS_COLUMNS) {
        const __m512bh b0 = (__m512bh)_mm512_load_si512(panel),
                       b1 = vectors > 1 ? (__m512bh)_mm512_load_si512(panel + 16) : b0;
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            int32_t pair;
            memcpy(&pair, third[i / 3] + i % 3 * as, sizeof pair);
            const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);
            if (vectors > 1)
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);
        }
#pragma GCC unroll 5
        for (int q = 0; q < (rows + 2) / 3; q++)
            third[q] += ap;
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            _mm512_store_ps(side + (int64_t)i * PAIRS_COLUMNS + 16 * v, sum[i][v]);
}

#define SUM(R, V)                                                                                  \
    static void pairs_sum_##R##_##V(const PairsTile *t) { pairs_sum(R, V, t); }
/* clang-format off */
#define EACH(X, V) X(1, V) X(2, V) X(3, V) X(4, V) X(5, V) X(6, V) X(7, V) X(8, V) X(9, V)         \
    X(10, V) X(11, V) X(12, V) X(13, V) X(14, V)
/* clang-format on */
EACH(SUM, 1)
EACH(SUM, 2)
#define OF(R, V) pairs_sum_##R##_##V,
/* by vectors and rows */
static void (*const pairs_sums[2][PAIRS_ROWS])(const PairsTile *) = {{EACH(OF, 1)}, {EACH(OF, 2)}};
#undef OF
#undef EACH
#undef SUM

/* As pp_to_bf16() rounds: the instruction would make subnormal numbers zeros. */
PAIRS_INLINE __m256i pairs_round(__m512 x)
{
    enum { SUBNORMAL = 0x20 };
    if (__builtin_expect(_mm512_fpclass_ps_mask(x, SUBNORMAL) == 0, 1))
        return (__m256i)_mm512_cvtneps_pbh(x);
    float from[16];
    uint16_t to[16];
    _mm512_storeu_ps(from, x);
    for (int i = 0; i < 16; i++)
        to[i] = pp_to_bf16(from[i]);
    return _mm256_loadu_si256((const __m256i *)(const void *)to);
}

PAIRS_INLINE __m512 pairs_widen(__mmask16 which, const uint16_t *x)
{
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(which, x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

/* C = alpha sum, C + that, or sum + bias, for the rows of a tile and the columns of a panel. */
static void pairs_store(const PpGemm *q, const float *side)
{
    const __m512 alpha = _mm512_set1_ps(*q->alpha);
    for (int64_t v = 0; v < q->n; v += 16) {
        const __mmask16 which = (__mmask16)(q->n - v < 16 ? 0xffff >> (16 - (q->n - v)) : 0xffff);
        const __m512 bias = q->bias ? pairs_widen(which, (const uint16_t *)q->bias + v) : alpha;
        const float *from = side + v;
        for (int64_t r = 0; r < q->m; r++, from += PAIRS_COLUMNS) {
            float *single = (float *)q->c + r * q->ldc + v;
            uint16_t *half = (uint16_t *)q->c + r * q->ldc + v;
            __m512 x = q->bias ? _mm512_add_ps(bias, _mm512_load_ps(from))
                               : _mm512_mul_ps(alpha, _mm512_load_ps(from));
            if (q->result == PP_F32) {
                if (q->adds) /* else C may hold anything */
                    x = _mm512_add_ps(_mm512_maskz_loadu_ps(which, single), x);
                _mm512_mask_storeu_ps(single, which, x);
                continue;
            }
            if (q->adds)
                x = _mm512_add_ps(pairs_widen(which, half), x);
            _mm256_mask_storeu_epi16(half, which, pairs_round(x));
        }
    }
}

/* The lines of C that pairs_store() writes: asked for before the sums. */
PAIRS_INLINE void pairs_ahead(const PpGemm *q)
{
    const int64_t size = pp_gemm_result_size(q);
    const char *line = q->c;
    for (int64_t r = 0; r < q->m; r++, line += q->ldc * size) {
        __builtin_prefetch(line, 1);
        if (size == 4)
            __builtin_prefetch(line + 64, 1);
    }
}

/* ---- a product ---- */

/* What a block is computed with: a panel of B, so many tiles of A, sums. */
typedef struct {
    uint32_t *panel, *tiles;
    int64_t count;
    float *side;
} PairsRoom;

static int64_t pairs_tiles(int64_t m) { return (m + PAIRS_ROWS - 1) / PAIRS_ROWS; }

/* Is A packed?  Also where its rows, 4 KB apart, fall on one another in the first-level cache. */
static int pairs_pack(const PpGemm *q)
{
    return q->ta || q->k % 2 || (q->lda % 2048 == 0 && q->n > PAIRS_COLUMNS);
}

static __attribute__((noinline)) void pairs_block(const PpGemm *q, const PairsRoom *room)
{
    const int64_t deep = gemm_depth(q->k), tiles = pairs_tiles(q->m);
    const int packs = pairs_pack(q), kept = (q->k + deep - 1) / deep * tiles <= room->count;
    for (int64_t j = 0; j < q->n; j += PAIRS_COLUMNS)
        for (int64_t p = 0; p < q->k; p += deep) {
            PpGemm column = pp_gemm_from(q, 0, j, p);
            const int last = column.k <= deep;
            column.n = least(column.n, PAIRS_COLUMNS);
            column.k = least(column.k, deep);
            pairs_panel(&column, room->panel);
            for (int64_t t = 0; t < tiles; t++) {
                const int64_t at = q->m * t / tiles;
                PpGemm tile = pp_gemm_from(&column, at, 0, 0);
                tile.m = q->m * (t + 1) / tiles - at;
                uint32_t *const own =
                    room->tiles + ((kept ? p / deep * tiles : 0) + t) * (deep / 2) * PAIRS_ROWS;
                float *const side = room->side + at * PAIRS_COLUMNS;
                if (last)
                    pairs_ahead(&tile);
                if (packs && (j == 0 || !kept))
                    pairs_tile(&tile, own);
                pairs_sums[tile.n > 16][tile.m - 1](&(PairsTile){
                    (tile.k + 1) / 2, packs ? (const char *)own : tile.a,
                    packs ? (int64_t)sizeof *own : 2 * q->lda,
                    packs ? PAIRS_ROWS * (int64_t)sizeof *own : 4, room->panel, p == 0, side});
                if (last)
                    pairs_store(&tile, side);
            }
        }
}

/* With the room for so many rows of a part of k, on the stack */
#define ROOM(NAME, HIGH)                                                                           \
    static __attribute__((noinline)) void NAME(const PpGemm *q)                                    \
    {                                                                                              \
        enum { TILES = (HIGH + PAIRS_ROWS - 1) / PAIRS_ROWS };                                     \
        _Alignas(64) uint32_t panel[DEPTH / 2 * PAIRS_COLUMNS],                                    \
            tiles[TILES * DEPTH / 2 * PAIRS_ROWS + 16 - PAIRS_ROWS];                               \
        _Alignas(64) float side[HIGH * PAIRS_COLUMNS];                                             \
        pairs_block(q, &(PairsRoom){panel, tiles, TILES, side});                                   \
    }
ROOM(pairs_low, PAIRS_LOW)
ROOM(pairs_tall, PAIRS_TALL)
#undef ROOM

/* A block of at most PAIRS_TALL rows, of which so many at a time as tiles of all of k have room
   for; k is at least 1. */
static void gemm_pairs(const PpGemm *q)
{
    const int64_t deep = gemm_depth(q->k), parts = (q->k + deep - 1) / deep,
                  few = pairs_tiles(PAIRS_TALL) / parts;
    const int divided = parts > 1 && few > 1 && q->n > PAIRS_COLUMNS && pairs_pack(q);
    const int64_t high = divided ? least(few * PAIRS_ROWS, q->m) : q->m;
    for (int64_t at = 0; at < q->m; at += high) {
        PpGemm part = pp_gemm_from(q, at, 0, 0);
        part.m = least(part.m, high);
        (part.m <= PAIRS_LOW && !divided ? pairs_low : pairs_tall)(&part);
    }
}
#undef PAIRS_INLINE
#endif
#endif
