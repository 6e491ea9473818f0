/*
 * fuse.c - groups of nodes that become one kernel.  In: a function's nodes in order.  Out: groups and their order.
 *
 * A group has a space of dimensions; a node joins when its own space can be laid onto it: some operand, the anchor, is
 * known to stand at given strides over the group's dimensions, and equal strides mean equal points.  Both spaces are
 * cut into common pieces (peel).  Then every operand that the group itself makes must be read at the same point, or
 * be a scalar of the row, and no path may leave the group and come back.  Fusing decides nothing about results.
 */
#include <string.h>

#include "fuse.h"

enum { FEW_ROWS = 8, LARGE = 1 << 16 };

/* ---- joining ----------------------------------------------------------------------------------------- */

static Known *find_known(Group *k, ValueId root, Lin off, bool internal)
{
    for (uint32_t i = 0; i < k->known.n; i++) {
        Known *x = &k->known.at[i];
        if (x->root == root && lin_eq(x->off, off) && (!internal || x->internal))
            return x;
    }
    return NULL;
}

bool fuse_makes(const Group *k, ValueId root)
{
    for (uint32_t i = 0; i < k->known.n; i++)
        if (k->known.at[i].root == root && k->known.at[i].internal)
            return true;
    return false;
}

bool fuse_reaches(Func *f, uint32_t from, uint32_t to)
{
    Group *g = &f->group.at[from];
    if (from == to)
        return true;
    if (g->mark == f->search)
        return false;
    g->mark = f->search;
    for (uint32_t i = 0; i < g->dep.n; i++)
        if (fuse_reaches(f, g->dep.at[i], to))
            return true;
    return false;
}

void fuse_add_dep(Func *f, uint32_t k, uint32_t on)
{
    Group *g = &f->group.at[k];
    if (on == NONE || on == k)
        return;
    for (uint32_t i = 0; i < g->dep.n; i++)
        if (g->dep.at[i] == on)
            return;
    vec_push(f->a, &g->dep, on);
}

/* The groups a node needs; the group `self` is left out.  Returns false when an order edge starts in self. */
bool fuse_needs(Func *f, NodeId id, uint32_t self, const Group *inside, Ids *out)
{
    const Node *n = &f->g->node.at[id];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || n->op == OP_Count)
            continue;
        ValueId root = cg_ref(f, n->in[i])->root;
        uint32_t g = f->group_of.at[root];
        if (g != NONE && g != self && !(inside && fuse_makes(inside, root)))
            vec_push(f->a, out, g);
    }
    for (uint32_t i = 0; i < f->after.n; i += 2)
        if (f->after.at[i + 1] == id) {
            const Node *first = &f->g->node.at[f->after.at[i]];
            uint32_t g = f->group_of.at[first->out[0]];
            if (g == self)
                return false;
            if (g != NONE)
                vec_push(f->a, out, g);
        }
    return true;
}

int64_t fuse_total(const Func *f, const Lin *ext, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= lin_at(ext[d], f->g->batch);
    return n;
}

/* The reduced pieces must be the row, in the order of the node's dims, with the lanes counted along the same run. */
static int run_of(const Func *f, const Node *n, const Match *m)
{
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext), first = rank;
    for (int d = rank - 1; d >= 0; d--) {               /* the innermost run of adjacent reduced dims */
        if (lin_is(ext[d], 1))
            continue;
        if (!lay_in_axes(&n->attr, d))
            break;
        first = d;
    }
    int run = 0;
    for (int i = 0; i < m->n; i++)
        run += m->d[i].e >= first && lay_in_axes(&n->attr, m->d[i].e);
    return run;
}

static bool ordered(const Match *m, int from, int to)
{
    for (int i = from; i + 1 < to; i++)
        if (m->d[i].e > m->d[i + 1].e ||
            (m->d[i].e == m->d[i + 1].e && lay_size(m->d[i].emult) < lay_size(m->d[i + 1].emult)))
            return false;
    return true;
}

