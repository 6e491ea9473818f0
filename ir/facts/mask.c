/*
 * mask.c - constants as masks.  In: a condition, or a term that is added to scores.  Out: the
 * band j - i in which all its elements lie that let a score through.
 */
#include <math.h>

#include "mask.h"

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

/* ---- rows of a matrix ------------------------------------------------------------------------ */

enum { MOST_CONE = 64 };

/* A matrix that is made of constants but too large to be folded, a row at a time: what its nodes
   and constants are, each once, those that a node reads before it. */
typedef struct {
    const Graph *g;
    int64_t n;
    uint32_t count;
    ValueId value[MOST_CONE];
    uint32_t in[MOST_CONE][3];
    double *row[MOST_CONE];
} Cone;

/* The number of v in the cone, with all that it is made of; NONE: not known, or too many. */
static uint32_t cone_add(Cone *c, ValueId v)
{
    const Value *x = val(c->g, v);
    const Shape *s = &x->shape;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->value[i] == v)
            return i;
    uint32_t in[3] = {NONE, NONE, NONE};
    if (readable(x)) {
        int64_t columns = s->rank > 0 ? s->d[s->rank - 1] : 1,
                rows = s->rank > 1 ? s->d[s->rank - 2] : 1;
        if (shape_elements(s) != rows * columns || (columns != 1 && columns != c->n))
            return NONE;
    } else {
        if (x->kind != V_NODE)
            return NONE;
        const Node *n = &c->g->node.at[x->node];
        bool same = n->op == OP_Cast || n->op == OP_Expand || n->op == OP_Identity ||
                    (n->op == OP_Reshape && keeps_matrix(c->g, n));
        bool known = same || isfinite(combined(n->op, 0, 0)) || n->op == OP_Not ||
                     n->op == OP_Where;
        for (uint32_t i = 0; known && i < (same ? 1 : n->nin); i++)
            if ((in[i] = cone_add(c, n->in[i])) == NONE)
                return NONE;
        if (!known)
            return NONE;
    }
    if (c->count == MOST_CONE)
        return NONE;
    c->value[c->count] = v;
    for (int i = 0; i < 3; i++)
        c->in[c->count][i] = in[i];
    return c->count++;
}

static void constant_row(const Value *x, int64_t i, int64_t n, double *row)
{
    const Shape *s = &x->shape;
    int64_t columns = s->rank > 0 ? s->d[s->rank - 1] : 1,
            rows = s->rank > 1 ? s->d[s->rank - 2] : 1;
    element_doubles(x->dtype, x->data, (rows > 1 ? i : 0) * columns, columns, row);
    for (int64_t j = 1; j < n && columns == 1; j++)
        row[j] = row[0];
}

static const double *cone_row(const Cone *c, int64_t i)
{
    for (uint32_t k = 0; k < c->count; k++) {
        const Value *x = val(c->g, c->value[k]);
        if (x->kind != V_NODE) {
            constant_row(x, i, c->n, c->row[k]);
            continue;
        }
        const double *a = c->row[c->in[k][0]], *b = NULL, *d = NULL;
        Op op = c->g->node.at[x->node].op;
        b = c->in[k][1] != NONE ? c->row[c->in[k][1]] : NULL;
        d = c->in[k][2] != NONE ? c->row[c->in[k][2]] : NULL;
        for (int64_t j = 0; j < c->n; j++)
            c->row[k][j] = op == OP_Not            ? a[j] == 0
                           : op == OP_Where && b && d ? a[j] != 0 ? b[j] : d[j]
                           : b                     ? combined(op, a[j], b[j])
                                                   : a[j];
    }
    return c->row[c->count - 1];
}

/* ---- the band of a matrix -------------------------------------------------------------------- */

typedef const double *RowOf(const void *of, int64_t line);

static Mask band_of(RowOf *row_of, const void *of, int64_t lines, int64_t m, int64_t n, MaskAsk ask)
{
    Mask k = {.constant = true, .minus_inf = true, .band = {n, -m}};
    for (int64_t l = 0; l < lines; l++) {
        const double *row = row_of(of, l);
        int64_t i = l % m, first = n, last = -1;
        for (int64_t j = 0; j < n; j++) {
            double x = row[j];
            if (isnan(x))
                return (Mask){0};
            if (ask == MASK_HIGH ? x > BAND_LOWEST : (x != 0) == (ask == MASK_TRUE)) {
                first = first == n ? j : first;
                last = j;
            } else {
                k.minus_inf &= x == -(double)INFINITY;
            }
        }
        if (last < 0)
            return (Mask){0}; /* a row of which all is masked has no softmax, or an even one */
        k.band.below = first - i < k.band.below ? first - i : k.band.below;
        k.band.above = last - i > k.band.above ? last - i : k.band.above;
    }
    k.yes = band_pays(k.band, m, n);
    return k;
}

