/*
 * pp_math.h - the elementary functions of generated code, for C and for CUDA C.
 *
 * In: finite or not, any argument.  Out: within 2 ulp for f32 (tests/runtime/test_math.c measures
 * each against libm in double).  Suffix f: float; none: double; i: int32; l: int64.
 *
 * The f32 functions that occur in hot loops (exp, log, tanh, erf, sigmoid, softplus, sin, cos, pow)
 * are branch-free and inline, so that a plain loop over them vectorises; all are made of additions,
 * multiplications, divisions and bit moves in a written order, so that with -ffp-contract=off
 * (nvcc: -fmad=false) every compiler and every vector width gives the same bits.  Method: Cody and
 * Waite's reductions, polynomials by our own weighted least-squares (Lawson) fits; the maximal
 * relative error of each fit stands beside its coefficients.  The rarer ones go through libm in
 * double and are rounded once.  The f64 functions are libm's.
 */
#ifndef PP_MATH_H
#define PP_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define PP_FN static __host__ __device__ __forceinline__
#else
#define PP_FN static inline __attribute__((always_inline, unused))
#endif

/*
 * libm's functions, on the CPU under names of which compilers know nothing: they compute what is
 * known to be constant themselves, correctly rounded (gcc; clang asks the libm it runs on), where
 * libm is an ulp beside.  Whether an argument is known depends on what was fused, and so would the
 * bits.
 */
#ifdef __CUDACC__
#define PP_LIBM(name) name
#else
#define PP_LIBM(name) pp_libm_##name
#ifdef __cplusplus
extern "C" {
#endif
#define PP_FROM_LIBM(name)                                                                         \
    extern double pp_libm_##name(double) __asm__(#name) __attribute__((const));
PP_FROM_LIBM(exp)
PP_FROM_LIBM(log)
PP_FROM_LIBM(log1p)
PP_FROM_LIBM(tanh)
PP_FROM_LIBM(erf)
PP_FROM_LIBM(sin)
PP_FROM_LIBM(cos)
PP_FROM_LIBM(tan)
PP_FROM_LIBM(asin)
PP_FROM_LIBM(acos)
PP_FROM_LIBM(atan)
PP_FROM_LIBM(sinh)
PP_FROM_LIBM(cosh)
PP_FROM_LIBM(asinh)
PP_FROM_LIBM(acosh)
PP_FROM_LIBM(atanh)
#undef PP_FROM_LIBM
extern double pp_libm_pow(double, double) __asm__("pow") __attribute__((const));
#ifdef __cplusplus
}
#endif
#endif

/* ---- bits ---- */

PP_FN int32_t pp_bits_f(float x) { int32_t i; memcpy(&i, &x, sizeof i); return i; }
PP_FN float pp_float_of(int32_t i) { float x; memcpy(&x, &i, sizeof x); return x; }
PP_FN int64_t pp_bits_d(double x) { int64_t i; memcpy(&i, &x, sizeof i); return i; }
PP_FN double pp_double_of(int64_t i) { double x; memcpy(&x, &i, sizeof x); return x; }

/* BitCast: the suffix is the operand's */
PP_FN int32_t pp_bitcastf(float x) { return pp_bits_f(x); }
PP_FN int64_t pp_bitcast(double x) { return pp_bits_d(x); }
PP_FN float pp_bitcasti(int32_t x) { return pp_float_of(x); }
PP_FN double pp_bitcastl(int64_t x) { return pp_double_of(x); }

/* ---- simple ones ---- */

PP_FN float pp_absf(float x) { return fabsf(x); }
PP_FN double pp_abs(double x) { return fabs(x); }
PP_FN int32_t pp_absi(int32_t x) { return x < 0 ? (int32_t)(0u - (uint32_t)x) : x; }
PP_FN int64_t pp_absl(int64_t x) { return x < 0 ? (int64_t)(0u - (uint64_t)x) : x; }

