/*
 * recurrent.c - RNN, GRU and LSTM, unrolled over the sequence.  In: the ONNX node with its
 * layouts, directions, activations, clip, peepholes and lengths.  Out: core operations.
 *
 * What does not depend on the state, X W' and the biases, is one product over all steps; a step is
 * one product with the state and the activations.  The steps are alike, so that the code of one is
 * called for each (codegen/plan/).  Formulas and the order of gates: ONNX, RNN-22, GRU-22, LSTM-22.
 *
 * Past the length of a sample its state stays and its output is 0: walked backwards such steps
 * leave the initial state, which is why a reversed direction needs nothing else.
 */
#include "frontend/low/low.h"

#include <string.h>
#include <strings.h>

enum { NODES_OF_STEP = 30 };                            /* about */

typedef struct {
    ValueId h, c;
} State; /* [batch or 1, hidden]; NONE: zeros */

typedef struct Layer Layer;
struct Layer {
    Import *im;
    Graph *g;
    int64_t steps, batch, inputs, hidden;
    int gates, directions, functions;
    double clip; /* of what activations get; 0: none */
    State (*step)(Layer *l, ValueId x, State s);
    /* of the direction that is unrolled */
    int direction;
    ValueId recurrence, recurrence_bias; /* [hidden, gates * hidden]; [1, ...], NONE */
    ValueId peephole[3];                 /* [1, hidden] of i, o, f; NONE */
    ValueId live;                        /* bool [steps, batch, 1]; NONE: all */
    bool quantised; /* DynamicQuantizeLSTM: weights are whole numbers, [inputs, gates * hidden] */
    ValueId recurrence_scale;            /* their scale, of one number or a row; NONE */
};

/* ---- activations ---- */

/* takes: how many of alpha, beta it has; each list of the node is consumed by those that have one.
 */
enum { AFFINE, LEAKY_RELU, THRESHOLDED_RELU, SCALED_TANH, HARD_SIGMOID, ELU, SOFTSIGN, ITS_OWN };
static const struct {
    const char *name;
    int takes;
    double alpha, beta;
} activations[] = {
    [AFFINE] = {"Affine", 2, 1, 0},
    [LEAKY_RELU] = {"LeakyRelu", 1, 0.01, 0},
    [THRESHOLDED_RELU] = {"ThresholdedRelu", 1, 1, 0},
    [SCALED_TANH] = {"ScaledTanh", 2, 1, 1},
    [HARD_SIGMOID] = {"HardSigmoid", 2, 0.2, 0.5},
    [ELU] = {"Elu", 1, 1, 0},
    [SOFTSIGN] = {"Softsign", 0, 0, 0},
    /* operations of the same name */
    [ITS_OWN] = {"Relu", 0, 0, 0}, {"Tanh", 0, 0, 0}, {"Sigmoid", 0, 0, 0}, {"Softplus", 0, 0, 0},
};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };

static ValueId activated(Graph *g, int kind, ValueId x, double a, double b)
{
    switch (kind) {
    case AFFINE: return g_add(g, low_scale(g, x, a), g_like(g, x, b));
    case LEAKY_RELU: return low_leaky_relu(g, x, a);
    case THRESHOLDED_RELU: return low_thresholded_relu(g, x, a);
    case SCALED_TANH: return low_scale(g, g_unary(g, OP_Tanh, low_scale(g, x, b)), a);
    case HARD_SIGMOID: return low_hard_sigmoid(g, x, a, b);
    case ELU: return low_elu(g, x, a);
    case SOFTSIGN: return low_softsign(g, x);
    default: return g_unary(g, op_find(activations[kind].name), x);
    }
}

static int activation_called(const Import *im, const char *name)
{
    for (int i = 0; i < N_ACTIVATIONS; i++)
        if (!strcasecmp(name, activations[i].name))
            return i;
    low_fatal(im, -1, "activation '%.32s' is unknown", diag_escape(im->arena, name));
}

