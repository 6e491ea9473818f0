/*
 * shape.c - types and shapes of what a core node makes, by the SHAPE() column of ops.def.
 * In: operands with static shapes, canonical attributes.  Out: type and shape of each output; a
 * model's mistake is an error at the ONNX node it came from.
 */
#include "infer.h"

typedef void ShapeFn(Infer *);

static ShapeFn *const shape_fn[OP_COUNT] = {
#define SHAPE(f) shape_##f
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, ...) [OP_##name] = shape,
#include "ops.def"
};

void shape_infer(Graph *g, const Draft *d)
{
    Infer x = {g, d->op, d->nin, d->nout, d->in, &d->attr, d->dtype, d->shape};
    if (!shape_fn[d->op])
        BUG("%s is not a core op", op_name(d->op));
    shape_fn[d->op](&x);
    for (uint32_t i = 0; i < d->nout; i++) {
        int64_t n;
        if (!shape_countable(&d->shape[i], &n))
            infer_refuse(&x, -1, "the result's element count overflows: %s",
                         shape_print(g->arena, d->dtype[i], &d->shape[i]));
    }
}

void graph_shapes(Graph *g, NodeId n, Dtype *type, Shape *shape)
{
    const Node *x = &g->node.at[n];
    uint32_t origin = g->cur_origin;
    g->cur_origin = x->origin;
    shape_infer(g, &(Draft){x->op, x->nin, x->nout, x->in, x->attr, type, shape});
    g->cur_origin = origin;
}
