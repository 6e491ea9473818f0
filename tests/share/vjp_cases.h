/*
 * vjp_cases.h - one case or more for every row of ops.def that has a gradient: small graphs on
 * inputs t->x[..], with outputs t->y.  test_vjp.c differentiates them numerically,
 * test_onnx_write.c writes them out and reads them back.
 */
#ifndef VJP_CASES_H
#define VJP_CASES_H

#include <string.h>

#include "autodiff/autodiff.h"

enum { MOST = 48 };
typedef struct {
    Graph *g;
    uint64_t seed;
    Dtype real;                     /* f64, f32, or a half: of f32 inputs, rounded */
    bool params;                    /* inputs of a float type are parameters */
    ValueId x[MOST];                /* inputs; those of a float type are differentiated */
    Tensor data[MOST];
    uint32_t n;
    Op op;                          /* of the case's row */
    double lo, hi;                  /* range of unary cases */
    ValueId loss;
    Ids y;
} T;

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define I(...) ((const int64_t[]){__VA_ARGS__})

static double uniform(T *t)
{
    t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(t->seed >> 11) / 9007199254740992.0;
}

static ValueId input(T *t, Dtype type, Shape s, void *data)
{
    char name[16];
    snprintf(name, sizeof name, "x%u", t->n);
    Payload bytes = {.at = data, .length = (size_t)shape_elements(&s) * dtype_size(type)};
    Param p = {.name = arena_strdup(t->g->arena, name),
               .dtype = type,
               .shape = s,
               .trainable = true,
               .bytes = bytes};
    ValueId v = t->params && dtype_is_float(type) ? graph_param(t->g, p)
                                                  : graph_input(t->g, name, type, &s);
    t->x[t->n] = v;
    t->data[t->n++] = (Tensor){type, s, data};
    return v;
}

static ValueId reals(T *t, Shape s, double *d)
{
    Tensor wide = {DT_F64, s, d}, out = {.dtype = t->real, .shape = s};
    if (t->real == DT_F64)
        return input(t, DT_F64, s, d);
    out.dtype = dtype_sum(t->real);
    eval_node(t->g->arena, OP_Cast, 1, &wide, &(Attr){.to = out.dtype}, 1, &out);
    return g_cast(t->g, input(t, out.dtype, s, out.data), t->real);
}

static ValueId real(T *t, Shape s, double lo, double hi)
{
    int64_t n = shape_elements(&s);
    double *d = arena_array(t->g->arena, double, n);
    for (int64_t i = 0; i < n; i++)
        d[i] = lo + (hi - lo) * uniform(t);
    return reals(t, s, d);
}

static ValueId given(T *t, Shape s, const double *v)
{
    int64_t n = shape_elements(&s);
    double *d = arena_array(t->g->arena, double, n);
    memcpy(d, v, (size_t)n * sizeof *d);
    return reals(t, s, d);
}

static ValueId whole(T *t, Shape s, const int64_t *v)
{
    int64_t n = shape_elements(&s), *d = arena_array(t->g->arena, int64_t, n);
    memcpy(d, v, (size_t)n * sizeof *d);
    return input(t, DT_I64, s, d);
}

static void out(T *t, ValueId y) { vec_push(t->g->arena, &t->y, y); }

