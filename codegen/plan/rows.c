/*
 * rows.c - how a value stands by itself.  In: a value of a function.  Out: its extents, in the rows
 * of the batch, its row-major place, and how many bytes a place takes; how far rows are apart that
 * library products read and write, by a rule for each target.
 *
 * On CPUs rows of a multiple of 1,024 bytes share a few sets of the cache, and a product that walks
 * across them finds each gone when it comes back: they stand 64 bytes further apart.  Measured with
 * oneDNN 2.6 on one core, operands cold, in GFLOP/s: weight gradients x' dy of 512 rows and 1,024
 * columns 102 and 113, dy w' 112 and 119, attention heads of 32 columns 80 and 100.
 *
 * On a device the library has its fast kernels, and ours load several elements at once, only where
 * rows begin at multiples of 16 bytes; long ones begin with a line of the cache, of 128.  Where a
 * length decides how long they are, they stand as far apart as the longest, of samples too: their
 * distance is a number that is known, and rows of no sample reach into the next.  Columns between
 * are memory that nothing reads or computes.
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

Lin cg_span(const Func *f, ValueId v, int from, int to)
{
    Lin n = lin(1);
    for (int d = from; d < to; d++)
        n = lin_product(n, cg_ext(f, v, d));
    return n;
}

bool cg_stand(Ref *r, const int *order, Lin row)
{
    Lin stride = lin(1);
    for (int i = r->rank - 1; i >= 0; i--) {
        const int d = order ? order[i] : i;
        r->stride[d] = is_one(r->ext[d]) ? lin(0) : stride;
        if (!lin_mul(stride, i == r->rank - 1 ? row : r->ext[d], &stride))
            return false;
    }
    return true;
}

Ref cg_dense(const Func *f, ValueId v)
{
    Ref r = {.root = v, .buf = NONE, .rank = val(f->g, v)->shape.rank};
    for (int d = 0; d < r.rank; d++)
        r.ext[d] = cg_ext(f, v, d);
    INSIST(cg_stand(&r, NULL, r.rank ? r.ext[r.rank - 1] : lin(1)));
    return r;
}

bool cg_ref_alike(const Ref *x, const Ref *y)
{
    bool same = x->rank == y->rank && lin_eq(x->off, y->off);
    for (int d = 0; d < x->rank && same; d++)
        same = is_one(x->ext[d]) || lin_eq(x->stride[d], y->stride[d]);
    return same;
}

bool cg_ref_same(const Ref *x, const Ref *y) { return x->buf == y->buf && cg_ref_alike(x, y); }

bool cg_is_dense(const Ref *r)
{
    Ref dense = *r;
    INSIST(cg_stand(&dense, NULL, r->rank ? r->ext[r->rank - 1] : lin(1)));
    dense.off = r->off;
    return cg_ref_alike(r, &dense);
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
    return cg_most(f->sg, (last + 1) * (int64_t)dtype_size(val(f->g, v)->dtype));
}

/* ---- rows of products ----------------------------------------------------------------------- */

enum { MEET = 1024, APART = 64, PIECE = 16, LINE = 128, LONG = 1024 };  /* bytes */

/* From one row to the next, of so many bytes. */
static int64_t apart_cpu(int64_t row) { return row % MEET == 0 ? row + APART : row; }

static int64_t apart_device(int64_t row)
{
    int64_t by = row > LONG ? LINE : PIECE;
    return (row + by - 1) / by * by;
}

static int64_t (*const apart_of[])(int64_t) = {apart_cpu, apart_device};

/* The same in elements.  Rows that are as long as the batch has rows stand as they come. */
Lin cg_row_apart(const StageGen *sg, bool device, Lin row, Dtype t)
{
    if (row.b != 0)
        return row;
    const int64_t size = (int64_t)dtype_size(t),
                  longest = device ? cg_most_constant(sg, row.c) : row.c;
    return lin(apart_of[device](longest * size) / size);
}

bool cg_rows_fit(const StageGen *sg, bool device, Lin ld, Dtype t)
{
    if (!device || ld.b != 0)
        return true;
    const int64_t bytes = ld.c * (int64_t)dtype_size(t);
    return cg_stays(sg, ld.c) && apart_device(bytes) == bytes;
}

Lin cg_row(const StageGen *sg, Lin ext, Dtype t)
{
    return sg->device ? cg_row_apart(sg, true, ext, t) : ext;
}

/* Numbers that stand one in a row are a vector. */
bool cg_padded(const Func *f, ValueId v, bool turned, Ref *at)
{
    Ref r = cg_dense(f, v);
    int last = r.rank - 1, order[MAX_RANK];
    for (int i = 0; i <= last; i++)
        order[i] = turned && i >= last - 1 ? 2 * last - 1 - i : i;
    const Lin row = last < 0 ? lin(1) : r.ext[order[last]];
    const Dtype t = val(f->g, v)->dtype;
    if (!cg_stand(&r, order, is_one(row) ? row : cg_row_apart(f->sg, f->sg->device, row, t)))
        return false;
    *at = r;
    return true;
}