/* Moves the reduced pieces to the end, in the node's order. */
static void reduced_last(const Node *n, Match *m)
{
    Match out = {.extends = m->extends};
    for (int i = 0; i < m->n; i++)
        if (m->d[i].e < 0 || !lay_in_axes(&n->attr, m->d[i].e))
            out.d[out.n++] = m->d[i];
    int outer = out.n;
    for (int i = 0; i < m->n; i++)
        if (m->d[i].e >= 0 && lay_in_axes(&n->attr, m->d[i].e)) {
            int j = out.n++;
            for (; j > outer && (out.d[j - 1].e > m->d[i].e ||
                                 (out.d[j - 1].e == m->d[i].e && lay_size(out.d[j - 1].emult) < lay_size(m->d[i].emult))); j--)
                out.d[j] = out.d[j - 1];
            out.d[j] = m->d[i];
        }
    *m = out;
}

/* What the group becomes when the node joins under m; false when it may not. */
static bool shape_after(Func *f, const Group *k, const Node *n, Match *m, Group *after)
{
    bool reduce = cg_is_reduce(n->op), any = false, row_only = false;
    for (int i = 0; i < m->n; i++) {
        any |= reduce && m->d[i].e >= 0 && lay_in_axes(&n->attr, m->d[i].e);
        row_only |= m->d[i].e < 0;
    }
    *after = *k;
    if (row_only || m->extends) {
        if (reduce && any)
            return false;
        if (row_only && (k->mode != NEST_ROW || m->extends))
            return false;
    }
    if (row_only) {                                     /* a scalar of the row: absent exactly along the row */
        for (int i = 0; i < m->n; i++)
            if ((m->d[i].e < 0) != (m->d[i].k >= k->nouter))
                return false;
    }
    if (m->extends) {                                   /* all so far become scalars of the row */
        if (k->mode != NEST_POINT)
            return false;
        int first = m->n;
        for (int i = m->n; i-- > 0 && m->d[i].k < 0;)
            first = i;
        for (int i = 0; i < first; i++)
            if (m->d[i].k < 0 || m->d[i].e > m->d[first].e)
                return false;                           /* only trailing dimensions */
        Lin ext[NEST_DIMS];
        for (int i = 0; i < m->n; i++)
            ext[i] = m->d[i].ext;
        if (fuse_total(f, ext, 0, first) < 2 * FEW_ROWS || fuse_total(f, ext, first, m->n) > LARGE)
            return false;
        after->mode = NEST_ROW;
        after->nouter = first;
        after->nrun = m->n - first;
    }
    if (reduce && any) {
        NestKind mode = cg_reduces_columns(f, n) ? NEST_COLUMN : NEST_ROW;
        if (k->mode == NEST_POINT) {
            reduced_last(n, m);
            Lin ext[NEST_DIMS];
            after->nouter = 0;
            for (int i = 0; i < m->n; i++) {
                ext[i] = m->d[i].ext;
                after->nouter += !lay_in_axes(&n->attr, m->d[i].e);
            }
            if (mode == NEST_ROW && fuse_total(f, ext, 0, after->nouter) < FEW_ROWS && fuse_total(f, ext, 0, m->n) > LARGE)
                return false;
            after->mode = mode;
            after->nrun = run_of(f, n, m);
            after->reduces = true;
        } else {
            if (k->mode != mode)
                return false;
            int outer = 0;
            for (int i = 0; i < m->n; i++) {
                bool inner = m->d[i].k >= k->nouter;
                if (inner != lay_in_axes(&n->attr, m->d[i].e))
                    return false;
                outer += !inner;
            }
            if (!ordered(m, outer, m->n))
                return false;
            int run = run_of(f, n, m);
            int before = 0;                             /* pieces of the group's own run */
            for (int i = 0; i < m->n; i++)
                before += m->d[i].k >= k->nd - k->nrun;
            if (k->reduces && run != before)
                return false;
            after->nouter = outer;
            after->nrun = run;
            after->reduces = true;
        }
    } else if (!m->extends) {
        after->nouter = after->nrun = 0;
        for (int i = 0; i < m->n; i++) {
            after->nouter += m->d[i].k < k->nouter;
            after->nrun += m->d[i].k >= k->nd - k->nrun;
        }
    }
    after->nd = m->n;
    for (int i = 0; i < m->n; i++)
        after->ext[i] = m->d[i].ext;
    return true;
}

