/*
 * build.h - builders of nodes, one line each; shapes follow NumPy broadcasting.
 */
#ifndef PPSPLIT_BUILD_H
#define PPSPLIT_BUILD_H

#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

ValueId g_unary(Graph *g, Op op, ValueId x);
ValueId g_binary(Graph *g, Op op, ValueId x, ValueId y);
ValueId g_add(Graph *g, ValueId x, ValueId y);
ValueId g_sub(Graph *g, ValueId x, ValueId y);
ValueId g_mul(Graph *g, ValueId x, ValueId y);
ValueId g_div(Graph *g, ValueId x, ValueId y);
ValueId g_neg(Graph *g, ValueId x);
ValueId g_where(Graph *g, ValueId cond, ValueId x, ValueId y);
ValueId g_cast(Graph *g, ValueId x, Dtype to);
/* formula.c: "x, y, double k: x > 0 ? k * x : Exp(y) - 1" of the ValueIds x and y and the number k */
ValueId g_formula(Graph *g, const char *text, ...);
/* a scalar constant, expanded (a view) */
ValueId g_full(Graph *g, Dtype t, const Shape *s, double v);
ValueId g_scalar(Graph *g, Dtype t, double v);                   /* rank 0 */
/* scalar constant of x's dtype (broadcasts) */
ValueId g_like(Graph *g, ValueId x, double v);
ValueId g_ints(Graph *g, int rank, const int64_t *dims, const int64_t *v);
ValueId g_reshape(Graph *g, ValueId x, const Shape *s);
ValueId g_transpose(Graph *g, ValueId x, const int64_t *perm);
/* transpose of the last two dims */
ValueId g_swap_last(Graph *g, ValueId x);
ValueId g_expand(Graph *g, ValueId x, const Shape *s);
/* keeps the dims, as 1 */
ValueId g_reduce(Graph *g, Op op, ValueId x, int n, const int64_t *axes);
ValueId g_reduce_last(Graph *g, Op op, ValueId x);
/* undo a broadcast: sum to shape s */
ValueId g_sum_to(Graph *g, ValueId x, const Shape *s);
/* all dims; step NULL = 1 */
ValueId g_slice(Graph *g, ValueId x, const int64_t *start, const int64_t *size,
                const int64_t *step);
ValueId g_slice_axis(Graph *g, ValueId x, int axis, int64_t start, int64_t size);
ValueId g_flip(Graph *g, ValueId x, int axis); /* the last first */
ValueId g_concat(Graph *g, uint32_t n, const ValueId *x, int axis);
/* first output; graph_out for the rest */
ValueId g_split(Graph *g, ValueId x, int axis, int n, const int64_t *sizes);
ValueId g_pad(Graph *g, ValueId x, const int64_t *begin, const int64_t *end, int mode, double v);
/* ONNX/NumPy matmul, ranks 1.. (canonicalised to >= 2) */
ValueId g_matmul(Graph *g, ValueId x, ValueId y);
/* for halves it keeps the f32 sums */
ValueId g_matmul_wide(Graph *g, ValueId x, ValueId y);
/* of f32, it stays so in a graph that computes in half precision */
ValueId g_matmul_single(Graph *g, ValueId x, ValueId y);
/* x where the line `there' along dim is true, a number elsewhere */
ValueId g_only_there(Graph *g, ValueId there, int dim, ValueId x, double otherwise);
ValueId g_gather(Graph *g, ValueId x, ValueId index, int axis);
ValueId g_softmax(Graph *g, ValueId x, int axis);
ValueId g_log_softmax(Graph *g, ValueId x, int axis);
ValueId g_mean(Graph *g, ValueId x, int n, const int64_t *axes); /* ReduceMean */
/* x0 + x1, x2 + x3, .., then those in pairs, until one is left; one without another stays.  Where
   an operand is NONE its partner stays; NONE: all are. */
ValueId g_tree_sum(Graph *g, uint32_t n, const ValueId *x);
/* Between the members along axis Graph.cur_mesh (ops.def).  Of one member: x itself, and of Vary
   its k results, of which the first is returned, where k is more than 1.  t: the type of the sum,
   after it is made. */
ValueId g_vary(Graph *g, ValueId x, int k);
ValueId g_collective(Graph *g, Op op, ValueId x, Attr attr); /* attr: but the axis of the mesh */
ValueId g_all_reduce(Graph *g, ValueId x, Dtype t);
ValueId g_all_gather(Graph *g, ValueId x, int axis);
ValueId g_shard(Graph *g, ValueId x, int axis);
ValueId g_reduce_scatter(Graph *g, ValueId x, int axis);
ValueId g_all_to_all(Graph *g, ValueId x, int from, int to);
/* constant 0..n-1 along axis, other dims 1; the model is refused for n above 2^26 */
ValueId g_iota(Graph *g, Dtype t, int rank, int axis, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
