/*
 * band.c - products in which one matrix counts only in a band (pp.h), as products of its tile rows
 * or columns, in every element type.
 *
 * A tile row of op(A) meets the rows of op(B) from `first` up to `end`: the rest are zeros.  In
 * op(B) and C tile columns have the band's rows, which are those of the band with its sides
 * exchanged. The cuts follow from m, n, k and the band alone, and so do the bits.
 */
#include "api/pp.h"

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t down(int64_t x) { return x < 0 ? 0 : x / PP_TILE * PP_TILE; }
static int64_t up(int64_t x) { return x < 0 ? 0 : (x + PP_TILE - 1) / PP_TILE * PP_TILE; }

#define BANDED(NAME, S, T, R)                                                                      \
    void pp_##NAME##_band(int which, int64_t below, int64_t above, int ta, int tb, int64_t m,      \
                          int64_t n, int64_t k, S alpha, const T *a, int64_t lda, const T *b,      \
                          int64_t ldb, S beta, R *c, int64_t ldc)                                  \
    {                                                                                              \
        const int64_t across = which == PP_BAND_A ? k : which == PP_BAND_B ? k : m;                \
        const int64_t low = which == PP_BAND_A ? below : -above,                                   \
                      high = which == PP_BAND_A ? above : -below;                                  \
        for (int64_t at = 0; at < (which == PP_BAND_A ? m : n); at += PP_TILE) {                   \
            const int64_t first = down(at + low), end = least(across, up(at + PP_TILE + high)),    \
                          live = end > first ? end - first : 0;                                    \
            if (!live && beta == 1) /* nothing is added */                                         \
                continue;                                                                          \
            if (which == PP_BAND_A)                                                                \
                pp_##NAME(ta, tb, least(PP_TILE, m - at), n, live, alpha,                          \
                          a + (ta ? first * lda + at : at * lda + first), lda,                     \
                          b + (tb ? first : first * ldb), ldb, beta, c + at * ldc, ldc);           \
            else if (which == PP_BAND_B)                                                           \
                pp_##NAME(ta, tb, m, least(PP_TILE, n - at), live, alpha,                          \
                          a + (ta ? first * lda : first), lda,                                     \
                          b + (tb ? at * ldb + first : first * ldb + at), ldb, beta, c + at, ldc); \
            else                                                                                   \
                pp_##NAME(ta, tb, live, least(PP_TILE, n - at), k, alpha,                          \
                          a + (ta ? first : first * lda), lda, b + (tb ? at * ldb : at), ldb,      \
                          beta, c + first * ldc + at, ldc);                                        \
        }                                                                                          \
    }

BANDED(sgemm, float, float, float)
BANDED(bgemm, float, uint16_t, uint16_t)
BANDED(hgemm, float, uint16_t, uint16_t)
BANDED(bsgemm, float, uint16_t, float)
BANDED(hsgemm, float, uint16_t, float)
