/*
 * build.c - groups to nests.  In: a group's members and their pieces.  Out: statements over the
 * group's dimensions, merged where all strides allow, what nobody reads left out.
 */
#include <string.h>

#include "plan.h"

typedef struct {
    Func *f;
    const Group *k;
    Nest *n;
    const Member *m;
    VEC(ValueId) made; /* pairs: root, statement */
} Build;

static uint32_t add(Build *b, Stmt s)
{
    vec_push(b->f->a, &b->n->stmt, s);
    return b->n->stmt.n - 1;
}

/* Strides over the node's dims as strides over the group's. */
static void over_group(const Build *b, const Lin *e, Lin *out)
{
    memset(out, 0, sizeof(Lin) * NEST_DIMS);
    for (int p = 0; p < b->m->np; p++) {
        const Piece *x = &b->m->piece[p];
        out[x->k] = lin_product(e[x->e], x->mult);
    }
}

/* A step's part of a sequence; where the step is itself one of a step's, any place. */
static Lin moves(const Func *f, uint32_t buf)
{
    const Buffer *x = &f->buf.at[buf];
    Lin n = lin(1);
    if (!f->sg->loops.within || (x->cls != BUF_IN && x->cls != BUF_OUT))
        return lin(0);
    for (int d = 0; d < val(f->g, x->value)->shape.rank && !f->sg->loops.within->loops.within; d++)
        if (!lin_mul(n, cg_ext(f, x->value, d), &n))
            return lin(1);
    return n;
}

static uint32_t argument(Build *b, uint32_t buf, Lin off, ValueId v, Dtype t, bool written,
                         bool acc)
{
    for (uint32_t i = 0; i < b->n->arg.n; i++) {
        const NestArg *x = &b->n->arg.at[i];
        if (x->buf == buf && lin_eq(x->offset, off) && x->written == written && x->type == t &&
            x->acc == acc)
            return i;
    }
    NestArg a = {.type = t,
                 .written = written,
                 .acc = acc,
                 .buf = buf,
                 .offset = off,
                 .moves = moves(b->f, buf),
                 .value = v};
    vec_push(b->f->a, &b->n->arg, a);
    return b->n->arg.n - 1;
}

/* Loads, constants and indices are made once. */
static uint32_t add_leaf(Build *b, Stmt s)
{
    for (uint32_t i = 0; s.nindex == 0 && i < b->n->stmt.n; i++)
        if (stmt_same(&b->n->stmt.at[i], &s))
            return i;
    return add(b, s);
}

/* ---- constants that need no memory ----------------------------------------------------------- */

bool cg_uniform(const Func *f, ValueId root, double *x, int64_t *i)
{
    const Value *v = val(f->g, root);
    if (v->kind != V_CONST || !v->data || !dtype_is_computable(v->dtype))
        return false;
    int64_t n = shape_elements(&v->shape);
    size_t size = dtype_size(v->dtype);
    const uint8_t *at = v->data;
    for (int64_t j = 1; j < n; j++)
        if (memcmp(at, at + (size_t)j * size, size) != 0)
            return false;
    if (n == 0)
        return false;
    *x = cg_element(v, 0, i);
    return true;
}

/* ---- operands -------------------------------------------------------------------------------- */

static uint32_t made(const Build *b, ValueId root)
{
    for (uint32_t i = 0; i < b->made.n; i += 2)
        if (b->made.at[i] == root)
            return b->made.at[i + 1];
    return NONE;
}

static uint32_t load(Build *b, const Ref *r, const Lin *stride, Lin more, uint32_t nindex,
                     NestIndex *index)
{
    Func *f = b->f;
    Stmt s = {.kind = S_LOAD, .type = val(f->g, r->root)->dtype, .nindex = nindex, .index = index};
    over_group(b, stride, s.stride);
    Lin off = lin_add(r->off, more);
    s.arg = argument(b, r->buf, off, r->root, s.type, false, false);
    f->buf.at[r->buf].used = true;
    return add_leaf(b, s);
}

/* How many elements axes of x have, as a number. */
static Stmt count(const Build *b, const Node *c, Dtype t)
{
    Stmt s = {.kind = S_LIN, .type = t, .base = lin(1)};
    for (int d = 0; d < c->attr.n; d++)
        if (!lin_mul(s.base, cg_ext(b->f, c->in[0], (int)c->attr.axes[d]), &s.base))
            BUG("a count that is not affine in the rows");
    if (s.base.b == 0)
        return (Stmt){.kind = S_CONST, .type = t, .k = (double)s.base.c, .ki = s.base.c};
    return s;
}

