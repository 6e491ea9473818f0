/*
 * spread_lookup.c - lookups and scatters along an axis: ways_f and build_f of ops.def.
 *
 * A table that is divided by its rows: a chunk looks up what it holds and has zeros for the rest,
 * so that the sum of the chunks has one term that counts (Megatron's vocabulary-parallel
 * embedding).
 */
#include "spread_rules.h"

/* operand 0, index and result; of a place R or P they are all that it asks for */
static void keep(Ways *w, Place data, Place index, Place y)
{
    w->at[0] = data;
    w->at[1] = index;
    w->at[w->n->nin] = y;
    if (index.dim == PLACE_R && !ways_single(w))
        w->way.crossed = ways_named;
    ways_keep(w);
}

static const char by_number[] = "it picks rows by number";

/* How the index is divided if its entry `comp` names places in dimension dim of the data that are
   the chunk's own, of chunks that are alone; R: it does not. */
static Place names_own(const Ways *w, int comp, Place at)
{
    int64_t chunks = w->of->chunks, size = ways_shape(w, 0)->d[at.dim];
    bool may = w->of->alone && chunks > 1 && at.groups == 1 && size % chunks == 0;
    return may ? index_own(w->of->g, chunks, ways_value(w, 1), comp, size / chunks) : place_r();
}

/* Rows of the data by such numbers; in the result the index's dimensions follow `before` others. */
static void own(Ways *w, Place data, Place index, int before)
{
    w->way.lacks = by_number;
    if (index.dim >= 0)
        keep(w, data, index, place_s(before + index.dim, index.groups));
}

/* GatherElements, ScatterElements: beside the axis the index's places are the data's, along it they
   may be those of chunks that are alone.  Are they beside it? */
static bool elements(Ways *w, uint32_t slot, Place at)
{
    int axis = (int)w->n->attr.axis;
    bool beside = at.dim != axis, home;
    if (beside)
        home = ways_shape(w, 0)->d[at.dim] == ways_shape(w, 1)->d[at.dim];
    else
        home = (w->of->alone && w->of->chunks > 1 && at.groups == 1 &&
                index_points_home(w->of->g, ways_value(w, 1))) ||
               place_is(names_own(w, -1, at), at);
    w->way.lacks = beside ? NULL : by_number;
    if (home)
        ways_all(w, at);
    else
        ways_choose(w, slot, at, by_number, 1);
    w->way.lacks = NULL;
    return beside;
}

/* What a chunk that is alone adds up, or writes, into what is the same for all. */
static void into_table(Ways *w, Place at)
{
    if (!w->of->alone || ways_single(w))
        return;
    w->at[1] = w->at[2] = at;
    w->way.meets = true;
    ways_keep(w);
}

/* Data and what is written into them, both partial, or both divided with the index whole. */
static void data(Ways *w, Place at, Place updates)
{
    w->at[0] = w->at[3] = at;
    w->at[2] = updates;
    ways_keep(w);
}

/* ---- lookups ---- */

/* result: the data's dims before the axis, the index's, the data's behind it */
void ways_gather(Ways *w, uint32_t slot, Place at)
{
    int axis = (int)w->n->attr.axis, more = ways_shape(w, 1)->rank;
    int64_t g = at.groups;
    bool of_index = slot == 1 || (slot == 2 && at.dim >= axis && at.dim < axis + more);
    if (at.dim < 0) {
        if (slot == 0)
            keep(w, at, place_r(), at);
    } else if (of_index) {
        int dim = slot == 1 ? at.dim : at.dim - axis;
        keep(w, place_r(), place_s(dim, g), place_s(dim + axis, g));
    } else if (slot == 0 && at.dim == axis) {
        ways_refuse(w, ways_single(w) ? NULL : by_number, 1);
        if (w->of->alone)
            own(w, at, names_own(w, -1, at), axis);
        else if (g == 1)
            keep(w, at, place_r(), place_p());
    } else {
        int dim = slot == 2 && at.dim >= axis ? at.dim - more + 1 : at.dim;
        keep(w, place_s(dim, g), place_r(), place_s(dim < axis ? dim : dim + more - 1, g));
    }
}

void ways_gather_elements(Ways *w, uint32_t slot, Place at)
{
    if (at.dim < 0) {
        if (slot == 0)
            keep(w, at, place_r(), at);
    } else if (elements(w, slot, at)) {
        return;
    } else if (slot != 0) {
        keep(w, place_r(), at, at);
    } else if (at.groups == 1 && !w->of->alone) {
        keep(w, at, place_r(), place_p());
    }
}

/* result: the index's dims but the last, the data's that no index counts in */
void ways_gather_nd(Ways *w, uint32_t slot, Place at)
{
    const Shape *index = ways_shape(w, 1);
    int batch = (int)w->n->attr.batch_dims, last = index->rank - 1,
        counted = batch + (int)index->d[last];
    int dim = slot == 0 && at.dim >= counted ? at.dim - counted + last : at.dim; /* the result's */
    if (at.dim < 0) {
        if (slot == 0)
            keep(w, at, place_r(), at);
    } else if (slot == 0 && at.dim >= batch && at.dim < counted) {
        ways_choose(w, slot, at, by_number, 1);
        own(w, at, names_own(w, at.dim - batch, at), 0);
    } else if (slot == 1 && at.dim == last) {
        return;
    } else if (dim < batch) {
        ways_all(w, at);
    } else if (dim < last) {
        keep(w, place_r(), place_s(dim, at.groups), place_s(dim, at.groups));
    } else {
        keep(w, place_s(dim - last + counted, at.groups), place_r(), place_s(dim, at.groups));
    }
}

