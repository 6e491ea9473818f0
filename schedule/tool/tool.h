/*
 * tool.h - what only the compiler does with schedules: drawing, and the command `ppsplit schedule`.
 * Programs that ppsplit writes do not contain it.
 */
#ifndef PP_SCHEDULE_TOOL_H
#define PP_SCHEDULE_TOOL_H

#include "schedule/simulate/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- draw.c ---- */
void sched_draw_grid(const Schedule *s, const SchedSim *sim, FILE *f,
                     int columns); /* on a terminal */
void sched_draw_svg(const Schedule *s, const SchedSim *sim, FILE *f);
/* Of a fixed width in pixels, in which `whole` units of time have room; times are microseconds and
 * shown as milliseconds; what: the title, escaped by the caller */
void sched_draw_svg_in(const Schedule *s, const SchedSim *sim, double whole, double width,
                       const char *what, FILE *f);
void sched_draw_trace(const Schedule *s, const SchedSim *sim, FILE *f);

/* ---- measured.c: one step of a run, from its trace ---- */
typedef struct SchedMeasured {
    Schedule *s;           /* rows as they ran; ranks of the first replica */
    SchedSim sim;          /* microseconds; peak, rank_span and span are not known: 0 */
    int step, steps;       /* which one it is, of how many in the trace */
    /* per rank: bytes in use while each action runs, planned for the step, and in use between
     * steps; -1: not said */
    double **bytes, *planned, *always;
} SchedMeasured;
/* Returns a status; free m with sched_measured_free(), after an error too. */
int sched_measured(const char *path, SchedMeasured *m, SchedError *e);
void sched_measured_free(SchedMeasured *m);
/* The same rows simulated, by the means of the trace's steps; out: sched_sim_free() */
int sched_measured_simulate(const SchedMeasured *m, const char *path, SchedSim *out,
                            SchedError *e);

/* ---- command.c: `ppsplit schedule ...`; the exit status ---- */
int schedule_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
