/*
 * attention_cuda.cu - y = dropout(softmax(scale q k' + bias, where allowed)) v and its gradients in
 * tiles: what lies between the two products is never in memory, only in registers and shared memory
 * (Dao, Fu, Ermon, Rudra and Re, "FlashAttention", 2022; Dao, "FlashAttention-2", 2023).
 *
 * Forward: a block has a tile of queries and walks over the keys; a row's maximum and sum grow with
 * it, what was added up so far is scaled down when the maximum grows (Milakov and Gimelshein,
 * "Online normalizer calculation for softmax", 2018).  For backward it leaves the maximum and
 * 1 / sum of each row: p = e^(s - max) / sum is then computed again with the bits it had, also for
 * a row that is masked as a whole by a finite number.
 *
 * Backward, with g = dy v' and delta = sum(dy y) of a row, ds = p (g - delta):
 *     attention_delta     delta
 *     attention_keys      a block has a tile of keys, walks over the queries: dv = p' dy, dk = ds'
 *                         q
 *     attention_queries   a block has a tile of queries, walks over the keys: dq = ds k
 * s and g are computed twice: every result has one owner, who adds in the order of its walk, and
 * nothing is added atomically.  Heads that share keys are walked over one after the other by the
 * owner of their gradients.  Tiles depend on the width of a head alone: the same bits on every
 * card, every time.  Tiles that a causal mask rules out as a whole are skipped; what they would add
 * is exactly 0.
 *
 * A block is 16 x 16 threads; thread (ty, tx) has rows ty + 16 i and columns tx + 16 j of a tile of
 * scores.  Shared memory stays below 99 KiB, which every card since compute capability 8.0 has.
 * These are the kernels for float32; for operands of 16 bits, on tensor cores: attention_half.cu.
 */
#include "device/cuda/attention.h"

extern __shared__ float pp_shared[];

namespace
{

constexpr int SIDE = 16, THREADS = SIDE * SIDE;

/* WIDE: columns of q, k, v at most; ROWS x KEYS: a tile of scores.  A row of a tile in shared
 * memory is four elements longer, which keeps banks apart. */
template <int WIDE, int ROWS, int KEYS> struct Tile {
    static constexpr int wide = WIDE, rows = ROWS, keys = KEYS;
    static constexpr int rm = ROWS / SIDE, rn = KEYS / SIDE, rc = WIDE / SIDE;
    static constexpr int line = WIDE + 4, score_line = KEYS + 4;
};

/* Rows first .. first + ROWS of a matrix of rows x columns into shared memory; zeros beyond. */
template <class S, int ROWS>
__device__ void load(float *to, const Matrix &m, int64_t first, int64_t rows, int columns)
{
    constexpr int WIDE = S::wide;
    const bool along = m.col == 1; /* neighbours in memory: of a row */
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < ROWS * WIDE; i += THREADS) {
        const int r = along ? i / WIDE : i % ROWS, c = along ? i % WIDE : i / ROWS;
        to[r * S::line + c] = first + r < rows && c < columns ? m.get(first + r, c) : 0.0f;
    }
}

/* ---- products of tiles; each thread its own elements, in the order of k ---- */

__device__ inline void four(float (&v)[4], const float *from) { pp_load4(v, from); }

/* sum[i][j] += x[ty + 16 i][k] y[tx + 16 j][k] */
template <int M, int N, int K>
__device__ void rows_by_rows(float (&sum)[M][N], const float *x, const float *y)
{
    constexpr int LINE = K + 4;
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
#pragma unroll 2
    for (int k = 0; k < K; k += 4) {
        float p[M][4], q[N][4];
#pragma unroll
        for (int i = 0; i < M; i++)
            four(p[i], x + (ty + SIDE * i) * LINE + k);
#pragma unroll
        for (int j = 0; j < N; j++)
            four(q[j], y + (tx + SIDE * j) * LINE + k);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < N; j++)
                    sum[i][j] = multiply_add(p[i][e], q[j][e], sum[i][j]);
    }
}

