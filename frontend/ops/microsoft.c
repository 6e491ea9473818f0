/*
 * microsoft.c - the operators of domain com.microsoft that ONNX Runtime's optimizer leaves in a
 * file. In: the node.  Out: what it was fused of, in core operations.  Definitions: ONNX Runtime,
 * docs/ContribOperators.md.
 *
 * Caches (past and present keys and values that are used) and lengths that the data give are
 * refused.
 */
#include <math.h>

#include "frontend/low/low.h"

/* ---- products and activations ---- */

void import_fused_matmul(Import *im)
{
    Graph *g = im->g;
    ValueId a = low_need(im, 0), b = low_need(im, 1);
    if (im_int(im, "transBatchA", 0) || im_int(im, "transBatchB", 0))
        low_fatal(im, -1, "FusedMatMul that exchanges batch dims");
    if (im_int(im, "transA", 0) && low_shape(g, a).rank > 1)
        a = g_swap_last(g, a);
    if (im_int(im, "transB", 0) && low_shape(g, b).rank > 1)
        b = g_swap_last(g, b);
    im->out[0] = low_scale(g, g_matmul(g, a, b), im_float(im, "alpha", 1));
}

static ValueId biased(const Import *im, ValueId x, uint32_t i)
{
    return im_in(im, i) == NONE ? x : g_add(im->g, x, im->in[i]);
}

void import_bias_gelu(Import *im)
{
    im->out[0] = low_gelu(im->g, biased(im, low_need_float(im, 0), 1), false);
}
void import_fast_gelu(Import *im)
{
    im->out[0] = low_gelu(im->g, biased(im, low_need_float(im, 0), 1), true);
}

void import_quick_gelu(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    im->out[0] = g_mul(g, x, g_unary(g, OP_Sigmoid, low_scale(g, x, im_float(im, "alpha", 1.702))));
}

/* ---- norms after a sum ---- */

/* LayerNormalization, or RMSNormalization, of `sum`; scale and shift are operands of the node. */
static void normalise(Import *im, ValueId sum, uint32_t scale, uint32_t shift, bool rms)
{
    ValueId in[3] = {sum, im_in(im, scale), rms ? NONE : im_in(im, shift)},
            out[3] = {NONE, NONE, NONE};
    Import norm = *im;
    norm.nin = 3, norm.in = in, norm.out = out;
    norm.op = rms ? OP_RMSNormalization : OP_LayerNormalization;
    if (rms)
        import_rms_normalization(&norm);
    else
        import_layer_normalization(&norm);
    for (uint32_t i = 0; i < im->nout && i < 3; i++)
        im->out[i] = out[i];
}

static void skip_norm(Import *im, bool rms)
{
    ValueId sum = g_add(im->g, low_need_float(im, 0), low_need(im, 1));
    sum = biased(im, sum, rms ? 3 : 4);
    normalise(im, sum, 2, 3, rms);
    if (im_wanted(im, 3))
        im->out[3] = sum;
}

void import_skip_layer_norm(Import *im) { skip_norm(im, false); }
void import_skip_rms_norm(Import *im) { skip_norm(im, true); }

/* ids, segments, words, positions, segment table, scale, shift, mask, position ids */
void import_embed_layer_norm(Import *im)
{
    Graph *g = im->g;
    Shape ids = low_need_rank(im, 0, 2, 2), tables[5];
    for (uint32_t i = 2; i < 5; i++)
        if (i < 4 || im_in(im, i) != NONE)
            tables[i] = low_need_rank(im, i, 2, 2);
    if (im_in(im, 8) == NONE && tables[3].d[0] < ids.d[1])
        low_fatal(im, 3, "%lld positions for %lld tokens", (long long)tables[3].d[0],
                  (long long)ids.d[1]);
    ValueId x = g_gather(g, im->in[2], im->in[0], 0), places = im->in[3];
    if (im_in(im, 8) != NONE)
        x = g_add(g, x, g_gather(g, places, im->in[8], 0));
    else
        x = g_add(g, x, g_slice_axis(g, places, 0, 0, ids.d[1]));
    if (im_in(im, 1) != NONE && im_in(im, 4) != NONE)
        x = g_add(g, x, g_gather(g, im->in[4], im->in[1], 0));
    if (im_wanted(im, 1))
        low_fatal(im, 7, "the index of a mask is not supported");
    ValueId first[1];
    Import norm = *im;
    norm.nout = 1, norm.out = first;
    normalise(&norm, x, 5, 6, false);
    im->out[0] = first[0];
    if (im_wanted(im, 2))
        im->out[2] = x;
}

/* ---- attention ---- */

