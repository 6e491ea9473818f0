/*
 * attention_backward.c - an attention's backward.  In: its forward.  Out: the nodes that the rules of
 * vjp/ made of it, followed from dy v' down to the three gradients.
 */
#include "attention.h"

static void goes(Found *f, NodeId id)
{
    INSIST(f->n_gone < MOST_NODES);
    f->gone[f->n_gone++] = id;
}

/* The one reader of *v in backward, of this kind, becomes the way on. */
static bool step(const Search *x, Found *f, ValueId *v, Op op, uint32_t operand)
{
    NodeId id = reader(x, *v, IN_BACKWARD, op);
    if (id == NONE || x->leaves[*v] || x->g->node.at[id].in[operand] != *v)
        return false;
    goes(f, id);
    *v = x->g->node.at[id].out[0];
    return true;
}

/* d of Dropout: Where(kept, d / (1 - ratio), 0) */
static bool back_dropout(const Search *x, Found *f, const Node *n, ValueId *v)
{
    double c;
    NodeId id = reader(x, *v, IN_BACKWARD, OP_Mul);
    if (n->attr.ratio > 0 &&
        (id == NONE || !number(x, x->g->node.at[id].in[1], &c) || !step(x, f, v, OP_Mul, 0)))
        return false;
    id = reader(x, *v, IN_BACKWARD, OP_Where);
    return id != NONE && x->g->node.at[id].in[0] == n->out[1] && step(x, f, v, OP_Where, 1) &&
           count_readers(x, n->out[1], IN_BACKWARD) == 1;
}

/* d of Softmax: (d - sum(d p)) p */
static bool back_softmax(const Search *x, Found *f, ValueId p, ValueId *v)
{
    NodeId product = NONE, difference = NONE;
    if (count_readers(x, *v, IN_BACKWARD) != 2 || x->leaves[*v])
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        NodeId id = reader_at(x, *v, IN_BACKWARD, i);
        *(x->g->node.at[id].op == OP_Mul ? &product : &difference) = id;
    }
    if (product == NONE || difference == NONE)
        return false;
    const Node *m = &x->g->node.at[product], *d = &x->g->node.at[difference];
    ValueId sum = m->out[0], left = d->out[0];
    goes(f, product);
    if (m->in[0] != *v || m->in[1] != p || !step(x, f, &sum, OP_ReduceSum, 0) || d->op != OP_Sub ||
        d->in[0] != *v || d->in[1] != sum || count_readers(x, sum, IN_BACKWARD) != 1 ||
        x->leaves[sum])
        return false;
    goes(f, difference);
    NodeId last = reader(x, left, IN_BACKWARD, OP_Mul);
    if (last == NONE || x->g->node.at[last].in[1] != p || !step(x, f, &left, OP_Mul, 0))
        return false;
    *v = left;
    return true;
}

static bool back_link(const Search *x, Found *f, const Link *l, ValueId *v)
{
    const Node *n = &x->g->node.at[l->node];
    double c;
    NodeId id;
    switch (n->op) {
    case OP_Add:
    case OP_Phase: return true;
    case OP_Cast: return step(x, f, v, OP_Cast, 0);
    case OP_Dropout: return back_dropout(x, f, n, v);
    case OP_Mul:
    case OP_Div:
        id = reader(x, *v, IN_BACKWARD, n->op);
        return id != NONE && x->g->node.at[id].nin == 2 && number(x, x->g->node.at[id].in[1], &c) &&
               step(x, f, v, n->op, 0);
    case OP_Where:
        id = reader(x, *v, IN_BACKWARD, OP_Where);
        return id != NONE && x->g->node.at[id].in[0] == n->in[0] &&
               step(x, f, v, OP_Where, l->operand);
    default: return false;
    }
}

/* dv = p' dy: through the one transpose of what v was multiplied by. */
static bool back_values(const Search *x, Found *f, ValueId p, bool shared)
{
    NodeId turn = NONE;
    for (uint32_t i = 0; i < count_readers(x, p, IN_BACKWARD); i++) {
        NodeId id = reader_at(x, p, IN_BACKWARD, i);
        if (x->g->node.at[id].op == OP_Transpose && turn == NONE)
            turn = id;
        else if (!shared || x->g->node.at[id].op != OP_Mul)
            return false;
    }
    if (turn == NONE)
        return false;
    ValueId v = x->g->node.at[turn].out[0];
    NodeId product = reader(x, v, IN_BACKWARD, OP_MatMul);
    if (x->leaves[v] || product == NONE || x->g->node.at[product].in[0] != v)
        return false;
    f->dy = x->g->node.at[product].in[1];
    f->dv = x->g->node.at[product].out[0];
    goes(f, turn);
    goes(f, product);
    return true;
}

