/*
 * until.c - in: an action of a verified schedule; out: on every rank the actions that run before
 * the pipeline stops after it, and the state in which it then is.
 *
 * What runs on a rank is the shortest prefix of its row that the action's past needs: the message
 * that a computation waits for has been sent, the message that a wait is about has been received.
 * So the state follows from the rows alone, and it is the same over every transport and for any
 * timing.
 */
#include "exec.h"

typedef struct {
    const Run *run;
    const Schedule *s;
    int *need, *seen; /* per rank: actions to run, actions looked at */
} Past;

static int same(const SchedAction *a, const SchedAction *b)
{
    return a->type == b->type && a->stage == b->stage && a->microbatch == b->microbatch &&
           a->peer == b->peer;
}

static int find(const Schedule *s, const SchedAction *a, int *rank)
{
    *rank = a->stage >= 0 && a->stage < s->stages ? s->rank_of[a->stage] : -1;
    for (int i = 0; *rank >= 0 && i < s->row[*rank].n; i++)
        if (same(&s->row[*rank].a[i], a))
            return i;
    return -1;
}

static void need(Past *p, int type, int stage, int microbatch, int peer)
{
    SchedAction a = {stage, microbatch, peer, (uint8_t)type, 0, 0, 0};
    int rank, i = find(p->s, &a, &rank);
    if (i >= 0 && p->need[rank] < i + 1)
        p->need[rank] = i + 1;
}

/* Computations: the messages received before them on their own row say what must have been sent. */
static void needs_messages(Past *p, const SchedRow *row, int at, int type)
{
    const SchedAction *a = &row->a[at];
    int send = type == SA_RECV_F ? SA_SEND_F : SA_SEND_B;
    for (int i = 0; i < at; i++)
        if (row->a[i].type == type && row->a[i].stage == a->stage &&
            row->a[i].microbatch == a->microbatch)
            need(p, send, row->a[i].peer, a->microbatch, a->stage);
}

/* Sums over copies: a user's gradient, or the owner's sum. */
static void needs_reductions(Past *p, const SchedAction *a)
{
    const PpPlan *plan = p->run->model;
    for (int s = 0; s < plan->n_stage; s++)
        for (int k = 0; k < plan->stage[s]->n_param; k++) {
            const PpParam *q = &plan->stage[s]->param[k];
            if (q->use == PP_OWN || q->from == s || q->grad_offset < 0)
                continue;
            if (q->use == PP_TRANSMIT && a->type == SA_REDUCE_GRAD && q->from == a->stage)
                need(p, SA_SEND_GP, s, -1, a->stage);
            if (q->use == PP_REPLICATE && a->type == SA_WAIT_REDUCE_GRAD && q->from == a->stage)
                need(p, SA_REDUCE_GRAD, s, -1, -1);
            if (q->use == PP_REPLICATE && a->type == SA_WAIT_REDUCE_GRAD && s == a->stage)
                need(p, SA_WAIT_REDUCE_GRAD, q->from, -1, -1);
        }
}

static void needs(Past *p, const SchedRow *row, int i)
{
    const SchedAction *a = &row->a[i];
    switch (a->type) {
    case SA_F: needs_messages(p, row, i, SA_RECV_F); break;
    case SA_B:
    case SA_I: needs_messages(p, row, i, SA_RECV_B); break;
    case SA_WAIT_SEND_F: need(p, SA_RECV_F, a->peer, a->microbatch, a->stage); break;
    case SA_WAIT_SEND_B: need(p, SA_RECV_B, a->peer, a->microbatch, a->stage); break;
    case SA_RECV_P: need(p, SA_SEND_P, a->peer, -1, a->stage); break;
    case SA_REDUCE_GRAD:
    case SA_WAIT_REDUCE_GRAD: needs_reductions(p, a); break;
    default: break;
    }
}

static int look_on(Past *p)
{
    int moved = 0;
    for (int r = 0; r < p->s->ranks; r++) {
        const SchedRow *row = &p->s->row[r];
        /* the halves of a compound run together */
        while (p->need[r] > 0 && p->need[r] < row->n &&
               (row->a[p->need[r] - 1].overlap & SCHED_PART) &&
               !(row->a[p->need[r] - 1].overlap & SCHED_LAST))
            p->need[r]++;
        for (; p->seen[r] < p->need[r]; p->seen[r]++) {
            needs(p, row, p->seen[r]);
            moved = 1;
        }
    }
    return moved;
}

PpStatus until_plan(Run *run)
{
    const char *text = run->opt->report.until;
    const Schedule *s = run->sched;
    SchedAction a;
    int rank;
    if (!sched_action_parse(text, &a))
        return pp_fail(PP_ERR_USAGE,
                       "--until %s: not an action; 1B3 is the backward of microbatch 3 on stage 1",
                       text);
    int i = find(s, &a, &rank);
    if (i < 0)
        return pp_fail(
            PP_ERR_USAGE,
            "--until %s: the schedule has no such action (%d stages, %d microbatches, %s)", text,
            s->stages, s->microbatches, s->name);
    Past p = {.run = run, .s = s};
    TRY(pp_take(&run->pool, &p.need, s->ranks, sizeof *p.need));
    TRY(pp_take(&run->pool, &p.seen, s->ranks, sizeof *p.seen));
    p.need[rank] = i + 1;
    while (look_on(&p))
        ;
    run->until = p.need;
    return PP_OK;
}

/* ---- the state ---- */

static int done(const SchedRow *row, int n, int type, int stage, int microbatch)
{
    for (int i = 0; i < n; i++)
        if (row->a[i].type == type && row->a[i].stage == stage &&
            row->a[i].microbatch == microbatch)
            return 1;
    return 0;
}

/* Microbatches of a stage: forward done and backward not; inputs' gradient done and weights' not.
 */
static void print_stage(const Run *run, int stage)
{
    const Schedule *s = run->sched;
    const SchedRow *row = &s->row[s->rank_of[stage]];
    int n = run->until[s->rank_of[stage]];
    const char *state[] = {"forward done", "I done, W not", "finished"};
    printf("  stage %d:", stage);
    int any = 0;
    for (int k = 0; k < 3; k++) {
        int first = 1;
        for (int m = 0; m < s->microbatches; m++) {
            int f = done(row, n, SA_F, stage, m), half = done(row, n, SA_I, stage, m);
            int end = done(row, n, SA_B, stage, m) || done(row, n, SA_W, stage, m);
            if (!f || k != (end ? 2 : half ? 1 : 0))
                continue;
            if (first)
                printf("%s %s", any ? ";" : "", state[k]);
            printf(" %d", m);
            first = 0;
            any = 1;
        }
    }
    printf("%s\n", any ? "" : " nothing yet");
}

void until_print(const Run *run)
{
    const Schedule *s = run->sched;
    printf("stopped after %s", run->opt->report.until);
    if (run->replicas > 1)
        printf(", each of %d replicas alike", run->replicas);
    if (run->members > 1)
        printf(", each of %d members of a rank alike", run->members);
    putchar('\n');
    for (int k = 0; k < s->ranks; k++) {
        const SchedRow *row = &s->row[k];
        char next[80] = "nothing";
        if (run->until[k] < row->n)
            sched_action_text(next, sizeof next, &row->a[run->until[k]]);
        printf("rank %d: %d of %d actions done, next %s\n", k, run->until[k], row->n, next);
        for (int stage = 0; stage < s->stages; stage++)
            if (s->rank_of[stage] == k)
                print_stage(run, stage);
    }
    fflush(stdout);
}
