/*
 * attention_half_back.cu - the backward of attention for bf16 and f16 on tensor cores (Dao,
 * "FlashAttention-2", 2023, without its atomic sums).  With g = dy v' and delta = sum(dy y) of a
 * row, ds = p (g - delta):
 *     attention_half_delta     delta
 *     attention_half_keys      a block owns a tile of keys, each of its four warps 16, and walks
 * over the queries of all heads that share them: dv = p' dy, dk = ds' q attention_half_queries   a
 * block owns a tile of queries, each of its warps 16, and walks over the keys: dq = ds k Seven
 * products where five would do, so that each result has one owner, who adds in the order of the
 * sequence, head after head.  The owner of keys computes scores turned, k q' and v dy': in both
 * kernels p and ds are C's of one product and, rounded, A's of the next; they never leave
 * registers.
 *
 * What is walked over is copied a tile ahead, as in attention_half.cu.  Heads of more than 128
 * columns have two blocks for each tile of keys, each with half of the results' columns.
 */
#include "device/cuda/attention_half.h"

extern __shared__ uint4 pp_shared[];

namespace
{

/* 64 rows of two tiles stay, WALK rows of two others come and go.  KEPT: the operands that stay do
 * so in registers. */
template <int TYPE, int WIDE, int WALK, bool KEPT> struct Backward {
    static constexpr int type = TYPE, wide = WIDE, own = 64, walk = WALK;
    static constexpr int tile = WALK * WIDE, operands = 2 * (own * WIDE + 2 * tile);
    typedef Strips<WIDE, 1, KEPT> Own;
};

/* For a tile of keys: blocks that share it, each with some columns of dk and dv; columns of each.
 */
template <class S> constexpr int parts = S::wide > 128 ? 2 : 1;
template <class S> constexpr int columns = S::wide / parts<S>;

/* ---- delta ---- */

/* A lane for eight columns of a row. */
template <class S> __global__ void attention_half_delta(PpAttention a, int64_t total)
{
    constexpr int LANES = S::wide / 8;
    const int64_t at = pp_thread_wide() / LANES;
    const int c = static_cast<int>(threadIdx.x) % LANES * 8;
    if (at >= total)
        return;
    const int64_t z = at / a.rows, r = at % a.rows;
    const auto columns = [&](const PpMatrix &of) {
        const HalfMatrix m(a, of, z);
        return m.wide && c + 8 <= a.width_v ? *reinterpret_cast<const uint4 *>(m.at + r * m.row + c)
                                            : eight(m, r, c, a.width_v);
    };
    const uint4 y = columns(a.y), dy = columns(a.dy);
    const uint32_t x[2][4] = {{y.x, y.y, y.z, y.w}, {dy.x, dy.y, dy.z, dy.w}};
    const auto number = [&](int i, int e) {
        const uint16_t h = static_cast<uint16_t>(x[i][e / 2] >> 16 * (e % 2));
        return S::type == PP_BF16 ? pp_from_bf16(h) : pp_from_f16(h);
    };
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 8; e++)
        sum = multiply_add(number(0, e), number(1, e), sum);
    sum = pp_lanes_sum<LANES>(sum);
    if (c == 0)
        a.room[at] = sum;
}

/* ---- what both walks do with the scores of a strip ---- */

/* Of an element's query: what forward kept, and delta. */
struct Query {
    float top, inverse, delta;
};

/* Products q k become probabilities; those of places that are left out 0. */
template <bool TURNED, int N, class Of>
PP_DEVICE void probabilities(float (&s)[N / 8][4], const PpAttention &a, int z,
                             const Place<TURNED> &at, const Choice &choice, Of of)
{
    scores_of<TURNED, N>(s, a, z, at, choice);
    exponentials<N>(s, a, [&](int j, int e) { return of(j, e).top; });
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[j][e] *= of(j, e).inverse;
}

