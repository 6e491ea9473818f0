/*
 * graph.c - what feeds what.
 *
 * In: the edges between stages (or nothing: the chain; or a complete schedule, whose own sends and
 * receives tell), and the pairs of stages that share parameters.  Out: a SchedGraph, sorted,
 * without repetitions, with the edges of each stage.
 */
#include "graph.h"

#include "base/file/memory.h"

#include <stdlib.h>
#include <string.h>

static int by_edge(const void *x, const void *y)
{
    const SchedEdge *a = x, *b = y;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return (a->to > b->to) - (a->to < b->to);
}

static int by_param(const void *x, const void *y)
{
    const SchedParam *a = x, *b = y;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->replicate > b->replicate) - (a->replicate < b->replicate);
}

void sched_graph_free(SchedGraph *g)
{
    pool_free(&g->room);
    memset(g, 0, sizeof *g);
}

static int sort_edges(SchedGraph *g, const SchedEdge *edge, int n, SchedError *e)
{
    for (int i = 0; i < n; i++) {
        if (edge[i].from < 0 || edge[i].to >= g->stages || edge[i].from >= edge[i].to)
            return sched_fail(e, SCHED_EREFUSED, -1, -1,
                              "there can be no edge from stage %d to stage %d: edges go to later "
                              "stages, of %d in all",
                              edge[i].from, edge[i].to, g->stages);
        g->edge[i] = edge[i];
    }
    qsort(g->edge, (size_t)n, sizeof *g->edge, by_edge);
    for (int i = 0; i < n; i++) {
        SchedEdge *last = g->n ? &g->edge[g->n - 1] : NULL;
        if (last && last->from == g->edge[i].from && last->to == g->edge[i].to) {
            last->gradient |= g->edge[i].gradient;
            last->bytes_f += g->edge[i].bytes_f;
            last->bytes_b += g->edge[i].bytes_b;
        } else {
            g->edge[g->n++] = g->edge[i];
        }
    }
    return SCHED_OK;
}

static void index_edges(SchedGraph *g)
{
    int at = 0;
    for (int i = 0; i < g->n; i++)
        g->in_first[g->edge[i].to + 1]++;
    for (int s = 0; s < g->stages; s++)
        g->in_first[s + 1] += g->in_first[s];
    for (int s = 0, i = 0; s <= g->stages; s++) {
        while (i < g->n && g->edge[i].from < s)
            i++;
        g->out_first[s] = i;
    }
    /* Edges come sorted by `from`, so each list of in-edges is ascending too; a cursor per stage is
     * kept in `group`. */
    for (int i = 0; i < g->n; i++) {
        at = g->in_first[g->edge[i].to] + g->group[g->edge[i].to]++;
        g->in[at] = i;
    }
}

static int sort_params(SchedGraph *g, const SchedParam *param, int n, SchedError *e)
{
    for (int i = 0; i < n; i++) {
        SchedParam q = param[i];
        if (q.from < 0 || q.to < 0 || q.from >= g->stages || q.to >= g->stages || q.from == q.to)
            return sched_fail(e, SCHED_EREFUSED, -1, -1,
                              "no parameter can be shared by stages %d and %d of %d", q.from, q.to,
                              g->stages);
        g->param[i] = q;
    }
    qsort(g->param, (size_t)n, sizeof *g->param, by_param);
    for (int i = 0; i < n; i++) {
        SchedParam *last = g->n_param ? &g->param[g->n_param - 1] : NULL;
        if (last && by_param(last, &g->param[i]) == 0)
            last->gradient |= g->param[i].gradient;
        else
            g->param[g->n_param++] = g->param[i];
    }
    return SCHED_OK;
}

static int find_group(int *group, int s)
{
    while (group[s] != s)
        s = group[s] = group[group[s]];
    return s;
}

static void group_stages(SchedGraph *g)
{
    for (int s = 0; s < g->stages; s++)
        g->group[s] = s;
    for (int i = 0; i < g->n_param; i++) {
        const SchedParam *q = &g->param[i];
        g->shared[q->from] = 1;
        if (!q->replicate)
            continue;
        g->shared[q->to] = 1;
        int a = find_group(g->group, q->from), b = find_group(g->group, q->to);
        g->group[a > b ? a : b] = a > b ? b : a;
    }
    for (int s = 0; s < g->stages; s++)
        g->group[s] = find_group(g->group, s);
}

int sched_graph(SchedGraph *g, int stages, const SchedEdge *edge, int n_edge,
                const SchedParam *param, int n_param, SchedError *e)
{
    int n = edge ? n_edge : stages - 1, st;
    size_t S = (size_t)stages + 2;
    memset(g, 0, sizeof *g);
    g->stages = stages;
    g->edge = sched_room(&g->room, (size_t)n, sizeof *g->edge);
    g->in = sched_room(&g->room, (size_t)n, sizeof *g->in);
    g->in_first = sched_room(&g->room, S, sizeof *g->in_first);
    g->out_first = sched_room(&g->room, S, sizeof *g->out_first);
    g->group = sched_room(&g->room, S, sizeof *g->group);
    g->shared = sched_room(&g->room, S, sizeof *g->shared);
    g->param = sched_room(&g->room, (size_t)n_param, sizeof *g->param);
    st = g->room.lost ? sched_nomem(e) : SCHED_OK;
    if (!st && edge)
        st = sort_edges(g, edge, n_edge, e);
    for (; !st && !edge && g->n < n; g->n++)
        g->edge[g->n] = (SchedEdge){g->n, g->n + 1, 1, 0, 0};
    if (st || (st = sort_params(g, param, n_param, e))) {
        sched_graph_free(g);
        return st;
    }
    index_edges(g);
    group_stages(g);
    return SCHED_OK;
}

