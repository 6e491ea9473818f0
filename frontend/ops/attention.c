/*
 * attention.c - Attention (opset 23 to 25) and RotaryEmbedding (23) to core ops, by the
 * standard's own pattern: Y = Softmax(softcap(Q K^T scale) + bias) V where bias is 0 or -inf from
 * the masks (causal, window, padding, attn_mask), and a row without any key gives 0.
 */
#include "frontend/low/low.h"

#include <math.h>
#include <string.h>

typedef struct {
    Import *im;
    ValueId q, k, v; /* [B, heads, S, d], k and v with the past in front */
    int64_t batch, heads, kv_heads, q_len, kv_len, past;
    bool flat;    /* operands and result have rank 3 */
    ValueId keep; /* bool over [.., q, kv]: may be attended; NONE: all */
    bool dead;    /* a query may have no key at all */
} Attention;

ValueId low_split_heads(const Import *im, int input, ValueId x, int64_t heads)
{
    Graph *g = im->g;
    Shape s = low_shape(g, x);
    if (heads < 1 || s.d[2] % heads)
        low_fatal(im, input, "a last dim of %lld for %lld heads", (long long)s.d[2],
                  (long long)heads);
    Shape apart = shape_of(4, s.d[0], s.d[1], heads, s.d[2] / heads);
    return g_transpose(g, g_reshape(g, x, &apart), (const int64_t[]){0, 2, 1, 3});
}

ValueId low_merge_heads(Graph *g, ValueId x)
{
    Shape s = low_shape(g, x), flat = shape_of(3, s.d[0], s.d[2], s.d[1] * s.d[3]);
    return g_reshape(g, g_transpose(g, x, (const int64_t[]){0, 2, 1, 3}), &flat);
}

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

static void take_operands(Attention *a)
{
    Import *im = a->im;
    Graph *g = im->g;
    a->q = low_need_float(im, 0), a->k = low_need(im, 1), a->v = low_need(im, 2);
    int rank = low_need_rank(im, 0, 3, 4).rank;
    low_need_rank(im, 1, rank, rank), low_need_rank(im, 2, rank, rank);
    a->flat = rank == 3;
    if (a->flat) {
        int64_t hq = im_int(im, "q_num_heads", 0), hk = im_int(im, "kv_num_heads", 0);
        a->q = low_split_heads(im, 0, a->q, hq);
        a->k = low_split_heads(im, 1, a->k, hk);
        a->v = low_split_heads(im, 2, a->v, hk);
    }
    if ((im_in(im, 4) == NONE) != (im_in(im, 5) == NONE))
        low_fatal(im, -1, "past_key and past_value come together");
    int64_t fresh = low_shape(g, a->k).d[2];
    a->k = with_past(im, 4, a->k);
    a->v = with_past(im, 5, a->v);
    Shape q = low_shape(g, a->q), k = low_shape(g, a->k), v = low_shape(g, a->v);
    a->batch = q.d[0], a->heads = q.d[1], a->kv_heads = k.d[1], a->q_len = q.d[2],
    a->kv_len = k.d[2];
    a->past = a->kv_len - fresh;
    if (k.d[3] != q.d[3])
        low_fatal(im, 1, "head size %lld, the query's is %lld", (long long)k.d[3],
                  (long long)q.d[3]);
    if (v.d[2] != k.d[2] || v.d[1] != k.d[1])
        low_fatal(im, 2, "keys and values differ in length or heads");
    if (a->kv_heads < 1 || a->heads % a->kv_heads)
        low_fatal(im, -1, "%lld query heads for %lld key heads", (long long)a->heads,
                  (long long)a->kv_heads);
}

static void restrict_to(Attention *a, ValueId keep)
{
    a->keep = a->keep == NONE ? keep : g_binary(a->im->g, OP_And, a->keep, keep);
}

/* Position masks: key j against query i + offset, where offset counts the valid keys before this
 * block. */
static void position_masks(Attention *a)
{
    Import *im = a->im;
    Graph *g = im->g;
    ValueId length = im_in(im, 6), column = g_iota(g, DT_I64, 2, 1, a->kv_len),
            offset = g_scalar(g, DT_I64, (double)a->past);
    int64_t left = im_int(im, "left_window_size", -1), right = im_int(im, "right_window_size", -1);
    if (length != NONE) {
        Shape s = low_shape(g, length);
        if (s.rank != 1 || s.d[0] != a->batch)
            low_fatal(im, 6, "a length for each sample is needed");
        for (s.rank = 1; s.rank < 4; s.rank++)
            s.d[s.rank] = 1;
        length = g_reshape(g, g_cast(g, length, DT_I64), &s);
        if (im_in(im, 4) == NONE)
            offset = g_sub(g, length, g_scalar(g, DT_I64, (double)a->q_len));
        restrict_to(a, g_binary(g, OP_Less, column, length));
    }
    ValueId row = g_add(g, g_iota(g, DT_I64, 2, 0, a->q_len), offset);
    a->dead = a->dead || length != NONE || left >= 0 || right >= 0;
    if (im_int(im, "is_causal", 0))
        restrict_to(a, g_binary(g, OP_LessOrEqual, column, row));
    if (right >= 0)
        restrict_to(a, g_binary(g, OP_LessOrEqual, column,
                                g_add(g, row, g_scalar(g, DT_I64, (double)right))));
    if (left >= 0)
        restrict_to(a, g_binary(g, OP_GreaterOrEqual, column,
                                g_sub(g, row, g_scalar(g, DT_I64, (double)left))));
}

