/*
 * view.c - values as views.  In: a value of a function.  Out: the buffer, offset and strides its
 * elements stand at.
 *
 * Transpose, Expand, Slice, Split, Identity, Phase and every Reshape that strides can express only
 * change the view. On the way through a chain of views a dimension may consist of several parts,
 * each with its stride (heads of samples merged into one dimension, then transposed and taken apart
 * again); what a consumer reads has one stride a dimension. A root value is one that no view makes:
 * it has a home that place.c gave it, or a buffer of its own, row-major.
 */
#include "plan.h"

/* Extent 1 for good; a batch of one row is still `rows`. */
static bool is_one(Lin x) { return lin_is(x, 1); }

/* A constant's elements lie as they do for all rows and the greatest length, whatever they are
 * today; of numbers that rise evenly those of any length are the first ones. */
static Ref all_rows(const Func *f, ValueId v)
{
    Ref r = cg_dense(f, v);
    int64_t stride = 1, first, step;
    if (f->sg->lengths && cg_iota(val(f->g, v), &first, &step))
        return r;
    for (int d = r.rank - 1; d >= 0; d--) {
        r.stride[d] = is_one(r.ext[d]) ? lin(0) : lin(stride);
        stride *= cg_most_constant(f->sg, val(f->g, v)->shape.d[d]);
    }
    return r;
}

/* The dimensions follow one another as they do row-major, maybe with gaps. */
bool cg_in_order(const Func *f, const Wide *w)
{
    int64_t rows = f->g->batch > 1 ? f->g->batch : 1009;
    for (int i = 0; i + 1 < w->n; i++)
        if (lin_at(w->stride[i], rows) < lin_at(w->stride[i + 1], rows))
            return false;
    return true;
}

/* ---- views ----------------------------------------------------------------------------------- */

/* One part per dimension, none for an extent of 1. */
Wide cg_widen(const Ref *r)
{
    Wide w = {.root = r->root, .buf = r->buf, .off = r->off, .rank = r->rank};
    for (int d = 0; d < r->rank; d++) {
        w.first[d] = w.n;
        if (!is_one(r->ext[d])) {
            w.ext[w.n] = r->ext[d];
            w.stride[w.n++] = r->stride[d];
        }
    }
    w.first[r->rank] = w.n;
    return w;
}

/* Adds a part to the dimension at hand, to the part before it where strides chain. */
static bool add_part(Wide *w, Lin ext, Lin stride, bool may_merge)
{
    Lin span;
    if (is_one(ext))
        return true;
    if (may_merge && w->n > 0 && lin_mul(stride, ext, &span) && lin_eq(w->stride[w->n - 1], span)) {
        w->stride[w->n - 1] = stride;
        return lin_mul(w->ext[w->n - 1], ext, &w->ext[w->n - 1]);
    }
    if (w->n == WIDE_PARTS)
        return false;
    w->ext[w->n] = ext;
    w->stride[w->n++] = stride;
    return true;
}

/* Dimensions of one stride each; false when one needs several. */
bool cg_narrow(const Func *f, const Wide *w, ValueId v, Ref *r)
{
    Ref out = {.root = w->root, .buf = w->buf, .off = w->off, .rank = w->rank};
    for (int d = 0; d < w->rank; d++) {
        Wide one = {0};
        out.ext[d] = cg_ext(f, v, d);
        for (int i = w->first[d]; i < w->first[d + 1]; i++)
            if (!add_part(&one, w->ext[i], w->stride[i], true))
                return false;
        if (one.n > 1)
            return false;
        if (one.n == 1)
            out.stride[d] = one.stride[0];
    }
    *r = out;
    return true;
}

/* The parts in a row, cut anew: from the last dimension on each takes parts until its extent is
 * used up. */
static bool reshape(const Wide *in, int rank, const Lin *ext, Wide *out)
{
    /* back: parts of the result from the last to the first */
    Wide all = {0}, back = {0};
    for (int i = 0; i < in->n; i++)
        if (!add_part(&all, in->ext[i], in->stride[i], true))
            return false;
    int at = all.n - 1;
    for (int d = rank - 1; d >= 0; d--) {
        Lin rest = ext[d];
        back.first[d] = back.n;
        while (!is_one(rest)) {
            if (at < 0 || back.n == WIDE_PARTS)
                return false;
            Lin *piece = &back.ext[back.n];
            back.stride[back.n++] = all.stride[at];
            if (!lin_piece(rest, all.ext[at], piece) || !lin_div(rest, *piece, &rest) ||
                !lin_past(&all.ext[at], &all.stride[at], *piece))
                return false;
            at -= is_one(all.ext[at]);
        }
    }
    if (at >= 0)
        return false;
    *out = (Wide){.root = in->root, .buf = in->buf, .off = in->off, .rank = rank};
    for (int d = 0; d < rank; d++) {
        out->first[d] = out->n;
        for (int i = d > 0 ? back.first[d - 1] : back.n; i-- > back.first[d];) {
            out->ext[out->n] = back.ext[i];
            out->stride[out->n++] = back.stride[i];
        }
    }
    out->first[rank] = out->n;
    return true;
}

