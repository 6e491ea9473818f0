/*
 * test_math.c - the elementary functions of runtime/api/pp_math.h against libm in double, over a
 * stride through all float bit patterns and over the ranges that training visits, dense; the
 * greatest error in ulp is asserted.
 */
#include <stdlib.h>

#include "base/half.h"
#include "runtime/api/pp_half.h"
#include "runtime/api/pp_math.h"
#include "runtime/api/pp_random.h"
#include "tap.h"

/* Error in units of the last place of the float nearest to the exact result. */
static double ulp_error(float got, double want)
{
    float rounded = (float)want;
    if (rounded != rounded || got != got)
        return (rounded != rounded) == (got != got) ? 0 : 1e30;
    if (fabsf(rounded) == INFINITY || fabsf(got) == INFINITY)
        return rounded == got ? 0 : 1e30;
    int exponent;
    frexp(fabs(want) < 1.1754943508222875e-38 ? 1.1754943508222875e-38 : want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, exponent - 24);
}

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }

#define CHECK(name, reference, limit, lo, hi)                                                      \
    do {                                                                                           \
        double worst = 0;                                                                          \
        float at = 0;                                                                              \
        for (uint32_t i = 0; i < 4294967000u; i += 8191) {                                         \
            float x = pp_float_of((int32_t)i);                                                     \
            double e = ulp_error(pp_##name##f(x), reference((double)x));                           \
            if (e > worst) {                                                                       \
                worst = e;                                                                         \
                at = x;                                                                            \
            }                                                                                      \
        }                                                                                          \
        for (int i = 0; i <= 400000; i++) {                                                        \
            float x = (float)((lo) + ((hi) - (lo)) * i / 400000);                                  \
            double e = ulp_error(pp_##name##f(x), reference((double)x));                           \
            if (e > worst) {                                                                       \
                worst = e;                                                                         \
                at = x;                                                                            \
            }                                                                                      \
        }                                                                                          \
        ok(worst <= (limit), #name ": %.3f ulp at most (limit %.2f), at %a", worst,                \
           (double)(limit), (double)at);                                                           \
    } while (0)

static void check_pow(void)
{
    static const float special[] = {0.0f,  -0.0f,  1.0f,      -1.0f, 2.0f,        -2.0f,
                                    3.0f,  -3.0f,  0.5f,      -0.5f, INFINITY,    -INFINITY,
                                    NAN,   1e-40f, -1e-40f,   3e38f, 16777216.0f, 16777217.0f,
                                    1e20f, -7.0f,  1.0000001f};
    int n = (int)(sizeof special / sizeof *special), bad = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float got = pp_powf(special[i], special[j]);
            double want = pow((double)special[i], (double)special[j]);
            double e = ulp_error(got, want);
            if (e > 1 || (got == 0 && signbit(got) != signbit((float)want))) {
                bad++;
                printf("# pow(%a, %a) = %a, libm %a\n", (double)special[i], (double)special[j],
                       (double)got, want);
            }
        }
    ok(bad == 0, "pow: special values as libm's");
    double worst = 0;
    for (int i = 1; i < 2000; i++)
        for (int j = -300; j < 300; j++) {
            float x = (float)i * 0.013f, y = (float)j * 0.071f;
            double e = ulp_error(pp_powf(x, y), pow((double)x, (double)y));
            worst = e > worst ? e : worst;
        }
    ok(worst <= 0.51, "pow: %.4f ulp at most", worst);
}

/* ---- 16-bit numbers ---- */

static int same(float a, float b) { return pp_bits_f(a) == pp_bits_f(b); }

/* What a half's bits stand for, and back; NaN made quiet. */
static void check_all_halves(void)
{
    int wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t is = (uint16_t)h, quiet_f16 = (h & 0x7fff) > 0x7c00 ? (uint16_t)(h | 0x200) : is;
        uint16_t quiet_bf16 = (h & 0x7fff) > 0x7f80 ? (uint16_t)(h | 0x40) : is;
        double f16 = half_to_double(is), bf16 = bfloat_to_double(is);
        wrong += (f16 == f16) != !(pp_from_f16(is) != pp_from_f16(is));
        wrong += f16 == f16 && !same(pp_from_f16(is), (float)f16);
        wrong += bf16 == bf16 && !same(pp_from_bf16(is), (float)bf16);
        wrong += pp_to_f16(pp_from_f16(is)) != quiet_f16;
        wrong += pp_to_bf16(pp_from_bf16(is)) != quiet_bf16;
    }
    ok(wrong == 0, "every f16 and bf16 to float and back");
}

