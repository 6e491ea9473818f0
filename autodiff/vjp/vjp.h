/*
 * vjp.h - shared by the files of VJP rules.  Every GRAD(f) of ops.def is a function vjp_f,
 * declared here from the table itself: a rule that is missing is a link error that names it.
 */
#ifndef PPSPLIT_VJP_H
#define PPSPLIT_VJP_H

#include "autodiff/autodiff.h"

#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, gradient, ...) gradient
#define GRAD(f) void vjp_##f(Vjp *v);
#define NOGRAD
#define DX(text)
#include "ir/ops.def"
#undef GRAD
#undef NOGRAD
#undef DX

/* share.c */
/* the gradient of operand i is d, broadcasting undone */
void vjp_give(Vjp *v, uint32_t i, ValueId d);
ValueId vjp_scale(Graph *g, ValueId x, double c);       /* x * c */
ValueId vjp_square(Graph *g, ValueId x);
/* a view of one zero; knows its batch dimension */
ValueId vjp_zeros(Graph *g, Dtype t, const Shape *s, int batch);
ValueId vjp_zeros_like(Graph *g, ValueId x);
/* of x's shape and the gradient's type */
ValueId vjp_zeros_for(Graph *g, ValueId x, ValueId dy);
/* i < 0 becomes i + extent */
ValueId vjp_wrap_index(Graph *g, ValueId index, ValueId extent);
/* i64 0..n-1 along axis; batch: it is the rows' axis, or -1 */
ValueId vjp_iota_batch(Graph *g, int rank, int axis, int64_t n, int batch);
int64_t *vjp_ints(Graph *g, int n);                     /* an attribute array */
/* x at position `at` of a zero tensor, along axis */
ValueId vjp_place(Graph *g, ValueId x, int axis, int64_t at, int64_t extent);
/* a scatter of either family; mode: SCATTER_NONE, ... */
ValueId vjp_scatter_into(Graph *g, Op op, ValueId into, ValueId index, ValueId updates,
                         int64_t axis, int mode);

/* tidy.c; first: of backward's values */
/* the same product with one constant, its small factors first */
ValueId vjp_tidy(Graph *g, ValueId d, ValueId first);
/* d + more as one product, if both are the same product but for a constant factor; NONE: they are
   not */
ValueId vjp_together(Graph *g, ValueId d, ValueId more, ValueId first);
/* whether d = y times a value that is constant along the axes */
bool vjp_is_level(const Graph *g, ValueId d, ValueId y, const Attr *along);

/* The node that makes v; NULL: none that comes of the file's node at hand does. */
static inline const Node *vjp_maker(const Graph *g, ValueId v)
{
    const Node *n = graph_maker(g, v);
    return n && n->origin == g->cur_origin && n->origin != 0 ? n : NULL;
}

static inline const Node *vjp_node(const Vjp *v) { return &v->g->node.at[v->node]; }
static inline const Shape *vjp_shape(const Vjp *v, ValueId x) { return &v->g->value.at[x].shape; }

#endif
