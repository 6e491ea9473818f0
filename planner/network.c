/*
 * network.c - over which link ranks tell each other: of a machine whose nodes hold some of them,
 * joined by NVLink for example, and are themselves joined by a slower network.
 *
 * Ranks are numbered as the program numbers them, (replica * P + rank of the pipeline) * T +
 * member, and neighbours fill a node before the next one: out/run and Slurm start them so.  What
 * members, or stages, send goes over the slower link where any group of them lies across two nodes,
 * for its steps wait for the slowest; sums over replicas send each peer as much, so the parts of
 * them that leave the node and that stay add up.
 */
#include "search.h"

/* With these as link and messages. */
static Rates with(const Rates *r, double seconds_a_byte, double latency)
{
    Rates other = *r;
    other.link = 1 / seconds_a_byte;
    other.messages = 1 / latency;
    return other;
}

/* So many neighbours in each group, of `all' ranks: is any across two nodes? */
static bool is_across(const PlanOptions *o, int neighbours, int all)
{
    const int node = o->network.node;
    return node && all > node && node % neighbours != 0;
}

static Rates over(const PlanOptions *o, bool across)
{
    const Rates *r = &o->partition->automatic.rates;
    return across ? with(r, 1 / o->network.link, o->network.latency) : *r;
}

Rates rates_of_members(const PlanOptions *o, int members)
{
    return over(o, is_across(o, members, o->ranks));
}

Rates rates_of_pipe(const PlanOptions *o, const Candidate *c)
{
    return over(o, is_across(o, c->ranks * c->cut->of->members, o->ranks));
}

Rates rates_of_replicas(const PlanOptions *o, const Candidate *c)
{
    const Rates *r = &o->partition->automatic.rates;
    const Network *n = &o->network;
    const int apart = c->ranks * c->cut->of->members, replicas = c->replicas;
    if (!n->node || o->ranks <= n->node)
        return *r;
    /* of a rank's peers, which are so many numbers apart, those in its node */
    int here = n->node / apart > 1 ? n->node / apart : 1;
    double far = (double)(replicas - here) / (replicas - 1);
    return replicas > 1 ? with(r, far / n->link + (1 - far) / r->link, n->latency) : *r;
}
