/*
 * ragged.c - values whose size depends on the data.  In: NonZero of a value that is not known when
 * the model is read (or Compress, NonMaxSuppression), and what is computed with it: how the layers
 * of a mixture of experts pick each expert's rows.  Out: operations of static shape.
 *
 * Such a value has the size that it can at most have.  Indices have all places, those that NonZero
 * would leave out beside the others, with a mask that tells them apart; they are constants, and the
 * order of the places is free: the dimension that the samples are in is outermost, so that
 * microbatches have their rows together.  What is taken from the data by them is packed (Pack): the
 * places that are there first, zeros behind.  Products of it (PackedMatMul) take the places that
 * are there; what else is computed of it is kept zero behind them (Where), which loop nests leave
 * out.  A scatter unpacks it and leaves out what the mask does, and anything that would count or
 * mix places is refused.  So an expert costs by the rows that it gets.
 */
#include <math.h>

#include "ragged.h"

static int64_t bound(const Import *im, const Ragged *r) { return low_shape(im->g, r->mask).d[0]; }

#define refuse ragged_refuse

/* ---- rules: where the dim of the operands is in the result ---- */

/* The one operand of `from` .. that is ragged; others must agree. */
static const Ragged *first_ragged(const ImportState *s, const Import *im)
{
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        if (r && r->dim != COUNT)
            return r;
    }
    return NULL;
}

/* The operand 0, which must be such a value or a count of one. */
static Ragged operand(const ImportState *s, const Import *im)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    if (!r)
        refuse(im, -1, " with such a value as another operand than its first");
    return *r;
}

/* Where one operand is packed, all are. */
static ValueId *packed_operands(ImportState *s, const Import *im, Ragged *was)
{
    ValueId *in = arena_array(im->arena, ValueId, im->nin + 1);
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        was->packed |= r && r->dim != COUNT && r->packed;
    }
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        in[i] = ragged_actual(s, im->in[i]);
        if (!r || r->dim == COUNT || !was->packed)
            continue;
        if (!r->packed)
            in[i] = ragged_pack(s, OP_Pack, in[i], r->mask, r->dim);
        if (op_is_singular(im->op, i) && dtype_is_float(low_dtype(im->g, in[i])))
            in[i] = ragged_only_there(s, r, in[i], 1);
    }
    return in;
}

/* Is operand i of a known size where others are of such a one? */
static bool is_fitted(const ImportState *s, const Import *im, uint32_t i, int behind)
{
    if (im->in[i] == NONE || ragged_find(s, im->in[i]))
        return false;
    Shape x = low_shape(im->g, im->in[i]);
    return x.rank >= behind && x.d[x.rank - behind] != 1;
}

/* Operands broadcast: dims are counted from behind. */
static void each(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *first = first_ragged(s, im);
    int behind = 0;
    if (!first)
        refuse(im, -1, " of such a size");
    Ragged was = *first;
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        if (r && r->dim != COUNT) {
            int here = low_shape(im->g, im->in[i]).rank - r->dim;
            ValueId mask = ragged_common(s, was.mask, r->mask);
            if ((behind && here != behind) || mask == NONE)
                refuse(im, (int)i, " of two such values");
            was.packed |= mask != r->mask || mask != was.mask;
            was.mask = mask;
            behind = here;
        }
    }
    for (uint32_t i = 0; i < im->nin; i++)
        was.packed |= is_fitted(s, im, i, behind);
    Import own = *im;
    ValueId *in = packed_operands(s, im, &was);
    for (uint32_t i = 0; i < im->nin; i++)
        if (is_fitted(s, im, i, behind))
            in[i] = ragged_fitted(s, im, (int)i, low_shape(im->g, in[i]).rank - behind, was.mask);
    own.in = in;
    fn(&own);
    was.dim = low_shape(im->g, im->out[0]).rank - behind;
    ragged_settle(s, im, 0, was, false);
}

static void expanded(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    if (!r) {
        ragged_expand(s, im, fn);
        return;
    }
    Ragged was = *r;
    int behind = low_shape(im->g, im->in[0]).rank - was.dim;
    fn(im);
    was.dim = low_shape(im->g, im->out[0]).rank - behind;
    ragged_settle(s, im, 0, was, true);
}

