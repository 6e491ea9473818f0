/*
 * recurrent.c - RNN, GRU and LSTM.  In: the ONNX node with its layouts, directions, activations,
 * clip, peepholes and lengths.  Out: core operations, among them a Recurrence for each direction.
 *
 * What does not depend on the state, X W' and the biases, is one product over all steps; a step is
 * one product with the state and the activations.  Formulas and the order of gates: ONNX, RNN-22,
 * GRU-22, LSTM-22.
 *
 * Past the length of a sample its state stays and its output is 0: walked backwards such steps
 * leave the initial state, which is why a reversed direction needs nothing else.
 */
#include "frontend/low/low.h"

#include <string.h>

typedef struct {
    ValueId h, c;
} State; /* [batch, hidden]; c NONE: it has none */

enum { MOST_GATES = 4 };

typedef struct Layer Layer;
struct Layer {
    Import *im;
    Graph *g; /* the model's; while a step is made, its body */
    int64_t steps, batch, inputs, hidden;
    int gates, directions, functions;
    bool batch_first; /* operands and results have the batch as dim 0 */
    double clip;      /* of what activations get; 0: none */
    State (*step)(Layer *l, ValueId x, State s);
    /* of the direction at hand: what each step reads.  [gates * hidden, hidden]; [1, ...], NONE;
       [1, hidden] of i, o, f, NONE */
    int direction;
    ValueId recurrence, recurrence_bias, peephole[3];
    ValueId zero; /* [batch, hidden], once it is made; NONE */
    ValueId live; /* bool [steps, batch, 1], in a step [batch, 1]; NONE: all */
};

/* ---- activations ---- */

static const Activation *activation_called(const Import *im, const char *name)
{
    const Activation *of = low_activation(name);
    if (!of || !of->of_cells)
        low_fatal(im, -1, "activation '%.32s' is unknown", diag_escape(im->arena, name));
    return of;
}

/* The function of the direction's `which` place, default `name`.  Each list of numbers is consumed
 * by those functions that have one. */
static ValueId activate(const Layer *l, int which, const char *name, ValueId x)
{
    static const char *const lists[] = {"activation_alpha", "activation_beta"};
    const Import *im = l->im;
    const char **given;
    int n, place = l->direction * l->functions + which;
    bool named = im_strings(im, "activations", &given, &n);
    double number[ACTIVATION_NUMBERS];
    if (named && n != l->directions * l->functions)
        low_fatal(im, -1, "%d activations, %d are needed", n, l->directions * l->functions);
    const Activation *of = activation_called(im, named ? given[place] : name);
    for (int k = 0; k < ACTIVATION_NUMBERS; k++) {
        double *list;
        int before = 0, count = 0;
        for (int i = 0; i < place; i++)
            before += activation_called(im, named ? given[i] : name)->number[k].name != NULL;
        bool told = im_floats(im, lists[k], &list, &count) && of->number[k].name && before < count;
        number[k] = told ? list[before] : of->number[k].dflt;
    }
    Graph *g = l->g;
    if (l->clip > 0)
        x = low_clip(g, x, g_like(g, x, -l->clip), g_like(g, x, l->clip));
    return g_formula(g, of->text, x, number[0], number[1]);
}

/* ---- cells ---- */

/* The n gates of [.., n * hidden]; NONE: none of them. */
static void divide(const Layer *l, ValueId x, int n, ValueId *gate)
{
    int64_t size[MOST_GATES];
    for (int i = 0; i < n; i++)
        size[i] = l->hidden;
    ValueId first = x == NONE ? NONE : g_split(l->g, x, low_shape(l->g, x).rank - 1, n, size);
    for (int i = 0; i < n; i++)
        gate[i] = x == NONE ? NONE : graph_out(l->g, first, (uint32_t)i);
}

/* By the weights of gates first .. first + n. */
static ValueId of_state(const Layer *l, ValueId h, int first, int n)
{
    ValueId r = l->recurrence;
    r = g_slice_axis(l->g, r, 0, first * l->hidden, n * l->hidden);
    return g_matmul(l->g, h, g_swap_last(l->g, r));
}

static State rnn_step(Layer *l, ValueId x, State s)
{
    x = low_plus(l->g, x, low_plus(l->g, of_state(l, s.h, 0, 1), l->recurrence_bias));
    return (State){activate(l, 0, "Tanh", x), NONE};
}

