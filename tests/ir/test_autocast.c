/*
 * test_autocast.c - what a graph in half precision rounds, and where: a chain of elementwise
 * operations once, at its end; what lies in memory is a half.  Numbers against doubles.
 */
#include <math.h>

#include "ir/ir.h"
#include "oracle/oracle.h"
#include "tap.h"

static ValueId product(Graph *g, const char *name, ValueId x, int64_t in, int64_t out)
{
    Param p = {.name = name, .dtype = DT_F32, .shape = {2, {in, out}}, .trainable = true};
    return g_matmul(g, x, graph_param(g, p));
}

/* tanh's GELU, as models write it */
static ValueId gelu(Graph *g, ValueId x)
{
    ValueId cube = g_mul(g, g_mul(g, x, x), x);
    ValueId inner = g_add(g, x, g_mul(g, cube, g_like(g, x, 0.044715)));
    ValueId t = g_unary(g, OP_Tanh, g_mul(g, inner, g_like(g, x, 0.7978845608)));
    return g_mul(g, g_mul(g, x, g_add(g, t, g_like(g, x, 1))), g_like(g, x, 0.5));
}

static void gives(Graph *g, ValueId v)
{
    vec_push(g->arena, &g->output, v);
    vec_push(g->arena, &g->output_name, "y");
}

/* Elementwise nodes other than Casts whose result is of the type; those of casts to it. */
static int maps(const Graph *g, Dtype t, bool casts)
{
    int n = 0;
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *x = &g->node.at[i];
        n += op_is_map(x->op) && (x->op == OP_Cast) == casts && val(g, x->out[0])->dtype == t &&
             val(g, x->in[0])->kind == V_NODE;
    }
    return n;
}

static Graph *new_graph(Arena *a, ValueId *x, Dtype t)
{
    Graph *g = graph_new(a, "test");
    *x = graph_input(g, "x", t, &(Shape){2, {4, 8}});
    return g;
}

static void test_gelu(Arena *a)
{
    ValueId x;
    Graph *g = new_graph(a, &x, DT_F32);
    ValueId h = product(g, "w", x, 8, 8), y = product(g, "v", gelu(g, h), 8, 8);
    gives(g, y);
    graph_autocast(g, DT_BF16);
    graph_verify(g);
    ok(maps(g, DT_BF16, false) == 0, "nothing between two products computes in bf16");
    ok(maps(g, DT_BF16, true) == 1, "and one value is rounded there");
    ok(val(g, h)->dtype == DT_BF16, "what a product wrote is bf16");
}

/* y = h s of a later product s: h is in memory when s is there. */
static void test_memory(Arena *a)
{
    ValueId x;
    Graph *g = new_graph(a, &x, DT_F32);
    ValueId h = product(g, "w", x, 8, 8), twice = g_add(g, h, g_mul(g, h, h)),
            gate = g_mul(g, h, h), s = product(g, "v", twice, 8, 8), y = g_mul(g, gate, s);
    gives(g, product(g, "u", y, 8, 8));
    graph_autocast(g, DT_BF16);
    graph_verify(g);
    ok(val(g, gate)->dtype == DT_BF16, "what is read past a product is rounded");
    ok(val(g, twice)->dtype == DT_BF16, "what a product reads is rounded");
    ok(val(g, y)->dtype == DT_BF16, "a chain of one rounds as it did");
    Graph *r = new_graph(a, &x, DT_F32);
    h = product(r, "w", x, 8, 8);
    ValueId square = g_mul(r, h, h), sum = g_reduce_last(r, OP_ReduceSum, square),
            view = g_swap_last(r, g_add(r, h, g_mul(r, h, h)));
    gives(r, sum);
    gives(r, view);
    graph_autocast(r, DT_BF16);
    graph_verify(r);
    ok(val(r, square)->dtype == DT_BF16, "what a sum reads is rounded");
    ok(val(r, r->node.at[val(r, view)->node].in[0])->dtype == DT_F32 ||
           val(r, view)->dtype == DT_BF16, "and what a view shows");
}

