/* report.c - `ppsplit report`: one page of a program and its runs. */
#include "command.h"

#include "base/cli/options.h"

#include <string.h>
#include <unistd.h>

static const char report_usage[] =
    "Usage: ppsplit report OUT [LOG.json|TRACE.json]... -o report.html\n"
    "Draw a program and its runs on one page, without network or scripts.\n"
    "\n"
    "OUT is the folder that ppsplit wrote.  Its modules, stages and messages are drawn as in\n"
    "OUT/pipe.html.  LOG.json is from --log-json: it adds loss, gradient norm, throughput,\n"
    "learning rate and planned memory.  TRACE.json is from --trace: it adds the measured step\n"
    "beside the simulated one, idle time, memory over the step, and other schedules.  Give\n"
    "several of either, in any order.\n"
    "\n"
    "  -o, --output=FILE    the page; - is standard output\n"
    "      --follow=SECONDS write it again every so many seconds while the run goes on; the\n"
    "                       browser loads it again\n"
    "      --svg=DIR        write its figures as files too\n"
    "  -h, --help           this text\n"
    "\n"
    "Example:\n"
    "  ppsplit report out log.json trace.json -o report.html\n";

typedef struct {
    ReportOptions o;
    const char *follow;
} Asked;

static void seconds(void *arg)
{
    Asked *x = arg;
    x->o.follow = x->follow ? (int)given_number("follow", x->follow, 3600) : 0;
}

/* Once, or until the logs have all of their steps. */
static int follow(ReportOptions *o)
{
    for (int code = 0;; sleep((unsigned)o->follow)) {
        o->arena = arena_new();
        code = diag_run(report_page, o);
        arena_free(o->arena);
        if (code || !o->follow || !o->goes_on)
            return code;
    }
}

int report_main(int argc, char **argv)
{
    static const OptionName table[] = {
        {"output", "FILE", 'o'}, {"svg", "DIR", 0}, {"help", NULL, 'h'}, {"follow", "SECONDS", 0}};
    Asked x = {.o.arena = arena_new()};
    Arena *words = x.o.arena;
    OptionReader r = option_reader(argc, argv, table, 4);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage("ppsplit report", "%s", r.wrong);
        else if (k == 0)
            x.o.target = r.value;
        else if (k == 1)
            x.o.svg = r.value;
        else if (k == 2)
            return printf("%s%s", report_usage, report_to), 0;
        else if (k == 3)
            x.follow = r.value;
        else if (!x.o.out)
            x.o.out = r.value;
        else
            vec_push(x.o.arena, &x.o.run, r.value);
    if (!x.o.out)
        bad_usage("ppsplit report", "missing operand: OUT, a folder that ppsplit wrote");
    if (!x.o.target)
        operands_there(1, &x.o.out);
    if (!x.o.target)
        bad_usage("ppsplit report", "missing option: -o FILE, the page to write");
    if (x.follow && !strcmp(x.o.target, "-"))
        bad_usage("ppsplit report", "--follow needs a file, not standard output");
    int code = diag_run(seconds, &x);
    code = code ? code : follow(&x.o);
    arena_free(words);
    return code;
}
