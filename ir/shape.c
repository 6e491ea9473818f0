/*
 * shape.c - types and shapes of what a core node makes, one function per SHAPE() column of ops.def.
 * In: operands with static shapes, canonical attributes.  Out: type and shape of each output; a
 * model's mistake is an error at the ONNX node it came from, with the operands' types in sight.
 */
#include <string.h>

#include "node.h"

typedef struct {
    Graph *g;
    Op op;
    uint32_t nin, nout;
    const ValueId *in;
    const Attr *at;
    Dtype *t;
    Shape *s;
} Infer;

static const Shape *dims(const Infer *x, uint32_t i) { return &val(x->g, x->in[i])->shape; }
static Dtype type(const Infer *x, uint32_t i) { return val(x->g, x->in[i])->dtype; }

static void note_makers(const Infer *x)
{
    for (uint32_t i = 0; i < x->nin && i < 4; i++) {
        const Value *v = val(x->g, x->in[i]);
        if (v->kind != V_NODE) {
            static const char *const kind[] = {"a model input", "a parameter", "a constant"};
            diag_note("input %u is '%s', %s", i, v->name, kind[v->kind]);
            continue;
        }
        uint32_t origin = x->g->node.at[v->node].origin;
        const Origin *o = &x->g->origin.at[origin];
        if (origin != 0 && origin != x->g->cur_origin)
            diag_note("input %u is made by node %u '%s' (%s)", i, o->index, o->name, o->type);
    }
}

/* The message, then the operands: "  f32[8,12,128,64] @ f32[8,12,48,128]". */
static _Noreturn void PRINTF_LIKE(3, 4) refuse(const Infer *x, int input, const char *fmt, ...)
{
    Arena *a = x->g->arena;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *list = "";
    for (uint32_t i = 0; i < x->nin && i < 8; i++)
        list = arena_printf(a, "%s%s%s", list, i == 0 ? "" : x->op == OP_MatMul ? " @ " : ", ",
                            shape_print(a, type(x, i), dims(x, i)));
    note_makers(x);
    diag_fatal(EXIT_MODEL, graph_where(x->g, x->g->cur_origin, input), "%s\n  %s", text, list);
}

static long long ll(int64_t v) { return (long long)v; }

static int check_axis(const Infer *x, int64_t axis, int rank)
{
    if (axis < 0 || axis >= rank)
        refuse(x, 0, "axis %lld is out of range for rank %d", ll(axis), rank);
    return (int)axis;
}

static int64_t add_dims(const Infer *x, int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        refuse(x, 0, "a dimension overflows");
    return sum;
}

static int64_t mul_dims(const Infer *x, int64_t a, int64_t b)
{
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        refuse(x, 0, "a dimension overflows");
    return product;
}

/* NumPy broadcasting of the first `keep` dims (counted from the left of each) of two shapes. */
static void broadcast(const Infer *x, const Shape *b, int skip_last, Shape *r)
{
    const Shape a = *r;
    int ra = a.rank - skip_last, rb = b->rank - skip_last, rank = ra > rb ? ra : rb;
    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - ra), ib = i - (rank - rb);
        int64_t da = ia < 0 ? 1 : a.d[ia], db = ib < 0 ? 1 : b->d[ib];
        if (da != db && da != 1 && db != 1)
            refuse(x, 1, "operands do not broadcast: dimension %d is %lld and %lld", i, ll(da),
                   ll(db));
        r->d[i] = da == 1 ? db : da;
    }
    r->rank = rank + skip_last;
}

static void same_types(const Infer *x, uint32_t from)
{
    for (uint32_t i = from + 1; i < x->nin; i++)
        if (type(x, i) != type(x, from))
            refuse(x, (int)i, "operands have different types: %s and %s", dtype_name(type(x, from)),
                   dtype_name(type(x, i)));
}

static void need_type(const Infer *x, uint32_t i, bool good, const char *what)
{
    if (!good)
        refuse(x, (int)i, "the operand must be %s, and is %s", what, dtype_name(type(x, i)));
}

static void broadcast_all(Infer *x)
{
    x->s[0] = *dims(x, 0);
    for (uint32_t i = 1; i < x->nin; i++)
        broadcast(x, dims(x, i), 0, &x->s[0]);
}

/* ---- elementwise ---- */

static void shape_map(Infer *x)
{
    same_types(x, 0);
    x->t[0] = type(x, 0);
    broadcast_all(x);
}

