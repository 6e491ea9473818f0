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
#include <string.h>

#include "low.h"
#include "ragged.h"

static void mark(ImportState *s, ValueId v, ValueId mask, int dim)
{
    ragged_mark(s, v, (Ragged){mask, dim, .size = ANY});
}

static int64_t bound(const Import *im, const Ragged *r) { return low_shape(im->g, r->mask).d[0]; }

static _Noreturn void refuse(const Import *im, int input, const char *why)
{
    diag_hint("the size of its operand depends on the data: it may be picked from, computed with "
              "element by element and scattered");
    low_fatal(im, input, "%s%s", im->op_type, why);
}

/* ---- packed values ---- */

static ValueId packing(Graph *g, Op op, ValueId x, ValueId mask, int dim)
{
    ValueId in[2] = {x, mask};
    return graph_node(g, op, 2, in, (Attr){.axis = dim});
}

/* [n] along dim of `rank`: which places of a packed value are there. */
static ValueId there(ImportState *st, ValueId mask, int dim, int rank)
{
    Graph *g = st->g;
    Shape s = {.rank = rank};
    uint32_t *packed = ragged_packed(st, mask);
    if (*packed == NONE)
        *packed = packing(g, OP_Pack, mask, mask, 0);
    for (int d = 0; d < rank; d++)
        s.d[d] = d == dim ? low_shape(g, mask).d[0] : 1;
    return g_reshape(g, *packed, &s);
}

/* x where its places are there, else a number. */
static ValueId only_there(ImportState *st, const Ragged *r, ValueId x, double otherwise)
{
    Graph *g = st->g;
    ValueId is = there(st, r->mask, r->dim, low_shape(g, x).rank);
    return g_where(g, is, x, g_like(g, x, otherwise));
}

/* A result of such a size: known ones keep their places, others are packed from now on.  kept: its
 * places behind those that are there are zeros. */
static void settle(ImportState *s, Import *im, uint32_t out, Ragged r, bool kept)
{
    Graph *g = im->g;
    ValueId v = im->out[out];
    if (v == NONE)
        return;
    if (val(g, v)->kind != V_CONST && !r.packed) {
        v = packing(g, OP_Pack, v, r.mask, r.dim);
        r.packed = true;
    } else if (r.packed && !kept && dtype_is_float(low_dtype(g, v))) {
        v = only_there(s, &r, v, 0);
    }
    im->out[out] = v;
    ragged_mark(s, v, r);
}

/* ---- NonZero ---- */

/* The dim that the samples are in, as far as sizes tell: outermost among the places. */
static int outermost(const Import *im, const Shape *s)
{
    int best = 0;
    for (int d = 1; d < s->rank; d++) {
        bool here = im->g->batch > 0 && s->d[d] % im->g->batch == 0,
             there = im->g->batch > 0 && s->d[best] % im->g->batch == 0;
        if (here > there || (here == there && s->d[d] > s->d[best]))
            best = d;
    }
    return best;
}

static void non_zero(ImportState *st, Import *im)
{
    Graph *g = im->g;
    ValueId x = im->in[0];
    Shape s = low_shape(g, x);
    int64_t n = shape_elements(&s), perm[MAX_RANK], *at;
    if (s.rank == 0 || n == 0 || n > INT32_MAX)
        low_fatal(im, 0, "NonZero of %s", shape_print(im->arena, low_dtype(g, x), &s));
    perm[0] = outermost(im, &s);
    for (int d = 0, k = 1; d < s.rank; d++)
        if (d != perm[0])
            perm[k++] = d;
    at = arena_array(g->arena, int64_t, n * s.rank);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;
        for (int k = s.rank - 1; k >= 0; k--) {
            at[perm[k] * n + i] = rest % s.d[perm[k]];
            rest /= s.d[perm[k]];
        }
    }
    ValueId there = low_dtype(g, x) == DT_BOOL
                        ? x
                        : g_unary(g, OP_Not, g_binary(g, OP_Equal, x, g_like(g, x, 0)));
    ValueId mask = g_reshape(g, g_transpose(g, there, perm), &(Shape){1, {n}});
    im->out[0] = low_const(g, DT_I64, (Shape){2, {s.rank, n}}, at);
    mark(st, im->out[0], mask, 1);
    if (perm[0] != 0)
        ragged_shuffle(st, mask);
}

