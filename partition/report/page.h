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
/* ModuleBox and ModuleFlow, as they were written; PAGE_END: an input or output */
typedef enum { PAGE_MODULE, PAGE_OPERATIONS, PAGE_END } PageModuleKind;
typedef struct {
    PageModuleKind kind;
    const char *name;
    uint32_t stage;
    int64_t nodes, parameters, flops;
} PageModule;
/* shared: a parameter or constant that stages share; stage of from <= stage of to */
typedef struct {
    uint32_t from, to;
    bool shared;
    int64_t values, bytes;
    const char *value;
} PageFlow;
typedef struct {
    const char *model, *loss; /* loss "": none */
    bool tokens;              /* an input has whole numbers, several a row */
    VEC(PageStage) stage;
    VEC(PageEdge) edge;
    VEC(PageModule) module;
    VEC(PageFlow) flow;
} PagePipe;
/* EXIT_IO: cannot be read; EXIT_MODEL: it is not what report_pipe_xml() writes */
PagePipe page_pipe(Arena *a, const char *path);

/* What a line a step says; NAN where it does not.  In the log's units. */
enum { LOG_LOSS, LOG_NORM, LOG_TOKENS, LOG_LR, LOG_SECONDS, LOG_EVAL, LOG_COLUMNS };
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
    double batch;                /* rows of a step; NAN: it does not say */
    VEC(PageStep) step;
    VEC(PageStep) eval; /* of other rows than those that train, after so many steps: LOG_EVAL */
} PageLog;
/* A --log-json; EXIT_MODEL where a line is none. */
PageLog page_log(Arena *a, const char *path);
bool page_is_trace(const char *path); /* by its first bytes; EXIT_IO: cannot be read */

/* ---- page_svg.c: what figures share ---- */

enum { PAGE_COLOURS = 8, SVG_EM = 12 };
extern const char *const page_colours; /* CSS: what the classes of figures look like */
/* A text in memory, from its begin to its end.  m is not in the frame of a function: a diagnostic
 * may leave it, and exit() flushes what is open. */
FILE *page_open(Memory **m);
const char *page_text(Arena *a, FILE *f, Memory *m);
FILE *svg_open(Memory **m, double width, double height, const char *title); /* title: XHTML */
const char *svg_text(Arena *a, FILE *f, Memory *m);
const char *svg_file(Arena *a, const char *svg); /* as it stands in a file of its own */
/* Pixels at most, in the fonts that figures ask for, and a text cut in the middle to so many */
double text_width(const char *s, double size);
const char *text_shortened(Arena *a, const char *s, double size, double width);

/* ---- page_modules.c ---- */

/* width, height: of the drawing, in pixels.  NULL: there are no modules, too many, or they go in
 * circles. */
const char *draw_modules(Arena *outer, const PagePipe *p, const ReportOptions *o, double *width,
                         double *height);

/* ---- page_draw.c: figures of numbers, each an SVG by itself ---- */

typedef struct {
    const char *label;
    uint32_t n;
    double *at, *value;
    bool dots; /* a dot at each point, where these are few */
} Curve; /* NAN: a gap */
typedef struct {
    const char *name;            /* of its file, without ending */
    const char *title, *caption; /* XHTML */
    const char *svg;
} Figure;
typedef VEC(Figure) Figures;

/* x and y: of the axes, with their units; doubling: x by its logarithm; steps: values hold until
 * the next point */
typedef struct {
    const char *x, *y;
    bool doubling, steps, from_zero;
} Axes;
/* Lines over one another; names are escaped here. */
const char *draw_curves(Arena *a, uint32_t n, const Curve *curve, const Axes *axes);

/* A rank's bytes over the step, which hold until the next point; planned: at most, -1: not said */
typedef struct {
    uint32_t n;
    const double *at, *bytes;
    double planned;
} Lane;
const char *draw_lanes(Arena *a, uint32_t n, const Lane *lane, double whole, const char *x);

/* A bar for each stage and quantity */
typedef struct {
    const char *name;
    const double *value; /* per stage; NAN: not said */
    const char **text;
} Quantity;
const char *draw_balance(Arena *a, const PagePipe *p, uint32_t n, const Quantity *quantity);

/* ---- page.c ---- */

/* A trace, its step and the same rows simulated. */
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
    PagePipe pipe;
    VEC(Run) run;
    VEC(PageLog) log;
    const char *throughput; /* of what the logs' is: its unit */
    SchedError e;
    const char *modules; /* their drawing; NULL: there is none */
    double modules_wide, modules_high;
    FILE *f; /* the page, while it is written, into text */
    Memory *text;
    Figures figure;
} Page;
/* page_svg.c; class: an attribute, or "" */
void put_figure(Page *p, Figure x);
void put_figure_in(Page *p, Figure x, const char *class);
/* The name of the k-th of several figures, the first without a number */
const char *numbered(Page *p, const char *name, uint32_t k);

/* ---- page_runs.c: what traces say ---- */
void put_schedules(Page *p);
void put_memory(Page *p);
void put_microbatches(Page *p);

#endif
