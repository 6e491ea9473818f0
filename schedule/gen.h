/*
 * gen.h - the state of a generator, shared by sched_gen.c and sched_gen_zb.c.
 */
#ifndef PP_SCHED_GEN_H
#define PP_SCHED_GEN_H

#include "internal.h"

typedef struct Gen {
    Schedule *s;
    int p, m, place;
    int *v; /* stages per rank */
    SchedError *e;
} Gen;

void sched_gen_one(Gen *g, int r, int type, int stage, int mb);
void sched_gen_all(Gen *g, int r, int type, int mb); /* for all stages of the rank */
void sched_gen_idle(Gen *g, int r, int n);
int sched_gen_stage(const Gen *g, int r, int chunk); /* the chunk-th stage of a rank */

int sched_gen_zbv(Gen *g);
int sched_gen_dualpipev(Gen *g);
int sched_gen_zbh1(Gen *g);
int sched_gen_zbh2(Gen *g);

#endif
