/*
 * state.c - sequence models with a state: CausalConvWithState and LinearAttention (opset 27).
 * In: the ONNX nodes.  Out: products over chunks of the sequence; the state goes from chunk to
 * chunk, which is all that happens in order.
 *
 * LinearAttention, per head, S the state [keys, values], g the logarithm of the decay, b = beta:
 *
 *     u_t = b_t (v_t - (e^g_t S_t-1)' k_t)        where the rule has the delta; else v_t
 *     S_t = e^g_t S_t-1 + k_t u_t'
 *     o_t = scale q_t' S_t
 *
 * With G_t the sum of g from the chunk's begin to t, and S the state before the chunk:
 *
 *     D_tj = e^(G_t - G_j)  for j <= t
 *     L_tj = b_t sum_d k_td k_jd D_tjd  for j < t         (I + L) U = b (V - (k e^G)' S)
 *     O    = scale ((q e^G)' S + A U),  A_tj = sum_d q_td k_jd D_tjd
 *     S    = e^G_end S + (k e^(G_end - G))' U
 *
 * (Yang et al., 2406.06484, 2312.06635, 2412.06464: the WY form.)  L is nilpotent, so that
 * (I + L)^-1 = (I - L)(I + L^2)(I + L^4)...  No exponent is positive where no decay is.
 */
#include "frontend/low/low.h"

#include <math.h>
#include <string.h>

/* ---- CausalConvWithState ---- */

void import_causal_conv_with_state(Import *im)
{
    Graph *g = im->g;
    ValueId x = low_need_float(im, 0), past = im_in(im, 3);
    Shape s = low_need_rank(im, 0, 3, 3), w = low_need_rank(im, 1, 3, 3);
    low_expect(im, 1, shape_of(3, s.d[1], (int64_t)1, low_max(w.d[2], 1)));
    int64_t kept = w.d[2] - 1, begin[3] = {0, 0, kept}, end[3] = {0};
    if (past != NONE)
        low_expect(im, 3, shape_of(3, s.d[0], s.d[1], kept));
    bool none = !low_choice(im, "activation", "none", "none silu swish");
    if (kept > 0)
        x = past == NONE ? g_pad(g, x, begin, end, PAD_CONSTANT, 0)
                         : g_concat(g, 2, (const ValueId[]){past, x}, 2);
    ValueId in[2] = {x, im->in[1]};
    int64_t *one = arena_array(g->arena, int64_t, 1), *pad = arena_array(g->arena, int64_t, 2);
    *one = 1;
    Attr window = {.n = 1, .stride = one, .dilation = one, .pad = pad, .group = s.d[1]};
    ValueId y = graph_node(g, OP_Conv, 2, in, window);
    if (im_in(im, 2) != NONE)
        y = g_add(g, y, low_channels(im, 2, s.d[1], 3));
    im->out[0] = none ? y : g_formula(g, "x: x * Sigmoid(x)", y);
    im->out[1] = g_slice_axis(g, x, 2, s.d[2], kept);
}

/* ---- LinearAttention ---- */

/* Dims of all that is computed: batch, key heads, query heads of each, chunks, places, size. */
enum { RANK = 6, CHUNKS = 3, PLACES = 4, SIZE = 5 };

/* How long a chunk is: where every pair of places has a decay for each key, or a triangular matrix
 * is inverted by its powers, shorter. */
enum { LONG_CHUNK = 64, SHORT_CHUNK = 16 };

typedef struct {
    Import *im;
    Graph *g;
    Dtype type; /* computed in */
    int64_t batch, length, heads, group, keys, values, chunk, chunks;
    bool delta, gated, each_key;
    ValueId q, k, v, beta; /* beta: NONE */
    ValueId decay;         /* G, summed within chunks; [.., 1]: one for all keys; or NONE */
} Linear;

/* [batch, length, a * b * size] -> [batch, a, b, chunks, places, size]; padded by zeros, which
 * leave the state as it is. */
static ValueId chunked(const Linear *l, uint32_t input, int64_t a, int64_t b, int64_t size)
{
    Graph *g = l->g;
    Shape s = shape_of(3, l->batch, l->length, a * b * size);
    ValueId x = g_cast(g, low_expect(l->im, input, s), l->type);
    int64_t begin[3] = {0}, end[3] = {0, l->chunks * l->chunk - l->length, 0};
    if (end[1] > 0)
        x = g_pad(g, x, begin, end, PAD_CONSTANT, 0);
    Shape apart = shape_of(6, l->batch, l->chunks, l->chunk, a, b, size);
    return g_transpose(g, g_reshape(g, x, &apart), (const int64_t[]){0, 3, 4, 1, 2, 5});
}

