/*
 * test_members.c - gradients of what passes between the members of the tensor axis.  Networks that
 * use every collective are built for 1, 2 and 4 members of 4 chunks, evaluated by all members in
 * lockstep: in float64 loss and gradients are those of the network undivided, in float32 they have
 * the same bits for every number of members.
 */
#include <math.h>
#include <stdlib.h>

#include "autodiff/autodiff.h"
#include "members.h"
#include "tap.h"

enum { CHUNKS = 4, MOST = 8 };

/* A leaf of the network: an input of every member (axis -1), or each chunk's part of it. */
typedef struct {
    int axis;
    Shape shape; /* the whole's */
    ValueId at[CHUNKS];
} Leaf;

typedef struct {
    Graph *g;
    Dtype t;
    bool whole; /* undivided: one chunk, the plain network */
    int k;      /* chunks of a member */
    Leaf leaf[MOST];
    int n;
    ValueId loss;
} Net;

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})

static Leaf *leaf(Net *n, Shape s, int axis)
{
    Leaf *x = &n->leaf[n->n++];
    *x = (Leaf){.axis = n->whole ? -1 : axis, .shape = s};
    if (x->axis >= 0)
        s.d[axis] /= CHUNKS;
    for (int i = 0; i < (x->axis < 0 ? 1 : n->k); i++)
        x->at[i] = graph_input(n->g, arena_printf(n->g->arena, "x%d.%d", n->n, i), n->t, &s);
    return x;
}

/* Different weights of the elements, the same wherever they are. */
static ValueId weighed(Net *n, ValueId x) { return g_mul(n->g, x, g_unary(n->g, OP_Sin, x)); }

static ValueId total(Net *n, ValueId x) { return g_sum_to(n->g, x, &(Shape){0}); }

/* The sum of what the chunks have, in all members. */
static ValueId over_all(Net *n, const ValueId *part)
{
    return g_all_reduce(n->g, g_tree_sum(n->g, (uint32_t)n->k, part), n->t);
}

static void split(Net *n, ValueId x, int axis, ValueId *part)
{
    int64_t size[CHUNKS];
    for (int i = 0; i < n->k; i++)
        size[i] = val(n->g, x)->shape.d[axis] / n->k;
    ValueId first = g_split(n->g, x, axis, n->k, size);
    for (int i = 0; i < n->k; i++)
        part[i] = graph_out(n->g, first, (uint32_t)i);
}

static ValueId join(Net *n, const ValueId *part, int axis)
{
    return g_concat(n->g, (uint32_t)n->k, part, axis);
}

/* x by columns, then by rows, as Megatron's MLP; x is read twice and by what is not divided. */
static void column_row(Net *n)
{
    Graph *g = n->g;
    const Leaf *x = leaf(n, S(3, 8), -1), *w1 = leaf(n, S(8, 12), 1), *w2 = leaf(n, S(12, 8), 0);
    ValueId part[CHUNKS], first = g_vary(g, x->at[0], n->k);
    for (int i = 0; i < n->k; i++) {
        ValueId h = g_matmul(g, graph_out(g, first, (uint32_t)i), w1->at[i]);
        part[i] = g_matmul(g, g_unary(g, OP_Tanh, h), w2->at[i]);
    }
    ValueId y = g_add(g, over_all(n, part), x->at[0]);
    n->loss = total(n, weighed(n, y));
}

/* A sequence divided around it: gathered before, the sum scattered after, a gain that all have. */
static void sequence(Net *n)
{
    Graph *g = n->g;
    const Leaf *x = leaf(n, S(4, 8), 0), *gain = leaf(n, S(8), -1), *w1 = leaf(n, S(8, 12), 1),
               *w2 = leaf(n, S(12, 8), 0);
    ValueId part[CHUNKS], first = g_vary(g, gain->at[0], n->k);
    for (int i = 0; i < n->k; i++)
        part[i] = g_mul(g, x->at[i], graph_out(g, first, (uint32_t)i));
    ValueId all = g_vary(g, g_all_gather(g, join(n, part, 0), 0), n->k);
    for (int i = 0; i < n->k; i++) {
        ValueId h = g_matmul(g, graph_out(g, all, (uint32_t)i), w1->at[i]);
        part[i] = g_matmul(g, g_unary(g, OP_Tanh, h), w2->at[i]);
    }
    split(n, g_reduce_scatter(g, g_tree_sum(g, (uint32_t)n->k, part), 0), 0, part);
    for (int i = 0; i < n->k; i++)
        part[i] = total(n, weighed(n, g_add(g, part[i], x->at[i])));
    n->loss = over_all(n, part);
}

