/*
 * attention.h - what the kernels of attention share, those for float32 (attention_cuda.cu) and
 * those for 16-bit operands (attention_half.cu, attention_half_back.cu): places of a batch, what
 * bias, mask and dropout say of a score, room on the card, the profile.
 */
#ifndef PP_ATTENTION_H
#define PP_ATTENTION_H

#include "api/pp_attention.h"
#include "api/pp_device.h"
#include "api/pp_half.h"
#include "api/pp_random.h"
#include "device/cuda/multiply_add.h"

/* attention_half.cu, attention_half_back.cu */
void pp_attention_half(cudaStream_t stream, const PpAttention &a);
void pp_attention_half_backward(cudaStream_t stream, const PpAttention &a);

/* ---- places ---- */

/* Where matrix z begins. */
PP_DEVICE int64_t begin(const PpAttention &a, const int64_t *stride, int64_t z)
{
    int64_t at = 0;
    for (int i = a.dims - 1; i >= 0; i--) {
        at += z % a.count[i] * stride[i];
        z /= a.count[i];
    }
    return at;
}

/* One matrix of float32. */
struct Matrix {
    float *at;
    int64_t row, col;
    __device__ Matrix(const PpAttention &a, const PpMatrix &m, int64_t z)
        : at(static_cast<float *>(m.at)), row(m.row), col(m.col)
    {
        if (at)
            at += begin(a, m.batch, z);
    }
    __device__ float get(int64_t r, int64_t c) const { return at[r * row + c * col]; }
    __device__ void set(int64_t r, int64_t c, float x) const { at[r * row + c * col] = x; }
};

/* ---- scores ---- */

/* What is added to the scores of one matrix, float32 or 16 bits. */
struct Bias {
    const PpAttention &a;
    int64_t begins;
    __device__ Bias(const PpAttention &x, int64_t z)
        : a(x), begins(x.bias.at ? begin(x, x.bias.batch, z) : 0)
    {
    }
    __device__ float at(int64_t r, int64_t c) const
    {
        const int64_t i = begins + r * a.bias.row + c * a.bias.col;
        if (a.bias_dtype == PP_F32)
            return static_cast<const float *>(a.bias.at)[i];
        const uint16_t h = static_cast<const uint16_t *>(a.bias.at)[i];
        return a.bias_dtype == PP_BF16 ? pp_from_bf16(h) : pp_from_f16(h);
    }
};

/* The places of one matrix that are left out. */
struct Mask {
    const PpAttention &a;
    const uint8_t *allowed;
    __device__ Mask(const PpAttention &x, int64_t z)
        : a(x),
          allowed(x.allowed.at
                      ? static_cast<const uint8_t *>(x.allowed.at) + begin(x, x.allowed.batch, z)
                      : nullptr)
    {
    }
    __device__ bool has(int64_t r, int64_t c) const
    {
        if (a.mask.causal && (c > r + a.mask.diagonal ||
                              (a.mask.window && c <= r + a.mask.diagonal - a.mask.window)))
            return true;
        return allowed && (allowed[r * a.allowed.row + c * a.allowed.col] != 0) == a.mask.forbids;
    }
};

/* What dropout makes of 1. */
struct Dropout {
    const PpAttention &a;
    int64_t row, element; /* of the generator */
    __device__ Dropout(const PpAttention &x, int64_t z)
        : a(x), row(x.drop.limit ? begin(x, x.drop.row, z) : 0),
          element(x.drop.limit ? x.drop.first + begin(x, x.drop.element, z) : 0)
    {
    }
    __device__ float kept(int64_t r, int64_t c) const
    {
        const uint64_t e = static_cast<uint64_t>(element + r * a.keys + c);
        uint32_t random[4];
        pp_philox(a.drop.seed, a.drop.step, a.drop.row0 + static_cast<uint64_t>(row), e / 4,
                  a.drop.key, random);
        const uint32_t mine =
            e % 4 < 2 ? (e % 4 == 0 ? random[0] : random[1]) : (e % 4 == 2 ? random[2] : random[3]);
        return mine >= a.drop.limit ? a.drop.kept : 0;
    }
};

/* Which tiles a causal mask leaves, in whole steps from the sequence's begin: keys from `begin` on
 * and below `end` for the queries first .. first + n; queries from `from` on and below `end` for
 * the keys first .. first + n. */
PP_DEVICE int64_t keys_begin(const PpAttention &a, int64_t first, int64_t step)
{
    const int64_t begin = first + a.mask.diagonal - a.mask.window + 1;
    return a.mask.causal && a.mask.window && begin > 0 ? begin / step * step : 0;
}
PP_DEVICE int64_t keys_end(const PpAttention &a, int64_t first, int64_t n)
{
    const int64_t end = first + n + a.mask.diagonal;
    return a.mask.causal && end < a.keys ? end : a.keys;
}
PP_DEVICE int64_t rows_begin(const PpAttention &a, int64_t first, int64_t step)
{
    return a.mask.causal && first > a.mask.diagonal ? (first - a.mask.diagonal) / step * step : 0;
}
PP_DEVICE int64_t rows_end(const PpAttention &a, int64_t first, int64_t n)
{
    const int64_t end = first + n - 1 - a.mask.diagonal + a.mask.window;
    return a.mask.causal && a.mask.window && end < a.rows ? end : a.rows;
}

/* ---- the host's side ---- */

inline int64_t attention_matrices(const PpAttention &a)
{
    int64_t n = 1;
    for (int i = 0; i < a.dims; i++)
        n *= a.count[i];
    return n;
}

/* Has a block of this card so many bytes of shared memory? */
inline bool card_has(int bytes)
{
    int device = 0, most = 0;
    char why[128];
    if (!PP_CUDA(cudaGetDevice(&device)) ||
        !PP_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)))
        return false;
    snprintf(why, sizeof why,
             "it needs %d KiB of shared memory, and this GPU has %d: compute capability 8.0 does",
             bytes / 1024, most / 1024);
    if (most < bytes)
        pp_cuda_note("attention", why, __FILE__, __LINE__);
    return most >= bytes;
}

/* Blocks of so many bytes of shared memory: more than 48 KiB have to be asked for, once for a
 * kernel. */
template <class... P> bool room(void (*kernel)(P...), int bytes, bool *asked)
{
    if (!*asked && bytes > 48 * 1024)
        *asked = card_has(bytes) &&
                 PP_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              bytes));
    return *asked || bytes <= 48 * 1024;
}

/* Operations and bytes of `products` products of all scores; tensors: of q's size or k's, of
 * elements of so many bytes. */
inline void note(const PpAttention &a, double products, double tensors, double element)
{
    const double n = static_cast<double>(attention_matrices(a)),
                 rows = n * static_cast<double>(a.rows), keys = static_cast<double>(a.keys),
                 half = a.mask.causal && a.rows == a.keys ? 0.5 : 1;
    PP_WORK("attention", 2 * products * half * rows * keys * a.width,
            tensors * element * static_cast<double>(a.width) * (rows + n * keys) / 2);
}

#endif