typedef struct {
    Dtype t;
    const void *data;
    int64_t n;
    double *row;
} Lines;

static const double *stored_row(const void *of, int64_t line)
{
    const Lines *x = of;
    element_doubles(x->t, x->data, line * x->n, x->n, x->row);
    return x->row;
}

static const void *look_band(Arena *a, Dtype t, const Shape *s, const void *data, MaskAsk ask)
{
    int64_t m = s->d[s->rank - 2], n = s->d[s->rank - 1];
    Arena *scratch = arena_within(a);
    Lines x = {t, data, n, arena_array(scratch, double, n)};
    Mask *k = arena_new_of(a, Mask);
    *k = band_of(stored_row, &x, shape_elements(s) / n, m, n, ask);
    arena_free(scratch);
    return k;
}

static const void *look_true(Arena *a, Dtype t, const Shape *s, const void *data)
{
    return look_band(a, t, s, data, MASK_TRUE);
}

static const void *look_false(Arena *a, Dtype t, const Shape *s, const void *data)
{
    return look_band(a, t, s, data, MASK_FALSE);
}

static const void *look_high(Arena *a, Dtype t, const Shape *s, const void *data)
{
    return look_band(a, t, s, data, MASK_HIGH);
}

static Mask of_constant(const Graph *g, const Value *v, MaskAsk ask)
{
    static LookAt *const look[MASK_ASKED] = {look_true, look_false, look_high};
    const Mask *k = graph_look(g, v->dtype, &v->shape, v->data, look[ask]);
    return *k;
}

static const double *computed_row(const void *of, int64_t line) { return cone_row(of, line); }

/* Of one matrix of cells. */
static Mask of_cells(const Graph *g, ValueId id, MaskAsk ask)
{
    const Shape *s = &val(g, id)->shape;
    int64_t m = s->d[s->rank - 2], n = s->d[s->rank - 1];
    Cone c = {.g = g, .n = n};
    if (shape_elements(s) != m * n || cone_add(&c, id) == NONE)
        return (Mask){0};
    Arena *scratch = arena_within(g->arena);
    for (uint32_t i = 0; i < c.count; i++)
        c.row[i] = arena_array(scratch, double, n);
    Mask k = band_of(computed_row, &c, m, m, n, ask);
    arena_free(scratch);
    return k;
}

static Mask find(Masks *k, ValueId v, MaskAsk ask)
{
    const Value *x = val(k->g, v);
    if (x->shape.rank < 2 || shape_elements(&x->shape) == 0)
        return (Mask){0};
    if (readable(x))
        return of_constant(k->g, x, ask);
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
    return of_cells(k->g, v, ask);
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

typedef struct {
    double least, most;                                 /* NaN is in no range */
} Range;

static const void *look_range(Arena *a, Dtype t, const Shape *s, const void *data)
{
    enum { PART = 4096 };
    Range *r = arena_new_of(a, Range);
    double part[PART];
    *r = (Range){(double)INFINITY, -(double)INFINITY};
    int64_t n = shape_elements(s);
    for (int64_t at = 0; at < n; at += PART) {
        int64_t many = n - at < PART ? n - at : PART;
        element_doubles(t, data, at, many, part);
        for (int64_t i = 0; i < many; i++) {
            r->least = part[i] >= r->least ? r->least : part[i];
            r->most = part[i] <= r->most ? r->most : part[i];
            if (isnan(part[i]))
                return *r = (Range){-(double)NAN, (double)NAN}, r;
        }
    }
    return r;
}

static bool all_at_most(const Graph *g, ValueId v, double least, double most)
{
    const Value *x = val(g, v);
    while (x->kind == V_NODE && op_is_view(g->node.at[x->node].op))
        x = val(g, g->node.at[x->node].in[0]);
    if (!readable(x))
        return false;
    const Range *r = graph_look(g, x->dtype, &x->shape, x->data, look_range);
    return shape_elements(&x->shape) == 0 || (r->least >= least && r->most <= most);
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
