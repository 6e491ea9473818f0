/*
 * pp_random.h - random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel
 * random numbers: as easy as 1, 2, 3", 2011).  A number is a function of (seed, step, row of the
 * minibatch, element, node) alone, so recomputing, resuming, and any split or schedule draw the
 * same ones.  Plain C and CUDA C.
 */
#ifndef PP_RANDOM_H
#define PP_RANDOM_H

#include <stdint.h>

#ifdef __CUDACC__
#define PP_RANDOM_FN static __host__ __device__ __forceinline__
#else
#define PP_RANDOM_FN static inline __attribute__((always_inline, unused))
#endif

/* Four numbers, for elements 4 * quad .. 4 * quad + 3 of the row. */
PP_RANDOM_FN void pp_philox(uint64_t seed, uint64_t step, uint64_t row, uint64_t quad,
                            uint32_t node, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)quad, c1 = (uint32_t)row, c2 = (uint32_t)step, c3 = node;
    uint32_t k0 = (uint32_t)seed ^ (uint32_t)(quad >> 32),
             k1 = (uint32_t)(seed >> 32) ^ (uint32_t)(row >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* In (0, 1), the odd multiples of 2^-24 and of 2^-53: never 0 or 1, so that logarithms are finite.
 */
PP_RANDOM_FN float pp_uniformf(uint32_t bits)
{
    return (float)(bits >> 9 << 1 | 1) * 0x1p-24f;
}

PP_RANDOM_FN double pp_uniform(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 12 << 1 | 1) * 0x1p-53;
}

#endif