bool cg_is_copy(const Node *n) { return n->op == OP_Identity && n->attr.copy; }

bool cg_is_view(const Func *f, NodeId id)
{
    const Node *n = &f->g->node.at[id];
    return op_passes_on(n->op) && !cg_is_copy(n);
}

ValueId cg_view_operand(const Func *f, const Node *n)
{
    return n->op == OP_Phase && !func_trains(f) ? n->in[1] : n->in[0];
}

static bool empty(const Func *f, ValueId v)
{
    return shape_elements(&val(f->g, v)->shape) == 0;
}

static bool copy_dim(Wide *o, const Wide *in, int d)
{
    for (int i = in->first[d]; i < in->first[d + 1]; i++)
        if (!add_part(o, in->ext[i], in->stride[i], false))
            return false;
    return true;
}

/* Elements start, start + step, .. of a dimension. */
static bool cut_dim(Wide *o, const Wide *in, int d, int64_t start, int64_t step, Lin ext)
{
    int parts = in->first[d + 1] - in->first[d];
    if (parts > 1)
        return false;
    if (parts == 0)
        return true;
    Lin stride = in->stride[in->first[d]];
    o->off = lin_add(o->off, lin_times(stride, start));
    return add_part(o, ext, lin_times(stride, step), false);
}

/* The view of a node's output, given that of its operand. */
bool cg_view_apply(Func *f, const Node *n, uint32_t out, const Wide *in, Wide *r)
{
    const Attr *at = &n->attr;
    ValueId x = cg_view_operand(f, n), y = n->out[out];
    int rank = val(f->g, y)->shape.rank, shift = rank - in->rank;
    Lin ext[MAX_RANK];
    int64_t start = 0;
    for (int d = 0; d < rank; d++)
        ext[d] = cg_ext(f, y, d);
    if (empty(f, y)) {
        Ref dense = cg_dense(f, y);
        *r = cg_widen(&dense);
        r->root = in->root;
        r->buf = in->buf;
        return true;
    }
    if (n->op == OP_Reshape)
        return reshape(in, rank, ext, r);
    Wide o = {.root = in->root, .buf = in->buf, .off = in->off, .rank = rank};
    for (uint32_t i = 0; n->op == OP_Split && i < out; i++)
        start += val(f->g, n->out[i])->shape.d[at->axis];
    for (int d = 0; d < rank; d++) {
        bool good = true;
        o.first[d] = o.n;
        switch (n->op) {
        case OP_Identity:
        case OP_Vary:
        case OP_Phase: good = copy_dim(&o, in, d); break;
        case OP_Transpose: good = copy_dim(&o, in, (int)at->perm[d]); break;
        case OP_Expand:
            if (d >= shift && in->first[d - shift] < in->first[d - shift + 1])
                good = copy_dim(&o, in, d - shift);
            else
                good = add_part(&o, ext[d], lin(0), false);
            break;
        case OP_Slice:
            if (at->start[d] == 0 && (!at->step || at->step[d] == 1) &&
                lin_eq(ext[d], cg_ext(f, x, d)))
                good = copy_dim(&o, in, d);
            else
                good = cut_dim(&o, in, d, at->start[d], at->step ? at->step[d] : 1, ext[d]);
            break;
        case OP_Split:
            if (d != at->axis)
                good = copy_dim(&o, in, d);
            else
                good = cut_dim(&o, in, d, start, 1, ext[d]);
            break;
        default: BUG("%s is no view", op_name(n->op));
        }
        if (!good)
            return false;
    }
    o.first[rank] = o.n;
    *r = o;
    return true;
}

/* The place an operand must have for the output to stand at `out`; only for views that keep all
 * elements. */
bool cg_view_invert(Func *f, const Node *n, const Wide *out, Wide *r)
{
    ValueId x = cg_view_operand(f, n);
    int rank = val(f->g, x)->shape.rank;
    Lin ext[MAX_RANK];
    for (int d = 0; d < rank; d++)
        ext[d] = cg_ext(f, x, d);
    switch (n->op) {
    case OP_Identity:
    case OP_Phase: *r = *out; return true;
    case OP_Reshape: return !empty(f, x) && reshape(out, rank, ext, r);
    case OP_Transpose: break;
    default: return false;
    }
    int of[MAX_RANK];
    Wide o = {.root = out->root, .buf = out->buf, .off = out->off, .rank = rank};
    for (int d = 0; d < rank; d++)
        of[n->attr.perm[d]] = d;
    for (int d = 0; d < rank; d++) {
        o.first[d] = o.n;
        if (!copy_dim(&o, out, of[d]))
            return false;
    }
    o.first[rank] = o.n;
    *r = o;
    return true;
}

/* A Reshape that joins or cuts dimensions: more than ones are put in or left out. */
bool cg_recuts(const Func *f, const Node *n)
{
    const Shape *x = &val(f->g, n->in[0])->shape, *y = &val(f->g, n->out[0])->shape;
    int i = 0, j = 0;
    while (n->op == OP_Reshape && (i < x->rank || j < y->rank)) {
        if (i < x->rank && x->d[i] == 1)
            i++;
        else if (j < y->rank && y->d[j] == 1)
            j++;
        else if (i == x->rank || j == y->rank || x->d[i++] != y->d[j++])
            return true;
    }
    return false;
}

