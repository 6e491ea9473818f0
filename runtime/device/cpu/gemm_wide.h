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

static inline int gemm_wide_few(const PpGemm *w)
{
    return w->m <= WIDE && w->n <= WIDE / w->m && w->k <= WIDE / w->m / w->n;
}

/* Is it?  By the sides and transposes only. */
static inline int gemm_wide_pays(const PpGemm *w)
{
    if (w->m < LEAST || w->n < LEAST)
        return 0;
#if !defined PP_DNNL && !defined PP_CBLAS
    return 1; /* of loops */
#endif
    return (w->m >= BROAD && w->n >= BROAD) || (w->tb && !w->ta && w->k >= LONG) ||
           gemm_wide_few(w);
}

/* ---- products ---- */

/* Rows [i, i + m) of C, over steps [p, p + k). */
typedef struct {
    int64_t i, m, p, k;
} WideBlock;

/* Element (i, p) of op(A), (p, j) of op(B), (i, j) of C. */
static const float *wide_a(const PpGemm *w, int64_t i, int64_t p)
{
    return (const float *)w->a + (w->ta ? p * w->lda + i : i * w->lda + p);
}
static const float *wide_b(const PpGemm *w, int64_t p, int64_t j)
{
    return (const float *)w->b + (w->tb ? j * w->ldb + p : p * w->ldb + j);
}
static float *wide_c(const PpGemm *w, int64_t i, int64_t j)
{
    return (float *)w->c + i * w->ldc + j;
}

/* A product, what follows it, and a block of it. */
typedef struct {
    const PpGemm *w;
    const After *after;
    const WideBlock *o;
} WidePart;

/* What follows the last steps of k of C from there on. */
static After wide_after(const WidePart *x, int64_t i, int64_t j)
{
    if (!x->after->out || x->o->p + x->o->k < x->w->k)
        return (After){.out = NULL};
    return after_at(x->after, i, i * x->w->ldc + j);
}

/* Where the sums of these steps go. */
static const float *wide_to(const WidePart *x, int64_t i, int64_t j)
{
    const After after = wide_after(x, i, j);
    return after.out ? after.out : wide_c(x->w, i, j);
}

/* The tile at (i, j), `wide` columns, which `after` follows; of operands that are still to come. */
static Tile wide_tile(const WidePart *x, int64_t i, int64_t j, int64_t wide, const After *after)
{
    return (Tile){.k = x->o->k,
                  .c = wide_c(x->w, i, j),
                  .ldc = x->w->ldc,
                  .alpha = *x->w->alpha,
                  .adds = x->w->adds || x->o->p > 0,
                  .last = (__mmask16)(0xffff >> (16 * (wide > 16 ? 2 : 1) - wide)),
                  .after = after};
}

/* A where it is.  Of few rows or few steps B as well: then tiles follow one another along rows of C
   and B, as the caches foresee. */
static void unpacked(const WidePart *x)
{
    _Alignas(64) float panel[WIDE_DEEP * WIDE_COLUMNS];
    const PpGemm *w = x->w;
    const WideBlock *o = x->o;
    const int64_t high = (o->m + WIDE_ROWS - 1) / WIDE_ROWS,
                  broad = (w->n + WIDE_COLUMNS - 1) / WIDE_COLUMNS;
    const int along = !w->tb && (o->m <= WIDE_FEW || o->k <= WIDE_SHALLOW);
    for (int64_t at = 0; at < high * broad; at++) {
        const int64_t q = along ? at / broad : at % high, i = o->m * q / high,
                      end = o->m * (q + 1) / high,
                      j = (along ? at % broad : at / high) * WIDE_COLUMNS,
                      wide = least(w->n - j, WIDE_COLUMNS);
        const After after = wide_after(x, o->i + i, j);
        Tile t = wide_tile(x, o->i + i, j, wide, &after);
        t.a = wide_a(w, o->i + i, o->p);
        t.apart = w->lda;
        t.b = along ? wide_b(w, o->p, j) : panel;
        t.bs = along ? w->ldb : WIDE_COLUMNS;
        if (!along && q == 0)
            pack(0, w->tb, o->k, wide, wide_b(w, o->p, j), w->ldb, panel);
        tiles[w->ta ? TILE_TURNED : TILE_ROWS][wide > 16][end - i - 1](&t);
    }
}

