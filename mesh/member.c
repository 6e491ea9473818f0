/*
 * member.c - the graph of one member along an axis, where each has one chunk.
 *
 * In: a graph and the plan of search.c.  Out: the same Graph with new nodes and values, whose
 * shapes are a member's own; model inputs, outputs and the loss are whole.  A node with a way is
 * computed as it says (ir/facts/spread.h).  A value that is read in another form than it is made in
 * is brought into it once: gathered or summed where it is made, so that a cut behind it sends what
 * all members have; varied or divided where it is read.
 */
#include <string.h>

#include "renew.h"

/* The value of the whole graph, in the forms that it has in a member's: NONE, not yet. */
typedef struct {
    Place at;
    ValueId part;
} Divided;
typedef struct {
    ValueId whole, varied, partial;
    VEC(Divided) divided;
    bool whole_needed;
    VEC(Place) needed; /* divided so, by who reads it */
} Forms;

typedef struct {
    Graph *g;
    Graph from;
    Arena *a;
    MeshPlan *plan;
    const bool *active; /* values to which a gradient comes back */
    const bool *of_params;
    Forms *forms;   /* by value of `from` */
    ValueId number; /* of the member, i64[1]; NONE: not needed so far */
} Member;

/* ---- from one form to another --------------------------------------------------------------- */

/* With a dimension that is divided in groups, those stand in one before it. */
static ValueId apart(Member *m, ValueId x, Place p)
{
    if (p.groups == 1)
        return x;
    Shape t = shape_with(&val(m->g, x)->shape, p.dim, p.groups);
    t.d[p.dim + 1] /= p.groups;
    return g_reshape(m->g, x, &t);
}

static ValueId together(Member *m, ValueId x, Place p)
{
    if (p.groups == 1)
        return x;
    const Shape s = val(m->g, x)->shape;
    Shape t = shape_without(&s, p.dim);
    t.d[p.dim] *= s.d[p.dim];
    return g_reshape(m->g, x, &t);
}

/* Dimension p.dim of x as pairs of groups and, in each, the parts of the chunks. */
static ValueId in_parts(Member *m, ValueId x, Place p)
{
    const Shape s = val(m->g, x)->shape;
    const int64_t pairs = p.groups / 2,
                  size[] = {pairs, 2, m->plan->chunks, s.d[p.dim] / p.groups / m->plan->chunks};
    Shape t = s;
    t.rank += MIRROR_DIMS;
    for (int i = s.rank; i-- > p.dim + 1;)
        t.d[i + MIRROR_DIMS] = s.d[i];
    memcpy(t.d + p.dim, size, sizeof size);
    return g_reshape(m->g, x, &t);
}

/* Mirrored groups, each from its other end: so parts of a chunk stand in its place, and go back. */
static ValueId turned(Member *m, ValueId x, Place p)
{
    const Shape s = val(m->g, x)->shape;
    if (!p.mirrored)
        return x;
    const ValueId all = in_parts(m, x, p),
                  half = g_split(m->g, all, p.dim + 1, 2, (const int64_t[]){1, 1});
    const ValueId back = g_flip(m->g, graph_out(m->g, half, 1), p.dim + 2);
    return g_reshape(m->g, g_concat(m->g, 2, (ValueId[]){half, back}, p.dim + 1), &s);
}

static int axis_of(Place p) { return p.groups > 1 ? p.dim + 1 : p.dim; }

