/*
 * attention.c - attentions and RotaryEmbedding to core ops: Attention (opset 23 to 25), by the
 * standard's own pattern, Y = Softmax(softcap(Q K^T scale) + bias) V where bias is 0 or -inf from
 * the masks (causal, window, padding, attn_mask), and a row without any key gives 0; FlexAttention;
 * and those of domain com.microsoft, which ONNX Runtime's optimizer writes (its
 * docs/ContribOperators.md).  Of these caches, past and present keys and values that are used, and
 * lengths that the data give are refused.
 */
#include "frontend/low/low.h"

#include <math.h>
#include <string.h>

typedef struct {
    Import *im;
    ValueId q, k, v; /* [B, heads, S, d], k and v with the past in front */
    int64_t batch, q_len, kv_len, past;
    double scale, cap;  /* cap 0: none */
    Dtype precise;      /* the type of the scores */
    ValueId keep, bias; /* bool over [.., q, kv]: may be attended; added to the scores; NONE */
    bool dead;          /* a query may have no key at all */
} Attention;

/* [B, S, H d] to [B, H, S, d], which may be there already */
static ValueId split_heads(const Import *im, int input, ValueId x, int64_t heads)
{
    Graph *g = im->g;
    Shape s = low_shape(g, x);
    if (s.rank == 4)
        return x;
    if (heads < 1 || s.d[2] % heads)
        low_fatal(im, input, "a last dim of %lld for %lld heads", (long long)s.d[2],
                  (long long)heads);
    Shape apart = shape_of(4, s.d[0], s.d[1], heads, s.d[2] / heads);
    return g_transpose(g, g_reshape(g, x, &apart), (const int64_t[]){0, 2, 1, 3});
}

static ValueId merge_heads(Graph *g, ValueId x)
{
    Shape s = low_shape(g, x), flat = shape_of(3, s.d[0], s.d[2], s.d[1] * s.d[3]);
    return g_reshape(g, g_transpose(g, x, (const int64_t[]){0, 2, 1, 3}), &flat);
}

