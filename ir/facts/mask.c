/*
 * mask.c - constants as masks.  In: a condition, or a term that is added to scores.  Out: the
 * band j - i in which all its elements lie that let a score through.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "mask.h"

static bool readable(const Value *v)
{
    return v->kind == V_CONST && v->data && dtype_is_computable(v->dtype);
}

double band_part(Band b, int64_t m, int64_t n)
{
    int64_t tiles = 0, live = 0;
    const int64_t across = (n + BAND_TILE - 1) / BAND_TILE;
    for (int64_t i = 0; i < m; i += BAND_TILE, tiles += across) {
        const int64_t end = (i + BAND_TILE + b.above + BAND_TILE - 1) / BAND_TILE;
        const int64_t first = i + b.below > 0 ? (i + b.below) / BAND_TILE : 0;
        const int64_t some = (end < across ? end : across) - first;
        live += some > 0 ? some : 0;
    }
    return tiles > 0 ? (double)live / (double)tiles : 1;
}

/* The last two dimensions are the operand's. */
static bool keeps_matrix(const Graph *g, const Node *n)
{
    const Shape *x = &val(g, n->in[0])->shape, *y = &val(g, n->out[0])->shape;
    return (n->op == OP_Identity || n->op == OP_Expand || n->op == OP_Reshape) && x->rank >= 2 &&
           y->rank >= 2 && x->d[x->rank - 1] == y->d[y->rank - 1] &&
           x->d[x->rank - 2] == y->d[y->rank - 2];
}

/* A cell itself, in another type. */
static double cast(Dtype t, double a)
{
    return t == DT_BOOL ? a != 0 : dtype_is_float(t) ? a : trunc(a);
}

/* ---- rows of a matrix ------------------------------------------------------------------------ */

enum { MOST_CONE = 64 };

/*
 * A matrix that is made of constants but too large to be folded, a row at a time: its constants and
 * operations, each once, those that one reads before it.  It knows no graph: that of another layer
 * is the same bytes.
 */
typedef struct {
    uint32_t op, dtype;                                 /* OP_NONE: a constant */
    int64_t rows, columns;                              /* a constant's */
    const void *data;
    uint32_t in[4];                                     /* NONE: it has no more */
} Cell;
typedef struct {
    int64_t m, n, lines, count; /* lines: m, or of a constant all of its matrices' */
    Cell cell[MOST_CONE];
} Cone;
typedef struct {
    const Graph *g;
    const Value *root;
    Cone *cone;
    ValueId value[MOST_CONE];
} Builder;

/* One matrix, as often as there are samples and heads; of a constant that is the mask itself also
   several. */
static bool constant_cell(const Builder *b, const Value *x, Cell *c)
{
    const Shape *s = &x->shape;
    c->columns = s->rank > 0 ? s->d[s->rank - 1] : 1;
    c->rows = s->rank > 1 ? s->d[s->rank - 2] : 1;
    size_t bytes = (size_t)(c->rows * c->columns) * dtype_size(x->dtype);
    size_t all = (size_t)shape_elements(s) * dtype_size(x->dtype);
    if ((c->columns != 1 && c->columns != b->cone->n) || all < bytes)
        return false;
    if (memcmp(x->data, (const char *)x->data + bytes, all - bytes)) {
        if (b->root != x)
            return false;
        bytes = all;
        b->cone->lines = c->rows = shape_elements(s) / c->columns;
    }
    c->data = graph_bytes(b->g, x->data, bytes);
    return true;
}

