/*
 * attention.c - where a target computes an attention in one kernel: the nodes between its two
 * products, and those of its backward, become one operation each.
 *
 * Forward is followed from the Softmax to both sides:
 *
 *     MatMul q k   Mul, Div by a number   Add of a bias   Where of a mask   Softmax   Dropout
 *     (with Phase)   MatMul by v
 *
 * casts between floats where the product's type is another than softmax's.  Backward is what the
 * rules of vjp/ make of it, and is followed from dy v' down to the three gradients.  Every value
 * between is read by the next node alone, no gradient of bias or mask is asked for, and nothing of
 * it leaves the stage; else the nodes stay as they are, and so does an attention that is cut.
 *
 * A mask that is a constant lower triangle, whether it picks by Where or adds numbers so low that
 * their exponential is 0, becomes `causal`, and its bytes are read no more.
 */
#include <math.h>
#include <string.h>

#include "autodiff.h"

enum { MOST_LINKS = 12, MOST_WIDTH = 256, MOST_NODES = 64 };
static const double LOW = -1e30; /* e^(LOW - x) is 0 for every score */

/* A node on the way, and the operand through which it leads. */
typedef struct {
    NodeId node;
    uint32_t operand;
} Link;

typedef struct {
    const Graph *g;
    Arena *a;
    const Stage *s;
    Ids *readers;  /* by value: nodes of the stage's lists, each once */
    bool *inside;  /* by node: in one of the stage's lists */
    uint8_t *list; /* by node: IN_FORWARD or IN_BACKWARD */
    bool *leaves;  /* by value: it is an output, a statistic, a gradient */
} Search;
enum { IN_FORWARD = 1, IN_BACKWARD = 2 };

typedef struct {
    NodeId softmax, scores, result;        /* result: the product by v */
    Link up[MOST_LINKS], down[MOST_LINKS]; /* from the softmax to either product */
    int ups, downs;
    AttentionAttr attr;
    ValueId bias, mask;
    bool trains;
    ValueId dy, dq, dk, dv;
    NodeId gone[MOST_NODES], first; /* of backward; the first of them */
    int n_gone;
} Found;

/* ---- reading the graph ----------------------------------------------------------------------- */

static const Node *maker(const Search *x, ValueId v)
{
    const Value *y = val(x->g, v);
    return y->kind == V_NODE && (x->list[y->node] & IN_FORWARD) ? &x->g->node.at[y->node] : NULL;
}

static NodeId maker_id(const Search *x, ValueId v) { return val(x->g, v)->node; }

static bool same_shape(const Search *x, ValueId v, ValueId w)
{
    return shape_equal(&val(x->g, v)->shape, &val(x->g, w)->shape);
}

/* The only reader of v in that list, of this kind; NONE: there is another, or none. */
static NodeId reader(const Search *x, ValueId v, uint8_t list, Op op)
{
    NodeId only = NONE;
    for (uint32_t i = 0; i < x->readers[v].n; i++) {
        NodeId id = x->readers[v].at[i];
        if (!(x->list[id] & list))
            continue;
        if (only != NONE)
            return NONE;
        only = id;
    }
    return only != NONE && x->g->node.at[only].op == op ? only : NONE;
}

static uint32_t count_readers(const Search *x, ValueId v, uint8_t list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->readers[v].n; i++)
        n += (x->list[x->readers[v].at[i]] & list) != 0;
    return n;
}

static NodeId reader_at(const Search *x, ValueId v, uint8_t list, uint32_t i)
{
    for (uint32_t k = 0; k < x->readers[v].n; k++)
        if ((x->list[x->readers[v].at[k]] & list) && i-- == 0)
            return x->readers[v].at[k];
    return NONE;
}

/* One number, whatever its shape. */
static bool number(const Search *x, ValueId v, double *d)
{
    const Value *y = val(x->g, v);
    while (y->kind == V_NODE &&
           (x->g->node.at[y->node].op == OP_Expand || x->g->node.at[y->node].op == OP_Reshape))
        y = val(x->g, x->g->node.at[y->node].in[0]);
    if (y->kind != V_CONST || !y->data || shape_elements(&y->shape) != 1)
        return false;
    *d = element_double(y->dtype, y->data, 0);
    return true;
}

