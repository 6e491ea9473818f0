/*
 * ops_sample.c - sampling of images at computed places: GridSample and AffineGrid.  In: the ONNX
 * nodes, 2-d and 3-d, all modes.  Out: gathers of the neighbours, weighted.
 *
 * Numbers are PyTorch's (aten/src/ATen/native/GridSampler.h): a place that the padding moves to a
 * border has no gradient, one that is reflected has it reversed.  An index is brought into the
 * image before it becomes an integer, so that no place, NaN neither, reads outside.
 */
#include "low.h"

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

static ValueId both(Graph *g, ValueId x, ValueId y)
{
    return x == NONE ? y : g_binary(g, OP_And, x, y);
}

/* Into [0, most]; NaN becomes 0.  No gradient at the bounds and beyond. */
static ValueId clamp(Graph *g, ValueId x, double most)
{
    ValueId lo = g_like(g, x, 0), hi = g_like(g, x, most);
    ValueId top = g_where(g, g_binary(g, OP_GreaterOrEqual, x, hi), hi, x);
    return g_where(g, g_binary(g, OP_Greater, x, lo), top, lo);
}

/* Back and forth between the middles, or the edges, of the outermost elements. */
static ValueId reflect(const Sampler *s, ValueId x, int64_t size)
{
    Graph *g = s->g;
    double low = s->align ? 0 : -0.5, span = s->align ? (double)size - 1 : (double)size;
    if (span == 0)
        return g_mul(g, x, g_like(g, x, 0));
    x = g_unary(g, OP_Abs, g_sub(g, x, g_like(g, x, low)));
    ValueId over = g_binary(g, OP_Fmod, x, g_like(g, x, span));
    ValueId flips = g_unary(g, OP_Floor, g_div(g, x, g_like(g, x, span)));
    ValueId odd =
        g_binary(g, OP_Equal, g_binary(g, OP_Fmod, flips, g_like(g, x, 2)), g_like(g, x, 1));
    return g_add(g, g_where(g, odd, g_sub(g, g_like(g, x, span), over), over), g_like(g, x, low));
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
    double size = (double)s->size[d];
    x = g_add(g, x, g_like(g, x, 1));
    if (s->align)
        return low_scale(g, x, (size - 1) / 2);
    return low_scale(g, g_sub(g, low_scale(g, x, size), g_like(g, x, 1)), 0.5);
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
        ValueId x = n->at[d], most = g_like(g, x, (double)s->size[d] - 1);
        if (s->padding == ZEROS) {
            inside = both(g, inside, g_binary(g, OP_GreaterOrEqual, x, g_like(g, x, 0)));
            inside = both(g, inside, g_binary(g, OP_LessOrEqual, x, most));
        }
        ValueId i = g_cast(g, clamp(g, x, (double)s->size[d] - 1), DT_I64);
        index = index == NONE ? i : g_add(g, g_mul(g, index, g_like(g, i, (double)s->size[d])), i);
    }
    ValueId in[2] = {s->image, g_expand(g, index, &s->index)};
    ValueId y = graph_node(g, OP_GatherElements, 2, in, (Attr){.axis = 2});
    ValueId w = n->weight;
    if (inside != NONE) {
        ValueId one = g_like(g, y, 1), none = g_like(g, y, 0);
        w = g_where(g, inside, w == NONE ? one : w, none);
    }
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
        ValueId part = taken(s, &one);
        y = y == NONE ? part : g_add(g, y, part);
    }
    return y;
}

static ValueId linear(const Sampler *s, const ValueId *place)
{
    Graph *g = s->g;
    ValueId at[SPATIAL][4], weight[SPATIAL][4];
    for (int d = 0; d < s->spatial; d++) {
        ValueId x = padded(s, place[d], s->size[d]), one = g_like(g, x, 1);
        at[d][0] = g_unary(g, OP_Floor, x);
        at[d][1] = g_add(g, at[d][0], one);
        weight[d][0] = g_sub(g, at[d][1], x);
        weight[d][1] = g_sub(g, x, at[d][0]);
    }
    return weighted(s, 2, at, weight);
}

/* c[0] x^3 + c[1] x^2 + c[2] x + c[3] */
static ValueId cubic_of(Graph *g, ValueId x, const double *c)
{
    ValueId y = low_scale(g, x, c[0]);
    for (int i = 1; i < 4; i++) {
        if (c[i] != 0)
            y = g_add(g, y, g_like(g, y, c[i]));
        if (i < 3)
            y = g_mul(g, y, x);
    }
    return y;
}

/* Keys' convolution with a = -0.75; the neighbours are padded, not the place. */
static ValueId cubic(const Sampler *s, const ValueId *place)
{
    static const double a = -0.75, near[] = {a + 2, -(a + 3), 0, 1},
                        far[] = {a, -5 * a, 8 * a, -4 * a};
    Graph *g = s->g;
    ValueId at[SPATIAL][4], weight[SPATIAL][4];
    for (int d = 0; d < s->spatial; d++) {
        ValueId x = place[d], floor = g_unary(g, OP_Floor, x), t = g_sub(g, x, floor),
                one = g_like(g, x, 1), other = g_sub(g, one, t);
        weight[d][0] = cubic_of(g, g_add(g, t, one), far);
        weight[d][1] = cubic_of(g, t, near);
        weight[d][2] = cubic_of(g, other, near);
        weight[d][3] = cubic_of(g, g_add(g, other, one), far);
        for (int k = 0; k < 4; k++)
            at[d][k] = padded(s, g_add(g, floor, g_like(g, x, k - 1)), s->size[d]);
    }
    return weighted(s, 4, at, weight);
}

/* ---- GridSample ---- */

typedef ValueId Mode(const Sampler *s, const ValueId *place);

static Mode *mode_called(const Import *im, const char *name)
{
    static const struct {
        const char *name;
        Mode *mode;
    } modes[] = {
        {"linear", linear}, {"bilinear", linear}, {"nearest", nearest},
        {"cubic", cubic},   {"bicubic", cubic},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(name, modes[i].name))
            return modes[i].mode;
    low_fatal(im, -1, "mode '%.32s' is unknown", diag_escape(im->arena, name));
}

static Padding padding_called(const Import *im, const char *name)
{
    static const char *const names[] = {"zeros", "border", "reflection"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i]))
            return (Padding)i;
    low_fatal(im, -1, "padding_mode '%.32s' is unknown", diag_escape(im->arena, name));
}

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
        .padding = padding_called(im, im_str(im, "padding_mode", "zeros")),
    };
    Mode *mode = mode_called(im, im_str(im, "mode", im->opset < 20 ? "bilinear" : "linear"));
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
        if (size[2 + d] < 1 || places > INT32_MAX / size[2 + d])
            low_fatal(im, 1, "size %lld", (long long)size[2 + d]);
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
