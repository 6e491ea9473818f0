/*
 * comms.c - the passes that put communication between rows: send/recv, wait_send, defer, and `lower`, all of them
 * in order.
 *
 * In: compute-only rows (with UNSHARD, REDUCE_GRAD or without) and the edges between stages.  Out: complete rows.
 * SCHEDULES.md 2, passes 5 and 7.  send/recv is a list scheduler: ranks take turns, and each send and its receive are
 * appended in the same turn, so one global order explains all rows, and they run even where every message is a
 * rendezvous.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { PLACED_F = 1, PLACED_B = 2 };

typedef struct {
    Schedule *s;
    const SchedGraph *g;
    SchedRow *out;
    unsigned char *placed;   /* per (stage, microbatch) */
    int *cursor;             /* per rank: the next action of the old row */
    int *backwards;          /* per stage: B or W placed so far */
    int *no_param, *no_grad; /* per stage: transmitted parameters, their gradients, not yet placed */
    unsigned char *sent;     /* per stage: its SEND_P are placed */
    SchedError *e;
} Comms;

static unsigned char *placed_at(const Comms *c, int stage, int mb)
{
    return &c->placed[(size_t)stage * (size_t)c->s->microbatches + (size_t)mb];
}

/* -1 if action a may be placed now, else the stage whose action it waits for. */
static int waits_for(const Comms *c, const SchedAction *a)
{
    const SchedGraph *g = c->g;
    if (a->type == SA_F) {
        for (int i = g->in_first[a->stage]; i < g->in_first[a->stage + 1]; i++) {
            int from = g->edge[g->in[i]].from;
            if (!(*placed_at(c, from, a->microbatch) & PLACED_F))
                return from;
        }
        return c->no_param[a->stage] ? a->stage : -1;
    }
    if (a->type == SA_B || a->type == SA_I) {
        for (int i = g->out_first[a->stage]; i < g->out_first[a->stage + 1]; i++) {
            int to = g->edge[i].to;
            if (g->edge[i].gradient && !(*placed_at(c, to, a->microbatch) & PLACED_B))
                return to;
        }
        return -1;
    }
    return a->type == SA_REDUCE_GRAD && c->no_grad[a->stage] ? a->stage : -1;
}

/* One message: the send on the row of `stage`, the receive at once on the row of `peer`. */
static void message(Comms *c, int send, int recv, int stage, int peer, int mb)
{
    int from = c->s->rank_of[stage], to = c->s->rank_of[peer];
    if (from == to)
        return;
    sched_push(&c->out[from], sched_comm(send, stage, mb, peer));
    sched_push(&c->out[to], sched_comm(recv, peer, mb, stage));
}

static void send_params(Comms *c, int stage)
{
    if (c->sent[stage])
        return;
    c->sent[stage] = 1;
    for (int i = 0; i < c->g->n_param; i++) {
        const SchedParam *q = &c->g->param[i];
        if (q->from == stage && !q->replicate) {
            message(c, SA_SEND_P, SA_RECV_P, q->from, q->to, -1);
            c->no_param[q->to]--;
        }
    }
}

static void send_param_grads(Comms *c, int stage)
{
    for (int i = 0; i < c->g->n_param; i++) {
        const SchedParam *q = &c->g->param[i];
        if (q->to == stage && !q->replicate && q->gradient) {
            message(c, SA_SEND_GP, SA_RECV_GP, q->to, q->from, -1);
            c->no_grad[q->from]--;
        }
    }
}