/* Gates z, r, h. */
static State gru_step(Layer *l, ValueId x, State s)
{
    Graph *g = l->g;
    bool before = im_int(l->im, "linear_before_reset", 0) != 0;
    ValueId in[3], own[3], bias[3], z, r, inner;
    divide(l, x, 3, in);
    divide(l, of_state(l, s.h, 0, before ? 3 : 2), before ? 3 : 2, own);
    divide(l, l->recurrence_bias, 3, bias);
    z = activate(l, 0, "Sigmoid", g_add(g, low_plus(g, in[0], bias[0]), own[0]));
    r = activate(l, 0, "Sigmoid", g_add(g, low_plus(g, in[1], bias[1]), own[1]));
    if (before)
        inner = g_mul(g, r, low_plus(g, own[2], bias[2]));
    else
        inner = low_plus(g, of_state(l, g_mul(g, r, s.h), 2, 1), bias[2]);
    ValueId fresh = activate(l, 1, "Tanh", g_add(g, in[2], inner));
    return (State){g_formula(g, "z, y, h: (1 - z) * y + z * h", z, fresh, s.h), NONE};
}

static ValueId peep(const Layer *l, ValueId x, int gate, ValueId c)
{
    return l->peephole[gate] == NONE ? x : g_add(l->g, x, g_mul(l->g, l->peephole[gate], c));
}

/* Gates i, o, f, c. */
static State lstm_step(Layer *l, ValueId x, State s)
{
    Graph *g = l->g;
    ValueId gate[4];
    divide(l, low_plus(g, g_add(g, x, of_state(l, s.h, 0, 4)), l->recurrence_bias), 4, gate);
    ValueId in = activate(l, 0, "Sigmoid", peep(l, gate[0], 0, s.c));
    ValueId forget = im_int(l->im, "input_forget", 0)
                         ? g_formula(g, "i: 1 - i", in)
                         : activate(l, 0, "Sigmoid", peep(l, gate[2], 2, s.c));
    ValueId fresh = activate(l, 1, "Tanh", gate[3]);
    ValueId c = g_formula(g, "f, c, i, y: f * c + i * y", forget, s.c, in, fresh);
    ValueId out = activate(l, 0, "Sigmoid", peep(l, gate[1], 1, c));
    return (State){g_mul(g, out, activate(l, 2, "Tanh", c)), c};
}

/* ---- operands ---- */

/* Operand `input`, of this shape; NONE: there is none. */
static ValueId operand(const Layer *l, uint32_t input, Shape want)
{
    if (im_in(l->im, input) == NONE)
        return NONE;
    const Shape is = low_shape(l->g, l->im->in[input]);
    if (input == 6 && !shape_equal(&want, &is))
        diag_hint("if it is an LSTM with proj_size, ONNX has none and the exporter dropped the "
                  "projection: write it as a Linear behind each LSTM");
    return low_expect(l->im, input, want);
}

/* Of one direction: the first dim is taken and goes. */
static ValueId of_direction(const Layer *l, ValueId x)
{
    return x == NONE ? NONE : low_at(l->g, x, 0, l->direction);
}

/* One for all states that begin so. */
static ValueId zero(Layer *l)
{
    if (l->zero == NONE)
        l->zero =
            g_full(l->g, low_dtype(l->g, l->im->in[0]), &(Shape){2, {l->batch, l->hidden}}, 0);
    return l->zero;
}

/* The initial state [batch, hidden].  An export writes the batch of its example into zeros, and
   there may be fewer rows: what is the same for every sample is a number, or one row. */
static ValueId same_rows(Layer *l, ValueId s)
{
    const Shape all = low_shape(l->g, s);
    double x;
    if (low_uniform(l->g, s, &x))
        return x == 0 ? zero(l) : g_full(l->g, low_dtype(l->g, s), &all, x);
    const Value *v = val(l->g, s);
    if (v->kind != V_CONST || !const_slices_equal(v, 0))
        return s;
    return g_expand(l->g, g_slice_axis(l->g, s, 0, 0, 1), &all);
}

static ValueId initial(Layer *l, uint32_t input)
{
    Shape s = shape_of(3, l->batch, (int64_t)l->directions, l->hidden);
    if (!l->batch_first)
        s.d[0] = l->directions, s.d[1] = l->batch;
    ValueId x = operand(l, input, s);
    return x == NONE ? zero(l) : same_rows(l, low_at(l->g, x, l->batch_first, l->direction));
}

