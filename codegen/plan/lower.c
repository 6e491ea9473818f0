/*
 * lower.c - just before fusion: operations whose code is that of others.  In: a stage's list of
 * core nodes.  Out: the list with Softmax, ReduceMean, ArgMax/ArgMin and one-hot scatters written
 * as elementwise operations and reductions, and chains (bias.c) as one product.  The values keep
 * their ids, so what other lists say of them stays true.
 */
#include <string.h>

#include "plan.h"
#include "runtime/api/pp_attention.h"

typedef struct { Func *f; Ids list; uint32_t origin; } Low;

ValueId cg_new_value(Func *f, Dtype t, const Shape *s, int batch)
{
    ValueId v = graph_value(f->g, V_NODE, NULL, t, s);
    f->g->value.at[v].batch = batch;
    return v;
}

NodeId cg_new_node(Func *f, Node like)
{
    Node n = like;
    n.in = arena_array(f->g->arena, ValueId, n.nin + 1);
    n.out = arena_array(f->g->arena, ValueId, n.nout + 1);
    for (uint32_t i = 0; i < n.nin; i++)
        n.in[i] = like.in[i];
    for (uint32_t i = 0; i < n.nout; i++)
        n.out[i] = like.out[i];
    vec_push(f->g->arena, &f->g->node, n);
    return f->g->node.n - 1;
}

/* What a result is like. */
static Value typed(Dtype t, const Shape *s, int batch)
{
    return (Value){.dtype = t, .shape = *s, .batch = batch};
}

/* A new node; in: three operands, NONE behind the last; `as`: the value it makes, NONE for a new
 * one, which is like that. */
#define IN(x, y, z) ((ValueId[]){x, y, z})
static ValueId make(Low *l, Op op, ValueId *in, Value like, Attr attr, ValueId as)
{
    uint32_t nin = in[2] != NONE ? 3 : in[1] != NONE ? 2 : in[0] != NONE ? 1 : 0;
    ValueId out = as != NONE ? as : cg_new_value(l->f, like.dtype, &like.shape, like.batch);
    NodeId n = cg_new_node(l->f, (Node){.op = op,
                                        .nin = nin,
                                        .in = in,
                                        .nout = 1,
                                        .out = &out,
                                        .attr = attr,
                                        .origin = l->origin});
    if (as == NONE)
        l->f->g->value.at[out].node = n;
    vec_push(l->f->sg->a, &l->list, n);
    return out;
}

/* Elementwise over x's shape; y broadcasts to it. */
static ValueId map(Low *l, Op op, ValueId x, ValueId y, ValueId as)
{
    Value v = *val(l->f->g, x);
    return make(l, op, IN(x, y, NONE), v, (Attr){0}, as);
}

/* ... of another type, and of any operands. */
static ValueId map_as(Low *l, Op op, ValueId *in, Dtype t, const Value *x)
{
    return make(l, op, in, typed(t, &x->shape, x->batch), (Attr){0}, NONE);
}

static ValueId reduce(Low *l, Op op, ValueId x, int n, const int64_t *axes)
{
    Value v = *val(l->f->g, x);
    for (int i = 0; i < n; i++) {
        v.shape.d[axes[i]] = 1;
        if (v.batch == (int)axes[i])
            v.batch = BATCH_NONE;
    }
    return make(l, op, IN(x, NONE, NONE), v, (Attr){.n = n, .axes = axes}, NONE);
}

static const int64_t *one_axis(Low *l, int64_t axis)
{
    int64_t *a = arena_array(l->f->g->arena, int64_t, 1);
    a[0] = axis;
    return a;
}

/* y = e^(x - max) * (1 / sum) */
static void softmax(Low *l, const Node *n)
{
    const int64_t *axis = one_axis(l, n->attr.axis);
    ValueId x = n->in[0];
    ValueId e =
        map(l, OP_Exp, map(l, OP_Sub, x, reduce(l, OP_ReduceMax, x, 1, axis), NONE), NONE, NONE);
    ValueId scale = map(l, OP_Reciprocal, reduce(l, OP_ReduceSum, e, 1, axis), NONE, NONE);
    map(l, OP_Mul, e, scale, n->out[0]);
}

/* y = sum / count; the count may depend on the rows */
static void reduce_mean(Low *l, const Node *n)
{
    Graph *g = l->f->g;
    ValueId sum = reduce(l, OP_ReduceSum, n->in[0], n->attr.n, n->attr.axes);
    Dtype t = val(g, n->in[0])->dtype;
    Shape s = {.rank = 0};
    ValueId in = n->in[0];
    ValueId count = make(l, OP_Count, IN(in, NONE, NONE), typed(t, &s, BATCH_NONE),
                         (Attr){.n = n->attr.n, .axes = n->attr.axes, .to = t}, NONE);
    map(l, OP_Div, sum, count, n->out[0]);
}