/* ---- rules: where the dim of the operands is in the result ---- */

typedef void Importer(Import *im);
typedef void Rule(ImportState *s, Import *im, Importer *fn);

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

static ValueId any_mask(const ImportState *s, const Import *im)
{
    const Ragged *r = NULL;
    for (uint32_t i = 0; i < im->nin && !r; i++)
        r = ragged_find(s, im->in[i]);
    INSIST(r);
    return r->mask;
}

/* Of what is not finite at 0, neither are the zeros behind the places that are there: ones. */
static bool is_singular(Op op)
{
    return op == OP_Div || op == OP_Reciprocal || op == OP_Log || op == OP_Sqrt || op == OP_Pow;
}

/* Where one operand is packed, all are. */
static ValueId *packed_operands(ImportState *s, const Import *im, Ragged *was)
{
    ValueId *in = arena_array(im->arena, ValueId, im->nin + 1);
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        was->packed |= r && r->packed;
    }
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        in[i] = im->in[i];
        if (!r || !was->packed)
            continue;
        if (!r->packed)
            in[i] = packing(im->g, OP_Pack, in[i], r->mask, r->dim);
        if (is_singular(im->op) && (im->op != OP_Div || i == 1) &&
            dtype_is_float(low_dtype(im->g, in[i])))
            in[i] = only_there(s, r, in[i], 1);
    }
    return in;
}

/* Operands broadcast: dims are counted from behind. */
static void each(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *first = first_ragged(s, im);
    int behind = 0;
    if (!first)
        refuse(im, -1, " of such a size");
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        if (r && r->dim == COUNT)
            refuse(im, (int)i, " of such a size as a number");
        if (r) {
            int here = low_shape(im->g, im->in[i]).rank - r->dim;
            if ((behind && here != behind) || r->mask != first->mask)
                refuse(im, (int)i, " of two such values");
            behind = here;
        }
    }
    for (uint32_t i = 0; i < im->nin; i++) {
        if (im->in[i] == NONE || ragged_find(s, im->in[i]))
            continue;
        Shape x = low_shape(im->g, im->in[i]);
        if (x.rank >= behind && x.d[x.rank - behind] != 1)
            refuse(im, (int)i, " of such a value and one of known size");
    }
    Ragged was = *first;
    Import own = *im;
    own.in = packed_operands(s, im, &was);
    fn(&own);
    was.dim = low_shape(im->g, im->out[0]).rank - behind;
    settle(s, im, 0, was, false);
}

static void expanded(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    if (!r)
        refuse(im, 1, " to such a size");
    Ragged was = *r;
    int behind = low_shape(im->g, im->in[0]).rank - was.dim;
    fn(im);
    was.dim = low_shape(im->g, im->out[0]).rank - behind;
    settle(s, im, 0, was, true);
}

/* The same elements in other dims: the dim is where as many elements are before it. */
static void moved(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    if (!r || r->dim == COUNT)
        refuse(im, 0, " to such a size");
    Ragged was = *r;
    Shape x = low_shape(im->g, im->in[0]);
    int64_t before = 1, prefix = 1, n = bound(im, r);
    for (int d = 0; d < was.dim; d++)
        before *= x.d[d];
    fn(im);
    Shape y = low_shape(im->g, im->out[0]);
    for (int d = 0; d < y.rank; prefix *= y.d[d++])
        if (prefix == before && y.d[d] == n) {
            was.dim = d;
            settle(s, im, 0, was, true);
            return;
        }
    refuse(im, 0, " of such a size, which it merges with another");
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
    settle(s, im, 0, was, true);
}

/* Along another axis: all results keep the dim. */
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
    bool normalises = im->op == OP_LayerNormalization || im->op == OP_RMSNormalization;
    if (normalises ? axis <= was.dim : axis == was.dim)
        refuse(im, 0, " along such a dim");
    for (uint32_t i = 1; i < im->nin; i++)
        if (ragged_find(s, im->in[i]))
            refuse(im, (int)i, " of such a value");
    fn(im);
    bool kept = im->op == OP_Identity || im->op == OP_Split;
    for (uint32_t i = 0; i < im->nout; i++)
        settle(s, im, i, was, kept);
}

