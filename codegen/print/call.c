/*
 * call.c - library calls: matrix products and convolutions.  In: a node and the views of its operands.  Out: one call in
 * the function.
 *
 * A product reads any operand of which one inner stride is 1; leading dimensions that the other operand does not have
 * are folded into the rows; what remains is a batch.  A convolution reads row-major tensors.
 */
#include <string.h>

#include "codegen/cg.h"

/* ---- matrix products ------------------------------------------------------------------------------- */

/* The last two dims of an operand as the library wants them. */
typedef struct { bool ok, trans; Lin ld; } Side;

static int64_t probe(const Func *f, Lin x) { return lin_at(x, f->g->batch > 1 ? f->g->batch : 1009); }

static Side side(const Func *f, const Ref *r)
{
    Side s = {0};
    int m = r->rank - 2, n = r->rank - 1;
    bool one_row = lin_is(r->ext[m], 1), one_column = lin_is(r->ext[n], 1);
    Lin sm = r->stride[m], sn = r->stride[n];
    if (one_row || one_column) {                        /* a vector: its one stride may play either part */
        Lin stride = one_row ? sn : sm;
        if (one_row && one_column)
            return (Side){true, false, lin(1)};
        bool unit = lin_is(stride, 1);
        s.trans = one_row ? !unit : unit;               /* [1, n] by columns of one; [m, 1] as a row */
        s.ld = unit ? (one_row ? r->ext[n] : r->ext[m]) : stride;
        s.ok = probe(f, stride) > 0;
        return s;
    }
    s.trans = !lin_is(sn, 1);
    s.ld = s.trans ? sn : sm;
    s.ok = lin_is(s.trans ? sm : sn, 1) && probe(f, s.ld) >= probe(f, s.trans ? r->ext[m] : r->ext[n]);
    return s;
}

static bool library_type(Dtype t) { return t == DT_F32 || t == DT_F64; }

enum { MAX_BATCH = 32 };
typedef struct {
    const char *ptr;
    Lin off, row, col, batch[MAX_BATCH];
} Matrix;

typedef struct { Matrix a, b, c; Lin m, n, k; int nb; Lin count[MAX_BATCH]; } Product;

/* The last two dimensions of a view, one stride each. */
static bool last_two(const Func *f, const Wide *w, ValueId v, Ref *r)
{
    *r = (Ref){.rank = 2};
    for (int i = 0; i < 2; i++) {
        int d = w->rank - 2 + i, parts = w->first[d + 1] - w->first[d];
        r->ext[i] = cg_ext(f, v, d);
        if (parts > 1)
            return false;
        if (parts == 1)
            r->stride[i] = w->stride[w->first[d]];
    }
    return true;
}

static void matrix(Func *f, ValueId v, Wide *w, Matrix *x)
{
    Ref r;
    if (!cg_wide(f, v, w) || !last_two(f, w, v, &r))
        BUG("value %u is no operand of a product", v);
    x->off = w->off;
    x->row = r.stride[0];
    x->col = r.stride[1];
    x->ptr = cg_pointer(f, w->buf, w->off, false);
}

/* The batch dimensions, cut where any of the three is: dimension d of the result holds the parts of operands that have it. */
static bool batches(const Func *f, Product *p, const Wide *const w[3], ValueId result)
{
    int rank = w[2]->rank;
    Lin count[MAX_BATCH], stride[3][MAX_BATCH];
    int n = 0;
    for (int d = rank - 3; d >= 0; d--) {               /* from the inside out */
        int at[3];
        Lin left[3], step[3], rest = cg_ext(f, result, d);
        for (int i = 0; i < 3; i++) {
            int own = d - (rank - w[i]->rank);
            at[i] = own < 0 ? -1 : w[i]->first[own + 1] - 1;
            if (own >= 0 && at[i] < w[i]->first[own])
                at[i] = -1;
            left[i] = lin(1);
        }
        while (!lin_is(rest, 1)) {
            Lin piece = rest, q;
            for (int i = 0; i < 3; i++) {
                if (at[i] < 0)
                    continue;
                if (lin_is(left[i], 1)) {
                    left[i] = w[i]->ext[at[i]];
                    step[i] = w[i]->stride[at[i]];
                }
                if (lin_div(piece, left[i], &q))
                    piece = left[i];
                else if (!lin_div(left[i], piece, &q))
                    return false;
            }
            if (n == MAX_BATCH || !lin_div(rest, piece, &rest))
                return false;
            count[n] = piece;
            for (int i = 0; i < 3; i++) {
                stride[i][n] = lin(0);
                if (at[i] < 0)
                    continue;
                stride[i][n] = step[i];
                if (!lin_mul(step[i], piece, &step[i]) || !lin_div(left[i], piece, &left[i]))
                    return false;
                if (lin_is(left[i], 1))
                    at[i]--;
            }
            n++;
        }
    }
    p->nb = n;
    for (int i = 0; i < n; i++) {
        p->count[i] = count[n - 1 - i];
        p->a.batch[i] = stride[0][n - 1 - i];
        p->b.batch[i] = stride[1][n - 1 - i];
        p->c.batch[i] = stride[2][n - 1 - i];
    }
    return true;
}

