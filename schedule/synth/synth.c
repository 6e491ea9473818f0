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
#include "state.h"

#include <stdlib.h>

typedef struct {
    const SynthTask *t;
    const SynthPolicy *p;
    int m;
    SchedRow *rows;
    SynthState v;
    int *behind; /* per stage: its forwards come so many backwards later than their keys say */
} Synth;

typedef struct {
    int type, stage;
    double at, key, time;
} Choice;

static double key_of(const Synth *x, const double *key, int stage, int mb)
{
    return key[state_place(x->t, stage, mb)];
}

static double forward_key(const Synth *x, int stage)
{
    return key_of(x, x->p->key_f, stage, x->v.f[stage]) + x->behind[stage] * x->t->period;
}

/* Has the oldest microbatch of a rank all its forwards there behind it?  Then it will leave without
   asking for more memory. */
static int oldest_returns(const Synth *x, int r)
{
    const SynthTask *t = x->t;
    int oldest = x->m, forwards = x->m;
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k];
        if (x->v.f[s] > x->v.w[s] && x->v.w[s] < oldest)
            oldest = x->v.w[s];
        if (x->v.f[s] < forwards)
            forwards = x->v.f[s];
    }
    return oldest < forwards;
}

static int fits(const Synth *x, int r, int stage)
{
    const SynthTask *t = x->t;
    int cap = x->p->cap[stage];
    double need = x->v.live[r] + t->stash[stage], most = t->saved[stage];
    if (cap > 0 && x->v.f[stage] - x->v.w[stage] >= cap)
        return 0;
    int returns = x->p->tight && oldest_returns(x, r);
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k];
        if (!returns && s > stage && x->v.f[s] == x->v.w[s])
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

static double most_idle(const Synth *x)
{
    double most = 0;
    for (int q = 0; q < x->t->ranks; q++)
        most = most_of(most, x->v.idle[q]);
    return most;
}

/* Does a W go into a gap of this length? */
static int fills(const Synth *x, int r, double gap, double time)
{
    if (gap >= time * (1 - 1e-12) || x->p->patience == 0 || x->p->fill)
        return 1;
    return x->v.idle[r] + gap > most_idle(x);
}

/* Does the stage's forward come before its next backward? */
static int leads(const Synth *x, int stage)
{
    const int back = x->v.i[stage];
    return x->v.f[stage] < x->m && back < x->m &&
           forward_key(x, stage) < key_of(x, x->p->key_i, stage, back);
}

/* A forward comes a backward later if the next stage, which has two in store, does not need it by
   then, or has put off its own. */
static void put_off(Synth *x, int stage, double now)
{
    const SynthTask *t = x->t;
    const SynthState *v = &x->v;
    const int next = stage + 1, back = v->i[stage];
    if (next == t->stages || back == 0 || !leads(x, stage))
        return;
    if (x->behind[stage] < x->behind[next]) {
        x->behind[stage]++;
        return;
    }
    const int edge = sched_graph_edge(t->g, stage, next);
    if (v->f[stage] < v->f[next] + 2 || edge < 0)
        return;
    double needed = t->away_b[edge], end = now + t->f[stage];
    needed += v->i[next] > back
                  ? v->end_i[state_place(t, next, back)]
                  : v->clock[t->rank_of[next]] + t->i[next] + (leads(x, next) ? t->f[next] : 0);
    if (!fits(x, t->rank_of[stage], stage))
        end += t->w[stage];
    x->behind[stage] += now >= needed ||
                        (end > needed && v->idle[t->rank_of[stage]] + needed - now <= most_idle(x));
}

/* What a rank may do: the best of what it can now, and of what it could later, by their keys; W
   that fills a gap; when the first of what comes later is there. */
typedef struct {
    Choice can, will, fill;
    double soon;
} Choices;

static void offer(Choices *c, double now, Choice it, int strict)
{
    if (it.at <= now)
        better(&c->can, it);
    else if (it.at < HUGE_VAL || strict)
        better(&c->will, it), c->soon = least_of(c->soon, it.at);
}

