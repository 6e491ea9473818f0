/*
 * model.c - a Graph as a CutGraph.
 *
 * Seconds and kept bytes are those of the differentiated model, forward and backward: each of its
 * nodes counts where the node of the file stands that it was made of, which no cut divides.  A
 * gradient of what is made of parameters alone is W, any other is I, as autodiff divides them. What
 * partition makes again in the stage that reads it (masks, views of parameters) crosses at no
 * price.
 */

#include "model.h"

typedef struct {
    const Graph *g;
    Arena *a;
    AutoModel *out;
    bool *live; /* by node: something reads what it makes, in the end */
    /* by value: it depends on data; it is made of constants, frozen parameters and whole numbers
       alone; a gradient comes back to it */
    bool *data, *pure, *grad;
} Model;

/* ---- what depends on what -------------------------------------------------------------------- */

static void find_flows(Model *m, ValueId loss)
{
    const Graph *g = m->g;
    m->live = graph_needed(g, m->a, loss);
    m->pure = flow_pure(g, m->a);
    m->data = flow_of_data(g, m->a);
    m->grad = flow_active(g, m->a, loss);
    if (loss == NONE)
        return;
    bool *asked = arena_array(m->a, bool, g->value.n + 1); /* a gradient comes back to it */
    asked[loss] = true;
    for (NodeId n = g->node.n; n-- > 0;) {
        const Node *x = &g->node.at[n];
        bool any = false;
        for (uint32_t i = 0; i < x->nout; i++)
            any |= asked[x->out[i]] && m->grad[x->out[i]];
        for (uint32_t i = 0; i < x->nin && any; i++)
            asked[x->in[i]] = true;
    }
    for (ValueId v = 0; v < g->value.n; v++)
        m->grad[v] &= asked[v];
}

/* ---- values and parameters ------------------------------------------------------------------- */

/* What is sent where v is read elsewhere: a view or a cast of something smaller is made there. */
static int64_t sent_bytes(const Model *m, ValueId v)
{
    int64_t least = value_bytes(m->g, v);
    if (m->pure[v])
        return 0;
    for (ValueId u = v; val(m->g, u)->kind == V_NODE;) {
        const Node *x = &m->g->node.at[val(m->g, u)->node];
        if (!op_is_view(x->op) && x->op != OP_Cast)
            break;
        u = x->in[0];
        int64_t bytes = value_bytes(m->g, u);
        if (val(m->g, u)->kind != V_NODE)
            return 0;
        least = bytes < least ? bytes : least;
    }
    return least;
}

static void add_values(Model *m)
{
    const Graph *g = m->g;
    uint32_t *at = arena_none(m->a, g->value.n);
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        for (uint32_t i = 0; i < x->nin && m->out->of[n] != NONE; i++) {
            ValueId v = x->in[i];
            NodeId from = val(g, v)->kind == V_NODE ? val(g, v)->node : NONE;
            if (from == NONE || m->out->of[from] == NONE)
                continue;
            if (at[v] == NONE) {
                CutValue c = {.from = m->out->of[from], .bytes = sent_bytes(m, v)};
                c.back = m->grad[v] ? c.bytes : 0;
                at[v] = m->out->cut.value.n;
                vec_push(m->a, &m->out->cut.value, c);
            }
            CutValue *c = &m->out->cut.value.at[at[v]];
            CutRead r = {.node = m->out->of[n]};
            if (c->read.n == 0 || c->read.at[c->read.n - 1].node != r.node)
                vec_push(m->a, &c->read, r);
        }
    }
}

/* The parameters that v is made of, into the readers' lists. */
static void add_reader(Model *m, ValueId v, uint32_t reader, uint32_t *seen, Ids *open)
{
    const Graph *g = m->g;
    open->n = 0;
    vec_push(m->a, open, v);
    while (open->n > 0) {
        ValueId u = open->at[--open->n];
        const Value *x = val(g, u);
        if (x->kind == V_PARAM) {
            Ids *read = &m->out->cut.param.at[x->param].read;
            if (read->n == 0 || read->at[read->n - 1] != reader)
                vec_push(m->a, read, reader);
        }
        if (x->kind != V_NODE || m->data[u] || seen[u] == reader + 1)
            continue;
        seen[u] = reader + 1;
        for (uint32_t i = 0; i < g->node.at[x->node].nin; i++)
            vec_push(m->a, open, g->node.at[x->node].in[i]);
    }
}

/* What a member sends to add up the gradient, beside its bytes: along axes that divide sequences
   and not the parameter. */
static double sums_of(const Graph *g, const Param *p)
{
    double sent = 0;
    for (int x = MESH_SEQUENCE; x < MESH_AXES; x++)
        if (g->mesh[x].members > 1 && (!p->divided || p->box.along[x].axis < 0))
            sent += 2.0 * (g->mesh[x].members - 1) / g->mesh[x].members;
    return sent;
}

