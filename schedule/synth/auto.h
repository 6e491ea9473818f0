/*
 * auto.h - the best schedule for given costs: every generator and schedules made to measure, scored
 * by the simulator, verified.
 */
#ifndef PP_SCHEDULE_AUTO_H
#define PP_SCHEDULE_AUTO_H

#include "schedule/simulate/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SCHED_AUTO_WORK = 2 << 20, SCHED_AUTO_TRIED = 64 };

typedef struct SchedAuto {
    int ranks, stages, microbatches;
    int placement;           /* SCHED_PLACE_*; DEFAULT: any */
    const SchedCosts *costs; /* with the edges; of bytes those that `memory` needs */
    int chunks;              /* most microbatch-chunks alive on a rank, as sched_live_rank() counts
                                them; 0: any number */
    const double *memory;    /* NULL, or per rank: most alive, as SchedSim.peak_bytes: chunks are 1 */
    int span;                /* by the longest span of a rank, not by makespan */
    int64_t work;            /* decisions that the search of one kind may look at: SCHED_AUTO_WORK;
                                0: generators only */
    const SchedParam *param; /* for the verifier */
    int n_param, buffers;    /* 0: a rendezvous */
    /* NULL, or whether it may run (0: no, and why), for limits that a simulation does not know */
    int (*allow)(void *of, const Schedule *s, char *why, size_t size);
    void *of;
} SchedAuto;

/* What was compared, in this order; why: the reason why it was left out, or "" (also where it
   takes longer than the one that was chosen, whether or not allow() has it). */
typedef struct SchedTried {
    char name[40], why[120];
    int unfit; /* allow() refused it */
    int placement;
    double makespan, span;
    int peak; /* microbatch-chunks, worst rank */
} SchedTried;

typedef struct SchedAutoReport {
    SchedTried tried[SCHED_AUTO_TRIED];
    int n, chosen;
} SchedAutoReport;

/* Rows of computations; SCHED_EREFUSED: nothing fits.  Same in, same out, on every machine. */
int sched_auto(const SchedAuto *a, Schedule **out, SchedAutoReport *report, SchedError *e);

#ifdef __cplusplus
}
#endif
#endif
