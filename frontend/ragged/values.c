/*
 * values.c - which values have a size that depends on the data, and how; masks and counts
 * that are made of others, each once.
 *
 * A number that was computed of such a size is a constant, that of the largest size, since shapes
 * are made of it.  Where the size itself is asked for, it is the sum that it is (extent.c), or the
 * same nodes are made once more of what it is in this run.
 */
#include "ragged.h"

#include <math.h>
#include <string.h>


typedef struct Counted {
    Core made;
    uint32_t out;
    ValueId actual; /* NONE: not asked for yet */
} Counted;

/* ---- masks ---- */

/* Where the places of the mask come first all is in order, but for zeros behind. */
ValueId ragged_pack(ImportState *s, Op op, ValueId x, ValueId mask, int dim)
{
    if (ragged_mask(s, mask)->packed == mask)
        return op == OP_Pack && dtype_is_float(low_dtype(s->g, x))
                   ? ragged_only_there(s, &(Ragged){.mask = mask, .dim = dim}, x, 0)
                   : x;
    return graph_node(s->g, op, 2, (ValueId[]){x, mask}, (Attr){.axis = dim});
}

void ragged_comes_first(ImportState *s, ValueId mask, const Extent *e, bool shuffled)
{
    RaggedMask *m = ragged_mask(s, mask);
    m->packed = mask;
    m->extent = e;
    m->shuffled = shuffled;
}

ValueId ragged_packed(ImportState *s, ValueId mask)
{
    RaggedMask *m = ragged_mask(s, mask);
    if (m->packed == NONE) {
        m->packed = ragged_pack(s, OP_Pack, mask, mask, 0);
        ragged_comes_first(s, m->packed, ragged_extent(s, mask), m->shuffled);
    }
    return m->packed;
}

ValueId ragged_in_order(ImportState *s, ValueId v)
{
    const Ragged *r = ragged_find(s, v);
    return r && r->dim != COUNT && !r->packed ? ragged_pack(s, OP_Pack, v, r->mask, r->dim) : v;
}

ValueId ragged_only_there(ImportState *s, const Ragged *r, ValueId x, double otherwise)
{
    const ValueId there = ragged_packed(s, r->mask);
    x = g_only_there(s->g, there, r->dim, x, otherwise);
    return r->also ? g_only_there(s->g, there, r->also - 1, x, otherwise) : x;
}

ValueId ragged_fitted(ImportState *s, const Import *im, int input, int dim, ValueId mask)
{
    Graph *g = s->g;
    ValueId x = im->in[input];
    int64_t n = low_shape(g, x).d[dim], more[MAX_RANK] = {0}, begin[MAX_RANK] = {0};
    more[dim] = low_shape(g, mask).d[0] - n;
    if (!dtype_is_float(low_dtype(g, x)) || more[dim] < 0 || ragged_mask(s, mask)->shuffled)
        ragged_refuse(im, input, " of such a value and one of known size");
    ValueId count = g_reshape(g, ragged_count(s, mask), &(Shape){0}),
            is = g_binary(g, OP_Equal, count, g_scalar(g, DT_I64, (double)n));
    x = g_where(g, is, x, g_like(g, x, (double)NAN));
    x = more[dim] > 0 ? g_pad(g, x, begin, more, PAD_CONSTANT, 0) : x;
    ragged_mark(s, x, (Ragged){.mask = mask, .dim = dim, .packed = true});
    return x;
}

ValueId ragged_count(ImportState *s, ValueId mask)
{
    RaggedMask *m = ragged_mask(s, mask);
    int64_t along = 0;
    if (m->count == NONE)
        m->count = g_reduce(s->g, OP_ReduceSum, g_cast(s->g, mask, DT_I64), 1, &along);
    return m->count;
}