static void add_params(Model *m, uint32_t microbatches)
{
    enum { STATES = 2 }; /* of the optimizer: Adam's */
    const Graph *g = m->g;
    double part = 1.0 / (microbatches ? microbatches : 1);
    for (uint32_t i = 0; i < g->param.n; i++) {
        const Param *p = &g->param.at[i];
        int64_t bytes = value_bytes(g, p->value);
        bool trains = m->grad[p->value];
        CutParam c = {.held = bytes * (1 + trains), .owned = trains ? STATES * bytes : 0};
        c.sent = p->trainable ? (double)bytes * part : 0;
        c.back = trains ? (double)bytes * part : 0;
        c.summed = trains ? (double)bytes * sums_of(g, p) : 0;
        vec_push(m->a, &m->out->cut.param, c);
    }
    uint32_t *seen = arena_array(m->a, uint32_t, g->value.n + 1);
    Ids open = {0};
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nin && m->out->of[n] != NONE; i++)
            if (!m->data[g->node.at[n].in[i]])
                add_reader(m, g->node.at[n].in[i], m->out->of[n], seen, &open);
}

/* A running statistic is read and updated in one stage. */
static void add_statistics(Model *m)
{
    const Graph *g = m->g;
    for (uint32_t i = 0; i < g->update.n; i++) {
        const Value *v = val(g, g->update.at[i].value);
        const Ids *read = &m->out->cut.param.at[g->update.at[i].param].read;
        uint32_t by = v->kind == V_NODE ? m->out->of[v->node] : NONE;
        for (uint32_t k = 0; k < read->n && by != NONE; k++) {
            CutPair p = {read->at[k], by};
            vec_push(m->a, &m->out->cut.together, p);
        }
    }
}

/* ---- seconds --------------------------------------------------------------------------------- */

/* Of what nobody reads the last one. */
static void find_origins(const Model *m)
{
    const Graph *g = m->g;
    uint32_t *of = m->out->of_origin = arena_none(m->a, g->origin.n + 1),
             *reader = arena_none(m->a, g->value.n + 1);
    for (NodeId n = g->node.n; n-- > 0;) {
        const Node *x = &g->node.at[n];
        uint32_t by = m->out->of[n];
        for (uint32_t k = 0; k < x->nout && m->out->of[n] == NONE; k++)
            by = reader[x->out[k]] < by ? reader[x->out[k]] : by;
        if (m->out->of[n] != NONE || of[x->origin] == NONE)
            of[x->origin] = by;
        for (uint32_t i = 0; i < x->nin; i++)
            reader[x->in[i]] = by < reader[x->in[i]] ? by : reader[x->in[i]];
    }
    for (uint32_t o = 0; o < g->origin.n; o++)
        of[o] = of[o] == NONE ? m->out->cut.nodes - 1 : of[o];
}

static void add_seconds(const Model *m, const Pipe *joint, const Rates *r)
{
    const Graph *g = joint->graph;
    Arena *scratch = arena_within(m->a);
    const NodeCost *cost = joint_seconds(joint, r, scratch);
    for (NodeId n = 0; n < g->node.n; n++) {
        CutNode *c = &m->out->cut.node[m->out->of_origin[g->node.at[n].origin]];
        double *const to[PARTS] = {&c->forward, &c->input, &c->weight};
        *to[cost[n].part] += cost[n].seconds;
        c->far[cost[n].part] += cost[n].far;
    }
    for (uint32_t i = 0; i < m->out->cut.nodes; i++) {
        CutNode *c = &m->out->cut.node[i];
        const Op op = m->g->node.at[m->out->node[i]].op;
        c->idle = op_passes_on(op) && op != OP_Vary;
        c->whole = c->input + c->weight;
    }
    arena_free(scratch);
}

AutoModel *auto_model(const Graph *g, ValueId loss, const Pipe *joint, const Rates *r,
                      uint32_t microbatches, Arena *a)
{
    AutoModel *out = arena_new_of(a, AutoModel);
    Model m = {.g = g, .a = a, .out = out};
    find_flows(&m, loss);
    out->of = arena_array(a, uint32_t, g->node.n + 1);
    out->node = arena_array(a, NodeId, g->node.n + 1);
    for (NodeId n = 0; n < g->node.n; n++) {
        bool in = m.live[n] && m.data[g->node.at[n].out[0]];
        out->of[n] = in ? out->cut.nodes : NONE;
        if (in)
            out->node[out->cut.nodes++] = n;
    }
    out->cut.node = arena_array(a, CutNode, out->cut.nodes + 1);
    INSIST(joint->graph->origin.n == g->origin.n);
    if (out->cut.nodes == 0)
        return out;
    find_origins(&m);
    add_seconds(&m, joint, r);
    add_values(&m);
    add_params(&m, microbatches);
    add_statistics(&m);
    add_stash(out, joint, a);
    return out;
}
