/*
 * page.h - the report of a program and its runs: what is read, and the figures that are drawn of
 * it.  Private to page*.c.
 */
#ifndef PPSPLIT_REPORT_PAGE_H
#define PPSPLIT_REPORT_PAGE_H

#include "base/file/memory.h"
#include "report.h"
#include "schedule/tool/tool.h"

/* ---- page_read.c: pipe.xml, a run's log ---- */

/* modules: those that lie in it whole, "": none */
typedef struct {
    const char *modules;
    int64_t nodes, parameters, bytes_param, bytes_stash, flops;
} PageStage;
typedef struct {
    uint32_t from, to;
    const char *value, *kind, *shape;
    int64_t bytes;
} PageEdge;
typedef struct {
    const char *model, *loss; /* loss "": none */
    VEC(PageStage) stage;
    VEC(PageEdge) edge;
} PagePipe;
/* EXIT_IO: cannot be read; EXIT_MODEL: it is not what report_pipe_xml() writes */
PagePipe page_pipe(Arena *a, const char *path);

/* What a line a step says; NAN where it does not.  In the log's units. */
enum { LOG_LOSS, LOG_NORM, LOG_TOKENS, LOG_LR, LOG_SECONDS, LOG_COLUMNS };
typedef struct {
    double step, value[LOG_COLUMNS];
} PageStep;
/* Bytes that were planned for a rank's step, and of these for activations; -1: not said */
typedef struct {
    double memory, activations;
} PagePlace;
typedef struct {
    const char *path, *schedule; /* schedule NULL: the log does not say */
    VEC(PagePlace) place;        /* as the log has them: by rank */
    VEC(PageStep) step;
} PageLog;
/* A --log-json; EXIT_MODEL where a line is none. */
PageLog page_log(Arena *a, const char *path);
bool page_is_trace(const char *path); /* by its first bytes; EXIT_IO: cannot be read */

/* ---- page_draw.c: figures, each an SVG by itself ---- */

/* A text in memory, from its begin to its end */
FILE *page_open(Memory *m);
const char *page_text(Arena *a, FILE *f, Memory *m);

typedef struct {
    const char *label;
    uint32_t n;
    double *at, *value;
} Curve; /* NAN: a gap */
typedef struct {
    const char *name;            /* of its file, without ending */
    const char *title, *caption; /* XHTML */
    const char *svg;
} Figure;
typedef VEC(Figure) Figures;

/* Lines over one another; x and y: of the axes, with their units; labels are escaped here. steps:
 * values hold until the next point */
const char *draw_curves(Arena *a, uint32_t n, const Curve *curve, const char *x, const char *y,
                        bool steps);
/* Stages from top to bottom, what crosses between them as lines with its bytes. */
const char *draw_stages(Arena *a, const PagePipe *p);

#endif
