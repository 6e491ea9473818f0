/*
 * verify.h - shared by sched_check.c (rows), sched_verify.c (the run) and sched_blocked.c (the report of a
 * blocked run).
 */
#ifndef PP_SCHED_VERIFY_H
#define PP_SCHED_VERIFY_H

#include "internal.h"

typedef struct Verify {
    const Schedule *s;
    const SchedGraph *g;
    int buffers;               /* 0: rendezvous */
    int *cursor;               /* per rank: the next action */
    int *sent, *received;      /* per lane: messages so far */
    int32_t *seq;              /* per message: its number on its lane, -1 = not sent */
    int *begun, *members;      /* per stage group: reductions begun, members that have one */
    int *queue, head, waiting; /* ranks that may have something to do, a ring */
    unsigned char *queued;
    SchedError *e;
} Verify;

int sched_check_rows(const Schedule *s, const SchedGraph *g, SchedError *e);
/* The report of a run that stands still, into v->e. */
int sched_blocked(Verify *v);

static inline int64_t verify_message(const Verify *v, const SchedAction *a, int *lane)
{
    *lane = sched_graph_lane(v->g, a);
    return sched_graph_message(v->g, v->s->microbatches, *lane, a->microbatch);
}
static inline int verify_is_send(int t) { return sched_is_send(t) || t == SA_SEND_P || t == SA_SEND_GP; }
static inline int verify_is_recv(int t) { return sched_is_recv(t) || t == SA_RECV_P || t == SA_RECV_GP; }

#endif
