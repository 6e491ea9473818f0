/*
 * memory.h - what ranks take, as the runtime plans it.
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
    bool divided; /* --shard-optimizer */
    bool placed;  /* activations have their places: the very bytes, but slow.  Else no less than
                     they take at one moment, a few percent below */
} MemoryAsked;

/* Bytes of each rank that such a step takes, lowered rows; the largest of them, negative where it
   cannot be planned: pp_failure_text() says why. */
int64_t memory_of(const MemoryAsked *x, const Schedule *s, int64_t *of_rank);
/* Bytes that a rank's optimizer reads and writes in a step, the most of all; what the last replica
   gets of the others with --shard-optimizer. */
int64_t memory_updated(const MemoryAsked *x, const Schedule *s, int64_t *gathered);

/* The model's edges and shared parameters, as schedules want them. */
typedef struct {
    SchedEdge *edge;
    int n_edge;
    SchedParam *param;
    int n_param;
} Crossing;
Crossing crossing_of(const PpPlan *model, Arena *a);

#endif
