/*
 * stash.c - what forward keeps for backward: the fewest bytes from which backward can be computed,
 * recomputing only what is cheap and exact: elementwise operations and views, and, where memory is
 * short (Graph.gathers_again), what members gather.
 *
 * A minimum vertex cut, found by maximum flow (Dinic 1970).  Every value v that forward makes, or
 * backward could make from forward's values alone, is an arc of capacity bytes(v); sources are what
 * cannot be recomputed, the sink is what backward reads.  The cut arcs are the stash.  Values of
 * backward in the cut (a mask of bytes where backward asks only whether y > 0) move into forward.
 * What backward computes again lies in memory there, and so does what leads to it: a chain of such
 * values, as of a residual stream from its branches, would be alive at once, however deep the
 * model. So nothing is computed again through more than CHAIN_MOST values that forward wrote: the
 * next of a chain is held, that is, treated as costly, and the cut is searched once more. A value
 * that forward writes to memory anyway (a product's operand or result, or what is read again past a
 * product) counts one part in 33 less than one that forward would write for backward's sake alone:
 * the input of a normalization and its mean rather than their difference, logits rather than their
 * logarithms of probabilities.  Of equal cuts: bases before views of them, forward's own values
 * before moved ones, else the cut nearest the sink, which recomputes least.
 */
#include <string.h>

#include "autodiff.h"

/* a byte weighs PARTS where it is written anyway, else one more */
enum { TIE_BITS = 12, PARTS = 32, CHAIN_MOST = 1 };
static const int64_t ENDLESS = INT64_MAX / 4;

typedef struct { uint32_t to, next; int64_t cap; } Arc;         /* arc i and its reverse i ^ 1 */

typedef struct {
    Graph *g;
    Arena *a;                       /* scratch, of the stage */
    Stage *s;
    /* by value id; NONE or 0 outside the stage at hand */
    uint32_t *index;                /* the value's number in the flow network, NONE: not in it */
    bool *kept;                     /* in the stash */
    bool *need;                     /* backward reads it */
    ValueId *clone;                 /* what takes its place in backward */
    bool *written;                  /* forward writes it to memory in any case */
    uint32_t *depth;                /* calls of libraries and kernels of their own before it */
    uint8_t *chain; /* computed again, by way of so many values that forward wrote */
    /* by node id */
    /* a node of backward that depends on forward alone, and is cheap */
    bool *movable;
    bool *moved;                    /* now runs in forward */
    bool *remains;                  /* still runs in backward */
    bool *held;                     /* of forward: not computed again, see above */
    /* position in backward before which a recomputed node must stand */
    uint32_t *first_use;
    /* the network: vertex 0 source, 1 sink, 2 + 2 i a value's entry, 3 + 2 i its exit */
    VEC(ValueId) value;
    VEC(Arc) arc;
    uint32_t *head, *level, *at, *queue;
    uint32_t vertices;
} Cut;

static bool is_free(const Pipe *p, ValueId v)
{
    const Value *x = val(p->graph, v);
    return x->kind == V_PARAM || x->kind == V_CONST || v == p->loss_scale;
}

static int64_t weight(const Cut *c, ValueId v)
{
    const Value *x = val(c->g, v);
    int64_t bytes = value_bytes(graph_sized(c->g), v);
    int64_t tie = 1;
    if (x->kind == V_NODE) {
        tie += op_passes_on(c->g->node.at[x->node].op);
        tie += 2 * c->movable[x->node];
    }
    int64_t part = c->written[v] ? PARTS : PARTS + 1;
    return bytes >= (ENDLESS >> TIE_BITS) / part ? ENDLESS - 1 : (bytes * part << TIE_BITS) + tie;
}

static void add_arc(Cut *c, uint32_t from, uint32_t to, int64_t cap)
{
    vec_push(c->a, &c->arc, ((Arc){to, c->head[from], cap}));
    c->head[from] = c->arc.n - 1;
    vec_push(c->a, &c->arc, ((Arc){from, c->head[to], 0}));
    c->head[to] = c->arc.n - 1;
}

static void enter(Cut *c, ValueId v)
{
    if (c->index[v] != NONE)
        return;
    c->index[v] = c->value.n;
    vec_push(c->a, &c->value, v);
}

static uint32_t entry(const Cut *c, ValueId v) { return 2 + 2 * c->index[v]; }
static uint32_t leave(const Cut *c, ValueId v) { return 3 + 2 * c->index[v]; }
static bool inside(const Cut *c, ValueId v) { return v != NONE && c->index[v] != NONE; }

