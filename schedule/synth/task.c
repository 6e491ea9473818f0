/*
 * task.c - what is to be scheduled, in the form in which the list scheduler wants it.
 */
#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int synth_task(SynthTask *t, const SchedGraph *g, int ranks, int microbatches, const int *rank_of)
{
    size_t S = (size_t)g->stages, P = (size_t)ranks, E = (size_t)g->n;
    int *own = calloc(2 * S + P + 1, sizeof *own), n = 0;
    double *x = calloc(7 * S + 2 * E + 3 * P, sizeof *x);
    *t = (SynthTask){.ranks = ranks,
                     .stages = g->stages,
                     .microbatches = microbatches,
                     .rank_of = own,
                     .g = g,
                     .f = x,
                     .own = own};
    if (!own || !x)
        return 0;
    t->own = own + S;
    t->first = t->own + S;
    memcpy(own, rank_of, S * sizeof *own);
    t->i = t->f + S, t->w = t->i + S, t->b = t->w + S;
    t->stash = t->b + S, t->late = t->stash + S, t->saved = t->late + S;
    t->away_f = t->saved + S, t->away_b = t->away_f + E, t->limit = t->away_b + E;
    t->work = t->limit + P, t->work_whole = t->work + P;
    for (int r = 0; r < ranks; r++) {
        t->first[r] = n;
        for (int s = 0; s < g->stages; s++)
            if (rank_of[s] == r)
                t->own[n++] = s;
        t->limit[r] = HUGE_VAL;
    }
    t->first[ranks] = n;
    return 1;
}

void synth_task_ready(SynthTask *t)
{
    t->period = 0;
    for (int r = 0; r < t->ranks; r++) {
        double work = 0, whole = 0;
        for (int k = t->first[r]; k < t->first[r + 1]; k++) {
            int s = t->own[k];
            work += t->f[s] + t->i[s] + t->w[s];
            whole += t->f[s] + t->b[s];
        }
        t->work[r] = work * t->microbatches;
        t->work_whole[r] = whole * t->microbatches;
        t->period = fmax(t->period, work);
    }
}

void synth_task_free(SynthTask *t)
{
    free(t->f);
    union {
        const int *in;
        void *out;
    } own = {t->rank_of};
    free(own.out);
}
