/*
 * attention_fuse.c - what attention.c finds becomes one operation.  In: a Graph that is neither
 * spread, cut nor differentiated.  Out: the same with a FlashAttention in the place of each product
 * by v, whose gradient is the operation's (autodiff/vjp/linear.c); nobody reads what stood before
 * it.
 */
#include <string.h>

#include "attention.h"

typedef VEC(Attention) Attentions;

static Attentions find(const Graph *g, ValueId loss, Arena *a)
{
    Attentions found = {0};
    const Ids root = graph_results(g, a, loss);
    const bool *live = graph_live(g, a, 0, &root, 1);
    AttentionSearch x = {.g = g,
                         .a = a,
                         .masks = {.g = g, .a = a},
                         .readers = graph_readers(g, a, live),
                         .live = live,
                         .leaves = arena_array(a, bool, g->value.n + 1),
                         .active = flow_active(g, a, loss),
                         .of_params = flow_of_params(g, a)};
    for (uint32_t i = 0; i < root.n; i++)
        x.leaves[root.at[i]] = true;
    for (NodeId n = 0; n < g->node.n; n++) {
        Attention t;
        if (live[n] && g->node.at[n].op == OP_Softmax && attention_find(&x, n, &t))
            vec_push(a, &found, t);
    }
    return found;
}

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

/* A half that was made wide for a factor is what it was. */
static void round_no_more(const Graph *g, Node *n)
{
    const Node *wide = n->op == OP_Cast ? graph_made_by(g, n->in[0], OP_Cast) : NULL;
    if (wide && dtype_is_half(n->attr.to) && val(g, n->in[0])->dtype == DT_F32 &&
        val(g, wide->in[0])->dtype == n->attr.to) {
        n->op = OP_Identity;
        n->attr = (Attr){0};
        n->in[0] = wide->in[0];
    }
}

static void rewrite(Graph *g, const Attention *t)
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
    for (int i = 0; i < t->factors; i++) { /* which a stage may begin next to */
        const Link by = t->factor[i].by, reader = t->factor[i].reader;
        g->node.at[reader.node].in[reader.operand] = g->node.at[by.node].in[by.operand];
        round_no_more(g, &g->node.at[reader.node]);
        vec_push(g->arena, &g->undivided, ((NodeSpan){by.node, by.node}));
    }
    for (int i = 0; i < 2 && t->shared; i++)
        repeat_no_more(g, &t->heads[i]);
    vec_push(g->arena, &g->undivided, ((NodeSpan){t->first, t->result}));
}

void attention_fuse(Graph *g, const BatchOptions *opt, ValueId loss, ValueId target)
{
    Arena *a = arena_within(g->arena);
    BatchNotes notes = {.target = target, .loss = loss};
    batch_analyse(g, 0, opt, &notes);
    const Attentions found = find(g, loss, a);
    for (uint32_t i = 0; i < found.n; i++)
        rewrite(g, &found.at[i]);
    arena_free(a);
}

const bool *attention_parts(const Graph *g, Arena *a)
{
    bool *part = arena_array(a, bool, g->node.n + 1);
    const bool *live = graph_needed(g, a, NONE);
    for (uint32_t i = 0; i < g->undivided.n; i++)
        for (NodeId n = g->undivided.at[i].first; n <= g->undivided.at[i].last; n++)
            part[n] = !live[n];
    return part;
}
