/*
 * linear.c - VJP rules of products: MatMul, convolutions, pools.  Each is linear in either operand,
 * so its gradient is a product of the same family with the roles exchanged.
 */
#include "vjp.h"

static Shape rows_of(const Shape *s)
{
    return shape_of(2, shape_between(s, 0, s->rank - 1), s->d[s->rank - 1]);
}

static int64_t leading(const Shape *s) { return shape_between(s, 0, s->rank - 2); }

/* wide: of halves, in f32 */
static ValueId product(Graph *g, ValueId x, ValueId y, bool wide)
{
    return wide ? g_matmul_wide(g, x, y) : g_matmul(g, x, y);
}

/* sum over b of a[b]^T c[b] as one product over all rows: [rows, m]^T [rows, n] */
static ValueId product_over_rows(Graph *g, ValueId a, ValueId c, bool wide)
{
    Shape sa = rows_of(&val(g, a)->shape), sc = rows_of(&val(g, c)->shape);
    ValueId flat_a = g_reshape(g, a, &sa), flat_c = g_reshape(g, c, &sc);
    return product(g, g_swap_last(g, flat_a), flat_c, wide);
}

/* sum over b of dy[b] y[b]^T: [m, b n] [b n, k], for an x that every b shares */
static ValueId product_over_batch(Graph *g, ValueId dy, ValueId y, bool wide)
{
    Shape s = val(g, dy)->shape, t = val(g, y)->shape;
    int64_t b = leading(&s), m = s.d[s.rank - 2], n = s.d[s.rank - 1], k = t.d[t.rank - 2];
    int64_t front[3] = {1, 0, 2};
    Shape s3 = shape_of(3, b, m, n), t3 = shape_of(3, b, k, n), s2 = shape_of(2, m, b * n),
          t2 = shape_of(2, b * n, k);
    ValueId left = g_reshape(g, g_transpose(g, g_reshape(g, dy, &s3), front), &s2);
    ValueId right = g_reshape(g, g_swap_last(g, g_reshape(g, y, &t3)), &t2);
    return product(g, left, right, wide);
}

/* z = x y: dx = dz y^T, dy = x^T dz, summed over the leading dimensions that were broadcast.  A
   weight (y without leading dimensions) gets one product over all rows. */
void vjp_matmul(Vjp *v)
{
    Graph *g = v->g;
    ValueId x = v->in[0], y = v->in[1], dz = g_cast(g, v->dy[0], val(g, x)->dtype);
    Shape sx = *vjp_shape(v, x), sy = *vjp_shape(v, y);
    Shape sz = *vjp_shape(v, dz);
    int64_t nx = leading(&sx), ny = leading(&sy), nz = leading(&sz);
    if (v->want[0]) {
        if (nx == 1 && nz > 1 && ny == nz) {
            v->din[0] = g_reshape(g, product_over_batch(g, dz, y, v->wide[0]), &sx);
        } else {
            vjp_give(v, 0, product(g, dz, g_swap_last(g, y), v->wide[0]));
        }
    }
    if (v->want[1]) {
        if (ny == 1 && nx == nz)
            v->din[1] = g_reshape(g, product_over_rows(g, x, dz, v->wide[1]), &sy);
        else
            vjp_give(v, 1, product(g, g_swap_last(g, x), dz, v->wide[1]));
    }
}

/* Of attention all three at once; none of its bias and its mask. */
void vjp_flash_attention(Vjp *v)
{
    Graph *g = v->g;
    const Node n = *vjp_node(v);
    ValueId in[8] = {n.in[0], n.in[1], n.in[2], n.out[0], n.out[1]}, d;
    uint32_t nin = 6;
    in[5] = g_cast(g, v->dy[0], val(g, n.out[0])->dtype);
    for (uint32_t i = 3; i < n.nin; i++)
        in[nin++] = n.in[i];
    d = graph_node(g, OP_FlashAttentionGrad, nin, in, n.attr);
    for (uint32_t i = 0; i < 3; i++)
        if (v->want[i])
            vjp_give(v, i, graph_out(g, d, i));
}

