/*
 * multiply_add.h - sum + x y in one instruction and with one rounding, for the kernels that consist
 * of such: attention_cuda.cu, conv_tiled.cu, conv_direct.cu.  Elsewhere nvcc makes none
 * (pipeline.mk: -fmad=false): it would do so in one kernel and not in another, and what a backward
 * computes again would not be what the forward had.
 */
#ifndef PP_MULTIPLY_ADD_H
#define PP_MULTIPLY_ADD_H

#include "api/pp_cuda.h"

static __device__ __forceinline__ float multiply_add(float x, float y, float sum)
{
#ifdef __CUDA_ARCH__
    return __fmaf_rn(x, y, sum);
#else
    return sum + x * y;
#endif
}

static __device__ __forceinline__ double multiply_add(double x, double y, double sum)
{
#ifdef __CUDA_ARCH__
    return __fma_rn(x, y, sum);
#else
    return sum + x * y;
#endif
}

#endif
