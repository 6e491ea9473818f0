/*
 * attention_half.cu - the forward of attention for bf16 and f16 on tensor cores (Dao,
 * "FlashAttention-2", 2023; the running maximum: Milakov and Gimelshein, 2018).
 *
 * A block owns a tile of queries, each of its four warps M strips of 16, and walks over the keys:
 * two stages of a tile of keys and values in shared memory, one being copied while the other is
 * used. Scores and probabilities stay in registers: those of a strip are C's of q k', and, rounded,
 * A's of p v.  Sums are float32; those of a row are kept by the four lanes that share it until the
 * walk is over.  The order of every sum is given by a key's place in the sequence and by the width
 * of a head, so that batch, cut and card change no bit (the card: but for the sixteen products that
 * one instruction adds).
 */
#include "device/cuda/attention_half.h"

extern __shared__ uint4 pp_shared[];

namespace
{

/* M: strips of a warp; KEYS: of a tile; KEPT: queries stay in registers. */
template <int TYPE, int WIDE, int M, int KEYS, bool KEPT> struct Forward {
    static constexpr int type = TYPE, wide = WIDE, m = M, rows = 64 * M, keys = KEYS;
    static constexpr bool kept = KEPT;
    static constexpr int tile = KEYS * WIDE, bytes = 2 * (rows * WIDE + 4 * tile);
};

/* What a lane knows of a strip: of its two rows the maximum, and its own part of the sum. */
struct Running {
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

/* Scores of one more tile become e^(s - top) and the sums' share; what was added up so far is
 * scaled to the new maximum by `less`. */
template <int N>
PP_DEVICE void run_on(Running &row, float (&s)[N / 8][4], float (&less)[2], const PpAttention &a)
{
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = row.top[h];
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            most = s[j][2 * h] > most ? s[j][2 * h] : most;
            most = s[j][2 * h + 1] > most ? s[j][2 * h + 1] : most;
        }
        most = pp_lanes_max<4>(most);
        base[h] = most == -INFINITY ? 0 : most; /* nothing but -inf so far */
        less[h] = power_of_2((row.top[h] - base[h]) * LOG2_E);
        row.top[h] = most;
        row.sum[h] *= less[h];
    }
    exponentials<N>(s, a, [&](int, int e) { return base[e / 2]; });
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            row.sum[e / 2] += s[j][e];
}

template <int N>
PP_DEVICE void drop(float (&p)[N / 8][4], const PpAttention &a, const Choice &choice)
{
    if (a.drop.limit == 0)
        return;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            p[j][e] = choice.is_dropped(j, e) ? 0 : p[j][e] * a.drop.kept;
}