/* The messages that follow an action. */
static void follow(Comms *c, const SchedAction *a)
{
    const SchedGraph *g = c->g;
    if (a->type == SA_F) {
        *placed_at(c, a->stage, a->microbatch) |= PLACED_F;
        for (int i = g->out_first[a->stage]; i < g->out_first[a->stage + 1]; i++)
            message(c, SA_SEND_F, SA_RECV_F, a->stage, g->edge[i].to, a->microbatch);
    } else if (a->type == SA_B || a->type == SA_I) {
        *placed_at(c, a->stage, a->microbatch) |= PLACED_B;
        for (int i = g->in_first[a->stage + 1]; i-- > g->in_first[a->stage];) /* the nearest first */
            if (g->edge[g->in[i]].gradient)
                message(c, SA_SEND_B, SA_RECV_B, a->stage, g->edge[g->in[i]].from, a->microbatch);
    } else if (a->type == SA_UNSHARD) {
        send_params(c, a->stage);
    }
    if ((a->type == SA_B || a->type == SA_W) && ++c->backwards[a->stage] == c->s->microbatches)
        send_param_grads(c, a->stage);
}

static int turn(Comms *c, int r)
{
    const SchedRow *row = &c->s->row[r];
    int i = c->cursor[r], end = sched_cell_end(row, i);
    for (int k = i; k < end; k++)
        if (row->a[k].type != SA_IDLE && waits_for(c, &row->a[k]) >= 0)
            return 0;
    for (int k = i; k < end; k++)
        if (row->a[k].type != SA_IDLE)
            sched_push(&c->out[r], row->a[k]);
    for (int k = i; k < end; k++)
        if (row->a[k].type != SA_IDLE)
            follow(c, &row->a[k]);
    c->cursor[r] = end;
    return 1;
}

/* The heads of the ranks that cannot go on, at most 16 of them. */
static int stuck(const Comms *c)
{
    char text[3000];
    size_t n = 0;
    int first = -1, cell = -1, shown = 0;
    text[0] = 0;
    for (int r = 0; r < c->s->ranks; r++) {
        const SchedRow *row = &c->s->row[r];
        char name[64], need[64] = "";
        if (c->cursor[r] == row->n)
            continue;
        const SchedAction *a = &row->a[c->cursor[r]];
        for (int k = c->cursor[r]; k < sched_cell_end(row, c->cursor[r]); k++)
            if (row->a[k].type != SA_IDLE && waits_for(c, &row->a[k]) >= 0) {
                a = &row->a[k];
                if (a->microbatch >= 0)
                    snprintf(need, sizeof need, "%s of stage %d", a->type == SA_F ? "the forward" : "the backward",
                             waits_for(c, a));
                else
                    snprintf(need, sizeof need, "gradients of shared parameters");
            }
        sched_action_text(name, sizeof name, a);
        if (first < 0) {
            first = r;
            cell = sched_cell(row, c->cursor[r]);
        }
        if (shown++ < 16 && n < sizeof text - 160)
            n += (size_t)snprintf(text + n, sizeof text - n, "\n  rank %d, cell %d (%s) waits for %s", r,
                                  sched_cell(row, c->cursor[r]), name, need);
    }
    return sched_fail(c->e, SCHED_EREFUSED, first, cell, "the schedule cannot go on: rank %d is stuck at cell %d%s",
                      first, cell, text);
}

static int run_turns(Comms *c)
{
    for (int left = c->s->ranks; left > 0;) {
        int progress = 0;
        left = 0;
        for (int r = 0; r < c->s->ranks; r++) {
            if (c->cursor[r] < c->s->row[r].n)
                progress |= turn(c, r);
            left += c->cursor[r] < c->s->row[r].n;
        }
        if (left && !progress)
            return stuck(c);
    }
    return SCHED_OK;
}

