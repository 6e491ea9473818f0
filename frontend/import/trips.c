/*
 * trips.c - the trace of a loop over what the data pick: `for e in hit.nonzero()`, as the mixtures
 * of experts of transformers 5 have it.  In: a Split of NonZero's result along the places that it
 * found, a piece for each trip that the example made.  Out: a trip for each place that can be hit.
 *
 * By its number of pieces such a file is valid only for data that hit as many experts as the
 * example did.  What is meant is the loop, and it is imported where the file shows what that is:
 *   - the trips are alike: given the same place and accumulator, the nodes of each become the same
 *     graph.  So one of them can stand for a place that no trip was made for.  Where they differ in
 *     their parameters (a list of modules) there must be a trip for each place.
 *   - A trip adds to one accumulator and hands on nothing else.
 *   - It adds nothing if its place is not hit: it scatters the rows of its place in the very mask
 *     whose sum or maximum says which places are hit, and nothing in that mask is negative.
 * The number of a place is then a constant: the weights of an expert are a part of their parameter,
 * and it costs by the rows that it gets.
 */
#include <string.h>

#include "ir/facts/facts.h"
#include "driver.h"

typedef struct {
    const char *piece;          /* of the Split */
    const char *taken, *handed; /* the accumulator before and after it */
    RawNodes node;              /* what it hands on is made by these, in order */
} Trip;

typedef struct Trips {
    Trip *at;
    uint32_t n;
    const RawNode *split, *last; /* where the nodes begin and end */
    ValueId piece;               /* all of the Split's operand, a piece for each place */
    int axis;                    /* of the pieces in it */
    ValueId hit;                 /* which places are: a mask */
    StrMap of;                   /* by names that trips make: which trip does */
    uint32_t *trip_of;           /* by position in the list; NONE */
    struct Trips *next;
} Trips;

static _Noreturn void refuse(const ImportState *s, const Trips *t, const char *why)
{
    diag_hint("an export with experts_implementation=\"batched_mm\" has no such loop");
    diag_fatal(
        EXIT_MODEL, raw_where(s->m, t->split, 0),
        "this is the trace of a loop whose iterations the data choose (%u in the example): %s",
        t->n, why);
}

/* ---- the nodes of each trip ---- */

typedef struct {
    const StrMap *of;
    uint32_t trip;
} Seen;

static void see(void *to, const char *name)
{
    Seen *seen = to;
    uint32_t t = *name ? strmap_get(seen->of, name) : NONE;
    if (t != NONE && (seen->trip == NONE || t > seen->trip))
        seen->trip = t;
}

/* Which trip a node is of: the last of those that make its operands; what takes an accumulator is
 * of the trip behind it.  What follows the loop is taken for the last trip's. */
static void assign(const ImportState *s, Trips *t)
{
    StrMap behind = {.arena = s->g->arena};
    t->of = (StrMap){.arena = s->g->arena};
    for (uint32_t i = 0; i < t->n; i++) {
        *strmap_at(&t->of, t->at[i].piece) = i;
        if (t->at[i].handed && i + 1 < t->n)
            *strmap_at(&behind, t->at[i].handed) = i + 1;
    }
    for (uint32_t i = 0; i < s->list->n; i++) {
        const RawNode *n = s->list->at[i];
        Seen seen = {&t->of, NONE};
        for (uint32_t k = 0; k < n->nin && !n->dead; k++)
            see(&seen, n->in[k]);
        if (!n->dead)
            inline_captured(s->m, n, see, &seen);
        t->trip_of[i] = seen.trip;
        for (uint32_t k = 0; k < n->nout && seen.trip != NONE; k++)
            if (*n->out[k]) {
                uint32_t next = strmap_get(&behind, n->out[k]);
                *strmap_at(&t->of, n->out[k]) = next == NONE ? seen.trip : next;
            }
    }
}

/* The node that makes a name, with its position. */
static const RawNode *maker(const ImportState *s, const char *name, uint32_t *at)
{
    for (*at = 0; *at < s->list->n; ++*at)
        for (uint32_t k = 0; k < s->list->at[*at]->nout; k++)
            if (!s->list->at[*at]->dead && !strcmp(s->list->at[*at]->out[k], name))
                return s->list->at[*at];
    return NULL;
}

