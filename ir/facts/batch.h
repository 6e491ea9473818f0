/*
 * batch.h - what the files batch*.c share.  Private to them.
 */
#ifndef PPSPLIT_BATCH_INT_H
#define PPSPLIT_BATCH_INT_H

#include "facts.h"
#include "spread.h"

typedef struct {
    ValueId from, to;
    int dim;
} Retagged;

typedef struct {
    Graph *g;
    Arena *scratch;
    ValueId from;
    int64_t rows; /* of the graph; while a node is looked at, of its operands (batch_rows) */
    VEC(int) want;        /* by value id: the dimension demanded of an Expand's result */
    VEC(int64_t) outer;   /* by value id: what stands outside the rows in the batch dimension */
    /* constants tagged for a user: a copy, since other users may mean another dimension */
    VEC(Retagged) copies;
    bool changed;
    /* the loss's, whose rows are where those of the prediction are; NONE: none, or the user said */
    ValueId target;
    uint32_t values; /* of the graph at the begin: labels and said go so far */
    bool *labels;    /* made of the target and constants */
    bool *open;      /* inputs whose rows are where what they meet has them */
    int64_t *row;    /* the one row that a value with no batch dimension depends on, or -1 */
    int *told;       /* by value: the dimension that the file calls the rows' in an output */
    int *said;       /* --merge: the dimension of an output's rows where it is not found */
    const int *known; /* BatchNotes */
    Fate *fate;
    /* of the graph, and for each Reshape which place it puts the row in, where there are several */
    NodeId nodes;
    uint8_t *choice; /* shapes of one row; NULL: the first */
    /* the reason of the rule that failed, or that follows the rows only when all are there */
    const char *why;
    /* the input in which the rule just run would need rows, and the dimension; NONE: none */
    ValueId lacks;
    int lacks_at;
    bool mixing;     /* the rule just run lets samples influence each other at once */
    bool sums;       /* it summed over the batch, or looked along it */
    bool partial; /* what it makes of the microbatches adds up to what it makes of the minibatch */
} Batch;

/* batch_state.c */
int batch_fail(Batch *b, const char *why); /* notes the reason; returns BATCH_MIXED */
/* an operand of which the rows were demanded has none; returns BATCH_MIXED */
int batch_fixed(Batch *b);
/* `by` brings rows together: of data, as a graph's edges do, with the remedies; returns BATCH_MIXED
 */
int batch_brought(Batch *b, const char *why, ValueId by);
/* every sample meets every sample; returns BATCH_MIXED */
int batch_crossed(Batch *b, const char *why);
int batch_want(const Batch *b, ValueId v);      /* the dimension demanded of an Expand's result */
/* of all rows, or of a part of them that a member has in that dimension, if there is one */
int64_t batch_rows(const Batch *b, ValueId v, int dim);
/* Does it hand rows of that dimension out to members, or put them together (mesh/)?  Nothing else
   cuts or joins them in such a graph.  They stay in the dimension. */
extern const char batch_handed_on[]; /* ... which is said once, of the first */
bool batch_hands_on(const Batch *b, const Node *n, int dim);
/* what stands outside the rows in its batch dimension */
int64_t batch_outer(const Batch *b, ValueId v);
void batch_set_outer(Batch *b, ValueId v, int64_t outer);
const char *batch_node_text(const Graph *g, NodeId n);
/* What node `from` does to the samples, said where it meets them: at once, or at node id. */
const char *batch_mixed_text(const Batch *b, NodeId from, NodeId id);
bool batch_const_int(const Value *v, int64_t i, int64_t *x);
int batch_place(const Shape *in, const Shape *out, int dim, int64_t *outer, int choice);
/* of a Reshape of one row, as batch_place */
int batch_one_place(const Batch *b, const Node *n, int64_t *outer);

/* batch_demand.c: can *slot hold the rows there?  Tags it, or puts a tagged copy of a constant
 * there. */
bool batch_demand(Batch *b, ValueId *slot, Place at);

/* batch_rules.c: writes the tags of a node's results; says whether one changed */
bool batch_sweep_node(Batch *b, NodeId id);

/* batch_merge.c: how microbatches meet; notes->output and notes->target_why */
Fate *batch_fates(Batch *b);
void batch_fate(Batch *b, NodeId id, BatchNotes *notes);
void batch_meet(Batch *b, BatchNotes *notes);

/* batch_one.c: shapes of one row */
void batch_one(Batch *b);

#endif
