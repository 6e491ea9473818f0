/*
 * pass.c - the passes that look at one row at a time: validate, merge, unshard/reshard, reduce_grad.
 *
 * In: a schedule.  Out: the same schedule with new rows, or a refusal that names rank, cell and reason.  SCHEDULES.md
 * 2, passes 1 to 4.  The passes between rows are in sched_comms.c.
 */
#include "internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- validate ---- */

enum { DONE_F = 1, DONE_B = 2, DONE_I = 4, DONE_W = 8, DONE_R = 16, AWAY = 32 };

static int refuse(SchedError *e, const Schedule *s, int r, int i, const char *why)
{
    char text[64];
    int cell = sched_cell(&s->row[r], i);
    sched_action_text(text, sizeof text, &s->row[r].a[i]);
    return sched_fail(e, SCHED_EREFUSED, r, cell, "rank %d, cell %d (%s): %s", r, cell, text, why);
}

/* NULL, or why this action cannot come now; updates the state of its (stage, microbatch). */
static const char *step(const SchedAction *a, unsigned char *d)
{
    switch (a->type) {
    case SA_F:
        if (*d & DONE_F)
            return "this forward is in the schedule twice";
        *d |= DONE_F;
        return NULL;
    case SA_R:
        if (!(*d & DONE_F) || (*d & (DONE_B | DONE_I)))
            return "a recompute comes between the forward and the backward";
        if (*d & DONE_R)
            return "this recompute is in the schedule twice";
        *d |= DONE_R;
        return NULL;
    case SA_B:
    case SA_I:
        if (!(*d & DONE_F))
            return "the backward comes before its forward";
        if (*d & AWAY)
            return "the stash is on the host: a FETCH is missing";
        if (*d & DONE_B)
            return a->type == SA_B ? "this backward is in the schedule twice"
                                   : "there is a B for this microbatch already";
        if (*d & DONE_I)
            return a->type == SA_I ? "this backward is in the schedule twice"
                                   : "there is an I for this microbatch already";
        *d |= a->type == SA_B ? DONE_B : DONE_I;
        return NULL;
    case SA_W:
        if (*d & DONE_B)
            return "there is a B for this microbatch already";
        if (!(*d & DONE_I))
            return "W comes before its I";
        if (*d & DONE_W)
            return "this W is in the schedule twice";
        *d |= DONE_W;
        return NULL;
    case SA_OFFLOAD:
        if (!(*d & DONE_F) || (*d & (AWAY | DONE_B | DONE_W)))
            return "there is no stash to offload";
        *d |= AWAY;
        return NULL;
    case SA_FETCH:
        if (!(*d & AWAY))
            return "this stash is not on the host";
        *d &= (unsigned char)~AWAY;
        return NULL;
    default: return NULL;
    }
}

static int check_done(const Schedule *s, const unsigned char *done, SchedError *e)
{
    for (int st = 0; st < s->stages; st++)
        for (int mb = 0; mb < s->microbatches; mb++) {
            unsigned char d = done[(size_t)st * (size_t)s->microbatches + (size_t)mb];
            const char *what = !(d & DONE_F)                         ? "forward"
                               : s->infer || (d & (DONE_B | DONE_W)) ? NULL
                               : d & DONE_I                          ? "W"
                                                                     : "backward";
            if (what)
                return sched_fail(e, SCHED_EREFUSED, s->rank_of[st], -1,
                                  "rank %d: stage %d has no %s for microbatch %d", s->rank_of[st], st, what, mb);
        }
    return SCHED_OK;
}

int sched_validate(const Schedule *s, SchedError *e)
{
    unsigned char *done = calloc((size_t)s->stages * (size_t)s->microbatches, 1);
    int st = SCHED_OK;
    if (!done)
        return sched_nomem(e);
    for (int r = 0; !st && r < s->ranks; r++)
        for (int i = 0; !st && i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            const char *why = NULL;
            if (a->type == SA_IDLE)
                continue;
            if (a->stage < 0 || a->stage >= s->stages || a->microbatch >= s->microbatches)
                why = "no such stage or microbatch";
            else if (s->rank_of[a->stage] != r)
                why = "this stage is on another rank as well";
            else if (s->infer && (a->type == SA_B || a->type == SA_I || a->type == SA_W))
                why = "a backward in a schedule of forwards";
            else if (a->microbatch >= 0)
                why = step(a, &done[(size_t)a->stage * (size_t)s->microbatches + (size_t)a->microbatch]);
            if (why)
                st = refuse(e, s, r, i, why);
        }
    if (!st)
        st = check_done(s, done, e);
    free(done);
    return st;
}

int sched_runnable(const Schedule *s, SchedError *e)
{
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++)
            if (s->row[r].a[i].type == SA_OFFLOAD || s->row[r].a[i].type == SA_FETCH)
                return refuse(e, s, r, i, "a run cannot move a stash to the host and back yet; ppsplit schedule simulates it");
    return SCHED_OK;
}

/* ---- merge: adjacent I, W of one microbatch become B ---- */

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
            if (a.type == SA_I && !a.overlap && b && b->type == SA_W && !b->overlap && b->stage == a.stage &&
                b->microbatch == a.microbatch) {
                a.type = SA_B;
                i++;
            }
            row->a[n++] = a;
        }
        row->n = n;
    }
    return SCHED_OK;
}

/* ---- unshard / reshard ----
   The stages of a rank are kept in a list ordered by their next use; the first `window` of it are those that the
   look-ahead would find (a compound as a whole).  A used stage goes back into the list at its next use. */

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
    int end = sched_cell_end(u->row, u->soon[n - 1].next); /* the rest of the compound where the count was reached */
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
        int end = sched_cell_end(u->row, i), used = 0;
        while (used < u->n && u->soon[used].next < end)
            used++;
        if (used > u->window)
            return sched_fail(e, SCHED_EREFUSED, r, sched_cell(u->row, i),
                              "rank %d, cell %d needs %d stages at once, the window is %d", r, sched_cell(u->row, i),
                              used, u->window);
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
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "a window of %d stages is too small to compute anything", window);
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

/* ---- reduce_grad ---- */

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
                if ((row->a[k].type != SA_B && row->a[k].type != SA_W) || ++count[stage] != s->microbatches)
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

/* ---- Live microbatches, counted along the rows ---- */

/* Peak over the row of `rank` of what begins at type `up` and ends at any of two types; stage -1: all stages. */
static int peak(const Schedule *s, int rank, int stage, int up, int down1, int down2)
{
    const SchedRow *row = &s->row[rank];
    int live = 0, top = 0;
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        if (stage >= 0 && a->stage != stage)
            continue;
        if (a->type == up && ++live > top)
            top = live;
        else if (a->type == down1 || a->type == down2)
            live--;
    }
    return top;
}

int sched_live(const Schedule *s, int stage)
{
    return s->infer ? 1 : peak(s, s->rank_of[stage], stage, SA_F, SA_B, SA_W);
}

int sched_live_rank(const Schedule *s, int rank) { return s->infer ? 1 : peak(s, rank, -1, SA_F, SA_B, SA_W); }

int sched_live_saved(const Schedule *s, int stage)
{
    return s->infer ? 0 : peak(s, s->rank_of[stage], stage, SA_I, SA_W, SA_W);
}
