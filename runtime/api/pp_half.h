/*
 * pp_half.h - 16-bit floating-point numbers, bfloat16 and binary16, for C and for CUDA C: their
 * bits to float, exactly; float to their bits, to the nearest, of two equally near the even one;
 * and a float rounded to what such bits can say.
 *
 * A NaN stays one: its sign and upper bits, made quiet, never an infinity.  What is too large
 * becomes an infinity, what is small a subnormal number (of binary16: a multiple of 2^-24).  All
 * are branch-free and made of moves, comparisons and exact additions, so that a loop over them
 * vectorises and every compiler gives the same bits, those of F16C and AVX512-BF16's conversions
 * (NaN's bits on a GPU are its own).
 *
 *     pp_from_bf16(h)  pp_to_bf16(x)  pp_round_bf16(x) == pp_from_bf16(pp_to_bf16(x));  _f16
 *     pp_nearest_bf16(x)  the same as pp_round_bf16(x), in fewer instructions, of an x that, if
 *                         it is a NaN, is a quiet one with nothing in its lower half: so are those
 *                         that arithmetic makes of bf16 numbers
 *     pp_pack_bf16(x)  the bits of an x that is rounded already
 */
#ifndef PP_HALF_H
#define PP_HALF_H

#include "pp_math.h"

/* ---- bfloat16: the upper half of a float ---- */

PP_FN float pp_from_bf16(uint16_t h) { return pp_float_of((int32_t)((uint32_t)h << 16)); }

/* The bits of a number, rounded at bit 16; those below are not cleared. */
PP_FN uint32_t pp_bf16_nearest(uint32_t u) { return u + 0x7fffu + (u >> 16 & 1u); }

/* The same of a float, which may be a NaN: it is made quiet. */
PP_FN uint32_t pp_bf16_bits(float x)
{
    const uint32_t u = (uint32_t)pp_bits_f(x), nearest = pp_bf16_nearest(u), quiet = u | 0x400000u;
    return x != x ? quiet : nearest;
}

PP_FN uint16_t pp_to_bf16(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    return (uint16_t)(pp_bf16_bits(x) >> 16);
#endif
}

PP_FN float pp_round_bf16(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    return pp_from_bf16(pp_to_bf16(x));
#else
    return pp_float_of((int32_t)(pp_bf16_bits(x) & 0xffff0000u));
#endif
}

PP_FN float pp_nearest_bf16(float x)
{
#ifdef __CUDACC__ /* whose NaN is 0x7fffffff */
    return pp_round_bf16(x);
#else
    return pp_float_of((int32_t)(pp_bf16_nearest((uint32_t)pp_bits_f(x)) & 0xffff0000u));
#endif
}

PP_FN uint16_t pp_pack_bf16(float x) { return (uint16_t)((uint32_t)pp_bits_f(x) >> 16); }

/* ---- binary16: 5 bits of exponent, 10 of fraction ---- */

/* yes ? a : b, by a mask: of several such in a row compilers make jumps, and then no vectors. */
PP_FN uint32_t pp_pick(int yes, uint32_t a, uint32_t b)
{
    return b ^ ((a ^ b) & (0u - (uint32_t)yes));
}

PP_FN float pp_from_f16(uint16_t h)
{
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#else
    const uint32_t all = (h & 0x7fffu) << 13, exponent = all & 0x0f800000u;
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    /* the exponent's bias from 15 to 127; the largest becomes float's; NaN is made quiet */
    const uint32_t normal = all + (112u << 23);
    const uint32_t quiet = pp_pick((all & 0x007fffffu) != 0, 0x400000u & ~all, 0u);
    const uint32_t top = all + (224u << 23) + quiet;
    /* a subnormal one: (1 + fraction) 2^-14 - 2^-14 */
    const float small = pp_float_of((int32_t)(all + (113u << 23))) - 6.103515625e-05f;
    const uint32_t low = pp_pick(exponent == 0, (uint32_t)pp_bits_f(small), normal);
    return pp_float_of((int32_t)(pp_pick(exponent == 0x0f800000u, top, low) | sign));
#endif
}

PP_FN float pp_round_f16(float x)
{
    const uint32_t u = (uint32_t)pp_bits_f(x), sign = u & 0x80000000u, v = u ^ sign;
    /* rounded at bit 13; 65520 and more is infinite */
    const uint32_t nearest = (v + 0xfffu + (v >> 13 & 1u)) & 0xffffe000u;
    const uint32_t normal = pp_pick(nearest >= 0x47800000u, 0x7f800000u, nearest);
    /* below 2^-14: beside 1/2, multiples of 2^-24 are all there are */
    const float small = (pp_float_of((int32_t)v) + 0.5f) - 0.5f;
    const uint32_t finite = pp_pick(v < 0x38800000u, (uint32_t)pp_bits_f(small), normal);
    const uint32_t quiet = (v | 0x400000u) & 0xffffe000u;
    return pp_float_of((int32_t)(pp_pick(v > 0x7f800000u, quiet, finite) | sign));
}

PP_FN uint16_t pp_to_f16(float x)
{
#ifdef __CUDA_ARCH__
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    const uint32_t u = (uint32_t)pp_bits_f(x), sign = u & 0x80000000u, v = u ^ sign;
    const uint32_t normal = (v + 0xfffu + (v >> 13 & 1u) - (112u << 23)) >> 13;
    const uint32_t small = (uint32_t)pp_bits_f(pp_float_of((int32_t)v) + 0.5f) - 0x3f000000u;
    const uint32_t low = pp_pick(v < 0x38800000u, small, normal);
    const uint32_t finite = pp_pick(v >= 0x477ff000u, 0x7c00u, low);
    const uint32_t quiet = 0x7e00u | (v >> 13 & 0x3ffu);
    return (uint16_t)(pp_pick(v > 0x7f800000u, quiet, finite) | sign >> 16);
#endif
}

PP_FN uint16_t pp_pack_f16(float x) { return pp_to_f16(x); }

#endif
