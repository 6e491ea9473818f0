/*
 * synth.h - schedules made to measure: a list scheduler with a policy, the search for the best
 * policy, a beam of partial schedules where there is little to schedule, and the V family.
 *
 * Each is for what the others do not reach.  Of 83 problems (2 to 8 ranks, 1 to 3 chunks, 4 to 64
 * microbatches, no limit of memory, 1f1b's and half of it; equal costs and unequal ones):
 *
 *     search.c     without it 16 of 83 are more than 1 % longer, up to 8 %, and 3 have none
 *     pattern.c    where it begins; with 32 ranks and 96 to 256 microbatches all that it has time
 *                  for: the warm-up that times ask for is 1 to 2.4 % of a step there
 *     beam.c       without it 4 are longer, up to 6 %: small ones under tight memory (of the 13
 *                  in test_auto.c 9, up to 13 %)
 *     v_block.c    makes v-half, v-min and v:K, which have names: a search of 1 << 20 decisions is
 *                  up to 4 % longer, and 10 % under two thirds of the ranks' microbatch-chunks
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
    int *rank_of;
    const SchedGraph *g;
    int *first, *own;             /* the stages of rank r: own[first[r] .. first[r+1]), ascending */
    double *f, *i, *w, *b;        /* per stage; b: the backward undivided */
    double *away_f, *away_b;      /* per edge: from the producer's end to the arrival */
    double *stash, *late, *saved; /* per stage */
    double *limit;                /* per rank */
    double *work, *work_whole;    /* per rank: all of its times; with the backward undivided */
    double period;                /* the work of the busiest rank for a microbatch */
    Pool room;
} SynthTask;

/* A free rank takes, among the actions that are ready and fit, the one with the smallest key plus
   microbatch times period; W has no key, it fills gaps.  It waits for a better one that arrives
   before `patience` times the time of what it could do now has passed. */
typedef struct SynthPolicy {
    double *key_f, *key_i, *key_w; /* per (stage, microbatch) */
    int *cap;                      /* per stage: microbatches between F and W; 0: any number */
    double patience;
    int fill;  /* W fills a gap shorter than itself; 0: only on the rank that idles most */
    int tight; /* the last of the memory may go to a forward when the oldest microbatch
                  leaves without asking for more */
    int room;  /* a forward that comes next and does not fit has W make room for it at once */
    int spare; /* a forward comes a period later while the next stage does not need it */
    int whole; /* the backward undivided */
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

/* ---- beam.c: the best schedule that a beam search finds which ends, or whose longest span is,
   before `best`; 0: none, or no memory ---- */
int synth_beam(const SynthTask *t, int span, int whole, double best, int64_t work, SchedRow *rows);

/* ---- pattern.c: policy number so much, of those that are known, then drawn; all but `whole`.  0:
   it is not for this task, or no memory ---- */
enum { SYNTH_KNOWN = 18 };
int synth_pattern(const SynthTask *t, int number, uint64_t *random, SynthPolicy *p);
uint32_t synth_draw(uint64_t *random, uint32_t n); /* the next number, below n */
/* More than any key. */
static inline double synth_far(const SynthTask *t)
{
    return 1024 * t->period * (t->microbatches + t->stages);
}

/* ---- search.c ---- */
/* By span or makespan; whole: backwards are undivided; with so many decisions looked at, from these
   schedules on. */
typedef struct SynthAsk {
    int span, whole;
    int64_t work;
    const Schedule *const *seed;
    int seeds;
} SynthAsk;
/* The best schedule that a search finds.  0: none is found that fits, or no memory. */
int synth_search(const SynthTask *t, const SynthAsk *ask, SchedRow *rows);

#endif
