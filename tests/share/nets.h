/*
 * nets.h - small networks whose generated code the tests run: layers of transformers and of
 * convolution nets, what moves elements, sums over all sorts of axes.  Values named cut1, cut2 ..
 * are where to split.  Random ones: net_random.h.
 */
#ifndef NETS_H
#define NETS_H

#include "ir/facts/attention.h"
#include "vjp_cases.h"

enum { ROWS = 4 };

typedef struct {
    Graph *g;
    uint64_t seed;
    uint32_t params, cuts;
    Ids y; /* the loss is the sum of half their squares */
} Net;

static double net_uniform(Net *n)
{
    n->seed = n->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(n->seed >> 11) / 9007199254740992.0;
}

static int64_t net_whole(Net *n, int64_t below)
{
    return (int64_t)(net_uniform(n) * (double)below);
}

static ValueId net_weight(Net *n, Shape s)
{
    int64_t count = shape_elements(&s);
    float *d = arena_array(n->g->arena, float, count + 1);
    for (int64_t i = 0; i < count; i++)
        d[i] = (float)(2 * net_uniform(n) - 1) * (s.rank > 1 ? 0.5f : 1.0f);
    Payload bytes = {.at = (const uint8_t *)d, .length = (size_t)count * sizeof *d};
    Param p = {.name = arena_printf(n->g->arena, "w%u", n->params++),
               .dtype = DT_F32,
               .shape = s,
               .trainable = true,
               .bytes = bytes};
    return graph_param(n->g, p);
}

static ValueId net_input(Net *n, const char *name, Dtype t, Shape s)
{
    return graph_input(n->g, name, t, &s);
}
static void net_out(Net *n, ValueId y) { vec_push(n->g->arena, &n->y, y); }

static ValueId net_cut(Net *n, ValueId v)
{
    graph_rename(n->g, v, arena_printf(n->g->arena, "cut%u", ++n->cuts));
    return v;
}

static ValueId net_op(Net *n, Op op, ValueId x, Attr a) { return graph_node(n->g, op, 1, &x, a); }

static ValueId net_linear(Net *n, ValueId x, int64_t in, int64_t out, bool transposed)
{
    ValueId w =
        transposed ? g_swap_last(n->g, net_weight(n, S(out, in))) : net_weight(n, S(in, out));
    return g_add(n->g, g_matmul(n->g, x, w), net_weight(n, S(out)));
}

/* As exporters write it: mean, difference, mean of squares, epsilon. */
static ValueId net_layer_norm(Net *n, ValueId x, int64_t width)
{
    Graph *g = n->g;
    ValueId d = g_sub(g, x, g_reduce_last(g, OP_ReduceMean, x));
    ValueId var = g_reduce_last(g, OP_ReduceMean, g_mul(g, d, d));
    ValueId y = g_div(g, d, g_unary(g, OP_Sqrt, g_add(g, var, g_like(g, var, 0.01))));
    return g_add(g, g_mul(g, y, net_weight(n, S(width))), net_weight(n, S(width)));
}

static ValueId net_rms_norm(Net *n, ValueId x, int64_t width)
{
    Graph *g = n->g;
    ValueId m = g_reduce_last(g, OP_ReduceMean, g_mul(g, x, x));
    ValueId scale = g_unary(g, OP_Reciprocal, g_unary(g, OP_Sqrt, g_add(g, m, g_like(g, m, 1e-6))));
    return g_mul(g, net_weight(n, S(width)), g_mul(g, x, scale));
}

static ValueId net_gelu(Net *n, ValueId x)
{
    Graph *g = n->g;
    ValueId e =
        g_add(g, g_unary(g, OP_Erf, g_mul(g, x, g_like(g, x, 0.70710678))), g_like(g, x, 1));
    return g_mul(g, g_mul(g, x, e), g_like(g, x, 0.5));
}

static ValueId net_gelu_tanh(Net *n, ValueId x)
{
    Graph *g = n->g;
    ValueId cube = g_mul(g, x, g_mul(g, x, x));
    ValueId t = g_unary(
        g, OP_Tanh,
        g_mul(g, g_add(g, x, g_mul(g, cube, g_like(g, x, 0.044715))), g_like(g, x, 0.79788456)));
    return g_mul(g, g_mul(g, x, g_like(g, x, 0.5)), g_add(g, t, g_like(g, x, 1)));
}