int sched_comms_graph(Schedule *s, const SchedGraph *g, SchedError *e)
{
    size_t S = (size_t)s->stages;
    Comms c = {s,
               g,
               calloc((size_t)s->ranks, sizeof *c.out),
               calloc(S * (size_t)s->microbatches, 1),
               calloc((size_t)s->ranks, sizeof(int)),
               calloc(S, sizeof(int)),
               calloc(S, sizeof(int)),
               calloc(S, sizeof(int)),
               calloc(S, 1),
               e};
    int st = SCHED_OK;
    if (!c.out || !c.placed || !c.cursor || !c.backwards || !c.no_param || !c.no_grad || !c.sent) {
        st = sched_nomem(e);
    } else if (s->complete) {
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "the schedule has sends and receives already");
    } else {
        for (int i = 0; i < g->n_param; i++)
            if (!g->param[i].replicate) {
                c.no_param[g->param[i].to]++;
                c.no_grad[g->param[i].from] += g->param[i].gradient && !s->infer;
            }
        for (int r = 0; r < s->ranks; r++)
            for (int i = 0; i < s->row[r].n; i++)
                if (s->row[r].a[i].type == SA_UNSHARD)
                    c.sent[s->row[r].a[i].stage] = 2;
        for (int k = 0; k < s->stages; k++) {
            if (c.sent[k])
                c.sent[k] = 0; /* at its UNSHARD */
            else
                send_params(&c, k);
        }
        st = run_turns(&c);
    }
    free(c.placed);
    free(c.cursor);
    free(c.backwards);
    free(c.no_param);
    free(c.no_grad);
    free(c.sent);
    if (st) {
        sched_free_rows(c.out, c.out ? s->ranks : 0);
        return st;
    }
    sched_swap_rows(s, c.out);
    s->complete = 1;
    return sched_rows_ok(s, e);
}

int sched_comms(Schedule *s, const SchedEdge *edge, int n_edge, const SchedParam *param, int n_param, SchedError *e)
{
    SchedGraph g;
    int st = sched_graph(&g, s->stages, edge, n_edge, param, n_param, e);
    if (!st)
        st = sched_comms_graph(s, &g, e);
    sched_graph_free(&g);
    return st;
}

/* ---- wait_send ----
   A SEND_F is waited for after the backward of the same (stage, microbatch) when that backward proves that the peer has
   used it; the other sends are waited for at the end, in their order. */

static SchedAction wait_of(const SchedAction *send)
{
    return sched_comm(send->type == SA_SEND_F ? SA_WAIT_SEND_F : SA_WAIT_SEND_B, send->stage, send->microbatch,
                      send->peer);
}

int sched_wait_send_graph(Schedule *s, const SchedGraph *g, SchedError *e)
{
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    /* Per (stage, microbatch): 1 + the index in the new row of its first pending SEND_F; sends of one action are
     * neighbours. */
    int *first = calloc((size_t)s->stages * (size_t)s->microbatches, sizeof *first);
    unsigned char *proves = calloc((size_t)g->n + 1, 1);
    if (!rows || !first || !proves) {
        free(rows);
        free(first);
        free(proves);
        return sched_nomem(e);
    }
    for (int i = 0; i < g->n; i++)
        proves[i] = (unsigned char)sched_graph_proves(g, g->edge[i].from, g->edge[i].to);
    for (int r = 0; r < s->ranks; r++) {
        const SchedRow *row = &s->row[r];
        SchedRow *out = &rows[r];
        for (int i = 0; i < row->n;) {
            int begin = i, end = sched_cell_end(row, i);
            for (; i < end; i++) {
                const SchedAction *a = &row->a[i];
                if (a->type == SA_SEND_F) {
                    int *f = &first[(size_t)a->stage * (size_t)s->microbatches + (size_t)a->microbatch];
                    if (!*f)
                        *f = out->n + 1;
                }
                sched_push(out, *a);
            }
            for (int k = begin; k < end; k++) {
                const SchedAction *a = &row->a[k];
                if (a->type != SA_B && a->type != SA_I)
                    continue;
                int at = first[(size_t)a->stage * (size_t)s->microbatches + (size_t)a->microbatch] - 1;
                for (int n = out->n;
                     at >= 0 && at < n && out->a[at].stage == a->stage && out->a[at].microbatch == a->microbatch;
                     at++) {
                    int edge = out->a[at].type == SA_SEND_F ? sched_graph_edge(g, a->stage, out->a[at].peer) : -1;
                    if (edge >= 0 && proves[edge]) {
                        sched_push(out, wait_of(&out->a[at]));
                        if (out->cap > 0)
                            out->a[at].unused = 1;
                    }
                }
            }
        }
        for (int i = 0, n = out->n; i < n && i < out->n; i++) {
            if (sched_is_send(out->a[i].type) && !out->a[i].unused)
                sched_push(out, wait_of(&out->a[i]));
            if (i < out->n)
                out->a[i].unused = 0;
        }
    }
    free(first);
    free(proves);
    sched_swap_rows(s, rows);
    return sched_rows_ok(s, e);
}

