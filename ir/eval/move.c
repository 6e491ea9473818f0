/*
 * move.c - views, copies, gathers and scatters.  They move elements by size, whatever the type;
 * only a scatter that combines computes.
 */
#include <string.h>

#include "eval.h"

static size_t element(const Eval *e) { return dtype_size(e->in[0].dtype); }

static void move(Tensor *to, int64_t i, const Tensor *from, int64_t k, size_t size)
{
    memcpy((char *)to->data + (size_t)i * size, (const char *)from->data + (size_t)k * size, size);
}

/* out = in at offset + index . stride, over out's indices. */
static void copy_strided(const Eval *e, Tensor *out, int64_t offset, const int64_t *stride)
{
    const Shape *s = &out->shape;
    size_t size = element(e);
    int64_t index[MAX_RANK] = {0}, i = 0;
    int last = s->rank - 1;
    int64_t row = s->rank ? s->d[last] : 1, step = s->rank ? stride[last] : 0;
    Shape lead = *s;
    lead.rank = s->rank ? last : 0;
    do {
        int64_t from = offset;
        for (int k = 0; k < lead.rank; k++)
            from += index[k] * stride[k];
        if (step == 1) {
            memcpy((char *)out->data + (size_t)i * size,
                   (const char *)e->in[0].data + (size_t)from * size, (size_t)row * size);
            i += row;
            continue;
        }
        for (int64_t k = 0; k < row; k++)
            move(out, i++, &e->in[0], from + k * step, size);
    } while (eval_next(&lead, index));
}

void eval_copy(Eval *e)
{
    size_t bytes = (size_t)shape_elements(&e->in[0].shape) * element(e);
    bool dropout = e->op == OP_Dropout;
    for (uint32_t i = 0; i < e->nout && !(dropout && i > 0); i++)
        memcpy(e->out[i].data, e->in[0].data, bytes);
    if (dropout && e->nout > 1)
        memset(e->out[1].data, 1, (size_t)shape_elements(&e->out[1].shape));
}

/* What all members do together (tests/share/members.h), the user's functions, and what has no
 * constant operands. */
void eval_never(Eval *e) { BUG("%s in the compiler", op_name(e->op)); }

/* The mean of what is drawn. */
void eval_random(Eval *e)
{
    for (int64_t i = 0; i < shape_elements(&e->out[0].shape); i++)
        element_set_double(e->out[0].dtype, e->out[0].data, i, 0.5);
}

/* Pack, Unpack: the out is zeros. */
void eval_pack(Eval *e)
{
    const Shape *s = &e->in[0].shape;
    int axis = (int)e->at->axis;
    int64_t inner = shape_between(s, axis + 1, s->rank), n = s->d[axis],
            several = e->in[1].shape.rank == 2 ? s->d[0] : 1,
            all = several ? shape_elements(s) / several : 0, place = 0;
    size_t size = element(e);
    for (int64_t i = 0; i < several * n; i++) {
        place = i % n ? place : 0;
        if (!((const uint8_t *)e->in[1].data)[i])
            continue;
        for (int64_t o = i / n * all; o < (i / n + 1) * all; o += n * inner)
            for (int64_t k = 0; k < inner; k++)
                if (e->op == OP_Pack)
                    move(&e->out[0], o + place * inner + k, &e->in[0], o + i % n * inner + k, size);
                else
                    move(&e->out[0], o + i % n * inner + k, &e->in[0], o + place * inner + k, size);
        place++;
    }
}

void eval_transpose(Eval *e)
{
    int64_t dense[MAX_RANK], stride[MAX_RANK];
    eval_strides(&e->in[0].shape, dense);
    for (int i = 0; i < e->at->n; i++)
        stride[i] = dense[e->at->perm[i]];
    copy_strided(e, &e->out[0], 0, stride);
}

void eval_expand(Eval *e)
{
    const Shape *from = &e->in[0].shape, *to = &e->out[0].shape;
    int64_t dense[MAX_RANK], stride[MAX_RANK];
    int shift = to->rank - from->rank;
    eval_strides(from, dense);
    for (int i = 0; i < to->rank; i++)
        stride[i] = i < shift || from->d[i - shift] == 1 ? 0 : dense[i - shift];
    copy_strided(e, &e->out[0], 0, stride);
}