/* Causal attention with `heads` heads over [rows, time, width]; queries, keys and values from one
 * product. */
static ValueId net_attention(Net *n, ValueId x, int64_t time, int64_t width, int64_t heads)
{
    Graph *g = n->g;
    int64_t depth = width / heads, part[] = {width, width, width};
    ValueId qkv = g_split(g, net_linear(n, x, width, 3 * width, false), 2, 3, part), head[3];
    for (uint32_t i = 0; i < 3; i++)
        head[i] = g_transpose(g, g_reshape(g, graph_out(g, qkv, i), &S(ROWS, time, heads, depth)),
                              i == 1 ? I(0, 2, 3, 1) : I(0, 2, 1, 3));
    uint8_t *mask = arena_array(g->arena, uint8_t, time * time);
    for (int64_t i = 0; i < time * time; i++)
        mask[i] = i % time <= i / time;
    ValueId seen = graph_const(g, NULL, (Tensor){DT_BOOL, S(1, 1, time, time), mask});
    ValueId score = g_mul(g, g_matmul(g, head[0], head[1]), g_scalar(g, DT_F32, 0.4));
    score = g_where(g, seen, score, g_scalar(g, DT_F32, -1e9));
    ValueId y = g_transpose(g, g_matmul(g, g_softmax(g, score, 3), head[2]), I(0, 2, 1, 3));
    return net_linear(n, g_reshape(g, y, &S(ROWS, time, width)), width, width, true);
}

/* Two layers of a decoder, tied embedding; the second with RMS norms, a gated product and rotary
 * halves. */
static void net_transformer(Net *n)
{
    enum { TIME = 5, WIDTH = 12, WORDS = 17 };
    Graph *g = n->g;
    ValueId ids = net_input(n, "ids", DT_I64, S(ROWS, TIME)),
            table = net_weight(n, S(WORDS, WIDTH));
    ValueId x = g_add(g, g_gather(g, table, ids, 0), net_weight(n, S(TIME, WIDTH)));
    x = g_add(g, x, net_attention(n, net_layer_norm(n, x, WIDTH), TIME, WIDTH, 3));
    x = net_cut(
        n, g_add(g, x,
                 net_linear(
                     n, net_gelu(n, net_linear(n, net_layer_norm(n, x, WIDTH), WIDTH, 20, true)),
                     20, WIDTH, false)));
    ValueId a = net_rms_norm(n, x, WIDTH), left = g_slice_axis(g, a, 2, 0, WIDTH / 2),
            right = g_slice_axis(g, a, 2, WIDTH / 2, WIDTH / 2);
    ValueId turned = g_concat(g, 2, (ValueId[]){g_neg(g, right), left}, 2);
    a = g_add(g, g_mul(g, a, net_weight(n, S(TIME, WIDTH))),
              g_mul(g, turned, net_weight(n, S(TIME, WIDTH))));
    x = net_cut(n, g_add(g, x, net_attention(n, a, TIME, WIDTH, 2)));
    ValueId h = net_layer_norm(n, x, WIDTH), gate = net_linear(n, h, WIDTH, 16, true);
    gate = g_mul(g, g_mul(g, gate, g_unary(g, OP_Sigmoid, gate)),
                 net_gelu_tanh(n, net_linear(n, h, WIDTH, 16, false)));
    x = net_layer_norm(n, g_add(g, x, net_linear(n, gate, 16, WIDTH, false)), WIDTH);
    net_out(n, g_log_softmax(g, g_matmul(g, x, g_swap_last(g, table)), 2));
}

/* Products to which a row of biases is added, which a device's library does: one that the first
 * cut divides, one from the left, one behind the second cut; and what the library does not: a bias for
 * each row, a sum that is read as well, a product of one column. */
enum { NET_BIASES = 3 };
__attribute__((unused)) static void net_biases(Net *n)
{
    enum { TIME = 4, WIDTH = 8 };
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, TIME, WIDTH));
    ValueId y = net_cut(n, g_matmul(g, x, net_weight(n, S(WIDTH, 12))));
    y = g_unary(g, OP_Relu, g_add(g, y, net_weight(n, S(12))));
    y = g_add(g, net_weight(n, S(1, WIDTH)), g_matmul(g, y, net_weight(n, S(12, WIDTH))));
    y = g_add(g, g_matmul(g, y, net_weight(n, S(WIDTH, WIDTH))), net_weight(n, S(TIME, 1)));
    ValueId sum = g_matmul(g, net_cut(n, y), net_weight(n, S(WIDTH, WIDTH)));
    net_out(n, g_mul(g, sum, g_add(g, sum, net_weight(n, S(WIDTH)))));
    net_out(n, net_linear(n, y, WIDTH, 1, false));
    net_out(n, net_linear(n, y, WIDTH, 7, true));
}

