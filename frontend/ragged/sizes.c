/*
 * sizes.c - what makes other sizes of values whose size depends on the data, or takes all of
 * their places together.  In: nodes with such operands (ragged.h).  Out: nodes over all places that
 * there can be, which come first where they are there: what is not is left out by what an operation
 * does not see (-inf of a maximum), or by a mask of the result.
 */
#include "ragged.h"

#include <math.h>


#define refuse ragged_refuse

/* The import of a node with other operands: in[0 .. nin) are to be filled. */
static Import with_operands(const Import *im, ValueId **in)
{
    Import own = *im;
    *in = arena_array(im->arena, ValueId, im->nin + 1);
    for (uint32_t i = 0; i < im->nin; i++)
        (*in)[i] = im->in[i];
    own.in = *in;
    return own;
}

/* Operand i, which must be such a value along a dim and in the specification's order. */
static Ragged ordered(ImportState *s, const Import *im, uint32_t i, int dim)
{
    const Ragged *r = i < im->nin ? ragged_find(s, im->in[i]) : NULL;
    if (!r || r->dim != dim)
        refuse(im, (int)i, " of such a size along another dim");
    if (ragged_mask(s, r->mask)->shuffled)
        refuse(im, (int)i, " of such a size, whose places have another order here,");
    return *r;
}

static ValueId slice_of_mask(ImportState *s, ValueId mask, int64_t start, int64_t n)
{
    ValueId packed = ragged_packed(s, mask);
    if (start == 0 && n == low_shape(s->g, mask).d[0])
        return mask;
    uint32_t *made = ragged_made(s, "slice %u %lld %lld", packed, (long long)start, (long long)n);
    if (*made == NONE) {
        *made = g_slice_axis(s->g, packed, 0, start, n);
        ragged_comes_first(s, *made, NULL, false);
    }
    return *made;
}

/* ---- Concat, Slice, Expand ---- */

/* One mask behind the other; operands of a known size are there. */
static ValueId joined_masks(ImportState *s, const Import *im, int axis)
{
    Graph *g = s->g;
    ValueId *mask = arena_array(im->arena, ValueId, im->nin);
    const Extent *all = ragged_known(s, 0);
    const char *name = "concat";
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        int64_t n = low_shape(g, im->in[i]).d[axis];
        if (r && ragged_mask(s, r->mask)->shuffled)
            refuse(im, (int)i, " of such a size, whose places have another order here,");
        mask[i] = r ? ragged_packed(s, r->mask) : g_full(g, DT_BOOL, &(Shape){1, {n}}, 1);
        name = r ? arena_printf(im->arena, "%s %u", name, mask[i])
                 : arena_printf(im->arena, "%s n%lld", name, (long long)n);
        all = ragged_sum(s, all, 1, r ? ragged_extent(s, r->mask) : ragged_known(s, n), 1);
    }
    uint32_t *made = ragged_made(s, "%s", name);
    if (*made == NONE) {
        *made = g_concat(g, im->nin, mask, 0);
        ragged_mask(s, *made)->extent = all;
    }
    return *made;
}

void ragged_concat(ImportState *s, Import *im, Importer *fn)
{
    ValueId *in;
    Import own = with_operands(im, &in);
    const Ragged *first = NULL;
    ValueId mask = NONE;
    bool along = false, all = true, in_place = true;
    int axis = low_axis(im, im_int(im, "axis", 0), low_shape(im->g, im->in[0]).rank);
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        if (r && r->dim == COUNT)
            refuse(im, (int)i, " of such a size and numbers of it");
        if (r && first && r->dim != first->dim)
            refuse(im, (int)i, " of such sizes in two dims");
        first = first ? first : r;
        along = along || (r && r->dim == axis);
        mask = r && mask != NONE ? ragged_common(s, mask, r->mask) : r ? r->mask : mask;
        all = all && r && mask != NONE;
        in_place = in_place && r && !r->packed && r->mask == first->mask;
    }
    INSIST(first);
    Ragged was = *first;
    if (along && ragged_join(s, im, axis))
        return;
    if (!along && !all)
        refuse(im, -1, " of two such sizes along another dim");
    if (!along && in_place) {                   /* places stay where they are */
        fn(im);
        ragged_settle(s, im, 0, was, false);
        return;
    }
    for (uint32_t i = 0; i < im->nin; i++)
        in[i] = ragged_in_order(s, im->in[i]);
    fn(&own);
    was.packed = !along || im->nin == 1;
    was.mask = !along ? mask : im->nin > 1 ? joined_masks(s, im, axis) : was.mask;
    ragged_settle(s, im, 0, was, true);
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
    int64_t *axes = NULL, *starts = NULL, *steps = NULL, n = 0, count = 0, m,
            begin[MAX_RANK] = {0}, more[MAX_RANK] = {0};
    bool listed = low_ints_either(im, "axes", 3, &axes, &n);
    if (!end || ragged_find(s, im->in[1]) ||
        !low_ints_either(im, "starts", 1, &starts, &count) || count != 1 || starts[0] != 0)
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
    im->out[0] = y;
    ragged_settle(s, im, 0, (Ragged){.mask = mask, .dim = axis, .packed = true}, false);
}

