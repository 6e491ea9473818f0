/*
 * good.cu - programs that are right: they end with 0, with the numbers the host computes, and
 * without a finding.
 */
#include "cases.h"
#include "runtime/device/cuda/mma.h"

#include <nccl.h>
#include <thread>

/* ---- kernels ---- */

static __global__ void __launch_bounds__(256)
    scale4(const float *__restrict__ x, float *__restrict__ y, float a, int n)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    for (; i < n / 4; i += static_cast<int>(gridDim.x * blockDim.x)) {
        float4 v = reinterpret_cast<const float4 *>(x)[i];
        reinterpret_cast<float4 *>(y)[i] = make_float4(a * v.x, a * v.y, a * v.z, a * v.w);
    }
}

static __device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

/* One block a row: sum of its elements, through shuffles and shared memory. */
static __global__ void row_sum(const float *__restrict__ x, float *__restrict__ y, int columns) {
    __shared__ float part[32];
    int lane = static_cast<int>(threadIdx.x) % warpSize,
        warp = static_cast<int>(threadIdx.x) / warpSize;
    float s = 0;
    for (int j = static_cast<int>(threadIdx.x); j < columns; j += static_cast<int>(blockDim.x))
        s += x[static_cast<int>(blockIdx.x) * columns + j];
    s = warp_sum(s);
    if (lane == 0)
        part[warp] = s;
    __syncthreads();
    if (warp == 0) {
        s = lane < static_cast<int>(blockDim.x) / warpSize ? part[lane] : 0.0f;
        s = warp_sum(s);
        if (lane == 0)
            y[blockIdx.x] = s;
    }
}

static __global__ void transpose(const float *__restrict__ x, float *__restrict__ y, int rows,
                                 int columns)
{
    __shared__ float tile[32][33];
    int c = static_cast<int>(blockIdx.x * 32 + threadIdx.x), r0 = static_cast<int>(blockIdx.y * 32);
    for (int r = static_cast<int>(threadIdx.y); r < 32; r += static_cast<int>(blockDim.y))
        if (r0 + r < rows && c < columns)
            tile[r][threadIdx.x] = x[(r0 + r) * columns + c];
    __syncthreads();
    int r = r0 + static_cast<int>(threadIdx.x), c0 = static_cast<int>(blockIdx.x * 32);
    for (int j = static_cast<int>(threadIdx.y); j < 32; j += static_cast<int>(blockDim.y))
        if (c0 + j < columns && r < rows)
            y[(c0 + j) * rows + r] = tile[threadIdx.x][j];
}

static __global__ void reverse_dynamic(float *x, int n) {
    extern __shared__ float pp_shared[];
    int i = static_cast<int>(threadIdx.x);
    pp_shared[i] = x[i];
    __syncthreads();
    x[i] = pp_shared[n - 1 - i];
}

/* A tree in shared memory, the last warp's steps ordered by __syncwarp alone. */
static __global__ void tree(const int *x, int *y) {
    __shared__ int s[64];
    int i = static_cast<int>(threadIdx.x);
    s[i] = x[i];
    __syncthreads();
    if (i < 32)
        for (int o = 32; o > 0; o >>= 1) {
            int v = i < o ? s[i + o] : 0;
            __syncwarp();
            if (i < o)
                s[i] += v;
            __syncwarp();
        }
    if (i == 0)
        *y = s[0];
}

static __global__ void histogram(const int *x, int n, int *count, float *sum, double *wide,
                                 unsigned long long *total)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        atomicAdd(&count[x[i]], 1);
        atomicAdd(sum, 1.0f);
        atomicAdd(wide, 0.5);
        atomicAdd(total, 2ull);
    }
}

static __global__ void votes(int *y) {
    int i = static_cast<int>(threadIdx.x);
    unsigned odd = __ballot_sync(0xffffffffu, i % 2);
    int any = __any_sync(0xffffffffu, i == 33), all = __all_sync(0xffffffffu, i < 64);
    int left = __shfl_up_sync(0xffffffffu, i, 1), right = __shfl_down_sync(0xffffffffu, i, 1, 16);
    int first = __shfl_sync(0xffffffffu, i, 0, 8);
    y[i * 4] = static_cast<int>(odd);
    y[i * 4 + 1] = any * 10 + all;
    y[i * 4 + 2] = left * 1000 + right;
    y[i * 4 + 3] = first + __syncthreads_count(i < 40) * 100;
}

