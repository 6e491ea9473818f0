/*
 * greedy.c - the automatic scheduler of Zero Bubble Pipeline Parallelism (2401.10241, section 3.1),
 * for one stage a rank.
 *
 * In: a task.  Out: rows of F, I, W with the shortest span of those that its three switches lead
 * to.  Warm-up takes as many forwards as end before the first backward arrives and fit the memory;
 * then each round has a forward and a backward on every rank; W goes where there is a gap of its
 * length, where a shorter one would make the rank the idlest, and where memory is needed; the rest
 * comes at the end.  An earlier rank is ahead of a later one by a forward at least, so whatever
 * feeds a forward has been placed when it is.
 */
#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int late;   /* the last forward of the warm-up may make the first backward wait */
    int spare;  /* a forward whose rank is ahead is left out if the next rank does not need it */
    int filled; /* any gap takes a W */
} Switches;

typedef struct {
    const SynthTask *t;
    Switches is;
    int m;
    SchedRow *rows;        /* NULL: only the span */
    int *f, *i, *w;        /* per rank: how many are done */
    int *want;             /* forwards of this round */
    double *end_f, *end_i; /* per (rank, microbatch) */
    double *clock, *first, *idle, *live;
} Greedy;

static double *at(const Greedy *x, double *list, int s, int mb)
{
    return &list[(size_t)s * (size_t)x->m + (size_t)mb];
}

/* When the input of the next forward or backward is there; what feeds it has been placed. */
static double forward_at(const Greedy *x, int s)
{
    const SchedGraph *g = x->t->g;
    double when = 0;
    for (int k = g->in_first[s]; k < g->in_first[s + 1]; k++)
        when = fmax(when, *at(x, x->end_f, g->edge[g->in[k]].from, x->f[s]) +
                              x->t->away_f[g->in[k]]);
    return when;
}

static double backward_at(const Greedy *x, int s)
{
    const SchedGraph *g = x->t->g;
    double when = 0;
    for (int k = g->out_first[s]; k < g->out_first[s + 1]; k++)
        if (g->edge[k].gradient)
            when = fmax(when, *at(x, x->end_i, g->edge[k].to, x->i[s]) + x->t->away_b[k]);
    return when;
}

static void put(Greedy *x, int s, int type, double when)
{
    const SynthTask *t = x->t;
    int *n = (type == SA_F ? x->f : type == SA_I ? x->i : x->w) + s;
    double begin = fmax(x->clock[s], when);
    if (x->first[s] < 0)
        x->first[s] = begin;
    else
        x->idle[s] += begin - x->clock[s];
    x->clock[s] = begin + (type == SA_F ? t->f : type == SA_I ? t->i : t->w)[s];
    if (x->rows)
        sched_push(&x->rows[s], sched_act(type, s, *n));
    if (type == SA_F) {
        x->live[s] += t->stash[s];
        *at(x, x->end_f, s, *n) = x->clock[s];
    } else if (type == SA_I) {
        x->live[s] -= t->stash[s] - t->late[s] - t->saved[s];
        *at(x, x->end_i, s, *n) = x->clock[s];
    } else {
        x->live[s] -= t->late[s] + t->saved[s];
    }
    ++*n;
}

/* Is there room for so many forwards more, and for what an I has beside a stash? */
static int fits(const Greedy *x, int s, int forwards)
{
    const SynthTask *t = x->t;
    return x->live[s] + forwards * t->stash[s] + t->saved[s] <= t->limit[s] * (1 + 1e-12);
}

static double most_idle(const Greedy *x)
{
    double most = 0;
    for (int s = 0; s < x->t->stages; s++)
        most = fmax(most, x->idle[s]);
    return most;
}

/* W that end before `when`, and one more where the gap that is left costs more than it. */
static void fill(Greedy *x, int s, double when)
{
    while (x->w[s] < x->i[s] && x->clock[s] + x->t->w[s] <= when)
        put(x, s, SA_W, 0);
    double gap = when - x->clock[s];
    if (x->w[s] < x->i[s] && gap > 0 && (x->is.filled || gap > most_idle(x) - x->idle[s]))
        put(x, s, SA_W, 0);
}

/* 0: it does not fit. */
static int forward(Greedy *x, int s)
{
    while (!fits(x, s, 1)) {
        if (x->w[s] == x->i[s])
            return 0;
        put(x, s, SA_W, 0);
    }
    double when = forward_at(x, s);
    if (s > 0)
        fill(x, s, when);
    put(x, s, SA_F, when);
    return 1;
}

static void backward(Greedy *x, int s)
{
    double when = backward_at(x, s);
    fill(x, s, when);
    while (s == 0 && x->f[0] == x->m && x->w[0] < x->i[0])
        put(x, s, SA_W, 0);
    put(x, s, SA_I, when);
}