/* One number, of how many rows there are, constants and inputs that are numbers: each kernel that
   reads it computes it. */
static uint32_t number(Build *b, ValueId v)
{
    Func *f = b->f;
    Dtype t = val(f->g, v)->dtype;
    double x;
    if (g_const_double(f->g, v, &x))
        return add_leaf(b, (Stmt){.kind = S_CONST, .type = t, .k = x, .ki = element_int64(x)});
    const Ref *r = cg_ref(f, v);
    uint32_t at = made(b, r->root);
    if (at != NONE)
        return at;
    if (val(f->g, r->root)->kind == V_INPUT) {
        Lin still[MAX_RANK] = {{0, 0}};
        return load(b, r, still, lin(0), 0, NULL);
    }
    const Node *n = &f->g->node.at[f->def.at[r->root]];
    Stmt s = {.kind = S_OP, .op = n->op, .type = t, .nin = n->nin};
    for (uint32_t i = 0; n->op != OP_Count && i < n->nin; i++)
        s.in[i] = number(b, n->in[i]);
    at = n->op == OP_Count ? add_leaf(b, count(b, n, t)) : add(b, s);
    vec_push(f->a, &b->made, r->root);
    vec_push(f->a, &b->made, at);
    return at;
}

static uint32_t operand(Build *b, const Node *n, uint32_t i)
{
    Func *f = b->f;
    Ref r;
    Lin stride[MAX_RANK];
    double x;
    int64_t whole, first, step;
    if (!cg_operand(f, n, i, &r, stride))
        BUG("operand %u of %s is not read", i, op_name(n->op));
    Dtype t = val(f->g, r.root)->dtype;
    uint32_t at = made(b, r.root);
    if (at != NONE)
        return at;
    if (cg_inline_leaf(f, r.root))
        return number(b, r.root);
    if (cg_uniform(f, r.root, &x, &whole))
        return add_leaf(b, (Stmt){.kind = S_CONST, .type = t, .k = x, .ki = whole});
    if (cg_iota(val(f->g, r.root), &first, &step)) {
        Stmt s = {.kind = S_INDEX, .type = t, .base = lin_add(lin(first), lin_times(r.off, step))};
        over_group(b, stride, s.stride);
        for (int d = 0; d < NEST_DIMS; d++)
            s.stride[d] = lin_times(s.stride[d], step);
        return add_leaf(b, s);
    }
    return load(b, &r, stride, lin(0), 0, NULL);
}

/* x[.., index, ..]: the other dimensions by stride */
static uint32_t gather(Build *b, const Node *n)
{
    Func *f = b->f;
    Ref r, ri;
    Lin stride[MAX_RANK], si[MAX_RANK];
    const Value *iv = val(f->g, n->in[1]);
    int q = n->op == OP_GatherND ? (int)iv->shape.d[iv->shape.rank - 1] : 1;
    NestIndex *index = arena_array(f->a, NestIndex, q + 1);
    cg_operand(f, n, 0, &r, stride);
    for (int i = 0; i < q; i++) {
        int d = n->op == OP_GatherND ? (int)n->attr.batch_dims + i : (int)n->attr.axis;
        index[i].extent = cg_ext(f, n->in[0], d);
        index[i].stride = r.stride[d];
        if (n->op == OP_GatherND) {
            cg_operand(f, n, 1, &ri, si);
            index[i].in = load(b, &ri, si, lin_times(ri.stride[ri.rank - 1], i), 0, NULL);
        } else {
            index[i].in = operand(b, n, 1);
        }
    }
    return load(b, &r, stride, lin(0), (uint32_t)q, index);
}

