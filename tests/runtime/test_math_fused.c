/*
 * test_math_fused.c - test_math.c of the functions as CUDA has them: fused multiply-adds, quotients
 * by a reciprocal that is an ulp beside.
 */
#define PP_FUSED(reciprocal) nextafterf(reciprocal, 0.0f)
#include "tests/runtime/test_math.c"
