/*
 * report.h - a program on one page, and what its runs measured.
 *
 * The page of a program is made from its Pipe and is pipe.html in its folder.  `ppsplit report`
 * copies that page and fills in the places that it has for logs and traces.
 */
#ifndef PPSPLIT_REPORT_H
#define PPSPLIT_REPORT_H

#include "partition/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* program.c: the text of pipe.html */
const char *report_program(const Pipe *p, Arena *a);

/* page.c: `ppsplit report` */
typedef struct {
    Arena *arena;
    const char *out, *target;  /* the output folder; the page to write, "-": standard output */
    const char *svg;           /* NULL, or a folder for the figures, made where it is not there */
    VEC(const char *) run;     /* files of --log-json and --trace, in any order */
    int follow; /* seconds after which a browser reads a page of a run anew; 0: never */
    bool goes_on;              /* out: a log does not have all its steps yet */
} ReportOptions;
void report_page(void *options); /* ReportOptions *, for diag_run() */

/* watch.c: `ppsplit watch` */
typedef struct {
    Arena *arena;
    const char *log;
    double peak; /* FLOP/s of a rank, for the share that the model uses of it; 0: not known */
    uint32_t width, height; /* of the screen; of the first drawing */
    const char *text; /* out: the drawing */
    bool goes_on;     /* not all steps are done, as far as the log says how many there are */
} WatchOptions;
void watch_tell(void *options); /* WatchOptions *, for diag_run() */

#ifdef __cplusplus
}
#endif
#endif
