/*
 * memory.h - the memory of ranks, planned by the runtime's own code, and its estimates of seconds.
 */
#ifndef PPSPLIT_PLANNER_MEMORY_H
#define PPSPLIT_PLANNER_MEMORY_H

#include "program.h"
#include "schedule/simulate/simulate.h"

typedef struct {
    const PpPlan *model;
    int microbatches, replicas;
    int64_t rows; /* of a step, of one replica */
    int states;   /* of the optimizer */
    int threads;  /* of a rank */
    int zero;     /* --zero */
    bool placed;  /* activations have their places: the very bytes, but slow.  Else no less than
                     they take at one moment, a few percent below */
} MemoryAsked;

/* Bytes of each rank that such a step takes, lowered rows; the largest of them, negative where it
   cannot be planned: pp_failure_text() says why. */
int64_t memory_of(const MemoryAsked *x, const Schedule *s, int64_t *of_rank);
enum {
    MEMORY_PARAMETERS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,
    MEMORY_ACTIVATIONS,
    MEMORY_WORK,
    MEMORY_PARTS
};
/* Of one; moved: how many of its stashes go to the store; parts: the largest, NULL or by MEMORY_ */
int64_t memory_rank(const MemoryAsked *x, const Schedule *s, int rank, int *moved, int64_t *parts);
/* Lowered rows of such computations with copies, as a run with --offload stash and --offload-time
   has them; NULL: there are none. */
Schedule *memory_offload(const struct PpPlan *model, const Schedule *s, const SchedNeeds *needs,
                         double time, SchedError *e);
int64_t memory_stored(const PpStage *st);
/* Bytes that a member sends the others of a stage in a step */
double memory_exchanged(const PpPlan *model, int stage, int microbatches);
/* Seconds in which members add up a rank's gradients once a step, the most of all, over a link of
   so many bytes and messages a second */
double memory_summed(const PpPlan *model, const Schedule *s, double link, double messages);
/* Bytes that a rank's optimizer reads and writes in a step, the most of all; what the last replica
   gets of the others then with --zero 1 and 2. */
int64_t memory_updated(const MemoryAsked *x, const Schedule *s, int64_t *gathered);

/* Seconds that I and W take longer than their parts of a B, as --schedule auto has them: elements a
   second; bytes that loops read, and that I leaves for W. */
typedef struct {
    double input, weight;
} MoreDivided;
MoreDivided divided_seconds(const PpStage *st, double quick, double functions, double traffic,
                            double left);

/* The model's edges and shared parameters, as schedules want them. */
typedef struct {
    SchedEdge *edge;
    int n_edge;
    SchedParam *param;
    int n_param;
} Crossing;
Crossing crossing_of(const PpPlan *model, Arena *a);

#endif
