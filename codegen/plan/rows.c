/*
 * rows.c - how a value stands by itself.  In: a value of a function.  Out: its extents, in the rows
 * of the batch, its row-major place, and how many bytes a place takes.
 */
#include "plan.h"

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

int64_t cg_ref_bytes(const Func *f, const Ref *r, ValueId v)
{
    int64_t last = 0, rows = f->g->batch > 0 ? f->g->batch : 1;
    for (int d = 0; d < r->rank; d++) {
        int64_t n = lin_at(r->ext[d], rows);
        if (n == 0)
            return 0;
        last += (n - 1) * lin_at(r->stride[d], rows);
    }
    return (last + 1) * (int64_t)dtype_size(val(f->g, v)->dtype);
}
