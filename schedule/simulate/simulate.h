/*
 * simulate.h - computes when every action of a schedule begins and ends, from the costs of actions.
 */
#ifndef PP_SCHEDULE_SIMULATE_H
#define PP_SCHEDULE_SIMULATE_H

#include "schedule/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- costs.c: the costs of actions ---- */
typedef struct SchedCosts {
    double time[SA_TYPES];    /* sched_costs_default: F=1 I=1 W=1 B=2 R=1, OFFLOAD=1
                                 FETCH=1, the others 0 */
    double *stage_time;       /* NULL, or [stage * SA_TYPES + type]; negative: time[type] */
    int stages;               /* of stage_time and of the arrays below */
    /* The sum of a stage's gradients over replicas (AR): it begins when REDUCE_GRAD has run, one
       after the other on a rank, and only its wait waits for it.  Per stage, or NULL; negative: the
       number before */
    double reduction, *stage_reduction;
    /* NULL, or per stage: the part of it that is the rank's own time; the computations beside it
       take longer by that while it lasts */
    double *stage_beside;
    double latency, per_byte; /* of a message between ranks */
    const SchedEdge *edge;    /* with their bytes; NULL: the chain of stages, without bytes */
    int n_edge;
    double *bytes_stash, *bytes_saved; /* NULL, or per stage: held from F to I or B, from I to W */
    double *bytes_late;                /* NULL, or per stage: what of the stash is held until W */
    double late; /* without bytes: of a chunk's memory, 1, what is held until W (default 1) */
    double overlap; /* a compound begins and ends as one and costs max + overlap * (sum - max);
                       negative (default): its parts run one after the other */
    double around;  /* of a run's trace: what a step took beside its actions, slowest rank */
    int buffers;    /* -1: sends never wait (default); 0: rendezvous; k: as the verifier */
    double *clock;  /* of runs' traces: by what the times of each were multiplied, over its stages
                       the median: 1 of the first */
    int runs;
} SchedCosts;
void sched_costs_default(SchedCosts *c);
void sched_costs_free(SchedCosts *c);
/* Allocates the costs per stage; negative ones mean that `time` counts. */
int sched_costs_stages(SchedCosts *c, int stages, SchedError *e);
int sched_costs_set(SchedCosts *c, const char *list,
                    SchedError *e); /* `F=1,I=1,W=1,B=2,c=0,MW=1`, of one stage `3F=2` */
/* The parts of a backward from the whole, or the whole from its parts, R from F, of one stage;
   negative: unknown */
void sched_costs_complete(double *time);

/* ---- run_costs.c: measured costs ---- */
/* The costs in a run's Chrome trace, or in several, on the clock of the first: FILE,FILE.  Missing
   ones are completed. */
int sched_costs_load(SchedCosts *c, const char *path, int stages, SchedError *e);
/* The same; negative for costs that no run has. */
int sched_costs_measured(SchedCosts *c, const char *path, int stages, SchedError *e);
/* Where the name of file k begins in such a list, and its length; NULL: past the last. */
const char *sched_costs_file(const char *path, int k, size_t *n);

/* ---- simulate.c: when every action begins and ends ---- */
typedef struct SchedSim {
    double makespan, span; /* end of the last action; the longest time from a rank's first F to its
                              last action */
    double bubble, bubble_span; /* 1 - busy / (ranks * makespan); the papers' rate, by span */
    double *busy, *rank_span;   /* per rank */
    int *peak;                  /* per rank: live microbatch-chunks */
    double *peak_bytes;
    double **start, **end; /* per rank, per action */
} SchedSim;
int sched_simulate(const Schedule *s, const SchedCosts *c, SchedSim *out, SchedError *e);
/* Zeros for the ranks and cells of s; 0: no memory */
int sched_sim_open(const Schedule *s, SchedSim *sim);
void sched_sim_free(SchedSim *sim, int ranks);

#ifdef __cplusplus
}
#endif
#endif