static bool recut(const Match *m, Member *x)
{
    Member y = {.node = x->node};
    for (int i = 0; i < m->n; i++)
        for (int p = 0; p < x->np; p++)
            if (x->piece[p].k == m->d[i].k) {
                Piece q = {.k = i, .e = x->piece[p].e};
                if (!lin_mul(x->piece[p].mult, m->d[i].kmult, &q.mult))
                    return false;
                y.piece[y.np++] = q;
            }
    *x = y;
    return true;
}

static void add_known(Func *f, Group *k, ValueId root, Lin off, const Lin *stride, bool internal, bool hidden)
{
    Known *old = NULL;
    for (uint32_t i = 0; i < k->known.n; i++)
        if (k->known.at[i].root == root && lin_eq(k->known.at[i].off, off) &&
            memcmp(k->known.at[i].stride, stride, sizeof(Lin) * (size_t)k->nd) == 0)
            old = &k->known.at[i];
    if (old) {
        old->internal |= internal;
        old->hidden |= hidden;
        return;
    }
    Known x = {.root = root, .off = off, .internal = internal, .hidden = hidden};
    memcpy(x.stride, stride, sizeof(Lin) * (size_t)k->nd);
    vec_push(f->trial, &k->known, x);
}

static bool reads_root(Func *f, const Node *n, ValueId root)
{
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && n->op != OP_Count && cg_ref(f, n->in[i])->root == root)
            return true;
    return false;
}

/* The last member goes before the first one that reads it, and what it reads itself before it. */
static void move_before_readers(Func *f, Group *k)
{
    VEC(Member) before = {0}, after = {0};
    const Member x = k->member.at[k->member.n - 1];
    Ids front = {0};                                    /* x and what it is computed from */
    vec_push(f->a, &front, x.node);
    for (uint32_t i = k->member.n - 1; i-- > 0;) {
        bool needed = false;
        for (uint32_t j = 0; j < front.n; j++)
            needed |= reads_root(f, &f->g->node.at[front.at[j]], f->g->node.at[k->member.at[i].node].out[0]);
        if (needed)
            vec_push(f->a, &front, k->member.at[i].node);
    }
    for (uint32_t i = 0; i + 1 < k->member.n; i++) {
        bool needed = false;
        for (uint32_t j = 0; j < front.n; j++)
            needed |= k->member.at[i].node == front.at[j];
        if (needed)
            vec_push(f->a, &before, k->member.at[i]);
        else
            vec_push(f->a, &after, k->member.at[i]);
    }
    vec_push(f->a, &before, x);
    for (uint32_t i = 0; i < before.n; i++)
        k->member.at[i] = before.at[i];
    for (uint32_t i = 0; i < after.n; i++)
        k->member.at[before.n + i] = after.at[i];
}

/* Commits: k is a private copy whose arrays may be rewritten. */
static bool commit(Func *f, Group *k, NodeId id, const Match *m, const Group *after, bool front)
{
    const Node *n = &f->g->node.at[id];
    Lin ext[MAX_RANK], stride[MAX_RANK], s[NEST_DIMS];
    int rank = cg_space(f, n, ext);
    Ref r;
    for (uint32_t i = 0; i < k->member.n; i++)
        if (!recut(m, &k->member.at[i]))
            return false;
    for (uint32_t i = 0; i < k->known.n; i++) {
        if (!lay_over(m, NULL, k->known.at[i].stride, s))
            return false;
        memcpy(k->known.at[i].stride, s, sizeof s);
    }
    k->nd = after->nd;
    k->nouter = after->nouter;
    k->nrun = after->nrun;
    k->mode = after->mode;
    k->reduces = after->reduces;
    memcpy(k->ext, after->ext, sizeof k->ext);
    Member x = {.node = id};
    for (int i = 0; i < m->n; i++)
        if (m->d[i].e >= 0)
            x.piece[x.np++] = (Piece){i, m->d[i].e, m->d[i].emult};
    vec_push(f->trial, &k->member, x);
    if (front)
        move_before_readers(f, k);
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && !cg_reads_table(n, i) && cg_operand(f, n, i, &r, stride) &&
            lay_over(m, stride, NULL, s))
            add_known(f, k, r.root, r.off, s, false, false);
    lay_result(f, n, rank, ext, &r, stride);
    if (!lay_over(m, stride, NULL, s))
        return false;
    add_known(f, k, n->out[0], r.off, s, true, cg_is_reduce(n->op) && k->mode == NEST_COLUMN);
    return true;
}

