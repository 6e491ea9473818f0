/*
 * optim_cuda.cu - the runtime's arithmetic on the device: additions of gradients, norms, the rules
 * of optimizers.h.
 *
 * All parameters of a rank are done by one kernel, for most are small: a table says where each
 * begins in a row of chunks of 4,096 elements, and whoever has a chunk finds its parameter by
 * bisection.  The norm adds in the order of optim_cpu.c: 8 lanes along a chunk, the lanes' tree,
 * chunks one after the other; a quarter of a warp has a chunk.
 */
#include "api/pp_half.h"
#include "device/cuda/device_cuda.h"

#include <vector>

struct OptimEntry {
    void *value, *grad, *state[OPTIM_STATES];
    uint16_t *half;                                     /* its copy; NULL: none */
    int64_t n, first;                                   /* elements; its first chunk */
    int64_t norm;
    int dtype, half_type, apart, group;
};

namespace {

constexpr int CHUNK = OPTIM_BLOCK, LANES = 8, THREADS = 256, PER_BLOCK = THREADS / LANES;

/* ---- finding a chunk's parameter ---- */

__device__ int find(const OptimEntry *e, int n, int64_t chunk) {
    int lo = 0, hi = n - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (e[mid].first <= chunk)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

__device__ int64_t length(const OptimEntry &e, int64_t at)
{
    return e.n - at < CHUNK ? e.n - at : CHUNK;
}

/* ---- norms ---- */

template <class T> __device__ double lane_squares(const T *x, int64_t n, int lane) {
    double s = 0;
#pragma unroll 8
    for (int64_t i = lane; i < n; i += LANES) {
        double v = static_cast<double>(x[i]);
        s = __dadd_rn(s, __dmul_rn(v, v));
    }
    return s;
}

__global__ void squares(const OptimEntry *entry, int n, int64_t chunks, double *part) {
    int64_t chunk = static_cast<int64_t>(blockIdx.x) * PER_BLOCK + threadIdx.x / LANES;
    int lane = static_cast<int>(threadIdx.x % LANES);
    double s = 0;
    bool counts = false;
    if (chunk < chunks) {
        const OptimEntry &e = entry[find(entry, n, chunk)];
        int64_t at = (chunk - e.first) * CHUNK, left = length(e, at);
        counts = e.norm >= 0;
        if (counts && e.dtype == PP_F64)
            s = lane_squares(static_cast<const double *>(e.grad) + at, left, lane);
        else if (counts)
            s = lane_squares(static_cast<const float *>(e.grad) + at, left, lane);
    }
    /* ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)) */
    for (unsigned half = LANES / 2; half > 0; half /= 2)
        s = __dadd_rn(s, __shfl_down_sync(0xffffffffu, s, half, LANES));
    if (counts && lane == 0)
        part[chunk] = s;
}

/* A block per parameter: its chunks in order, through shared memory, for one thread adds and the
 * others fetch. */
__global__ void add_chunks(const OptimEntry *entry, const double *part, double *sum) {
    __shared__ double some[THREADS];
    const OptimEntry &e = entry[blockIdx.x];
    double total = 0;
    if (e.norm < 0)
        return;
    int64_t n = (e.n + CHUNK - 1) / CHUNK;
    for (int64_t i = threadIdx.x; e.apart && i < n; i += THREADS)
        sum[e.norm + i] = part[e.first + i];
    if (e.apart)
        return;
    for (int64_t first = 0; first < n; first += THREADS) {
        int count = static_cast<int>(n - first < THREADS ? n - first : THREADS),
            mine = static_cast<int>(threadIdx.x);
        if (mine < count)
            some[mine] = part[e.first + first + mine];
        __syncthreads();
        for (int i = 0; i < count && mine == 0; i++)
            total = __dadd_rn(total, some[i]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sum[e.norm] = total;
}

/* ---- half copies ---- */

__device__ uint16_t to_half(float x, int type) {
    return type == PP_BF16 ? pp_to_bf16(x) : pp_to_f16(x);
}
__device__ uint16_t to_half(double x, int type) { return to_half(static_cast<float>(x), type); }

__global__ void round_all(uint16_t *to, const float *from, int64_t n, int type) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = to_half(from[i], type);
}

/* ---- updates: a kernel for each optimizer, for both element types ---- */

/* A row of optimizers.h as a type; apply(row, ...) is its rule. */
#define OPTIMIZER(id, rule, count, ...)                                                            \
    struct Row_##id {                                                                              \
        static constexpr int states = count;                                                       \
    };
#include "optim/optimizers.h"

#define OPTIMIZER_PER_TYPE(id, rule, ...)                                                          \
    __device__ __forceinline__ T apply(Row_##id, const T *k, T p, T grad, T *state)                \
    {                                                                                              \
        T now = PER_TYPE(rule)(k, isinf(p) ? T(0) : p, grad, state);                               \
        return isinf(p) ? p : now; /* as optim_cpu.c */                                            \
    }
#include "optim/per_type.h"

template <class T> struct Numbers {
    T scale, k[OPTIM_GROUPS][OPTIM_NUMBERS];
    explicit Numbers(const DeviceUpdate &u) : scale(T(u.scale)) {
        for (int i = 0; i < OPTIM_GROUPS * OPTIM_NUMBERS; i++)
            k[i / OPTIM_NUMBERS][i % OPTIM_NUMBERS] =
                T(u.number[i / OPTIM_NUMBERS][i % OPTIM_NUMBERS]);
    }
};

template <class Row, class T>
__device__ void update_chunk(const Numbers<T> &u, const OptimEntry &e, int64_t at, int64_t n)
{
    T *p = static_cast<T *>(e.value) + at, *state[OPTIM_STATES];
    const T *grad = static_cast<const T *>(e.grad) + at;
    for (int j = 0; j < Row::states; j++)
        state[j] = static_cast<T *>(e.state[j]) + at;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        T s[OPTIM_STATES] = {};
        for (int j = 0; j < Row::states; j++)
            s[j] = state[j][i];
        const T value = apply(Row(), u.k[e.group], p[i], grad[i] * u.scale, s);
        p[i] = value;
        if (e.half)
            e.half[at + i] = to_half(value, e.half_type);
        for (int j = 0; j < Row::states; j++)
            state[j][i] = s[j];
    }
}

template <class Row>
__global__ void update_all(const OptimEntry *entry, int n, Numbers<float> f32, Numbers<double> f64)
{
    const OptimEntry &e = entry[find(entry, n, blockIdx.x)];
    int64_t at = (static_cast<int64_t>(blockIdx.x) - e.first) * CHUNK;
    if (e.dtype == PP_F64)
        update_chunk<Row>(f64, e, at, length(e, at));
    else
        update_chunk<Row>(f32, e, at, length(e, at));
}

template <class Row> void launch(const Optim &o, cudaStream_t s, const DeviceUpdate &u) {
    PP_LAUNCH(update_all<Row>, static_cast<unsigned>(o.chunks), THREADS, 0, s, o.entry, o.n,
              Numbers<float>(u), Numbers<double>(u));
}

template <class T> __global__ void add_up(T *to, const T *from, int64_t n) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] += from[i];
}

