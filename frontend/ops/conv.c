/*
 * conv.c - convolutions and pools to the core's: pads explicit (auto_pad resolved against the
 * shapes, which are static), strides and dilations always given, the bias an Add.  LpPool and the
 * global pools become other ops.
 */
#include "frontend/low/low.h"

#include <string.h>

typedef enum { AUTO_NOTSET, AUTO_UPPER, AUTO_LOWER, AUTO_VALID } AutoPad;

typedef struct {
    int n;                                     /* spatial dims */
    int64_t *stride, *dilation, *pad, *kernel; /* pad: n begins, n ends */
    AutoPad auto_pad;
} Window;

static int64_t extent(const Window *w, int i) { return (w->kernel[i] - 1) * w->dilation[i] + 1; }

/* kernel: what the weight says, NULL where the attribute must. */
static Window window(const Import *im, const Shape *x, const int64_t *kernel)
{
    int n = x->rank - 2;
    Window w = {.n = n};
    if (*im_str(im, "auto_pad", ""))
        w.auto_pad = (AutoPad)low_choice(im, "auto_pad", "", "NOTSET SAME_UPPER SAME_LOWER VALID");
    w.stride = low_numbers(im, "strides", n, 1, 1);
    w.dilation = low_numbers(im, "dilations", n, 1, 1);
    w.pad = low_numbers(im, "pads", 2 * n, 0, 0);
    if (!kernel && !im_has(im, "kernel_shape"))
        low_fatal(im, -1, "attribute 'kernel_shape' is missing");
    w.kernel = low_numbers(im, "kernel_shape", n, 0, kernel && !im_has(im, "kernel_shape") ? 0 : 1);
    for (int i = 0; i < n; i++) /* so that no product of two sizes overflows */
        if (x->d[i + 2] > INT32_MAX)
            low_fatal(im, 0, "%lld elements along a dim", (long long)x->d[i + 2]);
    for (int i = 0; kernel && i < n; i++) {
        if (im_has(im, "kernel_shape") && w.kernel[i] != kernel[i])
            low_fatal(im, -1, "kernel_shape %lld, the weight has %lld", (long long)w.kernel[i],
                      (long long)kernel[i]);
        w.kernel[i] = kernel[i];
        if (kernel[i] < 1 || kernel[i] > INT32_MAX)
            low_fatal(im, 1, "a weight of %lld elements along a dim", (long long)kernel[i]);
    }
    return w;
}

static void divide_pads(Window *w, int i, int64_t total)
{
    w->pad[i] = w->auto_pad == AUTO_UPPER ? total / 2 : total - total / 2;
    w->pad[w->n + i] = total - w->pad[i];
}

/* SAME_*: as many outputs as ceil(in / stride); VALID: no pads. */
static void resolve_same(Window *w, const Shape *x)
{
    for (int i = 0; i < w->n && w->auto_pad != AUTO_NOTSET; i++) {
        int64_t in = x->d[i + 2], out = (in + w->stride[i] - 1) / w->stride[i],
                total = low_max((out - 1) * w->stride[i] + extent(w, i) - in, 0);
        divide_pads(w, i, w->auto_pad == AUTO_VALID ? 0 : total);
    }
}

/* The dynamo exporter's optimizer folds the BatchNormalization of a half model into weights and a
 * bias of f32, and leaves them so beside an operand of the half type: they are that rounded. */
static ValueId like_operand(const Import *im, ValueId weight)
{
    Dtype t = low_dtype(im->g, low_need_float(im, 0)), w = low_dtype(im->g, weight);
    return dtype_is_half(t) && w == DT_F32 ? g_cast(im->g, weight, t) : weight;
}

/* Of a Conv3d without a bias torch.onnx writes zeros of [channels, 2]: whatever their shape, they
 * add nothing. */
static bool is_no_bias(const Import *im, int64_t channels)
{
    Shape s = low_shape(im->g, im_in(im, 2));
    double x;
    return s.rank > 1 && s.d[0] == channels && low_uniform(im->g, im_in(im, 2), &x) && x == 0;
}

static ValueId add_bias(const Import *im, ValueId y)
{
    if (im_in(im, 2) == NONE)
        return y;
    Shape s = low_shape(im->g, y);
    if (is_no_bias(im, s.d[1]))
        return y;
    return g_add(im->g, y, like_operand(im, low_channels(im, 2, s.d[1], s.rank)));
}

