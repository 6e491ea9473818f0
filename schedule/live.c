/*
 * live.c - how many microbatches are alive at once, counted along the rows.  One whose stash is on
 * the host is not.
 */
#include "rows.h"

static int has_type(const SchedRow *row, int type)
{
    for (int i = 0; i < row->n; i++)
        if (row->a[i].type == type)
            return 1;
    return 0;
}

/* Peak over the row of `rank` of what begins at type `up` (or at its R) and ends at any of two
 * types; stage -1: all stages. */
static int peak(const Schedule *s, int rank, int stage, int up, int down1, int down2)
{
    const SchedRow *row = &s->row[rank];
    int away = has_type(row, SA_WAIT_OFFLOAD) ? SA_WAIT_OFFLOAD : SA_OFFLOAD;
    int live = 0, top = 0, again = has_type(row, SA_R);
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        if ((stage >= 0 && a->stage != stage) || (s->minibatch && a->stage == s->stages - 1))
            continue;
        int begins = a->type == up || (up == SA_F && (a->type == SA_FETCH ||
                                                      (a->type == SA_R && a->peer == SCHED_WHOLE)));
        if (begins && ++live > top)
            top = live;
        else if (a->type == down1 || a->type == down2 || (up == SA_F && a->type == away))
            live--;
        live -= again && a->type == SA_F && up == SA_F && sched_comes_again(row, i);
    }
    return top;
}

int sched_live(const Schedule *s, int stage)
{
    return s->infer ? 1 : peak(s, s->rank_of[stage], stage, SA_F, SA_B, SA_W);
}

int sched_live_rank(const Schedule *s, int rank)
{
    return s->infer ? 1 : peak(s, rank, -1, SA_F, SA_B, SA_W);
}

int sched_live_saved(const Schedule *s, int stage)
{
    return s->infer ? 0 : peak(s, s->rank_of[stage], stage, SA_I, SA_W, SA_W);
}