unsigned blocks_of(int64_t n) {
    const int64_t most = 4096, blocks = (n + THREADS - 1) / THREADS;
    return static_cast<unsigned>(blocks < most ? blocks : most);
}

int64_t room(int64_t bytes) { return (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN; }

}   // namespace

void cuda_add(cudaStream_t s, void *to, const void *from, int64_t n, int dtype) {
    if (n <= 0)
        return;
    PP_WORK("optimizer", n, 3 * n * (dtype == PP_F64 ? 8 : 4));
    if (dtype == PP_F64)
        PP_LAUNCH(add_up<double>, blocks_of(n), THREADS, 0, s, static_cast<double *>(to),
                  static_cast<const double *>(from), n);
    else
        PP_LAUNCH(add_up<float>, blocks_of(n), THREADS, 0, s, static_cast<float *>(to),
                  static_cast<const float *>(from), n);
}

void cuda_round(cudaStream_t s, void *to, const void *from, int64_t n, int type) {
    if (n <= 0)
        return;
    PP_WORK("optimizer", n, 6 * n);
    PP_LAUNCH(round_all, blocks_of(n), THREADS, 0, s, static_cast<uint16_t *>(to),
              static_cast<const float *>(from), n, type);
}

/* Parameters that are updated; those whose norm counts are among them. */
int cuda_params(Device *d, const DeviceParam *list, int n) {
    Optim &o = cuda_of(d)->optim;
    std::vector<OptimEntry> all;
    for (int i = 0; i < n; i++) {
        const DeviceParam &q = list[i];
        if (!q.update || q.n <= 0)
            continue;
        OptimEntry e = {q.value, q.grad, {},      static_cast<uint16_t *>(q.half),
                        q.n,     o.chunks, q.norm, q.dtype,
                        q.half_type, q.apart, q.group};
        for (int j = 0; j < OPTIM_STATES; j++)
            e.state[j] = q.state[j];
        all.push_back(e);
        const int64_t chunks = (q.n + CHUNK - 1) / CHUNK, end = q.norm + (q.apart ? chunks : 1);
        o.chunks += chunks;
        o.sums = q.norm >= 0 && end > o.sums ? end : o.sums;
    }
    o.n = static_cast<int>(all.size());
    if (o.n == 0)
        return 1;
    int64_t table = room(static_cast<int64_t>(all.size() * sizeof all[0])),
            part = room(o.chunks * static_cast<int64_t>(sizeof(double))),
            sum = room((o.sums + 1) * static_cast<int64_t>(sizeof(double)));
    if (o.chunks > 0x7fffffff) {
        pp_cuda_note("cuda_params", "a rank with 2^43 parameters", __FILE__, __LINE__);
        return 0;
    }
    if (!PP_CUDA(cudaMalloc(&o.memory, static_cast<size_t>(table + part + sum))))
        return 0;
    d->library += table + part + sum;
    char *at = static_cast<char *>(o.memory);
    o.entry = reinterpret_cast<OptimEntry *>(at);
    o.part = reinterpret_cast<double *>(at + table);
    o.sum = reinterpret_cast<double *>(at + table + part);
    cudaStream_t s = cuda_of(d)->stage[0].stream;       /* in which everything begins */
    return PP_CUDA(cudaMemcpyAsync(o.entry, all.data(), all.size() * sizeof all[0],
                                   cudaMemcpyHostToDevice, s)) &&
           PP_CUDA(cudaMemsetAsync(o.sum, 0, static_cast<size_t>(sum), s)) &&
           PP_CUDA(cudaStreamSynchronize(s));
}