/* Of the size's dim all places, or some of the first. */
void ragged_slice(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    if (r ? r->dim == COUNT : val(im->g, im->in[0])->kind == V_CONST) {
        ragged_counted(s, im, fn);
        return;
    }
    if (!r) {
        slice_to_size(s, im);
        return;
    }
    Ragged was = *r;
    Shape x = low_shape(im->g, im->in[0]);
    int64_t *axes = NULL, *starts = NULL, *ends = NULL, *steps = NULL, n = 0, count, m,
            from = 0, to = x.d[was.dim], bound = to;
    bool listed = low_ints_either(im, "axes", 3, &axes, &n);
    if (!low_ints_either(im, "starts", 1, &starts, &count) ||
        !low_ints_either(im, "ends", 2, &ends, &m))
        refuse(im, 1, " from or to places of the data");
    bool stepped = im_in(im, 4) != NONE;
    if (stepped)
        im_const_ints(im, 4, &steps, &m);
    for (int64_t i = 0; i < count; i++) {
        if ((listed ? low_axis(im, axes[i], x.rank) : (int)i) != was.dim)
            continue;
        const Extent *end = im->nin > 2 ? ragged_element(s, im->in[2], i) : NULL;
        bool computed = im->nin > 2 && ragged_find(s, im->in[2]) && !ragged_is_known(end),
             whole = computed && ragged_same_extent(end, ragged_extent(s, was.mask));
        if (im->nin > 1 && ragged_find(s, im->in[1]) &&
            !ragged_is_known(ragged_element(s, im->in[1], i)))
            refuse(im, 1, " from such a size");
        if (starts[i] < 0 || (stepped && steps[i] != 1) || (computed ? !whole : ends[i] < 0))
            refuse(im, 1, " along such a dim, counted from its end,");
        from = low_min(starts[i], bound);
        to = computed ? bound : low_max(from, low_min(ends[i], bound));
    }
    if (to - from < bound && ragged_mask(s, was.mask)->shuffled)
        refuse(im, 0, " of places that have another order here");
    ValueId *in;
    Import own = with_operands(im, &in);
    in[0] = ragged_in_order(s, im->in[0]);
    was.packed = true;
    was.mask = slice_of_mask(s, was.mask, from, to - from);
    fn(&own);
    ragged_settle(s, im, 0, was, true);
}

/* A value of known size, repeated. */
void ragged_expand(ImportState *s, Import *im, Importer *fn)
{
    Graph *g = im->g;
    const Ragged *r = ragged_find(s, im->in[1]);
    INSIST(r);
    Shape x = low_shape(g, im->in[0]), to = low_shape(g, im->in[1]);
    fn(im);
    Shape y = low_shape(g, im->out[0]);
    int dim = -1, more = y.rank - x.rank, before = y.rank - (int)to.d[0];
    ValueId mask = NONE;
    for (int d = before; d < y.rank; d++) {
        const Extent *e = ragged_element(s, im->in[1], d - before);
        if (ragged_is_known(e))
            continue;
        if (dim >= 0)
            refuse(im, 1, " to such a size in two dims");
        if (d >= more && x.d[d - more] != 1)
            refuse(im, 1, " to such a size of what has another");
        dim = d;
        mask = ragged_of_extent(s, e, im->in[1], d - before, y.d[d]);
    }
    if (dim < 0)
        return;
    if (mask == NONE)
        refuse(im, 1, " to a size computed of such a one");
    ragged_settle(s, im, 0, (Ragged){.mask = mask, .dim = dim, .packed = true}, false);
}

