/*
 * pad.c - rows that do not meet in the cache.  In: a value that library products read.  Out: a
 * place whose rows stand 64 bytes further apart, if all who read the value can read it so.
 *
 * Rows of a multiple of 1,024 bytes share a few sets of the cache, and a product that walks across
 * them finds each gone when it comes back.  Measured with oneDNN 2.6 on one core, operands cold, in
 * GFLOP/s: weight gradients x' dy of 512 rows and 1,024 columns 102 and 113, dy w' 112 and 119,
 * attention heads of 32 columns 80 and 100.  The bits are the same (gemm.c).
 */
#include "plan.h"

enum { MEET = 1024, APART = 64 };                       /* bytes */

Readers cg_readers(Func *f, const Ids *list, int n)
{
    uint32_t values = f->g->value.n, total = 0;
    Readers r = {.first = arena_array(f->scratch, uint32_t, values + 2)};
    for (int l = 0; l < n; l++)
        for (uint32_t i = 0; i < list[l].n; i++) {
            const Node *x = &f->g->node.at[list[l].at[i]];
            for (uint32_t j = 0; j < x->nin; j++)
                if (x->in[j] != NONE)
                    r.first[x->in[j] + 2]++, total++;
        }
    for (uint32_t v = 2; v < values + 2; v++)
        r.first[v] += r.first[v - 1];
    r.node = arena_array(f->scratch, NodeId, total + 1);
    /* first[v + 1] goes from v's first reader behind its last */
    for (int l = 0; l < n; l++)
        for (uint32_t i = 0; i < list[l].n; i++) {
            const Node *x = &f->g->node.at[list[l].at[i]];
            for (uint32_t j = 0; j < x->nin; j++)
                if (x->in[j] != NONE)
                    r.node[r.first[x->in[j] + 1]++] = list[l].at[i];
        }
    return r;
}

/* A place of v, and whether a product reads it there. */
typedef struct { Func *f; const Readers *readers; bool product; } Offer;

static bool readable(Offer *r, ValueId v, const Wide *at);

static bool reads(Offer *r, NodeId id, ValueId v, const Wide *at)
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
    bool factor = false;
    for (uint32_t i = 0; i < n->nin; i++)
        factor |= n->in[i] == v && cg_is_factor(r->f, n, i);
    if (factor) {
        r->product = true;
        return cg_product_takes(r->f, v, at);
    }
    return cg_fusable(n) && cg_narrow(r->f, at, v, &plain);
}

static bool readable(Offer *r, ValueId v, const Wide *at)
{
    for (uint32_t i = r->readers->first[v]; i < r->readers->first[v + 1]; i++)
        if (!reads(r, r->readers->node[i], v, at))
            return false;
    return true;
}

bool cg_pad(Func *f, ValueId v, const Readers *readers, Ref *at)
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
    Offer offer = {f, readers, false};
    Wide w = cg_widen(&r);
    if (!readable(&offer, v, &w) || !offer.product)
        return false;
    *at = r;
    return true;
}
