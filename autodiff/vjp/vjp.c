/*
 * vjp.c - the table of VJP rules, expanded from the gradient column of ops.def.
 * In: a core node and the gradients of its outputs.  Out: nodes of the same IR that compute the
 * gradients of its operands.  Conventions at kinks are PyTorch's.
 */
#include "vjp.h"

typedef void (*Rule)(Vjp *v);

static const Rule rule[OP_COUNT] = {
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, gradient, ...)                    \
    [OP_##name] = gradient,
#define GRAD(f) vjp_##f
#define NOGRAD NULL
#define DX(text) NULL
#include "ir/ops.def"
#undef GRAD
#undef DX
};

static const char *const formula[OP_COUNT] = {
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, gradient, ...)                    \
    [OP_##name] = gradient,
#define GRAD(f) NULL
#define DX(text) "x, y, dy: " text
#include "ir/ops.def"
};

bool vjp_apply(Vjp *v)
{
    const Op op = vjp_node(v)->op;
    if (formula[op])
        v->din[0] = g_formula(v->g, formula[op], v->in[0], v->out[0], v->dy[0]);
    else if (rule[op])
        rule[op](v);
    return formula[op] || rule[op];
}
