/*
 * options.h - the command line of `ppsplit schedule`.
 */
#ifndef PP_SCHEDULE_OPTIONS_H
#define PP_SCHEDULE_OPTIONS_H

#include "tool.h"

typedef struct SchedOptions {
    const char *name, *csv, *costs, *trace, *svg;
    int ranks, stages, microbatches, placement; /* 0 or -1: not given */
    struct { /* what passes add to the rows */
        const char *recompute, *unshard;
        int merge, comms, lower, defer, budget, deferred_reduce;
        int offload; /* stashes a rank, 0: none */
    } add;
    int chunks, span; /* auto: microbatch-chunks alive, 0: any number; by the longest span */
    int simulate, verify, grid, buffers; /* buffers -1: not given */
    double overlap;
    SchedRows rows;
    int others; /* options that are given beside --svg and --grid */
    SchedEdge *edge;
    int n_edge;
} SchedOptions;

/* 0: ok; -1: help was printed; else the exit status, after a message. */
int sched_options(SchedOptions *o, int argc, char **argv);

/* Prints what is wrong and where help is; returns SCHED_EUSAGE. */
int sched_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
