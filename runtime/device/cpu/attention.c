/*
 * attention.c - attention and its gradients (pp.h: PpAttention), matrix by matrix of a batch, of
 * many rows strip by strip: what lies between the two products of one is made and read in the
 * caches, and is in no memory afterwards.
 *
 *     s = scale q k' + bias, fill where a place is not allowed     p = softmax(s)
 *     y = dropout(p) v
 * and with g = dropout'(dy v'):
 *     dv = dropout(p)' dy     ds = scale p (g - sum(p g))     dq = ds k     dk = ds' q
 *
 * Backward makes p again from q, k and the maximum and 1 / sum of each row that forward has left
 * (Dao, Fu, Ermon, Rudra and Re, "FlashAttention", 2022): with the bits it had.  Of a causal mask
 * only tiles of the band are computed and met (pp_gemm_band()); what is left out are zeros.
 *
 * Where operands have 16 bits so have the factors of products with them, and all else is float32:
 * as on GPUs (device/cuda/attention_half.cu) forward rounds dropout(e^(s - max)), and divides by
 * the sum what the product with v is; backward rounds dropout(p) and p (g - sum(p g)), which is
 * scaled last.
 *
 * Sums over a row have 16 lanes and a fixed tree; products are the library's, over shapes alone.
 * Gradients of keys and values are added up by one thread over strips, and over the matrices of
 * queries that share them, in order.  So the bits do not depend on the threads, which divide the
 * matrices, or, where there are fewer of these, their rows.
 */
#include "api/pp_attention.h"
#include "api/pp_half.h"
#include "api/pp_kernel.h"
#include "api/pp_random.h"
#include "device/cpu/cpu.h"

#include <string.h>

enum { LANES = 16, QUADS = 8 };

/* One matrix of the batch; times: what its elements are multiplied with in a product. */
typedef struct {
    char *at;
    int64_t rows, columns, row, col;
    int dtype;
    float times;
} View;

/* Which of a product's three matrices counts in a band alone, and which band; 0: none. */
typedef struct {
    int which;
    int64_t below, above;
} Band;

/* What a call works on. */
typedef struct {
    PpAttention a;
    int64_t matrices, group; /* of queries; that share keys one after the other */
    int64_t line;            /* from row to row of scores, in elements */
    int64_t strip;           /* rows that are computed at once */
    int64_t below, above;    /* the band: keys i + below .. i + above of query i */
    int half;
    int threads;             /* that divide the matrices; 1: their rows are divided */
    int row_threads;
    char *place, *row; /* what one of these threads has begins there */
    int64_t place_bytes, row_bytes;
} Job;

/* Rows of a matrix of queries, a strip; begins, ends: the first, the last with its keys. */
typedef struct {
    int thread;
    int64_t z, first, rows;
    bool begins, ends;
} Part;

static int64_t element_bytes(int dtype) { return dtype == PP_F32 ? 4 : 2; }

/* ---- places ---------------------------------------------------------------------------------- */

static int64_t begin(const PpAttention *a, const int64_t *stride, int64_t z)
{
    int64_t at = 0;
    for (int i = a->dims - 1; i >= 0; i--) {
        at += z % a->count[i] * stride[i];
        z /= a->count[i];
    }
    return at;
}

static View view(const Job *b, const PpMatrix *m, int64_t z, int64_t rows, int64_t columns)
{
    const int dtype = b->a.dtype;
    char *at = (char *)m->at + element_bytes(dtype) * begin(&b->a, m->batch, z);
    return (View){at, rows, columns, m->row, m->col, dtype, 1};
}

/* Of queries: q, dq; y, dy.  Of keys: k, dk; v, dv. */
static View of_queries(const Job *b, const PpMatrix *m, const Part *p, int columns)
{
    View x = view(b, m, p->z, p->rows, columns);
    x.at += p->first * x.row * element_bytes(x.dtype);
    return x;
}
static View of_keys(const Job *b, const PpMatrix *m, int64_t z, int columns)
{
    return view(b, m, z, b->a.keys, columns);
}