/* sign(NaN) = NaN, as ONNX; sign(-0) = -0 */
PP_FN float pp_signf(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
PP_FN double pp_sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
PP_FN int32_t pp_signi(int32_t x) { return (x > 0) - (x < 0); }
PP_FN int64_t pp_signl(int64_t x) { return (x > 0) - (x < 0); }

PP_FN float pp_sqrtf(float x) { return sqrtf(x); }
PP_FN double pp_sqrt(double x) { return sqrt(x); }
PP_FN float pp_floorf(float x) { return floorf(x); }
PP_FN double pp_floor(double x) { return floor(x); }
PP_FN float pp_ceilf(float x) { return ceilf(x); }
PP_FN double pp_ceil(double x) { return ceil(x); }
/* halves to even, as ONNX and PyTorch */
PP_FN float pp_roundf(float x) { return rintf(x); }
PP_FN double pp_round(double x) { return rint(x); }
PP_FN int pp_isinff(float x) { return fabsf(x) == INFINITY; }
PP_FN int pp_isinf(double x) { return fabs(x) == (double)INFINITY; }

/* NaN wins, as torch.minimum and torch.maximum. */
PP_FN float pp_minf(float x, float y) { return x < y || x != x ? x : y; }
PP_FN float pp_maxf(float x, float y) { return x > y || x != x ? x : y; }
PP_FN double pp_min(double x, double y) { return x < y || x != x ? x : y; }
PP_FN double pp_max(double x, double y) { return x > y || x != x ? x : y; }
PP_FN int32_t pp_mini(int32_t x, int32_t y) { return x < y ? x : y; }
PP_FN int32_t pp_maxi(int32_t x, int32_t y) { return x > y ? x : y; }
PP_FN int64_t pp_minl(int64_t x, int64_t y) { return x < y ? x : y; }
PP_FN int64_t pp_maxl(int64_t x, int64_t y) { return x > y ? x : y; }

/* Integer division truncates; by zero it gives 0 rather than a trap, and INT_MIN / -1 wraps. */
PP_FN int32_t pp_divi(int32_t x, int32_t y)
{
    return y == 0 ? 0 : y == -1 ? (int32_t)(0u - (uint32_t)x) : x / y;
}
PP_FN int64_t pp_divl(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0u - (uint64_t)x) : x / y;
}