/* The function of the direction's `which` place, default `name`. */
static ValueId activate(const Layer *l, int which, const char *name, ValueId x)
{
    const Import *im = l->im;
    const char **given;
    double *alpha, *beta;
    int n, n_alpha = 0, n_beta = 0, at_alpha = 0, at_beta = 0, kind = 0, place;
    place = l->direction * l->functions + which;
    bool named = im_strings(im, "activations", &given, &n);
    if (named && n != l->directions * l->functions)
        low_fatal(im, -1, "%d activations, %d are needed", n, l->directions * l->functions);
    if (!im_floats(im, "activation_alpha", &alpha, &n_alpha))
        n_alpha = 0;
    if (!im_floats(im, "activation_beta", &beta, &n_beta))
        n_beta = 0;
    for (int i = 0; i <= place; i++) {
        kind = activation_called(im, named ? given[i] : name);
        if (i < place) {
            at_alpha += activations[kind].takes > 0;
            at_beta += activations[kind].takes > 1;
        }
    }
    double a = activations[kind].takes > 0 && at_alpha < n_alpha ? alpha[at_alpha]
                                                                 : activations[kind].alpha;
    double b =
        activations[kind].takes > 1 && at_beta < n_beta ? beta[at_beta] : activations[kind].beta;
    Graph *g = l->g;
    if (l->clip > 0)
        x = low_clip(g, x, g_like(g, x, -l->clip), g_like(g, x, l->clip));
    return activated(g, kind, x, a, b);
}

/* ---- cells ---- */

static ValueId add(Graph *g, ValueId x, ValueId y)
{
    return x == NONE ? y : y == NONE ? x : g_add(g, x, y);
}
static ValueId times(Graph *g, ValueId x, ValueId y)
{
    return x == NONE || y == NONE ? NONE : g_mul(g, x, y);
}

/* Gates first .. first + n of [.., gates * hidden]. */
static ValueId gate(const Layer *l, ValueId x, int first, int n)
{
    return x == NONE ? NONE
                     : g_slice_axis(l->g, x, low_shape(l->g, x).rank - 1, first * l->hidden,
                                    n * l->hidden);
}

static ValueId of_state(const Layer *l, ValueId h, ValueId r)
{
    if (h != NONE && l->quantised)
        return low_dynamic_product(l->g, h, r, l->recurrence_scale);
    return h == NONE ? NONE : g_matmul(l->g, h, r);
}

static State rnn_step(Layer *l, ValueId x, State s)
{
    x = add(l->g, x, add(l->g, of_state(l, s.h, l->recurrence), l->recurrence_bias));
    return (State){activate(l, 0, "Tanh", x), NONE};
}

/* Gates z, r, h. */
static State gru_step(Layer *l, ValueId x, State s)
{
    Graph *g = l->g;
    bool before = im_int(l->im, "linear_before_reset", 0) != 0;
    ValueId r = l->recurrence, both = of_state(l, s.h, before ? r : gate(l, r, 0, 2));
    ValueId bias = l->recurrence_bias;
    ValueId zr = add(g, add(g, gate(l, x, 0, 2), gate(l, bias, 0, 2)), gate(l, both, 0, 2));
    ValueId update = activate(l, 0, "Sigmoid", gate(l, zr, 0, 1)),
            reset = activate(l, 0, "Sigmoid", gate(l, zr, 1, 1)), inner;
    if (before)
        inner = times(g, reset, add(g, gate(l, both, 2, 1), gate(l, bias, 2, 1)));
    else
        inner = add(g, of_state(l, times(g, reset, s.h), gate(l, r, 2, 1)), gate(l, bias, 2, 1));
    ValueId fresh = activate(l, 1, "Tanh", add(g, gate(l, x, 2, 1), inner));
    ValueId h = g_mul(g, g_sub(g, g_like(g, update, 1), update), fresh);
    return (State){add(g, h, times(g, update, s.h)), NONE};
}

