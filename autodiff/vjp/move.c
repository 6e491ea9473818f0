/*
 * move.c - VJP rules of what moves data: the transpose of a selection is a placement.  A piece
 * placed in zeros is a Pad; indices known only when the program runs become a Scatter with
 * addition.
 */
#include "vjp.h"

/* The same elements: dx = dy */
void vjp_identity(Vjp *v) { v->din[0] = v->dy[0]; }

/* dx = dy in x's shape */
void vjp_reshape(Vjp *v)
{
    Shape s = *vjp_shape(v, v->in[0]);
    v->din[0] = g_reshape(v->g, v->dy[0], &s);
}

/* dW of y = x W^T, made as one product: (a b)^T = b^T a^T, and a is a transpose itself. */
static ValueId product_transposed(Graph *g, ValueId dy)
{
    const Node *p = graph_made_by(g, dy, OP_MatMul),
               *a = p ? graph_made_by(g, p->in[0], OP_Transpose) : NULL;
    if (!a || val(g, dy)->shape.rank != 2 || val(g, p->in[0])->shape.rank != 2)
        return NONE;
    const ValueId base = a->in[0];
    const uint32_t origin = g->cur_origin;
    g->cur_origin = p->origin; /* it is the product's, not the transpose's */
    const ValueId dw = g_matmul(g, g_swap_last(g, p->in[1]), base);
    g->cur_origin = origin;
    return dw;
}

/* y[i] = x[perm i]: dx = dy under the inverse permutation.  A weight kept as [out, in] gets its
   gradient straight from one product. */
void vjp_transpose(Vjp *v)
{
    Graph *g = v->g;
    const Attr at = vjp_node(v)->attr;
    if (val(g, v->in[0])->kind == V_PARAM && at.n == 2 && at.perm[0] == 1) {
        v->din[0] = product_transposed(g, v->dy[0]);
        if (v->din[0] != NONE)
            return;
    }
    int64_t inverse[MAX_RANK];
    for (int i = 0; i < at.n; i++)
        inverse[at.perm[i]] = i;
    v->din[0] = g_transpose(g, v->dy[0], inverse);
}

/* y repeats x along dimensions of length 1: dx = dy summed over them */
void vjp_expand(Vjp *v) { vjp_give(v, 0, v->dy[0]); }

/* d along axis with step-1 zeros between its elements: [n] -> [n,1] -> pad -> [n,step] -> [n*step],
 * the tail cut off */
static ValueId interleave(Graph *g, ValueId d, int axis, int64_t step)
{
    Shape s = val(g, d)->shape;
    int64_t n = s.d[axis];
    const Shape wide = shape_with(&s, axis + 1, 1);
    ValueId padded = vjp_place(g, g_reshape(g, d, &wide), axis + 1, 0, step);
    s.d[axis] = n * step;
    return g_slice_axis(g, g_reshape(g, padded, &s), axis, 0, (n - 1) * step + 1);
}

/* y[i] = x[start + step i]: dx = dy with zeros between and around; a negative step turns dy round
 * first */
void vjp_slice(Vjp *v)
{
    Graph *g = v->g;
    const Attr at = vjp_node(v)->attr;
    Shape whole = *vjp_shape(v, v->in[0]), s = *vjp_shape(v, v->dy[0]);
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK], begin[MAX_RANK], end[MAX_RANK];
    bool turn = false;
    for (int i = 0; i < at.n; i++) {
        if (s.d[i] == 0)
            return;
        step[i] = at.step[i] < 0 ? -1 : 1;
        start[i] = at.step[i] < 0 ? s.d[i] - 1 : 0;
        turn |= at.step[i] < 0;
    }
    ValueId d = turn ? g_slice(g, v->dy[0], start, s.d, step) : v->dy[0];
    for (int i = 0; i < at.n; i++) {
        int64_t by = at.step[i] < 0 ? -at.step[i] : at.step[i];
        begin[i] = at.step[i] < 0 ? at.start[i] + at.step[i] * (s.d[i] - 1) : at.start[i];
        if (by > 1 && s.d[i] > 1)
            d = interleave(g, d, i, by);
        end[i] = whole.d[i] - begin[i] - val(g, d)->shape.d[i];
    }
    v->din[0] = g_pad(g, d, begin, end, PAD_CONSTANT, 0);
}

