/*
 * facts.h - facts about a Graph's values and nodes besides their shapes: which dimension holds the
 * samples, how the results of microbatches are put together, operations and bytes.
 */
#ifndef PPSPLIT_FACTS_H
#define PPSPLIT_FACTS_H

#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* how an output is put together; LAST: it is the same in all microbatches; NONE: it cannot be */
typedef enum { MERGE_LAST, MERGE_SUM, MERGE_MEAN, MERGE_ROWS, MERGE_NONE } OutputMerge;
typedef struct {
    OutputMerge how;
    const char *why; /* MERGE_NONE: the node and the reason */
} OutputMeeting;

typedef struct {
    Strings chunk;        /* "INPUT=DIM", "INPUT=replicate" */
    Strings merge;        /* "OUTPUT=DIM", "OUTPUT=sum", "OUTPUT=mean" */
} BatchOptions;

/* How the values of microbatches relate to that of the minibatch. */
typedef struct {
    enum {
        FATE_FIXED, /* the same in all of them */
        FATE_ROWS,  /* each has some of its rows */
        FATE_COUNT, /* a number that grows with the rows */
        FATE_SUM,   /* their sum is the minibatch's */
        FATE_MEAN,  /* their mean, weighted by rows, is */
        FATE_TERMS, /* a sum of such terms: each term can be put together */
        FATE_LOST,  /* none of these */
    } kind;
    const char *why; /* FATE_LOST, FATE_TERMS: the node and the reason */
    bool crossed;    /* FATE_LOST: because every sample meets every other */
    /* A text naming the node at which rows are mixed with each other or with a result of all rows.
       Then each microbatch counts as a batch of its own.  Not set for BatchNormalization, where
       this is intended.  NULL: there is none */
    const char *mixed;
    int64_t added;   /* FATE_SUM: elements that were added up for each of its own; 0: others */
} Fate;

/* batch.c: which dimension of every value is the batch; sets Value.batch for values id >= from.
   Call with 0 before partition, and again after autodiff for the new values, when only
   notes->uneven is found. notes may be NULL. */
typedef VEC(const char *) Reasons;
typedef struct {
    ValueId target, loss;           /* in: the loss and its target, or NONE */
    /* in: by value, the dimension known to hold the rows, or BATCH_NONE; NULL: none is known */
    const int *known;
    Reasons uneven, mixes;          /* as in Pipe */
    Ids uneven_at, mixes_at;        /* of each, the node */
    /* by value: the product of what is outside the rows in the dimension that holds them */
    int64_t *outer;
    VEC(OutputMeeting) output;      /* per output of the graph */
    const Fate *fate;               /* by value, of from == 0 */
    /* loss_why: the node at which samples meet, so that the losses of microbatches differ from that
       of the minibatch */
    const char *target_why, *loss_why;
} BatchNotes;
/* batch_merge.c: whether the op adds its operands, so that an operand that is the same in all
   microbatches is added in each of them */
bool batch_adds(Op op);
void batch_analyse(Graph *g, ValueId from, const BatchOptions *opt, BatchNotes *notes);

/* rows.c: chooses among Graph.rows.at, by what the graph computes along each dimension. */
void graph_choose_rows(Graph *g, const BatchOptions *opt);

/* index.c: bounds of elements of a model input that choose a row of a table.  In each row of the
   input these are the elements first, first + step, ...: `count` of them. */
typedef struct {
    ValueId input;
    int64_t first, step, count;
    int64_t least, most; /* including negative indices, which count from the end */
    /* the model replaces elements equal to `other`, so they choose nothing */
    bool replaced;
    int64_t other;
    ValueId table;
    int64_t rows; /* of the table */
} IndexBound;
typedef VEC(IndexBound) IndexBounds;
/* nodes: those of the forward, in order, once batch_analyse() has run */
IndexBounds index_bounds(const Graph *g, Arena *a, const Ids *nodes);

/* range.c: an interval that contains all elements of a value, for the graph's rows or fewer; NaN is
   ignored.  Results are kept, because a graph only grows. */
typedef struct { double lo, hi; } Interval;
typedef struct {
    const Graph *g;
    Arena *arena;
    IdMap of; /* by value, its position in `at` */
    VEC(Interval) at;
} Intervals;
Interval range_of(Intervals *r, ValueId v);
/* From now on assumes that the bool v is true, with all that follows; ask for no value computed
   from it before. */
void range_suppose(Intervals *r, ValueId v);

/* norm.c: the nodes of a norm are one node of the file. */
void graph_norms(Graph *g);
/* activation.c: the Erf, Tanh or Sigmoid of a GELU or Swish is called so. */
void graph_activations(Graph *g);

/* unsort.c: rows that are sorted, computed one by one and put back are computed as they stand. */
void graph_unsort(Graph *g, const BatchOptions *opt);

/* picked.c: rows that are each multiplied by a matrix they look up are packed by matrices. */
void graph_picked(Graph *g);

/* resize.c: changes the graph to one exported for another number of rows.  list: the nodes that
   matter, which take any number of rows.  Fatal if something cannot be resized. */
void graph_resize(Graph *g, int64_t rows, const Ids *list);

/* recurrence.c: a copy of the node's body whose values know where they hold the rows, as the node's
   operands have them */
Graph *body_placed(const Graph *g, const Node *n, Arena *a);
/* Recurrence.rows of a body of which those of the inputs are known */
int *body_rows(Graph *body, const int *input, Arena *a);

/* flow.c: active[value]: whether it depends on a trainable parameter through differentiable
   operations.  flow_params sets parameters, flow_through a list of nodes in order, flow_active
   both, of all nodes (loss NONE: nothing does).
   flow_of_params[value]: whether it is computed from parameters (no running statistics) and
   constants only, by members together as well.  Each stage that reads such a value computes it, so
   a use of a parameter is another node that reads it, or reads such a value: neither a cut nor the
   number of members changes the uses or their order.
   flow_of_data[value]: whether it depends on an input; flow_of_rows[value]: on one that is not the
   same in all microbatches.  flow_pure[value]: whether it is
   computed from constants, frozen parameters and integer inputs alone. */
void flow_params(const Graph *g, bool *active);
void flow_through(const Graph *g, bool *active, const NodeId *list, uint32_t nodes);
bool *flow_active(const Graph *g, Arena *a, ValueId loss);
bool *flow_of_params(const Graph *g, Arena *a);
bool *flow_of_data(const Graph *g, Arena *a);
bool *flow_of_rows(const Graph *g, Arena *a);
bool *flow_pure(const Graph *g, Arena *a);

/* cost.c: a multiply-add counts as two operations, an elementwise operation as one per element, and
 * moving data as none. */
int64_t cost_flops(const Graph *g, NodeId n);
/* bytes that each member along an axis of the mesh sends in an operation between them */
int64_t cost_sent(const Graph *g, const Node *n);
int64_t cost_sum(int64_t a, int64_t b); /* at most INT64_MAX, of a hostile model too */
int64_t value_bytes(const Graph *g, ValueId v);
int64_t node_bytes(const Graph *g, const Node *n); /* of its results */

#ifdef __cplusplus
}
#endif
#endif