/* sum[i][j] += x[ty + 16 i][k] y[k][tx + 16 j] */
template <int M, int N, int K>
__device__ void rows_by_columns(float (&sum)[M][N], const float *x, const float *y)
{
    constexpr int X = K + 4, Y = N * SIDE + 4;
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
    for (int k = 0; k < K; k += 4) {
        float p[M][4];
#pragma unroll
        for (int i = 0; i < M; i++)
            four(p[i], x + (ty + SIDE * i) * X + k);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float q = y[(k + e) * Y + tx + SIDE * j];
#pragma unroll
                for (int i = 0; i < M; i++)
                    sum[i][j] = multiply_add(p[i][e], q, sum[i][j]);
            }
    }
}

/* sum[i][j] += x[k][ty + 16 i] y[k][tx + 16 j] */
template <int M, int N, int K>
__device__ void columns_by_columns(float (&sum)[M][N], const float *x, const float *y)
{
    constexpr int X = M * SIDE + 4, Y = N * SIDE + 4;
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
#pragma unroll 2
    for (int k = 0; k < K; k++) {
        float p[M], q[N];
#pragma unroll
        for (int i = 0; i < M; i++)
            p[i] = x[k * X + ty + SIDE * i];
#pragma unroll
        for (int j = 0; j < N; j++)
            q[j] = y[k * Y + tx + SIDE * j];
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[i][j] = multiply_add(p[i], q[j], sum[i][j]);
    }
}

/* ---- scores ---- */

/* All that is said of the scores of one matrix. */
struct Scores {
    const PpAttention &a;
    Bias bias;
    Mask mask;
    Dropout dropout;
    __device__ Scores(const PpAttention &x, int64_t z) : a(x), bias(x, z), mask(x, z), dropout(x, z)
    {
    }
    __device__ bool inside(int64_t r, int64_t c) const { return r < a.rows && c < a.keys; }
    __device__ bool masked(int64_t r, int64_t c) const { return mask.has(r, c); }
    /* product: of the query and the key */
    __device__ float of(int64_t r, int64_t c, float product) const
    {
        float s = a.scale * product;
        if (a.bias.at)
            s += bias.at(r, c);
        return masked(r, c) ? a.mask.fill : s;
    }
};

/* What dropout makes of 1 at this thread's places of a tile, into them; a loop, so that the
 * generator's code is there once. */
template <class S>
__device__ void drop(float *to, const Scores &scores, int64_t first, int64_t from)
{
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
    if (scores.a.drop.limit == 0)
        return;
#pragma unroll 1
    for (int i = 0; i < S::rm * S::rn; i++) {
        const int r = ty + SIDE * (i / S::rn), c = tx + SIDE * (i % S::rn);
        to[r * S::score_line + c] = scores.dropout.kept(first + r, from + c);
    }
}

/* Over the 16 threads that share rows. */
__device__ inline float greatest(float v) { return pp_lanes_max<SIDE>(v); }
__device__ inline float sum_of(float v) { return pp_lanes_sum<SIDE>(v); }

/* ---- forward ---- */

/* What is summed, by the sums of probabilities; and what the backward needs of a row. */
template <class S>
__device__ __forceinline__ void write_rows(const PpAttention &a, int64_t z, int64_t first,
                                           const float (&out)[S::rm][S::rc],
                                           const float (&top)[S::rm], const float (&sum)[S::rm])
{
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
    const Matrix y(a, a.y, z), rows(a, a.stats, z);
    for (int i = 0; i < S::rm; i++) {
        const int64_t r = first + ty + SIDE * i;
        const float inverse = 1 / sum[i];
        if (r >= a.rows)
            continue;
        for (int j = 0; j < S::rc; j++)
            if (tx + SIDE * j < a.width_v)
                y.set(r, tx + SIDE * j, out[i][j] * inverse);
        if (rows.at && tx == 0) {
            rows.set(r, 0, top[i]);
            rows.set(r, 1, inverse);
        }
    }
}

