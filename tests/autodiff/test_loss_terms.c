/*
 * test_loss_terms.c - losses that a model computes, as microbatches add them up: loss and gradients
 * of three microbatches, added, are those of the same model made for all their rows, in float64, to
 * rounding; and which losses have no terms, and why.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "oracle/oracle.h"
#include "tap.h"

enum { ROWS = 4, PARTS = 3, ALL = ROWS * PARTS, WIDTH = 3 };
static double x[ALL * WIDTH], w[WIDTH * WIDTH];
static int64_t target[ALL];

/* Of rows: x w, the mean square of each, whether its target counts, the target as a number. */
typedef struct { Graph *g; ValueId w, y, e, counts, number; } Net;

static ValueId over(Graph *g, Op op, ValueId v, int64_t axis)
{
    Shape s = val(g, v)->shape, left = {.rank = s.rank - 1};
    for (int i = 0; i < left.rank; i++)
        left.d[i] = s.d[i + (i >= axis)];
    return g_reshape(g, g_reduce(g, op, v, 1, &axis), &left);
}

static ValueId sum(const Net *n, ValueId v) { return over(n->g, OP_ReduceSum, v, 0); }
static ValueId mean(const Net *n, ValueId v) { return over(n->g, OP_ReduceMean, v, 0); }
static ValueId times(const Net *n, ValueId v, double by)
{
    return g_mul(n->g, v, g_like(n->g, v, by));
}

/* ---- losses ---------------------------------------------------------------------------------- */

static ValueId a_mean(const Net *n) { return mean(n, n->e); }
static ValueId a_sum(const Net *n) { return times(n, sum(n, n->e), 0.3); }

static ValueId valid(const Net *n)
{
    return g_div(n->g, sum(n, g_mul(n->g, n->e, n->counts)), sum(n, n->counts));
}

static ValueId at_least(const Net *n)
{
    ValueId all = sum(n, n->counts), some = g_binary(n->g, OP_Max, all, g_like(n->g, all, 1));
    return g_div(n->g, sum(n, g_mul(n->g, n->e, n->counts)),
                 g_add(n->g, some, g_like(n->g, all, 1e-3)));
}

/* Whole numbers, and the quotient in each row. */
static ValueId in_rows(const Net *n)
{
    Graph *g = n->g;
    ValueId whole = sum(n, g_cast(g, n->counts, DT_I64));
    return sum(n, g_div(g, g_mul(g, n->e, n->counts), g_cast(g, whole, DT_F64)));
}

static ValueId first(const Net *n)
{
    Graph *g = n->g;
    return g_reshape(g, g_slice_axis(g, g_slice_axis(g, n->w, 0, 0, 1), 1, 0, 1), &(Shape){0});
}

static ValueId terms(const Net *n)
{
    Graph *g = n->g;
    ValueId some = g_sub(g, g_add(g, valid(n), times(n, a_mean(n), 0.1)), a_sum(n));
    return g_add(g, g_mul(g, some, g_unary(g, OP_Exp, first(n))), first(n));
}

/* One loss for each feature, in a list, and their mean. */
static ValueId joined(const Net *n)
{
    Graph *g = n->g;
    ValueId square = g_mul(g, n->y, n->y),
            list[3] = {mean(n, square), sum(n, square), g_reshape(g, first(n), &(Shape){1, {1}})};
    return over(g, OP_ReduceMean, g_concat(g, 3, list, 0), 0);
}

/* By mean and variance of the targets, which need the mean. */
static ValueId normed(const Net *n)
{
    Graph *g = n->g;
    ValueId off = g_sub(g, n->number, mean(n, n->number)), spread = mean(n, g_mul(g, off, off));
    ValueId d = g_sub(g, n->e, g_div(g, off, g_unary(g, OP_Sqrt, spread)));
    return mean(n, g_mul(g, d, d));
}

static ValueId root(const Net *n) { return g_unary(n->g, OP_Sqrt, a_mean(n)); }
static ValueId product(const Net *n) { return g_mul(n->g, a_mean(n), sum(n, n->e)); }

static ValueId variance(const Net *n)
{
    ValueId off = g_sub(n->g, n->e, mean(n, n->e));
    return mean(n, g_mul(n->g, off, off));
}

static ValueId drawn(const Net *n)
{
    ValueId some = graph_node(n->g, OP_Random, 1, &n->e, (Attr){.to = DT_F64});
    return g_div(n->g, sum(n, n->e), sum(n, some));
}

