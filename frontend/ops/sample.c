/*
 * sample.c - sampling of images at computed places: GridSample, AffineGrid, DeformConv.  In: the
 * ONNX nodes, 2-d and 3-d, all modes.  Out: gathers of the neighbours, weighted.
 *
 * Numbers are PyTorch's (aten/src/ATen/native/GridSampler.h): a place that the padding moves to a
 * border has no gradient, one that is reflected has it reversed.  An index is brought into the
 * image before it becomes an integer, so that no place, NaN neither, reads outside.
 */
#include "frontend/low/low.h"

#include <string.h>

enum { SPATIAL = 3 };
typedef enum { ZEROS, BORDER, REFLECTION } Padding;

typedef struct {
    Import *im;
    Graph *g;
    int spatial;
    int64_t size[SPATIAL]; /* of the image: [depth] height width */
    bool align;
    Padding padding;
    ValueId image; /* [rows, channels, elements] */
    Shape index;   /* [rows, channels, places] */
} Sampler;

/* ---- places ---- */

/* Into [0, most]; NaN becomes 0.  No gradient at the bounds and beyond. */
static ValueId clamp(Graph *g, ValueId x, double most)
{
    return g_formula(g, "x, double most: x > 0 ? (x >= most ? most : x) : 0", x, most);
}

/* Back and forth between the middles, or the edges, of the outermost elements. */
static ValueId reflect(const Sampler *s, ValueId x, int64_t size)
{
    double low = s->align ? 0 : -0.5, span = s->align ? (double)size - 1 : (double)size;
    if (span == 0)
        return g_formula(s->g, "x: x * 0", x);
    return g_formula(s->g,
                     "x, double low, double span: d = Abs(x - low); over = Fmod(d, span);"
                     "(Fmod(Floor(d / span), 2) == 1 ? span - over : over) + low",
                     x, low, span);
}

static ValueId padded(const Sampler *s, ValueId x, int64_t size)
{
    if (s->padding == REFLECTION)
        x = reflect(s, x, size);
    return s->padding == ZEROS ? x : clamp(s->g, x, (double)size - 1);
}

/* From [-1, 1] to elements: d counts dims of the image, the grid counts them from behind. */
static ValueId place(const Sampler *s, ValueId grid, int d)
{
    Graph *g = s->g;
    Shape flat = {3, {s->index.d[0], 1, s->index.d[2]}};
    int last = s->spatial + 1;
    ValueId x = g_reshape(g, g_slice_axis(g, grid, last, s->spatial - 1 - d, 1), &flat);
    return g_formula(g,
                     s->align ? "x, double n: (x + 1) * ((n - 1) / 2)"
                              : "x, double n: ((x + 1) * n - 1) * 0.5",
                     x, (double)s->size[d]);
}

/* ---- neighbours ---- */

/* A neighbour: a whole number for each dim, and its weight (NONE: 1). */
typedef struct {
    ValueId at[SPATIAL], weight;
} Neighbour;

/* The image there times the weight; outside, where it is padded by zeros, 0. */
static ValueId taken(const Sampler *s, const Neighbour *n)
{
    Graph *g = s->g;
    ValueId index = NONE, inside = NONE;
    for (int d = 0; d < s->spatial; d++) {
        const double size = (double)s->size[d];
        ValueId x = n->at[d], i = g_cast(g, clamp(g, x, size - 1), DT_I64);
        if (s->padding == ZEROS) {
            ValueId in = g_formula(g, "x, double most: x >= 0 && x <= most", x, size - 1);
            inside = inside == NONE ? in : g_binary(g, OP_And, inside, in);
        }
        index =
            index == NONE ? i : g_formula(g, "index, i, double n: index * n + i", index, i, size);
    }
    ValueId in[2] = {s->image, g_expand(g, index, &s->index)};
    ValueId y = graph_node(g, OP_GatherElements, 2, in, (Attr){.axis = 2});
    ValueId w = n->weight;
    if (inside != NONE)
        w = g_formula(g, "inside, w: inside ? w : 0", inside, w == NONE ? g_like(g, y, 1) : w);
    return w == NONE ? y : g_mul(g, y, w);
}