/* Gates i, o, f, c. */
static State lstm_step(Layer *l, ValueId x, State s)
{
    Graph *g = l->g;
    x = add(g, x, add(g, of_state(l, s.h, l->recurrence), l->recurrence_bias));
    ValueId in = activate(l, 0, "Sigmoid", add(g, gate(l, x, 0, 1), times(g, l->peephole[0], s.c)));
    ValueId forget =
        im_int(l->im, "input_forget", 0)
            ? g_sub(g, g_like(g, in, 1), in)
            : activate(l, 0, "Sigmoid", add(g, gate(l, x, 2, 1), times(g, l->peephole[2], s.c)));
    ValueId fresh = activate(l, 1, "Tanh", gate(l, x, 3, 1));
    ValueId c = add(g, times(g, forget, s.c), g_mul(g, in, fresh));
    ValueId out = activate(l, 0, "Sigmoid", add(g, gate(l, x, 1, 1), times(g, l->peephole[1], c)));
    return (State){g_mul(g, out, activate(l, 2, "Tanh", c)), c};
}

/* ---- operands ---- */

static ValueId check_shape(const Layer *l, uint32_t input, int rank, const int64_t *dims)
{
    ValueId v = im_in(l->im, input);
    if (v == NONE)
        return NONE;
    Shape want = {.rank = rank}, is = low_shape(l->g, v);
    memcpy(want.d, dims, (size_t)rank * sizeof *dims);
    if (!shape_equal(&want, &is))
        low_fatal(l->im, (int)input, "%s, %s is needed",
                  shape_print(l->im->arena, low_dtype(l->g, v), &is),
                  shape_print(l->im->arena, low_dtype(l->g, v), &want));
    return v;
}

/* Of one direction: the first dim is taken and goes. */
static ValueId of_direction(const Layer *l, ValueId x)
{
    int64_t zero = 0;
    return x == NONE ? NONE
                     : low_squeeze(l->g, g_slice_axis(l->g, x, 0, l->direction, 1), 1, &zero);
}

/* The initial state [batch, hidden]: NONE where it is 0, one row where a constant is the same for
   every sample.  An export writes the batch of its example into zeros, and there may be fewer rows.
 */
static ValueId same_rows(const Layer *l, ValueId s)
{
    double all;
    if (low_uniform(l->g, s, &all))
        return all == 0 ? NONE : g_full(l->g, low_dtype(l->g, s), &(Shape){2, {1, l->hidden}}, all);
    const Value *v = val(l->g, s);
    if (v->kind != V_CONST)
        return s;
    for (int64_t i = 0; i < l->batch * l->hidden; i++)
        if (low_const_at(v, i) != low_const_at(v, i % l->hidden))
            return s;
    return g_slice_axis(l->g, s, 0, 0, 1);
}

static ValueId initial(const Layer *l, uint32_t input)
{
    bool batch_first = im_int(l->im, "layout", 0) != 0;
    const int64_t dims[] = {batch_first ? l->batch : l->directions,
                            batch_first ? l->directions : l->batch, l->hidden};
    ValueId x = check_shape(l, input, 3, dims);
    if (x == NONE)
        return NONE;
    if (batch_first)
        x = g_transpose(l->g, x, (const int64_t[]){1, 0, 2});
    return same_rows(l, of_direction(l, x));
}

/* [batch] lengths to bool [steps, batch, 1]; NONE where each is that of all steps. */
static ValueId live_steps(const Layer *l)
{
    Graph *g = l->g;
    ValueId n = check_shape(l, 4, 1, &l->batch);
    if (n == NONE)
        return NONE;
    const Value *v = val(g, n);
    bool whole = v->kind == V_CONST;
    for (int64_t i = 0; whole && i < l->batch; i++)
        whole = low_const_at(v, i) == (double)l->steps;
    if (whole)
        return NONE;
    Shape s = {3, {1, l->batch, 1}};
    return g_binary(g, OP_Less, g_iota(g, low_dtype(g, n), 3, 0, l->steps), g_reshape(g, n, &s));
}

/* ---- a direction ---- */

static ValueId at_step(const Layer *l, ValueId x, int64_t t)
{
    int64_t zero = 0;
    return low_squeeze(l->g, g_slice_axis(l->g, x, 0, t, 1), 1, &zero);
}

/* live ? x : other, other NONE: 0. */
static ValueId keep(const Layer *l, ValueId live, ValueId x, ValueId other)
{
    return g_where(l->g, live, x, other == NONE ? g_like(l->g, x, 0) : other);
}

