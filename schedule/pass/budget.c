/*
 * budget.c - the send budget: at most k sends of a rank are outstanding.
 *
 * In: complete rows with one WAIT_SEND per send.  Out: the same rows, with waits moved forward to
 * just before the send that would be the k+1st.  A wait may move there only if the receive it waits
 * for does not itself need that send: the order graph (rows, sends to receives, receives to what
 * follows their waits) must stay without a cycle.  Waits whose receive is known to be over by then
 * are preferred, the oldest first.  After torch.distributed.pipelining's pass of the same purpose.
 *
 * Whether one action leads to another is searched for; a topological order of the actions, kept up
 * to date while waits move, bounds the search to what lies between the two.
 */
#include "schedule/graph.h"

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
    int *when;     /* per action, row after row: greater than that of whatever comes before it */
    int *start;    /* per rank: where its row begins in `when` */
    int ordered;   /* the rows run to their end: `when` is filled in */
    int *pending;  /* of the row at work: sends not waited for */
    unsigned char *moved; /* per message: its wait has moved */
    int *raised, *last;   /* per rank: the first and the last action whose `when` has grown */
    SchedRoom room;
    SchedError *e;
} Budget;

static int64_t message_of(const Budget *b, const SchedAction *a)
{
    int lane = sched_graph_lane(&b->g, a);
    return lane < 0 ? -1 : sched_graph_message(&b->g, b->s->microbatches, lane, a->microbatch);
}

/* ---- when: a topological order, kept while waits move ---- */

static int *when(const Budget *b, Place p) { return &b->when[b->start[p.rank] + p.at]; }

/* Each rank goes on while it can: a receive needs its send, a wait its receive. */
static int order_row(Budget *b, int r, int *cursor, int *time, int *sent)
{
    const SchedRow *row = &b->s->row[r];
    int begin = *cursor;
    for (; *cursor < row->n; ++*cursor) {
        const SchedAction *a = &row->a[*cursor];
        int recv = sched_is_recv(a->type), wait = sched_is_wait_send(a->type), need = 0;
        int64_t m = recv || wait || sched_is_send(a->type) ? message_of(b, a) : -1;
        if (recv)
            need = sent[m];
        else if (wait && b->recv[m].at >= 0)
            need = *when(b, b->recv[m]);
        if ((recv || wait) && need == 0)
            break;
        *time = (need > *time ? need : *time) + 1;
        b->when[b->start[r] + *cursor] = *time;
        if (sched_is_send(a->type))
            sent[m] = *time;
    }
    return *cursor > begin;
}

static int order(Budget *b)
{
    size_t ranks = (size_t)b->s->ranks;
    SchedRoom room = {0};
    int *cursor = sched_room(&room, ranks * 2, sizeof *cursor),
        *sent = sched_room(&room, sched_graph_messages(&b->g, b->s->microbatches), sizeof *sent),
        ok = !room.lost;
    for (int progress = ok; progress;) {
        progress = 0;
        for (int r = 0; r < b->s->ranks; r++)
            progress |= order_row(b, r, &cursor[r], &cursor[ranks + (size_t)r], sent);
    }
    b->ordered = ok;
    for (int r = 0; ok && r < b->s->ranks; r++)
        b->ordered &= cursor[r] == b->s->row[r].n;
    sched_room_free(&room);
    return ok ? SCHED_OK : sched_nomem(b->e);
}

/* Action p comes after `time` now. */
static void raise_to(Budget *b, Place p, int time)
{
    if (p.at == INT_MAX || *when(b, p) > time)
        return;
    *when(b, p) = time + 1;
    b->raised[p.rank] = p.at < b->raised[p.rank] ? p.at : b->raised[p.rank];
    b->last[p.rank] = p.at > b->last[p.rank] ? p.at : b->last[p.rank];
}

/* What has been raised raises what comes after it. */
static void settle_row(Budget *b, int r)
{
    const SchedRow *row = &b->s->row[r];
    int *time = &b->when[b->start[r]], i = b->raised[r];
    b->raised[r] = INT_MAX;
    for (; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        int send = sched_is_send(a->type);
        if (send || sched_is_recv(a->type)) {
            int64_t m = message_of(b, a);
            raise_to(b, send ? b->recv[m] : b->before[m], time[i]);
        }
        if (i + 1 < row->n && time[i + 1] <= time[i])
            time[i + 1] = time[i] + 1;
        else if (i >= b->last[r])
            break;
    }
    if (b->raised[r] == INT_MAX)
        b->last[r] = -1;
}

