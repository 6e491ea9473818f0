/*
 * live.c - what is alive at once, along a row: bytes, or how many microbatches.  One whose stash is
 * on the host is not.
 */
#include "rows.h"

static int has_type(const SchedRow *row, int type)
{
    for (int i = 0; i < row->n; i++)
        if (row->a[i].type == type)
            return 1;
    return 0;
}

double sched_most_held(const Schedule *s, int rank, SchedHeld *held, const void *of)
{
    const SchedRow *row = &s->row[rank];
    const int away = has_type(row, SA_WAIT_OFFLOAD) ? SA_WAIT_OFFLOAD : SA_OFFLOAD,
              again = has_type(row, SA_R);
    double now = 0, top = 0;
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        const SchedBytes x = a->stage < 0 ? (SchedBytes){0, 0, 0} : held(of, a->stage);
        switch (a->type) {
        case SA_F:
        case SA_FETCH: now += x.stash; break;
        case SA_R: now += a->peer == SCHED_WHOLE ? x.stash : 0; break;
        case SA_B: now -= x.stash; break;
        case SA_OFFLOAD:
        case SA_WAIT_OFFLOAD: now -= a->type == away ? x.stash : 0; break;
        case SA_I: now += x.saved; break;
        case SA_W: now -= x.late + x.saved; break;
        default: break;
        }
        top = now > top ? now : top;
        if (a->type == SA_I)
            now -= x.stash - x.late;
        if (again && a->type == SA_F && sched_comes_again(row, i))
            now -= x.stash;
    }
    return top;
}

/* Microbatches of one stage, -1: of all, until their last W, or from their I. */
typedef struct {
    const Schedule *s;
    int stage, saved;
} Count;

static SchedBytes one_each(const void *of, int stage)
{
    const Count *c = of;
    const int counts = (c->stage < 0 || c->stage == stage) &&
                       !(c->s->minibatch && stage == c->s->stages - 1);
    return (SchedBytes){counts && !c->saved, counts && !c->saved, counts && c->saved};
}

static int count(const Schedule *s, int rank, int stage, int saved)
{
    return (int)sched_most_held(s, rank, one_each, &(Count){s, stage, saved});
}

int sched_live(const Schedule *s, int stage)
{
    return s->infer ? 1 : count(s, s->rank_of[stage], stage, 0);
}

int sched_live_rank(const Schedule *s, int rank) { return s->infer ? 1 : count(s, rank, -1, 0); }

int sched_live_saved(const Schedule *s, int stage)
{
    return s->infer ? 0 : count(s, s->rank_of[stage], stage, 1);
}
