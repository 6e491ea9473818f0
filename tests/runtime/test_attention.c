/*
 * test_attention.c - pp_attention and its gradients (runtime/device/cpu/attention.c): the same bits
 * with any number of threads, those of matrices and those of rows, and numbers of the definition.
 */
#include "runtime/api/pp_attention.h"
#include "runtime/api/pp_half.h"
#include "tests/share/tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* B samples of H heads, of which `shared` neighbours have the same keys and values; MANY: places of
   several strips. */
enum { B = 2, H = 4, FEW = 70, MANY = PP_ATTENTION_MOST + 60, D = 6, ALL = B * H * MANY * D,
       STATS = B * H * MANY * 2 };

typedef struct {
    const char *what;
    int dtype, shared;
    bool causal, drops;
    int64_t diagonal, window;
    int64_t places;
} Case;

typedef struct {
    float q[ALL], k[ALL], v[ALL], dy[ALL], y[ALL], dq[ALL], dk[ALL], dv[ALL], stats[STATS];
} Numbers;

static PpMatrix matrix(void *at, int shared, int64_t T)
{
    const int heads = H / shared;
    return (PpMatrix){at, D, 1, {heads * T * D, T * D, shared > 1 ? 0 : T * D}};
}

/* The matrices of x; heads count as (H / shared, shared). */
static PpAttention call(const Case *c, Numbers *x)
{
    const int64_t T = c->places;
    PpAttention a = {
        .dtype = c->dtype,
        .bias_dtype = PP_F32,
        .rows = T,
        .keys = T,
        .width = D,
        .width_v = D,
        .dims = 3,
        .scale = 0.5f,
        .mask = {.fill = -INFINITY,
                 .causal = c->causal,
                 .diagonal = c->diagonal,
                 .window = c->window},
        .drop = {.limit = c->drops ? UINT64_C(1) << 30 : 0, .kept = 4.0f / 3, .seed = 1}};
    const int64_t count[] = {B, H / c->shared, c->shared};
    memcpy(a.count, count, sizeof count);
    PpMatrix *of_queries[] = {&a.q, &a.y, &a.dq, &a.dy}, *of_keys[] = {&a.k, &a.v, &a.dk, &a.dv};
    float *at[] = {x->q, x->y, x->dq, x->dy}, *at_keys[] = {x->k, x->v, x->dk, x->dv};
    for (int i = 0; i < 4; i++) {
        const int64_t batch[] = {H * T * D, c->shared * T * D, T * D};
        *of_queries[i] = (PpMatrix){at[i], D, 1, {0}};
        memcpy(of_queries[i]->batch, batch, sizeof batch);
        *of_keys[i] = matrix(at_keys[i], c->shared, T);
        if (c->shared == 1)
            of_keys[i]->batch[2] = T * D;
    }
    a.stats = (PpMatrix){x->stats, 2, 1, {H * T * 2, c->shared * T * 2, T * 2}};
    for (int i = 0; i < 3; i++)
        a.drop.element[i] = i ? count[2] * T * T / (i == 2 ? c->shared : 1) : 0;
    a.drop.row[0] = 1;
    return a;
}

static void narrow(float *x)
{
    uint16_t *h = (uint16_t *)(void *)x;
    for (int i = 0; i < ALL; i++)
        h[i] = pp_to_bf16(x[i]);
}

static void widen(float *x)
{
    const uint16_t *h = (const uint16_t *)(void *)x;
    for (int i = ALL; i-- > 0;)
        x[i] = pp_from_bf16(h[i]);
}

/* Forward and backward of random numbers. */
static void run(const Case *c, Numbers *x, int threads)
{
    memset(x, 0, sizeof *x);
    srand(1);
    float *given[] = {x->q, x->k, x->v, x->dy};
    for (int g = 0; g < 4; g++) {
        for (int i = 0; i < ALL; i++)
            given[g][i] = (float)rand() / (float)RAND_MAX * 2 - 1;
        if (c->dtype != PP_F32)
            narrow(given[g]);
    }
    PpAttention a = call(c, x);
    const int shared = c->shared > 1;
    int64_t bytes[] = {pp_attention_room(&a, B * H, shared, 0).bytes,
                       pp_attention_room(&a, B * H, shared, 1).bytes};
    a.room =
        aligned_alloc(64, (size_t)((bytes[0] > bytes[1] ? bytes[0] : bytes[1]) + 63) / 64 * 64);
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
    (void)threads;
    pp_attention(NULL, &a);
    pp_attention_backward(NULL, &a);
    free(a.room);
}

