/*
 * model.h - what model.c, seconds.c and stash.c share of a Graph.  Private to them.
 */
#ifndef PPSPLIT_AUTO_MODEL_H
#define PPSPLIT_AUTO_MODEL_H

#include "auto.h"

/* Seconds for what the loop of a node reads and writes: forward, and for the gradients of data. */
typedef struct {
    double forward, backward;
} Traffic;

typedef struct {
    const Graph *g;
    Arena *a;
    const Rates *r;
    AutoModel *out;
    bool *live; /* by node: something reads what it makes, in the end */
    /* by value: it depends on data; it is made of constants, frozen parameters and whole numbers
       alone; of parameters and constants alone; a gradient comes back to it */
    bool *data, *pure, *of_params, *grad;
    bool *inside;     /* by value: made and read in one loop, in no memory */
    Traffic *traffic; /* by node */
} Model;

/* seconds.c: inside and traffic; then a node's F, I, W */
void find_traffic(Model *m);
CutNode node_seconds(const Model *m, NodeId n);

/* stash.c: what each node's gradients need, as values that cost no message; again of the nodes */
void add_stash(Model *m);

#endif
