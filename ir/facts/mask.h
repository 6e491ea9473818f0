/*
 * mask.h - constant masks that leave a band of a matrix, such as a causal one of attention's scores.
 */
#ifndef PPSPLIT_MASK_H
#define PPSPLIT_MASK_H

#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BAND_TILE = 32 };

/* A band of a matrix: its elements (i, j) with below <= j - i <= above.  It is left out by square
   tiles of BAND_TILE that have none of it (PP_TILE in pp.h). */
typedef struct { int64_t below, above; } Band;
/* The columns of the tiles of row i that have some: from first up to end. */
static inline int64_t band_first(Band b, int64_t i)
{
    int64_t j = i / BAND_TILE * BAND_TILE + b.below;
    return j < 0 ? 0 : j / BAND_TILE * BAND_TILE;
}
static inline int64_t band_end(Band b, int64_t i, int64_t columns)
{
    int64_t j = (i / BAND_TILE + 1) * BAND_TILE + b.above;
    j = j < 0 ? 0 : (j + BAND_TILE - 1) / BAND_TILE * BAND_TILE;
    return j < columns ? j : columns;
}

/* A masked score is at most this: e to it, less a score that is not masked, is 0. */
#define BAND_LOWEST (-0x1p120)

/* At this much less, e to a score is 0, whatever the score. */
#define MASK_LOW (-1e30)

/* What a mask's elements are asked for: those that are true, are false, are above BAND_LOWEST; are 0
   where all others are at most MASK_LOW. */
typedef enum { MASK_TRUE, MASK_FALSE, MASK_HIGH, MASK_ZERO, MASK_ASKED } MaskAsk;

/* yes: all elements that are what was asked for lie in the band, and it leaves out whole tiles.
   constant: they are known, and every row has some.  minus_inf: all others are -inf (MASK_HIGH).
   full: all of the band are what was asked for. */
typedef struct { bool yes, constant, minus_inf, full; Band band; } Mask;

/* What was found; begun with a graph and an arena. */
typedef struct { const Graph *g; Arena *a; IdMap at; VEC(Mask) mask; } Masks;

/* ---- mask.c ---- */

/* The tiles of m x n elements that have some of it, as a part of all. */
double band_part(Band b, int64_t m, int64_t n);
bool band_pays(Band b, int64_t m, int64_t n); /* it leaves out enough tiles */
Mask mask_of(Masks *k, ValueId v, MaskAsk ask);
/* Numbers like scores, far from BAND_LOWEST: products, parameters, constants, and sums of them. */
bool mask_is_moderate(const Graph *g, ValueId v);

#ifdef __cplusplus
}
#endif

#endif
