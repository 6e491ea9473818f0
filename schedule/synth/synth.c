/*
 * synth.c - the list scheduler: one pass over time, in which each rank that is free decides what
 * comes next.
 *
 * In: a task, a policy.  Out: rows of F, I, W (or B), each stage's microbatches in order; their
 * makespan and span.  The decision is that of Zero Bubble Pipeline Parallelism (2401.10241,
 * section 3.1) with the order of forwards and backwards left to the policy's keys: those of a
 * repeating pattern (2405.15362) lead into that pattern where memory is short, and pack warm-up and
 * cool-down around it.
 *
 * No deadlock: a forward leaves room for one microbatch of every later stage of its rank that holds
 * none, so the oldest microbatch can always go on.
 */
#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const SynthTask *t;
    const SynthPolicy *p;
    int m;
    SchedRow *rows;
    int *f, *i, *w;              /* per stage: how many are done */
    double *end_f, *end_i;       /* per (stage, microbatch) */
    double *clock, *at;          /* per rank: it is free; it decides next */
    double *live, *idle, *first; /* per rank; first < 0: has not begun */
    int leaves, *soonest;        /* a tournament of ranks by `at`, the lower one of equals: its
                                    winners, soonest[1] of all, and behind `leaves` the ranks */
} Synth;

typedef struct {
    int type, stage;
    double at, key, time;
} Choice;

/* fmin() and fmax() without their care for NaN, which costs a call. */
static double least_of(double a, double b)
{
    return b < a ? b : a;
}

static double most_of(double a, double b)
{
    return b > a ? b : a;
}

static double *of(double *list, const Synth *x, int stage, int mb)
{
    return &list[(size_t)stage * (size_t)x->m + (size_t)mb];
}

static void set_at(Synth *x, int r, double at)
{
    x->at[r] = at;
    for (int k = (x->leaves + r) / 2; k > 0; k /= 2) {
        int a = x->soonest[2 * k], b = x->soonest[2 * k + 1];
        x->soonest[k] = x->at[b] < x->at[a] ? b : a;
    }
}

/* When the input of the stage's next forward is there; HUGE_VAL: nobody has begun to make it. */
static double forward_at(const Synth *x, int stage)
{
    const SchedGraph *g = x->t->g;
    double at = 0;
    for (int k = g->in_first[stage]; k < g->in_first[stage + 1]; k++) {
        int from = g->edge[g->in[k]].from;
        if (x->f[from] <= x->f[stage])
            return HUGE_VAL;
        at = most_of(at, *of(x->end_f, x, from, x->f[stage]) + x->t->away_f[g->in[k]]);
    }
    return at;
}

static double backward_at(const Synth *x, int stage)
{
    const SchedGraph *g = x->t->g;
    double at = 0;
    for (int k = g->out_first[stage]; k < g->out_first[stage + 1]; k++) {
        int to = g->edge[k].to;
        if (!g->edge[k].gradient)
            continue;
        if (x->i[to] <= x->i[stage])
            return HUGE_VAL;
        at = most_of(at, *of(x->end_i, x, to, x->i[stage]) + x->t->away_b[k]);
    }
    return at;
}

/* Has the oldest microbatch of a rank all its forwards there behind it?  Then it will leave without
   asking for more memory. */
static int oldest_returns(const Synth *x, int r)
{
    const SynthTask *t = x->t;
    int oldest = x->m, forwards = x->m;
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k];
        if (x->f[s] > x->w[s] && x->w[s] < oldest)
            oldest = x->w[s];
        if (x->f[s] < forwards)
            forwards = x->f[s];
    }
    return oldest < forwards;
}

static int fits(const Synth *x, int r, int stage)
{
    const SynthTask *t = x->t;
    int cap = x->p->cap[stage];
    double need = x->live[r] + t->stash[stage], most = t->saved[stage];
    if (cap > 0 && x->f[stage] - x->w[stage] >= cap)
        return 0;
    int returns = x->p->tight && oldest_returns(x, r);
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k];
        if (!returns && s > stage && x->f[s] == x->w[s])
            need += t->stash[s];
        most = most_of(most, t->saved[s]);
    }
    return need + most <= t->limit[r] * (1 + 1e-12);
}

/* Keeps of the two the one that comes first by its key. */
static void better(Choice *best, Choice c)
{
    if (best->type == SA_IDLE || c.key < best->key)
        *best = c;
}

/* Does a W go into a gap of this length? */
static int fills(const Synth *x, int r, double gap, double time)
{
    double most = 0;
    if (gap >= time * (1 - 1e-12) || x->p->patience == 0)
        return 1;
    for (int q = 0; q < x->t->ranks; q++)
        most = most_of(most, x->idle[q]);
    return x->idle[r] + gap > most + x->p->bubble * time;
}

