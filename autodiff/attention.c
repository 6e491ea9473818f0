/*
 * attention.c - where a target computes an attention in one kernel: its nodes become one operation,
 * in a Pipe of that target's own.  In: a Pipe before autodiff/reverse.c, in which no cut divides an
 * attention (PartitionOptions.attentions).  Out: p->device, which is differentiated by itself: the
 * gradient is the operation's (vjp/linear.c).
 */
#include <string.h>

#include "autodiff.h"
#include "ir/facts/attention.h"

typedef VEC(Attention) Attentions;

static bool *active_values(const Pipe *p, Arena *a)
{
    bool *active = arena_array(a, bool, p->graph->value.n + 1);
    if (p->loss == NONE)
        return active;
    flow_params(p->graph, active);
    for (uint32_t s = 0; s < p->stage.n; s++)
        flow_through(p->graph, active, p->stage.at[s].forward.at, p->stage.at[s].forward.n);
    return active;
}

static Attentions find(const Pipe *p, const Stage *s, const bool *active, const bool *of_params,
                       Arena *a)
{
    Attentions found = {0};
    AttentionSearch x = attention_search(p->graph, active, of_params, a);
    attention_list(&x, &s->forward);
    attention_list(&x, &s->infer);
    for (uint32_t i = 0; i < s->output.n; i++)
        x.leaves[s->output.at[i].value] = true;
    for (uint32_t i = 0; i < s->forward.n; i++) {
        Attention t;
        if (p->graph->node.at[s->forward.at[i]].op == OP_Softmax &&
            attention_find(&x, s->forward.at[i], &t))
            vec_push(a, &found, t);
    }
    return found;
}

/* ---- rewriting ------------------------------------------------------------------------------- */

/* Heads that are repeated no more: the Reshape reads what the Expand before it does. */
static void repeat_no_more(Graph *g, const Repeated *r)
{
    Node *n = &g->node.at[r->merge];
    Value *y = &g->value.at[n->out[0]];
    int64_t *size = arena_array(g->arena, int64_t, MAX_RANK);
    n->in[0] = g->node.at[val(g, n->in[0])->node].in[0];
    y->shape.d[r->at] /= r->many;
    memcpy(size, y->shape.d, sizeof y->shape.d);
    n->attr.dims = size;
    for (int i = r->steps; i-- > 0;) {
        const Node *step = &g->node.at[r->path[i]];
        const Shape from = val(g, step->in[0])->shape;
        for (int d = 0; d < from.rank; d++)
            g->value.at[step->out[0]].shape.d[d] =
                from.d[step->op == OP_Transpose ? step->attr.perm[d] : d];
    }
}

static void rewrite(Graph *g, const Attention *t, bool *gone)
{
    const Value p = *val(g, g->node.at[t->softmax].out[0]);
    Node *n = &g->node.at[t->result];
    AttentionAttr *attr = arena_new_of(g->arena, AttentionAttr);
    const ValueId in[] = {t->q, t->k, t->v}, y = n->out[0];
    Shape s = p.shape;
    s.d[s.rank - 1] = 2;
    *attr = t->attr;
    *n = (Node){.op = OP_FlashAttention, .nin = 3, .nout = 2, .attr.attention = attr};
    n->origin = g->node.at[t->softmax].origin;
    n->in = arena_array(g->arena, ValueId, 5);
    memcpy(n->in, in, sizeof in);
    if (t->bias != NONE)
        n->in[n->nin++] = t->bias;
    if (t->mask != NONE)
        n->in[n->nin++] = t->mask;
    n->out = arena_array(g->arena, ValueId, 2);
    n->out[0] = y;
    n->out[1] = graph_value(g, V_NODE, NULL, DT_F32, &s);
    g->value.at[n->out[1]].batch = p.batch;
    g->value.at[n->out[1]].node = t->result;
    g->value.at[n->out[1]].out = 1;
    for (int i = 0; i < 2 && t->shared; i++)
        repeat_no_more(g, &t->heads[i]);
    gone[t->softmax] = gone[t->scores] = true;
    for (int i = 0; i < t->ups; i++)
        gone[t->up[i].node] = true;
    for (int i = 0; i < t->downs; i++)
        gone[t->down[i].node] = true;
}

/* Without the nodes that are gone, and without those that led to them alone. */
static void clean(Graph *g, Ids *list, const bool *gone, const Stage *s, bool train)
{
    bool *needed = arena_array(g->arena, bool, g->value.n + 1);
    Ids left = {0}, order = {0};
    for (uint32_t i = 0; i < s->output.n; i++)
        needed[s->output.at[i].value] = true;
    for (uint32_t i = 0; i < g->update.n && train; i++)
        needed[g->update.at[i].value] = true;
    for (uint32_t i = list->n; i-- > 0;) {
        const Node *n = &g->node.at[list->at[i]];
        bool any = false;
        for (uint32_t o = 0; o < n->nout; o++)
            any |= needed[n->out[o]];
        if (gone[list->at[i]] || !any)
            continue;
        for (uint32_t j = 0; j < n->nin; j++)
            needed[n->in[j]] = true;
        vec_push(g->arena, &left, list->at[i]);
    }
    for (uint32_t i = left.n; i-- > 0;)
        vec_push(g->arena, &order, left.at[i]);
    *list = order;
}

void attention_fuse(Pipe *p)
{
    Arena *a = arena_within(p->graph->arena);
    const bool *active = active_values(p, a), *of_params = flow_of_params(p->graph, a);
    for (uint32_t i = 0; i < p->stage.n; i++) {
        const Attentions found = find(p, &p->stage.at[i], active, of_params, a);
        if (found.n == 0)
            continue;
        if (!p->device)
            p->device = pipe_twin(p);
        Graph *g = p->device->graph;
        Stage *s = &p->device->stage.at[i];
        bool *gone = arena_array(g->arena, bool, g->node.n + 1);
        for (uint32_t k = 0; k < found.n; k++)
            rewrite(g, &found.at[k], gone);
        clean(g, &s->forward, gone, s, true);
        clean(g, &s->infer, gone, s, false);
        clean(g, &s->nodes, gone, s, true);
    }
    arena_free(a);
}
