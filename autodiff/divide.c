/*
 * divide.c - each stage's backward divided by reachability into I, what the gradients of the
 * stage's inputs need, and W, the rest, which the gradients of its parameters need and no other
 * stage waits for (zero-bubble schedules run W late).  What W reads of I is saved between them; a
 * node recomputed for both runs in both.
 */
#include "autodiff.h"

enum { IN_I = 1, IN_W = 2 };

static void need(const Graph *g, uint8_t *mark, const uint8_t *inside, ValueId v, uint8_t bit)
{
    if (v != NONE && val(g, v)->kind == V_NODE && inside[val(g, v)->node])
        mark[val(g, v)->node] |= bit;
}

/* Backwards over the list: a node's operands are needed by whoever needs the node. */
static void spread(const Graph *g, const Ids *list, uint8_t *mark, const uint8_t *inside,
                   uint8_t bit)
{
    for (uint32_t i = list->n; i-- > 0;) {
        const Node *n = &g->node.at[list->at[i]];
        for (uint32_t j = 0; (mark[list->at[i]] & bit) && j < n->nin; j++)
            need(g, mark, inside, n->in[j], bit);
    }
}

static void save(Graph *g, Stage *s, bool *saved, ValueId v)
{
    if (saved[v])
        return;
    saved[v] = true;
    vec_push(g->arena, &s->saved, v);
}

static void divide_stage(Graph *g, Stage *s, uint8_t *mark, uint8_t *inside, uint8_t *again,
                         bool *received, bool *saved)
{
    for (uint32_t i = 0; i < s->backward.n; i++)
        inside[s->backward.at[i]] = 1;
    for (uint32_t i = 0; i < s->recompute.n; i++)
        again[s->recompute.at[i]] = 1;
    for (uint32_t i = 0; i < s->output.n; i++)
        for (uint32_t j = 0; j < s->output.at[i].dys.n; j++)
            received[s->output.at[i].dys.at[j]] = true;
    for (uint32_t i = 0; i < s->input.n; i++)
        for (uint32_t j = 0; j < s->input.at[i].grads.n; j++)
            need(g, mark, inside, s->input.at[i].grads.at[j], IN_I);
    spread(g, &s->backward, mark, inside, IN_I);

    /* W: backwards from the parameters, stopping at I, except that recomputed nodes run again */
    for (uint32_t i = 0; i < s->param.n; i++)
        for (uint32_t j = 0; j < s->param.at[i].grads.n; j++)
            need(g, mark, inside, s->param.at[i].grads.at[j], IN_W);
    for (uint32_t i = s->backward.n; i-- > 0;) {
        NodeId id = s->backward.at[i];
        const Node *n = &g->node.at[id];
        if ((mark[id] & IN_W) && (mark[id] & IN_I) && !again[id])
            mark[id] = IN_I;                            /* computed there, saved for here */
        for (uint32_t j = 0; (mark[id] & IN_W) && j < n->nin; j++)
            need(g, mark, inside, n->in[j], IN_W);
    }
    for (uint32_t i = 0; i < s->backward.n; i++) {
        NodeId id = s->backward.at[i];
        if (mark[id] & IN_I)
            vec_push(g->arena, &s->backward_input, id);
        if (mark[id] & IN_W)
            vec_push(g->arena, &s->backward_weight, id);
    }
    /* what W reads and does not make: results of I, and gradients that came in */
    for (uint32_t i = 0; i < s->backward_weight.n; i++) {
        const Node *n = &g->node.at[s->backward_weight.at[i]];
        for (uint32_t j = 0; j < n->nin; j++) {
            if (n->in[j] == NONE)
                continue;
            const Value *v = val(g, n->in[j]);
            bool made_in_i = v->kind == V_NODE && inside[v->node] && !(mark[v->node] & IN_W);
            if (made_in_i || received[n->in[j]])
                save(g, s, saved, n->in[j]);
        }
    }
    for (uint32_t i = 0; i < s->param.n; i++)
        for (uint32_t j = 0; j < s->param.at[i].grads.n; j++) {
            ValueId d = s->param.at[i].grads.at[j];
            const Value *v = val(g, d);
            if (received[d] || (v->kind == V_NODE && inside[v->node] && !(mark[v->node] & IN_W)))
                save(g, s, saved, d);
        }
    /* leave the shared arrays as they were found */
    for (uint32_t i = 0; i < s->backward.n; i++)
        inside[s->backward.at[i]] = mark[s->backward.at[i]] = again[s->backward.at[i]] = 0;
    for (uint32_t i = 0; i < s->output.n; i++)
        for (uint32_t j = 0; j < s->output.at[i].dys.n; j++)
            received[s->output.at[i].dys.at[j]] = false;
    for (uint32_t i = 0; i < s->saved.n; i++)
        saved[s->saved.at[i]] = false;
}

void divide_backward(Pipe *p)
{
    if (p->loss == NONE)
        return;
    if (p->whole)
        divide_backward(p->whole);
    Graph *g = p->graph;
    uint8_t *mark = arena_array(g->arena, uint8_t, g->node.n + 1),
            *inside = arena_array(g->arena, uint8_t, g->node.n + 1);
    uint8_t *again = arena_array(g->arena, uint8_t, g->node.n + 1);
    bool *received = arena_array(g->arena, bool, g->value.n + 1),
         *saved = arena_array(g->arena, bool, g->value.n + 1);
    for (uint32_t i = 0; i < p->stage.n; i++)
        divide_stage(g, &p->stage.at[i], mark, inside, again, received, saved);
}
