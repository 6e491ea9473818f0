/*
 * pp_gemm.h - a matrix product, or many: C = alpha op(A) op(B), or that added to what C holds,
 * row-major, any leading dimension.  On CPUs: device/cpu/product.c; on GPUs:
 * device/cuda/blas_cuda.cu, bias_cuda.cu.  Plain C and C++.
 *
 * Sums of half types are float32, from the first product to the last, and so are alpha and the
 * bias; a half C is rounded once, at the end.  Bits depend on the types, m, n, k, ta and tb only.
 */
#ifndef PP_GEMM_CALL_H
#define PP_GEMM_CALL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is left out, 0 or NULL, is what most products have; without a type it is refused. */
typedef struct {
    /* PP_F32, PP_F64, PP_BF16, PP_F16; result: C's, PP_F32, where A and B are half (0: theirs) */
    int type, result;
    int ta, tb;                                         /* 1: the operand is stored transposed */
    int64_t m, n, k;                                    /* C is m x n, of sums of k products */
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;      /* elements from row to row, as stored (0: rows are dense) */
    const float *alpha;                                 /* (NULL: 1) */
    int adds;                                           /* 0: what C holds is not read */
    /* one for each column of C, of A's type; adds is 0, alpha 1.  NULL: none.  On CPUs those of half
       types, on GPUs of all but PP_F64 */
    const void *bias;
    /* count[0] * count[1] * .. of them, and elements from one to the next (dims 0: one) */
    int dims;
    const int64_t *count, *stride_a, *stride_b, *stride_c;
} PpGemm;

void pp_gemm(const PpGemm *g);

/* One matrix counts only in a band, as masked attention has them: of its elements (i, j) those with
   below <= j - i <= above (causal: above = 0).  It is cut into tiles of PP_TILE x PP_TILE from
   (0, 0) on; tiles without any element of the band are left out.  Each tile row of op(A), or tile
   column of op(B) or C, is a product of its own.
     PP_BAND_A, PP_BAND_B  op(A) or op(B) is zero in those tiles: they are not read
     PP_BAND_C             nobody reads C there: they are not written */
enum { PP_TILE = 32 };
enum { PP_BAND_A = 1, PP_BAND_B, PP_BAND_C };
void pp_gemm_band(const PpGemm *g, int which, int64_t below, int64_t above);

/* The same with what was left out. */
static inline PpGemm pp_gemm_given(const PpGemm *g)
{
    static const float one = 1;
    PpGemm q = *g;
    q.result = g->result ? g->result : q.type;
    q.alpha = g->alpha ? g->alpha : &one;
    q.lda = g->lda ? g->lda : g->ta ? g->m : g->k;
    q.ldb = g->ldb ? g->ldb : g->tb ? g->k : g->n;
    q.ldc = g->ldc ? g->ldc : g->n;
    return q;
}

/* Bytes of an element of A and B; of C. */
static inline int64_t pp_gemm_size(int type)
{
    return type == 11 ? 8 : type == 10 || type == 16 ? 2 : 4; /* PP_F64; PP_F16, PP_BF16 */
}
static inline int64_t pp_gemm_result_size(const PpGemm *g)
{
    return pp_gemm_size(g->result ? g->result : g->type);
}

/* The same moved on by so many elements of A, B and C. */
static inline PpGemm pp_gemm_moved(const PpGemm *g, int64_t a, int64_t b, int64_t c)
{
    PpGemm q = *g;
    q.a = (const char *)g->a + a * pp_gemm_size(g->type);
    q.b = (const char *)g->b + b * pp_gemm_size(g->type);
    q.c = (char *)g->c + c * pp_gemm_result_size(g);
    return q;
}

/* What is left of a product from row i and column j of C and step p of its sums on. */
static inline PpGemm pp_gemm_from(const PpGemm *g, int64_t i, int64_t j, int64_t p)
{
    PpGemm q = pp_gemm_moved(g, g->ta ? p * g->lda + i : i * g->lda + p,
                             g->tb ? j * g->ldb + p : p * g->ldb + j, i * g->ldc + j);
    q.m -= i;
    q.n -= j;
    q.k -= p;
    if (g->bias)
        q.bias = (const char *)g->bias + j * pp_gemm_size(g->type);
    return q;
}

/* How many there are in the first `dims` dimensions of the batch, and number i of these; what it has
   of the other dimensions is a batch. */
static inline int64_t pp_gemm_count(const PpGemm *g, int dims)
{
    int64_t n = 1;
    for (int d = 0; d < dims; d++)
        n *= g->count[d];
    return n;
}
static inline PpGemm pp_gemm_of(const PpGemm *g, int dims, int64_t i)
{
    int64_t a = 0, b = 0, c = 0;
    for (int d = dims - 1; d >= 0; i /= g->count[d--]) {
        a += i % g->count[d] * g->stride_a[d];
        b += i % g->count[d] * g->stride_b[d];
        c += i % g->count[d] * g->stride_c[d];
    }
    PpGemm q = pp_gemm_moved(g, a, b, c);
    if (q.dims -= dims) {
        q.count += dims;
        q.stride_a += dims;
        q.stride_b += dims;
        q.stride_c += dims;
    }
    return q;
}

#ifdef __cplusplus
}
#endif
#endif