/* ---- what is in memory anyway ---------------------------------------------------------------- */

/* A view is in memory where its base is. */
static void write_down(Cut *c, ValueId v)
{
    while (inside(c, v) && !c->written[v]) {
        const Node *n = graph_maker(c->g, v);
        c->written[v] = true;
        v = n && op_is_view(n->op) ? n->in[0] : NONE;
    }
}

/* What crosses from one fused group to another: the results and operands of calls, inputs and
   outputs of the stage, and values that are read both before such a call and after it. */
static void find_written(Cut *c)
{
    const Stage *s = c->s;
    for (uint32_t i = 0; i < s->input.n; i++)
        write_down(c, s->input.at[i].value);
    for (uint32_t i = 0; i < s->output.n; i++)
        write_down(c, s->output.at[i].value);
    for (uint32_t i = 0; i < s->forward.n; i++) {
        const Node *n = &c->g->node.at[s->forward.at[i]];
        uint32_t depth = 0;
        bool alone = op_stands_alone(n->op);
        for (uint32_t j = 0; j < n->nin; j++)
            if (inside(c, n->in[j]) && c->depth[n->in[j]] > depth)
                depth = c->depth[n->in[j]];
        for (uint32_t j = 0; j < n->nin; j++)
            if (inside(c, n->in[j]) && (alone || c->depth[n->in[j]] < depth))
                write_down(c, n->in[j]);
        for (uint32_t j = 0; j < n->nout; j++) {
            c->depth[n->out[j]] = depth + alone;
            if (alone)
                write_down(c, n->out[j]);
        }
    }
}

/* ---- the network ----------------------------------------------------------------------------- */

/* Count reads no data, only how many rows there are: what is made of its number and of constants is
   computed again, from nothing. */
static uint32_t operands(const Node *n) { return n->op == OP_Count ? 0 : node_reads_training(n); }

/* Nodes of backward that read nothing of backward: candidates to run in forward instead. */
static void find_movable(Cut *c, const Pipe *p)
{
    for (uint32_t i = 0; i < c->s->backward.n; i++) {
        NodeId id = c->s->backward.at[i];
        const Node *n = &c->g->node.at[id];
        bool some = n->op == OP_Count, all = some || op_is_cheap(n->op);
        for (uint32_t j = 0; j < operands(n) && all; j++) {
            bool in = inside(c, n->in[j]);
            some |= in;
            all = in || is_free(p, n->in[j]);
        }
        c->movable[id] = all && some;
        for (uint32_t j = 0; c->movable[id] && j < n->nout; j++)
            enter(c, n->out[j]);
    }
}

static bool costly(const Cut *c, NodeId id)
{
    Op op = c->g->node.at[id].op;
    bool gathered = c->g->gathers_again && op == OP_AllGather;
    return (!op_is_cheap(op) && op != OP_Count && !gathered) || c->held[id];
}

static void connect_node(Cut *c, NodeId id, bool source)
{
    const Node *n = &c->g->node.at[id];
    for (uint32_t o = 0; o < n->nout; o++) {
        if (source)
            add_arc(c, 0, entry(c, n->out[o]), ENDLESS);
        for (uint32_t j = 0; !source && j < operands(n); j++)
            if (inside(c, n->in[j]))
                add_arc(c, leave(c, n->in[j]), entry(c, n->out[o]), ENDLESS);
    }
}

static void build_network(Cut *c)
{
    Graph *g = c->g;
    Stage *s = c->s;
    c->vertices = 2 + 2 * c->value.n;
    c->arc.n = 0;
    c->head = arena_none(c->a, c->vertices);
    c->level = arena_array(c->a, uint32_t, c->vertices);
    c->at = arena_array(c->a, uint32_t, c->vertices);
    c->queue = arena_array(c->a, uint32_t, c->vertices);
    for (uint32_t i = 0; i < c->value.n; i++)
        add_arc(c, 2 + 2 * i, 3 + 2 * i, weight(c, c->value.at[i]));    /* arc 2 i */
    for (uint32_t i = 0; i < s->input.n; i++)
        if (inside(c, s->input.at[i].value))
            add_arc(c, 0, entry(c, s->input.at[i].value), ENDLESS);
    for (uint32_t i = 0; i < s->forward.n; i++)
        connect_node(c, s->forward.at[i], costly(c, s->forward.at[i]));
    for (uint32_t i = 0; i < s->backward.n; i++) {
        NodeId id = s->backward.at[i];
        const Node *n = &g->node.at[id];
        if (c->movable[id])
            connect_node(c, id, false);
        for (uint32_t j = 0; !c->movable[id] && j < n->nin; j++)
            if (inside(c, n->in[j]))
                add_arc(c, leave(c, n->in[j]), 1, ENDLESS);
    }
}

