/*
 * measure.c - `pipeline measure`: what a rank of this machine does in a second, as lines that
 * `ppsplit plan --machine` reads.
 *
 * All ranks measure at the same time, as they would compute: products by the library that the
 * program was built with, loops as generated code has them, then messages between neighbours, and
 * with --offload-dir what a store there writes and reads.
 * Of several tries of a rank the median counts, of the ranks the mean.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "exec.h"

#include "api/pp_half.h"
#include "api/pp_kernel.h"
#include "api/pp_math.h"
#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"
#include "io/mapped.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    TRIES = 9,
    N = 512,           /* of products */
    HEADS = 32, SEQUENCE = 64, HEAD = 32, /* of products of attention */
    LOOP = 1 << 14,     /* elements of a loop's operands that a cache holds */
    OPERATIONS = 20,    /* of quick(), an element */
    LANES = 16,
    ELEMENTS = 1 << 18, /* a layer's activations */
    STREAM = 1 << 22,   /* elements that no cache holds */
    ROW = 256,          /* elements of a row that is normed, or moved */
    IMAGE = 32, CHANNELS = 64,
    ROUNDS = 200,       /* short messages */
    LONG = 4 << 20,     /* bytes of a long one */
    STORED = 8          /* of a store: so many of these */
};

typedef struct {
    float *a, *b, *c;
    double *d;
    uint16_t *h;
    PpConv *conv;
} Room;

typedef struct {
    const char *name, *what;
    double amount; /* of one run */
    void (*run)(Room *);
} Kind;

/* ---- one run of each ---- */

/* As a layer is trained: forward, its operand's gradient, that of its weights, which adds up. */
static void products(Room *r)
{
    pp_sgemm(0, 0, N, N, N, 1, r->a, N, r->b, N, 0, r->c, N);
    pp_sgemm(0, 1, N, N, N, 1, r->a, N, r->b, N, 0, r->c, N);
    pp_sgemm(1, 0, N, N, N, 1, r->a, N, r->b, N, 1, r->c, N);
}

static void products64(Room *r)
{
    pp_dgemm(0, 1, N, N, N, 1, r->d, N, r->d + N * N, N, 0, r->d + 2 * N * N, N);
}

static void products16(Room *r)
{
    pp_bgemm(0, 1, N, N, N, 1, r->h, N, r->h + N * N, N, 0, r->h + 2 * N * N, N);
}

static void convolutions(Room *r) { pp_conv_forward(r->conv, 1, r->a, r->b, r->c); }

/* Scores of attention: a row's heads stand side by side. */
static void batched(Room *r)
{
    enum { WIDTH = HEADS * HEAD };
    pp_sgemm_batched(0, 1, SEQUENCE, SEQUENCE, HEAD, 1, r->a, WIDTH, r->b, WIDTH, 0, r->c, SEQUENCE,
                     1, (const int64_t[]){HEADS}, (const int64_t[]){HEAD}, (const int64_t[]){HEAD},
                     (const int64_t[]){SEQUENCE * SEQUENCE});
}

/* A polynomial of two operands, as chains of elementwise operations become a loop, of 12 of them an
   element; and rows that are normed, as generated code does it, with 8. */
static void quick(Room *r)
{
#pragma omp parallel for simd
    for (int i = 0; i < LOOP; i++) {
        float x = r->a[i], z = r->b[i], y = x * x + z;
        y = y * x + z;
        y = y * z + x;
        y = (y - z) * x;
        y = y * y + z;
        r->c[i] = (y + x) * 0.5f;
    }
#pragma omp parallel for
    for (int i = 0; i < LOOP / ROW; i++) {
        const float *x = r->a + i * ROW;
        float s1[LANES] = {0}, s2[LANES] = {0};
        for (int j = 0; j < ROW; j += LANES) {
#pragma omp simd
            for (int k = 0; k < LANES; k++)
                s1[k] += x[j + k];
        }
        const float mean = pp_fold_sumf(s1) / ROW;
        for (int j = 0; j < ROW; j += LANES) {
#pragma omp simd
            for (int k = 0; k < LANES; k++)
                s2[k] += (x[j + k] - mean) * (x[j + k] - mean);
        }
        const float rstd = 1 / pp_sqrtf(pp_fold_sumf(s2) / ROW + 1e-5f);
#pragma omp simd
        for (int j = 0; j < ROW; j++)
            r->c[i * ROW + j] = (x[j] - mean) * rstd * r->b[j] + r->b[ROW + j];
    }
}