static void settle(Budget *b)
{
    for (int moved = 1; moved;) {
        moved = 0;
        for (int r = 0; r < b->s->ranks; r++)
            for (; b->raised[r] != INT_MAX; moved = 1)
                settle_row(b, r);
    }
}

/* How many actions of a row may come before `time`. */
static int before_time(const Budget *b, int r, int time)
{
    int lo = 0, hi = b->s->row[r].n;
    while (b->ordered && lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (b->when[b->start[r] + mid] < time)
            lo = mid + 1;
        else
            hi = mid;
    }
    return hi;
}

/* Is there a path from one action to another?  Rows are chains, so what is reached of a row is
   everything from its lowest index on; what comes later than the target leads nowhere. */
static int reachable(Budget *b, Place from, Place to)
{
    int moved = 1, until = *when(b, to);
    for (int r = 0; r < b->s->ranks; r++) {
        b->low[r] = b->s->row[r].n;
        b->scanned[r] = before_time(b, r, until);
    }
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
static int move_one(Budget *b, int r, int i, int *n, SchedRow *out)
{
    int *pending = b->pending;
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
    if (b->ordered) {
        raise_to(b, b->before[m], *when(b, b->recv[m]));
        settle(b);
    }
    b->moved[m] = 1;
    sched_push(out, sched_wait_of(&row->a[pending[pick]]));
    memmove(pending + pick, pending + pick + 1, (size_t)(--*n - pick) * sizeof *pending);
    return 1;
}

static int budget_row(Budget *b, int r, int sends, SchedRow *out)
{
    int *pending = b->pending;
    const SchedRow *row = &b->s->row[r];
    int n = 0;
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        if (sched_is_send(a->type)) {
            while (n >= sends)
                if (!move_one(b, r, i, &n, out))
                    return sched_refuse(b->e, b->s, r, i,
                                        "no wait can be moved here without a deadlock; %d "
                                        "outstanding sends are too few",
                                        sends);
            pending[n++] = i;
        } else if (sched_is_wait_send(a->type)) {
            int64_t m = message_of(b, a);
            int k = 0;
            if (b->moved[m])
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
                                  "rank %d, cell %d: a message between stages without an edge", r,
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
                b->recv[message_of(b, &s->row[r].a[i])].at < 0)
                return sched_refuse(b->e, s, r, i, "nobody receives this");
    return SCHED_OK;
}

static int allocate(Budget *b)
{
    const Schedule *s = b->s;
    size_t n = sched_graph_messages(&b->g, s->microbatches), ranks = (size_t)s->ranks, actions = 0;
    for (size_t r = 0; r < ranks; r++)
        actions += (size_t)s->row[r].n;
    if (actions >= SCHED_MAX_CELLS)
        return sched_nomem(b->e);
    SchedRoom *room = &b->room;
    b->recv = sched_room(room, n, sizeof *b->recv);
    b->before = sched_room(room, n, sizeof *b->before);
    b->moved = sched_room(room, n, 1);
    b->low = sched_room(room, ranks, sizeof *b->low);
    b->scanned = sched_room(room, ranks, sizeof *b->scanned);
    b->start = sched_room(room, ranks, sizeof *b->start);
    b->raised = sched_room(room, ranks, sizeof *b->raised);
    b->last = sched_room(room, ranks, sizeof *b->last);
    b->when = sched_room(room, actions, sizeof *b->when);
    b->pending = sched_room(room, actions, sizeof *b->pending);
    if (room->lost)
        return sched_nomem(b->e);
    for (size_t i = 0; i < n; i++) {
        b->recv[i] = (Place){0, -1};
        b->before[i] = (Place){0, INT_MAX};
    }
    for (int r = 0, at = 0; r < s->ranks; at += s->row[r++].n) {
        b->start[r] = at;
        b->raised[r] = INT_MAX;
        b->last[r] = -1;
    }
    return SCHED_OK;
}

int sched_budget(Schedule *s, int sends, SchedError *e)
{
    Budget b = {.s = s, .e = e};
    if (sends < 1)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "a budget of %d sends allows no send", sends);
    int st = sched_graph_of(&b.g, s, NULL, 0, e);
    if (st)
        return st;
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    st = rows ? allocate(&b) : sched_nomem(e);
    if (!st)
        st = locate(&b);
    if (!st)
        st = order(&b);
    for (int r = 0; !st && r < s->ranks; r++)
        st = budget_row(&b, r, sends, &rows[r]);
    sched_room_free(&b.room);
    sched_graph_free(&b.g);
    return sched_take_rows(s, rows, st, e);
}