/* The number of v in the cone, with all that it is made of; NONE: not known, or too many. */
static uint32_t cone_add(Builder *b, ValueId v)
{
    const Value *x = val(b->g, v);
    Cone *c = b->cone;
    for (uint32_t i = 0; i < c->count; i++)
        if (b->value[i] == v)
            return i;
    Cell cell = {.op = OP_NONE, .dtype = x->dtype, .in = {NONE, NONE, NONE, NONE}};
    if (readable(x)) {
        if (!constant_cell(b, x, &cell))
            return NONE;
    } else {
        if (x->kind != V_NODE)
            return NONE;
        const Node *n = &b->g->node.at[x->node];
        bool same = n->op == OP_Cast || n->op == OP_Expand || n->op == OP_Identity ||
                    (n->op == OP_Reshape && keeps_matrix(b->g, n));
        if (!same && (!op_is_map(n->op) || !op_is_quick(n->op) || n->op == OP_BitCast))
            return NONE;
        cell.op = n->op;
        for (uint32_t i = 0; i < (same ? 1 : n->nin); i++)
            if ((cell.in[i] = cone_add(b, n->in[i])) == NONE)
                return NONE;
    }
    if (c->count == MOST_CONE)
        return NONE;
    b->value[c->count] = v;
    c->cell[c->count] = cell;
    return (uint32_t)c->count++;
}

static void constant_row(const Cell *c, int64_t i, int64_t n, double *row)
{
    element_doubles(c->dtype, c->data, (c->rows > 1 ? i : 0) * c->columns, c->columns, row);
    for (int64_t j = 1; j < n && c->columns == 1; j++)
        row[j] = row[0];
}

typedef struct { const Cone *cone; double *row[MOST_CONE]; } ConeRows;

static const double *cone_row(const ConeRows *r, int64_t i)
{
    const Cone *c = r->cone;
    for (int64_t k = 0; k < c->count; k++) {
        const Cell *x = &c->cell[k];
        Op op = (Op)x->op;
        if (op == OP_NONE) {
            constant_row(x, i, c->n, r->row[k]);
            continue;
        }
        const double *in[3];
        for (int o = 0; o < 3; o++)
            in[o] = r->row[x->in[x->in[o] != NONE ? o : 0]];
        if (op_is_map(op) && op != OP_Cast)
            eval_map_row(op, in[0], in[1], in[2], r->row[k], (int)c->n);
        for (int64_t j = 0; j < c->n && (!op_is_map(op) || op == OP_Cast); j++)
            r->row[k][j] = op == OP_Cast ? cast((Dtype)x->dtype, in[0][j]) : in[0][j];
    }
    return r->row[c->count - 1];
}

/* ---- the band of a matrix -------------------------------------------------------------------- */

/* Is the element what is asked for?  -1: nobody can say. */
static int fits(double x, MaskAsk ask)
{
    switch (ask) {
    case MASK_HIGH: return isnan(x) ? -1 : x > BAND_LOWEST;
    case MASK_ZERO: return x == 0 ? 1 : x <= MASK_LOW ? 0 : -1;
    default: return isnan(x) ? -1 : (x != 0) == (ask == MASK_TRUE);
    }
}

/* The cells of a matrix that are in a band. */
static int64_t band_cells(Band b, int64_t m, int64_t n)
{
    int64_t cells = 0;
    for (int64_t i = 0; i < m; i++) {
        int64_t first = i + b.below > 0 ? i + b.below : 0, last = i + b.above;
        cells += (last < n - 1 ? last : n - 1) - first + 1;
    }
    return cells;
}

static Mask band_of(const ConeRows *of, MaskAsk ask)
{
    const int64_t lines = of->cone->lines, m = of->cone->m, n = of->cone->n;
    Mask k = {.constant = true, .minus_inf = true, .band = {n, -m}};
    int64_t all = 0;
    for (int64_t l = 0; l < lines; l++) {
        const double *row = cone_row(of, l);
        int64_t i = l % m, first = n, last = -1;
        for (int64_t j = 0; j < n; j++) {
            int is = fits(row[j], ask);
            if (is < 0)
                return (Mask){0};
            if (is) {
                first = first == n ? j : first;
                last = j;
                all++;
            } else {
                k.minus_inf &= row[j] == -(double)INFINITY;
            }
        }
        if (last < 0)
            return (Mask){0}; /* a row of which all is masked has no softmax, or an even one */
        k.band.below = first - i < k.band.below ? first - i : k.band.below;
        k.band.above = last - i > k.band.above ? last - i : k.band.above;
    }
    k.yes = 8 * band_part(k.band, m, n) <= 7; /* it skips enough tiles */
    k.full = all == band_cells(k.band, m, n) * (lines / m);
    return k;
}