/* The latest that a message between neighbours takes. */
static double hop(const Greedy *x, int s)
{
    int k = sched_graph_edge(x->t->g, s, s + 1);
    return k < 0 ? 0 : x->t->away_b[k];
}

static int warm_up(Greedy *x)
{
    const SynthTask *t = x->t;
    int last = t->stages - 1, *want = x->want;
    for (int s = 0; s <= last; s++)
        if (!forward(x, s))
            return 0;
    double back = x->clock[last] + t->i[last]; /* the first backward has ended */
    want[last] = 0;
    for (int s = last - 1; s >= 0; s--) {
        double end = x->clock[s], arrives = back + hop(x, s);
        for (want[s] = 0; x->f[s] + want[s] < x->m && fits(x, s, want[s] + 1); want[s]++) {
            if (x->is.late ? end >= arrives : end + t->f[s] > arrives)
                break;
            end += t->f[s];
        }
        back = fmax(end, arrives) + t->i[s];
    }
    for (int s = 1; s <= last; s++)
        while (want[s] > 0 && want[s] >= want[s - 1] && x->f[s] + want[s] < x->m)
            want[s]--;
    for (int s = 0; s <= last; s++)
        for (int k = 0; k < want[s]; k++)
            put(x, s, SA_F, forward_at(x, s));
    for (int s = last; s >= 0; s--)
        put(x, s, SA_I, backward_at(x, s));
    return 1;
}

/* Is a forward of this round wanted, where the next rank has two in store? */
static int needed(const Greedy *x, int s)
{
    const SynthTask *t = x->t;
    double next = x->clock[s + 1] + t->f[s + 1] + t->i[s + 1] + hop(x, s), end = x->clock[s];
    double live = x->live[s] + t->stash[s] + t->saved[s];
    if (end >= next)
        return 0;
    for (int w = x->w[s]; live > t->limit[s] * (1 + 1e-12) && w < x->i[s]; w++) {
        end += t->w[s];
        live -= t->late[s] + t->saved[s];
    }
    return end + t->f[s] <= next || next - x->clock[s] > most_idle(x) - x->idle[s];
}

static int round_of(Greedy *x)
{
    int last = x->t->stages - 1;
    for (int s = 0; s <= last; s++) {
        x->want[s] = x->f[s] < x->m;
        if (x->is.spare && s < last && x->want[s] && x->f[s] >= x->f[s + 1] + 2)
            x->want[s] = needed(x, s);
    }
    for (int s = last - 1; s >= 0; s--) /* a later rank has what it wants from an earlier one */
        x->want[s] = x->want[s] < x->want[s + 1] ? x->want[s] : x->want[s + 1];
    for (int s = 0; s <= last; s++)
        if (x->want[s] && !forward(x, s))
            return 0;
    for (int s = last; s >= 0; s--)
        backward(x, s);
    return 1;
}

static void begin(Greedy *x)
{
    size_t P = (size_t)x->t->stages;
    memset(x->f, 0, 3 * P * sizeof *x->f);
    memset(x->clock, 0, 4 * P * sizeof *x->clock);
    for (size_t s = 0; s < P; s++)
        x->first[s] = -1;
}

/* The longest span, HUGE_VAL: it does not fit. */
static double span_of(Greedy *x, int number)
{
    double span = 0;
    x->is = (Switches){number & 1, number >> 1 & 1, number >> 2 & 1};
    begin(x);
    int good = warm_up(x);
    for (int k = 1; k < x->m && good; k++)
        good = round_of(x);
    for (int s = 0; s < x->t->stages && good; s++) {
        good = x->f[s] == x->m;
        while (x->w[s] < x->m && good)
            put(x, s, SA_W, 0);
        span = fmax(span, x->clock[s] - x->first[s]);
    }
    return good ? span : HUGE_VAL;
}

int synth_greedy(const SynthTask *t, SchedRow *rows)
{
    enum { WAYS = 8 };
    size_t P = (size_t)t->stages, n = P * (size_t)t->microbatches;
    int *counts = malloc(4 * P * sizeof *counts), best = -1;
    double *times = malloc((2 * n + 4 * P) * sizeof *times), least = HUGE_VAL;
    if (counts && times) {
        Greedy x = {.t = t,
                    .m = t->microbatches,
                    .f = counts,
                    .i = counts + P,
                    .w = counts + 2 * P,
                    .want = counts + 3 * P,
                    .end_f = times,
                    .end_i = times + n,
                    .clock = times + 2 * n};
        x.first = x.clock + P, x.idle = x.first + P, x.live = x.idle + P;
        for (int k = 0; k < WAYS; k++) {
            double span = span_of(&x, k);
            if (span < least)
                least = span, best = k;
        }
        x.rows = rows;
        if (best >= 0)
            span_of(&x, best);
    }
    free(counts);
    free(times);
    return best >= 0;
}