template <class S>
__global__ void __launch_bounds__(THREADS) attention_forward(PpAttention a, int64_t tiles)
{
    float *q = pp_shared, *kv = q + S::rows * S::line, *p = kv + S::keys * S::line;
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
    const int64_t z = blockIdx.x / tiles, first = blockIdx.x % tiles * S::rows;
    const Matrix mq(a, a.q, z), mk(a, a.k, z), mv(a, a.v, z);
    const Scores scores(a, z);
    float out[S::rm][S::rc] = {}, top[S::rm], sum[S::rm];
    for (int i = 0; i < S::rm; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
    }
    load<S, S::rows>(q, mq, first, a.rows, a.width);
    const int64_t end = keys_end(a, first, S::rows);
    for (int64_t from = keys_begin(a, first, S::keys); from < end; from += S::keys) {
        float s[S::rm][S::rn] = {};
        load<S, S::keys>(kv, mk, from, a.keys, a.width);
        __syncthreads();
        rows_by_rows<S::rm, S::rn, S::wide>(s, q, kv);
        drop<S>(p, scores, first, from);
#pragma unroll
        for (int i = 0; i < S::rm; i++) {
            const int64_t r = first + ty + SIDE * i;
            float most = top[i], more = 0;
#pragma unroll
            for (int j = 0; j < S::rn; j++) {
                const int64_t c = from + tx + SIDE * j;
                s[i][j] = scores.inside(r, c) ? scores.of(r, c, s[i][j]) : -INFINITY;
                most = s[i][j] > most ? s[i][j] : most;
            }
            most = greatest(most);
            const float base = most == -INFINITY ? 0 : most; /* nothing but -inf so far */
#pragma unroll
            for (int j = 0; j < S::rn; j++) {
                const int64_t c = from + tx + SIDE * j;
                const float e = pp_expf(s[i][j] - base);
                more += e;
                float *at = p + (ty + SIDE * i) * S::score_line + tx + SIDE * j;
                *at = !scores.inside(r, c) ? 0 : a.drop.limit ? e * *at : e;
            }
            const float less = pp_expf(top[i] - base);
            sum[i] = sum[i] * less + sum_of(more);
            top[i] = most;
#pragma unroll
            for (int j = 0; j < S::rc; j++)
                out[i][j] *= less;
        }
        __syncthreads(); /* keys are read, p is written */
        load<S, S::keys>(kv, mv, from, a.keys, a.width_v);
        __syncthreads();
        rows_by_columns<S::rm, S::rc, S::keys>(out, p, kv);
        __syncthreads();
    }
    write_rows<S>(a, z, first, out, top, sum);
}

/* ---- backward ---- */

/* A warp for each row: delta = sum(dy y). */
__global__ void attention_delta(PpAttention a, int64_t total)
{
    const int64_t at = pp_thread_wide() / 32;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (at >= total)
        return;
    const int64_t z = at / a.rows, r = at % a.rows;
    const Matrix y(a, a.y, z), dy(a, a.dy, z);
    float sum = 0;
    for (int c = lane; c < a.width_v; c += 32)
        sum = multiply_add(y.get(r, c), dy.get(r, c), sum);
    sum = pp_lanes_sum<32>(sum);
    if (lane == 0)
        a.room[at] = sum;
}

/* What a row of scores needs beside them. */
struct RowStats {
    float top, inverse, delta;
};

__device__ inline RowStats row_stats(const PpAttention &a, const Matrix &m, int64_t z, int64_t r)
{
    if (r >= a.rows)
        return RowStats{0, 0, 0};
    return RowStats{m.get(r, 0), m.get(r, 1), a.room[z * a.rows + r]};
}

/* s and g, products of a tile, become what dropout leaves of p, and ds; room: for a tile. */
template <class S>
__device__ void score_gradient(const Scores &scores, const RowStats (&rows)[S::rm], int64_t first,
                               int64_t from, float *room, float (&s)[S::rm][S::rn],
                               float (&g)[S::rm][S::rn])
{
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
    drop<S>(room, scores, first, from);
#pragma unroll
    for (int i = 0; i < S::rm; i++)
#pragma unroll
        for (int j = 0; j < S::rn; j++) {
            const int64_t r = first + ty + SIDE * i, c = from + tx + SIDE * j;
            if (!scores.inside(r, c)) {
                s[i][j] = g[i][j] = 0;
                continue;
            }
            const float p = pp_expf(scores.of(r, c, s[i][j]) - rows[i].top) * rows[i].inverse,
                        kept = scores.a.drop.limit
                                   ? room[(ty + SIDE * i) * S::score_line + tx + SIDE * j]
                                   : 1;
            s[i][j] = p * kept;
            g[i][j] =
                scores.masked(r, c) ? 0 : p * (g[i][j] * kept - rows[i].delta) * scores.a.scale;
        }
}

