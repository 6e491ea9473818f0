/*
 * lock_steps.h - a lock-step run: how many steps does a schedule take when every computation, send
 * and receive is one?
 *
 * In: rows of adjacent stages, with or without communication.  Out: the number of steps.  All ranks
 * take a step together; a rank whose next action is not ready waits, and may catch up within
 * the step when a later rank has just made it ready. The figure PyTorch's tests use to compare
 * passes; it is no estimate of time (that is simulate.c).
 */
#ifndef PP_TEST_LOCK_STEPS_H
#define PP_TEST_LOCK_STEPS_H

#include "schedule/rows.h"

#include <stdlib.h>

enum { DID_F = 1, DID_B = 2, DID_SEND_F = 4, DID_SEND_B = 8, GOT_F = 16, GOT_B = 32 };

typedef struct {
    const Schedule *s;
    unsigned char *did;
    int *cursor;
} Steps;

static unsigned did(const Steps *t, int stage, int mb)
{
    return t->did[(size_t)stage * (size_t)t->s->microbatches + (size_t)mb];
}

static int ready(const Steps *t, const SchedAction *a)
{
    const int *rank = t->s->rank_of;
    int last = t->s->stages - 1;
    switch (a->type) {
    case SA_F:
        return a->stage == 0 || (did(t, a->stage, a->microbatch) & GOT_F) ||
               (rank[a->stage - 1] == rank[a->stage] &&
                (did(t, a->stage - 1, a->microbatch) & DID_F));
    case SA_B:
    case SA_I:
        return a->stage == last || (did(t, a->stage, a->microbatch) & GOT_B) ||
               (rank[a->stage + 1] == rank[a->stage] &&
                (did(t, a->stage + 1, a->microbatch) & DID_B));
    case SA_SEND_F: return (did(t, a->stage, a->microbatch) & DID_F) != 0;
    case SA_SEND_B: return (did(t, a->stage, a->microbatch) & DID_B) != 0;
    case SA_RECV_F: return (did(t, a->peer, a->microbatch) & DID_SEND_F) != 0;
    case SA_RECV_B: return (did(t, a->peer, a->microbatch) & DID_SEND_B) != 0;
    case SA_WAIT_SEND_F: return (did(t, a->peer, a->microbatch) & GOT_F) != 0;
    case SA_WAIT_SEND_B: return (did(t, a->peer, a->microbatch) & GOT_B) != 0;
    default: return 1;
    }
}

static int try_step(const Steps *t, int r)
{
    const SchedAction *a = &t->s->row[r].a[t->cursor[r]];
    static const unsigned char bit[SA_TYPES] = {
        [SA_F] = DID_F,           [SA_B] = DID_B,           [SA_I] = DID_B,
        [SA_SEND_F] = DID_SEND_F, [SA_SEND_B] = DID_SEND_B, [SA_RECV_F] = GOT_F,
        [SA_RECV_B] = GOT_B,
    };
    if (!ready(t, a))
        return 0;
    if (a->microbatch >= 0)
        t->did[(size_t)a->stage * (size_t)t->s->microbatches + (size_t)a->microbatch] |=
            bit[a->type];
    t->cursor[r]++;
    return 1;
}

/* -1: it cannot go on, or no memory */
static int64_t lock_steps(const Schedule *s, SchedError *e)
{
    Schedule *c = sched_clone(s);
    int64_t steps = 0;
    if (c)
        sched_drop_idle(c);
    Steps t = {c, calloc((size_t)s->stages * (size_t)s->microbatches, 1),
               calloc((size_t)s->ranks, sizeof(int))};
    unsigned char *still = calloc((size_t)s->ranks, 1);
    if (!c || !t.did || !t.cursor || !still) {
        sched_nomem(e);
        steps = -1;
    }
    for (int open = 1; open && steps >= 0;) {
        int progress = 0;
        open = 0;
        for (int r = 0; r < s->ranks; r++) {
            still[r] = 0;
            if (t.cursor[r] < c->row[r].n) {
                still[r] = !try_step(&t, r);
                progress |= !still[r];
                open = 1;
            }
        }
        for (int r = 0; r < s->ranks; r++)
            if (still[r])
                try_step(&t, r);
        steps += open;
        if (open && !progress) {
            sched_fail(e, SCHED_EREFUSED, -1, -1, "the schedule cannot go on after %lld steps",
                       (long long)steps);
            steps = -1;
        }
    }
    free(t.did);
    free(t.cursor);
    free(still);
    sched_free(c);
    return steps;
}

#endif
