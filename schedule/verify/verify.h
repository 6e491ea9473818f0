/*
 * verify.h - shared by rows.c (checks each row), verify.c (runs all rows) and blocked.c (reports
 * why a run cannot go on).
 */
#ifndef PP_SCHED_VERIFY_H
#define PP_SCHED_VERIFY_H

#include "schedule/graph.h"

typedef struct Verify {
    const Schedule *s;
    const SchedGraph *g;
    int buffers;               /* 0: rendezvous */
    int *sent, *received;      /* per lane: messages so far */
    int32_t *seq;              /* per message: its number on its lane, -1 = not sent */
    int *begun, *members;      /* per stage group: reductions begun, members that have one */
    SchedTurns turn;
    Pool room;
    SchedError *e;
} Verify;

int sched_check_rows(const Schedule *s, const SchedGraph *g, SchedError *e);
/* The report of a run that cannot go on, into v->e. */
int sched_blocked(Verify *v);

static inline int64_t verify_message(const Verify *v, const SchedAction *a, int *lane)
{
    *lane = sched_graph_lane(v->g, a);
    return sched_graph_message(v->g, v->s->microbatches, *lane, a->microbatch);
}

#endif
