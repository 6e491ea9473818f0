/*
 * bad.cu - programs with one mistake each, and what the shim must say of it.  Those marked `plain`
 * are found without the compiler's help too.
 */
#include "cases.h"
#include "runtime/device/cuda/mma.h"

#include <nccl.h>
#include <thread>

/* ---- kernels ---- */

static __global__ void shift(const float *x, float *y, int by)
{
    y[threadIdx.x] = x[static_cast<int>(threadIdx.x) + by];
}
static __global__ void store(float *y, int by) { y[static_cast<int>(threadIdx.x) + by] = 1.0f; }
static __global__ void store_byte(unsigned char *y, int at) { y[at] = 7; }
static __global__ void quad(const float *x, float *y)
{
    y[0] = reinterpret_cast<const float4 *>(x)[0].w;
}
static __global__ void pair(float *x) { *reinterpret_cast<float2 *>(x) = make_float2(1.0f, 2.0f); }

static __global__ void unset_shared(float *y) {
    __shared__ float s[32];
    if (threadIdx.x < 31)
        s[threadIdx.x] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

static __global__ void past_shared(float *y, int n) {
    __shared__ float s[32];
    for (int i = 0; i < n; i++)
        s[i] = 1.0f;
    y[0] = s[3];
}

static __global__ void past_dynamic(float *y) {
    extern __shared__ float pp_shared[];
    pp_shared[threadIdx.x] = 1.0f;
    y[threadIdx.x] = pp_shared[threadIdx.x];
}

/* A copy that nobody waits for before it is read; one whose thread alone has waited. */
static __global__ void copy_unawaited(const float *x, float *y) {
    extern __shared__ float pp_shared[];
    cp_async_16(pp_shared + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);
    cp_async_commit();
    y[threadIdx.x] = pp_shared[4 * threadIdx.x];
    cp_async_wait<0>();
}

static __global__ void copy_unshared(const float *x, float *y) {
    extern __shared__ float pp_shared[];
    cp_async_4(pp_shared + threadIdx.x, x + threadIdx.x, true);
    cp_async_commit();
    cp_async_wait<0>();
    y[threadIdx.x] = pp_shared[(threadIdx.x + 1) % blockDim.x];
}

static __global__ void copy_too_far(const float *x, int at) {
    extern __shared__ float pp_shared[];
    cp_async_16(pp_shared, x + at, 16);
    cp_async_commit();
    cp_async_wait<0>();
}

static __global__ void fragments(const float *x, float *y, int at) {
    extern __shared__ float pp_shared[];
    uint32_t of[4];
    for (int i = 0; i < 4; i++)
        pp_shared[4 * threadIdx.x + static_cast<unsigned>(i)] = x[threadIdx.x];
    __syncthreads();
    ldmatrix_x4(of, pp_shared + 4 * threadIdx.x + at);
    y[threadIdx.x] = static_cast<float>(of[0]);
}

static __global__ void some_skip_barrier(float *y, int n) {
    if (static_cast<int>(threadIdx.x) >= n)
        return;
    __syncthreads();
    y[threadIdx.x] = 1.0f;
}

static __global__ void two_barriers(float *y) {
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncthreads();
    y[threadIdx.x] = 1.0f;
}

static __global__ void barrier_or_shuffle(int *y) {
    int v = 0;
    if (threadIdx.x < 16)
        __syncthreads();
    else
        v = __shfl_xor_sync(0xffffffffu, 1, 1);
    y[threadIdx.x] = v;
}

static __global__ void wrong_mask(int *y) {
    int v = 0;
    if (threadIdx.x < 16)
        v = __shfl_sync(0x0000ff00u, 1, 8);
    y[threadIdx.x] = v;
}

static __global__ void mixed_operations(int *y) {
    int v;
    if (threadIdx.x < 16)
        v = __shfl_xor_sync(0xffffffffu, 1, 1);
    else
        v = __any_sync(0xffffffffu, 1);
    y[threadIdx.x] = v;
}

static __global__ void absent_lane(int *y)
{
    y[threadIdx.x] = __shfl_down_sync(0xffffffffu, static_cast<int>(threadIdx.x), 8);
}

static __global__ void no_barrier(float *y) {
    __shared__ float s[64];
    s[threadIdx.x] = static_cast<float>(threadIdx.x);
    y[threadIdx.x] = s[(threadIdx.x + 63) % 64];
}

static __global__ void late_write(float *y) {
    __shared__ float s[64];
    s[threadIdx.x] = static_cast<float>(threadIdx.x);
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
    s[threadIdx.x] = 0.0f;
}

/* A shuffle orders nothing. */
static __global__ void no_syncwarp(int *y) {
    __shared__ int s[32];
    int i = static_cast<int>(threadIdx.x);
    s[i] = i;
    int v = __shfl_xor_sync(0xffffffffu, i, 1);
    y[i] = s[31 - i] + v;
}

static __global__ void all_write(float *y) { y[0] = static_cast<float>(threadIdx.x); }
/* Even threads read what odd ones write: the other half of a word that both have read. */
static __global__ void from_neighbour(uint16_t *y)
{
    const uint16_t next = y[(threadIdx.x + 1) % blockDim.x];
    if (threadIdx.x % 2 || next == 12345)
        y[threadIdx.x] = next;
}
static __global__ void all_blocks_add(float *y) { y[0] += 1.0f; }
static __global__ void half_atomic(int *y) {
    if (threadIdx.x % 2)
        atomicAdd(y, 1);
    else
        *y = 0;
}

static __global__ void one_more(float *x) { x[threadIdx.x] += 1.0f; }

/* ---- cases ---- */

static void finish(void *p) {
    (void)cudaDeviceSynchronize();
    (void)cudaFree(p);
    (void)cudaGetLastError();
}

static float *floats(size_t n) { return device(std::vector<float>(n, 1.0f)); }

#define KERNEL_CASE(name, n, kernel, grid, block, shared, ...)                                     \
    static void name()                                                                             \
    {                                                                                              \
        float *x = floats(n);                                                                      \
        PP_LAUNCH(kernel, grid, block, shared, nullptr, __VA_ARGS__);                              \
        finish(x);                                                                                 \
    }
KERNEL_CASE(read_past_end, 64, shift, 1, 64, 0, x, x, 64)
KERNEL_CASE(write_before, 64, store, 1, 1, 0, x, -2)
KERNEL_CASE(write_far, 64, store, 1, 1, 0, x, 1100)
KERNEL_CASE(write_byte_past, 25, store_byte, 1, 1, 0, reinterpret_cast<unsigned char *>(x), 100)
KERNEL_CASE(misaligned_float4, 64, quad, 1, 1, 0, x + 2, x)
KERNEL_CASE(misaligned_float2, 64, pair, 1, 1, 0, x + 1)
KERNEL_CASE(misaligned_float, 64, store, 1, 1, 0,
            reinterpret_cast<float *>(reinterpret_cast<char *>(x) + 2), 0)
KERNEL_CASE(shared_unset, 32, unset_shared, 1, 32, 0, x)
KERNEL_CASE(shared_index, 64, past_shared, 1, 1, 0, x, 33)
KERNEL_CASE(shared_dynamic, 64, past_dynamic, 1, 64, 60 * sizeof(float), x)
KERNEL_CASE(copy_early, 256, copy_unawaited, 1, 32, 512, x, x + 128)
KERNEL_CASE(copy_alone, 128, copy_unshared, 1, 64, 256, x, x + 64)
KERNEL_CASE(copy_past_end, 64, copy_too_far, 1, 1, 16, x, 64)
KERNEL_CASE(copy_misaligned, 64, copy_too_far, 1, 1, 16, x, 2)
KERNEL_CASE(ldmatrix_misaligned, 64, fragments, 1, 32, 528, x, x + 32, 1)
KERNEL_CASE(ldmatrix_lanes, 64, fragments, 1, 16, 512, x, x + 32, 0)
KERNEL_CASE(barrier_skipped, 64, some_skip_barrier, 1, 64, 0, x, 48)
KERNEL_CASE(barrier_other, 64, two_barriers, 1, 32, 0, x)
KERNEL_CASE(barrier_hang, 64, barrier_or_shuffle, 1, 32, 0, reinterpret_cast<int *>(x))
KERNEL_CASE(mask, 64, wrong_mask, 1, 32, 0, reinterpret_cast<int *>(x))
KERNEL_CASE(warp_mixed, 64, mixed_operations, 1, 32, 0, reinterpret_cast<int *>(x))
KERNEL_CASE(lane_absent, 64, absent_lane, 1, 16, 0, reinterpret_cast<int *>(x))
KERNEL_CASE(race_read, 64, no_barrier, 1, 64, 0, x)
KERNEL_CASE(race_write, 64, late_write, 1, 64, 0, x)
KERNEL_CASE(race_warp, 64, no_syncwarp, 1, 32, 0, reinterpret_cast<int *>(x))
KERNEL_CASE(race_global, 64, all_write, 1, 64, 0, x)
KERNEL_CASE(race_halves, 64, from_neighbour, 1, 64, 0, reinterpret_cast<uint16_t *>(x))
KERNEL_CASE(race_blocks, 64, all_blocks_add, 4, 1, 0, x)
KERNEL_CASE(race_atomic, 64, half_atomic, 1, 32, 0, reinterpret_cast<int *>(x))
KERNEL_CASE(too_many_threads, 64, store, 1, 2048, 0, x, 0)
KERNEL_CASE(empty_grid, 64, store, 0u, 32, 0, x, 0)
KERNEL_CASE(too_much_shared, 64, past_dynamic, 1, 32, 100000, x)

static void device_unset() {
    float *x = device<float>(32), *y = floats(32);
    PP_LAUNCH(shift, 1, 32, 0, nullptr, x, y, 0);
    finish(x);
    finish(y);
}

static void null_pointer() {
    PP_LAUNCH(store, 1, 1, 0, nullptr, static_cast<float *>(nullptr), 3);
    finish(nullptr);
}

static void after_free() {
    float *x = floats(32);
    OK(cudaFree(x));
    PP_LAUNCH(store, 1, 32, 0, nullptr, x, 0);
    finish(nullptr);
}

static void host_pointer() {
    std::vector<float> x(32);
    PP_LAUNCH(store, 1, 32, 0, nullptr, x.data(), 0);
    finish(nullptr);
}

static void host_reads_device() {
    float *x = floats(32);
    printf("%g\n", static_cast<double>(*const_cast<volatile float *>(x)));
}

static void twice_freed() {
    float *x = floats(32);
    OK(cudaFree(x));
    finish(x);
}

static void copy_too_long() {
    std::vector<float> v(100);
    float *x = floats(64);
    (void)cudaMemcpy(x, v.data(), 400, cudaMemcpyHostToDevice);
    finish(x);
}

static void copy_direction() {
    float *x = floats(64), *y = floats(64);
    (void)cudaMemcpy(x, y, 64, cudaMemcpyHostToDevice);
    finish(x);
    finish(y);
}

/* ---- streams ---- */

struct Streams {
    cudaStream_t a, b;
    cudaEvent_t e;
    float *d, *pinned;
};

static Streams begin() {
    Streams s;
    OK(cudaStreamCreateWithFlags(&s.a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&s.b, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&s.e, cudaEventDisableTiming));
    OK(cudaMallocHost(&s.pinned, 256));
    s.d = floats(64);
    for (int i = 0; i < 64; i++)
        s.pinned[i] = 5.0f;
    return s;
}

static void end(Streams s) {
    (void)cudaDeviceSynchronize();
    (void)cudaStreamDestroy(s.a);
    (void)cudaStreamDestroy(s.b);
    (void)cudaEventDestroy(s.e);
    (void)cudaFreeHost(s.pinned);
    (void)cudaFree(s.d);
}

/* The copy's event is recorded, and nobody waits for it. */
static void no_wait_read() {
    Streams s = begin();
    OK(cudaMemcpyAsync(s.d, s.pinned, 256, cudaMemcpyHostToDevice, s.a));
    OK(cudaEventRecord(s.e, s.a));
    PP_LAUNCH(one_more, 1, 64, 0, s.b, s.d);
    end(s);
}

static void no_wait_write() {
    Streams s = begin();
    OK(cudaMemcpyAsync(s.pinned, s.d, 256, cudaMemcpyDeviceToHost, s.a));
    PP_LAUNCH(one_more, 1, 64, 0, s.b, s.d);
    end(s);
}

/* The bytes have left the vector, and are not yet where the other stream reads them. */
static void staged_copy() {
    Streams s = begin();
    cudaStream_t other;
    const std::vector<float> v(64, 1.0f);
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaMemcpy(s.d, v.data(), 256, cudaMemcpyHostToDevice));
    PP_LAUNCH(one_more, 1, 64, 0, other, s.d);
    (void)cudaStreamSynchronize(other);
    (void)cudaStreamDestroy(other);
    end(s);
}

