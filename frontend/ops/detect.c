/*
 * detect.c - regions of interest and boxes: RoiAlign, MaxRoiPool, NonMaxSuppression; and Unique,
 * whose size depends on the data as well.  In: the ONNX nodes.  Out: gathers, and reductions over
 * what was gathered.  Regions have no gradient, as in torchvision; features have.
 */
#include "frontend/ragged/ragged.h"

#include <math.h>
#include <string.h>

/* Column k of regions [R, n] -> [R, 1]. */
static ValueId column(Graph *g, ValueId rois, int64_t k) { return g_slice_axis(g, rois, 1, k, 1); }

/* ---- RoiAlign (He et al., 1703.06870) ---- */

typedef struct {
    Import *im;
    Graph *g;
    Shape x;                  /* [N, C, H, W] */
    int64_t regions, samples; /* of a bin, in each direction */
    ValueId image;            /* [N * H * W, C] */
    ValueId start;            /* [R, 1, 1]: where the region's image begins in it */
    bool shifted;
} Align;

/* Where the samples of a direction are: the element before, its neighbour, the share of that, and
 * whether they are in the image at all; all [R, bins * samples]. */
typedef struct {
    ValueId low, high, share, inside;
} Samples;

static Samples samples_along(const Align *a, ValueId from, ValueId to, int64_t bins, int64_t size)
{
    Graph *g = a->g;
    double scale = im_float(a->im, "spatial_scale", 1);
    from = low_scale(g, from, scale), to = low_scale(g, to, scale);
    ValueId extent = g_formula(g, a->shifted ? "a, b: b - a" : "a, b: Max(b - a, 1)", from, to);
    if (a->shifted)
        from = g_formula(g, "x: x - 0.5", from);
    low_limit_table(a->im, bins, a->samples, "bins");
    int64_t n = bins * a->samples;
    double *at = arena_array(a->im->arena, double, n + 1);
    for (int64_t i = 0; i < n; i++)
        at[i] = (double)(i / a->samples) + ((double)(i % a->samples) + 0.5) / (double)a->samples;
    ValueId place =
        g_formula(g, "from, bin, at: from + bin * at", from, low_scale(g, extent, 1 / (double)bins),
                  low_const_doubles(g, low_dtype(g, from), (Shape){2, {1, n}}, at));
    Samples s;
    s.inside = g_formula(g, "x, double n: x >= -1 && x <= n", place, (double)size);
    place = g_formula(g, "x, in, double last: Min(Max(in ? x : 0, 0), last)", place, s.inside,
                      (double)size - 1); /* no NaN becomes an index */
    s.low = g_unary(g, OP_Floor, place);
    s.high = g_formula(g, "x, double last: Min(x + 1, last)", s.low, (double)size - 1);
    s.share = g_sub(g, place, s.low);
    return s;
}

/* [R, n] along dim `axis` of [R, rows, columns, 1]. */
static ValueId grid_of(Graph *g, ValueId v, int axis)
{
    Shape s = low_shape(g, v), line = {4, {s.d[0], 1, 1, 1}};
    line.d[axis] = s.d[1];
    return g_reshape(g, v, &line);
}

/* The image at a row and a column for each sample, times their weights: [R, rows, columns, C]. */
static ValueId corner(const Align *a, ValueId row, ValueId rows, ValueId column_, ValueId columns)
{
    Graph *g = a->g;
    ValueId at = g_add(
        g, g_mul(g, g_cast(g, grid_of(g, row, 1), DT_I64), g_scalar(g, DT_I64, (double)a->x.d[3])),
        g_cast(g, grid_of(g, column_, 2), DT_I64));
    int64_t last = 3;
    at = low_squeeze(g, g_add(g, at, a->start), 1, &last);
    return g_mul(g, g_gather(g, a->image, at, 0),
                 g_mul(g, grid_of(g, rows, 1), grid_of(g, columns, 2)));
}

static ValueId share_of(Graph *g, const Samples *s, bool high)
{
    return g_formula(g, high ? "in, w: in ? w : 0" : "in, w: in ? 1 - w : 0", s->inside, s->share);
}

