/*
 * cut.h - a directed acyclic graph of costed nodes, cut into stages: what a cut costs, and a good
 * cut.  Knows no model: partition/auto/auto.h makes such a graph of one.
 *
 * Nodes are numbered in a topological order.  A cut gives each node a stage such that no value that
 * a forward reads and no CutPair of `before` goes back, and no stage is empty.  Units: seconds of
 * one microbatch, bytes.  The same graph and problem give the same cut on every machine.
 */
#ifndef PPSPLIT_AUTO_CUT_H
#define PPSPLIT_AUTO_CUT_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* forward: F; backward: input is I (gradients of what the stage was sent), weight is W.  Beside
 * these, of no cut's time: both in one, B, which differs from I + W where a run has shown that; and
 * bytes of parameters, their gradients and of results that products of F, I and W meet, which are
 * slower where a rank goes over more than a cache holds.  idle: it computes nothing, as a view. */
typedef struct {
    double forward, input, weight;
    double whole, far[3];
    bool idle;
} CutNode;

/* keeps: backward needs the value where this node is, so the stage's stash holds it; backward: the
 * node's backward reads it, not its forward: of the two nodes' stages either may be the first */
typedef struct {
    uint32_t node;
    bool keeps, backward;
} CutRead;

/* What a node makes and others read.  Each other stage that reads it is sent it once: by the stage
 * that makes it, or, where there is a gradient, by the reading stage before it, to which that is
 * sent back and which adds its own. */
typedef struct {
    uint32_t from;
    int64_t bytes; /* sent forward, for each microbatch; 0: made again there */
    int64_t back;  /* its gradient; 0: none; no backward reads such a value */
    int64_t kept;  /* of the stash, in each stage with a read that keeps it */
    VEC(CutRead) read;
} CutValue;

/* A parameter, or another thing that each stage with a reader holds all the time. */
typedef struct {
    int64_t held;      /* by every stage that reads it */
    int64_t owned;     /* by the first of them, beside that (the optimizer's state) */
    double sent, back; /* bytes to each further stage and back, of a step, for each microbatch */
    double summed;     /* bytes that a member sends once a step to add up the gradient */
    Ids read;          /* nodes, ascending */
} CutParam;

typedef struct {
    uint32_t a, b;
} CutPair;

typedef struct {
    uint32_t nodes;
    CutNode *node;
    VEC(CutValue) value;
    VEC(CutParam) param;
    VEC(CutPair) before;   /* a's stage is not after b's: an order to be kept */
    VEC(CutPair) together; /* in one stage */
} CutGraph;

/* Seconds of a message to the stage that reads a value (for each such stage) and to the one that
 * makes it or hands it on (once, whoever reads it).  Gradients go the other way, at the same price
 * to the same stages. */
typedef struct {
    double in_message, in_byte, out_message, out_byte;
} CutLink;

typedef struct {
    uint32_t stages;
    CutLink link;
    /* the objective: 0: the slowest stage; m: the step, sum(t) + (m - 1) max(t), as in Alpa
     * (Zheng et al., OSDI 2022).  Where two are equal, the sum decides */
    uint32_t microbatches;
    /* bytes that a rank may have; 0: any.  live[stage]: how many microbatches' stash a stage holds
     * at once; rank_of[stage].  NULL: 1, and a rank a stage */
    int64_t memory;
    const uint32_t *live, *rank_of;
    /* a stage begins at this node; NULL: nowhere in particular */
    const bool *begins;
    /* by node: how little a stage should begin there, of cuts that cost the same; NULL: all alike */
    const uint32_t *border;
} CutProblem;

typedef struct {
    double forward, input, weight; /* seconds of a microbatch */
    double whole, far[3];          /* as a CutNode's */
    double link;                   /* messages */
    int64_t stash;                 /* bytes of a microbatch */
    int64_t params;                /* held and owned */
    int64_t sent, received;        /* activations of a microbatch, once for each stage that reads */
    int64_t memory;                /* params + live * stash */
} CutStage;

typedef struct {
    uint32_t stages;
    uint32_t *stage_of; /* by node; NULL: none was found */
    CutStage *stage;
    double slowest, sum; /* of the stages' F + I + W + link */
    double step;         /* sum + (m - 1) slowest */
    const char *why; /* stage_of NULL: the reason */
} StageCut;

/* Who sends v to a stage that reads it: the stage before that has it, where a gradient comes back.
 */
uint32_t cut_sender(const CutValue *v, const uint32_t *stage_of, uint32_t to);
/* What a reader's stage spends on receiving it and sending its gradient back, and its maker's. */
double cut_in_seconds(const CutLink *l, const CutValue *v);
double cut_out_seconds(const CutLink *l, const CutValue *v);

/* What a cut costs. */
void cut_measure(const CutGraph *g, const CutProblem *p, const uint32_t *stage_of, Arena *a,
                 StageCut *c);

/*
 * Stages are runs of nodes in the order of their numbers, each with one that is not idle, unless
 * there is none from where it has to begin to where the next one has to.  Nodes that must be
 * together become one; then dynamic programming over prefixes, which is exact: the cut is at most
 * 1/64 above the best, and above it only for messages that are fewer by a quarter, or for borders.
 */
StageCut cut_solve(const CutGraph *g, const CutProblem *p, Arena *a);

#ifdef __cplusplus
}
#endif
#endif
