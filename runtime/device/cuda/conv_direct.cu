/*
 * conv_direct.cu - convolutions on the device whose groups have few channels (depthwise above all),
 * for which tiles of a matrix product would be mostly empty: a thread adds up one destination
 * element, term by term; neighbours read neighbours.  Of the weights' gradient a block adds up one
 * element over all positions of all samples: lanes take positions in turn, then a fixed tree.
 */
#include "conv_gather.h"

namespace {

/* a grid that fills any device many times over */
enum { THREADS = 256, WARP = 32, BLOCKS = 132 * 64 };

template <class Kind, class In = typename Kind::In>
__global__ void __launch_bounds__(THREADS)
    gather_elements(ConvGather g, int samples, const In *__restrict__ source,
                    const In *__restrict__ w, In *__restrict__ dest)
{
    const ConvClass c = g.cls[static_cast<int>(blockIdx.x) % g.classes];
    const int positions = c.count[0] * c.count[1] * c.count[2], channels = g.group * g.rows;
    const int64_t channel_size = static_cast<int64_t>(g.dest[0]) * g.dest[1] * g.dest[2];
    const int elements = samples * channels * positions,
              step = static_cast<int>(gridDim.x) / g.classes * THREADS;
    for (int64_t e =
             static_cast<int64_t>(static_cast<int>(blockIdx.x) / g.classes) * THREADS + threadIdx.x;
         e < elements; e += step) {
        const int i = static_cast<int>(e), p = i % positions, rest = i / positions,
                  channel = rest % channels;
        const ConvPlace place = conv_place(g, c, rest / channels, channel / g.rows, p);
        const In *weights = w + channel / g.rows * g.weight_group + channel % g.rows * g.weight_row;
        const ConvTap *tap = g.tap + c.tap;
        const int *weight = g.weight ? g.weight + c.tap : nullptr;
        typename Kind::Sum sum = 0;
        for (int k = 0; k < c.taps; k++)
            sum = multiply_add(conv_read<Kind>(g, source, place, tap[k]),
                               Kind::load(weights[weight ? weight[k] : k]), sum);
        dest[place.to + channel * channel_size] = Kind::store(sum);
    }
}

template <class T> __device__ __forceinline__ T warp_sum(T v) {
    for (int o = WARP / 2; o > 0; o >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

template <class Kind, class In = typename Kind::In, class T = typename Kind::Sum>
__global__ void __launch_bounds__(THREADS)
    weight_elements(ConvGather g, int terms, int positions, const In *__restrict__ x,
                    const In *__restrict__ dy, T *__restrict__ dw, int accumulate)
{
    __shared__ T part[THREADS / WARP];
    const int channel = static_cast<int>(blockIdx.x) / terms,
              thread = static_cast<int>(threadIdx.x);
    const ConvTap tap = g.tap[static_cast<int>(blockIdx.x) % terms];
    const ConvClass c = g.cls[0];
    const int out_size = c.count[0] * c.count[1] * c.count[2];
    T sum = 0;
    for (int i = thread; i < positions; i += THREADS) {
        const int sample = i / out_size, p = i % out_size;
        sum = multiply_add(
            conv_read<Kind>(g, x, conv_place(g, c, sample, channel / g.rows, p), tap),
            Kind::load(dy[sample * g.dest_sample + static_cast<int64_t>(channel) * out_size + p]),
            sum);
    }
    sum = warp_sum(sum);
    if (thread % WARP == 0)
        part[thread / WARP] = sum;
    __syncthreads();
    if (thread == 0) {
        sum = accumulate ? dw[blockIdx.x] : static_cast<T>(0);
        for (int i = 0; i < THREADS / WARP; i++)
            sum += part[i];
        dw[blockIdx.x] = sum;
    }
}

template <class Kind, class In = typename Kind::In>
void gather(cudaStream_t s, const ConvGather &g, int64_t samples, const In *source, const In *w,
            In *dest)
{
    const int64_t per_sample = static_cast<int64_t>(g.most) * g.rows * g.group,
                  most = conv_samples_at_once(per_sample);
    for (int64_t n = 0; n < samples && per_sample > 0; n += most) {
        const int64_t some = samples - n < most ? samples - n : most,
                      needed = (some * per_sample + THREADS - 1) / THREADS;
        const int64_t blocks =
            (needed < BLOCKS ? needed : static_cast<int64_t>(BLOCKS)) * g.classes;
        PP_LAUNCH(gather_elements<Kind>, static_cast<unsigned>(blocks), THREADS, 0, s, g,
                  static_cast<int>(some), source + n * g.source_sample, w,
                  dest + n * g.dest_sample);
    }
}

template <class Kind, class In = typename Kind::In, class T = typename Kind::Sum>
void weight_gradient(cudaStream_t s, const PpCudaConv &v, int64_t samples, const In *x,
                     const In *dy, T *dw, int accumulate)
{
    const int64_t most = conv_samples_at_once(v.out_size);
    const int terms = v.cg * v.taps;
    for (int64_t n = 0; n < samples; n += most, accumulate = 1) {
        const int64_t some = samples - n < most ? samples - n : most;
        PP_LAUNCH(weight_elements<Kind>, static_cast<unsigned>(v.shape.m * terms), THREADS, 0, s,
                  v.forward, terms, static_cast<int>(some * v.out_size),
                  x + n * v.forward.source_sample, dy + n * v.forward.dest_sample, dw, accumulate);
    }
}

}   // namespace

void conv_direct(cudaStream_t s, int dtype, const ConvGather &g, int64_t samples,
                 const void *source, const void *w, void *dest)
{
    element_kind(dtype, [&](auto kind) {
        using Kind = decltype(kind);
        using In = typename Kind::In;
        gather<Kind>(s, g, samples, static_cast<const In *>(source), static_cast<const In *>(w),
                     static_cast<In *>(dest));
    });
}

void conv_weight_direct(cudaStream_t s, const PpCudaConv &v, int64_t samples, const void *x,
                        const void *dy, void *dw, int accumulate)
{
    element_kind(v.shape.dtype, [&](auto kind) {
        using Kind = decltype(kind);
        using In = typename Kind::In;
        weight_gradient<Kind>(s, v, samples, static_cast<const In *>(x),
                              static_cast<const In *>(dy),
                              static_cast<typename Kind::Sum *>(dw), accumulate);
    });
}
