/*
 * pass_backward.c - two passes over the backwards of each row: merge (adjacent I and W of one
 * microbatch become B), and reduce_grad (the sum of a stage's gradients over its copies, once its
 * last microbatch is done).
 */
#include "rows.h"

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

/* REDUCE_GRAD and its wait after the action that completes a stage's last gradient; deferred, the
   wait comes before the rank's next REDUCE_GRAD or at the end, so that one reduction at most is
   under way. */
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
        int pending = -1;
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
                if (deferred && pending >= 0)
                    sched_push(&rows[r], sched_act(SA_WAIT_REDUCE_GRAD, pending, -1));
                sched_push(&rows[r], sched_act(SA_REDUCE_GRAD, stage, -1));
                if (deferred)
                    pending = stage;
                else
                    sched_push(&rows[r], sched_act(SA_WAIT_REDUCE_GRAD, stage, -1));
            }
        }
        if (pending >= 0)
            sched_push(&rows[r], sched_act(SA_WAIT_REDUCE_GRAD, pending, -1));
    }
    free(count);
    sched_swap_rows(s, rows);
    return sched_rows_ok(s, e);
}
