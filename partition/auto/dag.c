/*
 * dag.c - contracts a CutGraph: what must be in one stage becomes one group.
 *
 * In: nodes, values, pairs.  Out: groups in a topological order, each with its time, what it makes,
 * reads and keeps.  In order: pairs and what goes back join all nodes between them.  Else: the
 * strongly connected components with `together` as edges both ways (Tarjan 1972), in the order of
 * their first nodes as far as edges allow (Kahn 1962).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

typedef struct {
    uint32_t *first, *to;
} Edges;

static void count_edge(Edges *e, uint32_t from, uint32_t to, bool fill)
{
    if (fill)
        e->to[e->first[from]++] = to;
    else
        e->first[from + 1]++;
}

static void each_edge(const CutGraph *g, Edges *e, bool fill)
{
    for (uint32_t v = 0; v < g->value.n; v++)
        for (uint32_t i = 0; i < g->value.at[v].read.n; i++)
            if (!g->value.at[v].read.at[i].backward)
                count_edge(e, g->value.at[v].from, g->value.at[v].read.at[i].node, fill);
    for (uint32_t i = 0; i < g->before.n; i++)
        count_edge(e, g->before.at[i].a, g->before.at[i].b, fill);
    for (uint32_t i = 0; i < g->together.n; i++) {
        count_edge(e, g->together.at[i].a, g->together.at[i].b, fill);
        count_edge(e, g->together.at[i].b, g->together.at[i].a, fill);
    }
}

static Edges edges_of(const CutGraph *g, Arena *a)
{
    Edges e = {.first = arena_array(a, uint32_t, g->nodes + 2)};
    each_edge(g, &e, false);
    for (uint32_t n = 0; n < g->nodes; n++)
        e.first[n + 1] += e.first[n];
    e.to = arena_array(a, uint32_t, e.first[g->nodes] + 1);
    each_edge(g, &e, true);
    for (uint32_t n = g->nodes; n > 0; n--)
        e.first[n] = e.first[n - 1];
    e.first[0] = 0;
    return e;
}

/* Components, numbered as they are found; returns how many. */
static uint32_t group_components(const CutGraph *g, Arena *a, uint32_t *group_of)
{
    Edges e = edges_of(g, a);
    uint32_t *index = arena_array(a, uint32_t, g->nodes + 1),
             *low = arena_array(a, uint32_t, g->nodes + 1),
             *next = arena_array(a, uint32_t, g->nodes + 1),
             *path = arena_array(a, uint32_t, g->nodes + 1),
             *open = arena_array(a, uint32_t, g->nodes + 1), paths = 0, opens = 0, seen = 0,
             groups = 0;
    memset(group_of, 0xff, g->nodes * sizeof *group_of);
    for (uint32_t root = 0; root < g->nodes; root++) {
        if (index[root])
            continue;
        path[paths++] = root;
        while (paths > 0) {
            uint32_t n = path[paths - 1];
            if (!index[n]) {
                index[n] = low[n] = ++seen;
                next[n] = e.first[n];
                open[opens++] = n;
            }
            if (next[n] < e.first[n + 1]) {
                uint32_t to = e.to[next[n]++];
                if (!index[to])
                    path[paths++] = to;
                else if (group_of[to] == NONE && index[to] < low[n])
                    low[n] = index[to];
                continue;
            }
            paths--;
            if (paths > 0 && low[n] < low[path[paths - 1]])
                low[path[paths - 1]] = low[n];
            if (low[n] != index[n])
                continue;
            uint32_t member;
            do {
                member = open[--opens];
                group_of[member] = groups;
            } while (member != n);
            groups++;
        }
    }
    return groups;
}

/* ---- a heap of numbers, the least first ------------------------------------------------------ */