/* By the user's own function, of all operands that it has one for. */
void vjp_custom(Vjp *v)
{
    Graph *g = v->g;
    const Node n = *vjp_node(v);
    const CustomAttr *c = n.attr.custom, *back = c->gradient;
    for (uint32_t i = 0, k = 0; i < n.nin; i++) {
        for (k = 0; back && k < back->nout && back->of[k] != i;)
            k++;
        if (!v->want[i] || (back && k < back->nout))
            continue;
        diag_hint("add gradient = FUNCTION(INPUT, ...) to its row, or use --stop-gradient NAME");
        diag_fatal(EXIT_MODEL, graph_where(g, n.origin, (int)i),
                   "a gradient is needed here, but the table of --ops names no function for it");
    }
    if (!back)
        return;
    ValueId *in = arena_array(g->arena, ValueId, n.nin + 2 * n.nout), d;
    for (uint32_t i = 0; i < n.nin; i++)
        in[i] = n.in[i];
    for (uint32_t o = 0; o < n.nout; o++) {
        ValueId y = n.out[o], dy = v->dy[o];
        in[n.nin + o] = y;
        in[n.nin + n.nout + o] =
            dy == NONE ? vjp_zeros_like(g, y) : g_cast(g, dy, val(g, y)->dtype);
    }
    d = graph_node(g, OP_Custom, n.nin + 2 * n.nout, in,
                   (Attr){.n = (int)back->nout, .custom = back});
    for (uint32_t k = 0; k < back->nout; k++)
        if (v->want[back->of[k]])
            vjp_give(v, back->of[k], graph_out(g, d, k));
}

static ValueId packed(Graph *g, ValueId x, ValueId y, ValueId mask, int axis, bool wide)
{
    ValueId in[3] = {x, y, mask};
    bool half = wide && dtype_is_half(val(g, x)->dtype);
    return graph_node(g, OP_PackedMatMul, 3, in,
                      (Attr){.axis = axis, .to = half ? DT_F32 : DT_NONE});
}

/* z = x y of the rows that are there: dx = dz y^T of these, dy = x^T dz over them.  Over a packed
   depth, which only gradients have: that of the rows of one factor is a product of rows. */
