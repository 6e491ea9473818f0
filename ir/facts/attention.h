/*
 * attention.h - which nodes of a graph are one attention, whatever is cut or differentiated later:
 *
 *     Mul, Div of q, of k by a number   MatMul q k   Mul, Div by a number   Add of a bias
 *     Where of a mask   Softmax   Dropout (with Phase)   MatMul by v
 *
 * with casts between floats.  Every value between the two products is read by the next node alone;
 * no gradient of the bias is asked for.
 */
#ifndef PPSPLIT_ATTENTION_H
#define PPSPLIT_ATTENTION_H

#include "ir/facts/facts.h"
#include "ir/facts/mask.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MOST_LINKS = 12, MOST_PATH = 4 };

/* A node on the way from the softmax to one of the products, and the operand through which it
   leads. */
typedef struct {
    NodeId node;
    uint32_t operand;
} Link;

/* The Reshape of an Expand, and what Transposes and Casts make an operand of it, the last first;
   each matrix is there `many` times along dimension `at` of the one, `dim` of the other. */
typedef struct {
    NodeId merge, path[MOST_PATH];
    int steps, at, dim;
    int64_t many;
} Repeated;

/* A Mul or Div of q or k by a number, which the operation's scale has in it, and who reads it. */
typedef struct {
    Link by, reader;
} Factor;

typedef struct {
    NodeId softmax, scores, result; /* result: the product by v */
    Link up[MOST_LINKS];            /* from the softmax to scores */
    int ups, downs;                 /* downs: to result */
    Factor factor[MOST_LINKS];
    int factors;
    bool guarded; /* what a row without a key would yield is replaced by 0 */
    AttentionAttr attr;
    ValueId q, k, v, bias, mask;
    bool shared; /* heads of k and v are repeated, for several of q's */
    Repeated heads[2];
    NodeId first; /* of the nodes that it takes the place of */
} Attention;

/* Where they are looked for. */
typedef struct {
    const Graph *g;
    Arena *a;
    Masks masks;
    const Ids *readers;             /* by value: live nodes, each once */
    const bool *live;               /* by node */
    bool *leaves;                   /* by value: it is a result of the graph */
    const bool *active, *of_params; /* by value: flow.c */
} AttentionSearch;

/* The attention around a Softmax; false: it is none, or one that the operation cannot do. */
bool attention_find(AttentionSearch *x, NodeId softmax, Attention *t);
/* attention_fuse.c: every attention of the graph becomes one operation (ops.def: FlashAttention),
   before anything is spread, cut or differentiated; Graph.undivided has what it took the place of.
   loss, target: NONE where there is none. */
void attention_fuse(Graph *g, const BatchOptions *opt, ValueId loss, ValueId target);
/* The diagonal of the chunk in the middle: on the average a chunk computes as much. */
static inline int64_t attention_diagonal(const AttentionAttr *t, const Chunks *part)
{
    return t->diagonal + (t->step ? t->step * (part->along[t->by].chunks - 1) / 2 : 0);
}
/* By node: such an operation has taken its place, and nobody reads what it makes. */
const bool *attention_parts(const Graph *g, Arena *a);

#ifdef __cplusplus
}
#endif

#endif
