/*
 * tool.h - what is done with schedules on the compiler's side: draw, the command `ppsplit
 * schedule`.  Programs that ppsplit writes carry none of it along.
 */
#ifndef PP_SCHEDULE_TOOL_H
#define PP_SCHEDULE_TOOL_H

#include "schedule/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- steps.c: length of a lock-step run where each action is a step; -1: it cannot go on, or no
 * memory ---- */
int64_t sched_steps(const Schedule *s, SchedError *e);

/* ---- draw.c ---- */
void sched_draw_grid(const Schedule *s, const SchedSim *sim, FILE *f,
                     int columns); /* on a terminal */
void sched_draw_svg(const Schedule *s, const SchedSim *sim, FILE *f);
void sched_draw_trace(const Schedule *s, const SchedSim *sim, FILE *f);

/* ---- command.c: `ppsplit schedule ...`; the exit status ---- */
int schedule_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
