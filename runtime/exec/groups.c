/*
 * groups.c - the groups that a rank belongs to.  Rank number (replica * P + p) * T + member of the
 * run is rank p of its replica's pipeline of P ranks, each of them of T members.  Along an axis it
 * is with those that differ in that coordinate alone; along other axes than the pipeline's nothing
 * is made for one rank.
 */
#include "exec.h"

_Static_assert((int)LOCAL_SETS == (int)AXES, "threads meet along every axis");

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

static int is_made(const Run *run, int axis)
{
    return axis == AXIS_PIPE || along(run, 0, axis).ranks > 1;
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

PpStatus groups_open(Rank *r)
{
    const Run *run = r->run;
    int number = r->group.rank;
    r->replica = along(run, number, AXIS_PEERS).at;
    r->member = along(run, number, AXIS_MEMBERS).at;
    for (int x = 0; x < AXES; x++) {
        Group *g = &r->along[x];
        const Along a = along(run, number, x);
        *g = is_made(run, x) ? r->group : (Group){.op = NULL};
        g->first = number - a.at * a.stride;
        g->stride = a.stride;
        g->rank = a.at;
        g->ranks = a.ranks;
        g->impl = NULL;
        if (is_made(run, x) && r->group.processes)
            TRY(mpi_part(&r->group, g->first, g));
        else if (is_made(run, x))
            local_part(&r->group, x, g);
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
