/*
 * cost.c - floating-point operations of a node and bytes of a value.
 *
 * One multiply-add counts as two; an elementwise operation as one per element; what moves data as none.
 */
#include "facts.h"

/* Products of a hostile model's dimensions stop at the largest number instead of wrapping. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

int64_t value_bytes(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    return times(shape_elements(&x->shape), (int64_t)dtype_size(x->dtype));
}

static int64_t elements(const Graph *g, ValueId v) { return shape_elements(&val(g, v)->shape); }

/* Elements of a kernel [a, b, spatial...] behind its first dimension. */
static int64_t kernel(const int64_t *d, int n)
{
    int64_t k = 1;
    for (int i = 1; i < n; i++)
        k = times(k, d[i]);
    return k;
}

int64_t cost_flops(const Graph *g, NodeId id)
{
    const Node *n = &g->node.at[id];
    int64_t out = elements(g, n->out[0]), in = n->nin > 0 && n->in[0] != NONE ? elements(g, n->in[0]) : 0;
    switch (n->op) {
    case OP_MatMul: {
        const Shape *s = &val(g, n->in[0])->shape;
        return times(2 * s->d[s->rank - 1], out);
    }
    case OP_Conv: {
        const Shape *w = &val(g, n->in[1])->shape;
        return times(2 * kernel(w->d, w->rank), out);
    }
    case OP_ConvTranspose: {
        const Shape *w = &val(g, n->in[1])->shape;
        return times(2 * kernel(w->d, w->rank), in);
    }
    case OP_ConvWeightGrad: {
        const Shape *w = &val(g, n->out[0])->shape;
        return times(2 * kernel(w->d, w->rank), elements(g, n->in[1]));
    }
    case OP_MaxPool:
    case OP_AveragePool: {
        int64_t window = 1;
        for (int i = 0; i < n->attr.n; i++)
            window = times(window, n->attr.kernel[i]);
        return times(window, out);
    }
    case OP_ReduceSum:
    case OP_ReduceMean:
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd:
    case OP_ArgMax:
    case OP_ArgMin:
    case OP_CumSum:
    case OP_TopK: return in;
    case OP_Softmax:
    case OP_LogSoftmax: return times(4, out);
    case OP_ScatterElements:
    case OP_ScatterND: return n->attr.reduction == SCATTER_NONE ? 0 : elements(g, n->in[2]);
    case OP_Cast:
    case OP_Identity:
    case OP_StopGradient:
    case OP_Phase:
    case OP_Count: return 0;
    case OP_Dropout: return out;
    default: return op_is_map(n->op) ? out : 0;
    }
}
