/*
 * spread_moves.c - elementwise operations and moves along an axis: ways_f and build_f of ops.def.
 *
 * A rule gets a slot and its place and says where all other slots are then.  Numbers that are added
 * up stay partial through what is linear in them.  A chunk is computed by the same node; attributes
 * that are sizes or places of the divided dimension become the chunk's.
 */
#include "spread_rules.h"

void ways_none(Ways *w, uint32_t slot, Place at) { (void)w, (void)slot, (void)at; }
void build_none(const Spread *s) { BUG("%s has no rule", op_name(spread_of(s)->op)); }

/* ---- elementwise ---- */

/* Operands that broadcast against one another, from the right: where the divided dimension is not
   there or is 1, they stay whole; of a single chunk, whose own dimension may be 1, all of it is
   that chunk's. */
void ways_aligned(Ways *w, uint32_t slot, Place at)
{
    if (at.dim < 0)
        return;
    const Shape *own = ways_shape(w, slot);
    int back = own->rank - at.dim;
    bool all = ways_single(w) && slot < w->n->nin;
    for (uint32_t i = 0; i < ways_slots(w); i++) {
        const Shape *s = ways_shape(w, i);
        int64_t size = s->rank < back ? 0 : s->d[s->rank - back];
        if (size > 1 || size == own->d[at.dim] || (all && size > 0))
            w->at[i] = place_s(s->rank - back, at.groups);
    }
    ways_keep(w);
}

/* Attention: matrices of operands of which some may be fewer, each for several in a row. */
void ways_matrices(Ways *w, uint32_t slot, Place at)
{
    if (at.dim < ways_shape(w, slot)->rank - 2)
        ways_aligned(w, slot, at);
}

static bool is_zero(const Graph *g, ValueId v)
{
    double x;
    return g_const_double(g, v, &x) && x == 0;
}

/* One operand, or the sum of several; zero is partial as it is. */
void ways_linear(Ways *w, uint32_t slot, Place at)
{
    if (at.dim >= 0) {
        ways_aligned(w, slot, at);
        return;
    }
    for (uint32_t i = 0; i < ways_slots(w); i++)
        w->at[i] = i != slot && i < w->n->nin && is_zero(w->of->g, w->n->in[i]) ? place_r() : at;
    ways_keep(w);
}

/* In each operand for itself. */
static void factor(Ways *w, uint32_t slot)
{
    w->at[slot] = w->at[w->n->nin] = place_p();
    ways_keep(w);
}

void ways_product(Ways *w, uint32_t slot, Place at)
{
    if (at.dim == PLACE_P)
        factor(w, slot);
    else
        ways_aligned(w, slot, at);
}

void ways_quotient(Ways *w, uint32_t slot, Place at)
{
    if (at.dim == PLACE_P && slot == 0)
        factor(w, slot);
    else
        ways_aligned(w, slot, at);
}

/* Partial sums are widened, and not rounded. */
void ways_cast(Ways *w, uint32_t slot, Place at)
{
    Dtype to = w->n->attr.to;
    if (at.dim == PLACE_P && (to == DT_F64 || (w->of->alone && dtype_is_float(to))))
        ways_all(w, at);
    else
        ways_aligned(w, slot, at);
}

/* One of the two where the condition says so; zero is partial as it is. */
void ways_where(Ways *w, uint32_t slot, Place at)
{
    if (at.dim >= 0) {
        ways_aligned(w, slot, at);
    } else if (slot > 0) {
        bool zero = is_zero(w->of->g, w->n->in[3 - slot]);
        w->at[slot] = w->at[w->n->nin] = at;
        w->at[3 - slot] = zero ? place_r() : at;
        ways_keep(w);
    }
}

/* Masks and random numbers are those of the whole: each element's is by its number there. */
void ways_random(Ways *w, uint32_t slot, Place at)
{
    bool apart = !w->of->alone && !at.mirrored && ways_shape(w, slot)->rank < MAX_RANK;
    if (ways_is_numbered(w, at.dim))
        return;
    if (ways_is_even(w, slot, at) && (at.groups == 1 || apart))
        ways_aligned(w, slot, at);
    else
        ways_refuse(w, ways_inner, NONE);
}

/* ---- moves ---- */

/* Of an uneven place: the dimension of the other shape that has as much outside it, and whose parts
   have as many elements. */
static bool reshaped_uneven(const Ways *w, uint32_t slot, Place at, Place *other)
{
    const Shape *from = ways_shape(w, slot), *to = ways_shape(w, !slot);
    Shape own = place_shape(from, at, w->of->chunks);
    const int64_t before = shape_between(from, 0, at.dim), part = shape_elements(&own);
    int64_t outer = 1;
    for (int j = 0; j < to->rank; outer *= to->d[j++]) {
        *other = place_s(j, 1);
        own = place_shape(to, *other, w->of->chunks);
        if (outer == before && shape_elements(&own) == part)
            return true;
    }
    return false;
}

