/*
 * onnx_emit.h - what the writers of core nodes share: the node, the names that its operands and
 * results have in the file, and the operators that most of them are made of.
 */
#ifndef PPSPLIT_ONNX_EMIT_H
#define PPSPLIT_ONNX_EMIT_H

#include "onnx_write.h"

typedef struct {
    Ow *w;
    const Node *n;
    const char **in, **out;
} Emit;

/* onnx_emit.c: each writes a node and returns the name of its result: `out`, or a fresh one
   where that is NULL */
/* an operator without attributes on three operands, two (c NULL), or one (b NULL) */
const char *emit_op3(Emit *e, const char *op, const char *a, const char *b, const char *c,
                     const char *out);
const char *emit_op2(Emit *e, const char *op, const char *a, const char *b, const char *out);
/* ... with an attribute of a whole number */
const char *emit_int(Emit *e, const char *op, const char *a, const char *b, const char *name,
                     int64_t v, const char *out);
/* 0, 1, ... n - 1, of i64 */
const char *emit_range(Emit *e, const char *n);
const char *emit_cast(Emit *e, const char *x, Dtype to, const char *out);
const char *emit_reshape(Emit *e, const char *x, const Shape *s, const char *out);
const char *emit_transpose(Emit *e, const char *x, int rank, const int64_t *perm, const char *out);
const char *emit_slice(Emit *e, const char *x, int rank, const int64_t *start, const int64_t *size,
                       const int64_t *step, const char *out);
/* an i64 initializer */
const char *emit_list(Emit *e, int n, const int64_t *v);
/* of domain ppsplit: its operand and result are one member's */
const char *emit_collective(Emit *e, Op op, const char *x, const Attr *at, const char *out);

/* onnx_write_attention.c */
void onnx_flash_attention(Emit *e);
void onnx_flash_attention_grad(Emit *e);
/* onnx_write_recurrence.c */
void onnx_recurrence(Emit *e);

#endif
