/*
 * band.h - what band.c and band_mask.c share: constant masks that leave a band of a matrix.
 */
#ifndef PPSPLIT_BAND_H
#define PPSPLIT_BAND_H

#include "plan.h"

/* A masked score is at most this: e to it, less a score that is not masked, is 0. */
#define BAND_LOWEST (-0x1p120)

/* What a mask's elements are asked for: those that are true, are false, are above BAND_LOWEST. */
typedef enum { MASK_TRUE, MASK_FALSE, MASK_HIGH, MASK_ASKED } MaskAsk;

/* yes: all elements that are what was asked for lie in the band, and it leaves out whole tiles.
   constant: they are known, and every row has some.  minus_inf: all others are -inf (MASK_HIGH). */
typedef struct { bool yes, constant, minus_inf; Band band; } Mask;

typedef struct { const Graph *g; Arena *a; IdMap at; VEC(Mask) mask; } Masks;

Mask mask_of(Masks *k, ValueId v, MaskAsk ask);
/* A constant of elements that are all 0; all at most BAND_LOWEST; all -inf. */
bool mask_is_zero(const Graph *g, ValueId v);
bool mask_is_low(const Graph *g, ValueId v, bool *minus_inf);
/* Numbers like scores, far from BAND_LOWEST: products, parameters, constants, and sums of them. */
bool mask_is_moderate(const Graph *g, ValueId v);

#endif