static void shape_real(Infer *x)
{
    need_type(x, 0, dtype_is_float(type(x, 0)), "of a float type");
    shape_map(x);
}

static void shape_bits(Infer *x)
{
    need_type(x, 0, !dtype_is_float(type(x, 0)), "of an integer type");
    shape_map(x);
}

static void shape_bit_not(Infer *x)
{
    need_type(x, 0, type(x, 0) != DT_BOOL, "of an integer type");
    shape_bits(x);
}

/* The exponent may have a type of its own. */
static void shape_pow(Infer *x)
{
    x->t[0] = type(x, 0);
    broadcast_all(x);
}

static void shape_bool(Infer *x)
{
    same_types(x, 0);
    x->t[0] = DT_BOOL;
    broadcast_all(x);
}

static void shape_logic(Infer *x)
{
    same_types(x, 0);
    need_type(x, 0, type(x, 0) == DT_BOOL, "bool");
    shape_bool(x);
}

static void shape_where(Infer *x)
{
    need_type(x, 0, type(x, 0) == DT_BOOL, "bool");
    same_types(x, 1);
    x->t[0] = type(x, 1);
    broadcast_all(x);
}

static void shape_cast(Infer *x)
{
    if (dtype_size(x->at->to) == 0 || x->at->to == DT_C64 || x->at->to == DT_C128 ||
        dtype_size(type(x, 0)) == 0)
        refuse(x, 0, "cannot cast %s to %s", dtype_name(type(x, 0)), dtype_name(x->at->to));
    x->t[0] = x->at->to;
    x->s[0] = *dims(x, 0);
}

/* ---- views and data movement ---- */

static void shape_given(Infer *x)
{
    const Shape *from = dims(x, 0);
    Shape *s = &x->s[0];
    s->rank = x->at->n;
    memcpy(s->d, x->at->dims, (size_t)s->rank * sizeof s->d[0]);
    x->t[0] = type(x, 0);
    if (x->op == OP_Reshape) {
        if (shape_elements(s) != shape_elements(from))
            refuse(x, 0, "cannot reshape %lld elements to %s", ll(shape_elements(from)),
                   shape_print(x->g->arena, x->t[0], s));
        return;
    }
    bool fits = s->rank >= from->rank;
    for (int i = 0; fits && i < from->rank; i++) {
        int64_t d = from->d[i];
        fits = d == 1 || d == s->d[i + s->rank - from->rank];
    }
    if (!fits)
        refuse(x, 0, "cannot expand to %s", shape_print(x->g->arena, x->t[0], s));
}

static void shape_transpose(Infer *x)
{
    const Shape *from = dims(x, 0);
    unsigned seen = 0;
    if (x->at->n != from->rank)
        refuse(x, 0, "perm has %d entries, the operand has rank %d", x->at->n, from->rank);
    x->t[0] = type(x, 0);
    x->s[0].rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        int axis = check_axis(x, x->at->perm[i], from->rank);
        if (seen >> axis & 1)
            refuse(x, 0, "perm names axis %d twice", axis);
        seen |= 1u << axis;
        x->s[0].d[i] = from->d[axis];
    }
}

static void shape_slice(Infer *x)
{
    const Shape *from = dims(x, 0);
    if (x->at->n != from->rank)
        refuse(x, 0, "a slice of %d dimensions of an operand of rank %d", x->at->n, from->rank);
    x->t[0] = type(x, 0);
    x->s[0].rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        int64_t start = x->at->start[i], size = x->at->size[i], step = x->at->step[i], reach, last;
        if (size < 0 || step == 0)
            refuse(x, 0, "slice of size %lld and step %lld along axis %d", ll(size), ll(step), i);
        if (size > 0 &&
            (start < 0 || start >= from->d[i] || __builtin_mul_overflow(size - 1, step, &reach) ||
             __builtin_add_overflow(start, reach, &last) || last < 0 || last >= from->d[i]))
            refuse(x, 0, "slice start %lld, size %lld, step %lld leaves axis %d of %lld", ll(start),
                   ll(size), ll(step), i, ll(from->d[i]));
        x->s[0].d[i] = size;
    }
}