static ValueId constant_i64(Low *l, int64_t x)
{
    int64_t *at = arena_array(l->f->g->arena, int64_t, 1);
    at[0] = x;
    return graph_const(l->f->g, NULL, (Tensor){DT_I64, {.rank = 0}, at});
}

static ValueId iota(Low *l, int rank, int64_t axis, int64_t n, int batch)
{
    Shape s = {.rank = rank};
    for (int i = 0; i < rank; i++)
        s.d[i] = i == axis ? n : 1;
    int64_t *at = arena_array(l->f->g->arena, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        at[i] = i;
    ValueId v = graph_const(l->f->g, NULL, (Tensor){DT_I64, s, at});
    l->f->g->value.at[v].batch = batch;
    return v;
}

/* ArgMax: the least (or last) index at which x equals its maximum, or is no number. */
static void arg(Low *l, const Node *n)
{
    Graph *g = l->f->g;
    const int64_t *axis = one_axis(l, n->attr.axis);
    ValueId x = n->in[0];
    Value v = *val(g, x);
    int64_t extent = v.shape.d[n->attr.axis];
    ValueId best = reduce(l, n->op == OP_ArgMax ? OP_ReduceMax : OP_ReduceMin, x, 1, axis);
    ValueId hit = map_as(l, OP_Equal, IN(x, best, NONE), DT_BOOL, &v);
    if (dtype_is_float(v.dtype)) {
        ValueId nan = map_as(l, OP_IsNaN, IN(x, NONE, NONE), DT_BOOL, &v);
        hit = map_as(l, OP_Or, IN(hit, nan, NONE), DT_BOOL, &v);
    }
    bool last = n->attr.select_last == 1;
    ValueId index = iota(l, v.shape.rank, n->attr.axis, extent, BATCH_NONE);
    ValueId other = constant_i64(l, last ? -1 : extent);
    ValueId at = map_as(l, OP_Where, IN(hit, index, other), DT_I64, &v);
    make(l, last ? OP_ReduceMax : OP_ReduceMin, IN(at, NONE, NONE), (Value){0},
         (Attr){.n = 1, .axes = axis}, n->out[0]);
}

bool cg_zeros(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    while (x->kind == V_NODE &&
           (g->node.at[x->node].op == OP_Expand || g->node.at[x->node].op == OP_Reshape))
        x = val(g, g->node.at[x->node].in[0]);
    if (x->kind != V_CONST || !x->data)
        return false;
    int64_t bytes = shape_elements(&x->shape) * (int64_t)dtype_size(x->dtype);
    for (int64_t i = 0; i < bytes; i++)
        if (((const uint8_t *)x->data)[i])
            return false;
    return bytes > 0;
}

/* One update per line along the axis, into zeros: y = (index == i) ? update : 0, which fuses.
   Indices in the other dimensions must be the positions themselves, that is, cover the operand's
   dims. */
static bool one_hot(const Func *f, const Node *n)
{
    const Graph *g = f->g;
    if (n->op != OP_ScatterElements ||
        (n->attr.reduction != SCATTER_ADD && n->attr.reduction != SCATTER_NONE) ||
        !cg_zeros(g, n->in[0]))
        return false;
    const Shape *x = &val(g, n->in[0])->shape, *i = &val(g, n->in[1])->shape;
    for (int d = 0; d < x->rank; d++)
        if (i->d[d] != (d == n->attr.axis ? 1 : x->d[d]))
            return false;
    return x->d[n->attr.axis] > 0;
}

static void scatter_one_hot(Low *l, const Node *n)
{
    Graph *g = l->f->g;
    Value x = *val(g, n->in[0]), i = *val(g, n->in[1]);
    int64_t axis = n->attr.axis, extent = x.shape.d[axis];
    int batch = val(g, n->out[0])->batch;
    ValueId index = n->in[1];
    if (i.dtype != DT_I64)
        index = make(l, OP_Cast, IN(index, NONE, NONE), typed(DT_I64, &i.shape, i.batch),
                     (Attr){.to = DT_I64}, NONE);
    ValueId size = constant_i64(l, extent), zero = constant_i64(l, 0);
    ValueId negative = map_as(l, OP_Less, IN(index, zero, NONE), DT_BOOL, &i);
    ValueId wrapped = map_as(l, OP_Add, IN(index, size, NONE), DT_I64, &i);
    index = map_as(l, OP_Where, IN(negative, wrapped, index), DT_I64, &i);
    ValueId here = iota(l, x.shape.rank, axis, extent, axis == batch ? batch : BATCH_NONE);
    x.batch = batch;
    ValueId hit = map_as(l, OP_Equal, IN(here, index, NONE), DT_BOOL, &x);
    void *bits = arena_alloc(g->arena, 8);
    ValueId fill = graph_const(g, NULL, (Tensor){x.dtype, {.rank = 0}, bits});
    make(l, OP_Where, IN(hit, n->in[2], fill), x, (Attr){0}, n->out[0]);
}

/* ---- kernels of their own kind --------------------------------------------------------------- */

/* They compute in no half: their operands become f32, and what they make is rounded. */
static bool has_half(const Low *l, const Node *n)
{
    const Graph *g = l->f->g;
    bool own = n->op == OP_ScatterElements || n->op == OP_ScatterND || n->op == OP_CumSum ||
               n->op == OP_TopK || n->op == OP_MaxPool || n->op == OP_AveragePool ||
               n->op == OP_Dropout || n->op == OP_Suppress || n->op == OP_Custom ||
               (n->op == OP_Pad && n->attr.mode != PAD_CONSTANT);
    bool any = false;
    for (uint32_t i = 0; own && i < n->nin; i++)
        any |= dtype_is_half(val(g, n->in[i])->dtype);
    return any;
}

static ValueId widened(Low *l, ValueId v)
{
    Graph *g = l->f->g;
    const Value x = *val(g, v);
    if (!dtype_is_half(x.dtype))
        return v;
    if (cg_zeros(g, v)) {                               /* a scatter does not read them */
        int64_t *dims = arena_array(g->arena, int64_t, x.shape.rank + 1);
        for (int d = 0; d < x.shape.rank; d++)
            dims[d] = x.shape.d[d];
        void *bits = arena_alloc(g->arena, 4);
        ValueId zero = graph_const(g, NULL, (Tensor){DT_F32, {.rank = 0}, bits});
        return make(l, OP_Expand, IN(zero, NONE, NONE), typed(DT_F32, &x.shape, x.batch),
                    (Attr){.n = x.shape.rank, .dims = dims}, NONE);
    }
    return make(l, OP_Cast, IN(v, NONE, NONE), typed(DT_F32, &x.shape, x.batch),
                (Attr){.to = DT_F32}, NONE);
}

static void kernel_in_single(Low *l, const Node *n)
{
    Graph *g = l->f->g;
    ValueId *in = arena_array(g->arena, ValueId, n->nin),
            *out = arena_array(g->arena, ValueId, n->nout);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = widened(l, n->in[i]);
    for (uint32_t i = 0; i < n->nout; i++) {
        const Value x = *val(g, n->out[i]);
        out[i] = dtype_is_half(x.dtype) ? cg_new_value(l->f, DT_F32, &x.shape, x.batch) : n->out[i];
    }
    Node single = *n;
    single.in = in, single.out = out, single.origin = l->origin;
    NodeId id = cg_new_node(l->f, single);
    vec_push(l->f->sg->a, &l->list, id);
    for (uint32_t i = 0; i < n->nout; i++) {
        const Value x = *val(g, n->out[i]);
        if (out[i] == n->out[i])
            continue;
        g->value.at[out[i]].node = id;
        g->value.at[out[i]].out = i;
        make(l, OP_Cast, IN(out[i], NONE, NONE), x, (Attr){.to = x.dtype}, n->out[i]);
    }
}

/* What a call needs beside its results, of so many elements, is one result more. */
static bool takes_room(Low *l, const Node *n, Dtype type, int64_t elements)
{
    Graph *g = l->f->g;
    Shape s = {1, {elements}};
    if (elements == 0)
        return false;
    ValueId *out = arena_array(g->arena, ValueId, n->nout + 1);
    memcpy(out, n->out, n->nout * sizeof *out);
    out[n->nout] = cg_new_value(l->f, type, &s, BATCH_NONE);
    Node more = *n;
    more.out = out, more.nout = n->nout + 1, more.origin = l->origin;
    NodeId id = cg_new_node(l->f, more);
    for (uint32_t i = 0; i <= n->nout; i++) {
        g->value.at[out[i]].node = id;
        g->value.at[out[i]].out = i;
    }
    vec_push(l->f->sg->a, &l->list, id);
    return true;
}

static int64_t matrices(const Func *f, ValueId v)
{
    const Shape *s = &val(f->g, v)->shape;
    return cg_most(f->sg, shape_between(s, 0, s->rank - 2));
}

/* Float32 elements that an attention needs beside its results. */
static int64_t attention_room(const Func *f, const Node *n)
{
    const Graph *g = f->g;
    const bool back = n->op == OP_FlashAttentionGrad;
    const Shape *q = &val(g, n->in[0])->shape, *k = &val(g, n->in[1])->shape,
                *v = &val(g, n->in[2])->shape;
    const int64_t all = matrices(f, back ? n->in[3] : n->out[0]);
    const PpAttention a = {.dtype = (int)val(g, n->in[0])->dtype,
                           .rows = cg_most(f->sg, q->d[q->rank - 2]),
                           .keys = cg_most(f->sg, k->d[k->rank - 1]),
                           .width = (int)q->d[q->rank - 1],
                           .width_v = (int)v->d[v->rank - 1],
                           .drop = {.limit = n->attr.attention->ratio > 0}};
    if (f->sg->device)                                  /* a number for each row of scores */
        return back ? all * a.rows : 0;
    const int shared = back && (matrices(f, n->out[1]) < all || matrices(f, n->out[2]) < all);
    return (pp_attention_room(&a, all, shared, back).bytes + 3) / 4;
}

static bool lower_node(Low *l, NodeId id)
{
    const Node n = l->f->g->node.at[id];                /* a copy: the array grows */
    l->origin = n.origin;
    switch (n.op) {
    case OP_Softmax: softmax(l, &n); return true;
    case OP_ReduceMean: reduce_mean(l, &n); return true;
    case OP_ArgMax:
    case OP_ArgMin: arg(l, &n); return true;
    case OP_AllReduce:
    case OP_AllGather:
    case OP_ReduceScatter:
    case OP_AllToAll:                                   /* what members send comes in there */
        return takes_room(l, &n, val(l->f->g, n.in[0])->dtype, cg_collective_work(l->f, &n));
    case OP_FlashAttention:
    case OP_FlashAttentionGrad: return takes_room(l, &n, DT_F32, attention_room(l->f, &n));
    default:
        if (one_hot(l->f, &n)) {
            scatter_one_hot(l, &n);
            return true;
        }
        if (has_half(l, &n)) {
            kernel_in_single(l, &n);
            return true;
        }
        return false;
    }
}

void cg_track(Func *f)
{
    uint32_t first = f->def.n, n = f->g->value.n, room = n + n / 8;
    if (first == n)
        return;
    if (f->def.cap < n) {                               /* new elements are zero */
        vec_reserve(f->a, &f->def, room);
        vec_reserve(f->a, &f->home, room);
        vec_reserve(f->a, &f->ref, room);
        vec_reserve(f->a, &f->group_of, room);
        vec_reserve(f->a, &f->acc, room);
        vec_reserve(f->a, &f->apart, room);
    }
    f->def.n = f->home.n = f->ref.n = f->group_of.n = f->acc.n = f->apart.n = n;
    for (uint32_t v = first; v < n; v++)
        f->def.at[v] = f->group_of.at[v] = NONE;
}

/* The last node of a chain is all of it. */
static void product_and_bias(Low *l, const Chain *c, NodeId id)
{
    if (id != c->last)
        return;
    const Graph *g = l->f->g;
    const Node product = g->node.at[c->product];
    l->origin = product.origin;
    make(l, OP_MatMulBias, IN(product.in[0], product.in[1], c->bias), (Value){0},
         (Attr){0}, g->node.at[c->last].out[0]);
}

void cg_lower(Func *f, const Ids *list)
{
    StageGen *sg = f->sg;
    for (uint32_t i = 0; i < list->n; i++) {
        NodeId id = list->at[i];
        if (cg_copied(sg, id) != NONE)
            continue;
        uint32_t *lowered = idmap_at(sg->a, &sg->position.lowered, id);
        /* once per node: every function gets the same values */
        if (*lowered == NONE) {
            Low l = {.f = f};
            uint32_t chain = idmap_get(&sg->position.chain, id);
            if (chain != NONE)
                product_and_bias(&l, &sg->chain.at[chain], id);
            else if (!lower_node(&l, id))
                vec_push(sg->a, &l.list, id);
            vec_push(sg->a, &sg->position.lowered_as, l.list);
            *lowered = sg->position.lowered_as.n - 1;
        }
        Ids part = sg->position.lowered_as.at[*lowered];
        for (uint32_t j = 0; j < part.n; j++)
            vec_push(f->a, &f->node, part.at[j]);
    }
    cg_track(f);
    for (uint32_t i = 0; i < f->node.n; i++)
        for (uint32_t j = 0; j < f->g->node.at[f->node.at[i]].nout; j++)
            f->def.at[f->g->node.at[f->node.at[i]].out[j]] = f->node.at[i];
}