/* Each head r times in a row. */
static ValueId repeat_heads(const Import *im, ValueId x, int64_t r)
{
    if (r == 1)
        return x;
    Shape s = low_shape(im->g, x);
    low_limit_table(im, s.d[1], r, "heads");
    int64_t n = s.d[1] * r, *idx = arena_array(im->arena, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        idx[i] = i / r;
    return low_take(im->g, x, 1, n, idx);
}

/* An attention of these operands, without masks. */
static Attention attention(Import *im, ValueId q_, ValueId k_, ValueId v_)
{
    Graph *g = im->g;
    const Dtype t = low_dtype(g, q_);
    const Shape q = low_shape(g, q_), k = low_shape(g, k_), v = low_shape(g, v_);
    if (k.d[1] < 1 || q.d[1] % k.d[1] || k.d[1] != v.d[1] || q.d[0] != k.d[0] || k.d[0] != v.d[0] ||
        q.d[3] != k.d[3] || k.d[2] != v.d[2])
        low_fatal(im, -1, "queries %s, keys %s and values %s do not fit one another",
                  shape_print(im->arena, t, &q), shape_print(im->arena, t, &k),
                  shape_print(im->arena, t, &v));
    return (Attention){.im = im,
                       .q = q_,
                       .k = k_,
                       .v = v_,
                       .batch = q.d[0],
                       .q_len = q.d[2],
                       .kv_len = k.d[2],
                       .scale = 1 / sqrt((double)low_max(q.d[3], 1)),
                       .precise = t,
                       .keep = NONE,
                       .bias = NONE};
}

static void restrict_to(Attention *a, ValueId keep)
{
    a->keep = a->keep == NONE ? keep : g_binary(a->im->g, OP_And, a->keep, keep);
}

/* The masks of positions: key j against query i + offset, where offset counts the keys before this
 * block.  right, left: how far a query sees, -1: all. */
static void position_masks(Attention *a, ValueId offset, bool causal, int64_t left, int64_t right)
{
    Graph *g = a->im->g;
    ValueId key = g_iota(g, DT_I64, 2, 1, a->kv_len),
            row = g_add(g, g_iota(g, DT_I64, 2, 0, a->q_len), offset);
    a->dead = a->dead || left >= 0 || right >= 0;
    if (causal)
        restrict_to(a, g_binary(g, OP_LessOrEqual, key, row));
    if (right >= 0)
        restrict_to(a, g_formula(g, "j, i, double n: j <= i + n", key, row, (double)right));
    if (left >= 0)
        restrict_to(a, g_formula(g, "j, i, double n: j >= i - n", key, row, (double)left));
}

/* Scores to probabilities; a row that may attend nothing is all 0. */
static ValueId probabilities(const Attention *a, ValueId scores, ValueId *biased)
{
    Graph *g = a->im->g;
    ValueId bias = a->bias;
    *biased = bias == NONE ? scores : g_add(g, scores, bias);
    if (a->keep != NONE) /* a score that is hidden may be infinite */
        *biased = g_formula(g, "keep, x: keep ? x : -inf", a->keep, *biased);
    if (!a->dead || (bias == NONE && a->keep == NONE))
        return g_softmax(g, *biased, 3);
    if (a->keep != NONE)
        bias = g_formula(g, "keep, bias: keep ? bias : -inf", a->keep,
                         bias == NONE ? g_like(g, scores, 0) : bias);
    int64_t last = low_shape(g, bias).rank - 1;
    ValueId dead = g_formula(g, "most: most == -inf", g_reduce(g, OP_ReduceMax, bias, 1, &last));
    /* Dead rows go through the softmax as zeros, so that neither they nor their gradients are NaN.
     */
    ValueId y = g_softmax(g, g_formula(g, "dead, x: dead ? 0 : x", dead, *biased), 3);
    return g_formula(g, "dead, y: dead ? 0 : y", dead, y);
}

/* What a graph of the node makes of x, which has its shape and type. */
static ValueId modified(const Import *im, const char *graph, ValueId x)
{
    if (!im_has(im, graph))
        return x;
    ValueId y = im_graph(im, graph, x);
    Shape s = low_shape(im->g, x), t = low_shape(im->g, y);
    if (!shape_equal(&s, &t) || low_dtype(im->g, x) != low_dtype(im->g, y))
        low_fatal(im, -1, "%s makes %s of %s", graph,
                  shape_print(im->arena, low_dtype(im->g, y), &t),
                  shape_print(im->arena, low_dtype(im->g, x), &s));
    return y;
}

/* [B, heads, q, d].  shown: the scores, capped, biased, and as probabilities. */
static ValueId attend(const Attention *a, ValueId shown[4])
{
    Graph *g = a->im->g;
    const int64_t each = low_shape(g, a->q).d[1] / low_shape(g, a->k).d[1];
    ValueId k = repeat_heads(a->im, a->k, each), v = repeat_heads(a->im, a->v, each);
    shown[0] = low_scale(g, g_matmul(g, a->q, g_swap_last(g, k)), a->scale);
    shown[0] = shown[1] = modified(a->im, "score_mod", g_cast(g, shown[0], a->precise));
    if (a->cap != 0)
        shown[1] = g_formula(g, "x, double cap: Tanh(x * (1 / cap)) * cap", shown[0], a->cap);
    shown[3] = modified(a->im, "prob_mod", probabilities(a, shown[1], &shown[2]));
    return g_matmul(g, g_cast(g, shown[3], low_dtype(g, a->q)), v);
}

/* ---- Attention ---- */

static ValueId with_past(const Import *im, uint32_t input, ValueId x)
{
    ValueId past = im_in(im, input);
    if (past == NONE)
        return x;
    low_need_rank(im, input, 4, 4);
    if (low_shape(im->g, past).d[2] == 0)
        return x;
    return g_concat(im->g, 2, (const ValueId[]){past, x}, 2);
}

static Attention standard_attention(Import *im)
{
    ValueId x[3];
    const int rank = low_need_rank(im, 0, 3, 4).rank;
    low_need_float(im, 0);
    for (uint32_t i = 0; i < 3; i++) {
        low_need_rank(im, i, rank, rank);
        x[i] =
            split_heads(im, (int)i, im->in[i], im_int(im, i ? "kv_num_heads" : "q_num_heads", 0));
    }
    if ((im_in(im, 4) == NONE) != (im_in(im, 5) == NONE))
        low_fatal(im, -1, "past_key and past_value come together");
    int64_t fresh = low_shape(im->g, x[1]).d[2];
    Attention a = attention(im, x[0], with_past(im, 4, x[1]), with_past(im, 5, x[2]));
    a.past = a.kv_len - fresh;
    a.scale = im_float(im, "scale", a.scale);
    return a;
}

/* attn_mask, its last dim filled up with "no"; a bool one restricts, a float one is added. */
static void mask_operand(Attention *a)
{
    Import *im = a->im;
    Graph *g = im->g;
    ValueId mask = im_in(im, 3);
    if (mask == NONE)
        return;
    Shape s = low_need_rank(im, 3, 1, 4);
    bool yes_no = low_dtype(g, mask) == DT_BOOL;
    int64_t begin[4] = {0}, end[4] = {0}, missing = a->kv_len - s.d[s.rank - 1];
    if (missing < 0)
        low_fatal(im, 3, "the mask has %lld keys, there are %lld", (long long)s.d[s.rank - 1],
                  (long long)a->kv_len);
    end[s.rank - 1] = missing;
    if (missing > 0 && s.d[s.rank - 1] != 1)
        mask = g_pad(g, mask, begin, end, PAD_CONSTANT, yes_no ? 0 : (double)-INFINITY);
    a->dead = true;
    if (yes_no)
        restrict_to(a, mask);
    else
        a->bias = g_cast(g, mask, low_dtype(g, a->q));
}

void import_attention(Import *im)
{
    Graph *g = im->g;
    Attention a = standard_attention(im);
    ValueId shown[4], length = im_in(im, 6), offset = g_scalar(g, DT_I64, (double)a.past);
    int64_t mode = im_int(im, "qk_matmul_output_mode", 0);
    a.cap = im_float(im, "softcap", 0);
    mask_operand(&a);
    if (length != NONE) { /* of each sample that many keys are valid */
        length = g_cast(g, low_expect(im, 6, (Shape){1, {a.batch}}), DT_I64);
        length = low_line(g, length, 0, 4);
        if (im_in(im, 4) == NONE)
            offset = g_formula(g, "length, double n: length - n", length, (double)a.q_len);
        restrict_to(&a, g_binary(g, OP_Less, g_iota(g, DT_I64, 2, 1, a.kv_len), length));
        a.dead = true;
    }
    position_masks(&a, offset, im_int(im, "is_causal", 0) != 0, im_int(im, "left_window_size", -1),
                   im_int(im, "right_window_size", -1));
    if (mode < 0 || mode > 3)
        low_fatal(im, -1, "qk_matmul_output_mode is %lld", (long long)mode);
    ValueId y = attend(&a, shown), out[4] = {y, a.k, a.v, shown[mode]};
    if (low_shape(g, im->in[0]).rank == 3)
        out[0] = merge_heads(g, y);
    for (uint32_t i = 0; i < 4; i++)
        if (im_wanted(im, i))
            im->out[i] = out[i];
}

/* ---- of com.microsoft ---- */

static void refuse_cache(const Import *im, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i <= to; i++)
        if (im_in(im, i) != NONE && shape_elements(&val(im->g, im->in[i])->shape) > 0)
            low_fatal(im, (int)i, "a cache of keys and values is not supported");
}