typedef struct {
    Graph *g;
    int64_t heads, kv_heads;
    double scale; /* 0: 1 / sqrt(head) */
    bool causal;
    ValueId add; /* to the scores; NONE */
    double cap;  /* 0: none */
} Heads;

/* [rows, heads, steps, head] */
static ValueId apart(const Import *im, ValueId x, int64_t heads)
{
    int rank = low_shape(im->g, x).rank;
    if (rank < 3 || rank > 4)
        low_fatal(im, -1, "queries, keys and values of rank %d", rank);
    return rank == 4 ? x : low_split_heads(im, -1, x, heads);
}

static void need_fitting(const Import *im, const Shape *q, const Shape *k, const Shape *v)
{
    Dtype t = low_dtype(im->g, im->in[0]);
    if (k->d[1] < 1 || q->d[1] % k->d[1] || k->d[1] != v->d[1] || q->d[0] != k->d[0] ||
        k->d[0] != v->d[0] || q->d[3] != k->d[3] || k->d[2] != v->d[2])
        low_fatal(im, -1, "queries %s, keys %s and values %s do not fit one another",
                  shape_print(im->arena, t, q), shape_print(im->arena, t, k),
                  shape_print(im->arena, t, v));
}

/* What is added to the scores. */
static ValueId score_bias(const Import *im, uint32_t i)
{
    if (im_in(im, i) != NONE)
        low_need_rank(im, i, 0, 4);
    return im_in(im, i);
}

/* q, k, v: [rows, heads, steps, head] -> [rows, steps, heads * head] */
static ValueId attend(const Import *im, const Heads *h, ValueId q, ValueId k, ValueId v)
{
    Graph *g = h->g;
    Shape s = low_shape(g, q), t = low_shape(g, k), out = low_shape(g, v);
    need_fitting(im, &s, &t, &out);
    double scale = h->scale > 0 ? h->scale : 1 / sqrt((double)s.d[3]);
    k = low_repeat_heads(im, k, s.d[1] / t.d[1]), v = low_repeat_heads(im, v, s.d[1] / t.d[1]);
    ValueId y = low_scale(g, g_matmul(g, q, g_swap_last(g, k)), scale);
    if (h->cap > 0)
        y = low_scale(g, g_unary(g, OP_Tanh, low_scale(g, y, 1 / h->cap)), h->cap);
    if (h->add != NONE)
        y = g_add(g, y, h->add);
    if (h->causal) {
        ValueId at = g_iota(g, DT_I64, 4, 2, s.d[2]), key = g_iota(g, DT_I64, 4, 3, t.d[2]);
        ValueId last = g_add(g, at, g_like(g, at, (double)(t.d[2] - s.d[2])));
        y = g_where(g, g_binary(g, OP_LessOrEqual, key, last), y, g_like(g, y, -(double)INFINITY));
    }
    return low_merge_heads(g, g_matmul(g, g_softmax(g, y, 3), v));
}

/* A mask [rows, keys] of 0 and 1 as what is added to the scores; anything else is refused. */
static ValueId padding(const Import *im, uint32_t i, Dtype t)
{
    Graph *g = im->g;
    ValueId m = im_in(im, i);
    if (m == NONE)
        return NONE;
    Shape s = low_need_rank(im, i, 2, 2), to = {4, {s.d[0], 1, 1, s.d[1]}};
    ValueId no = g_binary(g, OP_Equal, m, g_like(g, m, 0));
    double low = im_float(im, "mask_filter_value", -10000);
    return g_reshape(g, g_where(g, no, g_scalar(g, t, low), g_scalar(g, t, 0)), &to);
}

static void refuse_operands(const Import *im, uint32_t from, uint32_t to, const char *what)
{
    for (uint32_t i = from; i <= to; i++)
        if (im_in(im, i) != NONE && shape_elements(&val(im->g, im->in[i])->shape) > 0)
            low_fatal(im, (int)i, "%s is not supported", what);
}

static ValueId either(Graph *g, ValueId x, ValueId y)
{
    return x == NONE ? y : y == NONE ? x : g_add(g, x, y);
}

static Heads heads_of(const Import *im)
{
    return (Heads){
        .g = im->g,
        .heads = im_int(im, "num_heads", 0),
        .kv_heads = im_int(im, "kv_num_heads", im_int(im, "num_heads", 0)),
        .scale = im_float(im, "scale", 0),
        .causal = im_int(im, "unidirectional", 0) != 0,
        .add = NONE,
        .cap = im_float(im, "softcap", 0),
    };
}