/* A scale or a zero point of the direction: one number, or one for each column. */
static ValueId of_columns(const Layer *l, uint32_t input)
{
    ValueId v = low_need(l->im, input);
    Shape s = low_need_rank(l->im, input, 1, 2);
    const int64_t dims[] = {l->directions, l->gates * l->hidden};
    check_shape(l, input, s.rank, dims);
    return g_reshape(l->g, of_direction(l, v), &(Shape){2, {1, s.rank == 1 ? 1 : dims[1]}});
}

/* Whole numbers less their zero point, exact in f64. */
static ValueId whole_weights(const Layer *l, uint32_t input, uint32_t zero)
{
    ValueId w = g_cast(l->g, of_direction(l, low_need(l->im, input)), DT_F64);
    return g_sub(l->g, w, g_cast(l->g, of_columns(l, zero), DT_F64));
}

static void set_weights(Layer *l, ValueId *in_bias)
{
    Graph *g = l->g;
    int64_t wide = l->gates * l->hidden;
    ValueId b = check_shape(l, 3, 2, (const int64_t[]){l->directions, 2 * wide});
    if (l->quantised) {
        check_shape(l, 2, 3, (const int64_t[]){l->directions, l->hidden, wide});
        l->recurrence = whole_weights(l, 2, 11);
        l->recurrence_scale = of_columns(l, 10);
    } else {
        ValueId r = check_shape(l, 2, 3, (const int64_t[]){l->directions, wide, l->hidden});
        l->recurrence = g_swap_last(g, of_direction(l, r));
    }
    *in_bias = l->recurrence_bias = NONE;
    if (b != NONE) {
        b = g_slice_axis(g, b, 0, l->direction, 1);
        *in_bias = g_slice_axis(g, b, 1, 0, wide);
        l->recurrence_bias = g_slice_axis(g, b, 1, wide, wide);
    }
    ValueId p = l->gates == 4
                    ? check_shape(l, 7, 2, (const int64_t[]){l->directions, 3 * l->hidden})
                    : NONE;
    for (int i = 0; i < 3; i++)
        l->peephole[i] = p == NONE ? NONE
                                   : g_slice_axis(g, g_slice_axis(g, p, 0, l->direction, 1), 1,
                                                  i * l->hidden, l->hidden);
}

/* x: [steps, batch, inputs].  out: [steps] of [batch, hidden].  Gives the last state. */
static State unroll(Layer *l, ValueId x, bool backwards, ValueId *out)
{
    Graph *g = l->g;
    ValueId bias, all;
    set_weights(l, &bias);
    if (l->quantised)
        all = low_dynamic_product(g, x, whole_weights(l, 1, 9), of_columns(l, 8));
    else
        all = g_matmul(g, x, g_swap_last(g, of_direction(l, im_in(l->im, 1))));
    /* Both biases are added at once, but for the GRU whose reset gate stands between */
    if (l->gates != 3) {
        bias = add(g, bias, l->recurrence_bias);
        l->recurrence_bias = NONE;
    }
    all = add(g, all, bias);
    State s = {initial(l, 5), l->gates == 4 ? initial(l, 6) : NONE};
    for (int64_t k = 0; k < l->steps; k++) {
        int64_t t = backwards ? l->steps - 1 - k : k;
        State next = l->step(l, at_step(l, all, t), s);
        out[t] = next.h;
        if (l->live != NONE) {
            ValueId live = at_step(l, l->live, t);
            out[t] = keep(l, live, next.h, NONE);
            next.h = keep(l, live, next.h, s.h);
            next.c = next.c == NONE ? NONE : keep(l, live, next.c, s.c);
        }
        s = next;
    }
    return s;
}

/* ---- the node ---- */

/* y of all steps and directions: [steps, directions, batch, hidden], or with the batch first. */
static ValueId stack_steps(const Layer *l, ValueId *const *out, bool batch_first)
{
    Graph *g = l->g;
    ValueId *part = arena_array(l->im->arena, ValueId, l->steps), both[2];
    int steps_at = batch_first ? 1 : 0, way_at = batch_first ? 2 : 1;
    for (int d = 0; d < l->directions; d++) {
        for (int64_t t = 0; t < l->steps; t++)
            part[t] = low_unsqueeze(g, out[d][t], steps_at);
        ValueId y = l->steps == 1 ? part[0] : g_concat(g, (uint32_t)l->steps, part, steps_at);
        both[d] = low_unsqueeze(g, y, way_at);
    }
    return l->directions == 1 ? both[0] : g_concat(g, 2, both, way_at);
}