static void slow(Room *r)
{
#pragma omp parallel for simd
    for (int i = 0; i < LOOP; i++)
        r->c[i] = r->a[i] / (r->b[i] + 2);
}

/* Half of them that of softmax, half that of GELU. */
static void functions(Room *r)
{
#pragma omp parallel for simd
    for (int i = 0; i < LOOP; i++)
        r->c[i] = pp_expf(r->a[i]);
#pragma omp parallel for simd
    for (int i = 0; i < LOOP; i++)
        r->c[i] = pp_tanhf(r->a[i]);
}

static void traffic(Room *r)
{
#pragma omp parallel for simd
    for (int i = 0; i < ELEMENTS; i++)
        r->c[i] = r->a[i] + 1.5f;
}

/* Rows in another order, out of and into memory. */
static void moves(Room *r)
{
    enum { ROWS = STREAM / 4 / ROW };
#pragma omp parallel for
    for (int i = 0; i < ROWS; i++)
        memcpy(r->c + (size_t)i * ROW, r->a + (size_t)(i * 7 % ROWS) * ROW, ROW * sizeof(float));
}

/* As an optimizer goes over parameters, gradients and states. */
static void updates(Room *r)
{
#pragma omp parallel for simd
    for (int i = 0; i < STREAM; i++) {
        r->b[i] = 0.9f * r->b[i] + 0.1f * r->a[i];
        r->c[i] -= 1e-3f * r->b[i];
    }
}

static const Kind kinds[] = {
    {"products", "FLOP/s of matrix products in float32", 3 * 2.0 * N * N * N, products},
    {"products64", "of those in float64", 2.0 * N * N * N, products64},
    {"products16", "of those in 16 bits", 2.0 * N * N * N, products16},
    {"convolutions", "FLOP/s of convolutions",
     2.0 * 9 * CHANNELS * CHANNELS * IMAGE * IMAGE, convolutions},
    {"batched", "of many small ones of activations", 2.0 * HEADS * SEQUENCE * SEQUENCE * HEAD,
     batched},
    {"quick", "elements/s of additions in loops, without memory", (double)OPERATIONS * LOOP, quick},
    {"slow", "of divisions", LOOP, slow},
    {"functions", "of exponentials and tanh", 2.0 * LOOP, functions},
    {"traffic", "bytes/s that loops read and write", 2.0 * ELEMENTS * sizeof(float), traffic},
    {"moves", "bytes/s that are moved", (double)STREAM / 4 * sizeof(float), moves},
    {"updates", "bytes/s that an update reads and writes", 5.0 * STREAM * sizeof(float), updates},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- a rank ---- */

typedef struct {
    Group group;
    int threads;
    double rate[KINDS], latency, link, store;
    const char *folder; /* of the store; NULL: none */
    PpStatus status;
    pthread_t thread;
} Measurer;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *room(size_t bytes) { return aligned_alloc(PP_ALIGN, bytes); }

static PpStatus room_open(Room *r, int threads)
{
    const PpConvShape shape = {.dtype = PP_F32, .spatial = 2, .group = 1, .c = CHANNELS,
                               .m = CHANNELS, .in = {IMAGE, IMAGE}, .out = {IMAGE, IMAGE},
                               .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1},
                               .pad_begin = {1, 1}, .pad_end = {1, 1}};
    r->a = room(STREAM * sizeof *r->a);
    r->b = room(STREAM * sizeof *r->b);
    r->c = room(STREAM * sizeof *r->c);
    r->d = room((size_t)3 * N * N * sizeof *r->d);
    r->h = room((size_t)3 * N * N * sizeof *r->h);
    r->conv = pp_conv_open(&shape, threads);
    if (!r->a || !r->b || !r->c || !r->d || !r->h || !r->conv)
        return pp_no_memory();
    for (int i = 0; i < STREAM; i++) {
        r->a[i] = (float)(i % 7) * 0.125f;
        r->b[i] = (float)(i % 5) * 0.125f;
        r->c[i] = 0;
    }
    for (int i = 0; i < 3 * N * N; i++) {
        r->d[i] = (i % 9) * 0.125;
        r->h[i] = pp_to_bf16((float)(i % 3) * 0.5f);
    }
    return PP_OK;
}