ValueId ragged_first(ImportState *s, ValueId count, int64_t n)
{
    Graph *g = s->g;
    uint32_t *mask = ragged_made(s, "first %u %lld", count, (long long)n);
    if (*mask == NONE) {
        ValueId number = g_reshape(g, g_cast(g, count, DT_I64), &(Shape){1, {1}});
        *mask = g_binary(g, OP_Less, g_iota(g, DT_I64, 1, 0, n), number);
        ragged_comes_first(s, *mask, NULL, false);
    }
    return *mask;
}

/* ---- nodes and results ---- */

ValueId ragged_node(const Core *c)
{
    const Node *n = &c->n;
    if (!memcmp(c->in, n->in, n->nin * sizeof *n->in))
        return n->out[0];
    if (n->op == OP_Gather)
        return low_gather(c->im, c->in[0], c->in[1], &n->attr);
    return graph_node(c->s->g, n->op, n->nin, c->in, n->attr);
}

_Noreturn void ragged_refuse(const Import *im, int input, const char *why)
{
    diag_hint("the size of its operand depends on the data: it may be picked from, computed with "
              "element by element and scattered");
    low_fatal(im, input, "%s%s", im->op_type, why);
}

ValueId ragged_settled(ImportState *s, ValueId v, Ragged r)
{
    if (v == NONE)
        return NONE;
    const bool constant = val(s->g, v)->kind == V_CONST;
    if (!constant && !r.packed)
        v = ragged_pack(s, OP_Pack, v, r.mask, r.dim);
    else if (r.packed && r.dirty && dtype_is_float(low_dtype(s->g, v)))
        v = ragged_only_there(s, &r, v, 0);
    else if (ragged_find(s, v))
        return v;
    r.packed |= !constant;
    r.dirty = false;
    ragged_mark(s, v, r);
    return v;
}

ValueId ragged_passed(ImportState *s, ValueId v, ValueId y, bool kept)
{
    const Ragged *r = ragged_find(s, v);
    if (!r || y == v || ragged_find(s, y))
        return y;
    Ragged was = *r;
    was.dirty = !kept;
    if (was.dim != COUNT)
        return ragged_settled(s, y, was);
    ragged_mark(s, y, was);
    return y;
}

ValueId import_stopped(ImportState *s, ValueId v)
{
    if (!s->opt->training || v == NONE || !dtype_is_float(val(s->g, v)->dtype) ||
        (val(s->g, v)->kind != V_NODE && val(s->g, v)->kind != V_PARAM))
        return v;
    return ragged_passed(s, v, g_unary(s->g, OP_StopGradient, v), true);
}

ValueId ragged_of_trips(ImportState *s, ValueId x, const Ids *there, int dim)
{
    Graph *g = s->g;
    int64_t each = low_shape(g, x).d[dim] / there->n;
    ValueId *flag = arena_array(g->arena, ValueId, there->n);
    for (uint32_t i = 0; i < there->n; i++) {
        ValueId is = there->at[i] == NONE ? g_scalar(g, DT_BOOL, 1) : there->at[i];
        flag[i] = g_expand(g, g_reshape(g, is, &(Shape){1, {1}}), &(Shape){1, {each}});
    }
    ValueId mask = there->n == 1 ? flag[0] : g_concat(g, there->n, flag, 0);
    ValueId packed = ragged_pack(s, OP_Pack, x, mask, dim);
    ragged_mark(s, packed, (Ragged){.mask = mask, .dim = dim, .packed = true});
    return packed;
}

void ragged_set_picked(Import *im, uint32_t out, ValueId x, ValueId there, int dim, bool packed)
{
    int64_t *is, n, count = 0;
    if (out >= im->nout) /* the node does not name it */
        return;
    if (!g_const_ints(im->g, there, im->arena, &is, &n)) {
        const Ragged r = {.mask = there, .dim = dim, .packed = packed};
        im->out[out] = ragged_settled(im->state, x, r);
        return;
    }
    int64_t *at = arena_array(im->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++)
        if (is[i])
            at[count] = packed ? count : i, count++;
    im->out[out] = low_take(im->g, x, dim, count, at);
}

