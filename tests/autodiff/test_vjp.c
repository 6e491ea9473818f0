/*
 * test_vjp.c - every VJP rule agrees with central differences in float64.  The suite walks the
 * table: a row with GRAD(..) for which no case stands here fails.  A case builds a small graph on
 * inputs t->x[..]; the scalar that is differentiated is the sum of r * y over the outputs of a
 * float type, r random and fixed. After that, the conventions at kinks, with PyTorch's numbers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "oracle/oracle.h"
#include "tap.h"
#include "vjp_cases.h"

/* ---- the check ------------------------------------------------------------------------------- */

static Ids all_nodes(Graph *g, NodeId first, NodeId last)
{
    Ids list = {0};
    for (NodeId n = first; n < last; n++)
        vec_push(g->arena, &list, n);
    return list;
}

static const Tensor *evaluate(T *t, const Ids *list, ValueId v)
{
    Tensor *at = arena_array(t->g->arena, Tensor, t->g->value.n);
    for (uint32_t i = 0; i < t->n; i++)
        at[t->x[i]] = t->data[i];
    oracle_nodes(t->g, t->g->arena, list->at, list->n, at);
    if (val(t->g, v)->kind == V_CONST) {
        Value x = *val(t->g, v);
        at[v] = (Tensor){x.dtype, x.shape, NULL};
        memcpy(&at[v].data, &x.data, sizeof x.data);
    }
    return &at[v];
}

/* The worst difference over the elements of input i, relative to the gradient's size. */
static double compare(T *t, const Ids *forward, uint32_t i, const double *got)
{
    const double h = 1e-5;
    double *x = t->data[i].data, worst = 0;
    int64_t n = shape_elements(&t->data[i].shape);
    for (int64_t k = 0; k < n; k++) {
        double keep = x[k];
        x[k] = keep + h;
        double above = *(const double *)evaluate(t, forward, t->loss)->data;
        x[k] = keep - h;
        double below = *(const double *)evaluate(t, forward, t->loss)->data;
        x[k] = keep;
        double want = (above - below) / (2 * h), e = fabs(got[k] - want) / (1 + fabs(want));
        if (!(e <= 1e-7))
            printf("# input %u element %lld: %.12g, differences %.12g\n", i, (long long)k, got[k],
                   want);
        worst = e > worst || isnan(e) ? e : worst;
    }
    return worst;
}

static bool occurs(const Graph *g, Op op, NodeId last)
{
    for (NodeId n = 0; n < last; n++)
        if (g->node.at[n].op == op)
            return true;
    return false;
}

/* Does a Recurrence leave a sequence of one value twice? */
static bool leaves_twice(const Graph *g)
{
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        const Recurrence *r = n->op == OP_Recurrence ? n->attr.recurrence : NULL;
        for (uint32_t i = r ? r->states : 0; r && i < r->body->output.n; i++)
            for (uint32_t j = r->states; j < i; j++)
                if (r->body->output.at[i] == r->body->output.at[j])
                    return true;
    }
    return false;
}

static void run_case(const Case *c)
{
    Arena *a = arena_new();
    T t = {.g = graph_new(a, "test"),
           .seed = (uint64_t)c->op * 7919 + (uint64_t)(c - cases),
           .op = c->op,
           .real = DT_F64,
           .lo = c->lo,
           .hi = c->hi};
    c->build(&t);
    make_loss(&t);
    NodeId last = t.g->node.n;
    Ids forward = all_nodes(t.g, 0, last);
    ValueId wrt[MOST], d[MOST];
    uint32_t index[MOST], n = 0;
    for (uint32_t i = 0; i < t.n; i++)
        if (t.data[i].dtype == DT_F64) {
            index[n] = i;
            wrt[n++] = t.x[i];
        }
    grad_nodes(t.g, forward.at, forward.n, t.loss, n, wrt, d);
    graph_verify(t.g);
    Ids both = all_nodes(t.g, 0, t.g->node.n);
    double worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t size = shape_elements(&t.data[index[i]].shape);
        double *got = arena_array(a, double, size);
        if (d[i] != NONE)
            memcpy(got, evaluate(&t, &both, d[i])->data, (size_t)size * sizeof *got);
        double e = compare(&t, &forward, index[i], got);
        worst = e > worst || isnan(e) ? e : worst;
    }
    ok(worst <= 1e-7 && occurs(t.g, c->op, last) && !leaves_twice(t.g),
       "%s%s%s: off by %.1e", op_name(c->op), *c->what ? ", " : "", c->what, worst);
    arena_free(a);
}

/* ---- operations of devices alone: the CPU's code has no kernel for them ---------------------- */

