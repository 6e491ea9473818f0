/*
 * copy.c - what is cheaper to compute again in the stage that uses it than to send there.
 *
 * In: the values a stage reads from earlier ones.  Out: for each, sent or copied.  Three kinds of
 * node may be copied: functions of constants and integer inputs (masks, positions, rotary tables),
 * when their inputs are no more bytes than the result; views and transposes of parameters, always,
 * so that what crosses is the parameter, and half copies of parameters that train or not; and a
 * view, a Cast or a Concat, when its operands are fewer bytes or there anyway.  A cost per value
 * (bytes that must come in), computed in graph order over the cone of each demand: a shortest-path
 * cut, exact where cones do not share.  A node through which a gradient flows is moved, not copied,
 * and only where the order of the gradient's additions stays the same: bits must not depend on the
 * cut.
 */
#include <string.h>

#include "pipe_int.h"

typedef struct Choice {
    int64_t cost; /* bytes that must come in for stage t to have the value */
    bool copy;    /* by making it there */
    bool in_cone;
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
    b->wanted = arena_array(b->a, bool, g->node.n + 1);
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

/* Fills b->choice for the cone of v: the values it is made of. */
static void weigh(Build *b, uint32_t t, ValueId v, const bool *read, const ValueId *local)
{
    const Graph *g = b->g;
    Choice *choice = b->choice;
    NodeId top = val(g, v)->node, low = top;
    memset(choice, 0, b->values * sizeof *choice);
    choice[v].in_cone = true;
    for (NodeId n = top + 1; n-- > 0 && n + 1 > low;) {
        const Node *x = &g->node.at[n];
        bool in = false;
        for (uint32_t i = 0; i < x->nout; i++)
            in |= choice[x->out[i]].in_cone;
        bool open = in && local[x->out[0]] == NONE && kind_of(b, n, t) != STAYS;
        for (uint32_t i = 0; open && i < x->nin; i++) {
            const Value *o = val(g, x->in[i]);
            choice[x->in[i]].in_cone = true;
            if (o->kind == V_NODE && o->node < low)
                low = o->node;
        }
    }
    for (NodeId n = low; n <= top; n++) {
        const Node *x = &g->node.at[n];
        bool in = false;
        for (uint32_t i = 0; i < x->nout; i++)
            in |= choice[x->out[i]].in_cone;
        if (!in)
            continue;
        Kind kind = kind_of(b, n, t);
        int64_t made = 0;
        for (uint32_t i = 0; i < x->nin && kind != STAYS; i++) {
            bool before = false;
            for (uint32_t k = 0; k < i; k++)
                before |= x->in[k] == x->in[i];
            if (!before)
                made += val(g, x->in[i])->kind == V_NODE ? choice[x->in[i]].cost
                                                         : leaf_cost(b, x->in[i], read, local);
        }
        for (uint32_t i = 0; i < x->nout; i++) {
            Choice *c = &choice[x->out[i]];
            int64_t sent = local[x->out[i]] != NONE ? 0 : value_bytes(graph_sized(g), x->out[i]);
            c->copy = local[x->out[i]] == NONE &&
                      (kind == COPY || (kind == COPY_IF_NO_LARGER && made <= sent) ||
                       (kind == COPY_IF_SMALLER && made < sent));
            c->cost = !c->copy ? sent : kind == COPY ? 0 : made;
        }
    }
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

static void send(Build *b, ValueId v, ValueId *local)
{
    local[v] = v;
    b->needed[v] = true;
}

/* Carries out the choice for v: copies in graph order, what they read sent or copied before. */
static void carry_out(Build *b, uint32_t t, ValueId v, bool *read, ValueId *local)
{
    const Graph *g = b->g;
    const Choice *choice = b->choice;
    if (!choice[v].copy) {
        send(b, v, local);
        return;
    }
    NodeId top = val(g, v)->node, low = top;
    bool *wanted = b->wanted;
    memset(wanted, 0, (top + 1) * sizeof *wanted);
    wanted[top] = true;
    for (NodeId n = top + 1; n-- > 0 && n + 1 > low;) {
        const Node *x = &g->node.at[n];
        for (uint32_t i = 0; wanted[n] && i < x->nin; i++) {
            const Value *o = val(g, x->in[i]);
            if (o->kind != V_NODE)
                read[x->in[i]] = true;
            else if (local[x->in[i]] == NONE) {
                if (choice[x->in[i]].copy)
                    wanted[o->node] = true;
                else
                    send(b, x->in[i], local);
            }
            if (o->kind == V_NODE && o->node < low)
                low = o->node;
        }
    }
    for (NodeId n = low; n <= top; n++)
        if (wanted[n])
            copy_node(b, n, t, local);
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
        weigh(b, t, v, read, local);
        carry_out(b, t, v, read, local);
    }
}
