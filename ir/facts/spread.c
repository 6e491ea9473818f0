/*
 * spread.c - all ways of a node along an axis, by the rules of ops.def's SPREAD column.
 *
 * A rule is asked with one slot (operand or result) at one place; what it answers are whole ways,
 * in which each slot has its place.  Every slot is asked about at every place that it may have:
 * each dimension in one group of C parts, or in the groups that are known, and, if it is an
 * operand, P. Groups come from the nodes that need them: of Split in three parts, the place S(d, 1)
 * of a part is S(d, 3) of its operand; spread_places() carries that through the graph until nothing
 * is new.
 */
#include "spread_rules.h"

typedef void Rule(Ways *, uint32_t, Place);

static Rule *const rule_of[OP_COUNT] = {
#define SPREAD(ways, build) ways_##ways
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, ...)          \
    [OP_##name] = spread,
#include "ir/ops.def"
#undef SPREAD
};

static Ways begin(const SpreadOf *of, NodeId id, Arena *a, SpreadWays *out)
{
    Ways w = {.of = of, .n = &of->g->node.at[id], .arena = a, .out = out};
    w.at = arena_array(a, Place, ways_slots(&w));
    return w;
}

static void ask(Ways *w, uint32_t slot, Place at)
{
    for (uint32_t i = 0; i < ways_slots(w); i++)
        w->at[i] = place_r();
    w->way = (SpreadWay){0};
    w->mirrored = at.mirrored;
    if (ways_may_be(w, slot, at))
        rule_of[w->n->op](w, slot, at);
}

void spread_ways_at(const SpreadOf *of, NodeId id, uint32_t slot, Place at, Arena *a,
                    SpreadWays *out)
{
    Ways w = begin(of, id, a, out);
    ask(&w, slot, at);
}

void spread_ways(const SpreadOf *of, NodeId id, Arena *a, SpreadWays *out)
{
    Ways w = begin(of, id, a, out);
    for (uint32_t i = 0; i < ways_slots(&w); i++) {
        ValueId v = ways_value(&w, i);
        for (int d = 0; d < ways_shape(&w, i)->rank; d++)
            ask(&w, i, place_s(d, 1));
        for (uint32_t k = 0; of->known && k < of->known[v].n; k++)
            ask(&w, i, of->known[v].at[k]);
        if (i < w.n->nin)
            ask(&w, i, place_p());
    }
}

/* ---- groups ---- */

static bool learn(Arena *a, Places *known, Place at)
{
    bool is = at.dim < 0 || at.groups == 1;
    for (uint32_t i = 0; i < known->n && !is; i++)
        is = place_is(known->at[i], at);
    if (!is)
        vec_push(a, known, at);
    return !is;
}

/* What a node's ways say of its values; changed: by value, when it was learnt of last. */
static bool learn_of(const SpreadOf *of, NodeId id, Arena *a, Places *known, uint32_t *changed,
                     uint32_t now)
{
    const Node *n = &of->g->node.at[id];
    Arena *scratch = arena_within(a);
    SpreadWays ways = {0};
    bool learnt = false;
    spread_ways(of, id, scratch, &ways);
    for (uint32_t i = 0; i < ways.n; i++)
        for (uint32_t k = 0; k < n->nin + n->nout; k++) {
            const ValueId v = node_slot(n, k);
            if (learn(a, &known[v], way_slot(&ways.at[i], n, k))) {
                changed[v] = now;
                learnt = true;
            }
        }
    arena_free(scratch);
    return learnt;
}

static bool is_fresh(const Node *n, const uint32_t *changed, uint32_t seen)
{
    bool fresh = seen == 0;
    for (uint32_t i = 0; i < n->nin; i++)
        fresh |= changed[n->in[i]] >= seen;
    for (uint32_t i = 0; i < n->nout; i++)
        fresh |= changed[n->out[i]] >= seen;
    return fresh;
}

/* The places of queries of which each attends to those before it. */
static void learn_mirrored(const SpreadOf *of, Arena *a, Places *known)
{
    for (NodeId id = 0; id < of->g->node.n; id++) {
        const Node *n = &of->g->node.at[id];
        if (n->op != OP_FlashAttention || !n->attr.attention->causal)
            continue;
        const Shape *q = &val(of->g, n->in[0])->shape;
        const Place at = {q->rank - 2, 2, true};
        if (place_fits(q, at, of->chunks))
            learn(a, &known[n->in[0]], at);
    }
}

/* Forwards and backwards until nothing is new; a node again when one of its values has changed. */
Places *spread_places(const SpreadOf *of, Arena *a)
{
    const Graph *g = of->g;
    Places *known = arena_array(a, Places, g->value.n);
    SpreadOf grown = *of;
    uint32_t *changed = arena_array(a, uint32_t, g->value.n),
             *seen = arena_array(a, uint32_t, g->node.n), now = 1;
    grown.known = known;
    if (of->mirrors)
        learn_mirrored(of, a, known);
    for (bool more = true; more;) {
        more = false;
        for (NodeId k = 0; k < 2 * g->node.n; k++) {
            NodeId id = k < g->node.n ? k : 2 * g->node.n - 1 - k;
            if (!is_fresh(&g->node.at[id], changed, seen[id]))
                continue;
            seen[id] = ++now;
            more |= learn_of(&grown, id, a, known, changed, now);
        }
    }
    return known;
}

/* ---- nodes ---- */

void spread_node(const Spread *s)
{
    static void (*const build_of[OP_COUNT])(const Spread *) = {
#define SPREAD(ways, build) build_##build
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, ...)          \
    [OP_##name] = spread,
#include "ir/ops.def"
#undef SPREAD
    };
    spread_zeros(s, build_of[spread_of(s)->op]);
}
