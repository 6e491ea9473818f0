/* The optimizers of optimizers.h on the CPU, in both element types, against three steps of
   torch.optim (2.15, float64), and what becomes of their options. */
#include "device/device.h"
#include "optim/lr.h"
#include "optim/optim.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4, STEPS = 3, BIG = 9001 };
static const double start[N] = {0.5, -1.25, 2.0, 0.0};
static const double gradient[STEPS][N] = {
    {0.25, -0.5, 1.5, -0.125}, {-0.75, 0.5, 0.0625, 0.375}, {1.0, 0.25, -2.0, 0.5}};

/* options: lr, momentum, beta1, beta2, eps, weight_decay, nesterov; -1: not given */
static const struct {
    const char *name;
    OptimOptions options;
    double value[N], state[OPTIM_STATES][N];
} cases[] = {
    {"sgd",
     {0.1, -1, -1, -1, -1, 0, 0},
     {0.44999999999999996, -1.275, 2.04375, -0.07500000000000001},
     {{0}}},
    {"sgd",
     {0.1, -1, -1, -1, -1, 0.3, 0},
     {0.405564, -1.1672962500000001, 1.8781485, -0.07461374999999999},
     {{0}}},
    {"momentum",
     {0.1, 0.9, -1, -1, -1, 0, 0},
     {0.47474999999999995, -1.2345, 1.781625, -0.08737500000000001},
     {{0.5275, 0.295, -0.7287499999999998, 0.7362500000000001}}},
    {"momentum",
     {0.1, 0.8, -1, -1, -1, 0.3, 0},
     {0.397884, -1.05549625, 1.5328285, -0.08721374999999999},
     {{0.9131600000000001, -0.5212875000000001, 0.2922150000000001, 0.7183875}}},
    {"momentum",
     {0.1, 0.8, -1, -1, -1, 0.3, 1},
     {0.32581884799999994, -1.02108373, 1.531106452, -0.14418339},
     {{0.9130064, -0.49245150000000004, 0.19990859999999988, 0.7139355}}},
    {"adam",
     {0.1, -1, -1, -1, -1, 0, 0},
     {0.4229789646066314, -1.1804065897387426, 1.8485751969333835, -0.023225495020590632},
     {{0.052749999999999984, 0.0295, -0.07287499999999998, 0.07362499999999998},
      {0.0016243125625000016, 0.0005617502500000005, 0.006249404593750006, 0.0004060781406250004}}},
    {"adam",
     {0.1, -1, 0.8, 0.95, 0.001, 0.3, 0},
     {0.38717651199360453, -1.059373990109944, 1.8056266526583602, -0.03595740043186175},
     {{0.17637061699100495, -0.10329021403751694, 0.0789838969498587, 0.15136932269439396},
      {0.08988991035499232, 0.03601290975824339, 0.32386940732627223, 0.021647460371923707}}},
    {"adamw",
     {0.1, -1, -1, -1, -1, 0.3, 0},
     {0.38374289489685587, -1.0769999448868584, 1.6819326101062269, -0.027652925100930835},
     {{0.052749999999999984, 0.0295, -0.07287499999999998, 0.07362499999999998},
      {0.0016243125625000016, 0.0005617502500000005, 0.006249404593750006, 0.0004060781406250004}}},
    {"adamw",
     {0.1, -1, 0.8, 0.95, 0.001, 0.3, 0},
     {0.3843207169511616, -1.0891285049523842, 1.6943345389398876, -0.03777239898448264},
     {{0.11199999999999993, 0.06599999999999998, -0.19799999999999995, 0.14399999999999996},
      {0.07953906250000006, 0.026281250000000023, 0.30171679687500025, 0.019884765625000016}}},
};

typedef union {
    float f[BIG];
    double d[BIG];
} Tensor;
static Tensor value, grad, state[OPTIM_STATES];

static void put(Tensor *t, int dtype, int i, double x)
{
    if (dtype == PP_F64)
        t->d[i] = x;
    else
        t->f[i] = (float)x;
}

static double get(const Tensor *t, int dtype, int i)
{
    return dtype == PP_F64 ? t->d[i] : (double)t->f[i];
}

