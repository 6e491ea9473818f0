/*
 * control.c - If, Loop, Scan and SequenceMap.  In: the node and what its operands stand for.  Out:
 * the nodes of its bodies, imported in place, once for each time that they run.
 *
 * What decides (a condition, a number of trips, a length) is mostly known when the model is read;
 * then the branch not taken does not exist and a loop is unrolled.  A condition of the data
 * computes both branches and chooses; a loop that ends on the data runs to its bound and keeps its
 * state from where it ended.  Semantics: ONNX, If-25, Loop-25, Scan-25, SequenceMap-17.
 */
#include <string.h>

#include "low.h"
#include "state.h"

typedef VEC(Slot) Slots;

typedef struct {
    ImportState *s;
    const RawNode *n;
    ImportBody *body;
    Slot *in;
    uint32_t origin; /* of the node, for what is made beside bodies */
} Control;

#define FATAL(c, input, ...)                                                                       \
    diag_fatal(EXIT_MODEL, raw_where((c)->s->m, (c)->n, input), __VA_ARGS__)

/* Imports a copy of the body, its inputs being `in`; gives what it yields. */
static Slots run_body(const Control *c, const char *attr, const Slots *in)
{
    ImportState *s = c->s;
    Body b = inline_body(s->m, c->n, attr);
    if (b.nin != in->n)
        FATAL(c, -1, "body '%s' takes %u values, it is given %u", attr, b.nin, in->n);
    for (uint32_t i = 0; i < b.nin; i++)
        import_define(s, b.in[i], in->at[i]);
    sort_nodes(s->m, &b.node);
    scope_assign(s->m, &b.node);
    import_mark_live(s->m, &b.node, b.nout, b.out);
    StrMap before = {0};
    if (s->params) {
        before = param_enter(s->params, c->n);
        param_assign(s->params, &b.node);
    }
    stop_assign(s->stops, s->m, s->params, &b.node);
    c->body(s, &b.node);
    if (s->params)
        param_leave(s->params, before);
    Slots out = {0};
    for (uint32_t i = 0; i < b.nout; i++)
        vec_push(s->g->arena, &out, *import_lookup(s, b.out[i], raw_where(s->m, c->n, -1)));
    s->g->cur_origin = c->origin;
    return out;
}

static bool wanted(const Control *c, uint32_t out) { return out < c->n->nout && *c->n->out[out]; }

/* What has no name yet gets the result's. */
static void yield(const Control *c, uint32_t out, Slot slot)
{
    if (!wanted(c, out))
        return;
    const Value *v = slot.is_sequence ? NULL : val(c->s->g, slot.v);
    if (v && v->kind == V_NODE && strchr(v->name, '%'))
        import_name_value(c->s, slot.v, c->n->out[out]);
    import_define(c->s, c->n->out[out], slot);
}

static bool absent(const Control *c, uint32_t input)
{
    return input >= c->n->nin || !*c->n->in[input];
}

/* Operand i as a known number; false when it depends on the data. */
static bool known(const Control *c, uint32_t input, int64_t *number)
{
    int64_t *at, n;
    if (c->in[input].is_sequence || c->in[input].v == NONE)
        FATAL(c, (int)input, "a number is needed");
    if (!g_const_ints(c->s->g, c->in[input].v, c->s->g->arena, &at, &n))
        return false;
    if (n != 1)
        FATAL(c, (int)input, "%lld numbers where one is needed", (long long)n);
    *number = *at;
    return true;
}

static ValueId scalar_bool(const Control *c, ValueId v)
{
    Graph *g = c->s->g;
    Shape s = low_shape(g, v), scalar = {0};
    if (low_dtype(g, v) != DT_BOOL || shape_elements(&s) != 1)
        FATAL(c, -1, "its condition is %s, not one bool",
              shape_print(g->arena, low_dtype(g, v), &s));
    return g_reshape(g, v, &scalar);
}

static bool is_same_constant(const Value *x, const Value *y)
{
    return x->kind == V_CONST && y->kind == V_CONST && x->dtype == y->dtype &&
           shape_equal(&x->shape, &y->shape) &&
           !memcmp(x->data, y->data, (size_t)shape_elements(&x->shape) * dtype_size(x->dtype));
}

