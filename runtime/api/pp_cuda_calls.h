/*
 * pp_cuda_calls.h - what generated .cu files call beside their own kernels: matrix products and
 * convolutions on the device, in the order of the microbatch's stream (PpCtx.stream). All
 * pointers are device memory.  Nothing here allocates in a step; pp_cuda_counts() waits for the
 * device; what fails is kept by pp_cuda.h and asked for after the action.
 */
#ifndef PP_CUDA_CALLS_H
#define PP_CUDA_CALLS_H

#include "pp.h"
#include "pp_attention.h"
#include "pp_cuda.h"

/* What PpCtx.blas points to: a handle, and room in device memory for the pointers of a batch that
   no stride describes, PP_BLAS_LIST of A, of B and of C.  Calls in the order of one stream share a
   list, and so may streams of which never two work at the same time. */
constexpr int64_t PP_BLAS_LIST = 4096,
                  PP_BLAS_LIST_BYTES = 3 * PP_BLAS_LIST * static_cast<int64_t>(sizeof(void *));
struct PpBlas {
    cublasHandle_t handle;
    void *list;
    /* the handle's own, also lent to products with a bias, which come in the order of its stream */
    void *workspace;
    int64_t bytes_workspace;
    /* what pp_cuda_counts() needs of the host; one for all stages of a rank */
    struct PpCounting *counting;
    struct PpBiased *biased;                            /* what is known of them; bias_cuda.cu */
};

/* Pinned memory for PP_COUNTS numbers, and the event that says when they are there.  meanwhile: is
   called again and again while the host waits, and returns 0 when that has no end; NULL: nothing is
   to be done. */
constexpr int PP_COUNTS = 512;
struct PpCounting {
    int64_t *staged;
    cudaEvent_t event;
    int (*meanwhile)(void *of);
    void *of;
};

/* blas_cuda.cu: as pp_gemm(), by cuBLAS and, with a bias, by cuBLASLt (bias_cuda.cu), through
   PpCtx.blas.  Results of one batch must not overlap.  pp_cuda_forget_products: before a PpBlas
   goes. */
void pp_cuda_gemm(const PpCtx *c, const PpGemm *g);
/* --tf32, set by the runtime before stages open: cuBLAS and cuDNN may round float32 to TF32 */
extern int pp_cuda_tf32;
void pp_cuda_forget_products(PpBlas *blas);

/* count_cuda.cu: *to[i] = how many of the mask's n places are true, of n masks at once; the host
   waits for the stream, once for PP_COUNTS of them.  pp_cuda_zeros: as pp_zeros(). */
struct PpMask {
    const uint8_t *at;
    int64_t n;
};
void pp_cuda_counts(const PpCtx *c, int n, const PpMask *mask, int64_t *const *to);
void pp_cuda_zeros(const PpCtx *c, void *at, int64_t ld, int64_t rows, int64_t columns,
                   size_t size);

/* conv_cuda.cu: as pp_conv_* in pp.h; cuDNN where it was present at build (PP_WITH_CUDNN), else
   direct kernels.  open() runs on the rank's thread once; bytes: device memory that open takes, an
   upper bound: convolutions of one stage share their workspace. A stage's open() begins with
   pp_cuda_conv_separate(): stages have streams of their own, and so workspaces of their own. */
typedef struct PpCudaConv PpCudaConv;
void pp_cuda_conv_separate(void);
/* rows: the most there are */
PpCudaConv *pp_cuda_conv_open(const PpConvShape *s, int64_t rows);
/* The same with other sizes of in, out and pads, none above those it was opened with, from now on
   in the order of c's stream; what is sized so is our kernels', whatever was present. */
void pp_cuda_conv_size(const PpCtx *c, PpCudaConv *v, const PpConvShape *s);
int64_t pp_cuda_conv_bytes(const PpConvShape *s, int64_t rows);
void pp_cuda_conv_close(PpCudaConv *v);
void pp_cuda_conv_forward(const PpCtx *c, PpCudaConv *v, int64_t rows, const void *x, const void *w,
                          void *y);
void pp_cuda_conv_backward_data(const PpCtx *c, PpCudaConv *v, int64_t rows, const void *dy,
                                const void *w, void *dx);
void pp_cuda_conv_backward_weight(const PpCtx *c, PpCudaConv *v, int64_t rows, const void *x,
                                  const void *dy, void *dw, int accumulate);

/* attention_cuda.cu */
void pp_cuda_attention(const PpCtx *c, const PpAttention *a);
void pp_cuda_attention_backward(const PpCtx *c, const PpAttention *a);

#endif
