/*
 * spread_products.c - products, convolutions and pools along an axis: ways_f and build_f of
 * ops.def.
 *
 * Columns of the right factor are columns of the product, rows of the left one its rows; over a
 * divided depth each chunk has a partial sum (Megatron's column and row parallel layers).  Products
 * of halves are partial in f32, before they are rounded.
 */
#include "spread_rules.h"

static void keep(Ways *w, Place a, Place b, Place y)
{
    w->at[0] = a;
    w->at[1] = b;
    w->at[w->n->nin] = y;
    ways_keep(w);
}

static const char compared[] =
    "it compares every sample with every sample, as a contrastive head does";
static const char along_rows[] = "it convolves along the batch";

/* Linear in each of the two operands. */
static void partial(Ways *w, uint32_t slot)
{
    keep(w, slot == 0 ? place_p() : place_r(), slot == 1 ? place_p() : place_r(), place_p());
}

/* ---- matrices ---- */

/* Which of a product's dimensions a slot's is. */
typedef enum { MATRICES, ROWS, COLUMNS, DEPTH } Role;

static Role role_of(const Ways *w, uint32_t slot, int dim)
{
    int back = ways_shape(w, slot)->rank - dim; /* 1: the last one */
    if (back > 2)
        return MATRICES;
    if (slot == 0)
        return back == 2 ? ROWS : DEPTH;
    if (slot == 1)
        return back == 2 ? DEPTH : COLUMNS;
    return back == 2 ? ROWS : COLUMNS;
}

static void matrix_product(Ways *w, uint32_t slot, Place at)
{
    int a = ways_shape(w, 0)->rank, b = ways_shape(w, 1)->rank, y = ways_shape(w, w->n->nin)->rank;
    int64_t g = at.groups;
    Role role = role_of(w, slot, at.dim);
    w->way.crossed = role == MATRICES ? NULL : compared;
    w->way.lacks =
        role == DEPTH ? "it multiplies along the batch with numbers of fixed size" : NULL;
    switch (role) {
    case MATRICES: ways_aligned(w, slot, at); break;
    case ROWS: keep(w, place_s(a - 2, g), place_r(), place_s(y - 2, g)); break;
    case COLUMNS: keep(w, place_r(), place_s(b - 1, g), place_s(y - 1, g)); break;
    case DEPTH: keep(w, place_s(a - 1, g), place_s(b - 2, g), place_p()); break;
    }
}

void ways_matmul(Ways *w, uint32_t slot, Place at)
{
    if (at.dim >= 0)
        matrix_product(w, slot, at);
    else
        partial(w, slot);
}

/* What is packed, rows or depth, is packed as a whole, or as a chunk's own. */
void ways_packed_matmul(Ways *w, uint32_t slot, Place at)
{
    Role packed = w->n->attr.axis == 0 ? ROWS : DEPTH;
    int several = ways_shape(w, 2)->rank - 1;
    if (several && at.dim == 0)
        ways_all(w, at);
    else if (slot == 2)
        return;
    else if (at.dim < 0)
        partial(w, slot);
    else if (role_of(w, slot, at.dim) != packed)
        matrix_product(w, slot, at);
    else if (w->of->alone) {
        w->at[2] = place_s(several, at.groups);
        matrix_product(w, slot, at);
    }
}

static Attr product_attr(const Spread *s)
{
    Attr t = spread_of(s)->attr;
    bool half = dtype_is_half(val(s->whole, spread_of(s)->in[0])->dtype);
    if (half && s->way->out[0].dim == PLACE_P)
        t.to = DT_F32;
    return t;
}

void build_product(const Spread *s) { spread_same(s, product_attr(s)); }

/* Pack, Unpack, PackedMatMul: of several, where a chunk has one, that one. */
void build_packed(const Spread *s)
{
    const Node *n = spread_of(s);
    const Shape *mask = &val(s->g, s->in[n->nin - 1])->shape;
    const bool product = n->op == OP_PackedMatMul;
    Attr t = product ? product_attr(s) : n->attr;
    Spread one = *s;
    ValueId in[3];
    if (mask->rank == 1 || mask->d[0] != 1) {
        spread_same(s, t);
        return;
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        const Shape x = shape_without(&val(s->g, s->in[i])->shape, 0);
        in[i] = g_reshape(s->g, s->in[i], &x);
    }
    t.axis -= !product;
    one.in = in;
    spread_same(&one, t);
    const Shape y = shape_with(&val(s->g, s->out[0])->shape, 0, 1);
    s->out[0] = g_reshape(s->g, s->out[0], &y);
}

