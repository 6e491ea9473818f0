/*
 * select.c - elements picked, put and folded by position: CumProd, ReverseSequence, Compress,
 * CenterCropPad, TensorScatter, Col2Im, MaxUnpool, Det.  In: the ONNX nodes.  Out: slices, gathers,
 * scatters and sums whose shapes are static.
 */
#include "frontend/ragged/ragged.h"

#include <string.h>

/* ---- along one axis ---- */

/* One product after the other, as the definition multiplies; a zero has its gradient. */
void import_cumprod(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0), last = NONE;
    Shape s = low_need_rank(im, 0, 1, MAX_RANK);
    int axis = low_axis(im, im_const_int(im, 1, 0), s.rank);
    bool reverse = im_int(im, "reverse", 0) != 0, exclusive = im_int(im, "exclusive", 0) != 0;
    int64_t n = s.d[axis];
    if (n == 0) {
        im->out[0] = x;
        return;
    }
    low_limit_nodes(im, n, 3, "factors");
    ValueId *part = arena_array(im->arena, ValueId, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = reverse ? n - 1 - i : i;
        ValueId here = g_slice_axis(g, x, axis, at, 1);
        if (exclusive)
            part[at] =
                last == NONE ? g_where(g, g_scalar(g, DT_BOOL, 0), here, g_like(g, x, 1)) : last;
        last = last == NONE ? here : g_mul(g, last, here);
        if (!exclusive)
            part[at] = last;
    }
    im->out[0] = n == 1 ? part[0] : g_concat(g, (uint32_t)n, part, axis);
}

/* The first lens[b] steps of sample b backwards, the others as they are. */
void import_reverse_sequence(Import *im)
{
    Graph *g = im->g;
    Shape s = low_need_rank(im, 0, 2, MAX_RANK), lens = low_need_rank(im, 1, 1, 1);
    int batch = low_axis(im, im_int(im, "batch_axis", 1), s.rank),
        time = low_axis(im, im_int(im, "time_axis", 0), s.rank);
    if (batch == time || lens.d[0] != s.d[batch])
        low_fatal(im, 1, "one length for each of %lld samples is needed", (long long)s.d[batch]);
    ValueId n = low_line(g, g_cast(g, im->in[1], DT_I64), batch, s.rank),
            t = g_iota(g, DT_I64, s.rank, time, s.d[time]);
    ValueId index = g_expand(g, g_formula(g, "n, t: t < n ? n - 1 - t : t", n, t), &s);
    im->out[0] =
        graph_node(g, OP_GatherElements, 2, (ValueId[]){im->in[0], index}, (Attr){.axis = time});
}

/* Where the condition is true; it must be known. */
void import_compress(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x), flat = {1, {shape_elements(&s)}};
    ValueId condition = low_need(im, 1);
    int64_t n = low_need_rank(im, 1, 1, 1).d[0];
    int axis = im_has(im, "axis") ? low_axis(im, im_int(im, "axis", 0), s.rank) : -1;
    if (axis < 0)
        x = g_reshape(g, x, &flat), axis = 0, s = flat;
    if (low_dtype(g, condition) != DT_BOOL)
        low_fatal(im, 1, "a bool operand is needed, not %s", dtype_name(low_dtype(g, condition)));
    if (n > s.d[axis])
        low_fatal(im, 1, "%lld conditions for a dim of %lld", (long long)n, (long long)s.d[axis]);
    x = n < s.d[axis] ? g_slice_axis(g, x, axis, 0, n) : x;
    ragged_set_picked(im, 0, x, condition, axis, false);
}

/* ---- to another size ---- */

void import_center_crop_pad(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need(im, 0);
    Shape s = low_shape(g, x);
    int64_t *want, *axes, n, start[MAX_RANK] = {0}, begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    int named;
    im_const_ints(im, 1, &want, &n);
    bool some = im_ints(im, "axes", &axes, &named);
    if (n != (some ? named : s.rank))
        low_fatal(im, 1, "%lld sizes for %d dims", (long long)n, some ? named : s.rank);
    const int *which = low_which(im, some ? axes : NULL, n, s.rank);
    for (int64_t i = 0; i < n; i++) {
        int d = which[i];
        if (want[i] < 0)
            low_fatal(im, 1, "size %lld", (long long)want[i]);
        int64_t more = want[i] - s.d[d];
        if (more < 0)
            start[d] = -more / 2, s.d[d] = want[i];
        else
            begin[d] = more / 2, end[d] = more - more / 2;
    }
    im->out[0] = g_pad(g, g_slice(g, x, start, s.d, NULL), begin, end, PAD_CONSTANT, 0);
}

