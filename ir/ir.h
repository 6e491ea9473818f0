/*
 * ir.h - the room's table of contents: the Graph of core operations (graph.h, on the types of
 * type.h), how it is made, checked, shaped, folded and evaluated, and ops.def, its table of
 * operations with one row for each.
 */
#ifndef PPSPLIT_IR_H
#define PPSPLIT_IR_H

#include "build.h"
#include "graph.h"
#include "type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtype.c, element.c: type.h ------------------------------------------------------------- */

/* ---- graph.c: values, and the Graph as a whole ----------------------------------------------- */

Graph *graph_new(Arena *a, const char *file);
/* A copy in that arena, which g's is to outlive, whose nodes, values and lists may be changed: ids
 * are the same, and so is all that no pass writes any more: the model's files, constants' bytes,
 * names.
 */
Graph *graph_twin(const Graph *g, Arena *a);
/* name NULL: made up */
ValueId graph_value(Graph *g, ValueKind kind, const char *name, Dtype t, const Shape *s);
/* appended to g->input */
ValueId graph_input(Graph *g, const char *name, Dtype t, const Shape *s);
ValueId graph_param(Graph *g, Param p);                                       /* sets p.value */
ValueId graph_const(Graph *g, const char *name, Tensor t);                    /* keeps t.data */
/* fatal if another has it */
void graph_rename(Graph *g, ValueId v, const char *name);
bool graph_is_total(const Graph *g, ValueId v);         /* the input of one of g->total */
/* Of one kind, type and shape, and the same result of nodes that differ in their operands alone;
   attr: not in their attributes, and constants have the same bytes.  else both may differ */
bool value_alike(const Graph *g, ValueId x, ValueId y, bool attr);
/* i-th output of first's node */
ValueId graph_out(const Graph *g, ValueId first, uint32_t i);
Where graph_where(const Graph *g, uint32_t origin, int input);
const char *graph_scope(const Graph *g, NodeId n);     /* the path of its module; "": none */
/* The ONNX node's name; without one its type and its number: "MatMul#12" */
const char *graph_origin_name(const Graph *g, uint32_t origin, Arena *a);
/* ---- verify.c: BUG() on any broken invariant ---- */
void graph_verify(const Graph *g);
/* ... of one member's graph of the forward: sums and gathers are of what each has its own of, and
   what has a gradient is varied where it meets that.  active: by value, whether it has one */
void graph_verify_forward(const Graph *g, const bool *active, ValueId loss);
/* users[v] = node ids that read v, in order; index by value id. Arena array of g->value.n lists. */
Ids *graph_users(const Graph *g, Arena *scratch);
/* ... of those that are live (NULL: all) */
Ids *graph_readers(const Graph *g, Arena *scratch, const bool *live);
/* live.c: the values that a graph is computed for: its outputs, new running statistics, the loss
   (NONE: none); which nodes lead to them; which of the nodes from `first` on lead to one of `root`:
   live[node - first]; these nodes, in order; all nodes */
Ids graph_results(const Graph *g, Arena *a, ValueId loss);
bool *graph_needed(const Graph *g, Arena *a, ValueId loss);
bool *graph_live(const Graph *g, Arena *a, NodeId first, const Ids *root, uint32_t nroot);
Ids graph_leading(const Graph *g, Arena *a, NodeId first, const Ids *root, uint32_t nroot);
Ids graph_nodes(const Graph *g, Arena *a);

/* ---- dump.c ---------------------------------------------------------------------------------- */

void graph_dump(const Graph *g, FILE *f);               /* one line a node, stable */
void graph_dump_nodes(const Graph *g, const Ids *list, FILE *f);
/* What a node computes, without its operands: f32[2,47,8] = Slice { start=[0,1,0] ... } */
const char *node_text(const Graph *g, NodeId n, Arena *a);

/* ---- node.c: on attr.c, shape.c, simplify.c and fold.c (node.h) ------------------------------ */

/*
 * Makes a core node: checks its operands (none may be absent), keeps the attributes that the op
 * has, infers shapes, removes identities, and folds constants (unless the result has more than 1 Mi
 * elements and is larger than the operands).  Returns output 0; graph_out(g, r, i) gives the
 * others.
 */
ValueId graph_node(Graph *g, Op op, uint32_t nin, const ValueId *in, Attr attr);
/* shape.c: type and shape of each result of a node, from its operands as they are now */
void graph_shapes(Graph *g, NodeId n, Dtype *type, Shape *shape);
/* attr.c: compares the attributes that the op has */
bool attr_equal(Op op, const Attr *x, const Attr *y);
/* those of the same node with a dimension of n more in front of its operands; the op LIFTS */
Attr attr_lifted(Arena *a, Op op, const Attr *t, int64_t n);

/* ---- build.c: build.h ------------------------------------------------------------------------ */

/* ---- recurrence.c: a body that is computed for each step (op.h) ------------------------------ */

Graph *body_new(const Graph *g); /* an empty body for a node of g: origins are g's */
/* The node: of.rows is of the body's inputs as they are, then of its outputs; of.body is set.  Long
   constants of the body become operands. */
ValueId g_recurrence(Graph *g, Graph *body, Recurrence of, const ValueId *in);
/* The nodes of `from`, in their order, as a body of g: those values are its inputs and outputs */
Graph *body_of(const Graph *g, const Graph *from, const Ids *input, const Ids *node,
               const Ids *output);
