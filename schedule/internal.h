/*
 * internal.h - what the files of the schedule part share and nobody else needs.
 */
#ifndef PP_SCHED_INT_H
#define PP_SCHED_INT_H

#include "schedule.h"

enum { SCHED_MAX_CELLS = 1 << 30 };

int sched_fail(SchedError *e, int status, int rank, int cell, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
int sched_nomem(SchedError *e);

Schedule *sched_new(const char *name, int ranks, int stages, int microbatches);
/* Appends; when memory runs out the row becomes poisoned (cap -1) and stays so: one check at the end of a pass. */
void sched_push(SchedRow *r, SchedAction a);
int sched_rows_ok(const Schedule *s, SchedError *e);
int sched_cell(const SchedRow *r, int index); /* the cell that holds action `index` */
/* Puts new rows in the place of the old ones, which are freed. */
void sched_swap_rows(Schedule *s, SchedRow *rows);
void sched_free_rows(SchedRow *rows, int n);
int sched_find_rank(Schedule *s, SchedError *e); /* fills rank_of from the rows */
int sched_has_type(const Schedule *s, int type);

static inline SchedAction sched_act(int type, int stage, int microbatch)
{
    SchedAction a = {stage, microbatch, -1, (uint8_t)type, 0, 0};
    return a;
}

static inline SchedAction sched_comm(int type, int stage, int microbatch, int peer)
{
    SchedAction a = {stage, microbatch, peer, (uint8_t)type, 0, 0};
    return a;
}

static inline int sched_is_compute(int type) { return type >= SA_F && type <= SA_R; }
static inline int sched_is_send(int type) { return type == SA_SEND_F || type == SA_SEND_B; }
static inline int sched_is_recv(int type) { return type == SA_RECV_F || type == SA_RECV_B; }
static inline int sched_is_wait_send(int type) { return type == SA_WAIT_SEND_F || type == SA_WAIT_SEND_B; }
static inline int sched_is_param(int type) { return type >= SA_SEND_P && type <= SA_RECV_GP; }
static inline int sched_has_peer(int type)
{
    return (type >= SA_SEND_F && type <= SA_WAIT_SEND_B) || sched_is_param(type);
}
static inline int sched_has_microbatch(int type)
{
    return (type >= SA_F && type <= SA_WAIT_SEND_B) || type == SA_OFFLOAD || type == SA_FETCH;
}
/* The end of the cell that begins at action i. */
static inline int sched_cell_end(const SchedRow *r, int i)
{
    while ((r->a[i].overlap & SCHED_PART) && !(r->a[i].overlap & SCHED_LAST) && i + 1 < r->n)
        i++;
    return i + 1;
}

/* What feeds what: the edges sorted by (from, to), without repetitions, with the lists of each stage; and the pairs of
   stages that share parameters.  in[in_first[t] .. in_first[t+1]) are the numbers of the edges into t, ascending. */
typedef struct SchedGraph {
    int stages, n, n_param;
    SchedEdge *edge;
    int *in_first, *in, *out_first; /* out edges of s: out_first[s] .. out_first[s+1), they are sorted so */
    SchedParam *param;              /* sorted by (from, to), without repetitions */
    int *group;                     /* per stage: smallest stage of its replica set */
    unsigned char *shared;          /* per stage: owns a transmitted parameter, or is in a replica set */
} SchedGraph;

/* edge NULL: the chain of adjacent stages. */
int sched_graph(SchedGraph *g, int stages, const SchedEdge *edge, int n_edge, const SchedParam *param, int n_param,
                SchedError *e);
/* The edges that a complete schedule's own sends and receives speak of; the chain where they are silent. */
int sched_graph_of(SchedGraph *g, const Schedule *s, const SchedParam *param, int n_param, SchedError *e);
void sched_graph_free(SchedGraph *g);
int sched_graph_edge(const SchedGraph *g, int from, int to); /* its number, or -1 */
int sched_graph_param(const SchedGraph *g, int from, int to);
/* Messages are numbered: a lane is an edge or a shared parameter in one direction (sched_graph_lanes of them), and a
   lane of an edge has one message per microbatch.  -1: along no edge. */
int sched_graph_lane(const SchedGraph *g, const SchedAction *a);
static inline int sched_graph_lanes(const SchedGraph *g) { return 2 * (g->n + g->n_param); }
static inline int64_t sched_graph_message(const SchedGraph *g, int microbatches, int lane, int microbatch)
{
    return lane < 2 * g->n ? (int64_t)lane * microbatches + microbatch
                           : (int64_t)2 * g->n * microbatches + lane - 2 * g->n;
}
static inline size_t sched_graph_messages(const SchedGraph *g, int microbatches)
{
    return (size_t)g->n * 2 * (size_t)microbatches + (size_t)g->n_param * 2 + 1;
}
/* Is there a path of gradient edges from stage a to a later stage b: then B of a proves B of b. */
int sched_graph_proves(const SchedGraph *g, int a, int b);

int sched_wait_send_graph(Schedule *s, const SchedGraph *g, SchedError *e);
/* Waits go to where the message is known to be consumed. */
int sched_early_waits(Schedule *s, const SchedGraph *g, SchedError *e);
int sched_comms_graph(Schedule *s, const SchedGraph *g, SchedError *e);
int sched_verify_graph(const Schedule *s, const SchedGraph *g, int buffers, SchedError *e);

#endif
