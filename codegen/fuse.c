/*
 * fuse.c - groups of nodes that become one kernel.  In: a function's nodes in order.  Out: groups and their order.
 *
 * A group has a space of dimensions; a node joins when its own space can be laid onto it: some operand, the anchor, is
 * known to stand at given strides over the group's dimensions, and equal strides mean equal points.  Both spaces are
 * cut into common pieces (peel).  Then every operand that the group itself makes must be read at the same point, or
 * be a scalar of the row, and no path may leave the group and come back.  Fusing decides nothing about results.
 */
#include <stdlib.h>
#include <string.h>

#include "fuse.h"

enum { MOST_MEMBERS = 48, MOST_KNOWN = 64, FEW_ROWS = 8, LARGE = 1 << 16 };

typedef struct { int id; Lin ext, stride, mult; } Dim;

static bool in_axes(const Attr *at, int d)
{
    for (int i = 0; i < at->n; i++)
        if (at->a[i] == d)
            return true;
    return false;
}

/* ---- what nodes are and read ------------------------------------------------------------------- */

bool cg_is_reduce(Op op) { return op >= OP_ReduceSum && op <= OP_ReduceProd && op != OP_ReduceMean; }

bool cg_fusable(const Node *n)
{
    switch (n->op) {
    case OP_Gather:
    case OP_GatherElements:
    case OP_GatherND:
    case OP_Count: return true;
    case OP_Pad: return n->attr.mode == PAD_CONSTANT;
    default: return op_is_map(n->op) || cg_is_reduce(n->op) || cg_is_copy(n);
    }
}

int cg_space(const Func *f, const Node *n, Lin *ext)
{
    ValueId v = cg_is_reduce(n->op) ? n->in[0] : n->out[0];
    int rank = val(f->g, v)->shape.rank;
    for (int d = 0; d < rank; d++)
        ext[d] = cg_ext(f, v, d);
    return rank;
}

bool cg_reads_table(const Node *n, uint32_t i)
{
    return i == 0 && (n->op == OP_Gather || n->op == OP_GatherElements || n->op == OP_GatherND || n->op == OP_Pad);
}

bool cg_operand(Func *f, const Node *n, uint32_t i, Ref *r, Lin *stride)
{
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext);
    if (n->op == OP_Count)
        return false;
    *r = *cg_ref(f, n->in[i]);
    for (int d = 0; d < rank; d++)
        stride[d] = lin(0);
    if (n->op == OP_Gather) {
        int axis = (int)n->attr.axis, q = val(f->g, n->in[1])->shape.rank;
        if (i == 1)
            for (int d = 0; d < q; d++)
                stride[axis + d] = r->stride[d];
        else
            for (int d = 0; d < r->rank; d++)
                if (d != axis)
                    stride[d < axis ? d : d + q - 1] = r->stride[d];
    } else if (n->op == OP_GatherElements) {
        for (int d = 0; d < rank; d++)
            if (i == 1 || d != n->attr.axis)
                stride[d] = r->stride[d];
    } else if (n->op == OP_GatherND) {
        const Shape *s = &val(f->g, n->in[1])->shape;
        int batch = (int)n->attr.axis, q = (int)s->d[s->rank - 1];
        if (i == 1)
            for (int d = 0; d + 1 < s->rank; d++)
                stride[d] = r->stride[d];
        for (int d = 0; i == 0 && d < batch; d++)
            stride[d] = r->stride[d];
        for (int d = batch + q; i == 0 && d < r->rank; d++)
            stride[s->rank - 1 + d - batch - q] = r->stride[d];
    } else {                                            /* NumPy broadcasting */
        for (int d = rank - 1, j = r->rank - 1; j >= 0; d--, j--)
            stride[d] = lin_is(r->ext[j], 1) ? lin(0) : r->stride[j];
    }
    for (int d = 0; d < rank; d++)
        if (lin_is(ext[d], 1))
            stride[d] = lin(0);
    return true;
}