void ways_reshape(Ways *w, uint32_t slot, Place at)
{
    Place other = at;
    if (at.dim >= 0 &&
        !(ways_is_even(w, slot, at)
              ? place_reshaped(ways_shape(w, slot), ways_shape(w, !slot), at, w->of->chunks, &other)
              : reshaped_uneven(w, slot, at, &other))) {
        ways_refuse(w, "the rows are spread over several dimensions", NONE);
        return;
    }
    w->at[slot] = at;
    w->at[!slot] = other;
    ways_keep(w);
}

void ways_transpose(Ways *w, uint32_t slot, Place at)
{
    for (int i = 0; i < w->n->attr.n && at.dim >= 0; i++)
        if (slot == 1 ? i == at.dim : w->n->attr.perm[i] == at.dim) {
            w->at[0] = place_s((int)w->n->attr.perm[i], at.groups);
            w->at[1] = place_s(i, at.groups);
            ways_keep(w);
            return;
        }
    if (at.dim == PLACE_P)
        ways_all(w, at);
}

/* Of operand and result, one dimension in groups of which some are taken: all its groups are of one
   size, and begin where one begins; mirrored in pairs. */
static bool taken(const Ways *w, uint32_t slot, Place at, int64_t start, int64_t *each)
{
    *each = ways_shape(w, slot)->d[at.dim] / at.groups;
    return ways_shape(w, 0)->d[at.dim] % *each == 0 && ways_shape(w, 1)->d[at.dim] % *each == 0 &&
           start % (at.mirrored ? 2 * *each : *each) == 0;
}

static const char some_rows[] = "it takes some of the rows, or adds to them";

/* What takes `count` elements from `start` on, `step` apart, out of no whole groups. */
static void choose_part(Ways *w, uint32_t slot, Place at, int64_t start, int64_t count,
                        int64_t step)
{
    int64_t each = ways_shape(w, 0)->d[at.dim] / w->of->chunks; /* of a chunk */
    bool one = step == 1 && at.groups == 1 && count == each && start % each == 0;
    w->out->crosses = step < 0;
    ways_choose(w, slot, at,
                step < 0 ? "it reverses the order of the samples"
                : one    ? "it takes a single row"
                         : some_rows,
                NONE);
}

/* Every step-th element of each chunk. */
static bool is_sieve(const Ways *w, Place at)
{
    int64_t step = w->n->attr.step[at.dim], size = ways_shape(w, 0)->d[at.dim];
    return step > 1 && w->n->attr.start[at.dim] < step && ways_is_even(w, 0, at) &&
           size / at.groups / w->of->chunks % step == 0 &&
           ways_shape(w, 1)->d[at.dim] * step == size;
}

void ways_slice(Ways *w, uint32_t slot, Place at)
{
    const Attr *t = &w->n->attr;
    const Shape *x = ways_shape(w, 0), *y = ways_shape(w, 1);
    int64_t each, step = at.dim < 0 ? 1 : t->step[at.dim];
    if (at.dim < 0 || (x->d[at.dim] == y->d[at.dim] && step == 1)) {
        ways_all(w, at);
    } else if (step == 1 && taken(w, slot, at, t->start[at.dim], &each)) {
        w->way.sized = "it takes a part whose place depends on the number of rows";
        w->at[0] = place_s(at.dim, x->d[at.dim] / each);
        w->at[1] = place_s(at.dim, y->d[at.dim] / each);
        ways_keep(w);
    } else if (is_sieve(w, at)) {
        w->way.sized = "it takes a part of every row";
        ways_all(w, at);
    } else {
        choose_part(w, slot, at, t->start[at.dim], y->d[at.dim], step);
    }
}

/* Along the axis every operand, every result is some of the groups. */
static bool whole_groups(Ways *w, uint32_t slot, Place at)
{
    int64_t each = ways_shape(w, slot)->d[at.dim] / at.groups;
    for (uint32_t i = 0; i < ways_slots(w); i++)
        if (ways_shape(w, i)->d[at.dim] % each != 0)
            return false;
    for (uint32_t i = 0; i < ways_slots(w); i++)
        w->at[i] = place_s(at.dim, ways_shape(w, i)->d[at.dim] / each);
    return true;
}

void ways_split(Ways *w, uint32_t slot, Place at)
{
    int64_t first = w->n->attr.sizes[0];
    bool equal = first * (int64_t)w->n->nout == ways_shape(w, 0)->d[w->n->attr.axis];
    if (at.dim != w->n->attr.axis) {
        ways_all(w, at);
    } else if (whole_groups(w, slot, at)) {
        w->way.sized = "it takes a part whose place depends on the number of rows";
        ways_keep(w);
    } else if (equal) {
        choose_part(w, slot, at, 0, first, 1);
    } else {
        ways_refuse(w, "it divides the rows into unequal parts", NONE);
    }
}

