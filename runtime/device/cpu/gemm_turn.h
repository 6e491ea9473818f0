/*
 * gemm_turn.h - 16 columns of 16 rows as 16 rows, by vectors of 512 bits: of numbers of 32 bits,
 * be they floats (gemm_wide.h) or pairs of bf16 (gemm_pairs.h).
 */
#ifndef PP_GEMM_TURN_H
#define PP_GEMM_TURN_H

#if defined __AVX512F__ && defined __x86_64__
#include <immintrin.h>
#include <stdint.h>

/* Four numbers of a row, at any address. */
static inline __m128 turn_four(const char *row, int64_t p)
{
    return _mm_loadu_ps((const float *)(const void *)(row + 4 * p));
}

/* The columns from p on, as 16 rows at y, `apart` from each other and written in this order: the
   next one may begin where the last numbers of one are. */
static inline __attribute__((always_inline)) void turn(const char *const *rows, int64_t p, float *y,
                                                       int64_t apart)
{
    __m512 four[4][4]; /* [c][i]: columns 4 c to 4 c + 3 of rows i, i + 4, i + 8, i + 12 */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            __m512 x = _mm512_castps128_ps512(turn_four(rows[i], p + 4 * c));
            x = _mm512_insertf32x4(x, turn_four(rows[i + 4], p + 4 * c), 1);
            x = _mm512_insertf32x4(x, turn_four(rows[i + 8], p + 4 * c), 2);
            four[c][i] = _mm512_insertf32x4(x, turn_four(rows[i + 12], p + 4 * c), 3);
        }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++, y += 4 * apart) {
        const __m512 *f = four[c];
        const __m512d low0 = _mm512_castps_pd(_mm512_unpacklo_ps(f[0], f[1])),
                      low1 = _mm512_castps_pd(_mm512_unpacklo_ps(f[2], f[3])),
                      high0 = _mm512_castps_pd(_mm512_unpackhi_ps(f[0], f[1])),
                      high1 = _mm512_castps_pd(_mm512_unpackhi_ps(f[2], f[3]));
        _mm512_storeu_ps(y, _mm512_castpd_ps(_mm512_unpacklo_pd(low0, low1)));
        _mm512_storeu_ps(y + apart, _mm512_castpd_ps(_mm512_unpackhi_pd(low0, low1)));
        _mm512_storeu_ps(y + 2 * apart, _mm512_castpd_ps(_mm512_unpacklo_pd(high0, high1)));
        _mm512_storeu_ps(y + 3 * apart, _mm512_castpd_ps(_mm512_unpackhi_pd(high0, high1)));
    }
}
#endif
#endif
