/*
 * loop.c - Loop and Scan.  In: the node and what its operands stand for.  Out: the nodes of its
 * body, once for each trip.
 *
 * How often it runs is mostly known when the model is read; then the loop is unrolled.  One whose
 * number of trips the data decides, or that ends on the data, is unrolled as far as it can run at
 * most: up to the greatest number that the operand can be, or until its condition can be true no
 * more (ir/facts/range.c).  A trip that is not made in this run leaves the state as it was, and
 * what it would have yielded is not there (ragged.c).  Semantics: ONNX, Loop-25, Scan-25.
 */
#include <math.h>

#include "control.h"
#include "ir/facts/facts.h"

/* ---- results of all trips ---- */

/* What trips yield, one each; there: in which runs, NONE: in all.  Empty where that is so of all.
 */
typedef struct {
    Ids value, there;
} Yields;

/* n values of one shape along a new dim. */
static ValueId stack(const Control *c, const Ids *list, int axis)
{
    Graph *g = c->s->g;
    Shape first = low_shape(g, list->at[0]);
    if (first.rank + 1 > MAX_RANK)
        FATAL(c, -1, "a result of more than %d dims", MAX_RANK);
    for (uint32_t i = 1; i < list->n; i++) {
        Shape s = low_shape(g, list->at[i]);
        if (!shape_equal(&s, &first))
            FATAL(c, -1, "a result is %s in one trip and %s in another",
                  shape_print(g->arena, low_dtype(g, list->at[0]), &first),
                  shape_print(g->arena, low_dtype(g, list->at[i]), &s));
    }
    ValueId all = reroll(g, list->n, list->at);
    if (all != NONE)
        return low_move_dim(g, all, 0, axis);
    ValueId *part = arena_array(g->arena, ValueId, list->n);
    for (uint32_t i = 0; i < list->n; i++)
        part[i] = low_unsqueeze(g, list->at[i], axis);
    return list->n == 1 ? part[0] : g_concat(g, list->n, part, axis);
}

static void collect(const Control *c, Yields *y, Slot slot, ValueId there)
{
    Arena *a = c->s->g->arena;
    control_collect(c, &y->value, slot);
    if (ragged_find(c->s, slot.v))
        FATAL(c, -1, "a result whose size depends on the data in each trip");
    if (there == NONE && y->there.n == 0)
        return;
    while (y->there.n + 1 < y->value.n)
        vec_push(a, &y->there, NONE);
    vec_push(a, &y->there, there);
}

static void yield_stacked(const Control *c, uint32_t out, const Yields *y, int axis)
{
    if (!control_wanted(c, out))
        return;
    if (y->value.n == 0)
        FATAL(c, -1, "its output %u is empty: the loop never runs", out);
    ValueId all = stack(c, &y->value, axis);
    if (y->there.n)
        all = ragged_of_trips(c->s, all, &y->there, axis);
    control_yield(c, out, (Slot){.v = all});
}

/* The body once, with these inputs: where `alive` (NONE: certainly), the states after it are in
 * `state`, and `list` has what it yields beside them.  Gives its results, of which states begin at
 * `first`. */
static Slots run_body(const Control *c, const Slots *in, ValueId alive, uint32_t first,
                      Slots *state, uint32_t yields, Yields *list)
{
    Slots out = control_body(c, "body", in, first + state->n + yields);
    for (uint32_t i = 0; i < state->n; i++) {
        Slot after = out.at[first + i];
        state->at[i] = alive == NONE ? after : control_choose(c, alive, after, state->at[i]);
    }
    for (uint32_t i = 0; i < yields; i++)
        collect(c, &list[i], out.at[first + state->n + i], alive);
    return out;
}

/* ---- Loop ---- */

typedef struct {
    int64_t trips;    /* at most */
    bool goes;        /* as far as is known */
    ValueId alive;    /* NONE: certainly */
    ValueId count;    /* how many there are in this run; NONE: all */
    Intervals ranges; /* while it is alive */
} Trip;

/* From here on it is alive, and so is what is imported in its body.  Of a loop the last trip's
 * stands behind those of the `outside` loops around: it is true only where all before it are. */
static void suppose(const Control *c, Trip *t, uint32_t outside)
{
    if (t->alive == NONE)
        return;
    range_suppose(&t->ranges, t->alive);
    c->s->alive.n = outside;
    vec_push(c->s->g->arena, &c->s->alive, t->alive);
}

/* The greatest number that v can be, which must not be more with other rows; infinite: not known.
 */
