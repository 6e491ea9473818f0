/*
 * sizes.c - what makes other sizes of values whose size depends on the data, or takes all of
 * their places together.  In: core nodes with such operands (ragged.h), and nodes of the file that
 * read a size.  Out: nodes over all places that there can be, which come first where they are
 * there: what is not is left out by what an operation does not see (-inf of a maximum), or by a
 * mask of the result.
 */
#include "ragged.h"

#include <math.h>

#define refuse ragged_refuse

/* What v is, which must be such a value along a dim and in the specification's order. */
static Ragged ordered(ImportState *s, const Import *im, ValueId v, int dim)
{
    const Ragged *r = ragged_find(s, v);
    if (!r || r->dim != dim)
        refuse(im, -1, " of such a size along another dim");
    if (ragged_mask(s, r->mask)->shuffled)
        refuse(im, -1, " of such a size, whose places have another order here,");
    return *r;
}

static ValueId marked(ImportState *s, ValueId y, Ragged r)
{
    ragged_mark(s, y, r);
    return y;
}

/* A result in which places meet: not in what reckons with their largest number. */
static void meet(Core *c)
{
    const Op op = c->im->op;
    const bool may = op_is_core(op) || op == OP_ReduceL1 || op == OP_ReduceL2 ||
                     op == OP_ReduceLogSum || op == OP_ReduceLogSumExp ||
                     op == OP_ReduceSumSquare || op == OP_Gemm || op == OP_Einsum;
    if (!may)
        refuse(c->im, -1, " along such a dim");
    *c->ended = true;
}

/* ---- Concat, Slice, Reshape ---- */

/* One mask behind the other; operands of a known size are there. */
static ValueId joined_masks(const Core *c, int axis)
{
    ImportState *s = c->s;
    Graph *g = s->g;
    ValueId *mask = arena_array(g->arena, ValueId, c->n.nin);
    const Extent *all = ragged_known(s, 0);
    const char *name = "concat";
    for (uint32_t i = 0; i < c->n.nin; i++) {
        const Ragged *r = ragged_find(s, c->in[i]);
        int64_t n = low_shape(g, c->in[i]).d[axis];
        if (r)
            ordered(s, c->im, c->in[i], axis);
        mask[i] = r ? ragged_packed(s, r->mask) : g_full(g, DT_BOOL, &(Shape){1, {n}}, 1);
        name = r ? arena_printf(g->arena, "%s %u", name, mask[i])
                 : arena_printf(g->arena, "%s n%lld", name, (long long)n);
        all = ragged_sum(s, all, 1, r ? ragged_extent(s, r->mask) : ragged_known(s, n), 1);
    }
    uint32_t *made = ragged_made(s, "%s", name);
    if (*made == NONE) {
        *made = g_concat(g, c->n.nin, mask, 0);
        ragged_mask(s, *made)->extent = all;
    }
    return *made;
}

ValueId ragged_concat(Core *c, Ragged was)
{
    const int axis = (int)c->n.attr.axis;
    bool along = was.dim == axis;
    for (uint32_t i = 0; i < c->n.nin; i++)
        along |= ragged_find(c->s, c->in[i]) && ragged_find(c->s, c->in[i])->dim == axis;
    ValueId y = along ? ragged_join(c, axis) : NONE;
    *c->ended |= y != NONE;
    if (!along || y != NONE)
        return y;
    ValueId mask = joined_masks(c, axis);
    for (uint32_t i = 0; i < c->n.nin; i++)
        c->in[i] = ragged_in_order(c->s, c->in[i]);
    return marked(c->s, ragged_node(c), (Ragged){.mask = mask, .dim = axis});
}

static ValueId slice_of_mask(ImportState *s, ValueId mask, int64_t start, int64_t n)
{
    ValueId packed = ragged_packed(s, mask);
    uint32_t *made = ragged_made(s, "slice %u %lld %lld", packed, (long long)start, (long long)n);
    if (*made == NONE) {
        *made = g_slice_axis(s->g, packed, 0, start, n);
        ragged_comes_first(s, *made, NULL, false);
    }
    return *made;
}

/* Some of the places; others number them from the largest end. */
ValueId ragged_part(Core *c, Ragged was)
{
    const Attr *t = &c->n.attr;
    const int64_t start = t->start[was.dim], size = t->size[was.dim];
    if (start == 0 && size == low_shape(c->s->g, was.mask).d[0] && t->step[was.dim] == 1)
        return NONE;
    if (c->im->op != OP_Slice || t->step[was.dim] != 1)
        refuse(c->im, -1, " along such a dim");
    if (ragged_mask(c->s, was.mask)->shuffled)
        refuse(c->im, 0, " of places that have another order here");
    c->in[0] = ragged_in_order(c->s, c->in[0]);
    was.packed = true;
    was.mask = slice_of_mask(c->s, was.mask, start, size);
    return marked(c->s, ragged_node(c), was);
}

