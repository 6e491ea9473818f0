/*
 * element.h - element types of kernels: how one is read into a sum, and how a sum is written.
 */
#ifndef PP_ELEMENT_H
#define PP_ELEMENT_H

#include "api/pp.h"
#include "api/pp_half.h"

struct ElementFloat {
    using In = float;
    using Sum = float;
    static __device__ __forceinline__ float load(float x) { return x; }
    static __device__ __forceinline__ float store(float x) { return x; }
};
struct ElementDouble {
    using In = double;
    using Sum = double;
    static __device__ __forceinline__ double load(double x) { return x; }
    static __device__ __forceinline__ double store(double x) { return x; }
};
struct ElementBf16 {
    using In = uint16_t;
    using Sum = float;
    static __device__ __forceinline__ float load(uint16_t x) { return pp_from_bf16(x); }
    static __device__ __forceinline__ uint16_t store(float x) { return pp_to_bf16(x); }
};
struct ElementF16 {
    using In = uint16_t;
    using Sum = float;
    static __device__ __forceinline__ float load(uint16_t x) { return pp_from_f16(x); }
    static __device__ __forceinline__ uint16_t store(float x) { return pp_to_f16(x); }
};

/* Calls f with the kind of a dtype. */
template <class F> static inline void element_kind(int dtype, F f) {
    switch (dtype) {
    case PP_F64: f(ElementDouble()); break;
    case PP_BF16: f(ElementBf16()); break;
    case PP_F16: f(ElementF16()); break;
    default: f(ElementFloat()); break;
    }
}

#endif