void vjp_packed_matmul(Vjp *v)
{
    Graph *g = v->g;
    ValueId x = v->in[0], y = v->in[1], mask = v->in[2],
            dz = g_cast(g, v->dy[0], val(g, x)->dtype);
    bool depth = vjp_node(v)->attr.axis == 1;
    if (v->want[0])
        v->din[0] = depth ? g_swap_last(g, packed(g, y, g_swap_last(g, dz), mask, 0, v->wide[0]))
                          : packed(g, dz, g_swap_last(g, y), mask, 0, v->wide[0]);
    if (v->want[1])
        v->din[1] = depth ? packed(g, g_swap_last(g, x), dz, mask, 0, v->wide[1])
                          : packed(g, g_swap_last(g, x), dz, mask, 1, v->wide[1]);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* Dimensions from that one on; the spatial ones from 2. */
static const int64_t *dims_from(Graph *g, const Shape *s, int from)
{
    int64_t *d = vjp_ints(g, s->rank - from);
    for (int i = from; i < s->rank; i++)
        d[i - from] = s->d[i];
    return d;
}

/* x from the result of a convolution: the transpose of Conv in its first operand */
static ValueId conv_back(Graph *g, ValueId dy, ValueId w, Attr at, const Shape *x)
{
    ValueId in[2] = {dy, w};
    at.out_dims = dims_from(g, x, 2);
    return graph_node(g, OP_ConvTranspose, 2, in, at);
}

static ValueId conv_weight(Graph *g, ValueId x, ValueId dy, Attr at, const Shape *w)
{
    ValueId in[2] = {x, dy};
    at.weight_dims = dims_from(g, w, 0);
    return graph_node(g, OP_ConvWeightGrad, 2, in, at);
}

/* Conv, cut to the spatial dims wanted: a ConvTranspose with output padding beyond the stride
 * leaves more. */
static ValueId conv_to(Graph *g, ValueId x, ValueId w, Attr at, const Shape *want)
{
    ValueId in[2] = {x, w};
    at.out_dims = NULL;
    ValueId y = graph_node(g, OP_Conv, 2, in, at);
    for (int i = 2; i < want->rank; i++)
        if (val(g, y)->shape.d[i] > want->d[i])
            y = g_slice_axis(g, y, i, 0, want->d[i]);
    return y;
}

/* y = conv(x, w): dx = conv_transpose(dy, w), dw = the correlation of x and dy */
void vjp_conv(Vjp *v)
{
    Graph *g = v->g;
    Attr at = vjp_node(v)->attr;
    Shape x = *vjp_shape(v, v->in[0]), w = *vjp_shape(v, v->in[1]);
    if (v->want[0])
        v->din[0] = conv_back(g, v->dy[0], v->in[1], at, &x);
    if (v->want[1])
        v->din[1] = conv_weight(g, v->in[0], v->dy[0], at, &w);
}

/* y = conv_transpose(x, w): y is what a convolution would have read and x what it would have made:
   dx = conv(dy, w), dw = the correlation of dy and x */
void vjp_conv_transpose(Vjp *v)
{
    Graph *g = v->g;
    Attr at = vjp_node(v)->attr;
    Shape x = *vjp_shape(v, v->in[0]), w = *vjp_shape(v, v->in[1]);
    if (v->want[0])
        v->din[0] = conv_to(g, v->dy[0], v->in[1], at, &x);
    if (v->want[1])
        v->din[1] = conv_weight(g, v->dy[0], v->in[0], at, &w);
}

/* dw = correlation(x, e), linear in both: dx = conv_transpose(e, ddw), de = conv(x, ddw) */
void vjp_conv_weight_grad(Vjp *v)
{
    Graph *g = v->g;
    Attr at = vjp_node(v)->attr;
    Shape x = *vjp_shape(v, v->in[0]), e = *vjp_shape(v, v->in[1]);
    ValueId ddw = g_cast(g, v->dy[0], val(g, v->in[0])->dtype);
    if (v->want[0])
        v->din[0] = conv_back(g, v->in[1], ddw, at, &x);
    if (v->want[1])
        v->din[1] = conv_to(g, v->in[0], ddw, at, &e);
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* y = x[indices]: dx = dy added at the indices of the flat x; windows may overlap */
void vjp_max_pool(Vjp *v)
{
    Graph *g = v->g;
    if (v->dy[0] == NONE)
        return;
    Value x = *val(g, v->in[0]);
    Shape flat = shape_of(1, shape_elements(&x.shape)),
          m = shape_of(1, shape_elements(vjp_shape(v, v->dy[0])));
    const ValueId into = vjp_zeros(g, x.dtype, &flat, x.batch == 0 ? 0 : BATCH_NONE),
                  index = g_reshape(g, v->out[1], &m), dy = g_reshape(g, v->dy[0], &m),
                  d = vjp_scatter_into(g, OP_ScatterElements, into, index, dy, 0, SCATTER_ADD);
    v->din[0] = g_reshape(g, d, &x.shape);
}

/* 1 / how many elements the window of output o averages, along one axis */
static int64_t window(const Attr *at, int i, int64_t o, int64_t extent)
{
    int64_t start = o * at->stride[i] - at->pad[i], count = 0, end = extent + at->pad[at->n + i];
    for (int64_t j = 0; j < at->kernel[i]; j++) {
        int64_t p = start + j * at->dilation[i];
        count += at->count_include_pad ? p < end : p >= 0 && p < extent;
    }
    return count;
}

/* y = the mean of a window: dx = conv_transpose(dy / count, ones), channel by channel.  The counts
   differ at the borders and are a constant map [1, 1, spatial]. */
void vjp_average_pool(Vjp *v)
{
    Graph *g = v->g;
    Attr at = vjp_node(v)->attr;
    Shape x = *vjp_shape(v, v->in[0]), y = *vjp_shape(v, v->dy[0]);
    Dtype t = val(g, v->dy[0])->dtype;
    Shape map = y, kernel = x;
    map.d[0] = map.d[1] = 1;
    kernel.d[0] = x.d[1];
    kernel.d[1] = 1;
    for (int i = 0; i < at.n; i++)
        kernel.d[i + 2] = at.kernel[i];
    int64_t n = shape_elements(&map), m = shape_elements(&kernel);
    double *count = arena_array(g->arena, double, n), *ones = arena_array(g->arena, double, m);
    for (int64_t j = 0; j < n; j++) {
        int64_t rest = j, product = 1;
        for (int i = at.n - 1; i >= 0; i--) {
            product *= window(&at, i, rest % y.d[i + 2], x.d[i + 2]);
            rest /= y.d[i + 2];
        }
        count[j] = product > 0 ? 1 / (double)product : 0;
    }
    for (int64_t j = 0; j < m; j++)
        ones[j] = 1;
    ValueId inverse = g_cast(g, graph_const(g, NULL, (Tensor){DT_F64, map, count}), t);
    ValueId w = g_cast(g, graph_const(g, NULL, (Tensor){DT_F64, kernel, ones}), t);
    Attr back = {
        .group = x.d[1], .n = at.n, .stride = at.stride, .dilation = at.dilation, .pad = at.pad};
    v->din[0] = conv_back(g, g_mul(g, v->dy[0], inverse), w, back, &x);
}
