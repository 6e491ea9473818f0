/*
 * device_cpu.c - the CPU as a device.  Everything is done when a call returns.
 *
 * Optimizers are PyTorch's formulas (torch.optim.SGD, Adam, AdamW), elementwise.  The order of additions of a norm is
 * fixed: squares in double, 8 lanes within blocks of 4,096 elements, blocks in order.  So neither threads, ranks nor
 * the split change a bit; optim_cuda.cu adds in the same order.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "device/cpu/cpu.h"

#include "core/core.h"
#include "device/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCK = 4096, LANES = 8, TEAM = 64 };

/* ---- memory ---- */

static void prepare(int nccl) { (void)nccl; }

static int one(void) { return 1; }

static int open_cpu(Device *d, const DeviceWish *w)
{
    (void)w;
    d->number = 0;
    return 1;
}

/* Large blocks ask for huge pages: products walk across rows of 1 KB and more, each of which would be a page of its own (2 to 4% of
   a step; worth it since rows stand apart, codegen/plan/pad.c: without that they would all meet in the same sets of the cache). */
static void *alloc(Device *d, int64_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    (void)d;
    size_t n = (size_t)((bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN);
    if (bytes < 2 * HUGE_PAGE)
        return aligned_alloc(PP_ALIGN, n);
    void *p = aligned_alloc(HUGE_PAGE, n);
#ifdef MADV_HUGEPAGE
    if (p)
        madvise(p, n / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return p;
}

static void release(Device *d, void *p)
{
    (void)d;
    free(p);
}

static void copy(Device *d, int stream, void *to, const void *from, int64_t bytes)
{
    (void)d, (void)stream;
    memcpy(to, from, (size_t)bytes);
}

static void enable_peer(Device *d, int number) { (void)d, (void)number; }

static void copy_to(Device *d, int stream, Device *other, void *to, const void *from, int64_t bytes)
{
    (void)other;
    copy(d, stream, to, from, bytes);
}

static void zero(Device *d, int stream, void *p, int64_t bytes)
{
    (void)d, (void)stream;
    memset(p, 0, (size_t)bytes);
}

/* ---- arithmetic ---- */

static void add(Device *d, int stream, void *to, const void *from, int64_t n, int dtype)
{
    (void)d, (void)stream;
    if (dtype == PP_F64) {
        double *a = to;
        const double *b = from;
#pragma omp parallel for schedule(static) if (n > 65536)
        for (int64_t i = 0; i < n; i++)
            a[i] += b[i];
        return;
    }
    float *a = to;
    const float *b = from;
#pragma omp parallel for schedule(static) if (n > 65536)
    for (int64_t i = 0; i < n; i++)
        a[i] += b[i];
}

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

static double sum_squares(const void *p, int64_t n, int dtype)
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

/* ---- the parameters of a rank ---- */

typedef struct {
    const DeviceParam *list;
    int n;
} Params;

static int params(Device *d, const DeviceParam *list, int n)
{
    Params *p = d->impl = malloc(sizeof *p);
    if (p)
        *p = (Params){list, n};
    return p != NULL;
}

static void close_cpu(Device *d)
{
    free(d->impl);
    d->impl = NULL;
}

static void norms(Device *d, int stream, double *sum)
{
    const Params *p = d->impl;
    (void)stream;
    for (int i = 0; i < p->n; i++)
        if (p->list[i].norm >= 0)
            sum[p->list[i].norm] = sum_squares(p->list[i].grad, p->list[i].n, p->list[i].dtype);
}

/* What an update needs, once per element type. */
#define UPDATES(T, SUFFIX, SQRT)                                                                                       \
    /* buf = momentum * buf + g (the first time g itself); p -= lr * (nesterov ? g + momentum * buf : buf) */          \
    static void sgd_##SUFFIX(const DeviceUpdate *u, int64_t n, T *p, const T *grad, T *buf)                            \
    {                                                                                                                  \
        T lr = (T)u->lr, mom = (T)u->momentum, wd = (T)u->weight_decay, scale = (T)u->scale;                           \
        _Pragma("omp parallel for schedule(static) if (n > 65536)") for (int64_t i = 0; i < n; i++)                    \
        {                                                                                                              \
            T g = grad[i] * scale + wd * p[i];                                                                         \
            if (buf) {                                                                                                 \
                buf[i] = u->first ? g : mom * buf[i] + g;                                                              \
                g = u->nesterov ? g + mom * buf[i] : buf[i];                                                           \
            }                                                                                                          \
            p[i] -= lr * g;                                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    /* m += (1 - b1)(g - m); v = b2 v + (1 - b2) g g; p -= lr/(1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps) */     \
    static void adam_##SUFFIX(const DeviceUpdate *u, int64_t n, T *p, const T *grad, T *m, T *v)                       \
    {                                                                                                                  \
        T rate = (T)u->rate, root = (T)u->root, eps = (T)u->eps, scale = (T)u->scale;                                  \
        T b2 = (T)u->beta2, d1 = (T)u->less1, d2 = (T)u->less2, keep = (T)u->keep, wd = (T)u->weight_decay;            \
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

static void update(Device *d, int stream, const DeviceUpdate *u)
{
    const Params *all = d->impl;
    (void)stream;
    for (int i = 0; i < all->n; i++) {
        const DeviceParam *q = &all->list[i];
        if (!q->update)
            continue;
        if (q->dtype == PP_F64 && u->adam)
            adam_f64(u, q->n, q->value, q->grad, q->state[0], q->state[1]);
        else if (q->dtype == PP_F64)
            sgd_f64(u, q->n, q->value, q->grad, q->state[0]);
        else if (u->adam)
            adam_f32(u, q->n, q->value, q->grad, q->state[0], q->state[1]);
        else
            sgd_f32(u, q->n, q->value, q->grad, q->state[0]);
    }
}

/* ---- streams and events: all is in order ---- */

static DeviceEvent event(Device *d, int timed)
{
    (void)d, (void)timed;
    return NULL;
}

static void on_event(Device *d, DeviceEvent e) { (void)d, (void)e; }
static void on_stream(Device *d, int stream, DeviceEvent e) { (void)d, (void)stream, (void)e; }

static int done(Device *d, DeviceEvent e)
{
    (void)d, (void)e;
    return 1;
}

static double elapsed(Device *d, DeviceEvent from, DeviceEvent to)
{
    (void)d, (void)from, (void)to;
    return 0;
}

static void enter(Device *d) { (void)d; }

static void context(Device *d, int stage, PpCtx *c) { (void)d, (void)stage, (void)c; }

static void text(const Device *d, char *to, int size)
{
    (void)d;
    if (size > 0)
        to[0] = 0;
}

const DeviceOps device_cpu = {
    .prepare = prepare,
    .count = one,
    .open = open_cpu,
    .close = close_cpu,
    .enter = enter,
    .alloc = alloc,
    .release = release,
    .alloc_host = alloc,
    .release_host = release,
    .copy = copy,
    .enable_peer = enable_peer,
    .copy_to = copy_to,
    .zero = zero,
    .add = add,
    .event = event,
    .event_free = on_event,
    .record = on_stream,
    .wait = on_stream,
    .done = done,
    .sync = on_event,
    .elapsed = elapsed,
    .context = context,
    .params = params,
    .norms = norms,
    .update = update,
    .error = gemm_error,
    .text = text,
};