/* softmax(s) v, its heads side by side */
static ValueId net_heads(Net *n, ValueId s, ValueId v)
{
    Graph *g = n->g;
    ValueId y = g_matmul(g, g_softmax(g, s, 3), v);
    Shape d = val(g, y)->shape, flat = shape_of(3, d.d[0], d.d[2], d.d[1] * d.d[3]);
    return g_reshape(g, g_transpose(g, y, I(0, 2, 1, 3)), &flat);
}

/* `groups` heads of x, each there for so many in a row, before heads and places are exchanged or
 * after. */
static ValueId net_repeated(Net *n, ValueId x, int64_t time, int64_t groups, int64_t many, int64_t d,
                            bool before)
{
    Graph *g = n->g;
    ValueId y = net_linear(n, x, val(g, x)->shape.d[2], groups * d, true);
    if (before) {
        y = g_expand(g, g_reshape(g, y, &S(ROWS, time, groups, 1, d)),
                     &S(ROWS, time, groups, many, d));
        return g_transpose(g, g_reshape(g, y, &S(ROWS, time, groups * many, d)), I(0, 2, 1, 3));
    }
    y = g_transpose(g, g_reshape(g, y, &S(ROWS, time, groups, d)), I(0, 2, 1, 3));
    y = g_expand(g, g_reshape(g, y, &S(ROWS, groups, 1, time, d)), &S(ROWS, groups, many, time, d));
    return g_reshape(g, y, &S(ROWS, groups * many, time, d));
}

/* Heads that share keys and values, whose gradients the kernel adds up, with cuts inside of their
 * attentions: none divides them.  Queries and keys are scaled, as PyTorch's exporter does it. */
enum { NET_SHARED = 2 };
__attribute__((unused)) static void net_shared(Net *n)
{
    enum { TIME = 40, HEADS = 6, GROUPS = 2, D = 5, WIDTH = HEADS * D };
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, TIME, WIDTH));
    ValueId later = g_binary(g, OP_Less, g_iota(g, DT_I64, 2, 0, TIME), g_iota(g, DT_I64, 2, 1, TIME));
    for (int i = 0; i < NET_SHARED; i++) {
        ValueId q = net_repeated(n, x, TIME, HEADS, 1, D, true),
                k = net_repeated(n, x, TIME, GROUPS, HEADS / GROUPS, D, i),
                v = net_repeated(n, x, TIME, GROUPS, HEADS / GROUPS, D, i);
        q = g_div(g, q, g_scalar(g, DT_F32, 1.25));
        k = g_mul(g, g_scalar(g, DT_F32, 0.75), k);
        ValueId s = g_matmul(g, q, g_swap_last(g, k)), p;
        s = net_cut(n, g_mul(g, s, g_scalar(g, DT_F32, 0.5)));
        p = g_softmax(g, g_where(g, later, g_scalar(g, DT_F32, -HUGE_VAL), s), 3);
        v = g_reshape(g, g_transpose(g, g_matmul(g, p, v), I(0, 2, 1, 3)), &S(ROWS, TIME, WIDTH));
        x = g_add(g, x, v);
    }
    net_out(n, x);
}

/* What attention.c finds: groups of heads that share keys, a causal mask that adds and one that
 * picks, a mask and a bias that are inputs, keys from elsewhere; and what it leaves: scores that
 * somebody else reads, a bias that trains. */
