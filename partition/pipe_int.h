/*
 * pipe_int.h - what pipe.c, copy.c, relay.c, meet.c and place.c share while they build the Pipe.
 * Private to them.
 */
#ifndef PPSPLIT_PIPE_INT_H
#define PPSPLIT_PIPE_INT_H

#include "partition.h"

typedef struct {
    NodeId key, node;
} Placed; /* a node of a stage; key: the node it is a copy of, or itself */
typedef VEC(Placed) PlacedList;

typedef struct {
    Graph *g;
    Arena *a;
    const PartitionOptions *opt;
    Pipe *p;
    bool training;
    uint32_t stages, nodes, values; /* nodes and values before anything was copied */
    uint32_t *home;                 /* by node: its stage */
    /* by value: its own stage must make it (a root, or another stage is sent it) */
    bool *needed;
    PlacedList *list;               /* by stage */
    /* of every value: */
    bool *pure;            /* computed from constants, frozen parameters and integer inputs alone */
    bool *of_params;       /* computed from parameters (and constants) alone */
    bool *grad;            /* a gradient may flow through it */
    bool *shared;          /* of_params: of parameters with several uses */
    Ids *users;            /* live nodes that read it */
    struct Choice *choice; /* copy.c: scratch by value */
} Build;

/* copy.c: a copy of the value, made by a node of that origin of the file; its name is another where
   it is taken */
ValueId pipe_copy(Graph *g, ValueId v, const char *name, uint32_t origin);
void recompute_classify(Build *b);
/*
 * Stage t's nodes read demands[] from earlier stages.  Sets local[v] for each: v itself where it is
 * sent (and marks it needed), or the value of a copy made in t; copies are appended to list[t].
 * read[v]: the inputs and parameters that t reads anyway.
 */
void recompute_decide(Build *b, uint32_t t, const Ids *demands, bool *read, ValueId *local);

/* relay.c: after all stages have their nodes */
void relay(Build *b);

/* meet.c: how microbatches meet in each output: as the analysis found, in the loss as the loss is
 * reduced, as the user says.  part: what is computed once for all of them; NULL: nothing. */
void meet_choose(Pipe *p, const PartitionOptions *opt, const BatchNotes *notes, const bool *part);

/* place.c */
/* of_stage[t]: parameters that stage t reads, ascending */
void params_place(Build *b, const Ids *of_stage);

#endif
