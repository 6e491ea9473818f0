/*
 * shape_rules.c - types and shapes of elementwise operations, moves, lookups and reductions.
 */
#include <string.h>

#include "infer.h"

/* ---- elementwise ---- */

void shape_map(Infer *x)
{
    infer_same_types(x, 0);
    x->t[0] = infer_type(x, 0);
    infer_broadcast_all(x);
}

void shape_real(Infer *x)
{
    infer_need(x, 0, dtype_is_float(infer_type(x, 0)), "of a float type");
    shape_map(x);
}

void shape_bits(Infer *x)
{
    infer_need(x, 0, !dtype_is_float(infer_type(x, 0)), "of an integer type");
    shape_map(x);
}

void shape_bit_not(Infer *x)
{
    infer_need(x, 0, infer_type(x, 0) != DT_BOOL, "of an integer type");
    shape_bits(x);
}

/* The exponent may have a type of its own. */
void shape_pow(Infer *x)
{
    x->t[0] = infer_type(x, 0);
    infer_broadcast_all(x);
}

void shape_bool(Infer *x)
{
    infer_same_types(x, 0);
    x->t[0] = DT_BOOL;
    infer_broadcast_all(x);
}

void shape_logic(Infer *x)
{
    infer_same_types(x, 0);
    infer_need(x, 0, infer_type(x, 0) == DT_BOOL, "bool");
    shape_bool(x);
}

void shape_where(Infer *x)
{
    infer_need(x, 0, infer_type(x, 0) == DT_BOOL, "bool");
    infer_same_types(x, 1);
    x->t[0] = infer_type(x, 1);
    infer_broadcast_all(x);
}

void shape_bit_cast(Infer *x)
{
    Dtype t = infer_type(x, 0);
    infer_need(x, 0, t == DT_F32 || t == DT_F64 || t == DT_I32 || t == DT_I64,
               "of f32, f64, i32 or i64");
    x->t[0] = t == DT_F32 ? DT_I32 : t == DT_I32 ? DT_F32 : t == DT_F64 ? DT_I64 : DT_F64;
    x->s[0] = *infer_dims(x, 0);
}

void shape_cast(Infer *x)
{
    if (dtype_size(x->at->to) == 0 || x->at->to == DT_C64 || x->at->to == DT_C128 ||
        dtype_size(infer_type(x, 0)) == 0)
        infer_refuse(x, 0, "cannot cast %s to %s", dtype_name(infer_type(x, 0)),
                     dtype_name(x->at->to));
    x->t[0] = x->at->to;
    x->s[0] = *infer_dims(x, 0);
}

/* ---- views and data movement ---- */

void shape_given(Infer *x)
{
    const Shape *from = infer_dims(x, 0);
    Shape *s = &x->s[0];
    s->rank = x->at->n;
    memcpy(s->d, x->at->dims, (size_t)s->rank * sizeof s->d[0]);
    x->t[0] = infer_type(x, 0);
    if (x->op == OP_Reshape) {
        if (shape_elements(s) != shape_elements(from))
            infer_refuse(x, 0, "cannot reshape %lld elements to %s",
                         infer_number(shape_elements(from)), shape_print(x->g->arena, x->t[0], s));
        return;
    }
    bool fits = s->rank >= from->rank;
    for (int i = 0; fits && i < from->rank; i++) {
        int64_t d = from->d[i];
        fits = d == 1 || d == s->d[i + s->rank - from->rank];
    }
    if (!fits)
        infer_refuse(x, 0, "cannot expand to %s", shape_print(x->g->arena, x->t[0], s));
}

void shape_transpose(Infer *x)
{
    const Shape *from = infer_dims(x, 0);
    unsigned seen = 0;
    if (x->at->n != from->rank)
        infer_refuse(x, 0, "perm has %d entries, the operand has rank %d", x->at->n, from->rank);
    x->t[0] = infer_type(x, 0);
    x->s[0].rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        int axis = infer_axis(x, x->at->perm[i], from->rank);
        if (seen >> axis & 1)
            infer_refuse(x, 0, "perm names axis %d twice", axis);
        seen |= 1u << axis;
        x->s[0].d[i] = from->d[axis];
    }
}