/* [images, C, H, W] as [images * H * W, C], and where each region's image begins: [R, 1, 1, 1]. */
static void take_image(Align *a, ValueId index)
{
    Graph *g = a->g;
    Shape rows = {2, {a->x.d[0] * a->x.d[2] * a->x.d[3], a->x.d[1]}},
          line = {4, {a->regions, 1, 1, 1}};
    ValueId last = g_transpose(g, a->im->in[0], (const int64_t[]){0, 2, 3, 1});
    a->image = g_reshape(g, last, &rows);
    index = g_reshape(g, g_cast(g, index, DT_I64), &line);
    a->start = g_mul(g, index, g_scalar(g, DT_I64, (double)(a->x.d[2] * a->x.d[3])));
}

/* 0 asks for as many as a bin has elements. */
static int64_t samples_of(const Import *im)
{
    int64_t n = im_int(im, "sampling_ratio", 0);
    if (n < 1)
        low_fatal(im, -1,
                  "sampling_ratio %lld: how many samples a bin has would depend on the data",
                  (long long)n);
    return n;
}

void import_roi_align(Import *im)
{
    Graph *g = im->g;
    low_need_float(im, 0), low_need_float(im, 1);
    Shape rois = low_need_rank(im, 1, 2, 2), index = low_need_rank(im, 2, 1, 1);
    Align a = {.im = im, .g = g, .x = low_need_rank(im, 0, 4, 4), .regions = rois.d[0]};
    int64_t height = im_int(im, "output_height", 1), width = im_int(im, "output_width", 1);
    bool most = low_choice(im, "mode", "avg", "avg max");
    a.shifted = low_choice(im, "coordinate_transformation_mode",
                           im->opset < 16 ? "output_half_pixel" : "half_pixel",
                           "output_half_pixel half_pixel");
    if (rois.d[1] != 4 || index.d[0] != rois.d[0] || height < 1 || width < 1 || a.x.d[2] < 1 ||
        a.x.d[3] < 1)
        low_fatal(im, 1, "%lld regions of %lld numbers, %lld of images, bins %lld x %lld",
                  (long long)rois.d[0], (long long)rois.d[1], (long long)index.d[0],
                  (long long)height, (long long)width);
    a.samples = samples_of(im);
    take_image(&a, im->in[2]);
    ValueId r = g_cast(g, low_stopped(g, im->in[1]), low_dtype(g, im->in[0]));
    Samples y = samples_along(&a, column(g, r, 1), column(g, r, 3), height, a.x.d[2]),
            x = samples_along(&a, column(g, r, 0), column(g, r, 2), width, a.x.d[3]);
    ValueId sum = NONE;
    for (int i = 0; i < 4; i++) {
        ValueId part = corner(&a, i / 2 ? y.high : y.low, share_of(g, &y, i / 2),
                              i % 2 ? x.high : x.low, share_of(g, &x, i % 2));
        sum = sum == NONE ? part : most ? g_binary(g, OP_Max, sum, part) : g_add(g, sum, part);
    }
    Shape apart = shape_of(6, rois.d[0], height, a.samples, width, a.samples, a.x.d[1]),
          bins = shape_of(4, rois.d[0], height, width, a.x.d[1]);
    sum = g_reduce(g, most ? OP_ReduceMax : OP_ReduceMean, g_reshape(g, sum, &apart), 2,
                   (const int64_t[]){2, 4});
    im->out[0] = g_transpose(g, g_reshape(g, sum, &bins), (const int64_t[]){0, 3, 1, 2});
}

/* ---- MaxRoiPool (Girshick, 1504.08083) ---- */

/* Whether element i of `size` is in bin k of `bins` of each region: [R, 1, size]. */
static ValueId in_bin(Graph *g, ValueId from, ValueId to, int64_t k, int64_t bins, int64_t size)
{
    ValueId i = g_cast(g, g_iota(g, DT_I64, 2, 1, size), low_dtype(g, from));
    return g_formula(g,
                     "i, from, to, double k, double share: bin = Max(to - from + 1, 1) * share;"
                     "i >= Floor(bin * k) + from && i < Ceil(bin * (k + 1)) + from",
                     i, from, to, (double)k, 1 / (double)bins);
}