/* The group gets lists of its own, with room for what `spare` more entries add. */
static void copy_lists(Arena *a, Group *k, uint32_t spare)
{
    Member *member = arena_array(a, Member, k->member.n + spare);
    Known *known = arena_array(a, Known, k->known.n + spare);
    if (k->member.n > 0)
        memcpy(member, k->member.at, sizeof *member * k->member.n);
    if (k->known.n > 0)
        memcpy(known, k->known.at, sizeof *known * k->known.n);
    k->member.at = member;
    k->known.at = known;
    k->member.cap = k->member.n + spare;
    k->known.cap = k->known.n + spare;
}

/* May the node stand in the group under this match?  Its operands made inside must be read at the same point. */
static bool agrees(Func *f, Group *k, const Node *n, const Match *m)
{
    Ref r;
    Lin stride[MAX_RANK], s[NEST_DIMS], t[NEST_DIMS];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || !cg_operand(f, n, i, &r, stride))
            continue;
        if (!fuse_makes(k, r.root))
            continue;
        if (cg_reads_table(n, i))
            return false;
        Known *x = find_known(k, r.root, r.off, true);
        if (!x || x->hidden || !lay_over(m, stride, NULL, s) || !lay_over(m, NULL, x->stride, t) ||
            memcmp(s, t, sizeof(Lin) * (size_t)m->n) != 0)
            return false;
        if (n->op == OP_GatherND)
            return false;
    }
    return true;
}

/* Joins by the anchor `known` against strides over the node's space.  On success *k is replaced. */
bool fuse_join_by(Func *f, Group *k, NodeId id, const Known *known, const Lin *stride, bool front)
{
    const Node *n = &f->g->node.at[id];
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext);
    Match m;
    Group after;
    if (!lay_match(k, known, rank, ext, stride, &m) || !shape_after(f, k, n, &m, &after) || !agrees(f, k, n, &m))
        return false;
    if (front && cg_is_reduce(n->op) && after.mode == NEST_COLUMN)
        return false;                                   /* a member reads the sum, which is there only after the one loop */
    Group c = *k;
    copy_lists(f->trial, &c, 4);
    if (!commit(f, &c, id, &m, &after, front))
        return false;
    *k = c;
    return true;
}

bool fuse_full(const Lin *stride, const Lin *ext, int n)
{
    for (int d = 0; d < n; d++)
        if (!lin_is(ext[d], 1) && lin_is(stride[d], 0))
            return false;
    return n > 0;
}

/* Tries the operands as anchors: values made in the group first, whole ones before scalars of the row, then operands
   both read. */
bool fuse_join(Func *f, Group *k, NodeId id, bool siblings)
{
    const Node *n = &f->g->node.at[id];
    Lin ext[MAX_RANK], stride[MAX_RANK];
    Ref r;
    if (k->kind != G_NEST || k->member.n >= MOST_MEMBERS || k->known.n >= MOST_KNOWN)
        return false;
    int rank = cg_space(f, n, ext);
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < n->nin; i++) {
            if (n->in[i] == NONE || cg_reads_table(n, i) || !cg_operand(f, n, i, &r, stride))
                continue;
            if ((round != 1) != fuse_full(stride, ext, rank) || (round == 2 && !siblings))
                continue;
            for (uint32_t j = 0; j < k->known.n; j++) {
                Known *x = &k->known.at[j];
                if (x->root != r.root || x->hidden || !lin_eq(x->off, r.off) || x->internal != (round < 2))
                    continue;
                if (round == 2 && !fuse_full(x->stride, k->ext, k->nd))
                    continue;
                Known anchor = *x;
                if (fuse_join_by(f, k, id, &anchor, stride, false))
                    return true;
            }
        }
    return false;
}

