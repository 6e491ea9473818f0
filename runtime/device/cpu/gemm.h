/*
 * gemm.h - what gemm.c, gemm_half.c and product.c share: how threads divide a product, which
 * products are small.
 */
#ifndef PP_GEMM_H
#define PP_GEMM_H

#include "api/pp_gemm.h"
#include "device/cpu/after.h"

#include <stdint.h>

/* Multiply-adds up to which the own kernel beats the library's entry cost of 0.4 us; from which a
 * second thread pays; the pieces of C and of k that a library is given.
 */
enum { SMALL = 8192, PARALLEL = 1 << 20, PIECE = 512, DEPTH = 512 };

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

/* Is the product one for the own kernel?  By m, n, k only. */
static inline int gemm_small(const PpGemm *q)
{
    const int64_t m = q->m, n = q->n, k = q->k;
    return k == 0 ||
           (m <= SMALL && n <= SMALL && k <= SMALL && m * n <= SMALL && m * n * k <= SMALL);
}

/* Depth is divided into equal parts of at most DEPTH, of a length that vectors like. */
static inline int64_t gemm_depth(int64_t k)
{
    int64_t parts = (k + DEPTH - 1) / DEPTH;
    return ((k + parts - 1) / parts + 15) / 16 * 16;
}

/* What gemm_error() says: why the first of the refused products was; atomic, NULL: none was */
extern const char *gemm_first_refused;
static inline void gemm_refused(const char *why)
{
    const char *none = 0;
    __atomic_compare_exchange_n(&gemm_first_refused, &none, why, 0, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

/* gemm.c: of float32 or float64.  And of float32 what follows it, which lies as C does, alpha is 1, in
 * gemm_wide.h's loops; 0: these do not do it. */
void gemm_one(const PpGemm *q);
int gemm_wide_after(const PpGemm *q, const After *after);

/* gemm_half.c: of a half type. */
void gemm_half(const PpGemm *q);

/* product.c: one, and what follows it, which lies as C does; alpha is 1.  0: that is still to be
 * done.  If not, C is left incomplete where it is not what is written in the end. */
int gemm_after(const PpGemm *q, const After *after);

#endif
