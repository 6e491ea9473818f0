/*
 * batch_int.h - what batch.c and batch_index.c share.  Private to the two.
 */
#ifndef PPSPLIT_BATCH_INT_H
#define PPSPLIT_BATCH_INT_H

#include "partition.h"

typedef struct {
    ValueId from, to;
    int dim;
} Retagged;

typedef struct {
    Graph *g;
    Arena *scratch;
    ValueId from;
    int64_t rows;
    VEC(int) want;        /* by value id: the dimension demanded of an Expand's result */
    VEC(int64_t) outer;   /* by value id: what stands outside the rows in the batch dimension */
    int64_t cur;          /* outer of the node's tagged operands, of its results, of what is demanded */
    VEC(Retagged) copies; /* constants tagged for a user: a copy, since other users may mean another dimension */
    bool changed;
    const char *why; /* the reason of the rule that failed */
    bool mixing;     /* the rule just run lets samples influence each other at once */
    bool sums;       /* the rule just run summed over the batch */
} Batch;

int batch_fail(Batch *b, const char *why); /* notes the reason; returns BATCH_MIXED */
bool batch_const_int(const Value *v, int64_t i, int64_t *x);
int batch_reshape(const Shape *in, const Shape *out, int dim, int64_t rows, int64_t *outer);
/* Can *slot hold the rows in dimension dim?  Tags it, or puts a tagged copy of a constant there. */
bool batch_demand(Batch *b, ValueId *slot, int dim);

/* batch_index.c: the rules, as in batch.c */
int batch_gather(Batch *b, Node *n);
int batch_gather_nd(Batch *b, Node *n);
int batch_elements(Batch *b, Node *n);
int batch_scatter_nd(Batch *b, Node *n);

#endif
