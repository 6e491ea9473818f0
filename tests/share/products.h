/* products.h - a product with all that it takes in a row, by its type: of float32, float64, bf16 and
   f16, of the last two also with a result of float32.  beta: 0, or 1: it is added to C. */
#ifndef PRODUCTS_TEST_H
#define PRODUCTS_TEST_H

#include "runtime/api/pp.h"

#define PRODUCT_OF(NAME, TYPE, RESULT)                                                             \
    __attribute__((unused)) static void NAME(int ta, int tb, int64_t m, int64_t n, int64_t k,      \
                                             float alpha, const void *a, int64_t lda,              \
                                             const void *b, int64_t ldb, int beta, void *c,        \
                                             int64_t ldc)                                          \
    {                                                                                              \
        PpGemm g = {0};                                                                            \
        g.type = TYPE, g.result = RESULT, g.ta = ta, g.tb = tb, g.m = m, g.n = n, g.k = k;         \
        g.alpha = &alpha, g.a = a, g.lda = lda, g.b = b, g.ldb = ldb, g.adds = beta;                \
        g.c = c, g.ldc = ldc;                                                                      \
        pp_gemm(&g);                                                                               \
    }
PRODUCT_OF(sgemm, PP_F32, PP_F32)
PRODUCT_OF(dgemm, PP_F64, PP_F64)
PRODUCT_OF(bgemm, PP_BF16, PP_BF16)
PRODUCT_OF(hgemm, PP_F16, PP_F16)
PRODUCT_OF(bsgemm, PP_BF16, PP_F32)
PRODUCT_OF(hsgemm, PP_F16, PP_F32)
#undef PRODUCT_OF

#endif