static ValueId attention(T *t, Shape q, Shape k, Shape v, const AttentionAttr *at, ValueId bias)
{
    ValueId in[4] = {real(t, q, -1, 1), real(t, k, -1, 1), real(t, v, -1, 1), bias};
    return node(t, 3 + at->bias, in, (Attr){.attention = at});
}

static void attentions(T *t)
{
    static const AttentionAttr plain = {.scale = 0.5}, added = {.scale = 2, .bias = true},
                               causal = {.scale = 1, .causal = true, .fill = -1e30, .diagonal = 1};
    ValueId b = g_cast(t->g, g_iota(t->g, DT_I64, 2, 1, 5), DT_F64);
    out(t, attention(t, S(2, 4, 2, 3), S(2, 2, 3, 5), S(2, 2, 5, 2), &causal, NONE));
    out(t, attention(t, S(2, 3), S(3, 3, 5), S(3, 5, 2), &added, b));
    out(t, attention(t, S(3, 2, 3), S(1, 3, 5), S(3, 5, 2), &plain, NONE));
    out(t, attention(t, S(2, 3, 2, 3), S(3, 5), S(1, 1, 5, 2), &plain, NONE));
}

static const Case device_cases[] = {{OP_FlashAttention, attentions, 0, 0, "heads that share keys"}};

static const bool has_rule[OP_COUNT] = {
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, gradient, ...)                    \
    [OP_##name] = gradient,
#define GRAD(f) true
#define NOGRAD false
#define DX(text) true
#include "ir/ops.def"
};

/* loss = sum(w * x * stop(x)): what passes is w * x, and not twice that. */
static void stop(void)
{
    Arena *arena = arena_new();
    T t = {.g = graph_new(arena, "test"), .op = OP_StopGradient, .real = DT_F64};
    const double x[] = {0.5, -2, 3}, w[] = {1, 4, -2};
    ValueId in = given(&t, S(3), x), d[2], at = g_unary(t.g, OP_StopGradient, in);
    ok(g_unary(t.g, OP_StopGradient, at) == at, "StopGradient: once is enough");
    ValueId scaled = g_mul(
        t.g, g_mul(t.g, in, at),
        graph_const(t.g, NULL,
                    (Tensor){DT_F64, S(3), memcpy(arena_alloc(arena, sizeof w), w, sizeof w)}));
    t.loss = g_sum_to(t.g, scaled, &(Shape){0});
    Ids forward = all_nodes(t.g, 0, t.g->node.n);
    double y = *(const double *)evaluate(&t, &forward, t.loss)->data;
    grad_nodes(t.g, forward.at, forward.n, t.loss, 2, (ValueId[]){in, at}, d);
    Ids both = all_nodes(t.g, 0, t.g->node.n);
    const double *got = evaluate(&t, &both, d[0])->data;
    ok(y == 0.25 + 16 - 18 && got[0] == 0.5 && got[1] == -8 && got[2] == -6,
       "StopGradient: the value passes, the gradient does not");
    arena_free(arena);
}

/* The mean of an RNN's states, exported for one row: where a gradient has it, sizes do not say. */
static void one_row(void)
{
    static const int rows[] = {0, 0, 0, 0};
    Arena *a = arena_new();
    Graph *g = graph_new(a, "test"), *b = body_new(g);
    b->batch = g->batch = 1;
    ValueId h = graph_input(b, "h", DT_F32, &S(1, 8)), z = graph_input(b, "x", DT_F32, &S(1, 8)),
            x = graph_input(g, "x", DT_F32, &S(1, 5, 8)),
            w = graph_param(g, (Param){.name = "w", .initializer = "w", .dtype = DT_F32,
                                       .shape = S(8, 8), .trainable = true});
    h = g_unary(b, OP_Tanh, g_add(b, h, z));
    vec_push(a, &b->output, h);
    vec_push(a, &b->output, h);
    x = g_matmul(g, g_transpose(g, x, (int64_t[]){1, 0, 2}), w);
    ValueId y = g_recurrence(g, b, (Recurrence){.states = 1, .sequences = 1, .rows = rows},
                             (ValueId[]){g_full(g, DT_F32, &S(1, 8), 0), x});
    y = g_reshape(g, graph_out(g, y, 1), &S(5, 1, 1, 8));
    y = g_transpose(g, g_reduce(g, OP_ReduceMean, y, 1, (int64_t[]){0}), (int64_t[]){0, 2, 1, 3});
    y = g_reshape(g, y, &S(1, 8));
    vec_push(a, &g->output, y);
    vec_push(a, &g->output_name, "y");
    const Loss l = loss_append(g, &(LossOptions){.loss = "mse"}, NULL);
    const Pipe *p = autodiff_joint(g, &(PartitionOptions){0}, &l);
    ok(p->uneven.n == 0, "one row: no microbatch has fewer, wherever gradients hold it: %s",
       p->uneven.n ? p->uneven.at[0] : "");
    arena_free(a);
}

