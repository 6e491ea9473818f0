/*
 * mma.h - tensor cores and asynchronous copies: one small function for each instruction of PTX that
 * the kernels for 16-bit operands use (PTX ISA 8.0, "Warp-level matrix instructions" and "Data
 * movement: cp.async"; compute capability 8.0 and later).  Under the shim the same functions are
 * made of fibers: tests/cuda_shim/shim_tensor.h.
 *
 * Fragments.  Lane l of a warp has g = l / 4 and t = l % 4; a register is two neighbours of 16
 * bits, the lower half first: A, 16 x 16    a[0] row g, columns 2t, 2t+1       a[1] row g+8, the
 * same columns a[2] row g, columns 2t+8, 2t+9     a[3] row g+8, these columns B, 16 x 8     b0 rows
 * 2t, 2t+1 of column g     b1   rows 2t+8, 2t+9 of column g C, 16 x 8     c[0], c[1] row g, columns
 * 2t, 2t+1   c[2], c[3] row g+8, the same columns So two neighbouring C's, rounded, are an A:
 * product A(P) needs nothing but pack2().
 */
#ifndef PP_MMA_H
#define PP_MMA_H

#include "api/pp_device.h"
#include "api/pp_half.h"

#if defined PP_CUDA_SHIM
#define PP_TENSOR(on_shim, on_card) on_shim
#elif defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
#define PP_TENSOR(on_shim, on_card) on_card
#else /* not launched on such a card */
#define PP_TENSOR(on_shim, on_card) __trap()
#endif

#ifndef PP_CUDA_SHIM
PP_DEVICE unsigned shared_address(const void *p)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
#endif

/* ---- global to shared memory, behind the program's back ---- */

/* 16 bytes, of which the first `bytes` are read and the others are 0; both addresses are multiples
 * of 16. */
PP_DEVICE void cp_async_16(void *to, const void *from, int bytes)
{
    PP_TENSOR(
        shim_cp_async(to, from, 16, bytes),
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                     "l"(__cvta_generic_to_global(from)), "r"(bytes)
                     : "memory"));
}

/* One float, or 0. */
PP_DEVICE void cp_async_4(float *to, const float *from, bool there)
{
    PP_TENSOR(shim_cp_async(to, from, 4, there ? 4 : 0),
              asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                           "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
                           : "memory"));
}

/* What this thread has begun since is a group. */
PP_DEVICE void cp_async_commit()
{
    PP_TENSOR(shim_cp_commit(), asm volatile("cp.async.commit_group;" ::: "memory"));
}

/* Until all of this thread's groups but the last N have arrived; for others to see behind a
 * barrier.
 */
template <int N> PP_DEVICE void cp_async_wait()
{
    PP_TENSOR(shim_cp_wait(N), asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"));
}

/* ---- shared memory to fragments ---- */

/* Four blocks of 8 x 8: lane l says where row l % 8 of block l / 8 begins, a multiple of 16 bytes;
 * x[i] is columns 2t, 2t+1 of row g of block i. */
PP_DEVICE void ldmatrix_x4(uint32_t (&x)[4], const void *row)
{
    PP_TENSOR(shim_ldmatrix(x, row, false),
              asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                           : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                           : "r"(shared_address(row))
                           : "memory"));
}

/* The same, turned: x[i] is rows 2t, 2t+1 of column g. */
PP_DEVICE void ldmatrix_x4_trans(uint32_t (&x)[4], const void *row)
{
    PP_TENSOR(shim_ldmatrix(x, row, true),
              asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                           : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                           : "r"(shared_address(row))
                           : "memory"));
}

/* ---- products ---- */

#define PP_MMA_16816(type)                                                                         \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

/* c += a b.  Products are exact, their sum is float32; its order over the 16 is the card's own, on
 * the shim from the first to the last, behind c. */
template <int TYPE>
PP_DEVICE void mma_16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if constexpr (TYPE == PP_BF16)
        PP_TENSOR(shim_mma(c, a, b0, b1, [](uint16_t h) { return pp_from_bf16(h); }),
                  PP_MMA_16816("bf16"));
    else
        PP_TENSOR(shim_mma(c, a, b0, b1, [](uint16_t h) { return pp_from_f16(h); }),
                  PP_MMA_16816("f16"));
}
#undef PP_MMA_16816

/* ---- numbers ---- */

/* Two numbers, rounded; the first is the lower half. */
template <int TYPE> PP_DEVICE uint32_t pack2(float low, float high)
{
    uint32_t x = 0;
    if constexpr (TYPE == PP_BF16)
        PP_TENSOR(x = pp_to_bf16(low) | static_cast<uint32_t>(pp_to_bf16(high)) << 16,
                  asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
                      : "=r"(x)
                      : "f"(high), "f"(low)));
    else
        PP_TENSOR(x = pp_to_f16(low) | static_cast<uint32_t>(pp_to_f16(high)) << 16,
                  asm("cvt.rn.f16x2.f32 %0, %1, %2;"
                      : "=r"(x)
                      : "f"(high), "f"(low)));
    return x;
}

/* x, which the compiler does not know: what is made of it is made where it stands, not before a
 * loop and kept in registers. */
PP_DEVICE int only_here(int x)
{
    PP_TENSOR((void)0, asm volatile("" : "+r"(x)));
    return x;
}

/* 2^x to about 2 ulp; of -inf 0. */
PP_DEVICE float power_of_2(float x)
{
    float y = 0;
    PP_TENSOR(y = exp2f(x), asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)));
    return y;
}

#undef PP_TENSOR
#endif
