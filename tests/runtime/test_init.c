/*
 * test_init.c - --init (runtime/io/init.h): moments and bounds are those of the formulas of
 * torch.nn.init, any part of a parameter has the numbers of the whole, the last option that matches
 * decides, and what it cannot do it says.
 */
#include "runtime/core/core.h"
#include "runtime/io/init.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* fc: fan_in 96, fan_out 4000; conv: fan_in 3 * 5 * 5, fan_out 8 * 5 * 5 */
static const PpParam params[] = {
    {.t = {.name = "fc.weight", .dtype = PP_F32, .rank = 2, .dim = {4000, 96}}, .axis = -1},
    {.t = {.name = "fc.bias", .dtype = PP_F32, .rank = 1, .dim = {4000}}, .axis = -1},
    {.t = {.name = "conv.weight", .dtype = PP_F64, .rank = 4, .dim = {8, 3, 5, 5}}, .axis = -1},
    {.t = {.name = "ln.weight", .dtype = PP_F32, .rank = 1, .dim = {96}}, .axis = -1},
    {.t = {.name = "ln.bias", .dtype = PP_F32, .rank = 1, .dim = {96}}, .axis = -1},
    {.t = {.name = "bn.running_var", .dtype = PP_F32, .rank = 1, .dim = {96}}, .axis = -1, .stat = 1},
    {.t = {.name = "bn.running_mean", .dtype = PP_F32, .rank = 1, .dim = {96}}, .axis = -1, .stat = 1},
};
enum { PARAMS = sizeof params / sizeof *params, MOST = 4000 * 96 };
static const PpStage stage = {.n_param = PARAMS, .param = params};
static const PpStage *const stages[] = {&stage};
static const PpPlan plan = {.n_stage = 1, .stage = stages};
static float out[MOST];

static const PpParam *find(const char *name)
{
    for (int i = 0; i < PARAMS; i++)
        if (!strcmp(params[i].t.name, name))
            return &params[i];
    abort();
}

static int64_t elements(const PpParam *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->t.rank; i++)
        n *= p->t.dim[i];
    return n;
}

typedef struct {
    double mean, deviation, fourth, bound;
} Moments;

static Moments moments(const float *x, int64_t n)
{
    Moments m = {0};
    for (int64_t i = 0; i < n; i++)
        m.mean += (double)x[i] / (double)n;
    double two = 0, four = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - m.mean;
        two += d * d / (double)n;
        four += d * d * d * d / (double)n;
        m.bound = fmax(m.bound, fabs((double)x[i]));
    }
    m.deviation = sqrt(two);
    m.fourth = two > 0 ? four / (two * two) : 0;
    return m;
}

/* The whole parameter with these options, in out[]; 0: no option matches it. */
static int fill(const char *name, const char **option, int n, uint64_t seed)
{
    const PpParam *p = find(name);
    const Options o = {.train.init = {option, n}, .data.seed = seed};
    Init x;
    if (init_of(&o, &plan, p, p->t.name, &x) != PP_OK)
        return -1;
    int64_t size = p->t.dtype == PP_F64 ? 8 : 4;
    const Box all = box_whole(elements(p) * size);
    if (x.given && size == 4)
        init_fill(&x, PP_F32, &all, (char *)out);
    if (x.given && size == 8) {
        static double wide[8 * 3 * 5 * 5];
        init_fill(&x, PP_F64, &all, (char *)wide);
        for (int64_t i = 0; i < elements(p); i++)
            out[i] = (float)wide[i];
    }
    return x.given;
}

static Moments of(const char *name, const char *option)
{
    memset(out, 0, sizeof out);
    if (fill(name, &option, 1, 7) != 1)
        return (Moments){-1, -1, -1, -1};
    return moments(out, elements(find(name)));
}

static int near(double x, double want, double within) { return fabs(x - want) <= within * want; }