static double most_of(const Control *c, Trip *t, ValueId v)
{
    Graph *g = c->s->g;
    double most = range_of(&t->ranges, v).hi;
    TripBound b = {.v = v, .most = most, .origin = c->origin, .n = c->s->alive.n};
    b.given = arena_array(g->arena, ValueId, b.n + 1);
    for (uint32_t i = 0; i < b.n; i++)
        b.given[i] = c->s->alive.at[i];
    if (most < (double)INFINITY && (low_dtype(g, v) != DT_BOOL || most < 1))
        vec_push(g->arena, &g->trip_bound, b);
    return most;
}

/* Its number of trips depends on the data. */
static void bound_trips(const Control *c, Trip *t)
{
    Shape s = low_shape(c->s->g, c->in[0].v);
    double most = low_dtype(c->s->g, c->in[0].v) == DT_I64 && shape_elements(&s) == 1
                      ? most_of(c, t, c->in[0].v)
                      : (double)INFINITY;
    if (most == (double)INFINITY) {
        const char *hint;
        control_inputs(c, &hint);
        if (hint)
            diag_hint("if it is the same in every run, say it:%s", hint);
        diag_hint("if it follows from symbolic dimensions, give them sizes with --bind NAME=N; if "
                  "the data decide it, bound it in the model: n.clamp(max=N), min(n, x.shape[1])");
        FATAL(c, 0, "how often it runs must be known, or bounded, when the model is read");
    }
    t->trips = most > 0 ? (int64_t)most : 0;
    t->count = c->in[0].v;
}

static Trip first_trip(const Control *c)
{
    Graph *g = c->s->g;
    Trip t = {.trips = INT64_MAX,
              .goes = true,
              .alive = NONE,
              .count = NONE,
              .ranges = {.g = g, .arena = g->arena}};
    int64_t condition = 1;
    for (uint32_t i = 0; i < c->s->alive.n; i++)
        range_suppose(&t.ranges, c->s->alive.at[i]);
    for (uint32_t i = 0; i < 2; i++) {
        ValueId v =
            control_absent(c, i) || c->in[i].is_sequence ? NONE : ragged_actual(c->s, c->in[i].v);
        if (v == NONE || v == c->in[i].v)
            continue;
        if (i == 0)
            t.count = v;
        else
            c->in[i].v = v;
    }
    if (!control_absent(c, 0) && !control_known(c, 0, &t.trips))
        bound_trips(c, &t);
    if (!control_absent(c, 1) && !control_known(c, 1, &condition))
        t.alive = control_bool(c, c->in[1].v);
    t.goes = condition != 0;
    return t;
}

/* Is there a trip of this number?  What was not alive before is not now. */
static void count_trip(const Control *c, Trip *t, int64_t trip)
{
    Graph *g = c->s->g;
    if (t->count == NONE)
        return;
    ValueId is = g_binary(g, OP_Less, g_like(g, t->count, (double)trip), t->count);
    is = control_bool(c, is);
    t->alive = t->alive == NONE ? is : g_binary(g, OP_And, t->alive, is);
}

/* Another trip: `condition` is what the body yields. */
static void next_trip(const Control *c, Trip *t, Slot condition)
{
    Graph *g = c->s->g;
    int64_t *at, n;
    if (condition.is_sequence)
        FATAL(c, -1, "its condition is a sequence");
    condition.v = ragged_actual(c->s, condition.v);
    if (g_const_ints(g, condition.v, g->arena, &at, &n) && n == 1) {
        t->goes = *at != 0;
        return;
    }
    ValueId more = control_bool(c, condition.v);
    t->goes = most_of(c, t, more) >= 1;
    t->alive = t->alive == NONE ? more : g_binary(g, OP_And, t->alive, more);
}

/* So many copies of the body are to fit the limit. */
static void limit_trips(const Control *c, int64_t trips)
{
    const Onnx__AttributeProto *a = raw_attr(c->n, "body");
    uint64_t each = a && a->g ? inline_body_cost(a->g) : 1, limit = c->s->m->limits.nodes;
    if (trips <= 0 || (uint64_t)trips <= limit / each)
        return;
    diag_hint("--limit=nodes=N raises the limit");
    FATAL(c, -1, "%lld trips are too many: each counts as %llu nodes, the limit is %llu",
          (long long)trips, (unsigned long long)each, (unsigned long long)limit);
}

/* Before another trip is imported: a loop without a bound ends early, one with it fits the limit.
 */
