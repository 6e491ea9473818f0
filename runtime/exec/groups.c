/*
 * groups.c - the groups that a rank belongs to.  Rank number (replica * P + p) * T + member of the
 * run is rank p of its replica's pipeline of P ranks, each of them of T members.  Along an axis it
 * is with those that differ in that coordinate alone.  A pipeline that is the whole run is its
 * group, and along any other axis nothing is made for one rank.
 */
#include "exec.h"

#include <stdlib.h>

/* Its coordinate along an axis, how many there are, from one of them to the next. */
typedef struct {
    int at, ranks, stride;
} Along;

static Along along(const Run *run, int number, int axis)
{
    const int stride[AXES] = {[AXIS_PIPE] = run->members,
                              [AXIS_PEERS] = run->members * run->ranks,
                              [AXIS_MEMBERS] = 1};
    const int ranks[AXES] = {[AXIS_PIPE] = run->ranks,
                             [AXIS_PEERS] = run->replicas,
                             [AXIS_MEMBERS] = run->members};
    return (Along){number / stride[axis] % ranks[axis], ranks[axis], stride[axis]};
}

/* The first of the ranks that it is with. */
static int first_of(const Run *run, int number, int axis)
{
    Along a = along(run, number, axis);
    return number - a.at * a.stride;
}

static int is_whole(const Run *run, int axis)
{
    return axis == AXIS_PIPE && run->ranks == run_ranks(run);
}

static int is_made(const Run *run, int axis)
{
    return !is_whole(run, axis) && (axis == AXIS_PIPE || along(run, 0, axis).ranks > 1);
}

PpStatus rank_links(Rank *r, const Rank *like, int axis)
{
    const Links of = {.group = &r->along[axis],
                      .world = &r->group,
                      .axis = axis,
                      .dev = &r->dev,
                      .plan = &r->plan};
    return links_open(&r->links[axis], of, on_device(like), like->run->opt->machine.transport,
                      like->report.memory.where);
}

/* ---- threads: hub[0] is the run's, then one for each first rank of a group, axis by axis ---- */

static int hub_number(const Run *run, int number, int axis)
{
    return 1 + axis * run_ranks(run) + first_of(run, number, axis);
}

LocalHub **hubs_new(const Run *run)
{
    int all = run_ranks(run), made = 1;
    /* they spin where there is a core for every rank of the run */
    int cores = all <= run->cores ? all : 0;
    LocalHub **hub = calloc(1 + (size_t)AXES * (size_t)all, sizeof *hub);
    if (hub)
        hub[0] = local_hub_new(all, cores);
    made = hub && hub[0];
    for (int k = 0; k < all && made; k++)
        for (int x = 0; x < AXES && made; x++) {
            LocalHub **mine = &hub[hub_number(run, k, x)];
            if (!is_made(run, x) || *mine)
                continue;
            *mine = local_hub_new(along(run, k, x).ranks, cores);
            made = *mine != NULL;
            if (made)
                local_hub_tie(hub[0], *mine);
        }
    if (made)
        return hub;
    if (hub)
        hubs_free(hub, run);
    return NULL;
}

void hubs_free(LocalHub **hub, const Run *run)
{
    for (int i = 0; i < 1 + AXES * run_ranks(run); i++)
        if (hub[i])
            local_hub_free(hub[i]);
    free(hub);
}

void hubs_groups(Rank *r, LocalHub **hub, int number)
{
    const Run *run = r->run;
    r->group = local_group(hub[0], number);
    for (int x = 0; x < AXES; x++) {
        Group *g = &r->along[x];
        if (!is_made(run, x))
            continue;
        *g = local_group(hub[hub_number(run, number, x)], along(run, number, x).at);
        g->host_ranks = r->group.host_ranks;
        g->host_rank = r->group.host_rank;
    }
}

/* ---- any ---- */

PpStatus groups_open(Rank *r)
{
    const Run *run = r->run;
    int number = r->group.rank;
    r->replica = along(run, number, AXIS_PEERS).at;
    r->member = along(run, number, AXIS_MEMBERS).at;
    for (int x = 0; x < AXES; x++) {
        Group *g = &r->along[x];
        int first = first_of(run, number, x);
        if (is_whole(run, x))
            *g = r->group;
        else if (!is_made(run, x))
            *g = (Group){.ranks = 1};
        else if (r->group.processes)
            TRY(mpi_part(&r->group, first, g));
        g->first = first;
        g->stride = along(run, number, x).stride;
    }
    r->data = data_of(&run->data, r->replica);
    return PP_OK;
}

void groups_close(Rank *r)
{
    for (int x = 0; x < AXES && r->group.processes; x++)
        if (is_made(r->run, x))
            mpi_part_close(&r->along[x]);
}
