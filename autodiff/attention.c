/*
 * attention.c - where a target computes an attention in one kernel: its nodes become one operation,
 * in a Pipe of that target's own.  In: a Pipe before autodiff/reverse.c, which no cut has divided an
 * attention in (partition/split.c).  Out: p->device, which is differentiated by itself: the gradient
 * is the operation's (vjp/attention.c).
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

static ValueId new_value(Graph *g, Dtype t, const Shape *s, int batch, NodeId of, uint32_t out)
{
    ValueId v = graph_value(g, V_NODE, NULL, t, s);
    g->value.at[v].batch = batch;
    g->value.at[v].node = of;
    g->value.at[v].out = out;
    return v;
}

static Node node(Graph *g, Op op, uint32_t nin, const ValueId *in, uint32_t nout, const ValueId *out)
{
    Node n = {.op = op, .nin = nin, .nout = nout};
    n.in = arena_array(g->arena, ValueId, nin);
    n.out = arena_array(g->arena, ValueId, nout);
    memcpy(n.in, in, nin * sizeof *in);
    memcpy(n.out, out, nout * sizeof *out);
    return n;
}

/* The product of q and k makes room for k by columns of keys; what it made is nobody's from now on,
   and a name only. */
static ValueId columns_of_keys(Graph *g, const Attention *t)
{
    Node *at = &g->node.at[t->scores];
    const Value k = *val(g, t->k);
    Shape s = k.shape;
    int64_t *perm = arena_array(g->arena, int64_t, MAX_RANK);
    for (int d = 0; d < s.rank; d++)
        perm[d] = d < s.rank - 2 ? d : 2 * s.rank - 3 - d;
    s.d[s.rank - 2] = k.shape.d[s.rank - 1];
    s.d[s.rank - 1] = k.shape.d[s.rank - 2];
    ValueId turned = new_value(g, k.dtype, &s, k.batch, t->scores, 0);
    g->value.at[at->out[0]].kind = V_INPUT;
    g->value.at[at->out[0]].node = NONE;
    Node n = node(g, OP_Transpose, 1, &t->k, 1, &turned);
    n.attr = (Attr){.n = s.rank, .perm = perm};
    n.origin = at->origin;
    *at = n;
    return turned;
}

static void rewrite(Graph *g, const Attention *t, bool *gone)
{
    const Value p = *val(g, g->node.at[t->softmax].out[0]);
    Shape s = p.shape;
    s.d[s.rank - 1] = 2;
    gone[t->softmax] = true;
    gone[t->scores] = !t->turned;
    for (int i = 0; i < t->ups; i++)
        gone[t->up[i].node] = true;
    for (int i = 0; i < t->downs; i++)
        gone[t->down[i].node] = true;
    ValueId in[5] = {t->q, t->turned ? columns_of_keys(g, t) : t->k, t->v};
    uint32_t nin = 3;
    if (t->bias != NONE)
        in[nin++] = t->bias;
    if (t->mask != NONE)
        in[nin++] = t->mask;
    const ValueId out[2] = {g->node.at[t->result].out[0],
                            new_value(g, DT_F32, &s, p.batch, t->result, 1)};
    AttentionAttr *attr = arena_new_of(g->arena, AttentionAttr);
    *attr = t->attr;
    Node n = node(g, OP_FlashAttention, nin, in, 2, out);
    n.attr.attention = attr;
    n.origin = g->node.at[t->softmax].origin;
    g->node.at[t->result] = n;
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