/* Rows that become columns and rows again. */
static void exchange(Net *n)
{
    Graph *g = n->g;
    const Leaf *x = leaf(n, S(2, 4, 8), 1), *w = leaf(n, S(1, 1, 8), 2);
    ValueId part[CHUNKS];
    split(n, g_all_to_all(g, join(n, x->at, 1), 1, 2), 2, part);
    for (int i = 0; i < n->k; i++)
        part[i] = g_softmax(g, g_mul(g, part[i], w->at[i]), 1);
    split(n, g_all_to_all(g, join(n, part, 2), 2, 1), 1, part);
    for (int i = 0; i < n->k; i++)
        part[i] = total(n, weighed(n, g_mul(g, part[i], x->at[i])));
    n->loss = over_all(n, part);
}

/* What all have is divided without a message; one of its parts is read by nobody. */
static void shard(Net *n)
{
    Graph *g = n->g;
    const Leaf *x = leaf(n, S(3, 8), -1), *w = leaf(n, S(3, 8), 1);
    ValueId part[CHUNKS];
    split(n, g_shard(g, g_unary(g, OP_Tanh, x->at[0]), 1), 1, part);
    for (int i = 0; i < n->k; i++)
        part[i] = total(n, weighed(n, g_mul(g, part[i], w->at[i])));
    n->loss = over_all(n, part);
}

/* ---- evaluated by all members ---------------------------------------------------------------- */

static double number(int leaf, int64_t i)
{
    return sin(1.7 * leaf + 0.37 * (double)i + 0.011 * (double)(i * i));
}

static Tensor numbers(Arena *a, Dtype t, const Leaf *x, int leaf)
{
    Tensor all = {t, x->shape, NULL};
    int64_t n = shape_elements(&x->shape);
    all.data = arena_calloc(a, (size_t)n, dtype_size(t));
    for (int64_t i = 0; i < n; i++)
        element_set_double(t, all.data, i, number(leaf, i));
    return all;
}

static void fill(const Net *n, Arena *a, Tensor **at)
{
    for (int l = 0; l < n->n; l++) {
        const Leaf *x = &n->leaf[l];
        Tensor all = numbers(a, n->t, x, l);
        for (int m = 0; m < n->g->mesh[MESH_TENSOR].members; m++)
            for (int i = 0; i < (x->axis < 0 ? 1 : n->k); i++)
                at[m][x->at[i]] =
                    x->axis < 0 ? all : members_part(a, CHUNKS, m * n->k + i, all, x->axis);
    }
}

/* The gradient of a leaf as a whole; false: members differ in what all have. */
static bool gathered(const Net *n, Arena *a, Tensor **at, int l, const ValueId *d, Tensor *whole)
{
    const Leaf *x = &n->leaf[l];
    Tensor part[CHUNKS];
    int members = n->g->mesh[MESH_TENSOR].members;
    if (x->axis < 0) {
        *whole = member_value(n->g, at[0], d[0]);
        size_t bytes = (size_t)shape_elements(&whole->shape) * dtype_size(whole->dtype);
        for (int m = 1; m < members; m++)
            if (memcmp(member_value(n->g, at[m], d[0]).data, whole->data, bytes))
                return false;
        return true;
    }
    for (int m = 0; m < members; m++)
        for (int i = 0; i < n->k; i++)
            part[m * n->k + i] = member_value(n->g, at[m], d[i]);
    *whole = members_joined(a, CHUNKS, part, x->axis);
    return true;
}

typedef void Build(Net *n);
typedef struct {
    Tensor loss, grad[MOST];
    int n;
    bool alike;
} Result;

