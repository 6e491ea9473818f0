/*
 * early_waits.c - a pass after wait_send: every wait goes to the first place where it costs
 * nothing, so that the sent tensor's memory is free again early.
 *
 * In: complete rows.  Out: the same rows, each WAIT_SEND right after the first computation whose
 * past holds the computation that consumed the message on the other rank; waits of which none holds
 * it stay at the end. Happened-before is kept with vector clocks (Fidge 1988, Mattern 1989): per
 * rank, how far each other rank is known to be; a message carries its sender's clock, and the
 * computation that consumes it merges the clock into its rank's.
 */
#include "base/file/memory.h"
#include "schedule/graph.h"

#include <stdlib.h>
#include <string.h>

/* Beyond so many the waits stay where they are: only memory is lost. */
enum { MOST_CLOCKS = 1 << 26 };

/* A send that is not waited for yet: its index in the old row, and the index in the peer's row of
   the computation that consumes the message. */
typedef struct {
    int at, consumed;
} Sent;

/* Those of a rank to one peer, from `first` on, in the order in which they are consumed. */
typedef struct {
    int first, n;
    Sent *a;
} Sends;

typedef struct {
    Schedule *s;
    const SchedGraph *g;
    SchedRow *out;
    int *position[2]; /* per (stage, microbatch): index of F, of B or I, in its row */
    int *clock;       /* [rank][rank] */
    int *carried;     /* [message][rank] */
    unsigned char *sent;
    SchedTurns turn;
    Sends *to;   /* [rank][peer] */
    int *closed; /* indices of sends, while their waits are placed */
    Pool room;
} Early;

static int *clock_of(const Early *e, int rank)
{
    return &e->clock[(size_t)rank * (size_t)e->s->ranks];
}

static int *carried(const Early *e, int64_t message)
{
    return &e->carried[(size_t)message * (size_t)e->s->ranks];
}

static void merge(const Early *e, int *into, const int *from)
{
    for (int k = 0; k < e->s->ranks; k++)
        into[k] = from[k] > into[k] ? from[k] : into[k];
}

/* Messages that a computation consumes: 0 if one of them is not sent yet; `take` merges their
 * clocks. */
static int consume(const Early *e, int r, const SchedAction *a, int take)
{
    for (SchedNeed n = sched_needs(e->g, a->type, a->stage); sched_next(e->g, &n);) {
        if (e->s->rank_of[n.stage] == r)
            continue;
        int64_t m = sched_graph_message(e->g, e->s->microbatches, n.lane, a->microbatch);
        if (!e->sent[m])
            return 0;
        if (take)
            merge(e, clock_of(e, r), carried(e, m));
    }
    return 1;
}

static Sends *sends_to(const Early *e, int r, int peer)
{
    return &e->to[(size_t)r * (size_t)e->s->ranks + (size_t)peer];
}

/* Most are consumed in the order in which they are sent. */
static int add_send(Sends *s, Sent x)
{
    if (!memory_added(&s->a, &s->n, sizeof *s->a))
        return 0;
    int i = s->n - 1;
    for (; i > s->first && s->a[i - 1].consumed > x.consumed; i--)
        s->a[i] = s->a[i - 1];
    s->a[i] = x;
    return 1;
}

