/*
 * attention_half.h - scores as fragments of tensor cores: what forward and backward do with them
 * between their products.
 *
 * A strip is 16 rows and N columns of scores, C's of a warp (mma.h): element e of block j is row
 * g + 8 (e / 2), column 8 j + 2 t + e % 2.  Rows are queries and columns keys; TURNED, the other
 * way round, as the owner of keys has them.
 */
#ifndef PP_ATTENTION_HALF_H
#define PP_ATTENTION_HALF_H

#include "device/cuda/tile.h"

constexpr int HALF_THREADS = 128;
constexpr float LOG2_E = 1.44269504f;

PP_DEVICE int half_lane() { return static_cast<int>(threadIdx.x) % 32; }
PP_DEVICE int half_warp() { return static_cast<int>(threadIdx.x) / 32; }
/* The row of element e in its strip, and its column. */
PP_DEVICE int row_of(int e) { return half_lane() / 4 + e / 2 * 8; }
PP_DEVICE int column_of(int j, int e) { return 8 * j + half_lane() % 4 * 2 + e % 2; }

/* The columns of a row that are not left out, lowest .. lowest + more. */
struct Span {
    int lowest;
    unsigned more;
    __device__ bool has(int column) const { return static_cast<unsigned>(column - lowest) <= more; }
};

PP_DEVICE Span span(int from, int to)
{
    const int low = from < 0 ? 0 : from;
    return to < low ? Span{1 << 20, 0} : Span{low, static_cast<unsigned>(to - low)};
}

/* Where a strip stands: its first row, its first column.  Places in a sequence are ints here, which
 * are fewer registers; a product of two is not. */
template <bool TURNED> struct Place {
    int row, column;
    __device__ int query(int r, int c) const { return TURNED ? column + c : row + r; }
    __device__ int key(int r, int c) const { return TURNED ? row + r : column + c; }

    /* Of row r of the strip: the keys there are and the causal mask leaves.  What lies beyond adds
     * exactly 0.  The owner of keys need not look for the ends: statistics of queries beyond are
     * 0, and what it adds up for keys beyond is never written. */
    __device__ Span left(const PpAttention &a, int r) const
    {
        const int here = row + r - column, end = static_cast<int>(a.keys) - 1 - column,
                  beyond = here + highest(a);
        if (TURNED)
            return span(here - highest(a), here - lowest(a));
        return span(here + lowest(a), beyond < end ? beyond : end);
    }
    /* Is something of this strip left out; is all of so many rows? */
    __device__ bool border(const PpAttention &a, int columns) const
    {
        if (TURNED)
            return row + 15 > column + highest(a) || column + columns - 1 > row - lowest(a);
        return column + columns > a.keys || column + columns - 1 > row + highest(a) ||
               column < row + 15 + lowest(a);
    }
    __device__ bool empty(const PpAttention &a, int rows, int columns) const
    {
        if (TURNED)
            return row >= a.keys || row > column + columns - 1 + highest(a) ||
                   column > row + rows - 1 - lowest(a);
        return row >= a.rows || column > row + rows - 1 + highest(a) ||
               column + columns - 1 < row + lowest(a);
    }
    /* The causal mask leaves query i the keys i + lowest .. i + highest. */
    static constexpr int FAR = 1 << 29;
    static __device__ int highest(const PpAttention &a)
    {
        return a.mask.causal && a.mask.diagonal < FAR ? static_cast<int>(a.mask.diagonal) : FAR;
    }
    static __device__ int lowest(const PpAttention &a)
    {
        const int64_t d = a.mask.diagonal - a.mask.window + 1;
        return a.mask.causal && a.mask.window && d > -FAR ? static_cast<int>(d) : -FAR;
    }
};

/* A bit for each element of a strip, 4 j + e, for which ask(query, key) says yes; a loop, so that
 * its code is there once. */
