/*
 * measure.c - `pipeline measure`: what a rank of this machine does in a second, as lines that
 * `ppsplit plan --machine` reads.
 *
 * All ranks measure at the same time, as they would compute: what stages and the runtime call
 * (measure_rates.c), then messages between neighbours, and with --offload-dir what a store there
 * writes and reads.
 * Of several tries of a rank the median counts, of the ranks the mean.
 */
#include "exec.h"
#include "measure.h"

#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"
#include "io/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


enum {
    TRIES = 9,
    ROUNDS = 200,       /* short messages */
    LONG = 4 << 20,     /* bytes of a long one */
    STORED = 8          /* of a store: so many of these */
};

/* ---- a rank ---- */

typedef struct {
    Group group;
    int threads;
    double rate[MEASURED_RATES], latency, link, store;
    const char *folder; /* of the store; NULL: none */
    PpStatus status;
    pthread_t thread;
} Measurer;

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

/* Seconds of a message one way.  The median: on a machine that others use, too, a rank now and then
   waits milliseconds for its core, which a mean would take for the latency. */
static PpStatus median_pass(Group *g, int peer, char *buf, int64_t bytes, int tries,
                            double *seconds)
{
    double took[ROUNDS];
    for (int i = 0; i < tries; i++) {
        double begin = pp_now();
        TRY(pass(g, peer, buf, bytes));
        took[i] = (pp_now() - begin) / 2;
    }
    *seconds = pp_median(took, tries);
    return PP_OK;
}

/* Neighbours in pairs, all at the same time; a last one alone does nothing. */
static PpStatus messages(Measurer *m, char *buf)
{
    Group *g = &m->group;
    int peer = g->rank ^ 1;
    m->latency = m->link = 0;
    if (peer >= g->ranks)
        return PP_OK;
    for (int i = 0; i < ROUNDS / 10; i++)
        TRY(pass(g, peer, buf, PP_ALIGN));
    TRY(median_pass(g, peer, buf, PP_ALIGN, ROUNDS, &m->latency));
    double carried = 0;
    TRY(median_pass(g, peer, buf, LONG, TRIES, &carried));
    carried -= m->latency;
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
    m->store = 2.0 * STORED * LONG / pp_median(took, TRIES);
    return s;
}

static PpStatus transfers(Measurer *m)
{
    char *buf = device_cpu.memory.alloc(NULL, LONG);
    PpStatus s = group_agree(&m->group, buf ? PP_OK : pp_no_memory());
    if (s == PP_OK) {
        memset(buf, 1, LONG);
        s = messages(m, buf);
    }
    if (m->folder)
        s = group_agree(&m->group, s == PP_OK ? store(m, buf) : s);
    if (buf)
        device_cpu.memory.release(NULL, buf);
    return s;
}

static PpStatus measure(Measurer *m)
{
    enum { RATES = MEASURED_RATES };
    double all[RATES + 4];
    team_set(m->threads);
    TRY(measure_rates(&m->group, m->threads, all));
    TRY(transfers(m));
    all[RATES] = m->latency;
    all[RATES + 1] = m->link;
    all[RATES + 2] = m->link > 0;
    all[RATES + 3] = m->store;
    TRY(m->group.op->sum(&m->group, all, RATES + 4));
    for (int k = 0; k < RATES; k++)
        m->rate[k] = all[k] / m->group.ranks;
    m->latency = all[RATES + 2] > 0 ? all[RATES] / all[RATES + 2] : 0;
    m->link = all[RATES + 2] > 0 ? all[RATES + 1] / all[RATES + 2] : 0;
    m->store = all[RATES + 3] / m->group.ranks;
    return PP_OK;
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
    printf("# measured by %d %s at once; products by %s\n", g->ranks,
           g->processes ? "processes" : "threads of one process", gemm_library());
    printf("ranks = %d\nthreads = %d\n", g->ranks, m->threads);
    if (memory_left() > 0)
        printf("memory = %" PRId64 "    # what is free now, for %d ranks of a machine\n",
               memory_left() / here, here);
    for (int k = 0; k < MEASURED_RATES; k++)
        printf("%s = %.4g    # %s\n", measured_rates[k].name, m->rate[k], measured_rates[k].what);
    if (m->latency > 0 && m->link > 0)
        printf("latency = %.4g    # seconds of a message\nlink = %.4g    # its bytes/s\n",
               m->latency, m->link);
    else
        printf("# latency and link are not measured: %s\n",
               g->ranks == 1 ? "one rank sends nothing"
                             : "messages took no longer the longer they were");
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
    LocalHub *hub = local_hub_new(ranks, cores);
    int started = 1;
    PpStatus s = m && hub ? PP_OK : pp_no_memory();
    for (int k = 0; k < ranks && s == PP_OK; k++) {
        m[k].group = local_group(hub, k);
        m[k].threads = threads;
        m[k].folder = o->memory.offload_dir;
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
    int all = model->n_stage * plan_members(model);
    int ranks = world ? world->ranks : o->machine.ranks ? o->machine.ranks : all;
    int here = world ? world->host_ranks : ranks;
    int threads = o->machine.threads ? o->machine.threads : cores > here ? cores / here : 1;
    if (model->device != PP_CPU)
        return pp_fail(PP_ERR_USAGE, "measure works on the CPU only: --device cpu");
    if (!world)
        return measure_threads(o, ranks, cores, threads);
    Measurer m = {.group = *world, .threads = threads, .folder = o->memory.offload_dir};
    TRY(group_agree(world, measure(&m)));
    if (world->rank == 0)
        print_machine(&m);
    return PP_OK;
}
