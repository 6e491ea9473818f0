/*
 * page.h - the page of a program while its runs are put into it: what logs and traces say.  Private
 * to page.c, log.c, runs.c and training.c.
 */
#ifndef PPSPLIT_REPORT_PAGE_H
#define PPSPLIT_REPORT_PAGE_H

#include "figures.h"
#include "report.h"
#include "schedule/tool/tool.h"

/* ---- log.c: a file of --log-json ---- */

/* What the line of a step says; NAN where it does not.  In the log's units. */
enum { LOG_LOSS, LOG_NORM, LOG_TOKENS, LOG_LR, LOG_SECONDS, LOG_EVAL, LOG_COLUMNS };
typedef struct {
    double step, value[LOG_COLUMNS];
} LogStep;
/* Bytes that were planned for a rank's step, and how many of these for activations, -1: unknown;
 * floating-point operations of the model in it, NAN: unknown */
typedef struct {
    double memory, activations, operations;
} LogPlace;
typedef struct {
    const char *path, *schedule; /* schedule NULL: the log does not say */
    VEC(LogPlace) place;         /* by rank */
    double batch;                /* rows of a step; NAN: the log does not say */
    double steps;                /* of the whole run; NAN: the log does not say */
    VEC(LogStep) step;
    VEC(LogStep) eval; /* LOG_EVAL: the loss of rows that do not train, after so many steps */
} RunLog;
RunLog log_read(Arena *a, const char *path); /* EXIT_MODEL where a line is none of a log */

/* ---- page.c ---- */

/* A trace: one step of it, and the same rows simulated. */
typedef struct {
    const char *path;
    SchedMeasured m;
    SchedSim sim;
    SchedCosts costs; /* means of the trace */
    const char *why;  /* NULL, or why nothing is simulated */
} Run;
typedef struct {
    Arena *a;
    const ReportOptions *o;
    int stages;             /* of the program */
    bool reads_texts;       /* an input has several whole numbers a row */
    const char *throughput; /* its unit: "tokens a second" or "rows a second" */
    VEC(Run *) run;
    VEC(RunLog) log;
    bool waits; /* --follow: a log has no step so far, and is left out */
    SchedError e;
    Text text; /* the page, while it is written */
} Page;

/* ---- runs.c: what traces say ---- */
void put_schedules(Page *p);
void put_memory(Page *p);

/* ---- training.c: what logs say ---- */
void rows_for_tokens(Page *p);
void put_training(Page *p);

#endif