template <bool TURNED, int N, class Ask>
PP_DEVICE uint32_t bits_of(const PpAttention &a, const Place<TURNED> &at, Ask ask)
{
    static_assert(N <= 64, "a bit for each");
    uint32_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < N / 2; i++) {
        const int r = row_of(i % 4), c = column_of(i / 4, i % 4);
        const int query = at.query(r, c), key = at.key(r, c);
        if (query < a.rows && key < a.keys && ask(query, key))
            bits |= 1u << i;
    }
    return bits;
}

/* Which elements a mask of bytes leaves out, and which dropout drops: found before the products,
 * while registers are free. */
struct Choice {
    uint32_t masked = 0, dropped = 0;
    __device__ bool is_masked(int j, int e) const { return masked >> (4 * j + e) & 1; }
    __device__ bool is_dropped(int j, int e) const { return dropped >> (4 * j + e) & 1; }
};

template <bool TURNED, int N>
PP_DEVICE Choice choice(const PpAttention &a, int z, const Place<TURNED> &at)
{
    Choice c;
    if (a.allowed.at) {
        const Mask mask(a, only_here(z));
        c.masked = bits_of<TURNED, N>(a, at, [&](int q, int k) { return mask.has(q, k); });
    }
    if (a.drop.limit) {
        const Dropout dropout(a, only_here(z));
        c.dropped =
            bits_of<TURNED, N>(a, at, [&](int q, int k) { return dropout.kept(q, k) == 0; });
    }
    return c;
}

/* Products of matrix z become scores; of columns that are left out, where there are some, -inf. */
template <bool TURNED, int N>
PP_DEVICE void scores_of(float (&s)[N / 8][4], const PpAttention &a, int z, const Place<TURNED> &at,
                         const Choice &choice)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[j][e] *= a.scale;
    if (a.bias.at) {
        const Bias bias(a, only_here(z));
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = row_of(e), c = column_of(j, e);
                const int query = at.query(r, c), key = at.key(r, c);
                if (query < a.rows && key < a.keys)
                    s[j][e] += bias.at(query, key);
            }
    }
    if (choice.masked) {
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[j][e] = choice.is_masked(j, e) ? a.mask.fill : s[j][e];
    }
    if (at.border(a, N)) {
        const Span left[2] = {at.left(a, row_of(0)), at.left(a, row_of(2))};
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[j][e] = left[e / 2].has(column_of(j, e)) ? s[j][e] : -INFINITY;
    }
}

/* e^(s - base), by 2^x.  Where bias or mask may make scores so large that their multiple by log2 e
 * overflows, or a row equal that is masked as a whole, the difference is taken first. */
template <int N, class Base>
PP_DEVICE void exponentials(float (&s)[N / 8][4], const PpAttention &a, Base base)
{
    const bool first = a.bias.at || a.allowed.at;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float b = base(j, e);
            s[j][e] = power_of_2(first ? (s[j][e] - b) * LOG2_E
                                       : multiply_add(s[j][e], LOG2_E, -b * LOG2_E));
        }
}

/* ---- the host's side ---- */

/* Two blocks of the usual heads fit on a multiprocessor of every card since compute capability 8.0
 * that has 164 KiB, one of all heads on the others, of 100; a block takes 1 more for itself. */
template <int WIDE, int BYTES> constexpr bool half_fits()
{
    return BYTES + 1024 <= 100 * 1024 && (WIDE > 64 || 2 * (BYTES + 1024) <= 164 * 1024);
}

/* The kernels are compiled for cards that have tensor cores for bf16, and asynchronous copies. */
inline bool card_is_new_enough()
{
    int device = 0, major = 0;
    if (!PP_CUDA(cudaGetDevice(&device)) ||
        !PP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)))
        return false;
    if (major < 8)
        pp_cuda_note("attention", "operands of 16 bits need compute capability 8.0", __FILE__,
                     __LINE__);
    return major >= 8;
}

#endif
