/*
 * spread_attention.c - attention along an axis: ways_attention and build_attention of ops.def.
 *
 * Matrices of scores are divided, heads as a rule, and q, k, v and what masks them alike; or, where
 * no diagonal counts them, queries.  Keys that several heads share are divided with these (grouped
 * queries), unless there are fewer than chunks: then chunks have parts of them all, and exchange
 * these for the one that their heads share.
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
static int width_of(uint32_t operand, const Shape *s) { return s->rank - (operand == KEYS ? 2 : 1); }

/* Of fewer keys than chunks a part of each. */
static bool set_exchanged(Ways *w, uint32_t slot, int own, int64_t groups)
{
    const Shape *s = ways_shape(w, slot);
    const Place at = place_s(width_of(slot, s), 1);
    if (!is_of_keys(slot) || groups > 1 || s->rank == MAX_RANK || w->of->chunks % s->d[own] != 0 ||
        !ways_is_even(w, slot, at))
        return false;
    w->at[slot] = at;
    w->way.moved += (double)shape_elements(s) / (double)s->d[own];
    w->way.moved_back = w->way.moved;
    return true;
}

/* Dimension d of the scores in so many groups; alone: of keys that all chunks share they have a part. */
static void divide(Ways *w, int d, int64_t groups, bool alone)
{
    for (uint32_t slot = 0; slot < ways_slots(w); slot++) {
        const int own = own_dim(w, slot, d);
        if (own < 0 || (ways_shape(w, slot)->d[own] == 1 && !(alone && is_of_keys(slot))))
            continue;
        const Place at = place_s(own, groups);
        if (ways_is_even(w, slot, at))
            w->at[slot] = at;
        else if (!set_exchanged(w, slot, own, groups))
            return;
    }
    ways_keep(w);
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
    if (at.dim < 0 || at.dim == last || own_dim(w, slot, d) < 0 || (d == y->rank - 2 && t->causal))
        return;
    for (int alone = 0; alone < 2; alone++) {
        for (uint32_t i = 0; i < ways_slots(w); i++)
            w->at[i] = place_r();
        w->way = (SpreadWay){0};
        divide(w, d, at.groups, alone);
    }
}

/* Each of the keys as often as chunks share it, in parts of its columns; then of each chunk its own. */
static ValueId *exchanged(const Spread *s, uint32_t operand, int own)
{
    Graph *g = s->g;
    const int from = s->way->in[operand].dim, pieces = s->pieces;
    ValueId *one = arena_array(g->arena, ValueId, pieces);
    int64_t *sizes = arena_array(g->arena, int64_t, pieces);
    ValueId x = pieces == 1 ? s->in[operand][0]
                            : g_concat(g, (uint32_t)pieces, s->in[operand], from);
    Shape all = val(g, x)->shape, apart = all;
    apart.rank++;
    for (int i = all.rank; i > own + 1; i--)
        apart.d[i] = all.d[i - 1];
    apart.d[own + 1] = 1;
    x = g_reshape(g, x, &apart);
    apart.d[own + 1] = s->chunks / all.d[own];
    all.d[own] = s->chunks;
    x = g_all_to_all(g, g_reshape(g, g_expand(g, x, &apart), &all), from, own);
    for (int k = 0; k < pieces; k++)
        sizes[k] = 1;
    x = pieces == 1 ? x : g_split(g, x, own, pieces, sizes);
    for (int k = 0; k < pieces; k++)
        one[k] = graph_out(g, x, (uint32_t)k);
    return one;
}

void build_attention(const Spread *s)
{
    const Node *n = spread_of(s);
    const Place at = s->way->out[0];
    const int rank = val(s->whole, n->out[0])->shape.rank;
    ValueId **from = arena_array(s->g->arena, ValueId *, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Shape *all = spread_whole(s, i);
        const bool moves = is_of_keys(i) && s->way->in[i].dim == width_of(i, all);
        from[i] = moves ? exchanged(s, i, at.dim - (rank - all->rank)) : s->in[i];
    }
    for (int k = 0; k < s->pieces; k++) {
        Attr t = n->attr;
        const Chunk part = {.axis = at.dim,
                            .piece = k,
                            .pieces = s->pieces,
                            .chunks = s->chunks,
                            .groups = (int)at.groups};
        ValueId *in = arena_array(s->g->arena, ValueId, n->nin);
        if (t.attention->ratio > 0)
            t.piece = &part;
        for (uint32_t i = 0; i < n->nin; i++)
            in[i] = from[i][k];
        ValueId y = graph_node(s->g, n->op, n->nin, in, t);
        s->out[0][k] = y;
        s->out[1][k] = graph_out(s->g, y, 1);
    }
}
