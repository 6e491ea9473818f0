/*
 * stack.c - what is computed alike of several parameters becomes one computation of one parameter.
 *
 * In: a graph that adds up, or joins (Concat), E results which differ in their parameters and in
 * what is computed of those (alike.c), as the experts of a mixture do that an exporter has written
 * one after the other.  Out: the same Graph with E / C of these computations, each with a dimension
 * in front of all that differs, of C, the chunks of the axis: number i of them has the i-th of
 * every chunk's experts.  What the others computed is gone; their parameters are one (Param.each).
 * So who divides that dimension (search.c) divides experts.  A sum is that of all else, then of
 * each chunk's experts, then of the chunks.
 */
#include <string.h>

#include "alike.h"

typedef struct {
    Graph *g;
    Graph from;
    Arena *a;
    Families *of;
    ValueId *is;   /* by value, in the new graph */
    NodeId *first; /* by node, the first of those that it has become, which end at the next one's */
    IdMap nodes;   /* of the new graph, by what they are made of */
    Ids front;     /* of the new graph: what has the dimension in front */
} Stack;

/* A node, or the one that is the same. */
static ValueId node(Stack *s, Op op, uint32_t nin, const ValueId *in, Attr t)
{
    uint64_t key = (uint64_t)op;
    for (uint32_t i = 0; i < nin; i++)
        key = (key ^ in[i]) * 0x9E3779B97F4A7C15u;
    for (;; key++) {
        uint32_t *at = idmap_at(s->a, &s->nodes, key);
        const Node *n = *at == NONE ? NULL : maker(s->g, *at);
        if (n && n->op == op && n->nin == nin && memcmp(n->in, in, nin * sizeof *in) == 0 &&
            attr_equal(op, &n->attr, &t) && op_is_pure(op))
            return *at;
        if (n)
            continue;
        const ValueId v = graph_node(s->g, op, nin, in, t);
        if (is_made(s->g, v))
            *at = v;
        return v;
    }
}

static ValueId reshape(Stack *s, ValueId x, const Shape *to)
{
    const Attr t = {.n = to->rank, .dims = to->d};
    return shape_equal(&val(s->g, x)->shape, to) ? x : node(s, OP_Reshape, 1, &x, t);
}

static ValueId in_front(Stack *s, ValueId v)
{
    vec_push(s->a, &s->front, v);
    return v;
}

static ValueId made(Stack *s, uint32_t k);

static Attr lifted(const Stack *s, const Node *n)
{
    return attr_lifted(s->g->arena, n->op, &n->attr, s->of->chunks);
}

/* What x repeats, as rows that several experts take are repeated; NONE: nothing. */
static ValueId repeats(const Graph *g, ValueId x)
{
    const Node *n = is_made(g, x) && val(g, x)->shape.rank + 1 < MAX_RANK ? maker(g, x) : NULL;
    if (n && n->op == OP_Reshape)
        return repeats(g, n->in[0]) == NONE ? NONE : n->in[0];
    return n && n->op == OP_Expand && val(g, n->in[0])->shape.rank == n->attr.n ? n->in[0] : NONE;
}

/* What is the same for all, with the dimension in front.  It is sent before it is repeated. */
static ValueId for_each(Stack *s, ValueId x)
{
    const ValueId of = repeats(s->g, x);
    Shape to = shape_with(&val(s->g, x)->shape, 0, 1);
    ValueId y = of == NONE ? reshape(s, x, &to) : for_each(s, of);
    to.d[0] = s->of->chunks;
    return in_front(s, of == NONE ? node(s, OP_Expand, 1, &y, (Attr){.n = to.rank, .dims = to.d})
                                  : node(s, maker(s->g, x)->op, 1, &y, lifted(s, maker(s->g, x))));
}

/* An operand with a dimension in front of as many as `rank` others; what is the same for all has
 * none, unless it is asked for. */
static ValueId operand(Stack *s, uint32_t k, int rank, bool all)
{
    ValueId x = made(s, k);
    const bool same = s->of->alike.at[k].kind == SAME;
    if (same && !all)
        return x;
    x = same ? for_each(s, x) : x;
    const Shape t = val(s->g, x)->shape;
    Shape to = {.rank = rank + 1, .d = {t.d[0]}};
    for (int i = 0; i < rank; i++)
        to.d[i + 1] = i < rank + 1 - t.rank ? 1 : t.d[i + t.rank - rank];
    const ValueId y = reshape(s, x, &to);
    return y == x ? y : in_front(s, y);
}

