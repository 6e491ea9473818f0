/*
 * wait_send.c - every send gets one wait, after which its buffer is free again.
 *
 * In: complete rows.  Out: the same rows; a SEND_F is waited for after the backward of the same
 * (stage, microbatch) when that backward proves that the peer has used it; the other sends are
 * waited for at the end, in their order.
 */
#include "schedule/graph.h"

#include <stdlib.h>

typedef struct {
    const Schedule *s;
    const SchedGraph *g;
    int *first;            /* per (stage, microbatch): 1 + index of its first SEND_F, new row */
    unsigned char *proves; /* per edge: a backward of its sender proves that its receiver is done */
} WaitSend;

static int *first_send(const WaitSend *w, const SchedAction *a)
{
    return &w->first[sched_pair(w->s, a->stage, a->microbatch)];
}

/* Waits for the sends of the forward whose backward has come; the sends of one action are
   neighbours in the row.  Those that are waited for are marked. */
static void wait_after(const WaitSend *w, SchedRow *out, const SchedAction *back)
{
    int at = *first_send(w, back) - 1, n = out->n;
    for (; at >= 0 && at < n && out->a[at].stage == back->stage &&
           out->a[at].microbatch == back->microbatch;
         at++) {
        int edge = out->a[at].type == SA_SEND_F
                       ? sched_graph_edge(w->g, back->stage, out->a[at].peer)
                       : -1;
        if (edge < 0 || !w->proves[edge])
            continue;
        out->a[at].mark = 1;
        sched_push(out, sched_wait_of(&out->a[at]));
        if (out->cap < 0)
            return;
    }
}

static void wait_at_end(SchedRow *out)
{
    for (int i = 0, n = out->n; i < n && out->cap >= 0; i++) {
        int waited = out->a[i].mark;
        out->a[i].mark = 0;
        if (sched_is_send(out->a[i].type) && !waited)
            sched_push(out, sched_wait_of(&out->a[i]));
    }
}

static void wait_row(const WaitSend *w, const SchedRow *row, SchedRow *out)
{
    for (int i = 0; i < row->n;) {
        int begin = i, end = sched_cell_end(row, i);
        for (; i < end; i++) {
            if (row->a[i].type == SA_SEND_F && !*first_send(w, &row->a[i]))
                *first_send(w, &row->a[i]) = out->n + 1;
            sched_push(out, row->a[i]);
        }
        for (int k = begin; k < end; k++)
            if (row->a[k].type == SA_B || row->a[k].type == SA_I)
                wait_after(w, out, &row->a[k]);
    }
    wait_at_end(out);
}

int sched_wait_send_graph(Schedule *s, const SchedGraph *g, SchedError *e)
{
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    Pool room = {0};
    WaitSend w = {s, g,
                  sched_room(&room, sched_pairs(s), sizeof(int)),
                  sched_room(&room, (size_t)g->n, 1)};
    int ok = rows && !room.lost;
    for (int i = 0; ok && i < g->n; i++)
        w.proves[i] = (unsigned char)sched_graph_proves(g, g->edge[i].from, g->edge[i].to);
    for (int r = 0; ok && r < s->ranks; r++)
        wait_row(&w, &s->row[r], &rows[r]);
    pool_free(&room);
    return sched_take_rows(s, rows, ok ? SCHED_OK : sched_nomem(e), e);
}
