/*
 * dag.c - contracts a CutGraph: what must be in one stage becomes one group.
 *
 * In: nodes, values, pairs.  Out: groups, runs of nodes, each with its time, what it makes, reads
 * and keeps.  Pairs and what goes back join all nodes between them.
 */
#include <math.h>

#include "dag.h"

/* ---- which nodes are one --------------------------------------------------------------------- */

static void join(uint32_t *until, uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    until[low] = until[low] < high ? high : until[low];
}

/* Runs of nodes; returns how many. */
static uint32_t group_runs(const CutGraph *g, Arena *a, uint32_t *group_of)
{
    uint32_t *until = arena_array(a, uint32_t, g->nodes + 1), groups = 0, end = 0;
    for (uint32_t i = 0; i < g->together.n; i++)
        join(until, g->together.at[i].a, g->together.at[i].b);
    for (uint32_t i = 0; i < g->before.n; i++)
        if (g->before.at[i].a > g->before.at[i].b)
            join(until, g->before.at[i].a, g->before.at[i].b);
    for (uint32_t n = 0; n < g->nodes; n++) {
        if (n == 0 || n > end)
            groups++;
        group_of[n] = groups - 1;
        end = until[n] > end ? until[n] : end;
        end = n > end ? n : end;
    }
    return groups;
}

/* ---- the groups ------------------------------------------------------------------------------ */

static double param_seconds(const CutLink *l, const CutParam *p)
{
    return (l->in_byte + l->out_byte) * (p->sent + p->back);
}

static double node_seconds(const CutNode *n) { return n->forward + n->input + n->weight; }

/* A tick is so small that all times together are 2^46 of them. */
static double tick_of(const CutGraph *g, const CutLink *l)
{
    double sum = 0;
    for (uint32_t n = 0; n < g->nodes; n++)
        sum += node_seconds(&g->node[n]);
    for (uint32_t v = 0; v < g->value.n; v++)
        sum += (cut_out_seconds(l, &g->value.at[v]) + cut_in_seconds(l, &g->value.at[v])) *
               (double)g->value.at[v].read.n;
    for (uint32_t i = 0; i < g->param.n; i++)
        sum += param_seconds(l, &g->param.at[i]) * (double)g->param.at[i].read.n;
    return sum > 0 ? ldexp(sum, -TICK_BITS) : 1;
}

/* The readers of v, by group: seen[] says where in which list each stands. */
static void add_value(Dag *d, uint32_t v, uint32_t *seen)
{
    const CutValue *x = &d->g->value.at[v];
    uint32_t from = d->group_of[x->from];
    DagValue *to = &d->value[v];
    *to = (DagValue){.from = from, .kept = x->kept};
    to->in = llround(cut_in_seconds(&d->p->link, x) / d->tick);
    to->out = llround(cut_out_seconds(&d->p->link, x) / d->tick);
    vec_push(d->a, &d->group[from].made, v);
    for (uint32_t i = 0; i < x->read.n; i++) {
        uint32_t k = d->group_of[x->read.at[i].node];
        Group *r = &d->group[k];
        if (seen[k] != v + 1) {
            GroupRead read = {v, 0};
            seen[k] = v + 1;
            vec_push(d->a, &r->read, read);
            to->readers += k != from;
            if (k != from && x->back > 0)
                vec_push(d->a, &to->handed, k);
        }
        r->read.at[r->read.n - 1].keeps += x->read.at[i].keeps;
    }
    if (to->readers < 2)
        to->handed.n = 0;
}

/* A stage has a group that works; where none does before the next stage has to begin, all count as
 * such. */
static void find_works(Dag *d)
{
    for (uint32_t n = 0; n < d->g->nodes; n++)
        d->group[d->group_of[n]].works |= !d->g->node[n].idle;
    for (uint32_t from = 0, to; from < d->n; from = to) {
        bool any = d->group[from].works;
        for (to = from + 1; to < d->n && !d->group[to].begins; to++)
            any |= d->group[to].works;
        for (uint32_t k = from; k < to && !any; k++)
            d->group[k].works = true;
    }
}

Dag *dag_of(const CutGraph *g, const CutProblem *p, Arena *a)
{
    Dag *d = arena_new_of(a, Dag);
    *d = (Dag){.a = a, .g = g, .p = p, .values = g->value.n, .params = g->param.n};
    d->group_of = arena_array(a, uint32_t, g->nodes + 1);
    d->n = group_runs(g, a, d->group_of);
    d->tick = tick_of(g, &p->link);
    d->group = arena_array(a, Group, d->n + 1);
    d->value = arena_array(a, DagValue, d->values + 1);
    d->param = arena_array(a, DagParam, d->params + 1);
    for (uint32_t n = 0; n < g->nodes; n++) {
        d->group[d->group_of[n]].time += llround(node_seconds(&g->node[n]) / d->tick);
        if (p->border && (n == 0 || d->group_of[n - 1] != d->group_of[n]))
            d->group[d->group_of[n]].border = p->border[n];
        if (p->begins && p->begins[n]) {
            INSIST(n == 0 || d->group_of[n - 1] != d->group_of[n]);
            d->group[d->group_of[n]].begins = true;
        }
    }
    find_works(d);
    uint32_t *seen = arena_array(a, uint32_t, d->n + 1);
    for (uint32_t v = 0; v < d->values; v++)
        add_value(d, v, seen);
    for (uint32_t i = 0; i < d->params; i++) {
        const CutParam *x = &g->param.at[i];
        d->param[i] = (DagParam){.held = x->held, .owned = x->owned};
        d->param[i].in = llround(param_seconds(&p->link, x) / d->tick);
        for (uint32_t k = 0; k < x->read.n; k++)
            ids_add(a, &d->param[i].read, d->group_of[x->read.at[k]]);
        for (uint32_t k = 0; k < d->param[i].read.n; k++)
            vec_push(a, &d->group[d->param[i].read.at[k]].param, i);
    }
    for (uint32_t k = 0; k < d->n; k++)
        d->total += d->group[k].time;
    return d;
}
