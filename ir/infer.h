/*
 * infer.h - shared by the files shape*.c: the node whose types and shapes are inferred, checks, and
 * a function for each SHAPE() of ops.def.
 */
#ifndef PPSPLIT_INFER_H
#define PPSPLIT_INFER_H

#include "node.h"

typedef struct {
    Graph *g;
    Op op;
    uint32_t nin, nout;
    const ValueId *in;
    const Attr *at;
    Dtype *t;
    Shape *s;
} Infer;

static inline const Shape *infer_dims(const Infer *x, uint32_t i)
{
    return &val(x->g, x->in[i])->shape;
}
static inline Dtype infer_type(const Infer *x, uint32_t i) { return val(x->g, x->in[i])->dtype; }
static inline long long infer_number(int64_t v) { return (long long)v; }

/* shape_check.c; input: the operand at fault, -1: none */
NORETURN void infer_refuse(const Infer *x, int input, const char *fmt, ...) PRINTF_LIKE(3, 4);
int infer_axis(const Infer *x, int64_t axis, int rank);
int64_t infer_add(const Infer *x, int64_t a, int64_t b);
int64_t infer_mul(const Infer *x, int64_t a, int64_t b);
void infer_broadcast(const Infer *x, const Shape *b, int skip_last, Shape *r);
void infer_broadcast_all(Infer *x);
void infer_same_types(const Infer *x, uint32_t from);
void infer_need(const Infer *x, uint32_t i, bool good, const char *what);

/* shape_rules.c: elementwise, moves, indices, reductions; shape_windows.c: products, convolutions,
 * pools */
#define SHAPE(f) void shape_##f(Infer *x);
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, ...) shape
#include "ops.def"
#undef SHAPE

#endif