/* A dim that is merged with some of those behind it: each place becomes several. */
static ValueId merged(Core *c, Ragged was, int64_t before)
{
    ImportState *s = c->s;
    Graph *g = s->g;
    Shape x = low_shape(g, c->in[0]), y = low_shape(g, c->n.out[0]);
    int64_t n = x.d[was.dim], inner = 1, prefix = 1;
    int to = 0;
    while (to < y.rank && prefix != before)
        prefix *= y.d[to++];
    for (int d = was.dim + 1; d < x.rank && to < y.rank && y.d[to] != n * inner; d++)
        inner *= x.d[d];
    if (to == y.rank || n == 0 || y.d[to] != n * inner)
        refuse(c->im, 0, " of such a size, which it merges with another");
    c->in[0] = ragged_in_order(s, c->in[0]);
    ValueId packed = ragged_packed(s, was.mask);
    uint32_t *mask = ragged_made(s, "times %u %lld", packed, (long long)inner);
    if (*mask == NONE) {
        ValueId all = g_expand(g, low_unsqueeze(g, packed, 1), &(Shape){2, {n, inner}});
        *mask = g_reshape(g, all, &(Shape){1, {n * inner}});
        ragged_comes_first(s, *mask,
                           ragged_sum(s, ragged_extent(s, was.mask), inner, ragged_known(s, 0), 0),
                           ragged_mask(s, was.mask)->shuffled);
    }
    was = (Ragged){.mask = *mask, .dim = to, .packed = true, .dirty = was.dirty};
    return marked(s, ragged_node(c), was);
}

/* Of the same elements in other dims, where the dim is: as many elements are before it; or -1. */
static int same_dim(const Shape *x, const Shape *y, int dim)
{
    const int64_t before = shape_between(x, 0, dim);
    int64_t prefix = 1;
    for (int d = 0; d < y->rank; prefix *= y->d[d++])
        if (prefix == before && y->d[d] == x->d[dim])
            return d;
    return -1;
}

ValueId ragged_reshape(Core *c, Ragged was)
{
    const Shape x = low_shape(c->s->g, c->in[0]), y = low_shape(c->s->g, c->n.out[0]);
    const int dim = same_dim(&x, &y, was.dim), also = was.also ? same_dim(&x, &y, was.also - 1) : 0;
    if (was.also && (dim < 0 || also < 0 || dim == also))
        refuse(c->im, 0, " of such a size in two dims");
    if (dim < 0)
        return merged(c, was, shape_between(&x, 0, was.dim));
    was.dim = dim, was.also = was.also ? also + 1 : 0;
    return marked(c->s, ragged_node(c), was);
}

/*
 * The first places of a value of known size, as many as something else picked: updates that a
 * scatter then puts there (masked_scatter: features of an image where its tokens stand).  A run
 * that picks more than there are is none of the model's; its numbers are NaN, which ends it.
 */
static void slice_to_size(ImportState *s, Import *im)
{
    Graph *g = im->g;
    const Ragged *end = im->nin > 2 ? ragged_find(s, im->in[2]) : NULL;
    Shape x = low_shape(g, im->in[0]);
    int64_t *axes = NULL, *starts = NULL, *steps = NULL, n = 0, count = 0, m, begin[MAX_RANK] = {0},
            more[MAX_RANK] = {0};
    bool listed = low_ints_either(im, "axes", 3, &axes, &n);
    if (!end || ragged_find(s, im->in[1]) || !low_ints_either(im, "starts", 1, &starts, &count) ||
        count != 1 || starts[0] != 0)
        refuse(im, -1, " of a value of known size, but from its first place to such a size,");
    if (im_in(im, 4) != NONE) {
        im_const_ints(im, 4, &steps, &m);
        if (m != 1 || steps[0] != 1)
            refuse(im, 4, " to such a size, in steps,");
    }
    const Extent *e = ragged_element(s, im->in[2], 0);
    int64_t size = e ? ragged_most(s, e) : 0;
    ValueId mask = ragged_of_extent(s, e, im->in[2], 0, size);
    if (mask == NONE)
        refuse(im, 2, " to a size computed of such a one");
    if (ragged_mask(s, mask)->shuffled)
        refuse(im, 2, " to the size of places that have another order here");
    int axis = low_axis(im, listed ? axes[0] : 0, x.rank);
    ValueId y = im->in[0];
    more[axis] = size - x.d[axis];
    if (more[axis] > 0 && !dtype_is_float(low_dtype(g, y)))
        refuse(im, 0, " of whole numbers, of which there may be fewer,");
    if (more[axis] < 0)
        y = g_slice_axis(g, y, axis, 0, size);
    else if (more[axis] > 0)
        y = g_pad(g, y, begin, more, PAD_CONSTANT, (double)NAN);
    im->out[0] = ragged_settled(s, y, (Ragged){mask, axis, .packed = true, .dirty = true});
}