/* The accumulator: trip 1 makes it of what trip 0 made, as that did of what it got, and so on. */
static void find_accumulators(ImportState *s, Trips *t)
{
    uint32_t at = 0;
    const RawNode *first = NULL;
    for (uint32_t i = 0; i < s->list->n && !first; i++) {
        const RawNode *n = s->list->at[i];
        if (t->trip_of[i] != 1 || n->nin == 0 || strmap_get(&t->of, n->in[0]) != 0)
            continue;
        const RawNode *up = maker(s, n->in[0], &at);
        if (up != t->split && !strcmp(up->op_type, n->op_type) && up->nin == n->nin &&
            strmap_get(&t->of, up->in[0]) == NONE)
            first = up;
    }
    if (!first)
        refuse(s, t, "no iteration adds to the sum that the one before passes on");
    t->at[0].taken = first->in[0];
    t->at[0].handed = first->out[0];
    uint32_t trip = 1;
    for (uint32_t i = at; i < s->list->n && trip < t->n; i++) {
        const RawNode *n = s->list->at[i];
        if (t->trip_of[i] != trip || strcmp(n->op_type, first->op_type) != 0 ||
            strcmp(n->in[0], t->at[trip - 1].handed) != 0)
            continue;
        t->at[trip].taken = n->in[0];
        t->at[trip].handed = n->out[0];
        t->last = n;
        trip++;
    }
    if (trip < t->n)
        refuse(s, t, "an iteration does not add to the sum that the one before passes on");
}

static void need(void *to, const char *name)
{
    if (*name)
        *strmap_at(to, name) = 1;
}

/* Of each trip the nodes that what it hands on is made by, in order. */
static void collect(ImportState *s, Trips *t)
{
    RawNodes *back = arena_array(s->g->arena, RawNodes, t->n);
    StrMap needed = {.arena = s->g->arena};
    for (uint32_t i = 0; i < t->n; i++)
        need(&needed, t->at[i].handed);
    for (uint32_t i = s->list->n; i-- > 0;) {
        RawNode *n = s->list->at[i];
        bool is = false;
        for (uint32_t k = 0; k < n->nout; k++)
            is |= *n->out[k] && strmap_get(&needed, n->out[k]) != NONE;
        if (!is || t->trip_of[i] == NONE)
            continue;
        vec_push(s->g->arena, &back[t->trip_of[i]], n);
        for (uint32_t k = 0; k < n->nin; k++)
            need(&needed, n->in[k]);
        inline_captured(s->m, n, need, &needed);
    }
    for (uint32_t i = 0; i < t->n; i++)
        for (uint32_t k = back[i].n; k-- > 0;)
            vec_push(s->g->arena, &t->at[i].node, back[i].at[k]);
}

/* Nothing but the last accumulator may be taken by others.  Leaves in `of` what trips make. */
static void close_up(ImportState *s, Trips *t)
{
    StrMap own = {.arena = s->g->arena}, inside = {.arena = s->g->arena};
    const char *result = t->at[t->n - 1].handed;
    for (uint32_t i = 0; i < t->n; i++) {
        *strmap_at(&inside, t->at[i].piece) = i;
        for (uint32_t k = 0; k < t->at[i].node.n; k++)
            for (uint32_t o = 0; o < t->at[i].node.at[k]->nout; o++) {
                const char *name = t->at[i].node.at[k]->out[o];
                if (!*name)
                    continue;
                *strmap_at(&own, name) = i;
                if (strcmp(name, result) != 0)
                    *strmap_at(&inside, name) = i;
            }
    }
    Seen seen = {&inside, NONE};
    for (uint32_t i = 0; i < s->list->n; i++) {
        const RawNode *n = s->list->at[i];
        if (n->dead || (n->nout && strmap_get(&own, n->out[0]) != NONE))
            continue;
        for (uint32_t k = 0; k < n->nin; k++)
            see(&seen, n->in[k]);
        inline_captured(s->m, n, see, &seen);
    }
    for (size_t i = 0; i < s->m->graph->n_output; i++)
        if (s->m->graph->output[i]->name)
            see(&seen, s->m->graph->output[i]->name);
    if (seen.trip != NONE)
        refuse(s, t, "an iteration passes on more than its sum");
    t->of = own;
}