static int ascending(const void *x, const void *y)
{
    const int *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

/* Waits for the sends that rank r now knows to be consumed, or for all; in the sends' order. */
static void close_sends(Early *e, int r, int all)
{
    int n = 0;
    for (int peer = 0; peer < e->s->ranks; peer++) {
        Sends *to = sends_to(e, r, peer);
        while (to->first < to->n && (all || clock_of(e, r)[peer] > to->a[to->first].consumed))
            e->closed[n++] = to->a[to->first++].at;
    }
    if (n > 1)
        qsort(e->closed, (size_t)n, sizeof *e->closed, ascending);
    for (int k = 0; k < n; k++)
        sched_push(&e->out[r], sched_wait_of(&e->s->row[r].a[e->closed[k]]));
}

static void send(Early *e, int r, int at)
{
    const SchedAction *a = &e->s->row[r].a[at];
    int lane = sched_graph_lane(e->g, a), to = e->s->rank_of[a->peer];
    if (lane < 0)
        return;
    int64_t m = sched_graph_message(e->g, e->s->microbatches, lane, a->microbatch);
    memcpy(carried(e, m), clock_of(e, r), (size_t)e->s->ranks * sizeof(int));
    e->sent[m] = 1;
    int consumed = e->position[a->type == SA_SEND_B][sched_pair(e->s, a->peer, a->microbatch)];
    e->room.lost |= !add_send(sends_to(e, r, to), (Sent){at, consumed});
    sched_wake(&e->turn, to);
}

/* One cell of a row; 0: it needs a message that is not sent yet. */
static int step(void *of, int r)
{
    Early *e = of;
    const SchedRow *row = &e->s->row[r];
    int i = e->turn.cursor[r], end = sched_cell_end(row, i), computed = 0;
    for (int k = i; k < end; k++)
        if (!consume(e, r, &row->a[k], 0))
            return 0;
    for (int k = i; k < end; k++) {
        const SchedAction *a = &row->a[k];
        consume(e, r, a, 1);
        clock_of(e, r)[r] = k + 1;
        if (!sched_is_wait_send(a->type))
            sched_push(&e->out[r], *a);
        if (sched_is_send(a->type))
            send(e, r, k);
        computed |= sched_is_compute(a->type);
    }
    if (computed)
        close_sends(e, r, 0);
    e->turn.cursor[r] = end;
    return 1;
}

/* 0: the rows do not run to their end, which the verifier will say better. */
static int run(Early *e)
{
    if (sched_run(&e->turn, e->s, step, e) >= 0)
        return 0;
    for (int r = 0; r < e->s->ranks; r++)
        close_sends(e, r, 1);
    return 1;
}

static int allocate(Early *e)
{
    const Schedule *s = e->s;
    size_t ranks = (size_t)s->ranks, pairs = sched_pairs(s),
           messages = sched_graph_messages(e->g, s->microbatches), actions = 0;
    for (size_t r = 0; r < ranks; r++)
        actions += (size_t)s->row[r].n;
    e->out = calloc(ranks, sizeof *e->out);
    e->position[0] = sched_room(&e->room, pairs, sizeof(int));
    e->position[1] = sched_room(&e->room, pairs, sizeof(int));
    e->clock = sched_room(&e->room, ranks * ranks, sizeof *e->clock);
    e->carried = sched_room(&e->room, messages * ranks, sizeof *e->carried);
    e->sent = sched_room(&e->room, messages, 1);
    sched_turns(&e->turn, s->ranks, &e->room);
    e->to = sched_room(&e->room, ranks * ranks, sizeof *e->to);
    e->closed = sched_room(&e->room, actions, sizeof *e->closed);
    if (e->room.lost || !e->out)
        return 0;
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            if (a->type == SA_F || a->type == SA_B || a->type == SA_I)
                e->position[a->type != SA_F][sched_pair(s, a->stage, a->microbatch)] = i;
        }
    return 1;
}

int sched_early_waits(Schedule *s, const SchedGraph *g, SchedError *error)
{
    Early e = {.s = s, .g = g};
    if (sched_graph_messages(g, s->microbatches) * (size_t)s->ranks > MOST_CLOCKS)
        return SCHED_OK;
    const int done = allocate(&e) && run(&e), lost = e.room.lost || !e.out;
    for (size_t k = 0; e.to && k < (size_t)s->ranks * (size_t)s->ranks; k++)
        free(e.to[k].a);
    pool_free(&e.room);
    if (done && !lost)
        return sched_take_rows(s, e.out, SCHED_OK, error);
    sched_free_rows(e.out, s->ranks);
    return lost ? sched_nomem(error) : SCHED_OK;
}