static ValueId perhaps_mean(const Net *n)
{
    ValueId all = sum(n, n->e);
    return g_div(n->g, all, g_like(n->g, all, ROWS));
}

/* ---- a model of so many rows ----------------------------------------------------------------- */

typedef ValueId Make(const Net *n);

static Net make(Arena *a, int64_t rows, Make *loss)
{
    Graph *g = graph_new(a, "model");
    Net n = {.g = g};
    g->batch = rows;
    ValueId in = graph_input(g, "x", DT_F64, &(Shape){2, {rows, WIDTH}}),
            t = graph_input(g, "t", DT_I64, &(Shape){1, {rows}});
    n.w = graph_param(g, (Param){.name = "w",
                                 .dtype = DT_F64,
                                 .shape = {2, {WIDTH, WIDTH}},
                                 .trainable = true});
    n.y = g_matmul(g, in, n.w);
    n.e = over(g, OP_ReduceMean, g_mul(g, n.y, n.y), 1);
    ValueId ignored = g_binary(g, OP_Equal, t, g_like(g, t, -100));
    n.counts = g_cast(g, g_unary(g, OP_Not, ignored), DT_F64);
    n.number = g_cast(g, t, DT_F64);
    vec_push(a, &g->output, loss(&n));
    vec_push(a, &g->output_name, "loss");
    return n;
}

/* Loss and gradients of w, added to sum[]: rows from `row` on; totals: NULL, or their values. */
static void add_step(const Net *n, ValueId loss, int row, ValueId scale, double share,
                     const Tensor *totals, double *sum)
{
    Graph *g = n->g;
    Arena *a = g->arena;
    ValueId dw;
    Ids list = {0};
    for (NodeId i = 0; i < g->node.n; i++)
        vec_push(a, &list, i);
    grad_nodes(g, list.at, list.n, loss, 1, &n->w, &dw);
    for (NodeId i = list.n; i < g->node.n; i++)
        vec_push(a, &list, i);
    Tensor *at = arena_array(a, Tensor, g->value.n);
    int64_t rows = g->batch;
    at[g->input.at[0]] = (Tensor){DT_F64, {2, {rows, WIDTH}}, x + (ptrdiff_t)row * WIDTH};
    at[g->input.at[1]] = (Tensor){DT_I64, {1, {rows}}, target + row};
    at[n->w] = (Tensor){DT_F64, {2, {WIDTH, WIDTH}}, w};
    if (scale != NONE)
        at[scale] = (Tensor){DT_F64, {0}, &share};
    for (uint32_t k = 0; totals && k < g->total.n; k++)
        at[g->total.at[k].input] = totals[k];
    oracle_nodes(g, a, list.at, list.n, at);
    sum[0] += *(const double *)at[loss].data;
    for (int i = 0; i < WIDTH * WIDTH; i++)
        sum[1 + i] += ((const double *)at[dw].data)[i];
}

/* Value v of one of the parts, as the totals are so far. */
static Tensor value_of(const Graph *g, Arena *a, ValueId v, int part, const Tensor *totals)
{
    static double one = 1;
    Ids nodes = {0};
    Tensor *at = arena_array(a, Tensor, g->value.n);
    for (NodeId i = 0; i < g->node.n; i++)
        vec_push(a, &nodes, i);
    for (uint32_t i = 0; i < g->input.n; i++)
        at[g->input.at[i]] = (Tensor){DT_F64, {0}, &one};       /* loss_scale */
    at[g->input.at[0]] = (Tensor){DT_F64, {2, {ROWS, WIDTH}}, x + part * ROWS * WIDTH};
    at[g->input.at[1]] = (Tensor){DT_I64, {1, {ROWS}}, target + part * ROWS};
    at[g->param.at[0].value] = (Tensor){DT_F64, {2, {WIDTH, WIDTH}}, w};
    for (uint32_t k = 0; k < g->total.n; k++)
        at[g->total.at[k].input] = totals[k];
    oracle_nodes(g, a, nodes.at, nodes.n, at);
    return at[v];
}

static void add_to(void *sum, Tensor v, double weight)
{
    for (int64_t i = 0; i < shape_elements(&v.shape); i++)
        if (v.dtype == DT_I64)
            ((int64_t *)sum)[i] += ((const int64_t *)v.data)[i];
        else
            ((double *)sum)[i] += weight * ((const double *)v.data)[i];
}