/* A gradient that is itself a value of forward (y = a b with dy = 1) must be there as it is. */
static void force_roots(Cut *c)
{
    Stage *s = c->s;
    for (uint32_t i = 0; i < s->input.n + s->param.n; i++) {
        const Ids *grads = stage_grads(s, i);
        for (uint32_t j = 0; j < grads->n; j++)
            if (inside(c, grads->at[j])) {
                c->kept[grads->at[j]] = true;
                c->arc.at[2 * c->index[grads->at[j]]].cap = 0;
            }
    }
}

/* ---- Dinic ----------------------------------------------------------------------------------- */

static bool layers(Cut *c)
{
    memset(c->level, 0xff, c->vertices * sizeof *c->level);
    uint32_t n = 0;
    c->level[0] = 0;
    c->queue[n++] = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = c->head[c->queue[i]]; e != NONE; e = c->arc.at[e].next)
            if (c->arc.at[e].cap > 0 && c->level[c->arc.at[e].to] == NONE) {
                c->level[c->arc.at[e].to] = c->level[c->queue[i]] + 1;
                c->queue[n++] = c->arc.at[e].to;
            }
    return c->level[1] != NONE;
}

/* One augmenting path in the layered network, without recursion: graphs may be very deep. path
 * holds arcs. */
static bool augment(Cut *c, uint32_t *path)
{
    uint32_t v = 0, n = 0;
    while (v != 1) {
        uint32_t e = c->at[v];
        while (e != NONE && !(c->arc.at[e].cap > 0 && c->level[c->arc.at[e].to] == c->level[v] + 1))
            e = c->arc.at[e].next;
        c->at[v] = e;
        if (e != NONE) {
            path[n++] = e;
            v = c->arc.at[e].to;
        } else if (n > 0) { /* a dead end: back, and past that arc */
            uint32_t back = path[--n];
            v = c->arc.at[back ^ 1].to;
            c->at[v] = c->arc.at[back].next;
        } else {
            return false;
        }
    }
    int64_t flow = ENDLESS;
    for (uint32_t i = 0; i < n; i++)
        if (c->arc.at[path[i]].cap < flow)
            flow = c->arc.at[path[i]].cap;
    for (uint32_t i = 0; i < n; i++) {
        Arc *fwd = &c->arc.at[path[i]], *rev = &c->arc.at[path[i] ^ 1];
        if (fwd->cap < ENDLESS)
            fwd->cap -= flow;
        if (rev->cap < ENDLESS)
            rev->cap += flow;
    }
    return true;
}

/* Marks the values of the minimum cut nearest the sink. */
static void minimum_cut(Cut *c)
{
    uint32_t *path = arena_array(c->a, uint32_t, c->vertices);
    while (layers(c)) {
        memcpy(c->at, c->head, c->vertices * sizeof *c->at);
        while (augment(c, path))
            ;
    }
    memset(c->level, 0xff, c->vertices * sizeof *c->level);     /* level 0: can reach the sink */
    uint32_t n = 0;
    c->level[1] = 0;
    c->queue[n++] = 1;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = c->head[c->queue[i]]; e != NONE; e = c->arc.at[e].next)
            if (c->arc.at[e ^ 1].cap > 0 && c->level[c->arc.at[e].to] == NONE) {
                c->level[c->arc.at[e].to] = 0;
                c->queue[n++] = c->arc.at[e].to;
            }
    for (uint32_t i = 0; i < c->value.n; i++)
        if (c->level[2 + 2 * i] == NONE && c->level[3 + 2 * i] == 0)
            c->kept[c->value.at[i]] = true;
}

/* Of values that are computed again, those that forward wrote, in chains: what would make one too
 * long is held, and another begins behind it. Are there any? */
