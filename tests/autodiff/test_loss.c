/*
 * test_loss.c - every loss and its gradient against PyTorch's numbers (torch.nn.functional,
 * float64), and how their scale is said to the runtime; then the options that are refused.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "oracle/oracle.h"
#include "tap.h"

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})

enum { N = 12 };                                        /* x is [2, 2, 3] */
static double x[N] = {0.5, -1, 2, 0, 1.5, -0.25, 1, 0, -2, 0.75, -0.5, 3};
static double real_target[N] = {1, 0, 1, 0.25, 1, 0, 1, 0, 0, 0, 0.5, 1};
static int64_t last_axis[4] = {2, -100, 0, 1}, axis_1[6] = {1, 0, -100, 0, 1, 1};

static Graph *make(Arena *a)
{
    Graph *g = graph_new(a, "model");
    g->batch = 2;
    graph_param(g, (Param){.name = "x", .dtype = DT_F64, .shape = S(2, 2, 3), .trainable = true});
    ValueId scalar = g_sum_to(g, g_mul(g, g->param.at[0].value, g->param.at[0].value), &(Shape){0});
    ValueId class = graph_input(g, "class", DT_I64, &S(2));
    const struct {
        const char *name;
        ValueId v;
    } out[] = {{"class", class}, {"y", g->param.at[0].value}, {"own", scalar}};
    for (int i = 0; i < 3; i++) {
        vec_push(a, &g->output, out[i].v);
        vec_push(a, &g->output_name, out[i].name);
    }
    return g;
}

typedef struct {
    const char *loss;
    bool sum;
    void *target;
    double scale, value;
    LossScale kind;
    double dx[N];
} Case;

static const Case cases[] = {
    {"mse",
     false,
     real_target,
     1. / 12,
     1.015625,
     LOSS_MEAN_ELEMENTS,
     {-1. / 12, -1. / 6, 1. / 6, -1. / 24, 1. / 12, -1. / 24, 0, 0, -1. / 3, 0.125, -1. / 6,
      1. / 3}},
    {"l1",
     false,
     real_target,
     1. / 12,
     0.7708333333333334,
     LOSS_MEAN_ELEMENTS,
     {-1. / 12, -1. / 12, 1. / 12, -1. / 12, 1. / 12, -1. / 12, 0, 0, -1. / 12, 1. / 12, -1. / 12,
      1. / 12}},
    {"bce_with_logits",
     false,
     real_target,
     1. / 12,
     0.4523032318460611,
     LOSS_MEAN_ELEMENTS,
     {-0.03146172239984545, 0.02241178511416626, -0.009933576835176474, 0.020833333333333332,
      -0.015202126983863029, 0.03648529159285016, -0.02241178511416626, 0.041666666666666664,
      0.009933576835176462, 0.05659822493128275, -0.010204944266821217, -0.003952156098130553}},
    {"cross_entropy",
     false,
     last_axis,
     1. / 3,
     1.4058272240187968,
     LOSS_MEAN_TARGETS,
     {0.05843013071334556, 0.013037524423562482, -0.07146765513690803, 0, 0, 0, -0.0982051624339196,
      0.0864988201141397, 0.011706342319779909, 0.030937988548873977, -0.32446945120887527,
      0.2935314626600013}},
    {"cross_entropy:1",
     false,
     axis_1,
     1. / 5,
     1.021939694204145,
     LOSS_MEAN_TARGETS,
     {0.12449186624037092, -0.1848283639957513, 0, -0.12449186624037092, 0.1848283639957513, 0,
      -0.08756469982284039, 0.12449186624037092, 0.001338570184856971, 0.08756469982284038,
      -0.12449186624037092, -0.0013385701848569465}},
    {"cross_entropy:-1",
     true,
     last_axis,
     1,
     4.21748167205639,
     LOSS_SUM,
     {0.1752903921400367, 0.03911257327068745, -0.21440296541072412, 0, 0, 0, -0.2946154873017588,
      0.25949646034241913, 0.03511902695933973, 0.09281396564662193, -0.9734083536266259,
      0.880594387980004}},
    {"nll",
     false,
     last_axis,
     1. / 3,
     -0.8333333333333334,
     LOSS_MEAN_TARGETS,
     {0, 0, -1. / 3, 0, 0, 0, -1. / 3, 0, 0, 0, -1. / 3, 0}},
    {"output:own",
     false,
     NULL,
     0.5,
     11.1875,
     LOSS_MEAN_ROWS,
     {0.5, -1, 2, 0, 1.5, -0.25, 1, 0, -2, 0.75, -0.5, 3}},
};

static void run(const Case *c)
{
    Arena *a = arena_new();
    Graph *g = make(a);
    Loss l = loss_append(g, &(LossOptions){.loss = c->loss, .sum = c->sum}, NULL);
    ValueId dx, wrt = g->param.at[0].value;
    Ids list = {0};
    for (NodeId n = 0; n < g->node.n; n++)
        vec_push(a, &list, n);
    grad_nodes(g, list.at, list.n, l.loss, 1, &wrt, &dx);
    for (NodeId n = list.n; n < g->node.n; n++)
        vec_push(a, &list, n);
    Tensor *at = arena_array(a, Tensor, g->value.n);
    double scale = c->scale;
    at[wrt] = (Tensor){DT_F64, S(2, 2, 3), x};
    at[l.loss_scale] = (Tensor){DT_F64, {0}, &scale};
    at[g->input.at[0]] = (Tensor){DT_I64, S(2), last_axis};
    if (l.target != NONE)
        at[l.target] = (Tensor){val(g, l.target)->dtype, val(g, l.target)->shape, c->target};
    oracle_nodes(g, a, list.at, list.n, at);
    double off = fabs(*(double *)at[l.loss].data - c->value);
    for (int i = 0; i < N; i++)
        off = fmax(off, fabs(((double *)at[dx].data)[i] - c->dx[i]));
    ok(off < 1e-14, "%s: loss and gradient are PyTorch's (off by %.1e)", c->loss, off);
    ok(l.scale == c->kind && (l.target == NONE) == (c->target == NULL) &&
           (l.scale != LOSS_MEAN_TARGETS || l.ignore == -100), "%s: its scale", c->loss);
    arena_free(a);
}

typedef struct { const char *loss; Arena *a; } Refused;

static void attempt(void *p)
{
    const Refused *r = p;
    loss_append(make(r->a), &(LossOptions){.loss = r->loss}, NULL);
}

static void refused(const char *loss, int code)
{
    Refused r = {loss, arena_new()};
    int keep = dup(STDERR_FILENO);
    if (!freopen("/dev/null", "w", stderr))
        printf("# no /dev/null\n");
    int got = diag_run(attempt, &r);
    arena_free(r.a);
    fflush(stderr);
    dup2(keep, STDERR_FILENO);
    close(keep);
    ok(got == code, "'%s' is refused", loss);
}

int main(void)
{
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        run(&cases[i]);
    Arena *a = arena_new();
    ok(loss_append(make(a), &(LossOptions){0}, NULL).loss == NONE,
       "without a loss nothing is added");
    arena_free(a);
    refused("crossentropy", EXIT_USAGE);
    refused("mse:1", EXIT_USAGE);
    refused("cross_entropy:3", EXIT_USAGE);
    refused("cross_entropy:last", EXIT_USAGE);
    refused("output:", EXIT_USAGE);
    refused("output:nosuch", EXIT_USAGE);
    refused("output:y", EXIT_MODEL);
    refused("output:class", EXIT_MODEL);
    return tap_done();
}