/* The largest relative difference of tensor t, whose element i stands for element i mod N, from
 * what it should be. */
static double differs(const Tensor *t, int dtype, const double *want)
{
    double most = 0;
    for (int i = 0; i < BIG; i++)
        most = fmax(most, fabs(get(t, dtype, i) - want[i % N]) / (fabs(want[i % N]) + 0.01));
    return most;
}

/* Steps of one case: gradients arrive `scale` times too large. */
static void run(OptimKind kind, const OptimOptions *o, int dtype, double scale)
{
    Device d = {.op = &device_cpu};
    DeviceParam q = {
        .value = &value, .grad = &grad, .n = BIG, .dtype = dtype, .norm = -1, .update = 1};
    memset(state, 0, sizeof state);
    for (int j = 0; j < optimizers[kind].states; j++)
        q.state[j] = &state[j];
    for (int i = 0; i < BIG; i++)
        put(&value, dtype, i, start[i % N]);
    if (!device_cpu.math.params(&d, &q, 1))
        exit(3);
    for (int step = 0; step < STEPS; step++) {
        DeviceUpdate u = {.optimizer = kind, .scale = 1 / scale};
        for (int i = 0; i < BIG; i++)
            put(&grad, dtype, i, gradient[step][i % N] * scale);
        optimizers[kind].numbers(o, step, u.number[OPTIM_ALL]);
        device_cpu.math.update(&d, 0, &u);
    }
    device_cpu.close(&d);
}

