/*
 * optim_cpu.c - the runtime's arithmetic on the CPU: additions of gradients, norms, updates of
 * parameters.
 *
 * The order of additions of a norm is fixed: squares in double, 8 lanes within blocks of 4,096
 * elements, blocks in order.  So neither threads, ranks nor the split change a bit; optim_cuda.cu
 * adds in the same order.  All else is done element by element.
 */
#include "api/pp.h"
#include "core/number.h"
#include "optim/optim.h"

#include <math.h>

enum { BLOCK = OPTIM_BLOCK, LANES = 8, TEAM = 64 };

#define SUM_OF(T, a, b)                                                                            \
    _Pragma("omp parallel for schedule(static) if (n > 65536)") for (int64_t i = 0; i < n; i++)    \
        ((T *)(a))[i] += ((const T *)(b))[i]
void optim_cpu_add(void *to, const void *from, int64_t n, int dtype)
{
    if (dtype == PP_F64)
        SUM_OF(double, to, from);
    else
        SUM_OF(float, to, from);
}

void optim_cpu_round(uint16_t *to, const float *from, int64_t n, int type)
{
#pragma omp parallel for schedule(static) if (n > 65536)
    for (int64_t i = 0; i < n; i += BLOCK)
        half_round(type, from + i, n - i < BLOCK ? n - i : BLOCK, to + i);
}

/* ---- norms ---- */

#define BLOCK_OF(T)                                                                                \
    static double block_##T(const T *x, int64_t n)                                                 \
    {                                                                                              \
        double s[LANES] = {0};                                                                     \
        int64_t i = 0;                                                                             \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int k = 0; k < LANES; k++)                                                        \
                s[k] += (double)x[i + k] * (double)x[i + k];                                       \
        for (int k = 0; i < n; i++, k++)                                                           \
            s[k] += (double)x[i] * (double)x[i];                                                   \
        return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));                  \
    }
BLOCK_OF(float)
BLOCK_OF(double)

void optim_cpu_block_squares(const void *p, int64_t n, int dtype, double *sum)
{
    int64_t count = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) if (count > 8)
    for (int64_t b = 0; b < count; b++) {
        int64_t at = b * BLOCK, len = n - at < BLOCK ? n - at : BLOCK;
        sum[b] = dtype == PP_F64 ? block_double((const double *)p + at, len)
                                 : block_float((const float *)p + at, len);
    }
}

double optim_cpu_sum_squares(const void *p, int64_t n, int dtype)
{
    double total = 0, part[TEAM];
    for (int64_t at = 0; at < n; at += (int64_t)TEAM * BLOCK) {
        int64_t most = (int64_t)TEAM * BLOCK, some = n - at < most ? n - at : most;
        const char *from = (const char *)p + at * (dtype == PP_F64 ? 8 : 4);
        optim_cpu_block_squares(from, some, dtype, part);
        for (int64_t b = 0; b * BLOCK < some; b++)
            total += part[b];
    }
    return total;
}

/* ---- updates: of each optimizer and element type the loop over elements [from, to) ---- */

/* An infinite parameter, as -inf where a bias masks, stays: decay and rate times it would be NaN */

#define OPTIMIZER_PER_TYPE(id, rule, states, ...)                                                  \
    static void PER_TYPE(update_##id)(const DeviceUpdate *u, const DeviceParam *q, int64_t from,   \
                                      int64_t to)                                                  \
    {                                                                                              \
        T k[OPTIM_NUMBERS], scale = (T)u->scale, *p = q->value, *state[OPTIM_STATES];              \
        const T *grad = q->grad;                                                                   \
        for (int j = 0; j < OPTIM_NUMBERS; j++)                                                    \
            k[j] = (T)u->number[q->group][j];                                                      \
        for (int j = 0; j < OPTIM_STATES; j++)                                                     \
            state[j] = q->state[j];                                                                \
        for (int64_t i = from; i < to; i++) {                                                      \
            T s[OPTIM_STATES] = {0};                                                               \
            for (int j = 0; j < states; j++)                                                       \
                s[j] = state[j][i];                                                                \
            const T was = p[i], infinite = (T)INFINITY;                                            \
            const int stays = was == infinite || was == -infinite;                                 \
            const T now = PER_TYPE(rule)(k, stays ? 0 : was, grad[i] * scale, s);                  \
            p[i] = stays ? was : now;                                                              \
            for (int j = 0; j < states; j++)                                                       \
                state[j][i] = s[j];                                                                \
        }                                                                                          \
    }
#include "optim/per_type.h"

typedef void (*Update)(const DeviceUpdate *u, const DeviceParam *q, int64_t from, int64_t to);
static const struct {
    Update f32, f64;
} updates[OPTIMIZERS] = {
#define OPTIMIZER(id, ...) {update_##id##_f32, update_##id##_f64},
#include "optim/optimizers.h"
};

void optim_cpu_update(const DeviceParam *list, int n, const DeviceUpdate *u)
{
    for (int i = 0; i < n; i++) {
        const DeviceParam *q = &list[i];
        Update update = q->dtype == PP_F64 ? updates[u->optimizer].f64 : updates[u->optimizer].f32;
        int64_t blocks = (q->n + BLOCK - 1) / BLOCK;
        if (!q->update)
            continue;
#pragma omp parallel for schedule(static) if (blocks > 16)
        for (int64_t b = 0; b < blocks; b++) {
            int64_t from = b * BLOCK, to = from + BLOCK < q->n ? from + BLOCK : q->n;
            update(u, q, from, to);
            if (q->half)
                half_round(q->half_type, (const float *)q->value + from, to - from,
                           (uint16_t *)q->half + from);
        }
    }
}