static Group new_nest(Func *f, NodeId id)
{
    const Node *n = &f->g->node.at[id];
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext);
    Match m = {0};
    bool any = false;
    Group k = {.kind = G_NEST, .mode = NEST_POINT}, after;
    for (int d = 0; d < rank; d++)
        if (!lin_is(ext[d], 1)) {
            m.d[m.n++] = (RDim){-1, d, ext[d], lin(1), lin(1)};
            any |= cg_is_reduce(n->op) && lay_in_axes(&n->attr, d);
        }
    after = k;
    if (any) {
        reduced_last(n, &m);
        after.mode = cg_reduces_columns(f, n) ? NEST_COLUMN : NEST_ROW;
        for (int i = 0; i < m.n; i++)
            after.nouter += !lay_in_axes(&n->attr, m.d[i].e);
        after.nrun = run_of(f, n, &m);
        after.reduces = true;
    }
    after.nd = m.n;
    if (!any)
        after.nouter = m.n;
    for (int i = 0; i < m.n; i++)
        after.ext[i] = m.d[i].ext;
    if (!commit(f, &k, id, &m, &after, false))
        BUG("node %u has no space of its own", id);
    return k;
}

/* ---- the walk ------------------------------------------------------------------------------------------- */

static uint32_t open_group(Func *f, Group k, NodeId id)
{
    vec_push(f->a, &f->group, k);
    uint32_t g = f->group.n - 1;
    Ids need = {0};
    fuse_needs(f, id, NONE, NULL, &need);
    for (uint32_t i = 0; i < need.n; i++)
        fuse_add_dep(f, g, need.at[i]);
    const Node *n = &f->g->node.at[id];
    for (uint32_t i = 0; i < n->nout; i++)
        f->group_of.at[n->out[i]] = g;
    return g;
}

bool fuse_acyclic(Func *f, uint32_t g, const Ids *need)
{
    f->search++;
    for (uint32_t i = 0; i < need->n; i++)
        if (need->at[i] != g && fuse_reaches(f, need->at[i], g))
            return false;
    return true;
}

static bool try_group(Func *f, uint32_t g, NodeId id, bool siblings)
{
    Ids need = {0};
    const Node *n = &f->g->node.at[id];
    if (f->group.at[g].kind != G_NEST || !fuse_needs(f, id, g, NULL, &need) || !fuse_acyclic(f, g, &need))
        return false;
    for (uint32_t i = 0; i < n->nin; i++)               /* a table made in the group is out of reach */
        if (n->in[i] != NONE && cg_reads_table(n, i) && f->group_of.at[cg_ref(f, n->in[i])->root] == g)
            return false;
    Group k = f->group.at[g];
    if (!fuse_join(f, &k, id, siblings))
        return false;
    f->group.at[g] = k;
    for (uint32_t i = 0; i < need.n; i++)
        fuse_add_dep(f, g, need.at[i]);
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
                uint32_t g = round == 0 ? f->group_of.at[root] : root < loader->n ? loader->at[root] : NONE;
                bool again = g == NONE;
                for (uint32_t j = 0; j < tried.n; j++)
                    again |= tried.at[j] == g * 2 + (uint32_t)round;
                if (again)
                    continue;
                vec_push(f->a, &tried, g * 2 + (uint32_t)round);
                if (f->group.at[g].mode != NEST_COLUMN && try_group(f, g, id, round == 1))
                    return;
            }
    }
    uint32_t g = open_group(f, new_nest(f, id), id);
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || alone(f, id))
            continue;
        ValueId root = cg_ref(f, n->in[i])->root;
        while (loader->n <= root)
            vec_push(f->a, loader, NONE);
        loader->at[root] = g;
    }
}

void cg_fuse(Func *f)
{
    Ids loader = {0};
    cg_track(f);
    f->trial = arena_new();
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
        vec_push(f->trial, &k.member, (Member){.node = id});
        open_group(f, k, id);
    }
    fuse_merge(f);
    for (uint32_t g = 0; g < f->group.n; g++)
        copy_lists(f->a, &f->group.at[g], 0);
    arena_free(f->trial);
    f->trial = NULL;
}
