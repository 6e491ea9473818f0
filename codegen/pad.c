/*
 * pad.c - rows that do not meet in the cache.  In: a value that library products read.  Out: a place whose rows stand 64 bytes
 * further apart, if all who read the value can read it so.
 *
 * Rows of a multiple of 1,024 bytes share a few sets of the cache, and a product that walks across them finds each gone when
 * it comes back.  Measured with oneDNN 2.6 on one core, operands cold, in GFLOP/s: weight gradients x' dy of 512 rows and
 * 1,024 columns 102 and 113, dy w' 112 and 119, attention heads of 32 columns 80 and 100.  The bits are the same (gemm.c).
 */
#include "cg.h"

enum { MEET = 1024, APART = 64 };                       /* bytes */

typedef struct { Func *f; const Ids *list; int n; bool product; } Readers;

static bool readable(Readers *r, ValueId v, const Wide *at);

static bool reads(Readers *r, NodeId id, ValueId v, const Wide *at)
{
    const Node *n = &r->f->g->node.at[id];
    Ref plain;
    Wide w;
    if (n->op == OP_Phase && cg_view_operand(r->f, n) != v)
        return true;
    if (cg_is_view(r->f, id)) {
        for (uint32_t o = 0; o < n->nout; o++)
            if (!cg_view_apply(r->f, n, o, at, &w) || !readable(r, n->out[o], &w))
                return false;
        return true;
    }
    if (cg_is_product(r->f, n)) {
        r->product = true;
        return cg_product_takes(r->f, v, at);
    }
    return cg_fusable(n) && cg_narrow(r->f, at, v, &plain);
}

static bool readable(Readers *r, ValueId v, const Wide *at)
{
    for (int l = 0; l < r->n; l++)
        for (uint32_t i = 0; i < r->list[l].n; i++) {
            const Node *n = &r->f->g->node.at[r->list[l].at[i]];
            for (uint32_t j = 0; j < n->nin; j++)
                if (n->in[j] == v && !reads(r, r->list[l].at[i], v, at))
                    return false;
        }
    return true;
}

bool cg_pad(Func *f, ValueId v, const Ids *list, int n, Ref *at)
{
    const Value *x = val(f->g, v);
    int rank = x->shape.rank, size = (int)dtype_size(x->dtype);
    if (rank < 2 || !dtype_is_float(x->dtype) || shape_elements(&x->shape) == 0)
        return false;
    Ref r = cg_dense(f, v);
    Lin row = r.ext[rank - 1];
    if (row.b != 0 || row.c * size % MEET != 0 || lin_is(r.ext[rank - 2], 1))
        return false;
    Lin stride = lin(row.c + APART / size);
    for (int d = rank - 2; d >= 0; d--) {
        if (!lin_is(r.ext[d], 1))
            r.stride[d] = stride;
        if (!lin_mul(stride, r.ext[d], &stride))
            return false;
    }
    Readers readers = {f, list, n, false};
    Wide w = cg_widen(&r);
    if (!readable(&readers, v, &w) || !readers.product)
        return false;
    *at = r;
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
