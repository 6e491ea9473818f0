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

#include "device/cpu/gemm_tiles.h"

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

/* ---- products ---- */

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

/* Lanes [lane, lane + n) of a vector. */
static __mmask16 wide_lanes(int64_t lane, int64_t n)
{
    return (__mmask16)(0xffff >> (16 - n) << lane);
}

/* How many of the columns [at, wide) from j on lie in one vector and one image. */
static int64_t wide_piece(const Wide *w, int64_t j, int64_t at, int64_t wide)
{
    const int64_t left = wide - at, lanes = 16 - at % 16;
    return wide_beside(w, j + at, left < lanes ? left : lanes);
}

/* A panel as pack_rows() makes it. */
static void pack_images(const Wide *w, const WideBlock *o, int64_t j, int64_t wide, float *to)
{
    for (int64_t at = 0, n; at < wide; at += n) {
        n = wide_piece(w, j, at, wide);
        const int64_t lane = at % 16;
        const __mmask16 which = wide_lanes(lane, n);
        const float *from = wide_b(w, o->p, j + at) - lane;
        float *row = to + at - lane;
        for (int64_t p = 0; p < o->k; p++, from += w->ldb, row += WIDE_COLUMNS) {
            const __m512 x = _mm512_maskz_loadu_ps(which, from);
            if (lane == 0)
                _mm512_store_ps(row, x);
            else
                _mm512_mask_store_ps(row, which, x);
        }
    }
}

/* The lanes in `which` of m rows of a tile: C = tile + beta C, as store() adds them, and what
   follows. */
WIDE_INLINE void store_piece(const int follows, int64_t m, const float *tile, float beta, float *c,
                             int64_t ldc, __mmask16 which, const After *after)
{
    const AfterBounds bounds = after_bounds(after);
    const __m512 keep = _mm512_set1_ps(beta);
    for (int64_t r = 0; r < m; r++, tile += WIDE_COLUMNS, c += ldc) {
        __m512 x = _mm512_load_ps(tile);
        if (beta != 0)
            x = _mm512_fmadd_ps(keep, _mm512_maskz_loadu_ps(which, c), x);
        if (follows)
            after_store(after, &bounds, x, after_bias(after, &bounds, r), r * ldc, which);
        else
            _mm512_mask_storeu_ps(c, which, x);
    }
}

