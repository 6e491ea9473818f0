/*
 * gemm_tiles.h - the tiles of gemm_wide.h, and the packing of what they read: at most 14 rows by
 * one or two vectors of columns, the sums of which are in registers; or, where what is left of the
 * columns would fill little of a vector, 14 rows by as many columns as there are, a vector to each.
 */
#ifndef PP_GEMM_TILES_H
#define PP_GEMM_TILES_H

#include "device/cpu/after.h"
#include "device/cpu/gemm_turn.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

enum {
    WIDE_ROWS = 14,    /* of a tile */
    WIDE_COLUMNS = 32, /* of a panel */
    WIDE_DEEP = 256,
    WIDE_HIGH = 256,   /* rows of a block of A that is packed */
    WIDE_TALL = 512,   /* rows of A that pass one packing of B, where A is not */
    WIDE_FEW = 56,     /* rows of A for which B is not worth packing */
    WIDE_SHALLOW = 32, /* rows of B that are not */
    WIDE_BROAD = 64,   /* columns of B up to which A is not */
    WIDE_SLIM = 8,     /* columns up to which a column is a vector */
    WIDE_AHEAD = 16    /* steps of k between two requests to the caches, at most */
};

#define WIDE_INLINE static inline __attribute__((always_inline))

/* The sums of a tile: `rows` rows, `vectors` of 16 columns.  Both are known where it is computed.
 */
typedef __m512 Sums[WIDE_ROWS][2];

/* sum += k steps; A's element (i, p) is a[i * as + p * ap], `close`: as is 1; rows of B are `bs`
   apart, `last` of the last vector's columns are read, and the next ones are asked for where that
   `helps`. */
WIDE_INLINE void add_steps(const int rows, const int vectors, const int close, const int helps,
                           int64_t k, const float *a, int64_t as, int64_t ap, const float *b,
                           int64_t bs, __mmask16 last, Sums sum)
{
    /* of every third row: the others are once and twice `as` behind it */
    const float *third[(WIDE_ROWS + 2) / 3] = {a, a + 3 * as, a + 6 * as, a + 9 * as, a + 12 * as};
#pragma GCC unroll 2
    for (int64_t p = 0; p < k; p++, a += ap, b += bs) {
        const __m512 b0 = vectors > 1 ? _mm512_loadu_ps(b) : _mm512_maskz_loadu_ps(last, b),
                     b1 = vectors > 1 ? _mm512_maskz_loadu_ps(last, b + 16) : b0;
        if (helps) {
            _mm_prefetch((const char *)(b + WIDE_COLUMNS), _MM_HINT_T0);
            _mm_prefetch((const char *)(b + WIDE_COLUMNS + 16), _MM_HINT_T0);
        }
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            const __m512 x = _mm512_set1_ps(close ? a[i] : third[i / 3][i % 3 * as]);
            sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
            if (vectors > 1)
                sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
        }
#pragma GCC unroll 5
        for (int q = 0; q < (rows + 2) / 3; q++)
            third[q] += ap;
    }
}

/* C = alpha sum + beta C; of the last vector the columns in `last`. */
WIDE_INLINE void store(const int rows, const int vectors, Sums sum, float alpha, float beta,
                       float *c, int64_t ldc, __mmask16 last)
{
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

/* The same with alpha 1, and what follows. */
WIDE_INLINE void store_after(const int rows, const int vectors, Sums sum, float beta,
                             const float *c, int64_t ldc, __mmask16 last, const After *after)
{
    const After here = *after; /* which no store changes */
    const AfterBounds bounds = after_bounds(&here);
    const __m512 keep = _mm512_set1_ps(beta);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        const __m512 bias = after_bias(&here, &bounds, i);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int64_t at = i * ldc + 16 * v;
            const __mmask16 which = v == vectors - 1 ? last : (__mmask16)0xffff;
            __m512 x = sum[i][v];
            if (beta != 0)
                x = _mm512_fmadd_ps(keep, _mm512_maskz_loadu_ps(which, c + at), x);
            after_store(&here, &bounds, x, bias, at, which);
        }
    }
    if (here.scale != 0)
        after_swish(after, rows, 16 * vectors - 16 + __builtin_popcount(last), ldc);
}

