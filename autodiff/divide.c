/*
 * divide.c - each stage's backward divided by reachability into I, what the gradients of the
 * stage's inputs need, and W, the rest, which the gradients of its parameters need and no other
 * stage waits for (zero-bubble schedules run W late).  What W reads of I is saved between them; a
 * node recomputed for both runs in both.
 */
#include <string.h>

#include "autodiff.h"

/* of a node; of a value */
enum { IN_I = 1, IN_W = 2, INSIDE = 4, AGAIN = 8 };
enum { RECEIVED = 1, SAVED = 2 };

typedef struct {
    Graph *g;
    uint8_t *node, *value;
} Marks;

static void need(const Marks *m, ValueId v, uint8_t bit)
{
    const Value *x = v == NONE ? NULL : val(m->g, v);
    if (x && x->kind == V_NODE && m->node[x->node] & INSIDE)
        m->node[x->node] |= bit;
}

/* Backwards over the list: a node's operands are needed by whoever needs the node.  W stops at I,
 * whose results are saved, except that recomputed nodes run again. */
static void spread(const Marks *m, const Ids *list, uint8_t bit)
{
    for (uint32_t i = list->n; i-- > 0;) {
        uint8_t *mark = &m->node[list->at[i]];
        const Node *n = &m->g->node.at[list->at[i]];
        if (bit == IN_W && *mark & IN_I && !(*mark & AGAIN))
            *mark &= (uint8_t)~IN_W;
        for (uint32_t j = 0; *mark & bit && j < n->nin; j++)
            need(m, n->in[j], bit);
    }
}

/* What W reads and does not make: results of I, and gradients that came in. */
static void save(const Marks *m, Stage *s, ValueId v)
{
    if (v == NONE || m->value[v] & SAVED)
        return;
    const Value *x = val(m->g, v);
    const bool made_in_i = x->kind == V_NODE && (m->node[x->node] & (INSIDE | IN_W)) == INSIDE;
    if (!made_in_i && !(m->value[v] & RECEIVED))
        return;
    m->value[v] |= SAVED;
    vec_push(m->g->arena, &s->saved, v);
}

static void divide_stage(const Marks *m, Stage *s)
{
    Graph *g = m->g;
    for (uint32_t i = 0; i < s->backward.n; i++)
        m->node[s->backward.at[i]] = INSIDE;
    for (uint32_t i = 0; i < s->recompute.n; i++)
        m->node[s->recompute.at[i]] |= AGAIN;
    for (uint32_t i = 0; i < s->output.n; i++)
        for (uint32_t j = 0; j < s->output.at[i].dys.n; j++)
            m->value[s->output.at[i].dys.at[j]] = RECEIVED;
    for (uint32_t i = 0; i < s->input.n; i++)
        for (uint32_t j = 0; j < s->input.at[i].grads.n; j++)
            need(m, s->input.at[i].grads.at[j], IN_I);
    spread(m, &s->backward, IN_I);
    for (uint32_t i = 0; i < s->param.n; i++)
        for (uint32_t j = 0; j < s->param.at[i].grads.n; j++)
            need(m, s->param.at[i].grads.at[j], IN_W);
    spread(m, &s->backward, IN_W);
    for (uint32_t i = 0; i < s->backward.n; i++) {
        const NodeId id = s->backward.at[i];
        if (m->node[id] & IN_I)
            vec_push(g->arena, &s->backward_input, id);
        if (m->node[id] & IN_W)
            vec_push(g->arena, &s->backward_weight, id);
    }
    for (uint32_t i = 0; i < s->backward_weight.n; i++) {
        const Node *n = &g->node.at[s->backward_weight.at[i]];
        for (uint32_t j = 0; j < n->nin; j++)
            save(m, s, n->in[j]);
    }
    for (uint32_t i = 0; i < s->param.n; i++)
        for (uint32_t j = 0; j < s->param.at[i].grads.n; j++)
            save(m, s, s->param.at[i].grads.at[j]);
    memset(m->node, 0, g->node.n);
    memset(m->value, 0, g->value.n);
}

void divide_backward(Pipe *p)
{
    if (p->loss == NONE)
        return;
    if (p->whole)
        divide_backward(p->whole);
    Graph *g = p->graph;
    const Marks m = {.g = g,
                     .node = arena_array(g->arena, uint8_t, g->node.n + 1),
                     .value = arena_array(g->arena, uint8_t, g->value.n + 1)};
    for (uint32_t i = 0; i < p->stage.n; i++)
        divide_stage(&m, &p->stage.at[i]);
}