/* The event is recorded before the work it should publish. */
static void early_record() {
    Streams s = begin();
    OK(cudaEventRecord(s.e, s.a));
    PP_LAUNCH(one_more, 1, 64, 0, s.a, s.d);
    OK(cudaStreamWaitEvent(s.b, s.e, 0));
    OK(cudaMemcpyAsync(s.pinned, s.d, 256, cudaMemcpyDeviceToHost, s.b));
    end(s);
}

/* Without any help of the compiler a missing wait shows as old numbers: work that nothing asks for
 * is late. */
static void old_numbers() {
    Streams s = begin();
    PP_LAUNCH(one_more, 1, 64, 0, s.a, s.d);
    OK(cudaMemcpyAsync(s.pinned, s.d, 256, cudaMemcpyDeviceToHost, s.b));
    OK(cudaStreamSynchronize(s.b));
    if (s.pinned[0] == 1.0f)
        fprintf(stderr, "the copy came too early\n");
    end(s);
    exit(97);
}

/* The host fills the pinned buffer again while the copy from it has not been waited for. */
static void pinned_reused() {
    Streams s = begin();
    OK(cudaMemcpyAsync(s.d, s.pinned, 256, cudaMemcpyHostToDevice, s.a));
    s.pinned[0] = 6.0f;
    OK(cudaStreamSynchronize(s.a));
    if (host(s.d, 1)[0] == 6.0f)
        fprintf(stderr, "the copy took what was written after it\n");
    end(s);
    exit(97);
}

