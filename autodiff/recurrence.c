/*
 * recurrence.c - the gradient of a Recurrence: another one, over the steps in the other order.
 *
 * In: the node, gradients of its results.  Out: a Recurrence whose states are the gradients of the
 * states, and whose sequences are those of the results and what its steps read of the forward's:
 * the values that the forward keeps, which become results of the node (partial evaluation, as
 * lax.scan of JAX has it; which values: a minimal cut of one step, stash.c).
 *
 * The gradient of what each step reads whole is a sum over the steps.  Where a step adds a product
 * to it, both factors are sequences, and one product over all steps and samples follows the loop;
 * views of it and sums follow that.  Anything else is one more state, to which each step adds.
 */
#include <string.h>

#include "vjp/vjp.h"

typedef struct {
    Vjp *v;
    Graph *g;
    Node n;                         /* the node, as it was */
    const Recurrence *r;
    Graph *b;                       /* its body, and behind it a step of the backward */
    NodeId first;                   /* of the latter */
    bool *active;                   /* by input of the body: it has a gradient */
    ValueId *d;                     /* by input of the body, which a step makes; NONE: none */
    /* states of the backward: inputs and outputs of its body, operands, the rows' dimension */
    Ids state, next, start;
    Ids of_state;                   /* by the first of them: the forward's state */
    Ids leaf;                       /* by those behind: what a step adds */
    Ids dy, dy_of;                  /* gradients of sequences: inputs of the body, operands */
    Ids factor;                     /* values of a step that are to be sequences */
    Ids kept;                       /* values that the forward keeps, and what they are then */
    Ids kept_as;
    const int *kept_rows;
    Ids made, made_as;              /* values that the backward makes a sequence of */
    ValueId result;                 /* of the backward; NONE: it is not there yet */
} Back;

