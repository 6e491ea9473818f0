/*
 * cost.c - floating-point operations and bytes of every stage.
 *
 * In: a Pipe (its backward too, once autodiff has run).  Out: Stage.cost, and which edges carry a
 * gradient.
 */
#include <string.h>

#include "partition.h"

/* What a list computes, and what a member sends in it. */
static void list_cost(const Graph *g, const Ids *list, int64_t *flops, int64_t *sent)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const Node *n = &g->node.at[list->at[i]];
        *flops = cost_sum(*flops, cost_flops(g, list->at[i]));
        *sent = cost_sum(*sent, op_is_collective(n->op) ? cost_sent(g, n) : 0);
    }
}

/* Everything forward makes that is no view of something else. */
static int64_t list_bytes(const Graph *g, const Ids *list)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const Node *n = &g->node.at[list->at[i]];
        for (uint32_t k = 0; k < n->nout && !op_passes_on(n->op); k++)
            sum = cost_sum(sum, value_bytes(g, n->out[k]));
    }
    return sum;
}

static void stage_cost(const Graph *g, Stage *s)
{
    StageCost *c = &s->cost;
    int64_t stash = 0;
    memset(c, 0, sizeof *c);
    for (uint32_t i = 0; i < s->param.n; i++) {
        const Param *p = &g->param.at[s->param.at[i].param];
        if (s->param.at[i].use == USE_TRANSMIT)
            continue; /* another stage holds it */
        c->bytes_param = cost_sum(c->bytes_param, value_bytes(g, p->value));
        if (!p->stat)
            c->parameters = cost_sum(c->parameters, shape_elements(&p->shape));
    }
    for (uint32_t i = 0; i < s->stash.n; i++)
        stash = cost_sum(stash, value_bytes(g, s->stash.at[i]));
    c->bytes_stash = stash;
    c->bytes_activation = list_bytes(g, &s->forward);
    list_cost(g, &s->forward, &c->flops_forward, &c->sent[0]);
    list_cost(g, &s->backward, &c->flops_backward, &c->sent[1]);
}

bool pipe_has_gradient(const Pipe *p, uint32_t stage, ValueId v)
{
    const Stage *s = &p->stage.at[stage];
    for (uint32_t i = 0; i < s->input.n; i++)
        if (s->input.at[i].value == v)
            return s->input.at[i].gradient && s->input.at[i].from != NONE;
    for (uint32_t i = 0; i < s->param.n; i++)
        if (p->graph->param.at[s->param.at[i].param].value == v)
            return s->param.at[i].grads.n > 0;
    return false;
}

void pipe_costs(Pipe *p)
{
    for (uint32_t t = 0; t < p->stage.n; t++)
        stage_cost(p->graph, &p->stage.at[t]);
}
