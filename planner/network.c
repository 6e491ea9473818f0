/*
 * network.c - over which link ranks tell each other: of a machine whose nodes hold some of them,
 * joined by NVLink for example, and are themselves joined by a slower network.
 *
 * Ranks are numbered as the program numbers them, replica * P + rank of the pipeline, and
 * neighbours fill a node before the next one: out/run and Slurm start them so.  What a schedule
 * sends goes over the slower link where any pipeline lies across two nodes, for its steps wait for
 * the slowest; sums over replicas send each peer as much, so the parts of them that leave the node
 * and that stay add up.
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

static bool in_one_node(const PlanOptions *o, int ranks)
{
    return !o->network.node || ranks <= o->network.node;
}

Rates rates_of_pipe(const PlanOptions *o, int ranks, int replicas)
{
    const Rates *r = &o->partition->automatic.rates;
    const Network *n = &o->network;
    bool apart = !in_one_node(o, ranks * replicas) && n->node % ranks != 0;
    return apart ? with(r, 1 / n->link, n->latency) : *r;
}

Rates rates_of_replicas(const PlanOptions *o, int ranks, int replicas)
{
    const Rates *r = &o->partition->automatic.rates;
    const Network *n = &o->network;
    if (in_one_node(o, ranks * replicas))
        return *r;
    /* of a rank's peers, which are P numbers apart, those in its node */
    int here = n->node / ranks > 1 ? n->node / ranks : 1;
    double far = (double)(replicas - here) / (replicas - 1);
    return replicas > 1 ? with(r, far / n->link + (1 - far) / r->link, n->latency) : *r;
}