/* What follows reads the same places of another operand. */
WIDE_INLINE void ask_sum(const int rows, const After *after, int64_t ldc)
{
    if (!after->sum)
        return;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        const char *line = (const char *)(after->sum + i * ldc);
        _mm_prefetch(line, _MM_HINT_T0);
        _mm_prefetch(line + 64, _MM_HINT_T0);
    }
}

/* One tile of C, of operands where they are; the tile beside it is asked for.  `close`: see above;
   of these nothing follows. */
WIDE_INLINE void tile(const int rows, const int vectors, const int close, int64_t k, const float *a,
                      int64_t as, int64_t ap, const float *b, int64_t bs, float alpha, float beta,
                      float *c, int64_t ldc, __mmask16 last, const After *after)
{
    const int follows = !close && after->out;
    float *const to = follows ? after->out : c;
    Sums sum;
    if (follows)
        ask_sum(rows, after, ldc);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        __builtin_prefetch(to + i * ldc + WIDE_COLUMNS, 1);
        if (vectors > 1)
            __builtin_prefetch(to + i * ldc + WIDE_COLUMNS + 16, 1);
    }
    if (last == 0xffff) /* else B may end there; masks take 2 % of a product */
        add_steps(rows, vectors, close, 1, k, a, as, ap, b, bs, 0xffff, sum);
    else
        add_steps(rows, vectors, close, 1, k, a, as, ap, b, bs, last, sum);
    if (follows)
        store_after(rows, vectors, sum, beta, c, ldc, last, after);
    else
        store(rows, vectors, sum, alpha, beta, c, ldc, last);
}

/* What the caches are asked for while a tile is computed: `lines` of 64 bytes, two each time and,
   but of A, the one behind the first, the next time those `step` bytes behind.  They may end behind
   an operand: nothing is read. */
typedef struct {
    const char *lines[2];
    int64_t step;
} Lines;
enum { AHEAD_C, AHEAD_SUM, AHEAD_B, AHEAD_A, AHEADS };
typedef struct {
    Lines of[AHEADS];
    int64_t every; /* steps of k from one time to the next */
} Ahead;

/* The same of a packed tile of A and a packed panel of B. */
WIDE_INLINE void tile_packed(const int rows, const int vectors, int64_t k, const float *a,
                             const float *b, float alpha, float beta, float *c, int64_t ldc,
                             __mmask16 last, const After *after, const Ahead *ahead)
{
    Sums sum;
    const char *soon[AHEADS][2];
    const int64_t every = ahead->every;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) /* a memset of it would be called, beside these */
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int i = 0; i < AHEADS; i++)
        memcpy(soon[i], ahead->of[i].lines, sizeof soon[i]);
    for (int64_t p = 0; p < k; p += every) {
#pragma GCC unroll 4
        for (int i = 0; i < AHEADS; i++) {
            const char **at = soon[i];
            if (i == AHEAD_C) {
                __builtin_prefetch(at[0], 1);
                __builtin_prefetch(at[0] + 64, 1);
                __builtin_prefetch(at[1], 1);
            } else {
                _mm_prefetch(at[0], _MM_HINT_T1);
                _mm_prefetch(at[1], _MM_HINT_T1);
            }
            if (i == AHEAD_SUM || i == AHEAD_B)
                _mm_prefetch(at[0] + 64, _MM_HINT_T1);
            at[0] += ahead->of[i].step;
            at[1] += ahead->of[i].step;
        }
        add_steps(rows, vectors, 1, 0, k - p < every ? k - p : every, a + p * WIDE_ROWS, 1,
                  WIDE_ROWS, b + p * WIDE_COLUMNS, WIDE_COLUMNS, 0xffff, sum);
    }
    if (after->out)
        store_after(rows, vectors, sum, beta, c, ldc, last, after);
    else
        store(rows, vectors, sum, alpha, beta, c, ldc, last);
}

