/*
 * fuse.c - groups of nodes that become one kernel.  In: a function's nodes in order.  Out: groups
 * and their order.
 *
 * Each node joins a group that makes what it reads, or one that reads the same; otherwise it opens
 * a group.  It may join where its space can be laid onto the group's (join.c) and no path leaves
 * the group and comes back (order.c).  When every node has its group, groups become one where they
 * can (merge.c).  Fusing decides nothing about results.
 */
#include "fuse.h"

static uint32_t open_group(Func *f, Group k, NodeId id)
{
    vec_push(f->fuse->a, &f->group, k);
    uint32_t g = f->group.n - 1;
    Ids need = {0};
    order_open(f, g);
    order_needs(f, id, NONE, NULL, &need);
    order_add(f, g, &need);
    const Node *n = &f->g->node.at[id];
    for (uint32_t i = 0; i < n->nout; i++)
        f->group_of.at[n->out[i]] = g;
    return g;
}

static bool try_group(Func *f, uint32_t g, NodeId id, bool siblings)
{
    Ids need = {0};
    const Node *n = &f->g->node.at[id];
    if (f->group.at[g].kind != G_NEST || !order_needs(f, id, g, NULL, &need) ||
        !order_acyclic(f, g, &need))
        return false;
    /* a table made in the group is out of reach */
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && cg_reads_table(n, i) &&
            f->group_of.at[cg_ref(f, n->in[i])->root] == g)
            return false;
    Group k = f->group.at[g];
    if (!join_node(f, &k, id, siblings))
        return false;
    join_keep(f, g, &k);
    order_add(f, g, &need);
    f->group_of.at[n->out[0]] = g;
    return true;
}

static bool alone(const Func *f, NodeId id)
{
    const Node *n = &f->g->node.at[id];
    return n->op == OP_Count || (cg_is_copy(n) && n->attr.alone) ||
           (cg_is_reduce(n->op) && cg_reduces_columns(f, n));
}

static void visit(Func *f, NodeId id, Ids *loader)
{
    const Node *n = &f->g->node.at[id];
    if (!alone(f, id)) {
        Ids tried = {0};
        for (int round = 0; round < 2; round++)
            for (uint32_t i = 0; i < n->nin; i++) {
                if (n->in[i] == NONE)
                    continue;
                ValueId root = cg_ref(f, n->in[i])->root;
                uint32_t g = round == 0         ? f->group_of.at[root]
                             : root < loader->n ? loader->at[root]
                                                : NONE;
                if (g == NONE || ids_have(&tried, g * 2 + (uint32_t)round))
                    continue;
                vec_push(f->fuse->a, &tried, g * 2 + (uint32_t)round);
                if (f->group.at[g].mode != NEST_COLUMN && try_group(f, g, id, round == 1))
                    return;
            }
    }
    uint32_t g = open_group(f, join_new(f, id), id);
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || alone(f, id))
            continue;
        ValueId root = cg_ref(f, n->in[i])->root;
        while (loader->n <= root)
            vec_push(f->fuse->a, loader, NONE);
        loader->at[root] = g;
    }
}

/* The lists that later passes ask for, as long as they are. */
static void keep_members(Func *f, Group *k)
{
    Member *member = arena_array(f->a, Member, k->member.n);
    for (uint32_t i = 0; i < k->member.n; i++) {
        const Member *x = &k->member.at[i];
        Piece *piece = arena_array(f->a, Piece, x->np);
        for (int p = 0; p < x->np; p++)
            piece[p] = x->piece[p];
        member[i] = (Member){x->node, x->np, piece};
    }
    k->member.at = member;
    k->member.cap = k->member.n;
    k->known = (Knowns){0};
    k->dep = (Ids){0};
}

static void keep_groups(Func *f)
{
    Group *group = arena_array(f->a, Group, f->group.n);
    for (uint32_t g = 0; g < f->group.n; g++) {
        group[g] = f->group.at[g];
        keep_members(f, &group[g]);
    }
    f->group.at = group;
    f->group.cap = f->group.n;
}

void cg_fuse(Func *f)
{
    Ids loader = {0};
    cg_track(f);
    Fuse fuse = {.a = arena_within(f->scratch)};
    f->fuse = &fuse;
    order_begin(f);
    for (uint32_t i = 0; i < f->node.n; i++) {
        NodeId id = f->node.at[i];
        const Node *n = &f->g->node.at[id];
        for (uint32_t o = 0; o < n->nout; o++)
            cg_ref(f, n->out[o]);
        if (cg_is_view(f, id))
            continue;
        if (cg_fusable(n)) {
            visit(f, id, &loader);
            continue;
        }
        Group k = {.kind = n->op == OP_Concat ? G_NONE : G_CALL};
        vec_push(f->fuse->a, &k.member, (Member){.node = id});
        open_group(f, k, id);
    }
    fuse_merge(f);
    keep_groups(f);
    arena_free(fuse.a);
    f->fuse = NULL;
}
