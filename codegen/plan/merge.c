/*
 * merge.c - what follows when every node has its group: groups that read one another or the same
 * become one, groups compute themselves what costs no more than reading it, and the final order.
 * In: groups and their dependencies.  Out: the groups in the order of execution, and which values
 * must be in memory.
 */
#include <string.h>

#include "fuse.h"

/* Members of a group of columns that computes its operand; operations from a value to one that is
   thin */
enum { MOST_OF_COLUMNS = 12, THIN = 4 };

/* ---- what must be in memory ------------------------------------------------------------------ */

static bool leaves_home(const Func *f, ValueId v)
{
    const Ref *r = f->home.at[v];
    return r && (f->buf.at[r->buf].cls != BUF_WORK || f->buf.at[r->buf].value != v);
}

static void need_value(Func *f, bool *needed, const Group *k, ValueId v)
{
    ValueId root = cg_ref(f, v)->root;
    if (f->def.at[root] != NONE && !(k && join_makes(k, root)) && !(k && cg_inline_leaf(f, root)))
        needed[root] = true;
}

/* Not as an operand of a nest that could compute it. */
static bool reads_memory(const Group *k, const Node *n, uint32_t i)
{
    return k->kind != G_NEST || cg_reads_table(n, i) || n->op == OP_GatherND;
}

/* Backwards over the groups: which values other groups read from memory.  skip_columns: as if those
 * did not exist. */
static bool *in_memory(Func *f, Arena *a, bool skip_columns)
{
    bool *needed = arena_array(a, bool, f->g->value.n + 1);
    for (ValueId v = 0; v < f->home.n; v++)
        needed[v] = leaves_home(f, v);
    for (uint32_t o = f->order.n; o-- > 0;) {
        const Group *k = &f->group.at[f->order.at[o]];
        if (skip_columns && k->kind == G_NEST && k->mode == NEST_COLUMN)
            continue;
        bool *live = arena_array(f->fuse->a, bool, k->member.n + 1);
        for (uint32_t i = k->member.n; i-- > 0;) {
            const Node *n = &f->g->node.at[k->member.at[i].node];
            if (k->kind != G_NEST) {
                live[i] = true;
            } else {
                live[i] |= needed[n->out[0]] && f->group_of.at[n->out[0]] == f->order.at[o];
                for (uint32_t j = i + 1; j < k->member.n; j++)
                    for (uint32_t x = 0; live[j] && x < f->g->node.at[k->member.at[j].node].nin;
                         x++) {
                        ValueId u = f->g->node.at[k->member.at[j].node].in[x];
                        live[i] |= u != NONE && cg_ref(f, u)->root == n->out[0];
                    }
            }
            for (uint32_t x = 0; live[i] && n->op != OP_Count && x < n->nin; x++)
                if (n->in[x] != NONE)
                    need_value(f, needed, reads_memory(k, n, x) ? NULL : k, n->in[x]);
        }
    }
    return needed;
}

/* ---- column reductions: they compute their operand themselves when that is cheap ------------- */

static bool cheap_map(const Node *n) { return op_is_quick(n->op) && n->nout == 1; }

/* Does a member read elements of this value other than the point's own? */
static bool reads_as_table(Func *f, const Group *k, ValueId root)
{
    for (uint32_t i = 0; i < k->member.n; i++) {
        const Node *n = &f->g->node.at[k->member.at[i].node];
        for (uint32_t j = 0; j < n->nin; j++)
            if (n->in[j] != NONE && (cg_reads_table(n, j) || n->op == OP_GatherND) &&
                cg_ref(f, n->in[j])->root == root)
                return true;
    }
    return false;
}

/* Everything the group reads of this value, it reads at the same points: the value may be made
 * inside. */
static bool one_view(Func *f, const Group *k, const Known *x)
{
    for (uint32_t i = 0; i < k->known.n; i++) {
        const Known *y = &k->known.at[i];
        if (y->root == x->root && (!lin_eq(y->off, x->off) ||
                                   memcmp(y->stride, x->stride, sizeof(Lin) * (size_t)k->nd) != 0))
            return false;
    }
    return !reads_as_table(f, k, x->root);
}

/* Puts the node that makes x before the group's members. */
static bool join_front(Func *f, Group *k, NodeId id, const Known *x)
{
    const Node *n = &f->g->node.at[id];
    Lin ext[MAX_RANK], stride[MAX_RANK];
    int rank = cg_space(f, n, ext);
    Ref r;
    lay_result(f, n, rank, ext, &r, stride);
    Known anchor = *x;
    return !anchor.internal && lin_eq(r.off, anchor.off) && one_view(f, k, &anchor) &&
           join_by(f, k, id, &anchor, stride, true);
}

