/*
 * sort.c - the nodes of a list in topological order: depth-first by their order in the file, so
 * that an ordered file stays as it is.  A cycle is fatal.
 */
#include "names.h"

typedef struct {
    Model *m;
    RawNodes *list;
    StrMap maker;
    uint8_t *state;
    Ids stack;
    RawNodes sorted;
    RawNode *at;
} Sort;

static void push_maker(Sort *s, const RawNode *n, const char *name)
{
    uint32_t p = *name ? strmap_get(&s->maker, name) : NONE;
    if (p == NONE || s->state[p] == 2)
        return;
    if (s->state[p] == 1) {
        diag_note("it needs '%s', which node %u '%s' computes from its result", name,
                  s->list->at[p]->index, s->list->at[p]->name);
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "the graph has a cycle");
    }
    vec_push(s->m->arena, &s->stack, p);
}

static void push_captured(void *sort, const char *name)
{
    Sort *s = sort;
    push_maker(s, s->at, name);
}

static void visit(Sort *s, uint32_t root)
{
    vec_push(s->m->arena, &s->stack, root);
    while (s->stack.n) {
        uint32_t i = s->stack.at[s->stack.n - 1];
        RawNode *n = s->list->at[i];
        if (s->state[i] == 2) {
            s->stack.n--;
            continue;
        }
        if (s->state[i] == 1) {
            s->state[i] = 2;
            s->stack.n--;
            vec_push(s->m->arena, &s->sorted, n);
            continue;
        }
        s->state[i] = 1;
        for (uint32_t j = n->nin; j-- > 0;)
            push_maker(s, n, n->in[j]);
        s->at = n;
        inline_captured(s->m, n, push_captured, s);
    }
}

void sort_nodes(Model *m, RawNodes *list)
{
    Sort s = {.m = m, .list = list, .maker.arena = m->arena};
    s.state = arena_array(m->arena, uint8_t, list->n);
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t j = 0; j < list->at[i]->nout; j++)
            if (*list->at[i]->out[j])
                *strmap_at(&s.maker, list->at[i]->out[j]) = i;
    for (uint32_t i = 0; i < list->n; i++)
        if (s.state[i] == 0)
            visit(&s, i);
    *list = s.sorted;
}