/* [batch] lengths to bool [steps, batch, 1]; NONE where each is that of all steps. */
static ValueId live_steps(const Layer *l)
{
    Graph *g = l->g;
    ValueId n = operand(l, 4, (Shape){1, {l->batch}});
    double each;
    if (n == NONE || (low_uniform(g, n, &each) && each == (double)l->steps))
        return NONE;
    return g_binary(g, OP_Less, g_iota(g, low_dtype(g, n), 3, 0, l->steps), low_line(g, n, 1, 3));
}

/* ---- a direction ---- */

static void set_weights(Layer *l, ValueId *in_bias)
{
    Graph *g = l->g;
    int64_t wide = l->gates * l->hidden;
    ValueId b = operand(l, 3, (Shape){2, {l->directions, 2 * wide}}),
            r = operand(l, 2, (Shape){3, {l->directions, wide, l->hidden}}),
            p = l->gates == 4 ? operand(l, 7, (Shape){2, {l->directions, 3 * l->hidden}}) : NONE;
    l->recurrence = of_direction(l, r);
    *in_bias = l->recurrence_bias = NONE;
    if (b != NONE) {
        b = g_slice_axis(g, b, 0, l->direction, 1);
        *in_bias = g_slice_axis(g, b, 1, 0, wide);
        l->recurrence_bias = g_slice_axis(g, b, 1, wide, wide);
    }
    for (int i = 0; i < 3; i++)
        l->peephole[i] = p == NONE ? NONE
                                   : g_slice_axis(g, g_slice_axis(g, p, 0, l->direction, 1), 1,
                                                  i * l->hidden, l->hidden);
}

/* ---- the body -------------------------------------------------------------------------------- */

/* A body while its inputs are told. */
typedef struct {
    const Graph *g;
    Graph *body;
    Ids in;
    VEC(int) rows;
} Body;

/* What is x for a step; NONE stays.  steps: x has them in front; samples: it has those, behind. */
static ValueId told(Body *b, const char *name, ValueId x, bool steps, bool samples)
{
    if (x == NONE)
        return NONE;
    Shape s = low_shape(b->g, x);
    if (steps)
        s = shape_without(&s, 0);
    vec_push(b->body->arena, &b->in, x);
    vec_push(b->body->arena, &b->rows, samples ? 0 : -1);
    return graph_input(b->body, name, low_dtype(b->g, x), &s);
}

static void put(Body *b, ValueId v)
{
    if (v == NONE)
        return;
    vec_push(b->body->arena, &b->body->output, v);
    vec_push(b->body->arena, &b->rows, 0);
}

/* The layer as a step sees it, of whose X W' is x. */
static Layer in_body(const Layer *l, Body *b, ValueId *x, State *s)
{
    static const char *const peephole[] = {"peephole_i", "peephole_o", "peephole_f"};
    Layer step = *l;
    step.g = b->body;
    s->h = told(b, "h", s->h, false, true);
    s->c = told(b, "c", s->c, false, true);
    *x = told(b, "x", *x, true, true);
    step.live = told(b, "live", l->live, true, true);
    step.recurrence = told(b, "recurrence", l->recurrence, false, false);
    step.recurrence_bias = told(b, "recurrence_bias", l->recurrence_bias, false, false);
    for (int i = 0; i < 3; i++)
        step.peephole[i] = told(b, peephole[i], l->peephole[i], false, false);
    return step;
}

/* x: X W' and what is added to it, [steps, batch, gates * hidden].  y: [steps, batch, hidden] */
static State over_steps(Layer *l, ValueId x, bool backwards, ValueId *y)
{
    Graph *g = l->g;
    State s = {initial(l, 5), l->gates == 4 ? initial(l, 6) : NONE};
    Body b = {.g = g, .body = body_new(g)};
    const bool cell = s.c != NONE;
    Layer step = in_body(l, &b, &x, &s);
    State next = l->step(&step, x, s);
    ValueId out = next.h;
    if (step.live != NONE) {
        out = g_formula(step.g, "live, x: live ? x : 0", step.live, next.h);
        next.h = g_where(step.g, step.live, next.h, s.h);
        next.c = cell ? g_where(step.g, step.live, next.c, s.c) : NONE;
    }
    put(&b, next.h);
    put(&b, next.c);
    put(&b, out);
    ValueId last = g_recurrence(g, b.body,
                                (Recurrence){.states = 1 + cell,
                                             .sequences = l->live == NONE ? 1 : 2,
                                             .reverse = backwards,
                                             .rows = b.rows.at},
                                b.in.at);
    *y = graph_out(g, last, 1 + cell);
    return (State){last, cell ? graph_out(g, last, 1) : NONE};
}

