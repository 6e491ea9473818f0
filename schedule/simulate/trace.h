/*
 * trace.h - writing the Chrome trace of a simulation or a run (open, any number of events, close),
 * and reading one.  Times are microseconds.
 */
#ifndef PP_SCHEDULE_TRACE_H
#define PP_SCHEDULE_TRACE_H

#include "base/file/row_order.h"
#include "schedule/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

void sched_trace_open(FILE *f, const char *title, int ranks);
/* How the model was cut: --split points. */
void sched_trace_split(FILE *f, const char *const *point, int n);
/* Lines (tid) of a rank: its actions, which open() has named; its second thread, copies to the host
 * and back, sums over replicas, gathers of parameters from them.  A run has them once more for each
 * further member of a rank. */
enum { LINE_ACTIONS, LINE_BESIDE, LINE_COPIES, LINE_SUMS, LINE_GATHERS, LINES };
int sched_trace_line(int rank, int ranks, int member, int line);
void sched_trace_name(FILE *f, int rank, int ranks, int member, int line);
/* How long a microbatch is along each of n dimensions that vary */
typedef struct {
    int n;
    const char *name[ROW_LENGTHS];
    const int64_t *of;
} SchedPlaces;
/* bytes: of the rank's memory, in use while it runs; -1: not said; members: for how long of it the
 * rank waited for other members; places: of its microbatch, NULL: nothing varies */
typedef struct {
    double ts, dur, bytes, members;
    const SchedPlaces *places;
} SchedSpan;
void sched_trace_event(FILE *f, int rank, const SchedAction *a, int step, SchedSpan s);
/* Bytes planned for the rank's step (more are never in use), and those in use between steps */
void sched_trace_memory(FILE *f, int rank, double planned, double always);
/* What a stage has with other replicas: "AR", the sum of its gradients, beside: the part of it that
 * was the rank's own time between actions; "gather", its parameters from them (--zero 3), until the
 * computation that waits for them */
void sched_trace_replicas(FILE *f, int tid, const char *what, int stage, int step, SchedSpan s,
                          double beside);
/* What a step does besides its actions: begin, norm, update. */
void sched_trace_around(FILE *f, int rank, const char *name, int step, double ts, double dur);
/* Waiting for a. */
void sched_trace_wait(FILE *f, int rank, const SchedAction *a, int step, double ts, double dur);
/* Names a line of process 1: the steps of a stage's function, in a mean call. */
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
    double stage;          /* of its args; of a step of a stage's code: */
    char part[4];          /*     "F", "I", "W" or "B" */
    const char *texts, *end; /* of its args "points" or "nodes", in the file: ["..."]; NULL: none */
    int lengths;           /* of its args, "lengths": so many */
    char dimension[ROW_LENGTHS][40];
    double length[ROW_LENGTHS];
} SchedEvent;
/* each: 0 ends it, as memory that is missing does.  A status. */
int sched_trace_read(const char *path, int (*each)(void *, const SchedEvent *), void *ctx,
                     SchedError *e);

#ifdef __cplusplus
}
#endif
#endif
