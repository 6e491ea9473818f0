/*
 * verify.c - the verifier: does this complete schedule run to its end?
 *
 * In: complete rows, the graph, the number of buffers per directed edge (0 = rendezvous).  Out: ok,
 * or a refusal with the blocked state.  Every rank executes its row in order; which rank goes first
 * does not matter, because what one rank's step makes possible no other step takes away (the runs
 * are confluent: a Kahn process network with bounded channels), so one run proves all. A rank that
 * cannot go on is looked at again only when its peer has moved: linear in the actions, in time and
 * in memory.
 */
#include "verify.h"

/* Both heads must be the two ends of the same message. */
static int rendezvous(Verify *v, int r, const SchedAction *a)
{
    int q = v->s->rank_of[a->peer], lane, peer_lane;
    const SchedRow *row = &v->s->row[q];
    int64_t m = verify_message(v, a, &lane);
    if (v->turn.cursor[q] >= row->n)
        return 0;
    const SchedAction *b = &row->a[v->turn.cursor[q]];
    if (sched_sends(a->type) ? !sched_receives(b->type) : !sched_sends(b->type))
        return 0;
    if (verify_message(v, b, &peer_lane) != m || peer_lane != lane)
        return 0;
    v->seq[m] = v->sent[lane]++;
    v->received[lane]++;
    v->turn.cursor[r]++;
    v->turn.cursor[q]++;
    sched_wake(&v->turn, q);
    return 1;
}

/* One action of a rank; 0 if it must wait. */
static int step(void *of, int r)
{
    Verify *v = of;
    const SchedAction *a = &v->s->row[r].a[v->turn.cursor[r]];
    int lane;
    int64_t m;
    if (a->type == SA_REDUCE_GRAD) {
        int group = v->g->group[a->stage];
        if (++v->begun[group] == v->members[group])
            for (int k = group; v->members[group] > 1 && k < v->s->stages; k++)
                if (v->g->group[k] == group)
                    sched_wake(&v->turn, v->s->rank_of[k]);
    } else if (a->type == SA_WAIT_REDUCE_GRAD) {
        int group = v->g->group[a->stage];
        if (v->begun[group] < v->members[group])
            return 0;
    } else if (sched_has_peer(a->type)) {
        if (v->buffers == 0)
            return sched_is_wait_send(a->type) ? ++v->turn.cursor[r] > 0 : rendezvous(v, r, a);
        m = verify_message(v, a, &lane);
        if (sched_sends(a->type)) {
            if (v->sent[lane] - v->received[lane] >= v->buffers)
                return 0;
            v->seq[m] = v->sent[lane]++;
        } else if (sched_receives(a->type)) {
            if (v->seq[m] != v->received[lane]) /* not sent yet (-1), or not first */
                return 0;
            v->received[lane]++;
        } else if (v->received[lane] <= v->seq[m]) {
            return 0;
        }
        if (!sched_is_wait_send(a->type))
            sched_wake(&v->turn, v->s->rank_of[a->peer]);
    }
    v->turn.cursor[r]++;
    return 1;
}

/* With buffers a message that nobody receives blocks nobody, and is wrong all the same. */
static int check_received(const Verify *v)
{
    for (int r = 0; v->buffers > 0 && r < v->s->ranks; r++)
        for (int i = 0; i < v->s->row[r].n; i++) {
            const SchedAction *a = &v->s->row[r].a[i];
            int lane;
            if (!sched_sends(a->type))
                continue;
            int64_t m = verify_message(v, a, &lane);
            if (v->seq[m] >= v->received[lane])
                return sched_refuse(v->e, v->s, r, i, "nobody receives this");
        }
    return SCHED_OK;
}

/* Where the two ends post each message of shared parameters: per lane, from 1, in the sender's and
 * the receiver's row.  Copies' gradients go to the owner with REDUCE_GRAD, the sum comes back with
 * WAIT_REDUCE_GRAD. */
static void find_posts(const Verify *v, int (*post)[2])
{
    for (int r = 0; r < v->s->ranks; r++)
        for (int i = 0; i < v->s->row[r].n; i++) {
            const SchedAction *a = &v->s->row[r].a[i];
            const int back = a->type == SA_REDUCE_GRAD;
            if (sched_is_param(a->type))
                post[sched_graph_lane(v->g, a) - 2 * v->g->n][sched_receives(a->type)] = i + 1;
            for (int k = 0; k < v->g->n_param && (back || a->type == SA_WAIT_REDUCE_GRAD); k++) {
                const SchedParam *q = &v->g->param[k];
                if (q->replicate && (q->from == a->stage || q->to == a->stage))
                    post[2 * k + back][back == (q->from == a->stage)] = i + 1;
            }
        }
}

