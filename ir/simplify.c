/*
 * simplify.c - what graph_node() does not build: identities, reshapes of reshapes, slices of what
 * was only just joined, and copies that broadcasting makes superfluous.  No algebra on numbers:
 * x * 1 stays, so bits and NaNs are the model's.
 *
 * A constant whose slices along an axis are all equal (a mask baked with the batch's size)
 * is used with that axis collapsed to 1 by elementwise ops: what then depends on the number of rows
 * is only what must.
 */
#include <string.h>

#include "node.h"

static const Shape *dims(const Graph *g, ValueId v) { return &val(g, v)->shape; }

/* ---- elementwise operands ---- */

/* Dimension i of a result of this rank, as operand s sees it (1 where s has no such dimension). */
static int64_t aligned(const Shape *s, int rank, int i)
{
    int k = i - (rank - s->rank);
    return k < 0 ? 1 : s->d[k];
}

/* Whether the result keeps its shape when operand `which` has shape s instead. */
static bool keeps_result(const Graph *g, const Draft *d, uint32_t which, const Shape *s)
{
    const Shape *r = &d->shape[0];
    int rank = 0;
    for (uint32_t i = 0; i < d->nin; i++) {
        int k = i == which ? s->rank : dims(g, d->in[i])->rank;
        rank = k > rank ? k : rank;
    }
    if (rank != r->rank)
        return false;
    for (int axis = 0; axis < rank; axis++) {
        bool covered = r->d[axis] == 1;
        for (uint32_t i = 0; i < d->nin && !covered; i++)
            covered = aligned(i == which ? s : dims(g, d->in[i]), rank, axis) == r->d[axis];
        if (!covered)
            return false;
    }
    return true;
}

/* The constant with the axes of the mask reduced to their first index. Made once, found again by
 * name. */
static ValueId collapse(Graph *g, ValueId v, unsigned axes, const Shape *s)
{
    const Value x = *val(g, v);
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++)
        step[i] = 1;
    Tensor from = {x.dtype, x.shape, NULL}, to = {.dtype = x.dtype, .shape = *s};
    memcpy(&from.data, &x.data, sizeof from.data);
    Attr slice = {.n = s->rank, .start = start, .size = s->d, .step = step};
    const char *name = arena_printf(g->arena, "%s%%%x", x.name, axes);
    ValueId known = strmap_get(&g->by_name, name);
    eval_node(g->arena, OP_Slice, 1, &from, &slice, 1, &to);
    if (known != NONE) {
        const Value *k = val(g, known);
        bool same = k->kind == V_CONST && k->dtype == x.dtype && shape_equal(&k->shape, s) &&
                    !memcmp(k->data, to.data, (size_t)shape_elements(s) * dtype_size(x.dtype));
        if (same)
            return known;
        name = NULL;
    }
    return graph_const(g, name, to);
}

static void collapse_operand(Graph *g, Draft *d, uint32_t i)
{
    Shape s = *dims(g, d->in[i]);
    unsigned axes = 0;
    if (shape_elements(&s) <= 1 || dtype_size(val(g, d->in[i])->dtype) == 0)
        return;
    for (int axis = 0; axis < s.rank; axis++) {
        Shape smaller = s;
        smaller.d[axis] = 1;
        if (s.d[axis] <= 1 || !keeps_result(g, d, i, &smaller) ||
            !const_slices_equal(val(g, d->in[i]), axis))
            continue;
        s = smaller;
        axes |= 1u << axis;
    }
    if (axes)
        d->in[i] = collapse(g, d->in[i], axes, &s);
}

static void simplify_broadcasts(Graph *g, Draft *d)
{
    const Node *n;
    for (uint32_t i = 0; i < d->nin; i++)
        while ((n = graph_made_by(g, d->in[i], OP_Expand)) &&
               keeps_result(g, d, i, dims(g, n->in[0])))
            d->in[i] = n->in[0];
    for (uint32_t i = 0; i < d->nin; i++)
        if (val(g, d->in[i])->kind == V_CONST)
            collapse_operand(g, d, i);
}

/* ---- identities ---- */