/* x: [steps, batch, inputs].  y: [steps, batch, hidden].  Gives the last state. */
static State one_direction(Layer *l, ValueId x, bool backwards, ValueId *y)
{
    Graph *g = l->g;
    ValueId bias;
    set_weights(l, &bias);
    ValueId all = g_matmul(g, x, g_swap_last(g, of_direction(l, im_in(l->im, 1))));
    /* Both biases are added at once, but for the GRU whose reset gate stands between */
    if (l->gates != 3) {
        bias = low_plus(g, bias, l->recurrence_bias);
        l->recurrence_bias = NONE;
    }
    return over_steps(l, low_plus(g, all, bias), backwards, y);
}

/* ---- the node ---- */

/* The directions' last states, or steps: [directions, batch, hidden], or with the batch in front;
 * steps before both. */
static ValueId stacked(const Layer *l, ValueId *part, bool steps)
{
    Graph *g = l->g;
    const int at = steps + l->batch_first;
    for (int d = 0; d < l->directions; d++) {
        if (steps && l->batch_first)
            part[d] = g_transpose(g, part[d], (const int64_t[]){1, 0, 2});
        part[d] = low_unsqueeze(g, part[d], at);
    }
    return l->directions == 1 ? part[0] : g_concat(g, 2, part, at);
}

enum { FORWARD, REVERSE, BOTH };
static int direction_of(const Import *im)
{
    return low_choice(im, "direction", "forward", "forward reverse bidirectional");
}

static void check_operands(Layer *l)
{
    Import *im = l->im;
    Shape x = low_need_rank(im, 0, 3, 3), r = low_need_rank(im, 2, 3, 3);
    low_need_float(im, 0);
    low_need(im, 1);
    l->directions = direction_of(im) == BOTH ? 2 : 1;
    l->batch_first = im_int(im, "layout", 0) != 0;
    l->steps = x.d[l->batch_first], l->batch = x.d[!l->batch_first], l->inputs = x.d[2];
    l->hidden = r.d[2];
    if (im_int(im, "hidden_size", l->hidden) != l->hidden)
        low_fatal(im, 2, "hidden_size is %lld, the weights have %lld",
                  (long long)im_int(im, "hidden_size", 0), (long long)l->hidden);
    operand(l, 1, (Shape){3, {l->directions, l->gates * l->hidden, l->inputs}});
    if (l->steps < 1)
        low_fatal(im, 0, "a sequence without steps");
}

static void recurrent(Import *im, int gates, int functions, State (*step)(Layer *, ValueId, State))
{
    Graph *g = im->g;
    Layer l = {.im = im, .g = g, .gates = gates, .functions = functions, .step = step};
    l.zero = NONE;
    check_operands(&l);
    l.clip = im_float(im, "clip", 0);
    l.live = live_steps(&l);
    bool reverse = direction_of(im) == REVERSE;
    ValueId x = im->in[0], y[2], h[2], c[2];
    if (l.batch_first)
        x = g_transpose(g, x, (const int64_t[]){1, 0, 2});
    for (l.direction = 0; l.direction < l.directions; l.direction++) {
        State last = one_direction(&l, x, reverse || l.direction == 1, &y[l.direction]);
        h[l.direction] = last.h, c[l.direction] = last.c;
    }
    if (im_wanted(im, 0))
        im->out[0] = stacked(&l, y, true);
    if (im_wanted(im, 1))
        im->out[1] = stacked(&l, h, false);
    if (gates == 4 && im_wanted(im, 2))
        im->out[2] = stacked(&l, c, false);
}

void import_rnn(Import *im) { recurrent(im, 1, 1, rnn_step); }
void import_gru(Import *im) { recurrent(im, 3, 2, gru_step); }
void import_lstm(Import *im) { recurrent(im, 4, 3, lstm_step); }