/* attn_mask, its last dim filled up with "no"; a bool one restricts, a float one is returned to be
 * added. */
static ValueId mask_operand(Attention *a)
{
    Import *im = a->im;
    Graph *g = im->g;
    ValueId mask = im_in(im, 3);
    if (mask == NONE)
        return NONE;
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
    if (!yes_no)
        return g_cast(g, mask, low_dtype(g, a->q));
    restrict_to(a, mask);
    return NONE;
}

ValueId low_repeat_heads(const Import *im, ValueId x, int64_t r)
{
    if (r == 1)
        return x;
    Graph *g = im->g;
    Shape s = low_shape(g, x);
    low_limit_table(im, s.d[1], r, "heads");
    int64_t n = s.d[1] * r, *idx = arena_array(g->arena, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        idx[i] = i / r;
    return low_take(g, x, 1, n, idx);
}

/* Scores to probabilities; a row that may attend nothing is all 0. */
static ValueId probabilities(Attention *a, ValueId scores, ValueId bias, ValueId *biased)
{
    Graph *g = a->im->g;
    ValueId minus = g_like(g, scores, (double)-INFINITY);
    if (a->keep != NONE)
        bias = g_where(g, a->keep, bias == NONE ? g_like(g, scores, 0) : bias, minus);
    if (bias == NONE) {
        *biased = scores;
        return g_softmax(g, scores, 3);
    }
    *biased = g_add(g, scores, bias);
    if (!a->dead)
        return g_softmax(g, *biased, 3);
    int64_t last = low_shape(g, bias).rank - 1;
    ValueId dead = g_binary(g, OP_Equal, g_reduce(g, OP_ReduceMax, bias, 1, &last), minus);
    /* Dead rows go through the softmax as zeros, so that neither they nor their gradients are NaN.
     */
    ValueId zero = g_like(g, scores, 0);
    return g_where(g, dead, zero, g_softmax(g, g_where(g, dead, zero, *biased), 3));
}

void import_attention(Import *im)
{
    Graph *g = im->g;
    Attention a = {.im = im, .keep = NONE};
    take_operands(&a);
    Dtype t = low_dtype(g, a.q);
    double scale = im_float(im, "scale", 0), cap = im_float(im, "softcap", 0);
    int64_t mode = im_int(im, "qk_matmul_output_mode", 0);
    if (!im_has(im, "scale"))
        scale = 1 / sqrt((double)low_max(low_shape(g, a.q).d[3], 1));
    if (im_wanted(im, 1))
        im->out[1] = a.k;
    if (im_wanted(im, 2))
        im->out[2] = a.v;
    ValueId bias = mask_operand(&a), biased;
    position_masks(&a);
    ValueId k = low_repeat_heads(im, a.k, a.heads / a.kv_heads),
            v = low_repeat_heads(im, a.v, a.heads / a.kv_heads);
    ValueId raw = low_scale(g, g_matmul(g, a.q, g_swap_last(g, k)), scale), capped = raw;
    if (cap != 0)
        capped = low_scale(g, g_unary(g, OP_Tanh, low_scale(g, raw, 1 / cap)), cap);
    ValueId p = probabilities(&a, capped, bias, &biased), y = g_matmul(g, g_cast(g, p, t), v);
    const ValueId shown[] = {raw, capped, biased, p};
    if (mode < 0 || mode > 3)
        low_fatal(im, -1, "qk_matmul_output_mode is %lld", (long long)mode);
    if (im_wanted(im, 3))
        im->out[3] = shown[mode];
    im->out[0] = a.flat ? low_merge_heads(g, y) : y;
}

/* ---- FlexAttention (ai.onnx.preview) ---- */

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

void import_flex_attention(Import *im)
{
    Graph *g = im->g;
    Attention a = {.im = im, .keep = NONE};
    low_need_rank(im, 0, 4, 4);
    take_operands(&a);
    Dtype t = low_dtype(g, a.q), single = t == DT_F64 ? DT_F64 : DT_F32,
          precise = im_dtype(im, "softmax_precision", single);
    if (!dtype_is_float(precise))
        low_fatal(im, -1, "softmax_precision %d is no type of floats", (int)precise);
    double scale = im_float(im, "scale", 1 / sqrt((double)low_max(low_shape(g, a.q).d[3], 1)));
    ValueId k = low_repeat_heads(im, a.k, a.heads / a.kv_heads),
            v = low_repeat_heads(im, a.v, a.heads / a.kv_heads);
    ValueId scores = g_cast(g, low_scale(g, g_matmul(g, a.q, g_swap_last(g, k)), scale), precise);
    scores = modified(im, "score_mod", scores);
    ValueId p = modified(im, "prob_mod", g_softmax(g, scores, 3));
    im->out[0] = g_matmul(g, g_cast(g, p, t), v);
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
    if (flat)
        x = low_split_heads(im, 0, x, im_int(im, "num_heads", 0));
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
    ValueId part[3] = {g_sub(g, g_mul(g, c, a), g_mul(g, n, b)),
                       g_add(g, g_mul(g, n, a), g_mul(g, c, b))};
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
    im->out[0] = flat ? low_merge_heads(g, y) : y;
}
