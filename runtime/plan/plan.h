/*
 * plan.h - what plan.c, walk.c, messages.c and place.c share while a rank's step is planned.
 */
#ifndef PP_PLAN_H
#define PP_PLAN_H

#include "internal.h"

typedef struct {
    Rank *r;
    const PpPlan *plan;
    int m, at, begin, end; /* microbatches; the op being walked; the ops that run at the same time */
    unsigned char *again;  /* per (local stage, microbatch): recomputed by an R */
    Instance *inst;
    int64_t n_inst, *base;                     /* per local stage: its first instance */
    int64_t *wire_f, *wire_b, *wire_p, n_wire; /* per stage: numbers of its inputs, dx, params on the wire */
    int64_t *sent;                             /* per message of an op: the instance it carries, -1 */
    struct Fix {
        int msg, local, param, grad;
    } * fix; /* messages whose buffer is a parameter or its gradient */
    int n_fix;
    int64_t work, stats; /* bytes of one workspace, of the running statistics of the largest recomputed stage */
    int *last_send[2];   /* per (local stage, microbatch): the last SEND_F, SEND_B op; then a chain */
    int *next_send;      /* per op */
    int *held;           /* per local stage: the microbatch whose outputs are on their way to the host, -1 */
} Planner;

/* plan.c: instances by number.  l: local stage; m: microbatch. */
int64_t plan_in(const Planner *p, int l, int i, int m); /* -1: not an instance but data or the loss scale */
int64_t plan_out(const Planner *p, int l, int o, int m);
int64_t plan_dy(const Planner *p, int l, int j, int m);
int64_t plan_dx(const Planner *p, int l, int k, int m);
int64_t plan_stash(const Planner *p, int l, int m);
int64_t plan_saved(const Planner *p, int l, int m);
int plan_recomputed(const Planner *p, int l, int m);
int64_t plan_kept_stash(const Planner *p, int l, int m); /* what the backward reads: of the forward, or of its repetition */
int64_t plan_kept_out(const Planner *p, int l, int o, int m);
int plan_dx_number(const PpStage *st, int input, int index);
PpStatus plan_no_memory(void);
void *plan_zeroed(int64_t n, size_t size);

/* walk.c */
void plan_touch(Planner *p, int64_t id); /* the instance lives at this moment; -1: none */
PpStatus plan_walk(Planner *p);

/* messages.c */
PpStatus plan_edge(Planner *p, const SchedAction *a, int l); /* SEND_F, RECV_F, SEND_B, RECV_B */
PpStatus plan_params(Planner *p, const SchedAction *a);      /* SEND_P, RECV_P, SEND_GP, RECV_GP */
PpStatus plan_contributions(Planner *p);

/* place.c */
void plan_sizes(Planner *p);
char *plan_carve(char **at, int64_t bytes);
void plan_carve_params(Rank *r, char **at);
void plan_carve_rest(Planner *p, char **at, char *slots);
PpStatus plan_point(Planner *p, char *slots);

#endif