static __global__ void bytes(const unsigned char *x, unsigned char *y, int n) {
    int i = static_cast<int>(threadIdx.x);
    if (i < n)
        y[i] = !x[i];
}

static __constant__ const float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
template <class T> static __global__ void add_table(T *x, T v)
{
    x[threadIdx.x] += v + static_cast<T>(table[threadIdx.x % 4]);
}

/* Two threads' elements in each word, read and written in place. */
static __global__ void twice(uint16_t *x)
{
    x[threadIdx.x] = static_cast<uint16_t>(2 * x[threadIdx.x]);
}

static __global__ void add_one(float *x, int n) {
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        x[i] += 1.0f;
}

static __global__ void some_leave(int *y) {
    if (threadIdx.x >= 40)
        return;
    int v = __shfl_sync(__activemask(), static_cast<int>(threadIdx.x), 0);
    y[threadIdx.x] = v;
}

/* ---- cases ---- */

static void elementwise() {
    std::vector<float> x = ramp(4096);
    float *d = device(x), *y = device<float>(4096);
    PP_LAUNCH(scale4, 4, 256, 0, nullptr, d, y, 3.0f, 4096);
    std::vector<float> got = host(y, 4096);
    for (size_t i = 0; i < x.size(); i++)
        CHECK(got[i] == 3.0f * x[i]);
    uint16_t *z = device(std::vector<uint16_t>(64, 21));
    PP_LAUNCH(twice, 1, 64, 0, nullptr, z);
    CHECK(host(z, 64) == std::vector<uint16_t>(64, 42));
    CHECK(!pp_cuda_error()[0]);
    OK(cudaFree(d));
    OK(cudaFree(y));
    OK(cudaFree(z));
}

static void reductions() {
    const int rows = 50, columns = 300;
    std::vector<float> x = ramp(rows * columns);
    float *d = device(x), *y = device<float>(rows);
    PP_LAUNCH(row_sum, rows, 128, 0, nullptr, d, y, static_cast<int>(columns));
    std::vector<float> got = host(y, rows);
    for (int r = 0; r < rows; r++) {
        double want = 0;
        for (int c = 0; c < columns; c++)
            want += static_cast<double>(x[static_cast<size_t>(r * columns + c)]);
        CHECK(std::fabs(static_cast<double>(got[static_cast<size_t>(r)]) - want) < 1e-3);
    }
    OK(cudaFree(d));
    OK(cudaFree(y));
}

static void tiles() {
    const int rows = 45, columns = 70;
    std::vector<float> x = ramp(rows * columns);
    float *d = device(x), *y = device<float>(rows * columns);
    PP_LAUNCH(transpose, dim3(3, 2), dim3(32, 8), 0, nullptr, d, y, rows, columns);
    std::vector<float> got = host(y, rows * columns);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            CHECK(got[static_cast<size_t>(c * rows + r)] ==
                  x[static_cast<size_t>(r * columns + c)]);
    OK(cudaFree(d));
    OK(cudaFree(y));
}

static void dynamic_shared() {
    std::vector<float> x = ramp(200);
    float *d = device(x);
    PP_LAUNCH(reverse_dynamic, 1, 200, 200 * sizeof(float), nullptr, d, 200);
    std::vector<float> got = host(d, 200);
    for (size_t i = 0; i < 200; i++)
        CHECK(got[i] == x[199 - i]);
    OK(cudaFree(d));
}

static void warp_tree() {
    std::vector<int> x(64);
    for (int i = 0; i < 64; i++)
        x[static_cast<size_t>(i)] = i * i;
    int *d = device(x), *y = device<int>(1);
    PP_LAUNCH(tree, 1, 64, 0, nullptr, d, y);
    CHECK(host(y, 1)[0] == 85344);
    OK(cudaFree(d));
    OK(cudaFree(y));
}