/* TorchTitan's build_lr_schedulers, tests/unit_tests/test_lr_scheduler.py; warm-up is linear. */
static void rates(void)
{
    static const struct {
        LrOptions o;
        int steps, n;
        double want[11];
    } lr[] = {
        {{"linear", 2, 0, -1}, 10, 11, {.5, 1, 1, .875, .75, .625, .5, .375, .25, .125, 0}},
        {{"linear", 2, 0, 0.5}, 10, 10, {.5, 1, 1, 1, 1, 1, .8, .6, .4, .2}},
        {{"linear", 2, 0, 0}, 10, 10, {.5, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {{"linear", 5, 0, 0.8}, 10, 10, {.2, .4, .6, .8, 1, 1, .8, .6, .4, .2}},
        {{"linear", 10, 0, -1}, 5, 5, {.2, .4, .6, .8, 1}},
        {{"linear", 2, 0.2, -1}, 10, 11, {.5, 1, 1, .9, .8, .7, .6, .5, .4, .3, .2}},
        {{"cosine", 0, 0, -1}, 4, 5, {1, 0.85355339059327373, .5, 0.14644660940672624, 0}},
        {{"wsd", 1, 0, 0.5}, 8, 9, {1, 1, 1, 1, 1, .5, 0.29289321881345243, 0.1339745962155614, 0}},
        {{"inverse-sqrt", 4, 0.4, -1}, 9, 9,
         {.25, .5, .75, 1, 0.89442719099991586, 0.81649658092772603, 0.75592894601845451,
          0.70710678118654757, 0.66666666666666663}},
        {{"constant", 4, 0, -1}, 2, 6, {.25, .5, .75, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof lr / sizeof *lr; i++) {
        double most = 0;
        for (int s = 0; s < lr[i].n; s++)
            most = fmax(most, fabs(lr_factor(&lr[i].o, s, lr[i].steps) - lr[i].want[s]));
        ok(most < 2.3e-16, "%s, %d steps of warm-up: the rates", lr[i].o.schedule,
           (int)lr[i].o.warmup);
    }
}

static void steps(void)
{
    int seen[OPTIMIZERS] = {0};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int dtype = PP_F32; dtype <= PP_F64; dtype += PP_F64 - PP_F32) {
            OptimOptions o = cases[c].options;
            OptimKind kind;
            double limit = dtype == PP_F64 ? 1e-14 : 2e-6, most = 1;
            if (optim_find(cases[c].name, &kind) && optim_options(&kind, &o) == PP_OK) {
                run(kind, &o, dtype, 4);
                most = differs(&value, dtype, cases[c].value);
                for (int j = 0; j < optimizers[kind].states; j++)
                    most = fmax(most, differs(&state[j], dtype, cases[c].state[j]));
                seen[kind]++;
            }
            ok(most < limit, "%s, case %zu, %s: PyTorch's numbers to %.2g", cases[c].name, c,
               dtype == PP_F64 ? "double" : "float", most);
        }
    for (int k = 0; k < OPTIMIZERS; k++)
        ok(seen[k] > 0, "%s is compared", optimizers[k].name);
}

/* An infinite element stays, whatever the decay, and leaves nothing in the moments. */
static void infinite(void)
{
    for (int k = 0; k < OPTIMIZERS; k++)
        for (int dtype = PP_F32; dtype <= PP_F64; dtype += PP_F64 - PP_F32) {
            OptimOptions o = {0.1, -1, -1, -1, -1, 0.3, 0};
            OptimKind kind = (OptimKind)k;
            DeviceParam q = {.value = &value, .grad = &grad, .n = 2, .dtype = dtype, .update = 1};
            DeviceUpdate u = {.scale = 1};
            int kept = optim_options(&kind, &o) == PP_OK;
            u.optimizer = kind;
            for (int j = 0; j < OPTIM_STATES; j++)
                q.state[j] = &state[j];
            for (int i = 0; i < 2; i++) {
                put(&value, dtype, i, i ? (double)INFINITY : -(double)INFINITY);
                put(&grad, dtype, i, 0);
                for (int j = 0; j < OPTIM_STATES; j++)
                    put(&state[j], dtype, i, 0);
            }
            optimizers[kind].numbers(&o, 0, u.number[OPTIM_ALL]);
            optim_cpu_update(&q, 1, &u);
            for (int i = 0; i < 2; i++) {
                kept &= get(&value, dtype, i) == (i ? (double)INFINITY : -(double)INFINITY);
                for (int j = 0; j < OPTIM_STATES; j++)
                    kept &= get(&state[j], dtype, i) == 0;
            }
            ok(kept, "%s, %s: what is infinite stays", optimizers[k].name,
               dtype == PP_F64 ? "double" : "float");
        }
}

static void options(void)
{
    const OptimOptions none = {-1, -1, -1, -1, -1, -1, 0};
    OptimOptions o = none;
    OptimKind kind = OPTIM_adamw;
    ok(optim_options(&kind, &o) == PP_OK && o.lr == 0.001 && o.beta1 == 0.9 && o.beta2 == 0.999 &&
           o.eps == 1e-8 && o.weight_decay == 0.01,
       "adamw's defaults are PyTorch's");
    o = none;
    kind = OPTIM_momentum;
    ok(optim_options(&kind, &o) == PP_OK && kind == OPTIM_momentum && o.momentum == 0.9,
       "momentum has a momentum of 0.9");
    o = none;
    o.momentum = 0.5;
    kind = OPTIM_sgd;
    ok(optim_options(&kind, &o) == PP_OK && kind == OPTIM_momentum && o.momentum == 0.5,
       "sgd with momentum keeps a state");
    o = none;
    o.momentum = 0;
    kind = OPTIM_momentum;
    ok(optim_options(&kind, &o) == PP_OK && kind == OPTIM_sgd, "momentum without any keeps none");
    o = none;
    o.beta1 = 0.5;
    kind = OPTIM_sgd;
    ok(optim_options(&kind, &o) == PP_ERR_USAGE, "sgd takes no --beta1");
    o = none;
    o.momentum = 0.5;
    kind = OPTIM_adam;
    ok(optim_options(&kind, &o) == PP_ERR_USAGE, "adam takes no --momentum");
    o = none;
    o.nesterov = 1;
    kind = OPTIM_adamw;
    ok(optim_options(&kind, &o) == PP_ERR_USAGE, "adamw takes no --nesterov");
    o = none;
    o.nesterov = 1;
    kind = OPTIM_sgd;
    ok(optim_options(&kind, &o) == PP_ERR_USAGE, "sgd takes it with a momentum only");
}

int main(void)
{
    rates();
    steps();
    infinite();
    options();
    return tap_done();
}