/* A dim that is merged with some of those behind it: each place becomes several. */
static void merged(ImportState *s, Import *im, Ragged was, int64_t before)
{
    Graph *g = im->g;
    Shape x = low_shape(g, im->in[0]), y = low_shape(g, im->out[0]);
    int64_t n = bound(im, &was), inner = 1, prefix = 1;
    int to = 0;
    while (to < y.rank && prefix != before)
        prefix *= y.d[to++];
    for (int d = was.dim + 1; d < x.rank && to < y.rank && y.d[to] != n * inner; d++)
        inner *= x.d[d];
    if (to == y.rank || n == 0 || y.d[to] != n * inner)
        refuse(im, 0, " of such a size, which it merges with another");
    im->out[0] = g_reshape(g, ragged_in_order(s, im->in[0]), &y);
    ValueId packed = ragged_packed(s, was.mask);
    uint32_t *mask = ragged_made(s, "times %u %lld", packed, (long long)inner);
    if (*mask == NONE) {
        ValueId all = g_expand(g, low_unsqueeze(g, packed, 1), &(Shape){2, {n, inner}});
        *mask = g_reshape(g, all, &(Shape){1, {n * inner}});
        ragged_comes_first(
            s, *mask, ragged_sum(s, ragged_extent(s, was.mask), inner, ragged_known(s, 0), 0),
            ragged_mask(s, was.mask)->shuffled);
    }
    ragged_settle(s, im, 0, (Ragged){.mask = *mask, .dim = to, .packed = true}, true);
}

/* The same elements in other dims: the dim is where as many elements are before it. */
static void moved(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    if (!r || r->dim == COUNT)
        refuse(im, 0, " to such a size");
    Ragged was = *r;
    Shape x = low_shape(im->g, im->in[0]);
    int64_t before = shape_between(&x, 0, was.dim), prefix = 1, n = bound(im, r);
    fn(im);
    Shape y = low_shape(im->g, im->out[0]);
    for (int d = 0; d < y.rank; prefix *= y.d[d++])
        if (prefix == before && y.d[d] == n) {
            was.dim = d;
            ragged_settle(s, im, 0, was, true);
            return;
        }
    merged(s, im, was, before);
}

static void transposed(ImportState *s, Import *im, Importer *fn)
{
    Ragged was = operand(s, im);
    Shape x = low_shape(im->g, im->in[0]);
    int64_t *perm;
    int n, to = x.rank - 1 - was.dim;
    if (im_ints(im, "perm", &perm, &n))
        for (int d = 0; d < n; d++)
            if (perm[d] == was.dim)
                to = d;
    fn(im);
    was.dim = to;
    ragged_settle(s, im, 0, was, true);
}

/* To the type of its second operand, whose size does not matter. */
static void cast_like(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    if (!r) {
        fn(im);
        return;
    }
    Ragged was = *r;
    if (was.dim == COUNT) {
        ragged_counted(s, im, fn);
        return;
    }
    fn(im);
    ragged_settle(s, im, 0, was, true);
}

/* Along another axis, or none: all results keep the dim. */
static void beside(ImportState *s, Import *im, Importer *fn)
{
    Ragged was = operand(s, im);
    Shape x = low_shape(im->g, im->in[0]);
    int64_t dflt = im->op == OP_Softmax || im->op == OP_LogSoftmax ||
                           im->op == OP_LayerNormalization || im->op == OP_RMSNormalization
                       ? -1
                       : 0;
    int axis = low_axis(im, im_int(im, "axis", dflt), x.rank);
    if (im->op == OP_Split && axis == was.dim && val(im->g, im->in[0])->kind == V_CONST) {
        trips_split(s, im, axis, was.mask);
        return;
    }
    bool normalises = im->op == OP_LayerNormalization || im->op == OP_RMSNormalization,
         single = im->op == OP_Identity || im->op == OP_Dropout; /* elements, along no axis */
    Import own = *im;
    ValueId x0 = im->in[0];
    if (axis == was.dim && (im->op == OP_Softmax || im->op == OP_LogSoftmax)) {
        x0 = ragged_only_there(s, &was, ragged_in_order(s, x0), -(double)INFINITY);
        was.packed = true;
        own.in = &x0;
    } else if (!single && (normalises ? axis <= was.dim : axis == was.dim)) {
        refuse(im, 0, " along such a dim");
    }
    for (uint32_t i = 1; i < im->nin; i++)
        if (ragged_find(s, im->in[i]))
            refuse(im, (int)i, " of such a value");
    fn(&own);
    bool kept = single || im->op == OP_Split;
    for (uint32_t i = 0; i < im->nout; i++)
        ragged_settle(s, im, i, was, kept);
}

