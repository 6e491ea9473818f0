/*
 * watchdog.h - a run of several processes that does not move on ends, and says where.
 *
 * Each process keeps its last actions in a ring, and a thread of it sends the ring to ranks 0 and 1
 * four times a second.  Rank 0 (rank 1, should rank 0 be silent) ends the job when a rank has been
 * silent, or no rank has finished an action, for longer than --watchdog seconds and 20 median
 * steps, or when what a rank saves has not grown for --save-timeout seconds. It names the rank and
 * its action, and writes all rings as a Chrome trace.  MPI is not used for this: it is what the
 * others wait in.  A process that dies is noticed by mpirun or srun.  beats.h: how beats travel.
 */
#ifndef PP_WATCHDOG_H
#define PP_WATCHDOG_H

#include "api/pp.h"
#include "net/group.h"
#include "schedule/schedule.h"

typedef struct Watchdog Watchdog;

typedef struct {
    const PpPlan *model;
    const Schedule *schedule, *evaluation; /* evaluation: NULL where there is none */
    const int64_t *saving;                 /* as of saver_moved(), or NULL */
    double limit, save_limit;              /* --watchdog, --save-timeout; 0: none */
} WatchedRun;
/* All ranks call it; *w stays NULL where ranks are threads, or --watchdog is 0 */
PpStatus watchdog_open(Watchdog **w, Group *g, const Group *members, const WatchedRun *run);
void watchdog_close(Watchdog *w); /* NULL: nothing, as for all of these */
/* The op of the rank's row waits for messages, runs, is done; one past the last: the end of a step.
 * Those of the evaluation's row, if there is one, are numbered behind that. */
typedef enum { WATCH_WAITS, WATCH_RUNS, WATCH_DONE } WatchState;
void watchdog_note(Watchdog *w, int op, WatchState state);
/* The op that runs waits for other members of the rank, in row k of its stage's collectives; -1:
 * not any more */
void watchdog_collective(Watchdog *w, int k);
/* A step begins (from 0); -1: something else is done now, that may take any time */
void watchdog_step(Watchdog *w, int64_t step);

#endif
