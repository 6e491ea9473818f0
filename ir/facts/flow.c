/*
 * flow.c - along which values gradients flow.
 */
#include "facts.h"

void flow_params(const Graph *g, bool *active)
{
    for (uint32_t i = 0; i < g->param.n; i++)
        if (g->param.at[i].trainable && dtype_is_float(g->param.at[i].dtype))
            active[g->param.at[i].value] = true;
}

void flow_through(const Graph *g, bool *active, const NodeId *list, uint32_t nodes)
{
    for (uint32_t i = 0; i < nodes; i++) {
        const Node *n = &g->node.at[list[i]];
        bool any = false;
        for (uint32_t j = 0; j < node_reads_training(n); j++)
            any |= active[n->in[j]];
        if (!any || !op_differentiable(n->op))
            continue;
        for (uint32_t j = 0; j < n->nout; j++)
            active[n->out[j]] |= dtype_is_float(val(g, n->out[j])->dtype);
    }
}

bool *flow_active(const Graph *g, Arena *a, ValueId loss)
{
    bool *active = arena_array(a, bool, g->value.n + 1);
    const Ids all = graph_nodes(g, a);
    if (loss != NONE) {
        flow_params(g, active);
        flow_through(g, active, all.at, all.n);
    }
    return active;
}

/* By value: what no node makes as leaf says; a result if all that its node reads is, of operations
   that `takes` says; NULL: of any, if some is. */
static bool *flow(const Graph *g, Arena *a, bool (*leaf)(const Graph *g, const Value *v),
                  bool (*takes)(Op op))
{
    bool *is = arena_array(a, bool, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        is[v] = leaf(g, val(g, v));
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        bool some = false, all = !takes || takes(x->op);
        for (uint32_t i = 0; i < x->nin; i++) {
            some |= is[x->in[i]];
            all &= is[x->in[i]];
        }
        for (uint32_t i = 0; i < x->nout; i++)
            is[x->out[i]] = takes ? all : some;
    }
    return is;
}

static bool is_data(const Graph *g, const Value *v) { return (void)g, v->kind == V_INPUT; }

static bool is_rows(const Graph *g, const Value *v)
{
    return (void)g, v->kind == V_INPUT && v->batch != BATCH_NONE;
}

static bool is_still(const Graph *g, const Value *v)
{
    const Param *p = v->kind == V_PARAM ? &g->param.at[v->param] : NULL;
    return v->kind == V_CONST || (p && !p->trainable && !p->stat) ||
           (v->kind == V_INPUT && !dtype_is_float(v->dtype));
}

static bool is_param(const Graph *g, const Value *v)
{
    return v->kind == V_CONST || (v->kind == V_PARAM && !g->param.at[v->param].stat);
}

static bool is_together(Op op) { return op_is_pure(op) || op_is_collective(op); }

bool *flow_of_data(const Graph *g, Arena *a) { return flow(g, a, is_data, NULL); }
bool *flow_of_rows(const Graph *g, Arena *a) { return flow(g, a, is_rows, NULL); }
bool *flow_pure(const Graph *g, Arena *a) { return flow(g, a, is_still, op_is_pure); }
bool *flow_of_params(const Graph *g, Arena *a) { return flow(g, a, is_param, is_together); }