void cuda_norms(Cuda *c, cudaStream_t s, double *sum) {
    const Optim &o = c->optim;
    if (o.n == 0 || o.sums == 0)
        return;
    PP_WORK("optimizer", 2 * o.chunks * CHUNK, 4 * o.chunks * CHUNK);
    PP_LAUNCH(squares, static_cast<unsigned>((o.chunks + PER_BLOCK - 1) / PER_BLOCK), THREADS, 0, s,
              o.entry, o.n, o.chunks, o.part);
    PP_LAUNCH(add_chunks, static_cast<unsigned>(o.n), THREADS, 0, s, o.entry, o.part, o.sum);
    PP_CUDA(cudaMemcpyAsync(sum, o.sum, static_cast<size_t>(o.sums) * sizeof(double),
                            cudaMemcpyDeviceToHost, s));
}

void cuda_update(Cuda *c, cudaStream_t s, const DeviceUpdate *u) {
    const Optim &o = c->optim;
    if (o.n == 0)
        return;
    /* value, gradient, new value; each state there and back */
    const int moved = 3 + 2 * optimizers[u->optimizer].states;
    PP_WORK("optimizer", 12 * o.chunks * CHUNK, 4 * moved * o.chunks * CHUNK);
    switch (u->optimizer) {
#define OPTIMIZER(id, ...)                                                                         \
    case OPTIM_##id:                                                                               \
        launch<Row_##id>(o, s, *u);                                                                \
        break;
#include "optim/optimizers.h"
    case OPTIMIZERS: break;
    }
}

void optim_close(Cuda *c) { PP_CUDA(cudaFree(c->optim.memory)); }