static void dead_stream() {
    Streams s = begin();
    cudaStream_t gone = s.a;
    OK(cudaStreamDestroy(s.a));
    PP_LAUNCH(one_more, 1, 64, 0, gone, s.d);
    (void)cudaGetLastError();
    OK(cudaStreamCreate(&s.a));
    end(s);
}

static void dead_event() {
    Streams s = begin();
    cudaEvent_t gone = s.e;
    OK(cudaEventDestroy(s.e));
    (void)cudaEventRecord(gone, s.a);
    (void)cudaGetLastError();
    OK(cudaEventCreate(&s.e));
    end(s);
}

static void two_devices() {
    setenv("SHIM_DEVICES", "2", 1);
    OK(cudaSetDevice(0));
}

static void launch_elsewhere() {
    two_devices();
    Streams s = begin();
    OK(cudaSetDevice(1));
    PP_LAUNCH(one_more, 1, 64, 0, s.a, s.d);
    (void)cudaGetLastError();
    end(s);
}

static void event_elsewhere() {
    two_devices();
    Streams s = begin();
    cudaEvent_t e;
    OK(cudaSetDevice(1));
    OK(cudaEventCreate(&e));
    (void)cudaEventRecord(e, s.a);
    (void)cudaGetLastError();
    OK(cudaEventDestroy(e));
    end(s);
}

