/* report.c - `ppsplit report`: one page of a program and its runs. */
#include "command.h"

#include "base/cli/options.h"

static const char report_usage[] =
    "Usage: ppsplit report OUT [LOG.json|TRACE.json]... -o report.html\n"
    "One page with what ppsplit made and what its runs measured; it needs no network, no scripts.\n"
    "\n"
    "OUT is the folder that ppsplit wrote, LOG.json what its program wrote with --log-json,\n"
    "TRACE.json with --trace; of each several, in any order.  Of OUT alone: the stages, their\n"
    "balance, what crosses.  Of logs: loss, gradient norm, throughput, learning rate.  Of traces:\n"
    "the schedule as simulated above the schedule as measured, idle time, the stages'\n"
    "milliseconds, the stash over the step, and what other schedules would take.\n"
    "\n"
    "  -o, --output=FILE    the page; -: standard output\n"
    "      --svg=DIR        its figures as files, too\n"
    "  -h, --help           this text\n"
    "\n"
    "Example:\n"
    "  ppsplit report out log.json trace.json -o report.html\n";

int report_main(int argc, char **argv)
{
    static const OptionName table[] = {
        {"output", "FILE", 'o'}, {"svg", "DIR", 0}, {"help", NULL, 'h'}};
    ReportOptions o = {.arena = arena_new()};
    OptionReader r = option_reader(argc, argv, table, 3);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage("ppsplit report", "%s", r.wrong);
        else if (k == 0)
            o.target = r.value;
        else if (k == 1)
            o.svg = r.value;
        else if (k == 2)
            return printf("%s%s", report_usage, report_to), 0;
        else if (!o.out)
            o.out = r.value;
        else
            vec_push(o.arena, &o.run, r.value);
    if (!o.out)
        bad_usage("ppsplit report", "missing operand: OUT, a folder that ppsplit wrote");
    if (!o.target)
        bad_usage("ppsplit report", "missing option: -o FILE, the page to write");
    int code = diag_run(report_page, &o);
    arena_free(o.arena);
    return code;
}
