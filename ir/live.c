/*
 * live.c - which nodes lead to given values.  In: a graph, values.  Out: a mark for each node; one
 * walk against the order.
 */
#include "ir.h"

Ids graph_results(const Graph *g, Arena *a, ValueId loss)
{
    Ids root = {0};
    for (uint32_t i = 0; i < g->output.n; i++)
        vec_push(a, &root, g->output.at[i]);
    for (uint32_t i = 0; i < g->update.n; i++)
        vec_push(a, &root, g->update.at[i].value);
    if (loss != NONE)
        vec_push(a, &root, loss);
    return root;
}

bool *graph_needed(const Graph *g, Arena *a, ValueId loss)
{
    const Ids root = graph_results(g, a, loss);
    return graph_live(g, a, 0, &root, 1);
}

Ids graph_nodes(const Graph *g, Arena *a, const bool *live)
{
    Ids list = {0};
    for (NodeId n = 0; n < g->node.n; n++)
        if (!live || live[n])
            vec_push(a, &list, n);
    return list;
}

bool *graph_live(const Graph *g, Arena *a, NodeId first, const Ids *root, uint32_t nroot)
{
    uint32_t n = g->node.n - first;
    bool *live = arena_array(a, bool, n + 1);
    for (uint32_t r = 0; r < nroot; r++)
        for (uint32_t i = 0; i < root[r].n; i++) {
            const Value *v = val(g, root[r].at[i]);
            if (v->kind == V_NODE && v->node >= first)
                live[v->node - first] = true;
        }
    for (uint32_t i = n; i-- > 0;) {
        const Node *node = &g->node.at[first + i];
        for (uint32_t j = 0; live[i] && j < node->nin; j++) {
            const Value *v = val(g, node->in[j]);
            if (v->kind == V_NODE && v->node >= first)
                live[v->node - first] = true;
        }
    }
    return live;
}
