/*
 * measure_rates.c - what a rank does in a second, by what stages and the runtime call.
 *
 * In: a number of threads.  Out: a rate for each name of partition/auto/rates.c that is measured.
 * All work is done in rounds, one after the other, and of the rounds' rates the median counts: what
 * others do to the machine for some milliseconds is then in all that one round compares, and in no
 * difference of two.  Work is done as in a step: operands are those of several layers in turn where
 * a rank has more than a cache, forwards, and backwards in the other order; memory is the device's,
 * in large pages.
 *
 * What a product takes is its operations by one rate and the bytes of operands and result by
 * another: forwards of two layers of different shapes say both.  Backward the parameters lie the
 * other way in one product, and another reads and writes their gradients: what both take longer
 * than by these two rates is by the bytes of these three.  Two more are what products take longer,
 * forward and backward, where bytes come from memory (RATES_FAR bytes of layers in turn) and not
 * from a cache (one layer again and again).
 *
 * A loop takes time to begin, whatever it does: `steps' has that, and no other rate of loops.
 */
#include "measure.h"

#include "api/pp_half.h"
#include "api/pp_kernel.h"
#include "api/pp_math.h"
#include "base/file/machine.h"
#include "core/core.h"
#include "device/cpu/cpu.h"
#include "device/device.h"
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 11,
    N = 512,            /* of products in other types */
    HEADS = 32, SEQUENCE = 128, HEAD = 32, LAYERS = 4, /* of products of attention */
    LOOP = 1 << 14,     /* elements of a loop's operands that a cache holds */
    OPERATIONS = 20,    /* of quick(), an element */
    LANES = 16,
    PART = 1 << 22,     /* elements that no cache holds */
    ROW = 256,          /* elements of a row that is normed, or moved */
    LEFT = 1 << 16,     /* elements of a matrix of such rows, in a core's cache */
    LEFT_FAR = RATES_FAR / (4 * LEFT) - 1,
    SHORT = 32, LONG = 1024, /* of a row of softmax */
    IMAGE = 32, CHANNELS = 64
};

/* A linear layer of so many rows. */
typedef struct {
    int rows, in, out;
} Layer;
static const Layer wide = {512, 256, 1024}, thin = {64, 256, 512};

static double weights_of(const Layer *l) { return 4.0 * l->in * l->out; }

/* Of one of a layer's three products; each reads two matrices and writes one. */
static double flops_of(const Layer *l) { return 2.0 * l->rows * l->in * l->out; }
static double bytes_of(const Layer *l)
{
    return weights_of(l) + 4.0 * l->rows * (l->in + l->out);
}

typedef struct {
    float *pool;    /* RATES_FAR bytes */
    double forward; /* seconds of train()'s forwards, since it was set to 0 */
    int trained;    /* its runs */
    uint8_t mask[LOOP];
    PpConv *conv;
} Room;

static float *part(const Room *r, int i) { return r->pool + (size_t)i * PART; }

/* ---- products ---- */

/* As so many layers are trained: forward, then from the last to the first the gradient of what was
   read and that of the weights, which adds up. */
static void train(Room *r, const Layer *l, int layers)
{
    double begin = pp_now();
    const int64_t m = l->rows, k = l->in, n = l->out, each = 2 * k * n + m * (k + n);
    for (int i = 0; i < layers; i++) {
        float *w = r->pool + i * each, *x = w + 2 * k * n, *y = x + m * k;
        pp_gemm(&(PpGemm){.type = PP_F32, .m = m, .n = n, .k = k, .a = x, .lda = k, .b = w,
                          .ldb = n, .c = y, .ldc = n});
    }
    r->forward += pp_now() - begin;
    r->trained++;
    for (int i = layers - 1; i >= 0; i--) {
        float *w = r->pool + i * each, *dw = w + k * n, *x = dw + k * n, *y = x + m * k;
        pp_gemm(&(PpGemm){.type = PP_F32, .ta = 1, .m = k, .n = n, .k = m, .a = x, .lda = k, .b = y,
                          .ldb = n, .adds = 1, .c = dw, .ldc = n});
        pp_gemm(&(PpGemm){.type = PP_F32, .tb = 1, .m = m, .n = k, .k = n, .a = y, .lda = n, .b = w,
                          .ldb = n, .c = x, .ldc = k});
    }
    for (int i = 0; i < layers; i++) { /* numbers stay small */
        float *w = r->pool + i * each;
        memset(w + 2 * k * n, 0, (size_t)(m * k) * sizeof *w);
    }
}

