/*
 * autocast.c - a graph that computes in half precision, in the manner of torch.autocast.  In: a
 * Graph with its loss, and f16 or bf16.  Out: the same values, many of them now of that type, and
 * the Casts between.
 *
 * The column AUTO of ops.def says of each operation whether it computes in the half type (products:
 * they add up in f32), in f32 (norms, exponentials, long sums), or in its operands' widest type.
 * Parameters stay f32; where a product reads one, the Cast stands at the parameter itself and views
 * of it are views of the copy, so that the copy can be made once a step.  A bias is added to a
 * product before it is rounded, and a number that is no half is used as it is.  Each value is cast
 * once to a type.  What the model yields, and running statistics, keep their types.  f64 and whole
 * numbers are as they were.
 */
#include <math.h>
#include <string.h>

#include "ir.h"

typedef struct {
    Graph *g;
    Arena *a;         /* scratch */
    Dtype half;       /* DT_NONE: the types are the model's own */
    ValueId n;        /* values before the pass */
    const Node *node; /* as they were */
    const Dtype *was; /* by value */
    Ids *users;
    bool *is_output;
    IdMap cast[2]; /* by value: the same in the half type, in f32 */
    bool *product; /* shows a product's result */
    bool *biased;  /* of a MatMul that only an addition of a bias reads */
    bool *ends;    /* a half is rounded here: not only what may carry it reads it */
    Dtype *as;     /* the half type of what is carried, DT_NONE: it is not */
} Cast;

static bool is_single(const Graph *g, ValueId v) { return val(g, v)->dtype == DT_F32; }

/* The operand of a view of one value; NONE: the node is no such view. */
static ValueId shown(const Node *n) { return op_is_view(n->op) && n->nin == 1 ? n->in[0] : NONE; }

/* A transform with constants, as Fourier's, says that it stays f32: a product of f32, to f32.
   was: types by value, as they were. */
static bool in_half(const Dtype *was, const Node *n)
{
    return op_is_product(n->op) && !(n->attr.to == DT_F32 && was[n->in[0]] == DT_F32);
}

static bool of_parameter(const Graph *g, ValueId v)
{
    return val(g, graph_behind_views(g, v))->kind == V_PARAM;
}

/* ---- casts ----------------------------------------------------------------------------------- */

static ValueId *known(Cast *c, ValueId v, Dtype t)
{
    return idmap_at(c->a, &c->cast[t == DT_F32], v);
}

/* The view's node over another operand. */
static ValueId same_view(Graph *g, ValueId v, ValueId operand)
{
    const Node n = g->node.at[val(g, v)->node];
    return graph_out(g, graph_node(g, n.op, 1, &operand, n.attr), val(g, v)->out);
}

static ValueId in_type(Cast *c, ValueId v, Dtype t)
{
    Graph *g = c->g;
    if (val(g, v)->dtype == t)
        return v;
    ValueId made = *known(c, v, t);
    if (made != NONE)
        return made;
    if (val(g, v)->kind == V_NODE && of_parameter(g, v))
        made = same_view(g, v, in_type(c, g->node.at[val(g, v)->node].in[0], t));
    else
        made = g_cast(g, v, t);
    return *known(c, v, t) = made;
}

/* ---- types ----------------------------------------------------------------------------------- */

/* A value's type in the graph that rounds everywhere. */
static Dtype type_of(const Cast *c, ValueId v)
{
    return v < c->n && c->as[v] != DT_NONE ? c->as[v] : val(c->g, v)->dtype;
}

static bool casts(const Cast *c, ValueId v)
{
    Dtype t = val(c->g, v)->dtype;
    return t == DT_F32 || (c->half == DT_NONE ? dtype_is_half(t) : t == c->half);
}

/* One number, as good in the half type as any: it makes nothing wider. */
static bool is_number(const Cast *c, ValueId v)
{
    const Value *x = val(c->g, v);
    double d;
    return c->half != DT_NONE && x->kind == V_CONST && g_const_double(c->g, v, &d) &&
           isfinite(d) == isfinite(dtype_round(c->half, d));
}

static Dtype widest(const Cast *c, const Node *n)
{
    Dtype half = DT_NONE;
    bool single = false;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (!casts(c, n->in[i]) || is_number(c, n->in[i]))
            continue;
        Dtype t = type_of(c, n->in[i]);
        half = dtype_is_half(t) ? t : half;
        single |= t == DT_F32;
    }
    return half != DT_NONE && !single ? half : DT_F32;
}

