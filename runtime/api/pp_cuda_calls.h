/*
 * pp_cuda_calls.h - what generated .cu files call beside their own kernels: matrix products,
 * convolutions and pools on the device, in the order of the microbatch's stream (PpCtx.stream). All
 * pointers are device memory.  Nothing here allocates in a step; pp_cuda_counts() waits for the
 * device, and so does the first product with a bias and a ReLU of each shape; what fails is kept by
 * pp_cuda.h and asked for after the action.
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
    /* what pp_cuda_fetch() needs of the host; one for all stages of a rank */
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

/* blas_cuda.cu: as pp_sgemm and its kin in pp.h, row-major; cuBLAS through PpCtx.blas.  A batch is
 * one call of cuBLAS: its results must not overlap. */
void pp_cuda_sgemm(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha,
                   const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *out,
                   int64_t ldc);
void pp_cuda_dgemm(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha,
                   const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
                   double *out, int64_t ldc);
void pp_cuda_sgemm_batched(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k,
                           float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                           float beta, float *out, int64_t ldc, int rank, const int64_t *count,
                           const int64_t *stride_a, const int64_t *stride_b,
                           const int64_t *stride_c);
void pp_cuda_dgemm_batched(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k,
                           double alpha, const double *a, int64_t lda, const double *b, int64_t ldb,
                           double beta, double *out, int64_t ldc, int rank, const int64_t *count,
                           const int64_t *stride_a, const int64_t *stride_b,
                           const int64_t *stride_c);

/* The same of half operands: as pp_bgemm and its kin in pp.h. */
#define PP_HALF_PRODUCT(NAME, T)                                                                   \
    void pp_cuda_##NAME(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k,           \
                        float alpha, const uint16_t *a, int64_t lda, const uint16_t *b,            \
                        int64_t ldb, float beta, T *out, int64_t ldc);                             \
    void pp_cuda_##NAME##_batched(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, \
                                  float alpha, const uint16_t *a, int64_t lda, const uint16_t *b,  \
                                  int64_t ldb, float beta, T *out, int64_t ldc, int rank,          \
                                  const int64_t *count, const int64_t *stride_a,                   \
                                  const int64_t *stride_b, const int64_t *stride_c);
PP_HALF_PRODUCT(bgemm, uint16_t)
PP_HALF_PRODUCT(hgemm, uint16_t)
PP_HALF_PRODUCT(bsgemm, float)
PP_HALF_PRODUCT(hsgemm, float)
#undef PP_HALF_PRODUCT

/* bias_cuda.cu: C = op(A) op(B) + a bias for each column, n of them, added in float32 before the
 * one rounding to C's type; by cuBLASLt.  bias_relu: of the same, what is not above 0 becomes +0,
 * and a NaN stays one.  pp_cuda_forget_products: before a PpBlas goes. */
#define PP_BIAS_PRODUCT(NAME, T)                                                                   \
    void pp_cuda_##NAME(const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k,    \
                               const T *a, int64_t lda, const T *b, int64_t ldb, const T *bias,    \
                               T *out, int64_t ldc);                                               \
    void pp_cuda_##NAME##_batched(                                                            \
        const PpCtx *c, int ta, int tb, int64_t m, int64_t n, int64_t k, const T *a, int64_t lda,  \
        const T *b, int64_t ldb, const T *bias, T *out, int64_t ldc, int rank,                     \
        const int64_t *count, const int64_t *stride_a, const int64_t *stride_b,                    \
        const int64_t *stride_c);
PP_BIAS_PRODUCT(sgemm_bias, float)
PP_BIAS_PRODUCT(bgemm_bias, uint16_t)
PP_BIAS_PRODUCT(hgemm_bias, uint16_t)
PP_BIAS_PRODUCT(sgemm_bias_relu, float)
PP_BIAS_PRODUCT(bgemm_bias_relu, uint16_t)
PP_BIAS_PRODUCT(hgemm_bias_relu, uint16_t)
#undef PP_BIAS_PRODUCT
void pp_cuda_forget_products(PpBlas *blas);

/* count_cuda.cu: *to[i] = how many of the mask's n places are true, of n masks at once; the host
   waits for the stream, once for PP_COUNTS of them.  pp_cuda_zeros: zeros in rows r0 .. r1, columns
   c0 .. c1 of a matrix of elements of `size` bytes. */
struct PpMask {
    const uint8_t *at;
    int64_t n;
};
void pp_cuda_counts(const PpCtx *c, int n, const PpMask *mask, int64_t *const *to);
/* The first n numbers of PpBlas.list, once the stream is there, in counting->staged; n is at most
   PP_COUNTS; false: something failed. */
bool pp_cuda_fetch(const PpCtx *c, int n);
void pp_cuda_zeros(const PpCtx *c, void *at, int64_t ld, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1, size_t size);

/* conv_cuda.cu: as pp_conv_* in pp.h; cuDNN where it was present at build (PP_WITH_CUDNN), else
   direct kernels.  open() runs on the rank's thread once; bytes: device memory that open takes, an
   upper bound: convolutions of one stage share their workspace. A stage's open() begins with
   pp_cuda_conv_separate(): stages have streams of their own, and so workspaces of their own. */
typedef struct PpCudaConv PpCudaConv;
/* --tf32, set by the runtime before stages open: cuDNN may round to TF32 */
extern int pp_cuda_tf32;
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

/* pool_cuda.cu: y = pool(x) over `planes` planes (samples times channels) by cuDNN where it was
   present at build.  False: nothing was done, the caller's own kernel has to. */
/* averages: of the window's places inside the plane; of all its places */
enum { PP_POOL_MAX, PP_POOL_INSIDE, PP_POOL_WHOLE };
typedef struct {
    int dtype, spatial, kind;
    int64_t in[3], out[3], kernel[3], stride[3], pad[3];
} PpPoolShape;
bool pp_cuda_pool_forward(const PpCtx *c, const PpPoolShape *s, int64_t planes, const void *x,
                          void *y);

/* attention_cuda.cu */
void pp_cuda_attention(const PpCtx *c, const PpAttention *a);
void pp_cuda_attention_backward(const PpCtx *c, const PpAttention *a);

#endif