static void shape_split(Infer *x)
{
    const Shape *from = dims(x, 0);
    int axis = check_axis(x, x->at->axis, from->rank);
    int64_t sum = 0;
    for (uint32_t i = 0; i < x->nout; i++) {
        if (x->at->sizes[i] < 0)
            refuse(x, 0, "a part of negative size");
        sum = add_dims(x, sum, x->at->sizes[i]);
        x->t[i] = type(x, 0);
        x->s[i] = *from;
        x->s[i].d[axis] = x->at->sizes[i];
    }
    if (sum != from->d[axis])
        refuse(x, 0, "the parts add up to %lld, axis %d has %lld", ll(sum), axis,
               ll(from->d[axis]));
}

static void shape_concat(Infer *x)
{
    Shape *s = &x->s[0];
    *s = *dims(x, 0);
    x->t[0] = type(x, 0);
    same_types(x, 0);
    int axis = check_axis(x, x->at->axis, s->rank);
    for (uint32_t i = 1; i < x->nin; i++) {
        const Shape *b = dims(x, i);
        for (int k = 0; k < s->rank; k++)
            if (b->rank != s->rank || (k != axis && b->d[k] != s->d[k]))
                refuse(x, (int)i, "shapes differ outside axis %d", axis);
        s->d[axis] = add_dims(x, s->d[axis], b->d[axis]);
    }
}

static void shape_pad(Infer *x)
{
    const Shape *from = dims(x, 0);
    if (x->at->n != from->rank)
        refuse(x, 0, "pads for %d dimensions, the operand has rank %d", x->at->n, from->rank);
    x->t[0] = type(x, 0);
    x->s[0].rank = from->rank;
    for (int i = 0; i < from->rank; i++) {
        int64_t b = x->at->begin[i], e = x->at->end[i], d = from->d[i];
        bool far = (x->at->mode == PAD_REFLECT && (b >= d || e >= d)) ||
                   (x->at->mode == PAD_WRAP && (b > d || e > d)) ||
                   (x->at->mode == PAD_EDGE && d == 0);
        if (b < 0 || e < 0 || ((b || e) && far))
            refuse(x, 0, "pads %lld and %lld do not fit axis %d of %lld", ll(b), ll(e), i, ll(d));
        x->s[0].d[i] = add_dims(x, add_dims(x, d, b), e);
    }
}

/* ---- indices ---- */

/* Constant indices are checked here, once; limit[k] is the bound of the k-th of every n indices. */
static void check_indices(const Infer *x, uint32_t i, const int64_t *limit, int64_t n)
{
    int64_t *at, count;
    need_type(x, i, type(x, i) == DT_I64 || type(x, i) == DT_I32, "i32 or i64");
    if (!g_const_ints(x->g, x->in[i], x->g->arena, &at, &count))
        return;
    for (int64_t k = 0; k < count; k++) {
        int64_t d = limit[n == 1 ? 0 : k % n];
        if (at[k] < -d || at[k] >= d)
            refuse(x, (int)i, "index %lld is out of range for a dimension of %lld", ll(at[k]),
                   ll(d));
    }
}

static void shape_gather(Infer *x)
{
    const Shape *from = dims(x, 0), *index = dims(x, 1);
    int axis = check_axis(x, x->at->axis, from->rank), n = 0;
    Shape *s = &x->s[0];
    if (from->rank + index->rank - 1 > MAX_RANK)
        refuse(x, 1, "the result's rank is more than %d", MAX_RANK);
    check_indices(x, 1, &from->d[axis], 1);
    for (int i = 0; i < axis; i++)
        s->d[n++] = from->d[i];
    for (int i = 0; i < index->rank; i++)
        s->d[n++] = index->d[i];
    for (int i = axis + 1; i < from->rank; i++)
        s->d[n++] = from->d[i];
    s->rank = n;
    x->t[0] = type(x, 0);
}

/* indices may be smaller than the data in every dimension but the axis */
static void check_elements(const Infer *x)
{
    const Shape *from = dims(x, 0), *index = dims(x, 1);
    int axis = check_axis(x, x->at->axis, from->rank);
    for (int i = 0; i < from->rank; i++)
        if (index->rank != from->rank || (i != axis && index->d[i] > from->d[i]))
            refuse(x, 1, "indices do not fit the data outside axis %d", axis);
    check_indices(x, 1, &from->d[axis], 1);
}

static void shape_gather_elements(Infer *x)
{
    check_elements(x);
    x->t[0] = type(x, 0);
    x->s[0] = *dims(x, 1);
}

