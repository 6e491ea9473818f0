/* report.c - `ppsplit report`: one page of a program and its runs. */
#include "command.h"

#include "base/cli/options.h"

#include <string.h>

static const char report_usage[] =
    "Usage: ppsplit report OUT [LOG.json|TRACE.json]... -o report.html\n"
    "One page with what ppsplit made and what its runs measured; it needs no network, no scripts.\n"
    "\n"
    "OUT is the folder that ppsplit wrote, LOG.json what its program wrote with --log-json,\n"
    "TRACE.json with --trace; of each several, in any order.  The page is that of OUT/pipe.html:\n"
    "the modules in their stages, what crosses, how even the stages are.  Logs add loss, gradient\n"
    "norm, throughput, learning rate and planned memory; traces the schedule as simulated above\n"
    "the schedule as measured, idle time, the stages' milliseconds, memory over the step beside\n"
    "what was planned, and what other schedules would take.\n"
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
        operands_there(1, &o.out);
    if (!o.target)
        bad_usage("ppsplit report", "missing option: -o FILE, the page to write");
    int code = diag_run(report_page, &o);
    arena_free(o.arena);
    return code;
}