/* A row of a panel, from x on; `step`: from one row to the next.  Or two rows. */
static Lines rows_ahead(const float *x, int64_t step)
{
    return (Lines){{(const char *)x, (const char *)(x + WIDE_COLUMNS - 1)},
                   step * (int64_t)sizeof *x};
}
static Lines lines_ahead(const float *x, int64_t next_row)
{
    return (Lines){{(const char *)x, (const char *)(x + next_row)}, 64};
}

/* How often the caches are asked, so that within k steps it is for all rows of C, and within
   `count` of them for all of B: at a depth of 64 a fifth of a product waited for C otherwise. */
static int64_t wide_every(int64_t k, int64_t rows, int64_t count)
{
    const int64_t every = least(least(k / rows, count), WIDE_AHEAD);
    return every > 1 ? every : 1;
}

/* ---- packed blocks ---- */

/* A block of A, of which each tile is packed before it meets its first panel, and a panel of B.
   `next`: the block that comes afterwards. */
typedef struct {
    WidePart of;
    const WideBlock *next;
    int64_t count; /* tiles */
    float *block, *panel;
} Packed;

/* The first row of tile q. */
static int64_t tile_row(const Packed *x, int64_t q) { return x->of.o->m * q / x->count; }

/* The caches are asked for rows [i, i + m) of a block of A: what of it is not there yet takes more
   time to come than to be packed. */
static void ask_tile(const PpGemm *w, const WideBlock *o, int64_t i, int64_t m)
{
    const int64_t lines = w->ta ? o->k : m, bytes = (w->ta ? m : o->k) * (int64_t)sizeof(float);
    const char *line = (const char *)wide_a(w, o->i + i, o->p);
    for (int64_t l = 0; l < lines; l++, line += w->lda * (int64_t)sizeof(float))
        for (int64_t at = 0; at < bytes; at += 64)
            _mm_prefetch(line + at, _MM_HINT_T1);
}

static const float *own_tile(const Packed *x, int64_t q, int64_t j)
{
    const PpGemm *w = x->of.w;
    const WideBlock *o = x->of.o;
    const int64_t i = tile_row(x, q), end = tile_row(x, q + 1);
    float *own = x->block + q * WIDE_ROWS * o->k;
    if (j > 0)
        return own;
    pack_tile(w->ta, end - i, o->k, wide_a(w, o->i + i, o->p), w->lda, own);
    if (q + 1 < x->count)
        ask_tile(w, o, end, tile_row(x, q + 2) - end);
    return own;
}

/* While tile q meets the panel of columns [j, j + wide): the C of the tile that comes next, what of
   the panel `later`, and of the next block of A. */
static Ahead packed_ahead(const Packed *x, int64_t q, int64_t j, int64_t wide, int64_t later)
{
    const PpGemm *w = x->of.w;
    const WideBlock *o = x->of.o, *next = x->next;
    const int more = q + 1 < x->count;
    const int64_t next_i = o->i + (more ? tile_row(x, q + 1) : 0), next_j = more ? j : later,
                  lines = w->ta ? next->k : next->m, /* rows of the next block, as stored */
        line = lines * (j * x->count + q * wide) / (w->n * x->count);
    const After after = wide_after(&x->of, next_i, next_j);
    Ahead ahead = {.every = wide_every(o->k, tile_row(x, q + 1) - tile_row(x, q), x->count)};
    ahead.of[AHEAD_C] = rows_ahead(wide_to(&x->of, next_i, next_j), w->ldc);
    ahead.of[AHEAD_SUM] =
        after.out && after.sum ? rows_ahead(after.sum, w->ldc) : ahead.of[AHEAD_C];
    ahead.of[AHEAD_B] =
        w->tb ? lines_ahead(wide_b(w, o->p, later + WIDE_COLUMNS * q / x->count), w->ldb)
              : rows_ahead(wide_b(w, o->p + o->k * q / x->count, later), w->ldb);
    ahead.of[AHEAD_A] = lines_ahead(
        w->ta ? wide_a(w, next->i, next->p + line) : wide_a(w, next->i + line, next->p), w->lda);
    return ahead;
}

