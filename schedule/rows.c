/*
 * rows.c - schedules in memory: making, copying and freeing them, appending actions to rows,
 * finding things in them; and how a function of schedule/ says what is wrong.
 */
#include "rows.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int sched_fail(SchedError *e, int status, int rank, int cell, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        e->status = status;
        e->rank = rank;
        e->cell = cell;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
    }
    return status;
}

int sched_nomem(SchedError *e)
{
    return sched_fail(e, SCHED_ERESOURCE, -1, -1, "out of memory for the schedule");
}

/* ---- Turns ---- */

void sched_turns(SchedTurns *t, int ranks, Pool *m)
{
    *t = (SchedTurns){.ranks = ranks,
                      .cursor = sched_room(m, (size_t)ranks, sizeof *t->cursor),
                      .queue = sched_room(m, (size_t)ranks, sizeof *t->queue),
                      .queued = sched_room(m, (size_t)ranks, 1)};
}

void sched_wake(SchedTurns *t, int rank)
{
    if (t->queued[rank])
        return;
    t->queued[rank] = 1;
    t->queue[(t->head + t->waiting++) % t->ranks] = rank;
}

int sched_run(SchedTurns *t, const Schedule *s, int (*step)(void *of, int rank), void *of)
{
    for (int r = 0; r < s->ranks; r++)
        sched_wake(t, r);
    while (t->waiting > 0) {
        const int r = t->queue[t->head];
        t->head = (t->head + 1) % t->ranks;
        t->waiting--;
        t->queued[r] = 0;
        while (t->cursor[r] < s->row[r].n && step(of, r))
            ;
    }
    for (int r = 0; r < s->ranks; r++)
        if (t->cursor[r] < s->row[r].n)
            return r;
    return -1;
}

/* ---- Rows ---- */

Schedule *sched_new(const char *name, int ranks, int stages, int microbatches)
{
    Schedule *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->ranks = ranks;
    s->stages = stages;
    s->microbatches = microbatches;
    s->row = calloc((size_t)(ranks > 0 ? ranks : 1), sizeof *s->row);
    s->rank_of = malloc((size_t)(stages > 0 ? stages : 1) * sizeof *s->rank_of);
    if (!s->row || !s->rank_of) {
        sched_free(s);
        return NULL;
    }
    for (int i = 0; i < stages; i++)
        s->rank_of[i] = -1;
    return s;
}

void sched_free_rows(SchedRow *rows, int n)
{
    for (int r = 0; rows && r < n; r++)
        free(rows[r].a);
    free(rows);
}

void sched_free(Schedule *s)
{
    if (!s)
        return;
    sched_free_rows(s->row, s->ranks);
    free(s->rank_of);
    free(s);
}

Schedule *sched_clone(const Schedule *s)
{
    Schedule *c = sched_new(s->name, s->ranks, s->stages, s->microbatches);
    if (!c)
        return NULL;
    c->infer = s->infer;
    c->complete = s->complete;
    c->minibatch = s->minibatch;
    memcpy(c->rank_of, s->rank_of, (size_t)s->stages * sizeof *s->rank_of);
    for (int r = 0; r < s->ranks; r++) {
        int n = s->row[r].n;
        if (n == 0)
            continue;
        c->row[r].a = malloc((size_t)n * sizeof *c->row[r].a);
        if (!c->row[r].a) {
            sched_free(c);
            return NULL;
        }
        memcpy(c->row[r].a, s->row[r].a, (size_t)n * sizeof *c->row[r].a);
        c->row[r].n = c->row[r].cap = n;
    }
    return c;
}

void sched_push(SchedRow *r, SchedAction a)
{
    if (r->cap < 0)
        return;
    if (r->n == r->cap) {
        int cap = r->cap < 16 ? 16 : r->cap + r->cap / 2;
        SchedAction *p = r->cap >= SCHED_MAX_CELLS ? NULL : realloc(r->a, (size_t)cap * sizeof *p);
        if (!p) {
            free(r->a);
            *r = (SchedRow){NULL, 0, -1};
            return;
        }
        r->a = p;
        r->cap = cap;
    }
    r->a[r->n++] = a;
}

void sched_push_message(SchedRow *rows, const Schedule *s, int send, int stage, int peer, int mb)
{
    static const int receive[SA_TYPES] = {[SA_SEND_F] = SA_RECV_F,
                                          [SA_SEND_B] = SA_RECV_B,
                                          [SA_SEND_P] = SA_RECV_P,
                                          [SA_SEND_GP] = SA_RECV_GP};
    const int from = s->rank_of[stage], to = s->rank_of[peer];
    if (from == to)
        return;
    sched_push(&rows[from], sched_comm(send, stage, mb, peer));
    sched_push(&rows[to], sched_comm(receive[send], peer, mb, stage));
}

int sched_rows_ok(const Schedule *s, SchedError *e)
{
    for (int r = 0; r < s->ranks; r++)
        if (s->row[r].cap < 0)
            return sched_nomem(e);
    return SCHED_OK;
}

int sched_take_rows(Schedule *s, SchedRow *rows, int st, SchedError *e)
{
    if (!st && !rows)
        st = sched_nomem(e);
    if (st) {
        sched_free_rows(rows, s->ranks);
        return st;
    }
    sched_free_rows(s->row, s->ranks);
    s->row = rows;
    return sched_rows_ok(s, e);
}

void sched_number(Schedule *s)
{
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0, end, cell = 1; i < s->row[r].n; i = end, cell++) {
            end = sched_cell_end(&s->row[r], i);
            for (int k = i; k < end; k++)
                s->row[r].a[k].cell = cell;
        }
}

int sched_cell(const SchedRow *r, int index)
{
    for (int i = index; i < r->n; i++)
        if (r->a[i].cell)
            return r->a[i].cell - 1;
    for (int i = index; i-- > 0;)
        if (r->a[i].cell)
            return r->a[i].cell;
    return index;
}

void sched_drop_idle(Schedule *s)
{
    for (int r = 0; r < s->ranks; r++) {
        SchedRow *row = &s->row[r];
        int n = 0;
        for (int i = 0; i < row->n; i++)
            if (row->a[i].type != SA_IDLE)
                row->a[n++] = row->a[i];
        row->n = n;
    }
}

int sched_has_type(const Schedule *s, int type)
{
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++)
            if (s->row[r].a[i].type == type)
                return 1;
    return 0;
}

int sched_comes_again(const SchedRow *r, int i)
{
    for (int k = i + 1; k < r->n; k++)
        if (r->a[k].stage == r->a[i].stage && r->a[k].microbatch == r->a[i].microbatch &&
            r->a[k].type == SA_R)
            return r->a[k].peer == SCHED_WHOLE;
    return 0;
}