static bool chained(Lin outer, Lin inner, Lin ext)
{
    Lin z;
    return lin_mul(inner, ext, &z) && lin_eq(outer, z);
}

static void drop_batch(Product *p, int d)
{
    for (int e = d; e + 1 < p->nb; e++) {
        p->count[e] = p->count[e + 1];
        p->a.batch[e] = p->a.batch[e + 1];
        p->b.batch[e] = p->b.batch[e + 1];
        p->c.batch[e] = p->c.batch[e + 1];
    }
    p->nb--;
}

static Side stored(const Func *f, const Matrix *x, Lin rows, Lin cols);

/* One row (or column) a batch: the batch itself counts the rows. */
static bool fold_vector(const Func *f, Product *p, int d)
{
    Matrix a = p->a, b = p->b, c = p->c;
    if (lin_is(p->m, 1) && lin_is(b.batch[d], 0)) {
        a.row = a.batch[d];
        c.row = c.batch[d];
        if (!stored(f, &a, p->count[d], p->k).ok || !stored(f, &c, p->count[d], p->n).ok)
            return false;
        p->a = a;
        p->c = c;
        p->m = p->count[d];
        return true;
    }
    if (lin_is(p->n, 1) && lin_is(a.batch[d], 0)) {
        b.col = b.batch[d];
        c.col = c.batch[d];
        if (!stored(f, &b, p->k, p->count[d]).ok || !stored(f, &c, p->m, p->count[d]).ok)
            return false;
        p->b = b;
        p->c = c;
        p->n = p->count[d];
        return true;
    }
    return false;
}

/* Folds batch dimensions into rows or columns and into one another. */
static void fold(const Func *f, Product *p)
{
    for (int d = p->nb - 1; d >= 0; d--)
        if (lin_is(p->count[d], 1))
            drop_batch(p, d);
    while (p->nb > 0) {
        int d = p->nb - 1;
        Lin all;
        if (lin_is(p->b.batch[d], 0) && chained(p->a.batch[d], p->a.row, p->m) && chained(p->c.batch[d], p->c.row, p->m) &&
            lin_mul(p->m, p->count[d], &all))
            p->m = all;
        else if (lin_is(p->a.batch[d], 0) && chained(p->b.batch[d], p->b.col, p->n) &&
                 chained(p->c.batch[d], p->c.col, p->n) && lin_mul(p->n, p->count[d], &all))
            p->n = all;
        else if (!fold_vector(f, p, d))
            break;
        p->nb--;
    }
    for (int d = p->nb - 2; d >= 0; d--) {
        Lin all, n = p->count[d + 1];
        if (chained(p->a.batch[d], p->a.batch[d + 1], n) && chained(p->b.batch[d], p->b.batch[d + 1], n) &&
            chained(p->c.batch[d], p->c.batch[d + 1], n) && lin_mul(p->count[d], n, &all)) {
            p->count[d + 1] = all;
            drop_batch(p, d);
        }
    }
}

static const char *list(Arena *a, const Lin *x, int n)
{
    const char *s = "{";
    for (int i = 0; i < n; i++)
        s = arena_printf(a, "%s%s%s", s, i ? ", " : "", lin_text(a, x[i]));
    return arena_printf(a, "%s}", s);
}

/* The call of a product over a batch: its sizes in C as literals; in CUDA C, which is C++, as arrays with names. */
static void print_batched(Func *f, const char *function, const char *head, const Product *p, Text *t)
{
    const char *count = list(f->a, p->count, p->nb), *a = list(f->a, p->a.batch, p->nb), *b = list(f->a, p->b.batch, p->nb);
    const char *c = list(f->a, p->c.batch, p->nb);
    if (f->sg->target == TARGET_C) {
        text_line(t, "%s_batched(%s, %d,", function, head, p->nb);
        text_line(t, "    (const int64_t[])%s, (const int64_t[])%s, (const int64_t[])%s, (const int64_t[])%s);", count, a, b, c);
        return;
    }
    text_line(t, "{");
    text_line(t, "    const int64_t count[] = %s, stride_a[] = %s, stride_b[] = %s, stride_c[] = %s;", count, a, b, c);
    text_line(t, "    %s_batched(%s, %d, count, stride_a, stride_b, stride_c);", function, head, p->nb);
    text_line(t, "}");
}