/* g, products dy v, become ds but for its factor a.scale; p what dropout leaves of it. */
template <int N, class Of>
PP_DEVICE void gradients(float (&g)[N / 8][4], float (&p)[N / 8][4], const PpAttention &a,
                         const Choice &choice, Of of)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float kept = a.drop.limit == 0         ? 1
                               : choice.is_dropped(j, e) ? 0
                                                         : a.drop.kept,
                        ds = p[j][e] * (g[j][e] * kept - of(j, e).delta);
            g[j][e] = choice.is_masked(j, e) ? 0 : ds;
            p[j][e] *= kept;
        }
}

/* ---- dk and dv ---- */

/* A stage's statistics of WALK queries: maxima, 1 / sums, deltas; 0 of those beyond the last. */
template <int WALK>
PP_DEVICE void fetch_queries(float *to, const PpAttention &a, const Matrix &stats, int64_t z,
                             int first)
{
    const int i = static_cast<int>(threadIdx.x), r = first + i;
    if (i >= WALK)
        return;
    const bool there = r < a.rows;
    const float *row = there ? stats.at + r * stats.row : stats.at;
    cp_async_4(to + i, row, there);
    cp_async_4(to + WALK + i, row + stats.col, there);
    cp_async_4(to + 2 * WALK + i, there ? a.room + z * a.rows + r : a.room, there);
}

/* A warp's 16 keys: what stays, columns from `chunk` on, and the sums. */
template <class S> struct Keys {
    typename S::Own k, v;
    int chunk;
    float dk[1][columns<S> / 8][4], dv[1][columns<S> / 8][4];
};

/* One tile of queries: what it adds to dk and dv. */
template <class S>
PP_DEVICE void add_queries(Keys<S> &own, const Half *q, const float *stats, const PpAttention &a,
                           int z, const Place<true> &at)
{
    constexpr int N = S::walk;
    const auto query = [&](int j, int e) {
        const float *of = stats + column_of(j, e);
        return Query{of[0], of[N], of[2 * N]};
    };
    const Half *dy = q + S::tile;
    float p[1][N / 8][4] = {}, ds[1][N / 8][4] = {};
    uint32_t left[1][N / 16][4];
    const Choice chosen = choice<true, N>(a, z, at);
    by_rows<S::type, S::wide, 1, N>(p, own.k, q);
    probabilities<true, N>(p[0], a, z, at, chosen, query);
    by_rows<S::type, S::wide, 1, N>(ds, own.v, dy);
    gradients<N>(ds[0], p[0], a, chosen, query);
    as_left<S::type, 1, N>(left, p);
    by_columns<S::type, S::wide, 1, N, columns<S>>(own.dv, left, dy, own.chunk);
    as_left<S::type, 1, N>(left, ds);
    by_columns<S::type, S::wide, 1, N, columns<S>>(own.dk, left, q, own.chunk);
}