static void shape_gather_nd(Infer *x)
{
    const Shape *from = dims(x, 0), *index = dims(x, 1);
    int batch = (int)x->at->batch_dims, n = 0;
    Shape *s = &x->s[0];
    if (index->rank < 1 || x->at->batch_dims < 0 || batch >= index->rank || batch > from->rank)
        refuse(x, 1, "batch_dims %d does not fit", batch);
    int64_t depth = index->d[index->rank - 1];
    if (depth < 1 || depth > from->rank - batch)
        refuse(x, 1, "indices of %lld dimensions into %d", ll(depth), from->rank - batch);
    if (index->rank - 1 + from->rank - batch - (int)depth > MAX_RANK)
        refuse(x, 1, "the result's rank is more than %d", MAX_RANK);
    for (int i = 0; i < batch; i++)
        if (index->d[i] != from->d[i])
            refuse(x, 1, "batch dimension %d differs", i);
    check_indices(x, 1, from->d + batch, depth);
    for (int i = 0; i < index->rank - 1; i++)
        s->d[n++] = index->d[i];
    for (int i = batch + (int)depth; i < from->rank; i++)
        s->d[n++] = from->d[i];
    s->rank = n;
    x->t[0] = type(x, 0);
}

static void check_scatter(const Infer *x)
{
    const Shape *from = dims(x, 0), *index = dims(x, 1), *update = dims(x, 2);
    if (type(x, 2) != type(x, 0))
        refuse(x, 2, "updates have type %s, the data %s", dtype_name(type(x, 2)),
               dtype_name(type(x, 0)));
    if (x->op == OP_ScatterElements) {
        check_elements(x);
        if (!shape_equal(index, update))
            refuse(x, 2, "updates and indices differ in shape");
        return;
    }
    int64_t depth = index->rank < 1 ? 0 : index->d[index->rank - 1];
    if (depth < 1 || depth > from->rank)
        refuse(x, 1, "indices of %lld dimensions into %d", ll(depth), from->rank);
    check_indices(x, 1, from->d, depth);
    Shape want = {0};
    for (int i = 0; i < index->rank - 1; i++)
        want.d[want.rank++] = index->d[i];
    for (int i = (int)depth; i < from->rank && want.rank < MAX_RANK; i++)
        want.d[want.rank++] = from->d[i];
    if (!shape_equal(&want, update))
        refuse(x, 2, "updates must have shape %s", shape_print(x->g->arena, type(x, 0), &want));
}

static void shape_first(Infer *x)
{
    if (x->op == OP_ScatterElements || x->op == OP_ScatterND)
        check_scatter(x);
    x->t[0] = type(x, 0);
    x->s[0] = *dims(x, 0);
    if (x->op == OP_Phase && (type(x, 1) != x->t[0] || !shape_equal(dims(x, 1), &x->s[0])))
        refuse(x, 1, "the training and the inference variant differ in shape");
}

/* ---- reductions ---- */

static void reduce_axes(Infer *x)
{
    x->t[0] = type(x, 0);
    x->s[0] = *dims(x, 0);
    INSIST(x->at->n > 0);
    for (int i = 0; i < x->at->n; i++) {
        int axis = check_axis(x, x->at->axes[i], x->s[0].rank);
        INSIST(i == 0 || x->at->axes[i] > x->at->axes[i - 1]);
        x->s[0].d[axis] = 1;
    }
}

static void shape_reduce(Infer *x)
{
    need_type(x, 0, type(x, 0) != DT_BOOL, "a number");
    reduce_axes(x);
}

static void shape_extreme(Infer *x)
{
    reduce_axes(x);
    for (int i = 0; i < x->at->n; i++)
        if (dims(x, 0)->d[x->at->axes[i]] == 0)
            refuse(x, 0, "a maximum or minimum over no elements");
}

static void shape_cumsum(Infer *x)
{
    x->t[0] = type(x, 0);
    x->s[0] = *dims(x, 0);
    check_axis(x, x->at->axis, x->s[0].rank);
}

static void shape_softmax(Infer *x)
{
    need_type(x, 0, dtype_is_float(type(x, 0)), "of a float type");
    shape_cumsum(x);
}

static void shape_arg(Infer *x)
{
    x->t[0] = DT_I64;
    x->s[0] = *dims(x, 0);
    int axis = check_axis(x, x->at->axis, x->s[0].rank);
    if (x->s[0].d[axis] == 0)
        refuse(x, 0, "axis %d has no elements", axis);
    x->s[0].d[axis] = 1;
}