/* As many as go into RATES_FAR bytes. */
static int layers_far(const Layer *l)
{
    return (int)(RATES_FAR / (2 * weights_of(l) + 4.0 * l->rows * (l->in + l->out)));
}

static void train_wide(Room *r) { train(r, &wide, 1); }
static void train_thin(Room *r) { train(r, &thin, 1); }
static void train_far(Room *r) { train(r, &thin, layers_far(&thin)); }

static void square(const Room *r, int type)
{
    char *at = (char *)r->pool;
    const int64_t bytes = N * N * pp_gemm_size(type);
    pp_gemm(&(PpGemm){.type = type, .tb = 1, .m = N, .n = N, .k = N, .a = at, .lda = N,
                      .b = at + bytes, .ldb = N, .c = at + 2 * bytes, .ldc = N});
}

static void products64(Room *r) { square(r, PP_F64); }
static void products16(Room *r) { square(r, PP_BF16); }

static void convolutions(Room *r)
{
    pp_conv_forward(r->conv, 1, part(r, 0), part(r, 1), part(r, 2));
}

/* score = x y', where causal attention reads it; then to = score x, or score' x. */
enum { WIDTH = HEADS * HEAD };
static void scores(const float *x, const float *y, float *score)
{
    pp_gemm_band(&(PpGemm){.type = PP_F32, .tb = 1, .m = SEQUENCE, .n = SEQUENCE, .k = HEAD, .a = x,
                           .lda = WIDTH, .b = y, .ldb = WIDTH, .c = score, .ldc = SEQUENCE},
                 PP_BAND_C, 1 - SEQUENCE, 0);
}
static void times(const float *score, int turned, const float *x, float *to)
{
    pp_gemm_band(&(PpGemm){.type = PP_F32, .ta = turned, .m = SEQUENCE, .n = HEAD, .k = SEQUENCE,
                           .a = score, .lda = SEQUENCE, .b = x, .ldb = WIDTH, .c = to,
                           .ldc = WIDTH},
                 PP_BAND_A, turned ? 0 : 1 - SEQUENCE, turned ? SEQUENCE - 1 : 0);
}

/* Causal attention's, of a layer: scores and their use, and the gradients of all four operands.  A
   row's heads stand side by side. */
static void attention(float *q, float *score)
{
    enum { ALL = SEQUENCE * WIDTH };
    for (int h = 0; h < HEADS; h++, q += HEAD, score += SEQUENCE * SEQUENCE) {
        float *k = q + ALL, *v = k + ALL, *y = v + ALL;
        scores(q, k, score);
        times(score, 0, v, y);
        times(score, 1, y, v);
        scores(y, v, score);
        times(score, 0, k, y);
        times(score, 1, q, k);
    }
}

static void batched(Room *r)
{
    enum { EACH = SEQUENCE * HEADS * (4 * HEAD + SEQUENCE) };
    for (int i = 0; i < LAYERS; i++) {
        float *q = r->pool + (size_t)i * EACH, *score = q + 4 * SEQUENCE * HEADS * HEAD;
        memset(q, 0, (size_t)SEQUENCE * HEADS * HEAD * sizeof *q);
        attention(q, score);
    }
}

/* Of tiles on and below the diagonal. */
static double batched_flops(void)
{
    enum { TILES = SEQUENCE / PP_TILE };
    return LAYERS * 6 * 2.0 * HEADS * HEAD * PP_TILE * PP_TILE * (TILES * (TILES + 1) / 2);
}