static void peer_elsewhere() {
    two_devices();
    Streams s = begin();
    (void)cudaMemcpyPeerAsync(s.d, 1, s.d + 32, 0, 128, s.a);
    (void)cudaGetLastError();
    end(s);
}

static void leaks() {
    cublasHandle_t h;
    ncclComm_t comm;
    ncclUniqueId id;
    Streams s = begin();
    (void)s;
    CHECK(PP_BLAS(cublasCreate(&h)));
    CHECK(ncclGetUniqueId(&id) == ncclSuccess && ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
}

/* ---- libraries ---- */

static void gemm(int m, int n, int k, int lda, int ldb, int ldc, size_t size_c) {
    float *a = floats(64), *b = floats(64), *c = floats(size_c), one = 1.0f;
    cublasHandle_t h;
    CHECK(PP_BLAS(cublasCreate(&h)));
    (void)cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, lda, b, ldb, &one, c, ldc);
    (void)cudaDeviceSynchronize();
    (void)cublasDestroy(h);
    finish(a);
    finish(b);
    finish(c);
}

static void gemm_bounds() { gemm(8, 8, 8, 8, 8, 9, 64); }
static void gemm_leading() { gemm(8, 8, 8, 7, 8, 8, 64); }

static void gemm_unset() {
    float *a = floats(64), *c = device<float>(64), one = 1.0f;
    cublasHandle_t h;
    CHECK(PP_BLAS(cublasCreate(&h)));
    (void)cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, a, 8, a, 8, &one, c, 8);
    (void)cudaDeviceSynchronize();
    (void)cublasDestroy(h);
    finish(a);
    finish(c);
}

/* Two products of 4 x 4 by lists that a kernel writes. */
__global__ void list_pair(float **lists, float *a, float *c, int second_b, int second_c) {
    for (int i = 0; i < 2; i++) {
        lists[i] = a;
        lists[2 + i] = a + 16 + i * second_b;
        lists[4 + i] = c + i * second_c;
    }
}