static const void *look_cone(Arena *a, Dtype t, const Shape *s, const void *data, int ask)
{
    ConeRows r = {.cone = data};
    Arena *scratch = arena_within(a);
    Mask *k = arena_new_of(a, Mask);
    (void)t, (void)s;
    for (int64_t i = 0; i < r.cone->count; i++)
        r.row[i] = arena_array(scratch, double, r.cone->n);
    *k = band_of(&r, (MaskAsk)ask);
    arena_free(scratch);
    return k;
}

/* Of a constant, or of what is made of constants: one matrix, or the same one several times. */
static Mask of_cells(const Graph *g, ValueId id, MaskAsk ask)
{
    const Shape *s = &val(g, id)->shape;
    int64_t m = s->d[s->rank - 2], n = s->d[s->rank - 1];
    Cone cone = {.m = m, .n = n, .lines = m};
    Builder b = {.g = g, .root = val(g, id), .cone = &cone};
    if (cone_add(&b, id) == NONE)
        return (Mask){0};
    size_t bytes = offsetof(Cone, cell) + (size_t)cone.count * sizeof(Cell);
    void *at = arena_alloc(g->arena, bytes);
    memcpy(at, &cone, bytes);
    const Mask *k = graph_look(g, DT_U8, &(Shape){.rank = 1, .d = {(int64_t)bytes}},
                               graph_bytes(g, at, bytes), look_cone, (int)ask);
    return *k;
}

static Mask find(Masks *k, ValueId v, MaskAsk ask)
{
    const Value *x = val(k->g, v);
    if (x->shape.rank < 2 || shape_elements(&x->shape) == 0)
        return (Mask){0};
    if (x->kind != V_NODE)
        return of_cells(k->g, v, ask);
    const Node *n = &k->g->node.at[x->node];
    if (keeps_matrix(k->g, n))
        return mask_of(k, n->in[0], ask);
    if (n->op == OP_Not && (ask == MASK_TRUE || ask == MASK_FALSE))
        return mask_of(k, n->in[0], ask == MASK_TRUE ? MASK_FALSE : MASK_TRUE);
    Mask cells = of_cells(k->g, v, ask);
    if (cells.constant)
        return cells;
    /* true where both are: within the band of either, but perhaps nowhere in a row */
    if ((n->op == OP_And && ask == MASK_TRUE) || (n->op == OP_Or && ask == MASK_FALSE))
        for (int i = 0; i < 2; i++) {
            const Shape *s = &val(k->g, n->in[i])->shape;
            Mask m = {0};
            if (s->rank >= 2 && s->d[s->rank - 1] == x->shape.d[x->shape.rank - 1] &&
                s->d[s->rank - 2] == x->shape.d[x->shape.rank - 2])
                m = mask_of(k, n->in[i], ask);
            m.constant = m.full = false;
            if (m.yes)
                return m;
        }
    return cells;
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

static const void *look_range(Arena *a, Dtype t, const Shape *s, const void *data, int what)
{
    enum { PART = 4096 };
    Range *r = arena_new_of(a, Range);
    double part[PART];
    (void)what;
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
    const Value *x = val(g, graph_behind_views(g, v));
    if (!readable(x))
        return false;
    const Range *r = graph_look(g, x->dtype, &x->shape, x->data, look_range, 0);
    return shape_elements(&x->shape) == 0 || (r->least >= least && r->most <= most);
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
    case OP_Cast: return moderate(g, n->in[0], depth - 1);
    default: return op_is_view(n->op) && moderate(g, n->in[0], depth - 1);
    }
}

bool mask_is_moderate(const Graph *g, ValueId v) { return moderate(g, v, 12); }