template <class S> __device__ void put(float *to, const float (&x)[S::rm][S::rn])
{
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
#pragma unroll
    for (int i = 0; i < S::rm; i++)
#pragma unroll
        for (int j = 0; j < S::rn; j++)
            to[(ty + SIDE * i) * S::score_line + tx + SIDE * j] = x[i][j];
}

/* sum[i][j] is row first + ty + 16 i, column tx + 16 j. */
template <int M, int N>
__device__ void store(const Matrix &to, const float (&sum)[M][N], int64_t first, int64_t rows,
                      int columns)
{
    const int ty = static_cast<int>(threadIdx.x) / SIDE, tx = static_cast<int>(threadIdx.x) % SIDE;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            if (first + ty + SIDE * i < rows && tx + SIDE * j < columns)
                to.set(first + ty + SIDE * i, tx + SIDE * j, sum[i][j]);
}

template <class S>
__global__ void __launch_bounds__(THREADS)
    attention_keys(PpAttention a, int64_t tiles, int64_t group)
{
    float *k = pp_shared, *v = k + S::keys * S::line, *q = v + S::keys * S::line,
          *dy = q + S::rows * S::line, *p = dy + S::rows * S::line;
    const int ty = static_cast<int>(threadIdx.x) / SIDE;
    const int64_t begins = blockIdx.x / tiles * group, from = blockIdx.x % tiles * S::keys,
                  end = rows_end(a, from, S::keys);
    float dk[S::rn][S::rc] = {}, dv[S::rn][S::rc] = {};
    load<S, S::keys>(k, Matrix(a, a.k, begins), from, a.keys, a.width);
    load<S, S::keys>(v, Matrix(a, a.v, begins), from, a.keys, a.width_v);
    for (int64_t z = begins; z < begins + group; z++) {
        const Matrix mq(a, a.q, z), mdy(a, a.dy, z), stats(a, a.stats, z);
        const Scores scores(a, z);
        for (int64_t first = rows_begin(a, from, S::rows); first < end; first += S::rows) {
            float s[S::rm][S::rn] = {}, g[S::rm][S::rn] = {};
            RowStats rows[S::rm];
            load<S, S::rows>(q, mq, first, a.rows, a.width);
            load<S, S::rows>(dy, mdy, first, a.rows, a.width_v);
            for (int i = 0; i < S::rm; i++)
                rows[i] = row_stats(a, stats, z, first + ty + SIDE * i);
            __syncthreads();
            rows_by_rows<S::rm, S::rn, S::wide>(s, q, k);
            rows_by_rows<S::rm, S::rn, S::wide>(g, dy, v);
            score_gradient<S>(scores, rows, first, from, p, s, g);
            put<S>(p, s);
            __syncthreads();
            columns_by_columns<S::rn, S::rc, S::rows>(dv, p, dy);
            __syncthreads();
            put<S>(p, g);
            __syncthreads();
            columns_by_columns<S::rn, S::rc, S::rows>(dk, p, q);
            __syncthreads();
        }
    }
    store(Matrix(a, a.dk, begins), dk, from, a.keys, a.width);
    store(Matrix(a, a.dv, begins), dv, from, a.keys, a.width_v);
}

template <class S>
__global__ void __launch_bounds__(THREADS) attention_queries(PpAttention a, int64_t tiles)
{
    float *q = pp_shared, *dy = q + S::rows * S::line, *k = dy + S::rows * S::line,
          *v = k + S::keys * S::line, *p = v + S::keys * S::line;
    const int ty = static_cast<int>(threadIdx.x) / SIDE;
    const int64_t z = blockIdx.x / tiles, first = blockIdx.x % tiles * S::rows;
    const Matrix mq(a, a.q, z), mk(a, a.k, z), mv(a, a.v, z), mdy(a, a.dy, z);
    const Matrix stats(a, a.stats, z);
    const Scores scores(a, z);
    float dq[S::rm][S::rc] = {};
    RowStats rows[S::rm];
    for (int i = 0; i < S::rm; i++)
        rows[i] = row_stats(a, stats, z, first + ty + SIDE * i);
    load<S, S::rows>(q, mq, first, a.rows, a.width);
    load<S, S::rows>(dy, mdy, first, a.rows, a.width_v);
    const int64_t end = keys_end(a, first, S::rows);
    for (int64_t from = keys_begin(a, first, S::keys); from < end; from += S::keys) {
        float s[S::rm][S::rn] = {}, g[S::rm][S::rn] = {};
        load<S, S::keys>(k, mk, from, a.keys, a.width);
        load<S, S::keys>(v, mv, from, a.keys, a.width_v);
        __syncthreads();
        rows_by_rows<S::rm, S::rn, S::wide>(s, q, k);
        rows_by_rows<S::rm, S::rn, S::wide>(g, dy, v);
        score_gradient<S>(scores, rows, first, from, p, s, g);
        put<S>(p, g);
        __syncthreads();
        rows_by_columns<S::rm, S::rc, S::keys>(dq, p, k);
        __syncthreads();
    }
    store(Matrix(a, a.dq, z), dq, first, a.rows, a.width);
}

