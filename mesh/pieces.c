/*
 * pieces.c - the chunks of a member.
 *
 * In: the graph of one chunk, as member.c leaves it along each axis: of as many members as there
 * are chunks.  Out: that of one of T members, who computes C / T neighbouring chunks of each axis,
 * its pieces: a node once for each piece along the axes on which its operands differ, and once
 * where they do not.  What C members did together the pieces of a member do first, and then T
 * members. So the plan, and the order of all sums, are the same for any T.
 */
#include "renew.h"

typedef struct {
    Graph *g;
    Graph from;
    Arena *a;
    uint32_t pieces[MESH_AXES], step[MESH_AXES],
        all;           /* piece i_x along each axis is sum i_x step_x */
    uint32_t *differs; /* by value: bit x, the pieces along axis x have others */
    ValueId **at;      /* by value, by piece */
} Pieces;

static uint32_t along(const Pieces *p, uint32_t k, int x) { return k / p->step[x] % p->pieces[x]; }

/* Piece k without what it is along the axes on which nothing differs: who has the value. */
static uint32_t owner(const Pieces *p, uint32_t k, uint32_t differs)
{
    for (int x = 0; x < MESH_AXES; x++)
        if (!(differs >> x & 1))
            k -= along(p, k, x) * p->step[x];
    return k;
}

static uint32_t differing(const Pieces *p, const Chunks *parts)
{
    uint32_t bits = 0;
    for (int x = 0; x < MESH_AXES && parts; x++)
        bits |= (uint32_t)(parts->along[x].axis >= 0 && p->pieces[x] > 1) << x;
    return bits;
}

static Chunks parts_of(const Pieces *p, uint32_t k, const Chunks *whole)
{
    Chunks own = *whole;
    for (int x = 0; x < MESH_AXES; x++)
        if (own.along[x].axis >= 0) {
            own.along[x].piece = (int)along(p, k, x);
            own.along[x].pieces = (int)p->pieces[x];
        }
    return own;
}

/* The value as its pieces that have their own; the others have those. */
static void made(Pieces *p, ValueId v, uint32_t differs)
{
    p->differs[v] = differs;
    for (uint32_t k = 0; k < p->all; k++)
        p->at[v][k] = p->at[v][owner(p, k, differs)];
}

static ValueId *room(Pieces *p, ValueId v) { return p->at[v] = arena_array(p->a, ValueId, p->all); }

/* ---- together ------------------------------------------------------------------------------- */

/* x, of n parts along a dimension, as the pieces from k on along the axis. */
static void hand_out(Pieces *p, ValueId v, uint32_t k, int mesh, ValueId x, int axis)
{
    const uint32_t n = p->pieces[mesh];
    int64_t *size = arena_array(p->a, int64_t, n);
    for (uint32_t i = 0; i < n; i++)
        size[i] = val(p->g, x)->shape.d[axis] / n;
    const ValueId first = n == 1 ? x : g_split(p->g, x, axis, (int)n, size);
    for (uint32_t i = 0; i < n; i++)
        p->at[v][k + i * p->step[mesh]] = graph_out(p->g, first, i);
}

/* What the pieces from k on along the axis have of operand u becomes what they get. */
static void meet(Pieces *p, const Node *n, uint32_t k)
{
    Graph *g = p->g;
    const int mesh = n->attr.mesh, axis = (int)n->attr.axis;
    const ValueId v = n->out[0];
    const uint32_t pieces = p->pieces[mesh];
    ValueId *part = arena_array(p->a, ValueId, pieces);
    for (uint32_t i = 0; i < pieces; i++)
        part[i] = p->at[n->in[0]][k + i * p->step[mesh]];
    const bool sums = n->op == OP_AllReduce || n->op == OP_ReduceScatter,
               joins = n->op == OP_AllGather || n->op == OP_AllToAll;
    const ValueId own = sums                  ? g_tree_sum(g, pieces, part)
                        : joins && pieces > 1 ? g_concat(g, pieces, part, axis)
                                              : part[0];
    const ValueId met = n->op == OP_AllReduce ? g_all_reduce(g, own, val(&p->from, v)->dtype)
                                              : g_collective(g, n->op, own, n->attr);
    if (n->op == OP_AllReduce || n->op == OP_AllGather)
        p->at[v][k] = met;
    else
        hand_out(p, v, k, mesh, met, n->op == OP_AllToAll ? (int)n->attr.to_axis : axis);
}