/* Of one tile: scores, and what they add to the results of a warp's strips. */
template <class S, class Queries>
PP_DEVICE void one_tile(float (&out)[S::m][S::wide / 8][4], Running (&row)[S::m],
                        const Queries &queries, const Half *k, const PpAttention &a, int z,
                        const Place<false> &tile)
{
    constexpr int N = S::keys;
    float s[S::m][N / 8][4] = {};
    uint32_t p[S::m][N / 16][4];
    Choice chosen[S::m];
#pragma unroll
    for (int m = 0; m < S::m; m++)
        chosen[m] = choice<false, N>(a, z, Place<false>{tile.row + 16 * m, tile.column});
    by_rows<S::type, S::wide, S::m, N, S::kept>(s, queries, k);
#pragma unroll
    for (int m = 0; m < S::m; m++) {
        const Place<false> at = {tile.row + 16 * m, tile.column};
        float less[2];
        scores_of<false, N>(s[m], a, z, at, chosen[m]);
        run_on<N>(row[m], s[m], less, a);
        if (__any_sync(0xffffffffu, less[0] != 1 || less[1] != 1)) {
#pragma unroll
            for (int j = 0; j < S::wide / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    out[m][j][e] *= less[e / 2];
        }
        drop<N>(s[m], a, chosen[m]);
    }
    as_left<S::type, S::m, N>(p, s);
    by_columns<S::type, S::wide, S::m, N, S::wide>(out, p, k + S::tile, 0);
}

template <class S>
__global__ void __launch_bounds__(HALF_THREADS, 2) attention_half(PpAttention a, int n, int tiles)
{
    Half *const q = reinterpret_cast<Half *>(pp_shared), *const stages = q + S::rows * S::wide;
    /* the last queries have the most keys to walk over: they begin first */
    const int z = static_cast<int>(blockIdx.x) % n,
              tile = tiles - 1 - static_cast<int>(blockIdx.x) / n;
    const int first = tile * S::rows, mine = first + half_warp() * 16 * S::m,
              begins = static_cast<int>(keys_begin(a, first, S::keys)),
              end = static_cast<int>(keys_end(a, first, S::rows));
    const HalfMatrix mk(a, a.k, z), mv(a, a.v, z);
    const auto stage = [&](int from) { return stages + from / S::keys % 2 * 2 * S::tile; };
    const auto copy = [&](int from) {
        Half *to = stage(from);
        fetch<S::wide, S::keys, HALF_THREADS>(to, mk, from, a.keys, a.width);
        fetch<S::wide, S::keys, HALF_THREADS>(to + S::tile, mv, from, a.keys, a.width_v);
        cp_async_commit();
    };
    float out[S::m][S::wide / 8][4] = {};
    Running row[S::m];
    fetch<S::wide, S::rows, HALF_THREADS>(q, HalfMatrix(a, a.q, z), first, a.rows, a.width);
    copy(begins);
    cp_async_wait<0>();
    __syncthreads();
    Half *const own = q + half_warp() * 16 * S::m * S::wide;
    const Strips<S::wide, S::m, S::kept> queries(own);
    for (int from = begins; from < end; from += S::keys) {
        if (from + S::keys < end)
            copy(from + S::keys);
        const Place<false> at = {mine, from};
        if (!at.empty(a, 16 * S::m, S::keys))
            one_tile<S>(out, row, queries, stage(from), a, z, at);
        cp_async_wait<0>();
        __syncthreads();
    }
    const HalfMatrix y(a, a.y, z);
    const Matrix stats(a, a.stats, z);
#pragma unroll
    for (int m = 0; m < S::m; m++) {
        const int at = mine + 16 * m;
        float inverse[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            inverse[h] = 1 / pp_lanes_sum<4>(row[m].sum[h]);
            const int r = at + row_of(2 * h);
            if (stats.at && half_lane() % 4 == 0 && r < a.rows) {
                stats.set(r, 0, row[m].top[h]);
                stats.set(r, 1, inverse[h]);
            }
        }
        deliver<S::type, S::wide, S::wide>(y, out[m], inverse, own + m * 16 * S::wide,
                                           {at, a.rows, 0, a.width_v});
    }
}

/* ---- launches ---- */

template <class S> void launch(cudaStream_t stream, const PpAttention &a)
{
    static thread_local bool asked = false;
    static_assert(half_fits<S::wide, S::bytes>(), "shared memory");
    const int n = static_cast<int>(attention_matrices(a)),
              tiles = static_cast<int>((a.rows + S::rows - 1) / S::rows);
    if (!room(attention_half<S>, S::bytes, &asked))
        return;
    note(a, 2, 4, 2);
    PP_LAUNCH(attention_half<S>, static_cast<unsigned>(n * tiles), HALF_THREADS, S::bytes, stream,
              a, n, tiles);
}

/* The tiles for heads so wide. */
template <int TYPE> void run(cudaStream_t stream, const PpAttention &a)
{
    const int width = a.width > a.width_v ? a.width : a.width_v;
    width <= 32    ? launch<Forward<TYPE, 32, 2, 64, true>>(stream, a)
    : width <= 64  ? launch<Forward<TYPE, 64, 2, 64, true>>(stream, a)
    : width <= 128 ? launch<Forward<TYPE, 128, 1, 64, true>>(stream, a)
                   : launch<Forward<TYPE, 256, 1, 32, false>>(stream, a);
}

} // namespace

void pp_attention_half(cudaStream_t stream, const PpAttention &a)
{
    if (card_is_new_enough())
        a.dtype == PP_BF16 ? run<PP_BF16>(stream, a) : run<PP_F16>(stream, a);
}