void shape_slice(Infer *x)
{
    const Shape *from = infer_dims(x, 0);
    if (x->at->n != from->rank)
        infer_refuse(x, 0, "a slice of %d dimensions of an operand of rank %d", x->at->n,
                     from->rank);
    x->t[0] = infer_type(x, 0);
    x->s[0].rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        int64_t start = x->at->start[i], size = x->at->size[i], step = x->at->step[i], reach, last;
        if (size < 0 || step == 0)
            infer_refuse(x, 0, "slice of size %lld and step %lld along axis %d", infer_number(size),
                         infer_number(step), i);
        if (size > 0 &&
            (start < 0 || start >= from->d[i] || __builtin_mul_overflow(size - 1, step, &reach) ||
             __builtin_add_overflow(start, reach, &last) || last < 0 || last >= from->d[i]))
            infer_refuse(x, 0, "slice start %lld, size %lld, step %lld leaves axis %d of %lld",
                         infer_number(start), infer_number(size), infer_number(step), i,
                         infer_number(from->d[i]));
        x->s[0].d[i] = size;
    }
}

void shape_split(Infer *x)
{
    const Shape *from = infer_dims(x, 0);
    int axis = infer_axis(x, x->at->axis, from->rank);
    int64_t sum = 0;
    for (uint32_t i = 0; i < x->nout; i++) {
        if (x->at->sizes[i] < 0)
            infer_refuse(x, 0, "a part of negative size");
        sum = infer_add(x, sum, x->at->sizes[i]);
        x->t[i] = infer_type(x, 0);
        x->s[i] = *from;
        x->s[i].d[axis] = x->at->sizes[i];
    }
    if (sum != from->d[axis])
        infer_refuse(x, 0, "the parts add up to %lld, axis %d has %lld", infer_number(sum), axis,
               infer_number(from->d[axis]));
}

void shape_concat(Infer *x)
{
    Shape *s = &x->s[0];
    *s = *infer_dims(x, 0);
    x->t[0] = infer_type(x, 0);
    infer_same_types(x, 0);
    int axis = infer_axis(x, x->at->axis, s->rank);
    for (uint32_t i = 1; i < x->nin; i++) {
        const Shape *b = infer_dims(x, i);
        for (int k = 0; k < s->rank; k++)
            if (b->rank != s->rank || (k != axis && b->d[k] != s->d[k]))
                infer_refuse(x, (int)i, "shapes differ outside axis %d", axis);
        s->d[axis] = infer_add(x, s->d[axis], b->d[axis]);
    }
}

void shape_pad(Infer *x)
{
    const Shape *from = infer_dims(x, 0);
    if (x->at->n != from->rank)
        infer_refuse(x, 0, "pads for %d dimensions, the operand has rank %d", x->at->n, from->rank);
    x->t[0] = infer_type(x, 0);
    x->s[0].rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        int64_t b = x->at->begin[i], e = x->at->end[i], d = from->d[i];
        bool far = (x->at->mode == PAD_REFLECT && (b >= d || e >= d)) ||
                   (x->at->mode == PAD_WRAP && (b > d || e > d)) ||
                   (x->at->mode == PAD_EDGE && d == 0);
        if (b < 0 || e < 0 || ((b || e) && far))
            infer_refuse(x, 0, "pads %lld and %lld do not fit axis %d of %lld", infer_number(b),
                         infer_number(e), i, infer_number(d));
        x->s[0].d[i] = infer_add(x, infer_add(x, d, b), e);
    }
}

/* ---- indices ---- */

/* Constant indices are checked here, once; limit[k] is the bound of the k-th of every n indices. */
static void check_indices(const Infer *x, uint32_t i, const int64_t *limit, int64_t n)
{
    int64_t *at, count;
    infer_need(x, i, infer_type(x, i) == DT_I64 || infer_type(x, i) == DT_I32, "i32 or i64");
    if (!g_const_ints(x->g, x->in[i], x->g->arena, &at, &count))
        return;
    for (int64_t k = 0; k < count; k++) {
        int64_t d = limit[n == 1 ? 0 : k % n];
        if (at[k] < -d || at[k] >= d)
            infer_refuse(x, (int)i, "index %lld is out of range for a dimension of %lld",
                         infer_number(at[k]), infer_number(d));
    }
}

