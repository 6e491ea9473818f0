/*
 * budget.c - the send budget: at most k sends of a rank are outstanding.
 *
 * In: complete rows with one WAIT_SEND per send.  Out: the same rows; before a send that would be
 * the k+1st stands the wait for the oldest one that has been received.  The rows are run, each rank
 * as far as it comes: a receive needs its send, a wait its receive, and such a send one of those
 * before it received.  What is received in such a run can be waited for there, so the rows still
 * run to their end; and where the run cannot go on no other can, for what one rank does takes
 * nothing from another.  After torch.distributed.pipelining's pass of the same purpose.
 */
#include "schedule/graph.h"

#include <stdlib.h>
#include <string.h>

enum { SENT = 1, RECEIVED = 2, WAITED = 4 };

typedef struct {
    const Schedule *s;
    SchedGraph g;
    int sends;            /* k */
    unsigned char *state; /* per message */
    int **pending, *n; /* per rank: its outstanding sends, indices of its row, the oldest first */
    SchedRow *out;
    SchedTurns turn;
    Pool room;
} Budget;

/* NULL: no message, or along no edge. */
static unsigned char *state_of(const Budget *b, const SchedAction *a)
{
    const int lane = sched_is_param(a->type) ? -1 : sched_graph_lane(&b->g, a);
    return lane < 0
               ? NULL
               : &b->state[sched_graph_message(&b->g, b->s->microbatches, lane, a->microbatch)];
}

/* Waits for an outstanding send that has been received, that of `m` or (NULL) the oldest; 0: there
   is none. */
static int wait_for(Budget *b, int r, const unsigned char *m)
{
    for (int k = 0; k < b->n[r]; k++) {
        int *at = &b->pending[r][k];
        const SchedAction *send = &b->s->row[r].a[*at];
        unsigned char *state = state_of(b, send);
        if (!(*state & RECEIVED) || (m && m != state))
            continue;
        *state |= WAITED;
        sched_push(&b->out[r], sched_wait_of(send));
        memmove(at, at + 1, (size_t)(--b->n[r] - k) * sizeof *at);
        return 1;
    }
    return 0;
}

/* The next action of a rank; 0: not yet. */
static int step(void *of, int r)
{
    Budget *b = of;
    const SchedAction *a = &b->s->row[r].a[b->turn.cursor[r]];
    unsigned char *m = state_of(b, a);
    const int send = sched_is_send(a->type), recv = sched_is_recv(a->type),
              wait = sched_is_wait_send(a->type);
    if ((send || recv || wait) && !m)
        return 0;
    if ((recv && !(*m & SENT)) || (send && b->n[r] >= b->sends && !wait_for(b, r, NULL)) ||
        (wait && !(*m & WAITED) && !wait_for(b, r, m)))
        return 0;
    if (send)
        b->pending[r][b->n[r]++] = b->turn.cursor[r];
    if (send || recv) {
        *m |= send ? SENT : RECEIVED;
        sched_wake(&b->turn, b->s->rank_of[a->peer]);
    }
    if (!wait)
        sched_push(&b->out[r], *a);
    b->turn.cursor[r]++;
    return 1;
}

static int run(Budget *b, SchedError *e)
{
    const int r = sched_run(&b->turn, b->s, step, b);
    return r < 0 ? SCHED_OK
                 : sched_refuse(e, b->s, r, b->turn.cursor[r],
                                "no wait can be moved so that this comes: %d outstanding sends are "
                                "too few, or the rows wait for one another",
                                b->sends);
}

int sched_budget(Schedule *s, int sends, SchedError *e)
{
    Budget b = {.s = s, .sends = sends};
    if (sends < 1)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "a budget of %d sends allows no send", sends);
    int st = sched_graph_of(&b.g, s, NULL, 0, NULL, 0, e);
    if (st)
        return st;
    const size_t ranks = (size_t)s->ranks;
    b.out = calloc(ranks, sizeof *b.out);
    b.state = sched_room(&b.room, sched_graph_messages(&b.g, s->microbatches), 1);
    b.pending = sched_room(&b.room, ranks, sizeof *b.pending);
    b.n = sched_room(&b.room, ranks, sizeof *b.n);
    sched_turns(&b.turn, s->ranks, &b.room);
    for (size_t r = 0; b.pending && r < ranks; r++)
        b.pending[r] = sched_room(&b.room, (size_t)s->row[r].n, sizeof **b.pending);
    st = b.out && !b.room.lost ? run(&b, e) : sched_nomem(e);
    pool_free(&b.room);
    sched_graph_free(&b.g);
    return sched_take_rows(s, b.out, st, e);
}
