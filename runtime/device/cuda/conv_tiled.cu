/*
 * conv_tiled.cu - convolutions of many channels on the device, without a library: implicit matrix
 * products.  A block makes a tile of TILE_M channels by TILE_N positions (or, of the weights'
 * gradient, terms); operands are gathered through shared memory, TILE_K terms at a time, the next
 * ones loaded while these are multiplied.  A thread holds 4 x 8 sums.
 *
 * Every sum is added in ascending order.  The weights' gradient sums over all positions of all
 * samples: where its tiles alone would leave the device idle, the positions are divided in parts of
 * one size, whose sums are then added in order.
 */
#include "conv_gather.h"

namespace {

enum { TILE_M = 64, TILE_N = 128, TILE_K = 16, THREADS = 256, LINES = THREADS / TILE_K };
/* blocks of floats on a multiprocessor: so many have registers enough */
enum { RESIDENT = 3 };
/* tiles that fill a device; positions worth a part */
enum { PARTS_TILES = 512, PART_LEAST = 256 };

/* The thread's 4 x 8 sums: channels 4 y .. + 3, columns 4 x .. + 3 and 64 + 4 x .. + 3. */
template <class T>
__device__ __forceinline__ void multiply(const T (*a)[TILE_M + 4], const T (*b)[TILE_N + 4], int y,
                                         int x, T (&sum)[4][8])
{
#pragma unroll
    for (int k = 0; k < TILE_K; k++) {
        T p[4], q[8];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            p[i] = a[k][4 * y + i];
            q[i] = b[k][4 * x + i];
            q[4 + i] = b[k][TILE_N / 2 + 4 * x + i];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum[i][j] = multiply_add(p[i], q[j], sum[i][j]);
    }
}

__device__ __forceinline__ int column_of(int x, int j)
{
    return j < 4 ? 4 * x + j : TILE_N / 2 + 4 * x + j - 4;
}

/* ---- forward, and the data's gradient: channels of a group by positions of a class in all samples
 * ---- */

struct Tile {
    int group, row0, column0, columns; /* columns: there are in all */
};

template <class Kind, class T = typename Kind::Sum>
__device__ __forceinline__ void write_sums(const ConvGather &g, const ConvClass &c, const Tile &t,
                                           const T (&sum)[4][8],
                                           typename Kind::In *__restrict__ dest)
{
    const int64_t channel = static_cast<int64_t>(g.dest[0]) * g.dest[1] * g.dest[2];
    const int thread = static_cast<int>(threadIdx.x), y = t.row0 + 4 * (thread / LINES),
              positions = c.count[0] * c.count[1] * c.count[2];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int column = t.column0 + column_of(thread % LINES, j);
        if (column >= t.columns)
            continue;
        auto *to = dest + conv_place(g, c, column / positions, t.group, column % positions).to +
                   (static_cast<int64_t>(t.group) * g.rows + y) * channel;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (y + i < g.rows)
                to[i * channel] = Kind::store(sum[i][j]);
    }
}

template <class Kind, class In = typename Kind::In>
__global__ void __launch_bounds__(THREADS)
    gather_tiles(ConvGather g, int samples, int row_tiles, int column_tiles,
                 const In *__restrict__ source, const In *__restrict__ w, In *__restrict__ dest)
{
    using T = typename Kind::Sum;
    alignas(16) __shared__ T a[TILE_K][TILE_M + 4];
    alignas(16) __shared__ T b[TILE_K][TILE_N + 4];
    const int thread = static_cast<int>(threadIdx.x);
    int tile = static_cast<int>(blockIdx.x);
    const int row0 = tile % row_tiles * TILE_M;
    tile /= row_tiles;
    const int column0 = tile % column_tiles * TILE_N;
    tile /= column_tiles;
    const ConvClass c = g.cls[tile % g.classes];
    const int group = tile / g.classes, positions = c.count[0] * c.count[1] * c.count[2],
              columns = samples * positions;
    if (column0 >= columns)
        return;

    /* What this thread loads: weights of term ak, four channels; sources of one position, eight
     * terms. */
    const int ak = thread % TILE_K, arow = thread / TILE_K, bcolumn = thread % TILE_N,
              bk = thread / TILE_N;
    const int column = column0 + bcolumn;
    const ConvPlace place = column < columns
                                ? conv_place(g, c, column / positions, group, column % positions)
                                : conv_nowhere();
    const In *weights = w + group * g.weight_group;
    T next_a[4], next_b[8], sum[4][8] = {};
    for (int k0 = -TILE_K; k0 < c.taps; k0 += TILE_K) {
        if (k0 >= 0) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[ak][arow + LINES * i] = next_a[i];
#pragma unroll
            for (int i = 0; i < 8; i++)
                b[bk + 2 * i][bcolumn] = next_b[i];
            __syncthreads();
        }
        const int k1 = k0 + TILE_K;
        const int term = k1 + ak < c.taps ? (g.weight ? g.weight[c.tap + k1 + ak] : k1 + ak) : 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = row0 + arow + LINES * i;
            next_a[i] = k1 + ak < c.taps && row < g.rows
                            ? Kind::load(weights[row * g.weight_row + term])
                            : static_cast<T>(0);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int k = k1 + bk + 2 * i;
            /* whole, in one access */
            const ConvTap tap = k < c.taps ? g.tap[c.tap + k] : ConvTap{0, 0, 0, 0};
            next_b[i] = k < c.taps ? conv_read<Kind>(g, source, place, tap) : static_cast<T>(0);
        }
        if (k0 >= 0) {
            multiply<T>(a, b, thread / LINES, thread % LINES, sum);
            __syncthreads();
        }
    }

    write_sums<Kind>(g, c, {group, row0, column0, columns}, sum, dest);
}

