/*
 * eval.c - the evaluator: any core op on dense tensors.  It folds constants at import and is the
 * tests' oracle in float64.  Plain loops, one definition of every op; speed is the generated code's
 * business.
 */
#include <string.h>

#include "eval.h"

static void (*const evaluator[OP_COUNT])(Eval *e) = {
#define EVAL(f) eval_##f
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, ...)                  \
    [OP_##name] = eval,
#include "ir/ops.def"
};

void eval_node(Arena *a, Op op, uint32_t nin, const Tensor *in, const Attr *attr, uint32_t nout,
               Tensor *out)
{
    bool empty = true;
    Eval e;
    INSIST(op_is_core(op));
    e.op = op, e.nin = nin, e.nout = nout, e.in = in, e.at = attr, e.out = out, e.arena = a,
    e.scratch = NULL, e.used = 0, e.nodes = eval_nodes;
    for (uint32_t i = 0; i < nout; i++) {
        int64_t n = shape_elements(&out[i].shape);
        out[i].data = arena_calloc(a, (size_t)n, dtype_size(out[i].dtype));
        empty = empty && n == 0;
    }
    if (empty)
        return;
    evaluator[op](&e);
    arena_free(e.scratch);
}

/* ---- lists of nodes ---- */

static bool narrow(Dtype t) { return dtype_is_float(t) && t != DT_F64; }

/* The oracle: a value of the graph that is held in doubles and of a narrower type. */
static bool is_wide(const Graph *g, const Tensor *at)
{
    for (ValueId v = 0; v < g->value.n; v++)
        if (at[v].data && at[v].dtype == DT_F64 && narrow(val(g, v)->dtype))
            return true;
    return false;
}

static Tensor widened(Arena *a, Tensor t)
{
    Tensor to = {.dtype = DT_F64, .shape = t.shape};
    if (!narrow(t.dtype))
        return t;
    eval_node(a, OP_Cast, 1, &t, &(Attr){.to = DT_F64}, 1, &to);
    return to;
}

static Tensor operand(const Graph *g, Arena *a, ValueId v, Tensor *at, bool wide)
{
    const Value *x = val(g, v);
    if (!at[v].data) {
        if (x->kind != V_CONST)
            BUG("value %s is read before it is made", x->name);
        at[v] = (Tensor){x->dtype, x->shape, NULL};
        memcpy(&at[v].data, &x->data, sizeof at[v].data);
    }
    if (wide)
        at[v] = widened(a, at[v]);
    return at[v];
}

void eval_nodes(const Graph *g, Arena *a, const NodeId *list, uint32_t n, Tensor *at)
{
    bool wide = is_wide(g, at);
    for (uint32_t k = 0; k < n; k++) {
        const Node *x = &g->node.at[list[k]];
        Arena *scratch = arena_within(g->arena);
        Tensor *in = arena_array(scratch, Tensor, x->nin),
               *out = arena_array(scratch, Tensor, x->nout);
        for (uint32_t i = 0; i < x->nin; i++)
            in[i] = operand(g, a, x->in[i], at, wide);
        for (uint32_t i = 0; i < x->nout; i++) {
            const Value *v = val(g, x->out[i]);
            out[i] = (Tensor){wide && narrow(v->dtype) ? DT_F64 : v->dtype, v->shape, NULL};
        }
        eval_node(a, x->op, x->nin, in, &x->attr, x->nout, out);
        for (uint32_t i = 0; i < x->nout; i++)
            at[x->out[i]] = out[i];
        arena_free(scratch);
    }
}