/* ---- scatters ---- */

/* Written over, or added: then in both operands linear. */
static bool is_linear(const Node *n)
{
    return n->attr.reduction == SCATTER_NONE || n->attr.reduction == SCATTER_ADD;
}

void ways_scatter_elements(Ways *w, uint32_t slot, Place at)
{
    if (at.dim == PLACE_P) {
        if (slot != 1 && is_linear(w->n))
            data(w, at, at);
    } else if (!elements(w, slot, at) && slot != 0) {
        into_table(w, at);
    }
}

/* Each chunk writes into itself: one of the dimensions counted, that of the data where it is asked.
 */
static void own_writes(Ways *w, uint32_t slot, Place at, int counted)
{
    for (int c = 0; c < counted; c++) {
        if (slot == 0 && !place_is(at, place_s(c, 1)))
            continue;
        Place is = names_own(w, c, place_s(c, 1));
        if (is.dim < 0 || (slot != 0 && !place_is(at, is)))
            continue;
        w->at[0] = w->at[3] = place_s(c, 1);
        w->at[1] = w->at[2] = is;
        ways_keep(w);
    }
}

/* updates: the index's dims but the last, the data's that no index counts in */
void ways_scatter_nd(Ways *w, uint32_t slot, Place at)
{
    const Shape *index = ways_shape(w, 1);
    int last = index->rank - 1, counted = (int)index->d[last];
    int dim = slot == 2 ? at.dim - last + counted : at.dim; /* the data's */
    if (at.dim < 0) {
        if (slot != 1 && is_linear(w->n))
            data(w, at, at);
    } else if (ways_single(w) ? slot == 0 : slot != 1 && dim >= counted) {
        data(w, place_s(dim, at.groups), place_s(dim - counted + last, at.groups));
    } else {
        own_writes(w, slot, at, counted);
        if (slot == 0)
            ways_choose(w, slot, at, "it writes to rows by number", 1);
        else
            into_table(w, at);
    }
}

/* ---- nodes ---- */

/* The places of an index among a chunk's rows, and whether they are there. */
static ValueId own_places(const Spread *s, int64_t rows, ValueId *there)
{
    Graph *g = s->g;
    ValueId at = g_cast(g, s->in[1], DT_I64), zero = g_scalar(g, DT_I64, 0),
            own = g_scalar(g, DT_I64, (double)((rows + s->chunks - 1) / s->chunks)),
            first = g_mul(g, g_reshape(g, s->number, &(Shape){0}), own);
    at = g_where(g, g_binary(g, OP_Less, at, zero), g_add(g, at, g_scalar(g, DT_I64, (double)rows)),
                 at);
    at = g_sub(g, at, first);
    *there = g_binary(g, OP_And, g_binary(g, OP_GreaterOrEqual, at, zero),
                      g_binary(g, OP_Less, at, own));
    return g_where(g, *there, at, zero);
}

/* A bool for each index, for all elements that it looks up. */
static ValueId for_elements(const Spread *s, ValueId each)
{
    const Node *n = spread_of(s);
    Shape shape = val(s->g, each)->shape;
    int behind = n->op == OP_Gather ? spread_whole(s, 0)->rank - 1 - (int)n->attr.axis : 0;
    for (int i = 0; i < behind; i++)
        shape.d[shape.rank++] = 1;
    return g_reshape(s->g, each, &shape);
}

/* A table's row that gets no gradient (Attr.padding_row): by the number of the whole's row. */
static ValueId without_padding(const Spread *s, ValueId y)
{
    Graph *g = s->g;
    int64_t row = spread_of(s)->attr.padding_row - 1;
    ValueId at = s->in[1], is = g_binary(g, OP_Equal, at, g_like(g, at, (double)row));
    is = g_binary(
        g, OP_Or, is,
        g_binary(g, OP_Equal, at,
                 g_like(g, at, (double)(row - spread_whole(s, 0)->d[spread_of(s)->attr.axis]))));
    return g_where(g, for_elements(s, is), g_unary(g, OP_StopGradient, y), y);
}

static void look_up(const Spread *s)
{
    const Node *n = spread_of(s);
    Graph *g = s->g;
    ValueId there, in[2] = {s->in[0], NONE};
    Attr t = n->attr;
    in[1] = own_places(s, spread_whole(s, 0)->d[t.axis], &there);
    if (n->op == OP_Gather)
        t.padding_row = 0;
    ValueId y = graph_node(g, n->op, 2, in, t);
    y = g_cast(g, y, dtype_sum(val(g, y)->dtype));
    y = g_where(g, for_elements(s, there), y, g_like(g, y, 0));
    s->out[0] = n->op == OP_Gather && n->attr.padding_row ? without_padding(s, y) : y;
}

/* Gather, GatherElements */
void build_gather(const Spread *s)
{
    if (s->way->in[0].dim >= 0 && s->way->out[0].dim == PLACE_P)
        look_up(s);
    else
        spread_same(s, spread_of(s)->attr);
}
