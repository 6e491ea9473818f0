/* half.c - binary16 has 5 bits of exponent and 10 of fraction; bfloat16 is the upper half of a
 * binary32. */
#include "half.h"

#include <math.h>
#include <string.h>

static double from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

double half_to_double(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023u;
    if (exponent == 0) {                                /* subnormal: a multiple of 2^-24 */
        double v = ldexp(fraction, -24);
        return sign ? -v : v;
    }
    return from_bits(sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) |
                     fraction << 13);
}

uint16_t half_of_double(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double x = fabs(v);
    if (isnan(v))
        return (uint16_t)(sign | 0x7e00);
    if (x >= 65520)
        return (uint16_t)(sign | 0x7c00);
    if (x < 0x1p-14) /* zero and subnormal: a multiple of 2^-24 */
        return (uint16_t)(sign | (unsigned)rint(ldexp(x, 24)));
    int exponent;
    frexp(x, &exponent);
    unsigned fraction = (unsigned)rint(ldexp(x, 11 - exponent));        /* 1024 .. 2048 */
    return (uint16_t)(sign | (((unsigned)(exponent + 14) << 10) + (fraction - 1024)));
}

double bfloat_to_double(uint16_t h) { return from_bits((uint32_t)h << 16); }

uint16_t bfloat_of_double(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(v))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
