/*
 * view.c - values as views.  In: a value of a function.  Out: the buffer, offset and strides its elements stand at.
 *
 * Transpose, Expand, Slice, Split, Identity, Phase and every Reshape that strides can express only change the view.
 * A root value is one that no view makes: it has a home that place.c gave it, or a buffer of its own, row-major.
 */
#include "cg.h"

/* Extent 1 for good; a batch of one row is still `rows`. */
static bool is_one(Lin x) { return lin_is(x, 1); }

Lin cg_ext(const Func *f, ValueId v, int d)
{
    const Value *x = val(f->g, v);
    int64_t n = x->shape.d[d];
    if (f->sg->fixed || x->batch != d || f->g->batch <= 0 || n % f->g->batch != 0)
        return lin(n);
    return (Lin){0, n / f->g->batch};
}

static Lin product(Lin x, Lin y)
{
    Lin z;
    if (!lin_mul(x, y, &z))
        BUG("a size that is not affine in the rows");
    return z;
}

Ref cg_dense(const Func *f, ValueId v)
{
    Ref r = {.root = v, .buf = NONE, .rank = val(f->g, v)->shape.rank};
    Lin stride = lin(1);
    for (int d = r.rank - 1; d >= 0; d--) {
        r.ext[d] = cg_ext(f, v, d);
        r.stride[d] = is_one(r.ext[d]) ? lin(0) : stride;
        stride = product(stride, r.ext[d]);
    }
    return r;
}

bool cg_is_dense(const Ref *r)
{
    Lin stride = lin(1);
    for (int d = r->rank - 1; d >= 0; d--) {
        if (is_one(r->ext[d]))
            continue;
        if (!lin_eq(r->stride[d], stride))
            return false;
        stride = product(stride, r->ext[d]);
    }
    return true;
}

bool cg_ref_same(const Ref *x, const Ref *y)
{
    if (x->buf != y->buf || !lin_eq(x->off, y->off) || x->rank != y->rank)
        return false;
    for (int d = 0; d < x->rank; d++)
        if (!is_one(x->ext[d]) && !lin_eq(x->stride[d], y->stride[d]))
            return false;
    return true;
}

int64_t cg_bytes(const Func *f, ValueId v)
{
    return shape_elements(&val(f->g, v)->shape) * (int64_t)dtype_size(val(f->g, v)->dtype);
}

uint32_t cg_buffer(Func *f, BufClass cls, uint32_t index, ValueId v)
{
    for (uint32_t i = 0; cls != BUF_WORK && i < f->buf.n; i++)
        if (f->buf.at[i].cls == cls && f->buf.at[i].index == index)
            return i;
    Buffer b = {.cls = cls, .index = index, .value = v, .type = val(f->g, v)->dtype, .bytes = cg_bytes(f, v),
                .first = -1, .last = -1};
    vec_push(f->a, &f->buf, b);
    return f->buf.n - 1;
}

/* ---- views ------------------------------------------------------------------------------------- */

bool cg_reshape(const Ref *in, int rank, const Lin *ext, Ref *r)
{
    Lin run_ext[MAX_RANK], run_stride[MAX_RANK];
    int runs = 0;
    for (int d = 0; d < in->rank; d++) {
        Lin span;
        if (is_one(in->ext[d]))
            continue;
        if (runs > 0 && lin_mul(in->stride[d], in->ext[d], &span) && lin_eq(run_stride[runs - 1], span)) {
            if (!lin_mul(run_ext[runs - 1], in->ext[d], &run_ext[runs - 1]))
                return false;
            run_stride[runs - 1] = in->stride[d];
            continue;
        }
        run_ext[runs] = in->ext[d];
        run_stride[runs++] = in->stride[d];
    }
    Ref out = {.root = in->root, .buf = in->buf, .off = in->off, .rank = rank};
    int at = runs - 1;
    for (int d = rank - 1; d >= 0; d--) {
        out.ext[d] = ext[d];
        if (is_one(ext[d]))
            continue;
        while (at >= 0 && is_one(run_ext[at]))
            at--;
        Lin rest;
        if (at < 0 || !lin_div(run_ext[at], ext[d], &rest))
            return false;
        out.stride[d] = run_stride[at];
        if (!lin_mul(run_stride[at], ext[d], &run_stride[at]))
            return false;
        run_ext[at] = rest;
    }
    while (at >= 0 && is_one(run_ext[at]))
        at--;
    if (at >= 0)
        return false;
    *r = out;
    return true;
}

