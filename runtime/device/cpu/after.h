/*
 * after.h - what follows a convolution (PpAfter in pp.h), on vectors of 512 bits that still are in
 * registers.  The operations and their order are those of the kernels that do it otherwise, so an
 * element has the same bits on either road.
 */
#ifndef PP_AFTER_H
#define PP_AFTER_H

#include "api/pp.h"

#include <stddef.h>

/* Of a part of the result: bias begins with its first row, sum and out with its first element, and
   lie as it does.  out NULL: nothing follows. */
typedef PpAfter After;

/* The part so many rows and, of sum and out, elements further on. */
static inline After after_at(const After *a, int64_t rows, int64_t elements)
{
    After part = *a;
    if (part.bias)
        part.bias += rows;
    if (part.sum)
        part.sum += elements;
    if (part.out)
        part.out += elements;
    return part;
}

#if defined __AVX512F__ && defined __x86_64__
#include <immintrin.h>
#include <math.h>

/* The bounds, and +0 where it is one: `x <= 0 ? 0 : x` makes it of -0, which max(0, x) keeps; but a
   sum that +0 is part of is not -0.  Else -0, which changes nothing. */
typedef struct {
    __m512 low, high, zero;
} AfterBounds;

static inline __attribute__((always_inline)) AfterBounds after_bounds(const After *a)
{
    const int none = a->scale != 0;
    const float low = none ? -INFINITY : a->low, high = none ? INFINITY : a->high;
    return (AfterBounds){_mm512_set1_ps(low), _mm512_set1_ps(high),
                         _mm512_set1_ps(low != 0 ? -0.0f : 0.0f)};
}

/* What is added to every element of a row. */
static inline __attribute__((always_inline)) __m512 after_bias(const After *a, const AfterBounds *b,
                                                               int64_t row)
{
    return _mm512_add_ps(_mm512_set1_ps(a->bias ? a->bias[row] : a->plus), b->zero);
}

/* The elements in `which` of x, at `at`; where it is no bound that follows, that comes then. */
static inline __attribute__((always_inline)) void after_store(const After *a, const AfterBounds *b,
                                                              __m512 x, __m512 bias, int64_t at,
                                                              __mmask16 which)
{
    x = _mm512_add_ps(x, bias);
    if (a->sum)
        x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(which, a->sum + at));
    _mm512_mask_storeu_ps(a->out + at, which, _mm512_min_ps(b->high, _mm512_max_ps(b->low, x)));
}

/* For what has been stored: rows of n elements, so far apart. */
static __attribute__((noinline, unused)) void after_swish(const After *a, int64_t rows, int64_t n,
                                                  int64_t apart)
{
    const __m512 scale = _mm512_set1_ps(a->scale), shift = _mm512_set1_ps(a->shift),
                 one = _mm512_set1_ps(1), zero = _mm512_setzero_ps();
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j += 16) {
            const __mmask16 which = (__mmask16)(n - j < 16 ? 0xffff >> (16 - (n - j)) : 0xffff);
            float *at = a->out + i * apart + j;
            const __m512 x = _mm512_maskz_loadu_ps(which, at),
                         t = _mm512_add_ps(_mm512_mul_ps(x, scale), shift);
            _mm512_mask_storeu_ps(at, which,
                                  _mm512_mul_ps(x, _mm512_max_ps(zero, _mm512_min_ps(one, t))));
        }
}
#endif
#endif
