/*
 * pass_budget.c - the send budget: at most k sends of a rank are outstanding.
 *
 * In: complete rows with one WAIT_SEND per send.  Out: the same rows, with waits moved forward to
 * just before the send that would be the k+1st.  A wait may move there only if the receive it waits
 * for does not itself need that send: the order graph (rows, sends to receives, receives to what
 * follows their waits) must stay without a cycle.  Waits whose receive is known to be over by then
 * are preferred, the oldest first.  After torch.distributed.pipelining's pass of the same purpose.
 */
#include "graph.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int rank, at;
} Place; /* an action of the original rows */

typedef struct {
    Schedule *s;
    SchedGraph g;
    Place *recv;   /* per message: where it is received */
    Place *before; /* per message: the first action after its wait; at = INT_MAX: none */
    int *low;      /* per rank: the lowest index reached by the search */
    int *scanned;  /* per rank: from here on the row has been looked at */
    SchedError *e;
} Budget;

static int64_t message_of(const Budget *b, const SchedAction *a)
{
    int lane = sched_graph_lane(&b->g, a);
    return lane < 0 ? -1 : sched_graph_message(&b->g, b->s->microbatches, lane, a->microbatch);
}

/* Is there a path from one action to another?  Rows are chains, so what is reached of a row is
 * everything from its lowest index on. */
static int reachable(Budget *b, Place from, Place to)
{
    int moved = 1;
    for (int r = 0; r < b->s->ranks; r++)
        b->low[r] = b->scanned[r] = b->s->row[r].n;
    b->low[from.rank] = from.at;
    while (moved) {
        moved = 0;
        for (int r = 0; r < b->s->ranks; r++) {
            const SchedRow *row = &b->s->row[r];
            for (; b->scanned[r] > b->low[r]; moved = 1) {
                const SchedAction *a = &row->a[--b->scanned[r]];
                if (!sched_is_send(a->type) && !sched_is_recv(a->type))
                    continue;
                int64_t m = message_of(b, a);
                Place next = sched_is_send(a->type) ? b->recv[m] : b->before[m];
                if (next.at < b->low[next.rank])
                    b->low[next.rank] = next.at;
            }
            if (b->low[to.rank] <= to.at)
                return 1;
        }
    }
    return b->low[to.rank] <= to.at;
}

/* 0: would deadlock, 1: safe, but may stall, 2: safe, and the receive is over by then. */
static int classify(Budget *b, int64_t m, Place send)
{
    Place old = b->before[m];
    b->before[m].at = INT_MAX;
    int grade = reachable(b, send, b->recv[m]) ? 0 : reachable(b, b->recv[m], send) ? 2 : 1;
    b->before[m] = old;
    return grade;
}

/* Moves one wait of the pending sends (indices into the row) before the send at i; 0 if none may
 * move. */
static int move_one(Budget *b, int r, int i, int *pending, int *n, unsigned char *moved,
                    SchedRow *out)
{
    const SchedRow *row = &b->s->row[r];
    int pick = -1, best = 0;
    for (int k = 0; k < *n && best < 2; k++) {
        int grade = classify(b, message_of(b, &row->a[pending[k]]), (Place){r, i});
        if (grade > best) {
            best = grade;
            pick = k;
        }
    }
    if (pick < 0)
        return 0;
    int64_t m = message_of(b, &row->a[pending[pick]]);
    b->before[m] = (Place){r, i};
    moved[m] = 1;
    sched_push(out, sched_wait_of(&row->a[pending[pick]]));
    memmove(pending + pick, pending + pick + 1, (size_t)(--*n - pick) * sizeof *pending);
    return 1;
}

