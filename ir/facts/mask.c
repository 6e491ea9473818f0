/*
 * mask.c - constants as masks.  In: a condition, or a term that is added to scores.  Out: the
 * band j - i in which all its elements lie that let a score through.
 */
#include <math.h>

#include "mask.h"

static double element(const Value *v, int64_t i)
{
    return element_double(v->dtype, v->data, i);
}

static bool readable(const Value *v)
{
    return v->kind == V_CONST && v->data && dtype_is_computable(v->dtype);
}

double band_part(Band b, int64_t m, int64_t n)
{
    int64_t tiles = 0, live = 0;
    for (int64_t i = 0; i < m; i += BAND_TILE) {
        tiles += (n + BAND_TILE - 1) / BAND_TILE;
        int64_t columns = band_end(b, i, n) - band_first(b, i);
        live += columns > 0 ? (columns + BAND_TILE - 1) / BAND_TILE : 0;
    }
    return tiles > 0 ? (double)live / (double)tiles : 1;
}

bool band_pays(Band b, int64_t m, int64_t n) { return 8 * band_part(b, m, n) <= 7; }

/* The last two dimensions are the operand's. */
static bool keeps_matrix(const Graph *g, const Node *n)
{
    const Shape *x = &val(g, n->in[0])->shape, *y = &val(g, n->out[0])->shape;
    return (n->op == OP_Identity || n->op == OP_Expand || n->op == OP_Reshape) && x->rank >= 2 &&
           y->rank >= 2 && x->d[x->rank - 1] == y->d[y->rank - 1] &&
           x->d[x->rank - 2] == y->d[y->rank - 2];
}

/* What two cells give; the operations that make masks of positions. */
static double combined(Op op, double a, double b)
{
    switch (op) {
    case OP_Less: return a < b;
    case OP_LessOrEqual: return a <= b;
    case OP_Greater: return a > b;
    case OP_GreaterOrEqual: return a >= b;
    case OP_And: return a != 0 && b != 0;
    case OP_Or: return a != 0 || b != 0;
    case OP_Add: return a + b;
    case OP_Sub: return a - b;
    default: return (double)NAN;
    }
}

/* Element (i, j) of a matrix that is made of constants but too large to be folded: a comparison of
   positions, and what follows from that, `depth` nodes back at most.  NaN: not known. */
static double cell(const Graph *g, ValueId v, int64_t i, int64_t j, int depth)
{
    const Value *x = val(g, v);
    const Shape *s = &x->shape;
    if (readable(x)) {
        int64_t columns = s->rank > 0 ? s->d[s->rank - 1] : 1,
                rows = s->rank > 1 ? s->d[s->rank - 2] : 1;
        return shape_elements(s) == rows * columns
                   ? element(x, (rows > 1 ? i : 0) * columns + (columns > 1 ? j : 0))
                   : (double)NAN;
    }
    if (x->kind != V_NODE || depth == 0)
        return (double)NAN;
    const Node *n = &g->node.at[x->node];
    bool same = n->op == OP_Cast || n->op == OP_Expand || n->op == OP_Identity ||
                (n->op == OP_Reshape && keeps_matrix(g, n));
    bool two = isfinite(combined(n->op, 0, 0));
    if (!same && !two && n->op != OP_Not && n->op != OP_Where)
        return (double)NAN;
    double a = cell(g, n->in[0], i, j, depth - 1);
    if (isnan(a) || same)
        return a;
    if (n->op == OP_Not)
        return a == 0;
    if (n->op == OP_Where)
        return cell(g, n->in[a != 0 ? 1 : 2], i, j, depth - 1);
    double b = cell(g, n->in[1], i, j, depth - 1);
    return isnan(b) ? b : combined(n->op, a, b);
}

/* Of a constant, or of one matrix of cells. */
static Mask of_elements(const Graph *g, ValueId id, MaskAsk ask)
{
    const Value *v = val(g, id);
    const Shape *s = &v->shape;
    Mask k = {.constant = true, .minus_inf = true};
    bool stored = readable(v);
    int64_t m = s->d[s->rank - 2], n = s->d[s->rank - 1], lines = shape_elements(s) / n;
    if (!stored && lines != m)
        return (Mask){0};
    k.band = (Band){n, -m};
    for (int64_t l = 0; l < lines; l++) {
        int64_t i = l % m, seen = 0;
        for (int64_t j = 0; j < n; j++) {
            double x = stored ? element(v, l * n + j) : cell(g, id, i, j, 16);
            if (isnan(x))
                return (Mask){0};
            if (ask == MASK_HIGH ? x > BAND_LOWEST : (x != 0) == (ask == MASK_TRUE)) {
                k.band.below = j - i < k.band.below ? j - i : k.band.below;
                k.band.above = j - i > k.band.above ? j - i : k.band.above;
                seen++;
            } else {
                k.minus_inf &= x == -(double)INFINITY;
            }
        }
        if (seen == 0)
            return (Mask){0}; /* a row of which all is masked has no softmax, or an even one */
    }
    k.yes = band_pays(k.band, m, n);
    return k;
}

