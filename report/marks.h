/*
 * marks.h - where page.c puts what runs measured into the page that program.c has made.  Names of a
 * model are escaped, so none of them is a mark.
 */
#ifndef PPSPLIT_REPORT_MARKS_H
#define PPSPLIT_REPORT_MARKS_H

#define MARK_FACTS "<!-- facts of runs -->\n" /* at the end of the list of facts */
#define MARK_RUNS_BEGIN "<!-- runs of a program: "
#define MARK_RUNS MARK_RUNS_BEGIN "%u stages, reads %s -->" /* texts or rows */
#define MARK_RUNS_READ MARK_RUNS_BEGIN "%d stages, reads %5[a-z] -->"
#define MARK_END "<!-- end of runs -->\n" /* what stands before it is without runs */

#endif
