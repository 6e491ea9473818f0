/*
 * pp_device.h - what the kernels of generated .cu files share: their place in the grid, four
 * elements at a time, and reductions over the lanes of a row or over a block.  CUDA C++17.
 *
 * Additions happen in an order that depends on shapes and strides alone: lane l of a row takes
 * elements l, l + lanes, ..., then lanes are folded by halves, then the warps of a block one after
 * the other.  Nothing is added atomically.
 */
#ifndef PP_DEVICE_H
#define PP_DEVICE_H

#include "pp_cuda_calls.h"
#include "pp_order.h"
#include "pp_kernel.h"

#define PP_DEVICE static __device__ __forceinline__

/* How many blocks of `threads` there are for n threads' work.  Kernels walk on by pp_threads()
 * where that is more than the most. */
static inline unsigned pp_blocks(int64_t n, int64_t threads) {
    const int64_t most = 16384, blocks = (n + threads - 1) / threads;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* One for each `per` of n. */
static inline unsigned pp_cover(int64_t n, int64_t per)
{
    return static_cast<unsigned>((n + per - 1) / per);
}

/* This thread among those of the grid, and how many they are; 64 bits for tensors of 2^31 elements
 * and more. */
PP_DEVICE int pp_thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
PP_DEVICE int pp_threads() { return static_cast<int>(gridDim.x * blockDim.x); }
PP_DEVICE int64_t pp_thread_wide()
{
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
PP_DEVICE int64_t pp_threads_wide() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/* ---- four elements that lie together, in accesses of 16 bytes ---- */

template <class T> struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Pp4 {
    T at[4];
};

template <class T> PP_DEVICE void pp_load4(T (&v)[4], const T *from) {
    const Pp4<T> x = *reinterpret_cast<const Pp4<T> *>(from);
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = x.at[k];
}

template <class T> PP_DEVICE void pp_store4(T *to, const T (&v)[4]) {
    Pp4<T> x;
#pragma unroll
    for (int k = 0; k < 4; k++)
        x.at[k] = v[k];
    *reinterpret_cast<Pp4<T> *>(to) = x;
}

/* At the end of a row that is no multiple of four: its last `n` alone, where fewer than four are
 * left. */
template <class T> PP_DEVICE void pp_load4(T (&v)[4], const T *from, int64_t n) {
    if (n >= 4) {
        pp_load4(v, from);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = k < n ? from[k] : T{};
}

template <class T> PP_DEVICE void pp_store4(T *to, const T (&v)[4], int64_t n) {
    if (n >= 4) {
        pp_store4(to, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (k < n)
            to[k] = v[k];
}

/* ---- reductions ---- */

struct PpSum {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
};
struct PpProd {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return a * b; }
};
struct PpMax {
    static __device__ __forceinline__ float of(float a, float b) { return pp_maxf(a, b); }
    static __device__ __forceinline__ double of(double a, double b) { return pp_max(a, b); }
    static __device__ __forceinline__ int32_t of(int32_t a, int32_t b) { return pp_maxi(a, b); }
    static __device__ __forceinline__ int64_t of(int64_t a, int64_t b) { return pp_maxl(a, b); }
};
struct PpMin {
    static __device__ __forceinline__ float of(float a, float b) { return pp_minf(a, b); }
    static __device__ __forceinline__ double of(double a, double b) { return pp_min(a, b); }
    static __device__ __forceinline__ int32_t of(int32_t a, int32_t b) { return pp_mini(a, b); }
    static __device__ __forceinline__ int64_t of(int64_t a, int64_t b) { return pp_minl(a, b); }
};

/* LANES neighbours of a warp (a power of two), and a reduction over them: every one gets the
 * result. */
template <int LANES> PP_DEVICE unsigned pp_lanes_mask()
{
    return 0xffffffffu >> (32 - LANES) << (threadIdx.x % 32 / LANES * LANES);
}
template <int LANES> PP_DEVICE void pp_lanes_wait() { __syncwarp(pp_lanes_mask<LANES>()); }

template <class F, int LANES, class T> PP_DEVICE T pp_lanes(T v) {
    const unsigned mask = pp_lanes_mask<LANES>();
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2)
        v = F::of(v, __shfl_xor_sync(mask, v, half, LANES));
    return v;
}

/* Over a block of THREADS, 0: of as many as it has; every thread gets the result. */
template <class F, int THREADS, class T> PP_DEVICE T pp_block(T v) {
    __shared__ T part[(THREADS ? THREADS : PP_MOST_BLOCK) / 32];
    const int warps = (THREADS ? THREADS : static_cast<int>(blockDim.x)) / 32;
    v = pp_lanes<F, 32>(v);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int w = 1; w < warps; w++)
        v = F::of(v, part[w]);
    __syncthreads();                                    /* part may be written again */
    return v;
}

#define PP_REDUCTION(name, F)                                                                      \
    template <int LANES, class T> PP_DEVICE T pp_lanes_##name(T v)                                 \
    {                                                                                              \
        return pp_lanes<F, LANES>(v);                                                              \
    }                                                                                              \
    template <int THREADS, class T> PP_DEVICE T pp_block_##name(T v)                               \
    {                                                                                              \
        return pp_block<F, THREADS>(v);                                                            \
    }
PP_REDUCTION(sum, PpSum)
PP_REDUCTION(prod, PpProd)
PP_REDUCTION(max, PpMax)
PP_REDUCTION(min, PpMin)
#undef PP_REDUCTION

/* ---- rows that a mask chooses: all lanes of a warp ask, 32 places at a time ---- */

/* How many of mask[0 .. n) are true. */
template <class I> PP_DEVICE I pp_warp_count(const uint8_t *mask, I n)
{
    const I lane = static_cast<I>(threadIdx.x % 32);
    I count = 0;
    for (I p = 0; p < n; p += 32)
        count += __popc(__ballot_sync(0xffffffffu, p + lane < n && mask[p + lane]));
    return count;
}

/* The i-th of mask[0 .. n) that is true, from 0 on; -1: there are not so many. */
template <class I> PP_DEVICE I pp_warp_place(const uint8_t *mask, I n, I i)
{
    const I lane = static_cast<I>(threadIdx.x % 32);
    for (I p = 0; p < n; p += 32) {
        unsigned there = __ballot_sync(0xffffffffu, p + lane < n && mask[p + lane]);
        const int count = __popc(there);
        if (i < count) {
            for (; i > 0; i--)
                there &= there - 1;
            return p + __ffs(static_cast<int>(there)) - 1;
        }
        i -= count;
    }
    return -1;
}

/* ---- scatters: updates in their order, whoever makes them ---- */

/* Block i, one for each of n updates: the first update of a place takes that one's and all later
   ones there, in order.  row(i): the place of update i; take(place, list, count): all threads
   together apply the updates list[0 .. count). */
template <int THREADS, class I, class Row, class Take>
PP_DEVICE void pp_scatter_rows(I n, Row row, Take take)
{
    __shared__ I list[THREADS];
    __shared__ int found[THREADS / 32];
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const I me = static_cast<I>(blockIdx.x);
    const int64_t place = row(me);
    bool before = false;
    for (I i = static_cast<I>(threadIdx.x); i < me && !before; i += THREADS)
        before = row(i) == place;
    if (__syncthreads_or(before))
        return;
    for (I from = me; from < n; from += THREADS) {
        const I i = from + static_cast<I>(threadIdx.x);
        const bool hit = i < n && row(i) == place;
        const unsigned hits = __ballot_sync(0xffffffffu, hit);
        if (lane == 0)
            found[warp] = __popc(hits);
        __syncthreads();
        int at = __popc(hits & ((1u << lane) - 1)), count = 0;
        for (int w = 0; w < THREADS / 32; w++) {
            at += w < warp ? found[w] : 0;
            count += found[w];
        }
        if (hit)
            list[at] = i;
        __syncthreads();
        if (count > 0)
            take(place, static_cast<const I *>(list), count);
        __syncthreads();
    }
}

/* The block's stretch of a line, elements first .. first + STRETCH, of all n updates of the line:
   at(i) is the element that update i is for, put(i, at) makes it.  Of updates for one element among
   a round's, the lowest comes first. */
template <int THREADS, int STRETCH, class I, class At, class Put>
PP_DEVICE void pp_scatter_line(I n, I first, At at, Put put)
{
    __shared__ int next[STRETCH];
    const int none = THREADS, thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < STRETCH; i += THREADS)
        next[i] = none;
    __syncthreads();
    for (I from = 0; from < n; from += THREADS) {
        const I i = from + thread;
        const I to = i < n ? at(i) : first - 1;
        bool waits = to >= first && to < first + STRETCH;
        while (__syncthreads_or(waits)) {
            if (waits)
                atomicMin(&next[to - first], thread);
            __syncthreads();
            const bool mine = waits && next[to - first] == thread;
            __syncthreads();
            if (mine) {
                put(i, to);
                next[to - first] = none;
                waits = false;
            }
        }
    }
}

#endif
