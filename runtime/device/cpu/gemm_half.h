/*
 * gemm_half.h - a product of half precision and a block of it; gemm_half.c's and gemm_pairs.h's.
 */
#ifndef PP_GEMM_HALF_H
#define PP_GEMM_HALF_H

#include <stdint.h>

/* C = alpha op(A) op(B) + beta C, row-major, A and B as they are stored; with a bias for each
   column of a C of halves alpha is 1, beta 0. */
typedef struct {
    int dtype; /* of A and B, and of C unless it is single */
    int ta, tb;
    int64_t m, n, k;
    float alpha;
    const uint16_t *a;
    int64_t lda;
    const uint16_t *b;
    int64_t ldb;
    float beta;
    uint16_t *half; /* C; one of the two is NULL */
    float *single;
    int64_t ldc;
    const uint16_t *bias; /* NULL: none */
} Product;

typedef struct {
    int64_t i, j, m, n; /* rows [i, i + m) of C, columns [j, j + n) */
} Block;

/* op(A)'s element (i, p), op(B)'s element (p, j) */
static inline const uint16_t *a_at(const Product *q, int64_t i, int64_t p)
{
    return q->a + (q->ta ? p * q->lda + i : i * q->lda + p);
}

static inline const uint16_t *b_at(const Product *q, int64_t p, int64_t j)
{
    return q->b + (q->tb ? j * q->ldb + p : p * q->ldb + j);
}

#endif