/* May it be imported as a Slice of all places that there can be? */
static void check_slice(ImportState *s, const Import *im, const Ragged *was)
{
    int rank = low_shape(im->g, im->in[0]).rank;
    int64_t *axes = NULL, *starts, *ends, *steps = NULL, n = 0, count, m;
    bool listed = low_ints_either(im, "axes", 3, &axes, &n), stepped = im_in(im, 4) != NONE;
    if (!low_ints_either(im, "starts", 1, &starts, &count) ||
        !low_ints_either(im, "ends", 2, &ends, &m))
        refuse(im, 1, " from or to places of the data");
    if (stepped)
        im_const_ints(im, 4, &steps, &m);
    for (int64_t i = 0; i < count; i++) {
        const int axis = listed ? low_axis(im, axes[i], rank) : (int)i;
        const bool along = axis == was->dim || axis == was->also - 1;
        const Extent *end = im->nin > 2 ? ragged_element(s, im->in[2], i) : NULL;
        bool computed = im->nin > 2 && ragged_find(s, im->in[2]) && !ragged_is_known(end),
             whole = computed && ragged_same_extent(end, ragged_extent(s, was->mask));
        if (im->nin > 1 && ragged_find(s, im->in[1]) &&
            !ragged_is_known(ragged_element(s, im->in[1], i)))
            refuse(im, 1, " from such a size");
        if (!along && computed)
            refuse(im, 2, " of another dim to such a size");
        if (!along)
            continue;
        if (starts[i] < 0 || (stepped && steps[i] != 1) || (computed ? !whole : ends[i] < 0))
            refuse(im, 1, " along such a dim, counted from its end,");
    }
}

/* Of the size's dim all places, or some of the first. */
bool ragged_slice(ImportState *s, Import *im, Importer *fn)
{
    (void)fn;
    const Ragged *r = ragged_find(s, im->in[0]);
    bool counts = r ? r->dim == COUNT : val(im->g, im->in[0])->kind == V_CONST;
    for (uint32_t i = 1; i < im->nin && counts; i++)
        if (ragged_find(s, im->in[i]))
            refuse(im, (int)i, " from or to places of the data");
    if (!r && !counts) {
        slice_to_size(s, im);
        return true;
    }
    if (!counts)
        check_slice(s, im, r);
    return false;
}

/* ---- places of such a value ---- */

/* Rows by indices into the operand's own places: one less than 0 counts from the last there is. */
ValueId ragged_gather(Core *c, Ragged was)
{
    ImportState *s = c->s;
    Graph *g = s->g;
    const bool nd = c->n.op == OP_GatherND;
    const int axis = nd ? 0 : (int)c->n.attr.axis, last = low_shape(g, c->in[1]).rank - 1;
    const Ragged *data = ragged_find(s, c->in[0]), *index = ragged_find(s, c->in[1]);
    if (!data || data->dim != axis || (nd && c->n.attr.batch_dims))
        return NONE;
    if (!index || (nd && index->dim == last))
        refuse(c->im, 1, " of known places");
    const ValueId mask = ordered(s, c->im, c->in[0], axis).mask, i = c->in[1];
    ValueId negative = g_binary(g, OP_Less, i, g_like(g, i, 0));
    if (nd) {
        ValueId column = g_iota(g, DT_I64, last + 1, last, low_shape(g, i).d[last]);
        negative =
            g_binary(g, OP_And, negative, g_binary(g, OP_Equal, column, g_scalar(g, DT_I64, 0)));
    }
    was = *index;
    was.dim += axis;
    was.dirty = true;
    c->in[0] = ragged_in_order(s, c->in[0]);
    c->in[1] =
        g_where(g, negative, g_add(g, i, g_cast(g, ragged_count(s, mask), low_dtype(g, i))), i);
    return marked(s, ragged_node(c), was);
}