static void every_row(void)
{
    for (int op = OP_NONE + 1; op < OP_COUNT; op++) {
        unsigned n = 0;
        for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
            if ((int)cases[i].op == op) {
                run_case(&cases[i]);
                n++;
            }
        for (unsigned i = 0; i < sizeof device_cases / sizeof *device_cases; i++)
            if ((int)device_cases[i].op == op) {
                run_case(&device_cases[i]);
                n++;
            }
        /* of the user's own functions tests/codegen/custom.t */
        if (has_rule[op] && n == 0 && !op_is_collective((Op)op) && op != OP_Custom)
            ok(0, "%s has a gradient and no test", op_name((Op)op));
    }
}

/* ---- kinks ----------------------------------------------------------------------------------- */

static void kink(const char *what, Op op, uint32_t nin, const double *a, const double *b, Attr attr,
                 const double *want, uint32_t of)
{
    Arena *arena = arena_new();
    T t = {.g = graph_new(arena, "test"), .op = op, .real = DT_F64};
    ValueId in[2];
    in[0] = given(&t, S(3), a);
    if (nin > 1)
        in[1] = given(&t, S(3), b);
    t.loss = g_sum_to(t.g, node(&t, nin, in, attr), &(Shape){0});
    Ids forward = all_nodes(t.g, 0, t.g->node.n);
    ValueId d;
    grad_nodes(t.g, forward.at, forward.n, t.loss, 1, &in[of], &d);
    Ids both = all_nodes(t.g, 0, t.g->node.n);
    const double *got = d == NONE ? NULL : evaluate(&t, &both, d)->data;
    bool good = got != NULL;
    for (int i = 0; i < 3 && good; i++)
        good = fabs(got[i] - want[i]) < 1e-15;
    ok(good, "%s", what);
    arena_free(arena);
}

#define D(...) ((const double[]){__VA_ARGS__})

/* Numbers as PyTorch 2 gives them. */
static void kinks(void)
{
    Attr none = {0}, all = {.n = 1, .axes = I(0)}, index = {.n = 1, .axes = I(0), .to_first = 1},
         quarter = {.ratio = 0.25};
    kink("relu'(0) = 0", OP_Relu, 1, D(-1, 0, 2), NULL, none, D(0, 0, 1), 0);
    kink("abs'(0) = 0", OP_Abs, 1, D(-1, 0, 2), NULL, none, D(-1, 0, 1), 0);
    kink("a tie of max shares, first operand", OP_Max, 2, D(1, 2, 3), D(1, 0, 5), none,
         D(0.5, 1, 0), 0);
    kink("a tie of max shares, second operand", OP_Max, 2, D(1, 2, 3), D(1, 0, 5), none,
         D(0.5, 0, 1), 1);
    kink("a tie of min shares", OP_Min, 2, D(1, 2, 3), D(1, 0, 5), none, D(0.5, 0, 1), 0);
    kink("equal maxima of a reduction share evenly", OP_ReduceMax, 1, D(4, 1, 4), NULL, all,
         D(0.5, 0, 0.5), 0);
    kink("equal minima of a reduction share evenly", OP_ReduceMin, 1, D(1, 1, 1), NULL, all,
         D(1. / 3, 1. / 3, 1. / 3), 0);
    kink("max(dim) has its index alone, the first of equals", OP_ReduceMax, 1, D(1, 4, 4), NULL,
         index, D(0, 1, 0), 0);
    kink("and so has min(dim)", OP_ReduceMin, 1, D(1, 1, 4), NULL, index, D(1, 0, 0), 0);
    kink("x^0 has gradient 0 at 0", OP_Pow, 2, D(0, 2, 3), D(0, 1, 2), none, D(0, 1, 6), 0);
    kink("0^b has gradient 0 for b", OP_Pow, 2, D(0, 1, 1), D(2, 2, 3), none, D(0, 0, 0), 1);
    kink("kept elements of a dropout are scaled", OP_Dropout, 1, D(1, 2, 3), NULL, quarter,
         D(4. / 3, 4. / 3, 4. / 3), 0);
    kink("a product's gradient at a single zero", OP_ReduceProd, 1, D(0, 2, 3), NULL, all,
         D(6, 0, 0), 0);
}

int main(void)
{
    every_row();
    one_row();
    kinks();
    stop();
    return tap_done();
}