/* members 0: the network undivided */
static Result run(Arena *a, Build *build, Dtype t, int members)
{
    Net n = {.g = graph_new(a, "test"), .t = t, .whole = members == 0};
    n.g->mesh[MESH_TENSOR].members = members ? members : 1;
    n.g->mesh[MESH_TENSOR].chunks = n.whole ? 1 : CHUNKS;
    n.k = n.g->mesh[MESH_TENSOR].chunks / n.g->mesh[MESH_TENSOR].members;
    build(&n);
    ValueId wrt[MOST * CHUNKS], d[MOST * CHUNKS];
    uint32_t count = 0;
    Ids list = {0};
    for (NodeId i = 0; i < n.g->node.n; i++)
        vec_push(a, &list, i);
    for (int l = 0; l < n.n; l++)
        for (int i = 0; i < (n.leaf[l].axis < 0 ? 1 : n.k); i++)
            wrt[count++] = n.leaf[l].at[i];
    grad_nodes(n.g, list.at, list.n, n.loss, count, wrt, d);
    graph_verify(n.g);
    for (NodeId i = list.n; i < n.g->node.n; i++)
        vec_push(a, &list, i);
    Tensor *at[CHUNKS];
    for (int m = 0; m < n.g->mesh[MESH_TENSOR].members; m++)
        at[m] = arena_array(a, Tensor, n.g->value.n);
    fill(&n, a, at);
    members_eval(n.g, a, list.at, list.n, at);
    Result r = {.loss = member_value(n.g, at[0], n.loss), .n = n.n, .alike = true};
    const ValueId *of = d;
    for (int l = 0; l < n.n; l++) {
        r.alike &= gathered(&n, a, at, l, of, &r.grad[l]);
        of += n.leaf[l].axis < 0 ? 1 : n.k;
    }
    return r;
}

static double apart(const Tensor *x, const Tensor *y)
{
    double worst = shape_equal(&x->shape, &y->shape) ? 0 : HUGE_VAL;
    for (int64_t i = 0; worst < 1 && i < shape_elements(&x->shape); i++) {
        double want = element_double(y->dtype, y->data, i),
               e = fabs(element_double(x->dtype, x->data, i) - want) / (1 + fabs(want));
        worst = e > worst || isnan(e) ? e : worst;
    }
    return worst;
}

static bool same_bits(const Tensor *x, const Tensor *y)
{
    return x->dtype == y->dtype && shape_equal(&x->shape, &y->shape) &&
           !memcmp(x->data, y->data, (size_t)shape_elements(&x->shape) * dtype_size(x->dtype));
}

static void check(const char *name, Build *build)
{
    Arena *a = arena_new();
    Result plain = run(a, build, DT_F64, 0), one = run(a, build, DT_F32, 1);
    for (int members = 1; members <= CHUNKS; members *= 2) {
        Result r = run(a, build, DT_F64, members), f = run(a, build, DT_F32, members);
        double worst = apart(&r.loss, &plain.loss);
        bool same = same_bits(&f.loss, &one.loss);
        for (int l = 0; l < r.n; l++) {
            double e = apart(&r.grad[l], &plain.grad[l]);
            worst = e > worst || isnan(e) ? e : worst;
            same &= same_bits(&f.grad[l], &one.grad[l]);
        }
        ok(worst <= 1e-13 && r.alike, "%s, %d members: undivided, off by %.1e", name, members,
           worst);
        ok(same && f.alike, "%s, %d members: the bits of one", name, members);
    }
    arena_free(a);
}

/* ---- the tree -------------------------------------------------------------------------------- */

/* Gradients 1, e, e, e of four results, of which e = 2^-24 is lost beside 1: (1 + e) + (e + e) is
   more than 1, ((1 + e) + e) + e is not.  Without the second, 1 + (e + e); without the last two 1.
 */
static void tree(void)
{
    static const struct {
        unsigned there;
        double want;
    } cases[] = {{15, 1 + 0x1p-23}, {13, 1 + 0x1p-23}, {3, 1}, {7, 1}, {14, 3 * 0x1p-24}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        Arena *a = arena_new();
        Graph *g = graph_new(a, "test");
        ValueId x = graph_input(g, "x", DT_F32, &(Shape){0}), d, part[4];
        ValueId first = g_vary(g, x, 4);
        for (uint32_t i = 0; i < 4; i++)
            part[i] = cases[c].there >> i & 1
                          ? g_mul(g, graph_out(g, first, i), g_scalar(g, DT_F32, i ? 0x1p-24 : 1))
                          : NONE;
        ValueId loss = g_tree_sum(g, 4, part);
        Ids list = {0};
        for (NodeId i = 0; i < g->node.n; i++)
            vec_push(a, &list, i);
        grad_nodes(g, list.at, list.n, loss, 1, &x, &d);
        double got = nan("");
        g_const_double(g, d, &got);
        ok(got == cases[c].want, "the gradients of chunks %x: %a", cases[c].there, got);
        arena_free(a);
    }
}

int main(void)
{
    tree();
    check("columns, then rows", column_row);
    check("a divided sequence", sequence);
    check("rows become columns", exchange);
    check("a part of the whole", shard);
    return tap_done();
}