static void atomics() {
    std::vector<int> x(1000), zero(10, 0);
    for (int i = 0; i < 1000; i++)
        x[static_cast<size_t>(i)] = i % 10;
    int *d = device(x), *count = device(zero);
    float *sum = device(std::vector<float>(1, 0.0f));
    double *wide = device(std::vector<double>(1, 0.0));
    unsigned long long *total = device(std::vector<unsigned long long>(1, 0));
    PP_LAUNCH(histogram, 8, 128, 0, nullptr, d, 1000, count, sum, wide, total);
    for (int c : host(count, 10))
        CHECK(c == 100);
    CHECK(host(sum, 1)[0] == 1000.0f && host(wide, 1)[0] == 500.0 && host(total, 1)[0] == 2000);
    void *all[] = {d, count, sum, wide, total};
    for (void *p : all)
        OK(cudaFree(p));
}

static void warp_operations() {
    int *d = device<int>(256);
    PP_LAUNCH(votes, 1, 64, 0, nullptr, d);
    std::vector<int> y = host(d, 256);
    for (int i = 0; i < 64; i++) {
        const int *v = &y[static_cast<size_t>(i * 4)];
        int lane = i % 32;
        CHECK(static_cast<unsigned>(v[0]) == 0xaaaaaaaau);
        CHECK(v[1] == (i >= 32 ? 11 : 1));
        CHECK(v[2] == (lane ? i - 1 : i) * 1000 + (lane % 16 == 15 ? i : i + 1));
        CHECK(v[3] == i - i % 8 + 4000);
    }
    OK(cudaFree(d));
}

/* c = a b of 16 x 16, b as it stands and turned: copied asynchronously, 16 bytes a lane. */
template <int TYPE>
static __global__ void product(const uint16_t *a, const uint16_t *b, float *c, int turned)
{
    extern __shared__ float pp_shared[];
    uint16_t *s = reinterpret_cast<uint16_t *>(pp_shared);
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    cp_async_16(s + 8 * lane, a + 8 * lane, 16);
    cp_async_commit();
    cp_async_16(s + 256 + 8 * lane, b + 8 * lane, 16);
    cp_async_commit();
    cp_async_wait<1>(); /* for a; b is still under way */
    __syncthreads();
    uint32_t x[4], y[4];
    ldmatrix_x4(x, s + lane % 16 * 16 + lane / 16 * 8);
    cp_async_wait<0>();
    __syncthreads();
    if (turned)
        ldmatrix_x4(y, s + 256 + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
    else
        ldmatrix_x4_trans(y, s + 256 + lane % 16 * 16 + lane / 16 * 8);
    for (int half = 0; half < 2; half++) {
        float sum[4] = {1, 1, 1, 1};
        mma_16816<TYPE>(sum, x, y[2 * half], y[2 * half + 1]);
        for (int i = 0; i < 4; i++)
            c[(g + i / 2 * 8) * 16 + half * 8 + t * 2 + i % 2] = sum[i];
    }
}

template <int TYPE> static void product_of(bool turned)
{
    const auto bits = [](float x) { return TYPE == PP_BF16 ? pp_to_bf16(x) : pp_to_f16(x); };
    std::vector<uint16_t> a(256), b(256);
    const auto x = [](int i, int j) { return static_cast<float>((i * 7 + j * 3) % 11 - 5); };
    const auto y = [](int i, int j) { return static_cast<float>((i * 5 + j * 2) % 13 - 6); };
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            a[static_cast<size_t>(16 * i + j)] = bits(x(i, j));
            b[static_cast<size_t>(turned ? 16 * j + i : 16 * i + j)] = bits(y(i, j));
        }
    uint16_t *da = device(a), *db = device(b);
    float *dc = device<float>(256);
    PP_LAUNCH(product<TYPE>, 1, 32, 1024, nullptr, da, db, dc, turned);
    const std::vector<float> c = host(dc, 256);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float sum = 1;
            for (int k = 0; k < 16; k++)
                sum += x(i, k) * y(k, j);
            CHECK(c[static_cast<size_t>(16 * i + j)] == sum);
        }
    OK(cudaFree(da));
    OK(cudaFree(db));
    OK(cudaFree(dc));
}

static void tensor_cores()
{
    for (bool turned : {false, true}) {
        product_of<PP_BF16>(turned);
        product_of<PP_F16>(turned);
    }
}