static ValueId nearest(const Sampler *s, const ValueId *at)
{
    Neighbour n = {.weight = NONE};
    for (int d = 0; d < s->spatial; d++)
        n.at[d] = g_unary(s->g, OP_Round, padded(s, at[d], s->size[d]));
    return taken(s, &n);
}

/* Sums over taps[d] neighbours in each dim, the last dim fastest. */
static ValueId weighted(const Sampler *s, int taps, ValueId (*at)[4], ValueId (*weight)[4])
{
    Graph *g = s->g;
    int n = 1;
    for (int d = 0; d < s->spatial; d++)
        n *= taps;
    ValueId y = NONE;
    for (int i = 0; i < n; i++) {
        Neighbour one = {.weight = NONE};
        for (int d = s->spatial - 1, k = i; d >= 0; d--, k /= taps) {
            one.at[d] = at[d][k % taps];
            one.weight = one.weight == NONE ? weight[d][k % taps]
                                            : g_mul(g, one.weight, weight[d][k % taps]);
        }
        y = low_plus(g, y, taken(s, &one));
    }
    return y;
}

static ValueId linear(const Sampler *s, const ValueId *place)
{
    Graph *g = s->g;
    ValueId at[SPATIAL][4], weight[SPATIAL][4];
    for (int d = 0; d < s->spatial; d++) {
        ValueId x = padded(s, place[d], s->size[d]);
        at[d][0] = g_unary(g, OP_Floor, x);
        at[d][1] = g_formula(g, "x: x + 1", at[d][0]);
        weight[d][0] = g_sub(g, at[d][1], x);
        weight[d][1] = g_sub(g, x, at[d][0]);
    }
    return weighted(s, 2, at, weight);
}

/* Keys' convolution with a = -0.75; the neighbours are padded, not the place. */
static ValueId cubic(const Sampler *s, const ValueId *place)
{
    static const char *const weights[] = {"t: x = t + 1; ((x * -0.75 + 3.75) * x - 6) * x + 3",
                                          "t: (t * 1.25 - 2.25) * t * t + 1",
                                          "t: x = 1 - t; (x * 1.25 - 2.25) * x * x + 1",
                                          "t: x = 1 - t + 1; ((x * -0.75 + 3.75) * x - 6) * x + 3"};
    Graph *g = s->g;
    ValueId at[SPATIAL][4], weight[SPATIAL][4];
    for (int d = 0; d < s->spatial; d++) {
        ValueId x = place[d], floor = g_unary(g, OP_Floor, x), t = g_sub(g, x, floor);
        for (int k = 0; k < 4; k++) {
            weight[d][k] = g_formula(g, weights[k], t);
            at[d][k] = padded(s, g_add(g, floor, g_like(g, x, k - 1)), s->size[d]);
        }
    }
    return weighted(s, 4, at, weight);
}

/* ---- GridSample ---- */

typedef ValueId Mode(const Sampler *s, const ValueId *place);

void import_grid_sample(Import *im)
{
    Graph *g = im->g;
    low_need_float(im, 0), low_need_float(im, 1);
    Shape x = low_need_rank(im, 0, 4, 5), grid = low_need_rank(im, 1, x.rank, x.rank), y = x;
    Sampler s = {
        .im = im,
        .g = g,
        .spatial = x.rank - 2,
        .align = im_int(im, "align_corners", 0) != 0,
        .padding = (Padding)low_choice(im, "padding_mode", "zeros", "zeros border reflection"),
    };
    static Mode *const modes[] = {linear, linear, nearest, cubic, cubic};
    Mode *mode = modes[low_choice(im, "mode", "linear", "linear bilinear nearest cubic bicubic")];
    if (grid.d[0] != x.d[0] || grid.d[x.rank - 1] != s.spatial)
        low_fatal(im, 1, "%s: %lld samples of %d coordinates are needed",
                  shape_print(im->arena, low_dtype(g, im->in[1]), &grid), (long long)x.d[0],
                  s.spatial);
    Shape flat = {3, {x.d[0], x.d[1], 1}};
    s.index = flat;
    for (int d = 0; d < s.spatial; d++) {
        s.size[d] = x.d[2 + d];
        if (s.size[d] < 1)
            low_fatal(im, 0, "an image without elements");
        flat.d[2] *= x.d[2 + d];
        s.index.d[2] *= grid.d[1 + d];
        y.d[2 + d] = grid.d[1 + d];
    }
    s.image = g_reshape(g, im->in[0], &flat);
    ValueId places = g_cast(g, im->in[1], low_dtype(g, im->in[0])), at[SPATIAL];
    for (int d = 0; d < s.spatial; d++)
        at[d] = place(&s, places, d);
    im->out[0] = g_reshape(g, mode(&s, at), &y);
}