static Matrix turned(Matrix x)
{
    Lin t = x.row;
    x.row = x.col;
    x.col = t;
    return x;
}

/* How op(X) [rows x cols] is stored. */
static Side stored(const Func *f, const Matrix *x, Lin rows, Lin cols)
{
    Ref r = {.rank = 2, .ext = {rows, cols}, .stride = {x->row, x->col}};
    return side(f, &r);
}

static void print_matmul(Func *f, const Node *n, Text *t)
{
    Dtype type = val(f->g, n->out[0])->dtype;
    Wide wa, wb, wc;
    Product p = {.nb = 0};
    int rank = val(f->g, n->out[0])->shape.rank;
    p.m = cg_ext(f, n->out[0], rank - 2);
    p.n = cg_ext(f, n->out[0], rank - 1);
    p.k = cg_ext(f, n->in[0], val(f->g, n->in[0])->shape.rank - 1);
    matrix(f, n->in[0], &wa, &p.a);
    matrix(f, n->in[1], &wb, &p.b);
    matrix(f, n->out[0], &wc, &p.c);
    const Wide *const w[3] = {&wa, &wb, &wc};
    if (!batches(f, &p, w, n->out[0]))
        BUG("batch dimensions of a product that do not divide each other");
    fold(f, &p);
    Side sc = stored(f, &p.c, p.m, p.n);
    if (sc.trans) {                                     /* C' = B' A' */
        Matrix a = p.a;
        Lin m = p.m;
        p.a = turned(p.b);
        p.b = turned(a);
        p.c = turned(p.c);
        p.m = p.n;
        p.n = m;
        sc = stored(f, &p.c, p.m, p.n);
    }
    Side sa = stored(f, &p.a, p.m, p.k), sb = stored(f, &p.b, p.k, p.n);
    INSIST(sa.ok && sb.ok && sc.ok && !sc.trans);
    bool single = type == DT_F32;
    const char *one = single ? "1.0f" : "1.0", *beta = f->acc.at[n->out[0]] ? one : single ? "0.0f" : "0.0";
    const char *head = arena_printf(f->a, "%d, %d, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s", sa.trans, sb.trans,
                                    lin_text(f->a, p.m), lin_text(f->a, p.n), lin_text(f->a, p.k), one, p.a.ptr,
                                    lin_text(f->a, sa.ld), p.b.ptr, lin_text(f->a, sb.ld), beta, p.c.ptr, lin_text(f->a, sc.ld));
    bool cuda = f->sg->target == TARGET_CUDA;
    const char *function = arena_printf(f->a, "pp_%s%sgemm", cuda ? "cuda_" : "", single ? "s" : "d");
    if (cuda)
        head = arena_printf(f->a, "c, %s", head);
    if (p.nb == 0)
        text_line(t, "%s(%s);", function, head);
    else
        print_batched(f, function, head, &p, t);
}

/* ---- convolutions --------------------------------------------------------------------------------------- */

static bool is_conv(Op op) { return op == OP_Conv || op == OP_ConvTranspose || op == OP_ConvWeightGrad; }

/* The direct convolution behind the node: its number among those that open() prepares. */
static uint32_t conv_number(Func *f, const Node *n)
{
    StageGen *sg = f->sg;
    const Attr *at = &n->attr;
    bool turned_round = n->op == OP_ConvTranspose;
    const Shape *x = &val(f->g, n->in[0])->shape;
    const Shape *w = n->op == OP_ConvWeightGrad ? &val(f->g, n->out[0])->shape : &val(f->g, n->in[1])->shape;
    const Shape *y = n->op == OP_ConvWeightGrad ? &val(f->g, n->in[1])->shape : &val(f->g, n->out[0])->shape;
    const Shape *in = turned_round ? y : x, *out = turned_round ? x : y;
    StageConv c;
    memset(&c, 0, sizeof c);                            /* compared as bytes */
    c.type = val(f->g, n->in[0])->dtype;
    c.spatial = at->n;
    c.group = at->group > 0 ? at->group : 1;
    c.c = in->d[1];
    c.m = out->d[1];
    for (int i = 0; i < at->n; i++) {
        c.in[i] = in->d[i + 2];
        c.out[i] = out->d[i + 2];
        c.kernel[i] = w->d[i + 2];
        c.stride[i] = at->stride[i];
        c.dilation[i] = at->dilation[i];
        c.pad_begin[i] = at->pad[i];
        c.pad_end[i] = at->pad[at->n + i];
    }
    for (uint32_t i = 0; i < sg->conv.n; i++) {
        StageConv *old = &sg->conv.at[i];
        c.rows = old->rows;
        if (memcmp(&c, old, sizeof c) == 0) {
            old->rows = x->d[0] > old->rows ? x->d[0] : old->rows;
            return i;
        }
    }
    c.rows = x->d[0];
    vec_push(f->a, &sg->conv, c);
    return sg->conv.n - 1;
}

