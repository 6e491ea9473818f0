/*
 * tile.h - tiles of 16-bit elements in shared memory, and products of them on tensor cores.
 *
 * A row is WIDE elements: chunks of 16 bytes.  Chunk c of row r stands in place c ^ (r mod 8) of
 * its row (of rows that are shorter than the 128 bytes of all banks, by the line they share): eight
 * rows of one chunk, which is what ldmatrix reads at a time, and eight chunks of one row, which is
 * what eight threads write, lie in all 32 banks.
 *
 * A warp has strips of 16 rows of the left operand, M of them; every fragment of the right one that
 * it reads is used for all.  Each element is one sum, whose order is that of k; the width of a tile
 * and its place in the sequence decide it, and nothing else.
 */
#ifndef PP_TILE_H
#define PP_TILE_H

#include "device/cuda/attention.h"
#include "device/cuda/mma.h"

typedef uint16_t Half; /* bits of a bf16 or an f16 */

/* The element at which chunk `chunk` of row `row` begins. */
template <int WIDE> __host__ __device__ constexpr int swizzled(int row, int chunk)
{
    constexpr int chunks = WIDE / 8, together = chunks < 8 ? 8 / chunks : 1,
                  most = chunks < 8 ? chunks : 8;
    return row * WIDE + (chunk ^ (row / together % most)) * 8;
}

/* ---- from and to global memory ---- */

/* A matrix of 16-bit elements; wide: its rows are columns side by side, and begin at multiples of
 * 16 bytes.  What is not is read and written one by one, with the same bits. */
struct HalfMatrix {
    Half *at;
    int64_t row, col;
    bool wide;
    __device__ HalfMatrix(const PpAttention &a, const PpMatrix &m, int64_t z)
        : at(static_cast<Half *>(m.at) + begin(a, m.batch, z)), row(m.row), col(m.col),
          wide(col == 1 && row % 8 == 0 && reinterpret_cast<uintptr_t>(at) % 16 == 0)
    {
    }
};

/* Elements c .. c + 8 of row r, those from `columns` on 0. */
PP_DEVICE uint4 eight(const HalfMatrix &m, int64_t r, int c, int columns)
{
    uint32_t x[4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (c + i < columns)
            x[i / 2] |= static_cast<uint32_t>(m.at[r * m.row + (c + i) * m.col]) << 16 * (i % 2);
    return make_uint4(x[0], x[1], x[2], x[3]);
}

/* Rows first .. first + ROWS of a matrix of rows x columns, zeros beyond, by all threads: copies to
 * wait for, or stores. */
template <int WIDE, int ROWS, int THREADS>
PP_DEVICE void fetch(Half *to, const HalfMatrix &m, int64_t first, int64_t rows, int columns)
{
    constexpr int CHUNKS = WIDE / 8,
                  STEP = THREADS / CHUNKS; /* rows that all threads take at once */
    const int left = static_cast<int>(rows - first < ROWS ? rows - first : ROWS);
    if (m.wide) {
        const int thread = only_here(static_cast<int>(threadIdx.x)), r0 = thread / CHUNKS,
                  c = thread % CHUNKS * 8, bytes = c < columns ? 2 * min(columns - c, 8) : 0;
        const Half *from = m.at + (first + r0) * m.row + c;
#pragma unroll
        for (int r = 0; r < ROWS; r += STEP) {
            cp_async_16(to + swizzled<WIDE>(r0 + r, c / 8), from, r0 + r < left ? bytes : 0);
            from += STEP * m.row;
        }
    } else {
#pragma unroll 1
        for (int i = static_cast<int>(threadIdx.x); i < ROWS * CHUNKS; i += THREADS) {
            const int r = m.col == 1 ? i / CHUNKS : i % ROWS,
                      c = m.col == 1 ? i % CHUNKS : i / ROWS;
            *reinterpret_cast<uint4 *>(to + swizzled<WIDE>(r, c)) =
                eight(m, first + r, c * 8, r < left ? columns : 0);
        }
    }
}

/* Rows first .. first + 16 and columns from `column` on, of so many. */
struct Corner {
    int64_t first, rows;
    int column, columns;
};

/* A warp's strip of C's, times `factor`, to m.  room: 16 rows of a tile that this warp alone reads
 * and is done with. */
template <int TYPE, int WIDE, int N>
PP_DEVICE void deliver(const HalfMatrix &m, const float (&c)[N / 8][4], const float (&factor)[2],
                       Half *room, const Corner &where)
{
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *reinterpret_cast<uint32_t *>(room + swizzled<WIDE>(g + 8 * h, j) + 2 * t) =
                pack2<TYPE>(c[j][2 * h] * factor[h], c[j][2 * h + 1] * factor[h]);
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < 16 * (N / 8); i += 32) {
        const int r = i / (N / 8), at = where.column + i % (N / 8) * 8;
        if (where.first + r >= where.rows || at >= where.columns)
            continue;
        const uint4 x = *reinterpret_cast<const uint4 *>(room + swizzled<WIDE>(r, i % (N / 8)));
        const uint32_t word[4] = {x.x, x.y, x.z, x.w};
        Half *to = m.at + (where.first + r) * m.row + at * m.col;
        if (m.wide && at + 8 <= where.columns) {
            *reinterpret_cast<uint4 *>(to) = x;
            continue;
        }
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (at + e < where.columns)
                to[e * m.col] = static_cast<Half>(word[e / 2] >> 16 * (e % 2));
    }
}