/* The largest of what the mask [R, size] leaves along dim `axis` of [R, C, H, W]. */
static ValueId largest(Graph *g, ValueId x, ValueId mask, int axis)
{
    int64_t along = axis;
    x = g_formula(g, "mask, x: mask ? x : -inf", grid_of(g, mask, axis), x);
    return g_reduce(g, OP_ReduceMax, x, 1, &along);
}

/* Corners are rounded; a bin without elements is 0. */
void import_max_roi_pool(Import *im)
{
    Graph *g = im->g;
    low_need_float(im, 0), low_need_float(im, 1);
    Shape s = low_need_rank(im, 0, 4, 4), rois = low_need_rank(im, 1, 2, 2);
    int64_t *bins;
    int n = 0;
    if (!im_ints(im, "pooled_shape", &bins, &n) || n != 2 || bins[0] < 1 || bins[1] < 1 ||
        rois.d[1] != 5)
        low_fatal(im, -1, "pooled_shape must be two numbers, a region five");
    low_limit_nodes(im, bins[0], 20, "rows of bins");
    low_limit_nodes(im, bins[1], 20 * bins[0], "columns of bins");
    ValueId r = g_cast(g, low_stopped(g, im->in[1]), low_dtype(g, im->in[0]));
    ValueId index = g_reshape(g, g_cast(g, column(g, r, 0), DT_I64), &(Shape){1, {rois.d[0]}});
    ValueId image = g_gather(g, im->in[0], index, 0); /* [R, C, H, W] */
    ValueId corners = low_scale(g, g_slice_axis(g, r, 1, 1, 4), im_float(im, "spatial_scale", 1));
    corners = g_formula(g, "x: Floor(x + 0.5)", corners);
    ValueId *row = arena_array(im->arena, ValueId, bins[0]),
            *bin = arena_array(im->arena, ValueId, bins[1]);
    for (int64_t i = 0; i < bins[0]; i++) {
        ValueId mask = in_bin(g, column(g, corners, 1), column(g, corners, 3), i, bins[0], s.d[2]),
                strip = largest(g, image, mask, 2);
        for (int64_t j = 0; j < bins[1]; j++) {
            mask = in_bin(g, column(g, corners, 0), column(g, corners, 2), j, bins[1], s.d[3]);
            bin[j] = largest(g, strip, mask, 3);
        }
        row[i] = g_concat(g, (uint32_t)bins[1], bin, 3);
    }
    im->out[0] = g_formula(g, "y: y == -inf ? 0 : y", g_concat(g, (uint32_t)bins[0], row, 2));
}

/* ---- NonMaxSuppression ---- */

/* The lower and upper ends of boxes [B, N, 4] in a direction (0: y, 1: x), each [B, N]. */
static void ends_of(const Import *im, ValueId boxes, int direction, ValueId *low, ValueId *high)
{
    Graph *g = im->g;
    Shape s = low_shape(g, boxes), flat = {2, {s.d[0], s.d[1]}};
    bool centre = im_int(im, "center_point_box", 0) != 0;
    int64_t first = centre ? 1 - direction : direction;
    ValueId a = g_reshape(g, g_slice_axis(g, boxes, 2, first, 1), &flat),
            b = g_reshape(g, g_slice_axis(g, boxes, 2, first + 2, 1), &flat);
    if (centre) {
        *low = g_formula(g, "a, b: a - b * 0.5", a, b);
        *high = g_formula(g, "a, b: a + b * 0.5", a, b);
    } else {
        *low = g_binary(g, OP_Min, a, b), *high = g_binary(g, OP_Max, a, b);
    }
}

/* What was taken of each class of each sample, [B, C, n], and how many: a row of batch, class and
 * box for each.  Where this depends on the data there are all rows. */