struct Lists {
    float *a, *c, **lists;
    cublasHandle_t h;
    cudaStream_t s, other;
};

static Lists begin_lists() {
    Lists x = {floats(64), floats(64), device<float *>(6), nullptr, nullptr, nullptr};
    OK(cudaStreamCreate(&x.s));
    OK(cudaStreamCreateWithFlags(&x.other, cudaStreamNonBlocking));
    CHECK(PP_BLAS(cublasCreate(&x.h)) && PP_BLAS(cublasSetStream(x.h, x.s)));
    return x;
}

static void multiply(const Lists &x, float *const *lists) {
    const float one = 1.0f;
    (void)cublasSgemmBatched(x.h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, lists, 4, lists + 2, 4,
                             &one, lists + 4, 4, 2);
}

static void end_lists(const Lists &x) {
    (void)cudaDeviceSynchronize();
    (void)cublasDestroy(x.h);
    (void)cudaStreamDestroy(x.s);
    (void)cudaStreamDestroy(x.other);
    finish(x.a);
    finish(x.c);
    if (x.lists)
        (void)cudaFree(x.lists);
}

/* inside: C lies among the operands */
static void list_case(int second_b, int second_c, cublasMath_t mode, bool inside = false) {
    Lists x = begin_lists();
    (void)cublasSetMathMode(x.h, mode);
    PP_LAUNCH(list_pair, 1, 1, 0, x.s, x.lists, x.a, inside ? x.a + 32 : x.c, second_b, second_c);
    multiply(x, x.lists);
    end_lists(x);
}

static void list_operand() { list_case(40, 16, CUBLAS_DEFAULT_MATH); }
static void list_race() { list_case(16, 15, CUBLAS_DEFAULT_MATH); }
static void list_reads_result() { list_case(20, 16, CUBLAS_DEFAULT_MATH, true); }
static void list_align() { list_case(6, 16, CUBLAS_TF32_TENSOR_OP_MATH); }

/* Two handles share a workspace, in streams that nothing orders. */
static void shared_workspace() {
    const float one = 1.0f, zero = 0.0f;
    Lists x = begin_lists();
    float *workspace = device<float>(2048);
    cublasHandle_t second;
    CHECK(PP_BLAS(cublasCreate(&second)) && PP_BLAS(cublasSetStream(second, x.other)));
    for (cublasHandle_t h : {x.h, second}) {
        (void)cublasSetWorkspace(h, workspace, 8192);
        (void)cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, x.a, 4, x.a, 4, &zero,
                          h == second ? x.c + 16 : x.c, 4);
    }
    (void)cublasDestroy(second);
    end_lists(x);
    finish(workspace);
}

static void strided_race() {
    const float one = 1.0f;
    Lists x = begin_lists();
    (void)cublasSgemmStridedBatched(x.h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, x.a, 4, 16, x.a,
                                    4, 0, &one, x.c, 4, 0, 2);
    end_lists(x);
}

static void list_of_host() {
    Lists x = begin_lists();
    float *lists[] = {x.a, x.a, x.a, x.a, x.c, x.c + 16};
    multiply(x, lists);
    end_lists(x);
}

/* cudaFree waits for what was issued before it; this call comes after. */
static void list_freed() {
    Lists x = begin_lists();
    float **gone = x.lists;
    PP_LAUNCH(list_pair, 1, 1, 0, x.s, x.lists, x.a, x.c, 0, 16);
    (void)cudaFree(x.lists);
    x.lists = nullptr;
    multiply(x, gone);
    end_lists(x);
}

static void list_unset() {
    Lists x = begin_lists();
    multiply(x, x.lists);
    end_lists(x);
}

static void list_overwritten() {
    Lists x = begin_lists();
    PP_LAUNCH(list_pair, 1, 1, 0, x.s, x.lists, x.a, x.c, 0, 16);
    multiply(x, x.lists);
    PP_LAUNCH(list_pair, 1, 1, 0, x.other, x.lists, x.a, x.c, 0, 16);
    end_lists(x);
}