static ValueId simplify_transpose(Graph *g, Draft *d)
{
    const Node *n = graph_made_by(g, d->in[0], OP_Transpose);
    if (n) {
        int64_t *perm = arena_array(g->arena, int64_t, d->attr.n);
        for (int i = 0; i < d->attr.n; i++)
            perm[i] = n->attr.perm[d->attr.perm[i]];
        d->attr.perm = perm;
        d->in[0] = n->in[0];
    }
    for (int i = 0; i < d->attr.n; i++)
        if (d->attr.perm[i] != i)
            return NONE;
    return d->in[0];
}

/* Operands without elements along the axis add nothing, as an empty cache does. */
static ValueId simplify_concat(Graph *g, Draft *d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->nin; i++)
        if (dims(g, d->in[i])->d[d->attr.axis] > 0)
            d->in[n++] = d->in[i];
    d->nin = n ? n : 1;
    return d->nin == 1 ? d->in[0] : NONE;
}

static bool is_whole_slice(const Attr *t, const Shape *s)
{
    for (int i = 0; i < t->n; i++)
        if (t->size[i] != s->d[i] ||
            (s->d[i] > 0 && (t->start[i] != 0 || (t->step[i] != 1 && s->d[i] > 1))))
            return false;
    return true;
}

/* A slice of joined values that takes of one of them alone is a slice of that one: numbers of images
   that stand beside boxes, as torchvision's regions have them, do not come by way of the boxes. */
static ValueId simplify_slice(Graph *g, Draft *d)
{
    const Node *n;
    while (shape_elements(&d->shape[0]) > 0 && (n = graph_made_by(g, d->in[0], OP_Concat))) {
        const int axis = (int)n->attr.axis;
        int64_t first = d->attr.start[axis], reach = (d->attr.size[axis] - 1) * d->attr.step[axis];
        int64_t low = first + (reach < 0 ? reach : 0), high = first + (reach > 0 ? reach : 0);
        uint32_t i = 0;
        for (int64_t part; low >= (part = dims(g, n->in[i])->d[axis]); i++) {
            low -= part;
            high -= part;
            first -= part;
        }
        if (high >= dims(g, n->in[i])->d[axis])
            break;
        int64_t *start = arena_array(g->arena, int64_t, d->attr.n);
        memcpy(start, d->attr.start, (size_t)d->attr.n * sizeof *start);
        start[axis] = first;
        d->attr.start = start;
        d->in[0] = n->in[i];
    }
    return is_whole_slice(&d->attr, dims(g, d->in[0])) ? d->in[0] : NONE;
}

ValueId simplify(Graph *g, Draft *d)
{
    const Node *n;
    if (op_is_map(d->op) && d->nin >= 2)
        simplify_broadcasts(g, d);
    const Value *x = val(g, d->in[0]);
    bool same_shape = shape_equal(&x->shape, &d->shape[0]);
    switch (d->op) {
    case OP_Reshape: case OP_Expand:
        while ((n = graph_made_by(g, d->in[0], d->op)))
            d->in[0] = n->in[0];
        return shape_equal(dims(g, d->in[0]), &d->shape[0]) ? d->in[0] : NONE;
    case OP_Transpose:
        return simplify_transpose(g, d);
    case OP_Concat:
        return simplify_concat(g, d);
    case OP_Slice:
        return simplify_slice(g, d);
    case OP_Cast:
        n = graph_made_by(g, d->in[0], OP_Cast); /* a half, widened and narrowed again */
        if (n && dtype_is_half(d->dtype[0]) && val(g, n->in[0])->dtype == d->dtype[0] &&
            dtype_is_float(x->dtype) && !dtype_is_half(x->dtype))
            return n->in[0];
        return x->dtype == d->dtype[0] ? d->in[0] : NONE;
    case OP_StopGradient:
        return graph_made_by(g, d->in[0], OP_StopGradient) ? d->in[0] : NONE;
    case OP_Phase:
        return d->in[0] == d->in[1] ? d->in[0] : NONE;
    case OP_Split:
        return d->nout == 1 ? d->in[0] : NONE;
    case OP_Pad:
    case OP_ReduceSum:
    case OP_ReduceMean:
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd: return same_shape ? d->in[0] : NONE;
    default:
        return NONE;
    }
}
