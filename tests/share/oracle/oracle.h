/*
 * oracle.h - what tests compare with: nodes computed by their definitions, and nests of statements
 * run one by one.  Linked to every test (liboracle.a).
 */
#ifndef ORACLE_H
#define ORACLE_H

#include "codegen/plan/nest.h"
#include "ir/ir.h"

struct Eval;

/* nodes.c: as eval_node, of every core op. */
void oracle_node(Arena *a, Op op, uint32_t nin, const Tensor *in, const Attr *attr, uint32_t nout,
                 Tensor *out);
/* Evaluates nodes in order.  at[] is indexed by value id; the caller fills inputs and parameters.
   If one of them holds an f32 or half value of the graph as doubles (dtype DT_F64), so do all
   results: the float64 reference. */
void oracle_nodes(const Graph *g, Arena *a, const NodeId *list, uint32_t n, Tensor *at);

/* attention.c */
void oracle_attention(struct Eval *e);
void oracle_attention_grad(struct Eval *e);

/* recurrence.c */
void oracle_recurrence(struct Eval *e);

/* nest.c: runs a nest on memory: at[i] is where argument i points. */
void nest_interpret(Arena *a, const Nest *n, int64_t rows, void *const *at);

#endif