void shape_gather(Infer *x)
{
    const Shape *from = infer_dims(x, 0), *index = infer_dims(x, 1);
    int axis = infer_axis(x, x->at->axis, from->rank), n = 0;
    Shape *s = &x->s[0];
    if (from->rank + index->rank - 1 > MAX_RANK)
        infer_refuse(x, 1, "the result's rank is more than %d", MAX_RANK);
    check_indices(x, 1, &from->d[axis], 1);
    for (int i = 0; i < axis; i++)
        s->d[n++] = from->d[i];
    for (int i = 0; i < index->rank; i++)
        s->d[n++] = index->d[i];
    for (int i = axis + 1; i < from->rank; i++)
        s->d[n++] = from->d[i];
    s->rank = n;
    x->t[0] = infer_type(x, 0);
}

/* indices may be smaller than the data in every dimension but the axis */
static void check_elements(const Infer *x)
{
    const Shape *from = infer_dims(x, 0), *index = infer_dims(x, 1);
    int axis = infer_axis(x, x->at->axis, from->rank);
    for (int i = 0; i < from->rank; i++)
        if (index->rank != from->rank || (i != axis && index->d[i] > from->d[i]))
            infer_refuse(x, 1, "indices do not fit the data outside axis %d", axis);
    check_indices(x, 1, &from->d[axis], 1);
}

void shape_gather_elements(Infer *x)
{
    check_elements(x);
    x->t[0] = infer_type(x, 0);
    x->s[0] = *infer_dims(x, 1);
}

void shape_gather_nd(Infer *x)
{
    const Shape *from = infer_dims(x, 0), *index = infer_dims(x, 1);
    int batch = (int)x->at->batch_dims, n = 0;
    Shape *s = &x->s[0];
    if (index->rank < 1 || x->at->batch_dims < 0 || batch >= index->rank || batch > from->rank)
        infer_refuse(x, 1, "batch_dims %d does not fit", batch);
    int64_t depth = index->d[index->rank - 1];
    if (depth < 1 || depth > from->rank - batch)
        infer_refuse(x, 1, "indices of %lld dimensions into %d", infer_number(depth),
                     from->rank - batch);
    if (index->rank - 1 + from->rank - batch - (int)depth > MAX_RANK)
        infer_refuse(x, 1, "the result's rank is more than %d", MAX_RANK);
    for (int i = 0; i < batch; i++)
        if (index->d[i] != from->d[i])
            infer_refuse(x, 1, "batch dimension %d differs", i);
    check_indices(x, 1, from->d + batch, depth);
    for (int i = 0; i < index->rank - 1; i++)
        s->d[n++] = index->d[i];
    for (int i = batch + (int)depth; i < from->rank; i++)
        s->d[n++] = from->d[i];
    s->rank = n;
    x->t[0] = infer_type(x, 0);
}

static void check_scatter(const Infer *x)
{
    const Shape *from = infer_dims(x, 0), *index = infer_dims(x, 1), *update = infer_dims(x, 2);
    if (infer_type(x, 2) != infer_type(x, 0))
        infer_refuse(x, 2, "updates have type %s, the data %s", dtype_name(infer_type(x, 2)),
               dtype_name(infer_type(x, 0)));
    if (x->op == OP_ScatterElements) {
        check_elements(x);
        if (!shape_equal(index, update))
            infer_refuse(x, 2, "updates and indices differ in shape");
        return;
    }
    int64_t depth = index->rank < 1 ? 0 : index->d[index->rank - 1];
    if (depth < 1 || depth > from->rank)
        infer_refuse(x, 1, "indices of %lld dimensions into %d", infer_number(depth), from->rank);
    check_indices(x, 1, from->d, depth);
    Shape want = {0};
    for (int i = 0; i < index->rank - 1; i++)
        want.d[want.rank++] = index->d[i];
    for (int i = (int)depth; i < from->rank && want.rank < MAX_RANK; i++)
        want.d[want.rank++] = from->d[i];
    if (!shape_equal(&want, update))
        infer_refuse(x, 2, "updates must have shape %s",
                     shape_print(x->g->arena, infer_type(x, 0), &want));
}

