/*
 * member.c - the graph of one member of the tensor axis.
 *
 * In: a whole graph and the plan of search.c.  Out: the same Graph with new nodes and values, whose
 * shapes are a member's own; model inputs, outputs and the loss are whole.  A node with a way
 * becomes one for each chunk of the member (ir/facts/spread.h).  A value that is read in another
 * form than it is made in is brought into it once: gathered or summed where it is made, so that a
 * cut behind it sends what all members have; varied or divided where it is read.
 */
#include <string.h>

#include "mesh.h"

/* The value of the whole graph `is`, in the forms that it has in a member's: NONE and NULL, not
 * yet. */
typedef struct {
    Place at;
    ValueId *piece;
} Divided;
typedef struct {
    ValueId whole, *varied, *partial;
    VEC(Divided) divided;
    bool whole_needed;
    VEC(Place) needed; /* divided so, by who reads it */
} Forms;

typedef struct {
    Graph *g;
    Graph from;
    Arena *a;
    const MeshPlan *plan;
    uint32_t pieces;
    const bool *active; /* values to which a gradient comes back */
    const bool *of_params;
    Forms *forms;    /* by value of `from` */
    ValueId *number; /* of each piece's chunk; NULL: not needed so far */
} Member;

static ValueId *new_pieces(const Member *m) { return arena_array(m->a, ValueId, m->pieces + 1); }

/* ---- from one form to another --------------------------------------------------------------- */

/* With a dimension that is divided in groups, those stand in one before it. */
static ValueId apart(Member *m, ValueId x, Place p)
{
    Shape s = val(m->g, x)->shape, t = s;
    if (p.groups == 1)
        return x;
    t.rank++;
    for (int i = s.rank; i > p.dim + 1; i--)
        t.d[i] = s.d[i - 1];
    t.d[p.dim] = p.groups;
    t.d[p.dim + 1] = s.d[p.dim] / p.groups;
    return g_reshape(m->g, x, &t);
}

static ValueId together(Member *m, ValueId x, Place p)
{
    Shape s = val(m->g, x)->shape, t = s;
    if (p.groups == 1)
        return x;
    t.rank--;
    t.d[p.dim] = s.d[p.dim] * s.d[p.dim + 1];
    for (int i = p.dim + 1; i < t.rank; i++)
        t.d[i] = s.d[i + 1];
    return g_reshape(m->g, x, &t);
}

/* Dimension p.dim of x as pairs of groups and, in each, the parts of the chunks. */
static ValueId in_parts(Member *m, ValueId x, Place p)
{
    const Shape s = val(m->g, x)->shape;
    const int64_t pairs = p.groups / 2,
                  size[] = {pairs, 2, m->g->chunks, s.d[p.dim] / p.groups / m->g->chunks};
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
    const Shape one = val(m->g, half)->shape;
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK];
    for (int i = 0; i < one.rank; i++)
        step[i] = i == p.dim + 2 ? -1 : 1;
    start[p.dim + 2] = m->g->chunks - 1;
    const ValueId back = g_slice(m->g, graph_out(m->g, half, 1), start, one.d, step);
    return g_reshape(m->g, g_concat(m->g, 2, (ValueId[]){half, back}, p.dim + 1), &s);
}

static int axis_of(Place p) { return p.groups > 1 ? p.dim + 1 : p.dim; }

