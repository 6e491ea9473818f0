/*
 * pp_kernel.h - what generated kernels share beside the elementary functions: the tree that folds
 * 16 lanes into one number (C; for CUDA C see pp_device.h), indices that come from data, and the
 * maps of padded axes.
 */
#ifndef PP_KERNEL_H
#define PP_KERNEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined _OPENMP && !defined __CUDACC__
#include <omp.h>
#endif

#include "pp.h"
#include "pp_attention.h"
#include "pp_half.h"
#include "pp_math.h"
#include "pp_random.h"

#ifdef __CUDACC__
#include <assert.h>
#define PP_KERNEL_FN static __host__ __device__ __forceinline__
#else
#define PP_KERNEL_FN static inline __attribute__((always_inline, unused))

/* Lane k takes lane k + 8, then + 4, + 2, + 1: a fixed order, the same for every kernel. */
#define PP_FOLD(NAME, T, EXPR)                    \
    PP_KERNEL_FN T pp_fold_##NAME(T *s)           \
    {                                             \
        for (int half = 8; half > 0; half /= 2)   \
            for (int k = 0; k < half; k++) {      \
                const T a = s[k], b = s[k + half]; \
                s[k] = EXPR;                      \
            }                                     \
        return s[0];                              \
    }
PP_FOLD(sumf, float, a + b)
PP_FOLD(sum, double, a + b)
PP_FOLD(sumi, int32_t, a + b)
PP_FOLD(suml, int64_t, a + b)
PP_FOLD(prodf, float, a * b)
PP_FOLD(prod, double, a * b)
PP_FOLD(prodi, int32_t, a * b)
PP_FOLD(prodl, int64_t, a * b)
PP_FOLD(maxf, float, pp_maxf(a, b))
PP_FOLD(max, double, pp_max(a, b))
PP_FOLD(maxi, int32_t, pp_maxi(a, b))
PP_FOLD(maxl, int64_t, pp_maxl(a, b))
PP_FOLD(minf, float, pp_minf(a, b))
PP_FOLD(min, double, pp_min(a, b))
PP_FOLD(mini, int32_t, pp_mini(a, b))
PP_FOLD(minl, int64_t, pp_minl(a, b))
#undef PP_FOLD
#endif

PP_KERNEL_FN int64_t pp_between(int64_t low, int64_t n, int64_t high)
{
    return n < low ? low : n < high ? n : high;
}

/* How many are true. */
PP_KERNEL_FN int64_t pp_count(const uint8_t *mask, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += mask[i] != 0;
    return count;
}
#ifndef __CUDACC__
/* Zeros in a matrix of so many rows and columns, of elements of `size` bytes. */
PP_KERNEL_FN void pp_zeros(void *at, int64_t ld, int64_t rows, int64_t columns, size_t size)
{
    for (int64_t r = 0; r < rows && columns > 0; r++)
        memset((char *)at + (size_t)(r * ld) * size, 0, (size_t)columns * size);
}
#endif

/* An index of the data that no tensor has: nothing sensible can be computed.  On the device the
   kernel ends with a message, and every later call of CUDA with an error. */
#ifdef __CUDACC__
static __host__ __device__ __noinline__ __attribute__((unused)) void pp_bad_index(int64_t, int64_t)
{
#ifdef __CUDA_ARCH__
    assert(!"an index of Gather or Scatter is in range: check the data");
    __trap();
#endif
}
#else
static __attribute__((noinline, noreturn, cold, unused)) void pp_bad_index(int64_t i, int64_t n)
{
    fprintf(
        stderr,
        "error: index %lld is out of range for %lld entries (Gather or Scatter): check the data\n",
        (long long)i, (long long)n);
    exit(1);
}
#endif

/* Negative ones count from the end. */
PP_KERNEL_FN int64_t pp_index(int64_t i, int64_t n)
{
    const int64_t at = i < 0 ? i + n : i;
    if (at < 0 || at >= n)
        pp_bad_index(i, n);
    return at;
}

/* The columns of row i that lie in tiles of the band (pp.h), of `columns`: from first up to end. */
PP_KERNEL_FN int64_t pp_band_first(int64_t i, int64_t below)
{
    const int64_t j = i / PP_TILE * PP_TILE + below;
    return j < 0 ? 0 : j / PP_TILE * PP_TILE;
}
PP_KERNEL_FN int64_t pp_band_end(int64_t i, int64_t above, int64_t columns)
{
    int64_t j = (i / PP_TILE + 1) * PP_TILE + above;
    j = j < 0 ? 0 : (j + PP_TILE - 1) / PP_TILE * PP_TILE;
    return j < columns ? j : columns;
}

PP_KERNEL_FN int64_t pp_pad_edge(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
PP_KERNEL_FN int64_t pp_pad_wrap(int64_t i, int64_t n) { return (i % n + n) % n; }
PP_KERNEL_FN int64_t pp_pad_reflect(int64_t i, int64_t n)
{
    if (n == 1)
        return 0;
    const int64_t period = 2 * (n - 1), p = (i % period + period) % period;
    return p < n ? p : period - p;
}

#endif