/* The result's strides over the node's space: a reduction's stands still along what is reduced. */
static void result_strides(Func *f, const Node *n, int rank, const Lin *ext, Ref *r, Lin *stride)
{
    *r = *cg_ref(f, n->out[0]);
    for (int d = 0; d < rank; d++)
        stride[d] = lin_is(ext[d], 1) || (cg_is_reduce(n->op) && in_axes(&n->attr, d)) ? lin(0) : r->stride[d];
}

/* By the logical shape alone: is the innermost dimension kept? */
bool cg_reduces_columns(const Func *f, const Node *n)
{
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext);
    for (int d = rank - 1; d >= 0; d--)
        if (!lin_is(ext[d], 1))
            return !in_axes(&n->attr, d);
    return false;
}

/* ---- laying one space onto another ----------------------------------------------------------------- */

static int64_t size_of(Lin x)
{
    int64_t n = lin_at(x, 1009);
    return n < 0 ? -n : n;
}

/* Outermost first, by stride. */
static void sort_dims(Dim *d, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && size_of(d[j].stride) > size_of(d[j - 1].stride); j--) {
            Dim t = d[j];
            d[j] = d[j - 1];
            d[j - 1] = t;
        }
}

/* Cuts both lists into common pieces from the innermost on; strides must agree when they are asked to. */
static bool peel(Dim *a, int na, Dim *b, int nb, bool strides, Match *m)
{
    while (na > 0 && nb > 0) {
        Dim *x = &a[na - 1], *y = &b[nb - 1];
        Lin q, piece;
        if (strides && !lin_eq(x->stride, y->stride))
            return false;
        if (m->n == NEST_DIMS)
            return false;
        RDim r = {.k = x->id, .e = y->id, .kmult = x->mult, .emult = y->mult};
        if (lin_eq(x->ext, y->ext)) {
            piece = x->ext;
            na--;
            nb--;
        } else if (lin_div(x->ext, y->ext, &q)) {
            piece = y->ext;
            x->ext = q;
            if (!lin_mul(x->stride, piece, &x->stride) || !lin_mul(x->mult, piece, &x->mult))
                return false;
            nb--;
        } else if (lin_div(y->ext, x->ext, &q)) {
            piece = x->ext;
            y->ext = q;
            if (!lin_mul(y->stride, piece, &y->stride) || !lin_mul(y->mult, piece, &y->mult))
                return false;
            na--;
        } else {
            return false;
        }
        r.ext = piece;
        m->d[m->n++] = r;
    }
    return na == 0 && nb == 0;
}

static bool match(const Group *k, const Known *known, int rank, const Lin *ext, const Lin *stride, Match *m)
{
    Dim a[NEST_DIMS], b[MAX_RANK], az[NEST_DIMS], bz[MAX_RANK];
    int na = 0, nb = 0, naz = 0, nbz = 0;
    Match found = {0};
    for (int d = 0; d < k->nd; d++) {
        Dim x = {d, k->ext[d], known->stride[d], lin(1)};
        if (lin_is(x.stride, 0))
            az[naz++] = x;
        else
            a[na++] = x;
    }
    for (int d = 0; d < rank; d++) {
        Dim x = {d, ext[d], stride[d], lin(1)};
        if (lin_is(x.ext, 1))
            continue;
        if (lin_is(x.stride, 0))
            bz[nbz++] = x;
        else
            b[nb++] = x;
    }
    sort_dims(a, na);
    sort_dims(b, nb);
    if (!peel(a, na, b, nb, true, &found))
        return false;
    if (naz > 0 && nbz > 0 && !peel(az, naz, bz, nbz, false, &found))
        return false;
    /* in the order of the group's dimensions; pieces of one were found from the inside out */
    m->n = 0;
    m->extends = false;
    for (int d = 0; d < k->nd; d++) {
        bool any = false;
        for (int i = found.n; i-- > 0;)
            if (found.d[i].k == d) {
                m->d[m->n++] = found.d[i];
                any = true;
            }
        if (!any) {
            if (m->n == NEST_DIMS)
                return false;
            m->d[m->n++] = (RDim){d, -1, k->ext[d], lin(1), lin(1)};
        }
    }
    for (int i = 0; naz == 0 && i < nbz; i++) {         /* the group gets these dimensions */
        if (m->n == NEST_DIMS)
            return false;
        m->d[m->n++] = (RDim){-1, bz[i].id, bz[i].ext, lin(1), lin(1)};
        m->extends = true;
    }
    return true;
}