template <class S>
__global__ void __launch_bounds__(HALF_THREADS, 2)
    attention_half_keys(PpAttention a, int owners, int group)
{
    Half *const tk = reinterpret_cast<Half *>(pp_shared), *const tv = tk + S::own * S::wide,
                *const stages = tv + S::own * S::wide;
    float *const statistics = reinterpret_cast<float *>(tk + S::operands);
    /* the first keys have the most queries to walk over: they begin first */
    const int block = static_cast<int>(blockIdx.x), begins = block % owners * group,
              from = block / owners / parts<S> * S::own, mine = from + 16 * half_warp(),
              lowest = static_cast<int>(rows_begin(a, from, S::walk)),
              end = static_cast<int>(rows_end(a, from, S::own)),
              chunk = block / owners % parts<S> * (columns<S> / 8);
    fetch<S::wide, S::own, HALF_THREADS>(tk, HalfMatrix(a, a.k, begins), from, a.keys, a.width);
    fetch<S::wide, S::own, HALF_THREADS>(tv, HalfMatrix(a, a.v, begins), from, a.keys, a.width_v);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    Half *const own_k = tk + half_warp() * 16 * S::wide, *const own_v = tv + (own_k - tk);
    Keys<S> own = {typename S::Own(own_k), typename S::Own(own_v), chunk, {}, {}};
    for (int z = begins; z < begins + group; z++) {
        const HalfMatrix mq(a, a.q, z), mdy(a, a.dy, z);
        const Matrix stats(a, a.stats, z);
        const auto stage = [&](int first) { return first / S::walk % 2; };
        const auto copy = [&](int first) {
            Half *to = stages + stage(first) * 2 * S::tile;
            fetch<S::wide, S::walk, HALF_THREADS>(to, mq, first, a.rows, a.width);
            fetch<S::wide, S::walk, HALF_THREADS>(to + S::tile, mdy, first, a.rows, a.width_v);
            fetch_queries<S::walk>(statistics + stage(first) * 3 * S::walk, a, stats, z, first);
            cp_async_commit();
        };
        if (lowest < end)
            copy(lowest);
        cp_async_wait<0>();
        __syncthreads();
        for (int first = lowest; first < end; first += S::walk) {
            const Place<true> at = {mine, first};
            if (first + S::walk < end)
                copy(first + S::walk);
            if (!at.empty(a, 16, S::walk))
                add_queries<S>(own, stages + stage(first) * 2 * S::tile,
                               statistics + stage(first) * 3 * S::walk, a, z, at);
            cp_async_wait<0>();
            __syncthreads();
        }
    }
    const float scale[2] = {a.scale, a.scale}, one[2] = {1, 1};
    deliver<S::type, S::wide, columns<S>>(HalfMatrix(a, a.dk, begins), own.dk[0], scale, own_k,
                                          {mine, a.keys, 8 * chunk, a.width});
    deliver<S::type, S::wide, columns<S>>(HalfMatrix(a, a.dv, begins), own.dv[0], one, own_v,
                                          {mine, a.keys, 8 * chunk, a.width_v});
}

/* ---- dq ---- */

/* A warp's 16 queries: what stays, of two of them what forward kept, and the sums. */
template <class S> struct Queries {
    typename S::Own q, dy;
    Query row[2];
    float dq[1][S::wide / 8][4];
};

/* One tile of keys: what it adds to dq. */
template <class S>
PP_DEVICE void add_keys(Queries<S> &own, const Half *k, const PpAttention &a, int z,
                        const Place<false> &at)
{
    constexpr int N = S::walk;
    const auto query = [&](int, int e) { return own.row[e / 2]; };
    float p[1][N / 8][4] = {}, ds[1][N / 8][4] = {};
    uint32_t left[1][N / 16][4];
    const Choice chosen = choice<false, N>(a, z, at);
    by_rows<S::type, S::wide, 1, N>(p, own.q, k);
    probabilities<false, N>(p[0], a, z, at, chosen, query);
    by_rows<S::type, S::wide, 1, N>(ds, own.dy, k + S::tile);
    gradients<N>(ds[0], p[0], a, chosen, query);
    as_left<S::type, 1, N>(left, ds);
    by_columns<S::type, S::wide, 1, N, S::wide>(own.dq, left, k, 0);
}