/* condition ? x : y, of one type and shape. */
static Slot choose(const Control *c, ValueId condition, Slot x, Slot y)
{
    Graph *g = c->s->g;
    if (x.is_sequence || y.is_sequence)
        FATAL(c, -1, "a sequence that depends on the data");
    ValueId sized;
    if (x.v == y.v || is_same_constant(val(g, x.v), val(g, y.v)))
        return x;
    if (ragged_choose(c->s, condition, x.v, y.v, &sized))
        return (Slot){.v = sized};
    Shape a = low_shape(g, x.v), b = low_shape(g, y.v);
    if (!shape_equal(&a, &b) || low_dtype(g, x.v) != low_dtype(g, y.v))
        FATAL(c, -1, "a value is %s or %s, which depends on the data",
              shape_print(g->arena, low_dtype(g, x.v), &a),
              shape_print(g->arena, low_dtype(g, y.v), &b));
    return (Slot){.v = g_where(g, condition, x.v, y.v)};
}

/* ---- If ---- */

static void import_if(const Control *c)
{
    int64_t condition;
    Slots none = {0};
    if (c->n->nin != 1 || absent(c, 0))
        FATAL(c, -1, "its condition is missing");
    if (!c->in[0].is_sequence)
        c->in[0].v = ragged_actual(c->s, c->in[0].v);
    bool is_known = known(c, 0, &condition);
    Slots out = {0}, other = {0};
    if (!is_known || condition)
        out = run_body(c, "then_branch", &none);
    if (!is_known || !condition)
        other = run_body(c, "else_branch", &none);
    const Slots *taken = is_known && !condition ? &other : &out;
    if (taken->n < c->n->nout || (!is_known && other.n < c->n->nout))
        FATAL(c, -1, "its branch has %u outputs, %u are used", taken->n, c->n->nout);
    ValueId test = is_known ? NONE : scalar_bool(c, c->in[0].v);
    for (uint32_t i = 0; i < c->n->nout; i++)
        if (wanted(c, i))
            yield(c, i, is_known ? taken->at[i] : choose(c, test, out.at[i], other.at[i]));
}

/* ---- results of all trips ---- */

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
    if (all != NONE) {
        int64_t perm[MAX_RANK];
        for (int d = 0; d <= first.rank; d++)
            perm[d] = d < axis ? d + 1 : d == axis ? 0 : d;
        return axis ? g_transpose(g, all, perm) : all;
    }
    ValueId *part = arena_array(g->arena, ValueId, list->n);
    for (uint32_t i = 0; i < list->n; i++)
        part[i] = low_unsqueeze(g, list->at[i], axis);
    return list->n == 1 ? part[0] : g_concat(g, list->n, part, axis);
}

static void collect(const Control *c, Ids *list, Slot slot)
{
    if (slot.is_sequence)
        FATAL(c, -1, "a sequence where a tensor is needed");
    vec_push(c->s->g->arena, list, slot.v);
}

static void yield_stacked(const Control *c, uint32_t out, const Ids *list, int axis)
{
    if (!wanted(c, out))
        return;
    if (list->n == 0)
        FATAL(c, -1, "its output %u is empty: the loop never runs", out);
    yield(c, out, (Slot){.v = stack(c, list, axis)});
}

/* ---- Loop ---- */

typedef struct {
    int64_t trips; /* at most */
    bool goes;     /* as far as is known */
    ValueId alive; /* NONE: certainly */
    ValueId count; /* how many there are in this run; NONE: all */
} Trip;

static Trip first_trip(const Control *c)
{
    Trip t = {.trips = INT64_MAX, .goes = true, .alive = NONE, .count = NONE};
    int64_t condition = 1;
    for (uint32_t i = 0; i < 2; i++) {
        ValueId v = absent(c, i) || c->in[i].is_sequence ? NONE : ragged_actual(c->s, c->in[i].v);
        if (v == NONE || v == c->in[i].v)
            continue;
        if (i == 0)
            t.count = v;
        else
            c->in[i].v = v;
    }
    if (!absent(c, 0) && !known(c, 0, &t.trips)) {
        diag_hint("when it follows from symbolic dimensions, --bind NAME=N gives them values");
        FATAL(c, 0, "how often it runs must be known, or bounded, when the model is read");
    }
    if (!absent(c, 1) && !known(c, 1, &condition))
        t.alive = scalar_bool(c, c->in[1].v);
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
    is = scalar_bool(c, is);
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
    ValueId more = scalar_bool(c, condition.v);
    t->alive = t->alive == NONE ? more : g_binary(g, OP_And, t->alive, more);
}

/* Before another trip is imported: a loop without a bound ends early, one with it fits the limit.
 */
