/*
 * node.h - what node.c asks of attr.c, shape.c, simplify.c and fold.c while it makes a node.
 */
#ifndef PPSPLIT_NODE_H
#define PPSPLIT_NODE_H

#include "ir.h"

/* A node about to be made: operands already checked; results are typed by shape_infer(). */
typedef struct {
    Op op;
    uint32_t nin, nout;
    ValueId *in;
    Attr attr;
    Dtype *dtype;
    Shape *shape;
} Draft;

/* attr.c: the attributes that the op has, defaults filled in and arrays copied, so callers may
 * build them on their stack. */
Attr attr_own(Arena *a, Op op, const Attr *t);
void attr_dump(Op op, const Attr *t, FILE *f);

/* shape.c.  Fills in the draft's types and shapes, from its operands and attributes; a mistake is a
 * diag_fatal at the origin. */
void shape_infer(Graph *g, const Draft *d);

/* simplify.c, fold.c.  Rewrites the draft's operands where that changes nothing but the cost;
   returns the value that the node would only repeat, or NONE. */
ValueId simplify(Graph *g, Draft *d);
/* Computes the draft when it is pure and its operands are constant; returns output 0, or NONE. */
ValueId fold(Graph *g, const Draft *d);

#endif