/* A cache in which each sample's update stands from its index on. */
void import_tensor_scatter(Import *im)
{
    Graph *g = im->g;
    Shape past = low_need_rank(im, 0, 2, MAX_RANK), s = low_need_rank(im, 1, past.rank, past.rank);
    int axis = low_axis(im, im_int(im, "axis", -2), past.rank);
    bool circular = low_choice(im, "mode", "linear", "linear circular");
    for (int d = 0; d < s.rank; d++)
        if (axis == 0 || (d == axis ? s.d[d] > past.d[d] : s.d[d] != past.d[d]))
            low_fatal(im, 1, "%s does not fit the cache",
                      shape_print(im->arena, low_dtype(g, im->in[1]), &s));
    ValueId at = g_iota(g, DT_I64, s.rank, axis, s.d[axis]);
    if (im_in(im, 2) != NONE)
        at = g_add(g, at, low_line(g, g_cast(g, im->in[2], DT_I64), 0, s.rank));
    if (circular)
        at = g_binary(g, OP_Mod, at, g_like(g, at, (double)past.d[axis]));
    im->out[0] =
        graph_node(g, OP_ScatterElements, 3, (ValueId[]){im->in[0], g_expand(g, at, &s), im->in[1]},
                   (Attr){.axis = axis, .reduction = SCATTER_NONE});
}

/* ---- Col2Im ---- */

/* What sizes are computed with: their products fit. */
static void need_sizes(const Import *im, int input, int n, const int64_t *at, int64_t least)
{
    for (int i = 0; i < n; i++)
        if (at[i] < least || at[i] > INT32_MAX)
            low_fatal(im, input, "%lld is no size", (long long)at[i]);
}