static void check_trips(const Control *c, const Trip *t, int64_t trip)
{
    enum { MOST_UNBOUNDED = 10000 };
    const Onnx__AttributeProto *a = raw_attr(c->n, "body");
    double each = a && a->g ? (double)a->g->n_node : 0, limit = (double)c->s->m->limits.nodes;
    if (t->trips == INT64_MAX && trip == MOST_UNBOUNDED) {
        diag_hint("a loop that ends on the data needs a number of trips as a bound");
        FATAL(c, 0, "it runs %d times and has no bound", MOST_UNBOUNDED);
    }
    if (t->trips != INT64_MAX && trip == 0 && t->alive == NONE && each * (double)t->trips > limit) {
        diag_hint("--limit=nodes=N raises the limit");
        FATAL(c, 0, "%lld trips of %.0f nodes are more than %.0f", (long long)t->trips, each,
              limit);
    }
}

/* What the body yields as a number known now is that in the next trip, if there is one: where the
 * data ended the loop before, nothing of that trip counts.  `while x.sum() < 40 and i < 6` so ends
 * at its bound. */
static bool is_counter(const Control *c, Slot s)
{
    return !s.is_sequence && val(c->s->g, s.v)->kind == V_CONST &&
           !dtype_is_float(val(c->s->g, s.v)->dtype);
}

static void import_loop(const Control *c)
{
    Graph *g = c->s->g;
    if (c->n->nin < 2)
        FATAL(c, -1, "it has %u inputs, at least 2 are needed", c->n->nin);
    uint32_t carried = c->n->nin - 2;
    Trip t = first_trip(c);
    Slots state = {0};
    Slot *taken = arena_array(g->arena, Slot, carried + 1);
    for (uint32_t i = 0; i < carried; i++) {
        vec_push(g->arena, &state, c->in[2 + i]);
        taken[i] = state.at[i];
    }
    uint32_t scans = c->n->nout > carried ? c->n->nout - carried : 0;
    Ids *list = arena_array(g->arena, Ids, scans + 1);
    for (int64_t trip = 0; trip < t.trips && t.goes; trip++) {
        check_trips(c, &t, trip);
        count_trip(c, &t, trip);
        Slots in = {0};
        Slot number = {.v = g_scalar(g, DT_I64, (double)trip)},
             alive = {.v = t.alive == NONE ? g_scalar(g, DT_BOOL, 1) : t.alive};
        vec_push(g->arena, &in, number);
        vec_push(g->arena, &in, alive);
        for (uint32_t i = 0; i < carried; i++)
            vec_push(g->arena, &in, taken[i]);
        Slots out = run_body(c, "body", &in);
        if (out.n < 1 + carried + scans)
            FATAL(c, -1, "its body yields %u values, %u are used", out.n, 1 + carried + scans);
        for (uint32_t i = 0; i < carried; i++) {
            state.at[i] =
                t.alive == NONE ? out.at[1 + i] : choose(c, t.alive, out.at[1 + i], state.at[i]);
            taken[i] = is_counter(c, out.at[1 + i]) ? out.at[1 + i] : state.at[i];
        }
        for (uint32_t i = 0; i < scans; i++) {
            if (wanted(c, carried + i) && t.alive != NONE)
                FATAL(c, -1, "the length of its output %u depends on the data", carried + i);
            collect(c, &list[i], out.at[1 + carried + i]);
        }
        next_trip(c, &t, out.at[0]);
    }
    for (uint32_t i = 0; i < carried; i++)
        yield(c, i, state.at[i]);
    for (uint32_t i = 0; i < scans; i++)
        yield_stacked(c, carried + i, &list[i], 0);
}

/* ---- Scan ---- */

