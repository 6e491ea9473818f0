/*
 * members.c - VJP rules of what passes between members along an axis.  A value that all
 * have alike has the sum of their gradients, and the gradient of a part is the part of the
 * gradient; jax.shard_map types its values so ("varying" and "invariant").
 */
#include "vjp.h"

/* y0 .. yk are x, one for each of a member's chunks: dx = the sum of all dy, of all members; of
   halves in f32, in the order of a tree over the chunks, so that the bits do not depend on how many
   chunks a member has; the sum is a half again */
void vjp_vary(Vjp *v)
{
    Graph *g = v->g;
    uint32_t n = vjp_node(v)->nout;
    ValueId *dy = arena_array(g->arena, ValueId, n);
    for (uint32_t i = 0; i < n; i++)
        dy[i] = v->dy[i] == NONE ? NONE : g_cast(g, v->dy[i], dtype_sum(val(g, v->dy[i])->dtype));
    ValueId sum = g_tree_sum(g, n, dy);
    const Dtype own = val(g, v->in[0])->dtype;
    v->din[0] = g_all_reduce(g, sum, dtype_is_half(own) && !v->wide[0] ? own : val(g, sum)->dtype);
}

/* all parts of x along the axis: dx = the member's part of dy */
void vjp_all_gather(Vjp *v) { v->din[0] = g_shard(v->g, v->dy[0], (int)vjp_node(v)->attr.axis); }

/* the member's part of x, or of the sum of x over the members: dx = all parts of dy; what was cast
   from a half travels as one */
void vjp_shard(Vjp *v)
{
    Graph *g = v->g;
    ValueId dy = v->dy[0];
    const Value *x = val(g, dy);
    const Node *made = graph_maker(g, dy);
    const Dtype t = x->dtype;
    if (made && made->op == OP_Cast && dtype_is_half(val(g, made->in[0])->dtype))
        dy = made->in[0];
    v->din[0] = g_cast(g, g_all_gather(g, dy, (int)vjp_node(v)->attr.axis), t);
}

/* divided along another axis: dx = dy divided along the first one */
void vjp_all_to_all(Vjp *v)
{
    const Attr at = vjp_node(v)->attr;
    v->din[0] = g_all_to_all(v->g, v->dy[0], (int)at.to_axis, (int)at.axis);
}
