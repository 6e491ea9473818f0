/*
 * comms.c - puts sends and receives between the rows.
 *
 * In: compute-only rows (with UNSHARD, REDUCE_GRAD or without) and the edges between stages.  Out:
 * complete rows.  A list scheduler: ranks take turns, and each send and its receive are appended in
 * the same turn, so one global order explains all rows, and they run even where every message is a
 * rendezvous.
 */
#include "schedule/graph.h"

#include <stdlib.h>

enum { PLACED_F = 1, PLACED_B = 2 };

typedef struct {
    Schedule *s;
    const SchedGraph *g;
    SchedRow *out;
    unsigned char *placed;   /* per (stage, microbatch) */
    int *cursor;             /* per rank: the next action of the old row */
    int *backwards;          /* per stage: B or W placed so far */
    int *no_param;           /* per stage: transmitted parameters not yet placed */
    int *no_grad;            /* per stage: gradients of such that are not yet placed */
    unsigned char *sent;     /* per stage: its SEND_P are placed */
    unsigned char *unshards; /* per stage: it has UNSHARD actions */
    SchedError *e;
} Comms;

static unsigned char *placed_at(const Comms *c, int stage, int mb)
{
    return &c->placed[sched_pair(c->s, stage, mb)];
}

/* -1 if action a may be placed now, else the stage whose action it waits for. */
static int waits_for(const Comms *c, const SchedAction *a)
{
    for (SchedNeed n = sched_needs(c->g, a->type, a->stage); sched_next(c->g, &n);)
        if (!(*placed_at(c, n.stage, a->microbatch) & (n.back ? PLACED_B : PLACED_F)))
            return n.stage;
    if (a->type == SA_F && c->no_param[a->stage])
        return a->stage;
    return a->type == SA_REDUCE_GRAD && c->no_grad[a->stage] ? a->stage : -1;
}

static void send_params(Comms *c, int stage)
{
    if (c->sent[stage])
        return;
    c->sent[stage] = 1;
    for (int i = 0; i < c->g->n_param; i++) {
        const SchedParam *q = &c->g->param[i];
        if (q->from == stage && !q->replicate) {
            sched_push_message(c->out, c->s, SA_SEND_P, q->from, q->to, -1);
            c->no_param[q->to]--;
        }
    }
}

static void send_param_grads(Comms *c, int stage)
{
    for (int i = 0; i < c->g->n_param; i++) {
        const SchedParam *q = &c->g->param[i];
        if (q->to == stage && !q->replicate && q->gradient) {
            sched_push_message(c->out, c->s, SA_SEND_GP, q->to, q->from, -1);
            c->no_grad[q->from]--;
        }
    }
}

/* The messages that follow an action. */
static void follow(Comms *c, const SchedAction *a)
{
    const SchedGraph *g = c->g;
    if (a->type == SA_F) {
        *placed_at(c, a->stage, a->microbatch) |= PLACED_F;
        for (int i = g->out_first[a->stage]; i < g->out_first[a->stage + 1]; i++)
            sched_push_message(c->out, c->s, SA_SEND_F, a->stage, g->edge[i].to, a->microbatch);
    } else if (a->type == SA_B || a->type == SA_I) {
        *placed_at(c, a->stage, a->microbatch) |= PLACED_B;
        for (int i = g->in_first[a->stage + 1]; i-- > g->in_first[a->stage];) /* nearest first */
            if (g->edge[g->in[i]].gradient)
                sched_push_message(c->out, c->s, SA_SEND_B, a->stage, g->edge[g->in[i]].from,
                                   a->microbatch);
    } else if (a->type == SA_UNSHARD) {
        send_params(c, a->stage);
    }
    if ((a->type == SA_B || a->type == SA_W) && ++c->backwards[a->stage] == c->s->microbatches)
        send_param_grads(c, a->stage);
}