static bool hold_chains(Cut *c)
{
    const Stage *s = c->s;
    bool any = false;
    for (uint32_t i = 0; i < c->value.n; i++)
        c->chain[c->value.at[i]] = 0;
    for (uint32_t i = 0; i < s->forward.n; i++) {
        NodeId id = s->forward.at[i];
        const Node *n = &c->g->node.at[id];
        uint8_t before = 0;
        for (uint32_t j = 0; j < operands(n); j++)
            if (inside(c, n->in[j]) && c->chain[n->in[j]] > before)
                before = c->chain[n->in[j]];
        for (uint32_t j = 0; j < n->nout; j++) {
            ValueId v = n->out[j];
            if (!inside(c, v) || c->level[entry(c, v)] == NONE)
                continue;                                       /* kept, or not asked for */
            bool link = c->written[v] && !op_passes_on(n->op) && n->op != OP_AllGather;
            bool hold = link && before == CHAIN_MOST;
            c->held[id] |= hold;
            any |= hold;
            c->chain[v] = hold ? 0 : (uint8_t)(before + link);
        }
    }
    return any;
}

/* ---- what follows from the cut --------------------------------------------------------------- */

static bool makes(const Graph *g, NodeId id, const bool *set, const bool *but)
{
    const Node *n = &g->node.at[id];
    for (uint32_t i = 0; i < n->nout; i++)
        if (set[n->out[i]] && !(but && but[n->out[i]]))
            return true;
    return false;
}

/* Which movable nodes run in forward (a kept value depends on them), which remain in backward. */
static void place_movable(Cut *c)
{
    Graph *g = c->g;
    Ids *b = &c->s->backward;
    bool *wanted = arena_array(c->a, bool, g->value.n + 1);     /* by forward */
    for (uint32_t i = b->n; i-- > 0;) {
        NodeId id = b->at[i];
        const Node *n = &g->node.at[id];
        if (c->movable[id] && (makes(g, id, wanted, NULL) || makes(g, id, c->kept, NULL))) {
            c->moved[id] = true;
            for (uint32_t j = 0; j < operands(n); j++)
                wanted[n->in[j]] = true;
        }
        c->remains[id] = !c->movable[id] || makes(g, id, c->need, c->kept);
        for (uint32_t j = 0; c->remains[id] && j < operands(n); j++)
            if (inside(c, n->in[j]))
                c->need[n->in[j]] = true;
    }
}

static void use_at(Cut *c, ValueId v, uint32_t position)
{
    if (!inside(c, v) || c->kept[v] || val(c->g, v)->kind != V_NODE)
        return;
    NodeId id = val(c->g, v)->node;
    if (position < c->first_use[id])
        c->first_use[id] = position;
}

static ValueId stand_in(const Cut *c, ValueId v)
{
    return inside(c, v) && !c->kept[v] && c->clone[v] != NONE ? c->clone[v] : v;
}

/* A copy of a node that reads the stand-ins; its values stand in for the node's. Appends it to
 * list. */
static void clone_node(Cut *c, NodeId id, Ids *list)
{
    Graph *g = c->g;
    const Node n = g->node.at[id];
    if (n.op == OP_Phase) {
        c->clone[n.out[0]] = stand_in(c, n.in[0]);
        return;
    }
    ValueId *in = arena_array(c->a, ValueId, n.nin);
    for (uint32_t j = 0; j < n.nin; j++)
        in[j] = stand_in(c, n.in[j]);
    NodeId first = g->node.n;
    g->cur_origin = n.origin;
    ValueId r = graph_node(g, n.op, n.nin, in, n.attr);
    for (uint32_t o = 0; o < n.nout; o++) {
        ValueId v = n.nout == 1 ? r : graph_out(g, r, o);
        c->clone[n.out[o]] = v;
        if (val(g, v)->kind == V_NODE && val(g, v)->node >= first)
            g->value.at[v].batch = val(g, n.out[o])->batch;
    }
    for (NodeId k = first; k < g->node.n; k++)
        vec_push(g->arena, list, k);
}

/* While nodes are copied no builder shall look at how forward made a value: that may not be there
 * in backward. */
static void opaque(Cut *c, ValueKind kind)
{
    for (uint32_t i = 0; i < c->value.n; i++)
        if (val(c->g, c->value.at[i])->node != NONE)
            c->g->value.at[c->value.at[i]].kind = kind;
}