static void check_numbers(void)
{
    const int64_t n = MOST;
    Moments m = of("fc.weight", "fc.*=normal:0.02");
    ok(fabs(m.mean) < 4 * 0.02 / sqrt((double)n) && near(m.deviation, 0.02, 0.01) &&
           near(m.fourth, 3, 0.03) && m.bound < 0.12,
       "normal: mean %g, deviation %g, kurtosis %g", m.mean, m.deviation, m.fourth);
    m = of("fc.weight", "fc.*=uniform:0.5");
    ok(near(m.deviation, 0.5 / sqrt(3), 0.01) && near(m.fourth, 1.8, 0.02) && m.bound < 0.5 &&
           m.bound > 0.499,
       "uniform: deviation %g, kurtosis %g, within %g", m.deviation, m.fourth, m.bound);
    m = of("fc.weight", "*=xavier");
    ok(near(m.bound, sqrt(6.0 / (96 + 4000)), 0.001), "xavier of a matrix: within %g", m.bound);
    m = of("fc.weight", "*=kaiming");
    ok(near(m.bound, sqrt(6.0 / 96), 0.001), "kaiming: within %g", m.bound);
    m = of("conv.weight", "*=xavier");
    ok(near(m.bound, sqrt(6.0 / (75 + 200)), 0.01) && m.bound <= sqrt(6.0 / 275),
       "xavier of a convolution: within %g", m.bound);
    m = of("fc.weight", "*=default");
    ok(near(m.bound, 1 / sqrt(96), 0.001) && near(m.fourth, 1.8, 0.02), "default: within %g", m.bound);
    m = of("fc.bias", "*=default");
    ok(near(m.bound, 1 / sqrt(96), 0.01) && m.deviation > 0, "its bias likewise: within %g", m.bound);
    m = of("ln.weight", "*=default");
    ok(near(m.mean, 1, 1e-9) && m.bound == 1, "a norm's weight: ones");
    ok(of("ln.bias", "*=default").bound == 0, "a norm's bias: zeros");
    ok(near(of("bn.running_var", "*=default").mean, 1, 1e-9) && of("bn.running_mean", "*=default").bound == 0,
       "statistics: ones and zeros");
    ok(of("bn.running_var", "*=ones").mean == -1, "which no other kind gives");
}

static void check_choice(void)
{
    const char *two[] = {"*=xavier", "*.bias=zeros"}, *not_it[] = {"nope*=ones"};
    static float first[96];
    ok(fill("ln.bias", two, 2, 0) == 1 && moments(out, 96).bound == 0, "the last that matches");
    ok(fill("ln.bias", not_it, 1, 0) == 0, "none that matches");
    const char *normal = "*=normal";
    fill("fc.bias", &normal, 1, 1);
    memcpy(first, out, sizeof first);
    fill("fc.bias", &normal, 1, 2);
    ok(memcmp(first, out, sizeof first) != 0, "another seed, other numbers");
    fill("ln.bias", &normal, 1, 1);
    ok(memcmp(first, out, sizeof first) != 0, "another name, other numbers");
    fill("fc.bias", &normal, 1, 1);
    ok(!memcmp(first, out, sizeof first), "the same of both, the same");
}

/* Parts along both axes, and pieces of them. */
static void check_parts(void)
{
    const PpParam *p = find("fc.weight");
    const char *normal = "*=normal";
    const Options o = {.train.init = {&normal, 1}};
    static float part[MOST];
    Init x;
    int same = fill("fc.weight", &normal, 1, 0) == 1 && init_of(&o, &plan, p, p->t.name, &x) == PP_OK;
    for (int axis = 0; axis < 2; axis++)
        for (int k = 0; k < 3; k++) {
            const int64_t many = p->t.dim[axis] / 3, at = k * many;
            Box b = box_along(2, p->t.dim, axis, 1, at, many, 4);
            b.first = 4 * 17;
            b.bytes -= 4 * 40;
            init_fill(&x, PP_F32, &b, (char *)part);
            for (int64_t i = 0, where; i < b.bytes; i += 4)
                same &= box_run(&b, i, &where) > 0 && part[i / 4] == out[where / 4];
        }
    ok(same, "a part of a parameter has the numbers of the whole");
}

static void check_refused(const char *option, const char *why)
{
    const Options o = {.train.init = {&option, 1}};
    int refused = init_check(&o, &plan) == PP_ERR_USAGE;
    ok(refused && strstr(pp_failure_text(), why), "%s: %s", option, refused ? pp_failure_text() : "");
    pp_failure_forget();
}

int main(void)
{
    check_numbers();
    check_choice();
    check_parts();
    check_refused("w", "expected PATTERN=KIND");
    check_refused("*=gauss", "expected PATTERN=KIND");
    check_refused("=ones", "expected PATTERN=KIND");
    check_refused("*=normal:x", "not a number");
    check_refused("*=normal:-1", "not a number");
    check_refused("*=normal:nan", "not a number");
    check_refused("*=ones:2", "after the kind");
    check_refused("nope=ones", "no parameter");
    const char *xavier = "*=xavier";
    ok(fill("ln.weight", &xavier, 1, 0) == -1, "xavier of a vector is refused");
    return tap_done();
}
