/*
 * norm.c - normalisations and Dropout to core ops.  All are instances of one pattern: a mean
 * over some axes, the mean of the squared differences from it (never E[x^2] - E[x]^2, which
 * cancels), 1 / Sqrt(var + eps), a scale and a shift.  Computation is in the operand's type, or in
 * f32 where that is a half: the result alone is rounded, as in PyTorch (stash_type is not used).
 */
#include "frontend/names/names.h"
#include "frontend/low/low.h"

#include <math.h>
#include <string.h>

typedef struct {
    ValueId mean, diff, var, rstd;
} Moments;

static ValueId rsqrt(Graph *g, ValueId var, double eps)
{
    return g_formula(g, "v, double eps: 1 / Sqrt(v + eps)", var, eps);
}

/* about_mean: not so, RMSNormalization takes x for the difference. */
static Moments moments(Graph *g, ValueId x, int n, const int64_t *axes, double eps, bool about_mean)
{
    Moments m = {.mean = NONE, .diff = x};
    if (about_mean) {
        m.mean = g_mean(g, x, n, axes);
        m.diff = g_sub(g, x, m.mean);
    }
    m.var = g_mean(g, low_square(g, m.diff), n, axes);
    m.rstd = rsqrt(g, m.var, eps);
    return m;
}

/* All axes from first on. */
static int64_t *axes_from(const Import *im, int first, int rank, int *n)
{
    int64_t *axes = arena_array(im->arena, int64_t, rank + 1);
    *n = 0;
    for (int d = first; d < rank; d++)
        axes[(*n)++] = d;
    return axes;
}

/* y * scale + shift, where they are given, in x's type. */
static ValueId affine(Graph *g, ValueId y, ValueId scale, ValueId shift)
{
    Dtype t = low_dtype(g, y);
    if (scale != NONE)
        y = g_mul(g, y, g_cast(g, scale, t));
    if (shift != NONE)
        y = g_add(g, y, g_cast(g, shift, t));
    return y;
}

/* LayerNormalization and RMSNormalization, over the dims from the axis on. */
void import_layer_normalization(Import *im)
{
    Graph *g = im->g;
    const bool layer = im->op == OP_LayerNormalization;
    ValueId x = low_need_wide(im, 0), scale = low_need(im, 1), shift = layer ? im_in(im, 2) : NONE;
    Shape s = low_shape(g, x);
    int n, axis = low_axis(im, im_int(im, "axis", -1), s.rank);
    int64_t *axes = axes_from(im, axis, s.rank, &n);
    for (uint32_t i = 1; i < (layer ? 3 : 2); i++)
        low_fits(im, i, s);
    Moments m = moments(g, x, n, axes, im_float(im, "epsilon", 1e-5), layer);
    im->out[0] = low_narrow(im, affine(g, g_mul(g, m.diff, m.rstd), scale, shift));
    if (layer && im_wanted(im, 1))
        im->out[1] = m.mean;
    if (layer && im_wanted(im, 2))
        im->out[2] = m.rstd;
}

/* GroupNormalization and InstanceNormalization, in which each channel is a group.  Opset 18 has a
 * scale for each group, 21 one for each channel. */
void import_group_normalization(Import *im)
{
    Graph *g = im->g;
    const bool instance = im->op == OP_InstanceNormalization,
               by_group = !instance && im->opset < 21;
    ValueId x = low_need_wide(im, 0);
    Shape s = low_need_rank(im, 0, instance ? 3 : 2, MAX_RANK), grouped = s;
    int64_t groups = instance ? s.d[1] : im_int(im, "num_groups", 0);
    if (!instance && (groups < 1 || s.d[1] % groups))
        low_fatal(im, -1, "%lld channels in %lld groups", (long long)s.d[1], (long long)groups);
    if (!instance)
        grouped = shape_of(3, s.d[0], groups, shape_between(&s, 1, s.rank) / groups);
    int n, rank = by_group ? 3 : s.rank;
    int64_t *axes = axes_from(im, 2, grouped.rank, &n), channels = by_group ? groups : s.d[1];
    Moments m = moments(g, g_reshape(g, x, &grouped), n, axes, im_float(im, "epsilon", 1e-5), true);
    ValueId y = g_mul(g, m.diff, m.rstd);
    y = affine(g, by_group ? y : g_reshape(g, y, &s), low_channels(im, 1, channels, rank),
               low_channels(im, 2, channels, rank));
    im->out[0] = low_narrow(im, g_reshape(g, y, &s));
}

