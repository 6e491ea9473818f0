/*
 * conv_cuda.h - a convolution on the device as its files share it: conv_cuda.cu opens it and
 * chooses, conv_tiled.cu and conv_direct.cu have our kernels, conv_cudnn.cu asks cuDNN
 * (PP_WITH_CUDNN).
 *
 * Forward and the data's gradient are one computation, a gather: each destination position adds
 * source positions times weights,
 *
 *     dest[sample, row, first + j * spread] = sum over k of weight(row, k) * source[sample,
 * tap[k].at + (j * step - pad)]
 *
 * forward with the input as source and every position j; the gradient with the output's gradient as
 * source, and destination positions in classes by their remainder modulo the stride: a class sees
 * only the taps that meet it, and j * 1 - 0 + tap is exact.
 */
#ifndef PP_CONV_CUDA_H
#define PP_CONV_CUDA_H

#include "api/pp_cuda_calls.h"

/* A term k of the sum: channel and tap. at: distance in a sample's source from the position's own
   place; d h w: of the position alone, for the bounds. */
struct alignas(16) ConvTap { int at, d, h, w; };

/* Destination positions first + j * spread, j < count, and their terms [tap, tap + taps). */
struct ConvClass { int first[3], count[3], tap, taps; };

struct ConvGather {
    const ConvTap *tap;                                 /* device memory, as the next two */
    /* per term: where in a row of weights it stands; NULL: at k */
    const int *weight;
    const ConvClass *cls;
    int classes, most;                                  /* most: positions of the largest class */
    int source[3], dest[3];                             /* extents */
    int step[3], pad[3], spread[3];
    int rows, group;                                    /* destination channels of one group */
    /* elements of a sample, of a group's channels */
    int64_t source_sample, source_group, dest_sample;
    int64_t weight_row, weight_group;
};

struct ConvScratch { void *p; int64_t bytes; int users; void *dnn; };
struct CudnnConv;

struct PpCudaConv {
    PpConvShape shape;
    int64_t rows;                                       /* the most there are */
    /* channels of a group: in, out; kernel taps */
    int cg, mg, taps;
    int64_t in_size, out_size;                          /* positions of one channel */
    ConvGather forward, data;
    void *tables;
    ConvScratch *scratch;
    CudnnConv *dnn;                                     /* NULL: our kernels */
};

/* conv_tiled.cu: groups of many channels, as matrix products whose operands are gathered into
 * shared memory. */
void conv_tiled(cudaStream_t s, int dtype, const ConvGather &g, int64_t samples, const void *source,
                const void *w, void *dest);
/* sums that are added up afterwards; 1: none */
int64_t conv_weight_parts(const PpCudaConv &v, int64_t samples);
void conv_weight_tiled(cudaStream_t s, const PpCudaConv &v, int64_t samples, const void *x,
                       const void *dy, void *dw, int accumulate);

/* conv_direct.cu: groups of few channels. */
void conv_direct(cudaStream_t s, int dtype, const ConvGather &g, int64_t samples,
                 const void *source, const void *w, void *dest);
void conv_weight_direct(cudaStream_t s, const PpCudaConv &v, int64_t samples, const void *x,
                        const void *dy, void *dw, int accumulate);

#ifdef PP_WITH_CUDNN
/* conv_cudnn.cu.  handle: of the stage, made at the first call. */
/* NULL: cuDNN has nothing for this one */
CudnnConv *conv_cudnn_open(void **handle, const PpConvShape *s, int64_t rows);
int64_t conv_cudnn_bytes(const CudnnConv *c);                                   /* workspace */
void conv_cudnn_close(CudnnConv *c);
void conv_cudnn_close_handle(void *handle);
/* false: not for so many rows in so little workspace; nothing was launched. */
bool conv_cudnn_forward(cudaStream_t s, const PpCudaConv &v, int64_t rows, const void *x,
                        const void *w, void *y);
bool conv_cudnn_data(cudaStream_t s, const PpCudaConv &v, int64_t rows, const void *dy,
                     const void *w, void *dx);
bool conv_cudnn_weight(cudaStream_t s, const PpCudaConv &v, int64_t rows, const void *x,
                       const void *dy, void *dw, int accumulate);
#endif

#endif
