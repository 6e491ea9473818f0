/*
 * stage_device.cu - a device for stage_run.h, under the shim: memory, a stream and cuBLAS behind
 * functions of C, linked with the runtime's products and convolutions into one shared object that
 * all stages of a test use.
 */
#include "runtime/api/pp_cuda_calls.h"

#include <vector>

extern "C" {
void *device_alloc(int64_t bytes);
void device_put(void *to, const void *from, int64_t bytes);
void device_get(void *to, const void *from, int64_t bytes);
void *device_stream(void);
void *device_blas(void);
const char *device_error(void);
void device_release(void);
}

static std::vector<void *> all;
static cudaStream_t stream;
static PpBlas blas;
static PpCounting counting;

void *device_alloc(int64_t bytes) {
    void *p = nullptr;
    PP_CUDA(cudaMalloc(&p, static_cast<size_t>(bytes)));
    all.push_back(p);
    return p;
}

/* In the order of the stream, as the runtime's copies are. */
void device_put(void *to, const void *from, int64_t bytes) {
    PP_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
    PP_CUDA(cudaStreamSynchronize(stream));
}

void device_get(void *to, const void *from, int64_t bytes) {
    PP_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream));
    PP_CUDA(cudaStreamSynchronize(stream));
}

void *device_stream(void) {
    if (!stream)
        PP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void *device_blas(void) {
    if (!blas.handle && PP_BLAS(cublasCreate(&blas.handle))) {
        PP_BLAS(cublasSetStream(blas.handle, static_cast<cudaStream_t>(device_stream())));
        blas.list = device_alloc(PP_BLAS_LIST_BYTES);
        blas.workspace = device_alloc(blas.bytes_workspace = 1 << 16);
        blas.counting = &counting;
        PP_CUDA(cudaEventCreateWithFlags(&counting.event, cudaEventDisableTiming));
        PP_CUDA(cudaMallocHost(reinterpret_cast<void **>(&counting.staged),
                               PP_COUNTS * sizeof *counting.staged));
    }
    return &blas;
}

const char *device_error(void) { return pp_cuda_error(); }

void device_release(void) {
    for (void *p : all)
        PP_CUDA(cudaFree(p));
    all.clear();
    pp_cuda_forget_products(&blas);
    if (blas.counting) {
        PP_CUDA(cudaEventDestroy(counting.event));
        PP_CUDA(cudaFreeHost(counting.staged));
    }
    if (blas.handle)
        PP_BLAS(cublasDestroy(blas.handle));
    if (stream)
        PP_CUDA(cudaStreamDestroy(stream));
    counting = {};
    blas = {};
    stream = nullptr;
}