/* (x - mean) / (Sqrt(var) + 1e-9). */
void import_mean_variance_normalization(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    int rank = low_shape(g, x).rank, n;
    int64_t dflt[] = {0, 2, 3}, *given = dflt;
    if (!im_ints(im, "axes", &given, &n))
        n = 3;
    int64_t *axes = low_axes(im, given, n, rank);
    if (n == 0)
        axes = axes_from(im, 0, rank, &n);
    Moments m = moments(g, x, n, axes, 0, true);
    im->out[0] = g_formula(g, "d, dev: d / (dev + 1e-9)", m.diff, low_safe_sqrt(g, m.var));
}

/* x / (bias + alpha / size * sum of squares over size neighbouring channels) ^ beta. */
void import_lrn(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    Shape s = low_need_rank(im, 0, 2, MAX_RANK);
    int64_t size = im_int(im, "size", 0), begin[MAX_RANK] = {0}, end[MAX_RANK] = {0};
    double alpha = im_float(im, "alpha", 1e-4), beta = im_float(im, "beta", 0.75),
           bias = im_float(im, "bias", 1);
    if (size < 1 || size > 1024)
        low_fatal(im, -1, "a size of %lld", (long long)size);
    begin[1] = (size - 1) / 2;
    end[1] = size - 1 - begin[1];
    ValueId padded = g_pad(g, low_square(g, x), begin, end, PAD_CONSTANT, 0), sum = NONE;
    for (int64_t i = 0; i < size; i++)
        sum = low_plus(g, sum, g_slice_axis(g, padded, 1, i, s.d[1]));
    im->out[0] =
        g_formula(g, "x, sum, double a, double bias, double beta: x * Pow(sum * a + bias, -beta)",
                  x, sum, alpha / (double)size, bias, beta);
}

/* x by its largest element (p 0), its sum of absolute values or its length along an axis; where
 * that is 0, x. */
static ValueId by_norm(Graph *g, ValueId x, int64_t axis, int64_t p)
{
    ValueId norm = p == 0 ? g_reduce(g, OP_ReduceMax, x, 1, &axis)
                          : g_reduce(g, OP_ReduceSum,
                                     p == 1 ? g_unary(g, OP_Abs, x) : low_square(g, x), 1, &axis);
    return g_div(g, x, low_not_zero(g, p == 2 ? low_safe_sqrt(g, norm) : norm));
}

void import_lp_normalization(Import *im)
{
    ValueId x = low_need_float(im, 0);
    int64_t axis = low_axis(im, im_int(im, "axis", -1), low_shape(im->g, x).rank),
            p = im_int(im, "p", 2);
    if (p != 1 && p != 2)
        low_fatal(im, -1, "p must be 1 or 2");
    im->out[0] = by_norm(im->g, x, axis, p);
}

/* ---- preprocessing of domain ai.onnx.ml: rows of features, or one row, to f32 ---- */

void import_normalizer(Import *im)
{
    const int last = low_need_rank(im, 0, 1, 2).rank - 1;
    ValueId x = g_cast(im->g, im->in[0], DT_F32);
    im->declared = DT_F32;
    im->out[0] = by_norm(im->g, x, last, low_choice(im, "norm", "MAX", "MAX L1 L2"));
}