bool cg_is_copy(const Node *n) { return n->op == OP_Identity && n->attr.mode == 1; }

bool cg_is_view(const Func *f, NodeId id)
{
    const Node *n = &f->g->node.at[id];
    return (op_is_view(n->op) || n->op == OP_Phase) && !cg_is_copy(n);
}

ValueId cg_view_operand(const Func *f, const Node *n)
{
    return n->op == OP_Phase && !f->training ? n->in[1] : n->in[0];
}

static bool empty(const Func *f, ValueId v)
{
    return shape_elements(&val(f->g, v)->shape) == 0;
}

bool cg_view_apply(Func *f, const Node *n, uint32_t out, const Ref *in, Ref *r)
{
    const Attr *at = &n->attr;
    ValueId y = n->out[out];
    int rank = val(f->g, y)->shape.rank;
    Ref o = {.root = in->root, .buf = in->buf, .off = in->off, .rank = rank};
    for (int d = 0; d < rank; d++)
        o.ext[d] = cg_ext(f, y, d);
    switch (n->op) {
    case OP_Identity:
    case OP_Phase:
        for (int d = 0; d < rank; d++)
            o.stride[d] = in->stride[d];
        break;
    case OP_Reshape:
        if (empty(f, y))
            break;
        if (!cg_reshape(in, rank, o.ext, &o))
            return false;
        break;
    case OP_Transpose:
        for (int d = 0; d < rank; d++)
            o.stride[d] = in->stride[at->a[d]];
        break;
    case OP_Expand:
        for (int d = rank - 1, i = in->rank - 1; i >= 0; i--, d--)
            o.stride[d] = is_one(in->ext[i]) ? lin(0) : in->stride[i];
        break;
    case OP_Slice:
        for (int d = 0; d < rank; d++) {
            o.off = lin_add(o.off, lin_times(in->stride[d], at->a[d]));
            o.stride[d] = is_one(o.ext[d]) ? lin(0) : lin_times(in->stride[d], at->c ? at->c[d] : 1);
        }
        break;
    case OP_Split: {
        int64_t start = 0;
        for (uint32_t i = 0; i < out; i++)
            start += val(f->g, n->out[i])->shape.d[at->axis];
        for (int d = 0; d < rank; d++)
            o.stride[d] = is_one(o.ext[d]) ? lin(0) : in->stride[d];
        o.off = lin_add(o.off, lin_times(in->stride[at->axis], start));
        break;
    }
    default:
        BUG("%s is no view", op_name(n->op));
    }
    *r = o;
    return true;
}

/* The place an operand must have for the output to stand at `out`; only for views that keep all elements. */
bool cg_view_invert(Func *f, const Node *n, const Ref *out, Ref *r)
{
    ValueId x = cg_view_operand(f, n);
    int rank = val(f->g, x)->shape.rank;
    Ref o = {.root = out->root, .buf = out->buf, .off = out->off, .rank = rank};
    for (int d = 0; d < rank; d++)
        o.ext[d] = cg_ext(f, x, d);
    switch (n->op) {
    case OP_Identity:
    case OP_Phase:
        for (int d = 0; d < rank; d++)
            o.stride[d] = out->stride[d];
        break;
    case OP_Transpose:
        for (int d = 0; d < rank; d++)
            o.stride[n->attr.a[d]] = out->stride[d];
        break;
    case OP_Reshape:
        if (empty(f, x) || !cg_reshape(out, rank, o.ext, &o))
            return false;
        break;
    default:
        return false;
    }
    *r = o;
    return true;
}

/* ---- what a value resolves to -------------------------------------------------------------------- */

static uint32_t find(const Ids *list, ValueId v)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == v)
            return i;
    return NONE;
}