/* ---- loops, as generated code has them ---- */

/* A polynomial of two operands, as chains of elementwise operations become a loop, of 12 of them an
   element; and rows that are normed, with 8. */
static void quick(Room *r)
{
    const float *a = part(r, 0), *b = part(r, 1);
    float *c = part(r, 2);
#pragma omp parallel for simd
    for (int i = 0; i < LOOP; i++) {
        float x = a[i], z = b[i], y = x * x + z;
        y = y * x + z;
        y = y * z + x;
        y = (y - z) * x;
        y = y * y + z;
        c[i] = (y + x) * 0.5f;
    }
#pragma omp parallel for
    for (int64_t i = 0; i < LOOP / ROW; i++) {
        const float *x = a + i * ROW;
        float s1[LANES] = {0}, s2[LANES] = {0};
        for (int64_t j = 0; j < ROW; j += LANES) {
#pragma omp simd
            for (int k = 0; k < LANES; k++)
                s1[k] += x[j + k];
        }
        const float mean = pp_fold_sumf(s1) / ROW;
        for (int64_t j = 0; j < ROW; j += LANES) {
#pragma omp simd
            for (int k = 0; k < LANES; k++)
                s2[k] += (x[j + k] - mean) * (x[j + k] - mean);
        }
        const float rstd = 1 / pp_sqrtf(pp_fold_sumf(s2) / ROW + 1e-5f);
#pragma omp simd
        for (int64_t j = 0; j < ROW; j++)
            c[i * ROW + j] = (x[j] - mean) * rstd * b[j] + b[ROW + j];
    }
}

#define LOOP_OF(name, elements, value)                                                             \
    static void name(Room *r)                                                                      \
    {                                                                                              \
        const float *a = part(r, 0), *b = part(r, 1);                                              \
        float *c = part(r, 2);                                                                     \
        _Pragma("omp parallel for simd") for (int i = 0; i < (elements); i++)                      \
        {                                                                                          \
            const float x = a[i];                                                                  \
            c[i] = value;                                                                          \
        }                                                                                          \
        (void)b;                                                                                   \
    }
LOOP_OF(slow, LOOP, x / (b[i] + 2))
LOOP_OF(functions, LOOP, pp_tanhf(x))
LOOP_OF(exponentials, LOOP, pp_expf(x))
LOOP_OF(step, LANES, x + 1.5f)
LOOP_OF(cached, RATES_SMALL / 4, x + 1.5f)
LOOP_OF(traffic, RATES_LARGE / 4, x + 1.5f)

/* Rows of n elements, a multiple of LANES, as attention has them: scaled, behind a mask. */
static void softmax(Room *r, int64_t n)
{
    const float *a = part(r, 0);
    const uint8_t *mask = r->mask;
    float *c = part(r, 2);
#pragma omp parallel for
    for (int64_t i = 0; i < LOOP / n; i++) {
        int shown[LONG];
        float e[LONG], most[LANES], all[LANES] = {0};
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            shown[j] = mask[i * n + j];
        for (int k = 0; k < LANES; k++)
            most[k] = -INFINITY;
        for (int64_t j = 0; j < n; j += LANES) {
#pragma omp simd
            for (int k = 0; k < LANES; k++) {
                const float v = a[i * n + j + k] * 0.125f;
                const float x = shown[j + k] ? v : -INFINITY;
                most[k] = pp_maxf(most[k], x);
            }
        }
        const float max = pp_fold_maxf(most);
        for (int64_t j = 0; j < n; j += LANES) {
#pragma omp simd
            for (int k = 0; k < LANES; k++) {
                const float v = a[i * n + j + k] * 0.125f;
                const float x = shown[j + k] ? v : -INFINITY;
                const float y = pp_expf(x - max);
                e[j + k] = y;
                all[k] += y;
            }
        }
        const float whole = 1 / pp_fold_sumf(all);
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            c[i * n + j] = e[j] * whole;
    }
}