/* Blocks of chunks one behind the other; of a single chunk, what is not all in such blocks. */
void ways_concat(Ways *w, uint32_t slot, Place at)
{
    static const char why[] = "it joins rows with what is none, or rows of several sizes";
    bool single = ways_single(w);
    if (at.dim != w->n->attr.axis) {
        ways_all(w, at);
        return;
    }
    ways_refuse(w, why, NONE);
    if ((!single || ways_shape(w, slot)->d[at.dim] == at.groups) && whole_groups(w, slot, at)) {
        w->way.lacks = w->way.crossed = why;
        w->way.sized = w->n->nin > 1 ? "it joins all rows with all rows" : NULL;
        ways_keep(w);
    }
    if (single) {
        w->at[slot] = at;
        w->at[w->n->nin] = place_s(at.dim, 1);
        ways_keep(w);
    }
}

void ways_pad(Ways *w, uint32_t slot, Place at)
{
    bool zeros = w->n->attr.mode != PAD_CONSTANT || w->n->attr.value == 0;
    if (at.dim >= 0 ? ways_shape(w, 0)->d[at.dim] == ways_shape(w, 1)->d[at.dim] : zeros)
        ways_all(w, at);
    else if (at.dim >= 0)
        ways_choose(w, slot, at, some_rows, NONE);
}

/* Pack, Unpack: the mask is of the axis.  A chunk that is alone packs its own places. */
void ways_pack(Ways *w, uint32_t slot, Place at)
{
    int axis = (int)w->n->attr.axis, of_axis = ways_shape(w, 1)->rank - 1;
    bool own = slot == 1 || at.dim == axis;
    if (of_axis && at.dim == 0) { /* several, each by a mask of its own */
        ways_all(w, at);
        return;
    }
    if (own && (!w->of->alone || at.dim < 0))
        return;
    w->at[0] = w->at[2] = own ? place_s(axis, at.groups) : at;
    w->at[1] = own ? place_s(of_axis, at.groups) : place_r();
    w->way.crossed = ways_named;
    ways_keep(w);
}

/* ---- nodes ---- */

void build_same(const Spread *s) { spread_same(s, spread_of(s)->attr); }

/* Reshape, Expand */
void build_given(const Spread *s)
{
    Shape y = spread_result(s, 0);
    spread_same(s, (Attr){.n = y.rank, .dims = y.d});
}

void build_slice(const Spread *s)
{
    Attr t = spread_of(s)->attr;
    Shape y = spread_result(s, 0);
    int64_t start[MAX_RANK];
    int dim = s->way->in[0].dim;
    for (int i = 0; i < t.n; i++) /* a sieve begins anew in each chunk */
        start[i] = i == dim && t.step[i] == 1 ? t.start[i] / s->chunks : t.start[i];
    t.start = start;
    t.size = y.d;
    spread_same(s, t);
}

void build_split(const Spread *s)
{
    Attr t = spread_of(s)->attr;
    int64_t *sizes = arena_array(s->g->arena, int64_t, t.n);
    bool along = s->way->in[0].dim == t.axis;
    for (int i = 0; i < t.n; i++)
        sizes[i] = along ? (t.sizes[i] + s->chunks - 1) / s->chunks : t.sizes[i];
    t.sizes = sizes;
    spread_same(s, t);
}

/* Dropout, Random: with the groups in a dimension of their own, before the divided one, a chunk is
   one part of the whole. */
static void random_groups(const Spread *s, Place at)
{
    const Node *n = spread_of(s);
    Graph *g = s->g;
    Chunks part = *spread_parts(s, place_s(at.dim, 1));
    Shape own = val(g, s->in[0])->shape, apart = shape_with(&own, at.dim, at.groups);
    Attr t = n->attr;
    for (int x = 0; x < MESH_AXES; x++)
        part.along[x].axis += part.along[x].axis >= at.dim;
    t.piece = &part;
    apart.d[at.dim + 1] /= at.groups;
    ValueId x = g_reshape(g, s->in[0], &apart), y = graph_node(g, n->op, 1, &x, t);
    for (uint32_t o = 0; o < n->nout; o++)
        s->out[o] = g_reshape(g, graph_out(g, y, o), &own);
}

void build_random(const Spread *s)
{
    const Place at = s->way->in[0];
    Attr t = spread_of(s)->attr;
    t.piece = spread_parts(s, at);
    if (at.groups > 1)
        random_groups(s, at);
    else
        spread_same(s, t);
}