void eval_slice(Eval *e)
{
    int64_t dense[MAX_RANK], stride[MAX_RANK], offset = 0;
    eval_strides(&e->in[0].shape, dense);
    for (int i = 0; i < e->at->n; i++) {
        stride[i] = dense[i] * (e->at->step ? e->at->step[i] : 1);
        offset += e->at->start[i] * dense[i];
    }
    copy_strided(e, &e->out[0], offset, stride);
}

void eval_split(Eval *e)
{
    int64_t dense[MAX_RANK], offset = 0;
    eval_strides(&e->in[0].shape, dense);
    for (uint32_t i = 0; i < e->nout; i++) {
        if (shape_elements(&e->out[i].shape) > 0)
            copy_strided(e, &e->out[i], offset, dense);
        offset += e->at->sizes[i] * dense[e->at->axis];
    }
}

/* Elements before the axis, and bytes of all after it. */
static void around(const Shape *s, int64_t axis, size_t size, size_t *outer, size_t *inner)
{
    *outer = (size_t)shape_between(s, 0, (int)axis);
    *inner = size * (size_t)shape_between(s, (int)axis + 1, s->rank);
}

void eval_concat(Eval *e)
{
    size_t outer, inner;
    around(&e->out[0].shape, e->at->axis, element(e), &outer, &inner);
    char *to = e->out[0].data;
    for (size_t o = 0; o < outer; o++)
        for (uint32_t i = 0; i < e->nin; i++) {
            size_t bytes = (size_t)e->in[i].shape.d[e->at->axis] * inner;
            if (bytes)
                memcpy(to, (const char *)e->in[i].data + o * bytes, bytes);
            to += bytes;
        }
}

/* Which element of the axis stands at position i, which begins `begin` before it; -1: none, the
 * constant. */
static int64_t padded(int mode, int64_t i, int64_t d)
{
    if (i >= 0 && i < d)
        return i;
    switch (mode) {
    case PAD_EDGE: return i < 0 ? 0 : d - 1;
    case PAD_WRAP: return i < 0 ? i + d : i - d;
    case PAD_REFLECT: return i < 0 ? -i : 2 * (d - 1) - i;
    default: return -1;
    }
}

void eval_pad(Eval *e)
{
    const Shape *from = &e->in[0].shape, *to = &e->out[0].shape;
    int64_t stride[MAX_RANK], index[MAX_RANK] = {0}, i = 0;
    eval_strides(from, stride);
    do {
        int64_t at = 0;
        bool inside = true;
        for (int k = 0; k < to->rank; k++) {
            int64_t p = padded(e->at->mode, index[k] - e->at->begin[k], from->d[k]);
            inside = inside && p >= 0;
            at += p * stride[k];
        }
        if (inside)
            move(&e->out[0], i, &e->in[0], at, element(e));
        else
            eval_set_double(&e->out[0], i, e->at->value);
        i++;
    } while (eval_next(to, index));
}

/* ---- by index ---- */

void eval_gather(Eval *e)
{
    const int64_t *index = eval_ints(e, &e->in[1]);
    int64_t n = shape_elements(&e->in[1].shape), d = e->in[0].shape.d[e->at->axis];
    size_t outer, inner;
    around(&e->in[0].shape, e->at->axis, element(e), &outer, &inner);
    char *to = e->out[0].data;
    for (size_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++, to += inner)
            memcpy(to,
                   (const char *)e->in[0].data +
                       (o * (size_t)d + (size_t)eval_index(index[i], d)) * inner,
                   inner);
}

/* Where in the data the element at this index of the indices lies. */
static int64_t along_axis(const Shape *data, const int64_t *stride, int64_t axis,
                          const int64_t *index, int64_t i)
{
    int64_t at = eval_index(i, data->d[axis]) * stride[axis];
    for (int k = 0; k < data->rank; k++)
        if (k != axis)
            at += index[k] * stride[k];
    return at;
}

void eval_gather_elements(Eval *e)
{
    const Shape *data = &e->in[0].shape, *s = &e->in[1].shape;
    const int64_t *at = eval_ints(e, &e->in[1]);
    int64_t stride[MAX_RANK], index[MAX_RANK] = {0}, i = 0;
    eval_strides(data, stride);
    do {
        move(&e->out[0], i, &e->in[0], along_axis(data, stride, e->at->axis, index, at[i]),
             element(e));
        i++;
    } while (eval_next(s, index));
}