/* ---- DeformConv (Dai et al., 1703.06211; Zhu et al., 1811.11168) ---- */

typedef struct {
    Shape x, w, y;
    int64_t offset_groups, taps, places; /* of the kernel, of the result */
    int64_t *stride, *dilation, *pad;
} Deform;

static Deform take_deform(const Import *im, int64_t groups)
{
    Deform f = {.x = low_need_rank(im, 0, 3, 2 + SPATIAL), .taps = 1, .places = 1};
    int n = f.x.rank - 2;
    f.w = low_need_rank(im, 1, f.x.rank, f.x.rank);
    f.stride = low_numbers(im, "strides", n, 1, 1);
    f.dilation = low_numbers(im, "dilations", n, 1, 1);
    f.pad = low_numbers(im, "pads", 2 * n, 0, 0);
    f.offset_groups = im_int(im, "offset_group", 1);
    f.y = (Shape){f.x.rank, {f.x.d[0], f.w.d[0]}};
    if (groups < 1 || f.w.d[0] % groups || f.w.d[1] * groups != f.x.d[1] || f.offset_groups < 1 ||
        f.x.d[1] % f.offset_groups)
        low_fatal(im, 1, "%lld channels, a weight of %lld x %lld, %lld groups, %lld of offsets",
                  (long long)f.x.d[1], (long long)f.w.d[0], (long long)f.w.d[1], (long long)groups,
                  (long long)f.offset_groups);
    for (int d = 0; d < n; d++) {
        if (f.w.d[2 + d] > INT32_MAX)
            low_fatal(im, 1, "a weight of %lld elements along a dim", (long long)f.w.d[2 + d]);
        int64_t reach = (f.w.d[2 + d] - 1) * f.dilation[d] + 1,
                padded = f.x.d[2 + d] + f.pad[d] + f.pad[n + d];
        if (f.w.d[2 + d] < 1 || f.x.d[2 + d] < 1 || padded < reach)
            low_fatal(im, 1, "a kernel of %lld over %lld elements", (long long)f.w.d[2 + d],
                      (long long)f.x.d[2 + d]);
        f.y.d[2 + d] = (padded - reach) / f.stride[d] + 1;
        low_limit_table(im, f.y.d[2 + d], f.places, "places");
        f.taps *= f.w.d[2 + d], f.places *= f.y.d[2 + d];
    }
    low_limit_table(im, f.places, f.taps, "places");
    return f;
}

/* Where tap k of place p lies in dim d without an offset: [1, 1, taps * places]. */
static ValueId regular_places(const Import *im, const Deform *f, int d)
{
    int n = f->x.rank - 2;
    double *at = arena_array(im->arena, double, f->taps * f->places + 1);
    for (int64_t i = 0; i < f->taps * f->places; i++) {
        int64_t tap = i / f->places, place = i % f->places;
        for (int e = n - 1; e > d; e--)
            tap /= f->w.d[2 + e], place /= f->y.d[2 + e];
        tap %= f->w.d[2 + d], place %= f->y.d[2 + d];
        at[i] = (double)(place * f->stride[d] - f->pad[d] + tap * f->dilation[d]);
    }
    return low_const_doubles(im->g, low_dtype(im->g, im->in[0]),
                             shape_of(3, 1, 1, f->taps * f->places), at);
}

/* The image at each tap's place, moved by its offset and weighted by its mask, as columns, which
   the weight is multiplied with. */
