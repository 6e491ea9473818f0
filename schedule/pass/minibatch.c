/*
 * minibatch.c - a loss over the whole minibatch, as one more stage.
 *
 * In: rows of computations; the last stage, whose outputs the loss reads, on some rank.  Out: the
 * same with one stage more on that rank.  Its F of a microbatch, after F of the stage before it,
 * brings the microbatch's rows; the last of them computes the loss.  Its B, before B or I there,
 * takes the rows' gradients away; the first of them computes these.  So every F stands before the
 * first B, as in fill-drain (GPipe); rows in which one does not are refused.
 */
#include "schedule/rows.h"

#include <stdlib.h>

static void add_to_row(const SchedRow *row, int before, SchedRow *out)
{
    for (int i = 0; i < row->n;) {
        int end = sched_cell_end(row, i);
        for (int k = i; k < end; k++)
            if (row->a[k].stage == before && (row->a[k].type == SA_B || row->a[k].type == SA_I))
                sched_push(out, sched_act(SA_B, before + 1, row->a[k].microbatch));
        for (int k = i; k < end; k++)
            sched_push(out, row->a[k]);
        for (int k = i; k < end; k++)
            if (row->a[k].stage == before && row->a[k].type == SA_F)
                sched_push(out, sched_act(SA_F, before + 1, row->a[k].microbatch));
        i = end;
    }
}

/* The last stage's row: nothing goes back before all are there. */
static int check_order(const Schedule *s, SchedError *e)
{
    int last = s->stages - 1, rank = s->rank_of[last], first = -1;
    const SchedRow *row = &s->row[rank];
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        if (a->stage != last)
            continue;
        if (first < 0 && (a->type == SA_B || a->type == SA_I))
            first = i;
        if (first >= 0 && a->type == SA_F)
            return sched_fail(
                e, SCHED_EREFUSED, rank, sched_cell(row, first),
                "rank %d, cell %d: %d%s%d comes before %dF%d in cell %d, but the loss is one over "
                "the whole minibatch: it needs every microbatch's forward before the first "
                "backward, as gpipe and loopedbfs have it",
                rank, sched_cell(row, first), last, sched_type_name(row->a[first].type),
                row->a[first].microbatch, last, a->microbatch, sched_cell(row, i));
    }
    return SCHED_OK;
}

int sched_minibatch(Schedule *s, SchedError *e)
{
    int last = s->stages - 1;
    if (s->complete)
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "the rows have communication already; a loss over the whole minibatch "
                          "can only be added to rows of computations");
    if (check_order(s, e))
        return e->status;
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int *rank_of = realloc(s->rank_of, ((size_t)s->stages + 1) * sizeof *rank_of);
    if (rank_of)
        s->rank_of = rank_of;
    if (!rows || !rank_of)
        return sched_take_rows(s, rows, sched_nomem(e), e);
    for (int r = 0; r < s->ranks; r++)
        add_to_row(&s->row[r], last, &rows[r]);
    rank_of[s->stages++] = rank_of[last];
    s->minibatch = 1;
    return sched_take_rows(s, rows, SCHED_OK, e);
}