void shape_first(Infer *x)
{
    if (x->op == OP_ScatterElements || x->op == OP_ScatterND)
        check_scatter(x);
    x->t[0] = infer_type(x, 0);
    x->s[0] = *infer_dims(x, 0);
    if (x->op == OP_Phase &&
        (infer_type(x, 1) != x->t[0] || !shape_equal(infer_dims(x, 1), &x->s[0])))
        infer_refuse(x, 1, "the training and the inference variant differ in shape");
}

/* ---- reductions ---- */

static void reduce_axes(Infer *x)
{
    x->t[0] = infer_type(x, 0);
    x->s[0] = *infer_dims(x, 0);
    INSIST(x->at->n > 0);
    for (int i = 0; i < x->at->n; i++) {
        int axis = infer_axis(x, x->at->axes[i], x->s[0].rank);
        INSIST(i == 0 || x->at->axes[i] > x->at->axes[i - 1]);
        x->s[0].d[axis] = 1;
    }
}

void shape_reduce(Infer *x)
{
    infer_need(x, 0, infer_type(x, 0) != DT_BOOL, "a number");
    reduce_axes(x);
}

void shape_extreme(Infer *x)
{
    reduce_axes(x);
    for (int i = 0; i < x->at->n; i++)
        if (infer_dims(x, 0)->d[x->at->axes[i]] == 0)
            infer_refuse(x, 0, "a maximum or minimum over no elements");
}

void shape_cumsum(Infer *x)
{
    x->t[0] = infer_type(x, 0);
    x->s[0] = *infer_dims(x, 0);
    infer_axis(x, x->at->axis, x->s[0].rank);
}

void shape_softmax(Infer *x)
{
    infer_need(x, 0, dtype_is_float(infer_type(x, 0)), "of a float type");
    shape_cumsum(x);
}

void shape_arg(Infer *x)
{
    x->t[0] = DT_I64;
    x->s[0] = *infer_dims(x, 0);
    int axis = infer_axis(x, x->at->axis, x->s[0].rank);
    if (x->s[0].d[axis] == 0)
        infer_refuse(x, 0, "axis %d has no elements", axis);
    x->s[0].d[axis] = 1;
}

void shape_topk(Infer *x)
{
    x->t[0] = infer_type(x, 0);
    x->t[1] = DT_I64;
    x->s[0] = *infer_dims(x, 0);
    int axis = infer_axis(x, x->at->axis, x->s[0].rank);
    if (x->at->k < 0 || x->at->k > x->s[0].d[axis])
        infer_refuse(x, 0, "the %lld greatest of %lld", infer_number(x->at->k),
                     infer_number(x->s[0].d[axis]));
    x->s[0].d[axis] = x->at->k;
    x->s[1] = x->s[0];
}

void shape_suppress(Infer *x)
{
    Shape boxes = *infer_dims(x, 0), order = *infer_dims(x, 1), there = *infer_dims(x, 2);
    if (boxes.rank != 3 || boxes.d[2] != 4 || order.rank != 3 || order.d[0] != boxes.d[0] ||
        order.d[2] != boxes.d[1] || !shape_equal(&order, &there))
        infer_refuse(x, 1, "an order of %lld x %lld of %lld x %lld boxes", infer_number(order.d[0]),
                     infer_number(order.d[2]), infer_number(boxes.d[0]), infer_number(boxes.d[1]));
    x->t[0] = x->t[1] = DT_I64;
    x->s[0] = order;
    x->s[1] = (Shape){2, {order.d[0], order.d[1]}};
}

void shape_count(Infer *x)
{
    INSIST(x->at->to == DT_F32 || x->at->to == DT_F64);
    for (int i = 0; i < x->at->n; i++)
        infer_axis(x, x->at->axes[i], infer_dims(x, 0)->rank);
    x->t[0] = x->at->to;
    x->s[0] = (Shape){0};
}