static Dtype computes_in(const Cast *c, const Node *n)
{
    Dtype own = val(c->g, n->out[0])->dtype;
    if (c->half == DT_NONE)
        return dtype_is_float(own) ? own : widest(c, n);
    switch (op_cast(n->op)) {
    case CAST_half: return in_half(c->was, n) ? c->half : DT_F32;
    case CAST_single: return DT_F32;
    default: return widest(c, n);
    }
}

/* ---- a bias ---------------------------------------------------------------------------------- */

static bool adds_bias(const Graph *g, const Node *n, const bool *product)
{
    return n->op == OP_Add && ((product[n->in[0]] && of_parameter(g, n->in[1])) ||
                               (product[n->in[1]] && of_parameter(g, n->in[0])));
}

/* Is the value read once, through views, and there a bias is added to it? */
static bool awaits_bias(const Cast *c, ValueId v)
{
    const Graph *g = c->g;
    for (;;) {
        if (c->users[v].n != 1)
            return false;
        const Node *n = &g->node.at[c->users[v].at[0]];
        if (shown(n) == NONE || n->nout != 1)
            return adds_bias(g, n, c->product);
        v = n->out[0];
    }
}

/* Do only products read it, or views of it?  is_output: by value, NULL: it is none. */
static bool feeds_products(const Node *node, const Dtype *was, const Ids *users,
                           const bool *is_output, ValueId v)
{
    bool all = users[v].n > 0 && !(is_output && is_output[v]);
    for (uint32_t i = 0; all && i < users[v].n; i++) {
        const Node *n = &node[users[v].at[i]];
        all = in_half(was, n) || (shown(n) != NONE && n->nout == 1 &&
                                  feeds_products(node, was, users, is_output, n->out[0]));
    }
    return all;
}

static bool is_matmul(const Node *n) { return n->op == OP_MatMul || n->op == OP_PackedMatMul; }

static void find_products(Cast *c)
{
    const Graph *g = c->g;
    c->product = arena_array(c->a, bool, c->n + 1);
    c->biased = arena_array(c->a, bool, c->n + 1);
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        bool is = in_half(c->was, n) && is_single(g, n->out[0]);
        is |= shown(n) != NONE && n->nout == 1 && c->product[shown(n)];
        c->product[n->out[0]] = is;
    }
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        bool is_output = false;
        for (uint32_t k = 0; is_matmul(n) && k < g->output.n; k++)
            is_output |= graph_behind_views(g, g->output.at[k]) == n->out[0];
        if (is_matmul(n) && !is_output)
            c->biased[n->out[0]] = c->product[n->out[0]] && awaits_bias(c, n->out[0]);
    }
}

/* ---- what is carried --------------------------------------------------------------------------
 */

/* Does the node read a half as well carried as rounded?  So does a softmax in f32, of which
   backward reads the result. */
static bool may_carry(const Cast *c, const Node *n)
{
    return op_is_map(n->op) ||
           (c->half != DT_NONE && (n->op == OP_Softmax || n->op == OP_LogSoftmax));
}