static void heap_push(uint32_t *heap, uint32_t *n, uint32_t x)
{
    uint32_t at = (*n)++;
    for (; at > 0 && heap[(at - 1) / 2] > x; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = x;
}

static uint32_t heap_pop(uint32_t *heap, uint32_t *n)
{
    uint32_t top = heap[0], x = heap[--*n], at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (child >= *n || heap[child] >= x)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = x;
    return top;
}

/* Renumbers components: a topological order, by first nodes where it leaves a choice. */
static void sort_components(const CutGraph *g, Arena *a, uint32_t *group_of, uint32_t groups)
{
    Edges e = edges_of(g, a);
    uint32_t *waits = arena_array(a, uint32_t, groups + 1),
             *head = arena_array(a, uint32_t, groups + 1),
             *next = arena_array(a, uint32_t, g->nodes + 1),
             *number = arena_array(a, uint32_t, groups + 1),
             *heap = arena_array(a, uint32_t, groups + 1), held = 0, done = 0;
    memset(head, 0xff, groups * sizeof *head);
    for (uint32_t n = g->nodes; n-- > 0;) { /* head: the first node of each */
        next[n] = head[group_of[n]];
        head[group_of[n]] = n;
        for (uint32_t i = e.first[n]; i < e.first[n + 1]; i++)
            waits[group_of[e.to[i]]] += group_of[e.to[i]] != group_of[n];
    }
    for (uint32_t k = 0; k < groups; k++)
        if (waits[k] == 0)
            heap_push(heap, &held, head[k]);
    while (held > 0) {
        uint32_t k = group_of[heap_pop(heap, &held)];
        number[k] = done++;
        for (uint32_t n = head[k]; n != NONE; n = next[n])
            for (uint32_t i = e.first[n]; i < e.first[n + 1]; i++) {
                uint32_t to = group_of[e.to[i]];
                if (to != k && --waits[to] == 0)
                    heap_push(heap, &held, head[to]);
            }
    }
    INSIST(done == groups);
    for (uint32_t n = 0; n < g->nodes; n++)
        group_of[n] = number[group_of[n]];
}

/* ---- the groups ------------------------------------------------------------------------------ */

static double in_seconds(const CutLink *l, const CutValue *v)
{
    return (v->bytes > 0 ? l->in_message + l->in_byte * (double)v->bytes : 0) +
           (v->back > 0 ? l->in_message + l->in_byte * (double)v->back : 0);
}

static double out_seconds(const CutLink *l, const CutValue *v)
{
    return (v->bytes > 0 ? l->out_message + l->out_byte * (double)v->bytes : 0) +
           (v->back > 0 ? l->out_message + l->out_byte * (double)v->back : 0);
}

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
        sum += (out_seconds(l, &g->value.at[v]) + in_seconds(l, &g->value.at[v])) *
               (double)g->value.at[v].read.n;
    for (uint32_t i = 0; i < g->param.n; i++)
        sum += param_seconds(l, &g->param.at[i]) * (double)g->param.at[i].read.n;
    return sum > 0 ? ldexp(sum, -TICK_BITS) : 1;
}

static bool last_is(const Ids *list, uint32_t x)
{
    return list->n > 0 && list->at[list->n - 1] == x;
}

static void add_once(Arena *a, Ids *list, uint32_t x)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == x)
            return;
    vec_push(a, list, x);
}

/* The readers of v, by group: seen[] says where in which list each stands. */
static void add_value(Dag *d, uint32_t v, uint32_t *seen)
{
    const CutValue *x = &d->g->value.at[v];
    uint32_t from = d->group_of[x->from];
    DagValue *to = &d->value[v];
    *to = (DagValue){.from = from, .kept = x->kept};
    to->in = llround(in_seconds(&d->p->link, x) / d->tick);
    to->out = llround(out_seconds(&d->p->link, x) / d->tick);
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

static void add_edges(Dag *d)
{
    for (uint32_t v = 0; v < d->values; v++)
        for (uint32_t i = 0; i < d->g->value.at[v].read.n; i++) {
            const CutRead *r = &d->g->value.at[v].read.at[i];
            uint32_t from = d->value[v].from, to = d->group_of[r->node];
            if (r->backward)
                continue;
            INSIST(from <= to);
            if (from != to && !last_is(&d->group[to].before, from))
                vec_push(d->a, &d->group[to].before, from);
        }
    for (uint32_t i = 0; i < d->g->before.n; i++) {
        uint32_t from = d->group_of[d->g->before.at[i].a], to = d->group_of[d->g->before.at[i].b];
        if (from != to)
            vec_push(d->a, &d->group[to].before, from);
    }
    uint32_t *seen = arena_array(d->a, uint32_t, d->n + 1);
    for (uint32_t k = 0; k < d->n; k++) { /* each once */
        Ids *before = &d->group[k].before;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < before->n; i++)
            if (seen[before->at[i]] != k + 1) {
                seen[before->at[i]] = k + 1;
                vec_push(d->a, &d->group[before->at[i]].after, k);
                before->at[kept++] = before->at[i];
            }
        before->n = kept;
    }
}

/* In order a stage has a group that works; where none does before the next stage has to begin, and
 * in any other order, all count as such. */
static void find_works(Dag *d)
{
    for (uint32_t n = 0; n < d->g->nodes; n++)
        d->group[d->group_of[n]].works |= !d->g->node[n].idle || !d->p->in_order;
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
    if (p->in_order) {
        d->n = group_runs(g, a, d->group_of);
    } else {
        d->n = group_components(g, a, d->group_of);
        sort_components(g, a, d->group_of, d->n);
    }
    d->tick = tick_of(g, &p->link);
    d->group = arena_array(a, Group, d->n + 1);
    d->value = arena_array(a, DagValue, d->values + 1);
    d->param = arena_array(a, DagParam, d->params + 1);
    for (uint32_t n = 0; n < g->nodes; n++) {
        d->group[d->group_of[n]].time += llround(node_seconds(&g->node[n]) / d->tick);
        if (p->in_order && p->begins && p->begins[n]) {
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
            add_once(a, &d->param[i].read, d->group_of[x->read.at[k]]);
        for (uint32_t k = 0; k < d->param[i].read.n; k++)
            vec_push(a, &d->group[d->param[i].read.at[k]].param, i);
    }
    add_edges(d);
    for (uint32_t k = 0; k < d->n; k++) {
        d->total += d->group[k].time;
        d->largest = d->group[k].time > d->largest ? d->group[k].time : d->largest;
    }
    d->least_live = UINT32_MAX;
    for (uint32_t s = 0; s < p->stages; s++)
        d->least_live = dag_live(d, s) < d->least_live ? dag_live(d, s) : d->least_live;
    return d;
}
