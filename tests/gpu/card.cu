/*
 * card.cu - what the card can do: name, and its peaks in two ways.  Out: lines `name value` for
 * tests/gpu/run:
 *
 *     fp32, tf32, bf16  TFLOP/s by multiprocessors x units x clock, of bfloat16 twice TF32's on all of
 *                   them; 0: not known for this architecture
 *     gbs           GB/s by memory clock x bus width; 0: the driver does not say
 *     sgemm, tgemm  TFLOP/s measured: a product of 8192 x 8192 x 8192 by cuBLAS, in float32, in TF32
 *     copy, cache   GB/s measured: bytes read and written by a copy of 1 GiB; of 8 MiB, again and
 *                   again, which stay in the second-level cache
 *     host          microseconds of the CPU for an empty launch that nothing waits for
 *
 *     card [SIDE [MIB]]      other sizes; MIB / 128 stay in the cache
 */
#include "runtime/api/pp_cuda.h"

#include <algorithm>
#include <chrono>
#include <stdlib.h>

namespace {

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "card: %s: %s\n", what, pp_cuda_error());
    exit(1);
}
void need(bool good, const char *what) {
    if (!good)
        fail(what);
}

/* Multiply-adds of one multiprocessor in a clock: float32 units; tensor cores on TF32. */
void units(int cc, int *fp32, int *tf32) {
    static const struct { int cc, fp32, tf32;
    } known[] = {
        {70, 64, 0},    {75, 64, 0},     {80, 64, 512},    {86, 128, 128},
        {89, 128, 128}, {90, 128, 1024}, {100, 128, 2048}, {120, 128, 128},
    };
    *fp32 = *tf32 = 0;
    for (const auto &k : known)
        if (k.cc == cc) {
            *fp32 = k.fp32;
            *tf32 = k.tf32;
        }
}

int attribute(cudaDeviceAttr a) {
    int v = 0;
    if (cudaDeviceGetAttribute(&v, a, 0) != cudaSuccess)
        cudaGetLastError(); /* an attribute this driver does not know is 0 */
    return v;
}

/* The best of five, in seconds. */
template <class Call> double seconds(cudaStream_t s, Call call) {
    cudaEvent_t from, to;
    need(PP_CUDA(cudaEventCreate(&from)) && PP_CUDA(cudaEventCreate(&to)), "events");
    double best = 1e30;
    for (int i = 0; i < 6; i++) {
        float ms = 0;
        need(PP_CUDA(cudaEventRecord(from, s)) && call() && PP_CUDA(cudaEventRecord(to, s)) &&
                 PP_CUDA(cudaEventSynchronize(to)) && PP_CUDA(cudaEventElapsedTime(&ms, from, to)),
             "a measurement");
        if (i > 0)
            best = std::min(best, static_cast<double>(ms) * 1e-3);
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return best > 0 ? best : 1e-9;
}

void products(cudaStream_t s, int side) {
    const size_t bytes = static_cast<size_t>(side) * static_cast<size_t>(side) * sizeof(float);
    const float one = 1, zero = 0;
    float *m[3];
    cublasHandle_t h;
    need(PP_BLAS(cublasCreate(&h)) && PP_BLAS(cublasSetStream(h, s)), "cuBLAS");
    for (float *&p : m)
        need(PP_CUDA(cudaMalloc(reinterpret_cast<void **>(&p), bytes)) &&
                 PP_CUDA(cudaMemsetAsync(p, 0, bytes, s)),
             "memory");
    for (int tf32 = 0; tf32 < 2; tf32++) {
        need(
            PP_BLAS(cublasSetMathMode(h, tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_PEDANTIC_MATH)),
            "cuBLAS");
        const double t = seconds(s, [&] {
            return PP_BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, side, side, side, &one, m[0],
                                       side, m[1], side, &zero, m[2], side));
        });
        printf("%s %.4g\n", tf32 ? "tgemm" : "sgemm", 2.0 * side * side * side / t * 1e-12);
    }
    for (float *p : m)
        cudaFree(p);
    cublasDestroy(h);
}

void copies(cudaStream_t s, const char *name, size_t bytes, int times) {
    char *from, *to;
    need(PP_CUDA(cudaMalloc(reinterpret_cast<void **>(&from), bytes)) &&
             PP_CUDA(cudaMalloc(reinterpret_cast<void **>(&to), bytes)) &&
             PP_CUDA(cudaMemsetAsync(from, 0, bytes, s)),
         "memory");
    const double t = seconds(s, [&] {
        bool good = true;
        for (int i = 0; i < times; i++)
            good = good && PP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s));
        return good;
    });
    printf("%s %.4g\n", name, 2.0 * times * static_cast<double>(bytes) / t * 1e-9);
    cudaFree(from);
    cudaFree(to);
}

__global__ void empty(int) {}

void launches(cudaStream_t s) {
    enum { TIMES = 200 }; /* fewer than a stream has room for */
    double best = 1e30;
    seconds(s, [&] {
        const auto from = std::chrono::steady_clock::now();
        for (int i = 0; i < TIMES; i++)
            PP_LAUNCH(empty, 1, 32, 0, s, i);
        const std::chrono::duration<double> t = std::chrono::steady_clock::now() - from;
        best = std::min(best, t.count());
        return true;
    });
    printf("host %.3g\n", best / TIMES * 1e6);
}

}   // namespace

int main(int argc, char **argv) {
    cudaDeviceProp p;
    cudaStream_t s;
    int count = 0, fp32, tf32;
    need(PP_CUDA(cudaGetDeviceCount(&count)) && count > 0 &&
             PP_CUDA(cudaGetDeviceProperties(&p, 0)) && PP_CUDA(cudaStreamCreate(&s)),
         "no device");
    units(10 * p.major + p.minor, &fp32, &tf32);
    const double clock = 1e3 * attribute(cudaDevAttrClockRate),
                 clocks = 2e-12 * p.multiProcessorCount * clock;
    printf("card %s\n", p.name);
    printf("cc %d%d\ndevices %d\nmemory %.1f\n", p.major, p.minor, count,
           static_cast<double>(p.totalGlobalMem) / 1073741824.0);
    printf("fp32 %.4g\ntf32 %.4g\nbf16 %.4g\n", clocks * fp32, clocks * tf32, clocks * 2 * tf32);
    printf("gbs %.4g\n", 2e3 * attribute(cudaDevAttrMemoryClockRate) *
                             attribute(cudaDevAttrGlobalMemoryBusWidth) / 8 * 1e-9);
    products(s, argc > 1 ? atoi(argv[1]) : 8192);
    const size_t bytes = static_cast<size_t>(argc > 2 ? atoi(argv[2]) : 1024) << 20;
    copies(s, "copy", bytes, 1);
    copies(s, "cache", bytes / 128, 32);
    launches(s);
    cudaStreamDestroy(s);
    return 0;
}
