/*
 * gemm.h - what gemm.c and gemm_half.c share: how threads divide a product, which products are
 * small, the places of a batch.
 */
#ifndef PP_GEMM_H
#define PP_GEMM_H

#include "device/cpu/after.h"

#include <stdint.h>

/* Multiply-adds up to which the own kernel beats the library's entry cost of 0.4 us; from which a
 * second thread pays; the pieces of C and of k that a library is given.
 */
enum { SMALL = 8192, PARALLEL = 1 << 20, PIECE = 512, DEPTH = 512 };

/* Is the product one for the own kernel?  By m, n, k only. */
static inline int gemm_small(int64_t m, int64_t n, int64_t k)
{
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

/* C = alpha op(A) op(B) + beta C of float32; A and B as they are stored. */
typedef struct {
    int ta, tb;
    int64_t m, n, k;
    float alpha;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float beta;
    float *c;
    int64_t ldc;
    /* The columns of B and C lie in images of `each`, which are so far apart; each 0: in one */
    int64_t each, next_b, next_c;
    After after;   /* lies as C does; alpha is 1 */
    int64_t below; /* rows of A behind the last, which are for the next product */
} Wide;

/* One with images, and what follows it; the bits of an element depend on the depth alone.  It is
 * there, and faster, for m rows and n columns of all images where it pays. */
int gemm_images_pay(int64_t m, int64_t n);
void gemm_images(const Wide *q);

/* C = A B, and what follows; 0: that is still to be done.  If not, C is left incomplete where it is
 * not what is written in the end. */
int gemm_after(const Wide *q);

/* How many threads share out the products of a batch, and how many those are. */
int gemm_batch_team(int64_t total, int64_t m, int64_t n, int64_t k);
int64_t gemm_batch_total(int rank, const int64_t *count);
/* Where product i begins: in A, B and C, in elements */
typedef struct {
    int64_t a, b, c;
} BatchPlace;
BatchPlace gemm_batch_place(int64_t i, int rank, const int64_t *count, const int64_t *stride_a,
                            const int64_t *stride_b, const int64_t *stride_c);

#endif