__attribute__((unused)) static void net_attentions(Net *n)
{
    enum { TIME = 5, HEADS = 4, GROUPS = 2, D = 3, WIDTH = HEADS * D, OTHER = 7 };
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, TIME, WIDTH));
    ValueId other = net_input(n, "other", DT_F32, S(ROWS, OTHER, WIDTH));
    ValueId open = net_input(n, "open", DT_BOOL, S(ROWS, 1, 1, OTHER));
    ValueId r = g_iota(g, DT_I64, 2, 0, TIME), c = g_iota(g, DT_I64, 2, 1, TIME);
    ValueId later = g_binary(g, OP_Less, r, c);
    ValueId q = g_transpose(g, g_reshape(g, net_linear(n, x, WIDTH, WIDTH, true),
                                         &S(ROWS, TIME, HEADS, D)),
                            I(0, 2, 1, 3));
    ValueId kv = g_reshape(g, net_linear(n, x, WIDTH, 2 * GROUPS * D, false),
                           &S(ROWS, TIME, 2 * GROUPS, D));
    kv = g_reshape(g, g_expand(g, g_reshape(g, g_transpose(g, kv, I(0, 2, 1, 3)),
                                            &S(ROWS, 2 * GROUPS, 1, TIME, D)),
                               &S(ROWS, 2 * GROUPS, HEADS / GROUPS, TIME, D)),
                   &S(ROWS, 2 * HEADS, TIME, D));
    ValueId k = g_slice_axis(g, kv, 1, 0, HEADS), v = g_slice_axis(g, kv, 1, HEADS, HEADS);
    ValueId low = g_where(g, later, g_scalar(g, DT_F32, -3.4e38), g_scalar(g, DT_F32, 0));
    ValueId s = g_mul(g, g_matmul(g, q, g_swap_last(g, k)), g_scalar(g, DT_F32, 0.5));
    x = net_cut(n, g_add(g, x, net_heads(n, g_add(g, s, low), v)));
    /* across, with a mask that allows */
    q = g_transpose(g, g_reshape(g, x, &S(ROWS, TIME, HEADS, D)), I(0, 2, 1, 3));
    kv = g_transpose(g, g_reshape(g, net_linear(n, other, WIDTH, WIDTH, true),
                                  &S(ROWS, OTHER, HEADS, D)),
                     I(0, 2, 1, 3));
    s = g_div(g, g_matmul(g, q, g_swap_last(g, kv)), g_scalar(g, DT_F32, 1.5));
    s = g_where(g, open, s, g_scalar(g, DT_F32, -1e4));
    x = net_cut(n, g_add(g, x, net_heads(n, s, kv)));
    /* scores that are put out as well, and a bias that trains: left alone */
    q = g_transpose(g, g_reshape(g, x, &S(ROWS, TIME, HEADS, D)), I(0, 2, 1, 3));
    s = g_add(g, g_matmul(g, q, g_swap_last(g, q)), net_weight(n, S(HEADS, TIME, TIME)));
    x = g_add(g, x, net_heads(n, s, q));
    q = g_transpose(g, g_reshape(g, x, &S(ROWS, TIME, HEADS, D)), I(0, 2, 1, 3));
    s = g_matmul(g, q, g_swap_last(g, q));
    net_out(n, g_where(g, later, g_scalar(g, DT_F32, 0), s));
    net_out(n, net_heads(n, g_where(g, later, g_scalar(g, DT_F32, -(double)INFINITY), s), q));
}

static ValueId net_conv(Net *n, ValueId x, int64_t in, int64_t out, int64_t group, int64_t stride)
{
    ValueId c[] = {x, net_weight(n, S(out, in / group, 3, 3))};
    int64_t *a = arena_array(n->g->arena, int64_t, 2);
    a[0] = a[1] = stride;
    ValueId y = graph_node(
        n->g, OP_Conv, 2, c,
        (Attr){.group = group, .n = 2, .stride = a, .dilation = I(1, 1), .pad = I(1, 1, 1, 1)});
    return g_add(n->g, y, net_weight(n, S(1, out, 1, 1)));
}

/* Normalised over samples and places, as BatchNormalization in training. */
static ValueId net_batch_norm(Net *n, ValueId x, int64_t channels)
{
    Graph *g = n->g;
    ValueId d = g_sub(g, x, g_mean(g, x, 3, I(0, 2, 3)));
    ValueId scale = g_unary(
        g, OP_Sqrt, g_add(g, g_mean(g, g_mul(g, d, d), 3, I(0, 2, 3)), g_scalar(g, DT_F32, 1e-5)));
    return g_add(g, g_mul(g, g_div(g, d, scale), net_weight(n, S(1, channels, 1, 1))),
                 net_weight(n, S(1, channels, 1, 1)));
}

static ValueId net_bounds(Graph *g, ValueId x, double low, double high)
{
    ValueId lo = g_scalar(g, DT_F32, low), hi = g_scalar(g, DT_F32, high);
    x = g_where(g, g_binary(g, OP_LessOrEqual, x, lo), lo, x);
    return g_where(g, g_binary(g, OP_GreaterOrEqual, x, hi), hi, x);
}

