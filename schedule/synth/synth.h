/*
 * synth.h - schedules made to measure: a list scheduler with a policy, the search for the best
 * policy, a beam of partial schedules, and the zero-bubble heuristic.
 *
 * Each is for what the others do not reach.  Of 83 problems (2 to 8 ranks, 1 to 3 chunks, 4 to 64
 * microbatches, no limit of memory, 1f1b's and half of it; equal costs and unequal ones):
 *
 *     search.c, synth.c   without them 16 of 83 are more than 1 % longer, up to 8 %, and 3 have none
 *     beam.c              without it 4 are, up to 6 %: small ones under tight memory
 *     greedy.c            without it none is; but 32 ranks with 96 to 256 microbatches idle for 1 to
 *                         2.4 % more of a step, since a search has no time for so many decisions
 *     v_block.c           makes v-half, v-min and v:K, which have names
 */
#ifndef PP_SCHEDULE_SYNTH_H
#define PP_SCHEDULE_SYNTH_H

#include "schedule/graph.h"
#include "schedule/simulate/simulate.h"

/* What is to be scheduled.  Times are those of a rank's computations, one after the other; memory
   is in any unit, and follows the simulator: F takes `stash`; while I runs there is `saved` beside
   it; after I `late` of the stash and `saved` stay until W. */
typedef struct SynthTask {
    int ranks, stages, microbatches;
    const int *rank_of;
    const SchedGraph *g;
    int *first, *own;             /* the stages of rank r: own[first[r] .. first[r+1]), ascending */
    double *f, *i, *w, *b;        /* per stage; b: the backward undivided */
    double *away_f, *away_b;      /* per edge: from the producer's end to the arrival */
    double *stash, *late, *saved; /* per stage */
    double *limit;                /* per rank */
    double *work, *work_whole;    /* per rank: all of its times; with the backward undivided */
    double period;                /* the work of the busiest rank for a microbatch */
} SynthTask;

/* When a rank is free it takes, of what is there and fits, the action with the smallest key plus
   microbatch times period; W has none: it fills gaps.  It waits for a better one that is on its way
   and arrives before `patience` times what it could do now has passed. */
typedef struct SynthPolicy {
    double *key_f, *key_i, *key_w; /* per (stage, microbatch) */
    int *cap;                      /* per stage: microbatches between F and W; 0: any number */
    double patience;
    double bubble; /* W fills a gap shorter than itself, if the rank idled so much less than
                      the idlest one: times W */
    int tight;     /* the last of the memory may go to a forward when the oldest microbatch
                      leaves without asking for more */
    int whole;     /* the backward undivided */
} SynthPolicy;

typedef struct SynthScore {
    double makespan, span, sum; /* sum: of the ranks' spans */
} SynthScore;

/* A run ends as soon as it is sure that its makespan, or span, is above `most`. */
typedef struct SynthStop {
    double most;
    int span;
    int64_t looked; /* decisions so far, of all runs */
} SynthStop;

/* ---- synth.c: the schedule that a policy leads to; rows NULL: only its score; stop may be NULL.
   0: it cannot go on, it ends too late, or no memory. */
int synth_run(const SynthTask *t, const SynthPolicy *p, SynthStop *stop, SynthScore *score,
              SchedRow *rows);

/* ---- task.c ---- */
/* All times 0, no limits; 0: no memory.  synth_task_ready(): after times were set. */
int synth_task(SynthTask *t, const SchedGraph *g, int ranks, int microbatches, const int *rank_of);
void synth_task_ready(SynthTask *t);
void synth_task_free(SynthTask *t); /* also after a failure */

/* ---- replay.c: the keys that lead to given rows of computations; 0: they do not run to
   their end, or no memory ---- */
int synth_replay(const SynthTask *t, const Schedule *s, SynthPolicy *p);

/* ---- v_block.c: rows of the V family for F = I = W, no more than so many microbatch-chunks alive
   on a rank, the best of so many slots' work; 0: none is found; -1: no memory ---- */
enum { SYNTH_V_WORK = 32 << 20 };
int synth_v(int ranks, int microbatches, int chunks, int64_t work, SchedRow *rows);

/* ---- greedy.c: rows of the zero-bubble heuristic, of one stage a rank, with the shortest span; 0:
   no memory, or none fits ---- */
int synth_greedy(const SynthTask *t, SchedRow *rows);

/* ---- beam.c: the best schedule that a beam search finds which ends, or whose longest span is,
   before `best`; 0: none, or no memory ---- */
int synth_beam(const SynthTask *t, int span, int whole, double best, int64_t work, SchedRow *rows);

/* ---- search.c ---- */
void synth_policy_free(SynthPolicy *p);

/* The best schedule that a search finds by span or makespan, with so many decisions looked at and
   from these on; whole: its backwards are undivided.  0: none is found that fits, or no memory. */
int synth_search(const SynthTask *t, int span, int whole, int64_t work, const Schedule *const *seed,
                 int seeds, SynthScore *score, SchedRow *rows);

#endif