/* y0 .. yn are consecutive pieces of x: dx = their gradients in a row, zeros where one has none */
void vjp_split(Vjp *v)
{
    Graph *g = v->g;
    const Attr at = vjp_node(v)->attr;
    int axis = (int)at.axis;
    uint32_t nout = vjp_node(v)->nout, n = 0;
    ValueId *piece = arena_array(g->arena, ValueId, nout);
    int64_t lead = 0;
    for (uint32_t i = 0; i < nout; i++) {
        int64_t size = at.sizes[i];
        if (v->dy[i] == NONE) {
            lead += size;
            continue;
        }
        /* zeros that follow go with this piece */
        int64_t gap = 0;
        for (uint32_t j = i + 1; j < nout && v->dy[j] == NONE; j++)
            gap += at.sizes[j];
        piece[n] =
            vjp_place(g, v->dy[i], axis, n == 0 ? lead : 0, (n == 0 ? lead : 0) + size + gap);
        n++;
    }
    v->din[0] = n == 1 ? piece[0] : g_concat(g, n, piece, axis);
}

/* y is x0 .. xn in a row: each dx is its slice of dy */
void vjp_concat(Vjp *v)
{
    int axis = (int)vjp_node(v)->attr.axis;
    uint32_t n = vjp_node(v)->nin;
    int64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t size = vjp_shape(v, v->in[i])->d[axis];
        if (v->want[i] && size > 0)
            v->din[i] = g_slice_axis(v->g, v->dy[0], axis, at, size);
        at += size;
    }
}

/* Where position p of a padded axis reads from: x has n elements, the first stands at `begin`. */
static int64_t pad_source(int mode, int64_t p, int64_t begin, int64_t n)
{
    int64_t i = p - begin;
    if (mode == PAD_EDGE)
        return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (mode == PAD_WRAP)
        return ((i % n) + n) % n;
    if (n == 1)
        return 0;
    int64_t period = 2 * (n - 1);
    i = ((i % period) + period) % period;
    return i < n ? i : period - i;
}

/* One axis undone: the padded axis is cut into runs that read x forwards, backwards or one element
   again and again; dx is the sum of the runs of dy, each turned, or summed, and put where it read
   from. */
static ValueId unpad_axis(Graph *g, ValueId dy, int axis, int mode, int64_t begin, int64_t n)
{
    Shape s = val(g, dy)->shape;
    int64_t extent = s.d[axis];
    ValueId sum = n > 0 ? g_slice_axis(g, dy, axis, begin, n) : NONE;
    for (int64_t p = 0; p < extent && sum != NONE;) {
        if (p == begin) {
            p += n;
            continue;
        }
        int64_t limit = p < begin ? begin : extent, first = pad_source(mode, p, begin, n),
                q = p + 1;
        int64_t by = q < limit ? pad_source(mode, q, begin, n) - first : 1;
        if (by < -1 || by > 1)
            by = 1;
        while (q < limit && pad_source(mode, q, begin, n) == first + by * (q - p))
            q++;
        ValueId run = g_slice_axis(g, dy, axis, p, q - p);
        int64_t to = by < 0 ? first - (q - p - 1) : first;
        if (by < 0)
            run = g_flip(g, run, axis);
        else if (by == 0)
            run = g_reduce(g, OP_ReduceSum, run, 1, (int64_t[]){axis});
        sum = g_add(g, sum, vjp_place(g, run, axis, to, n));
        p = q;
    }
    return sum;
}

/* constant: dx = the inner slice of dy; reflect, edge, wrap: what was read several times is summed,
 * axis by axis */
void vjp_pad(Vjp *v)
{
    Graph *g = v->g;
    const Attr at = vjp_node(v)->attr;
    Shape s = *vjp_shape(v, v->in[0]);
    ValueId d = v->dy[0];
    if (at.mode == PAD_CONSTANT) {
        v->din[0] = g_slice(g, d, at.begin, s.d, NULL);
        return;
    }
    for (int i = 0; i < at.n && d != NONE; i++)
        if (at.begin[i] > 0 || at.end[i] > 0)
            d = unpad_axis(g, d, i, at.mode, at.begin[i], s.d[i]);
    v->din[0] = d;
}

/* ---- gathers and scatters -------------------------------------------------------------------- */

static ValueId add_dim(Graph *g, ValueId x, int at)
{
    const Shape s = shape_with(&val(g, x)->shape, at, 1);
    return g_reshape(g, x, &s);
}

/* Constant indices k, k+1, ..: the gather is a slice. */
static bool consecutive(const Vjp *v, ValueId index, int64_t extent, int64_t *first, int64_t *count)
{
    int64_t *at, n;
    if (!g_const_ints(v->g, index, v->g->arena, &at, &n) || n == 0)
        return false;
    *first = at[0] < 0 ? at[0] + extent : at[0];
    *count = n;
    for (int64_t i = 1; i < n; i++)
        if ((at[i] < 0 ? at[i] + extent : at[i]) != *first + i)
            return false;
    return true;
}

/* y[.., i.., ..] = x[.., index[i..], ..]: dx = dy added into zeros at the indices (an embedding's
   gradient).  The indexed axis is brought to the front, where ScatterND takes whole rows.  The
   padding row of an embedding gets none of it. */
