/*
 * mask.h - constant masks that leave a band of a matrix, such as a causal one of attention's
 * scores.
 */
#ifndef PPSPLIT_MASK_H
#define PPSPLIT_MASK_H

#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BAND_TILE = 32 };

/* A band of a matrix: its elements (i, j) with below <= j - i <= above.  Square tiles of BAND_TILE
   (PP_TILE in pp.h) that contain none of it are skipped. */
typedef struct { int64_t below, above; } Band;

/* A masked score is at most this: e^(it - an unmasked score) is 0. */
#define BAND_LOWEST (-0x1p120)

/* Added to any score, this makes e^score 0. */
#define MASK_LOW (-1e30)

/* Which elements of a mask are asked for: true ones, false ones, those above BAND_LOWEST, or zeros
   where all others are at most MASK_LOW. */
typedef enum { MASK_TRUE, MASK_FALSE, MASK_HIGH, MASK_ZERO, MASK_ASKED } MaskAsk;

/* yes: all elements asked for are in the band, which skips whole tiles.  constant: they are known,
   and every row has some.  minus_inf: all others are -inf (MASK_HIGH).  full: the whole band
   consists of elements asked for. */
typedef struct { bool yes, constant, minus_inf, full; Band band; } Mask;

/* Results so far; start with a graph and an arena. */
typedef struct { const Graph *g; Arena *a; IdMap at; VEC(Mask) mask; } Masks;

/* ---- mask.c ---- */

/* The fraction of the tiles of m x n elements that contain some of it. */
double band_part(Band b, int64_t m, int64_t n);
Mask mask_of(Masks *k, ValueId v, MaskAsk ask);
/* whether v holds numbers like scores, far from BAND_LOWEST: products, parameters, constants,
   sums */
bool mask_is_moderate(const Graph *g, ValueId v);

#ifdef __cplusplus
}
#endif

#endif