static void short_rows(Room *r) { softmax(r, SHORT); }
static void long_rows(Room *r) { softmax(r, LONG); }

/* A gradient is left: by a product of two that a cache has, which lie before all of them. */
static void leave(const Room *r, int64_t at)
{
    const float *a = r->pool, *b = a + LEFT / 2;
    pp_gemm(&(PpGemm){.type = PP_F32, .m = LEFT / ROW, .n = ROW, .k = HEAD, .a = a, .lda = HEAD,
                      .b = b, .ldb = ROW, .c = r->pool + (1 + at) * LEFT, .ldc = ROW});
}

/* And found: sums of its columns, in blocks as generated code has them. */
static void find(const Room *r, int64_t at)
{
    enum { BLOCK = 64 };
    const float *x = r->pool + (1 + at) * LEFT;
    float *sum = r->pool + LEFT / 4;
#pragma omp parallel for
    for (int64_t j0 = 0; j0 < ROW; j0 += BLOCK) {
        float s[BLOCK] = {0};
        for (int64_t i = 0; i < LEFT / ROW; i++) {
#pragma omp simd
            for (int64_t j = 0; j < BLOCK; j++)
                s[j] += x[i * ROW + j0 + j];
        }
        for (int64_t j = 0; j < BLOCK; j++)
            sum[j0 + j] = s[j];
    }
}

/* One that a core's cache still has. */
static void left_near(Room *r)
{
    leave(r, 0);
    find(r, 0);
}

/* Half of the pool is left and half is found in between. */
static void left_far(Room *r)
{
    for (int64_t i = 0; i < LEFT_FAR; i++) {
        leave(r, i);
        find(r, (i + LEFT_FAR / 2) % LEFT_FAR);
    }
}

/* Rows in another order, out of and into memory. */
static void moves(Room *r)
{
    enum { ROWS = PART / 4 / ROW };
    const float *a = part(r, 0);
    float *c = part(r, 2);
#pragma omp parallel for
    for (int i = 0; i < ROWS; i++)
        memcpy(c + (size_t)i * ROW, a + (size_t)(i * 7 % ROWS) * ROW, ROW * sizeof(float));
}

/* The end of a step: the norm of gradients, Adam's update, zeros for the next one. */
static void updates(Room *r)
{
    DeviceParam p = {.value = part(r, 0),
                     .grad = part(r, 1),
                     .state = {part(r, 2), part(r, 3)},
                     .n = PART,
                     .dtype = PP_F32,
                     .update = 1};
    DeviceUpdate u = {.optimizer = OPTIM_adam, .scale = 1};
    u.scale += 1e-30 * optim_cpu_sum_squares(p.grad, p.n, p.dtype);
    optimizers[OPTIM_adam].numbers(&optimizers[OPTIM_adam].defaults, 0, u.number[0]);
    optim_cpu_update(&p, 1, &u);
    memset(p.grad, 0, (size_t)p.n * sizeof(float));
}

/* ---- all of them ---- */

typedef enum {
    WIDE, THIN, FAR, P64, P16, CONVOLUTIONS, BATCHED, QUICK, SLOW, FUNCTIONS, EXPONENTIALS,
    SHORT_ROWS, LONG_ROWS, STEP, CACHED, TRAFFIC, LEFT_NEAR, LEFT_AWAY, MOVES, UPDATES, WORKS
} Work;
static void (*const works[WORKS])(Room *) = {
    train_wide, train_thin, train_far,    products64, products16, convolutions, batched,
    quick,      slow,       functions,    exponentials, short_rows, long_rows,  step,
    cached,     traffic,    left_near,    left_far,     moves,      updates,
};