static int64_t last_dim(const Linear *l, uint32_t input)
{
    return low_need_rank(l->im, input, 3, 3).d[2];
}

static int64_t heads_of(const Import *im, const char *name)
{
    int64_t n = im_int(im, name, 0);
    if (n < 1)
        low_fatal(im, -1, "%s is %lld", name, (long long)n);
    return n;
}

static void take_rule(Linear *l)
{
    int rule = low_choice(l->im, "update_rule", "gated_delta", "linear gated delta gated_delta");
    l->gated = rule & 1, l->delta = rule & 2;
    if ((im_in(l->im, 4) != NONE) != l->gated || (im_in(l->im, 5) != NONE) != l->delta)
        low_fatal(l->im, -1, "its update_rule takes %s decay and %s beta", l->gated ? "a" : "no",
                  l->delta ? "a" : "no");
}

static void take_linear(Linear *l)
{
    Import *im = l->im;
    Graph *g = l->g;
    Shape q = low_need_rank(im, 0, 3, 3);
    int64_t heads = heads_of(im, "q_num_heads");
    l->heads = heads_of(im, "kv_num_heads");
    if (heads % l->heads || q.d[2] % heads || last_dim(l, 2) % l->heads)
        low_fatal(im, -1, "%lld query heads of %lld, %lld key heads of %lld", (long long)heads,
                  (long long)q.d[2], (long long)l->heads, (long long)last_dim(l, 2));
    l->type = low_dtype(g, low_need_float(im, 0)) == DT_F64 ? DT_F64 : DT_F32;
    l->batch = q.d[0], l->length = q.d[1], l->group = heads / l->heads;
    l->keys = q.d[2] / heads, l->values = last_dim(l, 2) / l->heads;
    take_rule(l);
    l->each_key = l->gated && last_dim(l, 4) != l->heads;
    int64_t hint = im_int(im, "chunk_size", LONG_CHUNK);
    l->chunk = low_min(l->delta || l->each_key ? SHORT_CHUNK : LONG_CHUNK, low_max(hint, 1));
    l->chunk = low_max(low_min(l->chunk, l->length), 1);
    l->chunks = (l->length + l->chunk - 1) / l->chunk;
    l->q = chunked(l, 0, l->heads, l->group, l->keys);
    l->k = chunked(l, 1, l->heads, 1, l->keys);
    l->v = chunked(l, 2, l->heads, 1, l->values);
    l->beta = NONE, l->decay = NONE;
    if (l->delta)
        l->beta = chunked(l, 5, last_dim(l, 5) == 1 ? 1 : l->heads, 1, 1);
    if (l->gated) {
        ValueId each = chunked(l, 4, l->heads, 1, l->each_key ? l->keys : 1);
        l->decay = graph_node(g, OP_CumSum, 1, &each, (Attr){.axis = PLACES});
    }
}

/* 1 for j <= t, or j < t: [places, places] with `after` dims of 1 behind. */
static ValueId triangle(const Linear *l, bool strict, int after)
{
    Graph *g = l->g;
    ValueId t = g_iota(g, DT_I64, 2 + after, 0, l->chunk),
            j = g_iota(g, DT_I64, 2 + after, 1, l->chunk);
    return g_binary(g, strict ? OP_Less : OP_LessOrEqual, j, t);
}

/* sum_d x_td k_jd D_tjd where j <= t, or j < t; else 0 */
static ValueId scores(const Linear *l, ValueId x, bool strict)
{
    Graph *g = l->g;
    int after = l->each_key ? 1 : 0;
    ValueId there = triangle(l, strict, after), decayed = NONE, y;
    if (l->gated) {
        ValueId rows = l->each_key ? low_unsqueeze(g, l->decay, PLACES + 1) : l->decay,
                columns =
                    l->each_key ? low_unsqueeze(g, l->decay, PLACES) : g_swap_last(g, l->decay);
        decayed = g_formula(g, "there, a, b: Exp(there ? a - b : 0)", there, rows, columns);
    }
    if (l->each_key) {
        y = g_mul(g, low_unsqueeze(g, x, PLACES + 1), low_unsqueeze(g, l->k, PLACES));
        y = g_formula(g, "there, y, d: there ? y * d : 0", there, y, decayed);
        return low_reduce(g, OP_ReduceSum, y, RANK);
    }
    y = g_matmul(g, x, g_swap_last(g, l->k));
    if (decayed != NONE)
        y = g_mul(g, y, decayed);
    return g_formula(g, "there, y: there ? y : 0", there, y);
}

