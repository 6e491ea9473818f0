/*
 * attention.c - attentions.  In: a Softmax.  Out: the nodes between the two products around it, and
 * what they say.
 *
 * A mask that leaves a lower triangle or a band along the diagonal (a sliding window), whether it
 * picks by Where or adds numbers so low that their exponential is 0, becomes `causal`; if it hides
 * nothing else, its bytes are read no more.
 */
#include "attention.h"

#include <math.h>

enum { MOST_WIDTH = 256 };

/* ---- reading the graph ----------------------------------------------------------------------- */

static bool same_shape(const AttentionSearch *x, ValueId v, ValueId w)
{
    return shape_equal(&val(x->g, v)->shape, &val(x->g, w)->shape);
}

/* One number, whatever its shape. */
static bool number(const AttentionSearch *x, ValueId v, double *d)
{
    return g_const_double(x->g, graph_behind_views(x->g, v), d);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static bool has_matrix(const Graph *g, ValueId v, int64_t rows, int64_t keys)
{
    const Shape *s = &val(g, v)->shape;
    return s->rank >= 2 && s->d[s->rank - 2] == rows && s->d[s->rank - 1] == keys &&
           shape_elements(s) > 0;
}

/* A band becomes a diagonal and, where it leaves out keys before it, a window. */
static bool set_band(AttentionAttr *attr, Band band, int64_t rows, int64_t keys)
{
    bool window = band.below > 1 - rows;
    if (band.above < 0 || (window && rows - 1 + band.below > keys - 1))
        return false;
    attr->causal = true;
    attr->diagonal = band.above;
    attr->window = window ? band.above - band.below + 1 : 0;
    return true;
}

/* A mask that leaves a band and hides nothing in it need not be read. */
static bool drop_band(AttentionSearch *x, Attention *t, bool adds, int64_t rows, int64_t keys)
{
    MaskAsk ask = adds ? MASK_ZERO : t->attr.forbids ? MASK_FALSE : MASK_TRUE;
    Mask k = mask_of(&x->masks, adds ? t->bias : t->mask, ask);
    if (!k.full || (!adds && t->attr.fill > MASK_LOW) || !set_band(&t->attr, k.band, rows, keys))
        return false;
    *(adds ? &t->bias : &t->mask) = NONE;
    return true;
}

/* One that hides more is read within the band: beyond it e to the scores is 0 where a row that is
   hidden whole has no number at all (-inf), or there is none such. */
static bool keep_band(AttentionSearch *x, Attention *t, bool adds, int64_t rows, int64_t keys)
{
    MaskAsk ask = adds ? MASK_HIGH : t->attr.forbids ? MASK_FALSE : MASK_TRUE;
    Mask k = mask_of(&x->masks, adds ? t->bias : t->mask, ask);
    bool minus_inf = adds ? k.minus_inf : t->attr.fill == -(double)INFINITY,
         low = adds || t->attr.fill <= BAND_LOWEST,
         moderate = adds || t->bias == NONE || mask_is_moderate(x->g, t->bias);
    return k.yes && (minus_inf || (low && k.constant && moderate)) &&
           set_band(&t->attr, k.band, rows, keys);
}

static void find_band(AttentionSearch *x, Attention *t, const Shape *p)
{
    bool adds = t->mask == NONE;
    int64_t rows = p->d[p->rank - 2], keys = p->d[p->rank - 1];
    ValueId v = adds ? t->bias : t->mask;
    if (v != NONE && has_matrix(x->g, v, rows, keys) &&
        (drop_band(x, t, adds, rows, keys) || keep_band(x, t, adds, rows, keys)) && adds)
        t->attr.fill = -(double)INFINITY;
}

/* Of a Mul or Div by a number the operand that it scales; what else is scaled, *scale, is too. */
static uint32_t scaled_operand(const AttentionSearch *x, const Node *n, double *scale)
{
    double c;
    bool mul = n->op == OP_Mul;
    if (mul && number(x, n->in[0], &c)) {
        *scale *= c;
        return 1;
    }
    if ((!mul && n->op != OP_Div) || !number(x, n->in[1], &c))
        return NONE;
    *scale = mul ? *scale * c : *scale / c;
    return 0;
}

/* ---- from the softmax to the products -------------------------------------------------------- */

static bool is_real_cast(const AttentionSearch *x, const Node *n)
{
    return n->op == OP_Cast && dtype_is_float(val(x->g, n->in[0])->dtype) &&
           dtype_is_float(val(x->g, n->out[0])->dtype);
}

/* The only one that reads v; NONE: there are others, or none. */
static NodeId only_reader(const AttentionSearch *x, ValueId v)
{
    return x->leaves[v] || x->readers[v].n != 1 ? NONE : x->readers[v].at[0];
}

/* From the softmax's operand up to the product; scale, bias and mask as they come. */
static bool walk_up(const AttentionSearch *x, Attention *t, ValueId v)
{
    double c;
    for (t->ups = 0; t->ups < MOST_LINKS; t->ups++) {
        NodeId id = val(x->g, v)->node;
        if (val(x->g, v)->kind != V_NODE || !x->live[id] || only_reader(x, v) == NONE)
            return false;
        const Node *n = &x->g->node.at[id];
        if (n->op == OP_MatMul) {
            t->scores = id;
            return true;
        }
        uint32_t next = scaled_operand(x, n, &(double){1});
        if (n->op == OP_Where)
            next = number(x, n->in[1], &c) ? 2 : 1;
        else if (n->op == OP_Add)
            next = val(x->g, n->in[0])->kind != V_NODE || !same_shape(x, n->in[0], v);
        else if (next == NONE && is_real_cast(x, n))
            next = 0;
        if (next == NONE)
            return false;
        if (!same_shape(x, n->in[next], v))
            return false;
        t->up[t->ups] = (Link){id, next};
        v = n->in[next];
    }
    return false;
}

/* The links as one expression: scale first, then one bias, then one mask. */
static bool read_links(const AttentionSearch *x, Attention *t)
{
    t->attr.scale = 1;
    t->bias = t->mask = NONE;
    for (int i = t->ups - 1; i >= 0; i--) {
        const Node *n = &x->g->node.at[t->up[i].node];
        uint32_t at = t->up[i].operand;
        if (n->op == OP_Mul || n->op == OP_Div) {
            if (t->bias != NONE || t->mask != NONE)
                return false;
            scaled_operand(x, n, &t->attr.scale);
        } else if (n->op == OP_Add) {
            if (t->bias != NONE || t->mask != NONE || x->active[n->in[1 - at]])
                return false;
            t->bias = n->in[1 - at];
        } else if (n->op == OP_Where) {
            if (t->mask != NONE || !number(x, n->in[3 - at], &t->attr.fill))
                return false;
            t->mask = n->in[0];
            t->attr.forbids = at == 2;
        }
    }
    return isfinite(t->attr.scale);
}

/* Of v, read by Dropout and by the Phase behind it: the Dropout; NONE: it is read otherwise. */
static NodeId dropout_of(const AttentionSearch *x, ValueId v)
{
    for (uint32_t i = 0; i < 2 && x->readers[v].n == 2 && !x->leaves[v]; i++) {
        NodeId id = x->readers[v].at[i], other = x->readers[v].at[1 - i];
        const Node *d = &x->g->node.at[id], *phase = &x->g->node.at[other];
        if (d->op == OP_Dropout && phase->op == OP_Phase && phase->in[0] == d->out[0] &&
            phase->in[1] == v && only_reader(x, d->out[0]) == other)
            return id;
    }
    return NONE;
}

/* Of v, read by Where(IsNaN(v), 0, v): the Where, by which PyTorch's exporter says that a row of
   which all keys are hidden yields 0; NONE: it is read otherwise. */
static NodeId guard_of(const AttentionSearch *x, ValueId v)
{
    for (uint32_t i = 0; i < 2 && x->readers[v].n == 2 && !x->leaves[v]; i++) {
        NodeId id = x->readers[v].at[i], other = x->readers[v].at[1 - i];
        const Node *where = &x->g->node.at[id], *is = &x->g->node.at[other];
        double zero;
        if (where->op == OP_Where && is->op == OP_IsNaN && where->in[0] == is->out[0] &&
            where->in[2] == v && number(x, where->in[1], &zero) && zero == 0 &&
            only_reader(x, is->out[0]) == id)
            return id;
    }
    return NONE;
}

/* From the probabilities down to the product by v. */
static bool walk_down(const AttentionSearch *x, Attention *t, ValueId v)
{
    for (t->downs = 0; t->downs < MOST_LINKS; t->downs++) {
        NodeId next = only_reader(x, v), guard = guard_of(x, v);
        t->guarded = t->guarded || guard != NONE;
        next = next != NONE ? next : guard != NONE ? guard : dropout_of(x, v);
        if (next == NONE)
            return false;
        const Node *n = &x->g->node.at[next];
        if (n->op == OP_MatMul) {
            t->result = next;
            return n->in[0] == v && n->in[1] != v;
        }
        if (n->op == OP_Dropout) {
            if (t->attr.ratio > 0 || n->attr.ratio >= 1 || n->attr.piece ||
                x->readers[n->out[1]].n > 0 || x->leaves[n->out[1]])
                return false;
            t->attr.ratio = n->attr.ratio;
            t->attr.key = n->attr.key;
        } else if (next != guard && n->op != OP_Phase && !is_real_cast(x, n)) {
            return false;
        }
        v = n->out[0];
    }
    return false;
}

/* ---- factors of q and k ---------------------------------------------------------------------- */

/* Numbers by which q or k (operand 0 or 1 of scores) is multiplied, before nodes that only lay it
   out anew, become factors of the scale: PyTorch's exporter multiplies both by the scale's root.
   Nobody else reads what is so multiplied. */
static void take_factors(const AttentionSearch *x, Attention *t, uint32_t operand)
{
    Link reader = {t->scores, operand};
    ValueId v = x->g->node.at[t->scores].in[operand];
    while (t->factors < MOST_LINKS && val(x->g, v)->kind == V_NODE &&
           x->live[val(x->g, v)->node] && only_reader(x, v) != NONE) {
        NodeId id = val(x->g, v)->node;
        const Node *n = &x->g->node.at[id];
        double scale = t->attr.scale;
        uint32_t next = scaled_operand(x, n, &scale);
        if (next != NONE && isfinite(scale) && same_shape(x, n->in[next], v)) {
            t->attr.scale = scale;
            t->factor[t->factors++] = (Factor){{id, next}, reader};
        } else if (n->op == OP_Transpose || n->op == OP_Reshape || n->op == OP_Expand ||
                   is_real_cast(x, n)) {
            reader = (Link){id, next = 0};
        } else {
            return;
        }
        v = n->in[next];
    }
}

/* What is read in the place of v when its factors are the scale's. */
static ValueId without_factor(const AttentionSearch *x, const Attention *t, ValueId v)
{
    for (int i = 0; i < t->factors; i++) {
        const Node *n = &x->g->node.at[t->factor[i].by.node];
        v = n->out[0] == v ? n->in[t->factor[i].by.operand] : v;
    }
    return v;
}

/* ---- heads that share keys ------------------------------------------------------------------- */

/* From an operand up to the Reshape; from: by dimension of the operand, which of the Reshape's. */
static bool walk_to_merge(const AttentionSearch *x, const Attention *t, ValueId v, Repeated *r,
                          int *from)
{
    for (int i = 0; i < MAX_RANK; i++)
        from[i] = i;
    for (r->steps = 0;; r->steps++) {
        v = without_factor(x, t, v);
        NodeId id = val(x->g, v)->node;
        if (val(x->g, v)->kind != V_NODE || !x->live[id] || only_reader(x, v) == NONE)
            return false;
        const Node *n = &x->g->node.at[id];
        r->merge = id;
        if (n->op == OP_Reshape)
            return true;
        if (r->steps == MOST_PATH || (n->op != OP_Transpose && !is_real_cast(x, n)))
            return false;
        for (int i = 0; i < val(x->g, v)->shape.rank && n->op == OP_Transpose; i++)
            from[i] = (int)n->attr.perm[from[i]];
        r->path[r->steps] = id;
        v = n->in[0];
    }
}

/* v is made of Reshape(Expand(y)), where each of y's matrices is there for several in a row along
   one of v's dimensions, and nobody else reads it. */
static bool is_repeated(const AttentionSearch *x, const Attention *t, ValueId v, Repeated *r)
{
    int of[MAX_RANK], d = 0;
    *r = (Repeated){.dim = MAX_RANK};
    if (!walk_to_merge(x, t, v, r, of))
        return false;
    const Node *merge = &x->g->node.at[r->merge];
    const ValueId repeated = without_factor(x, t, merge->in[0]);
    const Node *expand = graph_made_by(x->g, repeated, OP_Expand);
    if (!expand || !x->live[val(x->g, repeated)->node])
        return false;
    Shape from = val(x->g, expand->in[0])->shape, to = val(x->g, expand->out[0])->shape;
    while (d < to.rank && d < from.rank && from.d[d] == to.d[d])
        d++;
    if (d == 0 || d >= from.rank || from.d[d] != 1)
        return false;
    r->at = d - 1;
    r->many = from.d[d] = to.d[d];
    to.d[d - 1] *= to.d[d];
    to = shape_without(&to, d);
    for (int i = 0; i < to.rank; i++)
        r->dim = of[i] == r->at ? i : r->dim;
    return r->dim < to.rank - 2 && shape_equal(&from, &val(x->g, expand->out[0])->shape) &&
           shape_equal(&to, &val(x->g, merge->out[0])->shape);
}

/* Keys and values that the model repeats for heads that share them; not along the samples, whose
   gradients are added up elsewhere. */
static void share_heads(const AttentionSearch *x, Attention *t, int batch)
{
    t->shared = is_repeated(x, t, t->k, &t->heads[0]) && is_repeated(x, t, t->v, &t->heads[1]) &&
                t->heads[0].dim == t->heads[1].dim && t->heads[0].many == t->heads[1].many &&
                t->heads[0].dim != batch;
    for (int i = 0; i < 2 && t->shared; i++) {
        ValueId repeated = without_factor(x, t, x->g->node.at[t->heads[i].merge].in[0]);
        NodeId expand = val(x->g, repeated)->node;
        t->first = expand < t->first ? expand : t->first;
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Types and widths that kernels have; samples side by side; one matrix of scores for each of the
   result. */
static bool fits(const AttentionSearch *x, const Attention *t, const Value *p, const Value *y)
{
    const Value *q = val(x->g, t->q), *k = val(x->g, t->k), *v = val(x->g, t->v);
    Shape of_scores = y->shape;
    of_scores.d[of_scores.rank - 1] = p->shape.d[p->shape.rank - 1];
    if (q->dtype != k->dtype || q->dtype != v->dtype || q->dtype != y->dtype ||
        q->dtype == DT_F64 || p->batch >= p->shape.rank - 2 || p->batch == BATCH_MIXED ||
        !shape_equal(&of_scores, &p->shape))
        return false;
    if (q->shape.d[q->shape.rank - 1] > MOST_WIDTH || v->shape.d[v->shape.rank - 1] > MOST_WIDTH)
        return false;
    /* as one operation it is one use of a parameter, not one for each product */
    if (x->of_params[t->q] + x->of_params[t->k] + x->of_params[t->v] > 1)
        return false;
    return t->bias == NONE || val(x->g, t->bias)->dtype == DT_F32 ||
           val(x->g, t->bias)->dtype == q->dtype;
}

bool attention_find(AttentionSearch *x, NodeId softmax, Attention *t)
{
    const Node *n = &x->g->node.at[softmax];
    const Value *p = val(x->g, n->out[0]);
    *t = (Attention){.softmax = softmax};
    if (p->shape.rank < 2 || n->attr.axis != p->shape.rank - 1 || p->dtype != DT_F32 ||
        !walk_up(x, t, n->in[0]) || !read_links(x, t) || !walk_down(x, t, n->out[0]))
        return false;
    const Node *qk = &x->g->node.at[t->scores], *pv = &x->g->node.at[t->result];
    t->first = t->scores;
    for (uint32_t i = 0; i < 2; i++)
        take_factors(x, t, i);
    t->q = without_factor(x, t, qk->in[0]);
    t->k = without_factor(x, t, qk->in[1]);
    t->v = pv->in[1];
    if (!fits(x, t, p, val(x->g, pv->out[0])))
        return false;
    share_heads(x, t, p->batch);
    find_band(x, t, &p->shape);
    if (t->guarded && (t->bias != NONE || t->mask != NONE)) /* it may hide all of a row */
        return false;
    t->attr.bias = t->bias != NONE;
    t->attr.mask = t->mask != NONE;
    return true;
}