/* ---- places of such a value ---- */

void ragged_pick(ImportState *s, Import *im, Importer *fn, int axis)
{
    Graph *g = im->g;
    Ragged data = ordered(s, im, 0, axis);
    const Ragged *index = ragged_find(s, im->in[1]);
    if (!index || index->dim == COUNT)
        refuse(im, 1, " of known places");
    Ragged was = *index;
    ValueId *in, i = im->in[1], negative = g_binary(g, OP_Less, i, g_like(g, i, 0));
    Import own = with_operands(im, &in);
    ValueId count = g_cast(g, ragged_count(s, data.mask), low_dtype(g, i));
    in[0] = ragged_in_order(s, im->in[0]);
    in[1] = g_where(g, negative, g_add(g, i, count), i);
    fn(&own);
    was.dim += axis;
    ragged_settle(s, im, 0, was, false);
}

void ragged_gather_nd(ImportState *s, Import *im, Importer *fn)
{
    Graph *g = im->g;
    const Ragged *index = ragged_find(s, im->in[1]), *data = ragged_find(s, im->in[0]);
    Shape at = low_shape(g, im->in[1]);
    if (!index || index->dim == COUNT || index->dim == at.rank - 1 || im_int(im, "batch_dims", 0))
        refuse(im, 1, " of such a value along such a dim");
    Ragged was = *index;
    ValueId *in, i = im->in[1];
    Import own = with_operands(im, &in);
    if (data) {                                         /* from the end: of those there are */
        ValueId column = g_iota(g, DT_I64, at.rank, at.rank - 1, at.d[at.rank - 1]),
                first = g_binary(g, OP_Equal, column, g_scalar(g, DT_I64, 0)),
                negative = g_binary(g, OP_And, g_binary(g, OP_Less, i, g_like(g, i, 0)), first);
        Ragged r = ordered(s, im, 0, 0);
        in[0] = ragged_in_order(s, im->in[0]);
        in[1] = g_where(g, negative, g_add(g, i, g_cast(g, ragged_count(s, r.mask), DT_I64)), i);
    }
    fn(&own);
    ragged_settle(s, im, 0, was, false);
}

/* What of a known number and the size is less: the first that many. */
void ragged_topk(ImportState *s, Import *im, Importer *fn)
{
    Graph *g = im->g;
    const Ragged *r = ragged_find(s, im->in[0]),
                 *k = im->nin > 1 ? ragged_find(s, im->in[1]) : NULL;
    int axis = low_axis(im, im_int(im, "axis", -1), low_shape(g, im->in[0]).rank);
    if (r && r->dim != axis && !k) {
        Ragged was = *r;
        fn(im);
        for (uint32_t i = 0; i < im->nout; i++)
            ragged_settle(s, im, i, was, false);
        return;
    }
    if (!k || k->dim != COUNT || (r && !dtype_is_float(low_dtype(g, im->in[0]))))
        refuse(im, 1, " of such a value, which may have fewer places");
    ValueId *in;
    Import own = with_operands(im, &in);
    if (r) {
        Ragged was = ordered(s, im, 0, axis);
        double last = im_int(im, "largest", 1) ? -(double)INFINITY : (double)INFINITY;
        in[0] = ragged_only_there(s, &was, ragged_in_order(s, im->in[0]), last);
    }
    fn(&own);
    int64_t most = low_shape(g, im->out[0]).d[axis];
    if (!k->grows)
        refuse(im, 1, " of a number that may be larger where fewer places are there");
    const Extent *e = ragged_element(s, im->in[1], 0);
    ValueId mask = ragged_of_extent(s, e, im->in[1], 0, most);
    if (mask == NONE || ragged_mask(s, mask)->shuffled)
        mask = ragged_first(s, ragged_actual(s, im->in[1]), most);
    for (uint32_t i = 0; i < im->nout; i++)
        ragged_settle(s, im, i, (Ragged){.mask = mask, .dim = axis, .packed = true}, false);
}