static void shape_topk(Infer *x)
{
    x->t[0] = type(x, 0);
    x->t[1] = DT_I64;
    x->s[0] = *dims(x, 0);
    int axis = check_axis(x, x->at->axis, x->s[0].rank);
    if (x->at->k < 0 || x->at->k > x->s[0].d[axis])
        refuse(x, 0, "the %lld greatest of %lld", ll(x->at->k), ll(x->s[0].d[axis]));
    x->s[0].d[axis] = x->at->k;
    x->s[1] = x->s[0];
}

static void shape_count(Infer *x)
{
    INSIST(x->at->to == DT_F32 || x->at->to == DT_F64);
    for (int i = 0; i < x->at->n; i++)
        check_axis(x, x->at->axes[i], dims(x, 0)->rank);
    x->t[0] = x->at->to;
    x->s[0] = (Shape){0};
}

/* ---- products ---- */

static void shape_matmul(Infer *x)
{
    const Shape *a = dims(x, 0), *b = dims(x, 1);
    INSIST(a->rank >= 2 && b->rank >= 2);
    same_types(x, 0);
    int64_t inner = a->d[a->rank - 1];
    if (inner != b->d[b->rank - 2])
        refuse(x, 1, "inner dimensions differ: %lld and %lld", ll(inner), ll(b->d[b->rank - 2]));
    x->t[0] = type(x, 0);
    x->s[0] = *a;
    broadcast(x, b, 2, &x->s[0]);
    x->s[0].d[x->s[0].rank - 2] = a->d[a->rank - 2];
    x->s[0].d[x->s[0].rank - 1] = b->d[b->rank - 1];
}

/* Positions of a window of k (dilated) over d (padded), stride apart. */
static int64_t windows(const Infer *x, int i, int64_t d, int64_t k, bool ceil)
{
    const Attr *t = x->at;
    int64_t stride = t->stride[i], begin = t->pad[i], end = t->pad[i + t->n];
    if (stride < 1 || t->dilation[i] < 1 || k < 1 || begin < 0 || end < 0)
        refuse(x, 0,
               "stride %lld, dilation %lld, kernel %lld, pads %lld and %lld along spatial axis %d",
               ll(stride), ll(t->dilation[i]), ll(k), ll(begin), ll(end), i);
    int64_t room = add_dims(x, add_dims(x, d, begin), end) -
                   add_dims(x, mul_dims(x, k - 1, t->dilation[i]), 1);
    if (room < 0)
        refuse(x, 0, "the kernel does not fit into spatial axis %d of %lld", i, ll(d));
    int64_t n = room / stride + 1;
    /* the last window of ceil mode must begin inside the data or its left padding */
    if (ceil && room % stride != 0 && n * stride < d + begin)
        n++;
    return n;
}

static void check_spatial(const Infer *x, int n)
{
    const Shape *s = dims(x, 0);
    if (n < 1 || n > 3 || s->rank != n + 2)
        refuse(x, 0, "an operand of rank %d with %d spatial dimensions (1 to 3 are supported)",
               s->rank, n);
    need_type(x, 0, dtype_is_float(type(x, 0)), "of a float type");
}

static void check_group(const Infer *x, int64_t channels, int64_t outputs)
{
    if (x->at->group < 1 || channels % x->at->group || outputs % x->at->group)
        refuse(x, 1, "%lld and %lld channels in %lld groups", ll(channels), ll(outputs),
               ll(x->at->group));
}

static void shape_conv(Infer *x)
{
    const Shape *a = dims(x, 0), *w = dims(x, 1);
    Shape *s = &x->s[0];
    check_spatial(x, x->at->n);
    same_types(x, 0);
    if (w->rank != a->rank)
        refuse(x, 1, "a kernel of rank %d for an operand of rank %d", w->rank, a->rank);
    check_group(x, a->d[1], w->d[0]);
    if (w->d[1] != a->d[1] / x->at->group)
        refuse(x, 1, "the kernel takes %lld channels, %lld groups of %lld give %lld", ll(w->d[1]),
               ll(x->at->group), ll(a->d[1]), ll(a->d[1] / x->at->group));
    *s = *a;
    s->d[1] = w->d[0];
    for (int i = 0; i < x->at->n; i++)
        s->d[i + 2] = windows(x, i, a->d[i + 2], w->d[i + 2], false);
    x->t[0] = type(x, 0);
}