/* Of a dimension that the chunks do not divide: with the zeros behind its end. */
static ValueId with_end(Member *m, ValueId x, Place p)
{
    int64_t none[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    Shape s = val(m->g, x)->shape, part = place_shape(&s, p, m->g->chunks);
    end[p.dim] = part.d[p.dim] * m->g->chunks - s.d[p.dim];
    return end[p.dim] ? g_pad(m->g, x, none, end, PAD_CONSTANT, 0) : x;
}

/* Without: it has n elements. */
static ValueId without_end(Member *m, ValueId x, Place p, int64_t n)
{
    return val(m->g, x)->shape.d[p.dim] == n ? x : g_slice_axis(m->g, x, p.dim, 0, n);
}

/* A member's part of x, in its pieces. */
static ValueId *cut(Member *m, ValueId x, Place p)
{
    Graph *g = m->g;
    ValueId *piece = new_pieces(m);
    int axis = axis_of(p);
    int64_t *size = arena_array(m->a, int64_t, m->pieces);
    for (uint32_t k = 0; k < m->pieces; k++)
        size[k] = val(g, x)->shape.d[axis] / m->pieces;
    ValueId first = m->pieces == 1 ? x : g_split(g, x, axis, (int)m->pieces, size);
    for (uint32_t k = 0; k < m->pieces; k++)
        piece[k] = together(m, graph_out(g, first, k), p);
    return piece;
}

static ValueId *shard(Member *m, ValueId whole, Place p)
{
    ValueId x = apart(m, turned(m, with_end(m, whole, p), p), p);
    return cut(m, g_shard(m->g, x, axis_of(p)), p);
}

/* A member's pieces one after the other. */
static ValueId join(Member *m, const ValueId *piece, Place p)
{
    ValueId *x = new_pieces(m);
    for (uint32_t k = 0; k < m->pieces; k++)
        x[k] = apart(m, piece[k], p);
    return m->pieces == 1 ? x[0] : g_concat(m->g, m->pieces, x, axis_of(p));
}

/* n: elements of the whole along the dimension */
static ValueId gather(Member *m, const ValueId *piece, Place p, int64_t n)
{
    ValueId x = together(m, g_all_gather(m->g, join(m, piece, p), axis_of(p)), p);
    return without_end(m, turned(m, x, p), p, n);
}

static ValueId sum(Member *m, const ValueId *partial, Dtype t)
{
    ValueId x = g_all_reduce(m->g, g_tree_sum(m->g, m->pieces, partial));
    return val(m->g, x)->dtype == t ? x : g_cast(m->g, x, t);
}

static ValueId *sum_shard(Member *m, const ValueId *partial, Place p, Dtype t)
{
    ValueId x = with_end(m, g_tree_sum(m->g, m->pieces, partial), p);
    x = apart(m, turned(m, x, p), p);
    x = g_reduce_scatter(m->g, x, axis_of(p));
    return cut(m, val(m->g, x)->dtype == t ? x : g_cast(m->g, x, t), p);
}

/* Divided along another dimension; n: elements along the first one. */
static ValueId *exchange(Member *m, const ValueId *piece, Place from, Place to, int64_t n)
{
    if (from.groups > 1 || to.groups > 1 || from.dim == to.dim)
        return shard(m, gather(m, piece, from, n), to);
    ValueId x = with_end(m, join(m, piece, from), to);
    return cut(m, without_end(m, g_all_to_all(m->g, x, from.dim, to.dim), from, n), to);
}

/* ---- forms of a value ----------------------------------------------------------------------- */

static ValueId *divided_as(const Forms *f, Place p)
{
    for (uint32_t i = 0; i < f->divided.n; i++)
        if (place_is(f->divided.at[i].at, p))
            return f->divided.at[i].piece;
    return NULL;
}

static ValueId *divide_as(Member *m, Forms *f, Place p, ValueId *piece)
{
    vec_push(m->a, &f->divided, ((Divided){p, piece}));
    return piece;
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
        f->whole = f->partial ? sum(m, f->partial, t) : gather(m, made.piece, made.at, n);
    for (uint32_t i = 0; i < f->needed.n && f->whole == NONE; i++) {
        Place p = f->needed.at[i];
        if (!divided_as(f, p))
            divide_as(m, f, p,
                      f->partial ? sum_shard(m, f->partial, p, t)
                                 : exchange(m, made.piece, made.at, p, n));
    }
}

static void spread_one(Member *m, NodeId id, const SpreadWay *w);

/* A part of what all have: its own elements alone are computed where it is elementwise and has no
 * gradient (a mask, of classes by their numbers), else they are taken. */
static ValueId *part_of(Member *m, ValueId v, Place p)
{
    const Value *x = &m->from.value.at[v];
    const SpreadOf of = {.g = &m->from, .chunks = m->g->chunks, .uneven = true};
    SpreadWays ways = {0};
    if (x->kind == V_NODE && !m->active[v] && op_is_map(m->from.node.at[x->node].op))
        spread_ways_at(&of, x->node, m->from.node.at[x->node].nin + x->out, p, m->a, &ways);
    if (ways.n)
        spread_one(m, x->node, &ways.at[0]);
    else
        divide_as(m, &m->forms[v], p, shard(m, m->forms[v].whole, p));
    return divided_as(&m->forms[v], p);
}

static ValueId *form(Member *m, ValueId v, Place p);

/* What all have, for the use of each piece: its gradient is the sum of theirs. */
static ValueId *varied(Member *m, ValueId v)
{
    const Forms *f = &m->forms[v];
    bool vary = m->active[v] && (m->pieces > 1 || m->g->tensor > 1);
    ValueId *piece = new_pieces(m);
    if (vary && mesh_made_again(&m->from, m->of_params, v) &&
        !m->plan->way[m->from.value.at[v].node]) {
        const Node *n = &m->from.node.at[m->from.value.at[v].node];
        ValueId *in = arena_array(m->a, ValueId, n->nin + 1);
        for (uint32_t k = 0; k < m->pieces; k++) {
            for (uint32_t i = 0; i < n->nin; i++)
                in[i] = form(m, n->in[i], place_r())[k];
            piece[k] = graph_node(m->g, n->op, n->nin, in, n->attr);
        }
        return piece;
    }
    ValueId first = vary ? g_vary(m->g, f->whole, (int)m->pieces) : f->whole;
    for (uint32_t k = 0; k < m->pieces; k++)
        piece[k] = vary ? graph_out(m->g, first, k) : first;
    return piece;
}

/* Where it is read: x for each piece. */
static ValueId *form(Member *m, ValueId v, Place p)
{
    Forms *f = &m->forms[v];
    if (p.dim == PLACE_P)
        return f->partial;
    if (p.dim >= 0) {
        ValueId *piece = divided_as(f, p);
        return piece ? piece : part_of(m, v, p);
    }
    if (!f->varied)
        f->varied = varied(m, v);
    return f->varied;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

/* Pieces are called NAME[k]; who has the whole of it, or its only piece, is called NAME. */
static void name_pieces(Member *m, ValueId v, const ValueId *piece)
{
    const Value *old = &m->from.value.at[v];
    bool only = m->pieces == 1 && m->forms[v].whole == NONE;
    for (uint32_t k = 0; k < m->pieces && !old->made; k++) {
        char *name = arena_printf(m->a, only ? "%s" : "%s[%u]", old->name, k);
        if (strmap_get(&m->g->by_name, name) == NONE)
            graph_rename(m->g, piece[k], name);
    }
}

static void name_value(Member *m, ValueId v)
{
    const Value *old = &m->from.value.at[v];
    const Forms *f = &m->forms[v];
    if (f->whole != NONE && !old->made && strmap_get(&m->g->by_name, old->name) == NONE)
        graph_rename(m->g, f->whole, old->name);
    if (f->divided.n)
        name_pieces(m, v, f->divided.at[0].piece);
}

/* The number of each piece's chunk: the member's part of 0, 1, 2, ... */
static const ValueId *numbers(Member *m)
{
    if (!m->number) {
        m->number = shard(m, g_iota(m->g, DT_I64, 1, 0, m->g->chunks), place_s(0, 1));
    }
    return m->number;
}

static void copy_node(Member *m, NodeId id)
{
    const Node *n = &m->from.node.at[id];
    ValueId *in = arena_array(m->a, ValueId, n->nin + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = m->forms[n->in[i]].whole;
    ValueId first = graph_node(m->g, n->op, n->nin, in, n->attr);
    for (uint32_t i = 0; i < n->nout; i++)
        m->forms[n->out[i]].whole = graph_out(m->g, first, i);
}

static void spread_one(Member *m, NodeId id, const SpreadWay *w)
{
    const Node *n = &m->from.node.at[id];
    ValueId **in = arena_array(m->a, ValueId *, n->nin + 1),
            **out = arena_array(m->a, ValueId *, n->nout + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = form(m, n->in[i], w->in[i]);
    for (uint32_t i = 0; i < n->nout; i++)
        out[i] = new_pieces(m);
    Spread s = {.whole = &m->from,
                .node = id,
                .way = w,
                .g = m->g,
                .chunks = m->g->chunks,
                .pieces = (int)m->pieces,
                .in = in,
                .out = out,
                .number = numbers(m)};
    spread_node(&s);
    for (uint32_t i = 0; i < n->nout; i++) {
        Forms *f = &m->forms[n->out[i]];
        if (w->out[i].dim >= 0)
            divide_as(m, f, w->out[i], out[i]);
        else if (w->out[i].dim == PLACE_P)
            f->partial = out[i];
        else
            f->whole = out[i][0];
    }
}

static void spread_nodes(Member *m, const bool *live)
{
    for (NodeId id = 0; id < m->from.node.n; id++) {
        const Node *n = &m->from.node.at[id];
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
    ValueId *piece = new_pieces(m);
    for (uint32_t k = 0; k < m->pieces; k++) {
        Param p = whole;
        p.whole = whole.shape;
        p.shape = place_shape(&whole.shape, at, m->g->chunks);
        p.box = (Chunk){.axis = at.dim,
                        .piece = (int)k,
                        .pieces = (int)m->pieces,
                        .chunks = m->g->chunks,
                        .groups = (int)at.groups};
        piece[k] = graph_param(m->g, p);
    }
    divide_as(m, &m->forms[v], at, piece);
}

/* Values that no node makes, in their order.  By parameter of the whole graph, the first of its
 * pieces. */
static const uint32_t *add_values(Member *m)
{
    Graph *g = m->g;
    uint32_t *first = arena_array(m->a, uint32_t, m->from.param.n + 1);
    for (uint32_t i = 0; i < m->from.param.n; i++) {
        first[i] = g->param.n;
        add_param(m, m->from.param.at[i].value);
    }
    for (uint32_t i = 0; i < m->from.input.n; i++) {
        const Value *x = &m->from.value.at[m->from.input.at[i]];
        m->forms[m->from.input.at[i]].whole = graph_input(g, x->name, x->dtype, &x->shape);
    }
    for (ValueId v = 0; v < m->from.value.n; v++) {
        const Value *x = &m->from.value.at[v];
        Tensor t = {x->dtype, x->shape, (void *)(uintptr_t)x->data};
        if (x->kind == V_CONST)
            m->forms[v].whole = graph_const(g, x->made ? NULL : x->name, t);
    }
    return first;
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

/* The graph without values; `from` has them. */
static void begin(Member *m)
{
    Graph *g = m->g;
    m->from = *g;
    memset(&g->value, 0, sizeof g->value);
    memset(&g->node, 0, sizeof g->node);
    memset(&g->param, 0, sizeof g->param);
    memset(&g->input, 0, sizeof g->input);
    memset(&g->output, 0, sizeof g->output);
    memset(&g->update, 0, sizeof g->update);
    memset(&g->trip_bound, 0, sizeof g->trip_bound);
    memset(&g->undivided, 0, sizeof g->undivided);
    g->by_name = (StrMap){.arena = g->arena};
}

/* What else of the graph speaks of values and parameters. */
static void end(Member *m, const uint32_t *param)
{
    Graph *g = m->g;
    for (uint32_t i = 0; i < m->from.output.n; i++)
        vec_push(g->arena, &g->output, m->forms[m->from.output.at[i]].whole);
    for (uint32_t i = 0; i < m->from.update.n; i++) {
        StatUpdate u = m->from.update.at[i];
        vec_push(g->arena, &g->update, ((StatUpdate){param[u.param], m->forms[u.value].whole}));
    }
    for (uint32_t i = 0; i < g->array.n; i++)
        if (g->array.at[i].param != NONE)
            g->array.at[i].param = param[g->array.at[i].param];
}

void mesh_member(Graph *g, const MeshPlan *plan, uint32_t n, ValueId *const *keep)
{
    Arena *a = g->arena;
    ValueId loss = n ? *keep[0] : NONE;
    Ids results = graph_results(g, a);
    for (uint32_t i = 0; i < n; i++)
        if (*keep[i] != NONE)
            vec_push(a, &results, *keep[i]);
    const bool *live = graph_live(g, a, 0, &results, 1);
    Member m = {.g = g,
                .a = a,
                .plan = plan,
                .pieces = (uint32_t)(plan->chunks / plan->tensor),
                .active = mesh_active(g, a, loss),
                .of_params = flow_of_params(g, a)};
    begin(&m);
    g->tensor = plan->tensor;
    g->chunks = plan->chunks;
    g->gathers_again = plan->gathers_again;
    m.forms = arena_array(a, Forms, m.from.value.n + 1);
    for (ValueId v = 0; v < m.from.value.n; v++)
        m.forms[v].whole = NONE;
    find_needs(&m, live, &results);
    const uint32_t *param = add_values(&m);
    spread_nodes(&m, live);
    end(&m, param);
    for (uint32_t i = 0; i < n; i++)
        if (*keep[i] != NONE)
            *keep[i] = m.forms[*keep[i]].whole;
}
