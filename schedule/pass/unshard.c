/*
 * unshard.c - UNSHARD and RESHARD: the parameters of the stages that come next are on the
 * device, no others.
 *
 * In: rows; how many distinct stages to look ahead (a compound as a whole).  Out: the same rows;
 * before every computation what is active and not among those stages is resharded, in ascending
 * order, and what is among them and not active is unsharded, in the order of their first use.
 */
#include "schedule/rows.h"

#include <limits.h>
#include <stdlib.h>

/* The stages of a rank are kept in a list ordered by their next use; the first `window` of it are
   those that the look-ahead would find (a compound as a whole).  A used stage goes back into the
   list at its next use. */

typedef struct {
    int stage, next, active;
} Soon; /* next: index of the next action of the stage; INT_MAX: none */

typedef struct {
    SchedRow *row, *out;
    int *next; /* per action: the next action of the same stage */
    Soon *soon;
    int n, window;
} Unshard;

/* How many entries of the list are within the window at the action that begins at i. */
static int in_window(const Unshard *u)
{
    int n = 0;
    while (n < u->n && u->soon[n].next != INT_MAX && n < u->window)
        n++;
    if (n == 0 || n < u->window)
        return n;
    /* The rest of the compound where the count was reached belongs to the window too. */
    int end = sched_cell_end(u->row, u->soon[n - 1].next);
    while (n < u->n && u->soon[n].next < end)
        n++;
    return n;
}

static void reshard(Unshard *u, int keep, SchedAction *list)
{
    int n = 0;
    for (int k = keep; k < u->n; k++)
        if (u->soon[k].active) {
            u->soon[k].active = 0;
            int at = n++;
            for (; at > 0 && list[at - 1].stage > u->soon[k].stage; at--)
                list[at] = list[at - 1];
            list[at] = sched_act(SA_RESHARD, u->soon[k].stage, -1);
        }
    for (int k = 0; k < n; k++)
        sched_push(u->out, list[k]);
}

static void reinsert_used(Unshard *u, int i)
{
    Soon used = u->soon[0];
    int k = 0;
    used.next = u->next[i];
    for (; k + 1 < u->n && u->soon[k + 1].next < used.next; k++)
        u->soon[k] = u->soon[k + 1];
    u->soon[k] = used;
}

static int unshard_row(Unshard *u, int r, SchedAction *list, SchedError *e)
{
    for (int i = 0; i < u->row->n; i = sched_cell_end(u->row, i)) {
        if (!sched_is_compute(u->row->a[i].type)) { /* a copy of a stash */
            sched_push(u->out, u->row->a[i]);
            continue;
        }
        int end = sched_cell_end(u->row, i), used = 0;
        while (used < u->n && u->soon[used].next < end)
            used++;
        if (used > u->window)
            return sched_fail(e, SCHED_EREFUSED, r, sched_cell(u->row, i),
                              "rank %d, cell %d needs %d stages at once, the window is %d", r,
                              sched_cell(u->row, i), used, u->window);
        int n = in_window(u);
        reshard(u, n, list);
        for (int k = 0; k < n; k++)
            if (!u->soon[k].active) {
                u->soon[k].active = 1;
                sched_push(u->out, sched_act(SA_UNSHARD, u->soon[k].stage, -1));
            }
        for (int j = i; j < end; j++) {
            sched_push(u->out, u->row->a[j]);
            if (u->soon[0].next == j)
                reinsert_used(u, j);
        }
    }
    reshard(u, 0, list);
    return SCHED_OK;
}

int sched_unshard(Schedule *s, int window, SchedError *e)
{
    int S = s->stages, st = SCHED_OK, *where = malloc((size_t)S * sizeof *where);
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    Soon *soon = malloc((size_t)S * sizeof *soon);
    SchedAction *list = malloc((size_t)S * sizeof *list);
    if (window < 1)
        st = sched_fail(e, SCHED_EREFUSED, -1, -1,
                        "a window of %d stages is too small to compute anything", window);
    else if (!where || !rows || !soon || !list)
        st = sched_nomem(e);
    sched_drop_idle(s);
    for (int r = 0; !st && r < s->ranks; r++) {
        SchedRow *row = &s->row[r];
        Unshard u = {row, &rows[r], malloc(((size_t)row->n + 1) * sizeof(int)), soon, 0, window};
        if (!u.next) {
            st = sched_nomem(e);
            break;
        }
        for (int i = 0; i < row->n; i++)
            where[row->a[i].stage] = INT_MAX;
        for (int i = row->n; i-- > 0;) {
            u.next[i] = where[row->a[i].stage];
            if (sched_is_compute(row->a[i].type))
                where[row->a[i].stage] = i;
        }
        for (int i = 0; i < row->n; i++) /* first uses, in the order of their positions */
            if (where[row->a[i].stage] == i)
                soon[u.n++] = (Soon){row->a[i].stage, i, 0};
        st = unshard_row(&u, r, list, e);
        free(u.next);
    }
    free(where);
    free(soon);
    free(list);
    if (st) {
        sched_free_rows(rows, rows ? s->ranks : 0);
        return st;
    }
    sched_swap_rows(s, rows);
    return sched_rows_ok(s, e);
}
