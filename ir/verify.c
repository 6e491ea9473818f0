/*
 * verify.c - what holds of every Graph.
 *
 * In: a graph.  Out: nothing, or BUG().  Of one member's graph also how values lie: along an axis
 * of the mesh all members have a value alike, or each has its own, a part or a term of a sum (the
 * types "invariant" and "varying" of jax.shard_map).  Own is what a parameter that is divided, a
 * Vary or a Shard, or an operand makes so, until a sum or a gather.
 */
#include "ir.h"

/* By value, bit x: members along axis x have each its own. */
static const uint32_t *own_along(const Graph *g, Arena *a)
{
    uint32_t *own = arena_array(a, uint32_t, g->value.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++)
        for (int x = 0; x < MESH_AXES; x++)
            own[g->param.at[i].value] |=
                (uint32_t)(g->param.at[i].divided && g->param.at[i].box.along[x].axis >= 0) << x;
    for (bool more = true; more;) { /* a node may stand before what it reads (Graph.scheduled) */
        more = false;
        for (NodeId id = 0; id < g->node.n; id++) {
            const Node *n = &g->node.at[id];
            const uint32_t axis = 1u << n->attr.mesh;
            uint32_t is = 0;
            for (uint32_t i = 0; i < n->nin; i++)
                is |= own[n->in[i]];
            for (int x = 0; x < MESH_AXES && n->attr.piece; x++)
                is |= (uint32_t)(n->attr.piece->along[x].axis >= 0) << x;
            if (n->op == OP_Count)
                is = 0; /* a number of the shape */
            else if (n->op == OP_AllReduce || n->op == OP_AllGather)
                is &= ~axis;
            else if (n->op == OP_Vary || op_is_collective(n->op))
                is |= axis;
            for (uint32_t o = 0; o < n->nout; o++) {
                more |= own[n->out[o]] != is;
                own[n->out[o]] = is;
            }
        }
    }
    return own;
}

static uint32_t divided_along(const Graph *g)
{
    uint32_t axes = 0;
    for (int x = 0; x < MESH_AXES; x++)
        axes |= (uint32_t)(g->mesh[x].members > 1) << x;
    return axes;
}

static void alike(const Graph *g, const uint32_t *own, uint32_t axes, ValueId v, const char *what)
{
    if (own[v] & axes)
        BUG("%s %s: each member has its own", what, val(g, v)->name);
}

/* What is divided, or varied for each, was alike; so is what leaves the graph. */
static void verify_places(const Graph *g)
{
    const uint32_t axes = divided_along(g);
    Arena *a = axes ? arena_within(g->arena) : NULL;
    const uint32_t *own = axes ? own_along(g, a) : NULL;
    for (NodeId id = 0; id < g->node.n && axes; id++) {
        const Node *n = &g->node.at[id];
        if (n->op == OP_Vary || n->op == OP_Shard)
            alike(g, own, axes & 1u << n->attr.mesh, n->in[0], op_name(n->op));
    }
    for (uint32_t i = 0; i < g->output.n && axes; i++)
        alike(g, own, axes, g->output.at[i], "output");
    for (uint32_t i = 0; i < g->update.n && axes; i++)
        if (!g->param.at[g->update.at[i].param].divided)
            alike(g, own, axes, g->update.at[i].value, "statistic");
    if (a)
        arena_free(a);
}

void graph_verify_forward(const Graph *g, const bool *active, ValueId loss)
{
    const uint32_t axes = divided_along(g);
    Arena *a = arena_within(g->arena);
    const uint32_t *own = own_along(g, a);
    if (loss != NONE)
        alike(g, own, axes, loss, "loss");
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        const uint32_t axis = axes & 1u << n->attr.mesh;
        uint32_t all = 0;
        for (uint32_t i = 0; i < n->nin; i++)
            all |= own[n->in[i]] & axes;
        if (op_is_collective(n->op) && n->op != OP_Shard && axis && !(all & axis))
            BUG("%s of %s, which all members have alike", op_name(n->op), val(g, n->in[0])->name);
        for (uint32_t i = 0; i < node_reads_training(n) && op_differentiable(n->op); i++)
            if (active[n->in[i]] && (own[n->in[i]] & axes) != all)
                BUG("node %u (%s): %s is alike and has a gradient, but is not varied", id,
                    op_name(n->op), val(g, n->in[i])->name);
    }
    arena_free(a);
}

void graph_verify(const Graph *g)
{
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        if (!x->name || strmap_get(&g->by_name, x->name) != v)
            BUG("value %u is not known by its name", v);
        if (x->kind == V_NODE && (x->node >= g->node.n || x->out >= g->node.at[x->node].nout ||
                                  g->node.at[x->node].out[x->out] != v))
            BUG("value %s is not an output of its node", x->name);
        if (x->kind == V_PARAM && (x->param >= g->param.n || g->param.at[x->param].value != v))
            BUG("value %s is not its parameter's", x->name);
        if (x->kind == V_CONST && !x->data && shape_elements(&x->shape) > 0)
            BUG("constant %s has no data", x->name);
    }
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        INSIST(op_takes(x->op, x->nin));
        for (uint32_t i = 0; i < x->nin; i++)
            INSIST(x->in[i] < g->value.n);
        if (x->origin >= g->origin.n)
            BUG("node %u has no origin", n);
        for (uint32_t i = 0; i < x->nin; i++)
            if (!g->scheduled && val(g, x->in[i])->kind == V_NODE && val(g, x->in[i])->node >= n)
                BUG("node %u (%s) reads what is made later", n, op_name(x->op));
    }
    for (uint32_t i = 0; i < g->output.n; i++)
        INSIST(g->output.at[i] < g->value.n);
    verify_places(g);
}