/* input, weights [n, 3 m], bias, mask, past, what is added to the scores */
void import_ms_attention(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0), w = low_need(im, 1), part[3];
    int64_t wide = low_need_rank(im, 1, 2, 2).d[1], at = 0, *sizes,
            third[3] = {wide / 3, wide / 3, wide / 3};
    int n;
    Heads h = heads_of(im);
    low_need_rank(im, 0, 3, 3);
    refuse_operands(im, 4, 4, "a cache of keys and values");
    refuse_operands(im, 6, 6, "a cache of keys and values");
    if (im_int(im, "do_rotary", 0))
        low_fatal(im, -1, "Attention with do_rotary is not supported");
    if (!im_ints(im, "qkv_hidden_sizes", &sizes, &n))
        sizes = third, n = 3;
    x = biased(im, g_matmul(g, x, w), 2);
    for (int i = 0; i < 3; at += sizes[i++]) {
        if (n != 3 || sizes[i] < 1 || sizes[i] > wide - at || (i == 2 && at + sizes[i] != wide))
            low_fatal(im, 1, "%lld columns for q, k and v", (long long)wide);
        part[i] = apart(im, g_slice_axis(g, x, 2, at, sizes[i]), h.heads);
    }
    h.add = either(g, padding(im, 3, low_dtype(g, x)), score_bias(im, 5));
    im->out[0] = attend(im, &h, part[0], part[1], part[2]);
}

/* query, key, value, bias [3 m], padding of keys, what is added to the scores */
void import_multi_head_attention(Import *im)
{
    Graph *g = im->g;
    ValueId in[3] = {low_need_float(im, 0), low_need(im, 1), low_need(im, 2)};
    Heads h = heads_of(im);
    int64_t at = 0;
    refuse_operands(im, 6, 9, "a cache of keys and values");
    for (int i = 0; i < 3; i++) {
        Shape s = low_need_rank(im, (uint32_t)i, 3, 4);
        if (i == 0 && s.rank != 3)
            low_fatal(im, 0, "packed queries are not supported");
        if (im_in(im, 3) != NONE) {
            int64_t width = s.rank == 3 ? s.d[2] : 0;
            if (!width || at + width > low_need_rank(im, 3, 1, 1).d[0])
                low_fatal(im, 3, "a bias that does not fit");
            in[i] = g_add(g, in[i], g_slice_axis(g, im->in[3], 0, at, width));
            at += width;
        }
        in[i] = apart(im, in[i], h.heads);
    }
    h.add = either(g, padding(im, 4, low_dtype(g, in[0])), score_bias(im, 5));
    im->out[0] = attend(im, &h, in[0], in[1], in[2]);
}

/* input, position ids, cosines, sines: the standard's operands in another order. */
void import_ms_rotary_embedding(Import *im)
{
    Graph *g = im->g;
    Shape s = low_need_rank(im, 0, 3, 4), ids = low_need_rank(im, 1, 1, 2);
    ValueId in[4] = {im->in[0], low_need(im, 2), low_need(im, 3), im->in[1]};
    int64_t steps = s.d[s.rank == 3 ? 1 : 2], first;
    Import rotary = *im;
    if (im_float(im, "scale", 1) != 1)
        low_fatal(im, -1, "RotaryEmbedding with a scale is not supported");
    if (ids.rank == 1) {
        low_limit_table(im, steps, s.d[0], "positions");
        first = im_const_int(im, 1, 0);
        if (first < 0 || first > INT32_MAX)
            low_fatal(im, 1, "position %lld is out of range", (long long)first);
        int64_t *at = arena_array(im->arena, int64_t, s.d[0] * steps);
        for (int64_t i = 0; i < s.d[0] * steps; i++)
            at[i] = first + i % steps;
        in[3] = low_const(g, DT_I64, (Shape){2, {s.d[0], steps}}, at);
    }
    rotary.op = OP_RotaryEmbedding, rotary.nin = 4, rotary.in = in;
    import_rotary_embedding(&rotary);
}

/* query, key, value without a cache, causal, so that the lengths of samples change nothing that is
   not padding; the keys and values of this call are what is cached.
 */
void import_group_query_attention(Import *im)
{
    Heads h = heads_of(im);
    ValueId q = low_need_float(im, 0), k = low_need(im, 1), v = low_need(im, 2);
    refuse_operands(im, 3, 4, "a cache of keys and values");
    if (im_int(im, "do_rotary", 0) || im_int(im, "local_window_size", -1) > 0 ||
        im_int(im, "smooth_softmax", 0) > 0)
        low_fatal(im, -1, "GroupQueryAttention with rotation, a window or a smooth softmax");
    q = apart(im, q, h.heads), k = apart(im, k, h.kv_heads), v = apart(im, v, h.kv_heads);
    h.causal = true;
    im->out[0] = attend(im, &h, q, k, v);
    im->out[1] = k, im->out[2] = v;
}