/* A transport may have one FIFO for all that a stage sends another of parameters. */
static int check_shared(Verify *v)
{
    const int lanes = 2 * v->g->n_param;
    int(*post)[2] = sched_room(&v->room, (size_t)lanes, sizeof *post);
    if (!post)
        return sched_nomem(v->e);
    find_posts(v, post);
    for (int x = 0; x < lanes; x++)
        for (int y = 0; y < lanes; y++) {
            const SchedParam *p = &v->g->param[x / 2], *q = &v->g->param[y / 2];
            const int from = x % 2 ? p->to : p->from, to = x % 2 ? p->from : p->to;
            const int r = v->s->rank_of[to];
            char first[64];
            if (from != (y % 2 ? q->to : q->from) || to != (y % 2 ? q->from : q->to) ||
                r == v->s->rank_of[from] || !post[x][0] || post[x][0] >= post[y][0] ||
                !post[y][1] || post[x][1] <= post[y][1])
                continue;
            sched_action_text(first, sizeof first, &v->s->row[r].a[post[y][1] - 1]);
            return sched_refuse(v->e, v->s, r, post[x][1] - 1,
                                "what it receives of stage %d's parameters is sent before what %s "
                                "receives, which stands before it in this row",
                                from, first);
        }
    return SCHED_OK;
}

static int allocate(Verify *v)
{
    size_t lanes = (size_t)sched_graph_lanes(v->g),
           n = sched_graph_messages(v->g, v->s->microbatches), S = (size_t)v->s->stages;
    sched_turns(&v->turn, v->s->ranks, &v->room);
    v->sent = sched_room(&v->room, lanes, sizeof *v->sent);
    v->received = sched_room(&v->room, lanes, sizeof *v->received);
    v->seq = sched_room(&v->room, n, sizeof *v->seq);
    v->begun = sched_room(&v->room, S, sizeof *v->begun);
    v->members = sched_room(&v->room, S, sizeof *v->members);
    if (v->room.lost)
        return sched_nomem(v->e);
    for (size_t i = 0; i < n; i++)
        v->seq[i] = -1;
    for (int k = 0; k < v->s->stages; k++)
        v->members[v->g->group[k]]++;
    return SCHED_OK;
}

/* A rank executes its row in order.  With buffers = 0 a SEND and its RECV are a rendezvous: both
   ranks wait until each is at the head.  With k > 0 a SEND waits while k messages of its directed
   edge (stage to stage) are not yet received, and a RECV waits for its message.  Messages of a
   directed edge are one FIFO: a RECV that meets another message at its head is refused; and so are
   those of the parameters that two stages share, in either direction.  WAIT_SEND waits until that
   message is received; WAIT_REDUCE_GRAD until all REDUCE_GRADs of its replica set have begun.
   Whatever finishes here finishes with any more asynchronous transport that keeps each edge's
   order. */
int sched_verify_graph(const Schedule *s, const SchedGraph *g, int buffers, SchedError *e)
{
    Verify v = {0};
    int st = sched_validate(s, e);
    v.s = s;
    v.g = g;
    v.buffers = buffers;
    v.e = e;
    if (!st && buffers < 0)
        st = sched_fail(e, SCHED_EUSAGE, -1, -1, "a number of buffers cannot be negative");
    if (!st)
        st = sched_check_rows(s, g, e);
    if (!st)
        st = allocate(&v);
    if (!st && sched_run(&v.turn, s, step, &v) >= 0)
        st = sched_blocked(&v);
    if (!st)
        st = check_received(&v);
    if (!st)
        st = check_shared(&v);
    pool_free(&v.room);
    return st;
}

int sched_verify(const Schedule *s, const SchedEdge *edge, int n_edge, const SchedParam *param,
                 int n_param, int buffers, SchedError *e)
{
    SchedGraph g;
    int st = sched_graph_of(&g, s, edge, n_edge, param, n_param, e);
    if (!st)
        st = sched_verify_graph(s, &g, buffers, e);
    sched_graph_free(&g);
    return st;
}