/* From the rows of a complete schedule.  The chain's edge s -> s+1 is assumed where nothing else
   enters s+1 (or, for its gradient, where no other gradient enters s), so that a file which forgot
   its messages is refused and a file with skips is not. */
static int graph_of_rows(SchedGraph *g, const Schedule *s, const SchedParam *param, int n_param,
                         SchedError *e)
{
    const SchedEdge none = {0};
    SchedEdge *list = NULL, *edge;
    int n = 0, lost = 0, st;
    char *fed = calloc((size_t)s->stages * 2, 1), *got = fed ? fed + s->stages : NULL;
    for (int r = 0; fed && s->complete && r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            int from = sched_toward(a->type) > 0 ? a->stage : a->peer;
            int to = from == a->stage ? a->peer : a->stage,
                back = a->type == SA_SEND_B || a->type == SA_RECV_B;
            if ((!sched_is_send(a->type) && !sched_is_recv(a->type)) || a->microbatch > 0)
                continue;
            fed[to] = 1;
            got[from] = (char)(got[from] | back);
            if ((edge = memory_added(&list, &n, sizeof *edge)))
                *edge = (SchedEdge){from, to, back, 0, 0};
            lost |= !edge;
        }
    for (int k = 0; fed && k + 1 < s->stages; k++) {
        int local = s->rank_of[k] == s->rank_of[k + 1];
        if (fed[k + 1] && got[k] && !local)
            continue;
        if ((edge = memory_added(&list, &n, sizeof *edge)))
            *edge = (SchedEdge){k, k + 1, !s->infer && (!got[k] || local), 0, 0};
        lost |= !edge;
    }
    st = lost || !fed ? sched_nomem(e)
                      : sched_graph(g, s->stages, list ? list : &none, n, param, n_param, e);
    free(list);
    free(fed);
    return st;
}

int sched_graph_of(SchedGraph *g, const Schedule *s, const SchedEdge *edge, int n_edge,
                   const SchedParam *param, int n_param, SchedError *e)
{
    const int st = edge ? sched_graph(g, s->stages, edge, n_edge, param, n_param, e)
                        : graph_of_rows(g, s, param, n_param, e);
    for (int i = 0; !st && s->infer && i < g->n; i++)
        g->edge[i].gradient = 0;
    return st;
}

void sched_wake_readers(SchedTurns *t, const Schedule *s, const SchedGraph *g, const SchedAction *a)
{
    const int back = a->type == SA_B || a->type == SA_I, *first = back ? g->in_first : g->out_first;
    if (!back && a->type != SA_F)
        return;
    for (int k = first[a->stage]; k < first[a->stage + 1]; k++)
        sched_wake(t, s->rank_of[back ? g->edge[g->in[k]].from : g->edge[k].to]);
}

int sched_graph_edge(const SchedGraph *g, int from, int to)
{
    int lo = g->out_first[from], hi = g->out_first[from + 1];
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (g->edge[mid].to < to)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < g->out_first[from + 1] && g->edge[lo].to == to ? lo : -1;
}

static int param_number(const SchedGraph *g, int from, int to)
{
    for (int i = 0; i < g->n_param; i++)
        if (g->param[i].from == from && g->param[i].to == to && !g->param[i].replicate)
            return i;
    return -1;
}

int sched_graph_lane(const SchedGraph *g, const SchedAction *a)
{
    const int to = sched_toward(a->type), param = sched_is_param(a->type),
              own = to > 0 || a->type == SA_SEND_P || a->type == SA_RECV_GP,
              back = a->type == SA_SEND_B || a->type == SA_RECV_B || a->type == SA_WAIT_SEND_B ||
                     a->type == SA_SEND_GP || a->type == SA_RECV_GP,
              from = own ? a->stage : a->peer, dest = own ? a->peer : a->stage;
    int lane = -1;
    if (param)
        lane = param_number(g, from, dest);
    else if (to)
        lane = sched_graph_edge(g, from, dest);
    return lane < 0 ? -1 : 2 * (param ? g->n + lane : lane) + back;
}

int sched_graph_proves(const SchedGraph *g, int a, int b)
{
    char *seen;
    int hit = 0;
    if (a == b)
        return 1;
    int near = sched_graph_edge(g, a, b);
    if (near >= 0 && g->edge[near].gradient)
        return 1;
    if (!(seen = calloc((size_t)g->stages, 1)))
        return 0;
    seen[a] = 1;
    for (int s = a; s < b && !hit; s++) /* edges go upwards, so one sweep in order is enough */
        for (int i = g->out_first[s]; seen[s] && i < g->out_first[s + 1]; i++)
            if (g->edge[i].gradient) {
                seen[g->edge[i].to] = 1;
                hit |= g->edge[i].to == b;
            }
    free(seen);
    return hit;
}
