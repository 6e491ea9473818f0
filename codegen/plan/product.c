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
    Lin off, row, col, *batch; /* batch: strides in Factors.all */
} Matrix;

/* A product while its dimensions are sorted. */
typedef struct {
    Matrix a, b, c;
    Lin m, n, k;
    Lin more; /* rows of m's that are folded into it */
    Batches all;
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

static void matrix(Func *f, ValueId v, Wide *w, Lin *batch, Matrix *x)
{
    Ref r;
    if (!cg_wide(f, v, w) || !last_two(f, w, v, &r))
        BUG("value %u is no operand of a product", v);
    x->off = w->off;
    x->row = r.stride[0];
    x->col = r.stride[1];
    x->batch = batch;
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
            Lin piece = rest;
            for (int i = 0; i < operands; i++) {
                if (at[i] < 0)
                    continue;
                if (lin_is(left[i], 1)) {
                    left[i] = w[i]->ext[at[i]];
                    step[i] = w[i]->stride[at[i]];
                }
                if (!lin_piece(piece, left[i], &piece))
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
                if (!lin_past(&left[i], &step[i], piece))
                    return false;
                at[i] -= lin_is(left[i], 1);
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

static void drop_batch(Batches *b, int operands, int d)
{
    b->n--;
    for (int e = d; e < b->n; e++) {
        b->count[e] = b->count[e + 1];
        for (int i = 0; i < operands; i++)
            b->stride[i][e] = b->stride[i][e + 1];
    }
}

void cg_batches_fold(Batches *b, int operands)
{
    for (int d = b->n - 2; d >= 0; d--) {
        Lin all;
        bool chained = lin_mul(b->count[d], b->count[d + 1], &all);
        for (int i = 0; i < operands && chained; i++)
            chained = lin_chains(b->stride[i][d], b->stride[i][d + 1], b->count[d + 1]);
        if (!chained)
            continue;
        b->count[d + 1] = all;
        drop_batch(b, operands, d);
    }
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
    const Lin many = p->all.count[d];
    if (lin_is(p->m, 1) && lin_is(b.batch[d], 0)) {
        a.row = a.batch[d];
        c.row = c.batch[d];
        if (!stored(f, &a, many, p->k).ok || !stored(f, &c, many, p->n).ok)
            return false;
        p->m = many;
    } else if (lin_is(p->n, 1) && lin_is(a.batch[d], 0)) {
        b.col = b.batch[d];
        c.col = c.batch[d];
        if (!stored(f, &b, p->k, many).ok || !stored(f, &c, p->m, many).ok)
            return false;
        p->n = many;
    } else {
        return false;
    }
    p->a = a;
    p->b = b;
    p->c = c;
    return true;
}

/* Folds batch dimensions into rows and into one another. */
static void fold(const Func *f, Factors *p)
{
    Batches *b = &p->all;
    for (int d = b->n - 1; d >= 0; d--)
        if (lin_is(b->count[d], 1))
            drop_batch(b, 3, d);
    for (; b->n > 0; b->n--) {
        int d = b->n - 1;
        Lin all, rest;
        bool rows = lin_div(p->more, b->count[d], &rest);
        if (rows && lin_chains(p->a.batch[d], p->a.row, p->m) &&
            lin_chains(p->c.batch[d], p->c.row, p->m) && lin_mul(p->m, b->count[d], &all))
            p->m = all;
        else if (!fold_vector(f, p, d))
            break;
        if (rows)
            p->more = rest;
    }
    cg_batches_fold(b, 3);
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

void cg_product(Func *f, const Node *n, Step *step)
{
    Wide wa, wb, wc;
    Factors p;
    int rank = val(f->g, n->out[0])->shape.rank;
    ValueId va = n->in[0], vb = n->in[1];
    p.m = cg_ext(f, n->out[0], rank - 2);
    p.n = cg_ext(f, n->out[0], rank - 1);
    p.k = cg_ext(f, n->in[0], val(f->g, n->in[0])->shape.rank - 1);
    matrix(f, va, &wa, p.all.stride[0], &p.a);
    matrix(f, vb, &wb, p.all.stride[1], &p.b);
    matrix(f, n->out[0], &wc, p.all.stride[2], &p.c);
    bool biased = n->op == OP_MatMulBias;
    p.more = rows_more(f, n);
    const Wide *const w[3] = {&wa, &wb, &wc};
    if (!cg_batches(f, w, 3, n->out[0], &p.all))
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
                     .transposed_a = sa.trans,
                     .transposed_b = sb.trans,
                     .m = p.m,
                     .n = p.n,
                     .k = p.k,
                     .nb = p.all.n};
    for (int i = 0; i < p.all.n; i++)
        out->count[i] = p.all.count[i];
    out->a = product_side(step, f->a, &p.a, sa.ld, va, false, p.all.n);
    out->b = product_side(step, f->a, &p.b, sb.ld, vb, false, p.all.n);
    out->c = product_side(step, f->a, &p.c, sc.ld, n->out[0], true, p.all.n);
    if (n->op == OP_PackedMatMul) {
        out->packed = n->attr.axis == 1 ? PACKED_K : turned_round ? PACKED_N : PACKED_M;
        out->mask = cg_step_arg(f, step, n->in[2], false);
    }
    if (biased)
        out->bias = cg_step_arg(f, step, n->in[2], false);
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
            if (!one_row && !lin_chains(w->stride[q], two.stride[0], two.ext[0]))
                return false;
            if (one_row)
                two.stride[0] = w->stride[q];
            if (!lin_mul(two.ext[0], w->ext[q], &two.ext[0]))
                return true; /* nor would it be, standing otherwise */
        }
    return side(f, &two, val(f->g, v)->dtype).ok;
}

bool cg_product_folds(Func *f, const Node *n)
{
    Wide w;
    return cg_wide(f, n->in[0], &w) && folds(f, n, n->in[0], &w);
}

/* Merged batch dimensions may be cut in ways that do not fit: then the operand is copied. */
bool cg_batches_fit(Func *f, const Node *n)
{
    Wide w[3];
    Batches out;
    const Wide *const all[3] = {&w[0], &w[1], &w[2]};
    return cg_wide(f, n->in[0], &w[0]) && cg_wide(f, n->in[1], &w[1]) &&
           cg_wide(f, n->out[0], &w[2]) && cg_batches(f, all, 3, n->out[0], &out);
}

bool cg_product_stands(const Func *f, const Ref *r, Dtype t) { return side(f, r, t).ok; }

/* May its result stand there?  With a bias only as rows: the library has one for each column. */
bool cg_product_writes(const Func *f, const Node *n, const Ref *r)
{
    Side s = side(f, r, val(f->g, n->out[0])->dtype);
    Wide w = cg_widen(r);
    return s.ok && (n->op != OP_MatMulBias || !s.trans) && folds(f, n, n->out[0], &w);
}
