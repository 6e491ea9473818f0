/*
 * shim_device.h - what a kernel sees: qualifiers, its coordinates, barriers, warp operations,
 * atomics, intrinsics; and shim_launch(), which a launch becomes.
 *
 * __shared__ variables are thread-local: a block runs on one host thread, as fibers.  The dynamic
 * part is declared `extern __shared__ TYPE pp_shared[];`, under this one name.
 */
#ifndef SHIM_DEVICE_H
#define SHIM_DEVICE_H

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ thread_local

struct ShimCoordinates {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
};
extern ShimCoordinates shim_at;                         /* of the one thread that runs now */
#define threadIdx shim_at.thread
#define blockIdx shim_at.block
#define blockDim shim_at.block_dim
#define gridDim shim_at.grid_dim
constexpr int warpSize = 32;

/* ---- launches ---- */

/* A launch: call(kernel, argument) is one thread, `argument` points to copies of n arguments.  What
 * is instantiated for each kernel's list of types is these two functions and no more: of the time
 * that it takes to compile a stage, classes of the library's for each were a third. */
typedef void (*ShimKernel)(void);
typedef void (*ShimCall)(ShimKernel kernel, const void *const *argument);
void shim_launch_kernel(const char *name, ShimKernel kernel, ShimCall call, dim3 grid, dim3 block,
                        size_t shared, cudaStream_t stream, size_t n, const void *const *argument,
                        const size_t *bytes);

template <class T> struct ShimSame { typedef T type; };
template <class... P> struct ShimThread {
    /* The arguments are read by code that is not instrumented: a kernel may. */
    template <size_t... I>
    static __attribute__((no_sanitize("thread"))) void call(ShimKernel kernel,
                                                            const void *const *argument)
    {
        (void)argument;
        reinterpret_cast<void (*)(P...)>(kernel)(*static_cast<const P *>(argument[I])...);
    }
    template <size_t... I> static ShimCall with(std::index_sequence<I...>) { return call<I...>; }
};

/* Arguments are converted and kept at the launch, as CUDA does. */
template <class... P>
inline __attribute__((no_sanitize("thread"))) void
shim_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
            cudaStream_t stream, typename ShimSame<P>::type... a)
{
    const void *const argument[] = {&a..., nullptr};
    const size_t bytes[] = {sizeof(P)..., 0};
    shim_launch_kernel(name, reinterpret_cast<ShimKernel>(kernel),
                       ShimThread<P...>::with(std::index_sequence_for<P...>()), grid, block, shared,
                       stream, sizeof...(P), argument, bytes);
}

/* ---- barriers and warp operations ---- */

enum ShimBarrier { SHIM_PLAIN, SHIM_COUNT, SHIM_AND, SHIM_OR };
int shim_barrier(ShimBarrier kind, int predicate, int line);
#define __syncthreads() ((void)shim_barrier(SHIM_PLAIN, 0, __LINE__))
#define __syncthreads_count(p) shim_barrier(SHIM_COUNT, (p) != 0, __LINE__)
#define __syncthreads_and(p) shim_barrier(SHIM_AND, (p) != 0, __LINE__)
#define __syncthreads_or(p) shim_barrier(SHIM_OR, (p) != 0, __LINE__)

enum ShimWarp {
    SHIM_SYNC,
    SHIM_INDEX,
    SHIM_UP,
    SHIM_DOWN,
    SHIM_XOR,
    SHIM_BALLOT,
    SHIM_LDMATRIX,
    SHIM_MMA
};
uint64_t shim_warp(ShimWarp kind, unsigned mask, uint64_t value, int arg, int width, int line);
unsigned shim_active(void);

template <class T>
inline T shim_shuffle(ShimWarp kind, unsigned mask, T value, int arg, int width, int line)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = shim_warp(kind, mask, bits, arg, width, line);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

#define SHIM_SHUFFLE(name, kind, type)                                                             \
    template <class T>                                                                             \
    inline T name(unsigned mask, T v, type arg, int width = 32, int line = __builtin_LINE())       \
    {                                                                                              \
        return shim_shuffle(kind, mask, v, static_cast<int>(arg), width, line);                    \
    }