static ValueId node(T *t, uint32_t nin, const ValueId *in, Attr a)
{
    return graph_node(t->g, t->op, nin, in, a);
}
static ValueId node1(T *t, ValueId x, Attr a) { return node(t, 1, &x, a); }
static ValueId node2(T *t, ValueId x, ValueId y, Attr a)
{
    return node(t, 2, (ValueId[]){x, y}, a);
}
static ValueId node3(T *t, ValueId x, ValueId y, ValueId z, Attr a)
{
    return node(t, 3, (ValueId[]){x, y, z}, a);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void unary(T *t) { out(t, node1(t, real(t, S(2, 3), t->lo, t->hi), (Attr){0})); }

static void cast(T *t)
{
    ValueId x = real(t, S(3), -2, 2);
    /* through f32 the value is rounded: differences are taken beside it */
    Graph *g = t->g;
    ValueId narrow = g_cast(g, x, DT_F32);
    out(t, g_mul(g, x, x));
    out(t, g_mul(g, g_cast(g, g_sub(g, narrow, narrow), t->real), x));
}

static void binary(T *t)
{
    out(t, node2(t, real(t, S(2, 3), t->lo, t->hi), real(t, S(2, 3), t->lo, t->hi), (Attr){0}));
}
static void broadcast(T *t)
{
    ValueId a = real(t, S(2, 1, 3), t->lo, t->hi), b = real(t, S(4, 1), t->lo, t->hi),
            c = real(t, (Shape){0}, t->lo, t->hi);
    out(t, node2(t, a, b, (Attr){0}));
    out(t, node2(t, c, a, (Attr){0}));
}
static void pow_constant(T *t)
{
    ValueId x = real(t, S(2, 3), 0.3, 2);
    const double e[] = {2, 3, 0.5, -1, 1, 0, 1.7};
    for (unsigned i = 0; i < sizeof e / sizeof *e; i++)
        out(t, node2(t, x, g_scalar(t->g, t->real, e[i]), (Attr){0}));
}
static void pow_base_constant(T *t)
{
    out(t, node2(t, g_scalar(t->g, t->real, 2), real(t, S(4), -1, 1), (Attr){0}));
}
static void pow_negative(T *t)
{
    out(t, node2(t, real(t, S(4), -2, -0.5), g_scalar(t->g, t->real, 3), (Attr){0}));
}
static void where(T *t)
{
    ValueId a = real(t, S(2, 3), -1, 1), b = real(t, S(3), -1, 1), c = real(t, S(2, 1), -1, 1);
    out(t, node3(t, g_binary(t->g, OP_Less, a, g_scalar(t->g, t->real, 0.1)), b, c, (Attr){0}));
}

static void identity(T *t) { out(t, node1(t, real(t, S(3), -1, 1), (Attr){0})); }
static void reshape(T *t)
{
    out(t, node1(t, real(t, S(2, 6), -1, 1), (Attr){.n = 3, .dims = I(3, 2, 2)}));
}
static void transpose(T *t)
{
    out(t, node1(t, real(t, S(2, 3, 4), -1, 1), (Attr){.n = 3, .perm = I(2, 0, 1)}));
}
static void transpose_weight(T *t)
{
    Graph *g = t->g;
    ValueId x = real(t, S(2, 3, 4), -1, 1);
    t->params = true;               /* a linear layer's weight, whose gradient is one product */
    ValueId w = real(t, S(5, 4), -1, 1);
    out(t, g_matmul(g, x, node1(t, w, (Attr){.n = 2, .perm = I(1, 0)})));
}
static void expand(T *t)
{
    out(t, node1(t, real(t, S(2, 1, 3), -1, 1), (Attr){.n = 4, .dims = I(5, 2, 4, 3)}));
    out(t, node1(t, real(t, (Shape){0}, -1, 1), (Attr){.n = 1, .dims = I(3)}));
}
static void slice(T *t)
{
    ValueId x = real(t, S(5, 7), -1, 1);
    out(t, node1(t, x, (Attr){.n = 2, .start = I(1, 2), .size = I(3, 4), .step = I(1, 1)}));
    out(t, node1(t, x, (Attr){.n = 2, .start = I(0, 1), .size = I(5, 3), .step = I(1, 2)}));
    out(t, node1(t, x, (Attr){.n = 2, .start = I(4, 6), .size = I(5, 3), .step = I(-1, -3)}));
    out(t, node1(t, x, (Attr){.n = 2, .start = I(0, 0), .size = I(2, 4), .step = I(4, 2)}));
    out(t, node1(t, x, (Attr){.n = 2, .start = I(3, 5), .size = I(1, 1), .step = I(-2, 5)}));
}
static void split(T *t)
{
    ValueId all = node1(t, real(t, S(2, 6), -1, 1), (Attr){.axis = 1, .n = 3, .sizes = I(1, 3, 2)});
    for (uint32_t i = 0; i < 3; i++)
        out(t, graph_out(t->g, all, i));
    ValueId some =
        node1(t, real(t, S(9), -1, 1), (Attr){.axis = 0, .n = 5, .sizes = I(1, 2, 3, 2, 1)});
    out(t, graph_out(t->g, some, 1));
    out(t, graph_out(t->g, some, 3));
}
static void vary(T *t)
{
    Graph *g = t->g;
    ValueId x = real(t, S(2, 3), -1, 1), w = real(t, S(2, 3), -1, 1), all = node1(t, x, (Attr){.n = 3});
    for (uint32_t i = 0; i < 3; i++)
        out(t, g_mul(g, g_unary(g, OP_Exp, graph_out(g, all, i)), i == 1 ? x : w));
    ValueId some = node1(t, w, (Attr){.n = 5});
    for (uint32_t i = 1; i < 4; i++)
        out(t, g_mul(g, graph_out(g, some, i), x));
}
static void concat(T *t)
{
    ValueId a = real(t, S(2, 2), -1, 1), b = real(t, S(2, 3), -1, 1);
    out(t, node3(t, a, b, a, (Attr){.axis = 1}));
}
static void pad(T *t)
{
    ValueId x = real(t, S(3, 4), -1, 1);
    for (int mode = PAD_CONSTANT; mode <= PAD_WRAP; mode++) {
        out(t, node1(t, x,
                     (Attr){.n = 2, .begin = I(2, 1), .end = I(1, 3), .mode = mode, .value = 0.5}));
        out(t, node1(t, x, (Attr){.n = 2, .begin = I(0, 0), .end = I(2, 0), .mode = mode}));
    }
}
static void gather(T *t)
{
    ValueId x = real(t, S(4, 3), -1, 1), y = real(t, S(2, 4, 3), -1, 1);
    ValueId index = whole(t, S(2, 3), I(0, 3, -1, 2, 0, 0));
    out(t, node2(t, x, index, (Attr){.axis = 0}));
    out(t, node2(t, y, index, (Attr){.axis = 1}));
    out(t, node2(t, y, whole(t, (Shape){0}, I(2)), (Attr){.axis = 2}));
    out(t, node2(t, y, g_ints(t->g, 0, NULL, I(-1)), (Attr){.axis = 1}));
    out(t, node2(t, y, g_ints(t->g, 1, I(2), I(1, 2)), (Attr){.axis = 1}));
    out(t, node2(t, y, g_ints(t->g, 1, I(3), I(3, 1, 1)), (Attr){.axis = 1}));
}
static void gather_elements(T *t)
{
    out(t, node2(t, real(t, S(3, 4), -1, 1), whole(t, S(2, 4), I(0, 2, -1, 1, 0, 0, 2, 2)),
                 (Attr){.axis = 0}));
    out(t, node2(t, real(t, S(2, 3), -1, 1), whole(t, S(2, 2), I(0, 2, 1, 1)), (Attr){.axis = 1}));
}
static void gather_nd(T *t)
{
    ValueId x = real(t, S(2, 3, 4), -1, 1);
    out(t, node2(t, x, whole(t, S(3, 2), I(0, 2, 1, -1, 0, 2)), (Attr){.axis = 0}));
    out(t, node2(t, x, whole(t, S(2, 2, 1), I(0, 2, -1, -1)), (Attr){.axis = 1}));
    out(t, node2(t, x, whole(t, S(2, 3, 1), I(0, 2, -1, -1, 3, 3)), (Attr){.axis = 2}));
}
static void scatter_elements(T *t)
{
    ValueId x = real(t, S(3, 4), 0.5, 2), once = whole(t, S(2, 3), I(0, 2, 1, 1, 0, -1));
    ValueId twice = whole(t, S(2, 3), I(0, 2, 1, 0, 2, -1)), u = real(t, S(2, 3), 0.5, 2);
    out(t, node3(t, x, once, u, (Attr){.axis = 0, .reduction = SCATTER_NONE}));
    for (int mode = SCATTER_ADD; mode <= SCATTER_MIN; mode++)
        out(t, node3(t, x, twice, u, (Attr){.axis = 0, .reduction = mode}));
    out(t, node3(t, x, twice, u, (Attr){.axis = 1, .reduction = SCATTER_ADD}));
}
static void scatter_zero_factor(T *t)
{
    ValueId x = given(t, S(4), (const double[]){2, 0, 0, 3}),
            u = given(t, S(3), (const double[]){5, 7, 0});
    out(t, node3(t, x, whole(t, S(3), I(1, 2, 2)), u, (Attr){.axis = 0, .reduction = SCATTER_MUL}));
    out(t, node3(t, x, whole(t, S(3), I(0, 0, 3)), u, (Attr){.axis = 0, .reduction = SCATTER_MUL}));
}
static void scatter_nd(T *t)
{
    ValueId x = real(t, S(4, 3), 0.5, 2), u = real(t, S(2, 3), 0.5, 2);
    out(t, node3(t, x, whole(t, S(2, 1), I(1, -1)), u, (Attr){.reduction = SCATTER_NONE}));
    for (int mode = SCATTER_ADD; mode <= SCATTER_MIN; mode++)
        out(t, node3(t, x, whole(t, S(2, 1), I(2, 2)), u, (Attr){.reduction = mode}));
    out(t, node3(t, x, whole(t, S(2, 3, 2), I(1, 0, 1, 2, 3, 1, 0, 0, 0, 1, 0, 2)), u,
                 (Attr){.reduction = SCATTER_ADD}));
}

static void reduce(T *t)
{
    ValueId x = real(t, S(2, 3, 4), 0.5, 2);
    out(t, node1(t, x, (Attr){.n = 1, .axes = I(1)}));
    out(t, node1(t, x, (Attr){.n = 2, .axes = I(0, 2)}));
    out(t, node1(t, x, (Attr){.n = 3, .axes = I(0, 1, 2)}));
}
static void reduce_rows(T *t)
{
    ValueId x = real(t, S(2, 3), 0.5, 2);
    t->g->batch = 2;
    t->g->value.at[x].batch = 0;    /* n is the number of rows, which only the program knows */
    out(t, node1(t, x, (Attr){.n = 1, .axes = I(0)}));
    out(t, node1(t, x, (Attr){.n = 2, .axes = I(0, 1)}));
}
static void product_of_zeros(T *t)
{
    ValueId x = given(t, S(3, 3), (const double[]){2, 0, 3, 0, 5, 0, 1, 2, 4});
    out(t, node1(t, x, (Attr){.n = 1, .axes = I(1)}));
}
static void cumsum(T *t)
{
    ValueId x = real(t, S(3, 4), -1, 1);
    for (int mode = 0; mode < 4; mode++)
        out(t, node1(t, x, (Attr){.axis = mode & 1, .scan = mode}));
}
static void topk(T *t)
{
    ValueId x = real(t, S(3, 5), -1, 1);
    out(t, node1(t, x, (Attr){.axis = 1, .k = 3, .largest = 1}));
    out(t, node1(t, x, (Attr){.axis = 0, .k = 2}));
}
/* boxes of two samples, in tenths, and two orders of each; what is taken chooses among numbers */
static void suppress(T *t)
{
    static const int64_t at[] = {0,  0, 20, 20, 0,  10, 20, 30, 50, 50, 60, 60, 0, 2, 20, 22,
                                 10, 10, 30, 30, 10, 0,  40, 10, 10, 0,  40, 20, 20, 0, 40, 20,
                                 0,  0, 0,  0,  20, 0,  40, 15},
                         order[] = {3, 0, 1, 2, 4, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 1, 0, 4, 2, 3};
    Graph *g = t->g;
    uint8_t *there = arena_array(g->arena, uint8_t, 20);
    for (int i = 0; i < 20; i++)
        there[i] = i != 4 && i != 6 && i != 15;
    ValueId v = real(t, S(5), -1, 1);
    Dtype real = val(g, v)->dtype;
    ValueId boxes = g_mul(g, g_cast(g, whole(t, S(2, 5, 4), at), real), g_scalar(g, real, 0.1));
    ValueId in[3] = {boxes, whole(t, S(2, 2, 5), order), input(t, DT_BOOL, S(2, 2, 5), there)};
    for (int k = 2; k <= 5; k += 3) {
        ValueId y = node(t, 3, in, (Attr){.k = k, .value = 0.4});
        ValueId n = g_reshape(g, graph_out(g, y, 1), &S(2, 2, 1));
        out(t, g_mul(g, g_gather(g, v, y, 0), g_cast(g, n, real)));
    }
}
static void softmax(T *t)
{
    ValueId x = real(t, S(2, 3, 4), -2, 2);
    out(t, node1(t, x, (Attr){.axis = 2}));
    out(t, node1(t, x, (Attr){.axis = 1}));
}

static void matmul_shape(T *t, Shape a, Shape b)
{
    out(t, node2(t, real(t, a, -1, 1), real(t, b, -1, 1), (Attr){0}));
}
static void matmul(T *t)
{
    matmul_shape(t, S(2, 3), S(3, 4));
    matmul_shape(t, S(5, 2, 3), S(3, 4));
    matmul_shape(t, S(2, 2, 2, 3), S(1, 3, 4));
}
static void matmul_batch(T *t)
{
    matmul_shape(t, S(5, 2, 3), S(5, 3, 4));
    matmul_shape(t, S(2, 3), S(5, 3, 4));
    matmul_shape(t, S(2, 1, 2, 3), S(5, 3, 4));
    matmul_shape(t, S(1, 2, 3), S(2, 2, 3, 4));
}

static void conv(T *t)
{
    out(t, node2(t, real(t, S(2, 4, 5), -1, 1), real(t, S(6, 2, 3), -1, 1),
                 (Attr){.group = 2, .n = 1, .stride = I(2), .dilation = I(1), .pad = I(1, 0)}));
    out(t,
        node2(
            t, real(t, S(2, 2, 6, 5), -1, 1), real(t, S(3, 2, 2, 3), -1, 1),
            (Attr){
                .group = 1, .n = 2, .stride = I(2, 1), .dilation = I(1, 2), .pad = I(1, 0, 0, 2)}));
    out(t, node2(t, real(t, S(1, 2, 3, 3, 3), -1, 1), real(t, S(2, 1, 2, 2, 2), -1, 1),
                 (Attr){.group = 2,
                        .n = 3,
                        .stride = I(1, 1, 1),
                        .dilation = I(1, 1, 1),
                        .pad = I(0, 0, 0, 0, 1, 0)}));
}
static void conv_transpose(T *t)
{
    out(t, node2(t, real(t, S(2, 4, 3), -1, 1), real(t, S(4, 3, 3), -1, 1),
                 (Attr){.group = 2,
                        .n = 1,
                        .stride = I(2),
                        .dilation = I(1),
                        .pad = I(1, 1),
                        .out_dims = I(6)}));
    out(t, node2(t, real(t, S(2, 2, 3, 2), -1, 1), real(t, S(2, 3, 2, 3), -1, 1),
                 (Attr){.group = 1,
                        .n = 2,
                        .stride = I(2, 1),
                        .dilation = I(1, 2),
                        .pad = I(0, 1, 0, 1),
                        .out_dims = I(6, 4)}));
    /* output padding as long as a stride */
    out(t, node2(t, real(t, S(1, 1, 3), -1, 1), real(t, S(1, 1, 2), -1, 1),
                 (Attr){.group = 1,
                        .n = 1,
                        .stride = I(1),
                        .dilation = I(3),
                        .pad = I(0, 0),
                        .out_dims = I(8)}));
}
static void conv_weight_grad(T *t)
{
    out(t, node2(t, real(t, S(2, 4, 5), -1, 1), real(t, S(2, 6, 2), -1, 1),
                 (Attr){.group = 2,
                        .n = 1,
                        .stride = I(2),
                        .dilation = I(1),
                        .pad = I(1, 0),
                        .weight_dims = I(6, 2, 3)}));
}
static void pool(T *t)
{
    out(t, node1(t, real(t, S(2, 2, 6), -1, 1),
                 (Attr){.n = 1, .stride = I(2), .dilation = I(1), .pad = I(0, 0), .kernel = I(2)}));
    /* lines of several vectors and what is left of them */
    for (int step = 1; step <= 2; step++)
        out(t, node1(t, real(t, S(1, 2, 3, 37), -1, 1),
                     (Attr){.n = 2,
                            .stride = I(1, step),
                            .dilation = I(1, 3 - step),
                            .pad = I(1, 1, 1, 1),
                            .kernel = I(3, 3)}));
    for (int mode = 0; mode < 2; mode++) {
        out(t, node1(t, real(t, S(1, 3, 5, 6), -1, 1),
                     (Attr){.n = 2,
                            .stride = I(2, 1),
                            .dilation = I(1, 1),
                            .pad = I(1, 1, 1, 1),
                            .kernel = I(3, 3),
                            .count_include_pad = mode}));
        out(t, node1(t, real(t, S(2, 1, 5, 6), -1, 1),
                     (Attr){.n = 2,
                            .stride = I(2, 2),
                            .dilation = I(1, 2),
                            .pad = I(0, 1, 1, 0),
                            .kernel = I(2, 2),
                            .count_include_pad = mode,
                            .ceil_mode = 1}));
    }
}
/* Rows that the data choose: the third is not there, nor the last. */
static ValueId chosen(T *t)
{
    uint8_t *mask = arena_array(t->g->arena, uint8_t, 6);
    memcpy(mask, (const uint8_t[]){1, 1, 0, 1, 1, 0}, 6);
    return input(t, DT_BOOL, S(6), mask);
}
static void packing(T *t)
{
    ValueId mask = chosen(t), in[2] = {real(t, S(2, 6, 3), -1, 1), mask};
    ValueId y = graph_node(t->g, t->op, 2, in, (Attr){.axis = 1});
    in[0] = real(t, S(6, 3), -1, 1);
    out(t, y);
    out(t, graph_node(t->g, t->op, 2, in, (Attr){.axis = 0}));
    /* more than a warp counts at once */
    uint8_t *many = arena_array(t->g->arena, uint8_t, 75);
    for (int i = 0; i < 75; i++)
        many[i] = i % 3 != 1 && i / 32 != 1;
    const ValueId two[2] = {real(t, S(75, 2), -1, 1), input(t, DT_BOOL, S(75), many)};
    out(t, graph_node(t->g, t->op, 2, two, (Attr){.axis = 0}));
}
/* an expert: what its rows give, where they came from; and a product over a packed depth */
static void packed_matmul(T *t)
{
    Graph *g = t->g;
    ValueId mask = chosen(t), x[2] = {real(t, S(6, 5), -1, 1), mask}, live[2] = {mask, mask};
    ValueId in[3] = {graph_node(g, OP_Pack, 2, x, (Attr){0}), real(t, S(5, 20), -1, 1), mask};
    ValueId there = g_reshape(g, graph_node(g, OP_Pack, 2, live, (Attr){0}), &S(6, 1)),
            z = graph_node(g, OP_PackedMatMul, 3, in, (Attr){0});
    ValueId y = g_mul(g, z, g_unary(g, OP_Sigmoid, z));
    in[0] = g_where(g, there, y, g_like(g, y, 0));
    in[1] = real(t, S(20, 4), -1, 1);
    x[0] = graph_node(g, OP_PackedMatMul, 3, in, (Attr){0});
    out(t, graph_node(g, OP_Unpack, 2, x, (Attr){0}));
    x[0] = real(t, S(3, 6), -1, 1);
    in[0] = graph_node(g, OP_Pack, 2, x, (Attr){.axis = 1});
    x[0] = real(t, S(6, 4), -1, 1);
    in[1] = graph_node(g, OP_Pack, 2, x, (Attr){0});
    out(t, graph_node(g, OP_PackedMatMul, 3, in, (Attr){.axis = 1}));
}
/* the evaluator draws 0.5 */
static void noise(T *t)
{
    ValueId x = real(t, S(4, 3), -1, 1);
    Attr at = {.to = t->real == DT_F64 ? DT_F64 : DT_F32, .key = 3};
    ValueId u = graph_node(t->g, OP_Random, 1, &x, at);
    out(t, g_mul(t->g, x, g_cast(t->g, u, val(t->g, x)->dtype)));
}
static void dropout(T *t) { out(t, node1(t, real(t, S(4), -1, 1), (Attr){.ratio = 0})); }
static void phase(T *t)
{
    ValueId x = real(t, S(4), -1, 1);
    out(t, node2(t, g_mul(t->g, x, x), g_neg(t->g, x), (Attr){0}));
}

/* States of which one feeds a product, and what each step reads whole, in both directions; a state
   is a sequence, too, and so is what the backward keeps; of the first no last state is asked for.
 */
static void recurrence(T *t)
{
    static const int rows[] = {0, 0, 0, -1, -1, 0, 0, 0, 0};
    Graph *g = t->g;
    for (int reverse = 0; reverse < 2; reverse++) {
        Graph *b = body_new(g);
        ValueId h = graph_input(b, "h", t->real, &S(2, 3)),
                c = graph_input(b, "c", t->real, &S(2, 3)),
                x = graph_input(b, "x", t->real, &S(2, 3)),
                w = graph_input(b, "w", t->real, &S(3, 3)),
                s = graph_input(b, "s", t->real, &S(1, 3));
        ValueId z = g_unary(b, OP_Tanh, g_add(b, g_matmul(b, h, g_swap_last(b, w)), x));
        c = g_add(b, g_mul(b, c, s), z);
        h = g_mul(b, z, c);
        const ValueId left[] = {h, c, reverse ? h : c, z},
                      in[] = {real(t, S(2, 3), -1, 1), real(t, S(2, 3), -1, 1),
                              real(t, S(4, 2, 3), -1, 1), real(t, S(3, 3), -1, 1),
                              real(t, S(1, 3), -1, 1)};
        for (int i = 0; i < 4; i++)
            vec_push(b->arena, &b->output, left[i]);
        ValueId y = g_recurrence(
            g, b, (Recurrence){.states = 2, .sequences = 1, .reverse = reverse, .rows = rows}, in);
        for (uint32_t i = (uint32_t)!reverse; i < 4; i++)
            out(t, graph_out(g, y, i));
    }
}

typedef struct { Op op; void (*build)(T *); double lo, hi; const char *what; } Case;
static const Case cases[] = {
    {OP_Neg, unary, -2, 2, ""},
    {OP_Abs, unary, -2, 2, ""},
    {OP_Exp, unary, -2, 2, ""},
    {OP_Log, unary, 0.2, 3, ""},
    {OP_Sqrt, unary, 0.2, 3, ""},
    {OP_Reciprocal, unary, 0.3, 2, ""},
    {OP_Reciprocal, unary, -2, -0.3, "negative"},
    {OP_Sin, unary, -3, 3, ""},
    {OP_Cos, unary, -3, 3, ""},
    {OP_Tan, unary, -1.2, 1.2, ""},
    {OP_Asin, unary, -0.9, 0.9, ""},
    {OP_Acos, unary, -0.9, 0.9, ""},
    {OP_Atan, unary, -3, 3, ""},
    {OP_Sinh, unary, -2, 2, ""},
    {OP_Cosh, unary, -2, 2, ""},
    {OP_Tanh, unary, -2, 2, ""},
    {OP_Asinh, unary, -3, 3, ""},
    {OP_Acosh, unary, 1.2, 4, ""},
    {OP_Atanh, unary, -0.9, 0.9, ""},
    {OP_Erf, unary, -2, 2, ""},
    {OP_Sigmoid, unary, -4, 4, ""},
    {OP_Softplus, unary, -4, 4, ""},
    {OP_Relu, unary, -2, 2, ""},
    {OP_Cast, cast, 0, 0, "to f32 and back"},
    {OP_Add, binary, -2, 2, ""},
    {OP_Add, broadcast, -2, 2, "broadcast"},
    {OP_Sub, binary, -2, 2, ""},
    {OP_Sub, broadcast, -2, 2, "broadcast"},
    {OP_Mul, binary, -2, 2, ""},
    {OP_Mul, broadcast, -2, 2, "broadcast"},
    {OP_Div, binary, 0.5, 2, ""},
    {OP_Div, broadcast, -2, -0.5, "broadcast"},
    {OP_Pow, binary, 0.3, 2, "both operands"},
    {OP_Pow, broadcast, 0.3, 2, "broadcast"},
    {OP_Pow, pow_constant, 0, 0, "constant exponents"},
    {OP_Pow, pow_base_constant, 0, 0, "constant base"},
    {OP_Pow, pow_negative, 0, 0, "negative base"},
    {OP_Mod, binary, 0.4, 3, ""},
    {OP_Mod, broadcast, -3, -0.4, "broadcast"},
    {OP_Fmod, binary, 0.4, 3, ""},
    {OP_Fmod, broadcast, -3, -0.4, "broadcast"},
    {OP_Min, binary, -2, 2, ""},
    {OP_Min, broadcast, -2, 2, "broadcast"},
    {OP_Max, binary, -2, 2, ""},
    {OP_Max, broadcast, -2, 2, "broadcast"},
    {OP_Where, where, 0, 0, "broadcast"},
    {OP_Identity, identity, 0, 0, ""},
    {OP_Reshape, reshape, 0, 0, ""},
    {OP_Transpose, transpose, 0, 0, ""},
    {OP_Transpose, transpose_weight, 0, 0, "of a linear layer's weight"},
    {OP_Expand, expand, 0, 0, ""},
    {OP_Slice, slice, 0, 0, "steps of either sign"},
    {OP_Split, split, 0, 0, "unused outputs"},
    {OP_Vary, vary, 0, 0, "unused results"},
    {OP_Concat, concat, 0, 0, ""},
    {OP_Pad, pad, 0, 0, "every mode"},
    {OP_Gather, gather, 0, 0, "indices of every kind"},
    {OP_GatherElements, gather_elements, 0, 0, ""},
    {OP_GatherND, gather_nd, 0, 0, "batch dims"},
    {OP_ScatterElements, scatter_elements, 0, 0, "every reduction"},
    {OP_ScatterElements, scatter_zero_factor, 0, 0, "products with zeros"},
    {OP_ScatterND, scatter_nd, 0, 0, "every reduction"},
    {OP_ReduceSum, reduce, 0, 0, ""},
    {OP_ReduceMean, reduce, 0, 0, ""},
    {OP_ReduceMean, reduce_rows, 0, 0, "over the rows"},
    {OP_ReduceMax, reduce, 0, 0, ""},
    {OP_ReduceMin, reduce, 0, 0, ""},
    {OP_ReduceProd, reduce, 0, 0, ""},
    {OP_ReduceProd, product_of_zeros, 0, 0, "zeros among the factors"},
    {OP_CumSum, cumsum, 0, 0, "every mode"},
    {OP_TopK, topk, 0, 0, ""},
    {OP_Suppress, suppress, 0, 0, "with a limit and without"},
    {OP_Softmax, softmax, 0, 0, ""},
    {OP_LogSoftmax, softmax, 0, 0, ""},
    {OP_MatMul, matmul, 0, 0, "weights"},
    {OP_MatMul, matmul_batch, 0, 0, "batches, broadcast"},
    {OP_Conv, conv, 0, 0, "1d 2d 3d, groups, strides, dilations"},
    {OP_ConvTranspose, conv_transpose, 0, 0, "groups, output padding"},
    {OP_ConvWeightGrad, conv_weight_grad, 0, 0, ""},
    {OP_MaxPool, pool, 0, 0, "overlaps, pads, ceil, long lines"},
    {OP_AveragePool, pool, 0, 0, "overlaps, pads, ceil, long lines"},
    {OP_Dropout, dropout, 0, 0, "ratio 0"},
    {OP_Pack, packing, 0, 0, "along two axes"},
    {OP_Unpack, packing, 0, 0, "along two axes"},
    {OP_PackedMatMul, packed_matmul, 0, 0, "an expert, a packed depth"},
    {OP_Recurrence, recurrence, 0, 0, "both directions"},
    {OP_Random, noise, 0, 0, "factors of x"},
    {OP_Phase, phase, 0, 0, "training takes operand 0"},
};

/* loss = sum over the outputs of sum(r * y) */
static void make_loss(T *t)
{
    Graph *g = t->g;
    t->loss = NONE;
    for (uint32_t i = 0; i < t->y.n; i++) {
        Shape s = val(g, t->y.at[i])->shape;
        int64_t n = shape_elements(&s);
        double *r = arena_array(g->arena, double, n);
        for (int64_t k = 0; k < n; k++)
            r[k] = 0.5 + uniform(t);
        ValueId w = g_cast(g, graph_const(g, NULL, (Tensor){DT_F64, s, r}), dtype_sum(t->real)),
                y = dtype_is_float(val(g, t->y.at[i])->dtype)
                        ? g_cast(g, t->y.at[i], dtype_sum(t->real))
                        : t->y.at[i];
        ValueId part = g_sum_to(g, g_mul(g, y, w), &(Shape){0});
        t->loss = t->loss == NONE ? part : g_add(g, t->loss, part);
    }
}

#endif
