/*
 * pp_custom.h - an operation of your own: what its functions are given (ppsplit --ops,
 * docs/custom.md).
 *
 * Tensors are dense, in row-major order.  dim[0] of what holds samples is that of the microbatch at
 * hand, which may be smaller than the one before.  Of 16 bits there are none: they come and go as
 * float32.  A function writes every element of its results and reads none of them; a gradient is
 * the gradient alone, not added to what is there.
 *
 * On a GPU data are the device's, and the function starts its work in `stream`, a cudaStream_t,
 * without waiting for it.
 */
#ifndef PP_CUSTOM_H
#define PP_CUSTOM_H

#include <stdint.h>

typedef struct {
    void *data;
    int dtype; /* of ONNX: 1 float32, 11 float64, 7 int64, 6 int32, 9 bool */
    int rank;
    const int64_t *dim;
} PpCustomTensor;

/* in: the node's inputs; in a gradient its outputs behind them, and then the gradients of these. */
typedef struct {
    int n_in, n_out, n_number;
    const PpCustomTensor *in, *out;
    const double *number; /* attributes, as the table names them */
    void *stream;         /* NULL on the CPU */
} PpCustom;

static inline int64_t pp_custom_elements(const PpCustomTensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

#endif