static void room_close(Room *r)
{
    if (r->conv)
        pp_conv_close(r->conv);
    free(r->a), free(r->b), free(r->c), free(r->d), free(r->h);
}

/* A tenth of a second at work: until then ranks may share a core, and its clock is low. */
static void warm_up(Room *r)
{
    for (double begin = pp_now(); pp_now() - begin < 0.1;)
        products(r);
}

/* Tries of at least so many seconds each. */
static double rate_of(const Kind *k, Room *r)
{
    const double least = 2e-3;
    double took[TRIES];
    k->run(r);
    for (int i = 0; i < TRIES; i++) {
        double begin = pp_now(), now;
        int runs = 0;
        do {
            k->run(r);
            runs++;
        } while ((now = pp_now()) - begin < least);
        took[i] = (now - begin) / runs;
    }
    qsort(took, TRIES, sizeof *took, by_value);
    return k->amount / took[TRIES / 2];
}

/* There and back, once. */
static PpStatus pass(Group *g, int peer, char *buf, int64_t bytes)
{
    if (g->rank < peer) {
        TRY(group_send(g, peer, buf, bytes));
        return group_recv(g, peer, buf, bytes);
    }
    TRY(group_recv(g, peer, buf, bytes));
    return group_send(g, peer, buf, bytes);
}

/* Neighbours in pairs, all at the same time; a last one alone does nothing. */
static PpStatus messages(Measurer *m, char *buf)
{
    Group *g = &m->group;
    int peer = g->rank ^ 1;
    double took[TRIES];
    m->latency = m->link = 0;
    if (peer >= g->ranks)
        return PP_OK;
    for (int i = 0; i < ROUNDS / 10; i++)
        TRY(pass(g, peer, buf, PP_ALIGN));
    double begin = pp_now();
    for (int i = 0; i < ROUNDS; i++)
        TRY(pass(g, peer, buf, PP_ALIGN));
    m->latency = (pp_now() - begin) / (2 * ROUNDS);
    for (int i = 0; i < TRIES; i++) {
        begin = pp_now();
        TRY(pass(g, peer, buf, LONG));
        took[i] = (pp_now() - begin) / 2;
    }
    qsort(took, TRIES, sizeof *took, by_value);
    double carried = took[TRIES / 2] - m->latency;
    m->link = carried > 0 ? LONG / carried : 0;
    return PP_OK;
}

/* As stashes come and go: a file that is written, and read. */
static PpStatus store(Measurer *m, char *buf)
{
    int fd;
    double took[TRIES];
    TRY(scratch_open(&fd, (int64_t)STORED * LONG, m->group.rank, "--offload-dir", m->folder));
    PpStatus s = PP_OK;
    for (int i = 0; i < TRIES && s == PP_OK; i++) {
        double begin = pp_now();
        for (int k = 0; k < 2 * STORED && s == PP_OK; k++) {
            int64_t at = (int64_t)(k % STORED) * LONG;
            ssize_t n = k < STORED ? pwrite(fd, buf, LONG, at) : pread(fd, buf, LONG, at);
            if (n != LONG)
                s = pp_fail(PP_ERR_IO, "--offload-dir %s: %s", m->folder,
                            n < 0 ? strerror(errno) : "cut short");
        }
        took[i] = pp_now() - begin;
    }
    close(fd);
    qsort(took, TRIES, sizeof *took, by_value);
    m->store = 2.0 * STORED * LONG / took[TRIES / 2];
    return s;
}