/* ---- convolutions ---- */

/*
 * Channels of group convolutions: x has `inputs` of them in dimension 1, y `outputs`; group i of x
 * meets the weights of group i alone.  Parts of every group's channels are parts of the channels in
 * a multiple of `group` groups; whole groups are divided where their number is.
 */
static bool are_whole(const Ways *w, int64_t groups)
{
    return w->n->attr.group % (groups * w->of->chunks) == 0;
}

static bool are_parts(const Ways *w, int64_t groups) { return groups % w->n->attr.group == 0; }

static Place in_each(const Ways *w, int dim, int64_t groups)
{
    return place_s(dim, groups / w->n->attr.group);
}

/* Of channels of the operand, of the result, both counted over all groups.  Convolutions of halves
   are rounded: their sums are not partial ones. */
static void inputs(Ways *w, int64_t g, bool first)
{
    if (are_parts(w, g) && !dtype_is_half(val(w->of->g, w->n->in[0])->dtype))
        keep(w, place_s(1, g), first ? place_s(0, g) : in_each(w, 1, g), place_p());
}

static void outputs(Ways *w, int64_t g, bool first)
{
    if (are_parts(w, g))
        keep(w, place_r(), first ? place_s(0, g) : in_each(w, 1, g), place_s(1, g));
}

static void groups(Ways *w, int64_t g)
{
    if (are_whole(w, g))
        keep(w, place_s(1, g), place_s(0, g), place_s(1, g));
}

/* Samples as groups: the channels of all of them in dimension 1, the weights' first dimension is
   each one's own filters. */
static void samples(Ways *w, Place x, Place weights, Place y)
{
    if (w->n->attr.group == 1)
        return;
    ways_refuse(w, "its groups are no multiple of the rows", NONE);
    w->way.sized = "its groups are the samples, and their number is fixed";
    if (x.groups == 1 && are_whole(w, 1))
        keep(w, x, weights, y);
}

/* Which channels the weights' dimension 0 is of, 1 of a group: of a Conv outputs and inputs. */
static void convolution(Ways *w, uint32_t slot, Place at, bool transposed)
{
    int64_t g = at.groups;
    bool weights = slot == 1, last = weights && at.dim == 1;
    ways_refuse(w, along_rows, NONE);
    if (at.dim < 0) {
        partial(w, slot);
    } else if (!weights && at.dim == 0) {
        w->way.crossed = along_rows;
        keep(w, at, place_r(), at);
    } else if (w->of->alone) {
        if (at.dim <= 1 && !last)
            samples(w, place_s(1, g), place_s(0, g), place_s(1, g));
    } else if (at.dim <= 1) {
        int64_t all = last ? g * w->n->attr.group : g;
        if (slot == 0 || (weights && last != transposed))
            inputs(w, all, transposed);
        if (slot == 2 || (weights && last == transposed))
            outputs(w, all, !transposed);
        if (!last)
            groups(w, g);
    }
}

void ways_conv(Ways *w, uint32_t slot, Place at) { convolution(w, slot, at, false); }
void ways_conv_transpose(Ways *w, uint32_t slot, Place at) { convolution(w, slot, at, true); }

/* x, dy -> dw [outputs, inputs of a group, ..]: a sum over the samples. */
void ways_conv_weight(Ways *w, uint32_t slot, Place at)
{
    int64_t g = at.groups, all = slot == 2 && at.dim == 1 ? g * w->n->attr.group : g;
    bool of_x = slot == 0 ? at.dim == 1 : slot == 2 && at.dim == 1,
         of_y = slot == 1 ? at.dim == 1 : slot == 2 && at.dim == 0;
    ways_refuse(w, along_rows, NONE);
    if (at.dim < 0)
        partial(w, slot);
    else if (slot < 2 && at.dim == 0)
        keep(w, at, at, place_p());
    else if (w->of->alone && at.dim == 1 && slot < 2)
        samples(w, at, at, place_s(0, at.groups));
    if (w->of->alone)
        return;
    if (of_x && are_parts(w, all))
        keep(w, place_s(1, all), place_r(), in_each(w, 1, all));
    if (of_y && are_parts(w, g))
        keep(w, place_r(), place_s(1, g), place_s(0, g));
    if ((of_y || slot == 0) && at.dim >= 0 && are_whole(w, g))
        keep(w, place_s(1, g), place_s(1, g), place_s(0, g));
}