static ValueId new_input(Graph *b, Dtype t, Shape s)
{
    return graph_value(b, V_INPUT, NULL, t, &s);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* A state has a gradient if what leads to it has, in any step. */
static void find_active(Back *k, const Ids *list)
{
    Graph *b = k->b;
    bool *active = arena_array(k->g->arena, bool, b->value.n + 1);
    k->active = arena_array(k->g->arena, bool, k->n.nin + 1);
    for (uint32_t i = 0; i < k->n.nin; i++)
        active[b->input.at[i]] = k->active[i] = k->v->want[i];
    for (bool more = true; more;) {
        more = false;
        flow_through(b, active, list->at, list->n);
        for (uint32_t i = 0; i < k->r->states; i++)
            if (active[b->output.at[i]] && !k->active[i])
                active[b->input.at[i]] = k->active[i] = more = true;
    }
}

/* No gradient comes to the last state o: zeros, one for all of their shape. */
static ValueId nothing_for(const Back *k, uint32_t o)
{
    const Value *x = val(k->g, k->n.out[o]);
    for (uint32_t i = 0; i < k->start.n; i++) {
        const uint32_t other = k->of_state.at[i];
        const Value *y = val(k->g, k->n.out[other]);
        if (k->v->dy[other] == NONE && x->dtype == y->dtype && x->batch == y->batch &&
            shape_equal(&x->shape, &y->shape))
            return k->start.at[i];
    }
    return vjp_zeros_like(k->g, k->n.out[o]);
}

/* The gradients that a step is given: of its states, by the step behind it; of its part of results.
 */
static void seeds(Back *k, Ids *y, Ids *dy)
{
    Graph *b = k->b, *g = k->g;
    for (uint32_t o = 0; o < k->n.nout; o++) {
        const bool state = o < k->r->states;
        const ValueId of = b->output.at[o], given = k->v->dy[o];
        const Value x = *val(b, of);
        if (state ? !k->active[o] : given == NONE)
            continue;
        const ValueId d = new_input(b, x.dtype, x.shape);
        vec_push(g->arena, y, of);
        vec_push(g->arena, dy, d);
        const ValueId from =
            given == NONE ? nothing_for(k, o) : g_cast(g, given, x.dtype);
        vec_push(g->arena, state ? &k->state : &k->dy, d);
        vec_push(g->arena, state ? &k->start : &k->dy_of, from);
        if (state)
            vec_push(g->arena, &k->of_state, o);
    }
}

static void differentiate(Back *k)
{
    Graph *b = k->b;
    Ids list = graph_nodes(b, k->g->arena), y = {0}, dy = {0}, wrt = {0}, at = {0};
    find_active(k, &list);
    seeds(k, &y, &dy);
    k->first = b->node.n;
    k->d = arena_none(k->g->arena, k->n.nin);
    for (uint32_t i = 0; i < k->n.nin; i++) {
        if (k->active[i]) {
            vec_push(k->g->arena, &wrt, b->input.at[i]);
            vec_push(k->g->arena, &at, i);
        }
    }
    ValueId *d = arena_array(k->g->arena, ValueId, wrt.n + 1);
    k->v->within(b, list.at, list.n, &y, &dy, &wrt, d);
    for (uint32_t i = 0; i < wrt.n; i++)
        k->d[at.at[i]] = d[i];
    for (uint32_t i = 0; i < k->state.n; i++) {
        const ValueId in = b->input.at[k->of_state.at[i]], to = k->d[k->of_state.at[i]];
        vec_push(k->g->arena, &k->next, to == NONE ? vjp_zeros_like(b, in) : to);
    }
}

/* ---- sums over the steps --------------------------------------------------------------------- */

/* The node of the backward that makes it; NULL: none does. */
static const Node *maker_of(const Back *k, ValueId d)
{
    const Value *x = val(k->b, d);
    return x->kind == V_NODE && x->node >= k->first ? &k->b->node.at[x->node] : NULL;
}

static bool sums_two(const Back *k, const Node *n)
{
    return n->op == OP_Add && shape_equal(&val(k->b, n->in[0])->shape, &val(k->b, n->in[1])->shape);
}

/* Of a sum it makes the sum of what it makes. */
static bool is_moved(const Node *n)
{
    return n->nin == 1 && n->nout == 1 &&
           (n->op == OP_Transpose || n->op == OP_Reshape || n->op == OP_Slice ||
            n->op == OP_Identity || n->op == OP_Cast || n->op == OP_Neg ||
            (n->op == OP_Pad && n->attr.mode == PAD_CONSTANT && n->attr.value == 0));
}

static bool is_product_of_two(const Back *k, const Node *n)
{
    return n->op == OP_MatMul && val(k->b, n->in[0])->shape.rank == 2 &&
           val(k->b, n->in[1])->shape.rank == 2;
}

/* The matrix that a factor is, maybe turned round. */
static ValueId untransposed(const Graph *b, ValueId v, bool *turned)
{
    const Value *x = val(b, v);
    *turned = x->kind == V_NODE && b->node.at[x->node].op == OP_Transpose;
    return *turned ? b->node.at[x->node].in[0] : v;
}

/* The steps add d to one more state. */
static void add_leaf(Back *k, ValueId d, bool wide)
{
    Arena *a = k->g->arena;
    const Value x = *val(k->b, d);
    const Dtype t = wide ? dtype_sum(x.dtype) : x.dtype;
    if (ids_have(&k->leaf, d))
        return;
    const ValueId sum = new_input(k->b, t, x.shape);
    vec_push(a, &k->leaf, d);
    vec_push(a, &k->state, sum);
    vec_push(a, &k->next, g_add(k->b, sum, g_cast(k->b, d, t)));
    vec_push(a, &k->start, g_full(k->g, t, &x.shape, 0));
}

/* All steps of a value of one, as far as the forward has them; NONE: it does not. */
static ValueId forward_sequence(const Back *k, ValueId v)
{
    const uint32_t in = ids_find(&k->b->input, v), at = ids_find(&k->kept, v);
    if (in != NONE && recurrence_is_sequence(k->r, in))
        return k->n.in[in];
    return at == NONE ? NONE : k->kept_as.at[at];
}

static ValueId sequence_of(const Back *k, ValueId v)
{
    const ValueId all = forward_sequence(k, v);
    if (all == NONE && !ids_have(&k->made, v))
        BUG("no step leaves value %u", v);
    return all == NONE ? k->made_as.at[ids_find(&k->made, v)] : all;
}

/* The steps' matrices one beside the other: [m, steps k]; down: one below the other, [steps k, n].
 */
static ValueId joined(Back *k, ValueId factor, bool down)
{
    static const int64_t beside[] = {1, 0, 2}, round[] = {0, 2, 1};
    Graph *g = k->g;
    bool turned;
    ValueId all = sequence_of(k, untransposed(k->b, factor, &turned));
    const Shape s = val(g, all)->shape;
    if (turned == down) {
        if (down)
            all = g_transpose(g, all, round);
        else
            all = g_transpose(g, all, beside);
    }
    const Shape t = val(g, all)->shape;
    if (turned && !down)                                /* [steps, k, m] */
        return g_swap_last(g, g_reshape(g, all, &(Shape){2, {s.d[0] * s.d[1], s.d[2]}}));
    return g_reshape(g, all, down ? &(Shape){2, {t.d[0] * t.d[1], t.d[2]}}
                                  : &(Shape){2, {t.d[0], t.d[1] * t.d[2]}});
}

/* The sum of d over the steps; before the backward is there (result NONE), what they have to leave
   for it is noted. */
static ValueId sum_of(Back *k, ValueId d, bool wide)
{
    Graph *g = k->g;
    const bool planned = k->result == NONE;
    const Node *maker = maker_of(k, d);
    const Node made = maker ? *maker : (Node){.op = OP_NONE};
    bool turned;
    if (maker && (sums_two(k, &made) || is_moved(&made))) {
        ValueId part[2];
        for (uint32_t i = 0; i < made.nin; i++)
            part[i] = sum_of(k, made.in[i], wide);
        const bool narrows = made.op == OP_Cast && dtype_is_half(made.attr.to) && wide;
        return planned || narrows ? part[0] : graph_node(g, made.op, made.nin, part, made.attr);
    }
    if (maker && is_product_of_two(k, &made)) {
        for (int i = 0; i < 2 && planned; i++)
            ids_add(g->arena, &k->factor, untransposed(k->b, made.in[i], &turned));
        if (planned)
            return NONE;
        const ValueId x = joined(k, made.in[0], false), y = joined(k, made.in[1], true);
        return wide ? g_matmul_wide(g, x, y) : g_matmul(g, x, y);
    }
    if (!planned)
        return graph_out(g, k->result, k->of_state.n + ids_find(&k->leaf, d));
    add_leaf(k, d, wide);
    return NONE;
}

/* ---- what the forward keeps ------------------------------------------------------------------ */

static bool is_whole(const Back *k, uint32_t i) { return i >= k->r->states + k->r->sequences; }

/* What is read whole is there without being kept. */
static void set_free(Back *k, ValueKind kind)
{
    for (uint32_t i = 0; i < k->n.nin; i++)
        if (is_whole(k, i))
            k->b->value.at[k->b->input.at[i]].kind = kind;
}

/* What the backward's steps leave. */
static Ids roots(const Back *k)
{
    Arena *a = k->g->arena;
    Ids root = {0};
    for (uint32_t i = 0; i < k->next.n; i++)
        ids_add(a, &root, k->next.at[i]);
    for (uint32_t i = k->r->states; !is_whole(k, i); i++)
        if (k->d[i] != NONE)
            ids_add(a, &root, k->d[i]);
    for (uint32_t i = 0; i < k->factor.n; i++)
        ids_add(a, &root, k->factor.at[i]);
    return root;
}

/* Divides the step's nodes: a forward that keeps something, a backward that reads it. */
static Stage divided(Back *k)
{
    Graph *b = k->b;
    Arena *a = k->g->arena;
    Stage s = {.index = 0};
    Ids root = roots(k);
    for (NodeId n = 0; n < k->first; n++)
        vec_push(a, &s.forward, n);
    s.backward = graph_leading(b, a, k->first, &root, 1);
    for (uint32_t i = 0; !is_whole(k, i); i++)
        vec_push(a, &s.input, ((StageInput){.value = b->input.at[i], .from = NONE}));
    s.input.at[0].grads = root;
    set_free(k, V_PARAM);
    Pipe p = {.graph = b, .loss = b->output.at[0], .loss_scale = NONE, .target = NONE};
    vec_push(a, &p.stage, s);
    stash_minimize(&p);
    set_free(k, V_INPUT);
    return p.stage.at[0];
}

/* The result that is a sequence of that value of a step; NONE: none is. */
static uint32_t leaves(const Back *k, ValueId v)
{
    uint32_t o = k->r->states;
    while (o < k->n.nout && k->b->output.at[o] != v)
        o++;
    return o < k->n.nout ? o : NONE;
}

/* What the state is as each step begins: as it began, then as the steps left it, but the last. */
static ValueId shifted(Back *k, uint32_t state, uint32_t sequence)
{
    Graph *g = k->g;
    const int64_t steps = recurrence_steps(g, &k->n);
    const Shape one = shape_with(&val(g, k->n.in[state])->shape, 0, 1);
    ValueId part[2] = {g_reshape(g, k->n.in[state], &one), NONE};
    if (steps == 1)
        return part[0];
    part[1] = g_slice_axis(g, k->n.out[sequence], 0, k->r->reverse, steps - 1);
    if (k->r->reverse)
        return g_concat(g, 2, (ValueId[]){part[1], part[0]}, 0);
    return g_concat(g, 2, part, 0);
}

/* The node gets results: sequences of those values. */
static void add_results(Back *k, const Stage *s, const Ids *more)
{
    Graph *g = k->g;
    Arena *a = g->arena;
    Ids input = {0}, output = {0};
    for (uint32_t i = 0; i < k->n.nin; i++)
        vec_push(a, &input, k->b->input.at[i]);
    for (uint32_t o = 0; o < k->n.nout; o++)
        vec_push(a, &output, k->b->output.at[o]);
    for (uint32_t i = 0; i < more->n; i++)
        vec_push(a, &output, more->at[i]);
    Graph *body = body_of(g, k->b, &input, &s->forward, &output);
    body_own_outputs(body);
    Recurrence *own = arena_new_of(a, Recurrence);
    *own = *k->r;
    own->body = body;
    own->rows = body_rows(body, k->r->rows, a);
    ValueId *out = arena_array(a, ValueId, output.n);
    memcpy(out, k->n.out, k->n.nout * sizeof *out);
    for (uint32_t o = k->n.nout; o < output.n; o++) {
        const Value x = *val(body, body->output.at[o]);
        const Shape all = shape_with(&x.shape, 0, recurrence_steps(g, &k->n));
        out[o] = graph_value(g, V_NODE, NULL, x.dtype, &all);
        g->value.at[out[o]].node = k->v->node;
        g->value.at[out[o]].out = o;
    }
    Node *n = &g->node.at[k->v->node];
    n->out = out;
    n->nout = output.n;
    n->attr.n = (int)output.n;
    n->attr.recurrence = own;
}

/* What the backward reads of the forward, as sequences: results that are there, made anew only
 * what none of them holds. */
static void keep(Back *k, const Stage *s)
{
    Arena *a = k->g->arena;
    Ids more = {0};
    VEC(uint32_t) result = {0};
    for (uint32_t i = 0; i < s->stash.n; i++) {
        const ValueId v = s->stash.at[i];
        const uint32_t in = ids_find(&k->b->input, v);
        const bool state = in < k->r->states;
        if (in != NONE && !state && !is_whole(k, in))
            continue;
        uint32_t o = leaves(k, state ? k->b->output.at[in] : v);
        if (o == NONE) {
            o = k->n.nout + more.n;
            vec_push(a, &more, v);
        }
        vec_push(a, &k->kept, v);
        vec_push(a, &result, o);
    }
    add_results(k, s, &more);
    const Node n = k->g->node.at[k->v->node];
    int *rows = arena_array(a, int, k->kept.n + 1);
    for (uint32_t i = 0; i < k->kept.n; i++) {
        const uint32_t in = ids_find(&k->b->input, k->kept.at[i]), o = result.at[i];
        const bool moved = in < k->r->states && o < k->n.nout;
        rows[i] = n.attr.recurrence->rows[n.nin + o];
        vec_push(a, &k->kept_as, moved ? shifted(k, in, o) : n.out[o]);
    }
    k->kept_rows = rows;
}

/* ---- the backward ---------------------------------------------------------------------------- */

typedef struct { Ids value, operand; VEC(int) rows; } Inputs;

static void give(Back *k, Inputs *in, ValueId v, ValueId operand, int rows)
{
    vec_push(k->g->arena, &in->value, v);
    vec_push(k->g->arena, &in->operand, operand);
    vec_push(k->g->arena, &in->rows, rows);
}

/* By value: do the steps of the backward read it? */
static bool *read_values(const Back *k, const Stage *s, const Ids *output)
{
    bool *read = arena_array(k->g->arena, bool, k->b->value.n + 1);
    for (uint32_t i = 0; i < s->backward.n; i++) {
        const Node *n = &k->b->node.at[s->backward.at[i]];
        for (uint32_t j = 0; j < n->nin; j++)
            read[n->in[j]] = true;
    }
    for (uint32_t o = 0; o < output->n; o++)
        read[output->at[o]] = true;
    return read;
}

/* The rows of the output that dy is the gradient of. */
static int rows_of_output(const Back *k, uint32_t dy)
{
    uint32_t o = k->r->states;
    for (uint32_t seen = 0;; o++)
        if (k->v->dy[o] != NONE && seen++ == dy)
            return k->r->rows[k->n.nin + o];
}

static Inputs inputs_of(Back *k, const Stage *s, const Ids *output, uint32_t *sequences)
{
    const bool *read = read_values(k, s, output);
    Inputs in = {0};
    for (uint32_t i = 0; i < k->state.n; i++)
        give(k, &in, k->state.at[i], k->start.at[i],
             i < k->of_state.n ? k->r->rows[k->of_state.at[i]] : -1);
    for (uint32_t i = 0; i < k->dy.n; i++)
        give(k, &in, k->dy.at[i], k->dy_of.at[i], rows_of_output(k, i));
    for (uint32_t i = 0; i < k->kept.n; i++)
        if (read[k->kept.at[i]])
            give(k, &in, k->kept.at[i], k->kept_as.at[i], k->kept_rows[i]);
    for (uint32_t i = k->r->states; !is_whole(k, i); i++)
        if (read[k->b->input.at[i]] || in.value.n == k->state.n)
            give(k, &in, k->b->input.at[i], k->n.in[i], k->r->rows[i]);
    *sequences = in.value.n - k->state.n;
    for (uint32_t i = 0; i < k->n.nin; i++)
        if (is_whole(k, i) && read[k->b->input.at[i]])
            give(k, &in, k->b->input.at[i], k->n.in[i], -1);
    return in;
}

/* Of which values the backward makes sequences. */
static void make_sequences(Back *k)
{
    Arena *a = k->g->arena;
    for (uint32_t i = 0; i < k->factor.n; i++)
        if (forward_sequence(k, k->factor.at[i]) == NONE)
            ids_add(a, &k->made, k->factor.at[i]);
    for (uint32_t j = k->r->states; !is_whole(k, j); j++)
        if (k->d[j] != NONE)
            ids_add(a, &k->made, k->d[j]);
}

static void backward(Back *k, const Stage *s)
{
    Graph *g = k->g;
    Arena *a = g->arena;
    Ids output = {0};
    uint32_t sequences;
    for (uint32_t i = 0; i < k->next.n; i++)
        vec_push(a, &output, k->next.at[i]);
    make_sequences(k);
    for (uint32_t i = 0; i < k->made.n; i++)
        vec_push(a, &output, k->made.at[i]);
    if (output.n == 0)
        return;
    const Inputs in = inputs_of(k, s, &output, &sequences);
    Graph *body = body_of(g, k->b, &in.value, &s->backward, &output);
    body_own_outputs(body);
    const int *rows = body_rows(body, in.rows.at, a);
    k->result = g_recurrence(g, body,
                             (Recurrence){.states = k->state.n,
                                          .sequences = sequences,
                                          .reverse = !k->r->reverse,
                                          .rows = rows},
                             in.operand.at);
    for (uint32_t i = 0; i < k->made.n; i++)
        vec_push(a, &k->made_as, graph_out(g, k->result, k->state.n + i));
}

void vjp_recurrence(Vjp *v)
{
    Graph *g = v->g;
    Back k = {.v = v, .g = g, .n = *vjp_node(v), .result = NONE};
    k.r = k.n.attr.recurrence;
    k.b = graph_twin(k.r->body, g->arena);
    k.b->cur_origin = g->cur_origin;
    differentiate(&k);
    for (uint32_t i = 0; i < k.n.nin; i++)
        if (is_whole(&k, i) && v->want[i] && k.d[i] != NONE)
            (void)sum_of(&k, k.d[i], v->wide[i]);
    const Stage s = divided(&k);
    keep(&k, &s);
    backward(&k, &s);
    for (uint32_t i = 0; i < k.n.nin; i++) {
        if (!v->want[i] || k.d[i] == NONE)
            continue;
        v->din[i] = i < k.r->states ? graph_out(g, k.result, ids_find(&k.of_state, i))
                    : is_whole(&k, i) ? sum_of(&k, k.d[i], v->wide[i])
                                      : k.made_as.at[ids_find(&k.made, k.d[i])];
    }
}