static void vary(Pieces *p, const Node *n, uint32_t k)
{
    const uint32_t pieces = p->pieces[n->attr.mesh];
    const ValueId first = g_vary(p->g, p->at[n->in[0]][k], (int)pieces);
    for (uint32_t i = 0; i < pieces; i++)
        p->at[n->out[0]][k + i * p->step[n->attr.mesh]] =
            first == p->at[n->in[0]][k] ? first : graph_out(p->g, first, i);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void one(Pieces *p, const Node *n, uint32_t k)
{
    ValueId *in = arena_array(p->a, ValueId, n->nin + 1);
    Attr t = n->attr;
    Chunks own;
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = p->at[n->in[i]][k];
    if (t.piece) {
        own = parts_of(p, k, t.piece);
        t.piece = &own;
    }
    const ValueId first = graph_node(p->g, n->op, n->nin, in, t);
    for (uint32_t o = 0; o < n->nout; o++)
        p->at[n->out[o]][k] = graph_out(p->g, first, o);
}

/* Pieces are called NAME[0], NAME[1]. */
static void name_pieces(Pieces *p, ValueId v)
{
    const Value *old = val(&p->from, v);
    for (uint32_t k = 0; k < p->all && !old->made; k++) {
        const char *name = old->name;
        if (owner(p, k, p->differs[v]) != k)
            continue;
        for (int x = 0; x < MESH_AXES; x++)
            if (p->differs[v] >> x & 1)
                name = arena_printf(p->a, "%s[%u]", name, along(p, k, x));
        if (strmap_get(&p->g->by_name, name) == NONE)
            graph_rename(p->g, p->at[v][k], name);
    }
}

static void fold(Pieces *p, const Node *n)
{
    const bool varies = n->op == OP_Vary, meets = op_is_collective(n->op);
    const uint32_t axis = 1u << n->attr.mesh, several = p->pieces[n->attr.mesh] > 1 ? axis : 0;
    uint32_t differs = differing(p, n->attr.piece);
    p->g->cur_origin = n->origin;
    p->g->cur_mesh = (MeshAxis)n->attr.mesh;
    for (uint32_t i = 0; i < n->nin; i++)
        differs |= p->differs[n->in[i]];
    for (uint32_t o = 0; o < n->nout; o++)
        room(p, n->out[o]);
    const uint32_t others = varies || meets ? differs & ~axis : differs;
    for (uint32_t k = 0; k < p->all; k++) {
        if (owner(p, k, others) != k)
            continue;
        if (varies)
            vary(p, n, k);
        else if (meets)
            meet(p, n, k);
        else
            one(p, n, k);
    }
    if (varies || (meets && n->op != OP_AllReduce && n->op != OP_AllGather))
        differs = others | several;
    else
        differs = others;
    for (uint32_t o = 0; o < n->nout; o++) {
        made(p, n->out[o], differs);
        name_pieces(p, n->out[o]);
    }
}

/* ---- the graph ------------------------------------------------------------------------------ */

/* By parameter, the first of its pieces. */
static const uint32_t *add_leaves(Pieces *p)
{
    uint32_t *first = arena_array(p->a, uint32_t, p->from.param.n + 1);
    for (uint32_t i = 0; i < p->from.param.n; i++) {
        const Param *q = &p->from.param.at[i];
        const uint32_t differs = differing(p, &q->box);
        ValueId *at = room(p, q->value);
        first[i] = p->g->param.n;
        for (uint32_t k = 0; k < p->all; k++) {
            Param own = *q;
            own.box = parts_of(p, k, &q->box);
            if (owner(p, k, differs) == k)
                at[k] = graph_param(p->g, own);
        }
        made(p, q->value, differs);
    }
    for (ValueId v = 0; v < p->from.value.n; v++) {
        const ValueKind kind = val(&p->from, v)->kind;
        if (kind != V_INPUT && kind != V_CONST)
            continue;
        room(p, v)[0] = mesh_leaf(p->g, &p->from, v);
        made(p, v, 0);
    }
    return first;
}

void mesh_pieces(Graph *g, const MeshOptions *opt, uint32_t n, ValueId *const *keep)
{
    Pieces p = {.g = g, .a = g->arena, .all = 1};
    for (int x = 0; x < MESH_AXES; x++) {
        p.step[x] = p.all;
        p.pieces[x] = (uint32_t)(g->mesh[x].chunks > 1 ? g->mesh[x].chunks / opt->members[x] : 1);
        p.all *= p.pieces[x];
        g->mesh[x].members /= (int)p.pieces[x];
    }
    if (p.all == 1)
        return;
    p.from = mesh_renew(g);
    p.differs = arena_array(p.a, uint32_t, p.from.value.n + 1);
    p.at = arena_array(p.a, ValueId *, p.from.value.n + 1);
    const uint32_t *param = add_leaves(&p);
    for (NodeId id = 0; id < p.from.node.n; id++)
        fold(&p, &p.from.node.at[id]);
    ValueId *is = arena_array(p.a, ValueId, p.from.value.n + 1);
    for (ValueId v = 0; v < p.from.value.n; v++)
        is[v] = p.at[v] ? p.at[v][0] : NONE;
    mesh_renewed(g, &p.from, is, param, n, keep);
}
