/*
 * optim.c - in: gradients; out: their norm, and new parameters by PyTorch's formulas (torch.optim.SGD, Adam, AdamW,
 * torch.nn.utils.clip_grad_norm_).
 *
 * Everything is elementwise but the norm, whose order of additions is fixed: squares in double, 8 lanes within blocks
 * of 4,096 elements, blocks in order, then parameters in the model's order.  So neither threads, ranks nor the split
 * change a bit.
 */
#include "internal.h"

#include <math.h>

enum { BLOCK = 4096, LANES = 8, TEAM = 64 };

static double block_f32(const float *x, int64_t n)
{
    double s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += (double)x[i + k] * (double)x[i + k];
    for (int k = 0; i < n; i++, k++)
        s[k] += (double)x[i] * (double)x[i];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static double block_f64(const double *x, int64_t n)
{
    double s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += x[i + k] * x[i + k];
    for (int k = 0; i < n; i++, k++)
        s[k] += x[i] * x[i];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

double blocked_sum_squares(const void *p, int64_t n, int dtype)
{
    double total = 0, part[TEAM];
    for (int64_t first = 0; first < n; first += (int64_t)TEAM * BLOCK) {
        int64_t left = n - first, blocks = (left + BLOCK - 1) / BLOCK;
        int count = (int)(blocks < TEAM ? blocks : TEAM);
#pragma omp parallel for schedule(static) if (count > 8)
        for (int b = 0; b < count; b++) {
            int64_t at = first + (int64_t)b * BLOCK, len = n - at < BLOCK ? n - at : BLOCK;
            part[b] = dtype == PP_F64 ? block_f64((const double *)p + at, len) : block_f32((const float *)p + at, len);
        }
        for (int b = 0; b < count; b++)
            total += part[b];
    }
    return total;
}

void optim_norms(Rank *r, double *sumsq)
{
    for (int l = 0; l < r->n_stage; l++)
        for (int k = 0; k < r->stage[l].st->n_param; k++) {
            const RankParam *q = &r->stage[l].rp[k];
            if (q->counts)
                sumsq[q->p->param] =
                    blocked_sum_squares(q->grad, q->p->t.bytes / st_dtype_size(q->p->t.dtype), q->p->t.dtype);
        }
}

int optim_states(const Options *o)
{
    if (o->mode != MODE_TRAIN)
        return 0;
    switch (o->optimizer) {
    case OPT_ADAM:
    case OPT_ADAMW: return 2;
    case OPT_MOMENTUM:
    case OPT_SGD: return o->momentum > 0;
    }
    return 0;
}

/* What an update needs, once per element type. */
#define UPDATES(T, SUFFIX, SQRT)                                                                                       \
    /* buf = momentum * buf + g (the first time g itself); p -= lr * (nesterov ? g + momentum * buf : buf) */          \
    static void sgd_##SUFFIX(const Options *o, int64_t n, T *p, const T *grad, T *buf, int64_t step, T scale)          \
    {                                                                                                                  \
        T lr = (T)o->lr, mom = (T)o->momentum, wd = (T)o->weight_decay;                                                \
        _Pragma("omp parallel for schedule(static) if (n > 65536)") for (int64_t i = 0; i < n; i++)                    \
        {                                                                                                              \
            T g = grad[i] * scale + wd * p[i];                                                                         \
            if (buf) {                                                                                                 \
                buf[i] = step == 0 ? g : mom * buf[i] + g;                                                             \
                g = o->nesterov ? g + mom * buf[i] : buf[i];                                                           \
            }                                                                                                          \
            p[i] -= lr * g;                                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    /* m += (1 - b1)(g - m); v = b2 v + (1 - b2) g g; p -= lr/(1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps) */     \
    static void adam_##SUFFIX(const Options *o, int64_t n, T *p, const T *grad, T *m, T *v, int64_t step, T scale)     \
    {                                                                                                                  \
        double t = (double)step + 1, c1 = 1 - pow(o->beta1, t), c2 = 1 - pow(o->beta2, t);                             \
        T rate = (T)(o->lr / c1), root = (T)sqrt(c2), eps = (T)o->eps;                                                 \
        T b2 = (T)o->beta2, d1 = (T)(1 - o->beta1), d2 = (T)(1 - o->beta2);                                            \
        T keep = o->optimizer == OPT_ADAMW ? (T)(1 - o->lr * o->weight_decay) : 1;                                     \
        T wd = o->optimizer == OPT_ADAMW ? 0 : (T)o->weight_decay;                                                     \
        _Pragma("omp parallel for schedule(static) if (n > 65536)") for (int64_t i = 0; i < n; i++)                    \
        {                                                                                                              \
            T x = p[i] * keep, g = grad[i] * scale + wd * p[i];                                                        \
            m[i] += d1 * (g - m[i]);                                                                                   \
            v[i] = b2 * v[i] + d2 * g * g;                                                                             \
            p[i] = x - rate * (m[i] / (SQRT(v[i]) / root + eps));                                                      \
        }                                                                                                              \
    }

UPDATES(float, f32, sqrtf)
UPDATES(double, f64, sqrt)

static void update(const Options *o, const RankParam *q, int64_t step, double scale)
{
    int64_t n = q->p->t.bytes / st_dtype_size(q->p->t.dtype);
    int adam = o->optimizer == OPT_ADAM || o->optimizer == OPT_ADAMW;
    void *p = q->value, *g = q->grad, *s0 = q->state[0], *s1 = q->state[1];
    if (q->p->t.dtype == PP_F64 && adam)
        adam_f64(o, n, p, g, s0, s1, step, scale);
    else if (q->p->t.dtype == PP_F64)
        sgd_f64(o, n, p, g, s0, step, scale);
    else if (adam)
        adam_f32(o, n, p, g, s0, s1, step, (float)scale);
    else
        sgd_f32(o, n, p, g, s0, step, (float)scale);
}

void optim_update(Rank *r, int64_t step, double scale)
{
    for (int l = 0; l < r->n_stage; l++)
        for (int k = 0; k < r->stage[l].st->n_param; k++)
            if (r->stage[l].rp[k].update)
                update(r->run->opt, &r->stage[l].rp[k], step, scale);
}
