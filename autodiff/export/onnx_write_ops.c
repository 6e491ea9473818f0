/*
 * onnx_write_ops.c - a core node as standard operators of opset 18.  Most keep their name, and
 * attributes that ONNX wants as inputs become initializers; ops of our own (Count, Phase, Fmod,
 * ConvWeightGrad) are expanded, and so is what opset 18 does not have yet.  What computes on halves
 * is written as it is computed: of their f32 values, between Casts (which opset 18 has for all
 * types, as it has no bf16 of convolutions and pools); what only moves elements moves halves.
 */
#include <string.h>

#include "onnx_emit.h"

static const Value *operand(const Emit *e, uint32_t i) { return val(e->w->g, e->n->in[i]); }
/* In which the operator computes. */
static Dtype type(const Emit *e, uint32_t i) { return dtype_sum(operand(e, i)->dtype); }
static const Value *result(const Emit *e) { return val(e->w->g, e->n->out[0]); }

/* The node under its own name; the caller adds attributes and ends it. */
static OnnxNode same(Emit *e, const char *op)
{
    return ow_begin(e->w, op, e->n->nin, e->in, e->n->nout, e->out);
}

static void onnx_plain(Emit *e)
{
    OnnxNode n = same(e, op_name(e->n->op));
    ow_end(e->w, &n);
}

static void onnx_axis(Emit *e)
{
    OnnxNode n = same(e, op_name(e->n->op));
    ow_int(&n, "axis", e->n->attr.axis);
    ow_end(e->w, &n);
}

