/*
 * graph.h - the graph of a schedule: edges between stages, parameters that stages share, and the
 * messages of both.
 */
#ifndef PP_SCHEDULE_GRAPH_H
#define PP_SCHEDULE_GRAPH_H

#include "rows.h"

/* What feeds what: the edges sorted by (from, to), without repetitions, with the lists of each
   stage; and the pairs of stages that share parameters.  in[in_first[t] .. in_first[t+1]) are the
   numbers of the edges into t, ascending. */
typedef struct SchedGraph {
    int stages, n, n_param;
    SchedEdge *edge;
    int *in_first, *in;
    int *out_first;        /* out edges of s are number out_first[s] .. out_first[s+1) */
    SchedParam *param;     /* sorted by (from, to), without repetitions */
    int *group;            /* per stage: smallest stage of its replica set */
    unsigned char *shared; /* per stage: owns a transmitted parameter, or is in a replica set */
    Pool room;
} SchedGraph;

/* edge NULL: the chain of adjacent stages. */
int sched_graph(SchedGraph *g, int stages, const SchedEdge *edge, int n_edge,
                const SchedParam *param, int n_param, SchedError *e);
/* For a schedule; edge NULL: the edges that a complete one's own sends and receives use, the chain
   if it has none.  Forwards alone send no gradients. */
int sched_graph_of(SchedGraph *g, const Schedule *s, const SchedEdge *edge, int n_edge,
                   const SchedParam *param, int n_param, SchedError *e);
void sched_graph_free(SchedGraph *g);
int sched_graph_edge(const SchedGraph *g, int from, int to); /* its number, or -1 */
/* What a computation needs of other stages, of its microbatch, one after the other:
       for (SchedNeed n = sched_needs(g, type, stage); sched_next(g, &n);) */
typedef struct SchedNeed {
    int back, at, end;     /* back: gradients, else results; where to look next, and until where */
    int edge, stage, lane; /* the one that was found */
} SchedNeed;
static inline SchedNeed sched_needs(const SchedGraph *g, int type, int stage)
{
    const int back = type == SA_B || type == SA_I;
    const int *first = back ? g->out_first : g->in_first;
    SchedNeed n = {.back = back};
    if (back || type == SA_F)
        n.at = first[stage], n.end = first[stage + 1];
    return n;
}
static inline int sched_next(const SchedGraph *g, SchedNeed *n)
{
    while (n->at < n->end) {
        n->edge = n->back ? n->at : g->in[n->at];
        n->at++;
        n->stage = n->back ? g->edge[n->edge].to : g->edge[n->edge].from;
        n->lane = 2 * n->edge + n->back;
        if (!n->back || g->edge[n->edge].gradient)
            return 1;
    }
    return 0;
}
/* Ranks that may have waited for this computation have a turn. */
void sched_wake_readers(SchedTurns *t, const Schedule *s, const SchedGraph *g,
                        const SchedAction *a);
/* Messages are numbered: a lane is an edge or a shared parameter in one direction
   (sched_graph_lanes of them), and a lane of an edge has one message per microbatch.  -1: along no
   edge. */
int sched_graph_lane(const SchedGraph *g, const SchedAction *a);
static inline int sched_graph_lanes(const SchedGraph *g) { return 2 * (g->n + g->n_param); }
static inline int64_t sched_graph_message(const SchedGraph *g, int microbatches, int lane,
                                          int microbatch)
{
    return lane < 2 * g->n ? (int64_t)lane * microbatches + microbatch
                           : (int64_t)2 * g->n * microbatches + lane - 2 * g->n;
}
static inline size_t sched_graph_messages(const SchedGraph *g, int microbatches)
{
    return (size_t)g->n * 2 * (size_t)microbatches + (size_t)g->n_param * 2 + 1;
}
/* Whether there is a path of gradient edges from stage a to a later stage b; then B of a ends
   later. */
int sched_graph_proves(const SchedGraph *g, int a, int b);

/* ---- passes and the verifier, on a graph of the caller's ---- */

int sched_wait_send_graph(Schedule *s, const SchedGraph *g, SchedError *e);
/* moved: NULL, or per rank: how many have moved. */
int sched_offload_graph(Schedule *s, const SchedGraph *g, const SchedOffload *o, int *moved,
                        SchedError *e);
/* Waits go to where the message is known to be consumed. */
int sched_early_waits(Schedule *s, const SchedGraph *g, SchedError *e);
int sched_comms_graph(Schedule *s, const SchedGraph *g, SchedError *e);
int sched_verify_graph(const Schedule *s, const SchedGraph *g, int buffers, SchedError *e);

#endif