/* ---- launches ---- */

template <class S> void forward(cudaStream_t stream, const PpAttention &a)
{
    static thread_local bool asked = false;
    const int64_t n = attention_matrices(a), tiles = (a.rows + S::rows - 1) / S::rows;
    constexpr int shared = 4 * ((S::rows + S::keys) * S::line + S::rows * S::score_line);
    if (!room(attention_forward<S>, shared, &asked))
        return;
    note(a, 2, 4, 4);
    PP_LAUNCH(attention_forward<S>, static_cast<unsigned>(n * tiles), THREADS, shared, stream, a,
              tiles);
}

template <class S> void backward(cudaStream_t stream, const PpAttention &given)
{
    static thread_local bool asked[2] = {false, false};
    PpAttention a = given;
    const int64_t n = attention_matrices(a), group = pp_attention_group(&a),
                  tiles = (a.rows + S::rows - 1) / S::rows,
                  key_tiles = (a.keys + S::keys - 1) / S::keys;
    constexpr int shared = 4 * (2 * (S::rows + S::keys) * S::line + S::rows * S::score_line);
    if (!room(attention_keys<S>, shared, &asked[0]) ||
        !room(attention_queries<S>, shared, &asked[1]))
        return;
    note(a, 0, 2, 4);
    PP_LAUNCH(attention_delta, pp_cover(n * a.rows, 8), 256, 0, stream, a, n * a.rows);
    note(a, 4, 6, 4);
    PP_LAUNCH(attention_keys<S>, static_cast<unsigned>(n / group * key_tiles), THREADS, shared,
              stream, a, key_tiles, group);
    note(a, 3, 5, 4);
    PP_LAUNCH(attention_queries<S>, static_cast<unsigned>(n * tiles), THREADS, shared, stream, a,
              tiles);
}

/* The tiles for heads so wide. */
void run(cudaStream_t stream, const PpAttention &a, bool back)
{
    const int64_t width = a.width > a.width_v ? a.width : a.width_v;
    if (back)
        width <= 64    ? backward<Tile<64, 64, 64>>(stream, a)
        : width <= 128 ? backward<Tile<128, 32, 32>>(stream, a)
                       : backward<Tile<256, 16, 16>>(stream, a);
    else
        width <= 64    ? forward<Tile<64, 64, 64>>(stream, a)
        : width <= 128 ? forward<Tile<128, 64, 64>>(stream, a)
                       : forward<Tile<256, 32, 32>>(stream, a);
}

void attention(const PpCtx *c, const PpAttention &a, bool back)
{
    cudaStream_t stream = static_cast<cudaStream_t>(c->stream);
    if (attention_matrices(a) == 0 || a.rows == 0 || a.keys == 0)
        return;
    if (a.width > PP_ATTENTION_WIDTH || a.width_v > PP_ATTENTION_WIDTH)
        pp_cuda_note("attention", "heads of more than 256", __FILE__, __LINE__);
    else if (a.dtype == PP_F32)
        run(stream, a, back);
    else
        back ? pp_attention_half_backward(stream, a) : pp_attention_half(stream, a);
}

} // namespace

void pp_cuda_attention(const PpCtx *c, const PpAttention *a) { attention(c, *a, false); }
void pp_cuda_attention_backward(const PpCtx *c, const PpAttention *a) { attention(c, *a, true); }