/* Strides given over the node's dims, or over the group's old dims, as strides over the pieces. */
static bool over_pieces(const Match *m, const Lin *e_stride, const Lin *k_stride, Lin *out)
{
    for (int i = 0; i < m->n; i++) {
        const RDim *d = &m->d[i];
        out[i] = lin(0);
        if (e_stride && d->e >= 0 && !lin_mul(e_stride[d->e], d->emult, &out[i]))
            return false;
        if (k_stride && d->k >= 0 && !lin_mul(k_stride[d->k], d->kmult, &out[i]))
            return false;
    }
    return true;
}

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

static bool makes(const Group *k, ValueId root)
{
    for (uint32_t i = 0; i < k->known.n; i++)
        if (k->known.at[i].root == root && k->known.at[i].internal)
            return true;
    return false;
}

static bool reaches(Func *f, uint32_t from, uint32_t to)
{
    Group *g = &f->group.at[from];
    if (from == to)
        return true;
    if (g->mark == f->search)
        return false;
    g->mark = f->search;
    for (uint32_t i = 0; i < g->dep.n; i++)
        if (reaches(f, g->dep.at[i], to))
            return true;
    return false;
}

static void add_dep(Func *f, uint32_t k, uint32_t on)
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
static bool needs(Func *f, NodeId id, uint32_t self, const Group *inside, Ids *out)
{
    const Node *n = &f->g->node.at[id];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || n->op == OP_Count)
            continue;
        ValueId root = cg_ref(f, n->in[i])->root;
        uint32_t g = f->group_of.at[root];
        if (g != NONE && g != self && !(inside && makes(inside, root)))
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

static int64_t total(const Func *f, const Lin *ext, int from, int to)
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
        if (!in_axes(&n->attr, d))
            break;
        first = d;
    }
    int run = 0;
    for (int i = 0; i < m->n; i++)
        run += m->d[i].e >= first && in_axes(&n->attr, m->d[i].e);
    return run;
}

static bool ordered(const Match *m, int from, int to)
{
    for (int i = from; i + 1 < to; i++)
        if (m->d[i].e > m->d[i + 1].e ||
            (m->d[i].e == m->d[i + 1].e && size_of(m->d[i].emult) < size_of(m->d[i + 1].emult)))
            return false;
    return true;
}

/* Moves the reduced pieces to the end, in the node's order. */
static void reduced_last(const Node *n, Match *m)
{
    Match out = {.extends = m->extends};
    for (int i = 0; i < m->n; i++)
        if (m->d[i].e < 0 || !in_axes(&n->attr, m->d[i].e))
            out.d[out.n++] = m->d[i];
    int outer = out.n;
    for (int i = 0; i < m->n; i++)
        if (m->d[i].e >= 0 && in_axes(&n->attr, m->d[i].e)) {
            int j = out.n++;
            for (; j > outer && (out.d[j - 1].e > m->d[i].e ||
                                 (out.d[j - 1].e == m->d[i].e && size_of(out.d[j - 1].emult) < size_of(m->d[i].emult))); j--)
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
        any |= reduce && m->d[i].e >= 0 && in_axes(&n->attr, m->d[i].e);
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
        if (total(f, ext, 0, first) < 2 * FEW_ROWS || total(f, ext, first, m->n) > LARGE)
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
                after->nouter += !in_axes(&n->attr, m->d[i].e);
            }
            if (mode == NEST_ROW && total(f, ext, 0, after->nouter) < FEW_ROWS && total(f, ext, 0, m->n) > LARGE)
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
                if (inner != in_axes(&n->attr, m->d[i].e))
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
    vec_push(f->a, &k->known, x);
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
        if (!over_pieces(m, NULL, k->known.at[i].stride, s))
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
    vec_push(f->a, &k->member, x);
    if (front)
        move_before_readers(f, k);
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && !cg_reads_table(n, i) && cg_operand(f, n, i, &r, stride) &&
            over_pieces(m, stride, NULL, s))
            add_known(f, k, r.root, r.off, s, false, false);
    result_strides(f, n, rank, ext, &r, stride);
    if (!over_pieces(m, stride, NULL, s))
        return false;
    add_known(f, k, n->out[0], r.off, s, true, cg_is_reduce(n->op) && k->mode == NEST_COLUMN);
    return true;
}

