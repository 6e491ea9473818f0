/*
 * blocked.c - the report of a schedule that deadlocks.
 *
 * In: a run of verify.c that cannot go on.  Out: the cycle of waits (or the rank that waits for
 * something that never comes), and how far the ranks came.  A blocked rank waits for exactly one
 * other, so the waits are a function, and its shortest cycle is the reason.
 */
#include "verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHOWN = 12, NEVER = -1, FINISHED = -2 };

typedef struct {
    Verify *v;
    int *waits;          /* per rank: the rank it waits for, NEVER or FINISHED */
    int *mark;           /* per rank: from where find_cycle() came to it */
    int *shown, n_shown;
    int32_t *send_at, *recv_at; /* per message: its index in the sender's, the receiver's row; -1 */
    char text[sizeof((SchedError *)0)->text];
    size_t n;
    Pool room;
} Blocked;

static void say(Blocked *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(Blocked *b, const char *fmt, ...)
{
    va_list ap;
    if (b->n + 1 >= sizeof b->text)
        return;
    va_start(ap, fmt);
    int n = vsnprintf(b->text + b->n, sizeof b->text - b->n, fmt, ap);
    va_end(ap);
    b->n += n > 0 ? (size_t)n : 0;
    if (b->n >= sizeof b->text)
        b->n = sizeof b->text - 1;
}

static const SchedAction *head(const Blocked *b, int r)
{
    return &b->v->s->row[r].a[b->v->turn.cursor[r]];
}

/* The index, in the peer's row, of the other end of the message of action a; -1: there is none. */
static int other_end(const Blocked *b, const SchedAction *a)
{
    int lane;
    int64_t m = verify_message(b->v, a, &lane);
    return sched_receives(a->type) ? b->send_at[m] : b->recv_at[m];
}

static int locate(Blocked *b)
{
    const Verify *v = b->v;
    size_t n = sched_graph_messages(v->g, v->s->microbatches), ranks = (size_t)v->s->ranks;
    b->send_at = sched_room(&b->room, n, sizeof *b->send_at);
    b->recv_at = sched_room(&b->room, n, sizeof *b->recv_at);
    b->waits = sched_room(&b->room, ranks, sizeof *b->waits);
    b->mark = sched_room(&b->room, ranks, sizeof *b->mark);
    b->shown = sched_room(&b->room, ranks, sizeof *b->shown);
    if (b->room.lost)
        return sched_nomem(v->e);
    for (size_t m = 0; m < n; m++)
        b->send_at[m] = b->recv_at[m] = -1;
    for (int r = 0; r < v->s->ranks; r++)
        for (int i = 0; i < v->s->row[r].n; i++) {
            const SchedAction *a = &v->s->row[r].a[i];
            int lane;
            if (sched_receives(a->type))
                b->recv_at[verify_message(v, a, &lane)] = i;
            else if (sched_sends(a->type))
                b->send_at[verify_message(v, a, &lane)] = i;
        }
    return SCHED_OK;
}

/* With buffers: the index in row q of the sent message that stands first on the lane, when it is
 * not the one r wants.
 */
static int in_front(const Blocked *b, int q, const SchedAction *a)
{
    const Verify *v = b->v;
    int lane, lane2;
    int64_t m = verify_message(v, a, &lane);
    if (v->buffers == 0 || !sched_receives(a->type) || v->sent[lane] == v->received[lane] ||
        v->seq[m] == v->received[lane])
        return -1;
    for (int i = 0; i < v->turn.cursor[q]; i++)
        if (sched_sends(v->s->row[q].a[i].type)) {
            int64_t x = verify_message(v, &v->s->row[q].a[i], &lane2);
            if (lane2 == lane && v->seq[x] == v->received[lane])
                return i;
        }
    return -1;
}

static int awaited(const Blocked *b, int r)
{
    const Verify *v = b->v;
    if (v->turn.cursor[r] >= v->s->row[r].n)
        return FINISHED;
    const SchedAction *a = head(b, r);
    if (a->type == SA_WAIT_REDUCE_GRAD) {
        int group = v->g->group[a->stage];
        for (int k = group; k < v->s->stages; k++)
            if (v->g->group[k] == group) {
                int q = v->s->rank_of[k], found = -1;
                for (int i = 0; i < v->s->row[q].n; i++)
                    if (v->s->row[q].a[i].type == SA_REDUCE_GRAD && v->s->row[q].a[i].stage == k)
                        found = i;
                if (found >= v->turn.cursor[q])
                    return q;
            }
        return NEVER;
    }
    int q = v->s->rank_of[a->peer];
    return in_front(b, q, a) >= 0 || other_end(b, a) < 0 ? NEVER : q;
}

/* Puts the ranks of the shortest cycle into b->shown; none: of the first rank that waits in vain.
 */
static void find_cycle(Blocked *b)
{
    int ranks = b->v->s->ranks, best = ranks + 1, *mark = b->mark;
    for (int r = 0; r < ranks; r++)
        mark[r] = -1;
    for (int r = 0; r < ranks; r++) {
        int at = r, len = 0, turn = r;
        while (at >= 0 && mark[at] < 0) {
            mark[at] = r;
            at = b->waits[at];
        }
        if (at < 0 || mark[at] != r)
            continue;
        turn = at;
        do {
            len++;
            turn = b->waits[turn];
        } while (turn != at);
        if (len < best) {
            best = len;
            for (b->n_shown = 0; b->n_shown < len; turn = b->waits[turn])
                b->shown[b->n_shown++] = turn;
        }
    }
    for (int r = 0; b->n_shown == 0 && r < ranks; r++)
        if (b->waits[r] == NEVER)
            b->shown[b->n_shown++] = r;
    for (int r = 0; b->n_shown == 0 && r < ranks; r++) /* its peer has ended */
        if (b->waits[r] >= 0)
            b->shown[b->n_shown++] = r;
}

static void say_action(Blocked *b, int r, int i)
{
    char text[64];
    sched_action_text(text, sizeof text, &b->v->s->row[r].a[i]);
    say(b, " %s", text);
}

static void say_rank(Blocked *b, int r)
{
    const SchedRow *row = &b->v->s->row[r];
    int at = b->v->turn.cursor[r], first = at > 4 ? at - 4 : 0;
    say(b, "\n  rank %-3d |%s", r, first > 0 ? " .." : "");
    for (int i = first; i < at; i++)
        say_action(b, r, i);
    say(b, at < row->n ? " | ->" : " |   ");
    for (int i = at; i < row->n && i < at + 3; i++)
        say_action(b, r, i);
    say(b, "%s", at + 3 < row->n ? " .." : "");
}

static void say_reason(Blocked *b, int r)
{
    const Verify *v = b->v;
    const SchedAction *a = head(b, r);
    char text[64], other[64];
    sched_action_text(text, sizeof text, a);
    say(b, "\n  rank %d, cell %d (%s): ", r, sched_cell(&v->s->row[r], v->turn.cursor[r]), text);
    if (a->type == SA_WAIT_REDUCE_GRAD) {
        say(b,
            b->waits[r] >= 0 ? "rank %d has not begun its part of the sum"
                             : "a part of the sum never begins",
            b->waits[r]);
        return;
    }
    int q = v->s->rank_of[a->peer], at = other_end(b, a), front = in_front(b, q, a);
    const char *what = sched_receives(a->type) ? "sends" : "receives";
    if (front >= 0) {
        sched_action_text(other, sizeof other, &v->s->row[q].a[front]);
        say(b, "rank %d sent %s before it, which must be received first", q, other);
    } else if (at < 0) {
        say(b, "rank %d never %s it", q, what);
    } else {
        sched_action_text(other, sizeof other, &v->s->row[q].a[at]);
        say(b, "rank %d %s it at cell %d (%s)", q, what, sched_cell(&v->s->row[q], at), other);
        if (v->turn.cursor[q] < v->s->row[q].n) {
            sched_action_text(other, sizeof other, head(b, q));
            say(b, ", but waits at cell %d (%s)", sched_cell(&v->s->row[q], v->turn.cursor[q]), other);
        }
        if (sched_sends(a->type) && v->buffers > 0)
            say(b, "; all %d buffers are full", v->buffers);
    }
}

static int report(Blocked *b)
{
    const Verify *v = b->v;
    int r0 = b->shown[0], cycle = b->waits[r0] >= 0;
    say(b, "deadlock%s: ", v->buffers ? "" : " (rendezvous)");
    if (cycle && b->n_shown > 1) {
        for (int i = 0; i < b->n_shown && i < MAX_SHOWN; i++)
            say(b, "rank %d waits for ", b->shown[i]);
        say(b, b->n_shown > MAX_SHOWN ? ".. rank %d" : "rank %d", r0);
    } else {
        say(b, "rank %d waits for what never comes", r0);
    }
    for (int i = 0; i < b->n_shown && i < MAX_SHOWN; i++)
        say_reason(b, b->shown[i]);
    say(b, "\n the ranks there (done | next):");
    if (v->s->ranks <= MAX_SHOWN)
        for (int r = 0; r < v->s->ranks; r++)
            say_rank(b, r);
    else
        for (int i = 0; i < b->n_shown && i < MAX_SHOWN; i++)
            say_rank(b, b->shown[i]);
    int cell = sched_cell(&v->s->row[r0], v->turn.cursor[r0]);
    return sched_fail(v->e, SCHED_EREFUSED, r0, cell, "%s", b->text);
}

int sched_blocked(Verify *v)
{
    Blocked *b = calloc(1, sizeof *b);
    if (!b)
        return sched_nomem(v->e);
    b->v = v;
    int st = locate(b);
    if (!st) {
        for (int r = 0; r < v->s->ranks; r++)
            b->waits[r] = awaited(b, r);
        find_cycle(b);
        st = report(b);
    }
    pool_free(&b->room);
    free(b);
    return st;
}