typedef struct {
    uint32_t states, inputs, outputs;
    int64_t length;
    int *axis;                          /* [inputs] */
    int64_t *backwards, *out_backwards; /* [inputs], [outputs] */
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

static void import_scan(const Control *c)
{
    Graph *g = c->s->g;
    Scan k = scan_of(c);
    Slots state = {0};
    for (uint32_t i = 0; i < k.states; i++)
        vec_push(g->arena, &state, c->in[i]);
    Ids *list = arena_array(g->arena, Ids, k.outputs + 1);
    for (int64_t t = 0; t < k.length; t++) {
        Slots in = {0};
        for (uint32_t i = 0; i < k.states; i++)
            vec_push(g->arena, &in, state.at[i]);
        for (uint32_t i = 0; i < k.inputs; i++) {
            int64_t at = k.backwards[i] ? k.length - 1 - t : t, axis = k.axis[i];
            ValueId x = g_slice_axis(g, c->in[k.states + i].v, k.axis[i], at, 1);
            vec_push(g->arena, &in, (Slot){.v = low_squeeze(g, x, 1, &axis)});
        }
        Slots out = run_body(c, "body", &in);
        if (out.n < k.states + k.outputs)
            FATAL(c, -1, "its body yields %u values, %u are used", out.n, k.states + k.outputs);
        for (uint32_t i = 0; i < k.states; i++)
            state.at[i] = out.at[i];
        for (uint32_t i = 0; i < k.outputs; i++)
            collect(c, &list[i], out.at[k.states + i]);
    }
    int64_t *axis = numbers(c, "scan_output_axes", k.outputs);
    for (uint32_t i = 0; i < k.states; i++)
        yield(c, i, state.at[i]);
    for (uint32_t i = 0; i < k.outputs; i++) {
        int rank = list[i].n ? low_shape(g, list[i].at[0]).rank + 1 : 1;
        int64_t at = axis[i] < 0 ? axis[i] + rank : axis[i];
        if (at < 0 || at >= rank)
            FATAL(c, -1, "output axis %lld is out of range for rank %d", (long long)axis[i], rank);
        if (k.out_backwards[i])
            reverse(&list[i]);
        yield_stacked(c, k.states + i, &list[i], (int)at);
    }
}

/* ---- SequenceMap ---- */

static void import_sequence_map(const Control *c)
{
    Graph *g = c->s->g;
    if (c->n->nin < 1 || !c->in[0].is_sequence)
        FATAL(c, 0, "a sequence is needed");
    uint32_t n = c->in[0].sequence.n;
    Slot *out = arena_array(g->arena, Slot, c->n->nout);
    for (uint32_t i = 0; i < c->n->nout; i++)
        out[i] = (Slot){.v = NONE, .is_sequence = true};
    for (uint32_t k = 0; k < n; k++) {
        Slots in = {0};
        for (uint32_t i = 0; i < c->n->nin; i++) {
            if (c->in[i].is_sequence && c->in[i].sequence.n != n)
                FATAL(c, (int)i, "a sequence of %u, the first has %u", c->in[i].sequence.n, n);
            Slot one = c->in[i].is_sequence ? (Slot){.v = c->in[i].sequence.at[k]} : c->in[i];
            vec_push(g->arena, &in, one);
        }
        Slots yields = run_body(c, "body", &in);
        if (yields.n < c->n->nout)
            FATAL(c, -1, "its body yields %u values, %u are used", yields.n, c->n->nout);
        for (uint32_t i = 0; i < c->n->nout; i++)
            collect(c, &out[i].sequence, yields.at[i]);
    }
    for (uint32_t i = 0; i < c->n->nout; i++)
        yield(c, i, out[i]);
}

/* ---- the node ---- */

static const struct {
    const char *op;
    void (*import)(const Control *c);
} controls[] = {
    {"If", import_if},
    {"Loop", import_loop},
    {"Scan", import_scan},
    {"SequenceMap", import_sequence_map},
};
enum { N_CONTROLS = sizeof controls / sizeof *controls };

static int control_number(const RawNode *n)
{
    int i = 0;
    while (i < N_CONTROLS && (*n->domain || strcmp(n->op_type, controls[i].op)))
        i++;
    return i;
}

ValueId im_graph(const Import *im, const char *name, ValueId x)
{
    ImportState *s = im->state;
    uint32_t origin = s->g->cur_origin;
    Control c = {.s = s, .n = im->node, .body = s->body, .origin = origin};
    Slots in = {0};
    vec_push(im->arena, &in, ((Slot){.v = x}));
    Slots out = run_body(&c, name, &in);
    if (out.n != 1 || out.at[0].is_sequence)
        FATAL(&c, -1, "graph '%s' must yield one tensor", name);
    return out.at[0].v;
}

bool control_is(const RawNode *n) { return control_number(n) < N_CONTROLS; }

void control_import(ImportState *s, RawNode *n, const ValueId *in, ImportBody *body)
{
    Control c = {.s = s, .n = n, .body = body, .origin = s->g->cur_origin};
    c.in = arena_array(s->g->arena, Slot, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Slot *slot = *n->in[i] && !param_is_used(n, i) ? import_slot(s, n, i) : NULL;
        c.in[i] = slot && slot->is_sequence ? *slot : (Slot){.v = in[i]};
    }
    controls[control_number(n)].import(&c);
}
