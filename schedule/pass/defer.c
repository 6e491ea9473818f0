/*
 * defer.c - receives are posted as late as their consumers allow.
 *
 * In: complete rows.  Out: the same rows; every receive is held until its consumer, or until a send
 * to the same, higher rank: of two neighbours the lower one receives first and the higher one sends
 * first, so they never both send.  Around a ring of ranks they still may: the rule asks for sends
 * that do not wait for their receives (buffers), and sched_lower_for takes it back where the
 * verifier refuses it.  After PyTorch's defer_pp_recv.
 */
#include "schedule/rows.h"

#include <stdlib.h>

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
    int want = a->type == SA_F                      ? SA_RECV_F
               : a->type == SA_B || a->type == SA_I ? SA_RECV_B
                                                    : -1,
        n = 0;
    for (int i = 0; want >= 0 && i < d->held.n; i++)
        if (d->held.a[i].type == want && d->held.a[i].stage == a->stage &&
            d->held.a[i].microbatch == a->microbatch)
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
    for (int r = 0; rows && r < s->ranks; r++) {
        Defer d = {s, &rows[r], {NULL, 0, 0}, r};
        defer_row(&d, &s->row[r]);
        lost |= d.held.cap < 0;
        free(d.held.a);
    }
    return sched_take_rows(s, rows, lost ? sched_nomem(e) : SCHED_OK, e);
}
