/*
 * product.c - matrix products of the library.  In: a MatMul and the views of its operands.  Out: a
 * Product, and whether an operand or a result can stand where a view says.
 *
 * A product reads any operand of which one inner stride is 1; the innermost leading dimensions that
 * B does not have are folded into the rows; what remains is a batch.  The library's order of
 * additions follows the sides, so these follow the shapes alone, never where a cut fell: an operand
 * that stands so that it cannot be folded is copied, and no result is asked to stand so.
 */
#include <string.h>

#include "plan.h"

/* The last two dims of an operand as the library wants them. */
typedef struct { bool ok, trans; Lin ld; } Side;

static int64_t probe(const Func *f, Lin x)
{
    return lin_at(x, f->g->batch > 1 ? f->g->batch : 1009);
}

static Side side(const Func *f, const Ref *r, Dtype t)
{
    Side s = {0};
    int m = r->rank - 2, n = r->rank - 1;
    bool one_row = lin_is(r->ext[m], 1), one_column = lin_is(r->ext[n], 1);
    Lin sm = r->stride[m], sn = r->stride[n];
    /* a vector: its one stride may play either part */
    if (one_row || one_column) {
        Lin stride = one_row ? sn : sm;
        if (one_row && one_column)
            return (Side){true, false, cg_row(f->sg, lin(1), t)};
        bool unit = lin_is(stride, 1);
        /* [1, n] by columns of one; [m, 1] as a row */
        s.trans = one_row ? !unit : unit;
        s.ld = unit ? cg_row(f->sg, one_row ? r->ext[n] : r->ext[m], t) : stride;
        s.ok = probe(f, stride) > 0 && cg_rows_fit(f->sg, f->sg->device, s.ld, t);
        return s;
    }
    s.trans = !lin_is(sn, 1);
    s.ld = s.trans ? sn : sm;
    s.ok =
        lin_is(s.trans ? sm : sn, 1) && cg_rows_fit(f->sg, f->sg->device, s.ld, t) &&
        probe(f, s.ld) >= probe(f, s.trans ? r->ext[m] : r->ext[n]);
    return s;
}

static bool library_type(Dtype t) { return type_library(t) != NULL; }

typedef struct {
    uint32_t buf;
    Dtype type;
    Lin off, row, col, batch[PRODUCT_BATCH];
} Matrix;

/* A product while its dimensions are sorted. */
typedef struct {
    Matrix a, b, c;
    Lin m, n, k;
    Lin more; /* rows of m's that are folded into it */
    int nb;
    Lin count[PRODUCT_BATCH];
} Factors;

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
    x->buf = w->buf;
    x->type = val(f->g, v)->dtype;
}

