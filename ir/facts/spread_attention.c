/*
 * spread_attention.c - attention along an axis: ways_attention and build_attention of ops.def.
 *
 * Matrices of scores are divided, heads as a rule, and q, k, v and what masks them alike; or
 * queries, each of which meets all keys.  Where they are counted by a diagonal, it is a chunk's own
 * (op.h, AttentionAttr.step); of queries that lie mirrored each half has one.  Keys that several
 * heads share are divided with these (grouped queries), unless there are fewer than chunks: then
 * chunks have parts of them all, and exchange these for the one that their heads share.
 */
#include "spread_rules.h"

enum { KEYS = 1, VALUES = 2 };

static bool is_of_keys(uint32_t slot) { return slot == KEYS || slot == VALUES; }

/* Dimension d of the scores in a slot; -1: it has none. */
static int own_dim(const Ways *w, uint32_t slot, int d)
{
    const int back = ways_shape(w, w->n->nin)->rank - d, own = ways_shape(w, slot)->rank - back;
    return back == 2 && is_of_keys(slot) ? -1 : own;
}

/* The columns of keys or values. */
static int width_of(uint32_t operand, const Shape *s)
{
    return s->rank - (operand == KEYS ? 2 : 1);
}

/* Of fewer keys than chunks a part of each; of their columns in so many groups: of two where halves
 * are turned by their places. */
static bool set_exchanged(Ways *w, uint32_t slot, int own, int64_t groups, int64_t columns)
{
    const Shape *s = ways_shape(w, slot);
    const Place at = place_s(width_of(slot, s), slot == KEYS ? columns : 1);
    if (!is_of_keys(slot) || groups > 1 || s->rank == MAX_RANK || w->of->chunks % s->d[own] != 0 ||
        !ways_is_even(w, slot, at))
        return false;
    w->at[slot] = at;
    w->way.moved += (double)shape_elements(s) / (double)s->d[own];
    w->way.moved_back = w->way.moved;
    return true;
}

/* Dimension d of the scores in so many groups; alone: of keys that all chunks share they have a
 * part. */
static void divide(Ways *w, int d, int64_t groups, bool alone, int64_t columns)
{
    for (uint32_t slot = 0; slot < ways_slots(w); slot++) {
        const int own = own_dim(w, slot, d);
        if (own < 0 || (ways_shape(w, slot)->d[own] == 1 && !(alone && is_of_keys(slot))))
            continue;
        const Place at = place_s(own, groups);
        if (ways_is_even(w, slot, at))
            w->at[slot] = at;
        else if (!set_exchanged(w, slot, own, groups, columns))
            return;
    }
    ways_keep(w);
}

/* May queries lie there?  Dropout's numbers are those of groups one behind the other; a diagonal is
 * counted along one axis of the mesh. */
static bool may_divide_queries(const AttentionAttr *t, Place at)
{
    if (t->causal && t->step)
        return false;
    if (at.mirrored)
        return at.groups == 2 && t->ratio <= 0;
    return !t->causal || at.groups == 1;
}

/* The last of the chunks meets most keys. */
static void count_keys(Ways *w, const AttentionAttr *t, int d)
{
    const double rows = (double)ways_shape(w, w->n->nin)->d[d],
                 last = rows / (double)w->of->chunks / 2;
    if (t->causal && !t->window && !w->mirrored)
        w->way.most = ((double)t->diagonal + rows - last) / ((double)t->diagonal + rows / 2);
}

void ways_attention(Ways *w, uint32_t slot, Place at)
{
    const AttentionAttr *t = w->n->attr.attention;
    const Shape *y = ways_shape(w, w->n->nin);
    const int last = ways_shape(w, slot)->rank - 1, d = y->rank - 1 - (last - at.dim);
    if (w->of->alone) { /* nothing is exchanged */
        ways_matrices(w, slot, at);
        return;
    }
    const bool queries = d == y->rank - 2;
    if (at.dim < 0 || ways_is_numbered(w, d) || at.dim == last || own_dim(w, slot, d) < 0 ||
        (queries ? !may_divide_queries(t, at) || !ways_is_even(w, slot, at) : at.mirrored))
        return;
    const Places *keys = w->of->known ? &w->of->known[w->n->in[KEYS]] : &(const Places){0};
    for (uint32_t k = 0; k < 2 + keys->n; k++) {
        for (uint32_t i = 0; i < ways_slots(w); i++)
            w->at[i] = place_r();
        w->way = (SpreadWay){0};
        if (queries)
            count_keys(w, t, d);
        divide(w, d, at.groups, k == 1, k < 2 ? 1 : keys->at[k - 2].groups);
    }
}