/* How many of GELU's numbers are further from double's than one rounding leaves them. */
static int beside(const Graph *g, Arena *a, ValueId x, ValueId y)
{
    enum { N = 32 };
    Tensor *at = arena_array(a, Tensor, g->value.n);
    uint16_t in[N];
    NodeId *list = arena_array(a, NodeId, g->node.n);
    for (NodeId i = 0; i < g->node.n; i++)
        list[i] = i;
    for (int i = 0; i < N; i++)
        element_set_double(DT_BF16, in, i, (i - 16) * 0.37);
    at[x] = (Tensor){DT_BF16, {2, {4, 8}}, in};
    oracle_nodes(g, a, list, g->node.n, at);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        double v = element_double(DT_BF16, in, i), c = dtype_round(DT_BF16, 0.044715),
               s = dtype_round(DT_BF16, 0.7978845608),
               want = v * (tanh((v * v * v * c + v) * s) + 1) * 0.5;
        wrong += fabs(element_double(DT_BF16, at[y].data, i) - want) >
                 fabs(want) * 0x1.01p-8 + 1e-6;
    }
    return wrong;
}

static void test_own(Arena *a)
{
    ValueId x;
    Graph *g = new_graph(a, &x, DT_BF16);
    ValueId y = gelu(g, x);
    gives(g, y);
    int before = beside(g, a, x, y);
    graph_autocast(g, DT_NONE);
    graph_verify(g);
    ok(maps(g, DT_BF16, false) == 0 && maps(g, DT_BF16, true) == 1 &&
           val(g, y)->dtype == DT_BF16, "a model that is half rounds a chain once, too");
    int after = beside(g, a, x, y);
    ok(before > 0 && after == 0, "by half a unit of its last place: %d are not, %d were not",
       after, before);
}

/* What the file itself rounds stays rounded. */
static void test_explicit(Arena *a)
{
    ValueId x;
    Graph *g = new_graph(a, &x, DT_F32);
    ValueId h = g_cast(g, g_mul(g, x, x), DT_BF16), wide = g_cast(g, h, DT_F32);
    gives(g, g_mul(g, wide, wide));
    graph_autocast(g, DT_NONE);
    ok(val(g, h)->dtype == DT_BF16 && maps(g, DT_BF16, true) == 1, "a Cast of the model's rounds");
}

/* A transform with constants between two products. */
static void test_single(Arena *a)
{
    ValueId x;
    Graph *g = new_graph(a, &x, DT_F32);
    ValueId h = product(g, "w", x, 8, 8), c = g_like(g, h, 0.1),
            y = g_matmul_single(g, h, g_expand(g, c, &(Shape){2, {8, 8}}));
    gives(g, product(g, "v", y, 8, 8));
    graph_autocast(g, DT_BF16);
    graph_verify(g);
    const Node *n = &g->node.at[val(g, y)->node];
    ok(val(g, h)->dtype == DT_BF16 && val(g, y)->dtype == DT_F32 &&
           val(g, n->in[0])->dtype == DT_F32 && val(g, n->in[1])->dtype == DT_F32,
       "a product that stays f32 between two that do not");
}

/* The product of a model that is itself half, which keeps its f32 sums for what is added. */
static void test_wide(Arena *a)
{
    ValueId x;
    Graph *g = new_graph(a, &x, DT_F16);
    Param w = {.name = "w", .dtype = DT_F16, .shape = {2, {8, 8}}, .trainable = true},
          b = {.name = "b", .dtype = DT_F16, .shape = {1, {8}}, .trainable = true};
    ValueId y = g_matmul_wide(g, x, graph_param(g, w));
    gives(g, g_cast(g, g_add(g, y, g_cast(g, graph_param(g, b), DT_F32)), DT_F16));
    graph_autocast(g, DT_F16);
    graph_verify(g);
    const Node *n = &g->node.at[val(g, y)->node];
    ok(val(g, y)->dtype == DT_F32 && val(g, n->in[0])->dtype == DT_F16 &&
           val(g, n->in[1])->dtype == DT_F16,
       "a product of halves to f32 stays one of halves");
}

int main(void)
{
    Arena *a = arena_new();
    test_gelu(a);
    test_single(a);
    test_wide(a);
    test_memory(a);
    test_own(a);
    test_explicit(a);
    arena_free(a);
    return tap_done();
}
