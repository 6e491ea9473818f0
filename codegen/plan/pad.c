/*
 * pad.c - where rows stand further apart than they are long (rows.c: how far).  In: a value that
 * library products read or write.  Out: its place.
 *
 * On CPUs, where all who read the value can read it so; that is for speed alone, the bits are the
 * same (gemm.c).  On a device no product reads or writes others than these: what stands otherwise,
 * as a message or a parameter may, is copied (place.c).
 */
#include "plan.h"

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
        factor |= n->in[i] == v && (cg_is_factor(r->f, n, i) || cg_is_attended(n, i));
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
    int rank = x->shape.rank;
    Ref r;
    if (f->sg->device || rank < 2 || !dtype_is_float(x->dtype) || shape_elements(&x->shape) == 0)
        return false;
    Lin row = cg_ext(f, v, rank - 1);
    if (lin_eq(row, cg_row_apart(f->sg, false, row, x->dtype)) ||
        lin_is(cg_ext(f, v, rank - 2), 1) || !cg_padded(f, v, false, &r))
        return false;
    Offer offer = {f, readers, false};
    Wide w = cg_widen(&r);
    if (!readable(&offer, v, &w) || !offer.product)
        return false;
    *at = r;
    return true;
}

/* ---- on a device ---------------------------------------------------------------------------- */

static void mark(Func *f, ValueId v)
{
    const Node *maker = f->def.at[v] == NONE ? NULL : &f->g->node.at[f->def.at[v]];
    if (!maker || cg_fusable(maker) || cg_is_product(f, maker) || cg_is_attention(maker) ||
        maker->op == OP_Concat)
        f->apart.at[v] = true;
}

void cg_apart(Func *f, const Ids *list, int n)
{
    Wide w;
    for (int l = 0; f->sg->device && l < n; l++)
        for (uint32_t i = 0; i < list[l].n; i++) {
            const Node *x = &f->g->node.at[list[l].at[i]];
            if (!cg_is_product(f, x))
                continue;
            mark(f, x->out[0]);
            for (uint32_t k = 0; k < 2; k++)
                if (cg_apart_over_root(f, x->in[k], &w))
                    mark(f, cg_below(f, x->in[k]));
        }
}

/* Is the dimension before the last the contiguous one: by strides, or, where these are several a
 * dimension, by the node that has turned them? */
static bool turned(Func *f, ValueId v)
{
    const Node *n = graph_maker(f->g, v);
    const int last = val(f->g, v)->shape.rank - 1;
    Wide w;
    if (n && n->op == OP_Transpose)
        return n->attr.axes[last] == last - 1 && n->attr.axes[last - 1] == last;
    if (!cg_wide(f, v, &w))
        return false;
    const int *first = w.first;
    bool one = first[last] - first[last - 1] == 1, other = first[last + 1] - first[last] == 1;
    return one && lin_is(w.stride[first[last - 1]], 1) &&
           !(other && lin_is(w.stride[first[last]], 1));
}

/* With the dimension contiguous that is so; of several matrices A's rows are to become one's. */
bool cg_factor_place(Func *f, const Node *n, uint32_t i, Ref *at)
{
    const ValueId v = n->in[i];
    const bool may = i > 0 || val(f->g, v)->shape.rank == 2;
    return f->sg->device && cg_is_factor(f, n, i) && cg_padded(f, v, may && turned(f, v), at);
}