static View turned(View x)
{
    return (View){x.at, x.columns, x.rows, x.col, x.row, x.dtype, x.times};
}

/* Strip number n of those that a thread has room for. */
static View scores(const Job *b, const Part *p, int n)
{
    const int64_t bytes = b->strip * b->line * element_bytes(PP_F32);
    char *at = b->place + p->thread * b->place_bytes + n * bytes;
    return (View){at, p->rows, b->a.keys, b->line, 1, PP_F32, 1};
}

/* The same as a factor: 16-bit elements stand at the beginning of their row. */
static View factor(const Job *b, View s, float times)
{
    if (b->half) {
        s.row *= 2;
        s.dtype = b->a.dtype;
        s.times = times;
    }
    return s;
}

static Band band(const Job *b, const Part *p, int which)
{
    return (Band){b->a.mask.causal ? which : 0, b->below + p->first, b->above + p->first};
}
/* of a transposed strip of scores */
static Band band_across(const Job *b, const Part *p, int which)
{
    return (Band){b->a.mask.causal ? which : 0, -b->above - p->first, -b->below - p->first};
}

static Job job(const PpAttention *given, int back)
{
    Job b = {.a = *given, .matrices = 1};
    PpAttention *a = &b.a;
    for (int i = 0; i < a->dims; i++)
        b.matrices *= a->count[i];
    b.group = back ? pp_attention_group(a) : 1;
    b.line = pp_attention_line(a->keys);
    b.strip = pp_attention_strip(a->rows, a->keys);
    b.above = a->mask.diagonal;
    b.below = a->mask.window ? a->mask.diagonal - a->mask.window + 1 : 1 - a->rows;
    b.half = a->dtype != PP_F32;
    const PpAttentionRoom room = pp_attention_room(a, b.matrices, b.group > 1, back);
    const int all = team_most(), most = all > PP_ATTENTION_PLACES ? PP_ATTENTION_PLACES : all;
    b.threads = most <= room.places && most <= b.matrices / b.group ? most : 1;
    b.row_threads = b.threads > 1 ? 1 : most;
    b.place_bytes = room.place;
    b.row_bytes = room.row;
    b.place = (char *)a->room;
    b.row = b.place + room.places * room.place;
    return b;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Stored so that its columns, or its rows, are neighbours: the latter is a transposed operand. */
static int is_transposed(View x) { return x.col != 1 && x.columns != 1; }
static int64_t leading(View x)
{
    const int t = is_transposed(x);
    const int64_t line = t ? x.col : x.row, least = t ? x.rows : x.columns;
    return line < least ? least : line;
}

/* z = x y, or z + x y where it `adds` */
static void product(Band in, View x, View y, int adds, View z)
{
    if (is_transposed(z)) { /* z' = y' x' */
        in.which = in.which == PP_BAND_A ? PP_BAND_B : in.which == PP_BAND_B ? PP_BAND_A : in.which;
        product((Band){in.which, -in.above, -in.below}, turned(y), turned(x), adds, turned(z));
        return;
    }
    const float alpha = x.times * y.times;
    const PpGemm g = {.type = x.dtype,
                      .result = z.dtype,
                      .ta = is_transposed(x),
                      .tb = is_transposed(y),
                      .m = x.rows,
                      .n = y.columns,
                      .k = x.columns,
                      .a = x.at,
                      .lda = leading(x),
                      .b = y.at,
                      .ldb = leading(y),
                      .c = z.at,
                      .ldc = leading(z),
                      .alpha = &alpha,
                      .adds = adds};
    if (in.which)
        pp_gemm_band(&g, in.which, in.below, in.above);
    else
        pp_gemm(&g);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Columns first .. end of a row, those of its tiles that count; to: an element for each column. */
typedef struct {
    int64_t first, end;
} Range;

static Range range_of(const Job *b, int64_t r)
{
    const PpAttention *a = &b->a;
    if (!a->mask.causal)
        return (Range){0, a->keys};
    return (Range){a->mask.window ? pp_band_first(r, b->below) : 0,
                   pp_band_end(r, b->above, a->keys)};
}

static void copy(float *to, const void *from, Range c)
{
    if (to != from)
        memcpy(to + c.first, (const float *)from + c.first, sizeof *to * (size_t)(c.end - c.first));
}

static void narrow(void *to, const float *from, int dtype, Range c)
{
    float *f = to;
    uint16_t *h = to;
    if (dtype == PP_F32 && f != from)
        memcpy(f + c.first, from + c.first, sizeof *f * (size_t)(c.end - c.first));
    else if (dtype == PP_BF16)
        for (int64_t j = c.first; j < c.end; j++)
            h[j] = pp_pack_bf16(pp_round_bf16(from[j]));
    else if (dtype == PP_F16)
        for (int64_t j = c.first; j < c.end; j++)
            h[j] = pp_pack_f16(pp_round_f16(from[j]));
}

static float row_max(const float *x, Range c)
{
    float m[LANES];
    int64_t j = c.first;
    for (int k = 0; k < LANES; k++)
        m[k] = -INFINITY;
    for (; j + LANES <= c.end; j += LANES)
        for (int k = 0; k < LANES; k++)
            m[k] = pp_maxf(m[k], x[j + k]);
    for (int k = 0; j + k < c.end; k++)
        m[k] = pp_maxf(m[k], x[j + k]);
    return pp_fold_maxf(m);
}

/* x = e^(x - top); their sum. */
static float row_exp(float *x, float top, Range c)
{
    float s[LANES] = {0};
    int64_t j = c.first;
    for (; j + LANES <= c.end; j += LANES)
        for (int k = 0; k < LANES; k++) {
            x[j + k] = pp_expf(x[j + k] - top);
            s[k] += x[j + k];
        }
    for (int k = 0; j + k < c.end; k++) {
        x[j + k] = pp_expf(x[j + k] - top);
        s[k] += x[j + k];
    }
    return pp_fold_sumf(s);
}

static float row_product(const float *x, const float *y, Range c)
{
    float s[LANES] = {0};
    int64_t j = c.first;
    for (; j + LANES <= c.end; j += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += x[j + k] * y[j + k];
    for (int k = 0; j + k < c.end; k++)
        s[k] += x[j + k] * y[j + k];
    return pp_fold_sumf(s);
}

/* The masked places of a row of matrix z become `fill`. */
static void row_mask(const Job *b, int64_t z, int64_t r, float fill, float *x, Range c)
{
    const PpAttention *a = &b->a;
    const uint8_t *m = a->allowed.at;
    if (m) {
        m += begin(a, a->allowed.batch, z) + r * a->allowed.row;
        const int64_t step = a->allowed.col;
        const int no = a->mask.forbids;
        if (step == 1)
            for (int64_t j = c.first; j < c.end; j++)
                x[j] = (m[j] != 0) == no ? fill : x[j];
        else
            for (int64_t j = c.first; j < c.end; j++)
                x[j] = (m[j * step] != 0) == no ? fill : x[j];
    }
    if (!a->mask.causal)
        return;
    const int64_t low = r + b->below, high = r + b->above;
    for (int64_t j = c.first; j < (low < c.end ? low : c.end); j++)
        x[j] = fill;
    for (int64_t j = high + 1 > c.first ? high + 1 : c.first; j < c.end; j++)
        x[j] = fill;
}

static void row_bias(const Job *b, int64_t z, int64_t r, float *x, Range c)
{
    const PpAttention *a = &b->a;
    const int64_t at = begin(a, a->bias.batch, z) + r * a->bias.row, step = a->bias.col;
    const float *f = (const float *)a->bias.at + at;
    const uint16_t *h = (const uint16_t *)a->bias.at + at;
    for (int64_t j = c.first; j < c.end; j++)
        x[j] += a->bias_dtype == PP_F32    ? f[j * step]
                : a->bias_dtype == PP_BF16 ? pp_from_bf16(h[j * step])
                                           : pp_from_f16(h[j * step]);
}

/* Row r of the scores of matrix z, from that of the product of queries and keys. */
static void row_scores(const Job *b, int64_t z, int64_t r, const char *from, float *to, Range c)
{
    const PpAttention *a = &b->a;
    copy(to, from, c);
    for (int64_t j = c.first; j < c.end; j++)
        to[j] *= a->scale;
    if (a->bias.at)
        row_bias(b, z, r, to, c);
    row_mask(b, z, r, a->mask.fill, to, c);
}

/* What dropout makes of 1 in row r of matrix z: 0 or `kept`.  Random numbers come in quads, which
   may begin before the row and end behind it. */
static const float *row_kept(const Job *b, int64_t z, int64_t r, float *room, Range c)
{
    const PpAttention *a = &b->a;
    const uint64_t row = a->drop.row0 + (uint64_t)begin(a, a->drop.row, z);
    const int64_t from = a->drop.first + begin(a, a->drop.element, z) + r * a->keys + c.first,
                  quad = from / 4, quads = (from + c.end - c.first + 3) / 4 - quad;
    float *to = room + 4;
    for (int64_t q = 0, at = c.first - from % 4; q < quads; q += QUADS, at += 4 * QUADS) {
        uint32_t random[QUADS][4];
        for (int i = 0; i < QUADS; i++)
            pp_philox(a->drop.seed, a->drop.step, row, (uint64_t)(quad + q + i), a->drop.key,
                      random[i]);
        for (int i = 0; i < 4 * QUADS; i++)
            to[at + i] = random[i / 4][i % 4] >= a->drop.limit ? a->drop.kept : 0.0f;
    }
    return to;
}

static void row_drop(float *to, const float *x, const float *kept, Range c)
{
    for (int64_t j = c.first; j < c.end; j++)
        to[j] = kept[j] != 0.0f ? x[j] * kept[j] : 0.0f;
}

/* Of this thread: `n` rows of float32. */
static float *row_room(const Job *b, int thread, int n)
{
    const int t = b->threads > 1 ? thread : team_thread();
    return (float *)(void *)(b->row + t * b->row_bytes) + n * pp_attention_row(b->a.keys);
}

/* to: its rows, or, where those are not neighbours, its columns, from where they stand densely */
static void store(View to, const float *from)
{
    const int across = is_transposed(to);
    const int64_t lines = across ? to.columns : to.rows, line = across ? to.col : to.row,
                  each = across ? to.rows : to.columns;
    for (int64_t i = 0; i < lines; i++)
        narrow(to.at + i * line * element_bytes(to.dtype), from + i * each, to.dtype,
               (Range){0, each});
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Of 16 bits: 1 / sum of each row, and behind them the product by v before it is multiplied so. */
static float *inverses(const Job *b, const Part *p)
{
    return (float *)(void *)scores(b, p, 1).at;
}
static float *sums(const Job *b, const Part *p) { return inverses(b, p) + p->rows; }

/* Row i of a strip of the product of queries and keys becomes one of dropout(softmax(..)); of 16
   bits before it is divided by the row's sum. */
static void forward_row(const Job *b, const Part *p, int64_t i, View s)
{
    const PpAttention *a = &b->a;
    const int64_t z = p->z, r = p->first + i;
    const Range c = range_of(b, r);
    char *at = s.at + i * s.row * element_bytes(PP_F32);
    float *x = b->half ? row_room(b, p->thread, 0) : (float *)(void *)at;
    row_scores(b, z, r, at, x, c);
    const float top = row_max(x, c), inverse = 1 / row_exp(x, top, c);
    for (int64_t j = c.first; j < c.end && !b->half; j++)
        x[j] *= inverse;
    if (a->drop.limit)
        row_drop(x, x, row_kept(b, z, r, row_room(b, p->thread, 1), c), c);
    narrow(at, x, a->dtype, c);
    if (b->half)
        inverses(b, p)[i] = inverse;
    if (a->stats.at) {
        float *to = (float *)a->stats.at + begin(a, a->stats.batch, z) + r * a->stats.row;
        to[0] = top;
        to[a->stats.col] = inverse;
    }
}

static void forward_strip(const Job *b, const Part *p)
{
    const PpAttention *a = &b->a;
    const View q = of_queries(b, &a->q, p, a->width), k = of_keys(b, &a->k, p->z, a->width),
               v = of_keys(b, &a->v, p->z, a->width_v), y = of_queries(b, &a->y, p, a->width_v),
               s = scores(b, p, 0);
    product(band(b, p, PP_BAND_C), q, turned(k), 0, s);
#pragma omp parallel for num_threads(b->row_threads) if (b->row_threads > 1)
    for (int64_t i = 0; i < p->rows; i++)
        forward_row(b, p, i, s);
    if (!b->half) {
        product(band(b, p, PP_BAND_A), s, v, 0, y);
        return;
    }
    float *sum = sums(b, p);
    const int across = is_transposed(y);
    const View single = {(char *)sum, p->rows, a->width_v, across ? 1 : a->width_v,
                         across ? p->rows : 1, PP_F32, 1};
    product(band(b, p, PP_BAND_A), factor(b, s, 1), v, 0, single);
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < a->width_v; j++)
            sum[i * single.row + j * single.col] *= inverses(b, p)[i];
    store(y, sum);
}

/* The strips of queries that share the keys of number `owner`. */
static void strips(const Job *b, int64_t owner, void (*of)(const Job *, const Part *))
{
    const int64_t rows = b->a.rows, end = (owner + 1) * b->group;
    Part p = {.thread = b->threads > 1 ? team_thread() : 0, .z = owner * b->group, .begins = true};
    for (; p.z < end; p.z++)
        for (p.first = 0; p.first < rows; p.first += b->strip) {
            p.rows = rows - p.first < b->strip ? rows - p.first : b->strip;
            p.ends = p.z + 1 == end && p.first + p.rows == rows;
            of(b, &p);
            p.begins = false;
        }
}

void pp_attention(const PpCtx *c, const PpAttention *a)
{
    (void)c;
    const Job b = job(a, 0);
#pragma omp parallel for num_threads(b.threads) if (b.threads > 1)
    for (int64_t z = 0; z < b.matrices; z++)
        strips(&b, z, forward_strip);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Of 16 bits sum(p g) as it is on GPUs: sum(dy y) (Dao 2023, arXiv 2307.08691). */
static float row_delta(const Job *b, const Part *part, int64_t i)
{
    const PpAttention *a = &b->a;
    const View y = of_queries(b, &a->y, part, a->width_v),
               dy = of_queries(b, &a->dy, part, a->width_v);
    const uint16_t *p = (const uint16_t *)(const void *)y.at + i * y.row,
                   *q = (const uint16_t *)(const void *)dy.at + i * dy.row;
    float s[LANES] = {0};
    for (int64_t j = 0; j < a->width_v; j++)
        s[j % LANES] += a->dtype == PP_BF16
                            ? pp_from_bf16(p[j * y.col]) * pp_from_bf16(q[j * dy.col])
                            : pp_from_f16(p[j * y.col]) * pp_from_f16(q[j * dy.col]);
    return pp_fold_sumf(s);
}

/* Row i of a strip: the product of queries and keys becomes dropout(p), that of dy and values ds.
 */
static void backward_row(const Job *b, const Part *part, int64_t i, View s, View g)
{
    const PpAttention *a = &b->a;
    const int64_t z = part->z, r = part->first + i;
    const int thread = part->thread, own = !b->half;
    const Range c = range_of(b, r);
    const float *stats =
                    (const float *)a->stats.at + begin(a, a->stats.batch, z) + r * a->stats.row,
                top = stats[0], inverse = stats[a->stats.col];
    char *s_at = s.at + i * s.row * element_bytes(PP_F32),
         *g_at = g.at + i * g.row * element_bytes(PP_F32);
    float *p = own && !a->drop.limit ? (float *)(void *)s_at : row_room(b, thread, 0),
          *dp = own ? (float *)(void *)g_at : row_room(b, thread, 1);
    row_scores(b, z, r, s_at, p, c);
    for (int64_t j = c.first; j < c.end; j++)
        p[j] = pp_expf(p[j] - top) * inverse;
    copy(dp, g_at, c);
    if (a->drop.limit) {
        const float *kept = row_kept(b, z, r, row_room(b, thread, 2), c);
        float *dropped = own ? (float *)(void *)s_at : row_room(b, thread, 3);
        row_drop(dropped, p, kept, c);
        row_drop(dp, dp, kept, c);
        narrow(s_at, dropped, a->dtype, c);
    } else {
        narrow(s_at, p, a->dtype, c);
    }
    const float sum = own ? row_product(dp, p, c) : row_delta(b, part, i);
    for (int64_t j = c.first; j < c.end; j++)
        dp[j] = (dp[j] - sum) * p[j];
    row_mask(b, z, r, 0, dp, c);
    for (int64_t j = c.first; j < c.end && own; j++)
        dp[j] *= a->scale;
    narrow(g_at, dp, a->dtype, c);
}

/* x y is added to the gradient of keys or values; of several 16-bit ones in float32 up to the last.
 */
static void gradient(const Job *b, const Part *p, View x, View y, View to, int number)
{
    const int across = is_transposed(to);
    View sum = to;
    if (b->half && !(p->begins && p->ends)) {
        float *room = (float *)(void *)scores(b, p, 2).at;
        sum = (View){(char *)(room + number * pp_attention_gradient(&b->a)), to.rows, to.columns,
                     across ? 1 : to.columns, across ? to.rows : 1, PP_F32, 1};
    }
    product(band_across(b, p, PP_BAND_A), x, y, !p->begins, sum);
    if (sum.at != to.at && p->ends)
        store(to, (const float *)(const void *)sum.at);
}

static void backward_strip(const Job *b, const Part *part)
{
    const PpAttention *a = &b->a;
    const View s = scores(b, part, 0), g = scores(b, part, 1), p = factor(b, s, 1),
               ds = factor(b, g, a->scale), q = of_queries(b, &a->q, part, a->width),
               dy = of_queries(b, &a->dy, part, a->width_v),
               dq = of_queries(b, &a->dq, part, a->width),
               k = of_keys(b, &a->k, part->z, a->width), v = of_keys(b, &a->v, part->z, a->width_v),
               dk = of_keys(b, &a->dk, part->z, a->width),
               dv = of_keys(b, &a->dv, part->z, a->width_v);
    product(band(b, part, PP_BAND_C), q, turned(k), 0, s);
    product(band(b, part, PP_BAND_C), dy, turned(v), 0, g);
#pragma omp parallel for num_threads(b->row_threads) if (b->row_threads > 1)
    for (int64_t i = 0; i < part->rows; i++)
        backward_row(b, part, i, s, g);
    gradient(b, part, turned(p), dy, dv, 0);
    product(band(b, part, PP_BAND_A), ds, k, 0, dq);
    gradient(b, part, turned(ds), q, dk, 1);
}

void pp_attention_backward(const PpCtx *c, const PpAttention *a)
{
    (void)c;
    const Job b = job(a, 1);
#pragma omp parallel for num_threads(b.threads) if (b.threads > 1)
    for (int64_t owner = 0; owner < b.matrices / b.group; owner++)
        strips(&b, owner, backward_strip);
}
