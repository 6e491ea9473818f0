/*
 * groups.c - the groups that a rank belongs to.  Rank number replica * P + p of the run is rank p
 * of its replica's pipeline of P ranks, and number `replica` among the ranks p of all replicas.
 * With one replica its pipeline is the whole run, and nothing is made.
 */
#include "exec.h"

#include <stdlib.h>

/* ---- threads: hub[0] is the run's, then one for each replica, then for each rank of one ---- */

static int hubs_many(const Run *run)
{
    return run->replicas > 1 ? 1 + run->replicas + run->ranks : 1;
}

LocalHub **hubs_new(const Run *run)
{
    int n = hubs_many(run), made = 0;
    LocalHub **hub = calloc((size_t)n, sizeof *hub);
    for (; hub && made < n; made++) {
        int ranks = made == 0                 ? run->ranks * run->replicas
                    : made <= run->replicas ? run->ranks
                                              : run->replicas;
        /* they spin where there is a core for every rank of the run */
        hub[made] = local_hub_new(ranks, run->ranks * run->replicas <= run->cores ? ranks : 0);
        if (!hub[made])
            break;
        if (made)
            local_hub_tie(hub[0], hub[made]);
    }
    if (hub && made == n)
        return hub;
    for (int i = 0; hub && i < made; i++)
        local_hub_free(hub[i]);
    free(hub);
    return NULL;
}

void hubs_free(LocalHub **hub, const Run *run)
{
    for (int i = 0; i < hubs_many(run); i++)
        local_hub_free(hub[i]);
    free(hub);
}

static Group part_of(const Rank *r, LocalHub *hub, int rank, int first, int stride)
{
    Group g = local_group(hub, rank);
    g.first = first;
    g.stride = stride;
    g.host_ranks = r->group.host_ranks;
    g.host_rank = r->group.host_rank;
    return g;
}

void hubs_groups(Rank *r, LocalHub **hub, int number)
{
    const Run *run = r->run;
    int replica = number / run->ranks, p = number % run->ranks;
    r->group = local_group(hub[0], number);
    r->replica = replica;
    if (run->replicas == 1)
        return;
    r->pipe = part_of(r, hub[1 + replica], p, replica * run->ranks, 1);
    r->peers = part_of(r, hub[1 + run->replicas + p], replica, p, run->ranks);
}

/* ---- any ---- */

PpStatus groups_open(Rank *r)
{
    const Run *run = r->run;
    if (run->replicas == 1) {
        r->pipe = r->group;
        r->peers = (Group){.ranks = 1, .stride = 1};
    } else if (r->group.processes) {
        r->replica = r->group.rank / run->ranks;
        TRY(mpi_part(&r->group, r->replica, &r->pipe));
        TRY(mpi_part(&r->group, r->group.rank % run->ranks, &r->peers));
        r->pipe.first = r->replica * run->ranks;
        r->peers.first = r->pipe.rank;
        r->peers.stride = run->ranks;
    }
    r->data = data_of(&run->data, r->replica);
    return PP_OK;
}

void groups_close(Rank *r)
{
    if (r->run->replicas == 1 || !r->group.processes)
        return;
    mpi_part_close(&r->peers);
    mpi_part_close(&r->pipe);
}