static void onnx_gather_nd(Emit *e)
{
    emit_int(e, "GatherND", e->in[0], e->in[1], "batch_dims", e->n->attr.batch_dims, e->out[0]);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* Mod of floats with the divisor's sign: a - b floor(a / b); ONNX has it for integers only. */
static void onnx_mod(Emit *e)
{
    if (!dtype_is_float(result(e)->dtype)) {
        onnx_plain(e);
        return;
    }
    const char *q = emit_op2(e, "Floor", emit_op2(e, "Div", e->in[0], e->in[1], NULL), NULL, NULL);
    emit_op2(e, "Sub", e->in[0], emit_op2(e, "Mul", e->in[1], q, NULL), e->out[0]);
}

static void onnx_fmod(Emit *e) { emit_int(e, "Mod", e->in[0], e->in[1], "fmod", 1, e->out[0]); }

/* ---- views and movement ---------------------------------------------------------------------- */

static void onnx_expand(Emit *e)
{
    emit_op2(e, "Expand", e->in[0], emit_list(e, e->n->attr.n, e->n->attr.dims), e->out[0]);
}

static void onnx_split(Emit *e)
{
    const char *sizes = emit_list(e, e->n->attr.n, e->n->attr.sizes);
    OnnxNode n = ow_begin(e->w, "Split", 2, (const char *[]){e->in[0], sizes}, e->n->nout, e->out);
    ow_int(&n, "axis", e->n->attr.axis);
    ow_end(e->w, &n);
}

/* Opset 18 does not wrap: the other end of the data is joined on, axis by axis. */
static void pad_wrap(Emit *e)
{
    const Attr *t = &e->n->attr;
    const char *x = e->in[0];
    Shape s = operand(e, 0)->shape;
    for (int i = 0; i < t->n; i++) {
        if (t->begin[i] == 0 && t->end[i] == 0)
            continue;
        const char *part[3], *next = ow_made(e->w);
        int64_t start[MAX_RANK] = {0};
        uint32_t k = 0;
        Shape size = s;
        start[i] = s.d[i] - t->begin[i];
        size.d[i] = t->begin[i];
        if (t->begin[i] > 0)
            part[k++] = emit_slice(e, x, s.rank, start, size.d, NULL, NULL);
        part[k++] = x;
        start[i] = 0;
        size.d[i] = t->end[i];
        if (t->end[i] > 0)
            part[k++] = emit_slice(e, x, s.rank, start, size.d, NULL, NULL);
        OnnxNode n = ow_begin(e->w, "Concat", k, part, 1, &next);
        ow_int(&n, "axis", i);
        ow_end(e->w, &n);
        s.d[i] += t->begin[i] + t->end[i];
        x = next;
    }
    emit_op2(e, "Identity", x, NULL, e->out[0]);
}

static void onnx_pad(Emit *e)
{
    static const char *const mode[] = {"constant", "reflect", "edge"};
    const Attr *t = &e->n->attr;
    int64_t pads[2 * MAX_RANK];
    if (t->mode == PAD_WRAP) {
        pad_wrap(e);
        return;
    }
    for (int i = 0; i < t->n; i++) {
        pads[i] = t->begin[i];
        pads[t->n + i] = t->end[i];
    }
    const char *value = ow_number(e->w, type(e, 0), t->value);
    OnnxNode n = ow_begin(
        e->w, "Pad", 3, (const char *[]){e->in[0], emit_list(e, 2 * t->n, pads), value}, 1, e->out);
    ow_string(&n, "mode", mode[t->mode]);
    ow_end(e->w, &n);
}

static void add_reduction(Emit *e, OnnxNode *n)
{
    static const char *const reduction[] = {"none", "add", "mul", "max", "min"};
    ow_string(n, "reduction", reduction[e->n->attr.reduction]);
    ow_end(e->w, n);
}

static void onnx_scatter_elements(Emit *e)
{
    OnnxNode n = same(e, "ScatterElements");
    ow_int(&n, "axis", e->n->attr.axis);
    add_reduction(e, &n);
}

static void onnx_scatter_nd(Emit *e)
{
    OnnxNode n = same(e, "ScatterND");
    add_reduction(e, &n);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* Of bool, opset 18 has no greatest and least: through int32. */
static void onnx_reduce(Emit *e)
{
    bool flags = type(e, 0) == DT_BOOL;
    const char *x = flags ? emit_cast(e, e->in[0], DT_I32, NULL) : e->in[0],
               *y = emit_int(e, op_name(e->n->op), x, emit_list(e, e->n->attr.n, e->n->attr.axes),
                             "keepdims", 1, flags ? NULL : e->out[0]);
    if (flags)
        emit_cast(e, y, DT_BOOL, e->out[0]);
}

static void onnx_arg(Emit *e)
{
    OnnxNode n = same(e, op_name(e->n->op));
    ow_int(&n, "axis", e->n->attr.axis);
    ow_int(&n, "keepdims", 1);
    ow_int(&n, "select_last_index", e->n->attr.select_last);
    ow_end(e->w, &n);
}

static void onnx_cumsum(Emit *e)
{
    const char *axis = ow_ints(e->w, 0, 1, &e->n->attr.axis);
    OnnxNode n = ow_begin(e->w, "CumSum", 2, (const char *[]){e->in[0], axis}, 1, e->out);
    ow_int(&n, "exclusive", (e->n->attr.scan & CUMSUM_EXCLUSIVE) != 0);
    ow_int(&n, "reverse", (e->n->attr.scan & CUMSUM_REVERSE) != 0);
    ow_end(e->w, &n);
}

static void onnx_topk(Emit *e)
{
    OnnxNode n = ow_begin(e->w, "TopK", 2,
                          (const char *[]){e->in[0], emit_list(e, 1, &e->n->attr.k)}, 2, e->out);
    ow_int(&n, "axis", e->n->attr.axis);
    ow_int(&n, "largest", e->n->attr.largest);
    ow_end(e->w, &n);
}

static const char *along2(Emit *e, const char *op, const char *x, const char *index, const char *y)
{
    const char *out = ow_made(e->w);
    OnnxNode n = ow_begin(e->w, op, y ? 3 : 2, (const char *[]){x, index, y}, 1, &out);
    ow_int(&n, "axis", 2);
    ow_end(e->w, &n);
    return out;
}

/* NonMaxSuppression with scores of the order, n for the first; what it takes is a map of the boxes,
   its places in the order are sorted to the front. */
static void onnx_suppress(Emit *e)
{
    int64_t boxes = operand(e, 1)->shape.d[2], last = 2;
    const char *const *in = e->in, *zero = ow_number(e->w, DT_I64, 0),
                      *one = ow_number(e->w, DT_I64, 1),
                      *n = ow_number(e->w, DT_I64, (double)boxes), *places = emit_range(e, n),
                      *taken = ow_made(e->w), *first[2] = {ow_made(e->w), ow_made(e->w)};
    const char *rank = emit_op2(e, "Sub", n, places, NULL),
               *none = emit_op2(e, "Mul", in[1], zero, NULL),
               *key = emit_op2(e, "Mul", emit_cast(e, in[2], DT_I64, NULL), rank, NULL);
    const char *score = emit_cast(e, along2(e, "ScatterElements", none, in[1], key), DT_F32, NULL),
               *box = emit_cast(e, in[0], DT_F32, NULL);
    const char *most = ow_number(e->w, DT_I64, (double)e->n->attr.k),
               *share = ow_number(e->w, DT_F32, e->n->attr.value),
               *half = ow_number(e->w, DT_F32, 0.5);
    OnnxNode nms = ow_begin(e->w, "NonMaxSuppression", 5,
                            (const char *[]){box, score, most, share, half}, 1, &taken);
    ow_end(e->w, &nms);
    const char *ones =
        emit_int(e, "ReduceSum", taken, emit_list(e, 1, (const int64_t[]){1}), "keepdims", 0, NULL);
    ones = emit_op2(e, "Add", emit_op2(e, "Mul", ones, zero, NULL), one, NULL);
    const char *map = emit_op3(e, "ScatterND", none, taken, ones, NULL),
               *is = along2(e, "GatherElements", map, in[1], NULL);
    OnnxNode sort = ow_begin(
        e->w, "TopK", 2,
        (const char *[]){emit_op2(e, "Mul", is, rank, NULL), emit_list(e, 1, &boxes)}, 2, first);
    ow_int(&sort, "axis", 2);
    ow_end(e->w, &sort);
    emit_op2(e, "Mul", along2(e, "GatherElements", in[1], first[1], NULL),
             emit_op2(e, "Min", first[0], one, NULL), e->out[0]);
    emit_int(e, "ReduceSum", is, emit_list(e, 1, &last), "keepdims", 0, e->out[1]);
}

/* The file's shapes are those of a full microbatch, so the count is a number. */
static void onnx_count(Emit *e)
{
    double n = 1;
    for (int i = 0; i < e->n->attr.n; i++)
        n *= (double)operand(e, 0)->shape.d[e->n->attr.axes[i]];
    emit_op2(e, "Identity", ow_number(e->w, e->n->attr.to, n), NULL, e->out[0]);
}

/* ---- convolutions and pools ------------------------------------------------------------------ */

/* stride and dilation by spatial dimension; pads: begins, then ends */
static void window(OnnxNode *n, int dims, const int64_t *stride, const int64_t *dilation,
                   const int64_t *pads)
{
    ow_int_list(n, "strides", dims, stride);
    ow_int_list(n, "dilations", dims, dilation);
    ow_int_list(n, "pads", 2 * dims, pads);
}

static void onnx_conv(Emit *e)
{
    OnnxNode n = same(e, "Conv");
    ow_int(&n, "group", e->n->attr.group);
    window(&n, e->n->attr.n, e->n->attr.stride, e->n->attr.dilation, e->n->attr.pad);
    ow_end(e->w, &n);
}

/* The result's dims are given: the end pads follow from them, or output padding where they would be
   negative, or zeros joined on where that is as long as a stride. */
static void onnx_conv_transpose(Emit *e)
{
    const Attr *t = &e->n->attr;
    const Shape *x = &operand(e, 0)->shape, *k = &operand(e, 1)->shape;
    int64_t pads[2 * MAX_RANK], more[MAX_RANK] = {0}, tail[2 * (MAX_RANK + 2)] = {0};
    bool grow = false;
    for (int i = 0; i < t->n; i++) {
        int64_t natural = t->stride[i] * (x->d[i + 2] - 1) + t->dilation[i] * (k->d[i + 2] - 1) + 1,
                left = natural - t->pad[i] - t->out_dims[i];
        pads[i] = t->pad[i];
        pads[t->n + i] = left > 0 ? left : 0;
        more[i] = left < 0 ? -left : 0;
        if (more[i] >= t->stride[i]) {
            tail[t->n + 2 + i + 2] = more[i];
            more[i] = 0;
            grow = true;
        }
    }
    const char *y = grow ? ow_made(e->w) : e->out[0];
    OnnxNode n = ow_begin(e->w, "ConvTranspose", 2, e->in, 1, &y);
    ow_int(&n, "group", t->group);
    window(&n, t->n, t->stride, t->dilation, pads);
    ow_int_list(&n, "output_padding", t->n, more);
    ow_end(e->w, &n);
    if (grow)
        emit_op2(e, "Pad", y, emit_list(e, 2 * (t->n + 2), tail), e->out[0]);
}

/*
 * dw[m, c, k] = sum over n and positions of x[n, c, ..] dy[n, m, ..]: a convolution of x with dy as
 * its kernel, N and C exchanged in both, strides and dilations exchanged.  With groups: x [N, g,
 * C/g] becomes [C/g, g N], group by group.
 */
static void onnx_conv_weight_grad(Emit *e)
{
    const Attr *t = &e->n->attr;
    const Shape *x = &operand(e, 0)->shape, *dy = &operand(e, 1)->shape, *dw = &result(e)->shape;
    int64_t g = t->group, per = x->d[1] / g, perm[MAX_RANK], start[MAX_RANK] = {0};
    Shape grouped = {x->rank + 1, {x->d[0], g, per}}, folded = *x, cut = *dw;
    for (int i = 2; i < x->rank; i++)
        grouped.d[i + 1] = x->d[i];
    for (int i = 0; i < grouped.rank; i++)
        perm[i] = i;
    perm[0] = 2, perm[1] = 1, perm[2] = 0;
    folded.d[0] = per;
    folded.d[1] = g * x->d[0];
    const char *image =
        emit_transpose(e, emit_reshape(e, e->in[0], &grouped, NULL), grouped.rank, perm, NULL);
    perm[0] = 1, perm[1] = 0, perm[2] = 2;
    const char *kernel = emit_transpose(e, e->in[1], dy->rank, perm, NULL);
    const char *in[2] = {emit_reshape(e, image, &folded, NULL), kernel}, *whole = ow_made(e->w);
    OnnxNode n = ow_begin(e->w, "Conv", 2, in, 1, &whole);
    ow_int(&n, "group", g);
    window(&n, t->n, t->dilation, t->stride, t->pad);
    ow_end(e->w, &n);
    cut.d[0] = per;
    cut.d[1] = dw->d[0];
    emit_transpose(e, emit_slice(e, whole, dw->rank, start, cut.d, NULL, NULL), dw->rank, perm,
                   e->out[0]);
}

static void onnx_max_pool(Emit *e)
{
    OnnxNode n = same(e, "MaxPool");
    ow_int_list(&n, "kernel_shape", e->n->attr.n, e->n->attr.kernel);
    window(&n, e->n->attr.n, e->n->attr.stride, e->n->attr.dilation, e->n->attr.pad);
    ow_int(&n, "ceil_mode", e->n->attr.ceil_mode);
    ow_end(e->w, &n);
}

/* With dilations, which opset 18 lacks: the mean as a depthwise convolution, divided by the counts,
 * which are the same of ones. */
static const char *window_sum(Emit *e, const char *x, const char *out)
{
    const Attr *t = &e->n->attr;
    const Shape *s = &operand(e, 0)->shape, *y = &result(e)->shape;
    Shape k = {s->rank, {s->d[1], 1}};
    int64_t pads[2 * MAX_RANK];
    for (int i = 0; i < t->n; i++) {
        k.d[i + 2] = t->kernel[i];
        pads[i] = t->pad[i];
        pads[t->n + i] = (y->d[i + 2] - 1) * t->stride[i] + (t->kernel[i] - 1) * t->dilation[i] +
                         1 - s->d[i + 2] - t->pad[i];
        if (pads[t->n + i] < 0)
            pads[t->n + i] = 0;
    }
    const char *one = ow_number(e->w, type(e, 0), 1), *ones = ow_made(e->w),
               *sum = out ? out : ow_made(e->w);
    emit_op2(e, "Expand", one, emit_list(e, k.rank, k.d), ones);
    OnnxNode n = ow_begin(e->w, "Conv", 2, (const char *[]){x, ones}, 1, &sum);
    ow_int(&n, "group", s->d[1]);
    window(&n, t->n, t->stride, t->dilation, pads);
    ow_end(e->w, &n);
    return sum;
}

static void onnx_average_pool(Emit *e)
{
    const Attr *t = &e->n->attr;
    bool dilated = false;
    for (int i = 0; i < t->n; i++)
        dilated |= t->dilation[i] != 1;
    if (dilated) {
        const Shape *s = &operand(e, 0)->shape;
        const char *ones = ow_made(e->w), *sum = window_sum(e, e->in[0], NULL), *counts;
        double all = 1;
        for (int i = 0; i < t->n; i++)
            all *= (double)t->kernel[i];
        emit_op2(e, "Expand", ow_number(e->w, type(e, 0), 1), emit_list(e, s->rank, s->d), ones);
        counts =
            t->count_include_pad ? ow_number(e->w, type(e, 0), all) : window_sum(e, ones, NULL);
        emit_op2(e, "Div", sum, counts, e->out[0]);
        return;
    }
    OnnxNode n = same(e, "AveragePool");
    ow_int_list(&n, "kernel_shape", t->n, t->kernel);
    ow_int_list(&n, "strides", t->n, t->stride);
    ow_int_list(&n, "pads", 2 * t->n, t->pad);
    ow_int(&n, "ceil_mode", t->ceil_mode);
    ow_int(&n, "count_include_pad", t->count_include_pad);
    ow_end(e->w, &n);
}

/* The mask is an output, so backward applies the very same. Ratio 0 draws nothing. */
static void onnx_dropout(Emit *e)
{
    const char *ratio = ow_number(e->w, DT_F32, e->n->attr.ratio);
    const char *training = ow_number(e->w, DT_BOOL, e->n->attr.ratio > 0 ? 1 : 0);
    OnnxNode n =
        ow_begin(e->w, "Dropout", 3, (const char *[]){e->in[0], ratio, training}, 2, e->out);
    ow_end(e->w, &n);
}

/* the n of [n] */
static const char *length_of(Emit *e, const char *x)
{
    return emit_reshape(e, emit_op2(e, "Shape", x, NULL, NULL), &(Shape){0}, NULL);
}

/* [n], true in the first places of [n]: as many as the mask is true in */
static const char *packed_places(Emit *e, const char *mask)
{
    const char *m = emit_cast(e, mask, DT_I64, NULL),
               *sum = emit_int(e, "ReduceSum", m, NULL, "keepdims", 0, NULL);
    return emit_op2(e, "Less", emit_range(e, length_of(e, mask)), sum, NULL);
}

/* [n] against dim `axis` of `rank` */
static const char *along_axis(Emit *e, const char *v, int axis, int rank)
{
    Shape s = {.rank = rank};
    for (int d = 0; d < rank; d++)
        s.d[d] = d == axis ? -1 : 1;
    return emit_reshape(e, v, &s, NULL);
}

/* Of truth values And: ONNX Runtime has no Where of them. */
static void where_else_zero(Emit *e, const char *there, const char *x, Dtype t, const char *out)
{
    const bool truth = t == DT_BOOL;
    emit_op3(e, truth ? "And" : "Where", there, x, truth ? NULL : ow_number(e->w, t, 0), out);
}

/* Places that are there come first in a stable order: TopK of n - i where the mask is, else -i. */
static void onnx_pack(Emit *e)
{
    const Value *x = val(e->w->g, e->n->in[0]);
    int axis = (int)e->n->attr.axis, rank = x->shape.rank;
    bool packs = e->n->op == OP_Pack;
    const char *m = emit_cast(e, e->in[1], DT_I64, NULL), *zero = ow_number(e->w, DT_I64, 0),
               *size = length_of(e, e->in[1]), *index;
    if (packs) {
        const char *key = emit_op2(e, "Sub", emit_op2(e, "Mul", m, size, NULL), emit_range(e, size),
                                   NULL),
                   *top[2] = {ow_made(e->w), ow_made(e->w)},
                   *k = emit_op2(e, "Shape", e->in[1], NULL, NULL);
        OnnxNode sort = ow_begin(e->w, "TopK", 2, (const char *[]){key, k}, 2, top);
        ow_end(e->w, &sort);
        index = top[1];
    } else {
        const char *sum = emit_op2(e, "CumSum", m, zero, NULL);
        index = emit_op2(e, "Max", emit_op2(e, "Sub", sum, ow_number(e->w, DT_I64, 1), NULL), zero,
                         NULL);
    }
    const char *out = emit_int(e, "Gather", e->in[0], index, "axis", axis, NULL),
               *there = packs ? packed_places(e, e->in[1]) : e->in[1];
    where_else_zero(e, along_axis(e, there, axis, rank), out, x->dtype, e->out[0]);
}

static void onnx_packed_matmul(Emit *e)
{
    Dtype t = val(e->w->g, e->n->in[0])->dtype, to = result(e)->dtype;
    const char *there = packed_places(e, e->in[2]), *x = e->in[0], *y = e->in[1];
    bool depth = e->n->attr.axis == 1;
    if (depth) {
        const char *kept = ow_made(e->w);
        where_else_zero(e, along_axis(e, there, 1, 2), x, t, kept);
        x = kept;
    }
    if (t != to)
        x = emit_cast(e, x, to, NULL), y = emit_cast(e, y, to, NULL);
    const char *z = emit_op2(e, "MatMul", x, y, depth ? e->out[0] : NULL);
    if (!depth)
        where_else_zero(e, along_axis(e, there, 0, 2), z, to, e->out[0]);
}

static void onnx_random(Emit *e)
{
    emit_int(e, "RandomUniformLike", e->in[0], NULL, "dtype", result(e)->dtype, e->out[0]);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Of opset 26, which the file then is of. */
static void onnx_bit_cast(Emit *e)
{
    emit_int(e, "BitCast", e->in[0], NULL, "to", result(e)->dtype, e->out[0]);
    e->w->opset = 26;
}

static void onnx_cast(Emit *e) { emit_cast(e, e->in[0], e->n->attr.to, e->out[0]); }

static void onnx_collective(Emit *e)
{
    const bool rounds = result(e)->dtype != val(e->w->g, e->n->in[0])->dtype;
    const char *y = emit_collective(e, e->n->op, e->in[0], &e->n->attr, rounds ? NULL : e->out[0]);
    if (rounds)
        emit_cast(e, y, result(e)->dtype, e->out[0]);
}

/* Of the user's domain; a gradient is called as its function. */
static void onnx_custom(Emit *e)
{
    const CustomAttr *c = e->n->attr.custom;
    OnnxNode n = same(e, c->name ? c->name : c->function);
    for (uint32_t k = 0; k < c->n_number; k++)
        c->whole[k] ? ow_int(&n, c->number_name[k], (int64_t)c->number[k])
                    : ow_real(&n, c->number_name[k], c->number[k]);
    ow_domain(&n, c->domain);
    ow_end(e->w, &n);
    ow_import(e->w, c->domain);
}

/* Stages are written as the model has them, before a target's own operations. */
static void onnx_device_only(Emit *e) { BUG("%s in a model", op_name(e->n->op)); }

/* Of Phase too: what a stage does in training. */
static void onnx_identity(Emit *e) { emit_op2(e, "Identity", e->in[0], NULL, e->out[0]); }

static void onnx_vary(Emit *e)
{
    for (uint32_t i = 0; i < e->n->nout; i++)
        emit_op2(e, "Identity", e->in[0], NULL, e->out[i]);
}

static void onnx_reshape(Emit *e) { emit_reshape(e, e->in[0], &result(e)->shape, e->out[0]); }

static void onnx_transpose(Emit *e)
{
    emit_transpose(e, e->in[0], e->n->attr.n, e->n->attr.perm, e->out[0]);
}

static void onnx_slice(Emit *e)
{
    const Attr *t = &e->n->attr;
    emit_slice(e, e->in[0], t->n, t->start, t->size, t->step, e->out[0]);
}

static bool moves(Op op)
{
    return op_is_view(op) || op_picks(op) || op == OP_Concat || op == OP_Where || op == OP_Cast ||
           op == OP_Phase || op == OP_Recurrence;
}

void ow_node(Ow *w, NodeId id)
{
    static void (*const written[OP_COUNT])(Emit *) = {
#define ONNX(f) onnx_##f
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, flops, range, \
           cast, onnx, ...)                                                                        \
    [OP_##name] = onnx,
#include "ir/ops.def"
    };
    Emit emit = {.w = w, .n = &w->g->node.at[id]}, *e = &emit;
    const Node *n = e->n;
    e->in = arena_array(w->a, const char *, n->nin + 1);
    e->out = arena_array(w->a, const char *, n->nout + 1);
    for (uint32_t i = 0; i < n->nin && !(n->op == OP_Phase && i > 0) && n->op != OP_Count; i++)
        e->in[i] = ow_name(w, n->in[i]);
    for (uint32_t i = 0; i < n->nout; i++)
        e->out[i] = ow_name(w, n->out[i]);
    bool widens = !moves(n->op);
    for (uint32_t i = 0; i < n->nin && widens; i++)
        if (e->in[i] && dtype_is_half(operand(e, i)->dtype))
            e->in[i] = emit_cast(e, e->in[i], DT_F32, NULL);
    for (uint32_t i = 0; i < n->nout && widens; i++)
        e->out[i] = dtype_is_half(val(w->g, n->out[i])->dtype) ? ow_made(w) : e->out[i];
    written[n->op](e);
    for (uint32_t i = 0; i < n->nout && widens; i++)
        if (dtype_is_half(val(w->g, n->out[i])->dtype))
            emit_cast(e, e->out[i], val(w->g, n->out[i])->dtype, ow_name(w, n->out[i]));
}