void body_own_outputs(Graph *body); /* an output becomes a value that the body makes */
int64_t recurrence_steps(const Graph *g, const Node *n);

/* ---- looked.c -------------------------------------------------------------------------------- */

Looked *looked_new(Arena *a);
/* The result of look(what) on a constant, computed once per constant.  Results outlive the
   graph. */
const void *graph_look(const Graph *g, Dtype t, const Shape *shape, const void *data, LookAt *look,
                       int what);
/* The first address seen with these bytes: data itself, or that of an equal constant */
const void *graph_bytes(const Graph *g, const void *data, size_t n);

/* ---- constant.c: the elements of a constant; false if v is not one --------------------------- */

bool g_const_ints(const Graph *g, ValueId v, Arena *a, int64_t **at, int64_t *n);
bool g_const_double(const Graph *g, ValueId v, double *x);      /* of one element */
bool const_slices_equal(const Value *v, int dim);               /* all along dim, by their bits */

/* ---- autocast.c: makes a graph of f32 compute in f16 or bf16, before it is partitioned.  DT_NONE:
   keeps its types; chains of elementwise operations on halves are made to round once ----------- */

void graph_autocast(Graph *g, Dtype half);

/* ---- eval/: computes a core node on dense tensors, for folding ---------------------------------
 */

/* The caller sets out[i].shape and dtype; data is allocated from a.  Floats are computed in double
   and rounded once, to the output's type.  Dropout is the identity with an all-true mask here;
   Phase takes operand 0. */
void eval_node(Arena *a, Op op, uint32_t nin, const Tensor *in, const Attr *attr, uint32_t nout,
               Tensor *out);
/* r[i]: an elementwise operation on x[i], y[i], z[i], as doubles; none of them is NULL */
void eval_map_row(Op op, const double *x, const double *y, const double *z, double *r, int n);

/* ---- ops.c: the table as data ---------------------------------------------------------------- */

const char *op_name(Op op);
Op op_find(const char *name);                           /* OP_NONE when there is no such row */
bool op_is_map(Op op);                                  /* elementwise */
/* the MAP expression over a, b, c; NULL otherwise */
const char *op_map_text(Op op);
bool op_is_core(Op op);                                 /* may stand in a Graph */
/* its result shares its operand's memory, if strides can express it */
bool op_is_view(Op op);
ValueId graph_behind_views(const Graph *g,
                           ValueId v); /* what v is a view of; v itself if of none */
/* it computes nothing: a view, or a Phase, which passes one of its operands on */
bool op_passes_on(Op op);
/* Phase reads operand 0 in training and 1 in inference; other nodes read all of theirs. */
typedef enum { TRAINING, INFERENCE } NodePhase;
bool node_reads(const Node *n, uint32_t i, NodePhase phase);
/* how many of its first operands it reads then */
uint32_t node_reads_training(const Node *n);
/* live.c: of a list the nodes that lead to a needed value, in their order.  What they read is
   needed, too, but for what is `there' (by value; NULL: nothing). */
Ids graph_makers(const Graph *g, Arena *a, const Ids *list, NodePhase phase, bool *need,
                 const bool *there);
/* the flags QUICK, SHORT, REDUCES, PICKS, EXACT, ARITHMETIC, GROWS, PLAIN of ops.def */
bool op_is_quick(Op op);
bool op_is_short(Op op);
bool op_reduces(Op op);
bool op_picks(Op op);
bool op_is_exact(Op op);
bool op_is_arithmetic(Op op);
bool op_grows(Op op);
bool op_is_plain(Op op);
bool op_is_linear(Op op); /* LINEAR, or it passes on */
bool op_lifts(Op op);     /* LIFTS, or elementwise; its attributes then: attr_lifted() */
typedef enum { CAST_half, CAST_single, CAST_widest } OpCast;
OpCast op_cast(Op op);                                  /* the AUTO column */
static inline bool op_is_product(Op op) { return op_cast(op) == CAST_half; }
/* where operand i is 0, it or its derivative is not finite */
bool op_is_singular(Op op, uint32_t i);
bool op_is_pure(Op op);                                 /* equal operands give equal results */
/* folded if its operands are constant */
bool op_folds(Op op);
/* computed again in backward rather than kept */
bool op_is_cheap(Op op);
bool op_stands_alone(Op op);                            /* a call of its own, fused with nothing */
bool op_is_collective(Op op);                           /* all members do it together: MEMBERS */
/* How operands and results are divided among the members, as "P to R".  R: every member has the
   whole; S(d): each has a part along dimension d; P: it is the sum of what they have.  Then the
   axis of the mesh. */
const char *node_placement(Arena *a, const Node *n);
const char *mesh_along(int mesh);                       /* "", " along sequences", ... */
/* whether its core form may have nin operands */
bool op_takes(Op op, uint32_t nin);
uint32_t op_results(Op op, const Attr *attr);
bool op_differentiable(Op op);
/* The letter of ops.def's slots: what operand `input` of an ONNX node may hold. */
char op_slot(const char *domain, const char *name, uint32_t input);
void ops_print(FILE *f);                                /* ppsplit ops */
/* why an operator of the specification is refused; NULL: it is supported, or does not exist */
const char *op_refused(const char *domain, const char *name);

#ifdef __cplusplus
}
#endif
#endif
