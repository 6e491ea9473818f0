/*
 * attention_forward.c - an attention's forward.  In: a Softmax.  Out: the nodes between the two
 * products around it, and what they say:
 *
 *     MatMul q k   Mul, Div by a number   Add of a bias   Where of a mask   Softmax   Dropout
 *     (with Phase)   MatMul by v
 *
 * casts between floats where the product's type is another than softmax's.
 *
 * A mask that is a constant lower triangle, whether it picks by Where or adds numbers so low that
 * their exponential is 0, becomes `causal`, and its bytes are read no more.
 */
#include <math.h>

#include "attention.h"

enum { MOST_WIDTH = 256 };
static const double LOW = -1e30; /* e^(LOW - x) is 0 for every score */

/* Does it depend on constants alone?  Then what it is. */
static bool constant(const Search *x, ValueId v, Tensor *t)
{
    enum { MOST = 1 << 26 }; /* elements: a triangle of 8,192 */
    const Graph *g = x->g;
    const Value *y = val(g, v);
    if (shape_elements(&y->shape) > MOST)
        return false;
    if (y->kind == V_CONST) {
        *t = (Tensor){y->dtype, y->shape, (void *)(uintptr_t)y->data};
        return y->data != NULL;
    }
    if (y->kind != V_NODE)
        return false;
    const bool *live = graph_live(g, x->a, 0, &(Ids){&v, 1, 1}, 1);
    Ids list = {0};
    for (NodeId n = 0; n < g->node.n && n <= y->node; n++) {
        const Node *node = &g->node.at[n];
        if (!live[n])
            continue;
        if (!op_is_pure(node->op) || node->op == OP_Phase || node->op == OP_Count)
            return false;
        for (uint32_t i = 0; i < node->nin; i++)
            if (val(g, node->in[i])->kind != V_CONST && val(g, node->in[i])->kind != V_NODE)
                return false;
        vec_push(x->a, &list, n);
    }
    Tensor *at = arena_array(x->a, Tensor, g->value.n + 1);
    eval_nodes(g, x->a, list.at, list.n, at);
    *t = at[v];
    return true;
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* What a mask or a bias says of place (r, c) of matrix z: 1 allowed, 0 not, -1 neither. */
typedef struct {
    Tensor t;
    bool adds, forbids;
} Mask;

static int says(const Mask *m, int64_t i)
{
    double v = element_double(m->t.dtype, m->t.data, i);
    if (!m->adds)
        return (v != 0) != m->forbids;
    return v == 0 ? 1 : v <= LOW ? 0 : -1;
}

/* Is it c <= r + diagonal everywhere, and in the first row more than nothing? */
static bool triangle(const Mask *m, int64_t rows, int64_t keys, int64_t *diagonal)
{
    const Shape *s = &m->t.shape;
    int64_t n = shape_elements(s), each = rows * keys, d = -1;
    if (s->rank < 2 || s->d[s->rank - 2] != rows || s->d[s->rank - 1] != keys || each == 0)
        return false;
    while (d + 1 < keys && says(m, d + 1) == 1)
        d++;
    for (int64_t i = 0; i < n; i++)
        if (says(m, i) != (i % keys <= i % each / keys + d))
            return false;
    *diagonal = d;
    return d >= 0;
}

/* A mask that need not be read. */
static void find_triangle(const Search *x, Found *f, const Shape *p)
{
    Mask m = {.forbids = f->attr.forbids, .adds = f->mask == NONE};
    ValueId v = f->mask != NONE ? f->mask : f->bias;
    bool low = f->mask == NONE || f->attr.fill <= LOW;
    if (v == NONE || (f->mask != NONE && !low) || !constant(x, v, &m.t) ||
        !triangle(&m, p->d[p->rank - 2], p->d[p->rank - 1], &f->attr.diagonal))
        return;
    f->attr.causal = true;
    if (m.adds) {
        f->bias = NONE;
        f->attr.fill = -(double)INFINITY;
    } else {
        f->mask = NONE;
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

static bool is_real_cast(const Search *x, const Node *n)
{
    return n->op == OP_Cast && dtype_is_float(val(x->g, n->in[0])->dtype) &&
           dtype_is_float(val(x->g, n->out[0])->dtype);
}

/* Between: nobody but the next node of forward reads it, and it stays in the stage. */
static bool is_between(const Search *x, ValueId v) { return !x->leaves[v]; }

/* From the softmax's operand up to the product; scale, bias and mask as they come. */
static bool walk_up(const Search *x, Found *f, ValueId v)
{
    const Node *n;
    double c;
    for (f->ups = 0; f->ups < MOST_LINKS; f->ups++) {
        n = maker(x, v);
        if (!n || !is_between(x, v) || count_readers(x, v, IN_FORWARD) != 1)
            return false;
        if (n->op == OP_MatMul) {
            f->scores = maker_id(x, v);
            return true;
        }
        uint32_t next = 0;
        if (n->op == OP_Mul && number(x, n->in[0], &c))
            next = 1;
        else if (n->op == OP_Where)
            next = number(x, n->in[1], &c) ? 2 : 1;
        else if (n->op == OP_Add && !(maker(x, n->in[0]) && same_shape(x, n->in[0], v)))
            next = 1;
        else if ((n->op == OP_Mul || n->op == OP_Div) ? !number(x, n->in[1], &c)
                                                      : n->op != OP_Add && !is_real_cast(x, n))
            return false;
        if (!same_shape(x, n->in[next], v))
            return false;
        f->up[f->ups] = (Link){maker_id(x, v), next};
        v = n->in[next];
    }
    return false;
}

/* The links as one expression: scale first, then one bias, then one mask. */
static bool read_links(const Search *x, Found *f)
{
    f->attr.scale = 1;
    f->bias = f->mask = NONE;
    for (int i = f->ups - 1; i >= 0; i--) {
        const Node *n = &x->g->node.at[f->up[i].node];
        uint32_t at = f->up[i].operand;
        double c = 0;
        if (n->op == OP_Mul || n->op == OP_Div) {
            if (f->bias != NONE || f->mask != NONE || !number(x, n->in[1 - at], &c))
                return false;
            f->attr.scale = n->op == OP_Mul ? f->attr.scale * c : f->attr.scale / c;
        } else if (n->op == OP_Add) {
            if (f->bias != NONE || f->mask != NONE)
                return false;
            f->bias = n->in[1 - at];
        } else if (n->op == OP_Where) {
            if (f->mask != NONE || !number(x, n->in[3 - at], &f->attr.fill))
                return false;
            f->mask = n->in[0];
            f->attr.forbids = at == 2;
        }
    }
    return isfinite(f->attr.scale);
}

/* From the probabilities down to the product by v. */
static bool walk_down(const Search *x, Found *f, ValueId v)
{
    for (f->downs = 0; f->downs < MOST_LINKS; f->downs++) {
        NodeId next = reader_at(x, v, IN_FORWARD, 0);
        uint32_t many = count_readers(x, v, IN_FORWARD);
        if (!is_between(x, v) || many < 1 || many > 2)
            return false;
        if (many == 2) { /* Phase(Dropout(v), v) */
            NodeId other = reader_at(x, v, IN_FORWARD, 1);
            if (x->g->node.at[next].op == OP_Phase) {
                NodeId t = next;
                next = other;
                other = t;
            }
            const Node *d = &x->g->node.at[next], *phase = &x->g->node.at[other];
            if (d->op != OP_Dropout || phase->op != OP_Phase || phase->in[0] != d->out[0] ||
                phase->in[1] != v || reader(x, d->out[0], IN_FORWARD, OP_Phase) != other)
                return false;
        }
        const Node *n = &x->g->node.at[next];
        if (n->op == OP_MatMul) {
            f->result = next;
            return n->in[0] == v;
        }
        if (n->op == OP_Dropout) {
            if (f->attr.ratio > 0 || n->attr.ratio >= 1 || !is_between(x, n->out[0]) ||
                count_readers(x, n->out[1], IN_FORWARD) > 0 || x->leaves[n->out[1]])
                return false;
            f->attr.ratio = n->attr.ratio;
            f->attr.key = n->attr.key;
        } else if (n->op != OP_Phase && !is_real_cast(x, n)) {
            return false;
        }
        f->down[f->downs] = (Link){next, 0};
        v = n->out[0];
    }
    return false;
}

bool attention_forward(const Search *x, NodeId softmax, Found *f)
{
    const Graph *g = x->g;
    const Node *n = &g->node.at[softmax];
    const Shape *p = &val(g, n->out[0])->shape;
    *f = (Found){.softmax = softmax};
    f->attr.like = n->out[0];
    if (p->rank < 2 || n->attr.axis != p->rank - 1 || val(g, n->out[0])->dtype != DT_F32 ||
        !walk_up(x, f, n->in[0]) || !read_links(x, f) || !walk_down(x, f, n->out[0]))
        return false;
    const Node *qk = &g->node.at[f->scores], *pv = &g->node.at[f->result];
    const Value *q = val(g, qk->in[0]), *k = val(g, qk->in[1]), *v = val(g, pv->in[1]);
    int batch = val(g, n->out[0])->batch;
    if (q->dtype != k->dtype || q->dtype != v->dtype || q->dtype != val(g, pv->out[0])->dtype ||
        q->dtype == DT_F64 || batch >= p->rank - 2 || batch == BATCH_MIXED)
        return false;
    if (q->shape.d[q->shape.rank - 1] > MOST_WIDTH || v->shape.d[v->shape.rank - 1] > MOST_WIDTH)
        return false;
    if (f->bias != NONE && val(g, f->bias)->dtype != DT_F32 && val(g, f->bias)->dtype != q->dtype)
        return false;
    find_triangle(x, f, p);
    f->attr.bias = f->bias != NONE;
    f->attr.mask = f->mask != NONE;
    return true;
}