/* dq = ds k, dk = q' ds */
static bool back_scores(const Search *x, Found *f, ValueId ds)
{
    f->dq = f->dk = NONE;
    if (count_readers(x, ds, IN_BACKWARD) != 2 || x->leaves[ds])
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        NodeId id = reader_at(x, ds, IN_BACKWARD, i);
        const Node *n = &x->g->node.at[id];
        if (n->op != OP_MatMul)
            return false;
        *(n->in[0] == ds ? &f->dq : &f->dk) = n->out[0];
        goes(f, id);
    }
    return f->dq != NONE && f->dk != NONE;
}

/* The shapes that the operation has: the batch of the scores. */
static bool fits(const Search *x, const Found *f)
{
    const Shape *p = &val(x->g, f->attr.like)->shape;
    const Node *qk = &x->g->node.at[f->scores], *pv = &x->g->node.at[f->result];
    const ValueId from[] = {qk->in[0], qk->in[1], pv->in[1]}, to[] = {f->dq, f->dk, f->dv};
    for (int i = 0; i < 3; i++) {
        const Shape *s = &val(x->g, from[i])->shape;
        Shape want = *p;
        want.d[p->rank - 2] = s->d[s->rank - 2];
        want.d[p->rank - 1] = s->d[s->rank - 1];
        if (!shape_equal(&val(x->g, to[i])->shape, &want))
            return false;
    }
    return same_shape(x, f->dy, pv->out[0]);
}

bool attention_backward(const Search *x, Found *f)
{
    const Graph *g = x->g;
    ValueId p = f->attr.like, last = g->node.at[f->result].in[0], v = NONE;
    ValueId before = f->downs > 0 ? p : NONE;
    for (int i = 0; i < f->downs; i++) /* what Phase shows is Dropout's in training */
        if (g->node.at[f->down[i].node].op == OP_Phase)
            last = g->node.at[f->down[i].node].in[0];
    if (count_readers(x, p, IN_BACKWARD) == 0 && count_readers(x, last, IN_BACKWARD) == 0 &&
        count_readers(x, g->node.at[f->result].in[0], IN_BACKWARD) == 0)
        return true;
    f->trains = true;
    /* the transpose reads the product's own operand, or what Phase shows */
    if (count_readers(x, g->node.at[f->result].in[0], IN_BACKWARD) > 0)
        last = g->node.at[f->result].in[0];
    if (!back_values(x, f, last, last == p))
        return false;
    for (uint32_t i = 0; i < count_readers(x, f->dy, IN_BACKWARD); i++) {
        NodeId id = reader_at(x, f->dy, IN_BACKWARD, i);
        const Node *n = &g->node.at[id];
        if (n->op == OP_MatMul && n->in[0] == f->dy && same_shape(x, n->out[0], p)) {
            if (v != NONE)
                return false;
            v = n->out[0];
            goes(f, id);
        }
    }
    if (v == NONE)
        return false;
    for (int i = f->downs - 1; i >= 0; i--)
        if (!back_link(x, f, &f->down[i], &v))
            return false;
    if (!back_softmax(x, f, p, &v) ||
        count_readers(x, p, IN_BACKWARD) != (before == NONE || last == p ? 3u : 2u))
        return false;
    for (int i = 0; i < f->ups; i++)
        if (!back_link(x, f, &f->up[i], &v))
            return false;
    /* nothing of forward between the products is read elsewhere */
    for (int i = 0; i < f->ups; i++)
        if (count_readers(x, g->node.at[f->up[i].node].out[0], IN_BACKWARD) > 0)
            return false;
    if (count_readers(x, g->node.at[f->scores].out[0], IN_BACKWARD) > 0 || !back_scores(x, f, v) ||
        !fits(x, f))
        return false;
    f->first = f->gone[0];
    for (int i = 1; i < f->n_gone; i++)
        f->first = f->gone[i] < f->first ? f->gone[i] : f->first;
    return val(g, f->dy)->kind != V_NODE || val(g, f->dy)->node < f->first;
}
