/*
 * pp_cuda.h - what generated .cu files and the runtime's CUDA parts share (C++17): launches, and
 * checks of what CUDA, cuBLAS and NCCL return.
 *
 *     PP_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)      is
 * kernel<<<...>>>(arguments...) PP_CUDA(call)  PP_BLAS(call)  PP_NCCL(call) are true when the call
 * succeeded
 *
 * The first failure of a thread is kept as a sentence, pp_cuda_error(), until pp_cuda_clear():
 * generated functions return nothing, and the runtime, which knows stage, action and microbatch,
 * asks after each action. PP_PROFILE=FILE in the environment measures what is launched
 * (profile_cuda.cu); else that costs one test of a pointer.
 *
 *     PP_WORK(kind, operations, bytes)        what this thread's next launch or call does:
 * "product", "elementwise", "row", ...; additions and multiplications; bytes read and written at
 * the least PP_TIMED(name, stream)                  measures a library's call or a copy, from here
 * to the end of the block
 *
 * Without nvcc the same files are compiled by a C++ compiler against a cuda_runtime.h that defines
 * PP_CUDA_SHIM. Dynamic shared memory is declared under one name, `extern __shared__ TYPE
 * pp_shared[];`.
 */
#ifndef PP_CUDA_H
#define PP_CUDA_H

#include <cublas_v2.h>
#include <cuda_runtime.h>
#ifdef PP_WITH_NCCL
#include <nccl.h>
#endif
#include <stdio.h>

#ifdef PP_CUDA_SHIM
#define PP_KERNEL(kernel, ...) shim_launch(#kernel, kernel, __VA_ARGS__)
#else
#define PP_KERNEL(kernel, grid, block, shared, stream, ...)                                        \
    kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#endif

/* What a profile records; profile_cuda.cu sets it before main() when it is asked for. */
struct PpProfiler {
    void (*work)(const char *kind, double operations, double bytes);
    int (*begin)(const char *name, cudaStream_t stream);
    void (*end)(int record, cudaStream_t stream);
};
inline const PpProfiler *pp_profiler = nullptr;

struct PpTimed {
    cudaStream_t stream;
    int record;
    PpTimed(const char *name, cudaStream_t s)
        : stream(s), record(pp_profiler ? pp_profiler->begin(name, s) : -1)
    {
    }
    ~PpTimed() {
        if (record >= 0)
            pp_profiler->end(record, stream);
    }
    PpTimed(const PpTimed &) = delete;
    PpTimed &operator=(const PpTimed &) = delete;
};
#define PP_TIMED(name, stream) PpTimed pp_timed(name, stream)
#define PP_WORK(kind, operations, bytes)                                                           \
    do {                                                                                           \
        if (pp_profiler)                                                                           \
            pp_profiler->work(kind, static_cast<double>(operations), static_cast<double>(bytes));  \
    } while (0)
#define PP_STREAM_OF(grid, block, shared, stream, ...) static_cast<cudaStream_t>(stream)

#define PP_LAUNCH(kernel, ...)                                                                     \
    do {                                                                                           \
        PP_TIMED(#kernel, PP_STREAM_OF(__VA_ARGS__));                                              \
        PP_KERNEL(kernel, __VA_ARGS__);                                                            \
        pp_cuda_ok(cudaPeekAtLastError(), #kernel, __FILE__, __LINE__);                            \
    } while (0)
#define PP_CUDA(call) pp_cuda_ok((call), #call, __FILE__, __LINE__)
#define PP_BLAS(call) pp_cuda_ok((call), #call, __FILE__, __LINE__)
#define PP_NCCL(call) pp_cuda_ok((call), #call, __FILE__, __LINE__)

/* This thread's device runs kernels that wait for other ranks (NCCL's): to load or allocate
 * something now could wait for them. */
inline thread_local bool pp_cuda_waits;

struct PpCudaError { char text[512]; };
inline thread_local PpCudaError pp_cuda_first_error;

/* "" while nothing has failed. */
inline const char *pp_cuda_error(void) { return pp_cuda_first_error.text; }
inline void pp_cuda_clear(void) { pp_cuda_first_error.text[0] = 0; }

inline void pp_cuda_note(const char *call, const char *why, const char *file, int line) {
    PpCudaError *e = &pp_cuda_first_error;
    int name = 0;                                       /* of a call only the function's name */
    while (call[name] && call[name] != '(')
        name++;
    if (!e->text[0])
        snprintf(e->text, sizeof e->text, "%.*s: %s (%s:%d)", name, call, why, file, line);
}

/* It was built for other cards. */
inline void pp_cuda_no_code(const char *call, const char *file, int line) {
    int device = 0, major = 0, minor = 0;
    char why[128];
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess)
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    snprintf(why, sizeof why,
             "the program has no code for this GPU: make pipeline-cuda CUDA_ARCH=%d%d", major,
             minor);
    pp_cuda_note(call, why, file, line);
}

inline bool pp_cuda_ok(cudaError_t e, const char *call, const char *file, int line) {
    if (e == cudaErrorNoKernelImageForDevice)
        pp_cuda_no_code(call, file, line);
    else if (e != cudaSuccess)
        pp_cuda_note(call, cudaGetErrorString(e), file, line);
    return e == cudaSuccess;
}

inline bool pp_cuda_ok(cublasStatus_t e, const char *call, const char *file, int line) {
    if (e != CUBLAS_STATUS_SUCCESS)
        pp_cuda_note(call, cublasGetStatusString(e), file, line);
    return e == CUBLAS_STATUS_SUCCESS;
}

#ifdef PP_WITH_NCCL
inline bool pp_cuda_ok(ncclResult_t e, const char *call, const char *file, int line) {
    if (e != ncclSuccess)
        pp_cuda_note(call, ncclGetErrorString(e), file, line);
    return e == ncclSuccess;
}
#endif

#endif
