/*
 * attention.c - where a target computes an attention in one kernel: the nodes between its two
 * products, and those of its backward, become one operation each.
 *
 * Every value between is read by the next node alone, no gradient of bias or mask is asked for, and
 * nothing of it leaves the stage; else the nodes stay as they are, and so does an attention that is
 * cut.
 */
#include <string.h>

#include "attention.h"

/* ---- one stage ------------------------------------------------------------------------------- */

static void read_list(Search *x, const Ids *list, uint8_t bit)
{
    for (uint32_t i = 0; i < list->n; i++) {
        NodeId id = list->at[i];
        const Node *n = &x->g->node.at[id];
        if (x->inside[id]) {
            x->list[id] |= bit;
            continue;
        }
        x->inside[id] = true;
        x->list[id] = bit;
        for (uint32_t j = 0; j < n->nin; j++) {
            bool again = false;
            for (uint32_t k = 0; k < j; k++)
                again |= n->in[k] == n->in[j];
            if (n->in[j] != NONE && !again)
                vec_push(x->a, &x->readers[n->in[j]], id);
        }
    }
}

static Search search(Arena *a, const Pipe *p, const Stage *s)
{
    const Graph *g = p->graph;
    Search x = {.g = g, .a = a, .s = s};
    x.readers = arena_array(a, Ids, g->value.n + 1);
    x.inside = arena_array(a, bool, g->node.n + 1);
    x.list = arena_array(a, uint8_t, g->node.n + 1);
    x.leaves = arena_array(a, bool, g->value.n + 1);
    read_list(&x, &s->forward, IN_FORWARD);
    read_list(&x, &s->infer, IN_FORWARD);
    read_list(&x, &s->backward, IN_BACKWARD);
    for (uint32_t i = 0; i < s->output.n; i++)
        x.leaves[s->output.at[i].value] = true;
    for (uint32_t i = 0; i < g->update.n; i++)
        x.leaves[g->update.at[i].value] = true;
    for (uint32_t i = 0; i < s->input.n; i++)
        for (uint32_t j = 0; j < s->input.at[i].grads.n; j++)
            x.leaves[s->input.at[i].grads.at[j]] = true;
    for (uint32_t i = 0; i < s->param.n; i++)
        for (uint32_t j = 0; j < s->param.at[i].grads.n; j++)
            x.leaves[s->param.at[i].grads.at[j]] = true;
    return x;
}

typedef VEC(Found) Founds;

static void find(const Pipe *p, const Stage *s, Founds *found)
{
    Arena *a = arena_within(p->graph->arena);
    Masks masks = {.g = p->graph, .a = a};
    Search x = search(a, p, s);
    x.masks = &masks;
    for (uint32_t i = 0; i < s->forward.n; i++) {
        Found f;
        if (p->graph->node.at[s->forward.at[i]].op == OP_Softmax &&
            attention_forward(&x, s->forward.at[i], &f) && attention_backward(&x, &f))
            vec_push(p->graph->arena, found, f);
    }
    arena_free(a);
}

/* ---- rewriting ------------------------------------------------------------------------------- */

/* The node becomes another, in its place. */
static void become(Graph *g, NodeId id, Op op, const Found *f, uint32_t nin, const ValueId *in,
                   uint32_t nout, const ValueId *out)
{
    Node *n = &g->node.at[id];
    AttentionAttr *attr = arena_new_of(g->arena, AttentionAttr);
    *attr = f->attr;
    *n = (Node){.op = op, .nin = nin, .nout = nout, .origin = g->node.at[f->softmax].origin};
    n->attr.attention = attr;
    n->in = arena_array(g->arena, ValueId, nin + 2);
    n->out = arena_array(g->arena, ValueId, nout);
    memcpy(n->in, in, nin * sizeof *in);
    memcpy(n->out, out, nout * sizeof *out);
    if (f->bias != NONE)
        n->in[n->nin++] = f->bias;
    if (f->mask != NONE)
        n->in[n->nin++] = f->mask;
    for (uint32_t i = 0; i < nout; i++) {
        g->value.at[out[i]].node = id;
        g->value.at[out[i]].out = i;
    }
}