bool cg_batches(const Func *f, const Wide *const *w, int operands, ValueId like, Batches *out)
{
    int rank = val(f->g, like)->shape.rank, n = 0;
    Lin count[PRODUCT_BATCH], stride[BATCH_OPERANDS][PRODUCT_BATCH];
    for (int d = rank - 3; d >= 0; d--) {               /* from the inside out */
        int at[BATCH_OPERANDS];
        Lin left[BATCH_OPERANDS], step[BATCH_OPERANDS], rest = cg_ext(f, like, d);
        for (int i = 0; i < operands; i++) {
            int own = d - (rank - w[i]->rank);
            at[i] = own < 0 ? -1 : w[i]->first[own + 1] - 1;
            if (own >= 0 && at[i] < w[i]->first[own])
                at[i] = -1;
            left[i] = lin(1);
        }
        while (!lin_is(rest, 1)) {
            Lin piece = rest, q;
            for (int i = 0; i < operands; i++) {
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
            if (n == PRODUCT_BATCH || !lin_div(rest, piece, &rest))
                return false;
            count[n] = piece;
            for (int i = 0; i < operands; i++) {
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
    out->n = n;
    for (int i = 0; i < n; i++) {
        out->count[i] = count[n - 1 - i];
        for (int k = 0; k < operands; k++)
            out->stride[k][i] = stride[k][n - 1 - i];
    }
    return true;
}

static bool batches(const Func *f, Factors *p, const Wide *const w[3], ValueId result)
{
    Batches all;
    if (!cg_batches(f, w, 3, result, &all))
        return false;
    p->nb = all.n;
    memcpy(p->count, all.count, (size_t)all.n * sizeof *all.count);
    memcpy(p->a.batch, all.stride[0], (size_t)all.n * sizeof *all.count);
    memcpy(p->b.batch, all.stride[1], (size_t)all.n * sizeof *all.count);
    memcpy(p->c.batch, all.stride[2], (size_t)all.n * sizeof *all.count);
    return true;
}

static bool chained(Lin outer, Lin inner, Lin ext)
{
    Lin z;
    return lin_mul(inner, ext, &z) && lin_eq(outer, z);
}

static void drop_batch(Factors *p, int d)
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

/* Dimension d of the result, one of the leading ones: has B none such? */
static bool lacks(const Func *f, const Node *n, int d)
{
    int own = d - (val(f->g, n->out[0])->shape.rank - val(f->g, n->in[1])->shape.rank);
    return own < 0 || lin_is(cg_ext(f, n->in[1], own), 1);
}

/* Rows of A, a matrix a point of these dimensions */
static Lin rows_more(const Func *f, const Node *n)
{
    Lin more = lin(1);
    for (int d = val(f->g, n->out[0])->shape.rank - 3; d >= 0 && lacks(f, n, d); d--)
        if (!lin_mul(more, cg_ext(f, n->out[0], d), &more))
            break;
    return more;
}

/* One row (or column) a batch: the batch itself counts the rows. */
static bool fold_vector(const Func *f, Factors *p, int d)
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

/* Folds batch dimensions into rows and into one another. */
static void fold(const Func *f, Factors *p)
{
    for (int d = p->nb - 1; d >= 0; d--)
        if (lin_is(p->count[d], 1))
            drop_batch(p, d);
    while (p->nb > 0) {
        int d = p->nb - 1;
        Lin all, rest;
        bool rows = lin_div(p->more, p->count[d], &rest);
        if (rows && chained(p->a.batch[d], p->a.row, p->m) &&
            chained(p->c.batch[d], p->c.row, p->m) && lin_mul(p->m, p->count[d], &all))
            p->m = all;
        else if (!fold_vector(f, p, d))
            break;
        if (rows)
            p->more = rest;
        p->nb--;
    }
    for (int d = p->nb - 2; d >= 0; d--) {
        Lin all, n = p->count[d + 1];
        if (chained(p->a.batch[d], p->a.batch[d + 1], n) &&
            chained(p->b.batch[d], p->b.batch[d + 1], n) &&
            chained(p->c.batch[d], p->c.batch[d + 1], n) && lin_mul(p->count[d], n, &all)) {
            p->count[d + 1] = all;
            drop_batch(p, d);
        }
    }
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
    return side(f, &r, x->type);
}

static ProductSide product_side(Step *s, Arena *a, const Matrix *x, Lin ld, ValueId v, bool written,
                                int nb)
{
    ProductSide side = {.arg = s->arg.n, .ld = ld};
    for (int i = 0; i < nb; i++)
        side.stride[i] = x->batch[i];
    vec_push(a, &s->arg, ((StepArg){x->buf, x->off, written, ROLE_X, NULL, v}));
    return side;
}

/* C' = B' A' */
static void turn_round(Factors *p)
{
    const Matrix a = p->a;
    const Lin m = p->m;
    p->a = turned(p->b);
    p->b = turned(a);
    p->c = turned(p->c);
    p->m = p->n;
    p->n = m;
}

/* The biases or the mask: read as they lie. */
static uint32_t vector_argument(Func *f, Step *step, ValueId v)
{
    const Ref *r = cg_ref(f, v);
    vec_push(f->a, &step->arg, ((StepArg){r->buf, r->off, false, ROLE_X, NULL, v}));
    return step->arg.n - 1;
}

void cg_product(Func *f, const Node *n, Step *step)
{
    Wide wa, wb, wc;
    Factors p = {.nb = 0};
    int rank = val(f->g, n->out[0])->shape.rank;
    ValueId va = n->in[0], vb = n->in[1];
    p.m = cg_ext(f, n->out[0], rank - 2);
    p.n = cg_ext(f, n->out[0], rank - 1);
    p.k = cg_ext(f, n->in[0], val(f->g, n->in[0])->shape.rank - 1);
    matrix(f, va, &wa, &p.a);
    matrix(f, vb, &wb, &p.b);
    matrix(f, n->out[0], &wc, &p.c);
    bool biased = n->op == OP_MatMulBias;
    p.more = rows_more(f, n);
    const Wide *const w[3] = {&wa, &wb, &wc};
    if (!batches(f, &p, w, n->out[0]))
        BUG("batch dimensions of a product that do not divide each other");
    fold(f, &p);
    Side sc = stored(f, &p.c, p.m, p.n);
    bool turned_round = sc.trans;
    if (turned_round) {
        turn_round(&p);
        va = n->in[1];
        vb = n->in[0];
        sc = stored(f, &p.c, p.m, p.n);
    }
    Side sa = stored(f, &p.a, p.m, p.k), sb = stored(f, &p.b, p.k, p.n);
    /* where sizes are still being learnt, what is known of a distance may be of another size */
    INSIST(f->sg->sizes || (sa.ok && sb.ok && sc.ok && !sc.trans));
    INSIST(!biased || vb == n->in[1]);
    Product *out = arena_new_of(f->a, Product);
    *out = (Product){.type = val(f->g, n->in[0])->dtype,
                     .result = val(f->g, n->out[0])->dtype,
                     .adds = f->acc.at[n->out[0]],
                     .biased = biased,
                     .relu = biased && n->attr.relu,
                     .transposed_a = sa.trans,
                     .transposed_b = sb.trans,
                     .m = p.m,
                     .n = p.n,
                     .k = p.k,
                     .nb = p.nb};
    for (int i = 0; i < p.nb; i++)
        out->count[i] = p.count[i];
    out->a = product_side(step, f->a, &p.a, sa.ld, va, false, p.nb);
    out->b = product_side(step, f->a, &p.b, sb.ld, vb, false, p.nb);
    out->c = product_side(step, f->a, &p.c, sc.ld, n->out[0], true, p.nb);
    if (n->op == OP_PackedMatMul) {
        out->packed = n->attr.axis == 1 ? PACKED_K : turned_round ? PACKED_N : PACKED_M;
        out->mask = vector_argument(f, step, n->in[2]);
    }
    if (biased)
        out->bias = vector_argument(f, step, n->in[2]);
    step->product = out;
}

/* ---- what products demand -------------------------------------------------------------------- */

bool cg_is_product(const Func *f, const Node *n)
{
    return n->op == OP_MatMulBias || ((n->op == OP_MatMul || n->op == OP_PackedMatMul) &&
                                      library_type(val(f->g, n->in[0])->dtype));
}

bool cg_is_factor(const Func *f, const Node *n, uint32_t i)
{
    return i < 2 && cg_is_product(f, n);
}

bool cg_product_takes(const Func *f, ValueId v, const Wide *w)
{
    Ref r;
    return last_two(f, w, v, &r) && side(f, &r, val(f->g, v)->dtype).ok;
}

bool cg_product_reads(Func *f, ValueId v)
{
    Wide w;
    return cg_wide(f, v, &w) && cg_product_takes(f, v, &w);
}

/* May A, or the result, be one matrix as far as the shapes say? */
static bool folds(const Func *f, const Node *n, ValueId v, const Wide *w)
{
    Ref two;
    int outer = val(f->g, n->out[0])->shape.rank - w->rank;
    if (!last_two(f, w, v, &two))
        return false;
    for (int d = w->rank - 3; d >= 0 && lacks(f, n, outer + d); d--)
        for (int q = w->first[d + 1] - 1; q >= w->first[d]; q--) {
            bool one_row = lin_is(two.ext[0], 1);
            if (lin_is(w->ext[q], 1))
                continue;
            if (!one_row && !chained(w->stride[q], two.stride[0], two.ext[0]))
                return false;
            if (one_row)
                two.stride[0] = w->stride[q];
            if (!lin_mul(two.ext[0], w->ext[q], &two.ext[0]))
                return true; /* nor would it be, standing otherwise */
        }
    return side(f, &two, val(f->g, v)->dtype).ok;
}

bool cg_product_folds_at(const Func *f, const Node *n, const Wide *a)
{
    return folds(f, n, n->in[0], a);
}

bool cg_product_folds(Func *f, const Node *n)
{
    Wide w;
    return cg_wide(f, n->in[0], &w) && cg_product_folds_at(f, n, &w);
}

/* Merged batch dimensions may be cut in ways that do not fit: then the operand is copied. */
bool cg_batches_fit(Func *f, const Node *n)
{
    Wide w[3];
    Factors p;
    const Wide *const all[3] = {&w[0], &w[1], &w[2]};
    return cg_wide(f, n->in[0], &w[0]) && cg_wide(f, n->in[1], &w[1]) &&
           cg_wide(f, n->out[0], &w[2]) && batches(f, &p, all, n->out[0]);
}

bool cg_product_stands(const Func *f, const Ref *r, Dtype t)
{
    Ref two = {.rank = 2,
               .ext = {r->ext[r->rank - 2], r->ext[r->rank - 1]},
               .stride = {r->stride[r->rank - 2], r->stride[r->rank - 1]}};
    return side(f, &two, t).ok;
}

/* May its result stand there?  With a bias only as rows: the library has one for each column. */
bool cg_product_writes(const Func *f, const Node *n, const Ref *r)
{
    Ref two = {.rank = 2,
               .ext = {r->ext[r->rank - 2], r->ext[r->rank - 1]},
               .stride = {r->stride[r->rank - 2], r->stride[r->rank - 1]}};
    Side s = side(f, &two, val(f->g, n->out[0])->dtype);
    Wide w = cg_widen(r);
    return s.ok && (n->op != OP_MatMulBias || !s.trans) && folds(f, n, n->out[0], &w);
}
