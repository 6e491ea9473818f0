/*
 * lower.c - the one call of an executor: from a schedule as a generator or a file gives it to the
 * verified rows of a given model, with its skip edges and its shared parameters.
 *
 * In: compute-only rows, or complete ones (PyTorch's lowered files); what the model needs
 * (SchedNeeds).  Out: rows to execute.
 */
#include "schedule/graph.h"

#include <stdlib.h>
#include <string.h>

/* Actions [from, end) of a row go behind those after them. */
static void rotate(SchedRow *row, int from, int end)
{
    int last = row->n;
    for (int i = from; i < end; i++)
        sched_push(row, row->a[i]);
    if (row->n == last + end - from) {
        memmove(row->a + from, row->a + end, (size_t)(row->n - end) * sizeof *row->a);
        row->n = last;
    }
}

/* The reductions of stages that share parameters go to the row's end, before the waits that are
   there: a sum over copies needs a rank that may itself wait for this one, and an owner's gradient
   is whole only when the last user's has come. */
static int reduce_shared_last(Schedule *s, const SchedGraph *g, SchedError *e)
{
    for (int r = 0; r < s->ranks; r++) {
        SchedRow *row = &s->row[r];
        int n = 0, before = row->n;
        for (int i = 0; i < row->n; i++) {
            const SchedAction *a = &row->a[i];
            if ((a->type == SA_REDUCE_GRAD || a->type == SA_WAIT_REDUCE_GRAD) &&
                g->shared[a->stage])
                continue;
            row->a[n++] = *a;
        }
        row->n = n;
        if (n == before)
            continue;
        int waits = n;
        while (waits > 0 && row->a[waits - 1].type == SA_WAIT_REDUCE_GRAD)
            waits--;
        for (int k = 0; k < s->stages; k++)
            if (g->shared[k] && s->rank_of[k] == r)
                sched_push(row, sched_act(SA_REDUCE_GRAD, k, -1));
        rotate(row, waits, n);
        for (int k = 0; k < s->stages; k++)
            if (g->shared[k] && s->rank_of[k] == r)
                sched_push(row, sched_act(SA_WAIT_REDUCE_GRAD, k, -1));
    }
    return sched_rows_ok(s, e);
}

static void param_messages(SchedRow *rows, const Schedule *s, const SchedGraph *g, int back)
{
    for (int i = 0; i < g->n_param; i++) {
        const SchedParam *q = &g->param[i];
        if (!q->replicate && (!back || q->gradient))
            sched_push_message(rows, s, back ? SA_SEND_GP : SA_SEND_P, back ? q->to : q->from,
                               back ? q->from : q->to, -1);
    }
}

/* A complete file that knows nothing of shared parameters: parameters are sent before all else,
   their gradients after all else. */
static int add_params(Schedule *s, const SchedGraph *g, SchedError *e)
{
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    if (!rows)
        return sched_nomem(e);
    param_messages(rows, s, g, 0);
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++)
            sched_push(&rows[r], s->row[r].a[i]);
    if (!s->infer)
        param_messages(rows, s, g, 1);
    return sched_take_rows(s, rows, SCHED_OK, e);
}

/* Its messages; given: it has those of activations. */
static int add_messages(Schedule *s, const SchedGraph *g, int given, int buffers, SchedError *e)
{
    int st = SCHED_OK;
    if (!given) {
        st = reduce_shared_last(s, g, e);
        return st ? st : sched_comms_graph(s, g, e);
    }
    if (g->n_param && !sched_has_type(s, SA_SEND_P))
        st = add_params(s, g, e);
    /* The file's own reductions stay where they are, unless the rows then do not verify. */
    if (!st && g->n_param && sched_verify_graph(s, g, buffers, e))
        st = reduce_shared_last(s, g, e);
    return st;
}

static int defer_if_it_holds(Schedule *s, const SchedGraph *g, int buffers, SchedError *e)
{
    Schedule *c = sched_clone(s);
    int st = c ? sched_defer(c, e) : sched_nomem(e);
    if (!st && !(st = sched_verify_graph(c, g, buffers, e))) {
        SchedRow *rows = c->row;
        c->row = s->row;
        s->row = rows;
    }
    sched_free(c);
    return st == SCHED_EREFUSED ? SCHED_OK : st;
}

/* From compute-only rows (or complete ones, which are only checked) to the verified rows a rank
   executes: idle slots gone, every receive, send, wait, UNSHARD, REDUCE_GRAD in place.  Guarantees
   to the executor, per row:
   - for every edge across ranks SEND_F follows its F (SEND_B its B or I) and RECV precedes its
   consumer; messages of one directed edge are received in the order in which they are sent; an edge
   inside a rank has no actions (a hand-over);
   - each SEND has one WAIT_SEND with the same stage, microbatch and peer;
   - SEND_P comes after the owner's UNSHARD and before anything of the user; RECV_GP of an owner
   comes before its REDUCE_GRAD; pairs on one rank have no such actions: the executor adds the
   gradients itself at REDUCE_GRAD;
   - each OFFLOAD has one WAIT_OFFLOAD, which comes before its FETCH, and that before the backward;
   - REDUCE_GRAD and WAIT_REDUCE_GRAD of stages that share parameters (owner or replica) stand at
   the row's end: all the REDUCE_GRADs, then all the WAITs, ascending. */
int sched_lower_for(Schedule *s, const SchedNeeds *n, SchedError *e)
{
    SchedGraph g;
    int st = sched_validate(s, e), given = s->complete;
    if (st || (st = sched_graph(&g, s->stages, n->edge, n->n_edge, n->param, n->n_param, e)))
        return st;
    for (int i = 0; s->infer && i < g.n; i++)
        g.edge[i].gradient = 0;
    sched_drop_idle(s);
    if (n->unshard && !sched_has_type(s, SA_UNSHARD))
        st = sched_unshard(s, n->unshard, e);
    if (!st && !s->infer && !sched_has_type(s, SA_REDUCE_GRAD))
        st = sched_reduce_grad(s, n->deferred_reduce, e);
    if (!st)
        st = add_messages(s, &g, given, n->buffers, e);
    if (!st && !sched_has_type(s, SA_WAIT_SEND_F) && !sched_has_type(s, SA_WAIT_SEND_B))
        st = sched_wait_send_graph(s, &g, e);
    if (!st && !given)
        st = sched_early_waits(s, &g, e);
    if (!st && n->defer && !given)
        st = defer_if_it_holds(s, &g, n->buffers, e);
    if (!st && n->send_budget > 0)
        st = sched_budget(s, n->send_budget, e);
    if (!st && n->offload)
        st = sched_offload_graph(s, &g, n->offload, NULL, e);
    if (!st)
        st = sched_verify_graph(s, &g, n->buffers, e);
    sched_graph_free(&g);
    return st;
}

int sched_lower(Schedule *s, int window, SchedError *e)
{
    SchedGraph g;
    char text[16];
    int st = sched_graph(&g, s->stages, NULL, 0, NULL, 0, e);
    snprintf(text, sizeof text, "%d", window);
    if (!st && window > 0)
        st = sched_unshard(s, text, e);
    if (!st && !s->infer)
        st = sched_reduce_grad(s, 0, e);
    if (!st)
        st = sched_comms_graph(s, &g, e);
    if (!st)
        st = sched_wait_send_graph(s, &g, e);
    sched_graph_free(&g);
    return st;
}