/* A number for all features, or one for each, in x's type. */
static ValueId for_features(const Import *im, const char *name, ValueId x)
{
    double *at;
    int count = 0;
    const Shape s = low_shape(im->g, x);
    if (!im_floats(im, name, &at, &count) || (count != 1 && count != s.d[s.rank - 1]))
        low_fatal(im, -1,
                  "attribute '%s' has %d numbers, one or one for each of %lld features are needed",
                  name, count, (long long)s.d[s.rank - 1]);
    ValueId v = low_const_doubles(im->g, DT_F32, count == 1 ? (Shape){0} : (Shape){1, {count}}, at);
    return g_cast(im->g, v, low_dtype(im->g, x));
}

void import_scaler(Import *im)
{
    Graph *g = im->g;
    low_need_rank(im, 0, 1, 2);
    ValueId x = low_dtype(g, im->in[0]) == DT_F64 ? im->in[0] : g_cast(g, im->in[0], DT_F32);
    x = g_formula(g, "x, offset, scale: (x - offset) * scale", x, for_features(im, "offset", x),
                  for_features(im, "scale", x));
    im->declared = DT_F32;
    im->out[0] = g_cast(g, x, DT_F32);
}

/* ---- BatchNormalization ---- */

/* old * momentum + (1 - momentum) * batch, as a flat [C]. */
static ValueId running(Graph *g, ValueId old, ValueId batch, double momentum)
{
    Shape s = low_shape(g, old);
    batch = g_cast(g, g_reshape(g, batch, &s), low_dtype(g, old));
    return g_formula(g, "old, new, double m: old * m + new * (1 - m)", old, batch, momentum);
}

/* A statistic of a half type is kept in f32. */
static ValueId kept(const Graph *g, ValueId stat)
{
    const Node *n = graph_maker(g, stat);
    bool copy = n && n->op == OP_Cast && val(g, n->in[0])->kind == V_PARAM;
    return copy ? n->in[0] : stat;
}

static void update(Graph *g, ValueId stat, ValueId value)
{
    Value v = *val(g, stat);
    if (v.kind != V_PARAM)
        return;
    g->param.at[v.param].stat = true;
    g->param.at[v.param].trainable = false;
    vec_push(g->arena, &g->update, ((StatUpdate){v.param, value}));
}

/* The variance that PyTorch keeps: n / (n - 1) times that which normalises; n depends on the rows.
 */
static ValueId unbiased(Graph *g, ValueId x, ValueId var, int n, const int64_t *axes)
{
    Attr attr = {.n = n, .axes = axes, .to = low_dtype(g, x)};
    ValueId count = graph_node(g, OP_Count, 1, &x, attr);
    return g_formula(g, "var, n: var * (n / Max(n - 1, 1))", var, count);
}

static ValueId train_form(Import *im, ValueId x, int rank, int64_t channels, double eps,
                          double momentum)
{
    Graph *g = im->g;
    int64_t *axes = arena_array(g->arena, int64_t, rank);
    int n = 0;
    for (int d = 0; d < rank; d++)
        if (d != 1)
            axes[n++] = d;
    Moments m = moments(g, x, n, axes, eps, true);
    ValueId mean = kept(g, im->in[3]), var = kept(g, im->in[4]);
    update(g, mean, running(g, mean, m.mean, momentum));
    ValueId seen = im->biased ? m.var : unbiased(g, x, m.var, n, axes);
    update(g, var, running(g, var, seen, momentum));
    /* The standard's outputs keep the biased variance; PyTorch's statistic is the update above. */
    if (im_wanted(im, 1))
        im->out[1] = running(g, im->in[3], m.mean, momentum);
    if (im_wanted(im, 2))
        im->out[2] = running(g, im->in[4], m.var, momentum);
    if (im_wanted(im, 3))
        im->out[3] = low_narrow(im, g_reshape(g, m.mean, &(Shape){1, {channels}}));
    if (im_wanted(im, 4))
        im->out[4] = low_narrow(im, g_reshape(g, m.var, &(Shape){1, {channels}}));
    return affine(g, g_mul(g, m.diff, m.rstd), low_channels(im, 1, channels, rank),
                  low_channels(im, 2, channels, rank));
}

