/*
 * alike.c - are two values computed in the same way?  In: two values.  Out: whether the same
 * operations, with the same attributes, of the same constants and inputs make both; which
 * parameters they take may differ, and is told.  Noise is drawn for each node by itself: its key
 * is an attribute.
 */
#include "state.h"

enum { DEEPEST = 4000 };

static bool alike(const Graph *g, Alike *a, ValueId x, ValueId y, int depth)
{
    const Value *p = val(g, x), *q = val(g, y);
    uint64_t key = (uint64_t)x << 32 | y;
    if (x == y || idmap_get(&a->known, key) != NONE)
        return true;
    if (depth == 0 || !value_alike(g, x, y, true))
        return false;
    a->other_parameters |= p->kind == V_PARAM;
    if (p->kind != V_NODE)
        return p->kind == V_PARAM || p->kind == V_CONST;
    const Node *m = &g->node.at[p->node], *n = &g->node.at[q->node];
    for (uint32_t i = 0; i < m->nin; i++)
        if (!alike(g, a, m->in[i], n->in[i], depth - 1))
            return false;
    *idmap_at(g->arena, &a->known, key) = 1;
    return true;
}

bool import_alike(const Graph *g, Alike *a, ValueId x, ValueId y)
{
    return alike(g, a, x, y, DEEPEST);
}