/* What of a known number and the size is less: the first that many. */
bool ragged_topk(ImportState *s, Import *im, Importer *fn)
{
    Graph *g = im->g;
    const Ragged *r = ragged_find(s, im->in[0]),
                 *k = im->nin > 1 ? ragged_find(s, im->in[1]) : NULL;
    int axis = low_axis(im, im_int(im, "axis", -1), low_shape(g, im->in[0]).rank);
    if (!k)
        return false;
    if (k->dim != COUNT || (r && !dtype_is_float(low_dtype(g, im->in[0]))))
        refuse(im, 1, " of such a value, which may have fewer places");
    if (!k->grows)
        refuse(im, 1, " of a number that may be larger where fewer places are there");
    const Extent *e = ragged_element(s, im->in[1], 0);
    ValueId in[2] = {im->in[0], im->in[1]};
    Import own = *im;
    own.in = in;
    if (r) {
        Ragged was = ordered(s, im, im->in[0], axis);
        double last = im_int(im, "largest", 1) ? -(double)INFINITY : (double)INFINITY;
        in[0] = ragged_only_there(s, &was, ragged_in_order(s, im->in[0]), last);
    }
    fn(&own);
    int64_t most = low_shape(g, im->out[0]).d[axis];
    ValueId mask = ragged_of_extent(s, e, im->in[1], 0, most);
    if (mask == NONE || ragged_mask(s, mask)->shuffled)
        mask = ragged_first(s, ragged_actual(s, im->in[1]), most);
    for (uint32_t i = 0; i < im->nout; i++)
        im->out[i] =
            ragged_settled(s, im->out[i], (Ragged){mask, axis, .packed = true, .dirty = true});
    return true;
}

/* ---- all places together ---- */

/* What a place that is not there is to an operation. */
static double neutral(Op op)
{
    bool most = op == OP_ReduceMax || op == OP_ArgMax,
         least = op == OP_ReduceMin || op == OP_ArgMin;
    return most ? -(double)INFINITY : least ? (double)INFINITY : op == OP_ReduceProd ? 1 : 0;
}

ValueId ragged_along(ImportState *s, ValueId x, int n, const int64_t *axes, const Ragged *r)
{
    Graph *g = s->g;
    const Shape shape = low_shape(g, x);
    int64_t known = 1;
    ValueId count = NONE;
    for (int i = 0; i < n; i++)
        if (r && (axes[i] == r->dim || axes[i] == r->also - 1))
            count = g_cast(g, g_reshape(g, ragged_count(s, r->mask), &(Shape){0}), low_dtype(g, x));
        else
            known *= shape.d[axes[i]];
    return count == NONE ? g_like(g, x, (double)known) : low_scale(g, count, (double)known);
}

/* Along which of its two dims an operation goes: now that is its dim; the other one: 1 + that. */
static void turn(Ragged *r, int axis)
{
    if (axis != r->also - 1)
        return;
    const int dim = r->dim;
    r->dim = r->also - 1;
    r->also = dim + 1;
}

static ValueId marked_rest(const Core *c, ValueId y, Ragged rest)
{
    return rest.dim < 0 ? y : marked(c->s, y, rest);
}

ValueId ragged_reduce(Core *c, Ragged was)
{
    Graph *g = c->s->g;
    const Op op = c->n.op;
    const bool one = op == OP_ArgMax || op == OP_ArgMin;
    bool along = one && c->n.attr.axis == was.dim;
    int both = 0;
    for (int i = 0; i < c->n.attr.n && !one; i++) {
        both += c->n.attr.axes[i] == was.dim || c->n.attr.axes[i] == was.also - 1;
        turn(&was, (int)c->n.attr.axes[i]);
        along |= c->n.attr.axes[i] == was.dim;
    }
    if (!along)
        return NONE;
    if (both > 1 || (one && was.also))
        refuse(c->im, 0, " along two such dims");
    meet(c);
    if (one)
        ordered(c->s, c->im, c->in[0], was.dim);
    const Dtype t = low_dtype(g, c->in[0]);
    if (isinf(neutral(op)) && !dtype_is_float(t))
        refuse(c->im, 0, " along such a dim");
    const Ragged rest = {.mask = was.mask, .dim = was.also - 1, .packed = true, .dirty = true};
    was.also = 0;
    c->in[0] = ragged_only_there(c->s, &was, ragged_in_order(c->s, c->in[0]), neutral(op));
    if (op != OP_ReduceMean)
        return marked_rest(c, ragged_node(c), rest);
    ValueId x = g_cast(g, c->in[0], dtype_sum(t)),
            sum = graph_node(g, OP_ReduceSum, 1, &x, c->n.attr);
    const ValueId count = ragged_along(c->s, x, c->n.attr.n, c->n.attr.axes, &was);
    return marked_rest(c, g_cast(g, g_div(g, sum, count), t), rest);
}