static Attr window_attr(const Import *im, const Window *w)
{
    return (Attr){.n = w->n,
                  .stride = w->stride,
                  .dilation = w->dilation,
                  .pad = w->pad,
                  .group = im_int(im, "group", 1)};
}

void import_conv(Import *im)
{
    ValueId in[2] = {low_need_float(im, 0), like_operand(im, low_need(im, 1))};
    Shape x = low_need_rank(im, 0, 3, MAX_RANK), w = low_need_rank(im, 1, x.rank, x.rank);
    Window win = window(im, &x, w.d + 2);
    resolve_same(&win, &x);
    im->out[0] = add_bias(im, graph_node(im->g, OP_Conv, 2, in, window_attr(im, &win)));
}

/* Pads and output dims of a transposed convolution; extra is output_padding. */
static int64_t *transposed_dims(const Import *im, Window *w, const Shape *x)
{
    int64_t *extra = low_numbers(im, "output_padding", w->n, 0, 0),
            *out = arena_array(im->g->arena, int64_t, w->n), *given;
    int count = 0;
    bool shaped = im_ints(im, "output_shape", &given, &count);
    if (shaped && count == w->n + 2)
        given += 2, count -= 2;
    if (shaped && count != w->n)
        low_fatal(im, -1, "output_shape has %d entries", count);
    bool same = w->auto_pad == AUTO_UPPER || w->auto_pad == AUTO_LOWER;
    for (int i = 0; i < w->n; i++) {
        int64_t full = w->stride[i] * (x->d[i + 2] - 1) + extra[i] + extent(w, i);
        if (w->auto_pad == AUTO_VALID)
            divide_pads(w, i, 0);
        if (shaped || same) {
            out[i] = shaped ? given[i] : x->d[i + 2] * w->stride[i];
            if (out[i] >= 1) /* else it is refused below */
                divide_pads(w, i, low_max(full - out[i], 0));
        } else {
            out[i] = full - w->pad[i] - w->pad[w->n + i];
        }
        if (out[i] < 1)
            low_fatal(im, -1, "spatial dim %d of the result would be %lld", i, (long long)out[i]);
    }
    return out;
}

void import_conv_transpose(Import *im)
{
    ValueId in[2] = {low_need_float(im, 0), like_operand(im, low_need(im, 1))};
    Shape x = low_need_rank(im, 0, 3, MAX_RANK), w = low_need_rank(im, 1, x.rank, x.rank);
    Window win = window(im, &x, w.d + 2);
    int64_t *out = transposed_dims(im, &win, &x);
    Attr attr = window_attr(im, &win);
    attr.out_dims = out;
    im->out[0] = add_bias(im, graph_node(im->g, OP_ConvTranspose, 2, in, attr));
}

/* ---- pools ---- */

static Window pool_window(const Import *im, const Shape *x)
{
    Window w = window(im, x, NULL);
    resolve_same(&w, x);
    for (int i = 0; i < w.n; i++) {
        if (w.pad[i] >= extent(&w, i) || w.pad[w.n + i] >= extent(&w, i))
            low_fatal(im, -1, "a pad of %lld or more than the window",
                      (long long)low_max(w.pad[i], w.pad[w.n + i]));
        int64_t room = x->d[i + 2] + w.pad[i] + w.pad[w.n + i], over = extent(&w, i) - room;
        if (over > 0 && (!im_int(im, "ceil_mode", 0) || over >= w.stride[i] || w.dilation[i] > 1))
            low_fatal(im, 0, "spatial dim %d is smaller than the window", i);
        w.kernel[i] = over > 0 ? room : w.kernel[i]; /* ceil_mode cuts the only one */
    }
    return w;
}

/* Indices count the last spatial dim fastest; storage_order = 1 has the first one fastest. */
static ValueId column_major(Import *im, ValueId idx, const Shape *x)
{
    Graph *g = im->g;
    if (x->rank != 4)
        low_fatal(im, -1, "storage_order = 1 with other than two spatial dims");
    return g_formula(g,
                     "i, double height, double width: place = i % (height * width);"
                     "i - place + (place % width * height + place / width)",
                     idx, (double)x->d[2], (double)x->d[3]);
}