static void print_conv(Func *f, const Node *n, Text *t)
{
    uint32_t i = conv_number(f, n);
    bool cuda = f->sg->target == TARGET_CUDA;
    const char *prefix = cuda ? "pp_cuda_conv" : "pp_conv", *context = cuda ? "c, " : "";
    const Ref *rx = cg_ref(f, n->in[0]), *rw = cg_ref(f, n->in[1]), *ry = cg_ref(f, n->out[0]);
    const char *rows = lin_text(f->a, rx->ext[0]);
    const char *x = cg_pointer(f, rx->buf, rx->off, false), *w = cg_pointer(f, rw->buf, rw->off, false);
    const char *y = cg_pointer(f, ry->buf, ry->off, true);
    if (n->op == OP_ConvWeightGrad)
        text_line(t, "%s_backward_weight(%sconv[%u], %s, %s, %s, %s, %d);", prefix, context, i, rows, x, w, y, f->acc.at[n->out[0]]);
    else
        text_line(t, "%s_%s(%sconv[%u], %s, %s, %s, %s);", prefix, n->op == OP_Conv ? "forward" : "backward_data", context, i, rows, x, w, y);
    f->uses_conv = true;
}

/* ---- what calls demand ------------------------------------------------------------------------------------ */

bool cg_is_product(const Func *f, const Node *n) { return n->op == OP_MatMul && library_type(val(f->g, n->out[0])->dtype); }

bool cg_product_takes(const Func *f, ValueId v, const Wide *w)
{
    Ref r;
    return last_two(f, w, v, &r) && side(f, &r).ok;
}

bool cg_product_reads(Func *f, ValueId v)
{
    Wide w;
    return cg_wide(f, v, &w) && cg_product_takes(f, v, &w);
}

/* Merged batch dimensions may be cut in ways that do not fit: then the operand is copied. */
static bool batches_fit(Func *f, const Node *n)
{
    Wide w[3];
    Product p;
    const Wide *const all[3] = {&w[0], &w[1], &w[2]};
    return cg_wide(f, n->in[0], &w[0]) && cg_wide(f, n->in[1], &w[1]) && cg_wide(f, n->out[0], &w[2]) && batches(f, &p, all, n->out[0]);
}

bool cg_call_reads(Func *f, const Node *n, uint32_t i)
{
    if (n->op == OP_Concat)
        return true;
    if (cg_is_product(f, n))
        return cg_product_reads(f, n->in[i]) && (!cg_ref(f, n->in[i])->wide || batches_fit(f, n));
    if ((n->op == OP_ScatterElements || n->op == OP_ScatterND) && i == 0 && cg_zeros(f->g, n->in[0]))
        return true;                                    /* not read: the kernel clears */
    const Ref *r = cg_ref(f, n->in[i]);
    return !r->wide && cg_is_dense(r);
}

bool cg_call_writes(const Func *f, const Node *n, uint32_t out, const Ref *r)
{
    (void)out;
    if (n->op == OP_Concat)
        return true;
    if (cg_is_product(f, n)) {
        Ref two = {.rank = 2, .ext = {r->ext[r->rank - 2], r->ext[r->rank - 1]}, .stride = {r->stride[r->rank - 2], r->stride[r->rank - 1]}};
        return side(f, &two).ok;
    }
    return cg_is_dense(r);
}

bool cg_call_adds(const Func *f, const Node *n)
{
    switch (n->op) {
    case OP_MatMul: return library_type(val(f->g, n->out[0])->dtype);
    case OP_ConvWeightGrad: return true;
    case OP_ScatterElements:
    case OP_ScatterND: return n->attr.reduction == SCATTER_ADD && cg_zeros(f->g, n->in[0]);
    default: return false;
    }
}

void cg_print_call(Func *f, NodeId id, Text *t)
{
    const Node *n = &f->g->node.at[id];
    if (cg_is_product(f, n))
        print_matmul(f, n, t);
    else if (is_conv(n->op))
        print_conv(f, n, t);
    else
        cg_print_kernel(f, id, t);
}
