/*
 * copy.c - what is cheaper to compute again in the stage that uses it than to send there.
 *
 * In: the values a stage reads from earlier ones.  Out: for each, sent or copied.  Three kinds of
 * node may be copied: functions of constants and integer inputs (masks, positions, rotary tables),
 * when their inputs are no more bytes than the result; views and transposes of parameters, always,
 * so that what crosses is the parameter, and half copies of parameters that train or not; and a
 * view, a Cast or a Concat, when its operands are fewer bytes or there anyway.  A value costs the
 * bytes that must come in for it, or for what it is made of: a shortest-path cut, exact where what
 * two are made of is not the same.  A node through which a gradient flows is moved, not copied, and
 * only where the order of the gradient's additions stays the same: bits must not depend on the cut.
 */
#include <string.h>

#include "pipe_int.h"

typedef struct Choice {
    int64_t cost; /* bytes that must come in for stage t to have the value */
    bool copy;    /* by making it there */
    bool known;
} Choice;

/* By value: has a parameter that it is made of several uses, nodes that read more than parameters?
 * Those keep their order. */
static bool *find_shared(const Build *b)
{
    const Graph *g = b->g;
    uint8_t *uses = arena_array(b->a, uint8_t, g->value.n + 1); /* 2: several */
    bool *shared = arena_array(b->a, bool, g->value.n + 1);
    for (NodeId n = g->node.n; n-- > 0;) {
        const Node *x = &g->node.at[n];
        uint32_t many = 0;
        for (uint32_t i = 0; i < x->nout; i++)
            many += b->of_params[x->out[i]] ? uses[x->out[i]] : 1;
        for (uint32_t i = 0; i < x->nin; i++)
            if (x->in[i] != NONE && b->of_params[x->in[i]])
                uses[x->in[i]] = (uint8_t)(uses[x->in[i]] + many > 1 ? 2 : many);
    }
    for (ValueId v = 0; v < g->value.n; v++)
        shared[v] = val(g, v)->kind == V_PARAM && uses[v] > 1;
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        for (uint32_t i = 0; i < x->nin; i++)
            for (uint32_t k = 0; x->in[i] != NONE && k < x->nout; k++)
                shared[x->out[k]] |= b->of_params[x->out[k]] && shared[x->in[i]];
    }
    return shared;
}

void recompute_classify(Build *b)
{
    const Graph *g = b->g;
    b->pure = flow_pure(g, b->a);
    b->of_params = flow_of_params(g, b->a);
    b->grad = flow_active(g, b->a, b->p->loss);
    b->choice = arena_array(b->a, Choice, g->value.n + 1);
    b->shared = find_shared(b);
}

/* May a gradient-carrying view be made in t instead: does nothing else see the difference? */
static bool may_move(const Build *b, NodeId n, uint32_t t)
{
    const Node *x = &b->g->node.at[n];
    for (uint32_t i = 0; i < x->nout; i++) {
        const Ids *u = &b->users[x->out[i]];
        if (b->needed[x->out[i]])
            return false;
        for (uint32_t k = 0; k < u->n; k++)
            if (b->home[u->at[k]] != t)
                return false;
    }
    for (uint32_t i = 0; i < x->nin; i++) {
        const Ids *u = &b->users[x->in[i]];
        if (b->shared[x->in[i]])
            return false;
        for (uint32_t k = 0; k < u->n; k++)
            if (u->at[k] > n && b->home[u->at[k]] < t)
                return false;
    }
    return true;
}

typedef enum { STAYS, COPY_IF_SMALLER, COPY_IF_NO_LARGER, COPY } Kind;

static Kind kind_of(const Build *b, NodeId n, uint32_t t)
{
    const Node *x = &b->g->node.at[n];
    ValueId v = x->out[0];
    const Value *o = x->op == OP_Cast ? val(b->g, x->in[0]) : NULL;
    /* a parameter's half copy stands beside it, frozen or not */
    if (o && o->kind == V_PARAM && b->of_params[v])
        return COPY;
    if (b->pure[v])
        return COPY_IF_NO_LARGER;
    if (b->of_params[v])
        return COPY;
    if (!op_is_view(x->op) && x->op != OP_Cast && x->op != OP_Concat)
        return STAYS;
    return !b->grad[v] || may_move(b, n, t) ? COPY_IF_SMALLER : STAYS;
}

static int64_t leaf_cost(const Build *b, ValueId v, const bool *read, const ValueId *local)
{
    const Value *x = val(b->g, v);
    if (x->kind == V_CONST || read[v] || local[v] != NONE)
        return 0;
    if (x->kind == V_PARAM && b->of_params[v] && !b->pure[v])
        return 0;                         /* the parameter itself is what crosses */
    /* read from the data by this stage's rank and not sent: weighed at */
    if (x->kind == V_INPUT)
        return shape_elements(&val(graph_sized(b->g), v)->shape); /* a byte an element, lest a large one is kept for a small result */
    return value_bytes(graph_sized(b->g), v);
}

