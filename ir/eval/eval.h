/*
 * eval.h - what the parts of the evaluator share.  Private to ir/eval/ and the tests' oracle.
 *
 * Floats are computed in double and rounded to the output's type once; integers in 128 bits, so
 * that no operation on 64 bits overflows, and cut to the output's type once (as two's complement
 * does).
 */
#ifndef PPSPLIT_EVAL_H
#define PPSPLIT_EVAL_H

#include "ir/element.h"

typedef struct Eval {
    Op op;
    uint32_t nin, nout;
    const Tensor *in;
    const Attr *at;
    Tensor *out;                                        /* data already allocated, zeroed */
    Arena *arena;
    Arena *scratch;                                     /* made when the small buffer is used up */
    size_t used;
    union { char byte[4096]; Wide align; } small;       /* shape arithmetic never needs more */
} Eval;

/* eval.c: allocates the results and has f compute them. */
void eval_by(void (*f)(Eval *e), Eval *e);

/* share.c */
void *eval_scratch(Eval *e, size_t n, size_t size);

/* Whole tensors in one of the two domains; a copy unless the tensor is of that type already. */
const double *eval_doubles(Eval *e, const Tensor *t);
const Wide *eval_wides(Eval *e, const Tensor *t);
const int64_t *eval_ints(Eval *e, const Tensor *t);
void eval_store_doubles(Tensor *t, const double *v);
void eval_store_wides(Tensor *t, const Wide *v);
/* Single elements. */
static inline double eval_double_at(const Tensor *t, int64_t i)
{
    return element_double(t->dtype, t->data, i);
}
static inline Wide eval_wide_at(const Tensor *t, int64_t i)
{
    return element_wide(t->dtype, t->data, i);
}
static inline void eval_set_double(Tensor *t, int64_t i, double v)
{
    element_set_double(t->dtype, t->data, i, v);
}
static inline void eval_set_wide(Tensor *t, int64_t i, Wide v)
{
    element_set_wide(t->dtype, t->data, i, v);
}

/* Row-major strides in elements. */
void eval_strides(const Shape *s, int64_t *stride);
/* The next index in row-major order; false after the last. */
bool eval_next(const Shape *s, int64_t *index);
/* An index that may count from the end, checked. */
int64_t eval_index(int64_t i, int64_t d);

double eval_max(double a, double b);                    /* NaN wins */
double eval_min(double a, double b);

/* map.c, move.c, reduce.c, conv.c: every EVAL(f) of ops.def is a function eval_f; one that is
 * missing does not link. */
#define EVAL(f) void eval_##f(Eval *e);
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, ...) eval
#include "ir/ops.def"
#undef EVAL

#endif