static Mask find(Masks *k, ValueId v, MaskAsk ask)
{
    const Value *x = val(k->g, v);
    if (x->shape.rank < 2 || shape_elements(&x->shape) == 0)
        return (Mask){0};
    if (readable(x))
        return of_elements(k->g, v, ask);
    if (x->kind != V_NODE)
        return (Mask){0};
    const Node *n = &k->g->node.at[x->node];
    if (keeps_matrix(k->g, n))
        return mask_of(k, n->in[0], ask);
    if (n->op == OP_Not && ask != MASK_HIGH)
        return mask_of(k, n->in[0], ask == MASK_TRUE ? MASK_FALSE : MASK_TRUE);
    /* true where both are: within the band of either, but perhaps nowhere in a row */
    if ((n->op == OP_And && ask == MASK_TRUE) || (n->op == OP_Or && ask == MASK_FALSE))
        for (int i = 0; i < 2; i++) {
            const Shape *s = &val(k->g, n->in[i])->shape;
            Mask m = {0};
            if (s->rank >= 2 && s->d[s->rank - 1] == x->shape.d[x->shape.rank - 1] &&
                s->d[s->rank - 2] == x->shape.d[x->shape.rank - 2])
                m = mask_of(k, n->in[i], ask);
            m.constant = false;
            if (m.yes)
                return m;
        }
    return of_elements(k->g, v, ask);
}

Mask mask_of(Masks *k, ValueId v, MaskAsk ask)
{
    uint64_t key = (uint64_t)v * MASK_ASKED + ask;
    uint32_t at = idmap_get(&k->at, key);
    if (at != NONE)
        return k->mask.at[at];
    Mask m = find(k, v, ask);
    *idmap_at(k->a, &k->at, key) = k->mask.n;
    vec_push(k->a, &k->mask, m);
    return m;
}

static bool all_at_most(const Graph *g, ValueId v, double least, double most)
{
    const Value *x = val(g, v);
    while (x->kind == V_NODE && op_is_view(g->node.at[x->node].op))
        x = val(g, g->node.at[x->node].in[0]);
    if (!readable(x))
        return false;
    for (int64_t i = 0; i < shape_elements(&x->shape); i++)
        if (!(element(x, i) >= least && element(x, i) <= most))
            return false;
    return true;
}

bool mask_is_zero(const Graph *g, ValueId v) { return all_at_most(g, v, 0, 0); }

bool mask_is_low(const Graph *g, ValueId v, bool *minus_inf)
{
    const double inf = (double)INFINITY;
    *minus_inf = all_at_most(g, v, -inf, -inf);
    return *minus_inf || all_at_most(g, v, -inf, BAND_LOWEST);
}

static bool moderate(const Graph *g, ValueId v, int depth)
{
    const double most = 0x1p100;
    const Value *x = val(g, v);
    if (x->kind == V_PARAM)
        return true;
    if (x->kind == V_CONST)
        return all_at_most(g, v, -most, most);
    if (x->kind != V_NODE || depth == 0)
        return false;
    const Node *n = &g->node.at[x->node];
    switch (n->op) {
    case OP_MatMul:
    case OP_Tanh: return true;
    case OP_Add:
    case OP_Sub:
    case OP_Mul:
        return moderate(g, n->in[0], depth - 1) && moderate(g, n->in[1], depth - 1);
    case OP_Div: return moderate(g, n->in[0], depth - 1) && val(g, n->in[1])->kind == V_CONST;
    case OP_Neg:
    case OP_Cast:
    case OP_Identity:
    case OP_Reshape:
    case OP_Expand:
    case OP_Transpose: return moderate(g, n->in[0], depth - 1);
    default: return false;
    }
}

bool mask_is_moderate(const Graph *g, ValueId v) { return moderate(g, v, 12); }