static ValueId heads_apart(const Import *im, ValueId x, const char *heads)
{
    int rank = low_shape(im->g, x).rank;
    if (rank < 3 || rank > 4)
        low_fatal(im, -1, "queries, keys and values of rank %d", rank);
    return split_heads(im, -1, x, im_int(im, heads, im_int(im, "num_heads", 0)));
}

/* What is added to the scores: a mask [rows, keys] of 0 and 1, and operand `bias`. */
static ValueId added(const Import *im, uint32_t mask, uint32_t bias)
{
    Graph *g = im->g;
    ValueId m = im_in(im, mask), add = im_in(im, bias);
    if (add != NONE)
        low_need_rank(im, bias, 0, 4);
    if (m == NONE)
        return add;
    Shape s = low_need_rank(im, mask, 2, 2), to = {4, {s.d[0], 1, 1, s.d[1]}};
    ValueId out = g_formula(g, "m: m == 0", m), zero = g_like(g, im->in[0], 0);
    m = g_formula(g, "out, zero, double low: out ? low : zero", out, zero,
                  im_float(im, "mask_filter_value", -10000));
    return low_plus(g, g_reshape(g, m, &to), add);
}

static void ms_attend(Attention *a, ValueId add, bool causal)
{
    Import *im = a->im;
    double scale = im_float(im, "scale", 0);
    ValueId shown[4];
    a->bias = add;
    a->scale = scale > 0 ? scale : a->scale;
    a->cap = fmax(im_float(im, "softcap", 0), 0);
    /* Of these ONNX Runtime hides nothing from the last query. */
    if (causal && a->q_len != a->kv_len)
        low_fatal(im, -1, "causal, with %lld keys for %lld queries", (long long)a->kv_len,
                  (long long)a->q_len);
    position_masks(a, g_scalar(im->g, DT_I64, 0), causal, -1, -1);
    im->out[0] = merge_heads(im->g, attend(a, shown));
}

