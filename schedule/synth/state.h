/*
 * state.h - a partial schedule: what each stage has done, until when each rank is busy, and when
 * each result is ready.  Microbatches are alike, so each stage takes them in order.
 *
 * Its arrays are in one block of memory, which a search may copy.
 */
#ifndef PP_SCHEDULE_SYNTH_STATE_H
#define PP_SCHEDULE_SYNTH_STATE_H

#include "synth.h"

#include <math.h>
#include <string.h>

typedef struct SynthState {
    double *clock, *at;          /* per rank: it is free; it decides next */
    double *first, *live, *idle; /* it began, negative: not yet; holds; has waited since */
    double *end_f, *end_i;       /* per (stage, microbatch) */
    int *f, *i, *w;              /* per stage: how many are done */
} SynthState;

/* fmin() and fmax() without NaN handling, which would cost a call. */
static inline double least_of(double a, double b) { return b < a ? b : a; }
static inline double most_of(double a, double b) { return b > a ? b : a; }

static inline size_t state_place(const SynthTask *t, int stage, int mb)
{
    return (size_t)stage * (size_t)t->microbatches + (size_t)mb;
}

static inline size_t state_size(const SynthTask *t)
{
    return (5 * (size_t)t->ranks + 2 * state_place(t, t->stages, 0)) * sizeof(double) +
           3 * (size_t)t->stages * sizeof(int);
}

static inline SynthState state_in(const SynthTask *t, void *memory)
{
    const size_t P = (size_t)t->ranks, S = (size_t)t->stages, n = state_place(t, t->stages, 0);
    SynthState v = {.clock = memory};
    v.at = v.clock + P, v.first = v.at + P, v.live = v.first + P, v.idle = v.live + P;
    v.end_f = v.idle + P, v.end_i = v.end_f + n;
    v.f = (int *)(void *)(v.end_i + n), v.i = v.f + S, v.w = v.i + S;
    return v;
}

/* Nothing is done. */
static inline SynthState state_begin(const SynthTask *t, void *memory)
{
    SynthState v = state_in(t, memory);
    memset(memory, 0, state_size(t));
    for (int r = 0; r < t->ranks; r++)
        v.first[r] = -1;
    return v;
}

static inline double state_time(const SynthTask *t, int stage, int type)
{
    return (type == SA_F ? t->f : type == SA_I ? t->i : type == SA_W ? t->w : t->b)[stage];
}

/* When the input of the stage's next F, or I or B, is ready; HUGE_VAL: nobody has begun to compute
   it. */
static inline double state_ready(const SynthTask *t, const SynthState *v, int stage, int type)
{
    double when = 0;
    for (SchedNeed n = sched_needs(t->g, type, stage); sched_next(t->g, &n);) {
        const int mb = (n.back ? v->i : v->f)[stage];
        if ((n.back ? v->i : v->f)[n.stage] <= mb)
            return HUGE_VAL;
        when = most_of(when, (n.back ? v->end_i : v->end_f)[state_place(t, n.stage, mb)] +
                                 (n.back ? t->away_b : t->away_f)[n.edge]);
    }
    return when;
}

/* A stage's rank may have something to do then. */
static inline void state_wake(const SynthTask *t, SynthState *v, int stage, double at)
{
    int r = t->rank_of[stage];
    v->at[r] = least_of(v->at[r], most_of(v->clock[r], at));
}

/* The stage's next computation of a type begins; returns which microbatch's it is. */
static inline int state_take(const SynthTask *t, SynthState *v, int stage, int type, double now)
{
    const SchedGraph *g = t->g;
    const double end = now + state_time(t, stage, type);
    const int r = t->rank_of[stage];
    if (v->first[r] < 0)
        v->first[r] = now;
    else
        v->idle[r] += now - v->clock[r];
    v->clock[r] = v->at[r] = end;
    if (type == SA_F) {
        v->live[r] += t->stash[stage];
        v->end_f[state_place(t, stage, v->f[stage])] = end;
        for (int k = g->out_first[stage]; k < g->out_first[stage + 1]; k++)
            state_wake(t, v, g->edge[k].to, end + t->away_f[k]);
        return v->f[stage]++;
    }
    if (type == SA_W) {
        v->live[r] -= t->late[stage] + t->saved[stage];
        return v->w[stage]++;
    }
    v->live[r] -=
        type == SA_B ? t->stash[stage] : t->stash[stage] - t->late[stage] - t->saved[stage];
    v->w[stage] += type == SA_B;
    v->end_i[state_place(t, stage, v->i[stage])] = end;
    for (int k = g->in_first[stage]; k < g->in_first[stage + 1]; k++)
        state_wake(t, v, g->edge[g->in[k]].from, end + t->away_b[g->in[k]]);
    return v->i[stage]++;
}

#endif
