/*
 * batch_demand.c - the rows demanded of a value.  In: a value and the dimension in which a reader
 * needs the rows.  Out: whether it can hold them there; what it is made of is tagged on the way,
 * back to an Expand or to a constant, of which a tagged copy is made.
 */
#include <string.h>

#include "batch.h"

static void set_want(Batch *b, ValueId v, int dim)
{
    while (b->want.n <= v)
        vec_push(b->scratch, &b->want, BATCH_NONE);
    b->want.at[v] = dim;
    b->g->value.at[v].batch = dim;
    batch_set_outer(b, v, b->cur);
    b->changed = true;
}

/*
 * A constant may be tagged when its rows are all equal, or integers each of which grows by its own
 * step from row to row (positions, row numbers): then the constant of a smaller batch is a prefix
 * of it.
 */
static bool rows_regular(const Value *v, int dim, int64_t outer, int64_t rows)
{
    int64_t inner = 1, each = v->shape.d[dim] / (outer * rows);
    for (int i = 0; i < dim; i++)
        outer *= v->shape.d[i];
    for (int i = dim + 1; i < v->shape.rank; i++)
        inner *= v->shape.d[i];
    int64_t block = each * inner, whole = block * rows;
    size_t size = dtype_size(v->dtype);
    if (rows == 1 || outer * whole == 0)
        return true;
    if (size == 0)
        return false;
    const char *at = v->data;
    bool equal = true;
    for (int64_t o = 0; o < outer && equal; o++)
        for (int64_t r = 1; r < rows && equal; r++)
            equal = memcmp(at + (size_t)(o * whole) * size,
                           at + (size_t)(o * whole + r * block) * size, (size_t)block * size) == 0;
    if (equal)
        return true;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < whole; i++) {
            int64_t x, base, next, grown;
            int64_t in = o * whole + i % block;
            if (!batch_const_int(v, o * whole + i, &x) || !batch_const_int(v, in, &base) ||
                !batch_const_int(v, in + block, &next) ||
                __builtin_sub_overflow(next, base, &grown) ||
                __builtin_mul_overflow(grown, i / block, &grown) ||
                __builtin_add_overflow(grown, base, &grown) || x != grown)
                return false;
        }
    return true;
}

static ValueId tagged_copy(Batch *b, ValueId v, int dim)
{
    for (uint32_t i = 0; i < b->copies.n; i++)
        if (b->copies.at[i].from == v && b->copies.at[i].dim == dim &&
            batch_outer(b, b->copies.at[i].to) == b->cur)
            return b->copies.at[i].to;
    Value was = *val(b->g, v);
    Shape shape = was.shape;
    ValueId to = graph_value(b->g, V_CONST, NULL, was.dtype, &shape);
    b->g->value.at[to].data = was.data;
    b->g->value.at[to].batch = dim;
    batch_set_outer(b, to, b->cur);
    Retagged r = {v, to, dim};
    vec_push(b->scratch, &b->copies, r);
    return to;
}

/* Demands dimension dim of an operand aligned to the right with a result of rank `rank`; broadcast
 * dims are fine. */
static bool demand_aligned(Batch *b, ValueId *slot, int dim, int rank)
{
    const Value *v = val(b->g, *slot);
    int own = dim - (rank - v->shape.rank);
    bool labels = b->rows == 1 && *slot < b->values && b->labels[*slot];
    if (own < 0 || (v->shape.d[own] == 1 && v->batch == BATCH_NONE && !labels))
        return true;
    return batch_demand(b, slot, own);
}

bool batch_demand_all(Batch *b, Node *n, int dim, int rank)
{
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && !demand_aligned(b, &n->in[i], dim, rank))
            return false;
    return true;
}

/* ---- one function per carry of ops.def: may the result `out` hold the rows in dimension dim?
 * Passes the demand on ---- */

static const Shape *operand(const Batch *b, const Node *n) { return &val(b->g, n->in[0])->shape; }
static const Shape *result(const Batch *b, ValueId out) { return &val(b->g, out)->shape; }

static bool carry_never(Batch *b, Node *n, ValueId out, int dim)
{
    return (void)b, (void)n, (void)out, (void)dim, false;
}

static bool carry_all(Batch *b, Node *n, ValueId out, int dim)
{
    return batch_demand_all(b, n, dim, result(b, out)->rank);
}

static bool carry_beside_axis(Batch *b, Node *n, ValueId out, int dim)
{
    (void)out;
    return dim != n->attr.axis && batch_demand(b, &n->in[0], dim);
}

static bool carry_beside_axes(Batch *b, Node *n, ValueId out, int dim)
{
    return dim != n->attr.to_axis && carry_beside_axis(b, n, out, dim);
}

static bool carry_all_beside_axis(Batch *b, Node *n, ValueId out, int dim)
{
    return dim != n->attr.axis && carry_all(b, n, out, dim);
}

/* Along the rows: each operand is all of them once, as heads that are put in front of the batch. */
static bool carry_concat(Batch *b, Node *n, ValueId out, int dim)
{
    int64_t outer = b->cur, whole = result(b, out)->d[dim] / outer;
    bool good = n->nin == outer && b->rows > 1;
    if (dim != n->attr.axis)
        return carry_all(b, n, out, dim);
    b->cur = 1;
    for (uint32_t i = 0; i < n->nin && good; i++)
        good = val(b->g, n->in[i])->shape.d[dim] == whole && batch_demand(b, &n->in[i], dim);
    b->cur = outer;
    return good;
}