const MeasuredRate measured_rates[MEASURED_RATES] = {
    {"products", "FLOP/s of matrix products in float32"},
    {"products64", "of those in float64"},
    {"products16", "of those in 16 bits"},
    {"operands", "bytes/s of operands and results of products, beside that"},
    {"transposed", "of parameters and their gradients, backward"},
    {"parameters", "of parameters and results where no cache has them, beside that"},
    {"gradients", "backward, of parameters and their gradients"},
    {"convolutions", "FLOP/s of convolutions"},
    {"batched", "of many small ones of activations"},
    {"quick", "elements/s of additions in loops, without memory"},
    {"slow", "of divisions"},
    {"functions", "of hyperbolic tangents"},
    {"exponentials", "of exponentials"},
    {"softmax", "of softmax"},
    {"rows", "its rows begun in a second"},
    {"cached", "bytes/s that loops read and write in a cache"},
    {"traffic", "and beyond it"},
    {"left", "bytes/s that are left, and found where no cache has them, beside that"},
    {"moves", "bytes/s that are moved"},
    {"updates", "bytes/s that an optimizer reads and writes"},
    {"steps", "loops begun in a second"},
};

/* Bytes in so many seconds that far layers took longer than near ones, which took `near`: at least
   a hundredth, where noise says that they took less. */
static double longer(double bytes, double seconds, double near)
{
    return bytes / (seconds > 0.01 * near ? seconds : 0.01 * near);
}

/* Where noise says that bytes cost nothing, or operations, they are a hundredth or a quarter of
   what a product takes for each byte. */
static double within(double per_byte, double all)
{
    return per_byte > 0.25 * all ? 0.25 * all : per_byte < 0.01 * all ? 0.01 * all : per_byte;
}

/* Of `all` seconds without those that are counted by themselves; half, where noise has more of
   them. */
static double without(double all, double others)
{
    return all - others > 0.5 * all ? all - others : 0.5 * all;
}

/* seconds: of a run of each; forward: of its forwards, of trained layers. */
static void rates_of(const double *seconds, const double *forward, double *rate)
{
    double far = layers_far(&thin), a = forward[WIDE], b = forward[THIN], fa = flops_of(&wide),
           fb = flops_of(&thin), ba = bytes_of(&wide), bb = bytes_of(&thin);
    /* a = fa / products + ba / operands, and so b */
    double per_byte = within((b * fa - a * fb) / (bb * fa - ba * fb), a / ba);
    double per_flop = (a - ba * per_byte) / fa, back = seconds[THIN] - b;
    double weights = 3 * weights_of(&thin), others = 2 * (bb - weights_of(&thin));
    double returned = within((back - 2 * fb * per_flop - others * per_byte) / weights, back / bb);
    double both = seconds[FAR] / far - seconds[THIN], ahead = forward[FAR] / far - b,
           results = 4.0 * thin.rows * thin.out;
    /* Arithmetic hides what it reads and writes in a cache; what functions do is added to that. */
    const double step = seconds[STEP], small = without(seconds[CACHED], step),
                 operand = small / (2.0 * RATES_SMALL) * sizeof(float) * LOOP;
    double of_row = seconds[SHORT_ROWS] * SHORT / LOOP - seconds[LONG_ROWS] * SHORT / LOOP;
    double all[MEASURED_RATES] = {
        1 / per_flop,
        2.0 * N * N * N / seconds[P64],
        2.0 * N * N * N / seconds[P16],
        1 / per_byte,
        1 / returned,
        longer(weights_of(&thin) + results, ahead, seconds[THIN]),
        longer(weights, both - ahead, seconds[THIN]),
        2.0 * 9 * CHANNELS * CHANNELS * IMAGE * IMAGE / seconds[CONVOLUTIONS],
        batched_flops() / seconds[BATCHED],
        (double)OPERATIONS * LOOP / without(seconds[QUICK], 2 * step),
        LOOP / without(seconds[SLOW], step + 3 * operand),
        LOOP / without(seconds[FUNCTIONS], step + 2 * operand),
        LOOP / without(seconds[EXPONENTIALS], step + 2 * operand),
        LOOP / without(seconds[LONG_ROWS], step),
        1 / (of_row > 1e-9 ? of_row : 1e-9),
        2.0 * RATES_SMALL / small,
        2.0 * RATES_LARGE / without(seconds[TRAFFIC], step),
        longer(sizeof(float) * LEFT, seconds[LEFT_AWAY] / LEFT_FAR - seconds[LEFT_NEAR],
               seconds[LEFT_NEAR]),
        (double)PART / 4 * sizeof(float) / seconds[MOVES],
        9.0 * PART * sizeof(float) / seconds[UPDATES], /* as planner/memory.c counts them */
        1 / step,
    };
    memcpy(rate, all, sizeof all);
}