static ValueId stack_ways(const Layer *l, const ValueId *h, bool batch_first)
{
    ValueId part[2];
    int at = batch_first ? 1 : 0;
    for (int d = 0; d < l->directions; d++)
        part[d] = low_unsqueeze(l->g, h[d], at);
    return l->directions == 1 ? part[0] : g_concat(l->g, 2, part, at);
}

static void check_operands(Layer *l)
{
    Import *im = l->im;
    const char *way = im_str(im, "direction", "forward");
    bool batch_first = im_int(im, "layout", 0) != 0;
    Shape x = low_need_rank(im, 0, 3, 3), r = low_need_rank(im, 2, 3, 3);
    low_need_float(im, 0);
    low_need(im, 1);
    l->directions = strcmp(way, "bidirectional") ? 1 : 2;
    if (l->directions == 1 && strcmp(way, "forward") && strcmp(way, "reverse"))
        low_fatal(im, -1, "direction '%.32s' is unknown", diag_escape(im->arena, way));
    l->steps = x.d[batch_first], l->batch = x.d[!batch_first], l->inputs = x.d[2];
    l->hidden = r.d[l->quantised ? 1 : 2];
    if (im_int(im, "hidden_size", l->hidden) != l->hidden)
        low_fatal(im, 2, "hidden_size is %lld, the weights have %lld",
                  (long long)im_int(im, "hidden_size", 0), (long long)l->hidden);
    const int64_t wide = l->gates * l->hidden;
    const int64_t want[] = {l->directions, l->quantised ? l->inputs : wide,
                            l->quantised ? wide : l->inputs};
    check_shape(l, 1, 3, want);
    if (l->steps < 1)
        low_fatal(im, 0, "a sequence without steps");
    low_limit_nodes(im, l->steps, NODES_OF_STEP, "steps");
}

static void recurrent(Import *im, int gates, int functions, State (*step)(Layer *, ValueId, State))
{
    Graph *g = im->g;
    Layer l = {.im = im, .g = g, .gates = gates, .functions = functions, .step = step};
    l.quantised = im->nin > 8;
    check_operands(&l);
    l.clip = im_float(im, "clip", 0);
    l.live = live_steps(&l);
    bool batch_first = im_int(im, "layout", 0) != 0,
         reverse = !strcmp(im_str(im, "direction", "forward"), "reverse");
    if (l.quantised && l.live != NONE && (reverse || l.directions == 2))
        low_fatal(im, 4, "of samples of other lengths, backwards, other states are quantised "
                         "together: not supported");
    ValueId x = batch_first ? g_transpose(g, im->in[0], (const int64_t[]){1, 0, 2}) : im->in[0];
    ValueId *out[2], h[2], c[2];
    for (l.direction = 0; l.direction < l.directions; l.direction++) {
        out[l.direction] = arena_array(im->arena, ValueId, l.steps);
        State last = unroll(&l, x, reverse || l.direction == 1, out[l.direction]);
        h[l.direction] = last.h, c[l.direction] = last.c;
    }
    if (im_wanted(im, 0))
        im->out[0] = stack_steps(&l, out, batch_first);
    if (im_wanted(im, 1))
        im->out[1] = stack_ways(&l, h, batch_first);
    if (gates == 4 && im_wanted(im, 2))
        im->out[2] = stack_ways(&l, c, batch_first);
}

void import_rnn(Import *im) { recurrent(im, 1, 1, rnn_step); }
void import_gru(Import *im) { recurrent(im, 3, 2, gru_step); }
void import_lstm(Import *im) { recurrent(im, 4, 3, lstm_step); }
/* X, whole numbers W and R [directions, inputs or hidden, 4 hidden], .., P; scale and zero point of
 * W and of R.  What they are multiplied with is quantised by its range: all steps of X, each state.
 */
void import_dynamic_quantize_lstm(Import *im)
{
    for (int i = 8; i < 12; i++)
        low_need(im, (uint32_t)i);
    import_lstm(im);
}