/* The group computes what it reads itself, but for values that stay: up to so many members. */
static void absorb(Func *f, uint32_t g, const bool *stays, uint32_t most)
{
    for (uint32_t i = 0; i < f->group.at[g].known.n && f->group.at[g].member.n < most; i++) {
        Group k = f->group.at[g];
        const Known x = k.known.at[i];
        NodeId def = f->def.at[x.root];
        if (x.internal || def == NONE || stays[x.root] || !cheap_map(&f->g->node.at[def]) ||
            f->group.at[f->group_of.at[x.root]].kind != G_NEST)
            continue;
        Ids need = {0};
        if (!lay_full(x.stride, k.ext, k.nd) || !order_needs(f, def, g, NULL, &need) ||
            !order_acyclic(f, g, &need) || !join_front(f, &k, def, &x))
            continue;
        join_keep(f, g, &k);
        order_add(f, g, &need);
        i = NONE; /* its operands may be absorbed as well */
    }
}

/* Dependencies as the members have them: absorbing removes some. */
static void renew_deps(Func *f, uint32_t g)
{
    f->group.at[g].dep.n = 0;
    for (uint32_t i = 0; i < f->group.at[g].member.n; i++) {
        Ids need = {0};
        order_needs(f, f->group.at[g].member.at[i].node, g, &f->group.at[g], &need);
        order_add(f, g, &need);
    }
}

/* What the group reads from memory and now makes itself comes before its readers.  NEVER: it can't.
 */
typedef enum { NEVER, NOT_YET, TAKEN } Taken;

static Taken take_member(Func *f, Group *k, NodeId id, bool siblings)
{
    ValueId out = f->g->node.at[id].out[0];
    if (join_makes(k, out))
        return TAKEN;
    for (uint32_t j = 0; j < k->known.n; j++)
        if (k->known.at[j].root == out)
            return join_front(f, k, id, &k->known.at[j]) ? TAKEN : NEVER;
    return reads_as_table(f, k, out) ? NEVER : join_node(f, k, id, siblings) ? TAKEN : NOT_YET;
}

/* In their order; of what is made of a row's scalars, what only its readers lead to after them. */
static bool take_after(Func *f, Group *k, const Group *other, bool siblings)
{
    bool *in = arena_array(f->fuse->a, bool, other->member.n + 1);
    uint32_t left = other->member.n, before;
    do {
        before = left;
        for (uint32_t i = 0; i < other->member.n; i++) {
            Taken t = in[i] ? NOT_YET : take_member(f, k, other->member.at[i].node, siblings);
            if (t == NEVER)
                return false;
            in[i] |= t == TAKEN;
            left -= t == TAKEN;
        }
    } while (left > 0 && left < before && k->mode == NEST_ROW);
    return left == 0;
}

/* From the last member on, each before all: what the group reads is known to it.  What only others
 * read comes last. */
static bool take_before(Func *f, Group *k, const Group *other)
{
    bool *late = arena_array(f->fuse->a, bool, other->member.n + 1);
    for (uint32_t i = other->member.n; i-- > 0;) {
        NodeId id = other->member.at[i].node;
        ValueId out = f->g->node.at[id].out[0];
        bool joined = join_makes(k, out), read = false;
        for (uint32_t j = 0; !joined && j < k->known.n; j++)
            if (k->known.at[j].root == out) {
                read = true;
                joined = join_front(f, k, id, &k->known.at[j]);
            }
        if (!joined && (read || reads_as_table(f, k, out)))
            return false;
        late[i] = !joined;
    }
    for (uint32_t i = 0; i < other->member.n; i++)
        if (late[i] && !join_node(f, k, other->member.at[i].node, true))
            return false;
    return true;
}

/* Two groups over the same space become one: column reductions that read the same operand, or a
 * group and what reads it; and rows and what is made of their scalars. */
static bool merge(Func *f, uint32_t into, uint32_t from, bool siblings, bool front)
{
    Group k = f->group.at[into];
    const Group other = f->group.at[from];
    int64_t points = lay_points(f, other.ext, 0, other.nd);
    if (k.nd == 0 || (!front && points != lay_points(f, k.ext, 0, k.nd) &&
                      !(k.mode == NEST_ROW && points == lay_points(f, k.ext, 0, k.nouter))))
        return false;
    if (!order_may_merge(f, into, from))
        return false;
    /* order edges between the two must stay edges */
    for (uint32_t i = 0; i < other.member.n; i++)
        if (order_is_tied(f, other.member.at[i].node))
            return false;
    if (!(front ? take_before(f, &k, &other) : take_after(f, &k, &other, siblings)))
        return false;
    join_keep(f, into, &k);
    f->group.at[from].member.n = 0;
    order_merge(f, into, from);
    for (uint32_t i = 0; i < other.member.n; i++) {
        ValueId v = f->g->node.at[other.member.at[i].node].out[0];
        if (f->group_of.at[v] == from)
            f->group_of.at[v] = into;
    }
    return true;
}

/* Groups that were opened apart, because what joins them came later: a group joins one whose
 * results it reads. */