/* tile_R_V: the rows of A `apart` from each other; turned_R_V: the columns, of an A that is stored
   transposed; packed_R_V: as turned, of a block that was packed. */
#define TAKES                                                                                      \
    int64_t k, const float *a, int64_t apart, const float *b, int64_t bs, float alpha, float beta, \
        float *c, int64_t ldc, __mmask16 last, const After *after
#define TAKES_PACKED                                                                               \
    int64_t k, const float *a, const float *b, float alpha, float beta, float *c, int64_t ldc,     \
        __mmask16 last, const After *after, const Ahead *ahead
#define TILE(R, V)                                                                                 \
    static void tile_##R##_##V(TAKES)                                                              \
    {                                                                                              \
        tile(R, V, 0, k, a, apart, 1, b, bs, alpha, beta, c, ldc, last, after);                    \
    }                                                                                              \
    static void turned_##R##_##V(TAKES)                                                            \
    {                                                                                              \
        tile(R, V, 1, k, a, 1, apart, b, bs, alpha, beta, c, ldc, last, after);                    \
    }                                                                                              \
    static void packed_##R##_##V(TAKES_PACKED)                                                     \
    {                                                                                              \
        tile_packed(R, V, k, a, b, alpha, beta, c, ldc, last, after, ahead);                       \
    }
/* clang-format off */
#define EACH(X, V) X(1, V) X(2, V) X(3, V) X(4, V) X(5, V) X(6, V) X(7, V) X(8, V) X(9, V)         \
    X(10, V) X(11, V) X(12, V) X(13, V) X(14, V)
/* clang-format on */
EACH(TILE, 1)
EACH(TILE, 2)

typedef void (*Tile)(TAKES);
typedef void (*PackedTile)(TAKES_PACKED);
/* [1]: turned; by vectors and rows */
#define OF_ROWS(R, V) tile_##R##_##V,
#define OF_TURNED(R, V) turned_##R##_##V,
#define OF_PACKED(R, V) packed_##R##_##V,
static const Tile tiles[2][2][WIDE_ROWS] = {{{EACH(OF_ROWS, 1)}, {EACH(OF_ROWS, 2)}},
                                            {{EACH(OF_TURNED, 1)}, {EACH(OF_TURNED, 2)}}};
static const PackedTile packed_tiles[2][WIDE_ROWS] = {{EACH(OF_PACKED, 1)}, {EACH(OF_PACKED, 2)}};
#undef OF_ROWS
#undef OF_TURNED
#undef OF_PACKED

/* ---- few columns ---- */

/* Two packed tiles by so many columns of a packed panel: alpha times the sums, a column after the
   other, at `to` and 16 numbers behind it.  An element is summed as in the other tiles. */