static bool carry_expand(Batch *b, Node *n, ValueId out, int dim)
{
    return demand_aligned(b, &n->in[0], dim, result(b, out)->rank);
}

static bool carry_reshape(Batch *b, Node *n, ValueId out, int dim)
{
    int64_t outer = b->cur;
    int j = batch_reshape(result(b, out), operand(b, n), dim, b->rows, &b->cur);
    bool good = j >= 0 && batch_demand(b, &n->in[0], j);
    b->cur = outer;
    return good;
}

static bool carry_transpose(Batch *b, Node *n, ValueId out, int dim)
{
    (void)out;
    return batch_demand(b, &n->in[0], (int)n->attr.perm[dim]);
}

static bool carry_pad(Batch *b, Node *n, ValueId out, int dim)
{
    return result(b, out)->d[dim] == operand(b, n)->d[dim] && batch_demand(b, &n->in[0], dim);
}

static bool carry_slice(Batch *b, Node *n, ValueId out, int dim)
{
    return n->attr.step[dim] == 1 && carry_pad(b, n, out, dim);
}

static bool carry_reduce(Batch *b, Node *n, ValueId out, int dim)
{
    (void)out;
    return !batch_in_axes(&n->attr, dim) && batch_demand(b, &n->in[0], dim);
}

static bool carry_gather(Batch *b, Node *n, ValueId out, int dim)
{
    int axis = (int)n->attr.axis, ri = val(b->g, n->in[1])->shape.rank;
    (void)out;
    if (dim < axis)
        return batch_demand(b, &n->in[0], dim);
    return dim < axis + ri ? batch_demand(b, &n->in[1], dim - axis)
                           : batch_demand(b, &n->in[0], dim - ri + 1);
}

/* The result has the index's dims but its last, then those of the data that no index counts in. */
static bool carry_gather_nd(Batch *b, Node *n, ValueId out, int dim)
{
    const Shape *index = &val(b->g, n->in[1])->shape;
    int last = index->rank - 1, counted = (int)(n->attr.batch_dims + index->d[last]);
    (void)out;
    if (dim >= last)
        return batch_demand(b, &n->in[0], counted + dim - last);
    return (dim >= n->attr.batch_dims || batch_demand(b, &n->in[0], dim)) &&
           batch_demand(b, &n->in[1], dim);
}

static bool carry_conv(Batch *b, Node *n, ValueId out, int dim)
{
    (void)out;
    return dim == 0 && batch_demand(b, &n->in[0], 0);
}

static bool carry_matmul(Batch *b, Node *n, ValueId out, int dim)
{
    int ra = operand(b, n)->rank, rb = val(b->g, n->in[1])->shape.rank, rank = result(b, out)->rank;
    if (dim == rank - 2)
        return batch_demand(b, &n->in[0], ra - 2);
    if (dim == rank - 1)
        return batch_demand(b, &n->in[1], rb - 1);
    return batch_demand_all(b, n, dim, rank);
}

static bool (*const carry_of[OP_COUNT])(Batch *, Node *, ValueId, int) = {
#define BATCH(rule, carry, merge, span) carry_##carry
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, batch, ...)           \
    [OP_##name] = batch,
#include "ir/ops.def"
};

/* A constant's rows are put one after the other as they are, so behind something outside them there
 * must be all. */
static bool demand_const(Batch *b, ValueId *slot, const Value *x, int dim)
{
    if (x->shape.d[dim] % (b->cur * b->rows) != 0 || !rows_regular(x, dim, b->cur, b->rows))
        return false;
    *slot = tagged_copy(b, *slot, dim);
    if (b->cur != 1)
        b->why = "a constant of the model repeats in it for every row";
    return true;
}

static bool carries(Batch *b, ValueId v, NodeId maker, int dim)
{
    Node *n = &b->g->node.at[maker];
    return carry_of[n->op](b, n, v, dim);
}

bool batch_demand(Batch *b, ValueId *slot, int dim)
{
    ValueId v = *slot;
    Value x = *val(b->g, v);
    bool labels = v < b->values && b->labels[v], one = b->rows == 1;
    if (x.batch == dim && batch_outer(b, v) == b->cur) {
        if (x.kind == V_CONST && b->cur != 1)
            b->why = "a constant of the model repeats in it for every row";
        return true;
    }
    if (x.kind == V_INPUT && v < b->values && !b->open[v] && x.shape.d[dim] % b->rows == 0 &&
        !graph_is_total(b->g, v)) {
        b->lacks = v;
        b->lacks_at = dim;
    }
    if (x.batch != BATCH_NONE || x.shape.d[dim] % b->rows != 0 || (one && !labels))
        return one;
    if (x.kind == V_CONST)
        return demand_const(b, slot, &x, dim);
    if (x.kind == V_INPUT && v < b->values && b->open[v] && b->cur == 1) {
        set_want(b, v, dim);
        return true;
    }
    if (x.kind != V_NODE || v < b->from || !carries(b, v, x.node, dim))
        return one;
    set_want(b, v, dim);
    return true;
}