ValueId ragged_softmax(Core *c, Ragged was)
{
    turn(&was, (int)c->n.attr.axis);
    if (c->n.attr.axis != was.dim)
        return NONE;
    meet(c);
    Ragged line = was;
    line.also = 0;
    c->in[0] = ragged_only_there(c->s, &line, ragged_in_order(c->s, c->in[0]), -(double)INFINITY);
    was.packed = was.dirty = true;
    return marked(c->s, ragged_node(c), was);
}

/* ---- products ---- */

/* x w of the rows of x that are there, [1 .., n, k] by [k, m]. */
static ValueId packed_product(const Core *c, ValueId mask)
{
    Graph *g = c->s->g;
    Shape s = low_shape(g, c->in[0]), two = {2, {s.d[s.rank - 2], s.d[s.rank - 1]}};
    ValueId in[3] = {g_reshape(g, c->in[0], &two), c->in[1], mask};
    ValueId y = graph_node(g, OP_PackedMatMul, 3, in, (Attr){.axis = 0, .to = c->n.attr.to});
    s.d[s.rank - 1] = low_shape(g, y).d[1];
    return g_reshape(g, y, &s);
}

/* x where it is there, zeros behind */
static ValueId or_zero(const Core *c, uint32_t i)
{
    const Ragged r = *ragged_find(c->s, c->in[i]);
    ValueId x = ragged_in_order(c->s, c->in[i]);
    return r.packed && r.dirty ? ragged_only_there(c->s, &r, x, 0) : x;
}

/* x w of two of one such size: summed over that, or of each place with each. */
static ValueId product_of_both(Core *c, Ragged x, Ragged w)
{
    const int rows = low_shape(c->s->g, c->in[0]).rank - 2,
              columns = low_shape(c->s->g, c->in[1]).rank - 1,
              last = low_shape(c->s->g, c->n.out[0]).rank - 1;
    turn(&x, rows + 1);
    turn(&w, columns - 1);
    const bool summed = x.dim == rows + 1 && w.dim == columns - 1,
               apart = x.dim == rows && !x.also && w.dim == columns && !w.also;
    if (summed ? (x.also && x.also - 1 != rows) || (w.also && w.also - 1 != columns) : !apart)
        return NONE;
    meet(c);
    c->in[0] = or_zero(c, 0), c->in[1] = or_zero(c, 1);
    const bool left = apart || x.also, right = apart || w.also;
    const Ragged is = {.mask = ragged_common(c->s, x.mask, w.mask),
                       .dim = left ? last - 1 : last,
                       .also = left && right ? last + 1 : 0,
                       .packed = true};
    return left || right ? marked(c->s, ragged_node(c), is) : ragged_node(c);
}

/* Of two such operands; or of rows of the left one. */
ValueId ragged_matmul(Core *c, Ragged was)
{
    Graph *g = c->s->g;
    const Ragged *x = ragged_find(c->s, c->in[0]), *w = ragged_find(c->s, c->in[1]);
    const Shape p = low_shape(g, c->in[0]), q = low_shape(g, c->in[1]);
    const Dtype t = low_dtype(g, c->in[0]);
    if (x && w && dtype_is_float(t) && ragged_common(c->s, x->mask, w->mask) != NONE)
        return product_of_both(c, *x, *w);
    if (!x || x->also || w || !x->packed || q.rank != 2 || !dtype_is_float(t) ||
        t != low_dtype(g, c->in[1]) || x->dim != p.rank - 2 ||
        shape_elements(&p) != p.d[p.rank - 2] * p.d[p.rank - 1])
        return NONE;
    was.dirty = false;
    return marked(c->s, packed_product(c, was.mask), was);
}

/* ---- boxes ---- */

/* Boxes that are not there have no score. */
bool ragged_suppress(ImportState *s, Import *im, Importer *fn)
{
    Ragged boxes = ordered(s, im, im->in[0], 1), score = ordered(s, im, im->in[1], 2);
    ValueId *in = arena_array(im->arena, ValueId, im->nin + 1);
    Import own = *im;
    for (uint32_t i = 0; i < im->nin; i++)
        in[i] = im->in[i];
    if (ragged_common(s, boxes.mask, score.mask) == NONE)
        refuse(im, 1, " of two such sizes");
    in[0] = ragged_in_order(s, im->in[0]);
    in[1] = ragged_only_there(s, &score, ragged_in_order(s, im->in[1]), -(double)INFINITY);
    own.in = in;
    fn(&own);
    return true;
}