static int budget_row(Budget *b, int r, int sends, int *pending, unsigned char *moved,
                      SchedRow *out)
{
    const SchedRow *row = &b->s->row[r];
    int n = 0;
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        if (sched_is_send(a->type)) {
            while (n >= sends)
                if (!move_one(b, r, i, pending, &n, moved, out)) {
                    char text[64];
                    sched_action_text(text, sizeof text, a);
                    return sched_fail(
                        b->e, SCHED_EREFUSED, r, sched_cell(row, i),
                        "rank %d, cell %d (%s): no wait can be moved here without a deadlock; %d "
                        "outstanding sends are too few",
                        r, sched_cell(row, i), text, sends);
                }
            pending[n++] = i;
        } else if (sched_is_wait_send(a->type)) {
            int64_t m = message_of(b, a);
            int k = 0;
            if (moved[m])
                continue;
            while (k < n && message_of(b, &row->a[pending[k]]) != m)
                k++;
            if (k < n)
                memmove(pending + k, pending + k + 1, (size_t)(--n - k) * sizeof *pending);
        }
        sched_push(out, *a);
    }
    return SCHED_OK;
}

/* Where every message is received, and what follows its wait. */
static int locate(Budget *b)
{
    Schedule *s = b->s;
    for (int r = 0; r < s->ranks; r++) {
        Place next = {r, INT_MAX};
        for (int i = s->row[r].n; i-- > 0;) {
            const SchedAction *a = &s->row[r].a[i];
            int comm =
                sched_is_send(a->type) || sched_is_recv(a->type) || sched_is_wait_send(a->type);
            int64_t m = comm ? message_of(b, a) : -1;
            if (comm && m < 0)
                return sched_fail(b->e, SCHED_EREFUSED, r, sched_cell(&s->row[r], i),
                                  "rank %d, cell %d: a message along no edge", r,
                                  sched_cell(&s->row[r], i));
            if (sched_is_wait_send(a->type))
                b->before[m] = next;
            else
                next.at = i;
            if (sched_is_recv(a->type))
                b->recv[m] = (Place){r, i};
        }
    }
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++)
            if (sched_is_send(s->row[r].a[i].type) &&
                b->recv[message_of(b, &s->row[r].a[i])].at < 0) {
                char text[64];
                sched_action_text(text, sizeof text, &s->row[r].a[i]);
                return sched_fail(b->e, SCHED_EREFUSED, r, sched_cell(&s->row[r], i),
                                  "rank %d, cell %d (%s): nobody receives this", r,
                                  sched_cell(&s->row[r], i), text);
            }
    return SCHED_OK;
}

int sched_budget(Schedule *s, int sends, SchedError *e)
{
    Budget b = {s, {0}, NULL, NULL, NULL, NULL, e};
    int st = sched_graph_of(&b.g, s, NULL, 0, e), longest = 0;
    if (st)
        return st;
    size_t n = sched_graph_messages(&b.g, s->microbatches);
    for (int r = 0; r < s->ranks; r++)
        longest = s->row[r].n > longest ? s->row[r].n : longest;
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int *pending = malloc(((size_t)longest + 1) * sizeof *pending);
    unsigned char *moved = calloc(n, 1);
    b.recv = malloc(n * sizeof *b.recv);
    b.before = malloc(n * sizeof *b.before);
    b.low = malloc((size_t)s->ranks * sizeof *b.low);
    b.scanned = malloc((size_t)s->ranks * sizeof *b.scanned);
    if (!rows || !pending || !moved || !b.recv || !b.before || !b.low || !b.scanned)
        st = sched_nomem(e);
    else if (sends < 1)
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "a budget of %d sends lets nothing be sent",
                        sends);
    for (size_t i = 0; !st && i < n; i++) {
        b.recv[i] = (Place){0, -1};
        b.before[i] = (Place){0, INT_MAX};
    }
    if (!st)
        st = locate(&b);
    for (int r = 0; !st && r < s->ranks; r++)
        st = budget_row(&b, r, sends, pending, moved, &rows[r]);
    free(pending);
    free(moved);
    free(b.recv);
    free(b.before);
    free(b.low);
    free(b.scanned);
    sched_graph_free(&b.g);
    if (st) {
        sched_free_rows(rows, rows ? s->ranks : 0);
        return st;
    }
    sched_swap_rows(s, rows);
    return sched_rows_ok(s, e);
}