/* Of a dimension that the chunks do not divide: with the zeros behind its end. */
static ValueId with_end(Member *m, ValueId x, Place p)
{
    int64_t none[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    Shape s = val(m->g, x)->shape, part = place_shape(&s, p, m->plan->chunks);
    end[p.dim] = part.d[p.dim] * m->plan->chunks - s.d[p.dim];
    return end[p.dim] ? g_pad(m->g, x, none, end, PAD_CONSTANT, 0) : x;
}

/* Without: it has n elements. */
static ValueId without_end(Member *m, ValueId x, Place p, int64_t n)
{
    return val(m->g, x)->shape.d[p.dim] == n ? x : g_slice_axis(m->g, x, p.dim, 0, n);
}

static ValueId shard(Member *m, ValueId whole, Place p)
{
    ValueId x = apart(m, turned(m, with_end(m, whole, p), p), p);
    return together(m, g_shard(m->g, x, axis_of(p)), p);
}

/* n: elements of the whole along the dimension */
static ValueId gather(Member *m, ValueId part, Place p, int64_t n)
{
    ValueId x = together(m, g_all_gather(m->g, apart(m, part, p), axis_of(p)), p);
    return without_end(m, turned(m, x, p), p, n);
}

static ValueId sum_shard(Member *m, ValueId partial, Place p, Dtype t)
{
    ValueId x = apart(m, turned(m, with_end(m, partial, p), p), p);
    return together(m, g_cast(m->g, g_reduce_scatter(m->g, x, axis_of(p)), t), p);
}

/* Divided along another dimension; n: elements along the first one. */
static ValueId exchange(Member *m, ValueId part, Place from, Place to, int64_t n)
{
    if (!place_exchanges(from, to))
        return shard(m, gather(m, part, from, n), to);
    ValueId x = apart(m, with_end(m, part, to), to);
    Place at = from;
    at.dim += to.groups > 1 && from.dim > to.dim;
    const int to_axis = axis_of(to) + (at.groups > 1 && axis_of(to) > at.dim);
    x = together(m, g_all_to_all(m->g, apart(m, x, at), axis_of(at), to_axis), at);
    return without_end(m, together(m, x, to), from, n);
}

/* Of halves, whose partial sums are f32, the sum travels as a half. */
static ValueId summed(Member *m, ValueId partial, Dtype t)
{
    const Dtype own = val(m->g, partial)->dtype;
    return g_cast(m->g, g_all_reduce(m->g, partial, dtype_is_half(t) ? t : own), t);
}

/* ---- forms of a value ----------------------------------------------------------------------- */

static ValueId divided_as(const Forms *f, Place p)
{
    for (uint32_t i = 0; i < f->divided.n; i++)
        if (place_is(f->divided.at[i].at, p))
            return f->divided.at[i].part;
    return NONE;
}

static void divide_as(Member *m, Forms *f, Place p, ValueId part)
{
    const Graph *g = &m->from;
    m->g->rows.divided |=
        g->batch > 1 && p.groups == 1 && val(g, (ValueId)(f - m->forms))->batch == p.dim;
    vec_push(m->a, &f->divided, ((Divided){p, part}));
}

/* Where it is made: what is gathered or summed of it.  From what all have, a part is taken where it
 * is read. */
static void settle(Member *m, ValueId v)
{
    Forms *f = &m->forms[v];
    const Value *x = &m->from.value.at[v];
    Dtype t = x->dtype;
    const Divided made = f->divided.n ? f->divided.at[0] : (Divided){0};
    int64_t n = x->shape.d[made.at.dim]; /* where it is divided */
    if (f->whole == NONE && f->whole_needed)
        f->whole = f->partial != NONE ? summed(m, f->partial, t) : gather(m, made.part, made.at, n);
    for (uint32_t i = 0; i < f->needed.n && f->whole == NONE; i++) {
        Place p = f->needed.at[i];
        if (divided_as(f, p) == NONE)
            divide_as(m, f, p,
                      f->partial != NONE ? sum_shard(m, f->partial, p, t)
                                         : exchange(m, made.part, made.at, p, n));
    }
}

static void spread_one(Member *m, NodeId id, const SpreadWay *w);

/* A part of what all have: its own elements alone are computed where it is elementwise and has no
 * gradient (a mask, of classes by their numbers), else they are taken. */
static ValueId part_of(Member *m, ValueId v, Place p)
{
    const Value *x = &m->from.value.at[v];
    const SpreadOf of = {.g = &m->from, .chunks = m->plan->chunks, .uneven = true};
    SpreadWays ways = {0};
    if (x->kind == V_NODE && !m->active[v] && !m->plan->way[x->node] &&
        op_is_map(m->from.node.at[x->node].op))
        spread_ways_at(&of, x->node, m->from.node.at[x->node].nin + x->out, p, m->a, &ways);
    if (ways.n)
        spread_one(m, x->node, &ways.at[0]);
    else
        divide_as(m, &m->forms[v], p, shard(m, m->forms[v].whole, p));
    return divided_as(&m->forms[v], p);
}

static ValueId form(Member *m, ValueId v, Place p);

/* Are all elements of one value with a gradient moved to this one?  Then that of what is moved is
 * not more to be summed, and summed once for all that it is moved to: rows to each of the experts.
 */
static bool is_moved(const Member *m, ValueId v)
{
    const Graph *g = &m->from;
    const Node *n = val(g, v)->kind == V_NODE ? &g->node.at[val(g, v)->node] : NULL;
    if (!n || n->nout != 1 || !m->plan->grows[val(g, v)->node] ||
        !(op_is_view(n->op) || n->op == OP_Pack || n->op == OP_Gather))
        return false;
    for (uint32_t i = 1; i < n->nin; i++)
        if (m->active[n->in[i]])
            return false;
    return true;
}

/* What all have, for the use of each: its gradient is the sum of theirs.  What is made of
 * parameters is made of their varied ones. */
static ValueId varied(Member *m, ValueId v)
{
    const Value *x = &m->from.value.at[v];
    if (!m->active[v])
        return m->forms[v].whole;
    if (!(mesh_made_again(&m->from, m->of_params, v) || is_moved(m, v)) || m->plan->way[x->node])
        return g_vary(m->g, m->forms[v].whole, 1);
    const Node *n = &m->from.node.at[x->node];
    ValueId *in = arena_array(m->a, ValueId, n->nin + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = form(m, n->in[i], place_r());
    return graph_node(m->g, n->op, n->nin, in, n->attr);
}

/* As it is read */
static ValueId form(Member *m, ValueId v, Place p)
{
    Forms *f = &m->forms[v];
    if (p.dim == PLACE_P) {
        INSIST(f->partial !=
               NONE); /* R never becomes P: who reads sums read R as well (search.c) */
        return f->partial;
    }
    if (p.dim >= 0) {
        ValueId part = divided_as(f, p);
        return part != NONE ? part : part_of(m, v, p);
    }
    if (f->varied == NONE)
        f->varied = varied(m, v);
    return f->varied;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

/* Who has the whole of it is called as it was, or else a part is. */
static void name_value(Member *m, ValueId v)
{
    const Value *old = &m->from.value.at[v];
    const Forms *f = &m->forms[v];
    ValueId x = f->whole != NONE ? f->whole : f->divided.n ? f->divided.at[0].part : NONE;
    if (x != NONE && !old->made && strmap_get(&m->g->by_name, old->name) == NONE)
        graph_rename(m->g, x, old->name);
}

/* The member's part of 0, 1, 2, ... */
static ValueId number(Member *m)
{
    if (m->number == NONE)
        m->number = shard(m, g_iota(m->g, DT_I64, 1, 0, m->plan->chunks), place_s(0, 1));
    return m->number;
}

static void copy_node(Member *m, NodeId id)
{
    const Node *n = &m->from.node.at[id];
    ValueId *in = arena_array(m->a, ValueId, n->nin + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = m->forms[n->in[i]].whole;
    m->plan->read[id] = in;
    ValueId first = graph_node(m->g, n->op, n->nin, in, n->attr);
    for (uint32_t i = 0; i < n->nout; i++)
        m->forms[n->out[i]].whole = graph_out(m->g, first, i);
}

static void spread_one(Member *m, NodeId id, const SpreadWay *w)
{
    const Node *n = &m->from.node.at[id];
    ValueId *in = arena_array(m->a, ValueId, n->nin + 1),
            *out = arena_array(m->a, ValueId, n->nout + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = form(m, n->in[i], w->in[i]);
    if (!m->plan->read[id])
        m->plan->read[id] = in;
    Spread s = {.whole = &m->from,
                .node = id,
                .way = w,
                .chunks = m->plan->chunks,
                .g = m->g,
                .in = in,
                .out = out,
                .number = number(m)};
    spread_node(&s);
    for (uint32_t i = 0; i < n->nout; i++) {
        Forms *f = &m->forms[n->out[i]];
        if (w->out[i].dim >= 0)
            divide_as(m, f, w->out[i], out[i]);
        else
            *(w->out[i].dim == PLACE_P ? &f->partial : &f->whole) = out[i];
    }
}

static void spread_nodes(Member *m, const bool *live)
{
    for (NodeId id = 0; id < m->from.node.n; id++) {
        const Node *n = &m->from.node.at[id];
        m->plan->first[id] = m->g->node.n;
        if (!live[id])
            continue;
        m->g->cur_origin = n->origin;
        for (uint32_t i = 0; i < n->nin; i++)
            if (m->from.value.at[n->in[i]].kind == V_PARAM)
                settle(m, n->in[i]);
        if (m->plan->way[id])
            spread_one(m, id, m->plan->way[id]);
        else
            copy_node(m, id);
        for (uint32_t i = 0; i < n->nout; i++) {
            settle(m, n->out[i]);
            name_value(m, n->out[i]);
        }
    }
    m->plan->first[m->from.node.n] = m->g->node.n;
}

/* ---- inputs, constants, parameters ---------------------------------------------------------- */

static void add_param(Member *m, ValueId v)
{
    uint32_t number = m->from.value.at[v].param;
    Param whole = m->from.param.at[number];
    Place at = m->plan->param[number];
    if (at.dim < 0) {
        m->forms[v].whole = graph_param(m->g, whole);
        return;
    }
    Param p = whole;
    p.divided = true;
    p.whole = *param_whole(&whole);
    p.shape = place_shape(&whole.shape, at, m->plan->chunks);
    p.box.along[m->plan->axis] =
        (Chunk){.axis = at.dim, .pieces = 1, .chunks = m->plan->chunks, .groups = (int)at.groups};
    divide_as(m, &m->forms[v], at, graph_param(m->g, p));
}

/* ---- the graph ------------------------------------------------------------------------------ */

static void need(Member *m, ValueId v, Place p)
{
    Forms *f = &m->forms[v];
    bool known = false;
    if (p.dim == PLACE_R)
        f->whole_needed = true;
    for (uint32_t i = 0; i < f->needed.n; i++)
        known |= place_is(f->needed.at[i], p);
    if (p.dim >= 0 && !known)
        vec_push(m->a, &f->needed, p);
}

static void find_needs(Member *m, const bool *live, const Ids *results)
{
    for (NodeId id = 0; id < m->from.node.n; id++) {
        const Node *n = &m->from.node.at[id];
        const SpreadWay *w = m->plan->way[id];
        for (uint32_t i = 0; live[id] && i < n->nin; i++)
            need(m, n->in[i], w ? w->in[i] : place_r());
    }
    for (uint32_t i = 0; i < results->n; i++)
        need(m, results->at[i], place_r());
}

/* By value, what has the whole of it. */
static const ValueId *wholes(Member *m)
{
    ValueId *is = arena_array(m->a, ValueId, m->from.value.n + 1);
    for (ValueId v = 0; v < m->from.value.n; v++)
        is[v] = m->forms[v].whole;
    return is;
}

/* What is in the plan of the values and nodes of the graph as it was. */
static void note_became(Member *m)
{
    Graph *of = arena_new_of(m->a, Graph);
    *of = m->from;
    m->plan->of = of;
    for (ValueId v = 0; v < of->value.n; v++) {
        const Forms *f = &m->forms[v];
        m->plan->became[v] = f->partial != NONE                          ? f->partial
                             : m->plan->made[v].dim >= 0 && f->divided.n ? f->divided.at[0].part
                                                                         : f->whole;
    }
}

void mesh_member(Graph *g, MeshPlan *plan, uint32_t n, ValueId *const *keep)
{
    Arena *a = g->arena;
    Ids results = mesh_results(g, n, keep);
    const bool *live = graph_live(g, a, 0, &results, 1);
    Member m = {.g = g,
                .a = a,
                .plan = plan,
                .active = flow_active(g, a, n ? *keep[0] : NONE),
                .of_params = flow_of_params(g, a),
                .number = NONE};
    m.from = mesh_renew(g);
    plan->became = arena_array(a, ValueId, m.from.value.n + 1);
    plan->read = arena_array(a, const ValueId *, m.from.node.n + 1);
    plan->first = arena_array(a, NodeId, m.from.node.n + 1);
    g->cur_mesh = plan->axis;
    g->mesh[plan->axis].members = g->mesh[plan->axis].chunks = plan->chunks;
    g->gathers_again |= plan->gathers_again;
    m.forms = arena_array(a, Forms, m.from.value.n + 1);
    for (ValueId v = 0; v < m.from.value.n; v++)
        m.forms[v] = (Forms){.whole = NONE, .varied = NONE, .partial = NONE};
    find_needs(&m, live, &results);
    uint32_t *param = arena_array(a, uint32_t, m.from.param.n + 1);
    for (uint32_t i = 0; i < m.from.param.n; i++) {
        param[i] = i;
        add_param(&m, m.from.param.at[i].value);
    }
    for (ValueId v = 0; v < m.from.value.n; v++)
        m.forms[v].whole =
            m.from.value.at[v].kind == V_PARAM ? m.forms[v].whole : mesh_leaf(g, &m.from, v);
    spread_nodes(&m, live);
    note_became(&m);
    mesh_renewed(g, &m.from, wholes(&m), param, n, keep);
}
