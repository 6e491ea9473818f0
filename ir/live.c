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

Ids graph_nodes(const Graph *g, Arena *a)
{
    Ids list = {0};
    for (NodeId n = 0; n < g->node.n; n++)
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

Ids graph_leading(const Graph *g, Arena *a, NodeId first, const Ids *root, uint32_t nroot)
{
    const bool *live = graph_live(g, a, first, root, nroot);
    Ids list = {0};
    for (NodeId n = first; n < g->node.n; n++)
        if (live[n - first])
            vec_push(a, &list, n);
    return list;
}

Ids graph_makers(const Graph *g, Arena *a, const Ids *list, NodePhase phase, bool *need,
                 const bool *there)
{
    Ids made = {0};
    for (uint32_t k = list->n; k-- > 0;) {
        const Node *n = &g->node.at[list->at[k]];
        bool runs = false;
        for (uint32_t o = 0; o < n->nout; o++)
            runs |= need[n->out[o]];
        if (!runs)
            continue;
        vec_push(a, &made, list->at[k]);
        for (uint32_t i = 0; i < n->nin; i++)
            need[n->in[i]] |= node_reads(n, i, phase) && !(there && there[n->in[i]]);
    }
    for (uint32_t i = 0, k = made.n; i + 1 < k--; i++) {
        const NodeId n = made.at[i];
        made.at[i] = made.at[k];
        made.at[k] = n;
    }
    return made;
}
