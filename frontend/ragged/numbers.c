/*
 * numbers.c - numbers that were computed of sizes which depend on the data, as sums
 * (extent.c).  In: nodes whose operands are such numbers, and the constant that they make of
 * the largest.  Out: an Extent of each element, or NULL; the mask of what has such a size.
 */
#include "ragged.h"


enum { LONGEST = 64 };                                  /* numbers of a shape */

ValueId ragged_of_extent(ImportState *s, const Extent *e, ValueId sizes, int64_t at, int64_t n)
{
    if (!e)
        return NONE;
    for (uint32_t i = 0; i < e->n; i++)
        if (e->times[i] < 0)                            /* more than n, where others are fewer */
            return NONE;
    ValueId mask = ragged_with_extent(s, e);
    if (mask == NONE) {
        mask = ragged_first(s, ragged_actual_at(s, sizes, at), n);
        ragged_mask(s, mask)->extent = e;
    }
    return low_shape(s->g, mask).d[0] == n ? mask : NONE;
}

ValueId ragged_common(ImportState *s, ValueId a, ValueId b)
{
    if (a == b)
        return a;
    const Extent *e = ragged_extent(s, a);
    if (!ragged_same_extent(e, ragged_extent(s, b)) || ragged_mask(s, a)->shuffled ||
        ragged_mask(s, b)->shuffled)
        return NONE;
    return ragged_packed(s, ragged_with_extent(s, e));
}

const Extent *ragged_element(ImportState *s, ValueId v, int64_t i)
{
    const Ragged *r = ragged_find(s, v);
    const Value *x = val(s->g, v);
    if (r)
        return r->dim == COUNT ? r->number[i] : NULL;
    if (x->kind != V_CONST || dtype_is_float(x->dtype))
        return NULL;
    double k = low_const_at(x, i);
    return k >= -0x1p53 && k <= 0x1p53 ? ragged_known(s, (int64_t)k) : NULL;
}

/* Does it only move the elements of its first operand, or of all? */
static bool is_move(Op op)
{
    return op_is_view(op) || op == OP_Concat || (op_picks(op) && op != OP_Count);
}

/* The same of operands whose elements are their numbers says where each goes. */
static void move(const Core *c, uint32_t out, const Extent **number)
{
    Graph *g = c->s->g;
    const Node *n = &c->n;
    uint32_t data = n->op == OP_Concat ? n->nin : 1;
    ValueId *in = arena_array(g->arena, ValueId, n->nin + 1);
    const Extent *of[LONGEST + 1];
    int64_t k = 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        in[i] = c->in[i];
        if (i >= data) {
            if (ragged_find(c->s, in[i]))
                return;
            continue;
        }
        Shape x = low_shape(g, in[i]);
        int64_t all = shape_elements(&x), *at = arena_array(g->arena, int64_t, all + 1);
        if (all > LONGEST - k)
            return;
        for (int64_t j = 0; j < all; j++, k++) {
            at[j] = k;
            of[k] = ragged_element(c->s, c->in[i], j);
        }
        in[i] = low_const(g, DT_I64, x, at);
    }
    const Value *moved = val(g, graph_out(g, graph_node(g, n->op, n->nin, in, n->attr), out));
    for (int64_t i = 0; moved->kind == V_CONST && i < shape_elements(&moved->shape); i++)
        number[i] = of[(int64_t)low_const_at(moved, i)];
}

/* Is a number that is at most hi and at least lo less than 0, is it 0? -1: that depends. */
static int is_less(int64_t lo, int64_t hi) { return hi < 0 ? 1 : lo >= 0 ? 0 : -1; }
static int is_zero(int64_t lo, int64_t hi)
{
    return lo == 0 && hi == 0 ? 1 : lo > 0 || hi < 0 ? 0 : -1;
}