/* ---- what may be in a trip: proofs about the graph ---- */

static bool is_zero(const Graph *g, ValueId v)
{
    double x;
    return low_uniform(g, v, &x) && x == 0;
}

/* Behind casts, moves (where `moves`) and tests for being other than 0. */
static ValueId truth(const Graph *g, ValueId v, bool moves)
{
    for (;;) {
        const Node *n = graph_maker(g, v), *equal;
        if (n && n->op == OP_Not && (equal = graph_made_by(g, n->in[0], OP_Equal)) &&
            is_zero(g, equal->in[1]))
            v = equal->in[0];
        else if (n &&
                 (n->op == OP_Cast || (moves && (n->op == OP_Reshape || n->op == OP_Transpose))))
            v = n->in[0];
        else
            return v;
    }
}

static Interval range(const Graph *g, ValueId v)
{
    Intervals r = {.g = g, .arena = arena_within(g->arena)};
    return range_of(&r, v);
}

/* The mask whose sum or maximum over all other dims says which places are hit, and its dim of
 * places; NONE. */
static ValueId counted_mask(const Graph *g, ValueId hit, int *dim)
{
    ValueId v = truth(g, hit, true);
    const Node *n = graph_made_by(g, v, OP_Greater);
    if (n && !is_zero(g, n->in[1]))
        return NONE;
    v = truth(g, n ? n->in[0] : v, true);
    n = graph_maker(g, v);
    if (!n || (n->op != OP_ReduceSum && n->op != OP_ReduceMax))
        return NONE;
    int rank = low_shape(g, n->in[0]).rank;
    unsigned left = (1u << rank) - 1;
    for (int i = 0; i < n->attr.n; i++)
        left &= ~(1u << n->attr.axes[i]);
    if (left == 0 || (left & (left - 1)) != 0)
        return NONE;
    for (*dim = 0; !(left >> *dim & 1);)
        ++*dim;
    ValueId mask = truth(g, n->in[0], false);
    return range(g, mask).lo >= 0 ? mask : NONE;
}

/* Is it true only in rows that the mask has at this place? */
static bool is_of_place(const Graph *g, ValueId rows, ValueId mask, int dim, int64_t place)
{
    const Node *n = graph_made_by(g, truth(g, rows, true), OP_Slice);
    return n && truth(g, n->in[0], false) == mask && n->attr.start[dim] == place &&
           low_shape(g, n->out[0]).d[dim] == 1;
}

/* How many of the n places along a dim can be true at all: those below the bound of the indices
 * that were made one-hot. */
static int64_t places_of(const Graph *g, ValueId mask, int dim, int64_t n)
{
    ValueId v = truth(g, mask, false);
    for (const Node *at; (at = graph_made_by(g, v, OP_Transpose)) != NULL;
         v = truth(g, at->in[0], false))
        dim = (int)at->attr.perm[dim];
    const Node *where = graph_made_by(g, v, OP_Where);
    if (where && is_zero(g, where->in[2]))
        v = where->in[0];
    const Node *equal = graph_made_by(g, v, OP_Equal);
    int64_t *at, count;
    if (!equal || !g_const_ints(g, equal->in[1], g->arena, &at, &count) || count != n)
        return n;
    int from_right = low_shape(g, v).rank - dim;
    Shape s = low_shape(g, equal->in[1]);
    if (s.rank < from_right || s.d[s.rank - from_right] != n)
        return n;
    for (int64_t i = 0; i < n; i++)
        if (at[i] != i)
            return n;
    Interval index = range(g, equal->in[0]);
    return index.lo >= 0 && index.hi < (double)n ? (int64_t)index.hi + 1 : n;
}

/* ---- importing them ---- */

/* The mask of the rows that a trip adds, which it does by a scatter; NONE: otherwise. */
static ValueId rows_added(ImportState *s, const Trips *t, const Trip *trip)
{
    uint32_t at;
    const RawNode *n = maker(s, trip->handed, &at);
    if (!strcmp(n->op_type, "Add") && n->nin == 2) {
        const RawNode *scatter = maker(s, n->in[1], &at);
        if (!scatter || t->trip_of[at] == NONE || scatter->nin != 3 ||
            !is_zero(s->g, import_slot(s, scatter, 0)->v))
            return NONE;
        n = scatter;
    }
    if (strncmp(n->op_type, "Scatter", 7) != 0 || n->nin != 3)
        return NONE;
    const Ragged *rows = ragged_find(s, import_slot(s, n, 1)->v);
    return rows ? rows->mask : NONE;
}