/* Does it depend on constants alone?  Then what it is. */
static bool constant(const Search *x, ValueId v, Tensor *t)
{
    enum { MOST = 1 << 26 }; /* elements: a triangle of 8,192 */
    const Graph *g = x->g;
    const Value *y = val(g, v);
    if (shape_elements(&y->shape) > MOST)
        return false;
    if (y->kind == V_CONST) {
        *t = (Tensor){y->dtype, y->shape, (void *)(uintptr_t)y->data};
        return y->data != NULL;
    }
    if (y->kind != V_NODE)
        return false;
    const bool *live = graph_live(g, x->a, 0, &(Ids){&v, 1, 1}, 1);
    Ids list = {0};
    for (NodeId n = 0; n < g->node.n && n <= y->node; n++) {
        const Node *node = &g->node.at[n];
        if (!live[n])
            continue;
        if (!op_is_pure(node->op) || node->op == OP_Phase || node->op == OP_Count)
            return false;
        for (uint32_t i = 0; i < node->nin; i++)
            if (val(g, node->in[i])->kind != V_CONST && val(g, node->in[i])->kind != V_NODE)
                return false;
        vec_push(x->a, &list, n);
    }
    Tensor *at = arena_array(x->a, Tensor, g->value.n + 1);
    eval_nodes(g, x->a, list.at, list.n, at);
    *t = at[v];
    return true;
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* What a mask or a bias says of place (r, c) of matrix z: 1 allowed, 0 not, -1 neither. */
typedef struct {
    Tensor t;
    bool adds, forbids;
} Mask;

static int says(const Mask *m, int64_t i)
{
    double v = element_double(m->t.dtype, m->t.data, i);
    if (!m->adds)
        return (v != 0) != m->forbids;
    return v == 0 ? 1 : v <= LOW ? 0 : -1;
}

/* Is it c <= r + diagonal everywhere, and in the first row more than nothing? */
static bool triangle(const Mask *m, int64_t rows, int64_t keys, int64_t *diagonal)
{
    const Shape *s = &m->t.shape;
    int64_t n = shape_elements(s), each = rows * keys, d = -1;
    if (s->rank < 2 || s->d[s->rank - 2] != rows || s->d[s->rank - 1] != keys || each == 0)
        return false;
    while (d + 1 < keys && says(m, d + 1) == 1)
        d++;
    for (int64_t i = 0; i < n; i++)
        if (says(m, i) != (i % keys <= i % each / keys + d))
            return false;
    *diagonal = d;
    return d >= 0;
}

/* A mask that need not be read. */
static void find_triangle(const Search *x, Found *f, const Shape *p)
{
    Mask m = {.forbids = f->attr.forbids, .adds = f->mask == NONE};
    ValueId v = f->mask != NONE ? f->mask : f->bias;
    bool low = f->mask == NONE || f->attr.fill <= LOW;
    if (v == NONE || (f->mask != NONE && !low) || !constant(x, v, &m.t) ||
        !triangle(&m, p->d[p->rank - 2], p->d[p->rank - 1], &f->attr.diagonal))
        return;
    f->attr.causal = true;
    if (m.adds) {
        f->bias = NONE;
        f->attr.fill = -(double)INFINITY;
    } else {
        f->mask = NONE;
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

static bool is_real_cast(const Search *x, const Node *n)
{
    return n->op == OP_Cast && dtype_is_float(val(x->g, n->in[0])->dtype) &&
           dtype_is_float(val(x->g, n->out[0])->dtype);
}

/* Between: nobody but the next node of forward reads it, and it stays in the stage. */
static bool is_between(const Search *x, ValueId v) { return !x->leaves[v]; }

/* From the softmax's operand up to the product; scale, bias and mask as they come. */
static bool walk_up(const Search *x, Found *f, ValueId v)
{
    const Node *n;
    double c;
    for (f->ups = 0; f->ups < MOST_LINKS; f->ups++) {
        n = maker(x, v);
        if (!n || !is_between(x, v) || count_readers(x, v, IN_FORWARD) != 1)
            return false;
        if (n->op == OP_MatMul) {
            f->scores = maker_id(x, v);
            return true;
        }
        uint32_t next = 0;
        if (n->op == OP_Mul && number(x, n->in[0], &c))
            next = 1;
        else if (n->op == OP_Where)
            next = number(x, n->in[1], &c) ? 2 : 1;
        else if (n->op == OP_Add && !(maker(x, n->in[0]) && same_shape(x, n->in[0], v)))
            next = 1;
        else if ((n->op == OP_Mul || n->op == OP_Div) ? !number(x, n->in[1], &c)
                                                      : n->op != OP_Add && !is_real_cast(x, n))
            return false;
        if (!same_shape(x, n->in[next], v))
            return false;
        f->up[f->ups] = (Link){maker_id(x, v), next};
        v = n->in[next];
    }
    return false;
}

/* The links as one expression: scale first, then one bias, then one mask. */
static bool read_links(const Search *x, Found *f)
{
    f->attr.scale = 1;
    f->bias = f->mask = NONE;
    for (int i = f->ups - 1; i >= 0; i--) {
        const Node *n = &x->g->node.at[f->up[i].node];
        uint32_t at = f->up[i].operand;
        double c = 0;
        if (n->op == OP_Mul || n->op == OP_Div) {
            if (f->bias != NONE || f->mask != NONE || !number(x, n->in[1 - at], &c))
                return false;
            f->attr.scale = n->op == OP_Mul ? f->attr.scale * c : f->attr.scale / c;
        } else if (n->op == OP_Add) {
            if (f->bias != NONE || f->mask != NONE)
                return false;
            f->bias = n->in[1 - at];
        } else if (n->op == OP_Where) {
            if (f->mask != NONE || !number(x, n->in[3 - at], &f->attr.fill))
                return false;
            f->mask = n->in[0];
            f->attr.forbids = at == 2;
        }
    }
    return isfinite(f->attr.scale);
}

/* From the probabilities down to the product by v. */
static bool walk_down(const Search *x, Found *f, ValueId v)
{
    for (f->downs = 0; f->downs < MOST_LINKS; f->downs++) {
        NodeId next = reader_at(x, v, IN_FORWARD, 0);
        uint32_t many = count_readers(x, v, IN_FORWARD);
        if (!is_between(x, v) || many < 1 || many > 2)
            return false;
        if (many == 2) { /* Phase(Dropout(v), v) */
            NodeId other = reader_at(x, v, IN_FORWARD, 1);
            if (x->g->node.at[next].op == OP_Phase) {
                NodeId t = next;
                next = other;
                other = t;
            }
            const Node *d = &x->g->node.at[next], *phase = &x->g->node.at[other];
            if (d->op != OP_Dropout || phase->op != OP_Phase || phase->in[0] != d->out[0] ||
                phase->in[1] != v || reader(x, d->out[0], IN_FORWARD, OP_Phase) != other)
                return false;
        }
        const Node *n = &x->g->node.at[next];
        if (n->op == OP_MatMul) {
            f->result = next;
            return n->in[0] == v;
        }
        if (n->op == OP_Dropout) {
            if (f->attr.ratio > 0 || n->attr.ratio >= 1 || !is_between(x, n->out[0]) ||
                count_readers(x, n->out[1], IN_FORWARD) > 0 || x->leaves[n->out[1]])
                return false;
            f->attr.ratio = n->attr.ratio;
            f->attr.key = n->attr.key;
        } else if (n->op != OP_Phase && !is_real_cast(x, n)) {
            return false;
        }
        f->down[f->downs] = (Link){next, 0};
        v = n->out[0];
    }
    return false;
}

static bool find_forward(const Search *x, NodeId softmax, Found *f)
{
    const Graph *g = x->g;
    const Node *n = &g->node.at[softmax];
    const Shape *p = &val(g, n->out[0])->shape;
    *f = (Found){.softmax = softmax};
    f->attr.like = n->out[0];
    if (p->rank < 2 || n->attr.axis != p->rank - 1 || val(g, n->out[0])->dtype != DT_F32 ||
        !walk_up(x, f, n->in[0]) || !read_links(x, f) || !walk_down(x, f, n->out[0]))
        return false;
    const Node *qk = &g->node.at[f->scores], *pv = &g->node.at[f->result];
    const Value *q = val(g, qk->in[0]), *k = val(g, qk->in[1]), *v = val(g, pv->in[1]);
    int batch = val(g, n->out[0])->batch;
    if (q->dtype != k->dtype || q->dtype != v->dtype || q->dtype != val(g, pv->out[0])->dtype ||
        q->dtype == DT_F64 || batch >= p->rank - 2 || batch == BATCH_MIXED)
        return false;
    if (q->shape.d[q->shape.rank - 1] > MOST_WIDTH || v->shape.d[v->shape.rank - 1] > MOST_WIDTH)
        return false;
    if (f->bias != NONE && val(g, f->bias)->dtype != DT_F32 && val(g, f->bias)->dtype != q->dtype)
        return false;
    find_triangle(x, f, p);
    f->attr.bias = f->bias != NONE;
    f->attr.mask = f->mask != NONE;
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

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

static bool find_backward(const Search *x, Found *f)
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
    Search x = search(a, p, s);
    for (uint32_t i = 0; i < s->forward.n; i++) {
        Found f;
        if (p->graph->node.at[s->forward.at[i]].op == OP_Softmax &&
            find_forward(&x, s->forward.at[i], &f) && find_backward(&x, &f))
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