static void shape_conv_transpose(Infer *x)
{
    const Shape *a = dims(x, 0), *w = dims(x, 1);
    Shape *s = &x->s[0];
    check_spatial(x, x->at->n);
    same_types(x, 0);
    if (w->rank != a->rank || w->d[0] != a->d[1])
        refuse(x, 1, "the kernel does not fit the operand's channels");
    check_group(x, a->d[1], a->d[1]);
    *s = *a;
    s->d[1] = mul_dims(x, w->d[1], x->at->group);
    for (int i = 0; i < x->at->n; i++) {
        if (x->at->out_dims[i] < 0 || x->at->stride[i] < 1 || x->at->dilation[i] < 1 ||
            x->at->pad[i] < 0 || x->at->pad[i + x->at->n] < 0)
            refuse(x, 0, "an output of %lld with stride %lld along spatial axis %d",
                   ll(x->at->out_dims[i]), ll(x->at->stride[i]), i);
        s->d[i + 2] = x->at->out_dims[i];
    }
    x->t[0] = type(x, 0);
}

static void shape_conv_weight_grad(Infer *x)
{
    const Shape *a = dims(x, 0), *y = dims(x, 1);
    Shape *s = &x->s[0];
    check_spatial(x, x->at->n);
    same_types(x, 0);
    s->rank = x->at->n + 2;
    memcpy(s->d, x->at->weight_dims, (size_t)s->rank * sizeof s->d[0]);
    check_group(x, a->d[1], y->rank == a->rank ? y->d[1] : 1);
    if (y->rank != a->rank || y->d[0] != a->d[0] || s->d[0] != y->d[1] ||
        s->d[1] != a->d[1] / x->at->group)
        refuse(x, 1, "operand and gradient do not make a kernel of %s",
               shape_print(x->g->arena, type(x, 0), s));
    x->t[0] = type(x, 0);
}

static void shape_pool(Infer *x)
{
    const Shape *a = dims(x, 0);
    check_spatial(x, x->at->n);
    x->s[0] = *a;
    for (int i = 0; i < x->at->n; i++) {
        x->s[0].d[i + 2] = windows(x, i, a->d[i + 2], x->at->kernel[i], x->at->ceil_mode != 0);
        if (x->at->pad[i] >= (x->at->kernel[i] - 1) * x->at->dilation[i] + 1)
            refuse(x, 0, "a pad of %lld leaves a window without elements", ll(x->at->pad[i]));
    }
    x->t[0] = type(x, 0);
}

static void shape_max_pool(Infer *x)
{
    shape_pool(x);
    x->t[1] = DT_I64;
    x->s[1] = x->s[0];
}

static void shape_dropout(Infer *x)
{
    need_type(x, 0, dtype_is_float(type(x, 0)), "of a float type");
    if (!(x->at->ratio >= 0 && x->at->ratio < 1))
        refuse(x, 0, "a dropout ratio of %g", x->at->ratio);
    x->t[0] = type(x, 0);
    x->t[1] = DT_BOOL;
    x->s[0] = x->s[1] = *dims(x, 0);
}

/* ---- the table ---- */

typedef void ShapeFn(Infer *);

static ShapeFn *const shape_fn[OP_COUNT] = {
#define SHAPE(f) shape_##f
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, ...) [OP_##name] = shape,
#include "ops.def"
};

void shape_infer(Graph *g, Op op, uint32_t nin, const ValueId *in, const Attr *attr, uint32_t nout,
                 Dtype *dtype, Shape *shape)
{
    enum { MOST_ELEMENTS_LOG2 = 56 };                   /* bytes and strides then fit 63 bits */
    Infer x = {g, op, nin, nout, in, attr, dtype, shape};
    if (!shape_fn[op])
        BUG("%s is not a core op", op_name(op));
    shape_fn[op](&x);
    for (uint32_t i = 0; i < nout; i++) {
        int64_t n = 1;
        for (int k = 0; k < shape[i].rank; k++)
            if (shape[i].d[k] < 0 || __builtin_mul_overflow(n, shape[i].d[k], &n) ||
                n >> MOST_ELEMENTS_LOG2)
                refuse(&x, -1, "the result's element count overflows: %s",
                       shape_print(g->arena, dtype[i], &shape[i]));
    }
}
