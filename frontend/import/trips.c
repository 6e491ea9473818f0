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
    StrMap of;                   /* names that trips make */
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

/* The last trip of those that make what the node reads. */
static uint32_t trip_of(const ImportState *s, const StrMap *of, const RawNode *n)
{
    Seen seen = {of, NONE};
    for (uint32_t k = 0; k < n->nin; k++)
        see(&seen, n->in[k]);
    inline_captured(s->m, n, see, &seen);
    return seen.trip;
}

/* Which trip makes a value: the one of the last piece that it depends on.  What follows the loop is
 * taken for the last trip's. */
static void assign(const ImportState *s, Trips *t)
{
    t->of = (StrMap){.arena = s->g->arena};
    for (uint32_t i = 0; i < t->n; i++)
        *strmap_at(&t->of, t->at[i].piece) = i;
    for (uint32_t i = 0; i < s->list->n; i++) {
        const RawNode *n = s->list->at[i];
        uint32_t trip = n->dead ? NONE : trip_of(s, &t->of, n);
        for (uint32_t k = 0; k < n->nout && trip != NONE; k++)
            if (*n->out[k])
                *strmap_at(&t->of, n->out[k]) = trip;
    }
}

/* The accumulator: trip 1 makes it of what trip 0 made, as that did of what it got, and so on. */
static void find_accumulators(ImportState *s, Trips *t)
{
    for (uint32_t i = 0; i < s->list->n && !t->last; i++) {
        const RawNode *n = s->list->at[i];
        uint32_t trip = 0;
        if (n->dead || !n->nin || !n->nout || strmap_get(&t->of, n->out[0]) != 0 ||
            strmap_get(&t->of, n->in[0]) != NONE)
            continue;
        t->at[0].taken = n->in[0];
        for (uint32_t k = i; k < s->list->n && trip < t->n; k++) {
            const RawNode *next = s->list->at[k];
            if (next->dead || strcmp(next->op_type, n->op_type) || next->nin != n->nin ||
                strcmp(next->in[0], t->at[trip].taken) || strmap_get(&t->of, next->out[0]) != trip)
                continue;
            t->at[trip].handed = next->out[0];
            if (++trip < t->n)
                t->at[trip].taken = next->out[0];
            t->last = trip == t->n ? next : NULL;
        }
    }
    if (!t->last)
        refuse(s, t, "no iteration adds to the sum that the one before passes on");
}

static void need(void *to, const char *name)
{
    if (*name)
        *strmap_at(to, name) = 1;
}

/* The nodes that make what a trip hands on, of what it takes and of its piece, in order.  own: the
 * names of what they make */
static void collect(ImportState *s, Trips *t, uint32_t trip, StrMap *own)
{
    Trip *at = &t->at[trip];
    RawNodes back = {0};
    StrMap needed = {.arena = s->g->arena};
    need(&needed, at->handed);
    for (uint32_t i = s->list->n; i-- > 0;) {
        RawNode *n = s->list->at[i];
        bool is = false;
        for (uint32_t k = 0; k < n->nout; k++)
            is |= strmap_get(&needed, n->out[k]) != NONE && strmap_get(&t->of, n->out[k]) != NONE &&
                  n != t->split && strcmp(n->out[k], at->taken) != 0;
        if (!is)
            continue;
        vec_push(s->g->arena, &back, n);
        for (uint32_t k = 0; k < n->nin; k++)
            need(&needed, n->in[k]);
        inline_captured(s->m, n, need, &needed);
    }
    for (uint32_t i = 0; i < t->n; i++)
        if (i != trip && strmap_get(&needed, t->at[i].piece) != NONE)
            refuse(s, t, "an iteration passes on more than its sum");
    for (uint32_t i = back.n; i-- > 0;) {
        vec_push(s->g->arena, &at->node, back.at[i]);
        for (uint32_t k = 0; k < back.at[i]->nout; k++)
            need(own, back.at[i]->out[k]);
    }
}

/* Nothing but the last accumulator may be taken by others.  Leaves in `of` what trips make. */
static void close_up(ImportState *s, Trips *t)
{
    StrMap own = {.arena = s->g->arena}, inside = {.arena = s->g->arena};
    const char *result = t->last->out[0];
    for (uint32_t i = 0; i < t->n; i++) {
        collect(s, t, i, &own);
        need(&inside, t->at[i].piece);
        for (uint32_t k = 0; k < t->at[i].node.n; k++)
            for (uint32_t o = 0; o < t->at[i].node.at[k]->nout; o++)
                if (strcmp(t->at[i].node.at[k]->out[o], result) != 0)
                    need(&inside, t->at[i].node.at[k]->out[o]);
    }
    Seen seen = {&inside, NONE};
    for (size_t i = 0; i < s->m->graph->n_output; i++)
        if (s->m->graph->output[i]->name)
            see(&seen, s->m->graph->output[i]->name);
    for (uint32_t i = 0; i < s->list->n && seen.trip == NONE; i++) {
        const RawNode *n = s->list->at[i];
        if (!n->dead && n->nout && strmap_get(&own, n->out[0]) == NONE)
            seen.trip = trip_of(s, &inside, n);
    }
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
static ValueId rows_added(ImportState *s, const Trip *trip)
{
    const RawNode *n = raw_maker(&trip->node, trip->handed);
    if (!strcmp(n->op_type, "Add") && n->nin == 2) {
        n = raw_maker(&trip->node, n->in[1]);
        if (!n || n->nin != 3 || !is_zero(s->g, import_slot(s, n, 0)->v))
            return NONE;
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
        ValueId rows = rows_added(s, &t->at[trip]);
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
