/*
 * renew.c - what making a graph anew takes: its nodes, values and parameters are another's, which
 * has the rest of it.  In: the graph as it was, and of its values what they are now.
 */
#include <string.h>

#include "renew.h"

Ids mesh_results(const Graph *g, uint32_t n, ValueId *const *keep)
{
    Ids results = graph_results(g, g->arena, NONE);
    for (uint32_t i = 0; i < n; i++)
        if (*keep[i] != NONE)
            vec_push(g->arena, &results, *keep[i]);
    return results;
}

Graph mesh_renew(Graph *g)
{
    const Graph from = *g;
    memset(&g->value, 0, sizeof g->value);
    memset(&g->node, 0, sizeof g->node);
    memset(&g->param, 0, sizeof g->param);
    memset(&g->input, 0, sizeof g->input);
    memset(&g->output, 0, sizeof g->output);
    memset(&g->update, 0, sizeof g->update);
    memset(&g->trip_bound, 0, sizeof g->trip_bound);
    memset(&g->undivided, 0, sizeof g->undivided);
    g->by_name = (StrMap){.arena = g->arena};
    return from;
}

ValueId mesh_leaf(Graph *g, const Graph *from, ValueId v)
{
    const Value *x = val(from, v);
    const Tensor t = {x->dtype, x->shape, (void *)(uintptr_t)x->data};
    return x->kind == V_INPUT   ? graph_input(g, x->name, x->dtype, &x->shape)
           : x->kind == V_CONST ? graph_const(g, x->made ? NULL : x->name, t)
                                : NONE;
}

void mesh_renewed(Graph *g, const Graph *from, const ValueId *is, const uint32_t *param, uint32_t n,
                  ValueId *const *keep)
{
    g->input.n = 0; /* in the order of the model's */
    for (uint32_t i = 0; i < from->input.n; i++)
        vec_push(g->arena, &g->input, is[from->input.at[i]]);
    for (uint32_t i = 0; i < from->output.n; i++)
        vec_push(g->arena, &g->output, is[from->output.at[i]]);
    for (uint32_t i = 0; i < from->update.n; i++) {
        const StatUpdate u = from->update.at[i];
        vec_push(g->arena, &g->update, ((StatUpdate){param[u.param], is[u.value]}));
    }
    for (uint32_t i = 0; i < g->files.array.n; i++)
        if (g->files.array.at[i].param != NONE)
            g->files.array.at[i].param = param[g->files.array.at[i].param];
    for (uint32_t i = 0; i < n; i++)
        if (*keep[i] != NONE)
            *keep[i] = is[*keep[i]];
}