/* Groups that are divided are fewer in a chunk, and so are the weights that a node makes. */
void build_conv(const Spread *s)
{
    Attr t = spread_of(s)->attr;
    const SpreadWay *way = s->way;
    Shape y = spread_result(s, 0);
    if (way->in[0].dim >= 0 && way->in[1].dim >= 0 && way->out[0].dim >= 0)
        t.group /= s->chunks;
    if (spread_of(s)->op == OP_ConvWeightGrad)
        t.weight_dims = y.d;
    spread_same(s, t);
}

/* ---- pools ---- */

void ways_pool(Ways *w, uint32_t slot, Place at)
{
    (void)slot;
    if (at.dim <= 1)
        ways_all(w, at);
    else
        ways_refuse(w, along_rows, NONE);
}

void ways_max_pool(Ways *w, uint32_t slot, Place at)
{
    if (at.groups != 1)
        ways_refuse(w, ways_inner, NONE);
    else if (at.dim >= 0 && ways_is_even(w, slot, at))
        ways_pool(w, slot, at);
}

/* Suppress: a sample's boxes are compared among themselves. */
void ways_samples(Ways *w, uint32_t slot, Place at)
{
    if (at.dim == 0)
        ways_all(w, at);
    else if (at.dim > 0)
        ways_choose(w, slot, at, "it chooses among the rows", NONE);
}

/* An operation of the user's own: samples by themselves, where its row says so.  A gradient of what
   has none is a sum over them.  On the mesh operands are whole. */
void ways_custom(Ways *w, uint32_t slot, Place at)
{
    const CustomAttr *c = w->n->attr.custom;
    bool gradient = !c->gradient && c->of, is_sum = slot >= w->n->nin && gradient && !c->rows[slot];
    if (w->of->alone && at.dim >= 0 && !c->rows[slot])
        ways_refuse(w, "the table of --ops names no samples there (rows = ...)", NONE);
    if (!w->of->alone || at.groups != 1 ||
        (is_sum ? at.dim != PLACE_P : at.dim != 0 || !c->rows[slot]))
        return;
    for (uint32_t i = 0; i < ways_slots(w); i++)
        w->at[i] = c->rows[i] ? place_s(0, 1) : i >= w->n->nin && gradient ? place_p() : place_r();
    ways_keep(w);
}

/* The dimension of a slot that holds samples; -1: none */
static int samples_at(const Node *n, uint32_t slot)
{
    const Recurrence *r = n->attr.recurrence;
    const uint32_t out = slot - n->nin;
    const bool sequence = slot < n->nin ? recurrence_is_sequence(r, slot) : out >= r->states;
    return r->rows[slot] < 0 ? -1 : r->rows[slot] + sequence;
}

/* By samples, which its body keeps apart, and not along its steps; on the mesh it is whole. */
void ways_recurrence(Ways *w, uint32_t slot, Place at)
{
    if (!w->of->alone || at.dim < 0)
        return;
    if (at.groups != 1) {
        ways_refuse(w, ways_inner, NONE);
        return;
    }
    if (at.dim != samples_at(w->n, slot)) {
        ways_refuse(w, "each step depends on the one before", slot < w->n->nin ? slot : NONE);
        return;
    }
    for (uint32_t i = 0; i < ways_slots(w); i++) {
        const int dim = samples_at(w->n, i);
        w->at[i] = dim >= 0 ? place_s(dim, 1) : i < w->n->nin ? place_r() : place_p();
    }
    ways_keep(w);
}

/* Places in the chunk as places in the whole: behind the places of the chunks before it, and, by
   channels, of all other channels of the samples before. */
static ValueId whole_places(const Spread *s, ValueId at)
{
    Graph *g = s->g;
    int dim = s->way->in[0].dim;
    Shape x = place_shape(spread_whole(s, 0), s->way->in[0], s->chunks);
    const int64_t each = shape_between(&x, dim, x.rank);
    ValueId size = g_scalar(g, DT_I64, (double)each), before = g_mul(g, s->number, size);
    if (dim == 1) {
        ValueId others = g_scalar(g, DT_I64, (double)(each * (s->chunks - 1)));
        before = g_add(g, before, g_mul(g, g_div(g, at, size), others));
    }
    return g_add(g, at, before);
}

void build_max_pool(const Spread *s)
{
    spread_same(s, spread_of(s)->attr);
    s->out[1] = whole_places(s, s->out[1]);
}