static void check_trips(const Control *c, const Trip *t, int64_t trip)
{
    enum { MOST_UNBOUNDED = 10000 };
    if (t->trips == INT64_MAX && trip == MOST_UNBOUNDED) {
        diag_hint(
            "if the data end the loop, its condition needs a bound on the iterations: `and i < N`");
        FATAL(c, 0, "it runs %d times and has no bound", MOST_UNBOUNDED);
    }
    if (t->trips != INT64_MAX && trip == 0 && t->alive == NONE)
        limit_trips(c, t->trips);
}

/* What the body yields as a number known now is that in the next trip, if there is one: where the
 * data ended the loop before, nothing of that trip counts.  `while x.sum() < 40 and i < 6` so ends
 * at its bound. */
static bool is_counter(const Control *c, Slot s)
{
    return !s.is_sequence && val(c->s->g, s.v)->kind == V_CONST &&
           !dtype_is_float(val(c->s->g, s.v)->dtype);
}

/* One trip: the states after it are in `state`, where the next one's body finds them in `taken`. */
static void make_trip(const Control *c, Trip *t, int64_t trip, Slots *state, Slots *taken,
                      uint32_t scans, Yields *list)
{
    Graph *g = c->s->g;
    Slots in = {0};
    Slot number = {.v = g_scalar(g, DT_I64, (double)trip)},
         alive = {.v = t->alive == NONE ? g_scalar(g, DT_BOOL, 1) : t->alive};
    vec_push(g->arena, &in, number);
    vec_push(g->arena, &in, alive);
    for (uint32_t i = 0; i < state->n; i++)
        vec_push(g->arena, &in, taken->at[i]);
    Slots out = run_body(c, &in, t->alive, 1, state, scans, list);
    for (uint32_t i = 0; i < state->n; i++)
        taken->at[i] = is_counter(c, out.at[1 + i]) ? out.at[1 + i] : state->at[i];
    next_trip(c, t, out.at[0]);
}

void import_loop(const Control *c)
{
    Graph *g = c->s->g;
    if (c->n->nin < 2)
        FATAL(c, -1, "it has %u inputs, at least 2 are needed", c->n->nin);
    uint32_t carried = c->n->nin - 2, outside = c->s->alive.n;
    Trip t = first_trip(c);
    Slots state = {0}, taken = {0};
    for (uint32_t i = 0; i < carried; i++) {
        vec_push(g->arena, &state, c->in[2 + i]);
        vec_push(g->arena, &taken, c->in[2 + i]);
    }
    uint32_t scans = c->n->nout > carried ? c->n->nout - carried : 0;
    Yields *list = arena_array(g->arena, Yields, scans + 1);
    for (int64_t trip = 0; trip < t.trips && t.goes; trip++) {
        check_trips(c, &t, trip);
        count_trip(c, &t, trip);
        suppose(c, &t, outside);
        make_trip(c, &t, trip, &state, &taken, scans, list);
    }
    c->s->alive.n = outside;
    for (uint32_t i = 0; i < carried; i++)
        control_yield(c, i, state.at[i]);
    for (uint32_t i = 0; i < scans; i++)
        yield_stacked(c, carried + i, &list[i], 0);
}

/* ---- Scan ---- */

typedef struct {
    uint32_t states, inputs, outputs;
    int64_t length;
    int *axis;                          /* [inputs] */
    int64_t *backwards, *out_backwards; /* [inputs], [outputs] */
    ValueId there;                      /* bool [length]: steps of this run; NONE: all */
} Scan;

/* One number for each of n, 0 where the attribute is absent. */
static int64_t *numbers(const Control *c, const char *name, uint32_t n)
{
    int64_t *at = arena_array(c->s->g->arena, int64_t, n + 1);
    const Onnx__AttributeProto *a = raw_attr(c->n, name);
    if (a && a->n_ints != n)
        FATAL(c, -1, "attribute '%s' has %zu numbers, %u are needed", name, a->n_ints, n);
    for (uint32_t i = 0; a && i < n; i++)
        at[i] = a->ints[i];
    return at;
}

/* The length of an operand may depend on the data: those that are there come first.  All must have
 * the same ones, and go through them in one direction. */
static void scan_sized(const Control *c, Scan *k)
{
    const Ragged *first = ragged_find(c->s, c->in[k->states].v);
    for (uint32_t i = 0; i < k->inputs; i++) {
        uint32_t input = k->states + i;
        const Ragged *r = ragged_find(c->s, c->in[input].v);
        if (!r != !first || (r && (r->dim != k->axis[i] || r->also || r->mask != first->mask ||
                                   k->backwards[i] != k->backwards[0])))
            FATAL(c, (int)input, "a size that depends on the data, not that of the first scanned");
        if (r)
            c->in[input].v = ragged_in_order(c->s, c->in[input].v);
    }
    k->there = first ? ragged_packed(c->s, first->mask) : NONE;
}