/* All tiles by a panel. */
static void packed_panel(const Packed *x, int64_t j, int64_t wide)
{
    const PpGemm *w = x->of.w;
    const int64_t later = j + wide < w->n ? j + wide : j;
    for (int64_t q = 0; q < x->count; q++) {
        const int64_t i = x->of.o->i + tile_row(x, q);
        const After after = wide_after(&x->of, i, j);
        const Ahead ahead = packed_ahead(x, q, j, wide, later);
        Tile t = wide_tile(&x->of, i, j, wide, &after);
        t.a = own_tile(x, q, j);
        t.b = x->panel;
        t.ahead = &ahead;
        tiles[TILE_PACKED][wide > 16][tile_row(x, q + 1) - tile_row(x, q) - 1](&t);
    }
}

/* At most WIDE_HIGH rows. */
static void packed(const WidePart *of, const WideBlock *next)
{
    enum { TILES = (WIDE_HIGH + WIDE_ROWS - 1) / WIDE_ROWS };
    _Alignas(64) float panel[WIDE_DEEP * WIDE_COLUMNS],
        block[TILES * WIDE_DEEP * WIDE_ROWS + 16 - WIDE_ROWS];
    const PpGemm *w = of->w;
    const Packed x = {*of, next, (of->o->m + WIDE_ROWS - 1) / WIDE_ROWS, block, panel};
    for (int64_t j = 0; j < w->n; j += WIDE_COLUMNS) {
        const int64_t wide = least(w->n - j, WIDE_COLUMNS);
        pack(1, w->tb, of->o->k, wide, wide_b(w, of->o->p, j), w->ldb, panel);
        packed_panel(&x, j, wide);
    }
}

/* Steps [p, p + deep) of rows [i, i + high), or what there is of them. */
static inline WideBlock wide_block(const PpGemm *w, int64_t i, int64_t high, int64_t p, int64_t deep)
{
    return (WideBlock){i, least(w->m - i, high), p, least(w->k - p, deep)};
}

/* On one thread; m, n, k at least 1. */
static void gemm_wide(const PpGemm *w, const After *after)
{
    const int64_t parts = (w->k + WIDE_DEEP - 1) / WIDE_DEEP,
                  deep = ((w->k + parts - 1) / parts + 15) / 16 * 16;
    if (w->n <= WIDE_BROAD || gemm_wide_few(w)) {
        for (int64_t i = 0; i < w->m; i += WIDE_TALL)
            for (int64_t p = 0; p < w->k; p += deep) {
                const WideBlock o = wide_block(w, i, WIDE_TALL, p, deep);
                unpacked(&(WidePart){w, after, &o});
            }
        return;
    }
    const int64_t across = (w->m + WIDE_HIGH - 1) / WIDE_HIGH, high = (w->m + across - 1) / across;
    WideBlock o = wide_block(w, 0, high, 0, deep);
    while (o.i < w->m) {
        const int last = o.p + deep >= w->k;
        const int64_t i = last ? o.i + high : o.i;
        const WideBlock next = wide_block(w, i, high, last ? 0 : o.p + deep, deep);
        packed(&(WidePart){w, after, &o}, i < w->m ? &next : &o);
        o = next;
    }
}
#undef WIDE_INLINE
#endif
#endif
