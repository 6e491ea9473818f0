/*
 * nodes.c - computes nodes by their definitions: by the compiler's evaluator, and, what never has
 * constant operands, so that the compiler never evaluates it, here.
 */
#include <string.h>

#include "ir/eval/eval.h"
#include "oracle.h"

static void packed_matmul(Eval *e)
{
    const Shape *a = &e->in[0].shape, *r = &e->out[0].shape, *mask = &e->in[2].shape;
    const int last = r->rank - 1;
    int64_t several = last == 2 ? r->d[0] : 1, m = r->d[last - 1], n = r->d[last], k = a->d[last];
    double *z = eval_scratch(e, (size_t)(several * m * n), sizeof *z);
    const double *x = eval_doubles(e, &e->in[0]), *y = eval_doubles(e, &e->in[1]);
    const uint8_t *is = e->in[2].data;
    for (int64_t s = 0; s < several; s++, x += m * k, y += k * n, is += mask->d[mask->rank - 1]) {
        int64_t count = 0;
        for (int64_t i = 0; i < mask->d[mask->rank - 1]; i++)
            count += is[i] != 0;
        for (int64_t i = 0; i < m * n; i++) {
            double sum = 0;
            for (int64_t p = 0; p < (e->at->axis == 1 ? count : k); p++)
                sum += x[i / n * k + p] * y[p * n + i % n];
            z[s * m * n + i] = e->at->axis == 0 && i / n >= count ? 0 : sum;
        }
    }
    eval_store_doubles(&e->out[0], z);
}

void oracle_node(Arena *a, Op op, uint32_t nin, const Tensor *in, const Attr *attr, uint32_t nout,
                 Tensor *out)
{
    Eval e = {.op = op, .nin = nin, .nout = nout, .in = in, .at = attr, .out = out, .arena = a};
    switch (op) {
    case OP_FlashAttention: eval_by(oracle_attention, &e); return;
    case OP_FlashAttentionGrad: eval_by(oracle_attention_grad, &e); return;
    case OP_Recurrence: eval_by(oracle_recurrence, &e); return;
    case OP_PackedMatMul: eval_by(packed_matmul, &e); return;
    default: eval_node(a, op, nin, in, attr, nout, out);
    }
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

void oracle_nodes(const Graph *g, Arena *a, const NodeId *list, uint32_t n, Tensor *at)
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
        oracle_node(a, x->op, x->nin, in, &x->attr, x->nout, out);
        for (uint32_t i = 0; i < x->nout; i++)
            at[x->out[i]] = out[i];
        arena_free(scratch);
    }
}