static ValueId without_padding(const Vjp *v, ValueId dy, ValueId index, int64_t row)
{
    Graph *g = v->g;
    Shape s = *vjp_shape(v, index);
    for (int rank = vjp_shape(v, dy)->rank; s.rank < rank;)
        s.d[s.rank++] = 1;
    int64_t rows = vjp_shape(v, v->in[0])->d[0];
    index = vjp_wrap_index(g, index, g_scalar(g, DT_I64, (double)rows));
    ValueId is = g_binary(g, OP_Equal, index, g_like(g, index, (double)row));
    return g_where(g, g_reshape(g, is, &s), g_like(g, dy, 0), dy);
}

void vjp_gather(Vjp *v)
{
    Graph *g = v->g;
    int axis = (int)vjp_node(v)->attr.axis;
    ValueId x = v->in[0], index = v->in[1], dy = v->dy[0];
    Shape s = *vjp_shape(v, x), is = *vjp_shape(v, index);
    int64_t first, count, padding = vjp_node(v)->attr.padding_row - 1;
    if (padding >= 0)
        dy = without_padding(v, dy, index, padding);
    if (consecutive(v, index, s.d[axis], &first, &count)) {
        Shape rows = s;
        rows.d[axis] = count;
        v->din[0] = vjp_place(g, g_reshape(g, dy, &rows), axis, first, s.d[axis]);
        return;
    }
    index = add_dim(g, vjp_wrap_index(g, index, g_scalar(g, DT_I64, (double)s.d[axis])), is.rank);
    if (axis == 0) {
        v->din[0] = vjp_scatter_into(g, OP_ScatterND, vjp_zeros_for(g, x, dy), index, dy, 0,
                                     SCATTER_ADD);
        return;
    }
    int64_t front[MAX_RANK], back[MAX_RANK];
    for (int i = 0; i < is.rank; i++)
        front[i] = axis + i;
    for (int i = 0; i < axis; i++)
        front[is.rank + i] = i;
    for (int i = axis + is.rank; i < s.rank - 1 + is.rank; i++)
        front[i] = i;
    Shape t = s;
    t.d[0] = s.d[axis];
    for (int i = 0; i < axis; i++)
        t.d[i + 1] = s.d[i];
    int batch = val(g, x)->batch;
    batch = batch >= 0 && batch < axis ? batch + 1 : batch == axis ? 0 : batch;
    ValueId zeros = vjp_zeros(g, val(g, dy)->dtype, &t, batch);
    ValueId d = vjp_scatter_into(g, OP_ScatterND, zeros, index, g_transpose(g, dy, front), 0,
                                 SCATTER_ADD);
    for (int i = 0; i < s.rank; i++)
        back[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    v->din[0] = g_transpose(g, d, back);
}

/* y[..i..] = x[..index[..i..]..]: dx = dy added into zeros at the indices */
void vjp_gather_elements(Vjp *v)
{
    Graph *g = v->g;
    int64_t axis = vjp_node(v)->attr.axis;
    ValueId index =
        vjp_wrap_index(g, v->in[1], g_scalar(g, DT_I64, (double)vjp_shape(v, v->in[0])->d[axis]));
    v->din[0] = vjp_scatter_into(g, OP_ScatterElements, vjp_zeros_for(g, v->in[0], v->dy[0]), index,
                                 v->dy[0], axis, SCATTER_ADD);
}

/* The tuples of a GatherND or ScatterND, each number counted from the front. */
static ValueId wrap_tuples(Graph *g, ValueId index, const Shape *s, int skip)
{
    Shape is = val(g, index)->shape;
    int64_t q = is.d[is.rank - 1], dim[1] = {q};
    return vjp_wrap_index(g, index, g_ints(g, 1, dim, s->d + skip));
}

/* y[b.., i..] = x[b.., index[b.., i..]]: dx = dy added into zeros; the batch dims become part of
 * the tuples */
void vjp_gather_nd(Vjp *v)
{
    Graph *g = v->g;
    int nbatch = (int)vjp_node(v)->attr.batch_dims;
    ValueId x = v->in[0], index = v->in[1];
    Shape s = *vjp_shape(v, x), is = *vjp_shape(v, index);
    index = wrap_tuples(g, index, &s, nbatch);
    if (nbatch > 0) {
        ValueId part[MAX_RANK + 1];
        Shape one = is;
        one.d[is.rank - 1] = 1;
        for (int i = 0; i < nbatch; i++) {
            ValueId at = vjp_iota_batch(g, is.rank, i, is.d[i], val(g, x)->batch == i ? i : -1);
            part[i] = g_expand(g, g_cast(g, at, val(g, index)->dtype), &one);
        }
        part[nbatch] = index;
        index = g_concat(g, (uint32_t)nbatch + 1, part, is.rank - 1);
    }
    ValueId zeros = vjp_zeros_for(g, x, v->dy[0]);
    v->din[0] = vjp_scatter_into(g, OP_ScatterND, zeros, index, v->dy[0], 0, SCATTER_ADD);
}

/* What a scatter and its gather share, for both families. */
typedef struct { Graph *g; Op scatter, gather; int64_t axis; ValueId data, index, upd, y, dy; } Sc;

static ValueId sc_gather(const Sc *s, ValueId x)
{
    return graph_node(s->g, s->gather, 2, (ValueId[]){x, s->index}, (Attr){.axis = s->axis});
}
static ValueId sc_scatter(const Sc *s, ValueId into, ValueId upd, int mode)
{
    return vjp_scatter_into(s->g, s->scatter, into, s->index, upd, s->axis, mode);
}

/* y = the largest (smallest) of data and its updates: those that equal y share dy evenly */
static void scatter_extremum(Vjp *v, const Sc *s)
{
    Graph *g = s->g;
    Dtype t = val(g, s->dy)->dtype;
    ValueId hit_data = g_binary(g, OP_Equal, s->data, s->y);
    ValueId hit_upd = g_binary(g, OP_Equal, s->upd, sc_gather(s, s->y));
    ValueId hits = sc_scatter(s, g_cast(g, hit_data, t), g_cast(g, hit_upd, t), SCATTER_ADD);
    ValueId share = g_div(g, s->dy, hits);
    if (v->want[0])
        v->din[0] = g_where(g, hit_data, share, g_like(g, share, 0));
    if (v->want[2])
        v->din[2] = g_where(g, hit_upd, sc_gather(s, share), g_like(g, share, 0));
}

/* y = data * updates: each factor's gradient is dy times the product of the others, right where one
 * factor is zero */
static void scatter_product(Vjp *v, const Sc *s)
{
    Graph *g = s->g;
    Dtype t = val(g, s->dy)->dtype;
    ValueId one = g_like(g, s->dy, 1), zero = g_like(g, s->dy, 0);
    ValueId data0 = g_binary(g, OP_Equal, s->data, zero),
            upd0 = g_binary(g, OP_Equal, s->upd, zero);
    ValueId data1 = g_where(g, data0, one, s->data), upd1 = g_where(g, upd0, one, s->upd);
    /* the product of what is not zero */
    ValueId rest = sc_scatter(s, data1, upd1, SCATTER_MUL);
    ValueId zeros = sc_scatter(s, g_cast(g, data0, t), g_cast(g, upd0, t), SCATTER_ADD);
    ValueId none = g_where(g, g_binary(g, OP_Equal, zeros, zero), g_mul(g, s->dy, rest), zero);
    ValueId single = g_where(g, g_binary(g, OP_Equal, zeros, one), g_mul(g, s->dy, rest), zero);
    if (v->want[0])
        v->din[0] = g_where(g, data0, single, g_div(g, none, data1));
    if (v->want[2])
        v->din[2] = g_where(g, upd0, sc_gather(s, single), g_div(g, sc_gather(s, none), upd1));
}

/* none: ddata = dy with zeros at the indices, dupd = dy there; add: ddata = dy, dupd = dy there */
void vjp_scatter(Vjp *v)
{
    const Node n = *vjp_node(v);
    const bool nd = n.op == OP_ScatterND;
    const int mode = n.attr.reduction;
    const Sc s = {.g = v->g,
                  .scatter = n.op,
                  .gather = nd ? OP_GatherND : OP_GatherElements,
                  .axis = nd ? 0 : n.attr.axis,
                  .data = v->in[0],
                  .index = v->in[1],
                  .upd = v->in[2],
                  .y = v->out[0],
                  .dy = v->dy[0]};
    if (mode == SCATTER_MAX || mode == SCATTER_MIN) {
        scatter_extremum(v, &s);
        return;
    }
    if (mode == SCATTER_MUL) {
        scatter_product(v, &s);
        return;
    }
    if (v->want[0] && mode == SCATTER_ADD)
        v->din[0] = s.dy;
    else if (v->want[0])
        v->din[0] = sc_scatter(&s, s.dy, vjp_zeros_like(s.g, s.upd), SCATTER_NONE);
    if (v->want[2])
        v->din[2] = sc_gather(&s, s.dy);
}

/* Pack and Unpack: each is the transpose of the other. */
void vjp_pack(Vjp *v)
{
    const Node *n = vjp_node(v);
    const ValueId in[2] = {v->dy[0], v->in[1]};
    v->din[0] = graph_node(v->g, n->op == OP_Pack ? OP_Unpack : OP_Pack, 2, in,
                           (Attr){.axis = n->attr.axis});
}
