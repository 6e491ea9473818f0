/*
 * passes.h - passes over rows as a program runs them, with the graph that they take: the chain of
 * stages, or given edges.
 */
#ifndef PP_TESTS_PASSES_H
#define PP_TESTS_PASSES_H

#include "schedule/graph.h"
#include "schedule/simulate/simulate.h"

static inline int with_comms(Schedule *s, const SchedEdge *edge, int n, SchedError *e)
{
    SchedGraph g;
    int st = sched_graph(&g, s->stages, edge, n, NULL, 0, e);
    st = st ? st : sched_comms_graph(s, &g, e);
    sched_graph_free(&g);
    return st;
}

static inline int with_waits(Schedule *s, SchedError *e)
{
    SchedGraph g;
    int st = sched_graph_of(&g, s, NULL, 0, NULL, 0, e);
    st = st ? st : sched_wait_send_graph(s, &g, e);
    sched_graph_free(&g);
    return st;
}

static inline int with_copies(Schedule *s, const SchedCosts *costs, int *moved, SchedError *e)
{
    SchedGraph g;
    int st = sched_graph(&g, s->stages, NULL, 0, NULL, 0, e);
    st = st ? st : sched_offload_graph(s, &g, &(SchedOffload){.costs = costs}, moved, e);
    sched_graph_free(&g);
    return st;
}

#endif
