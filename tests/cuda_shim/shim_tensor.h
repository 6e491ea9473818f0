/*
 * shim_tensor.h - tensor cores and asynchronous copies as fibers have them;
 * runtime/device/cuda/mma.h has the layouts of fragments.
 *
 * A copy takes place twice: when it is begun, its destination is written with NaNs and counts as
 * written by nobody; when its thread waits, with what was read.  So who reads too early is
 * reported, or, unchecked, reads NaNs.  Lanes meet at each instruction of the warp, and none goes
 * on before all have come; that orders no memory, as shuffles do not.
 */
#ifndef SHIM_TENSOR_H
#define SHIM_TENSOR_H

struct alignas(16) ShimRow {
    uint32_t at[4];
};
struct ShimFragment {
    uint32_t at[8];
};
struct ShimCopy {
    void *to;
    int bytes;
    ShimRow data;
};

/* tensor.cpp */

/* All lanes of the warp bring something; what each has brought, until the meeting after the next.
 */
const ShimFragment *shim_meet(ShimWarp kind, const ShimFragment &mine, int line);
void shim_must_align(const void *p, unsigned bytes, const char *instruction, int line);
void shim_copy_begins(const ShimCopy &c);
void shim_cp_commit(void);
/* One of this thread's copies that is over when `groups` may be under way; null: no more. */
const ShimCopy *shim_copy_over(int groups, ShimCopy *room);

#define SHIM_UNCHECKED __attribute__((no_sanitize("thread")))

static inline void shim_put(void *to, const ShimRow &x, int bytes)
{
    if (bytes == 16)
        *static_cast<ShimRow *>(to) = x;
    else
        *static_cast<uint32_t *>(to) = x.at[0];
}

/* The first `used` of `bytes` bytes are read. */
static inline void shim_cp_async(void *to, const void *from, int bytes, int used,
                                 int line = __builtin_LINE())
{
    ShimCopy c = {to, bytes, {}};
    shim_must_align(to, static_cast<unsigned>(bytes), "cp.async", line);
    shim_must_align(from, static_cast<unsigned>(bytes), "cp.async", line);
    if (used == 16)
        c.data = *static_cast<const ShimRow *>(from);
    else
        for (int i = 0; i < used / 2; i++)
            c.data.at[i / 2] |= static_cast<uint32_t>(static_cast<const uint16_t *>(from)[i])
                                << 16 * (i % 2);
    shim_put(to, ShimRow{{~0u, ~0u, ~0u, ~0u}}, bytes);
    shim_copy_begins(c);
}

static inline void shim_cp_wait(int groups)
{
    ShimCopy room;
    while (const ShimCopy *c = shim_copy_over(groups, &room))
        shim_put(c->to, c->data, c->bytes);
}

static inline SHIM_UNCHECKED uint32_t shim_half(const uint32_t *words, unsigned i)
{
    return words[i / 2] >> 16 * (i % 2) & 0xffff;
}

static inline SHIM_UNCHECKED void shim_blocks(uint32_t (&x)[4], const ShimFragment *row,
                                              bool turned)
{
    const unsigned lane = shim_at.thread.x % 32, g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; i++)
        x[i] = turned ? shim_half(row[8 * i + 2 * t].at, g) |
                            shim_half(row[8 * i + 2 * t + 1].at, g) << 16
                      : row[8 * i + g].at[t];
}

static inline void shim_ldmatrix(uint32_t (&x)[4], const void *row, bool turned,
                                 int line = __builtin_LINE())
{
    shim_must_align(row, 16, "ldmatrix", line);
    const ShimRow mine = *static_cast<const ShimRow *>(row);
    const ShimFragment f = {{mine.at[0], mine.at[1], mine.at[2], mine.at[3]}};
    shim_blocks(x, shim_meet(SHIM_LDMATRIX, f, line), turned);
}

/* Element (row, k) of A, (k, column) of B, of what all lanes have brought. */
static inline SHIM_UNCHECKED uint32_t shim_a(const ShimFragment *of, unsigned row, unsigned k)
{
    return shim_half(&of[row % 8 * 4 + k % 8 / 2].at[row / 8 + k / 8 * 2], k % 2);
}
static inline SHIM_UNCHECKED uint32_t shim_b(const ShimFragment *of, unsigned k, unsigned column)
{
    return shim_half(&of[column * 4 + k % 8 / 2].at[4 + k / 8], k % 2);
}

template <class Number>
SHIM_UNCHECKED void shim_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                             Number number, int line = __builtin_LINE())
{
    const unsigned lane = shim_at.thread.x % 32;
    const ShimFragment f = {{a[0], a[1], a[2], a[3], b0, b1}}, *all = shim_meet(SHIM_MMA, f, line);
    float x[2][16], y[2][16]; /* rows g, g+8 and columns 2t, 2t+1 */
    for (unsigned k = 0; k < 32; k++) {
        x[k / 16][k % 16] =
            number(static_cast<uint16_t>(shim_a(all, lane / 4 + k / 16 * 8, k % 16)));
        y[k / 16][k % 16] =
            number(static_cast<uint16_t>(shim_b(all, k % 16, lane % 4 * 2 + k / 16)));
    }
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 16; k++)
            c[i] += x[i / 2][k] * y[i % 2][k];
}

#undef SHIM_UNCHECKED
#endif