/* Of a run, in 2 ms at least; the first one, after other work, finds no caches. */
static double seconds_of(void (*run)(Room *), Room *r)
{
    const double least = 2e-3;
    int runs = 0;
    run(r);
    r->forward = r->trained = 0;
    double begin = pp_now(), now;
    do {
        run(r);
        runs++;
    } while ((now = pp_now()) - begin < least);
    return (now - begin) / runs;
}

/* What products in other types leave in the pool is no number for others. */
static void fill(const Room *r, Work w)
{
    for (int i = 0; i < 4 * PART && w == CONVOLUTIONS; i++)
        r->pool[i] = (float)(i % 7) * 0.125f;
    if (w == P64)
        for (int i = 0; i < 3 * N * N; i++)
            ((double *)(void *)r->pool)[i] = (i % 9) * 0.125;
    if (w == P16)
        for (int i = 0; i < 3 * N * N; i++)
            ((uint16_t *)(void *)r->pool)[i] = pp_to_bf16((float)(i % 3) * 0.5f);
}

static PpStatus room_open(Room *r, int threads)
{
    const PpConvShape shape = {.dtype = PP_F32, .spatial = 2, .group = 1, .c = CHANNELS,
                               .m = CHANNELS, .in = {IMAGE, IMAGE}, .out = {IMAGE, IMAGE},
                               .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1},
                               .pad_begin = {1, 1}, .pad_end = {1, 1}};
    static_assert(RATES_FAR >= 4 * PART * sizeof(float), "parts of a room");
    for (int i = 0; i < LOOP; i++)
        r->mask[i] = i % SHORT <= i / SHORT % SHORT;
    r->pool = device_cpu.memory.alloc(NULL, RATES_FAR);
    r->conv = pp_conv_open(&shape, threads);
    return r->pool && r->conv ? PP_OK : pp_no_memory();
}

/* A tenth of a second at work: until then ranks may share a core, and its clock is low. */
static void warm_up(Room *r)
{
    for (double begin = pp_now(); pp_now() - begin < 0.1;)
        train_thin(r);
}

static PpStatus a_round(Group *g, Room *r, double *rate)
{
    double seconds[WORKS], forward[WORKS];
    PpStatus s = PP_OK;
    for (int k = 0; k < WORKS && s == PP_OK; k++) {
        double turn = 0; /* all begin together */
        fill(r, (Work)k);
        s = g->op->sum(g, &turn, 1);
        seconds[k] = s == PP_OK ? seconds_of(works[k], r) : 0;
        forward[k] = r->trained ? r->forward / r->trained : 0;
    }
    if (s == PP_OK)
        rates_of(seconds, forward, rate);
    return s;
}

PpStatus measure_rates(Group *g, int threads, double *rate)
{
    Room r = {0};
    double one[MEASURED_RATES], all[MEASURED_RATES][ROUNDS];
    PpStatus s = group_agree(g, room_open(&r, threads));
    if (s == PP_OK) {
        fill(&r, CONVOLUTIONS);
        warm_up(&r);
    }
    for (int i = 0; i < ROUNDS && s == PP_OK; i++) {
        s = a_round(g, &r, one);
        for (int k = 0; k < MEASURED_RATES && s == PP_OK; k++)
            all[k][i] = one[k];
    }
    for (int k = 0; k < MEASURED_RATES && s == PP_OK; k++)
        rate[k] = pp_median(all[k], ROUNDS);
    if (r.conv)
        pp_conv_close(r.conv);
    if (r.pool)
        device_cpu.memory.release(NULL, r.pool);
    return s;
}
