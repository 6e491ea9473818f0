/*
 * per_type.h - expands the rules, and what the including file calls OPTIMIZER, once for each
 * element type that parameters have: 4 bytes (float), then 8 bytes (double).  All arithmetic of an
 * update is in the parameter's type.
 *
 * In a rule T is the type, PER_TYPE(name) the name for it, SQRT its square root, RULE what a
 * function needs to be called in the innermost loop of the device.  No include guard: each
 * inclusion compiles what OPTIMIZER then says.
 */
#ifdef __CUDACC__
#define RULE static __device__ __forceinline__
#else
#define RULE static inline
#endif
#define PER_TYPE_(name, suffix) name##_##suffix
#define PER_TYPE__(name, suffix) PER_TYPE_(name, suffix)
#define PER_TYPE(name) PER_TYPE__(name, SUFFIX)
#define OPTIM_RULES

#define T float
#define SUFFIX f32
#define SQRT sqrtf
#define OPTIMIZER OPTIMIZER_PER_TYPE
#include "optim/optimizers.h"
#undef T
#undef SUFFIX
#undef SQRT

#define T double
#define SUFFIX f64
#define SQRT sqrt
#define OPTIMIZER OPTIMIZER_PER_TYPE
#include "optim/optimizers.h"
#undef T
#undef SUFFIX
#undef SQRT

#undef OPTIM_RULES
#undef OPTIMIZER_PER_TYPE
#undef PER_TYPE
#undef PER_TYPE__
#undef PER_TYPE_
#undef RULE
