/*
 * generate.h - shared by the generators: the schedule being made, and how actions are appended.
 */
#ifndef PP_SCHEDULE_GENERATE_H
#define PP_SCHEDULE_GENERATE_H

#include "schedule/rows.h"

typedef struct SchedGen {
    Schedule *s;
    int p, m;      /* ranks, microbatches */
    int round;     /* microbatches of a round; m where there are no rounds; v:K's K */
    int placement; /* SCHED_PLACE_* */
    int *chunks;   /* per rank: its number of stages */
    SchedError *e;
} SchedGen;

/* ---- place.c ---- */
void sched_gen_place(SchedGen *g);                        /* fills rank_of and chunks */
int sched_gen_stage(const SchedGen *g, int r, int chunk); /* the chunk-th stage of a rank */
void sched_gen_one(SchedGen *g, int r, int type, int stage, int microbatch);
/* For all stages of the rank, as if they were one. */
void sched_gen_all(SchedGen *g, int r, int type, int microbatch);
void sched_gen_idle(SchedGen *g, int r, int n);

/* ---- generate.c, interleaved.c, zero_bubble.c, synth/v_shape.c; refusals in g->e ---- */
int sched_gen_gpipe(SchedGen *g);
int sched_gen_1f1b(SchedGen *g);
int sched_gen_looped_bfs(SchedGen *g);
int sched_gen_forward(SchedGen *g);
int sched_gen_interleaved(SchedGen *g);
int sched_gen_interleaved_zb(SchedGen *g);
int sched_gen_gis(SchedGen *g);
int sched_gen_zbv(SchedGen *g);
int sched_gen_dualpipev(SchedGen *g);
int sched_gen_zbh1(SchedGen *g);
int sched_gen_zbh2(SchedGen *g);
int sched_gen_vhalf(SchedGen *g);
int sched_gen_vmin(SchedGen *g);
int sched_gen_v(SchedGen *g);
int sched_gen_1f1bv(SchedGen *g);

#endif
