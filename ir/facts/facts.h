/*
 * facts.h - what is known of a Graph's values and nodes beside their shapes: which dimension holds
 * the samples, how microbatches' results meet, floating-point operations and bytes.
 */
#ifndef PPSPLIT_FACTS_H
#define PPSPLIT_FACTS_H

#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* last: the same in all microbatches; none: they cannot be put together */
typedef enum { MERGE_LAST, MERGE_SUM, MERGE_MEAN, MERGE_ROWS, MERGE_NONE } OutputMerge;
typedef struct {
    OutputMerge how;
    const char *why; /* MERGE_NONE: the node and the reason */
} OutputMeeting;

typedef struct {
    VEC(const char *) chunk;        /* "INPUT=DIM", "INPUT=replicate" */
    VEC(const char *) merge;        /* "OUTPUT=DIM", "OUTPUT=sum", "OUTPUT=mean" */
} BatchOptions;

/* What the microbatches' values are to the minibatch's. */
typedef struct {
    enum {
        FATE_FIXED, /* the same in all of them */
        FATE_ROWS,  /* some of its rows */
        FATE_COUNT, /* a number that grows with the rows */
        FATE_SUM,   /* their sum is the minibatch's */
        FATE_MEAN,  /* their mean by rows is */
        FATE_TERMS, /* sums, means and what is the same in all, added: term by term it adds up */
        FATE_LOST,  /* none of these */
    } kind;
    const char *why; /* FATE_LOST, FATE_TERMS: the node and the reason */
    bool crossed;    /* FATE_LOST: which is that every sample meets every sample */
    /* the node at which rows were mixed with what all rows of a microbatch yield, or among one
       another, in words: then the rest holds of microbatches that are batches of their own.  Not of
       BatchNormalization, of which that is known and meant.  NULL: none */
    const char *mixed;
    int64_t added;   /* FATE_SUM: elements that were added up for each of its own; 0: others */
} Fate;

/* batch.c: which dimension of every value is the batch; sets Value.batch for values id >= from.
   Call with 0 before partition, and again after autodiff for the new values, when only
   notes->uneven is found. notes may be NULL. */
typedef VEC(const char *) Reasons;
typedef struct {
    ValueId target, loss;           /* in: the loss and its target, or NONE */
    /* in: by value, the dimension that is known to hold the rows, or BATCH_NONE; NULL: none is */
    const int *known;
    Reasons uneven, mixes;          /* as in Pipe */
    Ids uneven_at, mixes_at;        /* of each, the node */
    /* by value: what stands outside the rows in the dimension that holds them */
    int64_t *outer;
    VEC(OutputMeeting) output;      /* per output of the graph */
    const Fate *fate;               /* by value, of from == 0 */
    /* loss_why: where samples meet so that microbatches have another loss than the minibatch */
    const char *target_why, *loss_why;
} BatchNotes;
/* batch_merge.c: does the op add its operands, so that one which is the same in all microbatches is
   added in each of them? */
bool batch_adds(Op op);
void batch_analyse(Graph *g, ValueId from, const BatchOptions *opt, BatchNotes *notes);

/* rows.c: which of Graph.rows_at the rows are, by what the graph computes along them. */
void graph_choose_rows(Graph *g, const BatchOptions *opt);

/* index.c: what elements of a model input may be, because they choose a row of a table.  Of each of
   its rows these are first, first + step, ...: `count` of them, in all of the row's elements one
   after the other. */
typedef struct {
    ValueId input;
    int64_t first, step, count;
    int64_t least, most; /* rows that are counted from the end included */
    /* such an element chooses nothing: the model puts another in its place */
    bool replaced;
    int64_t other;
    ValueId table;
    int64_t rows; /* of the table */
} IndexBound;
typedef VEC(IndexBound) IndexBounds;
/* nodes: those of the forward, in order, once batch_analyse() has run */
IndexBounds index_bounds(const Graph *g, Arena *a, const Ids *nodes);

/* range.c: between which numbers all elements of a value are, of as many rows as the graph has or
   fewer; NaN counts as none.  Of is what was found, of a graph that only grows. */
typedef struct { double lo, hi; } Interval;
typedef struct {
    const Graph *g;
    Arena *arena;
    IdMap of; /* by value, its position in `at` */
    VEC(Interval) at;
} Intervals;
Interval range_of(Intervals *r, ValueId v);
/* From now on v, a bool, is true, and what makes it so; ask for nothing that is made of it before. */
void range_suppose(Intervals *r, ValueId v);

/* norm.c: the nodes of a norm are one node of the file. */
void graph_norms(Graph *g);

/* unsort.c: rows that are sorted, computed one by one and put back are computed as they stand. */
void graph_unsort(Graph *g, const BatchOptions *opt);

/* resize.c: the graph as exported for so many rows.  list: its nodes that count; they take any number
   of rows.  What cannot be resized all the same is a diagnostic. */
void graph_resize(Graph *g, int64_t rows, const Ids *list);

/* flow.c: by value, whether it depends on something trainable through differentiable operations:
   what trains, then what a list of nodes, in order, makes of what is active.  flow_of_params: is it
   made of parameters (no running statistics) and constants alone?  Such a value is made in each
   stage that reads it, so a use of a parameter is a node that reads it, or such a value, and is not
   one of these itself: no cut changes the uses, nor their order. */
void flow_params(const Graph *g, bool *active);
void flow_through(const Graph *g, bool *active, const NodeId *list, uint32_t nodes);
bool *flow_of_params(const Graph *g, Arena *a);

/* cost.c: a multiply-add counts as two operations, an elementwise one as one per element, what
 * moves data as none. */
int64_t cost_flops(const Graph *g, NodeId n);
/* bytes that each member along an axis of the mesh sends in an operation between them, and for the
 * gradient of what Vary and they read */
int64_t cost_sent(const Graph *g, const Node *n);
int64_t cost_sent_back(const Graph *g, const Node *n);
int64_t value_bytes(const Graph *g, ValueId v);
int64_t node_bytes(const Graph *g, const Node *n); /* of what it makes */

#ifdef __cplusplus
}
#endif
#endif
