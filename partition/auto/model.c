/*
 * model.c - a Graph as a CutGraph.
 *
 * A node's seconds are seconds.c's.  A gradient of what is made of parameters alone is W, any other
 * is I; where none flows there is none.  What partition makes again in the stage that reads it
 * (masks, views of parameters) crosses at no price.
 */
#include <string.h>

#include "model.h"

/* ---- what depends on what -------------------------------------------------------------------- */

static void find_flows(Model *m, ValueId loss)
{
    const Graph *g = m->g;
    Ids root = graph_results(g, m->a);
    if (loss != NONE)
        vec_push(m->a, &root, loss);
    m->live = graph_live(g, m->a, 0, &root, 1);
    m->data = arena_array(m->a, bool, g->value.n + 1);
    m->pure = arena_array(m->a, bool, g->value.n + 1);
    m->grad = arena_array(m->a, bool, g->value.n + 1);
    m->of_params = flow_of_params(g, m->a);
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        const Param *p = x->kind == V_PARAM ? &g->param.at[x->param] : NULL;
        m->data[v] = x->kind == V_INPUT;
        m->pure[v] = x->kind == V_CONST || (p && !p->trainable && !p->stat) ||
                     (x->kind == V_INPUT && !dtype_is_float(x->dtype));
        m->grad[v] = loss != NONE && p && p->trainable && dtype_is_float(x->dtype);
    }
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        bool data = false, pure = op_is_pure(x->op), grad = false;
        for (uint32_t i = 0; i < x->nin; i++) {
            data |= m->data[x->in[i]];
            pure &= m->pure[x->in[i]];
            grad |= m->grad[x->in[i]];
        }
        for (uint32_t i = 0; i < x->nout; i++) {
            m->data[x->out[i]] = data;
            m->pure[x->out[i]] = pure;
            m->grad[x->out[i]] =
                grad && op_differentiable(x->op) && dtype_is_float(val(g, x->out[i])->dtype);
        }
    }
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
    uint32_t *at = arena_array(m->a, uint32_t, g->value.n + 1);
    memset(at, 0xff, g->value.n * sizeof *at);
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

AutoModel *auto_model(const Graph *g, ValueId loss, const Rates *r, uint32_t microbatches, Arena *a)
{
    AutoModel *out = arena_new_of(a, AutoModel);
    Model m = {.g = g, .a = a, .r = r, .out = out};
    find_flows(&m, loss);
    find_traffic(&m);
    out->of = arena_array(a, uint32_t, g->node.n + 1);
    out->node = arena_array(a, NodeId, g->node.n + 1);
    for (NodeId n = 0; n < g->node.n; n++) {
        bool in = m.live[n] && m.data[g->node.at[n].out[0]];
        out->of[n] = in ? out->cut.nodes : NONE;
        if (in)
            out->node[out->cut.nodes++] = n;
    }
    out->cut.node = arena_array(a, CutNode, out->cut.nodes + 1);
    for (uint32_t i = 0; i < out->cut.nodes; i++)
        out->cut.node[i] = node_seconds(&m, out->node[i]);
    add_values(&m);
    add_params(&m, microbatches);
    add_statistics(&m);
    if (loss != NONE)
        add_stash(&m);
    return out;
}
