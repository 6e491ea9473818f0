/*
 * simulate.h - computes when every action of a schedule begins and ends, from the costs of actions.
 */
#ifndef PP_SCHEDULE_SIMULATE_H
#define PP_SCHEDULE_SIMULATE_H

#include "base/file/memory.h"
#include "base/file/row_order.h"
#include "schedule/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- fit.c ---- */

/* What lengths decide, as a polynomial of degree 2 in them whose coefficients are not negative:
   such has no dip, and none below 0, between samples or beyond them. */
enum { SCHED_TERMS = (ROW_LENGTHS + 1) * (ROW_LENGTHS + 2) / 2 };
typedef struct SchedFit {
    double c[SCHED_TERMS];
} SchedFit;
/* The nearest one, by least squares: t[k] with lengths x[k * n ..] */
SchedFit sched_fit(int n, const double *x, const double *t, size_t samples);
double sched_fit_at(const SchedFit *f, int n, const double *x);
/* What its coefficients are of: 1, lengths, products of two; how many */
int sched_terms(int n, const double *x, double *to);
/* c[m], none negative, for which gram c is nearest to right: of columns A, gram = A'A,
   right = A'b */
void sched_least(int m, const double *gram, const double *right, double *c);

/* ---- lengths.c: microbatches that differ in length ---- */

/* Rows of the data, and how a run takes them: --lengths NAME=FILE, --batch, --by-length,
   --shuffle */
typedef struct SchedRows {
    int n; /* dimensions that vary */
    char name[ROW_LENGTHS][40];
    const char *file[ROW_LENGTHS];
    int64_t least[ROW_LENGTHS], most[ROW_LENGTHS]; /* that they may have */
    int64_t *length[ROW_LENGTHS];                  /* of each row */
    int64_t rows, batch, by_length;
    int shuffle;
    uint64_t seed;
} SchedRows;
/* One more NAME=FILE.npy; a status */
int sched_rows_add(SchedRows *r, const char *text, SchedError *e);
int sched_rows_seed(SchedRows *r, const char *text); /* 0: it is none */
int sched_rows_read(SchedRows *r, SchedError *e);    /* the files; a status */
void sched_rows_free(SchedRows *r);

/* Of n dimensions that vary, in each microbatch of some steps, of all replicas: replica after
   replica; length[((step * replicas + replica) * microbatches + microbatch) * n + dimension] */
typedef struct SchedLengths {
    int n, steps, replicas, microbatches;
    const char *name[ROW_LENGTHS];
    double *length;
} SchedLengths;
/* Of the first epoch; names are those of r.  free() its length. */
int sched_lengths(SchedLengths *l, const SchedRows *r, int replicas, int microbatches,
                  SchedError *e);

typedef struct SchedVary {
    int n, stages;
    char name[ROW_LENGTHS][40]; /* of the dimensions */
    SchedFit *time;             /* [stage * SA_TYPES + type], all 0: not known */
    /* per stage: by what the bytes are multiplied that its edges send and get back */
    SchedFit *sent;
    SchedLengths of; /* of the steps that are simulated; length NULL: none are said */
} SchedVary;

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
    SchedVary *vary; /* NULL: microbatches are alike */
    double *clock;  /* of runs' traces: by what the times of each were multiplied, over its stages
                       the median: 1 of the first */
    int runs;
} SchedCosts;
/* Of a stage's action */
static inline double sched_cost(const SchedCosts *c, int stage, int type)
{
    const double t =
        c->stage_time && stage < c->stages ? c->stage_time[stage * SA_TYPES + type] : -1;
    return t >= 0 ? t : c->time[type];
}
void sched_costs_default(SchedCosts *c);
void sched_costs_free(SchedCosts *c);
/* Allocates the costs per stage; negative ones mean that `time` counts. */
int sched_costs_stages(SchedCosts *c, int stages, SchedError *e);
int sched_costs_set(SchedCosts *c, const char *list,
                    SchedError *e); /* `F=1,I=1,W=1,B=2,c=0,MW=1`, of one stage `3F=2` */
/* The parts of a backward from the whole, or the whole from its parts, R from F, of one stage;
   negative: unknown */
void sched_costs_complete(double *time);

/* ---- lengths.c ---- */
/* Room for what lengths decide of so many stages, in vary */
int sched_costs_by_length(SchedCosts *c, int n, int stages, SchedError *e);
/* Microbatches have these lengths, which are copied: times of stages become their means, as far as
   vary knows them; some steps are simulated, as much work as all on average. */
int sched_costs_vary(SchedCosts *c, const SchedLengths *l, SchedError *e);

/* ---- run_costs.c: measured costs ---- */
/* The costs in a run's Chrome trace, or in several, on the clock of the first: FILE,FILE.  Where it
   says lengths, vary is what they decide.  Missing ones are completed.  l: lengths that
   microbatches have (sched_costs_vary); NULL: as in the trace. */
int sched_costs_load(SchedCosts *c, const char *path, int stages, const SchedLengths *l,
                     SchedError *e);
/* The same; negative for costs that no run has.  also: who else is told each event, and of which of
   the files, from 0, it is (trace.h); NULL: nobody */
struct SchedEvent;
typedef struct SchedAlso {
    void (*event)(void *of, int file, const struct SchedEvent *f);
    void *of;
} SchedAlso;
int sched_costs_measured(SchedCosts *c, const char *path, int stages, const SchedAlso *also,
                         SchedError *e);
/* Where the name of file k begins in such a list, and its length; NULL: past the last. */
const char *sched_costs_file(const char *path, int k, size_t *n);

/* ---- simulate.c: when every action begins and ends ---- */
typedef struct SchedSim {
    /* Of several steps (SchedVary): means, of each the replica that takes longest; all below are of
       the last one */
    double makespan, span; /* end of the last action; the longest time from a rank's first F to its
                              last action */
    double bubble, bubble_span; /* 1 - busy / (ranks * makespan); the papers' rate, by span */
    double *busy, *rank_span;   /* per rank */
    int *peak;                  /* per rank: live microbatch-chunks */
    double *peak_bytes;
    double **start, **end; /* per rank, per action */
    Pool room;             /* of these */
} SchedSim;
int sched_simulate(const Schedule *s, const SchedCosts *c, SchedSim *out, SchedError *e);
/* One step; length: of its microbatches, as in SchedLengths, of one replica; NULL: all are alike */
int sched_simulate_step(const Schedule *s, const SchedCosts *c, const double *length, SchedSim *out,
                        SchedError *e);
/* Zeros for the ranks and cells of s; 0: no memory */
int sched_sim_open(const Schedule *s, SchedSim *sim);
void sched_sim_free(SchedSim *sim);

#ifdef __cplusplus
}
#endif
#endif
