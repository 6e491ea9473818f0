/*
 * net_random.h - random graphs whose generated code the tests run, from a number: 26 steps, each an
 * operation on what was made before, of float32 and four rows.  (The fuzzer's, over all of ops.def
 * and kept in files, are tests/fuzz/recipe.h's.)
 */
#ifndef NET_RANDOM_H
#define NET_RANDOM_H

#include "nets.h"

static ValueId net_pick(Net *n, const Ids *pool)
{
    uint32_t last = pool->n < 6 ? pool->n : 6; /* the newest more often */
    return net_uniform(n) < 0.7 ? pool->at[pool->n - 1 - (uint32_t)net_whole(n, last)]
                                : pool->at[net_whole(n, pool->n)];
}

/* A parameter that broadcasts with x: some dims 1, some left out in front; never the rows. */
static ValueId net_broadcast(Net *n, ValueId x)
{
    Shape s = val(n->g, x)->shape, t = {0};
    int from = s.rank > 1 ? 1 + (int)net_whole(n, s.rank - 1) : 1;
    for (int d = from; d < s.rank; d++)
        t.d[t.rank++] = net_uniform(n) < 0.3 ? 1 : s.d[d];
    return net_weight(n, t);
}

static ValueId net_random_reshape(Net *n, ValueId x)
{
    Shape s = val(n->g, x)->shape, t = {.rank = 1, .d = {s.d[0]}};
    for (int d = 1; d < s.rank; d++) {
        int64_t k = s.d[d], f = k % 2 == 0 && k > 2 ? 2 : k % 3 == 0 && k > 3 ? 3 : 1;
        if (net_uniform(n) < 0.4 && t.rank > 1) {
            t.d[t.rank - 1] *= k;
        } else if (f > 1 && net_uniform(n) < 0.4 && t.rank < 5) {
            t.d[t.rank++] = f;
            t.d[t.rank++] = k / f;
        } else {
            t.d[t.rank++] = k;
        }
    }
    if (net_uniform(n) < 0.15 && t.rank < 5)
        t.d[t.rank++] = 1;
    return g_reshape(n->g, x, &t);
}

static ValueId net_random_slice(Net *n, ValueId x)
{
    Shape s = val(n->g, x)->shape;
    int64_t start[MAX_RANK], size[MAX_RANK], step[MAX_RANK];
    for (int d = 0; d < s.rank; d++) {
        start[d] = 0, size[d] = s.d[d], step[d] = 1;
        if (d == 0 || s.d[d] < 2 || net_uniform(n) < 0.4)
            continue;
        step[d] = 1 + net_whole(n, 2);
        start[d] = net_whole(n, s.d[d]);
        size[d] = (s.d[d] - 1 - start[d]) / step[d] + 1;
        if (net_uniform(n) < 0.3) {
            start[d] = s.d[d] - 1 - start[d];
            step[d] = -step[d];
        }
    }
    return g_slice(n->g, x, start, size, step);
}

static ValueId net_random_pad(Net *n, ValueId x)
{
    Shape s = val(n->g, x)->shape;
    int64_t begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    for (int d = 1; d < s.rank; d++)
        if (net_uniform(n) < 0.5) {
            begin[d] = net_whole(n, 3);
            end[d] = net_whole(n, 3);
        }
    return g_pad(n->g, x, begin, end, PAD_CONSTANT, net_uniform(n) < 0.5 ? 0 : 0.25);
}

static ValueId net_random_transpose(Net *n, ValueId x)
{
    int64_t perm[MAX_RANK];
    int rank = val(n->g, x)->shape.rank;
    for (int d = 0; d < rank; d++)
        perm[d] = d;
    for (int d = rank - 1; d > 1; d--) {
        int e = 1 + (int)net_whole(n, d);
        int64_t t = perm[d];
        perm[d] = perm[e];
        perm[e] = t;
    }
    return g_transpose(n->g, x, perm);
}

static ValueId net_random_reduce(Net *n, ValueId x, bool again)
{
    static const Op ops[] = {OP_ReduceMean, OP_ReduceMean, OP_ReduceSum, OP_ReduceMax,
                             OP_ReduceMin};
    Graph *g = n->g;
    int64_t axes[MAX_RANK];
    int k = 0, rank = val(g, x)->shape.rank;
    Op op = ops[net_whole(n, 5)];
    for (int d = 1; d < rank; d++)
        if (net_uniform(n) < 0.5)
            axes[k++] = d;
    if (k == 0)
        axes[k++] = rank - 1;
    if (axes[0] == 0)
        return x;
    ValueId m = g_reduce(g, op, x, k, axes);
    if (op == OP_ReduceSum)
        m = g_mul(g, m, g_like(g, m, 0.1));
    return again ? g_sub(g, x, m) : m;
}

static ValueId net_random_matmul(Net *n, ValueId x)
{
    const Shape s = val(n->g, x)->shape;
    int64_t k = s.d[s.rank - 1], m = 1 + net_whole(n, 9);
    ValueId w =
        net_uniform(n) < 0.5 ? net_weight(n, S(k, m)) : g_swap_last(n->g, net_weight(n, S(m, k)));
    if (s.rank >= 3 && net_uniform(n) < 0.4)
        w = g_softmax(n->g, g_swap_last(n->g, x), s.rank - 1);
    ValueId y = g_matmul(n->g, x, w);
    return g_mul(n->g, y, g_like(n->g, y, 0.5));
}