/* What libraries know behind a convolution (after.c), and what only looks like it. */
static ValueId net_follow(Net *n, ValueId x)
{
    Graph *g = n->g;
    ValueId y = net_bounds(g, net_conv(n, x, 6, 6, 2, 1), 0, 1.5);
    y = net_bounds(g, g_add(g, y, net_conv(n, y, 6, 6, 1, 1)), -0.75, 0.75);
    y = net_conv(n, y, 6, 6, 6, 1);
    ValueId t = g_add(g, g_mul(g, y, g_scalar(g, DT_F32, 1.0 / 6)), g_scalar(g, DT_F32, 0.5)),
            one = g_scalar(g, DT_F32, 1), zero = g_scalar(g, DT_F32, 0);
    t = g_where(g, g_binary(g, OP_LessOrEqual, t, zero), zero,
                g_where(g, g_binary(g, OP_GreaterOrEqual, t, one), one, t));
    y = net_conv(n, g_mul(g, y, t), 6, 6, 6, 1);
    y = net_bounds(g, net_conv(n, y, 6, 6, 1, 1), -2, 0);
    y = net_conv(n, y, 6, 6, 1, 1);
    return g_where(g, g_binary(g, OP_LessOrEqual, y, zero), one, y);
}

static void net_convolution(Net *n)
{
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, 3, 9, 8));
    x = g_unary(g, OP_Relu, net_batch_norm(n, net_conv(n, x, 3, 6, 1, 1), 6));
    ValueId deep = net_conv(n, g_unary(g, OP_Relu, net_conv(n, x, 6, 6, 6, 1)), 6, 6, 2, 1);
    x = net_cut(n, g_unary(g, OP_Relu, g_add(g, x, deep)));
    x = net_cut(n, net_follow(n, x));
    x = net_op(n, OP_MaxPool, x,
               (Attr){.n = 2,
                      .stride = I(2, 2),
                      .dilation = I(1, 1),
                      .pad = I(1, 1, 1, 1),
                      .kernel = I(3, 3)});
    x = net_op(n, OP_AveragePool, net_conv(n, x, 6, 4, 1, 2),
               (Attr){.n = 2,
                      .stride = I(1, 1),
                      .dilation = I(1, 1),
                      .pad = I(0, 0, 0, 0),
                      .kernel = I(2, 2)});
    ValueId flat = g_reshape(g, x, &S(ROWS, shape_elements(&val(g, x)->shape) / ROWS));
    net_out(n, net_linear(n, flat, val(g, flat)->shape.d[1], 7, true));
    net_out(n, g_mean(g, x, 2, I(2, 3)));
}

/* What differs between training and inference: BatchNormalization with its running statistics,
 * Dropout. */
static void net_state(Net *n)
{
    enum { C = 6 };
    Graph *g = n->g;
    ValueId x = net_op(n, OP_Dropout, net_input(n, "x", DT_F32, S(ROWS, 5, C)),
                       (Attr){.ratio = 0.25, .key = 0});
    x = net_linear(n, x, C, C, true);
    ValueId stat[2] = {net_weight(n, S(C)), net_weight(n, S(C))}, now[2];
    now[0] = g_mean(g, x, 2, I(0, 1));
    ValueId d = g_sub(g, x, now[0]);
    now[1] = g_mean(g, g_mul(g, d, d), 2, I(0, 1));
    for (int i = 0; i < 2; i++) {
        StatUpdate u = {val(g, stat[i])->param,
                        g_add(g, g_mul(g, stat[i], g_scalar(g, DT_F32, 0.9)),
                              g_mul(g, g_reshape(g, now[i], &S(C)), g_scalar(g, DT_F32, 0.1)))};
        g->param.at[u.param].stat = true;
        g->param.at[u.param].trainable = false;
        vec_push(g->arena, &g->update, u);
    }
    ValueId train = g_div(g, d, g_unary(g, OP_Sqrt, g_add(g, now[1], g_scalar(g, DT_F32, 0.01))));
    ValueId eval = g_mul(g, g_sub(g, x, stat[0]), g_unary(g, OP_Exp, stat[1]));
    x = graph_node(g, OP_Phase, 2, (ValueId[]){train, eval}, (Attr){0});
    x = net_cut(n, g_add(g, g_mul(g, x, net_weight(n, S(C))), net_weight(n, S(C))));
    x = net_op(n, OP_Dropout, g_reshape(g, net_gelu(n, x), &S(ROWS, 5 * C)),
               (Attr){.ratio = 0.5, .key = 1});
    net_out(n, net_linear(n, x, 5 * C, 3, false));
}

