/*
 * lengths.c - one division of a model with any lengths (--bind NAME=LEAST..MOST).
 *
 * In: its graph with a few lengths, and with the length asked for.  Out: how that one is divided,
 * as the first of the few is, whose sizes decide; a dimension is divided where it is so in all of
 * them (SpreadOf.others), and so with any length.  A place has as many groups with each length, or
 * each of its groups is of one size: so a node's way with other lengths is found again.  With some
 * lengths a model is computed otherwise, as where an image need not be resized; it is divided by
 * itself then.
 */
#include <string.h>

#include "search.h"

bool mesh_alike(const Graph *g, const Graph *from)
{
    bool is = g->node.n == from->node.n && g->value.n == from->value.n;
    for (ValueId v = 0; v < g->value.n && is; v++)
        is = val(g, v)->kind == val(from, v)->kind &&
             val(g, v)->shape.rank == val(from, v)->shape.rank;
    for (NodeId id = 0; id < g->node.n && is; id++) {
        const Node *x = &g->node.at[id], *y = &from->node.at[id];
        is = x->op == y->op && x->nin == y->nin && x->nout == y->nout &&
             !memcmp(x->in, y->in, x->nin * sizeof *x->in);
    }
    return is;
}

static Place at_slot(const SpreadWay *w, const Node *n, uint32_t slot)
{
    return slot < n->nin ? w->in[slot] : w->out[slot - n->nin];
}

static int64_t size_of(const Graph *g, const Node *n, uint32_t slot, int dim)
{
    return val(g, slot < n->nin ? n->in[slot] : n->out[slot - n->nin])->shape.d[dim];
}

/* What has groups of this size in the one graph, and groups of their own size in the other. */
static int64_t groups_of_size(const Graph *g, const Graph *from, const Node *n, uint32_t slot,
                              Place at)
{
    const int64_t each = size_of(from, n, slot, at.dim) / at.groups;
    return size_of(g, n, slot, at.dim) / each;
}

static bool is_again(const Graph *g, const Graph *from, const Node *n, const SpreadWay *w,
                     const SpreadWay *was)
{
    bool is = true;
    for (uint32_t i = 0; i < n->nin + n->nout && is; i++) {
        const Place at = at_slot(w, n, i), before = at_slot(was, n, i);
        is = at.dim == before.dim && at.mirrored == before.mirrored &&
             (at.dim < 0 || at.groups == before.groups ||
              at.groups == groups_of_size(g, from, n, i, before));
    }
    return is;
}

/* The way of node id in the graph `from' as one in `of'; NULL: there is none. */
static const SpreadWay *way_again(const SpreadOf *of, const Graph *from, NodeId id,
                                  const SpreadWay *was, Arena *a)
{
    const Node *n = &of->g->node.at[id];
    SpreadWays ways = {0};
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        Place at = at_slot(was, n, i);
        if (at.dim == PLACE_R || (at.dim == PLACE_P && i >= n->nin))
            continue;
        spread_ways_at(of, id, i, at, a, &ways);
        if (at.dim < 0)
            continue;
        at.groups = groups_of_size(of->g, from, n, i, at);
        spread_ways_at(of, id, i, at, a, &ways);
    }
    const SpreadWay *w = ways.at, *end = w + ways.n;
    while (w < end && !is_again(of->g, from, n, w, was))
        w++;
    return w < end ? w : NULL;
}

MeshPlan mesh_again(const MeshPlan *decided, const Graph *g, Arena *a, const BatchNotes *notes)
{
    MeshPlan p = *decided;
    const SpreadOf of = mesh_spread(g, a, p.axis, p.chunks, notes);
    const SpreadWay **way = arena_array(a, const SpreadWay *, g->node.n + 1);
    for (NodeId id = 0; id < g->node.n; id++) {
        if (!decided->way[id])
            continue;
        way[id] = way_again(&of, decided->of, id, decided->way[id], a);
        if (!way[id])
            diag_fatal(EXIT_MODEL, graph_where(g, g->node.at[id].origin, -1),
                       "%s: with these lengths it is not divided as with others, on which is "
                       "decided",
                       mesh_option[p.axis]);
    }
    p.of = g;
    p.way = way;
    p.made = mesh_made(g, way, p.param, a);
    return p;
}