void import_deform_conv(Import *im)
{
    Graph *g = im->g;
    Dtype t = low_dtype(g, low_need_float(im, 0));
    int64_t groups = im_int(im, "group", 1);
    Deform f = take_deform(im, groups);
    int n = f.x.rank - 2;
    int64_t rows = f.x.d[0] * f.offset_groups, each = f.x.d[1] / f.offset_groups, elements = 1;
    Shape offset = f.y, mask = f.y;
    offset.d[1] = f.offset_groups * f.taps * n, mask.d[1] = f.offset_groups * f.taps;
    low_expect(im, 2, offset);
    Sampler s = {.im = im, .g = g, .spatial = n, .padding = ZEROS};
    for (int d = 0; d < n; d++)
        s.size[d] = f.x.d[2 + d], elements *= f.x.d[2 + d];
    Shape flat = shape_of(3, rows, each, elements), line = shape_of(3, rows, 1, f.taps * f.places);
    s.index = shape_of(3, rows, each, f.taps * f.places);
    s.image = g_reshape(g, im->in[0], &flat);
    Shape apart = shape_of(4, rows, f.taps, n, f.places);
    ValueId moved = g_reshape(g, g_cast(g, im->in[2], t), &apart), at[SPATIAL];
    for (int d = 0; d < n; d++)
        at[d] = g_add(g, g_reshape(g, g_slice_axis(g, moved, 2, d, 1), &line),
                      regular_places(im, &f, d));
    ValueId taken = linear(&s, at);
    if (im_in(im, 4) != NONE) {
        low_expect(im, 4, mask);
        taken = g_mul(g, taken, g_reshape(g, g_cast(g, im->in[4], t), &line));
    }
    int64_t depth = f.x.d[1] / groups * f.taps;
    Shape columns = shape_of(4, f.x.d[0], groups, depth, f.places),
          filters = shape_of(4, 1, groups, f.w.d[0] / groups, depth);
    ValueId y = g_matmul(g, g_reshape(g, im->in[1], &filters), g_reshape(g, taken, &columns));
    y = g_reshape(g, y, &f.y);
    if (im_in(im, 3) != NONE)
        y = g_add(g, y, low_channels(im, 3, f.w.d[0], f.y.rank));
    im->out[0] = y;
}

/* ---- AffineGrid ---- */

/* theta [rows, n, n + 1], size [rows, channels, ...n] -> [rows, ...n, n]: the places of an image's
   elements in [-1, 1], 1 beside them, times theta. */
void import_affine_grid(Import *im)
{
    Graph *g = im->g;
    Shape theta = low_need_rank(im, 0, 3, 3);
    int64_t *size, n_size, places = 1;
    low_need_float(im, 0);
    im_const_ints(im, 1, &size, &n_size);
    int n = (int)n_size - 2;
    if ((n != 2 && n != 3) || theta.d[0] != size[0] || theta.d[1] != n || theta.d[2] != n + 1)
        low_fatal(im, 0, "%s: size has %lld numbers, %lld samples of %d x %d are needed",
                  shape_print(im->arena, low_dtype(g, im->in[0]), &theta), (long long)n_size,
                  n_size ? (long long)size[0] : 0LL, n, n + 1);
    bool align = im_int(im, "align_corners", 0) != 0;
    for (int d = 0; d < n; d++) {
        if (size[2 + d] < 1)
            low_fatal(im, 1, "size %lld", (long long)size[2 + d]);
        low_limit_table(im, size[2 + d], places * (n + 1), "places");
        places *= size[2 + d];
    }
    double *base = arena_array(im->arena, double, places *(n + 1));
    for (int64_t i = 0; i < places; i++) {
        int64_t k = i;
        base[i * (n + 1) + n] = 1;
        for (int d = n - 1; d >= 0; d--) {
            double m = (double)size[2 + d], at = (double)(k % size[2 + d]);
            base[i * (n + 1) + n - 1 - d] =
                align ? (m > 1 ? 2 * at / (m - 1) - 1 : 0) : (2 * at + 1) / m - 1;
            k /= size[2 + d];
        }
    }
    ValueId all = low_const_doubles(g, low_dtype(g, im->in[0]), (Shape){2, {places, n + 1}}, base);
    ValueId y = g_matmul(g, all, g_swap_last(g, im->in[0]));
    Shape s = {.rank = n + 2};
    s.d[0] = theta.d[0], s.d[n + 1] = n;
    for (int d = 0; d < n; d++)
        s.d[1 + d] = size[2 + d];
    im->out[0] = g_reshape(g, y, &s);
}