/* the operand shifted, with `fill` outside */
static uint32_t pad(Build *b, const Node *n)
{
    Func *f = b->f;
    Ref r;
    Lin stride[MAX_RANK], off = lin(0);
    NestGuard *guard = arena_array(f->a, NestGuard, n->attr.n + 1);
    uint32_t guards = 0;
    cg_operand(f, n, 0, &r, stride);
    const Ref own = *cg_ref(f, n->in[0]);
    for (int d = 0; d < n->attr.n; d++)
        if (n->attr.begin[d] > 0 || n->attr.end[d] > 0) {
            Lin e[MAX_RANK] = {{0, 0}};
            e[d] = lin(1);
            guard[guards].lo = n->attr.begin[d];
            guard[guards].hi = lin_add(own.ext[d], lin(n->attr.begin[d]));
            over_group(b, e, guard[guards++].coef);
            /* an extent of 1 stands still only inside */
            stride[d] = own.stride[d];
            off = lin_add(off, lin_times(own.stride[d], -n->attr.begin[d]));
        }
    Stmt s = {.kind = S_LOAD,
              .type = val(f->g, r.root)->dtype,
              .nguard = guards,
              .guard = guard,
              .k = n->attr.value,
              .ki = element_int64(n->attr.value),
              .base = off};
    double x;
    int64_t whole;
    if (guards == 0)
        return load(b, &r, stride, lin(0), 0, NULL);
    over_group(b, stride, s.stride);
    /* a constant surrounded: still read through memory */
    if (cg_uniform(f, r.root, &x, &whole))
        f->buf.at[r.buf].used = true;
    s.arg = argument(b, r.buf, r.off, r.root, s.type, false, false);
    f->buf.at[r.buf].used = true;
    return add(b, s);
}

static bool reduces(const Func *f, const Node *n)
{
    for (int i = 0; i < n->attr.n; i++)
        if (!lin_is(cg_ext(f, n->in[0], (int)n->attr.axes[i]), 1))
            return true;
    return false;
}

static uint32_t statement(Build *b, const Node *n)
{
    Func *f = b->f;
    Dtype t = val(f->g, n->out[0])->dtype;
    if (n->op == OP_Gather || n->op == OP_GatherElements || n->op == OP_GatherND)
        return gather(b, n);
    if (n->op == OP_Pad)
        return pad(b, n);
    if (n->op == OP_Count)
        return add(b, count(b, n, t));
    Stmt s = {.kind = S_OP, .op = n->op, .type = t, .nin = n->nin};
    for (uint32_t i = 0; i < n->nin; i++)
        s.in[i] = operand(b, n, i);
    if (cg_is_copy(n) || (cg_is_reduce(n->op) && !reduces(f, n)))
        return s.in[0];
    if (cg_is_reduce(n->op))
        s.kind = S_REDUCE;
    return add(b, s);
}

static void store(Build *b, const Node *n, uint32_t value)
{
    Func *f = b->f;
    ValueId v = n->out[0];
    const Ref *r = cg_ref(f, v);
    Lin ext[MAX_RANK], e[MAX_RANK];
    int rank = cg_space(f, n, ext);
    Stmt s = {
        .kind = S_STORE, .type = val(f->g, v)->dtype, .nin = 1, .in = {value}, .acc = f->acc.at[v]};
    for (int d = 0; d < rank; d++) {
        bool stands = lin_is(ext[d], 1);
        for (int i = 0; cg_is_reduce(n->op) && i < n->attr.n; i++)
            stands |= n->attr.axes[i] == d;
        e[d] = stands ? lin(0) : r->stride[d];
    }
    over_group(b, e, s.stride);
    s.arg = argument(b, r->buf, r->off, v, s.type, true, s.acc);
    f->buf.at[r->buf].used = f->buf.at[r->buf].written = true;
    add(b, s);
}

/* ---- tidy ------------------------------------------------------------------------------------ */

static void swap_dims(Nest *n, int x, int y)
{
    Lin t = n->ext[x];
    n->ext[x] = n->ext[y];
    n->ext[y] = t;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        Stmt *s = &n->stmt.at[i];
        t = s->stride[x];
        s->stride[x] = s->stride[y];
        s->stride[y] = t;
        for (uint32_t j = 0; j < s->nguard; j++) {
            t = s->guard[j].coef[x];
            s->guard[j].coef[x] = s->guard[j].coef[y];
            s->guard[j].coef[y] = t;
        }
    }
}

static bool may_merge(const Nest *n, int d)
{
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if ((s->kind == S_LOAD || s->kind == S_STORE || s->kind == S_INDEX) &&
            !lin_chains(s->stride[d], s->stride[d + 1], n->ext[d + 1]))
            return false;
        for (uint32_t j = 0; j < s->nguard; j++)
            if (!lin_chains(s->guard[j].coef[d], s->guard[j].coef[d + 1], n->ext[d + 1]))
                return false;
    }
    Lin z;
    return lin_mul(n->ext[d], n->ext[d + 1], &z);
}