/* The same block again and again, each with its own Dropout: one function, called in a loop. */
static void net_blocks(Net *n)
{
    enum { C = 6, BLOCKS = 7, CUT = 4 };
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, 5, C));
    for (int i = 0; i < BLOCKS; i++) {
        ValueId h = net_gelu(n, net_linear(n, x, C, 2 * C, true));
        h = net_op(n, OP_Dropout, h, (Attr){.ratio = 0.25, .key = 100 + 7 * i});
        h = net_linear(n, h, 2 * C, C, true);
        ValueId y = g_add(g, x, g_unary(g, OP_Tanh, h));
        x = g_sub(g, y, g_mean(g, y, 1, I(2)));
        if (i == CUT)
            x = net_cut(n, x);
    }
    net_out(n, net_linear(n, x, C, 3, false));
}

/* Concat, Split, Pad, Slice, Transpose, Reshape, Expand after one another. */
static void net_moves(Net *n)
{
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, 6, 10)), w = net_weight(n, S(6, 10));
    x = g_mul(g, x, w);
    ValueId t = g_transpose(g, x, I(0, 2, 1)), r = g_reshape(g, t, &S(ROWS, 5, 12));
    ValueId s = g_slice(g, x, I(0, 4, 9), I(ROWS, 3, 5), I(1, -1, -2));
    ValueId p = g_pad(g, s, I(0, 2, 1), I(0, 0, 3), PAD_CONSTANT, 0.5),
            q = g_pad(g, s, I(0, 1, 2), I(0, 1, 2), PAD_REFLECT, 0);
    ValueId c =
        g_concat(g, 3, (ValueId[]){g_unary(g, OP_Tanh, p), r, g_slice_axis(g, r, 2, 3, 9)}, 2);
    c = net_cut(n, g_mul(g, c, net_weight(n, S(val(g, c)->shape.d[2]))));
    int64_t half = val(g, c)->shape.d[2] / 2;
    ValueId parts = g_split(g, c, 2, 2, (const int64_t[]){half, val(g, c)->shape.d[2] - half});
    ValueId a = graph_out(g, parts, 0), b = g_slice_axis(g, graph_out(g, parts, 1), 2, 0, half);
    ValueId e = g_expand(g, g_reduce_last(g, OP_ReduceMax, a), &val(g, b)->shape);
    net_out(n, g_concat(g, 2, (ValueId[]){g_mul(g, a, b), g_add(g, e, b)}, 2));
    net_out(n, g_reshape(g, g_transpose(g, q, I(0, 2, 1)),
                         &S(ROWS * shape_elements(&val(g, q)->shape) / ROWS)));
    net_out(n, net_op(n, OP_CumSum, x, (Attr){.axis = 2, .scan = CUMSUM_REVERSE}));
    net_out(n, net_op(n, OP_TopK, x, (Attr){.axis = 2, .k = 3, .largest = 1}));
}

/* A shape of as many elements, that cuts and joins dimensions anywhere. */
static Shape net_recut(Net *n, int64_t elements)
{
    Shape t = {0};
    while (t.rank < 4) {
        int64_t divisor[64], k = 0;
        for (int64_t d = 1; d <= elements && k < 64; d++)
            if (elements % d == 0)
                divisor[k++] = d;
        int64_t d = t.rank == 3 ? elements : divisor[net_whole(n, k)];
        t.d[t.rank++] = d;
        elements /= d;
    }
    return t;
}

/*
 * Chains of Reshape, Transpose and Slice that strides can say here and there only, rows among
 * columns too: copies break them, and a copy changes what the next view can be.  Readers are
 * products and elementwise nodes, of the end and of a place in between.
 */