static Choices choices(Synth *x, int r, double now, int strict)
{
    const SynthTask *t = x->t;
    const SynthState *v = &x->v;
    const int back = x->p->whole ? SA_B : SA_I;
    const Choice none = {.type = SA_IDLE, .at = HUGE_VAL};
    Choices c = {none, none, none, HUGE_VAL};
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k], weights = v->w[s] < v->i[s];
        if (x->p->spare)
            put_off(x, s, now);
        if (v->i[s] < v->f[s])
            offer(&c, now,
                  (Choice){back, s, state_ready(t, v, s, SA_I), key_of(x, x->p->key_i, s, v->i[s]),
                           state_time(t, s, back)},
                  strict);
        if (v->f[s] < x->m && fits(x, r, s))
            offer(&c, now, (Choice){SA_F, s, state_ready(t, v, s, SA_F), forward_key(x, s), t->f[s]},
                  strict);
        else if (v->f[s] < x->m && weights && x->p->room)
            better(&c.can, (Choice){SA_W, s, now, forward_key(x, s), t->w[s]});
        if (weights)
            better(&c.fill, (Choice){SA_W, s, now, key_of(x, x->p->key_w, s, v->w[s]), t->w[s]});
    }
    return c;
}

static int decide(Synth *x, int r, double now, Choice *chosen, double *wake)
{
    const int strict = x->p->patience == HUGE_VAL;
    Choices c = choices(x, r, now, strict);
    const int idle = c.can.type == SA_IDLE, filled = c.fill.type != SA_IDLE;
    double gap = c.soon - now;
    if (filled && (idle ? strict && c.fill.key < c.will.key : c.fill.key < c.can.key))
        c.can = c.fill;
    if (c.can.type != SA_IDLE && c.will.type != SA_IDLE && c.will.key < c.can.key &&
        (strict || c.will.at - now < x->p->patience * c.can.time)) {
        c.soon = c.will.at;
        /* no sooner, if all take the same */
        gap = c.will.at < HUGE_VAL ? c.will.at - now : c.will.time;
        c.can.type = SA_IDLE;
    }
    if (c.can.type == SA_IDLE && filled && fills(x, r, gap, c.fill.time))
        c.can = c.fill;
    *wake = c.soon;
    *chosen = c.can;
    return c.can.type != SA_IDLE;
}

/* Will a rank end too late, with what it has idled and what it has to do? */
static int too_late(const Synth *x, int r, const SynthStop *stop)
{
    double end = x->v.idle[r] + (x->p->whole ? x->t->work_whole : x->t->work)[r];
    return (stop->span ? end : x->v.first[r] + end) > stop->most * (1 + 1e-9);
}

/* The rank that decides first, the lower one of equals. */
static int soonest(const Synth *x)
{
    int r = 0;
    for (int q = 1; q < x->t->ranks; q++)
        r = x->v.at[q] < x->v.at[r] ? q : r;
    return r;
}

static int run(Synth *x, SynthStop *stop, SynthScore *score)
{
    const SynthTask *t = x->t;
    SynthState *v = &x->v;
    for (;;) {
        int r = soonest(x);
        Choice c;
        double wake, now = v->at[r];
        if (!(now < HUGE_VAL))
            break;
        stop->looked++;
        if (!decide(x, r, now, &c, &wake)) {
            v->at[r] = wake;
            continue;
        }
        int mb = state_take(t, v, c.stage, c.type, now);
        if (x->rows)
            sched_push(&x->rows[r], sched_act(c.type, c.stage, mb));
        if (too_late(x, r, stop))
            return 0;
    }
    *score = (SynthScore){0, 0, 0};
    for (int s = 0; s < t->stages; s++)
        if (v->w[s] < x->m)
            return 0;
    for (int r = 0; r < t->ranks; r++) {
        score->makespan = most_of(score->makespan, v->clock[r]);
        score->span = most_of(score->span, v->clock[r] - v->first[r]);
        score->sum += v->clock[r] - v->first[r];
    }
    return 1;
}

int synth_run(const SynthTask *t, const SynthPolicy *p, SynthStop *stop, SynthScore *score,
              SchedRow *rows)
{
    SynthStop none = {.most = HUGE_VAL};
    Synth x = {.t = t, .p = p, .m = t->microbatches, .rows = rows};
    void *memory = malloc(state_size(t));
    int good = 0;
    x.behind = calloc((size_t)t->stages, sizeof *x.behind);
    if (memory && x.behind) {
        x.v = state_begin(t, memory);
        good = run(&x, stop ? stop : &none, score);
    }
    free(memory);
    free(x.behind);
    return good;
}
