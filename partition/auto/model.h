/*
 * model.h - what model.c and stash.c share of a Graph.  Private to the two.
 */
#ifndef PPSPLIT_AUTO_MODEL_H
#define PPSPLIT_AUTO_MODEL_H

#include "auto.h"
#include "partition/partition.h"

typedef struct {
    const Graph *g;
    Arena *a;
    const Rates *r;
    AutoModel *out;
    bool *live; /* by node: something reads what it makes, in the end */
    /* by value: it depends on data; it is made of constants, frozen parameters and whole numbers
       alone; of parameters and constants alone; a gradient comes back to it */
    bool *data, *pure, *of_params, *grad;
} Model;

static inline bool is_product(Op op)
{
    return op == OP_MatMul || op == OP_PackedMatMul || op == OP_Conv || op == OP_ConvTranspose;
}

/* stash.c: what each node's gradients need, as values that cost no message */
void add_stash(Model *m);

#endif
