/*
 * machine.h - of what sizes the rates in a machine's file are: what `pipeline measure` times, and
 * ppsplit makes seconds of.
 */
#ifndef PP_MACHINE_H
#define PP_MACHINE_H

#include <math.h>

/* Bytes that a rank goes over in a step, of parameters, gradients and stashes: with so many, what
   products read is in a cache when its turn comes again, and in none. */
#define RATES_NEAR (8 << 20)
#define RATES_FAR (64 << 20)

/* Bytes of one operand of a loop: with so many it stays in a core's cache, and in none. */
#define RATES_SMALL (64 << 10)
#define RATES_LARGE (1 << 20)

/* Columns of a product that are computed at once: of 24, say, as many as of 32. */
#define RATES_LANES 16

/* How much counts as slow, from 0 where there are `few` bytes to 1 where there are `many`: with the
   logarithm, as misses of caches grow. */
static inline double rates_part(double bytes, double few, double many)
{
    return bytes <= few ? 0 : bytes >= many ? 1 : log(bytes / few) / log(many / few);
}

#endif