enum { DEEPEST = 1000 }; /* nodes behind one another that may be copied */

/* The cost of v, with b->choice for it and for what it is made of. */
static int64_t weigh(Build *b, uint32_t t, ValueId v, const bool *read, const ValueId *local,
                     int depth)
{
    const Value *x = val(b->g, v);
    Choice *c = &b->choice[v];
    if (x->kind != V_NODE)
        return leaf_cost(b, v, read, local);
    if (c->known || local[v] != NONE)
        return c->cost;
    const Node *n = &b->g->node.at[x->node];
    const Kind kind = depth == DEEPEST ? STAYS : kind_of(b, x->node, t);
    const int64_t sent = value_bytes(graph_sized(b->g), v);
    int64_t made = 0;
    for (uint32_t i = 0; i < n->nin && kind != STAYS; i++) {
        bool before = false;
        for (uint32_t k = 0; k < i; k++)
            before |= n->in[k] == n->in[i];
        made += before ? 0 : weigh(b, t, n->in[i], read, local, depth + 1);
    }
    *c = (Choice){.known = true};
    c->copy = kind == COPY || (kind == COPY_IF_NO_LARGER && made <= sent) ||
              (kind == COPY_IF_SMALLER && made < sent);
    c->cost = !c->copy ? sent : kind == COPY ? 0 : made;
    return c->cost;
}

static void copy_node(Build *b, NodeId n, uint32_t t, ValueId *local)
{
    Graph *g = b->g;
    Node x = g->node.at[n];
    ValueId *in = arena_array(b->a, ValueId, x.nin), *out = arena_array(b->a, ValueId, x.nout);
    for (uint32_t i = 0; i < x.nin; i++) {
        in[i] = val(g, x.in[i])->kind == V_NODE ? local[x.in[i]] : x.in[i];
        INSIST(in[i] != NONE);
    }
    for (uint32_t i = 0; i < x.nout; i++) {
        Value was = *val(g, x.out[i]);
        out[i] = graph_value(g, V_NODE, NULL, was.dtype, &was.shape);
        Value *v = &g->value.at[out[i]];
        v->batch = was.batch;
        v->node = g->node.n;
        v->out = i;
        local[x.out[i]] = out[i];
    }
    Placed placed = {n, g->node.n};
    vec_push(b->a, &b->list[t], placed);
    x.in = in;
    x.out = out;
    vec_push(b->a, &g->node, x);
}

ValueId pipe_copy(Graph *g, ValueId v, const char *name, uint32_t origin)
{
    const Value was = *val(g, v);
    const bool taken = name && strmap_get(&g->by_name, name) != NONE;
    const ValueId to = graph_value(g, V_NODE, taken ? NULL : name, was.dtype, &was.shape);
    Node n = {.op = OP_Identity, .nin = 1, .nout = 1, .origin = origin};
    n.in = arena_array(g->arena, ValueId, 1);
    n.out = arena_array(g->arena, ValueId, 1);
    n.in[0] = v;
    n.out[0] = to;
    g->value.at[to].batch = was.batch;
    g->value.at[to].node = g->node.n;
    vec_push(g->arena, &g->node, n);
    return to;
}

static void send(Build *b, ValueId v, ValueId *local)
{
    local[v] = v;
    b->needed[v] = true;
}

/* Carries out the choice for v: what a copy reads is sent or copied before. */
static void carry_out(Build *b, uint32_t t, ValueId v, bool *read, ValueId *local)
{
    const Value *x = val(b->g, v);
    const NodeId n = x->node;
    if (x->kind != V_NODE)
        read[v] = true;
    else if (local[v] == NONE && !b->choice[v].copy)
        send(b, v, local);
    else if (local[v] == NONE) {
        for (uint32_t i = 0; i < b->g->node.at[n].nin; i++)
            carry_out(b, t, b->g->node.at[n].in[i], read, local);
        copy_node(b, n, t, local);
    }
}

void recompute_decide(Build *b, uint32_t t, const Ids *demands, bool *read, ValueId *local)
{
    for (uint32_t i = 0; i < demands->n; i++) {
        ValueId v = demands->at[i];
        if (local[v] == NONE && kind_of(b, val(b->g, v)->node, t) == STAYS)
            send(b, v, local);
    }
    for (uint32_t i = 0; i < demands->n; i++) {
        ValueId v = demands->at[i];
        if (local[v] != NONE)
            continue;
        memset(b->choice, 0, b->values * sizeof *b->choice);
        (void)weigh(b, t, v, read, local, 0);
        carry_out(b, t, v, read, local);
    }
}