static void net_shuffled(Net *n)
{
    Graph *g = n->g;
    for (int k = 0; k < 6; k++) {
        ValueId x = net_input(n, arena_printf(g->arena, "x%d", k), DT_F32, S(ROWS, 6, 2, 8)),
                between = NONE;
        x = net_linear(n, x, 8, k & 1 ? 8 : 12, true);
        int64_t many = 3 + net_whole(n, 5);
        for (int64_t i = 0; i < many; i++) {
            Shape s = val(g, x)->shape;
            double what = net_uniform(n);
            int64_t perm[4] = {0, 1, 2, 3};
            for (int d = 3; d > 0; d--) {
                int64_t e = net_whole(n, d + 1), t = perm[d];
                perm[d] = perm[e];
                perm[e] = t;
            }
            if (what < 0.4) {
                s = net_recut(n, shape_elements(&s));
                x = g_reshape(g, x, &s);
            } else if (what < 0.85 || s.d[3] < 2) {
                x = g_transpose(g, x, perm);
            } else {
                x = g_slice_axis(g, x, 3, 1, s.d[3] - 1);
            }
            between = i == 1 ? x : between;
        }
        if (k == 0 || k == 4)
            net_cut(n, between);
        Shape s = val(g, x)->shape, t = val(g, between)->shape;
        net_out(n, k < 3 ? net_linear(n, x, s.d[3], 5, k == 1)
                         : g_mul(g, g_unary(g, OP_Tanh, x), net_weight(n, S(s.d[3]))));
        net_out(n, k & 1 ? g_mul(g, between, net_weight(n, S(t.d[3])))
                         : net_linear(n, between, t.d[3], 3, k == 2));
    }
}

/* Values without elements, and sums over none. */
static void net_empty(Net *n)
{
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, 6, 12)),
            none = g_slice_axis(g, net_linear(n, x, 12, 8, true), 1, 6, 0);
    net_out(n, g_softmax(g, net_layer_norm(n, none, 8), 2));
    net_out(n, g_mul(g, g_reduce(g, OP_ReduceSum, none, 1, I(1)), net_weight(n, S(8))));
    net_out(n, net_linear(n, g_transpose(g, none, I(0, 2, 1)), 0, 5, false));
    net_out(n, net_linear(n, none, 8, 3, true));
    net_out(n, g_concat(g, 2,
                        (ValueId[]){net_cut(n, g_unary(g, OP_Tanh, none)),
                                    g_slice_axis(g, net_linear(n, x, 12, 8, false), 1, 1, 3)},
                        1));
    net_out(n, g_concat(g, 2, (ValueId[]){x, g_slice_axis(g, x, 1, 2, 0)}, 1));
    net_out(n, g_reduce(g, OP_ReduceSum, g_mul(g, none, net_weight(n, S(8))), 2, I(0, 1)));
}

/* Sums whose lengths are below, at and above a block or a vector, over axes here and there. */
static void net_sums(Net *n)
{
    static const int64_t axes[][3] = {{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}};
    static const int count[] = {1, 1, 1, 2, 2, 2, 3};
    Graph *g = n->g;
    for (int k = 0; k < 3; k++) {
        int64_t rows = ROWS, p = (int64_t[]){70, 3, 17}[k], q = (int64_t[]){5, 130, 64}[k];
        ValueId x = net_input(n, arena_printf(g->arena, "x%d", k), DT_F32, S(rows, p, q));
        x = g_mul(g, x, net_weight(n, S(p, q)));
        x = g_add(g, x, net_weight(n, S(q)));
        x = g_mul(g, g_add(g, x, net_weight(n, S(p, 1))), net_weight(n, S(1)));
        for (int i = 0; i < 7; i++) {
            ValueId m = g_mean(g, x, count[i], axes[i]);
            net_out(n, g_mul(g, m, m));
            if (axes[i][0] > 0)
                net_out(n, g_reduce(g, i & 1 ? OP_ReduceMax : OP_ReduceMin, x, count[i], axes[i]));
            x = i == 2 ? g_sub(g, x, m) : x;
        }
        if (k == 0)
            net_cut(n, x);
        net_out(n, g_transpose(g, g_softmax(g, x, 1), I(2, 0, 1)));
    }
}

/* The element of each row along an axis whose number the label is, as the losses over classes take
 * it; 0 where there is none. */
static ValueId net_picked(Net *n, ValueId x, int axis, ValueId label, bool first)
{
    Graph *g = n->g;
    Shape s = val(g, x)->shape, column = s;
    column.d[axis] = 1;
    ValueId wanted = g_reshape(g, label, &column),
            number = g_iota(g, val(g, label)->dtype, s.rank, axis, s.d[axis]);
    ValueId is =
        first ? g_binary(g, OP_Equal, wanted, number) : g_binary(g, OP_Equal, number, wanted);
    return g_reduce(g, OP_ReduceSum, g_where(g, is, x, g_like(g, x, 0)), 1, I(axis));
}