static int decide(Synth *x, int r, double now, Choice *chosen, double *wake)
{
    const SynthTask *t = x->t;
    Choice can = {.type = SA_IDLE}, will = {.type = SA_IDLE}, fill = {.type = SA_IDLE};
    double soon = HUGE_VAL;
    int strict = x->p->patience == HUGE_VAL;
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k];
        if (x->i[s] < x->f[s]) {
            double at = backward_at(x, s);
            Choice c = {x->p->whole ? SA_B : SA_I, s, at, *of(x->p->key_i, x, s, x->i[s]),
                        x->p->whole ? t->b[s] : t->i[s]};
            if (at <= now)
                better(&can, c);
            else if (at < HUGE_VAL || strict)
                better(&will, c), soon = least_of(soon, at);
        }
        if (x->f[s] < x->m && fits(x, r, s)) {
            double at = forward_at(x, s);
            Choice c = {SA_F, s, at, *of(x->p->key_f, x, s, x->f[s]), t->f[s]};
            if (at <= now)
                better(&can, c);
            else if (at < HUGE_VAL || strict)
                better(&will, c), soon = least_of(soon, at);
        }
        if (x->w[s] < x->i[s])
            better(&fill, (Choice){SA_W, s, now, *of(x->p->key_w, x, s, x->w[s]), t->w[s]});
    }
    double gap = soon - now;
    if (fill.type != SA_IDLE && ((can.type != SA_IDLE && fill.key < can.key) ||
                                 (can.type == SA_IDLE && strict && fill.key < will.key)))
        can = fill;
    if (can.type != SA_IDLE && will.type != SA_IDLE && will.key < can.key &&
        (strict || will.at - now < x->p->patience * can.time)) {
        soon = will.at;
        gap = will.at < HUGE_VAL ? will.at - now : will.time; /* no sooner, if all take the same */
        can.type = SA_IDLE;
    }
    if (can.type == SA_IDLE && fill.type != SA_IDLE && fills(x, r, gap, fill.time))
        can = fill;
    *wake = soon;
    *chosen = can;
    return can.type != SA_IDLE;
}

static void wake_up(Synth *x, int stage, double at)
{
    int r = x->t->rank_of[stage];
    at = most_of(x->clock[r], at);
    if (at < x->at[r])
        set_at(x, r, at);
}

static void carry_out(Synth *x, int r, double now, const Choice *c)
{
    const SynthTask *t = x->t;
    const SchedGraph *g = t->g;
    int s = c->stage, mb = c->type == SA_F ? x->f[s] : c->type == SA_W ? x->w[s] : x->i[s];
    double end = now + c->time;
    if (x->rows)
        sched_push(&x->rows[r], sched_act(c->type, s, mb));
    if (x->first[r] < 0)
        x->first[r] = now;
    else
        x->idle[r] += now - x->clock[r];
    x->clock[r] = end;
    set_at(x, r, end);
    if (c->type == SA_F) {
        x->f[s]++;
        x->live[r] += t->stash[s];
        *of(x->end_f, x, s, mb) = end;
        for (int k = g->out_first[s]; k < g->out_first[s + 1]; k++)
            wake_up(x, g->edge[k].to, end + t->away_f[k]);
    } else if (c->type == SA_W) {
        x->w[s]++;
        x->live[r] -= t->late[s] + t->saved[s];
    } else {
        x->i[s]++;
        x->w[s] += c->type == SA_B;
        x->live[r] -= c->type == SA_B ? t->stash[s] : t->stash[s] - t->late[s] - t->saved[s];
        *of(x->end_i, x, s, mb) = end;
        for (int k = g->in_first[s]; k < g->in_first[s + 1]; k++)
            wake_up(x, g->edge[g->in[k]].from, end + t->away_b[g->in[k]]);
    }
}

/* Will a rank end too late, with what it has idled and what it has to do? */
static int too_late(const Synth *x, int r, const SynthStop *stop)
{
    double end = x->idle[r] + (x->p->whole ? x->t->work_whole : x->t->work)[r];
    return (stop->span ? end : x->first[r] + end) > stop->most * (1 + 1e-9);
}

static int run(Synth *x, SynthStop *stop, SynthScore *score)
{
    const SynthTask *t = x->t;
    for (;;) {
        int r = x->soonest[1];
        Choice c;
        double wake, now = x->at[r];
        if (!(now < HUGE_VAL))
            break;
        stop->looked++;
        if (decide(x, r, now, &c, &wake)) {
            carry_out(x, r, now, &c);
            if (too_late(x, r, stop))
                return 0;
        } else {
            set_at(x, r, wake);
        }
    }
    *score = (SynthScore){0, 0, 0};
    for (int s = 0; s < t->stages; s++)
        if (x->w[s] < x->m)
            return 0;
    for (int r = 0; r < t->ranks; r++) {
        score->makespan = most_of(score->makespan, x->clock[r]);
        score->span = most_of(score->span, x->clock[r] - x->first[r]);
        score->sum += x->clock[r] - x->first[r];
    }
    return 1;
}

int synth_run(const SynthTask *t, const SynthPolicy *p, SynthStop *stop, SynthScore *score,
              SchedRow *rows)
{
    SynthStop none = {.most = HUGE_VAL};
    size_t S = (size_t)t->stages, P = (size_t)t->ranks, n = S * (size_t)t->microbatches, L = 1;
    while (L < P)
        L *= 2;
    int *counts = calloc(3 * S + 2 * L, sizeof *counts);
    double *times = calloc(2 * n + 4 * P + L, sizeof *times);
    int good = 0;
    if (counts && times) {
        Synth x = {.t = t,
                   .p = p,
                   .m = t->microbatches,
                   .rows = rows,
                   .f = counts,
                   .i = counts + S,
                   .w = counts + 2 * S,
                   .soonest = counts + 3 * S,
                   .leaves = (int)L,
                   .end_f = times,
                   .end_i = times + n,
                   .clock = times + 2 * n};
        x.live = x.clock + P;
        x.idle = x.live + P;
        x.first = x.idle + P;
        x.at = x.first + P;
        for (size_t r = 0; r < L; r++) {
            x.soonest[L + r] = (int)r;
            x.at[r] = r < P ? 0 : HUGE_VAL;
        }
        for (size_t k = L - 1; k > 0; k--)
            x.soonest[k] = x.soonest[2 * k]; /* all begin at 0 */
        for (size_t r = 0; r < P; r++)
            x.first[r] = -1;
        good = run(&x, stop ? stop : &none, score);
    }
    free(counts);
    free(times);
    return good;
}
