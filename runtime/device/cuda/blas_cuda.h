/*
 * blas_cuda.h - what blas_cuda.cu and bias_cuda.cu share of a product (pp_gemm.h).
 */
#ifndef PP_BLAS_CUDA_H
#define PP_BLAS_CUDA_H

#include "api/pp_cuda_calls.h"

/* CUDA's name of a type. */
inline cudaDataType_t blas_type(int type)
{
    return type == PP_F64    ? CUDA_R_64F
           : type == PP_BF16 ? CUDA_R_16BF
           : type == PP_F16  ? CUDA_R_16F
           : type == PP_F32  ? CUDA_R_32F
                             : static_cast<cudaDataType_t>(-1); /* which cuBLAS refuses */
}

/* In which sums are added up; exact: no tensor core may round float32 operands. */
inline cublasComputeType_t blas_sums(int type, bool exact)
{
    return type == PP_F64                            ? CUBLAS_COMPUTE_64F
           : type == PP_F32 && pp_cuda_tf32 && !exact ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                      : CUBLAS_COMPUTE_32F;
}

/* For a profile: what `count` of them do. */
inline void blas_work(const PpGemm &g, int64_t count)
{
    const double n = static_cast<double>(count), k = static_cast<double>(g.k),
                 mn = static_cast<double>(g.m) * static_cast<double>(g.n),
                 in = (static_cast<double>(g.m) + static_cast<double>(g.n)) * k *
                      static_cast<double>(pp_gemm_size(g.type)),
                 out = mn * (g.adds ? 2 : 1) * static_cast<double>(pp_gemm_result_size(&g));
    PP_WORK("product", n * (2 * k + (g.bias ? 1 : 0)) * mn, n * (in + out));
}

/* A matrix of one row has no distance between rows: whatever the view says, the row's length is a
 * valid one. */
inline int64_t blas_rows(int64_t rows, int64_t columns, int64_t ld)
{
    return rows <= 1 && ld < columns ? columns : ld;
}

/* The same with what was left out, and distances that cuBLAS takes. */
inline PpGemm blas_given(const PpGemm &given)
{
    PpGemm g = pp_gemm_given(&given);
    g.lda = g.ta ? blas_rows(g.k, g.m, g.lda) : blas_rows(g.m, g.k, g.lda);
    g.ldb = g.tb ? blas_rows(g.n, g.k, g.ldb) : blas_rows(g.k, g.n, g.ldb);
    g.ldc = blas_rows(g.m, g.n, g.ldc);
    return g;
}

/* blas_cuda.cu: products without a bias. */
void cuda_gemm(const PpCtx *c, const PpGemm &given);

#endif