static ValueId stack_node(Stack *s, const Alike *x)
{
    const Node *n = maker(&s->from, x->v[0]);
    const int out = (int)val(&s->from, x->v[0])->out;
    ValueId *in = arena_array(s->a, ValueId, n->nin + 1);
    int rank = n->op == OP_Expand ? n->attr.n : 0;
    const bool broadcasts = op_is_map(n->op) || n->op == OP_MatMul;
    for (uint32_t i = 0; i < n->nin && broadcasts; i++)
        rank =
            val(&s->from, n->in[i])->shape.rank > rank ? val(&s->from, n->in[i])->shape.rank : rank;
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] =
            operand(s, x->in[i],
                    broadcasts || n->op == OP_Expand ? rank : val(&s->from, n->in[i])->shape.rank,
                    !broadcasts);
    s->g->cur_origin = n->origin;
    return in_front(s, graph_out(s->g, node(s, n->op, n->nin, in, lifted(s, n)), (uint32_t)out));
}

static ValueId join(Stack *s, const Alike *x)
{
    ValueId *in = arena_array(s->a, ValueId, s->of->chunks);
    for (uint32_t c = 0; c < s->of->chunks; c++) {
        const Shape t = shape_with(&val(&s->from, x->v[c])->shape, 0, 1);
        in[c] = reshape(s, s->is[x->v[c]], &t);
    }
    return g_concat(s->g, s->of->chunks, in, 0);
}

/* Of C parts, each of which has several, number i of each. */
static ValueId cut(Stack *s, const Alike *x)
{
    const Node *n = maker(&s->from, x->v[0]);
    const Shape whole = val(&s->from, n->in[0])->shape;
    const int along = x->along;
    Shape parts = shape_with(&whole, along, s->of->chunks);
    int64_t perm[MAX_RANK];
    parts.d[along + 1] /= s->of->chunks;
    for (int i = 0; i < parts.rank; i++)
        perm[i] = i == 0 ? along : i <= along ? i - 1 : i;
    ValueId y = reshape(s, s->is[n->in[0]], &parts);
    if (along > 0)
        y = node(s, OP_Transpose, 1, &y, (Attr){.n = parts.rank, .perm = perm});
    else if (x->own)
        y = in_front(s, y);
    s->g->cur_origin = n->origin;
    y = node(s, OP_Slice, 1, &y, lifted(s, n));
    return x->own ? in_front(s, y) : y;
}

static ValueId made(Stack *s, uint32_t k)
{
    if (s->of->alike.at[k].made == NONE) {
        const Alike x = s->of->alike.at[k];
        const ValueId y = x.kind == SAME    ? s->is[x.v[0]]
                          : x.kind == NODES ? stack_node(s, &x)
                          : x.kind == CUTS  ? cut(s, &x)
                                            : join(s, &x);
        s->of->alike.at[k].made = y;
    }
    return s->of->alike.at[k].made;
}

static bool is_zeros(const Stack *s, ValueId v)
{
    double x;
    return g_const_double(&s->from, v, &x) && x == 0;
}

static ValueId sum(Stack *s, const Family *f, const Shape *to)
{
    ValueId all = made(s, f->slot.at[0]), total = NONE;
    for (uint32_t i = 1; i < f->slot.n; i++)
        all = in_front(s, g_add(s->g, all, made(s, f->slot.at[i])));
    const Shape one = val(&s->from, f->leaf.at[0])->shape;
    all = g_reshape(s->g, g_reduce(s->g, OP_ReduceSum, all, 1, (int64_t[]){0}), &one);
    for (uint32_t i = 0; i < f->other.n; i++) {
        const ValueId v = f->other.at[i];
        if (is_zeros(s, v) && shape_equal(&one, to))
            continue;
        total = total == NONE ? s->is[v] : g_add(s->g, total, s->is[v]);
    }
    return total == NONE ? all : g_add(s->g, total, all);
}

static ValueId joined(Stack *s, const Family *f, const Shape *to)
{
    const int axis = (int)s->from.node.at[f->root].attr.axis;
    ValueId *in = arena_array(s->a, ValueId, f->slot.n);
    int64_t perm[MAX_RANK];
    for (uint32_t i = 0; i < f->slot.n; i++)
        in[i] = made(s, f->slot.at[i]);
    const ValueId all =
        f->slot.n > 1 ? in_front(s, g_concat(s->g, f->slot.n, in, axis + 1)) : in[0];
    for (int i = 0; i <= to->rank; i++)
        perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    return g_reshape(s->g, g_transpose(s->g, all, perm), to);
}

