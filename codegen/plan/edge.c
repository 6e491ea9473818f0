/*
 * edge.c - how a value stands where it crosses a cut.  In: a value that a stage sends, or the
 * gradient of one.  Out: its strides in the message, which has no holes.
 *
 * A product's library adds in an order that follows which side of an operand is the contiguous one.
 * So a transposed value crosses as what it shows stands, and not row-major: the stage that reads it
 * finds the dimensions in the order in which a program of one stage would, and so does the one that
 * a gradient goes back to.  That order follows from the views above the value, whatever stages they
 * are in: sender and receiver find the same.
 */
#include "plan.h"

/* Where v stands if the root below it stands by itself; apart: with rows apart, but for what a
 * kernel of its own kind makes. */
static void over_root(Func *f, ValueId v, bool apart, Wide *w)
{
    const Value *x = val(f->g, v);
    const Node *n = graph_maker(f->g, v);
    Wide in;
    if (n && op_is_view(n->op) && !cg_is_copy(n)) {
        over_root(f, n->in[0], apart, &in);
        if (cg_view_apply(f, n, x->out, &in, w))
            return;
    }
    Ref root;
    apart = apart && n && x->shape.rank > 1 &&
            (!op_stands_alone(n->op) || cg_is_product(f, n) || cg_is_attention(n));
    if (!apart || !cg_padded(f, v, false, &root))
        root = cg_dense(f, v);
    *w = cg_widen(&root);
}

bool cg_apart_over_root(Func *f, ValueId v, Wide *w)
{
    if (!f->sg->device)
        return false;
    over_root(f, v, true, w);
    return cg_product_takes(f, v, w);
}

/* What others than stages read is row-major: an output of the model, and what the runtime takes
   apart and puts together by rows for a loss over the whole minibatch. */
static bool plain(const StageGen *sg, ValueId v)
{
    const Pipe *p = sg->pipe;
    const Stage *last = &p->stage.at[p->stage.n - 1];
    bool is = ids_have(&sg->g->output, v);
    for (uint32_t i = 0; (p->loss_whole || p->whole) && i < last->input.n; i++)
        is |= last->input.at[i].value == v || ids_have(&last->input.at[i].grads, v);
    return is;
}

/* The dimensions from the one whose elements are farthest apart to the contiguous one.  False:
   there is none, or a product would copy the value before it reads it. */
static bool order_of(const Func *f, const Wide *w, int *order)
{
    int64_t apart[MAX_RANK];
    for (int d = 0; d < w->rank; d++) {
        int parts = w->first[d + 1] - w->first[d], at = d;
        Lin inner = parts ? w->stride[w->first[d + 1] - 1] : lin(0);
        apart[d] = lin_at(inner, f->g->batch > 1 ? f->g->batch : 1009);
        if (d >= w->rank - 2 && parts > 0 && (parts > 1 || apart[d] <= 0))
            return false;
        apart[d] = apart[d] > 0 ? apart[d] : INT64_MAX; /* one element for all: outermost */
        for (; at > 0 && apart[order[at - 1]] < apart[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    return apart[order[w->rank - 1]] == 1;
}

static Ref layout(StageGen *sg, ValueId v)
{
    Func f = {.sg = sg, .g = sg->g};
    Ref at = cg_dense(&f, v);
    const Value *x = val(sg->g, v);
    int order[MAX_RANK];
    Wide w;
    if (at.rank < 2 || x->kind != V_NODE || !op_is_view(sg->g->node.at[x->node].op) ||
        plain(sg, v))
        return at;
    if (!cg_apart_over_root(&f, v, &w))
        over_root(&f, v, false, &w);
    if (!order_of(&f, &w, order))
        return at;
    INSIST(cg_stand(&at, order, at.ext[order[at.rank - 1]]));
    return at;
}

const Ref *cg_edge(StageGen *sg, ValueId v)
{
    uint32_t *at = idmap_at(sg->a, &sg->position.edge, v);
    if (*at == NONE) {
        *at = sg->position.edges.n;
        vec_push(sg->a, &sg->position.edges, arena_new_of(sg->a, Ref));
        *sg->position.edges.at[*at] = layout(sg, v);
    }
    return sg->position.edges.at[*at];
}

void cg_edges(StageGen *sg)
{
    const Stage *s = sg->stage;
    for (uint32_t i = 0; i < s->input.n; i++) {
        cg_edge(sg, s->input.at[i].value);
        for (uint32_t j = 0; j < s->input.at[i].grads.n; j++)
            cg_edge(sg, s->input.at[i].grads.at[j]);
    }
    for (uint32_t o = 0; o < s->output.n; o++) {
        cg_edge(sg, s->output.at[o].value);
        for (uint32_t j = 0; j < s->output.at[o].dys.n; j++)
            cg_edge(sg, s->output.at[o].dys.at[j]);
    }
}
