/*
 * generate.c - the schedules whose backward is one action: GPipe (Huang et al., 1811.06965), 1F1B
 * (PipeDream-flush, 2006.09503), LoopedBFS (2211.05953), and forwards only.
 *
 * gpipe, 1f1b and forward-only take any number of stages: a rank then owns a block of neighbours
 * and runs them as one.
 */
#include "generate.h"

#include <stdlib.h>
#include <string.h>

int sched_gen_gpipe(SchedGen *g)
{
    for (int r = 0; r < g->p; r++) {
        sched_gen_idle(g, r, r);
        if (g->placement == SCHED_PLACE_BLOCK) {
            for (int i = 0; i < g->m; i++)
                sched_gen_all(g, r, SA_F, i);
            sched_gen_idle(g, r, 3 * (g->p - 1 - r));
            for (int i = 0; i < g->m; i++)
                sched_gen_all(g, r, SA_B, i);
            continue;
        }
        for (int c = 0; c < g->chunks[r]; c++)
            for (int i = 0; i < g->m; i++)
                sched_gen_one(g, r, SA_F, sched_gen_stage(g, r, c), i);
        sched_gen_idle(g, r, 3 * (g->p - 1 - r));
        for (int c = g->chunks[r]; c-- > 0;)
            for (int i = 0; i < g->m; i++)
                sched_gen_one(g, r, SA_B, sched_gen_stage(g, r, c), i);
    }
    return SCHED_OK;
}

int sched_gen_1f1b(SchedGen *g)
{
    for (int r = 0; r < g->p; r++) {
        int w = g->m < g->p - r ? g->m : g->p - r, f = 0, b = 0;
        while (f < w)
            sched_gen_all(g, r, SA_F, f++);
        while (f < g->m) {
            sched_gen_all(g, r, SA_B, b++);
            sched_gen_all(g, r, SA_F, f++);
        }
        while (b < g->m)
            sched_gen_all(g, r, SA_B, b++);
    }
    return SCHED_OK;
}

int sched_gen_looped_bfs(SchedGen *g)
{
    for (int r = 0; r < g->p; r++) {
        sched_gen_idle(g, r, r);
        for (int c = 0; c < g->chunks[r]; c++)
            for (int i = 0; i < g->m; i++)
                sched_gen_one(g, r, SA_F, sched_gen_stage(g, r, c), i);
        sched_gen_idle(g, r, 2 * (g->p - 1 - r));
        for (int c = g->chunks[r]; c-- > 0;)
            for (int i = g->m; i-- > 0;)
                sched_gen_one(g, r, SA_B, sched_gen_stage(g, r, c), i);
    }
    return SCHED_OK;
}

/* One column of forwards on all ranks: each takes, of its stages whose input the columns before
 * have made, the last. */
static int forward_column(SchedGen *g, int *done, int *now)
{
    int advanced = 0;
    for (int r = 0; r < g->p; r++)
        for (int c = g->chunks[r]; c-- > 0;) {
            int s = sched_gen_stage(g, r, c);
            if (done[s] == g->m || (s > 0 && done[s - 1] <= done[s]))
                continue;
            sched_gen_one(g, r, SA_F, s, now[s]++);
            advanced = 1;
            break;
        }
    memcpy(done, now, (size_t)g->s->stages * sizeof *done);
    return advanced;
}

/* Stages that are apart must not run as one: a rank would wait for the whole pipeline within each
 * microbatch. */
int sched_gen_forward(SchedGen *g)
{
    g->s->infer = 1;
    if (g->placement == SCHED_PLACE_BLOCK) {
        for (int r = 0; r < g->p; r++)
            for (int i = 0; i < g->m; i++)
                sched_gen_all(g, r, SA_F, i);
        return SCHED_OK;
    }
    int *done = calloc((size_t)g->s->stages * 2, sizeof *done);
    if (!done)
        return sched_nomem(g->e);
    while (forward_column(g, done, done + g->s->stages))
        ;
    free(done);
    return SCHED_OK;
}
