/*
 * map.c - VJP rules of the elementwise operations; those of one operand are the column DX of
 * ops.def.  In each: x the operand, y the result, dy its gradient.  Where a formula in terms of y
 * exists it is taken: y is then often kept anyway, and x need not be.  At kinks as PyTorch:
 * relu'(0) = 0, abs'(0) = 0, ties of max and min share equally.
 */
#include "vjp.h"

/* Between floats a cast is the identity: dx = dy, in x's type */
void vjp_cast(Vjp *v)
{
    Graph *g = v->g;
    const Dtype from = val(g, v->in[0])->dtype;
    if (dtype_is_float(from) && dtype_is_float(val(g, v->out[0])->dtype))
        v->din[0] = v->wide[0] ? v->dy[0] : g_cast(g, v->dy[0], from);
}

#define BINARY \
    Graph *g = v->g; \
    ValueId a = v->in[0], b = v->in[1], y = v->out[0], dy = v->dy[0]; \
    (void)a, (void)b, (void)y

/* y = a + b: da = dy, db = dy */
void vjp_add(Vjp *v)
{
    for (uint32_t i = 0; i < 2; i++)
        if (v->want[i])
            vjp_give(v, i, v->dy[0]);
}
/*
 * y = a - mean a: what of dy adds up to nothing is left out of the mean's gradient.  So a norm's
 * variance, mean y^2, sends none to the mean, as in the formula of its gradient, and all its sums
 * over dy are there after one pass.  Only within a node of the file, which no cut divides: the
 * gradients that another stage sends do not say what they are.
 */
static ValueId without_centred(const Vjp *v, ValueId dy)
{
    Graph *g = v->g;
    const Node *mean = vjp_maker(g, v->in[1]), *sum = vjp_maker(g, dy);
    if (!mean || mean->op != OP_ReduceMean || mean->in[0] != v->in[0] || !sum || sum->op != OP_Add)
        return dy;
    const ValueId part[2] = {sum->in[0], sum->in[1]};
    for (int i = 0; i < 2; i++)
        if (vjp_is_level(g, part[i], v->out[0], &mean->attr)) /* adds up to zero, for y does */
            return without_centred(v, part[1 - i]);
    return dy;
}

/* y = a - b: da = dy, db = -dy (summed first: less work where b was broadcast, the same bits) */
void vjp_sub(Vjp *v)
{
    BINARY;
    if (v->want[0])
        vjp_give(v, 0, dy);
    if (v->want[1]) {
        vjp_give(v, 1, without_centred(v, dy));
        v->din[1] = g_neg(g, v->din[1]);
    }
}
/* y = a b: da = dy * b, db = dy * a; y = a^2: da = dy * 2a, in one piece */
void vjp_mul(Vjp *v)
{
    BINARY;
    if (a == b) {
        v->din[0] = g_mul(g, dy, vjp_scale(g, a, 2));
        return;
    }
    double one;
    bool seed = g_const_double(g, dy, &one) && one == 1 && val(g, dy)->shape.rank == 0;
    if (v->want[0])
        vjp_give(v, 0, seed ? b : g_mul(g, dy, b));
    if (v->want[1])
        vjp_give(v, 1, seed ? a : g_mul(g, dy, a));
}
/* y = a / b: da = dy / b, db = -dy * y / b */
void vjp_div(Vjp *v)
{
    BINARY;
    if (v->want[0])
        vjp_give(v, 0, g_div(g, dy, b));
    if (v->want[1]) {
        vjp_give(v, 1, g_div(g, g_mul(g, dy, y), b));
        v->din[1] = g_neg(g, v->din[1]);
    }
}

/* d x^c / dx = c x^(c-1), the common exponents without pow */
static ValueId power_slope(Graph *g, ValueId x, ValueId y, double c)
{
    if (c == 2)
        return vjp_scale(g, x, 2);
    if (c == 3)
        return vjp_scale(g, vjp_square(g, x), 3);
    if (c == 0.5)
        return g_div(g, g_like(g, y, 0.5), y);
    if (c == -1)
        return g_neg(g, vjp_square(g, y));
    return vjp_scale(g, g_binary(g, OP_Pow, x, g_like(g, x, c - 1)), c);
}

/* y = a^b: da = dy * b * a^(b-1), and 0 where b = 0; db = dy * y * log a, and 0 where a <= 0 */
void vjp_pow(Vjp *v)
{
    BINARY;
    double c;
    if (v->want[0] && g_const_double(g, b, &c)) {
        if (c == 1)
            vjp_give(v, 0, dy);
        else if (c != 0)
            vjp_give(v, 0, g_mul(g, dy, power_slope(g, a, y, c)));
    } else if (v->want[0]) {
        ValueId e = g_cast(g, b, val(g, a)->dtype);
        ValueId slope = g_mul(g, e, g_binary(g, OP_Pow, a, g_sub(g, e, g_like(g, e, 1))));
        ValueId zero = g_binary(g, OP_Equal, e, g_like(g, e, 0));
        vjp_give(v, 0, g_mul(g, dy, g_where(g, zero, g_like(g, slope, 0), slope)));
    }
    if (v->want[1]) {
        ValueId positive = g_binary(g, OP_Greater, a, g_like(g, a, 0));
        ValueId log_a = g_unary(g, OP_Log, g_where(g, positive, a, g_like(g, a, 1)));
        vjp_give(v, 1, g_cast(g, g_mul(g, g_mul(g, dy, y), log_a), val(g, b)->dtype));
    }
}

/* y = a - b q, q the whole number a/b was rounded to: da = dy, db = -dy * q.  q = round((a - y) /
 * b) for both kinds of Mod. */
void vjp_remainder(Vjp *v)
{
    BINARY;
    if (v->want[0])
        vjp_give(v, 0, dy);
    if (v->want[1]) {
        ValueId q = g_unary(g, OP_Round, g_div(g, g_sub(g, a, y), b));
        vjp_give(v, 1, g_neg(g, g_mul(g, dy, q)));
    }
}

/* y = max(a, b): da = dy where a > b, dy / 2 where a = b; min: where a < b */
void vjp_extremum(Vjp *v)
{
    BINARY;
    const Op wins = vjp_node(v)->op == OP_Max ? OP_Greater : OP_Less;
    ValueId zero = g_like(g, dy, 0);
    ValueId tie = g_binary(g, OP_Equal, a, b);
    for (uint32_t i = 0; i < 2; i++) {
        if (!v->want[i])
            continue;
        ValueId won = g_binary(g, wins, v->in[i], v->in[1 - i]);
        vjp_give(v, i, g_where(g, tie, vjp_scale(g, dy, 0.5), g_where(g, won, dy, zero)));
    }
}

/* y = c ? a : b: da = c ? dy : 0, db = c ? 0 : dy */
void vjp_where(Vjp *v)
{
    Graph *g = v->g;
    ValueId c = v->in[0], dy = v->dy[0], zero = g_like(g, dy, 0);
    if (v->want[1])
        vjp_give(v, 1, g_where(g, c, dy, zero));
    if (v->want[2])
        vjp_give(v, 2, g_where(g, c, zero, dy));
}

/* y = x * mask / (1 - p): dx = mask ? dy / (1 - p) : 0.  The mask is the forward's second output,
 * never drawn again. */
void vjp_dropout(Vjp *v)
{
    Graph *g = v->g;
    double p = vjp_node(v)->attr.ratio;
    ValueId kept = vjp_scale(g, v->dy[0], p < 1 ? 1 / (1 - p) : 0);
    v->din[0] = g_where(g, v->out[1], kept, g_like(g, v->dy[0], 0));
}