static Group copy_group(Func *f, const Group *k)
{
    Group c = *k;
    c.member.at = NULL;
    c.member.n = c.member.cap = 0;
    c.known.at = NULL;
    c.known.n = c.known.cap = 0;
    for (uint32_t i = 0; i < k->member.n; i++)
        vec_push(f->a, &c.member, k->member.at[i]);
    for (uint32_t i = 0; i < k->known.n; i++)
        vec_push(f->a, &c.known, k->known.at[i]);
    return c;
}

/* May the node stand in the group under this match?  Its operands made inside must be read at the same point. */
static bool agrees(Func *f, Group *k, const Node *n, const Match *m)
{
    Ref r;
    Lin stride[MAX_RANK], s[NEST_DIMS], t[NEST_DIMS];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || !cg_operand(f, n, i, &r, stride))
            continue;
        if (!makes(k, r.root))
            continue;
        if (cg_reads_table(n, i))
            return false;
        Known *x = find_known(k, r.root, r.off, true);
        if (!x || x->hidden || !over_pieces(m, stride, NULL, s) || !over_pieces(m, NULL, x->stride, t) ||
            memcmp(s, t, sizeof(Lin) * (size_t)m->n) != 0)
            return false;
        if (n->op == OP_GatherND)
            return false;
    }
    return true;
}

/* Joins by the anchor `known` against strides over the node's space.  On success *k is replaced. */
static bool join_by(Func *f, Group *k, NodeId id, const Known *known, const Lin *stride, bool front)
{
    const Node *n = &f->g->node.at[id];
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext);
    Match m;
    Group after;
    if (!match(k, known, rank, ext, stride, &m) || !shape_after(f, k, n, &m, &after) || !agrees(f, k, n, &m))
        return false;
    Group c = copy_group(f, k);
    if (!commit(f, &c, id, &m, &after, front))
        return false;
    *k = c;
    return true;
}

static bool full(const Lin *stride, const Lin *ext, int n)
{
    for (int d = 0; d < n; d++)
        if (!lin_is(ext[d], 1) && lin_is(stride[d], 0))
            return false;
    return n > 0;
}

/* Tries the operands as anchors: values made in the group first, whole ones before scalars of the row, then operands
   both read. */
static bool join(Func *f, Group *k, NodeId id, bool siblings)
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
            if ((round != 1) != full(stride, ext, rank) || (round == 2 && !siblings))
                continue;
            for (uint32_t j = 0; j < k->known.n; j++) {
                Known *x = &k->known.at[j];
                if (x->root != r.root || x->hidden || !lin_eq(x->off, r.off) || x->internal != (round < 2))
                    continue;
                if (round == 2 && !full(x->stride, k->ext, k->nd))
                    continue;
                Known anchor = *x;
                if (join_by(f, k, id, &anchor, stride, false))
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
            any |= cg_is_reduce(n->op) && in_axes(&n->attr, d);
        }
    after = k;
    if (any) {
        reduced_last(n, &m);
        after.mode = cg_reduces_columns(f, n) ? NEST_COLUMN : NEST_ROW;
        for (int i = 0; i < m.n; i++)
            after.nouter += !in_axes(&n->attr, m.d[i].e);
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
    needs(f, id, NONE, NULL, &need);
    for (uint32_t i = 0; i < need.n; i++)
        add_dep(f, g, need.at[i]);
    const Node *n = &f->g->node.at[id];
    for (uint32_t i = 0; i < n->nout; i++)
        f->group_of.at[n->out[i]] = g;
    return g;
}

static bool acyclic(Func *f, uint32_t g, const Ids *need)
{
    f->search++;
    for (uint32_t i = 0; i < need->n; i++)
        if (need->at[i] != g && reaches(f, need->at[i], g))
            return false;
    return true;
}