WIDE_INLINE void slim(const int columns, int64_t k, const float *const *a, const float *b,
                      float alpha, float *to)
{
    __m512 sum[WIDE_SLIM][2];
#pragma GCC unroll 8
    for (int j = 0; j < columns; j++)
        sum[j][0] = sum[j][1] = _mm512_setzero_ps();
    for (int64_t p = 0; p < k; p++, b += WIDE_COLUMNS) {
        const __m512 x[2] = {_mm512_loadu_ps(a[0] + p * WIDE_ROWS),
                             _mm512_loadu_ps(a[1] + p * WIDE_ROWS)};
#pragma GCC unroll 8
        for (int j = 0; j < columns; j++)
#pragma GCC unroll 2
            for (int t = 0; t < 2; t++)
                sum[j][t] = _mm512_fmadd_ps(x[t], _mm512_set1_ps(b[j]), sum[j][t]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < columns; j++)
#pragma GCC unroll 2
        for (int t = 0; t < 2; t++)
            _mm512_storeu_ps(to + 32 * j + 16 * t, _mm512_mul_ps(_mm512_set1_ps(alpha), sum[j][t]));
}

#define SLIM(J)                                                                                    \
    static void slim_##J(int64_t k, const float *const *a, const float *b, float alpha, float *to) \
    {                                                                                              \
        slim(J, k, a, b, alpha, to);                                                               \
    }
/* clang-format off */
SLIM(1) SLIM(2) SLIM(3) SLIM(4) SLIM(5) SLIM(6) SLIM(7) SLIM(8)
/* clang-format on */
#undef SLIM

typedef void Slim(int64_t k, const float *const *a, const float *b, float alpha, float *to);
static Slim *const slims[WIDE_SLIM] = {slim_1, slim_2, slim_3, slim_4,
                                       slim_5, slim_6, slim_7, slim_8};

/* ---- packing ---- */

/* The first `vectors` times 16 numbers of k rows, where `last` lacks some in the last one: zeros.
   What is behind them comes next, and is asked for where nothing else `asks`: between tiles of a
   packed A it is (seen: both together cost 5 to 7 % of X W and X^T dY). */
WIDE_INLINE void pack_rows(const int asks, int64_t k, int vectors, __mmask16 last, const float *b,
                           int64_t ldb, float *to)
{
    for (int64_t p = 0; p < k; p++, b += ldb, to += WIDE_COLUMNS) {
        if (!asks) {
            _mm_prefetch((const char *)(b + WIDE_COLUMNS), _MM_HINT_T1);
            _mm_prefetch((const char *)(b + WIDE_COLUMNS + 16), _MM_HINT_T1);
        }
        _mm512_store_ps(to, _mm512_maskz_loadu_ps(vectors > 1 ? (__mmask16)0xffff : last, b));
        if (vectors > 1)
            _mm512_store_ps(to + 16, _mm512_maskz_loadu_ps(last, b + 16));
    }
}

/* k columns of `n` rows, at most 16, `ld` apart, as k rows of 16 numbers at `to`, `apart` from each
   other; behind the n-th of each row anything, but numbers of x. */
static void turn_rows(int64_t n, int64_t k, const float *x, int64_t ld, float *to, int64_t apart)
{
    const char *rows[16];
    int64_t p = 0;
    for (int64_t i = 0; i < 16; i++)
        rows[i] = (const char *)(x + (i < n ? i : 0) * ld);
    for (; p + 16 <= k; p += 16)
        turn(rows, p, to + p * apart, apart);
    for (; p < k; p++)
        for (int64_t i = 0; i < 16; i++)
            to[p * apart + i] = x[(i < n ? i : 0) * ld + p];
}

/* One panel of op(B): k by n.  What is behind the n-th column counts for nothing. */
WIDE_INLINE void pack(const int asks, int tb, int64_t k, int64_t n, const float *b, int64_t ldb,
                      float *to)
{
    int vectors = n > 16 ? 2 : 1;
    if (!tb)
        pack_rows(asks, k, vectors, (__mmask16)(0xffff >> (16 * vectors - n)), b, ldb, to);
    else
        for (int64_t j = 0; j < n; j += 16)
            turn_rows(n - j < 16 ? n - j : 16, k, b + j * ldb, ldb, to + j, WIDE_COLUMNS);
}

/* One tile of op(A): n rows, k steps WIDE_ROWS apart, and two numbers more behind the last, which
   are read, too. */
static void pack_tile(int ta, int64_t n, int64_t k, const float *a, int64_t lda, float *to)
{
    if (!ta)
        turn_rows(n, k, a, lda, to, WIDE_ROWS);
    else
        for (int64_t p = 0; p < k; p++, a += lda, to += WIDE_ROWS)
            _mm512_storeu_ps(to, _mm512_maskz_loadu_ps((__mmask16)(0xffff >> (16 - n)), a));
}
#undef EACH
#undef TILE
#undef TAKES
#undef TAKES_PACKED
#endif
