/*
 * cudnn_shape.h - shapes as cuDNN wants them, for conv_cudnn.cu and pool_cuda.cu.  In: spatial
 * extents in the model's order. Out: int arrays of at least two spatial dimensions (cuDNN's tensors
 * have four dimensions or more): 1-d as 2-d of height one.
 */
#ifndef PP_CUDNN_SHAPE_H
#define PP_CUDNN_SHAPE_H

#include <cudnn.h>

#include "api/pp_cuda_calls.h"

/* cuDNN 8 has no categories. */
#ifndef CUDNN_STATUS_CATEGORY
#define CUDNN_STATUS_CATEGORY(e)                                                                   \
    ((e) == CUDNN_STATUS_ARCH_MISMATCH ? CUDNN_STATUS_NOT_SUPPORTED : (e))
#endif

inline cudnnDataType_t cudnn_type(int dtype)
{
    switch (dtype) {
    case PP_F64: return CUDNN_DATA_DOUBLE;
    case PP_BF16: return CUDNN_DATA_BFLOAT16;
    case PP_F16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
    }
}

inline bool cudnn_half(int dtype) { return dtype == PP_BF16 || dtype == PP_F16; }

/* In which sums are added up. */
inline cudnnDataType_t cudnn_sum_type(int dtype)
{
    return dtype == PP_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

inline int cudnn_spatial(int spatial) { return spatial < 2 ? 2 : spatial; }

/* Element i of cudnn_spatial() of them. */
inline int cudnn_at(int spatial, const int64_t *of, int i, int missing) {
    const int k = i - (cudnn_spatial(spatial) - spatial);
    return k < 0 ? missing : static_cast<int>(of[k]);
}

/* Row-major, [rows, channels, extent...]. */
inline cudnnStatus_t cudnn_set_tensor(cudnnTensorDescriptor_t t, int dtype, int64_t rows,
                                      int64_t channels, int spatial, const int64_t *extent)
{
    int dim[5] = {static_cast<int>(rows), static_cast<int>(channels)}, stride[5];
    const int rank = 2 + cudnn_spatial(spatial);
    for (int i = 2; i < rank; i++)
        dim[i] = cudnn_at(spatial, extent, i - 2, 1);
    stride[rank - 1] = 1;
    for (int i = rank - 2; i >= 0; i--)
        stride[i] = stride[i + 1] * dim[i + 1];
    return cudnnSetTensorNdDescriptor(t, cudnn_type(dtype), rank, dim, stride);
}

#endif
