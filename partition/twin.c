/*
 * twin.c - a second Pipe of the same stages, in other sizes.  In: a Pipe before its stash is chosen.  Out: one whose nodes, values and lists may be
 * changed without the first one's; ids are the same, and so is all that no pass writes any more: the
 * model's files, constants' bytes, names.
 */
#include <string.h>

#include "partition.h"

/* A list of its own, with no room behind it: what is pushed moves it. */
#define OWN(a, list)                                                                               \
    ((list).at =                                                                                   \
         arena_move_(a, (list).at, (list).n * sizeof *(list).at, (list).n + 1, sizeof *(list).at), \
     (list).cap = (list).n)

static ValueId *own_ids(Arena *a, const ValueId *at, uint32_t n)
{
    ValueId *own = arena_array(a, ValueId, n + 1);
    memcpy(own, at, n * sizeof *own);
    return own;
}

Graph *graph_twin(const Graph *from, Arena *a)
{
    Graph *g = arena_new_of(a, Graph);
    *g = *from;
    g->arena = a;
    OWN(a, g->value);
    OWN(a, g->node);
    OWN(a, g->origin);
    OWN(a, g->param);
    OWN(a, g->update);
    OWN(a, g->input);
    OWN(a, g->output);
    OWN(a, g->output_name);
    OWN(a, g->model);
    OWN(a, g->array);
    for (NodeId i = 0; i < g->node.n; i++) {
        Node *n = &g->node.at[i];
        n->in = own_ids(a, n->in, n->nin);
        n->out = own_ids(a, n->out, n->nout);
    }
    g->by_name = (StrMap){.arena = a};
    for (ValueId v = 0; v < g->value.n; v++)
        *strmap_at(&g->by_name, g->value.at[v].name) = v;
    return g;
}

static void stage_twin(Arena *a, Stage *s)
{
    Ids *lists[] = {&s->nodes,          &s->forward,         &s->infer, &s->recompute, &s->backward,
                    &s->backward_input, &s->backward_weight, &s->stash, &s->saved};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        OWN(a, *lists[i]);
    OWN(a, s->input);
    OWN(a, s->output);
    OWN(a, s->param);
    for (uint32_t i = 0; i < s->input.n; i++)
        OWN(a, s->input.at[i].grads);
    for (uint32_t i = 0; i < s->param.n; i++)
    {
        OWN(a, s->param.at[i].grads), OWN(a, s->param.at[i].of_use);
        OWN(a, s->param.at[i].partial);
    }
    for (uint32_t i = 0; i < s->output.n; i++) {
        OWN(a, s->output.at[i].to);
        OWN(a, s->output.at[i].outputs);
        OWN(a, s->output.at[i].dys);
    }
}

Pipe *pipe_twin(const Pipe *from)
{
    Arena *a = from->graph->arena;
    Pipe *p = arena_new_of(a, Pipe);
    *p = *from;
    p->whole = NULL;
    OWN(a, p->uneven);
    OWN(a, p->uneven_loss);
    OWN(a, p->edge);
    p->graph = graph_twin(from->graph, a);
    OWN(a, p->stage);
    for (uint32_t i = 0; i < p->stage.n; i++)
        stage_twin(a, &p->stage.at[i]);
    return p;
}