static Slot import_trip(ImportState *s, const Trips *t, uint32_t trip, int64_t place, Slot before)
{
    const Trip *at = &t->at[trip];
    import_define(s, at->piece, (Slot){.v = g_slice_axis(s->g, t->piece, t->axis, place, 1)});
    if (trip > 0)
        import_define(s, at->taken, before);
    for (uint32_t i = 0; i < at->node.n; i++)
        s->node(s, at->node.at[i]);
    return *import_lookup(s, at->handed, raw_where(s->m, t->split, -1));
}

static void import_all(ImportState *s, Trips *t)
{
    Graph *g = s->g;
    int dim;
    ValueId mask = counted_mask(g, t->hit, &dim);
    if (mask == NONE)
        refuse(s, t, "the condition that chooses iterations is not a sum over a mask");
    int64_t all = low_shape(g, t->piece).d[t->axis], places = places_of(g, mask, dim, all);
    Slot start = *import_lookup(s, t->at[0].taken, raw_where(s->m, t->split, -1));
    Slot sum = import_trip(s, t, 1, 0, start), other;
    Alike a = {0};
    for (uint32_t i = 0; i < t->n; i++) {
        if (i == 1)
            continue;
        other = import_trip(s, t, i, 0, start);
        if (!import_alike(g, &a, sum.v, other.v))
            refuse(s, t, "the iterations differ in more than their parameters");
    }
    if (a.other_parameters && places != t->n) {
        diag_hint("export with an example that hits every expert");
        refuse(
            s, t,
            "each iteration has parameters of its own, and the example did not reach all of them");
    }
    for (int64_t place = 0; place < places; place++) {
        uint32_t trip = a.other_parameters ? (uint32_t)place : 1;
        sum = import_trip(s, t, trip, place, place ? sum : start);
        ValueId rows = rows_added(s, t, &t->at[trip]);
        if (rows == NONE || !is_of_place(g, rows, mask, dim, place))
            refuse(s, t, "an iteration does more than add its rows to a sum");
    }
    import_define(s, t->at[t->n - 1].handed, sum);
}

void trips_split(ImportState *s, Import *im, int axis, ValueId hit)
{
    Graph *g = im->g;
    Trips *t = arena_new_of(g->arena, Trips);
    *t = (Trips){.n = im->nout, .split = im->node, .piece = im->in[0], .axis = axis, .hit = hit};
    t->at = arena_array(g->arena, Trip, t->n);
    t->trip_of = arena_array(g->arena, uint32_t, s->list->n);
    for (uint32_t i = 0; i < t->n; i++)
        t->at[i].piece = im->node->out[i];
    int64_t *sizes = NULL, n = t->n;
    if (low_ints_either(im, "split", 1, &sizes, &n))
        for (int64_t i = 0; i < n; i++)
            if (sizes[i] != 1)
                refuse(s, t, "one piece belongs to several iterations");
    if (t->n < 2 || n != t->n)
        refuse(s, t, "a single iteration does not show what is passed on to the next");
    assign(s, t);
    find_accumulators(s, t);
    assign(s, t);
    collect(s, t);
    close_up(s, t);
    for (uint32_t i = 0; i < t->n; i++)
        im->out[i] = g_slice_axis(g, t->piece, axis, 0, 1);
    t->next = s->trips;
    s->trips = t;
}

bool trips_take(ImportState *s, const RawNode *n)
{
    for (Trips *t = s->trips; t; t = t->next) {
        if (n->nout == 0 || strmap_get(&t->of, n->out[0]) == NONE)
            continue;
        if (n == t->last) {
            for (Trips **at = &s->trips; *at; at = &(*at)->next)
                if (*at == t) {
                    *at = t->next;
                    break;
                }
            import_all(s, t);
        }
        return true;
    }
    return false;
}
