/*
 * backward.c - passes over the backwards of each row: merge (adjacent I and W of one microbatch
 * become B), reduce_grad (the sum of a stage's gradients over its copies, once its last microbatch
 * is done), and wait_reduce (the waits that older files do not have).
 */
#include "schedule/rows.h"

#include <stdlib.h>

int sched_merge(Schedule *s, SchedError *e)
{
    (void)e;
    sched_drop_idle(s);
    for (int r = 0; r < s->ranks; r++) {
        SchedRow *row = &s->row[r];
        int n = 0;
        for (int i = 0; i < row->n; i++) {
            SchedAction a = row->a[i];
            const SchedAction *b = i + 1 < row->n ? &row->a[i + 1] : NULL;
            if (a.type == SA_I && !a.overlap && b && b->type == SA_W && !b->overlap &&
                b->stage == a.stage && b->microbatch == a.microbatch) {
                a.type = SA_B;
                i++;
            }
            row->a[n++] = a;
        }
        row->n = n;
    }
    return SCHED_OK;
}

/* A stage's sum over its copies begins.  Deferred, its wait comes before the next one of the row or
   at the row's end: one is under way at most, as PyTorch's loader asks. */
static void reduce(SchedRow *row, int stage, int deferred, int *pending)
{
    if (*pending >= 0)
        sched_push(row, sched_act(SA_WAIT_REDUCE_GRAD, *pending, -1));
    *pending = deferred ? stage : -1;
    sched_push(row, sched_act(SA_REDUCE_GRAD, stage, -1));
    if (!deferred)
        sched_push(row, sched_act(SA_WAIT_REDUCE_GRAD, stage, -1));
}

/* REDUCE_GRAD and its wait after the action that completes a stage's last gradient. */
int sched_reduce_grad(Schedule *s, int deferred, SchedError *e)
{
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int *count = calloc((size_t)s->stages, sizeof *count);
    const int st = rows && count ? SCHED_OK : sched_nomem(e);
    for (int r = 0; !st && r < s->ranks; r++) {
        const SchedRow *row = &s->row[r];
        int pending = -1;
        for (int i = 0; i < row->n;) {
            int end = sched_cell_end(row, i), begin = i;
            for (; i < end; i++)
                if (row->a[i].type != SA_IDLE)
                    sched_push(&rows[r], row->a[i]);
            for (int k = begin; k < end; k++)
                if ((row->a[k].type == SA_B || row->a[k].type == SA_W) &&
                    ++count[row->a[k].stage] == s->microbatches)
                    reduce(&rows[r], row->a[k].stage, deferred, &pending);
        }
        if (pending >= 0)
            sched_push(&rows[r], sched_act(SA_WAIT_REDUCE_GRAD, pending, -1));
    }
    free(count);
    return sched_take_rows(s, rows, st, e);
}

int sched_wait_reduce(Schedule *s, SchedError *e)
{
    if (!sched_has_type(s, SA_REDUCE_GRAD) || sched_has_type(s, SA_WAIT_REDUCE_GRAD))
        return SCHED_OK;
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    for (int r = 0; rows && r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            sched_push(&rows[r], *a);
            if (a->type == SA_REDUCE_GRAD)
                sched_push(&rows[r], sched_act(SA_WAIT_REDUCE_GRAD, a->stage, -1));
        }
    return sched_take_rows(s, rows, SCHED_OK, e);
}