/* ---- all places together ---- */

/* What a place that is not there is to an operation. */
static double neutral(Op op)
{
    bool most = op == OP_ReduceMax || op == OP_ReduceLogSumExp || op == OP_ArgMax,
         least = op == OP_ReduceMin || op == OP_ArgMin;
    return most ? -(double)INFINITY : least ? (double)INFINITY : op == OP_ReduceProd ? 1 : 0;
}

static bool picks_one(Op op) { return op == OP_ArgMax || op == OP_ArgMin; }

/* Its axes, as a mask of bits. */
static unsigned axes_of(const Import *im, int rank)
{
    int64_t *axes = NULL, n = 0;
    unsigned bits = 0;
    if (picks_one(im->op))
        return 1u << low_axis(im, im_int(im, "axis", 0), rank);
    if (!low_ints_either(im, "axes", 1, &axes, &n) || n == 0)
        return im_int(im, "noop_with_empty_axes", 0) ? 0 : (1u << rank) - 1;
    for (int64_t i = 0; i < n; i++)
        bits |= 1u << low_axis(im, axes[i], rank);
    return bits;
}

void ragged_reduce(ImportState *s, Import *im, Importer *fn)
{
    Graph *g = im->g;
    const Ragged *r = ragged_find(s, im->in[0]);
    if (!r)
        refuse(im, 1, " along such axes");
    Ragged was = *r;
    double none = neutral(im->op);
    unsigned axes = axes_of(im, low_shape(g, im->in[0]).rank);
    ValueId *in;
    Import own = with_operands(im, &in);
    if (!(axes >> was.dim & 1)) {
        fn(im);
        if (!im_int(im, "keepdims", 1))
            was.dim -= __builtin_popcount(axes & ((1u << was.dim) - 1));
        ragged_settle(s, im, 0, was, false);
        return;
    }
    if (picks_one(im->op))
        was = ordered(s, im, 0, was.dim);
    Dtype t = low_dtype(g, im->in[0]);
    if (isinf(none) && !dtype_is_float(t))
        refuse(im, 0, " along such a dim");
    in[0] = ragged_only_there(s, &was, ragged_in_order(s, im->in[0]), none);
    bool mean = im->op == OP_ReduceMean;
    own.op = mean ? OP_ReduceSum : im->op;
    fn(&own);
    if (!mean)
        return;
    double others = 1;
    Shape x = low_shape(g, in[0]);
    for (int d = 0; d < x.rank; d++)
        others *= (axes >> d & 1) && d != was.dim ? (double)x.d[d] : 1;
    ValueId count = g_cast(g, g_reshape(g, ragged_count(s, was.mask), &(Shape){0}), t);
    im->out[0] = g_div(g, im->out[0], low_scale(g, count, others));
}

/* ---- boxes ---- */

/* Boxes that are not there have no score. */
void ragged_suppress(ImportState *s, Import *im, Importer *fn)
{
    Ragged boxes = ordered(s, im, 0, 1), score = ordered(s, im, 1, 2);
    ValueId *in;
    Import own = with_operands(im, &in);
    if (ragged_common(s, boxes.mask, score.mask) == NONE)
        refuse(im, 1, " of two such sizes");
    in[0] = ragged_in_order(s, im->in[0]);
    in[1] = ragged_only_there(s, &score, ragged_in_order(s, im->in[1]), -(double)INFINITY);
    fn(&own);
    im->sized = own.sized;
    ragged_settle_sized(s, im, 0);
}

/* Regions of known images. */
void ragged_regions(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *rois = ragged_find(s, im->in[1]);
    ValueId *in;
    Import own = with_operands(im, &in);
    if (ragged_find(s, im->in[0]) || !rois || rois->dim != 0)
        refuse(im, 0, " of such a value");
    Ragged was = *rois;
    was.packed = true;
    for (uint32_t i = 1; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        was.mask = r && r->dim == 0 ? ragged_common(s, was.mask, r->mask) : NONE;
        if (was.mask == NONE)
            refuse(im, (int)i, " of two such sizes");
        in[i] = ragged_in_order(s, im->in[i]);
    }
    fn(&own);
    ragged_settle(s, im, 0, was, false);
}
