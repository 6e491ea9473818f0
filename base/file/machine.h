/*
 * machine.h - the sizes at which the rates in a machine's file were measured: `pipeline measure`
 * times with them, and ppsplit computes seconds from them.
 */
#ifndef PP_MACHINE_H
#define PP_MACHINE_H

#include <math.h>

/* Bytes of parameters, gradients and stashes that a rank goes over in a step.  NEAR: what products
   read is still in a cache when its turn comes again; FAR: it is in none. */
#define RATES_NEAR (8 << 20)
#define RATES_FAR (64 << 20)

/* Bytes of one operand of a loop.  SMALL: it stays in a core's cache; LARGE: it stays in none. */
#define RATES_SMALL (64 << 10)
#define RATES_LARGE (1 << 20)

/* Columns of a product are computed in groups of this size: 24 columns take as long as 32. */
#define RATES_LANES 16

/* Which part counts at the slow rate: 0 up to `few` bytes, 1 from `many` on, between them with the
   logarithm of the bytes, as cache misses grow. */
static inline double rates_part(double bytes, double few, double many)
{
    return bytes <= few ? 0 : bytes >= many ? 1 : log(bytes / few) / log(many / few);
}

#endif