/* Past a call of a library, or a kernel of its own, a value is in memory. */
static void find_ends(Cast *c)
{
    const Graph *g = c->g;
    uint32_t *calls =
        arena_array(c->a, uint32_t, c->n + 1); /* before the value, one after another */
    c->ends = arena_array(c->a, bool, c->n + 1);
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        uint32_t most = 0;
        for (uint32_t k = 0; k < n->nin; k++)
            most = calls[n->in[k]] > most ? calls[n->in[k]] : most;
        for (uint32_t k = 0; k < n->nin; k++)
            c->ends[n->in[k]] |= !may_carry(c, n) || calls[n->in[k]] < most;
        for (uint32_t k = 0; k < n->nout; k++) {
            calls[n->out[k]] = most + op_stands_alone(n->op);
            c->ends[n->out[k]] = c->is_output[n->out[k]] || c->users[n->out[k]].n == 0;
        }
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static NodeId append(Cast *c, Node n)
{
    Graph *g = c->g;
    vec_push(g->arena, &g->node, n);
    for (uint32_t i = 0; i < n.nout; i++) {
        g->value.at[n.out[i]].node = g->node.n - 1;
        g->value.at[n.out[i]].out = i;
    }
    return g->node.n - 1;
}

/* Has it an operand that is a number, but no half? */
static bool reads_finer(const Cast *c, const Node *n)
{
    double d;
    bool any = false;
    for (uint32_t i = 0; op_is_map(n->op) && i < n->nin; i++)
        any |= casts(c, n->in[i]) && g_const_double(c->g, n->in[i], &d) &&
               memcmp(&(double){dtype_round(c->half, d)}, &d, sizeof d) != 0;
    return any;
}

/* Does an elementwise operation on halves compute in f32?  Where that saves a rounding. */
static bool computes_wide(const Cast *c, const Node *n)
{
    bool wide = !c->ends[n->out[0]] && !op_is_exact(n->op);
    for (uint32_t i = 0; i < n->nin; i++)
        wide |= n->in[i] < c->n && c->as[n->in[i]] != DT_NONE;
    return op_is_map(n->op) && (wide || (c->half != DT_NONE && reads_finer(c, n)));
}

/* Computes in f32, and rounds to t where it ends; a bias is half, as the weight beside it. */
static void compute_wide(Cast *c, Node n, Dtype t, bool biased)
{
    Graph *g = c->g;
    ValueId y = n.out[0];
    for (uint32_t i = 0; i < n.nin; i++) {
        if (biased && of_parameter(g, n.in[i]))
            n.in[i] = in_type(c, n.in[i], t);
        if (casts(c, n.in[i]))
            n.in[i] = in_type(c, n.in[i], DT_F32);
    }
    if (!casts(c, y)) { /* a comparison */
        append(c, n);
        return;
    }
    if (!c->ends[y] && !biased) {
        c->as[y] = t;
        g->value.at[y].dtype = DT_F32;
        append(c, n);
        return;
    }
    Node round = {.op = OP_Cast, .nin = 1, .nout = 1, .attr = {.to = t}, .origin = n.origin};
    round.in = arena_array(g->arena, ValueId, 1);
    round.in[0] = graph_value(g, V_NODE, NULL, DT_F32, &(Shape){0});
    g->value.at[round.in[0]].shape = val(g, y)->shape;
    round.out = n.out;
    n.out = arena_array(g->arena, ValueId, 1);
    n.out[0] = round.in[0];
    g->value.at[y].dtype = t;
    append(c, n);
    append(c, round);
}

/* As it was, but that what it reads is what it was once: an explicit Cast of what is one already.
 */
static void keep(Cast *c, Node n)
{
    bool idle = n.op == OP_Cast && val(c->g, n.in[0])->dtype == n.attr.to;
    n.op = idle ? OP_Identity : n.op;
    n.attr = idle ? (Attr){0} : n.attr;
    append(c, n);
}

static void autocast(Graph *g, Dtype half, const Dtype *was);

static const Dtype *types(const Graph *g, Arena *a)
{
    Dtype *t = arena_array(a, Dtype, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        t[v] = val(g, v)->dtype;
    return t;
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* The body computes so too; states, and what it leaves, keep their types. */
static void retype_body(Cast *c, Node n)
{
    Graph *g = c->g, *body = graph_twin(n.attr.recurrence->body, g->arena);
    const Ids *users = graph_users(body, c->a);
    const Dtype *was = types(body, c->a);
    Recurrence *own = arena_new_of(g->arena, Recurrence);
    *own = *n.attr.recurrence;
    for (uint32_t i = 0; i < n.nin; i++) {
        Value *x = &body->value.at[body->input.at[i]];
        const bool whole = i >= own->states && !recurrence_is_sequence(own, i);
        if (i < own->states)
            n.in[i] = in_type(c, n.in[i], x->dtype);
        else if (whole && c->half != DT_NONE && is_single(g, n.in[i]) &&
                 feeds_products(body->node.at, was, users, NULL, body->input.at[i]))
            n.in[i] = in_type(c, n.in[i], c->half);
        x->dtype = val(g, n.in[i])->dtype;
    }
    autocast(body, c->half, was);
    own->body = body;
    n.attr.recurrence = own;
    append(c, n);
}

static void retype(Cast *c, Node n)
{
    Graph *g = c->g;
    Dtype t = computes_in(c, &n);
    g->cur_origin = n.origin;
    if (n.op == OP_Recurrence) {
        retype_body(c, n);
        return;
    }
    /* their types are what they say */
    if (n.op == OP_Cast || n.op == OP_Count || n.op == OP_Random) {
        keep(c, n);
        return;
    }
    bool biased = c->half != DT_NONE && is_single(g, n.out[0]) && adds_bias(g, &n, c->product);
    t = biased ? c->half : t;
    if (biased || (dtype_is_half(t) && computes_wide(c, &n))) {
        compute_wide(c, n, t, biased);
        return;
    }
    if (c->half == DT_NONE) {
        append(c, n);
        return;
    }
    if (shown(&n) != NONE && n.nout == 1 && of_parameter(g, n.in[0]) && is_single(g, n.out[0]) &&
        feeds_products(c->node, c->was, c->users, c->is_output, n.out[0]))
        t = c->half;
    for (uint32_t i = 0; i < n.nin; i++)
        if (casts(c, n.in[i]))
            n.in[i] = in_type(c, n.in[i], t);
    bool wide = is_matmul(&n) && (c->biased[n.out[0]] || n.attr.to == DT_F32);
    if (wide)
        n.attr.to = DT_F32;
    for (uint32_t i = 0; i < n.nout; i++)
        if (casts(c, n.out[i]))
            g->value.at[n.out[i]].dtype = wide || n.op == OP_ConvWeightGrad ? DT_F32 : t;
    append(c, n);
}

/* An output of the model in its own type again, under its name; the half one is NAME%bf16. */
static void restore(Cast *c, ValueId v, Dtype t)
{
    Graph *g = c->g;
    if (val(g, v)->dtype == t)
        return;
    ValueId y = in_type(c, v, t);
    const char *name = val(g, v)->name, *was = val(g, y)->name,
               *own = arena_printf(g->arena, "%s%%%s", name, dtype_name(c->half));
    if (!val(g, y)->made)
        return;
    *strmap_at(&g->by_name, was) = NONE;
    *strmap_at(&g->by_name, name) = y;
    *strmap_at(&g->by_name, own) = v;
    g->value.at[y].name = name;
    g->value.at[y].made = false;
    g->value.at[v].name = own;
    g->value.at[v].made = true;
}

static bool *outputs(const Cast *c)
{
    bool *is = arena_array(c->a, bool, c->n + 1);
    for (uint32_t i = 0; i < c->g->output.n; i++)
        is[c->g->output.at[i]] = true;
    return is;
}

static bool has_halves(const Graph *g)
{
    bool any = false;
    for (ValueId v = 0; v < g->value.n; v++)
        any |= val(g, v)->kind == V_NODE && dtype_is_half(val(g, v)->dtype);
    return any;
}

/* was: by value the types of the model, where inputs of a body have got others since. */
static void autocast(Graph *g, Dtype half, const Dtype *was)
{
    if (half == DT_NONE && !has_halves(g))
        return;
    Cast c = {.g = g, .a = arena_within(g->arena), .half = half, .n = g->value.n, .was = was};
    uint32_t origin = g->cur_origin, nodes = g->node.n;
    c.is_output = outputs(&c);
    c.users = graph_users(g, c.a);
    find_products(&c);
    find_ends(&c);
    c.as = arena_array(c.a, Dtype, c.n + 1);
    c.node = g->node.at;
    g->node.at = NULL;
    g->node.n = g->node.cap = 0;
    for (NodeId i = 0; i < nodes; i++) {
        Node n = c.node[i];
        n.in = arena_array(g->arena, ValueId, n.nin);
        memcpy(n.in, c.node[i].in, n.nin * sizeof *n.in);
        retype(&c, n);
        for (uint32_t k = 0; k < n.nout; k++)
            if (c.is_output[c.node[i].out[k]])
                restore(&c, c.node[i].out[k], was[c.node[i].out[k]]);
    }
    for (uint32_t i = 0; i < g->output.n; i++)
        g->output.at[i] = in_type(&c, g->output.at[i], was[g->output.at[i]]);
    for (uint32_t i = 0; i < g->update.n; i++)
        g->update.at[i].value = in_type(&c, g->update.at[i].value, was[g->update.at[i].value]);
    g->cur_origin = origin;
    arena_free(c.a);
}

void graph_autocast(Graph *g, Dtype half)
{
    INSIST(half == DT_NONE || dtype_is_half(half));
    Arena *a = arena_within(g->arena);
    autocast(g, half, types(g, a));
    arena_free(a);
}
