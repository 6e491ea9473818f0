/*
 * members.h - a member's graph as all members along the tensor axis compute it: one copy of the values
 * for each, node by node in lockstep, what passes between them done by the evaluator's own
 * operations.  Sums are in the order of the tree that pp.h describes.
 */
#ifndef MEMBERS_H
#define MEMBERS_H

#include <string.h>

#include "ir/ir.h"
#include "oracle/oracle.h"

enum { MOST_MEMBERS = 16 };

/* A value as a tensor: what was computed, or the constant. */
static Tensor member_value(const Graph *g, const Tensor *at, ValueId v)
{
    Tensor t = at[v];
    if (t.data)
        return t;
    const Value *x = val(g, v);
    INSIST(x->kind == V_CONST);
    t = (Tensor){x->dtype, x->shape, NULL};
    memcpy(&t.data, &x->data, sizeof t.data);
    return t;
}

static Tensor members_joined(Arena *a, int members, const Tensor *part, int64_t axis)
{
    Tensor whole = part[0];
    whole.shape.d[axis] *= members;
    eval_node(a, OP_Concat, (uint32_t)members, part, &(Attr){.axis = axis}, 1, &whole);
    return whole;
}

static Tensor members_part(Arena *a, int members, int m, Tensor whole, int64_t axis)
{
    Tensor part = whole;
    int64_t start[MAX_RANK] = {0}, step[MAX_RANK];
    for (int d = 0; d < MAX_RANK; d++)
        step[d] = 1;
    part.shape.d[axis] /= members;
    start[axis] = m * part.shape.d[axis];
    const Attr at = {.n = part.shape.rank, .start = start, .size = part.shape.d, .step = step};
    eval_node(a, OP_Slice, 1, &whole, &at, 1, &part);
    return part;
}

/* Neighbours in pairs, level by level; one without another stays. */
static Tensor members_sum(Arena *a, int members, const Tensor *part)
{
    Tensor level[MOST_MEMBERS];
    memcpy(level, part, (size_t)members * sizeof *part);
    for (int n = members; n > 1; n = (n + 1) / 2)
        for (int i = 0; i < (n + 1) / 2; i++) {
            Tensor both[2] = {level[2 * i], level[2 * i + 1 < n ? 2 * i + 1 : 2 * i]};
            level[i] = (Tensor){both[0].dtype, both[0].shape, NULL};
            if (2 * i + 1 < n)
                eval_node(a, OP_Add, 2, both, &(Attr){0}, 1, &level[i]);
            else
                level[i] = both[0];
        }
    return level[0];
}

/* in, out: by member */
static void members_meet(Arena *a, int members, const Node *n, const Tensor *in, Tensor *out)
{
    const Attr *at = &n->attr;
    bool sums = n->op == OP_AllReduce || n->op == OP_ReduceScatter,
         joins = n->op == OP_AllGather || n->op == OP_AllToAll;
    Tensor all = sums    ? members_sum(a, members, in)
                 : joins ? members_joined(a, members, in, at->axis)
                         : in[0];
    for (int m = 0; m < members; m++)
        switch (n->op) {
        case OP_AllReduce:
        case OP_AllGather: out[m] = all; break;
        case OP_ReduceScatter: out[m] = members_part(a, members, m, all, at->axis); break;
        case OP_Shard: out[m] = members_part(a, members, m, in[m], at->axis); break;
        case OP_AllToAll: out[m] = members_part(a, members, m, all, at->to_axis); break;
        default: BUG("%s between members", op_name(n->op));
        }
}

/* at[m]: by value, of member m; the caller fills inputs and parameters (oracle_nodes). */
static inline void members_eval(const Graph *g, Arena *a, const NodeId *list, uint32_t n, Tensor **at)
{
    Tensor in[MOST_MEMBERS], out[MOST_MEMBERS];
    INSIST(g->mesh[MESH_TENSOR].members <= MOST_MEMBERS);
    for (uint32_t k = 0; k < n; k++) {
        const Node *x = &g->node.at[list[k]];
        bool meets = op_is_collective(x->op);
        for (int m = 0; m < g->mesh[MESH_TENSOR].members; m++)
            if (meets)
                in[m] = member_value(g, at[m], x->in[0]);
            else
                oracle_nodes(g, a, &list[k], 1, at[m]);
        if (meets)
            members_meet(a, g->mesh[MESH_TENSOR].members, x, in, out);
        for (int m = 0; m < g->mesh[MESH_TENSOR].members && meets; m++)
            at[m][x->out[0]] = out[m];
    }
}

#endif