static PpStatus measure(Measurer *m)
{
    Room r = {0};
    gemm_set_threads(m->threads, m->threads);
#ifdef _OPENMP
    omp_set_num_threads(m->threads);
#endif
    PpStatus s = group_agree(&m->group, room_open(&r, m->threads));
    if (s == PP_OK)
        warm_up(&r);
    for (int k = 0; k < KINDS && s == PP_OK; k++) {
        double turn = 0; /* all begin together */
        s = m->group.op->sum(&m->group, &turn, 1);
        m->rate[k] = s == PP_OK ? rate_of(&kinds[k], &r) : 0;
    }
    if (s == PP_OK)
        s = messages(m, (char *)r.a);
    if (m->folder)
        s = group_agree(&m->group, s == PP_OK ? store(m, (char *)r.a) : s);
    double all[KINDS + 4];
    memcpy(all, m->rate, sizeof m->rate);
    all[KINDS] = m->latency;
    all[KINDS + 1] = m->link;
    all[KINDS + 2] = m->link > 0;
    all[KINDS + 3] = m->store;
    if (s == PP_OK)
        s = m->group.op->sum(&m->group, all, KINDS + 4);
    for (int k = 0; k < KINDS; k++)
        m->rate[k] = all[k] / m->group.ranks;
    m->latency = all[KINDS + 2] > 0 ? all[KINDS] / all[KINDS + 2] : 0;
    m->link = all[KINDS + 2] > 0 ? all[KINDS + 1] / all[KINDS + 2] : 0;
    m->store = all[KINDS + 3] / m->group.ranks;
    room_close(&r);
    return s;
}

/* ---- all ranks ---- */

/* Bytes that the machine has left; 0: not known. */
static int64_t memory_left(void)
{
    char line[256];
    long long k = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld", &k) == 1)
            break;
    if (f)
        fclose(f);
    return (int64_t)k * 1024;
}

static void print_machine(const Measurer *m)
{
    const Group *g = &m->group;
    int here = g->processes ? g->host_ranks : g->ranks;
    printf("# measured by %d %s at once, each of %d threads; products by %s\n", g->ranks,
           g->processes ? "processes" : "threads of one process", m->threads, gemm_library());
    printf("ranks = %d\n", g->ranks);
    if (memory_left() > 0)
        printf("memory = %" PRId64 "    # what is free now, for %d ranks of a machine\n",
               memory_left() / here, here);
    for (int k = 0; k < KINDS; k++)
        printf("%s = %.4g    # %s\n", kinds[k].name, m->rate[k], kinds[k].what);
    if (m->latency > 0 && m->link > 0)
        printf("latency = %.4g    # seconds of a message\nlink = %.4g    # its bytes/s\n",
               m->latency, m->link);
    else
        printf("# one rank sends nothing: latency and link are not measured\n");
    if (m->folder)
        printf("offload = %.4g    # bytes/s of a file in --offload-dir\n", m->store);
}

static void *measurer_main(void *p)
{
    Measurer *m = p;
    m->status = measure(m);
    if (m->status != PP_OK)
        m->group.op->fail(&m->group, m->status);
    return NULL;
}

static PpStatus measure_threads(const Options *o, int ranks, int cores, int threads)
{
    Measurer *m = calloc((size_t)ranks, sizeof *m);
    LocalHub *hub = local_hub_new(ranks, ranks <= cores ? ranks : 0);
    int started = 1;
    PpStatus s = m && hub ? PP_OK : pp_no_memory();
    for (int k = 0; k < ranks && s == PP_OK; k++) {
        m[k].group = local_group(hub, k);
        m[k].threads = threads;
        m[k].folder = o->offload_dir;
    }
    for (; started < ranks && s == PP_OK; started++)
        if (pthread_create(&m[started].thread, NULL, measurer_main, &m[started])) {
            s = pp_fail(PP_ERR_IO, "no more than %d threads could be started", started);
            m[0].group.op->fail(&m[0].group, s);
            break;
        }
    if (s == PP_OK)
        measurer_main(&m[0]);
    for (int k = 1; k < started && m && hub; k++)
        pthread_join(m[k].thread, NULL);
    for (int k = 0; k < ranks && s == PP_OK; k++)
        s = m[k].status;
    if (s == PP_OK)
        print_machine(&m[0]);
    if (hub)
        local_hub_free(hub);
    free(m);
    return s;
}

PpStatus measure_machine(const Options *o, const PpPlan *model, Group *world, int cores)
{
    int ranks = world ? world->ranks : o->ranks ? o->ranks : model->n_stage;
    int here = world ? world->host_ranks : ranks;
    int threads = o->threads ? o->threads : cores > here ? cores / here : 1;
    if (model->device != PP_CPU)
        return pp_fail(PP_ERR_USAGE, "measure is of the CPU: --device cpu");
    if (!world)
        return measure_threads(o, ranks, cores, threads);
    Measurer m = {.group = *world, .threads = threads, .folder = o->offload_dir};
    TRY(group_agree(world, measure(&m)));
    if (world->rank == 0)
        print_machine(&m);
    return PP_OK;
}