static ValueId eval_form(Import *im, ValueId x, int rank, int64_t channels, double eps)
{
    Graph *g = im->g;
    Dtype t = low_dtype(g, x);
    ValueId mean = g_cast(g, low_channels(im, 3, channels, rank), t),
            var = g_cast(g, low_channels(im, 4, channels, rank), t);
    ValueId y = g_mul(g, g_sub(g, x, mean), rsqrt(g, var, eps));
    return affine(g, y, low_channels(im, 1, channels, rank), low_channels(im, 2, channels, rank));
}

void import_batch_normalization(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_wide(im, 0);
    Shape s = low_need_rank(im, 0, 2, MAX_RANK);
    double eps = im_float(im, "epsilon", 1e-5), momentum = im_float(im, "momentum", 0.9);
    if (im_int(im, "spatial", 1) != 1)
        low_fatal(im, -1, "spatial = 0 is not supported");
    if (im->opset >= 14 && (im_wanted(im, 3) || im_wanted(im, 4))) {
        diag_hint("TorchScript writes this for an InstanceNorm that trains and keeps running "
                  "statistics: export it with track_running_stats=False");
        low_fatal(im, -1, "results 4 and 5 were statistics of the batch up to opset 13");
    }
    bool trains = meta_trains_norm(im->node);
    for (uint32_t i = 1; i < im->nout && im->opset < 14; i++)
        trains = trains || im_wanted(im, i);
    ValueId eval = eval_form(im, x, s.rank, s.d[1], eps);
    im->out[0] = low_narrow(im, eval);
    if (trains && im->training) {
        ValueId in[2] = {train_form(im, x, s.rank, s.d[1], eps, momentum), eval};
        im->out[0] = low_narrow(im, graph_node(g, OP_Phase, 2, in, (Attr){0}));
    } else { /* statistics that nothing moves, if a file names them */
        for (uint32_t i = 1; i < im->nout && i < 5; i++)
            im->out[i] = im->in[i % 2 ? 3 : 4];
    }
}

/* ---- Dropout ---- */

static ValueId all_true(Graph *g, ValueId x, Dtype t)
{
    return g_cast(g, g_binary(g, OP_Equal, low_zeros_like(g, x), g_like(g, x, 0)), t);
}

/* y = x * mask / (1 - ratio) in training, x in eval and infer.  Returns the Dropout. */
static ValueId drop(const Import *im, ValueId x, double ratio, ValueId *y)
{
    Graph *g = im->g;
    ValueId d = graph_node(g, OP_Dropout, 1, &x, (Attr){.ratio = ratio, .key = g->numbers.draws++});
    ValueId in[2] = {d, x};
    *y = graph_node(g, OP_Phase, 2, in, (Attr){0});
    return d;
}

ValueId low_drop(const Import *im, ValueId x, double ratio)
{
    if (ratio == 1) {
        ValueId in[2] = {low_zeros_like(im->g, x), x};
        return graph_node(im->g, OP_Phase, 2, in, (Attr){0});
    }
    if (ratio > 0)
        drop(im, x, ratio, &x);
    return x;
}

void import_dropout(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    double ratio = im->opset < 12 ? im_float(im, "ratio", 0.5) : im_const_double(im, 1, 0.5);
    Dtype mask_type = im->opset < 10 ? low_dtype(g, x) : DT_BOOL;
    if (!(ratio >= 0 && ratio <= 1))
        low_fatal(im, -1, "a ratio of %g", ratio);
    if (!im_drops(im, ratio)) {
        im->out[0] = x;
        if (im_wanted(im, 1))
            im->out[1] = all_true(g, x, mask_type);
        return;
    }
    if (ratio == 1) {
        im->out[0] = low_drop(im, x, ratio);
        if (im_wanted(im, 1))
            im->out[1] = g_cast(g, g_unary(g, OP_Not, all_true(g, x, DT_BOOL)), mask_type);
        return;
    }
    ValueId dropped = drop(im, x, ratio, &im->out[0]);
    if (im_wanted(im, 1))
        im->out[1] = g_cast(g, graph_out(g, dropped, 1), mask_type);
}
