/*
 * gemm_wide.h - float32 products by vectors of 512 bits and fused multiply-adds, where the program
 * is compiled for a CPU that has them (PP_GEMM_WIDE); gemm.c's alone.
 *
 * In the manner of Goto and van de Geijn (2008): a panel of B, 32 columns by a part of k, is packed
 * and stays in the first-level cache, while tiles of at most 14 rows of A pass it.  The 28 vectors
 * of a tile's sums, two of B and one of A fill the registers.  Of large products A is packed too,
 * by blocks that stay in the second-level cache, and while a tile is computed the caches are asked,
 * a few lines at a time, for what the next ones need: C, the next panel, the next block.  Of others
 * A is read where it is, and so is B for few rows of A or of its own.  m is divided into blocks,
 * and these into tiles, of as equal a height as there is.
 *
 * An element of C is one sum over k in ascending order, in equal parts of at most 256, whatever m,
 * n, the packing and the pieces of C are.
 */
#ifndef PP_GEMM_WIDE_H
#define PP_GEMM_WIDE_H

#if defined __AVX512F__ && defined __x86_64__
#define PP_GEMM_WIDE

#include "device/cpu/after.h"
#include "device/cpu/gemm_turn.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* It is the faster one, seen beside oneDNN 2.6, from LEAST rows and columns on: up to WIDE
   multiply-adds, for A B^T from a depth of LONG on, and where both sides are BROAD.  Where there is
   no library, it always is. */
enum { LEAST = 16, BROAD = 192, WIDE = 1 << 22, LONG = 1024 };

static inline int gemm_wide_few(int64_t m, int64_t n, int64_t k)
{
    return m <= WIDE && n <= WIDE / m && k <= WIDE / m / n;
}

/* Is it?  By the sides and transposes only. */
static inline int gemm_wide_pays(int ta, int tb, int64_t m, int64_t n, int64_t k)
{
    if (m < LEAST || n < LEAST)
        return 0;
#if !defined PP_DNNL && !defined PP_CBLAS
    return 1; /* of loops */
#endif
    return (m >= BROAD && n >= BROAD) || (tb && !ta && k >= LONG) || gemm_wide_few(m, n, k);
}

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
    const AfterBounds bounds = after_bounds(after);
    const __m512 keep = _mm512_set1_ps(beta);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        const __m512 bias = after_bias(after, &bounds, i);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const int64_t at = i * ldc + 16 * v;
            const __mmask16 which = v == vectors - 1 ? last : (__mmask16)0xffff;
            __m512 x = sum[i][v];
            if (beta != 0)
                x = _mm512_fmadd_ps(keep, _mm512_maskz_loadu_ps(which, c + at), x);
            after_store(after, &bounds, x, bias, at, which);
        }
    }
    if (after->scale != 0)
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

/* What the caches are asked for while a tile is computed: `lines` of 64 bytes, two each time, the
   next time those `step` bytes behind.  They may end behind an operand: nothing is read. */
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
        for (int i = 0; i < AHEADS; i++)