static void leavers() {
    int *d = device(std::vector<int>(64, -1));
    PP_LAUNCH(some_leave, 1, 64, 0, nullptr, d);
    std::vector<int> y = host(d, 64);
    for (int i = 0; i < 64; i++)
        CHECK(y[static_cast<size_t>(i)] == (i < 32 ? 0 : i < 40 ? 32 : -1));
    OK(cudaFree(d));
}

static void masks() {
    std::vector<unsigned char> x(13);
    for (size_t i = 0; i < 13; i++)
        x[i] = i % 3 == 0;
    unsigned char *d = device(x), *y = device<unsigned char>(13);
    PP_LAUNCH(bytes, 1, 32, 0, nullptr, d, y, 13);
    std::vector<unsigned char> got = host(y, 13);
    for (size_t i = 0; i < 13; i++)
        CHECK(got[i] == (i % 3 != 0));
    OK(cudaFree(d));
    OK(cudaFree(y));
}

static void templates() {
    double *d = device(std::vector<double>(8, 1.0));
    PP_LAUNCH(add_table<double>, 1, 8, 0, nullptr, d, 0.5);
    std::vector<double> got = host(d, 8);
    for (size_t i = 0; i < 8; i++)
        CHECK(got[i] == 2.5 + static_cast<double>(i % 4));
    OK(cudaFree(d));
}

/* Two streams and pinned memory, each step published by an event: right in every order. */
static void events() {
    const size_t n = 3000;
    cudaStream_t up, work, down;
    cudaEvent_t here, ready, start;
    float *pinned, *back, *d = device<float>(n);
    OK(cudaStreamCreateWithFlags(&up, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&down, cudaStreamNonBlocking));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&here));
    OK(cudaEventCreate(&ready));
    OK(cudaMallocHost(&pinned, n * sizeof(float)));
    OK(cudaMallocHost(&back, n * sizeof(float)));
    for (int step = 0; step < 5; step++) {
        OK(cudaEventSynchronize(here));                 /* the pinned buffer may be filled again */
        for (size_t i = 0; i < n; i++)
            pinned[i] = static_cast<float>(i) + static_cast<float>(step);
        OK(cudaStreamWaitEvent(up, ready, 0));          /* the copy down of the last step is over */
        OK(cudaEventRecord(start, up));
        OK(cudaMemcpyAsync(d, pinned, n * sizeof(float), cudaMemcpyHostToDevice, up));
        OK(cudaEventRecord(here, up));
        OK(cudaStreamWaitEvent(work, here, 0));
        PP_LAUNCH(add_one, 24, 128, 0, work, d, static_cast<int>(n));
        OK(cudaEventRecord(ready, work));
        OK(cudaStreamWaitEvent(down, ready, 0));
        OK(cudaMemcpyAsync(back, d, n * sizeof(float), cudaMemcpyDeviceToHost, down));
        OK(cudaEventRecord(ready, down));
        while (cudaEventQuery(ready) == cudaErrorNotReady &&
               cudaGetLastError() == cudaErrorNotReady)
            ;
        for (size_t i = 0; i < n; i++)
            CHECK(back[i] == static_cast<float>(i) + static_cast<float>(step) + 1.0f);
        float ms = -1;
        OK(cudaEventElapsedTime(&ms, start, ready));
        CHECK(ms >= 0);
    }
    (void)cudaGetLastError();
    OK(cudaStreamDestroy(up));
    OK(cudaStreamDestroy(work));
    OK(cudaStreamDestroy(down));
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(here));
    OK(cudaEventDestroy(ready));
    OK(cudaFreeHost(pinned));
    OK(cudaFreeHost(back));
    OK(cudaFree(d));
}

/* Streams that have nothing to do with each other run one kernel: shared memory is each launch's
 * own. */