/* 16 lanes as kernels have them; the rounded float is what its half stands for. */
static void check_to_halves(void)
{
    enum { LANES = 16 };
    int wrong = 0;
    for (uint32_t i = 0; i < 4294960000u; i += 16 * 421) {
        float x[LANES], round_f16[LANES], round_bf16[LANES];
        uint16_t f16[LANES], bf16[LANES];
        for (uint32_t k = 0; k < LANES; k++)
            x[k] = pp_float_of((int32_t)(i + k * 421 + (k & 4 ? 0 : (i + k * 421) & 0xfff)));
        for (int k = 0; k < LANES; k++) {
            f16[k] = pp_to_f16(x[k]);
            bf16[k] = pp_to_bf16(x[k]);
            round_f16[k] = pp_round_f16(x[k]);
            round_bf16[k] = pp_round_bf16(x[k]);
        }
        for (int k = 0; k < LANES; k++) {
            int nan = x[k] != x[k];
            wrong += !nan && f16[k] != half_of_double((double)x[k]);
            wrong += !nan && bf16[k] != bfloat_of_double((double)x[k]);
            wrong += nan && ((f16[k] & 0x7e00) != 0x7e00 || (bf16[k] & 0x7fc0) != 0x7fc0);
            wrong += !same(round_f16[k], pp_from_f16(f16[k]));
            wrong += !same(round_bf16[k], pp_from_bf16(bf16[k]));
        }
    }
    ok(wrong == 0, "floats to f16 and bf16: the nearest, and rounding is both ways");
}

static int is_plain_nan(float x)                        /* quiet, its lower half empty */
{
    return x != x && (pp_bits_f(x) & 0x40ffff) == 0x400000;
}

/* Of what arithmetic makes of bf16 numbers the shorter rounding gives the same bits.  The functions
   are those of the ops that ops.def calls ARITHMETIC: they pass on the NaNs they are given. */
static void check_nearest(void)
{
    int wrong = 0, broken = 0;
    for (uint32_t i = 0; i < 4294960000u; i += 6007) {
        float x = pp_float_of((int32_t)(i & 8 ? i : i & 0xffff8000u)); /* and ties */
        wrong += (x == x || is_plain_nan(x)) && !same(pp_nearest_bf16(x), pp_round_bf16(x));
    }
    for (uint32_t h = 0x7f81; h < 0x8000; h++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            const float x = pp_from_bf16((uint16_t)(h | sign << 15)), other = (float)h;
            const float made[] = {pp_expf(x),    pp_sqrtf(x),    pp_tanhf(x), pp_erff(x),
                                  pp_sigmoidf(x), 1 / x,         x + other,   other - x,
                                  x * other,     x / other,     x + x,       other / x};
            for (size_t k = 0; k < sizeof made / sizeof *made; k++)
                broken += !is_plain_nan(made[k]);
        }
    const volatile float zero = 0, infinite = INFINITY;
    broken += !is_plain_nan(zero * infinite) + !is_plain_nan(infinite - infinite) +
              !is_plain_nan(zero / zero) + !is_plain_nan(pp_sqrtf(-infinite));
    ok(wrong == 0, "the shorter rounding to bf16 has the bits of the other one");
    ok(broken == 0, "arithmetic on NaNs of bf16 makes NaNs of bf16");
}