static void merge(Nest *n, int d)
{
    n->ext[d] = lin_product(n->ext[d], n->ext[d + 1]);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        Stmt *s = &n->stmt.at[i];
        s->stride[d] = s->stride[d + 1];
        for (int e = d + 1; e + 1 < n->nd; e++)
            s->stride[e] = s->stride[e + 1];
        s->stride[n->nd - 1] = lin(0);
        for (uint32_t j = 0; j < s->nguard; j++) {
            Lin *c = s->guard[j].coef;
            c[d] = c[d + 1];
            for (int e = d + 1; e + 1 < n->nd; e++)
                c[e] = c[e + 1];
            c[n->nd - 1] = lin(0);
        }
    }
    for (int e = d + 1; e + 1 < n->nd; e++)
        n->ext[e] = n->ext[e + 1];
    n->nd--;
}

/* Pointwise: any order of the loops will do; that of the first store in memory is the best. */
static void order_like_store(Nest *n)
{
    const Stmt *s = NULL;
    for (uint32_t i = 0; i < n->stmt.n && !s; i++)
        if (n->stmt.at[i].kind == S_STORE)
            s = &n->stmt.at[i];
    for (int i = 1; s && i < n->nd; i++)
        for (int j = i; j > 0 && lin_far(s->stride[j]) > lin_far(s->stride[j - 1]); j--)
            swap_dims(n, j, j - 1);
}

static void tidy_dims(Nest *n)
{
    if (n->kind == NEST_POINT)
        order_like_store(n);
    for (int d = n->nd - 2; d >= 0; d--) {
        bool boundary = n->kind != NEST_POINT && (d + 1 == n->nouter || d + 1 == n->nd - n->nrun);
        if (boundary || !may_merge(n, d))
            continue;
        if (n->kind != NEST_POINT) {
            if (d + 1 >= n->nd - n->nrun && d >= n->nd - n->nrun)
                n->nrun--;
            if (d + 1 < n->nouter)
                n->nouter--;
        }
        merge(n, d);
    }
    if (n->kind == NEST_POINT)
        n->nouter = n->nd > 0 ? n->nd - 1 : 0;
}

/* Statements grow in `room`, which one nest leaves to the next, and are kept as many as there are
 * in the end. */
static Nest *build(Func *f, uint32_t g, Stmts *room)
{
    const Group *k = &f->group.at[g];
    Build b = {.f = f, .k = k, .n = arena_new_of(f->a, Nest)};
    Nest *n = b.n;
    *n = (Nest){.kind = k->mode, .nd = k->nd, .nouter = k->nouter, .nrun = k->nrun, .arena = f->a};
    for (int d = 0; d < k->nd; d++)
        n->ext[d] = k->ext[d];
    bool any = false;
    n->stmt = *room;
    n->stmt.n = 0;
    for (uint32_t i = 0; i < k->member.n; i++) {
        b.m = &k->member.at[i];
        const Node *node = &f->g->node.at[b.m->node];
        uint32_t s = statement(&b, node);
        vec_push(f->a, &b.made, node->out[0]);
        vec_push(f->a, &b.made, s);
        if (f->needed[node->out[0]] && f->group_of.at[node->out[0]] == g) {
            store(&b, node, s);
            any = true;
        }
    }
    *room = n->stmt;
    if (!any)
        return NULL;
    nest_simplify(n);
    nest_sweep(n);
    tidy_dims(n);
    nest_mark_rows(n);
    if (nest_pick(n)) {
        tidy_dims(n);
        nest_mark_rows(n);
    }
    n->cost = 1;
    for (int d = 0; d < n->nd; d++)
        n->cost *= lin_at(n->ext[d], f->g->batch);
    n->cost = cg_most(f->sg, n->cost);
    n->sized = f->sg->sizes ? f->sg : NULL;
    nest_schedule(n);
    Stmt *stmt = arena_array(f->a, Stmt, n->stmt.n);
    memcpy(stmt, n->stmt.at, sizeof *stmt * n->stmt.n);
    n->stmt.at = stmt;
    n->stmt.cap = n->stmt.n;
    return n;
}

void cg_build(Func *f)
{
    Stmts room = {0};
    for (uint32_t i = 0; i < f->order.n; i++) {
        Group *k = &f->group.at[f->order.at[i]];
        if (k->kind == G_NEST)
            k->nest = build(f, f->order.at[i], &room);
    }
}
