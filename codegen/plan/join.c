/*
 * join.c - may a node join a group, and what the group then is.  In: a group, a node, and values
 * that the group is known to read or make.  Out: the group with the node as a member, or no.
 *
 * A group has a space of dimensions; a node joins when its own space can be laid onto it: some
 * operand, the anchor, is known to stand at given strides over the group's dimensions, and equal
 * strides mean equal points.  Both spaces are cut into common pieces (lay.c).  Then every operand
 * that the group itself makes must be read at the same point, or be a scalar of the row.
 */
#include <string.h>

#include "fuse.h"

enum { FEW_ROWS = 8, LARGE = 1 << 16 };

/* Where lengths vary, with the greatest. */
static int64_t most_points(const Func *f, const Lin *ext, int from, int to)
{
    return cg_most(f->sg, lay_points(f, ext, from, to));
}

static Known *find_known(Group *k, ValueId root, Lin off, bool internal)
{
    for (uint32_t i = 0; i < k->known.n; i++) {
        Known *x = &k->known.at[i];
        if (x->root == root && lin_eq(x->off, off) && (!internal || x->internal))
            return x;
    }
    return NULL;
}

bool join_makes(const Group *k, ValueId root)
{
    for (uint32_t i = 0; i < k->known.n; i++)
        if (k->known.at[i].root == root && k->known.at[i].internal)
            return true;
    return false;
}

/* The reduced pieces must be the row, in the order of the node's dims, with the lanes counted along
 * the same run. */
static int run_of(const Func *f, const Node *n, const Match *m)
{
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext), first = rank;
    /* the innermost run of adjacent reduced dims */
    for (int d = rank - 1; d >= 0; d--) {
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
            (m->d[i].e == m->d[i + 1].e && lin_far(m->d[i].emult) < lin_far(m->d[i + 1].emult)))
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
                                 (out.d[j - 1].e == m->d[i].e &&
                                  lin_far(out.d[j - 1].emult) < lin_far(m->d[i].emult)));
                 j--)
                out.d[j] = out.d[j - 1];
            out.d[j] = m->d[i];
        }
    *m = out;
}

/* All of the group's dimensions so far number rows, those that the node adds are the row: what the
 * group has computed are scalars of it. */
static bool extend_to_rows(Func *f, const Group *k, const Match *m, Group *after)
{
    if (k->mode != NEST_POINT)
        return false;
    int first = m->n;
    for (int i = m->n; i-- > 0 && m->d[i].k < 0;)
        first = i;
    for (int i = 0; i < first; i++)
        if (m->d[i].k < 0 || m->d[i].e > m->d[first].e)
            return false;                               /* only trailing dimensions */
    Lin ext[NEST_DIMS];
    for (int i = 0; i < m->n; i++)
        ext[i] = m->d[i].ext;
    if (most_points(f, ext, 0, first) < 2 * FEW_ROWS || most_points(f, ext, first, m->n) > LARGE)
        return false;
    after->mode = NEST_ROW;
    after->nouter = first;
    after->nrun = m->n - first;
    return true;
}

/* A group of points takes a reduction: what is reduced becomes its row, or its column. */
static bool reduce_points(Func *f, const Node *n, NestKind mode, Match *m, Group *after)
{
    reduced_last(n, m);
    Lin ext[NEST_DIMS];
    after->nouter = 0;
    for (int i = 0; i < m->n; i++) {
        ext[i] = m->d[i].ext;
        after->nouter += !lay_in_axes(&n->attr, m->d[i].e);
    }
    if (mode == NEST_ROW && most_points(f, ext, 0, after->nouter) < FEW_ROWS &&
        most_points(f, ext, 0, m->n) > LARGE)
        return false;
    after->mode = mode;
    after->nrun = run_of(f, n, m);
    after->reduces = true;
    return true;
}

