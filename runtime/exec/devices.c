/*
 * devices.c - in: --device, --transport, what this program and this machine have; out: the stages that run, each rank's
 * device, and the wire its tensors travel by.  What cannot be is said before the first step, by one rank.
 *
 *     wire      for                                           chosen by default
 *     host      the CPU: the transport's own messages         always
 *     local     devices of one process                        ranks are threads
 *     staged    devices under MPI: pinned memory, or device   ranks are processes
 *               pointers where MPI takes them
 *     nccl      devices of their own, one for each rank       ranks are processes, NCCL is built in, no device is
 * shared
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- which stages run ---- */

/* Kernels of NCCL wait on the device for other ranks.  A kernel's first launch may load it, and loading may wait for
   the device: so all are loaded beforehand where NCCL may be chosen.  CUDA reads the environment when it is first
   called, which MPI may do when it starts. */
static void load_beforehand(const Options *o)
{
    int rank, ranks, any = !o->transport || !strcmp(o->transport, "auto");
    if (device_nccl() && (any ? mpi_wanted(&rank, &ranks) && mpi_built() : !strcmp(o->transport, "nccl")))
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

PpStatus devices_choose(const Options *o, const PpPlan *plan, PpPlan *chosen)
{
    const DeviceOps *cuda = device_of(PP_CUDA);
    *chosen = *plan;
    if (!plan->stage && !plan->cpu_stage && !plan->cuda_stage)
        return pp_fail(PP_ERR_USAGE, "the model was split with --target cuda only: make pipeline-cuda");
    if (!plan->cpu_stage && !plan->cuda_stage)
        return o->device && strcmp(o->device, plan->device == PP_CUDA ? "cuda" : "cpu") != 0
                   ? pp_fail(PP_ERR_USAGE, "--device %s: this program was built for the other", o->device)
                   : PP_OK;
    int has_cuda = plan->cuda_stage && cuda, want_cuda = o->device ? !strcmp(o->device, "cuda") : has_cuda;
    if (want_cuda && !has_cuda)
        return pp_fail(PP_ERR_USAGE, plan->cuda_stage
                                         ? "--device cuda: this program was built for the CPU: make pipeline-cuda"
                                         : "--device cuda: this program was built for the CPU: split the model with "
                                           "--target cuda, then make pipeline-cuda");
    if (!want_cuda && !plan->cpu_stage)
        return pp_fail(PP_ERR_USAGE,
                       "--device cpu: this program was built for CUDA: split the model with --target cpu too");
    if (want_cuda)
        load_beforehand(o);
    chosen->device = want_cuda ? PP_CUDA : PP_CPU;
    chosen->stage = want_cuda ? plan->cuda_stage : plan->cpu_stage;
    return PP_OK;
}

/* ---- which transport can be ---- */

PpStatus devices_check(const Run *run)
{
    const char *t = run->opt->transport;
    int cuda = run->plan->device == PP_CUDA;
    if (!t || !strcmp(t, "auto"))
        return PP_OK;
    if (!strcmp(t, "local") && run->mpi)
        return pp_fail(
            PP_ERR_USAGE,
            "--transport local: ranks are processes of mpirun, and local is for threads of one: start without "
            "mpirun (--ranks N), or use --transport mpi");
    if (!strcmp(t, "mpi") && !run->mpi)
        return pp_fail(
            PP_ERR_USAGE,
            mpi_built() ? "--transport mpi: not started by mpirun"
                        : "--transport mpi: this program was built without MPI: put mpicc on PATH and run make again");
    if (!strcmp(t, "nccl") && !cuda)
        return pp_fail(PP_ERR_USAGE, "--transport nccl moves tensors between GPUs, and the stages run on the CPU");
    if (!strcmp(t, "nccl") && !device_nccl())
        return pp_fail(PP_ERR_USAGE, "--transport nccl: this program was built without NCCL (nccl.h was not found)");
    return PP_OK;
}

/* ---- the rank's device ---- */

PpStatus device_check(Rank *r, const char *what)
{
    const char *why = r->dev.op->error();
    return *why ? pp_fail(PP_ERR_IO, "rank %d, %s: %s", r->rank, what, why) : PP_OK;
}

/* Of the so-manieth rank of a machine. */
int device_number(const DeviceOps *op, int host_rank)
{
    int n = op->count();
    return n > 0 ? host_rank % n : 0;
}

PpStatus devices_open(Rank *r)
{
    const Run *run = r->run;
    r->on_device = run->plan->device != PP_CPU;
    int n = r->dev.op->count(), stages = 0;
    if (n < 1)
        return pp_fail(PP_ERR_IO, "no GPU: %s (--device cpu runs without one)", r->dev.op->error());
    for (int s = 0; s < run->plan->n_stage; s++)
        stages += run->sched->rank_of[s] == r->rank;
    DeviceWish w = {.number = device_number(r->dev.op, r->t.host_rank),
                    .stages = stages,
                    .separate = aside_wanted(r),
                    .tf32 = run->opt->tf32};
    if (!r->dev.op->open(&r->dev, &w))
        return pp_fail(PP_ERR_IO, "rank %d, GPU %d: %s", r->rank, w.number, r->dev.op->error());
    r->dev.op->text(&r->dev, r->mem.where, (int)sizeof r->mem.where);
    return PP_OK;
}

/* ---- its wire ---- */

typedef struct {
    char host[64], device[80];
} Place;

/* The first two ranks that share a device: 0 when none do. */
static int shared(const Place *all, int ranks, int *a, int *b)
{
    for (*a = 0; *a < ranks; ++*a)
        for (*b = *a + 1; *b < ranks; ++*b)
            if (!strcmp(all[*a].host, all[*b].host) && !strcmp(all[*a].device, all[*b].device))
                return 1;
    return 0;
}

static PpStatus choose(Rank *r)
{
    const Run *run = r->run;
    const char *t = run->opt->transport;
    int wants_nccl = t && !strcmp(t, "nccl"),
        may_nccl = wants_nccl || (run->mpi && device_nccl() && !(t && !strcmp(t, "mpi")));
    r->wire = run->mpi ? &wire_staged : &wire_local;
    if (!may_nccl)
        return PP_OK;
    Place mine = {0}, *all = calloc((size_t)r->t.ranks, sizeof *all);
    int a, b;
    if (!all)
        return pp_fail(PP_ERR_IO, "out of memory");
    gethostname(mine.host, sizeof mine.host - 1);
    memcpy(mine.device, r->mem.where, sizeof mine.device);
    PpStatus s = r->t.op->gather(&r->t, &mine, sizeof mine, all);
    int twice = s == PP_OK && shared(all, r->t.ranks, &a, &b);
    if (s == PP_OK && !twice)
        r->wire = &wire_nccl;
    else if (s == PP_OK && wants_nccl)
        s = pp_fail(PP_ERR_USAGE,
                    "--transport nccl: ranks %d and %d share %s, and NCCL takes one rank a GPU: use --transport %s", a,
                    b, all[a].device, run->mpi ? "mpi" : "local");
    free(all);
    return s;
}

PpStatus devices_wire(Rank *r)
{
    r->wire = &wire_host;
    if (!r->on_device)
        return PP_OK;
    r->wire = NULL;
    TRY(ranks_agree(r, choose(r)));
    if (r->t.ranks == 1)
        r->wire = &wire_host; /* nothing travels */
    snprintf(r->mem.wire, sizeof r->mem.wire, "%s", r->wire->name);
    return ranks_agree(r, r->wire->open(r));
}

/* ---- the wire of the CPU: the transport itself ---- */

static PpStatus open_host(Rank *r)
{
    (void)r;
    return PP_OK;
}

static void close_host(Rank *r, int broken) { (void)r, (void)broken; }

static PpStatus post_host(Rank *r, int first, int count, int receive)
{
    for (Message *m = &r->msg[first]; m < &r->msg[first + count]; m++)
        TRY(receive ? r->t.op->recv(&r->t, m->peer, m->tag, m->buf, m->bytes, &m->req)
                    : r->t.op->send(&r->t, m->peer, m->tag, m->buf, m->bytes, &m->req));
    return PP_OK;
}

static PpStatus finish_host(Rank *r, Message *m) { return r->t.op->wait(&r->t, &m->req); }

static PpStatus poll_host(Rank *r)
{
    r->t.op->poll(&r->t);
    return PP_OK;
}

const Wire wire_host = {"host", open_host, close_host, post_host, finish_host, poll_host, NULL};
