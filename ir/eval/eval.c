/*
 * eval.c - the evaluator: core ops on dense tensors.  It folds constants at import, and the tests'
 * oracle (tests/share/oracle/) stands on it.  Plain loops, one definition of every op; speed is the
 * generated code's business.
 */
#include "eval.h"

static void (*const evaluator[OP_COUNT])(Eval *e) = {
#define EVAL(f) eval_##f
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, ...)                  \
    [OP_##name] = eval,
#include "ir/ops.def"
};

void eval_by(void (*f)(Eval *e), Eval *e)
{
    bool empty = true;
    e->scratch = NULL, e->used = 0;
    for (uint32_t i = 0; i < e->nout; i++) {
        int64_t n = shape_elements(&e->out[i].shape);
        e->out[i].data = arena_calloc(e->arena, (size_t)n, dtype_size(e->out[i].dtype));
        empty = empty && n == 0;
    }
    if (empty)
        return;
    f(e);
    arena_free(e->scratch);
}

void eval_node(Arena *a, Op op, uint32_t nin, const Tensor *in, const Attr *attr, uint32_t nout,
               Tensor *out)
{
    Eval e;
    INSIST(op_is_core(op));
    e.op = op, e.nin = nin, e.nout = nout, e.in = in, e.at = attr, e.out = out, e.arena = a;
    eval_by(evaluator[op], &e);
}
