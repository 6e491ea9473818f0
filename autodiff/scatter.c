/*
 * scatter.c - a member's part of a sum over the members is all of it that is sent there.  In: the
 * backward of each stage, as reverse.c leaves it.  Out: an AllReduce that only a Shard reads is a
 * ReduceScatter, half the elements, and the Shard hands on what there is, in the type of the sum.
 * Between the two it may be reshaped, or filled with zeros at its end (a part that the members do
 * not divide): then that is done with what each of them adds.  The sum's order, and so its bits,
 * are the same.
 */
#include "autodiff.h"

/* The node of the backward that makes v, which one other reads; else NULL. */
static Node *only_read(Graph *g, NodeId first, const uint32_t *readers, ValueId v)
{
    const Value *x = val(g, v);
    const bool own = x->kind == V_NODE && x->node >= first && readers[v] == 1;
    return own ? &g->node.at[x->node] : NULL;
}

/* A node does what the next one did, of elements of type t. */
static void take_over(Graph *g, Node *n, const Node *next, Dtype t)
{
    Value *made = &g->value.at[n->out[0]];
    n->op = next->op == OP_Shard ? OP_ReduceScatter : next->op;
    n->attr = next->attr;
    made->shape = val(g, next->out[0])->shape;
    made->batch = val(g, next->out[0])->batch;
    made->dtype = t;
}

static void scatter(Graph *g, NodeId first, const uint32_t *readers, Node *shard)
{
    VEC(Node *) way = {0}; /* from the Shard back to the sum */
    for (Node *n = shard; n;) {
        const bool moves = n == shard || n->op == OP_Reshape ||
                           (n->op == OP_Pad && n->attr.mode == PAD_CONSTANT && n->attr.value == 0);
        vec_push(g->arena, &way, n);
        n = moves ? only_read(g, first, readers, n->in[0]) : NULL;
    }
    const Node *sum = way.at[way.n - 1];
    if (sum->op != OP_AllReduce || sum->attr.mesh != shard->attr.mesh)
        return;
    const Dtype from = val(g, sum->in[0])->dtype, to = val(g, shard->out[0])->dtype;
    for (uint32_t i = way.n; i-- > 1;)
        take_over(g, way.at[i], way.at[i - 1], from);
    shard->op = to == from ? OP_Identity : OP_Cast;
    shard->attr = (Attr){.to = shard->op == OP_Cast ? to : DT_NONE};
}

void scatter_sums(Pipe *p, NodeId first)
{
    Graph *g = p->graph;
    uint32_t *readers = arena_array(g->arena, uint32_t, g->value.n + 1);
    if (graph_members(g) == 1)
        return;
    for (NodeId n = first; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nin; i++)
            readers[g->node.at[n].in[i]]++;
    for (uint32_t t = 0; t < p->stage.n; t++) {
        const Stage *s = &p->stage.at[t];
        for (uint32_t i = 0; i < s->input.n + s->param.n; i++)
            for (uint32_t k = 0; k < stage_grads(s, i)->n; k++)
                readers[stage_grads(s, i)->at[k]]++;
    }
    for (NodeId n = first; n < g->node.n; n++)
        if (g->node.at[n].op == OP_Shard)
            scatter(g, first, readers, &g->node.at[n]);
}
