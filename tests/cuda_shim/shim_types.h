/*
 * shim_types.h - CUDA's small vector types with CUDA's alignments, dim3, and make_*: plain C and
 * C++.
 */
#ifndef SHIM_TYPES_H
#define SHIM_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined __GNUC__
#define SHIM_ALIGN(n) __attribute__((aligned(n)))
#endif

#define SHIM_VECTOR(T, name, align2, align4)                                                       \
    typedef struct SHIM_ALIGN(align2) name##2 { T x, y; }                                          \
    name##2;                                                                                       \
    typedef struct name##3 { T x, y, z; }                                                          \
    name##3;                                                                                       \
    typedef struct SHIM_ALIGN(align4) name##4 { T x, y, z, w; }                                    \
    name##4;                                                                                       \
    static inline name##2 make_##name##2(T x, T y)                                                 \
    {                                                                                              \
        name##2 v = {x, y};                                                                        \
        return v;                                                                                  \
    }                                                                                              \
    static inline name##3 make_##name##3(T x, T y, T z)                                            \
    {                                                                                              \
        name##3 v = {x, y, z};                                                                     \
        return v;                                                                                  \
    }                                                                                              \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                                       \
    {                                                                                              \
        name##4 v = {x, y, z, w};                                                                  \
        return v;                                                                                  \
    }

SHIM_VECTOR(signed char, char, 2, 4)
SHIM_VECTOR(unsigned char, uchar, 2, 4)
SHIM_VECTOR(short, short, 4, 8)
SHIM_VECTOR(unsigned short, ushort, 4, 8)
SHIM_VECTOR(int, int, 8, 16)
SHIM_VECTOR(unsigned, uint, 8, 16)
SHIM_VECTOR(float, float, 8, 16)
SHIM_VECTOR(long long, longlong, 16, 16)
SHIM_VECTOR(unsigned long long, ulonglong, 16, 16)
SHIM_VECTOR(double, double, 16, 16)

#ifdef __cplusplus
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
#else
typedef struct dim3 { unsigned x, y, z; } dim3;
#endif

#endif
