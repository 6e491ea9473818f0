/*
 * lib.h - what the test programs of this folder share: device memory from and to vectors, TAP
 * lines, random numbers, a context.
 */
#ifndef CUDA_LIB_TEST_H
#define CUDA_LIB_TEST_H

#include "runtime/api/pp_cuda_calls.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static int number, failed;
static inline void ok(bool good, const std::string &what) {
    printf("%sok %d - %s\n", good ? "" : "not ", ++number, what.c_str());
    failed |= !good;
}

static inline void need(bool good, const char *what) {
    if (good)
        return;
    printf("Bail out! %s: %s\n", what, pp_cuda_error());
    exit(1);
}

static uint32_t state = 1;
static inline double uniform() {
    state = state * 1664525u + 1013904223u;
    return static_cast<double>(static_cast<float>(state >> 8) / 8388608.0f - 1.0f);
}

template <class T> std::vector<T> numbers(int64_t n) {
    std::vector<T> v(static_cast<size_t>(n));
    for (T &x : v)
        x = static_cast<T>(uniform());
    return v;
}

/* A copy of a vector on the device. */
template <class T> struct Dev {
    T *p = nullptr;
    size_t n;
    explicit Dev(const std::vector<T> &v) : n(v.size()) {
        need(PP_CUDA(cudaMalloc(reinterpret_cast<void **>(&p), (n ? n : 1) * sizeof(T))),
             "cudaMalloc");
        put(v);
    }
    ~Dev() { cudaFree(p); }
    Dev(const Dev &) = delete;
    Dev &operator=(const Dev &) = delete;
    /* from memory that is not pinned the copy may go on behind the call */
    void put(const std::vector<T> &v) {
        need(!n || (PP_CUDA(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice)) &&
                    PP_CUDA(cudaStreamSynchronize(nullptr))),
             "to the device");
    }
    std::vector<T> get(cudaStream_t s) const {
        std::vector<T> v(n);
        need(PP_CUDA(cudaStreamSynchronize(s)), "kernels");
        need(!n || PP_CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost)),
             "from the device");
        return v;
    }
};

/* A stream and a cuBLAS handle that works in it, as the runtime makes them: with a list of its own
 * or another's. */
struct Context {
    PpCtx c = {};
    cudaStream_t stream = nullptr;
    PpBlas blas = {};
    PpCounting counting = {};
    void *own = nullptr;
    static constexpr size_t WORKSPACE = 1 << 16;
    explicit Context(const Context *shared = nullptr) {
        need(PP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) &&
                 PP_BLAS(cublasCreate(&blas.handle)) &&
                 PP_BLAS(cublasSetStream(blas.handle, stream)) &&
                 PP_BLAS(cublasSetMathMode(blas.handle, CUBLAS_PEDANTIC_MATH)) &&
                 PP_CUDA(cudaMalloc(&blas.workspace, WORKSPACE)) &&
                 (shared || PP_CUDA(cudaMalloc(&own, static_cast<size_t>(PP_BLAS_LIST_BYTES)))),
             "a device");
        blas.bytes_workspace = WORKSPACE;
        blas.list = shared ? shared->own : own;
        need(PP_CUDA(cudaEventCreateWithFlags(&counting.event, cudaEventDisableTiming)) &&
                 PP_CUDA(cudaMallocHost(reinterpret_cast<void **>(&counting.staged),
                                        PP_COUNTS * sizeof *counting.staged)),
             "pinned memory");
        blas.counting = &counting;
        c.stream = stream;
        c.blas = &blas;
    }
    ~Context() {
        pp_cuda_forget_products(&blas);
        cudaEventDestroy(counting.event);
        cudaFreeHost(counting.staged);
        cublasDestroy(blas.handle);
        cudaStreamDestroy(stream);
        cudaFree(blas.workspace);
        cudaFree(own);
    }
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
};

#endif