/* What the place of a dropped node's results was is nobody's now: they are made by no list. */
static void rewrite(Graph *g, const Found *f, bool *gone)
{
    const Node qk = g->node.at[f->scores], pv = g->node.at[f->result];
    Shape s = val(g, f->attr.like)->shape;
    int batch = val(g, f->attr.like)->batch;
    s.d[s.rank - 1] = 2;
    ValueId rows = graph_value(g, V_NODE, NULL, DT_F32, &s);
    g->value.at[rows].batch = batch;
    const ValueId in[] = {qk.in[0], qk.in[1], pv.in[1], pv.out[0], rows, f->dy};
    const ValueId out[] = {pv.out[0], rows}, grads[] = {f->dq, f->dk, f->dv};
    gone[f->softmax] = gone[f->scores] = true;
    for (int i = 0; i < f->ups; i++)
        gone[f->up[i].node] = true;
    for (int i = 0; i < f->downs; i++)
        gone[f->down[i].node] = true;
    for (int i = 0; i < f->n_gone; i++)
        gone[f->gone[i]] = true;
    become(g, f->result, OP_FlashAttention, f, 3, in, 2, out);
    if (!f->trains)
        return;
    ValueId old = g->node.at[f->first].out[0];
    bool kept = old == f->dq || old == f->dk || old == f->dv;
    become(g, f->first, OP_FlashAttentionGrad, f, 6, in, 3, grads);
    if (!kept) { /* nobody's: a name only */
        g->value.at[old].kind = V_INPUT;
        g->value.at[old].node = NONE;
    }
    gone[f->first] = false;
}

/* Without the nodes that are gone, and without those that led to them alone. */
static void clean(Graph *g, Ids *list, const bool *gone, bool *needed)
{
    Ids left = {0}, order = {0};
    for (uint32_t i = list->n; i-- > 0;) {
        const Node *n = &g->node.at[list->at[i]];
        bool any = false;
        for (uint32_t o = 0; o < n->nout; o++)
            any |= needed[n->out[o]];
        if (gone[list->at[i]] || !any)
            continue;
        for (uint32_t j = 0; j < n->nin; j++)
            if (n->in[j] != NONE)
                needed[n->in[j]] = true;
        vec_push(g->arena, &left, list->at[i]);
    }
    for (uint32_t i = left.n; i-- > 0;)
        vec_push(g->arena, &order, left.at[i]);
    *list = order;
}

static void rewrite_stage(Pipe *p, Stage *s, const Founds *found)
{
    Graph *g = p->graph;
    bool *gone = arena_array(g->arena, bool, g->node.n + 1);
    for (uint32_t i = 0; i < found->n; i++)
        rewrite(g, &found->at[i], gone);
    bool *needed = arena_array(g->arena, bool, g->value.n + 1),
         *of_infer = arena_array(g->arena, bool, g->value.n + 1);
    for (uint32_t i = 0; i < s->param.n; i++)
        for (uint32_t j = 0; j < s->param.at[i].grads.n; j++)
            needed[s->param.at[i].grads.at[j]] = true;
    for (uint32_t i = 0; i < s->input.n; i++)
        for (uint32_t j = 0; j < s->input.at[i].grads.n; j++)
            needed[s->input.at[i].grads.at[j]] = true;
    clean(g, &s->backward, gone, needed);
    for (uint32_t i = 0; i < s->output.n; i++)
        needed[s->output.at[i].value] = of_infer[s->output.at[i].value] = true;
    for (uint32_t i = 0; i < g->update.n; i++)
        needed[g->update.at[i].value] = true;
    clean(g, &s->forward, gone, needed);
    clean(g, &s->infer, gone, of_infer);
}

void attention_fuse(Pipe *p)
{
    for (uint32_t i = 0; i < p->stage.n; i++) {
        Founds found = {0};
        find(p, &p->stage.at[i], &found);
        if (found.n == 0)
            continue;
        if (!p->device)
            p->device = pipe_twin(p);
        rewrite_stage(p->device, &p->device->stage.at[i], &found);
    }
}