/* `stride` - 1 zeros between the elements of dim d. */
static ValueId spread(Graph *g, ValueId x, int d, int64_t stride)
{
    int64_t zeros[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    Shape s = low_shape(g, x);
    if (stride == 1)
        return x;
    x = low_unsqueeze(g, x, d + 1);
    end[d + 1] = stride - 1;
    x = g_pad(g, x, zeros, end, PAD_CONSTANT, 0);
    s.d[d] *= stride;
    return g_slice_axis(g, g_reshape(g, x, &s), d, 0, s.d[d] - stride + 1);
}

typedef struct {
    int64_t *image, *block, *stride, *dilation, *pad, places;
    int n;
} Blocks;

static Blocks blocks_of(const Import *im, int64_t *step)
{
    Blocks b = {.places = 1};
    int64_t n, m;
    im_const_ints(im, 1, &b.image, &n);
    im_const_ints(im, 2, &b.block, &m);
    if (n < 1 || n != m || n > MAX_RANK - 2)
        low_fatal(im, 1, "an image of %lld dims and blocks of %lld", (long long)n, (long long)m);
    b.n = (int)n;
    need_sizes(im, 1, b.n, b.image, 0);
    need_sizes(im, 2, b.n, b.block, 1);
    b.stride = low_numbers(im, "strides", b.n, 1, 1);
    b.dilation = low_numbers(im, "dilations", b.n, 1, 1);
    b.pad = low_numbers(im, "pads", 2 * b.n, 0, 0);
    for (int d = 0; d < b.n; d++) {
        int64_t whole = b.image[d] + b.pad[d] + b.pad[b.n + d],
                span = b.dilation[d] * (b.block[d] - 1) + 1;
        if (span > whole)
            low_fatal(im, 2, "a block of %lld in a dim of %lld", (long long)b.block[d],
                      (long long)whole);
        step[d] = (whole - span) / b.stride[d] + 1;
        b.places *= b.block[d];
        low_limit_nodes(im, b.places, 2, "places of a block");
    }
    return b;
}

/* Every place of a block is an image of its own, spread and shifted; they are added in order. */
void import_col2im(Import *im)
{
    Graph *g = im->g;
    int64_t step[MAX_RANK], steps = 1;
    Shape s = low_need_rank(im, 0, 3, 3);
    Blocks b = blocks_of(im, step);
    Shape apart = {.rank = b.n + 3}, one = {.rank = b.n + 2};
    for (int d = 0; d < b.n; d++) {
        apart.d[3 + d] = one.d[2 + d] = step[d];
        if (__builtin_mul_overflow(steps, step[d], &steps))
            low_fatal(im, 1, "more steps than 63 bits count");
    }
    if (s.d[1] % b.places || s.d[2] != steps || apart.rank > MAX_RANK)
        low_fatal(im, 0, "%s: blocks of %lld places at %lld steps",
                  shape_print(im->arena, low_dtype(g, im->in[0]), &s), (long long)b.places,
                  (long long)steps);
    apart.d[0] = one.d[0] = s.d[0], apart.d[1] = one.d[1] = s.d[1] / b.places,
    apart.d[2] = b.places;
    ValueId x = g_reshape(g, im->in[0], &apart), y = NONE;
    for (int64_t k = 0; k < b.places; k++) {
        int64_t begin[MAX_RANK] = {0}, end[MAX_RANK] = {0}, rest = k;
        ValueId v = g_reshape(g, g_slice_axis(g, x, 2, k, 1), &one);
        for (int d = b.n - 1; d >= 0; rest /= b.block[d--]) {
            v = spread(g, v, 2 + d, b.stride[d]);
            begin[2 + d] = rest % b.block[d] * b.dilation[d];
            end[2 + d] =
                b.image[d] + b.pad[d] + b.pad[b.n + d] - begin[2 + d] - low_shape(g, v).d[2 + d];
        }
        v = g_pad(g, v, begin, end, PAD_CONSTANT, 0);
        y = low_plus(g, y, v);
    }
    for (int d = 0; d < b.n; d++)
        y = g_slice_axis(g, y, 2 + d, b.pad[d], b.image[d]);
    im->out[0] = y;
}

/* ---- MaxUnpool ---- */

/* The index counts through the whole tensor that was pooled, whose size follows from the window;
   with output_shape it is that place of a larger one. */
void import_max_unpool(Import *im)
{
    Graph *g = im->g;
    Shape s = low_need_rank(im, 0, 3, MAX_RANK), to = s, flat = {3, {s.d[0], s.d[1], 1}};
    int n = s.rank - 2;
    int64_t pooled[MAX_RANK], inside = 1, outside = 1, *given, count;
    const int64_t *kernel = low_numbers(im, "kernel_shape", n, 0, 1);
    need_sizes(im, 0, s.rank, s.d, 1);
    const int64_t *stride = low_numbers(im, "strides", n, 1, 0),
                  *pad = low_numbers(im, "pads", 2 * n, 0, 0);
    for (int d = 0; d < n; d++)
        pooled[d] = to.d[2 + d] = (s.d[2 + d] - 1) * stride[d] + kernel[d] - pad[d] - pad[n + d];
    if (im_in(im, 2) != NONE) {
        im_const_ints(im, 2, &given, &count);
        for (int d = 0; d < n && count == s.rank; d++)
            to.d[2 + d] = given[2 + d];
        need_sizes(im, 2, n, to.d + 2, 0);
    }
    for (int d = 0; d < n; d++)
        if (pooled[d] < 1 || to.d[2 + d] < pooled[d] || to.d[2 + d] < s.d[2 + d])
            low_fatal(im, 2, "a size of %lld, %lld is needed", (long long)to.d[2 + d],
                      (long long)pooled[d]);
    int64_t all = shape_elements(&to); /* none of these products is larger */
    for (int d = 0; d < n; d++)
        flat.d[2] *= s.d[2 + d], inside *= pooled[d], outside *= to.d[2 + d];
    ValueId x = g_reshape(g, im->in[0], &flat), i = g_reshape(g, low_need(im, 1), &flat), at = NONE;
    i = g_formula(g, "i, double n: i % n", i, (double)inside);
    for (int d = 0; d < n; d++) {
        inside /= pooled[d], outside /= to.d[2 + d];
        at = low_plus(g, at,
                      g_formula(g, "i, double from, double to: i / from * to", i, (double)inside,
                                (double)outside));
        i = g_formula(g, "i, double n: i % n", i, (double)inside);
    }
    int64_t begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    end[2] = all / (s.d[0] * s.d[1]) - flat.d[2];
    ValueId zeros = g_pad(g, low_zeros_like(g, x), begin, end, PAD_CONSTANT, 0);
    ValueId y = graph_node(g, OP_ScatterElements, 3, (ValueId[]){zeros, at, x},
                           (Attr){.axis = 2, .reduction = SCATTER_NONE});
    im->out[0] = g_reshape(g, y, &to);
}

/* ---- Det ---- */

enum { LARGEST_MINORS = 5, LARGEST_DET = 64 };

/* Of the rows from `row` on and the columns that are not in `used`: along the first of them. */
static ValueId minor(Graph *g, ValueId x, int row, int n, unsigned used)
{
    ValueId sum = NONE;
    int sign = 1, last = low_shape(g, x).rank - 1;
    if (row == n)
        return NONE;
    for (int c = 0; c < n; c++) {
        if (used & 1u << c)
            continue;
        ValueId at = g_slice_axis(g, g_slice_axis(g, x, last - 1, row, 1), last, c, 1),
                rest = minor(g, x, row + 1, n, used | 1u << c);
        ValueId term = rest == NONE ? at : g_mul(g, at, rest);
        sum = sum == NONE ? term : sign > 0 ? g_add(g, sum, term) : g_sub(g, sum, term);
        sign = -sign;
    }
    return sum;
}

/* The row or column of x at which `is` is true. */
static ValueId at_place(Graph *g, ValueId x, ValueId is, int axis)
{
    return g_reduce(g, OP_ReduceSum, g_where(g, is, x, g_like(g, x, 0)), 1, (int64_t[]){axis});
}

/* x without it: the first one stands there. */
static ValueId but_place(Graph *g, ValueId x, ValueId is, int axis, int64_t n)
{
    return g_slice_axis(g, g_where(g, is, g_slice_axis(g, x, axis, 0, 1), x), axis, 1, n - 1);
}

/*
 * Gaussian elimination with complete pivoting (Golub and Van Loan, Matrix Computations, 3.4): the
 * product of the pivots, each with the sign of its exchanges.  One is 0 where all that is left is:
 * then the gradient is the one of the cofactors, those of a singular matrix too.
 */
static ValueId pivots(Graph *g, ValueId x, int64_t n)
{
    int row = low_shape(g, x).rank - 2, column = row + 1;
    ValueId product = NONE;
    for (; n > 0; n--) {
        ValueId size = g_reduce(g, OP_ReduceMax, g_unary(g, OP_Abs, x), 1, (int64_t[]){column}),
                down = graph_node(g, OP_ArgMax, 1, &size, (Attr){.axis = row}),
                is = g_binary(g, OP_Equal, g_iota(g, DT_I64, row + 2, row, n), down),
                best = at_place(g, x, is, row), of = g_unary(g, OP_Abs, best),
                along = graph_node(g, OP_ArgMax, 1, &of, (Attr){.axis = column}),
                here = g_binary(g, OP_Equal, g_iota(g, DT_I64, row + 2, column, n), along),
                pivot = at_place(g, best, here, column);
        ValueId factor = g_formula(
            g, "p, down, along: moved = down > 0 ? Neg(p) : p; along > 0 ? Neg(moved) : moved",
            pivot, down, along);
        product = product == NONE ? factor : g_mul(g, product, factor);
        if (n == 1)
            break;
        ValueId none = g_binary(g, OP_Equal, pivot, g_like(g, pivot, 0)),
                others = but_place(g, x, is, row, n);
        ValueId times = g_div(g, at_place(g, others, here, column),
                              g_where(g, none, g_like(g, pivot, 1), pivot));
        x = g_sub(g, but_place(g, others, here, column, n),
                  g_mul(g, times, but_place(g, best, here, column, n)));
    }
    return product;
}

void import_det(Import *im)
{
    Shape s = low_need_rank(im, 0, 2, MAX_RANK), to = s;
    low_need_float(im, 0);
    int64_t n = s.d[s.rank - 1];
    if (s.d[s.rank - 2] != n || n < 1 || n > LARGEST_DET)
        low_fatal(im, 0, "the determinant of %s: square matrices up to %d are supported",
                  shape_print(im->arena, low_dtype(im->g, im->in[0]), &s), LARGEST_DET);
    to.rank -= 2;
    ValueId x = im->in[0];
    x = n > LARGEST_MINORS ? pivots(im->g, x, n) : minor(im->g, x, 0, (int)n, 0);
    im->out[0] = g_reshape(im->g, x, &to);
}
