/*
 * stash.c - what a stage keeps for its backward: of the differentiated model, the values that its
 * minimal stash holds, and which nodes' backwards read each, also through what is computed again.
 */

#include "model.h"

typedef struct {
    const Graph *g;
    Arena *a, *scratch;
    AutoModel *m;
    uint32_t *at; /* by value of the stash: its number among the cut's; else NONE */
    Ids *again;   /* by value that is computed again: the kept ones that it is made of */
    bool *copy;   /* by node: it computes one again */
} Stash;

/* The node of the cut in which a node of forward is, or the one that a node of backward is of. */
static uint32_t cut_node(const Stash *s, NodeId n)
{
    return s->m->of_origin[s->g->node.at[n].origin];
}

static void keep(const Stash *s, ValueId v)
{
    const Value *x = val(s->g, v);
    if (s->at[v] != NONE)
        return;
    s->at[v] = s->m->cut.value.n;
    CutValue c = {.from = x->kind == V_NODE ? cut_node(s, x->node) : 0,
                  .kept = value_bytes(s->g, v)};
    vec_push(s->a, &s->m->cut.value, c);
}

static void add_read(const Stash *s, ValueId v, uint32_t by)
{
    CutValue *c = &s->m->cut.value.at[s->at[v]];
    const CutRead r = {.node = by, .keeps = true, .backward = true};
    for (uint32_t i = 0; i < c->read.n; i++)
        if (c->read.at[i].node == by)
            return;
    vec_push(s->a, &c->read, r);
}

static void read_stash(const Stash *s, NodeId n)
{
    const Node *x = &s->g->node.at[n];
    for (uint32_t i = 0; i < x->nin; i++) {
        const ValueId v = x->in[i];
        const Ids own = {.at = &x->in[i], .n = 1}, *leaf = s->at[v] != NONE ? &own : &s->again[v];
        for (uint32_t k = 0; k < leaf->n; k++)
            if (!s->copy[n])
                add_read(s, leaf->at[k], cut_node(s, n));
            else if (!ids_have(&s->again[x->out[0]], leaf->at[k]))
                vec_push(s->scratch, &s->again[x->out[0]], leaf->at[k]);
    }
    for (uint32_t o = 1; o < x->nout && s->copy[n]; o++)
        s->again[x->out[o]] = s->again[x->out[0]];
}

void add_stash(AutoModel *m, const Pipe *joint, Arena *a)
{
    const Graph *g = joint->graph;
    Stash s = {.g = g, .a = a, .scratch = arena_within(a), .m = m};
    s.at = arena_none(s.scratch, g->value.n + 1);
    s.again = arena_array(s.scratch, Ids, g->value.n + 1);
    s.copy = arena_array(s.scratch, bool, g->node.n + 1);
    for (uint32_t t = 0; t < joint->stage.n; t++) {
        const Stage *x = &joint->stage.at[t];
        for (uint32_t i = 0; i < x->stash.n; i++)
            keep(&s, x->stash.at[i]);
        for (uint32_t i = 0; i < x->recompute.n; i++)
            s.copy[x->recompute.at[i]] = true;
        for (uint32_t i = 0; i < x->backward.n; i++)
            read_stash(&s, x->backward.at[i]);
    }
    arena_free(s.scratch);
}