/* ---- random numbers ---- */

void shape_dropout(Infer *x)
{
    infer_need(x, 0, dtype_is_float(infer_type(x, 0)), "of a float type");
    if (!(x->at->ratio >= 0 && x->at->ratio < 1))
        infer_refuse(x, 0, "a dropout ratio of %g", x->at->ratio);
    x->t[0] = infer_type(x, 0);
    x->t[1] = DT_BOOL;
    x->s[0] = x->s[1] = *infer_dims(x, 0);
}

void shape_random(Infer *x)
{
    INSIST(x->at->to == DT_F32 || x->at->to == DT_F64);
    x->t[0] = x->at->to;
    x->s[0] = *infer_dims(x, 0);
}

/* ---- between the members along an axis of the mesh ---- */

void shape_vary(Infer *x)
{
    for (uint32_t i = 0; i < x->nout; i++) {
        x->t[i] = infer_type(x, 0);
        x->s[i] = *infer_dims(x, 0);
    }
}

static void divide(Infer *x, int64_t axis)
{
    int64_t *d = &x->s[0].d[infer_axis(x, axis, x->s[0].rank)],
            members = x->g->mesh[x->at->mesh].members;
    if (*d % members != 0)
        infer_refuse(x, 0, "axis %lld of %lld cannot be divided among %lld members",
                     infer_number(axis), infer_number(*d), infer_number(members));
    *d /= members;
}

static void unite(Infer *x, int64_t axis)
{
    int64_t *d = &x->s[0].d[infer_axis(x, axis, x->s[0].rank)];
    *d = infer_mul(x, *d, x->g->mesh[x->at->mesh].members);
}

void shape_collective(Infer *x)
{
    Dtype t = infer_type(x, 0);
    bool sums = x->op == OP_AllReduce || x->op == OP_ReduceScatter;
    infer_need(x, 0, !sums || t == DT_F32 || t == DT_F64, "f32 or f64");
    x->t[0] = x->op == OP_AllReduce && x->at->to != DT_NONE ? x->at->to : t;
    INSIST(x->t[0] == t || (t == DT_F32 && dtype_is_half(x->t[0])));
    x->s[0] = *infer_dims(x, 0);
    if (x->op == OP_AllGather || x->op == OP_AllToAll)
        unite(x, x->at->axis);
    if (x->op == OP_AllToAll)
        divide(x, x->at->to_axis);
    if (x->op == OP_Shard || x->op == OP_ReduceScatter)
        divide(x, x->at->axis);
}

/* Pack, Unpack */
void shape_pack(Infer *x)
{
    const Shape *mask = infer_dims(x, 1);
    int axis = infer_axis(x, x->at->axis, infer_dims(x, 0)->rank);
    INSIST(mask->d[mask->rank - 1] == infer_dims(x, 0)->d[axis] && infer_type(x, 1) == DT_BOOL);
    INSIST(mask->rank == 1 || (mask->rank == 2 && axis && mask->d[0] == infer_dims(x, 0)->d[0]));
    x->t[0] = infer_type(x, 0);
    x->s[0] = *infer_dims(x, 0);
}

/* ---- an operation of the user's own ---- */

void shape_custom(Infer *x)
{
    const CustomAttr *c = x->at->custom;
    for (uint32_t o = 0; o < x->nout; o++) {
        const CustomShape *s = &c->shape[o];
        x->t[o] = infer_type(x, s->like);
        x->s[o] = *infer_dims(x, s->like);
        if (s->rank >= 0)
            x->s[o] = (Shape){.rank = s->rank};
        for (int d = 0; d < s->rank; d++) {
            const Shape *of =
                s->size[d].operand < 0 ? NULL : infer_dims(x, (uint32_t)s->size[d].operand);
            if (of && s->size[d].dim >= of->rank)
                infer_refuse(x, s->size[d].operand, "the table of --ops reads dimension %lld of it",
                             infer_number(s->size[d].dim));
            x->s[o].d[d] = of ? of->d[s->size[d].dim] : s->size[d].dim;
        }
    }
}