template <class S>
__global__ void __launch_bounds__(HALF_THREADS, 2)
    attention_half_queries(PpAttention a, int n, int tiles)
{
    Half *const tq = reinterpret_cast<Half *>(pp_shared), *const tdy = tq + S::own * S::wide,
                *const stages = tdy + S::own * S::wide;
    const int block = static_cast<int>(blockIdx.x), z = block % n,
              first = (tiles - 1 - block / n) * S::own, mine = first + 16 * half_warp(),
              begins = static_cast<int>(keys_begin(a, first, S::walk)),
              end = static_cast<int>(keys_end(a, first, S::own));
    const HalfMatrix mk(a, a.k, z), mv(a, a.v, z);
    const auto stage = [&](int from) { return stages + from / S::walk % 2 * 2 * S::tile; };
    const auto copy = [&](int from) {
        Half *to = stage(from);
        fetch<S::wide, S::walk, HALF_THREADS>(to, mk, from, a.keys, a.width);
        fetch<S::wide, S::walk, HALF_THREADS>(to + S::tile, mv, from, a.keys, a.width_v);
        cp_async_commit();
    };
    Query row[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const Matrix stats(a, a.stats, z);
        const int r = mine + row_of(2 * h);
        row[h] = r < a.rows ? Query{stats.get(r, 0), stats.get(r, 1), a.room[z * a.rows + r]}
                            : Query{0, 0, 0};
    }
    fetch<S::wide, S::own, HALF_THREADS>(tq, HalfMatrix(a, a.q, z), first, a.rows, a.width);
    fetch<S::wide, S::own, HALF_THREADS>(tdy, HalfMatrix(a, a.dy, z), first, a.rows, a.width_v);
    copy(begins);
    cp_async_wait<0>();
    __syncthreads();
    Half *const own_q = tq + half_warp() * 16 * S::wide;
    Queries<S> own = {
        typename S::Own(own_q), typename S::Own(own_q + (tdy - tq)), {row[0], row[1]}, {}};
    for (int from = begins; from < end; from += S::walk) {
        const Place<false> at = {mine, from};
        if (from + S::walk < end)
            copy(from + S::walk);
        if (!at.empty(a, 16, S::walk))
            add_keys<S>(own, stage(from), a, z, at);
        cp_async_wait<0>();
        __syncthreads();
    }
    const float scale[2] = {a.scale, a.scale};
    deliver<S::type, S::wide, S::wide>(HalfMatrix(a, a.dq, z), own.dq[0], scale, own_q,
                                       {mine, a.rows, 0, a.width});
}

/* ---- launches ---- */

template <class S> void launch(cudaStream_t stream, const PpAttention &given)
{
    static thread_local bool asked[2] = {false, false};
    constexpr int bytes = 2 * S::operands, with_stats = bytes + 4 * 2 * 3 * S::walk,
                  at_once = 256 / (S::wide / 8);
    static_assert(half_fits<S::wide, with_stats>(), "shared memory");
    PpAttention a = given;
    const int n = static_cast<int>(attention_matrices(a)),
              group = static_cast<int>(pp_attention_group(&a)), owners = n / group,
              tiles = static_cast<int>((a.rows + S::own - 1) / S::own),
              key_tiles = static_cast<int>((a.keys + S::own - 1) / S::own) * parts<S>;
    if (!room(attention_half_keys<S>, with_stats, &asked[0]) ||
        !room(attention_half_queries<S>, bytes, &asked[1]))
        return;
    note(a, 0, 2, 2);
    PP_LAUNCH(attention_half_delta<S>, pp_cover(n * a.rows, at_once), 256, 0, stream, a,
              n * a.rows);
    note(a, 4, 6, 2);
    PP_LAUNCH(attention_half_keys<S>, static_cast<unsigned>(owners * key_tiles), HALF_THREADS,
              with_stats, stream, a, owners, group);
    note(a, 3, 5, 2);
    PP_LAUNCH(attention_half_queries<S>, static_cast<unsigned>(n * tiles), HALF_THREADS, bytes,
              stream, a, n, tiles);
}

/* The tiles for heads so wide. */
template <int TYPE> void run(cudaStream_t stream, const PpAttention &a)
{
    const int width = a.width > a.width_v ? a.width : a.width_v;
    width <= 32    ? launch<Backward<TYPE, 32, 64, true>>(stream, a)
    : width <= 64  ? launch<Backward<TYPE, 64, 64, true>>(stream, a)
    : width <= 128 ? launch<Backward<TYPE, 128, 32, false>>(stream, a)
                   : launch<Backward<TYPE, 256, 16, false>>(stream, a);
}

} // namespace

void pp_attention_half_backward(cudaStream_t stream, const PpAttention &a)
{
    if (card_is_new_enough())
        a.dtype == PP_BF16 ? run<PP_BF16>(stream, a) : run<PP_F16>(stream, a);
}