/* A group of rows, or columns, takes another reduction: along just these. */
static bool reduce_rows(const Func *f, const Group *k, const Node *n, const Match *m, Group *after)
{
    int outer = 0, before = 0;                          /* before: pieces of the group's own run */
    for (int i = 0; i < m->n; i++) {
        bool inner = m->d[i].k >= k->nouter;
        if (inner != lay_in_axes(&n->attr, m->d[i].e))
            return false;
        outer += !inner;
        before += m->d[i].k >= k->nd - k->nrun;
    }
    if (!ordered(m, outer, m->n))
        return false;
    after->nouter = outer;
    after->nrun = run_of(f, n, m);
    if (k->reduces && after->nrun != before)
        return false;
    after->reduces = true;
    return true;
}

/* What the group becomes when the node joins under m; false when it may not. */
static bool shape_after(Func *f, const Group *k, const Node *n, Match *m, Group *after)
{
    bool reduces = false, row_only = false;
    for (int i = 0; i < m->n; i++) {
        reduces |= cg_is_reduce(n->op) && m->d[i].e >= 0 && lay_in_axes(&n->attr, m->d[i].e);
        row_only |= m->d[i].e < 0;
    }
    *after = *k;
    if (reduces && (row_only || m->extends))
        return false;
    if (row_only && (k->mode != NEST_ROW || m->extends))
        return false;
    /* a scalar of the row: absent exactly along the row */
    for (int i = 0; row_only && i < m->n; i++)
        if ((m->d[i].e < 0) != (m->d[i].k >= k->nouter))
            return false;
    if (m->extends && !extend_to_rows(f, k, m, after))
        return false;
    if (reduces) {
        NestKind mode = cg_reduces_columns(f, n) ? NEST_COLUMN : NEST_ROW;
        bool fits = k->mode == NEST_POINT ? reduce_points(f, n, mode, m, after)
                                          : k->mode == mode && reduce_rows(f, k, n, m, after);
        if (!fits)
            return false;
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

static const Lin *strides(Func *f, const Lin *s, int n)
{
    Lin *at = arena_array(f->fuse->a, Lin, n);
    memcpy(at, s, sizeof *at * (size_t)n);
    return at;
}

static Member member(Func *f, NodeId id, const Piece *piece, int n)
{
    Piece *at = arena_array(f->fuse->a, Piece, n);
    memcpy(at, piece, sizeof *at * (size_t)n);
    return (Member){id, n, at};
}

/* The group's dimensions stay as they are. */
static bool same_dims(const Match *m, const Group *k)
{
    for (int i = 0; i < m->n; i++)
        if (m->d[i].k != i || !lin_is(m->d[i].kmult, 1))
            return false;
    return m->n == k->nd;
}

/* Pieces and strides are shared by the groups that are tried: cut anew, they are new ones. */
static bool recut(Func *f, const Match *m, Member *x)
{
    Piece piece[NEST_DIMS];
    int n = 0;
    for (int i = 0; i < m->n; i++)
        for (int p = 0; p < x->np; p++)
            if (x->piece[p].k == m->d[i].k) {
                Piece q = {.k = i, .e = x->piece[p].e};
                if (!lin_mul(x->piece[p].mult, m->d[i].kmult, &q.mult))
                    return false;
                piece[n++] = q;
            }
    *x = member(f, x->node, piece, n);
    return true;
}

static void add_known(Func *f, Group *k, ValueId root, Lin off, const Lin *stride, bool internal,
                      bool hidden)
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
    Known x = {root, off, strides(f, stride, k->nd), internal, hidden};
    vec_push(f->fuse->a, &k->known, x);
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
    vec_push(f->fuse->a, &front, x.node);
    for (uint32_t i = k->member.n - 1; i-- > 0;) {
        bool needed = false;
        for (uint32_t j = 0; j < front.n; j++)
            needed |= reads_root(f, &f->g->node.at[front.at[j]],
                                 f->g->node.at[k->member.at[i].node].out[0]);
        if (needed)
            vec_push(f->fuse->a, &front, k->member.at[i].node);
    }
    for (uint32_t i = 0; i + 1 < k->member.n; i++) {
        if (ids_have(&front, k->member.at[i].node))
            vec_push(f->fuse->a, &before, k->member.at[i]);
        else
            vec_push(f->fuse->a, &after, k->member.at[i]);
    }
    vec_push(f->fuse->a, &before, x);
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
    bool same = same_dims(m, k);
    for (uint32_t i = 0; i < k->member.n && !same; i++)
        if (!recut(f, m, &k->member.at[i]))
            return false;
    for (uint32_t i = 0; i < k->known.n && !same; i++) {
        if (!lay_over(m, NULL, k->known.at[i].stride, s))
            return false;
        k->known.at[i].stride = strides(f, s, m->n);
    }
    k->nd = after->nd;
    k->nouter = after->nouter;
    k->nrun = after->nrun;
    k->mode = after->mode;
    k->reduces = after->reduces;
    memcpy(k->ext, after->ext, sizeof k->ext);
    Piece piece[NEST_DIMS];
    int pieces = 0;
    for (int i = 0; i < m->n; i++)
        if (m->d[i].e >= 0)
            piece[pieces++] = (Piece){i, m->d[i].e, m->d[i].emult};
    vec_push(f->fuse->a, &k->member, member(f, id, piece, pieces));
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

static void copy_lists(Arena *a, const Group *from, Group *to)
{
    to->member.n = to->known.n = 0;
    for (uint32_t i = 0; i < from->member.n; i++)
        vec_push(a, &to->member, from->member.at[i]);
    for (uint32_t i = 0; i < from->known.n; i++)
        vec_push(a, &to->known, from->known.at[i]);
}

static void with_lists(Group *k, const Group *owner)
{
    k->member = owner->member;
    k->known = owner->known;
}

void join_keep(Func *f, uint32_t g, const Group *k)
{
    Group *own = &f->group.at[g], now = *k;
    with_lists(&now, own);
    copy_lists(f->fuse->a, k, &now);
    *own = now;
}

/* May the node stand in the group under this match?  Its operands made inside must be read at the
 * same point. */
static bool agrees(Func *f, Group *k, const Node *n, const Match *m)
{
    Ref r;
    Lin stride[MAX_RANK], s[NEST_DIMS], t[NEST_DIMS];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || !cg_operand(f, n, i, &r, stride))
            continue;
        if (!join_makes(k, r.root))
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
bool join_by(Func *f, Group *k, NodeId id, const Known *known, const Lin *stride, bool front)
{
    const Node *n = &f->g->node.at[id];
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext);
    Match m;
    Group after;
    if (!lay_match(k, known, rank, ext, stride, &m) || !shape_after(f, k, n, &m, &after) ||
        !agrees(f, k, n, &m))
        return false;
    if (front && cg_is_reduce(n->op) && after.mode == NEST_COLUMN)
        return false; /* a member reads the sum, which is there only after the one loop */
    Group *spare = &f->fuse->spare[k->member.at == f->fuse->spare[0].member.at], c = *k;
    /* of two, those that k does not have: it may be tried itself */
    with_lists(&c, spare);
    copy_lists(f->fuse->a, k, &c);
    bool good = commit(f, &c, id, &m, &after, front);
    with_lists(spare, &c);
    if (!good)
        return false;
    *k = c;
    return true;
}

/* Tries the operands as anchors: values made in the group first, whole ones before scalars of the
   row, then operands both read. */
bool join_node(Func *f, Group *k, NodeId id, bool siblings)
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
            if ((round != 1) != lay_full(stride, ext, rank) || (round == 2 && !siblings))
                continue;
            for (uint32_t j = 0; j < k->known.n; j++) {
                Known *x = &k->known.at[j];
                if (x->root != r.root || x->hidden || !lin_eq(x->off, r.off) ||
                    x->internal != (round < 2))
                    continue;
                if (round == 2 && !lay_full(x->stride, k->ext, k->nd))
                    continue;
                Known anchor = *x;
                if (join_by(f, k, id, &anchor, stride, false))
                    return true;
            }
        }
    return false;
}

Group join_new(Func *f, NodeId id)
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