static bool seen(const Case *c, int64_t i, int64_t j)
{
    return !c->causal || (j <= i + c->diagonal && (!c->window || j > i + c->diagonal - c->window));
}

/* The definition, without dropout: the greatest difference. */
static double differs(const Case *c, const Numbers *x)
{
    const int64_t T = c->places;
    static double y[ALL], dq[ALL], dk[ALL], dv[ALL];
    const float *const got[] = {x->y, x->dq, x->dk, x->dv};
    const double *const want[] = {y, dq, dk, dv};
    const int all = T > FEW ? 2 : B * H; /* of many places the first two matrices */
    double worst = 0;
    memset(y, 0, sizeof y), memset(dq, 0, sizeof dq);
    memset(dk, 0, sizeof dk), memset(dv, 0, sizeof dv);
    for (int z = 0; z < all; z++)
        for (int64_t i = 0; i < T; i++) {
            const int64_t at = (z * T + i) * D, keys = z / c->shared * T * D;
            double p[MANY], g[MANY], sum = 0, mean = 0;
            for (int64_t j = 0; j < T; j++) {
                double s = 0;
                g[j] = 0;
                for (int d = 0; d < D; d++) {
                    s += (double)x->q[at + d] * (double)x->k[keys + j * D + d];
                    g[j] += (double)x->dy[at + d] * (double)x->v[keys + j * D + d];
                }
                sum += p[j] = seen(c, i, j) ? exp(0.5 * s) : 0;
            }
            for (int64_t j = 0; j < T; j++)
                mean += (p[j] /= sum) * g[j];
            for (int64_t j = 0; j < T; j++)
                for (int d = 0; d < D; d++) {
                    const double ds = 0.5 * p[j] * (g[j] - mean);
                    y[at + d] += p[j] * (double)x->v[keys + j * D + d];
                    dv[keys + j * D + d] += p[j] * (double)x->dy[at + d];
                    dq[at + d] += ds * (double)x->k[keys + j * D + d];
                    dk[keys + j * D + d] += ds * (double)x->q[at + d];
                }
        }
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < all * T * D / (k < 2 ? 1 : c->shared); i++)
            worst = fmax(worst, fabs((double)got[k][i] - want[k][i]));
    return worst;
}

int main(void)
{
    static const Case all[] = {
        {"every key", PP_F32, 1, false, false, 0, 0, FEW},
        {"causal", PP_F32, 1, true, false, 0, 0, FEW},
        {"a window", PP_F32, 1, true, false, 0, 9, FEW},
        {"heads that share keys", PP_F32, 2, true, false, 3, 0, FEW},
        {"dropout", PP_F32, 1, true, true, 0, 0, FEW},
        {"bf16", PP_BF16, 1, true, false, 0, 0, FEW},
        {"bf16, heads that share keys, dropout", PP_BF16, 4, false, true, 0, 0, FEW},
        {"strips", PP_F32, 1, true, false, 0, 0, MANY},
        {"strips of heads that share keys, a window", PP_F32, 2, true, false, 5, 700, MANY},
        {"bf16, strips", PP_BF16, 1, true, false, 0, 0, MANY},
    };
    static Numbers one, more;
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        bool same = true;
        run(&all[i], &one, 1);
        for (int threads = 2; threads <= 9; threads += 7) { /* fewer than matrices, and more */
            run(&all[i], &more, threads);
            same &= memcmp(&one, &more, sizeof one) == 0;
        }
        ok(same, "%s: the same bits with several threads", all[i].what);
        if (!all[i].drops) {
            const bool half = all[i].dtype != PP_F32;
            float *const of[] = {one.q, one.k, one.v, one.dy, one.y, one.dq, one.dk, one.dv};
            for (int k = 0; k < 8 && half; k++)
                widen(of[k]);
            const double worst = differs(&all[i], &one);
            ok(worst < (half ? 1e-2 : 2e-5), "%s: the definition's numbers (%.2g)", all[i].what, worst);
        }
    }
    return tap_done();
}
