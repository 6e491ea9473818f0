/*
 * task.c - what is to be scheduled, in the form in which the list scheduler wants it.
 */
#include "synth.h"

#include <math.h>
#include <string.h>

int synth_task(SynthTask *t, const SchedGraph *g, int ranks, int microbatches, const int *rank_of)
{
    size_t S = (size_t)g->stages, P = (size_t)ranks, E = (size_t)g->n;
    *t = (SynthTask){
        .ranks = ranks, .stages = g->stages, .microbatches = microbatches, .g = g};
    double **const per_stage[] = {&t->f, &t->i, &t->w, &t->b, &t->stash, &t->late, &t->saved},
           **const per_edge[] = {&t->away_f, &t->away_b},
           **const per_rank[] = {&t->limit, &t->work, &t->work_whole};
    for (size_t k = 0; k < sizeof per_stage / sizeof *per_stage; k++)
        *per_stage[k] = sched_room(&t->room, S, sizeof(double));
    for (size_t k = 0; k < sizeof per_edge / sizeof *per_edge; k++)
        *per_edge[k] = sched_room(&t->room, E, sizeof(double));
    for (size_t k = 0; k < sizeof per_rank / sizeof *per_rank; k++)
        *per_rank[k] = sched_room(&t->room, P, sizeof(double));
    t->rank_of = sched_room(&t->room, S, sizeof(int));
    t->own = sched_room(&t->room, S, sizeof(int));
    t->first = sched_room(&t->room, P, sizeof(int));
    int n = 0;
    if (t->room.lost)
        return 0;
    memcpy(t->rank_of, rank_of, S * sizeof *rank_of);
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

void synth_task_free(SynthTask *t) { pool_free(&t->room); }
