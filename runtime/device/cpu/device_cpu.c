/*
 * device_cpu.c - the CPU as a device.  Everything is done when a call returns.
 */
#include "device/cpu/cpu.h"

#include "core/core.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory ---- */

static void prepare(int nccl)
{
    (void)nccl;
    gemm_prepare();
}

static int one(void) { return 1; }

static int open_cpu(Device *d, const DeviceWish *w)
{
    (void)w;
    d->number = 0;
    return 1;
}

/* Large blocks ask for huge pages: products walk across rows of 1 KB and more, each of which would
   be a page of its own (2 to 4% of a step; worth it since rows stand apart, codegen/plan/pad.c:
   without that they would all meet in the same sets of the cache). */
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

static void copy_runs(Device *d, int stream, void *to, const void *from, const DeviceRuns *r)
{
    enum { ALONE = 1 << 18 }; /* bytes for which threads are not worth it */
    (void)d, (void)stream;
#pragma omp parallel for collapse(2) schedule(static) if (r->outer * r->rows * r->run > ALONE)
    for (int64_t o = 0; o < r->outer; o++)
        for (int64_t k = 0; k < r->rows; k++)
            memcpy((char *)to + o * r->to_outer + k * r->to_row,
                   (const char *)from + o * r->from_outer + k * r->from_row, (size_t)r->run);
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

static void add(Device *d, int stream, void *to, const void *from, int64_t n, int dtype)
{
    (void)d, (void)stream;
    optim_cpu_add(to, from, n, dtype);
}

static void round_to(Device *d, int stream, void *to, const void *from, int64_t n, int type)
{
    (void)d, (void)stream;
    optim_cpu_round(to, from, n, type);
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
    for (int i = 0; i < p->n; i++) {
        const DeviceParam *q = &p->list[i];
        if (q->norm >= 0 && q->apart)
            optim_cpu_block_squares(q->grad, q->n, q->dtype, sum + q->norm);
        else if (q->norm >= 0)
            sum[q->norm] = optim_cpu_sum_squares(q->grad, q->n, q->dtype);
    }
}

static void update(Device *d, int stream, const DeviceUpdate *u)
{
    const Params *p = d->impl;
    (void)stream;
    optim_cpu_update(p->list, p->n, u);
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

static void meanwhile(Device *d, int (*run)(void *of), void *of)
{
    (void)d, (void)run, (void)of;
}

static int64_t taken(const Device *d)
{
    (void)d;
    return -1;
}

static void text(const Device *d, char *to, int size)
{
    (void)d;
    if (size > 0)
        to[0] = 0;
}

static void arithmetic(int number, char *to, int size)
{
    (void)number;
    gemm_arithmetic(to, (size_t)size);
}

const DeviceOps device_cpu = {
    .prepare = prepare,
    .count = one,
    .open = open_cpu,
    .close = close_cpu,
    .enter = enter,
    .memory = {alloc, release, alloc, release, taken},
    .copy = copy,
    .enable_peer = enable_peer,
    .copy_to = copy_to,
    .copy_runs = copy_runs,
    .zero = zero,
    .math = {add, round_to, params, norms, update},
    .event = event,
    .event_free = on_event,
    .record = on_stream,
    .wait = on_stream,
    .done = done,
    .sync = on_event,
    .elapsed = elapsed,
    .context = context,
    .meanwhile = meanwhile,
    .says = {gemm_half_text, arithmetic, text},
    .error = gemm_error,
};