/* input, weights [n, 3 m], bias, mask, past, what is added to the scores */
void import_ms_attention(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0), w = low_need(im, 1), part[3];
    int64_t wide = low_need_rank(im, 1, 2, 2).d[1], at = 0, *sizes,
            third[3] = {wide / 3, wide / 3, wide / 3};
    int n;
    low_need_rank(im, 0, 3, 3);
    refuse_cache(im, 4, 4);
    refuse_cache(im, 6, 6);
    if (im_int(im, "do_rotary", 0))
        low_fatal(im, -1, "Attention with do_rotary is not supported");
    if (!im_ints(im, "qkv_hidden_sizes", &sizes, &n))
        sizes = third, n = 3;
    x = low_plus(g, g_matmul(g, x, w), im_in(im, 2));
    for (int i = 0; i < 3; at += sizes[i++]) {
        if (n != 3 || sizes[i] < 1 || sizes[i] > wide - at || (i == 2 && at + sizes[i] != wide))
            low_fatal(im, 1, "%lld columns for q, k and v", (long long)wide);
        part[i] = heads_apart(im, g_slice_axis(g, x, 2, at, sizes[i]), "num_heads");
    }
    Attention a = attention(im, part[0], part[1], part[2]);
    ms_attend(&a, added(im, 3, 5), im_int(im, "unidirectional", 0) != 0);
}

/* query, key, value, bias [3 m], padding of keys, what is added to the scores */
void import_multi_head_attention(Import *im)
{
    Graph *g = im->g;
    ValueId in[3] = {low_need_float(im, 0), low_need(im, 1), low_need(im, 2)};
    int64_t at = 0;
    refuse_cache(im, 6, 9);
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
        in[i] = heads_apart(im, in[i], "num_heads");
    }
    Attention a = attention(im, in[0], in[1], in[2]);
    ms_attend(&a, added(im, 4, 5), im_int(im, "unidirectional", 0) != 0);
}

/* query, key, value without a cache, causal, so that the lengths of samples change nothing that is
   not padding; the keys and values of this call are what is cached.
 */
void import_group_query_attention(Import *im)
{
    ValueId q = heads_apart(im, low_need_float(im, 0), "num_heads"),
            k = heads_apart(im, low_need(im, 1), "kv_num_heads"),
            v = heads_apart(im, low_need(im, 2), "kv_num_heads");
    refuse_cache(im, 3, 4);
    if (im_int(im, "do_rotary", 0) || im_int(im, "local_window_size", -1) > 0 ||
        im_int(im, "smooth_softmax", 0) > 0)
        low_fatal(im, -1, "GroupQueryAttention with rotation, a window or a smooth softmax");
    Attention a = attention(im, q, k, v);
    ms_attend(&a, NONE, true);
    im->out[1] = k, im->out[2] = v;
}