/* Each of the keys as often as chunks share it, in parts of its columns; then of each chunk its
 * own. */
static ValueId exchanged(const Spread *s, uint32_t operand, int own)
{
    Graph *g = s->g;
    const Place at = s->way->in[operand];
    Shape all = val(g, s->in[operand])->shape, apart = shape_with(&all, own + 1, 1);
    const ValueId x = g_reshape(g, s->in[operand], &apart);
    apart.d[own + 1] = s->chunks / all.d[own];
    all.d[own] = s->chunks;
    Shape parts = shape_with(&all, at.dim, at.groups);
    parts.d[at.dim + 1] /= at.groups;
    const ValueId of = g_reshape(g, g_expand(g, x, &apart), &parts);
    all.d[own] = 1;
    all.d[at.dim] *= s->chunks;
    return g_reshape(g, g_all_to_all(g, of, at.dim + 1, own), &all);
}

/* Half h of 2 of what has the queries in dimension d; of anything else all of it. */
static ValueId half_of(Graph *g, ValueId x, int d, int h)
{
    const int64_t n = val(g, x)->shape.d[d] / 2;
    return g_slice_axis(g, x, d, h * n, n);
}

/* A chunk whose diagonal counts its queries, or of half h of these: c m further than
   that of the whole, or, of the half that runs back from the sequence's end, (2 C - 1 - c) m. */
static ValueId counted(const Spread *s, const ValueId *in, Attr t, int h)
{
    const Node *n = spread_of(s);
    const Place at = s->way->out[0];
    const int64_t rows = val(s->whole, n->out[0])->shape.d[at.dim] / at.groups / s->chunks;
    AttentionAttr *own = arena_new_of(s->g->arena, AttentionAttr);
    ValueId *part = arena_array(s->g->arena, ValueId, n->nin);
    *own = *t.attention;
    own->step = h ? -rows : rows;
    own->by = s->g->cur_mesh;
    own->diagonal += h ? (2 * s->chunks - 1) * rows : 0;
    t.attention = own;
    for (uint32_t i = 0; i < n->nin; i++)
        part[i] = at.mirrored && s->way->in[i].dim >= 0 ? half_of(s->g, in[i], s->way->in[i].dim, h)
                                                        : in[i];
    return graph_node(s->g, n->op, n->nin, part, t);
}

static void attention(const Spread *s, const ValueId *in)
{
    const Node *n = spread_of(s);
    const Place at = s->way->out[0];
    const bool counts =
        n->attr.attention->causal && at.dim == val(s->whole, n->out[0])->shape.rank - 2;
    Attr t = n->attr;
    if (counts || t.attention->ratio > 0)
        t.piece = spread_parts(s, at);
    const ValueId y = counts ? counted(s, in, t, 0) : graph_node(s->g, n->op, n->nin, in, t),
                  then = counts && at.mirrored ? counted(s, in, t, 1) : NONE;
    for (uint32_t o = 0; o < 2; o++) {
        const ValueId both[2] = {graph_out(s->g, y, o),
                                 then == NONE ? NONE : graph_out(s->g, then, o)};
        s->out[o] = then == NONE ? both[0] : g_concat(s->g, 2, both, at.dim);
    }
}

void build_attention(const Spread *s)
{
    const Node *n = spread_of(s);
    const int rank = val(s->whole, n->out[0])->shape.rank;
    ValueId *in = arena_array(s->g->arena, ValueId, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Shape *all = spread_whole(s, i);
        const bool moves = is_of_keys(i) && s->way->in[i].dim == width_of(i, all);
        in[i] = moves ? exchanged(s, i, s->way->out[0].dim - (rank - all->rank)) : s->in[i];
    }
    attention(s, in);
}
