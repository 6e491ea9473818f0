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
            any |= n->in[j] != NONE && active[n->in[j]];
        if (!any || !op_differentiable(n->op))
            continue;
        for (uint32_t j = 0; j < n->nout; j++)
            active[n->out[j]] |= dtype_is_float(val(g, n->out[j])->dtype);
    }
}

bool *flow_of_data(const Graph *g, Arena *a)
{
    bool *is = arena_array(a, bool, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        is[v] = val(g, v)->kind == V_INPUT;
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        bool any = false;
        for (uint32_t i = 0; i < x->nin; i++)
            any |= x->in[i] != NONE && is[x->in[i]];
        for (uint32_t i = 0; i < x->nout; i++)
            is[x->out[i]] = any;
    }
    return is;
}

bool *flow_pure(const Graph *g, Arena *a)
{
    bool *is = arena_array(a, bool, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        const Param *p = x->kind == V_PARAM ? &g->param.at[x->param] : NULL;
        is[v] = x->kind == V_CONST || (p && !p->trainable && !p->stat) ||
                (x->kind == V_INPUT && !dtype_is_float(x->dtype));
    }
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        bool all = op_is_pure(x->op);
        for (uint32_t i = 0; i < x->nin && all; i++)
            all = is[x->in[i]];
        for (uint32_t i = 0; i < x->nout; i++)
            is[x->out[i]] = all;
    }
    return is;
}

bool *flow_of_params(const Graph *g, Arena *a)
{
    bool *is = arena_array(a, bool, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        is[v] = x->kind == V_CONST || (x->kind == V_PARAM && !g->param.at[x->param].stat);
    }
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        bool all = op_is_pure(x->op) || op_is_collective(x->op);
        for (uint32_t i = 0; i < x->nin && all; i++)
            all = x->in[i] == NONE || is[x->in[i]];
        for (uint32_t i = 0; i < x->nout; i++)
            is[x->out[i]] = all;
    }
    return is;
}