static void streams_apart() {
    const unsigned rows = 3, columns = 100;
    std::vector<float> x = ramp(rows * columns);
    cudaStream_t s[2];
    float *d[2], *y[2];
    for (int i = 0; i < 2; i++) {
        d[i] = device(x);
        y[i] = device<float>(rows);
        OK(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
        PP_LAUNCH(row_sum, rows, 64, 0, s[i], d[i], y[i], static_cast<int>(columns));
    }
    for (int i = 0; i < 2; i++)
        OK(cudaStreamSynchronize(s[i]));
    std::vector<float> a = host(y[0], rows), b = host(y[1], rows);
    CHECK(a == b);
    for (int i = 0; i < 2; i++) {
        OK(cudaStreamDestroy(s[i]));
        OK(cudaFree(d[i]));
        OK(cudaFree(y[i]));
    }
}

/* The default stream and ordinary streams wait for each other. */
static void default_stream() {
    cudaStream_t s;
    float *d = device(std::vector<float>(100, 1.0f));
    OK(cudaStreamCreate(&s));
    PP_LAUNCH(add_one, 1, 128, 0, s, d, 100);
    PP_LAUNCH(add_one, 1, 128, 0, nullptr, d, 100);
    PP_LAUNCH(add_one, 1, 128, 0, s, d, 100);
    for (float v : host(d, 100))
        CHECK(v == 4.0f);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(d));
}

__global__ void list_two(double **lists, double *a, double *b, double *c) {
    for (int i = 0; i < 2; i++) {
        lists[i] = a + 4 * i;
        lists[2 + i] = b + 4 * i;
        lists[4 + i] = c + 4 - 4 * i;
    }
}

/* Row-major C = A B^T, and batches of column-major products. */
static void products() {
    const int m = 37, n = 21, k = 53;
    std::vector<float> a = ramp(m * k), b = ramp(n * k);
    float *da = device(a), *db = device(b), *dc = device<float>(m * n);
    cublasHandle_t h;
    cudaStream_t s;
    float one = 1.0f, zero = 0.0f;
    OK(cudaStreamCreate(&s));
    CHECK(PP_BLAS(cublasCreate(&h)));
    CHECK(PP_BLAS(cublasSetStream(h, s)));
    CHECK(PP_BLAS(cublasSetMathMode(h, CUBLAS_DEFAULT_MATH)));
    CHECK(PP_BLAS(
        cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, db, k, da, k, &zero, dc, n)));
    OK(cudaStreamSynchronize(s));
    std::vector<float> c = host(dc, m * n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double want = 0;
            for (int p = 0; p < k; p++)
                want += static_cast<double>(a[static_cast<size_t>(i * k + p)]) *
                        static_cast<double>(b[static_cast<size_t>(j * k + p)]);
            CHECK(std::fabs(static_cast<double>(c[static_cast<size_t>(i * n + j)]) - want) < 1e-2);
        }
    double wide[] = {1, 2, 3, 4, 5, 6, 7, 8}, right[] = {1, 0, 0, 1, 2, 0, 0, 2}, two = 2,
           half = 0.5;
    double *dw = device(std::vector<double>(wide, wide + 8)),
           *dr = device(std::vector<double>(right, right + 8));
    double *dd = device(std::vector<double>(8, 10.0));
    CHECK(PP_BLAS(cublasDgemmStridedBatched(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &two, dw, 2, 4,
                                            dr, 2, 4, &half, dd, 2, 4, 2)));
    OK(cudaStreamSynchronize(s));
    std::vector<double> d = host(dd, 8);
    for (int i = 0; i < 8; i++)
        CHECK(d[static_cast<size_t>(i)] == 5.0 + wide[i] * (i < 4 ? 2 : 4));
    /* the same two by lists, the second's result first; a kernel writes the lists after the call
     * before has been issued */
    double **lists = device<double *>(6);
    PP_LAUNCH(list_two, 1, 1, 0, s, lists, dw, dr, dd);
    CHECK(PP_BLAS(cublasDgemmBatched(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &two, lists, 2,
                                     lists + 2, 2, &half, lists + 4, 2, 2)));
    PP_LAUNCH(list_two, 1, 1, 0, s, lists, dr, dw, dd);
    OK(cudaStreamSynchronize(s));
    std::vector<double> e = host(dd, 8);
    for (size_t i = 0; i < 8; i++)
        CHECK(e[i] == d[i] / 2 + wide[i < 4 ? i + 4 : i - 4] * (i < 4 ? 4 : 2));
    CHECK(PP_BLAS(cublasDestroy(h)));
    OK(cudaStreamDestroy(s));
    void *all[] = {da, db, dc, dw, dr, dd, lists};
    for (void *p : all)
        OK(cudaFree(p));
}