static void two_ranks(void (*body)(int rank, ncclComm_t comm, cudaStream_t s, float *x)) {
    ncclUniqueId id;
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    two_devices();
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    auto rank = [id, body](int r) {
        ncclComm_t comm;
        cudaStream_t s;
        OK(cudaSetDevice(r));
        float *x = floats(64);
        CHECK(ncclCommInitRank(&comm, 2, id, r) == ncclSuccess);
        OK(cudaStreamCreate(&s));
        body(r, comm, s, x);
        (void)cudaStreamSynchronize(s);
        (void)ncclCommDestroy(comm);
        (void)cudaStreamDestroy(s);
        (void)cudaFree(x);
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
}

/* Both send first. */
static void nccl_circle() {
    two_ranks([](int r, ncclComm_t comm, cudaStream_t s, float *x) {
        (void)ncclSend(x, 32, ncclFloat, 1 - r, comm, s);
        (void)ncclRecv(x + 32, 32, ncclFloat, 1 - r, comm, s);
    });
}

static void nccl_counts() {
    two_ranks([](int r, ncclComm_t comm, cudaStream_t s, float *x) {
        if (r == 0)
            (void)ncclSend(x, 32, ncclFloat, 1, comm, s);
        else
            (void)ncclRecv(x, 16, ncclFloat, 0, comm, s);
    });
}

static void nccl_stream() {
    two_ranks([](int r, ncclComm_t comm, cudaStream_t, float *x) {
        cudaStream_t s;
        OK(cudaSetDevice(1 - r));
        OK(cudaStreamCreate(&s));
        (void)ncclSend(x, 32, ncclFloat, 1 - r, comm, s);
        (void)cudaStreamDestroy(s);
        OK(cudaSetDevice(r));
    });
}

static void nccl_loading() {
    setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    two_ranks([](int, ncclComm_t, cudaStream_t, float *) {});
}

/* Three communicators that nothing limits: their kernels may fill the device. */
static void nccl_room() {
    ncclComm_t comm[3];
    ncclUniqueId id;
    for (ncclComm_t &c : comm)
        CHECK(ncclGetUniqueId(&id) == ncclSuccess && ncclCommInitRank(&c, 1, id, 0) == ncclSuccess);
    for (ncclComm_t c : comm)
        (void)ncclCommDestroy(c);
}

/* Two ranks on one device: both are refused, and that is no report of the shim. */
static void nccl_duplicate() {
    ncclUniqueId id;
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    ncclResult_t e[2];
    ncclComm_t comm[2];
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    std::thread other([&] { e[1] = ncclCommInitRank(&comm[1], 2, id, 1); });
    e[0] = ncclCommInitRank(&comm[0], 2, id, 0);
    other.join();
    fprintf(stderr, "%s, %s\n", ncclGetErrorString(e[0]), ncclGetErrorString(e[1]));
    exit(97);
}

struct Bad { Case c; const char *says; bool plain; };
#define BAD(name, plain, says) {{#name, name}, says, plain}
static const Bad bad[] = {
    BAD(read_past_end, false,
        "out of bounds: kernel shift block (0,0,0) thread (0,0,0): reads 4 bytes at 0x*: 0 bytes "
        "past the end of allocation 1 (256 bytes) at bad.cu:*"),
    BAD(write_before, false,
        "out of bounds: kernel store block (0,0,0) thread (0,0,0): writes 4 bytes at 0x*: 8 bytes "
        "before allocation 1 (256 bytes)*"),
    BAD(write_far, true,
        "*: kernel store block (0,0,0) thread (0,0,0): *4144 bytes past the end of allocation 1 *"),
    BAD(write_byte_past, true,
        "out of bounds: * 0 bytes past the end of allocation 1 (100 bytes)*"),
    BAD(misaligned_float4, false,
        "misaligned: kernel quad block (0,0,0) thread (0,0,0): address 0x* is no multiple of 16: "
        "byte 8 of allocation 1 * at bad.cu:*"),
    BAD(misaligned_float2, false, "misaligned: kernel pair *"),
    BAD(misaligned_float, false, "misaligned: kernel store *: address 0x* is no multiple of 4: *"),
    BAD(shared_unset, false,
        "read before written: kernel unset_shared block (0,0,0) thread (31,0,0): reads 4 bytes at "
        "0x*: byte 124 of shared s*"),
    BAD(shared_index, false,
        "out of bounds: kernel past_shared block (0,0,0) thread (0,0,0): index 32 of an array at "
        "bad.cu:*"),
    BAD(shared_dynamic, false,
        "out of bounds: kernel past_dynamic block (0,0,0) thread (60,0,0): writes 4 bytes at 0x*: "
        "byte 240 of shared pp_shared*"),
    BAD(copy_early, false,
        "read before written: kernel copy_unawaited * byte 0 of shared pp_shared*"),
    BAD(copy_alone, false, "race: kernel copy_unshared *of shared pp_shared*"),
    BAD(copy_past_end, false, "out of bounds: kernel copy_too_far *reads 16 bytes*"),
    BAD(copy_misaligned, true,
        "misaligned: kernel copy_too_far * cp.async at 0x*, which is no multiple of 16 *"),
    BAD(ldmatrix_misaligned, true,
        "misaligned: kernel fragments * ldmatrix at 0x*, which is no multiple of 16 *"),
    BAD(ldmatrix_lanes, true, "warp divergence: kernel fragments * all 32 lanes*"),
    BAD(barrier_skipped, true,
        "barrier divergence: kernel some_skip_barrier block (0,0,0) thread (0,0,0) waits at the "
        "__syncthreads of line *, which thread (48,0,0) never reaches"),
    BAD(barrier_other, true, "barrier divergence: kernel two_barriers *"),
    BAD(barrier_hang, true, "barrier divergence: kernel barrier_or_shuffle * the kernel hangs"),
    BAD(mask, true,
        "warp mask: kernel wrong_mask block (0,0,0) thread (0,0,0): its mask 0000ff00 does not "
        "name itself*"),
    BAD(warp_mixed, true,
        "warp divergence: kernel mixed_operations *: lanes of one mask ffffffff wait at different "
        "warp operations *"),
    BAD(lane_absent, true,
        "undefined shuffle: kernel absent_lane block (0,0,0) thread (8,0,0) reads lane 16, which "
        "takes no part*"),
    BAD(race_read, false,
        "race: kernel no_barrier block (0,0,0) thread (*,0,0): reads byte * of shared s, which "
        "thread (*,0,0) has written, without a barrier between at bad.cu:*"),
    BAD(race_write, false,
        "race: kernel late_write *: writes byte * of shared s, which thread (*) has read, *"),
    BAD(race_warp, false, "race: kernel no_syncwarp *: reads byte * of shared s, which *"),
    BAD(race_global, false,
        "race: kernel all_write block (0,0,0) thread (1,0,0): writes byte 0 of allocation 1 (256 "
        "bytes), which thread (0,0,0) has written*"),
    BAD(race_halves, false, "race: kernel from_neighbour *: * byte * of allocation 1 (256 *"),
    BAD(race_blocks, false,
        "race between blocks: kernel all_blocks_add block (1,0,0) *s byte 0 of allocation 1 (256 "
        "bytes), which another block has written*"),
    BAD(race_atomic, false, "race: kernel half_atomic *"),
    BAD(too_many_threads, true,
        "launch: kernel store grid (1,1,1) block (2048,1,1) shared 0: a block has 1 to 1024 "
        "threads"),
    BAD(empty_grid, true, "launch: kernel store grid (0,1,1) *"),
    BAD(too_much_shared, true, "launch: kernel past_dynamic * shared 100000: *"),
    BAD(device_unset, false,
        "read before written: kernel shift block (0,0,0) thread (0,0,0): reads 4 bytes at 0x*: "
        "byte 0 of allocation 1 *"),
    BAD(null_pointer, true,
        "illegal address: kernel store block (0,0,0) thread (0,0,0): * a null pointer*"),
    BAD(after_free, true,
        "*: kernel store block (0,0,0) thread (0,0,0): *of allocation 1 (128 bytes, freed)*"),
    BAD(host_pointer, false,
        "illegal address: kernel store block (0,0,0) thread (0,0,0): writes 4 bytes at 0x*: no "
        "memory of the device*"),
    BAD(host_reads_device, true,
        "host code touches device memory: 0x*: byte 0 of allocation 1 (128 bytes) at bad.cu:*"),
    BAD(twice_freed, true,
        "free: 0x* is not what cudaMalloc returned: byte 0 of allocation 1 (128 bytes, freed)"),
    BAD(copy_too_long, true,
        "out of bounds: cudaMemcpy of 400 bytes to 0x*: 144 bytes past the end of allocation 1 "
        "(256 bytes)"),
    BAD(copy_direction, true,
        "copy direction: cudaMemcpy to 0x* (device) from 0x* (device) with kind 1"),
    BAD(no_wait_read, false,
        "missing wait: * byte 0 of allocation 2 (256 bytes), which * no event or synchronisation "
        "orders them*"),
    BAD(no_wait_write, false,
        "missing wait: * byte 0 of allocation 2 (256 bytes), which * no event or synchronisation "
        "orders them*"),
    BAD(staged_copy, false,
        "missing wait: * byte 0 of allocation 2 (256 bytes), which * no event or synchronisation "
        "orders them*"),
    BAD(early_record, false,
        "missing wait: * byte 0 of allocation 2 (256 bytes), which * no event or synchronisation "
        "orders them*"),
    BAD(old_numbers, true, "the copy came too early"),
    BAD(pinned_reused, true, "the copy took what was written after it"),
    BAD(dead_stream, true, "stream: 0x* is no stream, or one that was destroyed"),
    BAD(dead_event, true, "event: 0x* is no event, or one that was destroyed"),
    BAD(launch_elsewhere, true, "device: one_more for device 1 in a stream of device 0"),
    BAD(event_elsewhere, true, "device: cudaEventRecord for device 1 in a stream of device 0"),
    BAD(peer_elsewhere, true,
        "device: cudaMemcpyPeerAsync to device 1 of memory of device 0, from device 0 of memory of "
        "device 0"),
    BAD(leaks, true,
        "leak: stream 1 is never destroyed*leak: stream 2 *leak: event 1 *leak: pinned allocation "
        "1 (256 bytes) is never freed*leak: allocation 2 (256 bytes) *leak: cuBLAS handle 1 *leak: "
        "NCCL communicator 1 *"),
    BAD(gemm_bounds, true,
        "out of bounds: cublasSgemm: a matrix of 8 x 8, leading dimension 9, at 0x*: * past the "
        "end of allocation 3 (256 bytes)"),
    BAD(gemm_leading, true, "cuBLAS: cublasSgemm: m 8 n 8 k 8 lda 7 ldb 8 ldc 8 are no product"),
    BAD(gemm_unset, false,
        "read before written: cublasSgemm: reads * bytes at 0x*: byte 0 of allocation 2 (256 "
        "bytes)*"),
    BAD(list_operand, true,
        "out of bounds: cublasSgemmBatched: a matrix of 4 x 4, leading dimension 4, at 0x*: * past "
        "the end of allocation 1 (256 bytes)"),
    BAD(list_race, true,
        "race: cublasSgemmBatched: product 0 of the batch writes byte 60 of allocation 2 (256 "
        "bytes), which product 1 writes too"),
    BAD(list_reads_result, true,
        "race: cublasSgemmBatched: product 0 of the batch writes byte 144 of allocation 1 (256 "
        "bytes), which product 1 reads"),
    BAD(list_align, true,
        "misaligned: cublasSgemmBatched: operands 0x* 0x* 0x* of product 1 are no multiples of 16"),
    BAD(shared_workspace, false,
        "missing wait: cublasSgemm * byte 0 of allocation 4 (8192 bytes), which cublasSgemm * no "
        "event or synchronisation orders them*"),
    BAD(strided_race, true,
        "race: cublasSgemmStridedBatched: product 0 of the batch writes byte 0 of allocation 2 "
        "(256 bytes), which product 1 writes too"),
    BAD(list_of_host, true,
        "cuBLAS: cublasSgemmBatched: the list of 2 pointers to A at 0x* is not in device memory: "
        "no memory of the device"),
    BAD(list_freed, true,
        "cuBLAS: cublasSgemmBatched: the list of 2 pointers to A at 0x* is not in device memory: "
        "byte 0 of allocation 3 (48 bytes, freed)"),
    BAD(list_unset, false,
        "read before written: cublasSgemmBatched: reads * bytes at 0x*: byte 0 of allocation 3 (48 "
        "bytes)*"),
    BAD(list_overwritten, false,
        "missing wait: * byte 0 of allocation 3 (48 bytes), which * no event or synchronisation "
        "orders them*"),
    BAD(nccl_circle, true, "deadlock: NCCL waits for itself through other streams"),
    BAD(nccl_counts, true, "NCCL: rank * names * elements of type 7, rank * of type 7"),
    BAD(nccl_stream, true, "NCCL: ncclSend by a communicator of device * in a stream of device *"),
    BAD(nccl_loading, true, "NCCL: kernels are loaded when they are first launched*"),
    BAD(nccl_room, true,
        "NCCL: communicators of device 0 may hold 128 blocks while they wait: a device of 108 "
        "multiprocessors is full"),
    BAD(nccl_duplicate, true, "invalid usage, invalid usage"),
};

int main(int argc, char **argv) {
    for (const Bad &b : bad) {
        if (argc < 2)
            printf("%s %s %s\n", b.c.name, b.plain ? "plain" : "checked", b.says);
        else if (strcmp(argv[1], b.c.name) == 0) {
            b.c.run();
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
