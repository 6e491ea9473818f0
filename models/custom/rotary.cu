/*
 * rotary.cu - the same on a GPU: a thread for each pair of elements that are turned (rotary.c has the formula).
 */
#include "pp_cuda.h"
#include "pp_custom.h"

static __global__ void turn(const float *x, const float *cosine, const float *sine, float *y,
                            int64_t pairs, int64_t places, int64_t h, int back)
{
    int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= pairs)
        return;
    int64_t line = k / h, j = k % h, at = line * 2 * h + j, angle = line % places * 2 * h + j;
    float low = x[at], high = x[at + h];
    y[at] = low * cosine[angle] + high * (back ? sine[angle + h] : -sine[angle]);
    y[at + h] = high * cosine[angle + h] + low * (back ? -sine[angle] : sine[angle + h]);
}

static void rotate(const PpCustom *c, const PpCustomTensor *x, int back)
{
    const int64_t size = x->dim[x->rank - 1], places = x->dim[x->rank - 2],
                  pairs = pp_custom_elements(x) / 2;
    const int threads = 256;
    if (pairs > 0) /* a launch that CUDA refuses is said; under tests/cuda_shim it runs on the CPU */
        PP_LAUNCH(turn, (unsigned)((pairs + threads - 1) / threads), threads, 0,
                  (cudaStream_t)c->stream, (const float *)x->data, (const float *)c->in[1].data,
                  (const float *)c->in[2].data, (float *)c->out[0].data, pairs, places, size / 2,
                  back);
}

void rotary_cuda(const PpCustom *c) { rotate(c, &c->in[0], 0); }
void rotary_gradient_cuda(const PpCustom *c) { rotate(c, &c->in[4], 1); }