static void taken_boxes(Import *im, const Shape *s, ValueId best, ValueId count, int64_t rounds)
{
    Graph *g = im->g;
    low_limit_table(im, s->d[0] * s->d[1], rounds, "boxes");
    int64_t n = s->d[0] * s->d[1] * rounds, *index = arena_array(im->arena, int64_t, 2 * n + 1);
    for (int64_t k = 0; k < n; k++) {
        index[2 * k] = k / rounds / s->d[1];
        index[2 * k + 1] = k / rounds % s->d[1];
    }
    if (n == 0) {
        im->out[0] = low_const(g, DT_I64, (Shape){2, {0, 3}}, index);
        return;
    }
    ValueId is = g_binary(g, OP_Less, g_iota(g, DT_I64, 3, 2, rounds), low_unsqueeze(g, count, 2));
    ValueId row[2] = {low_const(g, DT_I64, (Shape){2, {n, 2}}, index)};
    row[1] = g_reshape(g, g_slice_axis(g, best, 2, 0, rounds), &(Shape){2, {n, 1}});
    ValueId rows = g_concat(g, 2, row, 1), there = g_reshape(g, is, &(Shape){1, {n}});
    ragged_set_picked(im, 0, rows, there, 0, false);
}

void import_non_max_suppression(Import *im)
{
    Graph *g = im->g;
    low_need_float(im, 0), low_need_float(im, 1);
    Shape b = low_need_rank(im, 0, 3, 3), s = low_need_rank(im, 1, 3, 3);
    if (b.d[2] != 4 || s.d[0] != b.d[0] || s.d[2] != b.d[1])
        low_fatal(im, 1, "scores of %lld x %lld, boxes of %lld x %lld", (long long)s.d[0],
                  (long long)s.d[2], (long long)b.d[0], (long long)b.d[1]);
    double least = im_const_double(im, 4, -(double)INFINITY), most = im_const_double(im, 2, 0);
    int64_t n = s.d[2], rounds = most >= (double)n ? n : low_max((int64_t)most, 0);
    ValueId end[4], box[4],
        score = g_formula(g, "x, double least: x > least ? x : -inf", im->in[1], least);
    ends_of(im, im->in[0], 0, &end[0], &end[2]), ends_of(im, im->in[0], 1, &end[1], &end[3]);
    for (int i = 0; i < 4; i++)
        box[i] = low_unsqueeze(g, end[i], 2);
    ValueId sorted = graph_node(g, OP_TopK, 1, &score, (Attr){.axis = 2, .k = n, .largest = 1});
    ValueId in[3] = {g_concat(g, 4, box, 2), graph_out(g, sorted, 1),
                     g_formula(g, "x: x > -inf", sorted)};
    ValueId best =
        graph_node(g, OP_Suppress, 3, in, (Attr){.k = rounds, .value = im_const_double(im, 3, 0)});
    taken_boxes(im, &s, best, graph_out(g, best, 1), rounds);
}

/* ---- Unique ---- */

/* Lines of a matrix, each sorted along dim 0: where its values stood, whether each is another than
 * the one before it, and which of the different ones it is. */
typedef struct {
    ValueId at, fresh, group; /* [n, lines] */
} Sorted;

static Sorted sorted_lines(Graph *g, ValueId x)
{
    Sorted r;
    Shape s = low_shape(g, x);
    int64_t n = s.d[0], begin[MAX_RANK] = {1}, end[MAX_RANK] = {0};
    ValueId v = graph_node(g, OP_TopK, 1, &x, (Attr){.axis = 0, .k = n, .largest = 0});
    r.at = graph_out(g, v, 1);
    ValueId one = g_slice_axis(g, v, 0, 0, n - 1), next = g_slice_axis(g, v, 0, 1, n - 1),
            same = g_binary(g, OP_Equal, one, next);
    if (dtype_is_float(low_dtype(g, v))) /* NaN is last, and one */
        same = g_binary(g, OP_Or, same, g_unary(g, OP_IsNaN, one));
    ValueId fresh = g_cast(g, g_unary(g, OP_Not, same), DT_I64);
    fresh = g_pad(g, fresh, begin, end, PAD_CONSTANT, 1);
    r.fresh = g_cast(g, fresh, DT_BOOL);
    v = graph_node(g, OP_CumSum, 1, &fresh, (Attr){.axis = 0});
    r.group = g_formula(g, "n: n - 1", v);
    return r;
}