/* Rows of a table by such an index; or of such a value by a known one. */
static void gathered(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *data = ragged_find(s, im->in[0]), *index = ragged_find(s, im->in[1]);
    int axis = low_axis(im, im_int(im, "axis", 0), low_shape(im->g, im->in[0]).rank);
    if (data && data->dim == COUNT) {
        ragged_counted(s, im, fn);
        return;
    }
    if (data && data->dim == axis) {
        ragged_pick(s, im, fn, axis);
        return;
    }
    if (!data == !index || (index && index->dim == COUNT))
        refuse(im, data ? 0 : 1, " along such a dim");
    Ragged was = *(data ? data : index);
    int dim = index            ? axis + was.dim
              : was.dim < axis ? was.dim
                               : was.dim + low_shape(im->g, im->in[1]).rank - 1;
    fn(im);
    was.dim = dim;
    ragged_settle(s, im, 0, was, data != NULL);
}

/* x w of the rows of x that are there, [1 .., n, k] by [k, m]. */
static ValueId packed_product(Graph *g, ValueId x, ValueId w, ValueId mask)
{
    Shape s = low_shape(g, x), two = {2, {s.d[s.rank - 2], s.d[s.rank - 1]}};
    ValueId in[3] = {g_reshape(g, x, &two), w, mask};
    ValueId y = graph_node(g, OP_PackedMatMul, 3, in, (Attr){.axis = 0});
    s.d[s.rank - 1] = low_shape(g, y).d[1];
    return g_reshape(g, y, &s);
}

/* alpha x w + beta c */
static void packed_gemm(const Import *im, ValueId mask)
{
    Graph *g = im->g;
    ValueId w = im->in[1], c = im_in(im, 2);
    if (im->op == OP_Gemm && im_int(im, "transB", 0))
        w = g_swap_last(g, w);
    ValueId y = packed_product(g, im->in[0], w, mask);
    if (im->op == OP_Gemm) {
        y = low_scale(g, y, im_float(im, "alpha", 1));
        if (c != NONE && im_float(im, "beta", 1) != 0)
            y = g_add(g, y, low_scale(g, c, im_float(im, "beta", 1)));
    }
    im->out[0] = y;
}

/* Is it a product of two of one such size, summed over that: zeros behind add nothing. */
static bool summed_over(ImportState *s, const Import *im)
{
    const Ragged *x = ragged_find(s, im->in[0]), *w = ragged_find(s, im->in[1]);
    int rank = low_shape(im->g, im->in[1]).rank;
    return im->op == OP_MatMul && x && w && x->dim != COUNT && w->dim != COUNT &&
           ragged_common(s, x->mask, w->mask) != NONE &&
           dtype_is_float(low_dtype(im->g, im->in[0])) &&
           x->dim == low_shape(im->g, im->in[0]).rank - 1 && w->dim == (rank > 1 ? rank - 2 : 0);
}

/* Rows of the left operand. */
static void multiplied(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    Shape x = low_shape(im->g, im->in[0]), w = low_shape(im->g, im->in[1]);
    if (summed_over(s, im)) {
        Import own = *im;
        ValueId in[2] = {ragged_in_order(s, im->in[0]), ragged_in_order(s, im->in[1])};
        own.in = in;
        fn(&own);
        return;
    }
    if (!r || ragged_find(s, im->in[1]) || r->dim == x.rank - 1 ||
        (im->op == OP_Gemm && im_int(im, "transA", 0)))
        refuse(im, r ? 0 : 1, " over such a dim");
    Ragged was = *r;
    bool rows = was.packed && w.rank == 2 && dtype_is_float(low_dtype(im->g, im->in[0])) &&
                low_dtype(im->g, im->in[0]) == low_dtype(im->g, im->in[1]) &&
                was.dim == x.rank - 2 && shape_elements(&x) == x.d[was.dim] * x.d[x.rank - 1];
    if (rows)
        packed_gemm(im, was.mask);
    else
        fn(im);
    Shape y = low_shape(im->g, im->out[0]);
    was.dim += y.rank - x.rank;
    ragged_settle(s, im, 0, was, rows && im->op == OP_MatMul);
}

/* ---- the table: of values of such a size; of numbers computed from sizes ---- */

typedef struct {
    Rule *values, *counts;
} Rules;