#pragma GCC unroll 2
            for (int line = 0; line < 2; line++) {
                if (i == AHEAD_C)
                    __builtin_prefetch(soon[i][line], 1);
                else
                    _mm_prefetch(soon[i][line], _MM_HINT_T1);
                if (i == AHEAD_C && line == 1) /* rows that begin within a line end in a third */
                    __builtin_prefetch(soon[i][line] + 60, 1);
                soon[i][line] += ahead->of[i].step;
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

/* One tile of op(A): n rows, k steps WIDE_ROWS apart, and two numbers more behind the last. */
static void pack_tile(int ta, int64_t n, int64_t k, const float *a, int64_t lda, float *to)
{
    if (!ta)
        turn_rows(n, k, a, lda, to, WIDE_ROWS);
    else
        for (int64_t p = 0; p < k; p++, a += lda, to += WIDE_ROWS)
            _mm512_storeu_ps(to, _mm512_maskz_loadu_ps((__mmask16)(0xffff >> (16 - n)), a));
}

/* ---- products ---- */

/* C = alpha op(A) op(B) + beta C; A and B as they are stored. */
typedef struct {
    int ta, tb;
    int64_t m, n, k;
    float alpha;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float beta;
    float *c;
    int64_t ldc;
    /* The columns of B and C lie in images of `each`, which are so far apart; each 0: in one */
    int64_t each, next_b, next_c;
    After after; /* lies as C does; alpha is 1 */
} Wide;

/* Rows [i, i + m) of C, over steps [p, p + k). */
typedef struct {
    int64_t i, m, p, k;
} WideBlock;

static const float *wide_a(const Wide *w, int64_t i, int64_t p)
{
    return w->a + (w->ta ? p * w->lda + i : i * w->lda + p);
}

static int64_t wide_image(const Wide *w, int64_t j) { return w->each ? j / w->each : 0; }

static const float *wide_b(const Wide *w, int64_t p, int64_t j)
{
    const int64_t image = wide_image(w, j), at = j - image * w->each;
    return w->b + image * w->next_b + (w->tb ? at * w->ldb + p : p * w->ldb + at);
}

static float *wide_c(const Wide *w, int64_t i, int64_t j)
{
    const int64_t image = wide_image(w, j);
    return w->c + image * w->next_c + i * w->ldc + j - image * w->each;
}

/* What follows the last steps of k of C from there on. */
static After wide_after(const Wide *w, const WideBlock *o, int64_t i, int64_t j)
{
    if (!w->after.out || o->p + o->k < w->k)
        return (After){.out = NULL};
    return after_at(&w->after, i, wide_c(w, i, j) - w->c);
}

/* Where the sums of these steps go. */
static const float *wide_to(const Wide *w, const WideBlock *o, int64_t i, int64_t j)
{
    const After after = wide_after(w, o, i, j);
    return after.out ? after.out : wide_c(w, i, j);
}

/* How many of the columns from j on lie side by side. */
static int64_t wide_beside(const Wide *w, int64_t j, int64_t columns)
{
    const int64_t left = w->each ? w->each - j % w->each : columns;
    return left < columns ? left : columns;
}

/* ---- panels and tiles of several images ---- */

/* The first n of 32 columns, those of vector v. */
static __mmask16 wide_mask(int64_t n, int v)
{
    const int64_t left = n - 16 * v;
    return (__mmask16)(left <= 0 ? 0 : left >= 16 ? 0xffff : 0xffff >> (16 - left));
}

/* A panel as pack_rows() makes it. */
static void pack_images(const Wide *w, const WideBlock *o, int64_t j, int64_t wide, float *to)
{
    for (int64_t at = 0, n; at < wide; at += n) {
        n = wide_beside(w, j + at, wide - at);
        const float *from = wide_b(w, o->p, j + at);
        const int64_t fill = at + n < wide ? n : WIDE_COLUMNS - at;
        for (int64_t p = 0; p < o->k; p++, from += w->ldb)
            for (int v = 0; v < 2; v++)
                if (16 * v < fill)
                    _mm512_mask_storeu_ps(to + p * WIDE_COLUMNS + at + 16 * v, wide_mask(fill, v),
                                          _mm512_maskz_loadu_ps(wide_mask(n, v), from + 16 * v));
    }
}

/* C = tile + beta C, for rows [i, i + m) from column j on: as store() adds them. */
static void store_images(const Wide *w, const WideBlock *o, float beta, int64_t i, int64_t m,
                         int64_t j, int64_t wide, const float *tile)
{
    const __m512 keep = _mm512_set1_ps(beta);
    for (int64_t at = 0, n; at < wide; at += n) {
        const After after = wide_after(w, o, i, j + at);
        const AfterBounds bounds = after_bounds(&after);
        n = wide_beside(w, j + at, wide - at);
        for (int64_t r = 0; r < m; r++)
            for (int v = 0; v < 2; v++) {
                const __mmask16 which = wide_mask(n, v);
                float *to = wide_c(w, i + r, j + at) + 16 * v;
                __m512 x = _mm512_maskz_loadu_ps(which, tile + r * WIDE_COLUMNS + at + 16 * v);
                if (beta != 0)
                    x = _mm512_fmadd_ps(keep, _mm512_maskz_loadu_ps(which, to), x);
                if (after.out)
                    after_store(&after, &bounds, x, after_bias(&after, &bounds, r),
                                r * w->ldc + 16 * v, which);
                else
                    _mm512_mask_storeu_ps(to, which, x);
            }
        if (after.out && after.scale != 0)
            after_swish(&after, m, n, w->ldc);
    }
}

/* A where it is.  Of few rows or few steps B as well: then tiles follow one another along rows of C
   and B, as the caches foresee. */
static void unpacked(const Wide *w, const WideBlock *o)
{
    _Alignas(64) float panel[WIDE_DEEP * WIDE_COLUMNS];
    const int64_t high = (o->m + WIDE_ROWS - 1) / WIDE_ROWS,
                  broad = (w->n + WIDE_COLUMNS - 1) / WIDE_COLUMNS;
    const int along = !w->tb && (o->m <= WIDE_FEW || o->k <= WIDE_SHALLOW);
    const float beta = o->p ? 1 : w->beta;
    for (int64_t at = 0; at < high * broad; at++) {
        const int64_t q = along ? at / broad : at % high, i = o->m * q / high,
                      end = o->m * (q + 1) / high,
                      j = (along ? at % broad : at / high) * WIDE_COLUMNS,
                      wide = w->n - j < WIDE_COLUMNS ? w->n - j : WIDE_COLUMNS;
        const int vectors = wide > 16 ? 2 : 1, copied = !along;
        const __mmask16 last = (__mmask16)(0xffff >> (16 * vectors - wide));
        const float *from = wide_b(w, o->p, j);
        const After after = wide_after(w, o, o->i + i, j);
        if (copied && (along || q == 0))
            pack(0, w->tb, o->k, wide, from, w->ldb, panel);
        tiles[w->ta != 0][vectors - 1][end - i - 1](
            o->k, wide_a(w, o->i + i, o->p), w->lda, copied ? panel : from,
            copied ? WIDE_COLUMNS : w->ldb, w->alpha, beta, w->c + (o->i + i) * w->ldc + j, w->ldc,
            last, &after);
    }
}

/* Two lines, or rows, from `x` on; `step` is that of their rows */
static Lines rows_ahead(const float *x, int64_t step)
{
    return (Lines){{(const char *)x, (const char *)(x + 16)}, step * (int64_t)sizeof *x};
}
static Lines lines_ahead(const float *x, int64_t next_row)
{
    return (Lines){{(const char *)x, (const char *)(x + next_row)}, 64};
}

/* How often the caches are asked, so that within k steps it is for all rows of C, and within
   `tiles` of them for all of B: at a depth of 64 a fifth of a product waited for C otherwise. */
static int64_t wide_every(int64_t k, int64_t rows, int64_t tiles)
{
    int64_t every = k / rows < tiles ? k / rows : tiles;
    every = every < WIDE_AHEAD ? every : WIDE_AHEAD;
    return every > 1 ? every : 1;
}

/* At most WIDE_HIGH rows, of which A is packed tile by tile, before a tile meets its first panel.
   `next`: the block that comes afterwards. */
static void packed(const Wide *w, const WideBlock *o, const WideBlock *next)
{
    enum { TILES = (WIDE_HIGH + WIDE_ROWS - 1) / WIDE_ROWS };
    _Alignas(64) float panel[WIDE_DEEP * WIDE_COLUMNS], side[WIDE_ROWS * WIDE_COLUMNS],
        block[TILES * WIDE_DEEP * WIDE_ROWS + 16 - WIDE_ROWS];
    const int64_t count = (o->m + WIDE_ROWS - 1) / WIDE_ROWS,
                  all = (w->n + WIDE_COLUMNS - 1) / WIDE_COLUMNS * count,
                  lines = w->ta ? next->k : next->m; /* rows of the next block, as stored */
    const float beta = o->p ? 1 : w->beta;
    for (int64_t j = 0, at = 0; j < w->n; j += WIDE_COLUMNS) {
        const int64_t wide = w->n - j < WIDE_COLUMNS ? w->n - j : WIDE_COLUMNS,
                      later = j + WIDE_COLUMNS < w->n ? j + WIDE_COLUMNS : j;
        const int vectors = wide > 16 ? 2 : 1, apart = wide_beside(w, j, wide) < wide;
        const __mmask16 last = (__mmask16)(0xffff >> (16 * vectors - wide));
        if (apart)
            pack_images(w, o, j, wide, panel);
        else
            pack(1, w->tb, o->k, wide, wide_b(w, o->p, j), w->ldb, panel);
        for (int64_t q = 0, i = 0; q < count; q++, at++) {
            const int64_t end = o->m * (q + 1) / count, line = lines * at / all;
            float *const own = block + q * WIDE_ROWS * o->k;
            const After after = apart ? (After){.out = NULL} : wide_after(w, o, o->i + i, j);
            Ahead ahead = {.every = wide_every(o->k, end - i, count)};
            if (j == 0)
                pack_tile(w->ta, end - i, o->k, wide_a(w, o->i + i, o->p), w->lda, own);
            const int more = q + 1 < count;
            const int64_t next_i = o->i + (more ? end : 0), next_j = more ? j : later;
            ahead.of[AHEAD_C] = ahead.of[AHEAD_SUM] =
                rows_ahead(wide_to(w, o, next_i, next_j), w->ldc);
            const After then = wide_after(w, o, next_i, next_j);
            if (then.out && then.sum)
                ahead.of[AHEAD_SUM] = rows_ahead(then.sum, w->ldc);
            if (w->tb)
                ahead.of[AHEAD_B] =
                    lines_ahead(wide_b(w, o->p, later + WIDE_COLUMNS * q / count), w->ldb);
            else
                ahead.of[AHEAD_B] = rows_ahead(wide_b(w, o->p + o->k * q / count, later), w->ldb);
            ahead.of[AHEAD_A] = lines_ahead(w->ta ? wide_a(w, next->i, next->p + line)
                                                  : wide_a(w, next->i + line, next->p),
                                            w->lda);
            packed_tiles[vectors - 1][end - i - 1](
                o->k, own, panel, w->alpha, apart ? 0 : beta, apart ? side : wide_c(w, o->i + i, j),
                apart ? WIDE_COLUMNS : w->ldc, last, &after, &ahead);
            if (apart)
                store_images(w, o, beta, o->i + i, end - i, j, wide, side);
            i = end;
        }
    }
}

/* Steps [p, p + deep) of rows [i, i + high), or what there is of them. */
static inline WideBlock wide_block(const Wide *w, int64_t i, int64_t high, int64_t p, int64_t deep)
{
    return (WideBlock){i, w->m - i < high ? w->m - i : high, p, w->k - p < deep ? w->k - p : deep};
}

/* On one thread; m, n, k at least 1; of several images A is packed. */
static void gemm_wide(const Wide *w)
{
    const int64_t parts = (w->k + WIDE_DEEP - 1) / WIDE_DEEP,
                  deep = ((w->k + parts - 1) / parts + 15) / 16 * 16;
    if (!w->each && (w->n <= WIDE_BROAD || gemm_wide_few(w->m, w->n, w->k))) {
        for (int64_t i = 0; i < w->m; i += WIDE_TALL)
            for (int64_t p = 0; p < w->k; p += deep) {
                const WideBlock o = wide_block(w, i, WIDE_TALL, p, deep);
                unpacked(w, &o);
            }
        return;
    }
    const int64_t across = (w->m + WIDE_HIGH - 1) / WIDE_HIGH, high = (w->m + across - 1) / across;
    WideBlock o = wide_block(w, 0, high, 0, deep);
    while (o.i < w->m) {
        int64_t p = o.p + deep, i = o.i;
        if (p >= w->k) {
            p = 0;
            i += high;
        }
        const WideBlock next = wide_block(w, i, high, p, deep);
        packed(w, &o, i < w->m ? &next : &o);
        o = next;
    }
}
#undef EACH
#undef TILE
#undef TAKES
#undef TAKES_PACKED
#undef WIDE_INLINE
#endif
#endif