/* Sums over one-hot rows: of what is stored or not, by labels that are ignored or out of range, two
 * at once, along other axes, long ones. */
static void net_picks(Net *n)
{
    Graph *g = n->g;
    /* 0 or 1 */
    ValueId label = net_input(n, "label", DT_I64, S(ROWS, 7)), small = g_cast(g, label, DT_I32);
    /* -100 or 1 */
    ValueId ignored = g_sub(g, g_mul(g, small, g_scalar(g, DT_I32, 101)), g_scalar(g, DT_I32, 100));
    ValueId beyond = g_mul(g, label, g_scalar(g, DT_I64, 50));
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, 7, 12));
    ValueId p = g_log_softmax(g, net_linear(n, x, 12, 50, true), 2);
    net_out(n, net_picked(n, p, 2, ignored, false));
    net_out(n, net_cut(n, g_unary(g, OP_Exp, p)));
    /* the result takes the product's place, and all of the row needs what is picked there */
    for (int i = 0; i < 2; i++) {
        ValueId y = net_linear(n, x, 12, i ? 200 : 50, true);
        net_out(n, g_mul(g, y, net_picked(n, y, 2, small, false)));
    }
    ValueId q = g_unary(g, OP_Tanh, net_linear(n, x, 12, 21, false));
    net_out(n, g_mul(g, net_picked(n, q, 2, small, true),
                     net_picked(n, g_mul(g, q, net_weight(n, S(21))), 2, beyond, true)));
    net_out(n, net_picked(n, g_expand(g, net_weight(n, S(50)), &S(ROWS, 7, 50)), 2, beyond, false));
    ValueId z = g_mul(g, net_input(n, "z", DT_F32, S(ROWS, 30, 7)), net_weight(n, S(30, 7)));
    net_out(n, net_picked(n, g_log_softmax(g, z, 1), 1, small, false));
    net_out(n, net_picked(n, z, 1, ignored, true));
    ValueId y = g_mul(g, net_input(n, "y", DT_F32, S(ROWS, 7, 5000)), net_weight(n, S(5000)));
    net_out(n, g_sub(g, g_softmax(g, y, 2), net_picked(n, y, 2, ignored, false)));
    net_out(n, net_picked(n, y, 2, beyond, false));
}

/* ---- graphs of the whole ------------------------------------------------------------------------
 */

/* loss = loss_scale * the sum of half the squares of the outputs */
static Loss net_loss(Net *n)
{
    Graph *g = n->g;
    Loss l = {.loss = NONE, .target = NONE, .scale = LOSS_SUM, .text = "squares"};
    for (uint32_t i = 0; i < n->y.n; i++) {
        ValueId y = n->y.at[i],
                part = g_sum_to(g, g_mul(g, g_mul(g, y, y), g_like(g, y, 0.5)), &(Shape){0});
        l.loss = l.loss == NONE ? part : g_add(g, l.loss, part);
        bool seen = val(g, y)->kind != V_NODE;
        for (uint32_t j = 0; j < g->output.n; j++)
            seen |= g->output.at[j] == y;
        if (!seen) {
            vec_push(g->arena, &g->output, y);
            vec_push(g->arena, &g->output_name, arena_printf(g->arena, "y%u", i));
        }
    }
    l.loss_scale = graph_input(g, "loss_scale", DT_F32, &(Shape){0});
    l.loss = g_mul(g, l.loss, l.loss_scale);
    return l;
}

static Dtype net_half;              /* what nets compute in, as with --dtype; DT_NONE: f32 */

/* cuts: at how many of the named places */
static Pipe *net_pipe(Arena *a, void (*build)(Net *), uint64_t seed, uint32_t cuts)
{
    Net n = {.g = graph_new(a, "test"), .seed = seed * 2654435761u + 1};
    PartitionOptions opt = {0};
    n.g->batch = ROWS;
    build(&n);
    Loss l = net_loss(&n);
    if (net_half != DT_NONE)
        graph_autocast(n.g, net_half);
    for (uint32_t i = 1; i <= cuts && i <= n.cuts; i++)
        vec_push(a, &opt.split, arena_printf(a, "cut%u", i));
    attention_fuse(n.g, &opt.batch, l.loss, l.target);
    Pipe *p = pipe_build(n.g, &opt, &l);
    autodiff(p);
    return p;
}

#endif