static void check_ties(void)
{
    static const struct { uint32_t from; uint16_t to; } brain[] = {
        {0x3F808000, 0x3F80}, {0x3F818000, 0x3F82}, {0x7F7FFFFF, 0x7F80}, {0x7F800001, 0x7FC0},
        {0x00000001, 0x0000}, {0xFF800000, 0xFF80}, {0xFFFFFFFF, 0xFFFF}, {0x80000000, 0x8000}};
    static const struct { float from; uint16_t to; } half[] = {
        {65519.996f, 0x7bff},           {65520.0f, 0x7c00},    {-65520.0f, 0xfc00},
        {5.9604644775390625e-08f, 1},   {2.9802322387695312e-08f, 0},
        {2.9802325940408986e-08f, 1},   {1.00048828125f, 0x3c00},
        {1.00146484375f, 0x3c02},       {6.1035156e-05f, 0x0400}, {6.1005353927612305e-05f, 0x400},
        {6.1020255088806152e-05f, 0x400}, {-0.0f, 0x8000}, {INFINITY, 0x7c00}};
    int wrong = 0;
    for (size_t i = 0; i < sizeof brain / sizeof *brain; i++)
        wrong += pp_to_bf16(pp_float_of((int32_t)brain[i].from)) != brain[i].to;
    for (size_t i = 0; i < sizeof half / sizeof *half; i++)
        wrong += pp_to_f16(half[i].from) != half[i].to;
    ok(wrong == 0, "ties go to even, too large is infinite, a NaN stays one");
}

/* Philox with a counter and a key of 0 and of ones (Random123's own vectors), and the moments of
 * uniform numbers and of normal ones made of them. */
static void check_random(void)
{
    enum { N = 1 << 20 };
    uint32_t r[4];
    pp_philox(0, 0, 0, 0, 0, r);
    ok(r[0] == 0x6627e8d5 && r[1] == 0xe169c58d && r[2] == 0xbc57ac4c && r[3] == 0x9b00dbd8,
       "philox");
    ok(pp_uniformf(0) == 0x1p-24f && pp_uniformf(UINT32_MAX) == 1 - 0x1p-24f &&
           pp_uniform(0, 0) == 0x1p-53 && pp_uniform(UINT32_MAX, UINT32_MAX) == 1 - 0x1p-53,
       "numbers are within (0, 1)");
    double u[4] = {0}, z[4] = {0};
    for (uint64_t i = 0; i < N / 4; i++) {
        pp_philox(3, 1, 0, i, 5, r);
        for (int k = 0; k < 4; k++) {
            double x = (double)pp_uniformf(r[k]) - 0.5;
            double n = sqrt(-2 * log(x + 0.5)) *
                       cos(6.283185307179586 * pp_uniform(r[(k + 1) % 4], r[(k + 2) % 4]));
            for (int p = 0; p < 4; p++)
                u[p] += pow(x, p + 1) / N, z[p] += pow(n, p + 1) / N;
        }
    }
    /* five deviations of each mean */
    ok(fabs(u[0]) < 1.5e-3 && fabs(u[1] - 1.0 / 12) < 4e-4 && fabs(u[3] - 1.0 / 80) < 1e-4,
       "moments of uniform numbers");
    ok(fabs(z[0]) < 5e-3 && fabs(z[1] - 1) < 7e-3 && fabs(z[2]) < 2e-2 && fabs(z[3] - 3) < 5e-2,
       "moments of normal numbers");
}

int main(void)
{
    check_random();
    check_all_halves();
    check_to_halves();
    check_nearest();
    check_ties();
    CHECK(exp, exp, 1.5, -90, 90);
    CHECK(log, log, 1.5, 0, 10);
    CHECK(tanh, tanh, 2, -10, 10);
    CHECK(erf, erf, 2, -5, 5);
    CHECK(sigmoid, sigmoid, 2, -90, 20);
    CHECK(softplus, softplus, 2, -20, 30);
    CHECK(sin, sin, 0.51, -400, 400);
    CHECK(cos, cos, 0.51, -400, 400);
    CHECK(atanh, atanh, 0.51, -1, 1);
    check_pow();
    ok(pp_modi(-7, 3) == 2 && pp_fmodi(-7, 3) == -1 && pp_modi(7, -3) == -2 && pp_divi(7, 0) == 0 &&
           pp_divi(INT32_MIN, -1) == INT32_MIN, "integer division and remainders");
    ok(pp_maxf(NAN, 1) != pp_maxf(NAN, 1) && pp_maxf(1, NAN) != pp_maxf(1, NAN), "max: NaN wins");
    ok(pp_powl(3, 4) == 81 && pp_powl(2, -1) == 0 && pp_powl(-1, -3) == -1, "integer powers");
    return tap_done();
}