static Scan scan_of(const Control *c)
{
    Arena *a = c->s->g->arena;
    int64_t inputs = raw_int(c->n, "num_scan_inputs", 0);
    if (c->n->opset < 9)
        FATAL(c, -1, "Scan of opset %d is not supported, that of 9 is", c->n->opset);
    if (inputs < 1 || inputs > c->n->nin)
        FATAL(c, -1, "num_scan_inputs is %lld, it has %u inputs", (long long)inputs, c->n->nin);
    Scan k = {.states = c->n->nin - (uint32_t)inputs, .inputs = (uint32_t)inputs};
    if (c->n->nout > k.states)
        k.outputs = c->n->nout - k.states;
    k.axis = arena_array(a, int, k.inputs + 1);
    k.backwards = numbers(c, "scan_input_directions", k.inputs);
    k.out_backwards = numbers(c, "scan_output_directions", k.outputs);
    int64_t *axis = numbers(c, "scan_input_axes", k.inputs);
    for (uint32_t i = 0; i < k.inputs; i++) {
        uint32_t input = k.states + i;
        if (c->in[input].is_sequence || c->in[input].v == NONE)
            FATAL(c, (int)input, "a tensor is needed");
        Shape s = low_shape(c->s->g, c->in[input].v);
        k.axis[i] = (int)(axis[i] < 0 ? axis[i] + s.rank : axis[i]);
        if (k.axis[i] < 0 || k.axis[i] >= s.rank)
            FATAL(c, (int)input, "axis %lld is out of range for rank %d", (long long)axis[i],
                  s.rank);
        if (i && s.d[k.axis[i]] != k.length)
            FATAL(c, (int)input, "%lld steps, the first has %lld", (long long)s.d[k.axis[i]],
                  (long long)k.length);
        k.length = s.d[k.axis[i]];
    }
    scan_sized(c, &k);
    return k;
}

static void reverse(Ids *list)
{
    for (uint32_t i = 0, j = list->n; i + 1 < j; i++) {
        ValueId x = list->at[i];
        list->at[i] = list->at[--j];
        list->at[j] = x;
    }
}

static void scan_step(const Control *c, const Scan *k, int64_t t, Slots *state, Yields *list)
{
    Graph *g = c->s->g;
    Slots in = {0};
    ValueId alive = NONE;
    if (k->there != NONE)
        alive = control_bool(
            c, g_slice_axis(g, k->there, 0, k->backwards[0] ? k->length - 1 - t : t, 1));
    for (uint32_t i = 0; i < k->states; i++)
        vec_push(g->arena, &in, state->at[i]);
    for (uint32_t i = 0; i < k->inputs; i++) {
        int64_t at = k->backwards[i] ? k->length - 1 - t : t, axis = k->axis[i];
        ValueId x = g_slice_axis(g, c->in[k->states + i].v, k->axis[i], at, 1);
        vec_push(g->arena, &in, (Slot){.v = low_squeeze(g, x, 1, &axis)});
    }
    run_body(c, &in, alive, 0, state, k->outputs, list);
}

void import_scan(const Control *c)
{
    Graph *g = c->s->g;
    Scan k = scan_of(c);
    Slots state = {0};
    for (uint32_t i = 0; i < k.states; i++)
        vec_push(g->arena, &state, c->in[i]);
    Yields *list = arena_array(g->arena, Yields, k.outputs + 1);
    limit_trips(c, k.length);
    for (int64_t t = 0; t < k.length; t++)
        scan_step(c, &k, t, &state, list);
    int64_t *axis = numbers(c, "scan_output_axes", k.outputs);
    for (uint32_t i = 0; i < k.states; i++)
        control_yield(c, i, state.at[i]);
    for (uint32_t i = 0; i < k.outputs; i++) {
        int rank = list[i].value.n ? low_shape(g, list[i].value.at[0]).rank + 1 : 1;
        int64_t at = axis[i] < 0 ? axis[i] + rank : axis[i];
        if (at < 0 || at >= rank)
            FATAL(c, -1, "output axis %lld is out of range for rank %d", (long long)axis[i], rank);
        if (k.out_backwards[i]) {
            reverse(&list[i].value);
            reverse(&list[i].there);
        }
        yield_stacked(c, k.states + i, &list[i], (int)at);
    }
}