static bool try_group(Func *f, uint32_t g, NodeId id, bool siblings)
{
    Ids need = {0};
    const Node *n = &f->g->node.at[id];
    if (f->group.at[g].kind != G_NEST || !needs(f, id, g, NULL, &need) || !acyclic(f, g, &need))
        return false;
    for (uint32_t i = 0; i < n->nin; i++)               /* a table made in the group is out of reach */
        if (n->in[i] != NONE && cg_reads_table(n, i) && f->group_of.at[cg_ref(f, n->in[i])->root] == g)
            return false;
    Group k = f->group.at[g];
    if (!join(f, &k, id, siblings))
        return false;
    f->group.at[g] = k;
    for (uint32_t i = 0; i < need.n; i++)
        add_dep(f, g, need.at[i]);
    f->group_of.at[n->out[0]] = g;
    return true;
}

static bool alone(const Func *f, NodeId id)
{
    const Node *n = &f->g->node.at[id];
    return n->op == OP_Count || (cg_is_copy(n) && n->attr.k == 1) ||
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

/* ---- what must be in memory -------------------------------------------------------------------------------- */

bool cg_inline_leaf(const Func *f, ValueId root)
{
    NodeId def = f->def.at[root];
    return def != NONE && f->g->node.at[def].op == OP_Count;
}

static bool leaves_home(const Func *f, ValueId v)
{
    const Ref *r = f->home.at[v];
    return r && (f->buf.at[r->buf].cls != BUF_WORK || f->buf.at[r->buf].value != v);
}

static void need_value(Func *f, bool *needed, const Group *k, ValueId v)
{
    ValueId root = cg_ref(f, v)->root;
    if (f->def.at[root] != NONE && !(k && makes(k, root)) && !(k && cg_inline_leaf(f, root)))
        needed[root] = true;
}

/* Backwards over the groups: which values other groups read from memory.  skip_columns: as if those did not exist. */
static bool *in_memory(Func *f, bool skip_columns)
{
    bool *needed = arena_array(f->a, bool, f->g->value.n + 1);
    for (ValueId v = 0; v < f->home.n; v++)
        needed[v] = leaves_home(f, v);
    for (uint32_t o = f->order.n; o-- > 0;) {
        const Group *k = &f->group.at[f->order.at[o]];
        if (skip_columns && k->kind == G_NEST && k->mode == NEST_COLUMN)
            continue;
        bool *live = arena_array(f->a, bool, k->member.n + 1);
        for (uint32_t i = k->member.n; i-- > 0;) {
            const Node *n = &f->g->node.at[k->member.at[i].node];
            if (k->kind != G_NEST) {
                live[i] = true;
            } else {
                live[i] |= needed[n->out[0]] && f->group_of.at[n->out[0]] == f->order.at[o];
                for (uint32_t j = i + 1; j < k->member.n; j++)
                    for (uint32_t x = 0; live[j] && x < f->g->node.at[k->member.at[j].node].nin; x++) {
                        ValueId u = f->g->node.at[k->member.at[j].node].in[x];
                        live[i] |= u != NONE && cg_ref(f, u)->root == n->out[0];
                    }
            }
            for (uint32_t x = 0; live[i] && n->op != OP_Count && x < n->nin; x++)
                if (n->in[x] != NONE)
                    need_value(f, needed, k->kind == G_NEST ? k : NULL, n->in[x]);
        }
    }
    return needed;
}

/* ---- order ---------------------------------------------------------------------------------------------------- */

/* Depth first, so that each group comes right before its first reader where it can. */
static void settle_group(Func *f, uint32_t g)
{
    Group *k = &f->group.at[g];
    if (k->mark == f->search)
        return;
    k->mark = f->search;
    for (uint32_t i = 0; i < k->dep.n; i++)
        settle_group(f, f->group.at[g].dep.at[i]);
    f->group.at[g].step = (int)f->order.n;
    vec_push(f->a, &f->order, g);
}

static void sort_groups(Func *f)
{
    f->search++;
    f->order.n = 0;
    for (uint32_t g = 0; g < f->group.n; g++)
        if (f->group.at[g].member.n > 0)
            settle_group(f, g);
}

/* ---- column reductions: they compute their operand themselves when that is cheap --------------------------------- */

static bool cheap_map(const Node *n)
{
    if (!op_is_map(n->op) || n->nout != 1)
        return false;
    switch (n->op) {
    case OP_Neg: case OP_Abs: case OP_Relu: case OP_Not: case OP_Cast: case OP_Add: case OP_Sub: case OP_Mul: case OP_Min:
    case OP_Max: case OP_And: case OP_Or: case OP_Equal: case OP_Less: case OP_LessOrEqual: case OP_Greater:
    case OP_GreaterOrEqual: case OP_Where: case OP_Sign: return true;
    default: return false;
    }
}

/* Does a member read elements of this value other than the point's own? */
static bool reads_as_table(Func *f, const Group *k, ValueId root)
{
    for (uint32_t i = 0; i < k->member.n; i++) {
        const Node *n = &f->g->node.at[k->member.at[i].node];
        for (uint32_t j = 0; j < n->nin; j++)
            if (n->in[j] != NONE && (cg_reads_table(n, j) || n->op == OP_GatherND) && cg_ref(f, n->in[j])->root == root)
                return true;
    }
    return false;
}

/* Everything the group reads of this value, it reads at the same points: the value may be made inside. */
static bool one_view(Func *f, const Group *k, const Known *x)
{
    for (uint32_t i = 0; i < k->known.n; i++) {
        const Known *y = &k->known.at[i];
        if (y->root == x->root && (!lin_eq(y->off, x->off) || memcmp(y->stride, x->stride, sizeof(Lin) * (size_t)k->nd) != 0))
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
    result_strides(f, n, rank, ext, &r, stride);
    Known anchor = *x;
    return !anchor.internal && lin_eq(r.off, anchor.off) && one_view(f, k, &anchor) && join_by(f, k, id, &anchor, stride, true);
}

static void absorb(Func *f, uint32_t g, const bool *needed)
{
    for (uint32_t i = 0; i < f->group.at[g].known.n && f->group.at[g].member.n < 12; i++) {
        Group k = f->group.at[g];
        const Known x = k.known.at[i];
        NodeId def = f->def.at[x.root];
        if (x.internal || def == NONE || needed[x.root] || !cheap_map(&f->g->node.at[def]) ||
            f->group.at[f->group_of.at[x.root]].kind != G_NEST)
            continue;
        Ids need = {0};
        if (!full(x.stride, k.ext, k.nd) || !needs(f, def, g, NULL, &need) || !acyclic(f, g, &need) ||
            !join_front(f, &k, def, &x))
            continue;
        f->group.at[g] = k;
        for (uint32_t j = 0; j < need.n; j++)
            add_dep(f, g, need.at[j]);
        i = NONE;                                       /* its operands may be absorbed as well */
    }
}

/* Dependencies as the members have them: absorbing removes some. */
static void renew_deps(Func *f, uint32_t g)
{
    f->group.at[g].dep.n = 0;
    for (uint32_t i = 0; i < f->group.at[g].member.n; i++) {
        Ids need = {0};
        needs(f, f->group.at[g].member.at[i].node, g, &f->group.at[g], &need);
        for (uint32_t j = 0; j < need.n; j++)
            add_dep(f, g, need.at[j]);
    }
}

/* In their order; what the group reads from memory and now makes itself comes before its readers. */
static bool take_after(Func *f, Group *k, const Group *other, bool siblings)
{
    for (uint32_t i = 0; i < other->member.n; i++) {
        NodeId id = other->member.at[i].node;
        ValueId out = f->g->node.at[id].out[0];
        bool joined = makes(k, out), read = false;
        for (uint32_t j = 0; !joined && !read && j < k->known.n; j++)
            if (k->known.at[j].root == out) {
                read = true;
                joined = join_front(f, k, id, &k->known.at[j]);
            }
        if (!joined && (read || reads_as_table(f, k, out) || !join(f, k, id, siblings)))
            return false;
    }
    return true;
}

/* From the last member on, each before all: what the group reads is known to it.  What only others read comes last. */
static bool take_before(Func *f, Group *k, const Group *other)
{
    bool *late = arena_array(f->a, bool, other->member.n + 1);
    for (uint32_t i = other->member.n; i-- > 0;) {
        NodeId id = other->member.at[i].node;
        ValueId out = f->g->node.at[id].out[0];
        bool joined = makes(k, out), read = false;
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
        if (late[i] && !join(f, k, other->member.at[i].node, true))
            return false;
    return true;
}

/* Two groups over the same space become one: column reductions that read the same operand, or a group and what reads it. */
static bool merge(Func *f, uint32_t into, uint32_t from, bool siblings, bool front)
{
    Group k = f->group.at[into];
    const Group other = f->group.at[from];
    if (k.nd == 0 || (!front && total(f, k.ext, 0, k.nd) != total(f, other.ext, 0, other.nd)))
        return false;
    f->search++;
    for (uint32_t i = 0; i < other.dep.n; i++)          /* a path that leaves and comes back */
        if (other.dep.at[i] != into && reaches(f, other.dep.at[i], into))
            return false;
    f->search++;
    for (uint32_t i = 0; i < k.dep.n; i++)
        if (k.dep.at[i] != from && reaches(f, k.dep.at[i], from))
            return false;
    for (uint32_t i = 0; i < other.member.n; i++)       /* order edges between the two must stay edges */
        for (uint32_t j = 0; j < f->after.n; j += 2)
            if (f->after.at[j + 1] == other.member.at[i].node || f->after.at[j] == other.member.at[i].node)
                return false;
    if (!(front ? take_before(f, &k, &other) : take_after(f, &k, &other, siblings)))
        return false;
    f->group.at[into] = k;
    f->group.at[from].member.n = 0;
    for (uint32_t i = 0; i < other.dep.n; i++)
        add_dep(f, into, other.dep.at[i]);
    for (uint32_t i = 0; i < other.member.n; i++) {
        ValueId v = f->g->node.at[other.member.at[i].node].out[0];
        if (f->group_of.at[v] == from)
            f->group_of.at[v] = into;
    }
    for (uint32_t g = 0; g < f->group.n; g++) {
        Ids *dep = &f->group.at[g].dep;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < dep->n; i++) {
            uint32_t d = dep->at[i] == from ? into : dep->at[i];
            if (d != g)
                dep->at[kept++] = d;
        }
        dep->n = kept;
    }
    return true;
}

/* Groups that were opened apart, because what joins them came later: a group joins one whose results it reads. */
static void merge_readers(Func *f)
{
    for (uint32_t g = 0; g < f->group.n; g++) {
        Group *k = &f->group.at[g];
        if (k->kind != G_NEST || k->mode == NEST_COLUMN || k->member.n == 0)
            continue;
        Ids dep = {0};
        for (uint32_t i = 0; i < k->dep.n; i++)
            vec_push(f->a, &dep, k->dep.at[i]);
        for (uint32_t i = dep.n; i-- > 0;) {
            const Group *d = &f->group.at[dep.at[i]];
            if (d->kind == G_NEST && d->mode != NEST_COLUMN && d->member.n > 0 &&
                d->member.n + f->group.at[g].member.n <= MOST_MEMBERS && !merge(f, g, dep.at[i], false, true) &&
                merge(f, dep.at[i], g, true, false))
                break;
        }
    }
}

static void fuse_columns(Func *f)
{
    Ids column = {0};
    sort_groups(f);
    bool *needed = in_memory(f, true);
    for (uint32_t g = 0; g < f->group.n; g++)
        if (f->group.at[g].kind == G_NEST && f->group.at[g].mode == NEST_COLUMN) {
            absorb(f, g, needed);
            renew_deps(f, g);
            vec_push(f->a, &column, g);
        }
    for (uint32_t i = 1; i < column.n; i++)
        for (uint32_t j = i; j-- > 0 && i - j < 32;)
            if (f->group.at[column.at[j]].member.n > 0 && !merge(f, column.at[i], column.at[j], true, false) &&
                merge(f, column.at[j], column.at[i], true, false))
                break;
}

void cg_fuse(Func *f)
{
    Ids loader = {0};
    cg_track(f);
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
        vec_push(f->a, &k.member, (Member){.node = id});
        open_group(f, k, id);
    }
    merge_readers(f);
    fuse_columns(f);
    sort_groups(f);
    f->needed = in_memory(f, false);
}
