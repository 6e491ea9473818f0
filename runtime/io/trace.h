/*
 * trace.h - --trace: when each action of a rank waited, started and ended.
 */
#ifndef PP_TRACE_H
#define PP_TRACE_H

#include "api/pp.h"
#include "net/group.h"
#include "plan/plan.h"
#include "profile.h"
#include "schedule/simulate/trace.h"

/* What a step does beside its actions, traced behind them. */
enum { SPAN = 4 };
enum { AROUND_BEGIN, AROUND_NORM, AROUND_UPDATE, AROUND };

typedef struct {
    /* Bytes in use while each action runs, between steps, and those that were planned */
    double *bytes;
    /* SPAN numbers, wait, start, end, and seconds of these in which other members were waited for,
     * per action, for AROUND, and of the sums over replicas of each stage, for the run's first
     * `steps` passes of the schedule; NULL: no trace */
    double *span;
    int n_op, stages, steps;
    int gathers; /* UNSHARD brings parameters from other replicas */
    double zero;
    PpLength *length; /* of each microbatch of these passes; NULL: nothing varies */
    int microbatches;
    SchedPlaces places;
    Profile profile;
} Trace;

PpStatus trace_open(Trace *t, Pool *pool, const Plan *plan, int64_t steps);
/* All ranks call it: from here on times count, for all of them from the moment of rank 0's call.
 * Ranks of one machine have one clock; those of others are compared with rank 0's.  beside: bytes
 * that the rank has taken for the whole run, beside what its plan places. */
PpStatus trace_start(Trace *t, Group *g, int64_t beside);
/* Its numbers, or NULL */
double *trace_of(const Trace *t, int64_t step);
/* Of the microbatches of a pass, where they vary */
void trace_lengths(const Trace *t, int64_t step, const PpLength *length);
/* Until now */
void trace_around(const Trace *t, int64_t step, int what, double waits, double starts);
/* The sums of a stage, both by pp_now(); beside: seconds of them that the rank itself was at them,
 * between its actions */
void trace_sums(const Trace *t, int64_t step, int stage, double begin, double end, double beside);
/* Is this pass one whose steps are timed?  The first one warms caches and pages. */
int trace_times(const Trace *t, int64_t step);
/* All ranks of replica 0 call it, g: of the run; rank 0 writes. */
PpStatus trace_write(const Trace *t, Group *g, const Schedule *s, const PpPlan *plan,
                     const char *path);

#endif
