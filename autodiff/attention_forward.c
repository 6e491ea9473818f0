/*
 * attention_forward.c - an attention's forward.  In: a Softmax.  Out: the nodes between the two
 * products around it, and what they say:
 *
 *     MatMul q k   Mul, Div by a number   Add of a bias   Where of a mask   Softmax   Dropout
 *     (with Phase)   MatMul by v
 *
 * casts between floats where the product's type is another than softmax's.
 *
 * A mask that is a constant lower triangle or a band along the diagonal (a sliding window), whether
 * it picks by Where or adds numbers so low that their exponential is 0, becomes `causal`, and its
 * bytes are read no more.
 */
#include <math.h>

#include "attention.h"

enum { MOST_WIDTH = 256 };

/* ---- masks ----------------------------------------------------------------------------------- */

static bool has_matrix(const Graph *g, ValueId v, int64_t rows, int64_t keys)
{
    const Shape *s = &val(g, v)->shape;
    return s->rank >= 2 && s->d[s->rank - 2] == rows && s->d[s->rank - 1] == keys &&
           shape_elements(s) > 0;
}

/* A mask that leaves in each row the keys from i + below to i + above, and nothing else, becomes a
   diagonal and, where it leaves out some before, a window. */
static bool is_band(const Search *x, ValueId v, const Shape *p, MaskAsk ask, AttentionAttr *attr)
{
    int64_t rows = p->d[p->rank - 2], keys = p->d[p->rank - 1];
    if (!has_matrix(x->g, v, rows, keys))
        return false;
    Mask k = mask_of(x->masks, v, ask);
    bool window = k.band.below > 1 - rows;
    if (!k.full || k.band.above < 0 || (window && rows - 1 + k.band.below > keys - 1))
        return false;
    attr->diagonal = k.band.above;
    attr->window = window ? k.band.above - k.band.below + 1 : 0;
    return true;
}

/* A mask that need not be read. */
static void find_band(const Search *x, Found *f, const Shape *p)
{
    bool adds = f->mask == NONE;
    ValueId v = adds ? f->bias : f->mask;
    MaskAsk ask = adds ? MASK_ZERO : f->attr.forbids ? MASK_FALSE : MASK_TRUE;
    if (v == NONE || (!adds && f->attr.fill > MASK_LOW) || !is_band(x, v, p, ask, &f->attr))
        return;
    f->attr.causal = true;
    if (adds) {
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
    find_band(x, f, p);
    f->attr.bias = f->bias != NONE;
    f->attr.mask = f->mask != NONE;
    return true;
}
