/*
 * log.h - what rank 0 prints: the memory before the first step, a line for each step, a line of
 * JSON for each step, a last line.
 */
#ifndef PP_LOG_H
#define PP_LOG_H

#include "base/file/index.h"
#include "base/file/json.h"
#include "data.h"
#include "io/events.h"
#include "net/group.h"
#include "options/options.h"
#include "plan/plan.h"

#include <stdio.h>

typedef struct {
    double loss, grad_norm, lr, seconds;
    double loss_scale; /* of the step */
    double bubble; /* of the passes' time, the part in which ranks do not compute; NAN: not known */
    int skipped;   /* gradients were not finite: it changed no parameter */
    int64_t step;
} StepLog;

enum { LOG_RATE = 20 }; /* steps over which the lines' tokens/s is a mean */

typedef struct {
    const Options *opt;
    int speaks, bar;              /* rank 0; a progress bar, on a terminal */
    int64_t first, steps, tokens; /* steps: done before this run, of all runs; tokens of a step */
    int64_t done;
    double begun;
    double last[LOG_RATE]; /* seconds of the last steps; the second step takes the first's place */
    int64_t timed;         /* steps so far */
    int64_t memory;        /* of the rank that takes most, planned; 0: not asked for */
    FILE *json;
    int made; /* json was not there before, and has no whole line yet */
    Events *events; /* NULL: none */
} Log;

/* What a rank holds, as all ranks tell rank 0. */
typedef struct {
    PlanBytes bytes;
    int64_t library, host; /* taken by libraries; device: pinned memory of the host */
    int64_t snapshot;      /* of a checkpoint, in memory of the host */
    int64_t process;       /* what the process has beside all that; 0: not known */
    int64_t evaluation;    /* --eval-data: what it takes beside the training's activations */
    int live;              /* microbatches, as planned */
    int messages, threads, offloaded; /* offloaded: stashes a step */
    char where[80], wire[24];                  /* device; "": the CPU */
    double operations, recomputed;             /* as in Plan */
    int half_type;                             /* of the parameters' half copies; 0: none */
    char half[48];                             /* how products of it are computed */
    char machine[64], cpus[96];                  /* --log-json: where it runs */
} MemoryReport;
int64_t memory_total(const MemoryReport *m); /* what a rank takes for a step */

/* Where a run goes on from a checkpoint, the file of --log-json goes on after its step. */
PpStatus log_open(Log *l, const Options *o, const Group *g, const Data *d);
/* Ends a line of --log-json. */
PpStatus log_line_end(const Log *l, JsonOut *o, const char *brackets);
/* --schedule auto: what was chosen; nothing where the text is empty. */
void log_chosen(const Log *l, const char *text);
/* What the run goes on from; nothing where x->path is NULL. */
void log_resumed(const Log *l, const Index *x, int64_t done);
PpStatus log_step(Log *l, const StepLog *s);
PpStatus log_mean(const Log *l, double loss, int64_t rows); /* eval: over all of them */
/* --eval-data, after so many steps */
PpStatus log_evaluation(const Log *l, int64_t done, double loss, int64_t rows, double seconds);
/* The last line.  saved: the step of the newest checkpoint, where there are any. */
void log_end(const Log *l, int64_t saved);
PpStatus log_close(Log *l);
/* What the first line of --log-json says beside the options; texts or NULL. */
typedef struct {
    const PpPlan *model;
    int64_t first_step;
    int passes; /* of the schedule in a step of a replica */
    const char *schedule, *transport, *mpi, *blas, *resumed_from;
} LogConfig;
/* log_config.c: all ranks call it */
PpStatus log_config(Log *l, Group *g, const LogConfig *c, const MemoryReport *mine);
/* log_memory.c: all ranks call them; members: of a rank of the schedule */
PpStatus log_memory(const Log *l, Group *g, const Schedule *s, int members,
                    const MemoryReport *mine);

/* --offload params: what came to memory and went in all steps; --zero 3: how often a stage's
 * parameters came from other replicas */
typedef struct {
    int64_t came, went, gathers;
} ShardCount;
/* What a rank says after the steps. */
typedef struct {
    int64_t planned, taken; /* of the device's memory; taken -1: not known */
    int64_t live;           /* microbatches that were alive at once */
    int64_t calls, sent;    /* collectives of its members, and bytes sent for them, in a step */
    ShardCount shards;
} RunReport;
PpStatus log_after(const Log *l, Group *g, int members, const RunReport *mine);

#endif