SHIM_SHUFFLE(__shfl_sync, SHIM_INDEX, int)
SHIM_SHUFFLE(__shfl_up_sync, SHIM_UP, unsigned)
SHIM_SHUFFLE(__shfl_down_sync, SHIM_DOWN, unsigned)
SHIM_SHUFFLE(__shfl_xor_sync, SHIM_XOR, int)

inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
    shim_warp(SHIM_SYNC, mask, 0, 0, 32, line);
}
inline unsigned __ballot_sync(unsigned mask, int p, int line = __builtin_LINE()) {
    return static_cast<unsigned>(shim_warp(SHIM_BALLOT, mask, p != 0, 0, 32, line));
}
inline int __any_sync(unsigned mask, int p, int line = __builtin_LINE())
{
    return __ballot_sync(mask, p, line) != 0;
}
inline int __all_sync(unsigned mask, int p, int line = __builtin_LINE())
{
    return __ballot_sync(mask, !p, line) == 0;
}
inline unsigned __activemask(void) { return shim_active(); }

void shim_fence(void);
#define __threadfence() shim_fence()
#define __threadfence_system() shim_fence()
#define __threadfence_block() ((void)0)

/* ---- atomics: block.cpp runs one thread at a time, so they are plain operations that are checked
 * as atomic ---- */

void shim_atomic(const void *p, size_t bytes);

template <class T, class F> inline __attribute__((no_sanitize("thread"))) T shim_update(T *p, F f) {
    shim_atomic(p, sizeof(T));
    T old = *p;
    *p = f(old);
    return old;
}
#define SHIM_ATOMIC(name, expression)                                                              \
    template <class T> inline T name(T *p, typename ShimSame<T>::type v)                           \
    {                                                                                              \
        return shim_update(                                                                        \
            p, [v](T old) __attribute__((no_sanitize("thread"))) {                                 \
                (void)old;                                                                         \
                return static_cast<T>(expression);                                                 \
            });                                                                                    \
    }
SHIM_ATOMIC(atomicAdd, old + v)
SHIM_ATOMIC(atomicSub, old - v)
SHIM_ATOMIC(atomicExch, v)
SHIM_ATOMIC(atomicMax, old < v ? v : old)
SHIM_ATOMIC(atomicMin, v < old ? v : old)
SHIM_ATOMIC(atomicAnd, old & v)
SHIM_ATOMIC(atomicOr, old | v)
SHIM_ATOMIC(atomicXor, old ^ v)
template <class T>
inline T atomicCAS(T *p, typename ShimSame<T>::type want, typename ShimSame<T>::type v)
{
    return shim_update(
        p, [ want, v ](T old)
               __attribute__((no_sanitize("thread"))) { return old == want ? v : old; });
}

/* ---- loads, intrinsics ---- */

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T v) { *p = v; }
template <class T> inline void __stcg(T *p, T v) { *p = v; }

template <class To, class From> inline To shim_bits(From f) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To t;
    memcpy(&t, &f, sizeof t);
    return t;
}
inline int __float_as_int(float f) { return shim_bits<int>(f); }
inline unsigned __float_as_uint(float f) { return shim_bits<unsigned>(f); }
inline float __int_as_float(int i) { return shim_bits<float>(i); }
inline float __uint_as_float(unsigned i) { return shim_bits<float>(i); }
inline long long __double_as_longlong(double d) { return shim_bits<long long>(d); }
inline double __longlong_as_double(long long i) { return shim_bits<double>(i); }
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) * b) >> 32); }
__extension__ typedef unsigned __int128 ShimWide;
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>((static_cast<ShimWide>(a) * b) >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x)
{
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fdividef(float a, float b) { return a / b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
inline double rsqrt(double a) { return 1.0 / sqrt(a); }
#define __expf expf                                     /* glibc has functions of these names */
#define __logf logf
inline float __saturatef(float a) { return fminf(fmaxf(a, 0.0f), 1.0f); }

#define SHIM_MIN_MAX(T)                                                                            \
    inline T min(T a, T b) { return b < a ? b : a; }                                               \
    inline T max(T a, T b) { return a < b ? b : a; }
SHIM_MIN_MAX(int)
SHIM_MIN_MAX(unsigned)
SHIM_MIN_MAX(long)
SHIM_MIN_MAX(unsigned long)
SHIM_MIN_MAX(long long)
SHIM_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

#endif
