/*
 * shim_blas.h - what cublas.cpp does for cublas_lt.cpp: a column-major product of one type, D = op(A)
 * op(B) + a bias for each row, summed in float32 and rounded once; alone or strided batched.
 */
#ifndef SHIM_BLAS_H
#define SHIM_BLAS_H

#include "cublas_v2.h"

namespace shim {

struct BiasProduct {
    cudaDataType type;
    bool ta, tb;
    int m, n, k, lda, ldb, ldd, count;
    long long stride_a, stride_b, stride_d;
    const void *a, *b, *bias;
    void *d;
    void *workspace;
};
cublasStatus_t product_with_bias(const char *name, cublasHandle_t h, cudaStream_t stream,
                                 const BiasProduct &p);

}   // namespace shim

#endif