static int turn(Comms *c, int r)
{
    const SchedRow *row = &c->s->row[r];
    int i = c->cursor[r], end = sched_cell_end(row, i);
    for (int k = i; k < end; k++)
        if (row->a[k].type != SA_IDLE && waits_for(c, &row->a[k]) >= 0)
            return 0;
    for (int k = i; k < end; k++)
        if (row->a[k].type != SA_IDLE)
            sched_push(&c->out[r], row->a[k]);
    for (int k = i; k < end; k++)
        if (row->a[k].type != SA_IDLE)
            follow(c, &row->a[k]);
    c->cursor[r] = end;
    return 1;
}

/* The heads of the ranks that cannot go on, at most 16 of them. */
static int stuck(const Comms *c)
{
    char text[3000];
    size_t n = 0;
    int first = -1, cell = -1, shown = 0;
    text[0] = 0;
    for (int r = 0; r < c->s->ranks; r++) {
        const SchedRow *row = &c->s->row[r];
        char name[64], need[64] = "";
        if (c->cursor[r] == row->n)
            continue;
        const SchedAction *a = &row->a[c->cursor[r]];
        for (int k = c->cursor[r]; k < sched_cell_end(row, c->cursor[r]); k++)
            if (row->a[k].type != SA_IDLE && waits_for(c, &row->a[k]) >= 0) {
                a = &row->a[k];
                if (a->microbatch >= 0)
                    snprintf(need, sizeof need, "%s of stage %d",
                             a->type == SA_F ? "the forward" : "the backward", waits_for(c, a));
                else
                    snprintf(need, sizeof need, "gradients of shared parameters");
            }
        sched_action_text(name, sizeof name, a);
        if (first < 0) {
            first = r;
            cell = sched_cell(row, c->cursor[r]);
        }
        if (shown++ < 16 && n < sizeof text - 160)
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  "\n  rank %d, cell %d (%s) waits for %s", r,
                                  sched_cell(row, c->cursor[r]), name, need);
    }
    return sched_fail(c->e, SCHED_EREFUSED, first, cell,
                      "the schedule cannot go on: rank %d is stuck at cell %d%s", first, cell,
                      text);
}

static int run_turns(Comms *c)
{
    for (int left = c->s->ranks; left > 0;) {
        int progress = 0;
        left = 0;
        for (int r = 0; r < c->s->ranks; r++) {
            if (c->cursor[r] < c->s->row[r].n)
                progress |= turn(c, r);
            left += c->cursor[r] < c->s->row[r].n;
        }
        if (left && !progress)
            return stuck(c);
    }
    return SCHED_OK;
}

/* What is sent beside the activations; stages that no UNSHARD brings to the device send at once. */
static void begin_params(Comms *c)
{
    const Schedule *s = c->s;
    const SchedGraph *g = c->g;
    for (int i = 0; i < g->n_param; i++)
        if (!g->param[i].replicate) {
            c->no_param[g->param[i].to]++;
            c->no_grad[g->param[i].from] += g->param[i].gradient && !s->infer;
        }
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++)
            if (s->row[r].a[i].type == SA_UNSHARD)
                c->unshards[s->row[r].a[i].stage] = 1;
    for (int k = 0; k < s->stages; k++)
        if (!c->unshards[k])
            send_params(c, k);
}

int sched_comms_graph(Schedule *s, const SchedGraph *g, SchedError *e)
{
    Pool room = {0};
    const size_t ranks = (size_t)s->ranks, stages = (size_t)s->stages;
    if (s->complete)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "the schedule has sends and receives already");
    Comms c = {.s = s,
               .g = g,
               .out = calloc(ranks, sizeof *c.out),
               .placed = sched_room(&room, sched_pairs(s), 1),
               .cursor = sched_room(&room, ranks, sizeof *c.cursor),
               .backwards = sched_room(&room, stages, sizeof *c.backwards),
               .no_param = sched_room(&room, stages, sizeof *c.no_param),
               .no_grad = sched_room(&room, stages, sizeof *c.no_grad),
               .sent = sched_room(&room, stages, sizeof *c.sent),
               .unshards = sched_room(&room, stages, sizeof *c.unshards),
               .e = e};
    int st = room.lost || !c.out ? sched_nomem(e) : SCHED_OK;
    if (!st) {
        begin_params(&c);
        st = run_turns(&c);
    }
    pool_free(&room);
    s->complete = !st;
    return sched_take_rows(s, c.out, st, e);
}