/* Host threads as ranks: each adds one and passes on, then all add up. */
static void ring_rank(int rank, int ranks, ncclUniqueId id, float *result) {
    ncclComm_t comm;
    cudaStream_t s;
    OK(cudaSetDevice(rank));
    float *x = device(std::vector<float>(64, static_cast<float>(rank))), *y = device<float>(64),
          *z = device<float>(64);
    CHECK(ncclCommInitRank(&comm, ranks, id, rank) == ncclSuccess);
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    PP_LAUNCH(add_one, 1, 64, 0, s, x, 64);
    for (int turn = 0; turn < 3; turn++) {
        CHECK(ncclGroupStart() == ncclSuccess);
        CHECK(ncclSend(turn % 2 ? y : x, 64, ncclFloat, (rank + 1) % ranks, comm, s) ==
              ncclSuccess);
        CHECK(ncclRecv(turn % 2 ? x : y, 64, ncclFloat, (rank + ranks - 1) % ranks, comm, s) ==
              ncclSuccess);
        CHECK(ncclGroupEnd() == ncclSuccess);
    }
    CHECK(ncclAllReduce(y, z, 64, ncclFloat, ncclSum, comm, s) == ncclSuccess);
    OK(cudaStreamSynchronize(s));
    *result = host(y, 64)[5] * 1000.0f + host(z, 64)[63];
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaFree(z));
}

static void ranks() {
    const int n = 4;
    setenv("SHIM_DEVICES", "4", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    ncclUniqueId id;
    std::vector<std::thread> threads;
    float result[n];
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    for (int r = 0; r < n; r++)
        threads.emplace_back(ring_rank, r, n, id, &result[r]);
    for (std::thread &t : threads)
        t.join();
    for (int r = 0; r < n; r++)
        CHECK(result[r] == static_cast<float>((r + 1) % n + 1) * 1000.0f + 10.0f);
}

/* A pipeline of two ranks, several microbatches, sends and receives on streams of their own. */
static void stage_rank(int rank, ncclUniqueId id, std::vector<float> *result) {
    enum { N = 32, M = 6 };
    ncclComm_t comm;
    cudaStream_t work, link;
    cudaEvent_t made[M];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = 8;
    OK(cudaSetDevice(rank));
    float *x = device<float>(N * M);
    CHECK(ncclCommInitRankConfig(&comm, 2, id, rank, &config) == ncclSuccess);
    OK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&link, cudaStreamNonBlocking));
    if (rank == 0)
        OK(cudaMemsetAsync(x, 0, N * M * sizeof(float), work));
    for (int m = 0; m < M; m++) {
        OK(cudaEventCreateWithFlags(&made[m], cudaEventDisableTiming));
        if (rank == 0) {
            for (int k = 0; k <= m; k++)
                PP_LAUNCH(add_one, 1, N, 0, work, x + m * N, N);
            OK(cudaEventRecord(made[m], work));
            OK(cudaStreamWaitEvent(link, made[m], 0));
            CHECK(ncclSend(x + m * N, N, ncclFloat, 1, comm, link) == ncclSuccess);
        } else {
            CHECK(ncclRecv(x + m * N, N, ncclFloat, 0, comm, link) == ncclSuccess);
            OK(cudaEventRecord(made[m], link));
            OK(cudaStreamWaitEvent(work, made[m], 0));
            PP_LAUNCH(add_one, 1, N, 0, work, x + m * N, N);
        }
    }
    OK(cudaStreamSynchronize(link));
    OK(cudaStreamSynchronize(work));
    *result = host(x, N * M);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    for (cudaEvent_t e : made)
        OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(work));
    OK(cudaStreamDestroy(link));
    OK(cudaFree(x));
}