/* ---- the weights' gradient: channels of a group by terms, summed over positions of all samples
 * ---- */

struct WeightTiles {
    ConvGather g;                                       /* the forward one */
    int terms, out_size, row_tiles, term_tiles, parts, part;    /* part: positions of one */
    int64_t dy_sample, part_size;                       /* elements */
};

/* channel: the group's first */
template <class T>
__device__ __forceinline__ void add_sums(const WeightTiles &v, int64_t channel, int row0, int term0,
                                         const T (&sum)[4][8], T *__restrict__ to, int accumulate)
{
    const int thread = static_cast<int>(threadIdx.x), y = row0 + 4 * (thread / LINES);
    to += (channel + y) * v.terms;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int term = term0 + column_of(thread % LINES, j);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (term < v.terms && y + i < v.g.rows) {
                T *at = to + static_cast<int64_t>(i) * v.terms + term;
                *at = accumulate ? *at + sum[i][j] : sum[i][j];
            }
    }
}

template <class Kind, class In = typename Kind::In, class T = typename Kind::Sum>
__global__ void __launch_bounds__(THREADS, sizeof(T) == 4 ? RESIDENT : 1)
    weight_tiles(WeightTiles v, int positions, const In *__restrict__ x, const In *__restrict__ dy,
                 T *__restrict__ to, int accumulate)
{
    alignas(16) __shared__ T a[TILE_K][TILE_M + 4];
    alignas(16) __shared__ T b[TILE_K][TILE_N + 4];
    __shared__ ConvTap tap[TILE_N];
    const ConvGather &g = v.g;
    const int thread = static_cast<int>(threadIdx.x);
    int tile = static_cast<int>(blockIdx.x);
    const int row0 = tile % v.row_tiles * TILE_M;
    tile /= v.row_tiles;
    const int term0 = tile % v.term_tiles * TILE_N;
    tile /= v.term_tiles;
    const int group = tile / v.parts, part = tile % v.parts;
    const int from = part * v.part, until = min(from + v.part, positions);
    const ConvClass c = g.cls[0];
    if (thread < TILE_N)
        tap[thread] =
            term0 + thread < v.terms ? g.tap[term0 + thread] : ConvTap{0, -(1 << 30), 0, 0};
    __syncthreads();

    /* This thread loads one position: four channels of dy, eight terms of x. */
    const int k = thread % TILE_K, line = thread / TILE_K;
    T next_a[4], next_b[8], sum[4][8] = {};
    for (int k0 = from - TILE_K; k0 < until; k0 += TILE_K) {
        if (k0 >= from) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[k][line + LINES * i] = next_a[i];
#pragma unroll
            for (int i = 0; i < 8; i++)
                b[k][line + LINES * i] = next_b[i];
            __syncthreads();
        }
        const int at = k0 + TILE_K + k, sample = at / v.out_size, p = at % v.out_size;
        const bool inside = at < until;
        const ConvPlace place = inside ? conv_place(g, c, sample, group, p) : conv_nowhere();
        const In *gradient =
            dy + sample * v.dy_sample + static_cast<int64_t>(group) * g.rows * v.out_size + p;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = row0 + line + LINES * i;
            next_a[i] = inside && row < g.rows
                            ? Kind::load(gradient[static_cast<int64_t>(row) * v.out_size])
                            : static_cast<T>(0);
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            next_b[i] = conv_read<Kind>(g, x, place, tap[line + LINES * i]);
        if (k0 >= from) {
            multiply<T>(a, b, thread / LINES, thread % LINES, sum);
            __syncthreads();
        }
    }

    add_sums(v, static_cast<int64_t>(group) * g.rows, row0, term0, sum, to + part * v.part_size,
             accumulate);
}

