/* report.c - `ppsplit report`: one page of a program and its runs. */
#include "command.h"

#include <string.h>
#include <unistd.h>

typedef struct {
    ReportOptions o;
    const char *follow;
} Asked;

// clang-format off
static const ArgumentRow rows[] = {
    {{"output", "FILE", 'o', "the page; - is standard output"}, offsetof(Asked, o.target)},
    {{"follow", "SECONDS", 0,
      "write it again every so many seconds while the run goes on; the browser loads it again"},
     offsetof(Asked, follow)},
    {{"svg", "DIR", 0, "write its figures as files too"}, offsetof(Asked, o.svg)},
};
// clang-format on
static const Arguments arguments = {
    "ppsplit report",
    "Usage: ppsplit report OUT [LOG.json|TRACE.json]... -o report.html\n"
    "Draw a program and its runs on one page, without network or scripts.\n"
    "\n"
    "OUT is the folder that ppsplit wrote.  Its modules, stages and messages are drawn as in\n"
    "OUT/pipe.html.  LOG.json is from --log-json: it adds loss, gradient norm, throughput,\n"
    "learning rate and planned memory.  TRACE.json is from --trace: it adds the measured step\n"
    "beside the simulated one, idle time and memory over the step.  Give several of either, in\n"
    "any order.\n",
    "Example:\n"
    "  ppsplit report out log.json trace.json -o report.html\n",
    rows, sizeof rows / sizeof *rows};

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
    Asked x = {.o.arena = arena_new()};
    Arena *words = x.o.arena;
    Strings operand = read_arguments(&arguments, &x, UINT32_MAX, words, argc, argv);
    for (uint32_t i = 1; i < operand.n; i++)
        vec_push(words, &x.o.run, operand.at[i]);
    x.o.out = operand.n ? operand.at[0] : NULL;
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