static void copy_node(Stack *s, NodeId id)
{
    const Node *n = &s->from.node.at[id];
    ValueId *in = arena_array(s->a, ValueId, n->nin + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = s->is[n->in[i]];
    s->g->cur_origin = n->origin;
    const ValueId first = node(s, n->op, n->nin, in, n->attr);
    for (uint32_t i = 0; i < n->nout; i++)
        s->is[n->out[i]] = graph_out(s->g, first, i);
}

static void add_nodes(Stack *s)
{
    for (NodeId id = 0; id < s->from.node.n; id++) {
        const Node *n = &s->from.node.at[id];
        const Family *f = s->of->of_root[id] == NONE ? NULL : &s->of->family.at[s->of->of_root[id]];
        bool is = false;
        s->first[id] = s->g->node.n;
        for (uint32_t i = 0; i < n->nout; i++)
            is |= s->of->needed[n->out[i]];
        if (!is)
            continue;
        s->g->cur_origin = n->origin;
        if (f && !f->off) {
            const Shape *to = &val(&s->from, n->out[0])->shape;
            s->is[n->out[0]] = f->joins ? joined(s, f, to) : sum(s, f, to);
        } else {
            copy_node(s, id);
        }
        for (uint32_t i = 0; i < n->nout; i++) {
            const Value *old = val(&s->from, n->out[i]);
            if (!old->made && strmap_get(&s->g->by_name, old->name) == NONE)
                graph_rename(s->g, s->is[n->out[i]], old->name);
        }
    }
}

/* What became of a plan's graph in the one before is that in the new one. */
static void renumber(Stack *s, MeshPlan *p)
{
    s->first[s->from.node.n] = s->g->node.n;
    for (ValueId v = 0; v < p->of->value.n; v++)
        p->became[v] = p->became[v] == NONE ? NONE : s->is[p->became[v]];
    for (NodeId id = 0; id <= p->of->node.n; id++) {
        const uint32_t nin = id < p->of->node.n && p->read[id] ? p->of->node.at[id].nin : 0;
        ValueId *read = arena_array(s->a, ValueId, nin + 1);
        for (uint32_t i = 0; i < nin; i++)
            read[i] = s->is[p->read[id][i]];
        p->read[id] = nin ? read : NULL;
        p->first[id] = s->first[p->first[id]];
    }
}

static Param stacked(Stack *s, const Alike *x)
{
    Param p = s->from.param.at[val(&s->from, x->v[0])->param],
          *each = arena_array(s->g->arena, Param, s->of->chunks);
    for (uint32_t c = 0; c < s->of->chunks; c++) {
        each[c] = s->from.param.at[val(&s->from, x->v[c])->param];
        each[c].number = val(&s->from, x->v[c])->param;
    }
    p.whole = shape_with(param_whole(&p), 0, s->of->chunks);
    p.shape = shape_with(&p.shape, 0, s->of->chunks);
    for (int i = 0; i < MESH_AXES; i++)
        p.box.along[i].axis += p.box.along[i].axis >= 0;
    p.each = each;
    p.n_each = (int)s->of->chunks;
    return p;
}

/* By parameter, what it became. */
static uint32_t *add_params(Stack *s)
{
    uint32_t *param = arena_array(s->a, uint32_t, s->from.param.n + 1);
    for (uint32_t i = 0; i < s->from.param.n; i++) {
        const uint32_t k = s->of->stacked[i];
        Alike *x = k == NONE ? NULL : &s->of->alike.at[k];
        if (!x)
            s->is[s->from.param.at[i].value] = graph_param(s->g, s->from.param.at[i]);
        else if (x->made == NONE)
            x->made = in_front(s, graph_param(s->g, stacked(s, x)));
        param[i] = val(s->g, x ? x->made : s->is[s->from.param.at[i].value])->param;
    }
    return param;
}

const bool *mesh_stack(Graph *g, int chunks, uint32_t n, ValueId *const *keep, MeshPlan *before)
{
    Arena *a = g->arena;
    const Ids results = mesh_results(g, n, keep);
    Stack s = {.g = g,
               .a = a,
               .of = alike_find(g, a, chunks, &results),
               .is = arena_none(a, g->value.n + 1)};
    if (!s.of)
        return NULL;
    s.first = arena_array(a, NodeId, g->node.n + 1);
    s.from = mesh_renew(g);
    const uint32_t *param = add_params(&s);
    for (ValueId v = 0; v < s.from.value.n; v++)
        if (val(&s.from, v)->kind != V_PARAM)
            s.is[v] = mesh_leaf(g, &s.from, v);
    add_nodes(&s);
    if (before)
        renumber(&s, before);
    mesh_renewed(g, &s.from, s.is, param, n, keep);
    bool *front = arena_array(a, bool, g->value.n + 1);
    for (uint32_t i = 0; i < s.front.n; i++)
        front[s.front.at[i]] = true;
    return front;
}