static void merge_readers(Func *f)
{
    for (uint32_t g = 0; g < f->group.n; g++) {
        Group *k = &f->group.at[g];
        if (k->kind != G_NEST || k->mode == NEST_COLUMN || k->member.n == 0)
            continue;
        Ids dep = {0};
        order_list(f, g, &dep);
        for (uint32_t i = dep.n; i-- > 0;) {
            const Group *d = &f->group.at[dep.at[i]];
            if (d->kind == G_NEST && d->mode != NEST_COLUMN && d->member.n > 0 &&
                d->member.n + f->group.at[g].member.n <= MOST_MEMBERS &&
                !merge(f, g, dep.at[i], false, true) && merge(f, dep.at[i], g, true, false))
                break;
        }
    }
}

/* ---- values that cost no more to compute than to read ---------------------------------------- */

/* Is operand i of the node read element by element where the result lies, or is it less: numbers
   that several points share?  Of the former the root, of the latter NONE; false: neither. */
static bool reads_thin(Func *f, const Node *n, uint32_t i, ValueId *root)
{
    Lin ext[MAX_RANK], stride[MAX_RANK], at[MAX_RANK];
    Ref r, result;
    int rank = cg_space(f, n, ext);
    *root = NONE;
    if (n->in[i] == NONE || cg_reads_table(n, i) || !cg_operand(f, n, i, &r, stride))
        return false;
    if (!lay_full(stride, ext, rank))
        return true;
    lay_result(f, n, rank, ext, &result, at);
    for (int d = 0; d < rank; d++)
        if (!lin_is(ext[d], 1) && !lin_eq(stride[d], at[d]))
            return false;
    *root = r.root;
    return dtype_size(val(f->g, n->in[i])->dtype) <= dtype_size(val(f->g, n->out[0])->dtype);
}

/* Is it made by quick operations, point by point, of one value that is there when the function
   begins, and of numbers that several points share?  Then a group that reads it can as well read
   that one: x - mean of a norm, by each of the kernels behind it. */
static bool is_thin(Func *f, ValueId root, int depth)
{
    NodeId def = f->def.at[root];
    if (def == NONE)
        return depth < THIN;
    const Node *n = &f->g->node.at[def];
    uint32_t wide = 0;
    bool thin = depth > 0 && cheap_map(n) && f->group.at[f->group_of.at[root]].kind == G_NEST;
    for (uint32_t i = 0; i < n->nin && thin; i++) {
        ValueId from;
        thin = reads_thin(f, n, i, &from) && (from == NONE || is_thin(f, from, depth - 1));
        wide += from != NONE;
    }
    return thin && wide == 1;
}

/* What is in memory anyway, since not a nest reads it, or one as a table, or it goes elsewhere, and
   what is not thin. */
static bool *find_staying(Func *f)
{
    bool *stays = arena_array(f->fuse->a, bool, f->g->value.n + 1);
    for (uint32_t g = 0; g < f->group.n; g++) {
        const Group *k = &f->group.at[g];
        for (uint32_t i = 0; i < k->member.n; i++) {
            const Node *n = &f->g->node.at[k->member.at[i].node];
            for (uint32_t j = 0; j < n->nin; j++)
                if (n->in[j] != NONE && n->op != OP_Count && reads_memory(k, n, j))
                    stays[cg_ref(f, n->in[j])->root] = true;
        }
    }
    for (ValueId v = 0; v < f->home.n; v++)
        stays[v] |= leaves_home(f, v) || f->def.at[v] == NONE || !is_thin(f, v, THIN);
    return stays;
}

/* Every nest computes what is thin itself: no kernel writes it for others. */
static void absorb_thin(Func *f)
{
    const bool *stays = find_staying(f);
    for (uint32_t g = 0; g < f->group.n; g++)
        if (f->group.at[g].kind == G_NEST && f->group.at[g].mode != NEST_COLUMN &&
            f->group.at[g].member.n > 0) {
            absorb(f, g, stays, MOST_MEMBERS);
            renew_deps(f, g);
        }
}

static void fuse_columns(Func *f)
{
    Ids column = {0};
    order_sort(f);
    bool *needed = in_memory(f, f->fuse->a, true);
    for (uint32_t g = 0; g < f->group.n; g++)
        if (f->group.at[g].kind == G_NEST && f->group.at[g].mode == NEST_COLUMN) {
            absorb(f, g, needed, MOST_OF_COLUMNS);
            renew_deps(f, g);
            vec_push(f->fuse->a, &column, g);
        }
    for (uint32_t i = 1; i < column.n; i++)
        for (uint32_t j = i; j-- > 0 && i - j < 32;)
            if (f->group.at[column.at[j]].member.n > 0 &&
                !merge(f, column.at[i], column.at[j], true, false) &&
                merge(f, column.at[j], column.at[i], true, false))
                break;
}

void fuse_merge(Func *f)
{
    merge_readers(f);
    absorb_thin(f);
    fuse_columns(f);
    order_sort(f);
    f->needed = in_memory(f, f->a, false);
}