template <class T>
__global__ void add_parts(const T *__restrict__ part, int64_t n, int parts, T *__restrict__ dw,
                          int accumulate)
{
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += step) {
        T sum = accumulate ? dw[i] : static_cast<T>(0);
        for (int p = 0; p < parts; p++)
            sum += part[p * n + i];
        dw[i] = sum;
    }
}

/* ---- launches ---- */

int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

bool grid_fits(int64_t blocks) {
    if (blocks < (static_cast<int64_t>(1) << 31))
        return true;
    pp_cuda_note("convolution", "more tiles than a launch has blocks", __FILE__, __LINE__);
    return false;
}

template <class Kind, class In = typename Kind::In>
void gather(cudaStream_t s, const ConvGather &g, int64_t samples, const In *source, const In *w,
            In *dest)
{
    const int64_t most = conv_samples_at_once(g.most);
    for (int64_t n = 0; n < samples; n += most) {
        const int64_t some = samples - n < most ? samples - n : most;
        const int64_t row_tiles = tiles_of(g.rows, TILE_M),
                      column_tiles = tiles_of(some * g.most, TILE_N);
        const int64_t blocks = row_tiles * column_tiles * g.classes * g.group;
        if (blocks == 0 || !grid_fits(blocks))
            return;
        PP_LAUNCH(gather_tiles<Kind>, static_cast<unsigned>(blocks), THREADS, 0, s, g,
                  static_cast<int>(some), static_cast<int>(row_tiles),
                  static_cast<int>(column_tiles), source + n * g.source_sample, w,
                  dest + n * g.dest_sample);
    }
}

int64_t weight_tile_count(const PpCudaConv &v) {
    return tiles_of(v.mg, TILE_M) * tiles_of(static_cast<int64_t>(v.cg) * v.taps, TILE_N) *
           v.shape.group;
}

template <class Kind, class In = typename Kind::In, class T = typename Kind::Sum>
void weight_gradient(cudaStream_t s, const PpCudaConv &v, int64_t samples, const In *x,
                     const In *dy, T *dw, int accumulate)
{
    const int64_t most = conv_samples_at_once(v.out_size), weights = v.shape.m * v.cg * v.taps;
    for (int64_t n = 0; n < samples; n += most, accumulate = 1) {
        const int64_t some = samples - n < most ? samples - n : most, positions = some * v.out_size;
        WeightTiles t = {v.forward,
                         v.cg * v.taps,
                         static_cast<int>(v.out_size),
                         static_cast<int>(tiles_of(v.mg, TILE_M)),
                         static_cast<int>(tiles_of(static_cast<int64_t>(v.cg) * v.taps, TILE_N)),
                         1,
                         0,
                         v.shape.m * v.out_size,
                         weights};
        const int64_t part = tiles_of(positions, conv_weight_parts(v, some) * TILE_K) * TILE_K;
        t.part = static_cast<int>(part);
        t.parts = static_cast<int>(tiles_of(positions, part));
        const int64_t blocks = weight_tile_count(v) * t.parts;
        if (!grid_fits(blocks))
            return;
        T *to = t.parts > 1 ? static_cast<T *>(v.scratch->p) : dw;
        PP_LAUNCH(weight_tiles<Kind>, static_cast<unsigned>(blocks), THREADS, 0, s, t,
                  static_cast<int>(positions), x + n * v.forward.source_sample,
                  dy + n * t.dy_sample, to, t.parts > 1 ? 0 : accumulate);
        if (t.parts > 1) {
            const int64_t adders = tiles_of(weights, THREADS);
            PP_WORK("convolution", 0,
                    static_cast<double>(t.parts + 1) * static_cast<double>(weights) * sizeof(T));
            PP_LAUNCH(add_parts<T>, static_cast<unsigned>(adders < 1024 ? adders : 1024), THREADS,
                      0, s, to, weights, t.parts, dw, accumulate);
        }
    }
}

}   // namespace

void conv_tiled(cudaStream_t s, int dtype, const ConvGather &g, int64_t samples, const void *source,
                const void *w, void *dest)
{
    element_kind(dtype, [&](auto kind) {
        using Kind = decltype(kind);
        using In = typename Kind::In;
        gather<Kind>(s, g, samples, static_cast<const In *>(source), static_cast<const In *>(w),
                     static_cast<In *>(dest));
    });
}

int64_t conv_weight_parts(const PpCudaConv &v, int64_t samples) {
    const int64_t room = PARTS_TILES / weight_tile_count(v),
                  worth = tiles_of(samples * v.out_size, PART_LEAST);
    const int64_t parts = room < worth ? room : worth;
    return parts > 1 ? parts : 1;
}

void conv_weight_tiled(cudaStream_t s, const PpCudaConv &v, int64_t samples, const void *x,
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