/* The totals are in order of their levels. */
static Tensor *totals_of(const Graph *g, Arena *a)
{
    Tensor *list = arena_array(a, Tensor, g->total.n + 1);
    for (uint32_t k = 0; k < g->total.n; k++) {
        const StepTotal *t = &g->total.at[k];
        const Value *v = val(g, t->value);
        double *sum = arena_array(a, double, shape_elements(&v->shape) + 1);
        list[k] = (Tensor){v->dtype, v->shape, sum};
    }
    for (uint32_t k = 0; k < g->total.n; k++) {
        const StepTotal *t = &g->total.at[k];
        double *sum = arena_array(a, double, shape_elements(&list[k].shape) + 1);
        for (int p = 0; p < PARTS; p++)
            add_to(sum, value_of(g, a, t->value, p, list), t->mean ? 1. / PARTS : 1);
        list[k].data = sum;
    }
    return list;
}

static Loss append(Graph *g, const char *merge)
{
    PartitionOptions opt = {0};
    BatchNotes notes = {0};
    Loss l = loss_append(g, &(LossOptions){.loss = "output:loss"}, NULL);
    if (merge)
        vec_push(g->arena, &opt.batch.merge, merge);
    pipe_prepare(g, &opt, &l, &notes);
    return l;
}

static void adds_up(const char *name, Make *loss, LossScale scale, uint32_t totals)
{
    Arena *a = arena_new();
    double want[1 + WIDTH * WIDTH] = {0}, got[1 + WIDTH * WIDTH] = {0}, off = 0;
    Net whole = make(a, ALL, loss);
    add_step(&whole, whole.g->output.at[0], 0, NONE, 1, NULL, want);
    Net part = make(a, ROWS, loss);
    Loss l = append(part.g, NULL);
    const Tensor *known = totals_of(part.g, a);
    double share = l.scale == LOSS_SUM ? 1 : 1. / PARTS;
    for (int p = 0; p < PARTS; p++)
        add_step(&part, l.loss, p * ROWS, l.loss_scale, share, known, got);
    for (int i = 0; i < 1 + WIDTH * WIDTH; i++)
        off = fmax(off, fabs(got[i] - want[i]) / (1 + fabs(want[i])));
    ok(l.scale == scale && !l.why && part.g->total.n == totals, "%s: %s, totals: %u", name,
       l.scale == LOSS_SUM ? "a sum" : "a mean", part.g->total.n);
    ok(off < 1e-13, "%s: loss and gradients are the whole's (off by %.1e)", name, off);
    arena_free(a);
}

static void has_none(const char *name, Make *loss, const char *why)
{
    Arena *a = arena_new();
    Net n = make(a, ROWS, loss);
    Loss l = append(n.g, NULL);
    ok(l.why && strstr(l.why, why), "%s: %s", name, l.why ? l.why : "has terms");
    n = make(a, ROWS, loss);
    l = append(n.g, "loss=sum");
    ok(!l.why && l.scale == LOSS_SUM, "%s: but by the user's word", name);
    arena_free(a);
}

int main(void)
{
    for (int i = 0; i < ALL * WIDTH; i++)
        x[i] = sin(3 * i + 1);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        w[i] = cos(2 * i);
    for (int i = 0; i < ALL; i++)
        target[i] = i < ROWS || i % 3 == 0 ? -100 : i % 4;
    adds_up("a mean", a_mean, LOSS_MEAN_ROWS, 0);
    adds_up("a sum, scaled", a_sum, LOSS_SUM, 0);
    adds_up("a mean of what counts", valid, LOSS_SUM, 1);
    adds_up("divided by 1 at least, and a little", at_least, LOSS_SUM, 1);
    adds_up("divided in each row", in_rows, LOSS_SUM, 1);
    adds_up("all of them, and parameters", terms, LOSS_SUM, 2);
    adds_up("in a list", joined, LOSS_SUM, 1);
    adds_up("normed targets", normed, LOSS_MEAN_ROWS, 2);
    has_none("a root of a mean", root, "(Sqrt): what it makes of all samples does not add up");
    has_none("a product", product, "(Mul): what it makes of all samples does not add up");
    has_none("a variance", variance, "(Sub) computes over all samples of a microbatch");
    has_none("divided by what is drawn", drawn, "(Div): what it makes of all samples");
    has_none("divided by the rows", perhaps_mean, "it may make a mean of a sum over the samples");
    return tap_done();
}
