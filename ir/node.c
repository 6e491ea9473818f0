/*
 * node.c - the one place where nodes come into being.  In: an op, operands, attributes.  Out: a
 * value.  On the way the operands are checked, the results typed (shape.c), identities removed
 * (simplify.c) and constants folded (fold.c), so a Graph is at all times shaped and folded.
 */
#include <string.h>

#include "node.h"

static void check_operands(const Graph *g, Op op, uint32_t nin, const ValueId *in)
{
    if (!op_takes(op, nin))
        BUG("%s with %u operands", op_name(op), nin);
    for (uint32_t i = 0; i < nin; i++)
        if (in[i] >= g->value.n)
            BUG("operand %u of %s is not a value", i, op_name(op));
}

/* What the generated code can compute in; constants of other types may only be folded away. */
static void check_type(const Graph *g, const Draft *d)
{
    for (uint32_t i = 0; i < d->nout; i++)
        if (!dtype_is_computable(d->dtype[i])) {
            diag_hint(
                "convert the model to float32; types computed in are f32, f64, f16, bf16, i32, "
                "i64 and bool");
            diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, -1),
                       "its result has type %s, which is not computed in", dtype_name(d->dtype[i]));
        }
}

static ValueId make(Graph *g, const Draft *d)
{
    check_type(g, d);
    INSIST(g->node.n < NONE - 1);
    Node n = {.op = d->op,
              .nin = d->nin,
              .nout = d->nout,
              .in = d->in,
              .attr = d->attr,
              .origin = g->cur_origin};
    n.out = arena_array(g->arena, ValueId, d->nout);
    for (uint32_t i = 0; i < d->nout; i++) {
        n.out[i] = graph_value(g, V_NODE, NULL, d->dtype[i], &d->shape[i]);
        g->value.at[n.out[i]].node = g->node.n;
        g->value.at[n.out[i]].out = i;
    }
    vec_push(g->arena, &g->node, n);
    return n.out[0];
}

ValueId graph_node(Graph *g, Op op, uint32_t nin, const ValueId *in, Attr attr)
{
    enum { FEW = 4 };
    Dtype few_types[FEW];
    Shape few_shapes[FEW];
    check_operands(g, op, nin, in);
    Draft d = {.op = op, .nin = nin, .attr = attr_own(g->arena, op, &attr)};
    d.nout = op_results(op, &d.attr);
    d.in = arena_array(g->arena, ValueId, nin);
    memcpy(d.in, in, nin * sizeof *in);
    d.dtype = d.nout <= FEW ? few_types : arena_array(g->arena, Dtype, d.nout);
    d.shape = d.nout <= FEW ? few_shapes : arena_array(g->arena, Shape, d.nout);
    shape_infer(g, &d);
    ValueId same = simplify(g, &d);
    if (same == NONE)
        same = fold(g, &d);
    return same != NONE ? same : make(g, &d);
}
