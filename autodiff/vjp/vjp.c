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
#include "ir/ops.def"
};

bool vjp_apply(Vjp *v)
{
    Rule f = rule[v->g->node.at[v->node].op];
    if (!f)
        return false;
    f(v);
    return true;
}