/* ---- counts ---- */

void ragged_mark_count(ImportState *s, ValueId v, const Core *c, uint32_t out,
                       const Extent **number, bool grows)
{
    Counted *made = arena_new_of(s->g->arena, Counted);
    Shape shape = low_shape(s->g, v);
    bool known = true;
    for (int64_t i = 0; i < shape_elements(&shape); i++) {
        INSIST(c || number[i]);
        known = known && ragged_is_known(number[i]);
    }
    for (uint32_t i = 0; c && i < c->n.nin; i++)
        known = known || c->in[i] == v;
    if (known)                                          /* nothing to compute */
        return;
    *made = (Counted){.out = out, .actual = NONE};
    if (c)
        made->made = *c;
    ragged_mark(s, v, (Ragged){.dim = COUNT, .grows = grows, .number = number, .made = made});
}

ValueId ragged_computed(ImportState *s, ValueId v, const Extent **number, int n)
{
    Arena *a = s->g->arena;
    Counted *c = arena_new_of(a, Counted);
    const Extent **own = arena_array(a, const Extent *, n + 1);
    double *most = arena_array(a, double, n + 1);
    for (int i = 0; i < n; i++) {
        own[i] = number[i];
        if (!own[i])
            return NONE;
        most[i] = (double)ragged_most(s, own[i]);
    }
    ValueId y = low_const_doubles(s->g, low_dtype(s->g, v), low_shape(s->g, v), most);
    *c = (Counted){.actual = v};
    ragged_mark(s, y, (Ragged){.dim = COUNT, .grows = true, .number = own, .made = c});
    return y;
}

/* A sum as it is in this run, [1] */
static ValueId actual_extent(ImportState *s, const Extent *e)
{
    Graph *g = s->g;
    ValueId sum = g_ints(g, 1, (int64_t[]){1}, &e->known);
    for (uint32_t i = 0; i < e->n; i++) {
        ValueId count = ragged_count(s, e->mask[i]),
                times = g_ints(g, 1, (int64_t[]){1}, &e->times[i]),
                part = e->times[i] == 1 ? count : g_mul(g, count, times);
        sum = i == 0 && e->known == 0 ? part : g_add(g, sum, part);
    }
    return sum;
}

/* Of sums alone; NONE: something else is among the numbers. */
static ValueId actual_numbers(ImportState *s, ValueId v, const Extent *const *number)
{
    Graph *g = s->g;
    const Shape shape = low_shape(g, v);
    const int64_t n = shape_elements(&shape);
    ValueId *x = arena_array(g->arena, ValueId, n + 1);
    for (int64_t i = 0; i < n; i++) {
        if (!number[i])
            return NONE;
        x[i] = actual_extent(s, number[i]);
    }
    return g_cast(g, g_reshape(g, g_concat(g, (uint32_t)n, x, 0), &shape), low_dtype(g, v));
}

ValueId ragged_actual(ImportState *s, ValueId v)
{
    const Ragged *r = ragged_find(s, v);
    if (!r || r->dim != COUNT)
        return v;
    Counted *c = r->made;
    if (c->actual == NONE)
        c->actual = actual_numbers(s, v, r->number);
    if (c->actual != NONE)
        return c->actual;
    const Core *own = &c->made;
    ValueId *in = arena_array(s->g->arena, ValueId, own->n.nin + 1);
    for (uint32_t i = 0; i < own->n.nin; i++)
        in[i] = ragged_actual(s, own->in[i]);
    ValueId y = graph_node(s->g, own->n.op, own->n.nin, in, own->n.attr);
    return c->actual = graph_out(s->g, y, c->out);
}

ValueId ragged_actual_at(ImportState *s, ValueId v, int64_t i)
{
    ValueId x = ragged_actual(s, v);
    Shape all = low_shape(s->g, x);
    return g_slice_axis(s->g, g_reshape(s->g, x, &(Shape){1, {shape_elements(&all)}}), 0, i, 1);
}