/* Along other axes. */
static void sliced(ImportState *s, Import *im, Importer *fn)
{
    Ragged was = operand(s, im);
    Shape x = low_shape(im->g, im->in[0]);
    int64_t *axes = NULL, n = 0, *starts, count;
    for (uint32_t i = 1; i < im->nin; i++)
        if (ragged_find(s, im->in[i]))
            refuse(im, (int)i, " to such a size");
    bool listed = low_ints_either(im, "axes", 3, &axes, &n);
    if (!listed && low_ints_either(im, "starts", 1, &starts, &count))
        n = count;
    for (int64_t i = 0; i < n; i++)
        if ((listed ? low_axis(im, axes[i], x.rank) : (int)i) == was.dim)
            refuse(im, 0, " along such a dim");
    fn(im);
    settle(s, im, 0, was, true);
}

/* Rows of a table by such an index; or of such a value by a known one. */
static void gathered(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *data = ragged_find(s, im->in[0]), *index = ragged_find(s, im->in[1]);
    int axis = low_axis(im, im_int(im, "axis", 0), low_shape(im->g, im->in[0]).rank);
    if (data && data->dim == COUNT) {
        Ragged was = *data;
        int64_t *at, n, all = low_shape(im->g, im->in[0]).d[0];
        bool other =
            was.size != ANY && !index && g_const_ints(im->g, im->in[1], im->arena, &at, &n);
        for (int64_t i = 0; other && i < n; i++)
            other = (at[i] < 0 ? at[i] + all : at[i]) != was.size;
        fn(im);
        if (!other)
            mark(s, im->out[0], was.mask, COUNT);
        return;
    }
    if (!data == !index || (index && index->dim == COUNT) || (data && data->dim == axis))
        refuse(im, data ? 0 : 1, " along such a dim");
    Ragged was = *(data ? data : index);
    int dim = index            ? axis + was.dim
              : was.dim < axis ? was.dim
                               : was.dim + low_shape(im->g, im->in[1]).rank - 1;
    fn(im);
    was.dim = dim;
    settle(s, im, 0, was, data != NULL);
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

/* Rows of the left operand. */
static void multiplied(ImportState *s, Import *im, Importer *fn)
{
    const Ragged *r = ragged_find(s, im->in[0]);
    Shape x = low_shape(im->g, im->in[0]), w = low_shape(im->g, im->in[1]);
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
    settle(s, im, 0, was, rows && im->op == OP_MatMul);
}

/* ---- counts ---- */

static void measured(ImportState *s, Import *im, Importer *fn)
{
    Ragged was = operand(s, im);
    fn(im);
    bool whole = im->op == OP_Shape && !im_has(im, "start") && !im_has(im, "end");
    ragged_mark(s, im->out[0],
                (Ragged){was.mask, COUNT, .size = whole && was.dim != COUNT ? was.dim : ANY});
}

static void counted(ImportState *s, Import *im, Importer *fn)
{
    ValueId mask = any_mask(s, im);
    fn(im);
    for (uint32_t i = 0; i < im->nout; i++) {
        if (im->out[i] != NONE && val(im->g, im->out[i])->kind != V_CONST)
            refuse(im, -1, " of such a size and of data");
        mark(s, im->out[i], mask, COUNT);
    }
}

/* A known value of such a size: the only dim that has it. */
static void filled(ImportState *s, Import *im, Importer *fn)
{
    ValueId mask = any_mask(s, im);
    int64_t n = low_shape(im->g, mask).d[0];
    int dim = -1;
    fn(im);
    Shape y = low_shape(im->g, im->out[0]);
    for (int d = 0; d < y.rank; d++) {
        if (y.d[d] == n && dim >= 0)
            refuse(im, 0, " of such a size in two dims");
        dim = y.d[d] == n ? d : dim;
    }
    if (dim < 0)
        refuse(im, 0, " of a size computed of such a one");
    mark(s, im->out[0], mask, dim);
}

/* ---- scatters ---- */

/* [n, 1, ...] against `rank` dims. */
static ValueId mask_along(const Import *im, ValueId mask, int rank)
{
    Shape s = {.rank = rank};
    for (int d = 0; d < rank; d++)
        s.d[d] = d ? 1 : low_shape(im->g, mask).d[0];
    return g_reshape(im->g, mask, &s);
}

/* The row that each place is scattered to, where it is known and the same in a whole row. */
static const int64_t *known_rows(const Import *im, ValueId index)
{
    const Value *v = val(im->g, index);
    while (v->kind == V_NODE && im->g->node.at[v->node].op == OP_Expand)
        v = val(im->g, im->g->node.at[v->node].in[0]);
    int64_t n = v->shape.d[0], wide = shape_elements(&v->shape) / n;
    if (v->kind != V_CONST)
        return NULL;
    int64_t *row = arena_array(im->arena, int64_t, n);
    for (int64_t i = 0; i < n * wide; i++) {
        row[i / wide] = (int64_t)low_const_at(v, i);
        if (low_const_at(v, i) != low_const_at(v, i / wide * wide))
            return NULL;
    }
    return row;
}

/* Rows 0 0 .. 1 1 .. of a known order, so many times each: how often; else 0. */
static int64_t repeats(const int64_t *row, int64_t n, int64_t rows)
{
    int64_t times = rows > 0 && row && n % rows == 0 ? n / rows : 0;
    for (int64_t i = 0; i < n && times; i++)
        if (row[i] != i / times)
            times = 0;
    return times;
}

/* Each row gets its own places one after the other, as a scatter does: later ones win, or are
 * added. */
static ValueId row_by_row(const Import *im, ValueId mask, int64_t times, bool sum)
{
    Graph *g = im->g;
    ValueId y = im->in[0];
    Shape s = low_shape(g, im->in[2]), apart = s, one = s;
    apart.rank = s.rank + 1;
    memmove(apart.d + 2, s.d + 1, (size_t)(s.rank - 1) * sizeof *s.d);
    apart.d[0] = one.d[0] = s.d[0] / times, apart.d[1] = times;
    Shape flags = {.rank = s.rank};
    for (int d = 0; d < s.rank; d++)
        flags.d[d] = d ? 1 : one.d[0];
    ValueId updates = g_reshape(g, im->in[2], &apart),
            live = g_reshape(g, mask, &(Shape){2, {one.d[0], times}});
    for (int64_t k = 0; k < times; k++) {
        ValueId u = g_reshape(g, g_slice_axis(g, updates, 1, k, 1), &one),
                is = g_reshape(g, g_slice_axis(g, live, 1, k, 1), &flags);
        y = sum ? g_add(g, y, g_where(g, is, u, g_like(g, u, 0))) : g_where(g, is, u, y);
    }
    return y;
}

/* What the mask leaves out goes to a row more, which is dropped. */
static void scattered(ImportState *s, Import *im, Importer *fn)
{
    Graph *g = im->g;
    const Ragged *index = ragged_find(s, im->in[1]), *updates = ragged_find(s, im->in[2]);
    Shape x = low_shape(g, im->in[0]), is = low_shape(g, im->in[1]);
    bool nd = im->op == OP_ScatterND;
    if (ragged_find(s, im->in[0]) || !index || !updates || index->mask != updates->mask ||
        index->dim || updates->dim || x.rank < 1 || x.rank >= MAX_RANK ||
        (!nd && low_axis(im, im_int(im, "axis", 0), x.rank) != 0) || (nd && is.rank != 2))
        refuse(im, 1, " but along the first dim, of indices and updates of one such size,");
    ValueId mask = index->mask, unpacked[3] = {im->in[0], im->in[1], im->in[2]};
    Import places = *im;
    if (index->packed)
        unpacked[1] = packing(g, OP_Unpack, im->in[1], mask, 0);
    if (updates->packed)
        unpacked[2] = packing(g, OP_Unpack, im->in[2], mask, 0);
    places.in = unpacked;
    im = &places;
    const char *how = im_str(im, "reduction", "none");
    bool whole_rows = !nd && low_shape(g, im->in[2]).rank > 0;
    for (int d = 1; d < x.rank && whole_rows; d++)
        whole_rows = low_shape(g, im->in[2]).d[d] == x.d[d];
    int64_t times = whole_rows ? repeats(known_rows(im, im->in[1]), is.d[0], x.d[0]) : 0;
    if (times > 0 && times <= 64 && (!strcmp(how, "none") || !strcmp(how, "add"))) {
        im->out[0] = row_by_row(im, mask, times, !strcmp(how, "add"));
        return;
    }
    int64_t zeros[MAX_RANK] = {0}, one[MAX_RANK] = {1};
    ValueId i = im->in[1], rows = g_like(g, i, (double)x.d[0]),
            first =
                nd ? g_binary(g, OP_Equal, g_iota(g, DT_I64, 2, 1, is.d[1]), g_scalar(g, DT_I64, 0))
                   : NONE,
            negative = g_binary(g, OP_Less, i, g_like(g, i, 0)),
            dead = g_unary(g, OP_Not, mask_along(im, mask, is.rank));
    if (nd)
        negative = g_binary(g, OP_And, negative, first), dead = g_binary(g, OP_And, dead, first);
    i = g_where(g, negative, g_add(g, i, rows), i);
    ValueId in[3] = {g_pad(g, im->in[0], zeros, one, PAD_CONSTANT, 0), g_where(g, dead, rows, i),
                     im->in[2]};
    Import own = *im;
    own.in = in;
    fn(&own);
    im->out[0] = g_slice_axis(g, im->out[0], 0, 0, x.d[0]);
}

/* ---- the table ---- */

static Rule *rule_of(const Import *im, bool count)
{
    Op op = im->op;
    if (op_is_map(op) && !count)
        return each;
    switch (op) {
    case OP_Shape:
    case OP_Size: return measured;
    case OP_Gather: return gathered;
    case OP_ConstantOfShape:
    case OP_Range: return filled;
    case OP_Reshape:
    case OP_Flatten: return count ? counted : moved;
    case OP_Squeeze:
    case OP_Unsqueeze: return count ? counted : moved;
    case OP_Expand: return count ? NULL : expanded;
    case OP_Transpose: return count ? NULL : transposed;
    case OP_Identity:
    case OP_Split:
    case OP_Softmax:
    case OP_LogSoftmax:
    case OP_LayerNormalization:
    case OP_RMSNormalization: return count ? NULL : beside;
    case OP_MatMul:
    case OP_Gemm: return multiplied;
    case OP_Scatter:
    case OP_ScatterElements:
    case OP_ScatterND: return scattered;
    case OP_Cast:
    case OP_Add:
    case OP_Sub:
    case OP_Mul:
    case OP_Div:
    case OP_Equal:
    case OP_Where:
    case OP_Concat: return counted;
    case OP_Slice: return count ? counted : sliced;
    case OP_Gelu:
    case OP_Mish:
    case OP_Swish:
    case OP_HardSwish:
    case OP_HardSigmoid:
    case OP_LeakyRelu:
    case OP_Elu:
    case OP_Clip:
    case OP_Sum: return count ? NULL : each;
    default: return NULL;
    }
}

void ragged_import(ImportState *s, Import *im, void (*fn)(Import *))
{
    bool any = false, values = false;
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        any = any || r;
        values = values || (r && r->dim != COUNT);
    }
    if (im->op == OP_NonZero && !any && im->in[0] != NONE &&
        val(im->g, im->in[0])->kind != V_CONST) {
        non_zero(s, im);
        return;
    }
    Rule *rule = any ? rule_of(im, !values) : NULL;
    if (any && !rule)
        refuse(im, -1, " of such a value is not supported");
    if (rule) {
        rule(s, im, fn);
        return;
    }
    fn(im);
    for (uint32_t i = 0; i < im->nout && im->sized; i++)
        if (im->sized[i].mask != NONE)
            settle(s, im, i,
                   (Ragged){im->sized[i].mask, im->sized[i].dim, im->sized[i].packed, ANY}, true);
}

/* ---- outputs ---- */

ValueId ragged_output(ImportState *s, ValueId *v, Where w)
{
    Graph *g = s->g;
    const Ragged *r = ragged_find(s, *v);
    if (!r)
        return NONE;
    if (r->dim == COUNT)
        diag_fatal(EXIT_MODEL, w, "it is a size that depends on the data");
    if (ragged_shuffled(s, r->mask))
        diag_fatal(EXIT_MODEL, w,
                   "its size depends on the data, and its places have another order here");
    if (!r->packed)
        *v = packing(g, OP_Pack, *v, r->mask, r->dim);
    int64_t along = 0;
    ValueId count = g_reduce(g, OP_ReduceSum, g_cast(g, r->mask, DT_I64), 1, &along);
    return g_reshape(g, count, &(Shape){0});
}