static ValueId net_random_conv(Net *n, ValueId x)
{
    const Shape s = val(n->g, x)->shape;
    if (s.rank != 4 || s.d[2] * s.d[3] > 200)
        return g_unary(n->g, OP_Tanh, x);
    if (net_uniform(n) < 0.3)
        return net_op(n, net_uniform(n) < 0.5 ? OP_MaxPool : OP_AveragePool, x,
                      (Attr){.n = 2,
                             .stride = I(1, 1),
                             .dilation = I(1, 1),
                             .pad = I(1, 1, 1, 1),
                             .kernel = I(3, 3)});
    return g_mul(n->g, net_conv(n, x, s.d[1], 1 + net_whole(n, 5), 1, 1), g_like(n->g, x, 0.3));
}

static ValueId net_random_unary(Net *n, ValueId x)
{
    static const Op ops[] = {OP_Tanh, OP_Sigmoid, OP_Relu,     OP_Erf,
                             OP_Sin,  OP_Neg,     OP_Softplus, OP_Abs};
    return g_unary(n->g, ops[net_whole(n, 8)], x);
}

static ValueId net_random_concat(Net *n, ValueId x, const Ids *pool)
{
    const Shape s = val(n->g, x)->shape;
    ValueId part[3] = {x};
    uint32_t k = 1;
    int axis = s.rank > 1 ? 1 + (int)net_whole(n, s.rank - 1) : 0;
    for (uint32_t i = 0; axis > 0 && i < pool->n && k < 3; i++) {
        const Shape t = val(n->g, pool->at[i])->shape;
        bool fits = t.rank == s.rank;
        for (int d = 0; d < s.rank && fits; d++)
            fits = d == axis || t.d[d] == s.d[d];
        if (fits && net_uniform(n) < 0.5)
            part[k++] = pool->at[i];
    }
    return k > 1 ? g_concat(n->g, k, part, axis) : x;
}

static ValueId net_random_binary(Net *n, ValueId x, const Ids *pool)
{
    static const Op ops[] = {OP_Add, OP_Sub, OP_Mul, OP_Max};
    ValueId y = net_broadcast(n, x);
    for (uint32_t i = 0; i < pool->n; i++) {
        const Shape s = val(n->g, x)->shape, t = val(n->g, pool->at[i])->shape;
        bool fits = t.rank == s.rank;
        for (int d = 0; d < s.rank && fits; d++)
            fits = t.d[d] == s.d[d] || (d > 0 && (t.d[d] == 1 || s.d[d] == 1));
        if (fits && pool->at[i] != x && net_uniform(n) < 0.5)
            y = pool->at[i];
    }
    return g_binary(n->g, ops[net_whole(n, 4)], x, y);
}

static ValueId net_random_gather(Net *n, ValueId x)
{
    const Shape s = val(n->g, x)->shape;
    int axis = s.rank > 1 ? 1 + (int)net_whole(n, s.rank - 1) : 0;
    int64_t k = 1 + net_whole(n, 4), at[4];
    for (int64_t i = 0; i < k; i++)
        at[i] = net_whole(n, s.d[axis]);
    return axis > 0 ? g_gather(n->g, x, g_ints(n->g, 1, &k, at), axis) : x;
}

static void net_random(Net *n)
{
    Graph *g = n->g;
    Ids pool = {0};
    int64_t a = 1 + net_whole(n, 6), b = 1 + net_whole(n, 20), c = 1 + net_whole(n, 6);
    vec_push(g->arena, &pool, net_input(n, "x", DT_F32, S(ROWS, a, b)));
    vec_push(g->arena, &pool, net_input(n, "z", DT_F32, S(ROWS, a, c, 1 + b / 2)));
    vec_push(g->arena, &pool,
             g_gather(g, net_weight(n, S(7, 6)), net_input(n, "ids", DT_I64, S(ROWS, 3)), 0));
    for (int i = 0; i < 26; i++) {
        ValueId x = net_pick(n, &pool), y = x;
        switch (net_whole(n, 17)) {
        case 0:
        case 1: y = net_random_unary(n, x); break;
        case 2: y = net_random_reshape(n, x); break;
        case 3: y = net_random_transpose(n, x); break;
        case 4: y = net_random_slice(n, x); break;
        case 5: y = net_random_pad(n, x); break;
        case 6: y = net_random_reduce(n, x, false); break;
        case 7:
        case 8: y = net_random_reduce(n, x, true); break;
        case 9: y = net_random_matmul(n, x); break;
        case 10: y = net_random_conv(n, x); break;
        case 11: y = net_random_concat(n, x, &pool); break;
        case 12:
            y = g_softmax(g, x,
                          val(g, x)->shape.rank - 1 -
                              (int)net_whole(n, val(g, x)->shape.rank > 2 ? 2 : 1));
            break;
        case 13: y = net_random_gather(n, x); break;
        case 14: y = net_layer_norm(n, x, val(g, x)->shape.d[val(g, x)->shape.rank - 1]); break;
        default: y = net_random_binary(n, x, &pool); break;
        }
        if (y == x || val(g, y)->kind != V_NODE || shape_elements(&val(g, y)->shape) > 20000 ||
            val(g, y)->shape.rank > 6)
            continue;
        if (n->cuts < 3 && i > 4 && !op_is_view(g->node.at[val(g, y)->node].op) &&
            net_uniform(n) < 0.15)
            net_cut(n, y);
        vec_push(g->arena, &pool, y);
    }
    for (uint32_t i = pool.n > 4 ? pool.n - 4 : 0; i < pool.n; i++)
        net_out(n, pool.at[i]);
}

#endif