/* fmod: the sign of x (C); mod: the sign of y (Python). */
PP_FN float pp_fmodf(float x, float y) { return fmodf(x, y); }
PP_FN double pp_fmod(double x, double y) { return fmod(x, y); }
PP_FN int32_t pp_fmodi(int32_t x, int32_t y) { return y == 0 || y == -1 ? 0 : x % y; }
PP_FN int64_t pp_fmodl(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
PP_FN float pp_modf(float x, float y)
{
    float r = fmodf(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
PP_FN double pp_mod(double x, double y)
{
    double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
PP_FN int32_t pp_modi(int32_t x, int32_t y)
{
    int32_t r = pp_fmodi(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
PP_FN int64_t pp_modl(int64_t x, int64_t y)
{
    int64_t r = pp_fmodl(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* ---- what CUDA has an instruction for ---- */

/* a b + c, in one step or in two; n / d for d from 1 to 2^30, within 1 ulp.  By name, so that it is
   the function that says where a product is not rounded, and not the kernel that it came into.
   PP_FUSED: as CUDA has it, on a CPU (tests/runtime/test_math.c). */
#if defined __CUDA_ARCH__
PP_FN float pp_mad_f(float a, float b, float c) { return __fmaf_rn(a, b, c); }
PP_FN float pp_reciprocal_f(float d)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return r;
}
#elif defined PP_FUSED
PP_FN float pp_mad_f(float a, float b, float c) { return fmaf(a, b, c); }
PP_FN float pp_reciprocal_f(float d) { return PP_FUSED(1.0f / d); }
#endif
#if defined __CUDA_ARCH__ || defined PP_FUSED
#define PP_MAD(a, b, c) pp_mad_f(a, b, c)
PP_FN float pp_quotient(float n, float d)
{
    float r = pp_reciprocal_f(d), q = n * r;
    return pp_mad_f(pp_mad_f(-d, q, n), r, q);
}
#else
#define PP_MAD(a, b, c) ((a) * (b) + (c))
PP_FN float pp_quotient(float n, float d) { return n / d; }
#endif

/* ---- exp: x = n ln2 + r, |r| <= ln2 / 2;  exp(r) = 1 + r + r^2 P(r), fit error 3.2e-9 ---- */

PP_FN float pp_exp_rest(float x, float n)               /* r */
{
    float r = PP_MAD(n, -0.693359375f, x);
    return PP_MAD(n, 2.12194440e-4f, r);
}
PP_FN float pp_exp_small(float r)
{
    float p = 1.395048923e-3f;
    p = PP_MAD(p, r, 8.368889801e-3f);
    p = PP_MAD(p, r, 4.166620597e-2f);
    p = PP_MAD(p, r, 1.666651815e-1f);
    p = PP_MAD(p, r, 0.5f);
    return PP_MAD(p, r * r, r) + 1.0f;
}
PP_FN float pp_expf(float x)
{
    /* 1.5 * 2^23: adding it rounds to an integer */
    const float magic = 12582912.0f;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;                          /* comparisons keep a NaN */
    float t = PP_MAD(x, 1.44269504f, magic);
    float n = t - magic;
    int32_t i = pp_bits_f(t) - 0x4b400000;
    float y = pp_exp_small(pp_exp_rest(x, n));
    /* 2^n in two factors: overflow and subnormals come out right */
    int32_t half = i >> 1;
    return y * pp_float_of((int32_t)((uint32_t)(half + 127) << 23)) *
           pp_float_of((int32_t)((uint32_t)(i - half + 127) << 23));
}
PP_FN double pp_exp(double x) { return PP_LIBM(exp)(x); }

/* ---- log: x = 2^k (1 + f), 1 + f in [2/3, 4/3); s = f / (2 + f), log(1 + f) = f - f^2/2 + s
 * (f^2/2 + R(s^2)), fit error 4.2e-9 ---- */

PP_FN float pp_log_parts(float f, float k)              /* log(2^k (1 + f)) */
{
    float s = pp_quotient(f, 2.0f + f), z = s * s, h = 0.5f * f * f;
    float r = 2.377084941e-1f;
    r = PP_MAD(r, z, 2.853152752e-1f);
    r = PP_MAD(r, z, 4.000032544e-1f);
    r = PP_MAD(r, z, 6.666666865e-1f);
    r = r * z;
    return PP_MAD(k, 0.693359375f, (PP_MAD(s, h + r, k * -2.12194440e-4f) - h) + f);
}
PP_FN float pp_logf(float x)
{
    float tiny = x < 1.17549435e-38f ? 1.0f : 0.0f;     /* subnormals are scaled by 2^25 */
    float v = x * (1.0f + tiny * 33554431.0f);
    int32_t i = pp_bits_f(v);
    int32_t e = (i - 0x3f2aaaab) >> 23;                 /* 0x3f2aaaab = 2/3 */
    float f = pp_float_of((int32_t)((uint32_t)i - ((uint32_t)e << 23))) - 1.0f;
    float y = pp_log_parts(f, (float)e - 25.0f * tiny);
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x == INFINITY || x != x ? x : y;
}
PP_FN double pp_log(double x) { return PP_LIBM(log)(x); }

/* log(1 + x) for 0 <= x <= 1: no scaling and no special values; the rounding error of 1 + x is put
 * back. */
PP_FN float pp_log1p_unit_f(float x)
{
    float u = 1.0f + x;
    float lost = x - (u - 1.0f);
    float two = u >= 1.33333337f ? 1.0f : 0.0f;
    float f = (u - two * 0.5f * u) - 1.0f;
    return pp_log_parts(f, two) + pp_quotient(lost, u);
}

/* ---- tanh: odd polynomial below 0.625 (fit error 1.5e-10), else 1 - 2 / (exp(2|x|) + 1) ---- */

PP_FN float pp_tanhf(float x)
{
    float a = fabsf(x), z = x * x;
    float p = 2.147536958e-3f;
    p = PP_MAD(p, z, -8.182673715e-3f);
    p = PP_MAD(p, z, 2.170296758e-2f);
    p = PP_MAD(p, z, -5.394720286e-2f);
    p = PP_MAD(p, z, 1.333321035e-1f);
    p = PP_MAD(p, z, -3.333333135e-1f);
    float small = PP_MAD(x, z * p, x);
    /* exp(2|x|) as pp_expf has it, but for 2^n in one factor: from 10 on all is 1 */
    const float magic = 12582912.0f;
    float b = a > 10.0f ? 20.0f : 2.0f * a;
    float t = PP_MAD(b, 1.44269504f, magic);
    float n = t - magic;
    float scale = pp_float_of((int32_t)(((uint32_t)pp_bits_f(t) << 23) + 0x3f800000u));
    float e = pp_exp_small(pp_exp_rest(b, n));
    float big = 1.0f - pp_quotient(2.0f, PP_MAD(e, scale, 1.0f));
    big = x < 0.0f ? -big : big;
    return a < 0.625f ? small : big;
}
PP_FN double pp_tanh(double x) { return PP_LIBM(tanh)(x); }

/* ---- erf: x + x P(x^2) below 0.921875 (fit error 4e-10), else 1 - exp(-Q(|x|)) (absolute error of
 * the fit 8e-12) ---- */

PP_FN float pp_erff(float x)
{
    float a = fabsf(x), z = x * x;
    float p = 8.397801867e-05f;
    p = PP_MAD(p, z, -8.149807109e-04f);
    p = PP_MAD(p, z, 5.201715976e-03f);
    p = PP_MAD(p, z, -2.685970254e-02f);
    p = PP_MAD(p, z, 1.128370166e-01f);
    p = PP_MAD(p, z, -3.761263490e-01f);
    p = PP_MAD(p, z, 1.283791661e-01f);
    float small = PP_MAD(x, p, x);
    /* erf(4) rounds to 1; a NaN takes the other way */
    float b = a > 4.0f ? 4.0f : a;
    float q = -1.032877321e-06f;
    q = PP_MAD(q, b, 1.659125883e-05f);
    q = PP_MAD(q, b, -9.438267443e-05f);
    q = PP_MAD(q, b, 2.294368096e-05f);
    q = PP_MAD(q, b, 3.033961169e-03f);
    q = PP_MAD(q, b, -2.327817865e-02f);
    q = PP_MAD(q, b, 1.063365713e-01f);
    q = PP_MAD(q, b, 6.346375346e-01f);
    q = PP_MAD(q, b, 1.129025221e+00f);
    q = PP_MAD(q, b, -9.372487693e-05f);
    float big = 1.0f - pp_expf(-q);
    big = x < 0.0f ? -big : big;
    return a >= 0.921875f ? big : small;
}
PP_FN double pp_erf(double x) { return PP_LIBM(erf)(x); }

/* ---- sigmoid, softplus: stable on both sides ---- */

PP_FN float pp_sigmoidf(float x)
{
    float e = pp_expf(-fabsf(x));
    return pp_quotient(x < 0.0f ? e : 1.0f, 1.0f + e);
}
PP_FN double pp_sigmoid(double x)
{
    double e = PP_LIBM(exp)(-fabs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
PP_FN float pp_softplusf(float x)
{
    /* a NaN comes through exp */
    return (x > 0.0f ? x : 0.0f) + pp_log1p_unit_f(pp_expf(-fabsf(x)));
}
PP_FN double pp_softplus(double x)
{
    return (x > 0.0 ? x : 0.0) + PP_LIBM(log1p)(PP_LIBM(exp)(-fabs(x)));
}

/* ---- sin, cos: quarter turns in double, then degree 11 and 10 on [-pi/4, pi/4]; beyond 2^20 libm
 * reduces ---- */

PP_FN double pp_sin_poly(double r)                      /* fit error 4.8e-15 */
{
    double z = r * r;
    double p = -2.4761353988569396e-08;
    p = p * z + 2.7555353777338965e-06;
    p = p * z + -0.00019841263805080194;
    p = p * z + 0.0083333333252409228;
    p = p * z + -0.16666666666631424;
    return r + r * (z * p);
}
PP_FN double pp_cos_poly(double r)                      /* fit error 9.9e-17 */
{
    double z = r * r;
    double p = 2.0648559410166554e-09;
    p = p * z + -2.7555578749693023e-07;
    p = p * z + 2.4801581027453359e-05;
    p = p * z + -0.0013888888878379813;
    p = p * z + 0.041666666666602917;
    return (1.0 - 0.5 * z) + z * (z * p);
}
PP_FN float pp_quarter_f(float x, int64_t shift)        /* sin(x + shift quarter turns) */
{
    double d = (double)x;
    double t = d * 0.63661977236758134 + 6755399441055744.0;    /* 1.5 * 2^52 */
    double n = t - 6755399441055744.0;
    /* pi/2 in two parts, the first of 33 bits */
    double r = (d - n * 1.5707963267341256) - n * 6.0771005065061922e-11;
    int64_t q = pp_bits_d(t) + shift;
    double y = (q & 1) ? pp_cos_poly(r) : pp_sin_poly(r);
    return (float)((q & 2) ? -y : y);
}
PP_FN float pp_sinf(float x)
{
    return fabsf(x) < 1048576.0f ? pp_quarter_f(x, 0) : (float)PP_LIBM(sin)((double)x);
}
PP_FN float pp_cosf(float x)
{
    return fabsf(x) < 1048576.0f ? pp_quarter_f(x, 1) : (float)PP_LIBM(cos)((double)x);
}
PP_FN double pp_sin(double x) { return PP_LIBM(sin)(x); }
PP_FN double pp_cos(double x) { return PP_LIBM(cos)(x); }

/* ---- pow: 2^(y log2|x|) in double, signs and special values after C's pow ---- */

PP_FN double pp_log2_pos(double v)                      /* v > 0, normal; relative error 2e-14 */
{
    int64_t i = pp_bits_d(v);
    int64_t e = (i - 0x3fe6a09e667f3bcd) >> 52;         /* sqrt(1/2) */
    double m = pp_double_of((int64_t)((uint64_t)i - ((uint64_t)e << 52)));
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0.24271795132230561;
    p = p * z + 0.21844033684972619;
    p = p * z + 0.26241026522382721;
    p = p * z + 0.32059758031256491;
    p = p * z + 0.41219858870951059;
    p = p * z + 0.57707801637007294;
    p = p * z + 0.96179669392589595;
    p = p * z + 2.8853900817779286;
    return (double)e + s * p;
}
PP_FN double pp_exp2_core(double t)                     /* |t| <= 1000; relative error 1.5e-14 */
{
    double m = t + 6755399441055744.0;
    double n = m - 6755399441055744.0, r = t - n;
    int64_t i = pp_bits_d(m) - 0x4338000000000000;
    double p = 1.0155057138068456e-07;
    p = p * r + 1.3259373529533801e-06;
    p = p * r + 1.5252956267016926e-05;
    p = p * r + 0.00015403435131426207;
    p = p * r + 0.0013333557675943907;
    p = p * r + 0.0096181291917847977;
    p = p * r + 0.055504108668238669;
    p = p * r + 0.24022650695649964;
    p = p * r + 0.69314718055987856;
    p = p * r + 1.0;
    return p * pp_double_of((int64_t)((uint64_t)(i + 1023) << 52));
}
PP_FN float pp_powf(float x, float y)
{
    double a = (double)fabsf(x), d = (double)y;
    double t = d * pp_log2_pos(a);                      /* a subnormal float is a normal double */
    t = t < -1000.0 ? -1000.0 : t;
    t = t > 1000.0 ? 1000.0 : t;
    float r = (float)pp_exp2_core(t);
    float whole = rintf(y), halves = rintf(0.5f * y);
    int integer = whole == y, odd = integer && halves != 0.5f * y;
    float ax = fabsf(x);
    float zero_or_inf = (ax == 0.0f) == (y > 0.0f) ? 0.0f : INFINITY;           /* 0^y, inf^y */
    r = ax == 0.0f || ax == INFINITY ? zero_or_inf : r;
    r = fabsf(y) == INFINITY ? ((ax > 1.0f) == (y > 0.0f) ? INFINITY : 0.0f) : r;
    r = ax == 1.0f ? 1.0f : r;
    r = x < 0.0f && !integer && ax != INFINITY ? (fabsf(y) == INFINITY ? r : NAN) : r;
    r = (pp_bits_f(x) < 0) && odd ? -r : r;
    r = x != x || y != y ? NAN : r;
    return y == 0.0f || x == 1.0f ? 1.0f : r;
}
PP_FN double pp_pow(double x, double y) { return PP_LIBM(pow)(x, y); }
/* wraps; a negative exponent gives 0 but for 1 and -1 */
PP_FN int64_t pp_powl(int64_t x, int64_t y)
{
    uint64_t r = 1, b = (uint64_t)x;
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    for (; y > 0; y >>= 1, b *= b)
        r *= y & 1 ? b : 1;
    return (int64_t)r;
}
PP_FN int32_t pp_powi(int32_t x, int32_t y) { return (int32_t)pp_powl(x, y); }

/* ---- the rest: libm in double, rounded once ---- */

#define PP_VIA_DOUBLE(name)                                                   \
    PP_FN float pp_##name##f(float x) { return (float)PP_LIBM(name)((double)x); }      \
    PP_FN double pp_##name(double x) { return PP_LIBM(name)(x); }
PP_VIA_DOUBLE(tan)
PP_VIA_DOUBLE(asin)
PP_VIA_DOUBLE(acos)
PP_VIA_DOUBLE(atan)
PP_VIA_DOUBLE(sinh)
PP_VIA_DOUBLE(cosh)
PP_VIA_DOUBLE(asinh)
PP_VIA_DOUBLE(acosh)
PP_VIA_DOUBLE(atanh)
#undef PP_VIA_DOUBLE

#endif
