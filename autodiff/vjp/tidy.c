/*
 * tidy.c - what rules one after another leave of one product: constants that are one, divisions by
 * a square root whose reciprocal is there, twice the same product.  In: the gradient that a rule
 * has made.  Out: the same product, its small factors first.
 *
 *     -(s r^2) / (2 / r) * (1/n) * (2 a)   ->   (s r r r) (-1/n) a
 *
 * A chain is followed through nodes of backward that come of the same node of the file, which no
 * cut divides: so the result does not depend on the cut.  Nothing is cancelled that may be zero or
 * infinite.
 */
#include "vjp.h"

enum { MOST_FACTORS = 12, MOST_POWER = 4 };

typedef struct { ValueId v; int power; } Factor;

typedef struct {
    const Graph *g;
    ValueId first;                  /* backward's values begin here */
    bool forward;                   /* products of forward are followed, too */
    double c;
    uint32_t constants;             /* that c is of, signs among them; one may hide another */
    uint32_t n;
    bool full;
    Factor at[MOST_FACTORS];
} Product;

static void add_factor(Product *p, ValueId v, int power)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->at[i].v == v && (p->at[i].power > 0) == (power > 0)) {
            p->at[i].power += power;
            return;
        }
    p->full |= p->n == MOST_FACTORS;
    if (!p->full)
        p->at[p->n++] = (Factor){v, power};
}

/* power: 1 or -1 */
static void read_product(Product *p, ValueId v, int power)
{
    const Node *n = vjp_maker(p->g, v);
    double c;
    if (g_const_double(p->g, v, &c) && c != 0 && val(p->g, v)->shape.rank == 0) {
        p->c = power > 0 ? p->c * c : p->c / c;
        p->constants++;
        return;
    }
    if (p->full || !n || (v < p->first && !p->forward)) {
        add_factor(p, v, power);
    } else if (n->op == OP_Neg) {
        p->c = -p->c;
        p->constants++;
        read_product(p, n->in[0], power);
    } else if (n->op == OP_Mul || n->op == OP_Div) {
        read_product(p, n->in[0], power);
        read_product(p, n->in[1], n->op == OP_Mul ? power : -power);
    } else {
        add_factor(p, v, power);
    }
}

/* A divisor of which another factor is the reciprocal. Was there one? */
static bool use_reciprocals(Product *p)
{
    bool any = false;
    for (uint32_t i = 0; i < p->n; i++) {
        const Node *n = p->at[i].power > 0 ? vjp_maker(p->g, p->at[i].v) : NULL;
        for (uint32_t k = 0; n && n->op == OP_Reciprocal && k < p->n; k++)
            if (p->at[k].v == n->in[0] && p->at[k].power < 0) {
                p->at[i].power -= p->at[k].power;
                p->at[k] = p->at[--p->n];
                any = true;
                break;
            }
    }
    return any;
}

static int64_t size_of(const Graph *g, ValueId v) { return shape_elements(&val(g, v)->shape); }

static void small_first(Product *p)
{
    for (uint32_t i = 1; i < p->n; i++)
        for (uint32_t k = i; k > 0; k--) {
            Factor *x = &p->at[k - 1], *y = &p->at[k], t = *x;
            bool after = size_of(p->g, x->v) > size_of(p->g, y->v) ||
                         (size_of(p->g, x->v) == size_of(p->g, y->v) && x->power < 0 &&
                          y->power > 0);
            if (!after)
                break;
            *x = *y;
            *y = t;
        }
}

/* The constant stands behind the factors of the first one's size. */
static ValueId write_product(Graph *g, const Product *p)
{
    ValueId d = NONE;
    bool scaled = p->c == 1;
    for (uint32_t i = 0; i < p->n; i++) {
        ValueId v = p->at[i].v;
        if (!scaled && d != NONE && size_of(g, v) > size_of(g, p->at[0].v)) {
            d = vjp_scale(g, d, p->c);
            scaled = true;
        }
        for (int k = p->at[i].power; k > 0; k--)
            d = d == NONE ? v : g_mul(g, d, v);
        for (int k = p->at[i].power; k < 0; k++)
            d = g_div(g, d, v);
    }
    return scaled ? d : vjp_scale(g, d, p->c);
}

static Product product_of(const Graph *g, ValueId d, ValueId first, bool forward)
{
    Product p = {.g = g, .first = first, .forward = forward, .c = 1};
    read_product(&p, d, 1);
    return p;
}

/* The same for a product that is repeated. */
static ValueId tidy_below(Graph *g, ValueId d, ValueId in, ValueId first)
{
    ValueId below = vjp_tidy(g, in, first);
    if (below == in)
        return d;
    const Value x = *val(g, d);
    ValueId y = g_expand(g, below, &x.shape);
    g->value.at[y].batch = x.batch;
    return y;
}

ValueId vjp_tidy(Graph *g, ValueId d, ValueId first)
{
    const Value x = *val(g, d);
    const Node *n = vjp_maker(g, d);
    if (d < first || !n || (x.dtype != DT_F32 && x.dtype != DT_F64))
        return d;
    if (n->op == OP_Expand)
        return tidy_below(g, d, n->in[0], first);
    Product p = product_of(g, d, first, false);
    bool known = use_reciprocals(&p);
    if (p.full || p.n == 0 || (p.constants < 2 && !known))
        return d;
    small_first(&p);
    for (uint32_t i = 0; i < p.n; i++)
        if (p.at[i].power > MOST_POWER || p.at[0].power < 0)
            return d;
    ValueId y = write_product(g, &p);
    return shape_equal(&val(g, y)->shape, &x.shape) && val(g, y)->dtype == x.dtype ? y : d;
}

/* The same factors, in any order? */
static bool same_factors(const Product *p, const Product *q)
{
    bool same = p->n == q->n && !p->full && !q->full;
    for (uint32_t i = 0; same && i < p->n; i++) {
        bool found = false;
        for (uint32_t k = 0; k < q->n; k++)
            found |= p->at[i].v == q->at[k].v && p->at[i].power == q->at[k].power;
        same = found;
    }
    return same;
}

ValueId vjp_together(Graph *g, ValueId d, ValueId more, ValueId first)
{
    if (!shape_equal(&val(g, d)->shape, &val(g, more)->shape))
        return NONE;
    Product p = product_of(g, d, first, true), q = product_of(g, more, first, true);
    return same_factors(&p, &q) ? vjp_scale(g, d, 1 + q.c / p.c) : NONE;
}

/* Is v one number along the axes? */
static bool is_level(const Graph *g, ValueId v, const Attr *along)
{
    const Node *n = vjp_maker(g, v);
    const Shape *s = &val(g, n && n->op == OP_Expand ? n->in[0] : v)->shape;
    bool level = true;
    for (int i = 0; i < along->n; i++) {
        int64_t d = along->axes[i] - (val(g, v)->shape.rank - s->rank);
        level &= d < 0 || s->d[d] == 1;
    }
    return level;
}

bool vjp_is_level(const Graph *g, ValueId d, ValueId y, const Attr *along)
{
    Product p = product_of(g, d, 0, true);
    bool level = !p.full, once = false;
    for (uint32_t i = 0; i < p.n; i++) {
        bool is_y = p.at[i].v == y && p.at[i].power == 1;
        once |= is_y;
        level &= is_y || is_level(g, p.at[i].v, along);
    }
    return level && once;
}