/* ---- FlexAttention (ai.onnx.preview) ---- */

void import_flex_attention(Import *im)
{
    ValueId shown[4];
    low_need_rank(im, 0, 4, 4);
    Attention a = standard_attention(im);
    a.precise = im_dtype(im, "softmax_precision", a.precise == DT_F64 ? DT_F64 : DT_F32);
    if (!dtype_is_float(a.precise))
        low_fatal(im, -1, "softmax_precision %d is no type of floats", (int)a.precise);
    im->out[0] = attend(&a, shown);
}

/* ---- RotaryEmbedding ---- */

/* cos or sin as [B or 1, 1, S, d / 2], gathered by position where positions are given. */
static ValueId rotary_table(const Import *im, uint32_t i, int64_t batch, int64_t seq, int64_t half)
{
    Graph *g = im->g;
    ValueId table = low_need(im, i), positions = im_in(im, 3);
    if (positions != NONE) {
        low_need_rank(im, i, 2, 2), low_need_rank(im, 3, 2, 2);
        table = g_gather(g, table, positions, 0);
    }
    Shape s = low_shape(g, table);
    if (s.rank != 3 || (s.d[0] != batch && s.d[0] != 1) || s.d[1] != seq || s.d[2] != half)
        low_fatal(im, (int)i, "%s: [%lld, %lld, %lld] is needed",
                  shape_print(im->arena, low_dtype(g, table), &s), (long long)batch, (long long)seq,
                  (long long)half);
    return low_unsqueeze(g, table, 1);
}

/* Elements first, first + step, ... of the last dim. */
static ValueId strided(Graph *g, ValueId x, int64_t first, int64_t size, int64_t by)
{
    Shape s = low_shape(g, x);
    int64_t start[4] = {0, 0, 0, first}, step[4] = {1, 1, 1, by};
    s.d[3] = size;
    return g_slice(g, x, start, s.d, step);
}

void import_rotary_embedding(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0);
    bool flat = low_need_rank(im, 0, 3, 4).rank == 3,
         interleaved = im_int(im, "interleaved", 0) != 0;
    x = split_heads(im, 0, x, im_int(im, "num_heads", 0));
    Shape s = low_shape(g, x);
    int64_t dim = im_int(im, "rotary_embedding_dim", 0), half;
    if (dim == 0)
        dim = s.d[3];
    if (dim < 0 || dim > s.d[3] || dim % 2)
        low_fatal(im, -1, "rotary_embedding_dim %lld of %lld", (long long)dim, (long long)s.d[3]);
    half = dim / 2;
    ValueId c = rotary_table(im, 1, s.d[0], s.d[2], half),
            n = rotary_table(im, 2, s.d[0], s.d[2], half);
    ValueId a = strided(g, x, 0, half, interleaved ? 2 : 1);
    ValueId b = strided(g, x, interleaved ? 1 : half, half, interleaved ? 2 : 1);
    ValueId part[3] = {g_formula(g, "c, a, n, b: c * a - n * b", c, a, n, b),
                       g_formula(g, "c, a, n, b: n * a + c * b", c, a, n, b)};
    uint32_t parts = 2;
    if (interleaved) {
        Shape turned = s;
        turned.d[3] = dim;
        ValueId pair[2] = {low_unsqueeze(g, part[0], 4), low_unsqueeze(g, part[1], 4)};
        part[0] = g_reshape(g, g_concat(g, 2, pair, 4), &turned);
        parts = 1;
    }
    if (dim < s.d[3])
        part[parts++] = strided(g, x, dim, s.d[3] - dim, 1);
    ValueId y = parts == 1 ? part[0] : g_concat(g, parts, part, 3);
    im->out[0] = flat ? merge_heads(g, y) : y;
}