/* (I + L)^-1 of strictly lower triangular L. */
static ValueId inverse(const Linear *l, ValueId lower)
{
    Graph *g = l->g;
    ValueId row = g_iota(g, DT_I64, 2, 0, l->chunk), column = g_iota(g, DT_I64, 2, 1, l->chunk);
    ValueId one = g_cast(g, g_binary(g, OP_Equal, row, column), l->type);
    ValueId power = g_neg(g, lower), y = g_add(g, one, power);
    for (int64_t n = 2; n < l->chunk; n *= 2) {
        power = g_matmul(g, power, power);
        y = g_matmul(g, y, g_add(g, one, power));
    }
    return y;
}

/* Chunk n of x, without the dim of chunks. */
static ValueId chunk_of(const Linear *l, ValueId x, int64_t n)
{
    return low_at(l->g, x, CHUNKS, n);
}

/* What each chunk takes from the state and gives to it. */
typedef struct {
    ValueId q, k, u, drop; /* q e^G, k e^(G_end - G), U of no state, b (k e^G) over I + L */
    ValueId score, end;    /* A, e^G_end [keys, 1]; end: NONE */
} Parts;

static Parts parts_of(const Linear *l)
{
    Graph *g = l->g;
    Parts p = {.q = l->q, .k = l->k, .u = l->v, .drop = NONE, .end = NONE};
    ValueId key = l->k;
    p.score = scores(l, l->q, false);
    if (l->gated) {
        ValueId grown = g_unary(g, OP_Exp, l->decay),
                end = g_slice_axis(g, l->decay, PLACES, l->chunk - 1, 1);
        p.q = g_mul(g, l->q, grown);
        key = g_mul(g, l->k, grown);
        p.k = g_formula(g, "k, end, decay: k * Exp(end - decay)", l->k, end, l->decay);
        p.end = g_swap_last(g, g_unary(g, OP_Exp, end));
    }
    if (l->delta) {
        ValueId solve = inverse(l, g_mul(g, l->beta, scores(l, l->k, true)));
        p.u = g_matmul(g, solve, g_mul(g, l->beta, l->v));
        p.drop = g_matmul(g, solve, g_mul(g, l->beta, key));
    }
    return p;
}

void import_linear_attention(Import *im)
{
    Graph *g = im->g;
    Linear linear = {.im = im, .g = g}, *l = &linear;
    take_linear(l);
    Dtype kept = low_dtype(g, im_in(im, 3) == NONE ? im->in[0] : im->in[3]);
    Shape whole = shape_of(4, l->batch, l->heads, l->keys, l->values),
          apart = shape_of(5, l->batch, l->heads, 1, l->keys, l->values);
    ValueId state = NONE;
    if (im_in(im, 3) != NONE)
        state = g_reshape(g, g_cast(g, low_expect(im, 3, whole), l->type), &apart);
    if (l->length < 1)
        low_fatal(im, 0, "a sequence without elements");
    Parts p = parts_of(l);
    ValueId *y = arena_array(im->arena, ValueId, l->chunks);
    for (int64_t n = 0; n < l->chunks; n++) {
        ValueId u = chunk_of(l, p.u, n), read = NONE, left = NONE;
        if (state != NONE) {
            read = g_matmul(g, chunk_of(l, p.q, n), state);
            left = p.end == NONE ? state : g_mul(g, chunk_of(l, p.end, n), state);
            if (l->delta)
                u = g_sub(g, u, g_matmul(g, chunk_of(l, p.drop, n), state));
        }
        y[n] = low_unsqueeze(g, low_plus(g, read, g_matmul(g, chunk_of(l, p.score, n), u)), CHUNKS);
        state = low_plus(g, left, g_matmul(g, g_swap_last(g, chunk_of(l, p.k, n)), u));
    }
    double scale = im_float(im, "scale", 0);
    ValueId all = low_scale(g, g_concat(g, (uint32_t)l->chunks, y, CHUNKS),
                            scale != 0 ? scale : 1 / sqrt((double)low_max(l->keys, 1)));
    Shape flat = shape_of(3, l->batch, l->chunks * l->chunk, l->heads * l->group * l->values);
    all = g_reshape(g, g_transpose(g, all, (const int64_t[]){0, 3, 4, 1, 2, 5}), &flat);
    all = g_slice_axis(g, all, 1, 0, l->length);
    im->out[0] = g_cast(g, all, low_dtype(g, im->in[0]));
    im->out[1] = g_cast(g, g_reshape(g, state, &whole), kept);
}