/* The buffer of a value that this function does not make; NONE when it is a view of another. */
static uint32_t outside(Func *f, ValueId v)
{
    StageGen *sg = f->sg;
    Stage *s = sg->stage;
    const Value *x = val(f->g, v);
    bool back = f->kind >= F_BACKWARD;
    if (x->kind == V_PARAM) {
        for (uint32_t i = 0; i < s->param.n; i++)
            if (s->param.at[i].param == x->param)
                return cg_buffer(f, BUF_PARAM, i, v);
        BUG("stage %u does not hold the parameter it reads", s->index);
    }
    if (x->kind == V_CONST)
        return cg_buffer(f, BUF_CONST, v, v);
    for (uint32_t i = 0; i < s->input.n; i++)
        if (s->input.at[i].value == v)
            return cg_buffer(f, BUF_IN, i, v);
    if (!back)
        return NONE;
    for (uint32_t i = 0; i < s->output.n; i++)
        if (s->output.at[i].value == v)
            return cg_buffer(f, BUF_OUT, i, v);
    for (uint32_t i = 0; i < sg->also_output.n; i += 2)
        if (sg->also_output.at[i] == v)
            return cg_buffer(f, BUF_OUT, sg->also_output.at[i + 1], v);
    uint32_t i = find(&sg->stash, v);
    if (i != NONE)
        return cg_buffer(f, BUF_STASH, i, v);
    if (f->kind == F_WEIGHT && (i = find(&sg->saved, v)) != NONE)
        return cg_buffer(f, BUF_SAVED, i, v);
    uint32_t dy = 0;
    for (uint32_t o = 0; o < s->output.n; o++)
        for (uint32_t j = 0; j < s->output.at[o].dys.n; j++, dy++)
            if (s->output.at[o].dys.at[j] == v)
                return cg_buffer(f, BUF_DY, dy, v);
    return NONE;
}

bool cg_ref_try(Func *f, ValueId v, Ref *r)
{
    cg_track(f);
    if (f->ref.at[v]) {
        *r = *f->ref.at[v];
        return true;
    }
    if (f->home.at[v]) {
        *r = *f->home.at[v];
        r->root = v;
        return true;
    }
    NodeId def = f->def.at[v];
    if (def == NONE) {
        uint32_t buf = outside(f, v);
        if (buf != NONE) {
            const Buffer *b = &f->buf.at[buf];
            *r = b->cls == BUF_STASH && b->index < f->sg->stash_layout.n   ? *f->sg->stash_layout.at[b->index]
                 : b->cls == BUF_SAVED && b->index < f->sg->saved_layout.n ? *f->sg->saved_layout.at[b->index]
                                                                          : cg_dense(f, v);
            r->root = v;
            r->buf = buf;
            return true;
        }
        def = val(f->g, v)->kind == V_NODE ? val(f->g, v)->node : NONE;
        if (def == NONE || !cg_is_view(f, def))
            BUG("stage %u, function %d: value %u (%s) comes from nowhere", f->sg->stage->index, (int)f->kind, v,
                val(f->g, v)->name);
    }
    if (!cg_is_view(f, def)) {
        *r = cg_dense(f, v);                            /* no home yet: as if it had its own buffer */
        return true;
    }
    const Node *n = &f->g->node.at[def];
    Ref in;
    uint32_t out = 0;
    while (n->out[out] != v)
        out++;
    return cg_ref_try(f, cg_view_operand(f, n), &in) && cg_view_apply(f, n, out, &in, r);
}

const Ref *cg_ref(Func *f, ValueId v)
{
    cg_track(f);
    if (!f->ref.at[v]) {
        Ref *r = arena_new_of(f->a, Ref);
        if (!cg_ref_try(f, v, r))
            BUG("value %u is no view of its operand", v);
        if (r->buf == NONE) {                           /* a root without a home: its own buffer */
            INSIST(r->root == v || f->def.at[r->root] != NONE);
            Ref *home = arena_new_of(f->a, Ref);
            *home = cg_dense(f, r->root);
            home->buf = cg_buffer(f, BUF_WORK, 0, r->root);
            f->home.at[r->root] = home;
            if (!cg_ref_try(f, v, r))
                BUG("value %u is no view of its operand", v);
        }
        f->ref.at[v] = r;
    }
    return f->ref.at[v];
}
