/*
 * batch_demand.c - the rows demanded of a value.  In: a value and the dimension in which a reader
 * needs the rows.  Out: whether it can hold them there; what it is made of is tagged on the way,
 * back to an Expand or to a constant, of which a tagged copy is made.
 */
#include "batch.h"

static void set_want(Batch *b, ValueId v, Place at)
{
    while (b->want.n <= v)
        vec_push(b->scratch, &b->want, BATCH_NONE);
    b->want.at[v] = at.dim;
    b->g->value.at[v].batch = at.dim;
    batch_set_outer(b, v, at.groups);
    b->changed = true;
}

/*
 * A constant may be tagged when its rows are all equal, or integers each of which grows by its own
 * step from row to row (positions, row numbers): then the constant of a smaller batch is a prefix
 * of it.
 */
static bool rows_regular(const Value *v, int dim, int64_t outer, int64_t rows)
{
    const int64_t each = v->shape.d[dim] / (outer * rows),
                  block = each * shape_between(&v->shape, dim + 1, v->shape.rank),
                  whole = block * rows;
    outer *= shape_between(&v->shape, 0, dim);
    size_t size = dtype_size(v->dtype);
    if (rows == 1 || outer * whole == 0)
        return true;
    if (size == 0)
        return false;
    if (blocks_equal(v->data, outer, rows, (size_t)block * size))
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

static ValueId tagged_copy(Batch *b, ValueId v, Place at)
{
    for (uint32_t i = 0; i < b->copies.n; i++)
        if (b->copies.at[i].from == v && b->copies.at[i].dim == at.dim &&
            batch_outer(b, b->copies.at[i].to) == at.groups)
            return b->copies.at[i].to;
    Value was = *val(b->g, v);
    Shape shape = was.shape;
    ValueId to = graph_value(b->g, V_CONST, NULL, was.dtype, &shape);
    b->g->value.at[to].data = was.data;
    b->g->value.at[to].batch = at.dim;
    batch_set_outer(b, to, at.groups);
    Retagged r = {v, to, at.dim};
    vec_push(b->scratch, &b->copies, r);
    return to;
}

/* A constant's rows are put one after the other as they are, so behind something outside them there
 * must be all. */
static bool demand_const(Batch *b, ValueId *slot, const Value *x, Place at)
{
    if (x->shape.d[at.dim] % (at.groups * b->rows) != 0 ||
        !rows_regular(x, at.dim, at.groups, b->rows))
        return false;
    *slot = tagged_copy(b, *slot, at);
    if (at.groups != 1)
        b->why = "a constant of the model repeats in it for every row";
    return true;
}

/* May what the node makes hold the rows there?  A way of ops.def's SPREAD with such a result says
   where the operands have them.  Passes the demand on. */
static bool carries(Batch *b, ValueId v, NodeId maker, Place at)
{
    Node *n = &b->g->node.at[maker];
    if (batch_hands_on(b, n, at.dim)) {
        const int64_t rows = b->rows;
        bool all = at.groups == 1;
        b->rows = b->g->batch;
        for (uint32_t i = 0; i < n->nin && all; i++) {
            b->rows = batch_rows(b, n->in[i], at.dim);
            all = batch_demand(b, &n->in[i], at);
        }
        b->rows = rows;
        return all;
    }
    Arena *scratch = arena_within(b->scratch);
    SpreadOf of = {.g = b->g, .chunks = b->rows};
    SpreadWays ways = {0};
    spread_ways_at(&of, maker, n->nin + val(b->g, v)->out, at, scratch, &ways);
    bool good = ways.n > 0 && !ways.at[0].meets;
    for (uint32_t i = 0; i < n->nin && good; i++)
        good = ways.at[0].in[i].dim < 0 || batch_demand(b, &n->in[i], ways.at[0].in[i]);
    arena_free(scratch);
    return good;
}

bool batch_demand(Batch *b, ValueId *slot, Place at)
{
    ValueId v = *slot;
    Value x = *val(b->g, v);
    bool labels = v < b->values && b->labels[v], one = b->rows == 1;
    if (place_is(at, place_s(x.batch, batch_outer(b, v)))) {
        if (x.kind == V_CONST && at.groups != 1)
            b->why = "a constant of the model repeats in it for every row";
        return true;
    }
    if (x.kind == V_INPUT && v < b->values && !b->open[v] && x.shape.d[at.dim] % b->rows == 0 &&
        !graph_is_total(b->g, v)) {
        b->lacks = v;
        b->lacks_at = at.dim;
    }
    if (x.batch != BATCH_NONE || x.shape.d[at.dim] % b->rows != 0 || (one && !labels))
        return one;
    if (x.kind == V_CONST)
        return demand_const(b, slot, &x, at);
    if (x.kind == V_INPUT && v < b->values && b->open[v] && at.groups == 1) {
        set_want(b, v, at);
        return true;
    }
    if (x.kind != V_NODE || v < b->from || !carries(b, v, x.node, at))
        return one;
    set_want(b, v, at);
    return true;
}
