/*
 * launch.h - how the ranks were started, and what they report to out/run.
 *
 * out/run names a file in PP_RUN.  Ranks on its machine add lines to it: `rank R PID saves' once
 * signals may reach the process (`ends': nothing would be saved), `ready' when MPI has begun,
 * `status S' in the end.  Elsewhere the file is not there, and they say nothing.
 */
#ifndef PP_LAUNCH_H
#define PP_LAUNCH_H

#include "net/group.h"

/* Before MPI begins */
void launch_begin(int rank, int saves);
PpStatus launch_joined(Group *world); /* all ranks call it */
/* The process' exit status: 0 where out/run has been told, so that mpirun has nothing to report */
int launch_end(const Group *world, int status);
/* Which signals make the run save and end, and what others do; of processes */
const char *launch_signals(void);
const char *launch_warning(void);

#endif
