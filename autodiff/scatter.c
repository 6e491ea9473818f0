/*
 * scatter.c - a member's part of a sum over the members is all of it that is sent there.  In: the
 * backward of each stage, as reverse.c leaves it.  Out: an AllReduce that only a Shard reads is a
 * ReduceScatter, half the elements, and the Shard hands on what there is, in the type of the sum.
 * The sum's order, and so its bits, are the same.
 */
#include "autodiff.h"

/* The node of the backward that alone reads v's maker, if that has this op; else NULL. */
static Node *only_read(Graph *g, NodeId first, const uint32_t *readers, ValueId v, Op op)
{
    const Value *x = val(g, v);
    bool own = x->kind == V_NODE && x->node >= first && readers[v] == 1;
    return own && g->node.at[x->node].op == op ? &g->node.at[x->node] : NULL;
}

static void scatter(Graph *g, NodeId first, const uint32_t *readers, Node *shard)
{
    Node *sum = only_read(g, first, readers, shard->in[0], OP_AllReduce);
    if (!sum || sum->attr.mesh != shard->attr.mesh)
        return;
    Value *part = &g->value.at[sum->out[0]];
    const Dtype to = part->dtype;
    sum->op = OP_ReduceScatter;
    sum->attr = shard->attr;
    part->shape = val(g, shard->out[0])->shape;
    part->dtype = val(g, sum->in[0])->dtype;
    shard->op = to == part->dtype ? OP_Identity : OP_Cast;
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
        for (uint32_t i = 0; i < s->input.n; i++)
            for (uint32_t k = 0; k < s->input.at[i].grads.n; k++)
                readers[s->input.at[i].grads.at[k]]++;
        for (uint32_t i = 0; i < s->param.n; i++)
            for (uint32_t k = 0; k < s->param.at[i].grads.n; k++)
                readers[s->param.at[i].grads.at[k]]++;
    }
    for (NodeId n = first; n < g->node.n; n++)
        if (g->node.at[n].op == OP_Shard)
            scatter(g, first, readers, &g->node.at[n]);
}