/* A tile, rows [i, i + m) from column j on, to where these columns are. */
static void store_images(const Wide *w, const WideBlock *o, int64_t i, int64_t m, int64_t j,
                         int64_t wide, const float *tile)
{
    const float beta = o->p ? 1 : w->beta;
    for (int64_t at = 0, n; at < wide; at += n) {
        n = wide_piece(w, j, at, wide);
        const int64_t lane = at % 16;
        const __mmask16 which = wide_lanes(lane, n);
        const After after = wide_after(w, o, i, j + at), there = after_at(&after, 0, -lane);
        float *c = wide_c(w, i, j + at) - lane;
        if (after.out)
            store_piece(1, m, tile + at - lane, beta, c, w->ldc, which, &there);
        else
            store_piece(0, m, tile + at - lane, beta, c, w->ldc, which, &there);
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

/* A row, from x to `last`, which may lie in another image; `step`: from one row to the next.  Or
   two rows. */
static Lines rows_ahead(const float *x, const float *last, int64_t step)
{
    return (Lines){{(const char *)x, (const char *)last}, step * (int64_t)sizeof *x};
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

/* ---- packed blocks ---- */

/* A block of A, of which each tile is packed before it meets its first panel, and a panel of B.
   `next`: the block that comes afterwards. */
typedef struct {
    const Wide *w;
    const WideBlock *o, *next;
    int64_t count; /* tiles */
    float *block, *panel;
} Packed;

/* The first row of tile q. */
static int64_t tile_row(const Packed *x, int64_t q) { return x->o->m * q / x->count; }

/* The caches are asked for rows [i, i + m) of a block of A: what of it is not there yet takes more
   time to come than to be packed. */
static void ask_tile(const Wide *w, const WideBlock *o, int64_t i, int64_t m)
{
    const int64_t lines = w->ta ? o->k : m, bytes = (w->ta ? m : o->k) * (int64_t)sizeof(float);
    const char *line = (const char *)wide_a(w, o->i + i, o->p);
    for (int64_t l = 0; l < lines; l++, line += w->lda * (int64_t)sizeof(float))
        for (int64_t at = 0; at < bytes; at += 64)
            _mm_prefetch(line + at, _MM_HINT_T1);
}

static const float *own_tile(const Packed *x, int64_t q, int64_t j)
{
    const Wide *w = x->w;
    const WideBlock *o = x->o;
    const int64_t i = tile_row(x, q), end = tile_row(x, q + 1);
    float *own = x->block + q * WIDE_ROWS * o->k;
    if (j > 0)
        return own;
    pack_tile(w->ta, end - i, o->k, wide_a(w, o->i + i, o->p), w->lda, own);
    if (q + 1 < x->count)
        ask_tile(w, o, end, tile_row(x, q + 2) - end);
    return own;
}

/* The last column of the panel that begins with column j. */
static int64_t panel_end(const Wide *w, int64_t j)
{
    return (w->n - j < WIDE_COLUMNS ? w->n : j + WIDE_COLUMNS) - 1;
}

/* While tile q meets the panel of columns [j, j + wide): the C of the tile that comes next, what of
   the panel `later`, and of the next block of A. */
static Ahead packed_ahead(const Packed *x, int64_t q, int64_t j, int64_t wide, int64_t later)
{
    const Wide *w = x->w;
    const WideBlock *o = x->o, *next = x->next;
    const int more = q + 1 < x->count;
    const int64_t next_i = o->i + (more ? tile_row(x, q + 1) : 0), next_j = more ? j : later,
                  lines = w->ta ? next->k : next->m, /* rows of the next block, as stored */
        line = lines * (j * x->count + q * wide) / (w->n * x->count);
    const int64_t next_end = panel_end(w, next_j), later_end = panel_end(w, later),
                  step = o->p + o->k * q / x->count;
    const After after = wide_after(w, o, next_i, next_j),
                after_end = wide_after(w, o, next_i, next_end);
    Ahead ahead = {.every = wide_every(o->k, tile_row(x, q + 1) - tile_row(x, q), x->count)};
    ahead.of[AHEAD_C] =
        rows_ahead(wide_to(w, o, next_i, next_j), wide_to(w, o, next_i, next_end), w->ldc);
    ahead.of[AHEAD_SUM] =
        after.out && after.sum ? rows_ahead(after.sum, after_end.sum, w->ldc) : ahead.of[AHEAD_C];
    if (w->tb)
        ahead.of[AHEAD_B] =
            lines_ahead(wide_b(w, o->p, later + WIDE_COLUMNS * q / x->count), w->ldb);
    else
        ahead.of[AHEAD_B] = rows_ahead(wide_b(w, step, later), wide_b(w, step, later_end), w->ldb);
    ahead.of[AHEAD_A] = lines_ahead(
        w->ta ? wide_a(w, next->i, next->p + line) : wide_a(w, next->i + line, next->p), w->lda);
    return ahead;
}

/* All tiles by a panel; `apart`: its columns are not beside each other. */
static void packed_panel(const Packed *x, int64_t j, int64_t wide, int apart)
{
    _Alignas(64) float side[WIDE_ROWS * WIDE_COLUMNS];
    const Wide *w = x->w;
    const WideBlock *o = x->o;
    const int vectors = wide > 16 ? 2 : 1;
    const int64_t later = j + wide < w->n ? j + wide : j;
    const __mmask16 last = (__mmask16)(0xffff >> (16 * vectors - wide));
    const float beta = o->p ? 1 : w->beta;
    for (int64_t q = 0; q < x->count; q++) {
        const int64_t i = o->i + tile_row(x, q), high = o->i + tile_row(x, q + 1) - i;
        const After after = apart ? (After){.out = NULL} : wide_after(w, o, i, j);
        const Ahead ahead = packed_ahead(x, q, j, wide, later);
        packed_tiles[vectors - 1][high - 1](o->k, own_tile(x, q, j), x->panel, w->alpha,
                                            apart ? 0 : beta, apart ? side : wide_c(w, i, j),
                                            apart ? WIDE_COLUMNS : w->ldc, apart ? 0xffff : last,
                                            &after, &ahead);
        if (apart)
            store_images(w, o, i, high, j, wide, side);
    }
}

/* All tiles by at most WIDE_SLIM columns. */
static void packed_slim(const Packed *x, int64_t j, int64_t wide)
{
    _Alignas(64) float side[WIDE_ROWS * WIDE_COLUMNS], sums[WIDE_SLIM][2][16];
    for (int64_t q = 0; q < x->count; q += 2) {
        const int64_t pair = q + 1 < x->count ? 2 : 1;
        const float *tiles_of[2] = {own_tile(x, q, j), NULL};
        tiles_of[1] = pair > 1 ? own_tile(x, q + 1, j) : tiles_of[0];
        slims[wide - 1](x->o->k, tiles_of, x->panel, x->w->alpha, sums[0][0]);
        for (int64_t t = 0; t < pair; t++) {
            const int64_t i = tile_row(x, q + t), high = tile_row(x, q + t + 1) - i;
            for (int64_t r = 0; r < high; r++)
                for (int64_t c = 0; c < wide; c++)
                    side[r * WIDE_COLUMNS + c] = sums[c][t][r];
            store_images(x->w, x->o, x->o->i + i, high, j, wide, side);
        }
    }
}

/* How many of the columns that are left come next: what fills one vector and little of another is
   divided between them. */
static int64_t panel_of(int64_t left)
{
    return left >= WIDE_COLUMNS ? WIDE_COLUMNS : left > 16 && left <= 16 + WIDE_SLIM ? 16 : left;
}

/* At most WIDE_HIGH rows. */
static void packed(const Wide *w, const WideBlock *o, const WideBlock *next)
{
    enum { TILES = (WIDE_HIGH + WIDE_ROWS - 1) / WIDE_ROWS };
    _Alignas(64) float panel[WIDE_DEEP * WIDE_COLUMNS],
        block[TILES * WIDE_DEEP * WIDE_ROWS + 16 - WIDE_ROWS];
    const Packed x = {w, o, next, (o->m + WIDE_ROWS - 1) / WIDE_ROWS, block, panel};
    for (int64_t j = 0, wide; j < w->n; j += wide) {
        wide = panel_of(w->n - j);
        const int apart = wide_beside(w, j, wide) < wide;
        if (apart)
            pack_images(w, o, j, wide, panel);
        else
            pack(1, w->tb, o->k, wide, wide_b(w, o->p, j), w->ldb, panel);
        if (wide <= WIDE_SLIM)
            packed_slim(&x, j, wide);
        else
            packed_panel(&x, j, wide, apart);
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
    const WideBlock below = {w->m, w->below < WIDE_HIGH ? w->below : WIDE_HIGH, 0,
                             w->k < deep ? w->k : deep};
    const int64_t across = (w->m + WIDE_HIGH - 1) / WIDE_HIGH, high = (w->m + across - 1) / across;
    WideBlock o = wide_block(w, 0, high, 0, deep);
    while (o.i < w->m) {
        int64_t p = o.p + deep, i = o.i;
        if (p >= w->k) {
            p = 0;
            i += high;
        }
        const WideBlock next = wide_block(w, i, high, p, deep);
        packed(w, &o, i < w->m ? &next : w->below ? &below : &o);
        o = next;
    }
}
#undef WIDE_INLINE
#endif
#endif
