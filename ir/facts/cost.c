/*
 * cost.c - floating-point operations of a node and bytes of a value.
 *
 * One multiply-add counts as two; an elementwise operation as one per element; what moves data as
 * none.
 */
#include "facts.h"

/* Products of a hostile model's dimensions stop at the largest number instead of wrapping. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

int64_t cost_sum(int64_t a, int64_t b)
{
    int64_t r;
    return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}

int64_t value_bytes(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    return times(shape_elements(&x->shape), (int64_t)dtype_size(x->dtype));
}

int64_t node_bytes(const Graph *g, const Node *n)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < n->nout; i++)
        sum += value_bytes(g, n->out[i]);
    return sum;
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

/* ---- one function per FLOPS() of ops.def ---- */

static int64_t flops_none(const Graph *g, const Node *n) { return (void)g, (void)n, 0; }

static int64_t flops_each(const Graph *g, const Node *n) { return elements(g, n->out[0]); }

/* Of n boxes each with some that were taken: the square root of n, say. */
static int64_t flops_suppress(const Graph *g, const Node *n)
{
    int64_t boxes = val(g, n->in[1])->shape.d[2], root = 1;
    while (root * root < boxes)
        root++;
    return 12 * root * elements(g, n->in[1]);
}

static int64_t flops_operand(const Graph *g, const Node *n) { return elements(g, n->in[0]); }

/* max, subtract, exp, sum and divide, of which the exponential is the work. */
static int64_t flops_softmax(const Graph *g, const Node *n)
{
    return times(4, elements(g, n->out[0]));
}

static int64_t flops_updates(const Graph *g, const Node *n)
{
    return n->attr.reduction == SCATTER_NONE ? 0 : elements(g, n->in[2]);
}

static int64_t flops_matmul(const Graph *g, const Node *n)
{
    const Shape *s = &val(g, n->in[0])->shape;
    return times(2 * s->d[s->rank - 1], elements(g, n->out[0]));
}

/* Two products; of a gradient the scores again, and four. */
static int64_t flops_flash_attention(const Graph *g, const Node *n)
{
    const Shape *q = &val(g, n->in[0])->shape, *k = &val(g, n->in[1])->shape,
                *v = &val(g, n->in[2])->shape, *stats;
    stats = &val(g, n->op == OP_FlashAttention ? n->out[1] : n->in[4])->shape;
    int64_t one = times(k->d[k->rank - 1], shape_elements(stats)), columns = q->d[q->rank - 1],
            columns_v = v->d[v->rank - 1];
    if (n->op == OP_FlashAttention)
        return times(one, columns + columns_v);
    return times(one, 3 * columns + 2 * columns_v);
}

/* Each element of `over` meets a kernel of the weights w. */
static int64_t convolution(const Graph *g, ValueId w, ValueId over)
{
    const Shape *s = &val(g, w)->shape;
    return times(2 * kernel(s->d, s->rank), elements(g, over));
}

static int64_t flops_conv(const Graph *g, const Node *n)
{
    return convolution(g, n->in[1], n->out[0]);
}

static int64_t flops_conv_transpose(const Graph *g, const Node *n)
{
    return convolution(g, n->in[1], n->in[0]);
}

static int64_t flops_conv_weight_grad(const Graph *g, const Node *n)
{
    return convolution(g, n->out[0], n->in[1]);
}

static int64_t flops_recurrence(const Graph *g, const Node *n)
{
    const Graph *body = n->attr.recurrence->body;
    int64_t step = 0;
    for (NodeId id = 0; id < body->node.n; id++)
        step += cost_flops(body, id);
    return times(recurrence_steps(g, n), step);
}

static int64_t flops_window(const Graph *g, const Node *n)
{
    int64_t window = 1;
    for (int i = 0; i < n->attr.n; i++)
        window = times(window, n->attr.kernel[i]);
    return times(window, elements(g, n->out[0]));
}

/* A part goes to all others; of a sum its owner's comes back, as what is read. */
int64_t cost_sent(const Graph *g, const Node *n)
{
    const Value *from = val(g, n->in[0]), *to = val(g, n->out[0]);
    int64_t bytes = value_bytes(g, n->in[0]), members = g->mesh[n->attr.mesh].members,
            others = members - 1;
    switch (n->op) {
    case OP_AllReduce:
        return times(times(others, elements(g, n->in[0])),
                     (int64_t)(dtype_size(from->dtype) + dtype_size(to->dtype))) / members;
    case OP_AllGather: return times(others, bytes);
    case OP_ReduceScatter:
    case OP_AllToAll: return times(others, bytes) / members;
    default: return 0;
    }
}

int64_t cost_flops(const Graph *g, NodeId id)
{
    static int64_t (*const flops_of[OP_COUNT])(const Graph *, const Node *) = {
#define FLOPS(f) flops_##f
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, flops, ...)   \
    [OP_##name] = flops,
#include "ir/ops.def"
    };
    const Node *n = &g->node.at[id];
    return flops_of[n->op](g, n);
}
