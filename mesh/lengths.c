/*
 * lengths.c - one division of a model with any lengths (--bind NAME=LEAST..MOST).
 *
 * In: its graph with a few lengths, and with the length asked for.  Out: how that one is divided,
 * as the first of the few is, whose sizes decide; a dimension is divided where it is so in all of
 * them (SpreadOf.others), and so with any length.  A place has as many groups with each length, or
 * each of its groups is of one size: so a node's way with other lengths is found again.  Nodes that
 * a length leaves out, as a slice of all of a table, are missing; their operands tell equal ones
 * apart.  With some lengths a model has others, as where an image need not be resized; it is
 * divided by itself then.
 */
#include <string.h>

#include "search.h"

enum { LEFT_OUT = 4 }; /* nodes in a row that a length may leave out */

static bool is_like(const Graph *g, const Node *x, const Graph *from, const Node *y)
{
    return x->op == y->op && x->nin == y->nin && x->nout == y->nout && x->origin == y->origin &&
           val(g, x->out[0])->shape.rank == val(from, y->out[0])->shape.rank;
}

/* A graph, and the one that is decided; by node, its twin, and whether it is one. */
typedef struct {
    const Graph *g, *from;
    NodeId *like;
    bool *paired;
} Pairs;

/* Is operand v what the decided graph has in w?  What is left out passes on an operand, through so
 * many nodes; what is folded is a constant. */
static bool is_operand(const Pairs *p, ValueId v, ValueId w, int nodes)
{
    const Value *x = val(p->g, v), *y = val(p->from, w);
    const Node *n = y->kind == V_NODE ? &p->from->node.at[y->node] : NULL;
    if (x->kind == V_CONST)
        return y->kind == V_CONST || (n && !p->paired[y->node]);
    if (!n || p->paired[y->node])
        return x->kind == y->kind && (!n || (p->like[x->node] == y->node && x->out == y->out)) &&
               (x->kind != V_PARAM || x->param == y->param) &&
               (x->kind != V_INPUT || !strcmp(x->name, y->name));
    for (uint32_t i = 0; i < n->nin && nodes; i++)
        if (is_operand(p, v, n->in[i], nodes - 1))
            return true;
    return false;
}

static bool is_twin(const Pairs *p, NodeId id, NodeId was)
{
    const Node *x = &p->g->node.at[id], *y = &p->from->node.at[was];
    bool is = is_like(p->g, x, p->from, y);
    for (uint32_t i = 0; i < x->nin && is; i++)
        is = is_operand(p, x->in[i], y->in[i], LEFT_OUT);
    return is;
}

const NodeId *mesh_like(const Graph *g, const Graph *from, Arena *a)
{
    const Pairs p = {g, from, arena_array(a, NodeId, g->node.n + 1),
                     arena_array(a, bool, from->node.n + 1)};
    NodeId next = 0;
    bool is = g->param.n == from->param.n;
    for (NodeId id = 0; id < g->node.n && is; id++) {
        while (next < from->node.n && !is_twin(&p, id, next))
            next++;
        is = next < from->node.n;
        if (is)
            p.paired[next] = true;
        p.like[id] = next++;
    }
    return is ? p.like : NULL;
}

bool mesh_alike(const Graph *g, const Graph *from)
{
    bool is = g->node.n == from->node.n && g->value.n == from->value.n;
    for (NodeId id = 0; id < g->node.n && is; id++) {
        const Node *x = &g->node.at[id], *y = &from->node.at[id];
        is = is_like(g, x, from, y) && !memcmp(x->in, y->in, x->nin * sizeof *x->in);
    }
    return is;
}

static int64_t size_of(const Graph *g, const Node *n, uint32_t slot, int dim)
{
    return val(g, node_slot(n, slot))->shape.d[dim];
}

/* A node in its graph, and the one that it is like in the graph that is decided. */
typedef struct {
    const Graph *g, *from;
    const Node *n, *was;
} Twins;

/* What has groups of this size in the one graph, and groups of their own size in the other. */
static int64_t groups_of_size(const Twins *t, uint32_t slot, Place at)
{
    const int64_t each = size_of(t->from, t->was, slot, at.dim) / at.groups;
    return each > 0 ? size_of(t->g, t->n, slot, at.dim) / each : at.groups;
}

static bool is_again(const Twins *t, const SpreadWay *w, const SpreadWay *was)
{
    bool is = true;
    for (uint32_t i = 0; i < t->n->nin + t->n->nout && is; i++) {
        const Place at = way_slot(w, t->n, i), before = way_slot(was, t->n, i);
        is =
            at.dim == before.dim && at.mirrored == before.mirrored &&
            (at.dim < 0 || at.groups == before.groups || at.groups == groups_of_size(t, i, before));
    }
    return is;
}

/* The way of a node's twin as one of its own; NULL: there is none. */
static const SpreadWay *way_again(const SpreadOf *of, const Twins *t, NodeId id,
                                  const SpreadWay *was, Arena *a)
{
    SpreadWays ways = {0};
    for (uint32_t i = 0; i < t->n->nin + t->n->nout; i++) {
        Place at = way_slot(was, t->n, i);
        if (at.dim == PLACE_R || (at.dim == PLACE_P && i >= t->n->nin))
            continue;
        spread_ways_at(of, id, i, at, a, &ways);
        if (at.dim < 0)
            continue;
        at.groups = groups_of_size(t, i, at);
        spread_ways_at(of, id, i, at, a, &ways);
    }
    const SpreadWay *w = ways.at, *end = w + ways.n;
    while (w < end && !is_again(t, w, was))
        w++;
    return w < end ? w : NULL;
}

MeshPlan mesh_again(const MeshPlan *decided, const NodeId *like, const Graph *g, Arena *a,
                    const BatchNotes *notes)
{
    MeshPlan p = *decided;
    const SpreadOf of = mesh_spread(g, a, p.axis, p.chunks, notes);
    const SpreadWay **way = arena_array(a, const SpreadWay *, g->node.n + 1);
    bool *grows = arena_array(a, bool, g->node.n + 1);
    for (NodeId id = 0; id < g->node.n; id++) {
        const NodeId was = like[id];
        const Twins t = {g, decided->of, &g->node.at[id], &decided->of->node.at[was]};
        grows[id] = decided->grows[was];
        if (!decided->way[was])
            continue;
        way[id] = way_again(&of, &t, id, decided->way[was], a);
        if (!way[id])
            diag_fatal(EXIT_MODEL, graph_where(g, t.n->origin, -1),
                       "%s: with these lengths it is not divided as with others, on which is "
                       "decided",
                       mesh_option[p.axis]);
    }
    p.of = g;
    p.way = way;
    p.grows = grows;
    p.made = mesh_made(g, way, p.param, a);
    return p;
}
