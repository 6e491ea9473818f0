/*
 * twin.c - a second Pipe of the same stages, in other sizes.  In: a Pipe before its stash is
 * chosen. Out: one whose nodes, values and lists may be changed without the first one's; ids are
 * the same.
 */
#include "partition.h"

static void stage_twin(Arena *a, Stage *s)
{
    Ids *lists[] = {&s->nodes,          &s->forward,         &s->infer, &s->recompute, &s->backward,
                    &s->backward_input, &s->backward_weight, &s->stash, &s->saved};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        vec_own(a, lists[i]);
    vec_own(a, &s->input);
    vec_own(a, &s->output);
    vec_own(a, &s->param);
    for (uint32_t i = 0; i < s->input.n; i++)
        vec_own(a, &s->input.at[i].grads);
    for (uint32_t i = 0; i < s->param.n; i++) {
        vec_own(a, &s->param.at[i].grads);
        vec_own(a, &s->param.at[i].of_use);
        vec_own(a, &s->param.at[i].partial);
    }
    for (uint32_t i = 0; i < s->output.n; i++) {
        vec_own(a, &s->output.at[i].to);
        vec_own(a, &s->output.at[i].outputs);
        vec_own(a, &s->output.at[i].dys);
    }
}

Pipe *pipe_twin(const Pipe *from)
{
    Arena *a = from->graph->arena;
    Pipe *p = arena_new_of(a, Pipe);
    *p = *from;
    p->whole = NULL;
    vec_own(a, &p->uneven);
    vec_own(a, &p->uneven_loss);
    vec_own(a, &p->edge);
    p->graph = graph_twin(from->graph, a);
    vec_own(a, &p->stage);
    for (uint32_t i = 0; i < p->stage.n; i++)
        stage_twin(a, &p->stage.at[i]);
    return p;
}
