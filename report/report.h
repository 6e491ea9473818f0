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
    const char *out, *target; /* the output folder; the page to write, "-": standard output */
    const char *svg;          /* NULL, or a folder for the figures, made where it is not there */
    VEC(const char *) run;    /* files of --log-json and --trace, in any order */
    int follow;   /* seconds after which a browser reads a page of a run anew; 0: never */
    bool goes_on; /* out: a log does not have all its steps yet */
} ReportOptions;
void report_page(void *options); /* ReportOptions *, for diag_run() */

#ifdef __cplusplus
}
#endif
#endif
