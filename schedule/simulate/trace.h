/*
 * trace.h - the Chrome trace, of a simulation and of a run alike: open, any number of events,
 * close; and reading one.  Times are microseconds.
 */
#ifndef PP_SCHEDULE_TRACE_H
#define PP_SCHEDULE_TRACE_H

#include "schedule/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

void sched_trace_open(FILE *f, const char *title, int ranks);
/* How the model was cut: --split points. */
void sched_trace_split(FILE *f, const char *const *point, int n);
/* Names the line tid = ranks + rank: the rank's second thread. */
void sched_trace_overlap_thread(FILE *f, int rank, int ranks);
/* Names the line tid = 2 ranks + rank: its copies to the host and back. */
void sched_trace_copies(FILE *f, int rank, int ranks);
/* bytes: of the rank's memory, in use while it runs; -1: not said */
void sched_trace_event(FILE *f, int rank, const SchedAction *a, int step, double ts, double dur,
                       double bytes);
/* Bytes that the rank's step was planned to take, never more are in use; and those in use between
 * steps */
void sched_trace_memory(FILE *f, int rank, double planned, double always);
/* Names the line tid = 3 ranks + rank: its sums over replicas. */
void sched_trace_sums(FILE *f, int rank, int ranks);
/* Of a stage: `2AR`; beside: what of it was the rank's own time, between its actions */
void sched_trace_sum(FILE *f, int tid, int stage, int step, double ts, double dur, double beside);
/* What a step does beside its actions: begin, norm, update. */
void sched_trace_around(FILE *f, int rank, const char *name, int step, double ts, double dur);
/* Waiting for a. */
void sched_trace_wait(FILE *f, int rank, const SchedAction *a, int step, double ts, double dur);
/* Names a line of the process 1: the steps of a stage's function, of a mean call. */
void sched_trace_kernels(FILE *f, int line, int stage, const char *function);
/* A step; part: F, I or W; nodes: the model's, a line each */
void sched_trace_kernel(FILE *f, int line, int stage, int part, const char *nodes, double ts,
                        double dur);
void sched_trace_close(FILE *f);

/* ---- trace_read.c ---- */
typedef struct SchedEvent {
    char name[96], cat[16], ph[8];
    char of[96];           /* "name" of its args: of a line, a title */
    double ts, dur;        /* microseconds; dur -1: none */
    double step, tid;
    double bytes;          /* of its args; -1: none */
    double beside;         /* of its args, of a sum over replicas; 0: none */
} SchedEvent;
/* each: 0 ends it, as memory that is missing does.  A status. */
int sched_trace_read(const char *path, int (*each)(void *, const SchedEvent *), void *ctx,
                     SchedError *e);

#ifdef __cplusplus
}
#endif
#endif
