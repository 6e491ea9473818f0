/*
 * test_math.c - the elementary functions of runtime/api/pp_math.h against libm in double, over a
 * stride through all float bit patterns and over the ranges that training visits, dense; the
 * greatest error in ulp is asserted.
 */
#include <stdlib.h>

#include "runtime/api/pp_math.h"
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

int main(void)
{
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
