/*
 * simplify.h - what graph.c asks of simplify.c and fold.c while it makes a node.  Private to the two.
 */
#ifndef PPSPLIT_SIMPLIFY_H
#define PPSPLIT_SIMPLIFY_H

#include "ir.h"

/* A node about to be made: operands already checked, results already typed. */
typedef struct {
    Op op;
    uint32_t nin, nout;
    ValueId *in;
    Attr attr;
    Dtype *dtype;
    Shape *shape;
} Draft;

/* Rewrites the draft's operands where that changes nothing but the cost; returns the value the node would only repeat, or NONE. */
ValueId simplify(Graph *g, Draft *d);
/* Computes the draft when it is pure and its operands are constant; returns output 0, or NONE. */
ValueId fold(Graph *g, const Draft *d);
/* The node that makes v if it is of this op, else NULL. */
const Node *maker(const Graph *g, ValueId v, Op op);

#endif