int sched_wait_send(Schedule *s, SchedError *e)
{
    SchedGraph g;
    int st = sched_graph_of(&g, s, NULL, 0, e);
    if (!st)
        st = sched_wait_send_graph(s, &g, e);
    sched_graph_free(&g);
    return st;
}

/* ---- defer ----
   Every receive is held until its consumer, or until a send to the same, higher rank: of two neighbours the lower one
   receives first and the higher one sends first, so they never both send.  Around a ring of ranks they still may: the
   rule asks for sends that do not wait for their receives (buffers), and sched_lower_for takes it back where the
   verifier refuses it. */

typedef struct {
    const Schedule *s;
    SchedRow *out, held;
    int r;
} Defer;

static void release(Defer *d, int at)
{
    sched_push(d->out, d->held.a[at]);
    d->held.a[at].type = SA_IDLE;
}

static void release_rank(Defer *d, int from)
{
    for (int i = 0; i < d->held.n; i++)
        if (d->held.a[i].type != SA_IDLE && d->s->rank_of[d->held.a[i].peer] == from)
            release(d, i);
}

static void release_for(Defer *d, const SchedAction *a)
{
    int want = a->type == SA_F ? SA_RECV_F : a->type == SA_B || a->type == SA_I ? SA_RECV_B : -1, n = 0;
    for (int i = 0; want >= 0 && i < d->held.n; i++)
        if (d->held.a[i].type == want && d->held.a[i].stage == a->stage && d->held.a[i].microbatch == a->microbatch)
            release(d, i);
    for (int i = 0; i < d->held.n; i++)
        if (d->held.a[i].type != SA_IDLE)
            d->held.a[n++] = d->held.a[i];
    d->held.n = n;
}

static void defer_row(Defer *d, const SchedRow *row)
{
    for (int i = 0; i < row->n;) {
        int end = sched_cell_end(row, i);
        const SchedAction *a = &row->a[i];
        if (sched_is_recv(a->type)) {
            sched_push(&d->held, *a);
            i++;
            continue;
        }
        if (sched_is_send(a->type) && d->r < d->s->rank_of[a->peer])
            release_rank(d, d->s->rank_of[a->peer]);
        if (sched_is_param(a->type))
            release_rank(d, d->s->rank_of[a->peer]);
        for (int k = i; k < end; k++)
            release_for(d, &row->a[k]);
        for (; i < end; i++)
            sched_push(d->out, row->a[i]);
    }
    for (int i = 0; i < d->held.n; i++) /* of receives nobody needs */
        if (d->held.a[i].type != SA_IDLE)
            sched_push(d->out, d->held.a[i]);
}

int sched_defer(Schedule *s, SchedError *e)
{
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int lost = 0;
    if (!rows)
        return sched_nomem(e);
    for (int r = 0; r < s->ranks; r++) {
        Defer d = {s, &rows[r], {NULL, 0, 0}, r};
        defer_row(&d, &s->row[r]);
        lost |= d.held.cap < 0;
        free(d.held.a);
    }
    sched_swap_rows(s, rows);
    return lost ? sched_nomem(e) : sched_rows_ok(s, e);
}

/* ---- lower ---- */

int sched_lower(Schedule *s, int window, SchedError *e)
{
    SchedGraph g;
    int st = sched_graph(&g, s->stages, NULL, 0, NULL, 0, e);
    if (!st && window > 0)
        st = sched_unshard(s, window, e);
    if (!st && !s->infer)
        st = sched_reduce_grad(s, 0, e);
    if (!st)
        st = sched_comms_graph(s, &g, e);
    if (!st)
        st = sched_wait_send_graph(s, &g, e);
    sched_graph_free(&g);
    return st;
}
