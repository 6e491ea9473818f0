/*
 * net_masks.h - attention under constant masks, as exporters write them: long enough that tiles are
 * left out (ir/facts/attention.c), with cuts through the scores and behind a softmax.
 */
#ifndef NET_MASKS_H
#define NET_MASKS_H

#include "nets.h"

enum {
    MASK_KEEP,                      /* Where(seen, score, -inf) */
    MASK_FILL,                      /* Where(hidden, finfo.min, score): a sliding window */
    MASK_ADD,                       /* score + (0 or finfo.min) */
    MASK_BIAS,                      /* score + a learnt bias + (0 or -inf), Dropout behind it */
    MASKS,
    MASK_TIME = 72, MASK_WIDTH = 6, MASK_HEADS = 2, MASK_WINDOW = 21
};

static bool mask_seen(int kind, int64_t i, int64_t j)
{
    return j <= i && (kind != MASK_FILL || i - j < MASK_WINDOW);
}

static ValueId mask_constant(Net *n, int kind)
{
    bool whole = kind == MASK_KEEP || kind == MASK_FILL;
    uint8_t *byte = arena_array(n->g->arena, uint8_t, MASK_TIME * MASK_TIME);
    float *term = arena_array(n->g->arena, float, MASK_TIME * MASK_TIME);
    for (int64_t i = 0; i < MASK_TIME * MASK_TIME; i++) {
        bool seen = mask_seen(kind, i / MASK_TIME, i % MASK_TIME);
        byte[i] = seen == (kind == MASK_KEEP);
        term[i] = seen ? 0 : kind == MASK_BIAS ? -INFINITY : -3.40282347e38f;
    }
    return graph_const(n->g, NULL,
                       (Tensor){whole ? DT_BOOL : DT_F32, S(1, 1, MASK_TIME, MASK_TIME),
                                whole ? (void *)byte : term});
}

static ValueId mask_scores(Net *n, int kind, ValueId score)
{
    Graph *g = n->g;
    ValueId mask = mask_constant(n, kind);
    if (kind == MASK_KEEP)
        return g_where(g, mask, score, g_scalar(g, DT_F32, -(double)INFINITY));
    if (kind == MASK_FILL)
        return g_where(g, mask, g_scalar(g, DT_F32, -3.4028234663852886e38), score);
    if (kind == MASK_BIAS)
        score = g_add(g, score, net_weight(n, S(MASK_HEADS, MASK_TIME, MASK_TIME)));
    return g_add(g, score, mask);
}

/* One of each kind, one after the other. */
static void net_masks(Net *n)
{
    enum { W = MASK_WIDTH, H = MASK_HEADS, L = MASK_TIME };
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, L, W));
    for (int kind = 0; kind < MASKS; kind++) {
        ValueId head[3];
        for (int i = 0; i < 3; i++)
            head[i] =
                g_transpose(g, g_reshape(g, net_linear(n, x, W, W, i == 2), &S(ROWS, L, H, W / H)),
                            i == 1 ? I(0, 2, 3, 1) : I(0, 2, 1, 3));
        ValueId score = g_mul(g, g_matmul(g, head[0], head[1]), g_scalar(g, DT_F32, 1.5));
        if (kind == MASK_FILL)
            score = net_cut(n, score);
        ValueId p = g_softmax(g, mask_scores(n, kind, score), 3);
        if (kind == MASK_ADD)
            p = net_cut(n, p);
        if (kind == MASK_BIAS)
            p = net_op(n, OP_Dropout, p, (Attr){.ratio = 0.25, .key = 0});
        ValueId y = g_transpose(g, g_matmul(g, p, head[2]), I(0, 2, 1, 3));
        x = g_add(g, x, net_linear(n, g_reshape(g, y, &S(ROWS, L, W)), W, W, true));
    }
    net_out(n, x);
}

#endif