/* ---- what a value resolves to ---------------------------------------------------------------- */

/* Where a value stands in a message; others than those that cross are read there row-major. */
static Ref crossing(const Func *f, ValueId v)
{
    uint32_t i = idmap_get(&f->sg->position.edge, v);
    return i == NONE ? cg_dense(f, v) : *f->sg->position.edges.at[i];
}

/* A root's place, or none: v is a view. */
static bool root_ref(Func *f, ValueId v, Ref *r)
{
    if (f->ref.at[v] && !f->ref.at[v]->wide) {
        *r = *f->ref.at[v];
        return true;
    }
    if (f->home.at[v]) {
        *r = *f->home.at[v];
        r->root = v;
        return true;
    }
    if (f->def.at[v] == NONE) {
        uint32_t buf = cg_outside(f, v);
        if (buf == NONE)
            return false;
        const Buffer *b = &f->buf.at[buf];
        *r = b->layout             ? *b->layout
             : b->cls == BUF_CONST ? all_rows(f, v)
                                   : crossing(f, v);
        r->root = v;
        r->buf = buf;
        return true;
    }
    if (cg_is_view(f, f->def.at[v]))
        return false;
    *r = cg_own(f, v); /* no home yet: as if it had its own buffer */
    return true;
}

/* The node that makes a value: in this function, or the view by which another's memory is read. */
NodeId cg_maker(const Func *f, ValueId v)
{
    return f->def.at[v] != NONE           ? f->def.at[v]
           : val(f->g, v)->kind == V_NODE ? val(f->g, v)->node
                                          : NONE;
}

/* The value whose memory v is, through views. */
ValueId cg_below(const Func *f, ValueId v)
{
    for (NodeId n = cg_maker(f, v); n != NONE && cg_is_view(f, n); n = cg_maker(f, v))
        v = cg_view_operand(f, &f->g->node.at[n]);
    return v;
}

Ref cg_own(const Func *f, ValueId v)
{
    Ref at;
    return f->apart.at[cg_below(f, v)] && val(f->g, v)->shape.rank > 1 &&
                   cg_padded(f, v, false, &at)
               ? at
               : cg_dense(f, v);
}

ValueId cg_root(Func *f, ValueId v)
{
    Wide w;
    return cg_wide(f, v, &w) ? w.root : v;
}

bool cg_wide(Func *f, ValueId v, Wide *w)
{
    Ref r;
    cg_track(f);
    if (root_ref(f, v, &r)) {
        *w = cg_widen(&r);
        return true;
    }
    NodeId def = cg_maker(f, v);
    if (def == NONE || !cg_is_view(f, def))
        BUG("stage %u, function %d: value %u (%s) comes from nowhere", f->sg->stage->index,
            (int)f->kind, v, val(f->g, v)->name);
    const Node *n = &f->g->node.at[def];
    Wide in;
    uint32_t out = 0;
    while (n->out[out] != v)
        out++;
    return cg_wide(f, cg_view_operand(f, n), &in) && cg_view_apply(f, n, out, &in, w);
}

bool cg_ref_try(Func *f, ValueId v, Ref *r)
{
    Wide w;
    cg_track(f);
    return root_ref(f, v, r) || (cg_wide(f, v, &w) && cg_narrow(f, &w, v, r));
}

static void resolve(Func *f, ValueId v, Ref *r)
{
    Wide w;
    if (!cg_wide(f, v, &w))
        BUG("value %u is no view of its operand", v);
    if (cg_narrow(f, &w, v, r))
        return;
    *r = cg_dense(f, v);
    r->root = w.root;
    r->buf = w.buf;
    r->off = w.off;
    r->wide = true;
}

const Ref *cg_ref(Func *f, ValueId v)
{
    Ref r;
    cg_track(f);
    if (f->ref.at[v])
        return f->ref.at[v];
    if (!f->home.at[v]) {
        resolve(f, v, &r);
        if (r.buf == NONE) {                            /* a root without a home: its own buffer */
            INSIST(r.root == v || f->def.at[r.root] != NONE);
            Ref *home = arena_new_of(f->a, Ref);
            *home = cg_own(f, r.root);
            home->buf = cg_buffer(f, BUF_WORK, 0, r.root);
            f->buf.at[home->buf].bytes = cg_ref_bytes(f, home, r.root);
            f->home.at[r.root] = home;
            if (r.root != v)
                resolve(f, v, &r);
        }
    }
    if (!f->home.at[v]) {
        f->ref.at[v] = arena_new_of(f->a, Ref);
        *f->ref.at[v] = r;
    } else {
        f->ref.at[v] = f->home.at[v];
    }
    return f->ref.at[v];
}

uint32_t cg_step_arg(Func *f, Step *s, ValueId v, bool written)
{
    const Ref *r = cg_ref(f, v);
    vec_push(f->a, &s->arg, ((StepArg){r->buf, r->off, written, ROLE_X, NULL, v}));
    return s->arg.n - 1;
}