/* a compared with b, 1 or 0; NULL: that depends on the data. */
static const Extent *compared(ImportState *s, Op op, const Extent *a, const Extent *b)
{
    const Extent *d = ragged_sum(s, a, 1, b, -1);
    if (!d)
        return NULL;
    int64_t lo = d->known, hi = d->known;
    for (uint32_t i = 0; i < d->n; i++)
        *(d->times[i] < 0 ? &lo : &hi) += d->times[i] * low_shape(s->g, d->mask[i]).d[0];
    int is = op == OP_Equal                                    ? is_zero(lo, hi)
             : op == OP_Less || op == OP_GreaterOrEqual        ? is_less(lo, hi)
                                                               : is_less(-hi, -lo);
    if (is < 0)
        return NULL;
    return ragged_known(s, op == OP_GreaterOrEqual || op == OP_LessOrEqual ? !is : is);
}

static const Extent *divided(ImportState *s, const Extent *a, const Extent *b)
{
    if (a && ragged_is_known(b) && b->known == -1) /* the least number of all has no other sign */
        return ragged_sum(s, a, -1, ragged_known(s, 0), 0);
    if (!a || !ragged_is_known(b) || b->known == 0 || a->known % b->known != 0)
        return NULL;
    Extent *e = arena_new_of(s->g->arena, Extent);
    *e = *a;
    e->known /= b->known;
    e->times = arena_array(s->g->arena, int64_t, e->n + 1);
    for (uint32_t i = 0; i < e->n; i++) {
        if (a->times[i] % b->known != 0)
            return NULL;
        e->times[i] = a->times[i] / b->known;
    }
    return e;
}

/* The greater or the less of two. */
static const Extent *chosen(ImportState *s, const Extent *a, const Extent *b, bool greater)
{
    const Extent *less = compared(s, OP_Less, a, b);
    return !less ? NULL : (less->known != 0) == greater ? b : a;
}

/* Element i of n that an elementwise operation yields. */
static const Extent *computed(const Core *c, int64_t i, int64_t n)
{
    ImportState *s = c->s;
    const Extent *x[3] = {0};
    for (uint32_t k = 0; k < c->n.nin && k < 3; k++) {
        Shape in = low_shape(s->g, c->in[k]);
        int64_t m = shape_elements(&in);
        x[k] = m == n || m == 1 ? ragged_element(s, c->in[k], m == 1 ? 0 : i) : NULL;
    }
    switch (c->n.op) {
    case OP_Cast: return x[0];
    case OP_Add: return ragged_sum(s, x[0], 1, x[1], 1);
    case OP_Sub: return ragged_sum(s, x[0], 1, x[1], -1);
    case OP_Neg: return ragged_sum(s, x[0], -1, ragged_known(s, 0), 0);
    case OP_Mul:
        if (ragged_is_known(x[0]))
            return ragged_sum(s, x[1], x[0]->known, ragged_known(s, 0), 0);
        return ragged_is_known(x[1]) ? ragged_sum(s, x[0], x[1]->known, ragged_known(s, 0), 0)
                                     : NULL;
    case OP_Div: return divided(s, x[0], x[1]);
    case OP_Equal:
    case OP_Less:
    case OP_LessOrEqual:
    case OP_Greater:
    case OP_GreaterOrEqual: return compared(s, c->n.op, x[0], x[1]);
    case OP_Min: return chosen(s, x[0], x[1], false);
    case OP_Max: return chosen(s, x[0], x[1], true);
    case OP_Not: return ragged_is_known(x[0]) ? ragged_known(s, !x[0]->known) : NULL;
    case OP_Where: return ragged_is_known(x[0]) ? x[x[0]->known ? 1 : 2] : NULL;
    default: return NULL;
    }
}

const Extent **ragged_numbers(const Core *c, uint32_t out, ValueId y)
{
    Graph *g = c->s->g;
    const Shape shape = low_shape(g, y);
    int64_t n = shape_elements(&shape);
    const Extent **number = arena_array(g->arena, const Extent *, n + 1);
    if (n > LONGEST || dtype_is_float(low_dtype(g, y)))
        return number;
    if (is_move(c->n.op))
        move(c, out, number);
    for (int64_t i = 0; i < n; i++) {
        if (!is_move(c->n.op))
            number[i] = computed(c, i, n);
        if (number[i] && (double)ragged_most(c->s, number[i]) != low_const_at(val(g, y), i))
            number[i] = NULL;
    }
    return number;
}