/* Backward again, each recomputed node just before its first use, all reading stand-ins. */
static void rewrite(Cut *c)
{
    Graph *g = c->g;
    Stage *s = c->s;
    /* recomputed nodes by position of first use */
    Ids *again = arena_array(c->a, Ids, s->backward.n + 1);
    Ids backward = {0}, recompute = {0};
    for (uint32_t i = 0; i < s->backward.n; i++) {
        const Node *n = &g->node.at[s->backward.at[i]];
        for (uint32_t j = 0; c->remains[s->backward.at[i]] && j < n->nin; j++)
            use_at(c, n->in[j], i);
    }
    for (uint32_t i = s->forward.n; i-- > 0;) {
        NodeId id = s->forward.at[i];
        const Node *n = &g->node.at[id];
        for (uint32_t j = 0; c->first_use[id] != NONE && j < operands(n); j++)
            use_at(c, n->in[j], c->first_use[id]);
    }
    opaque(c, V_INPUT);
    for (uint32_t i = 0; i < s->forward.n; i++)
        if (c->first_use[s->forward.at[i]] != NONE)
            clone_node(c, s->forward.at[i], &again[c->first_use[s->forward.at[i]]]);
    for (uint32_t i = 0; i < s->backward.n; i++) {
        NodeId id = s->backward.at[i];
        for (uint32_t k = 0; k < again[i].n; k++) {
            vec_push(g->arena, &backward, again[i].at[k]);
            vec_push(g->arena, &recompute, again[i].at[k]);
        }
        if (!c->remains[id])
            continue;
        /* runs in forward as well: a copy here */
        if (c->moved[id]) {
            clone_node(c, id, &backward);
            continue;
        }
        Node *n = &g->node.at[id];
        for (uint32_t j = 0; j < n->nin; j++)
            n->in[j] = stand_in(c, n->in[j]);
        vec_push(g->arena, &backward, id);
    }
    opaque(c, V_NODE);
    for (uint32_t i = 0; i < s->backward.n; i++)
        if (c->moved[s->backward.at[i]])
            vec_push(g->arena, &s->forward, s->backward.at[i]);
    s->backward = backward;
    s->recompute = recompute;
}

static Cut cut_of(Graph *g, Stage *s)
{
    const uint32_t nv = g->value.n + 1, nn = g->node.n + 1;
    Cut c = {.g = g, .s = s, .a = arena_within(g->arena)};
    c.index = arena_none(c.a, nv);
    c.clone = arena_none(c.a, nv);
    c.kept = arena_array(c.a, bool, nv);
    c.need = arena_array(c.a, bool, nv);
    c.written = arena_array(c.a, bool, nv);
    c.depth = arena_array(c.a, uint32_t, nv);
    c.chain = arena_array(c.a, uint8_t, nv);
    c.movable = arena_array(c.a, bool, nn);
    c.moved = arena_array(c.a, bool, nn);
    c.remains = arena_array(c.a, bool, nn);
    c.held = arena_array(c.a, bool, nn);
    c.first_use = arena_none(c.a, nn);
    return c;
}

static void stash_stage(Pipe *p, Stage *s)
{
    Cut of = cut_of(p->graph, s), *c = &of;
    for (uint32_t i = 0; i < s->input.n; i++)
        if (!is_free(p, s->input.at[i].value))
            enter(c, s->input.at[i].value);
    for (uint32_t i = 0; i < s->forward.n; i++) {
        const Node *n = &c->g->node.at[s->forward.at[i]];
        for (uint32_t j = 0; j < n->nout; j++)
            enter(c, n->out[j]);
    }
    find_written(c);
    find_movable(c, p);
    do {
        for (uint32_t i = 0; i < c->value.n; i++)
            c->kept[c->value.at[i]] = false;
        build_network(c);
        force_roots(c);
        minimum_cut(c);
    } while (hold_chains(c));
    place_movable(c);
    rewrite(c);
    for (uint32_t i = 0; i < c->value.n; i++)
        if (c->kept[c->value.at[i]])
            vec_push(c->g->arena, &s->stash, c->value.at[i]);
    arena_free(c->a);
}

void stash_minimize(Pipe *p)
{
    if (p->loss == NONE)
        return;
    if (p->whole)
        stash_minimize(p->whole);
    Graph *g = p->graph;
    uint32_t origin = g->cur_origin;
    for (uint32_t i = 0; i < p->stage.n; i++)
        if (p->stage.at[i].backward.n > 0)
            stage_parts(g, &p->stage.at[i]);
    for (uint32_t i = 0; i < p->stage.n; i++)
        if (p->stage.at[i].backward.n > 0)
            stash_stage(p, &p->stage.at[i]);
    g->cur_origin = origin;
    g->scheduled = true;
}
