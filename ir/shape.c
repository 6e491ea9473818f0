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

void shape_infer(Graph *g, Op op, uint32_t nin, const ValueId *in, const Attr *attr, uint32_t nout,
                 Dtype *dtype, Shape *shape)
{
    Infer x = {g, op, nin, nout, in, attr, dtype, shape};
    if (!shape_fn[op])
        BUG("%s is not a core op", op_name(op));
    shape_fn[op](&x);
    for (uint32_t i = 0; i < nout; i++) {
        int64_t n;
        if (!shape_countable(&shape[i], &n))
            infer_refuse(&x, -1, "the result's element count overflows: %s",
                         shape_print(g->arena, dtype[i], &shape[i]));
    }
}

void graph_shapes(Graph *g, NodeId n, Dtype *type, Shape *shape)
{
    const Node *x = &g->node.at[n];
    uint32_t origin = g->cur_origin;
    g->cur_origin = x->origin;
    shape_infer(g, x->op, x->nin, x->in, &x->attr, x->nout, type, shape);
    g->cur_origin = origin;
}