// clang-format off
static const Rules rules[OP_COUNT] = {
#define OF_BOTH(op, rule) [OP_##op] = {rule, rule}
#define OF_VALUES(op, rule) [OP_##op] = {rule, NULL}
#define COUNTED(op, rule) [OP_##op] = {rule, ragged_counted}
    OF_VALUES(NonZero, ragged_non_zero), OF_VALUES(NonMaxSuppression, ragged_suppress),
    OF_VALUES(RoiAlign, ragged_regions), OF_VALUES(MaxRoiPool, ragged_regions),
    OF_BOTH(TopK, ragged_topk), OF_BOTH(Slice, ragged_slice), COUNTED(Concat, ragged_concat),
    OF_BOTH(Gather, gathered), OF_VALUES(GatherND, ragged_gather_nd),
    OF_BOTH(Scatter, ragged_scatter), OF_BOTH(ScatterElements, ragged_scatter),
    OF_BOTH(ScatterND, ragged_scatter),
    OF_BOTH(Shape, ragged_measure), OF_BOTH(Size, ragged_measure),
    OF_BOTH(ConstantOfShape, ragged_fill), OF_BOTH(Range, ragged_fill), OF_BOTH(Expand, expanded),
    COUNTED(Reshape, moved), COUNTED(Flatten, moved), COUNTED(Squeeze, moved),
    COUNTED(Unsqueeze, moved),
    OF_VALUES(Transpose, transposed), COUNTED(CastLike, cast_like),
    OF_BOTH(MatMul, multiplied), OF_BOTH(Gemm, multiplied),
#define REDUCED(op) COUNTED(op, ragged_reduce)
    REDUCED(ReduceSum), REDUCED(ReduceMean), REDUCED(ReduceMax), REDUCED(ReduceMin),
    REDUCED(ReduceProd), REDUCED(ReduceL1), REDUCED(ReduceL2), REDUCED(ReduceSumSquare),
    REDUCED(ReduceLogSum), REDUCED(ReduceLogSumExp), REDUCED(ArgMax), REDUCED(ArgMin),
    OF_VALUES(Identity, beside), OF_VALUES(Dropout, beside), OF_VALUES(Split, beside),
    OF_VALUES(Softmax, beside), OF_VALUES(LogSoftmax, beside),
    OF_VALUES(LayerNormalization, beside), OF_VALUES(RMSNormalization, beside),
    OF_VALUES(Gelu, each), OF_VALUES(Mish, each), OF_VALUES(Swish, each),
    OF_VALUES(HardSwish, each), OF_VALUES(HardSigmoid, each), OF_VALUES(LeakyRelu, each),
    OF_VALUES(Elu, each), OF_VALUES(Clip, each), OF_VALUES(Sum, each),
};
// clang-format on

static Rule *rule_of(const Import *im, bool count)
{
    const Rules map = {each, ragged_counted}, *r = op_is_map(im->op) ? &map : &rules[im->op];
    return count ? r->counts : r->values;
}

/* Operand i as it is when the model is read: how many elements of a mask are true, computed of the
 * data themselves, is a size like others. */
static void read_size(ImportState *s, Import *im, uint32_t i)
{
    ValueId size = i < im->nin ? ragged_size_of_true(s, im, im->in[i]) : NONE;
    if (size == NONE)
        return;
    ValueId *in = arena_array(im->arena, ValueId, im->nin + 1);
    for (uint32_t k = 0; k < im->nin; k++)
        in[k] = k == i ? size : im->in[k];
    im->in = in;
}

void ragged_import(ImportState *s, Import *im, void (*fn)(Import *))
{
    bool any = false, values = false;
    if (ragged_is_split(s, im)) {
        ragged_split(s, im);
        return;
    }
    if (im->op == OP_Expand || im->op == OP_Reshape || im->op == OP_Range)
        read_size(s, im, 1);
    else if (im->op == OP_ConstantOfShape)
        read_size(s, im, 0);
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        any = any || r;
        values = values || (r && r->dim != COUNT);
    }
    if (im->op == OP_NonZero && !any && im->in[0] != NONE &&
        val(im->g, im->in[0])->kind != V_CONST) {
        ragged_non_zero(s, im, fn);
        return;
    }
    Rule *rule = any ? rule_of(im, !values) : NULL;
    if (any && !rule)
        refuse(im, -1, " of such a value is not supported");
    if (rule) {
        rule(s, im, fn);
        ragged_note_true(s, im);
        return;
    }
    fn(im);
    ragged_note_true(s, im);
    for (uint32_t i = 0; i < im->nout; i++)
        ragged_settle_sized(s, im, i);
}