/* What a window's sum is divided by instead of its elements, ONNX cannot say: the file computes
 * another model. */
static void need_plain_divisor(const Import *im, int n)
{
    double divisor;
    if (im_told(im, n == 3 ? "aten.avg_pool3d.default" : "aten.avg_pool2d.default", 6,
                "divisor_override", &divisor)) {
        diag_hint(
            "export without divisor_override, and multiply the result by the window's size / %g",
            divisor);
        low_fatal(im, -1, "the exporter dropped divisor_override=%g", divisor);
    }
}

void import_pool(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_need_rank(im, 0, 3, MAX_RANK);
    Window w = pool_window(im, &s);
    Attr attr = window_attr(im, &w);
    attr.kernel = w.kernel;
    attr.ceil_mode = im_int(im, "ceil_mode", 0) != 0;
    attr.count_include_pad = im_int(im, "count_include_pad", 0) != 0;
    need_plain_divisor(im, (int)w.n);
    Dtype t = low_dtype(g, x);
    if (t == DT_I32 && im->op == OP_MaxPool) /* held: exact in f64 */
        x = g_cast(g, x, DT_F64);
    ValueId y = graph_node(g, im->op, 1, &x, attr);
    im->out[0] = g_cast(g, y, t);
    if (im->nout < 2 || im->op != OP_MaxPool)
        return;
    im->out[1] = graph_out(g, y, 1);
    if (im_wanted(im, 1) && im_int(im, "storage_order", 0))
        im->out[1] = column_major(im, im->out[1], &s);
}

/* |x|^p; the even powers need no Abs. */
static ValueId power(Graph *g, ValueId x, int64_t p)
{
    const char *odd = p == 1 ? "x: Abs(x)" : "x, double p: Pow(Abs(x), p)",
               *even = p == 2 ? "x: x * x" : "x, double p: Pow(x, p)";
    return g_formula(g, p % 2 ? odd : even, x, (double)p);
}

static ValueId root(Graph *g, ValueId s, int64_t p)
{
    if (p == 1)
        return s;
    return p == 2 ? low_safe_sqrt(g, s)
                  : g_formula(g, "s, double p: zero = s == 0; zero ? 0 : Pow(zero ? 1 : s, 1 / p)",
                              s, (double)p);
}

void import_global_pool(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    Shape s = low_need_rank(im, 0, 3, MAX_RANK);
    int64_t axes[MAX_RANK], p = im_int(im, "p", 2);
    int n = s.rank - 2;
    for (int i = 0; i < n; i++)
        axes[i] = i + 2;
    if (im->op == OP_GlobalAveragePool) {
        im->out[0] = g_mean(g, x, n, axes);
    } else if (im->op == OP_GlobalMaxPool) {
        im->out[0] = g_reduce(g, OP_ReduceMax, x, n, axes);
    } else {
        if (p < 1)
            low_fatal(im, -1, "p is %lld", (long long)p);
        im->out[0] = root(g, g_reduce(g, OP_ReduceSum, power(g, x, p), n, axes), p);
    }
}

/* The p-th root of an average pool that counts its pads, times the window's size; ceil_mode becomes
 * more pads. */
void import_lp_pool(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    Shape s = low_need_rank(im, 0, 3, MAX_RANK);
    int64_t p = im_int(im, "p", 2), size = 1, begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    if (p < 1)
        low_fatal(im, -1, "p is %lld", (long long)p);
    Window w = pool_window(im, &s);
    for (int i = 0; i < w.n; i++) {
        int64_t rest = (s.d[i + 2] + w.pad[i] + w.pad[w.n + i] - extent(&w, i)) % w.stride[i];
        begin[i + 2] = w.pad[i];
        end[i + 2] = w.pad[w.n + i] + (im_int(im, "ceil_mode", 0) && rest ? w.stride[i] - rest : 0);
        size *= w.kernel[i];
    }
    Attr attr = window_attr(im, &w);
    attr.pad = arena_array(g->arena, int64_t, 2 * w.n);
    attr.kernel = w.kernel;
    attr.count_include_pad = 1;
    ValueId padded = g_pad(g, power(g, x, p), begin, end, PAD_CONSTANT, 0);
    ValueId mean = graph_node(g, OP_AveragePool, 1, &padded, attr);
    im->out[0] = root(g, low_scale(g, mean, (double)size), p);
}
