/*
 * gemm_tiles.h - the tiles of gemm_wide.h, and the packing of what they read: at most 14 rows by
 * one or two vectors of columns, the sums of which are in registers.
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
    WIDE_AHEAD = 16    /* steps of k between two requests to the caches, at most */
};

#define WIDE_INLINE static inline __attribute__((always_inline))

/* The sums of a tile: `rows` rows, `vectors` of 16 columns.  Both are known where it is computed.
 */
typedef __m512 Sums[WIDE_ROWS][2];

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

/* What a tile is computed of: k steps of A, whose rows are `apart` from each other, or, of an A that
   is stored transposed, its columns; of B, whose rows are so far apart; to C = alpha sum, or += where
   it `adds`, and what follows.  Of the last vector the columns in `last`.  ahead: of packed ones. */
typedef struct {
    int64_t k;
    const float *a;
    int64_t apart;
    const float *b;
    int64_t bs;
    float *c;
    int64_t ldc;
    float alpha;
    int adds;
    __mmask16 last;
    const After *after;
    const Ahead *ahead;
} Tile;

/* sum += k steps from step p on; `close`: numbers of A that are used together are neighbours.  Of
   the last vector's columns those in `last` are read, and the next ones are asked for where that
   `helps`. */
WIDE_INLINE void add_steps(const int rows, const int vectors, const int close, const int helps,
                           const Tile *t, __mmask16 last, Sums sum)
{
    const int64_t as = close ? 1 : t->apart, ap = close ? t->apart : 1, bs = t->bs, k = t->k;
    const float *a = t->a, *b = t->b;
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

WIDE_INLINE void store(const int rows, const int vectors, Sums sum, const Tile *t)
{
    const __m512 scale = _mm512_set1_ps(t->alpha);
    float *const c = t->c;
    const int64_t ldc = t->ldc;
    const int adds = t->adds;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *to = c + i * ldc + 16 * v;
            const __mmask16 which = v == vectors - 1 ? t->last : (__mmask16)0xffff;
            __m512 x = _mm512_mul_ps(scale, sum[i][v]);
            if (adds) /* else C may hold anything */
                x = _mm512_add_ps(_mm512_maskz_loadu_ps(which, to), x);
            _mm512_mask_storeu_ps(to, which, x);
        }
}

/* The same with alpha 1, and what follows. */
WIDE_INLINE void store_after(const int rows, const int vectors, Sums sum, const Tile *t)
{
    const After here = *t->after; /* which no store changes */
    const AfterBounds bounds = after_bounds(&here);
    const int64_t ldc = t->ldc;
    const int adds = t->adds;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        const __m512 bias = after_bias(&here, &bounds, i);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int64_t at = i * ldc + 16 * v;
            const __mmask16 which = v == vectors - 1 ? t->last : (__mmask16)0xffff;
            __m512 x = sum[i][v];
            if (adds)
                x = _mm512_add_ps(_mm512_maskz_loadu_ps(which, t->c + at), x);
            after_store(&here, &bounds, x, bias, at, which);
        }
    }
    if (here.scale != 0)
        after_swish(t->after, rows, 16 * vectors - 16 + __builtin_popcount(t->last), ldc);
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

/* Of operands where they are; the tile beside it is asked for.  `close`: see above; of these
   nothing follows. */
WIDE_INLINE void tile(const int rows, const int vectors, const int close, const Tile *t)
{
    const int follows = !close && t->after->out;
    float *const to = follows ? t->after->out : t->c;
    Sums sum;
    if (follows)
        ask_sum(rows, t->after, t->ldc);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        __builtin_prefetch(to + i * t->ldc + WIDE_COLUMNS, 1);
        if (vectors > 1)
            __builtin_prefetch(to + i * t->ldc + WIDE_COLUMNS + 16, 1);
    }
    if (t->last == 0xffff) /* else B may end there; masks take 2 % of a product */
        add_steps(rows, vectors, close, 1, t, 0xffff, sum);
    else
        add_steps(rows, vectors, close, 1, t, t->last, sum);
    if (follows)
        store_after(rows, vectors, sum, t);
    else
        store(rows, vectors, sum, t);
}

/* The same of a packed tile of A and a packed panel of B. */
WIDE_INLINE void tile_packed(const int rows, const int vectors, const Tile *t)
{
    Sums sum;
    const char *soon[AHEADS][2];
    const int64_t every = t->ahead->every;
    Tile part = {.a = t->a, .apart = WIDE_ROWS, .b = t->b, .bs = WIDE_COLUMNS};
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) /* a memset of it would be called, beside these */
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int i = 0; i < AHEADS; i++)
        memcpy(soon[i], t->ahead->of[i].lines, sizeof soon[i]);
    for (int64_t p = 0; p < t->k; p += every) {
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
            at[0] += t->ahead->of[i].step;
            at[1] += t->ahead->of[i].step;
        }
        part.k = t->k - p < every ? t->k - p : every;
        add_steps(rows, vectors, 1, 0, &part, 0xffff, sum);
        part.a += every * WIDE_ROWS;
        part.b += every * WIDE_COLUMNS;
    }
    if (t->after->out)
        store_after(rows, vectors, sum, t);
    else
        store(rows, vectors, sum, t);
}

/* By kind, vectors and rows. */
enum { TILE_ROWS, TILE_TURNED, TILE_PACKED, TILE_KINDS };
#define TILE(R, V)                                                                                 \
    static void tile_##R##_##V(const Tile *t) { tile(R, V, 0, t); }                                \
    static void turned_##R##_##V(const Tile *t) { tile(R, V, 1, t); }                              \
    static void packed_##R##_##V(const Tile *t) { tile_packed(R, V, t); }
/* clang-format off */
#define EACH(X, V) X(1, V) X(2, V) X(3, V) X(4, V) X(5, V) X(6, V) X(7, V) X(8, V) X(9, V)         \
    X(10, V) X(11, V) X(12, V) X(13, V) X(14, V)
/* clang-format on */
EACH(TILE, 1)
EACH(TILE, 2)
#define OF_ROWS(R, V) tile_##R##_##V,
#define OF_TURNED(R, V) turned_##R##_##V,
#define OF_PACKED(R, V) packed_##R##_##V,
static void (*const tiles[TILE_KINDS][2][WIDE_ROWS])(const Tile *) = {
    {{EACH(OF_ROWS, 1)}, {EACH(OF_ROWS, 2)}},
    {{EACH(OF_TURNED, 1)}, {EACH(OF_TURNED, 2)}},
    {{EACH(OF_PACKED, 1)}, {EACH(OF_PACKED, 2)}}};
#undef OF_ROWS
#undef OF_TURNED
#undef OF_PACKED
#undef EACH
#undef TILE

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
#endif
