/*
 * wires.c - in: --transport, what this program and this machine have; out: the wire that tensors
 * travel by.  What cannot be is said before the first step, by one rank.
 */
#include "wires.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum { AUTO, LOCAL, MPI, NCCL } Transport;

typedef struct {
    const char *name;
    Transport transport; /* asked for by it; AUTO: by none */
    int on_device;       /* buffers are a device's */
    int processes;       /* ranks are processes; -1: either */
    int apart;           /* each rank needs a device of its own */
    const WireOps *op;
} WireRow;

/* The first row that fits is chosen; where there is one rank nothing travels, and that is the
 * first. */
static const WireRow wires[] = {
    {"host", AUTO, 0, -1, 0, &wire_host}, /* the CPU: the group's own messages */
    /* Where NCCL is built in; chosen unasked where ranks are processes */
    {"nccl", NCCL, 1, -1, 1, &wire_nccl},
    {"local", LOCAL, 1, 0, 0, &wire_local}, /* devices of one process */
    /* Through pinned memory, or by device pointers where MPI takes them */
    {"mpi", MPI, 1, 1, 0, &wire_staged},
};
/* As Transport numbers them */
static const char *const transports[] = {"auto", "local", "mpi", "nccl"};
enum {
    N_WIRES = sizeof wires / sizeof *wires,
    N_TRANSPORTS = sizeof transports / sizeof *transports
};

const char *transport_name(int i) { return i < N_TRANSPORTS ? transports[i] : NULL; }

static Transport transport_of(const char *name)
{
    int i = 0;
    while (name && i + 1 < N_TRANSPORTS && strcmp(transports[i], name))
        i++;
    return (Transport)i;
}

int transport_may_be_nccl(const char *name)
{
    int rank, ranks;
    Transport t = transport_of(name);
    return device_nccl() && (t == NCCL || (t == AUTO && mpi_wanted(&rank, &ranks) && mpi_built()));
}

PpStatus transport_check(const char *name, int processes, int device)
{
    Transport t = transport_of(name);
    if (t == LOCAL && processes)
        return pp_fail(PP_ERR_USAGE, "--transport local: ranks are processes of mpirun, and local "
                                     "is for threads of one: start without "
                                     "mpirun (--ranks N), or use --transport mpi");
    if (t == MPI && !processes)
        return pp_fail(PP_ERR_USAGE, mpi_built()
                                         ? "--transport mpi: not started by mpirun"
                                         : "--transport mpi: this program was built without MPI: "
                                           "put mpicc on PATH and run make again");
    if (t == NCCL && device == PP_CPU)
        return pp_fail(
            PP_ERR_USAGE,
            "--transport nccl moves tensors between GPUs, and the stages run on the CPU");
    if (t == NCCL && !device_nccl())
        return pp_fail(
            PP_ERR_USAGE,
            "--transport nccl: this program was built without NCCL (nccl.h was not found)");
    return PP_OK;
}

/* ---- which ranks share a device ---- */

typedef struct {
    char host[64], device[80];
} Place;

/* The first two ranks that share one: 0 when none do. */
static int shared(const Place *all, int ranks, int *a, int *b)
{
    for (*a = 0; *a < ranks; ++*a)
        for (*b = *a + 1; *b < ranks; ++*b)
            if (!strcmp(all[*a].host, all[*b].host) && !strcmp(all[*a].device, all[*b].device))
                return 1;
    return 0;
}

/* Has each rank a device of its own?  If not, and NCCL was asked for, that is a failure. */
static PpStatus devices_apart(Group *g, const char *device, int wanted, int *apart)
{
    Place mine = {0};
    int a, b;
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.device, sizeof mine.device, "%s", device);
    Place *all;
    POOL(room);
    TRY(group_gather(g, &mine, sizeof mine, &room, &all));
    *apart = !shared(all, g->ranks, &a, &b);
    if (*apart || !wanted)
        return PP_OK;
    return pp_fail(PP_ERR_USAGE,
                   "--transport nccl: ranks %d and %d share %s, and NCCL takes one rank a GPU: "
                   "use --transport %s",
                   a, b, all[a].device, g->processes ? "mpi" : "local");
}

/* ---- the choice ---- */

static PpStatus choose(const Group *g, Group *world, int on_device, const char *transport,
                       const char *device, const WireRow **row)
{
    Transport t = transport_of(transport);
    int nccl = on_device && (t == NCCL || (t == AUTO && g->processes && device_nccl())), apart = 0;
    if (nccl)
        TRY(devices_apart(world, device, t == NCCL, &apart));
    for (*row = wires; *row < wires + N_WIRES; ++*row)
        if ((*row)->on_device == on_device &&
            ((*row)->processes < 0 || (*row)->processes == g->processes) &&
            (!(*row)->apart || (nccl && apart)))
            return PP_OK;
    return PP_ERR_BUG;
}

PpStatus links_open(Links *l, Links of, int on_device, const char *transport, const char *device)
{
    const WireRow *row = wires;
    *l = of;
    PpStatus made = pp_take(&l->pool, &l->link, l->plan->n_msg, sizeof *l->link);
    PpStatus s = choose(l->group, l->world, on_device && l->group->ranks > 1, transport, device,
                        &row);
    TRY(group_agree(l->world, s == PP_OK ? made : s));
    l->op = row->op;
    l->name = row->name;
    for (int k = 0; k < l->plan->n_msg && row->on_device; k++)
        if (links_carry(l, k)) {
            l->link[k].ready = l->dev->op->event(l->dev, 0);
            l->link[k].done = l->dev->op->event(l->dev, 0);
        }
    TRY(group_agree(l->world, device_check(l->dev, l->world->rank, "events of its messages")));
    return group_agree(l->world, l->op->open ? l->op->open(l) : PP_OK);
}
