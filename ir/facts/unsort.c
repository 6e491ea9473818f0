/*
 * unsort.c - rows that are sorted and put back.  In: a graph in which TopK orders all rows of a
 * microbatch, rows are gathered in that order, computed with, and gathered by the inverse of it, as
 * pack_padded_sequence(enforce_sorted=False) is exported.  Out: the same without any of it, if each
 * row is computed by itself: f(x[p])[p^-1] = f(x) where f is equivariant.
 *
 * What is computed with is taken as it is, and the analysis of rows (batch.c) has to find them in
 * every value between, and in the result where they are put back; no row may be made of others, nor
 * meet one that was not sorted, and constants must have equal ones; else the graph is as before.
 * Nothing between may be an output.
 */
#include "facts.h"

typedef struct {
    const Graph *g;
    Graph *twin; /* in which nothing is sorted */
    const Node *sort;
    ValueId *as;   /* by value: what it becomes, itself where it stays */
    bool *between; /* by value: its rows are sorted */
} Unsort;

static ValueId uncast(const Graph *g, ValueId v)
{
    for (const Node *n; (n = graph_made_by(g, v, OP_Cast)) != NULL && !dtype_is_float(n->attr.to);)
        v = n->in[0];
    return v;
}

/* All of a line as long as there are rows, in order. */
static bool sorts_rows(const Graph *g, const Node *n)
{
    const Shape *s = n->op == OP_TopK ? &val(g, n->in[0])->shape : NULL;
    return s && g->batch > 1 && s->rank == 1 && s->d[0] == g->batch && n->attr.k == g->batch;
}

static bool is_count(const Graph *g, ValueId v)
{
    int64_t *at, n, i = 0;
    if (!g_const_ints(g, v, g->arena, &at, &n) || n != g->batch)
        return false;
    while (i < n && at[i] == i)
        i++;
    return i == n;
}

/* The order's inverse: where each of 0, 1, ... stands in it. */
static bool is_inverse(const Unsort *u, ValueId v)
{
    const Graph *g = u->g;
    v = uncast(g, v);
    const Node *n = graph_made_by(g, v, OP_ScatterElements);
    if (n)
        return n->attr.reduction == SCATTER_NONE && val(g, v)->shape.rank == 1 &&
               val(g, v)->shape.d[0] == g->batch && uncast(g, n->in[1]) == u->sort->out[1] &&
               is_count(g, n->in[2]);
    n = graph_made_by(g, v, OP_TopK);
    return n && sorts_rows(g, n) && !n->attr.largest && v == n->out[1] &&
           uncast(g, n->in[0]) == u->sort->out[1];
}

/* Which values have sorted rows, and what they and those that are put back become; false: something
 * else is made of the order. */
static bool follow(Unsort *u)
{
    const Graph *g = u->g;
    ValueId order = u->sort->out[1];
    u->between[u->sort->out[0]] = true;
    u->as[u->sort->out[0]] = u->sort->in[0];
    bool back = false;
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        bool any = false;
        if (n == u->sort || n->nout == 0)
            continue;
        for (uint32_t k = 0; k < n->nin; k++)
            any |= u->between[n->in[k]];
        bool gather = n->op == OP_Gather && val(g, n->in[1])->shape.rank == 1;
        if (gather && uncast(g, n->in[1]) == order) {
            if (any)
                return false;
            u->between[n->out[0]] = true;
            u->as[n->out[0]] = n->in[0];
        } else if (gather && is_inverse(u, n->in[1])) {
            if (!u->between[n->in[0]])
                return false;
            u->as[n->out[0]] = n->in[0];
            back = true;
        } else if (is_inverse(u, n->out[n->nout - 1]) || uncast(g, n->out[0]) == order) {
            continue;
        } else {
            for (uint32_t k = 0; k < n->nin; k++)
                if (n->in[k] == order || (uncast(g, n->in[k]) == order) || is_inverse(u, n->in[k]))
                    return false;
            for (uint32_t k = 0; k < n->nout; k++)
                u->between[n->out[k]] = any;
        }
    }
    for (uint32_t i = 0; i < g->output.n; i++)
        if (u->between[g->output.at[i]] || uncast(g, g->output.at[i]) == order)
            return false;
    return back;
}

static ValueId meant(const Unsort *u, ValueId v)
{
    while (u->as[v] != v)
        v = u->as[v];
    return v;
}

/* Has the operand rows, which stand as they stood before? */
static bool is_unsorted(const Unsort *u, ValueId was)
{
    const Value *x = val(u->twin, meant(u, was));
    return !u->between[was] && x->batch >= 0 &&
           !(x->kind == V_CONST && const_slices_equal(x, x->batch));
}

/* Is a value between made of rows that are each computed by itself? */
static bool is_by_rows(const Unsort *u, const Node *n)
{
    for (uint32_t k = 0; k < n->nout; k++)
        if (val(u->twin, n->out[k])->batch < 0)
            return false;
    for (uint32_t k = 0; k < n->nin; k++)
        if (is_unsorted(u, n->in[k]))
            return false;
    return true;
}

static bool mixes_rows(const Unsort *u, const BatchNotes *notes)
{
    for (uint32_t i = 0; i < notes->mixes_at.n; i++)
        if (u->between[u->twin->node.at[notes->mixes_at.at[i]].out[0]])
            return true;
    return false;
}

/* Is every row between computed by itself? */
static bool by_rows(const Unsort *u, const BatchOptions *opt)
{
    const Graph *g = u->g;
    BatchNotes notes = {.target = NONE, .loss = NONE};
    batch_analyse(u->twin, 0, opt, &notes);
    if (mixes_rows(u, &notes))
        return false;
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        const ValueId v = n->nout ? n->out[0] : NONE;
        if (v == NONE)
            continue;
        if (u->between[v] && u->as[v] == v && !is_by_rows(u, n))
            return false;
        if (u->as[v] != v && n->op == OP_Gather &&
            val(u->twin, meant(u, v))->batch != n->attr.axis)
            return false;
    }
    return val(u->twin, u->sort->in[0])->batch == 0;
}

static void replace(const Unsort *u, Graph *g)
{
    for (NodeId i = 0; i < g->node.n; i++)
        for (uint32_t k = 0; k < g->node.at[i].nin; k++)
            g->node.at[i].in[k] = meant(u, g->node.at[i].in[k]);
    for (uint32_t i = 0; i < g->output.n; i++)
        g->output.at[i] = meant(u, g->output.at[i]);
}

void graph_unsort(Graph *g, const BatchOptions *opt)
{
    for (NodeId i = 0; i < g->node.n; i++) {
        if (!sorts_rows(g, &g->node.at[i]))
            continue;
        Unsort u = {.g = g, .sort = &g->node.at[i]};
        u.as = arena_array(g->arena, ValueId, g->value.n);
        u.between = arena_array(g->arena, bool, g->value.n);
        for (ValueId v = 0; v < g->value.n; v++)
            u.as[v] = v;
        if (!follow(&u))
            continue;
        u.twin = graph_twin(g, g->arena);
        replace(&u, u.twin);
        if (by_rows(&u, opt))
            replace(&u, g);
    }
}
