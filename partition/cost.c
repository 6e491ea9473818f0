/*
 * cost.c - floating-point operations and bytes: of a node, of a value, of every stage.
 *
 * In: a Pipe (its backward too, once autodiff has run).  Out: Stage.cost, and which edges carry a gradient.
 * One multiply-add counts as two; an elementwise operation as one per element; what moves data as none.
 */
#include <string.h>

#include "partition.h"

/* Products of a hostile model's dimensions stop at the largest number instead of wrapping. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

static int64_t plus(int64_t a, int64_t b)
{
    int64_t r;
    return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
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
            window = times(window, n->attr.d[i]);
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
    case OP_ScatterND: return n->attr.mode == SCATTER_NONE ? 0 : elements(g, n->in[2]);
    case OP_Cast:
    case OP_Identity:
    case OP_StopGradient:
    case OP_Phase:
    case OP_Count: return 0;
    case OP_Dropout: return out;
    default: return op_is_map(n->op) ? out : 0;
    }
}

static int64_t list_flops(const Graph *g, const Ids *list)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < list->n; i++)
        sum = plus(sum, cost_flops(g, list->at[i]));
    return sum;
}

/* Everything forward makes that is no view of something else. */
static int64_t list_bytes(const Graph *g, const Ids *list)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const Node *n = &g->node.at[list->at[i]];
        for (uint32_t k = 0; k < n->nout && !op_is_view(n->op) && n->op != OP_Phase; k++)
            sum = plus(sum, value_bytes(g, n->out[k]));
    }
    return sum;
}

static void stage_cost(const Graph *g, Stage *s)
{
    StageCost *c = &s->cost;
    int64_t stash = 0;
    memset(c, 0, sizeof *c);
    for (uint32_t i = 0; i < s->param.n; i++) {
        const Param *p = &g->param.at[s->param.at[i].param];
        if (s->param.at[i].use == USE_TRANSMIT)
            continue; /* another stage holds it */
        c->bytes_param = plus(c->bytes_param, value_bytes(g, p->value));
        if (!p->stat)
            c->parameters = plus(c->parameters, shape_elements(&p->shape));
    }
    for (uint32_t i = 0; i < s->stash.n; i++)
        stash = plus(stash, value_bytes(g, s->stash.at[i]));
    c->bytes_stash = stash;
    c->bytes_activation = list_bytes(g, &s->forward);
    c->flops_forward = list_flops(g, &s->forward);
    c->flops_backward = list_flops(g, &s->backward);
}

static bool edge_has_gradient(const Pipe *p, const Edge *e)
{
    const Stage *s = &p->stage.at[e->to];
    const Value *v = val(p->graph, e->value);
    if (v->kind == V_PARAM) {
        for (uint32_t i = 0; i < s->param.n; i++)
            if (s->param.at[i].param == v->param)
                return s->param.at[i].grads.n > 0;
        return false;
    }
    for (uint32_t i = 0; i < s->input.n; i++)
        if (s->input.at[i].value == e->value)
            return s->input.at[i].gradient;
    return false;
}

void pipe_costs(Pipe *p)
{
    for (uint32_t t = 0; t < p->stage.n; t++)
        stage_cost(p->graph, &p->stage.at[t]);
    for (uint32_t i = 0; i < p->edge.n; i++)
        p->edge.at[i].gradient = edge_has_gradient(p, &p->edge.at[i]);
}
