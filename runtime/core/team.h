/*
 * team.h - the threads of OpenMP; without it there is one.
 */
#ifndef PP_TEAM_H
#define PP_TEAM_H

#ifdef _OPENMP
#include <omp.h>

/* Of the team that a parallel region would have here; within one: 1. */
static inline int team_most(void) { return omp_in_parallel() ? 1 : omp_get_max_threads(); }
/* Which of the team's threads this is: 0 is the first. */
static inline int team_thread(void) { return omp_get_thread_num(); }
/* So many for each region of this thread from here on */
static inline void team_set(int n) { omp_set_num_threads(n); }
#else
static inline int team_most(void) { return 1; }
static inline int team_thread(void) { return 0; }
static inline void team_set(int n) { (void)n; }
#endif

#endif