static void pipeline() {
    ncclUniqueId id;
    setenv("SHIM_DEVICES", "2", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    std::vector<float> result[2];
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    std::thread other(stage_rank, 1, id, &result[1]);
    stage_rank(0, id, &result[0]);
    other.join();
    for (size_t i = 0; i < result[1].size(); i++)
        CHECK(result[1][i] == static_cast<float>(i / 32) + 2.0f);
}

/* What a machine says about itself; peers. */
static void devices() {
    int n = 0, can = -1;
    cudaDeviceProp p;
    size_t free_bytes, total;
    OK(cudaGetDeviceCount(&n));
    CHECK(n >= 1);
    OK(cudaSetDevice(0));
    OK(cudaGetDeviceProperties(&p, 0));
    CHECK(p.warpSize == 32 && p.multiProcessorCount > 0);
    OK(cudaMemGetInfo(&free_bytes, &total));
    float *d = device<float>(1 << 20);
    size_t less;
    OK(cudaMemGetInfo(&less, &total));
    CHECK(less + (4 << 20) <= free_bytes + 1);
    OK(cudaFree(d));
    OK(cudaDeviceCanAccessPeer(&can, 0, 0));
    CHECK(can == 0);
    CHECK(cudaSetDevice(1000) == cudaErrorInvalidDevice &&
          cudaGetLastError() == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaSuccess);
}

/* Under SHIM_FAIL these fail where it says so, with CUDA's errors, and the program goes on to clean
 * up. */
static void injected() {
    float *a = nullptr, *b = nullptr;
    cublasHandle_t h;
    float one = 1.0f, *d = device(std::vector<float>(4, 1.0f));
    OK(cudaMalloc(&a, 4));
    CHECK(!PP_CUDA(cudaMalloc(&b, 4)));
    CHECK(strncmp(pp_cuda_error(), "cudaMalloc: out of memory (", 27) == 0);
    CHECK(!b && cudaGetLastError() == cudaErrorMemoryAllocation);
    pp_cuda_clear();
    CHECK(PP_BLAS(cublasCreate(&h)));
    CHECK(
        !PP_BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, d, 2, d, 2, &one, d, 2)));
    CHECK(strncmp(pp_cuda_error(), "cublasSgemm: the function failed to launch on the GPU (", 55) ==
          0);
    pp_cuda_clear();
    (void)cudaGetLastError();
    PP_LAUNCH(add_one, 1, 4, 0, nullptr, d, 4);
    CHECK(!pp_cuda_error()[0]);
    /* the kernel itself: sticky */
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    PP_LAUNCH(add_one, 1, 4, 0, nullptr, d, 4);
    CHECK(strncmp(pp_cuda_error(), "add_one: unspecified launch failure (", 37) == 0);
    CHECK(PP_BLAS(cublasDestroy(h)));
    CHECK(cudaFree(a) == cudaSuccess || true);
}

/* How fast: PP_BENCH=1 prints threads a second. */
static void speed() {
    const unsigned rows = getenv("PP_BENCH") ? 4000 : 40, columns = 256;
    std::vector<float> x = ramp(rows * columns);
    float *d = device(x), *y = device<float>(rows * columns);
    for (int kind = 0; kind < 2; kind++) {
        clock_t t = clock();
        if (kind == 0)
            PP_LAUNCH(row_sum, rows, 256, 0, nullptr, d, y, static_cast<int>(columns));
        else
            PP_LAUNCH(add_one, rows, 256, 0, nullptr, d, static_cast<int>(rows * columns));
        OK(cudaDeviceSynchronize());
        double seconds = static_cast<double>(clock() - t) / CLOCKS_PER_SEC;
        if (getenv("PP_BENCH"))
            printf("%s: %.2f million threads a second\n", kind ? "elementwise" : "block reduction",
                   rows * 256e-6 / seconds);
    }
    OK(cudaFree(d));
    OK(cudaFree(y));
}

static const Case cases[] = {{"elementwise", elementwise},
                             {"reductions", reductions},
                             {"tiles", tiles},
                             {"dynamic_shared", dynamic_shared},
                             {"warp_tree", warp_tree},
                             {"atomics", atomics},
                             {"warp_operations", warp_operations},
                             {"tensor_cores", tensor_cores},
                             {"leavers", leavers},
                             {"masks", masks},
                             {"templates", templates},
                             {"events", events},
                             {"streams_apart", streams_apart},
                             {"default_stream", default_stream},
                             {"products", products},
                             {"ranks", ranks},
                             {"pipeline", pipeline},
                             {"devices", devices},
                             {"speed", speed},
                             {"injected", injected},
                             {nullptr, nullptr}};

int main(int argc, char **argv) {
    for (const Case *c = cases; c->name; c++) {
        if (argc < 2)
            printf("%s\n", c->name);
        else if (strcmp(argv[1], c->name) == 0) {
            c->run();
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