/* ---- products ---- */

/* Where this lane's row of four blocks begins in 16 rows and 16 columns of a tile: blocks down
 * first (an A; a B by ldmatrix_x4_trans) or along first (two B's of rows that are columns of B). */
template <int WIDE> PP_DEVICE int blocks_down()
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return swizzled<WIDE>(lane % 16, lane / 16);
}
template <int WIDE> PP_DEVICE int blocks_along()
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return swizzled<WIDE>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/* The left operand: strips of a tile, from its first row on; KEPT: in registers. */
template <int WIDE, int M, bool KEPT> struct Strips {
    const Half *tile;
    uint32_t kept[KEPT ? WIDE / 16 : 1][M][4];
    __device__ __forceinline__ explicit Strips(const Half *rows) : tile(rows)
    {
        if constexpr (KEPT) {
#pragma unroll
            for (int k = 0; k < WIDE / 16; k++)
                load(kept[k], k);
        }
    }
    __device__ __forceinline__ void load(uint32_t (&x)[M][4], int k) const
    {
        const int down = only_here(blocks_down<WIDE>());
#pragma unroll
        for (int m = 0; m < M; m++)
            ldmatrix_x4(x[m], tile + (down ^ k * 16) + m * 16 * WIDE);
    }
    __device__ __forceinline__ void read(uint32_t (&x)[M][4], int k) const
    {
        if constexpr (KEPT) {
#pragma unroll
            for (int i = 0; i < 4 * M; i++)
                x[i / 4][i % 4] = kept[k][i / 4][i % 4];
        } else {
            load(x, k);
        }
    }
};

/* c += strips times the rows of a tile, N of them: c[m][j] is columns 8j .. of strip m. */
template <int TYPE, int WIDE, int M, int N, bool KEPT>
PP_DEVICE void by_rows(float (&c)[M][N / 8][4], const Strips<WIDE, M, KEPT> &strips,
                       const Half *tile)
{
    const int along = only_here(blocks_along<WIDE>());
#pragma unroll
    for (int k = 0; k < WIDE / 16; k++) {
        uint32_t x[M][4];
        strips.read(x, k);
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            uint32_t y[4];
            ldmatrix_x4(y, tile + (along ^ k * 16) + j * 16 * WIDE);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_16816<TYPE>(c[m][2 * j], x[m], y[0], y[1]);
                mma_16816<TYPE>(c[m][2 * j + 1], x[m], y[2], y[3]);
            }
        }
    }
}

/* c += p times a tile of K rows: N of its columns, from chunk `chunk` on, an even one. */
template <int TYPE, int WIDE, int M, int K, int N>
PP_DEVICE void by_columns(float (&c)[M][N / 8][4], const uint32_t (&p)[M][K / 16][4],
                          const Half *tile, int chunk)
{
    const int down = only_here(blocks_down<WIDE>() ^ chunk * 8);
#pragma unroll
    for (int k = 0; k < K / 16; k++)
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            uint32_t y[4];
            ldmatrix_x4_trans(y, tile + (down ^ j * 16) + k * 16 * WIDE);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_16816<TYPE>(c[m][2 * j], p[m][k], y[0], y[1]);
                mma_16816<TYPE>(c[m][2 * j + 1], p[m][k], y[2], y[3]);
            }
        }
}

/* C's of N columns, rounded, are A's. */
template <int TYPE, int M, int N>
PP_DEVICE void as_left(uint32_t (&p)[M][N / 16][4], const float (&c)[M][N / 8][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int k = 0; k < N / 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[m][k][i] =
                    pack2<TYPE>(c[m][2 * k + i / 2][i % 2 * 2], c[m][2 * k + i / 2][i % 2 * 2 + 1]);
}

#endif