static ValueId put_back(Graph *g, ValueId to, ValueId at, ValueId x, int reduction)
{
    return graph_node(g, OP_ScatterElements, 3, (ValueId[]){to, at, x},
                      (Attr){.axis = 0, .reduction = reduction});
}

/* Rows of numbers as one number each, in the order of the rows: columns become the numbers of their
 * different values, two neighbours become one, and so on. */
static ValueId row_keys(Graph *g, ValueId x)
{
    for (;;) {
        Shape s = low_shape(g, x);
        int64_t n = s.d[0], begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
        if (s.d[1] == 1)
            return x;
        Sorted r = sorted_lines(g, x);
        x = put_back(g, low_zeros_like(g, r.at), r.at, r.group, SCATTER_NONE);
        end[1] = s.d[1] % 2;
        x = g_pad(g, x, begin, end, PAD_CONSTANT, 0);
        x = g_reshape(g, x, &(Shape){3, {n, (s.d[1] + 1) / 2, 2}});
        ValueId high = g_slice_axis(g, x, 2, 0, 1), low = g_slice_axis(g, x, 2, 1, 1);
        x = g_add(g, g_mul(g, high, g_like(g, high, (double)n)), low);
        x = g_reshape(g, x, &(Shape){2, {n, (s.d[1] + 1) / 2}});
    }
}

/* As many as there are slices, each beside whether it is the first of its kind. */
static void unique(Import *im, ValueId x, ValueId rows, int axis)
{
    Graph *g = im->g;
    int64_t n = low_shape(g, rows).d[0], size = shape_elements(&val(g, rows)->shape) / n;
    Shape line = {1, {n}};
    ValueId key = g_reshape(g, rows, &(Shape){2, {n, size}});
    Dtype t = low_dtype(g, key);
    Sorted r = sorted_lines(g, row_keys(g, t == DT_BOOL ? g_cast(g, key, DT_I64) : key));
    ValueId at = g_reshape(g, r.at, &line), fresh = g_reshape(g, r.fresh, &line),
            group = g_reshape(g, r.group, &line), none = low_zeros_like(g, at), there = fresh,
            first = at;
    if (im_int(im, "sorted", 1)) {
        x = g_gather(g, x, at, axis);
    } else { /* by where the first of a kind stands */
        ValueId is = put_back(g, none, at, g_cast(g, fresh, DT_I64), SCATTER_NONE);
        ValueId firsts = graph_node(g, OP_Pack, 2, (ValueId[]){at, fresh}, (Attr){.axis = 0}),
                number = graph_node(g, OP_CumSum, 1, &is, (Attr){.axis = 0});
        number = g_sub(g, number, g_like(g, number, 1));
        group = g_gather(g, number, g_gather(g, firsts, group, 0), 0);
        there = g_cast(g, is, DT_BOOL), first = g_iota(g, DT_I64, 1, 0, n);
    }
    im->out[2] = put_back(g, none, at, group, SCATTER_NONE);
    ValueId count = put_back(g, none, group, g_full(g, DT_I64, &line, 1), SCATTER_ADD);
    ragged_set_picked(im, 0, x, there, axis, false);
    ragged_set_picked(im, 1, first, there, 0, false);
    ragged_set_picked(im, 3, count, there, 0, true);
}

void import_unique(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x), flat = {1, {shape_elements(&s)}};
    int axis = im_has(im, "axis") ? low_axis(im, im_int(im, "axis", 0), s.rank) : -1;
    if (axis < 0)
        x = g_reshape(g, x, &flat), axis = 0, s = flat;
    if (s.d[axis] == 0) { /* of nothing there is nothing */
        im->out[0] = x;
        for (uint32_t i = 1; i < im->nout; i++)
            im->out[i] = low_const(g, DT_I64, (Shape){1, {0}}, NULL);
        return;
    }
    if (flat.d[0] < 1 || s.d[axis] > INT32_MAX)
        low_fatal(im, 0, "%s", shape_print(im->arena, low_dtype(g, x), &s));
    unique(im, x, low_move_dim(g, x, axis, 0), axis);
}