/* The n-th tuple of indices: an offset into the data, whose dims `from..from + depth` it names. */
static int64_t tuple_offset(const Shape *data, const int64_t *stride, int from, int64_t depth,
                            const int64_t *tuple)
{
    int64_t at = 0;
    for (int64_t k = 0; k < depth; k++)
        at += eval_index(tuple[k], data->d[from + k]) * stride[from + k];
    return at;
}

void eval_gather_nd(Eval *e)
{
    const Shape *data = &e->in[0].shape, *s = &e->in[1].shape;
    const int64_t *index = eval_ints(e, &e->in[1]);
    int64_t stride[MAX_RANK], depth = s->d[s->rank - 1], tuples = shape_elements(s) / depth;
    const int batch = (int)e->at->batch_dims;
    const int64_t batches = shape_between(data, 0, batch);
    const size_t block = element(e) * (size_t)shape_between(data, batch + (int)depth, data->rank);
    eval_strides(data, stride);
    int64_t all = shape_elements(data) / (batches ? batches : 1);
    for (int64_t i = 0; i < tuples; i++) {
        int64_t at = i / (tuples / batches) * all +
                     tuple_offset(data, stride, batch, depth, index + i * depth);
        memcpy((char *)e->out[0].data + (size_t)i * block,
               (const char *)e->in[0].data + (size_t)at * element(e), block);
    }
}

static void combine(Tensor *to, int64_t i, const Tensor *from, int64_t k, int mode)
{
    if (mode == SCATTER_NONE) {
        move(to, i, from, k, dtype_size(to->dtype));
    } else if (dtype_is_float(to->dtype)) {
        double a = eval_double_at(to, i), b = eval_double_at(from, k);
        eval_set_double(to, i, mode == SCATTER_ADD ? a + b : mode == SCATTER_MUL ? a * b :
                               mode == SCATTER_MAX ? eval_max(a, b) : eval_min(a, b));
    } else {
        Wide a = eval_wide_at(to, i), b = eval_wide_at(from, k);
        eval_set_wide(to, i, mode == SCATTER_ADD ? a + b : mode == SCATTER_MUL ? a * b :
                             mode == SCATTER_MAX ? (a > b ? a : b) : (a < b ? a : b));
    }
}

/* Where a scatter's result is put together: of halves that are combined in double, rounded once. */
static Tensor scattered(Eval *e)
{
    Tensor to = {DT_F64, e->out[0].shape, NULL};
    int64_t n = shape_elements(&to.shape);
    if (!dtype_is_half(e->out[0].dtype) || e->at->reduction == SCATTER_NONE) {
        eval_copy(e);
        return e->out[0];
    }
    to.data = eval_scratch(e, (size_t)n, sizeof(double));
    for (int64_t i = 0; i < n; i++)
        eval_set_double(&to, i, eval_double_at(&e->in[0], i));
    return to;
}

static void keep_scattered(Eval *e, const Tensor *from)
{
    int64_t n = shape_elements(&from->shape);
    for (int64_t i = 0; from->data != e->out[0].data && i < n; i++)
        eval_set_double(&e->out[0], i, eval_double_at(from, i));
}

void eval_scatter_elements(Eval *e)
{
    const Shape *data = &e->in[0].shape, *s = &e->in[1].shape;
    const int64_t *at = eval_ints(e, &e->in[1]);
    int64_t stride[MAX_RANK], index[MAX_RANK] = {0}, i = 0;
    Tensor to = scattered(e);
    keep_scattered(e, &to);
    if (shape_elements(s) == 0)
        return;
    eval_strides(data, stride);
    do {
        combine(&to, along_axis(data, stride, e->at->axis, index, at[i]), &e->in[2], i,
                e->at->reduction);
        i++;
    } while (eval_next(s, index));
    keep_scattered(e, &to);
}

void eval_scatter_nd(Eval *e)
{
    const Shape *data = &e->in[0].shape, *s = &e->in[1].shape;
    const int64_t *index = eval_ints(e, &e->in[1]);
    int64_t stride[MAX_RANK], depth = s->d[s->rank - 1], tuples = shape_elements(s) / depth,
                              block = shape_between(data, (int)depth, data->rank);
    Tensor to = scattered(e);
    eval_strides(data, stride);
    for (int64_t i = 0; i < tuples; i++) {
        int64_t at = tuple_offset(data, stride, 0, depth, index + i * depth);
        for (int64_t k = 0; k < block; k++)
            combine(&to, at + k, &e->in[2], i * block + k, e->at->reduction);
    }
    keep_scattered(e, &to);
}
