/*
 * backward.c - two passes over the backwards of each row: merge (adjacent I and W of one
 * microbatch become B), and reduce_grad (the sum of a stage's gradients over its copies, once its
 * last microbatch is done).
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

/* The waits of all REDUCE_GRADs of the row, in their order. */
static void wait_at_end(SchedRow *row)
{
    for (int i = 0, n = row->n; i < n; i++)
        if (row->a[i].type == SA_REDUCE_GRAD)
            sched_push(row, sched_act(SA_WAIT_REDUCE_GRAD, row->a[i].stage, -1));
}

/* REDUCE_GRAD and its wait after the action that completes a stage's last gradient; deferred, the
   waits come at the row's end. */
int sched_reduce_grad(Schedule *s, int deferred, SchedError *e)
{
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int *count = calloc((size_t)s->stages, sizeof *count);
    if (!rows || !count) {
        free(rows);
        free(count);
        return sched_nomem(e);
    }
    for (int r = 0; r < s->ranks; r++) {
        const SchedRow *row = &s->row[r];
        for (int i = 0; i < row->n;) {
            int end = sched_cell_end(row, i), begin = i;
            for (; i < end; i++)
                if (row->a[i].type != SA_IDLE)
                    sched_push(&rows[r], row->a[i]);
            for (int k = begin; k < end; k++) {
                int stage = row->a[k].stage;
                if ((row->a[k].type != SA_B && row->a[k].type != SA_W) ||
                    ++count[stage] != s->microbatches)
                    continue;
                sched_push(&rows[r], sched_act(SA_REDUCE_GRAD, stage, -1));
                if (!deferred)
                    sched_push(&rows[r], sched_act(SA_WAIT_REDUCE_GRAD, stage, -1));
            }
        }
        if (deferred)
            wait_at_end(&rows[r]);
    }
    free(count);
    sched_swap_rows(s, rows);
    return sched_rows_ok(s, e);
}
