/* watch.c - `ppsplit watch`: a run's log on the terminal, while it goes on. */
#include "command.h"

#include "report/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct {
    WatchOptions o;
    const char *machine, *interval;
    bool once;
    uint32_t seconds;
} Watch;

// clang-format off
static const ArgumentRow rows[] = {
    {{"machine", "FILE", 0, "a file with a line `peak = FLOPS', the most that a rank can do: also show the share of it that the model's operations are (MFU)"}, offsetof(Watch, machine)},
    {{"once", NULL, 0, "print it once on a terminal too"}, offsetof(Watch, once)},
    {{"interval", "SECONDS", 0, "renew it every so many seconds (default 2)"}, offsetof(Watch, interval)},
};
// clang-format on
static const Arguments arguments = {
    "ppsplit watch",
    "Usage: ppsplit watch LOG.json [OPTION]...\n"
    "Follow a run in the terminal: how far it is, its loss and its throughput, from the log that\n"
    "it writes with --log-json.  The drawing is renewed until all steps are done; Ctrl-C ends the\n"
    "drawing, not the run.  If the output is no terminal it is printed once.\n",
    "Example:\n"
    "  ppsplit watch log.json --machine machines/dgx-h100\n",
    rows, sizeof rows / sizeof *rows};

static void prepare(void *arg)
{
    Watch *w = arg;
    w->seconds = w->interval ? (uint32_t)given_number("interval", w->interval, 3600) : 2;
    if (w->machine)
        w->o.peak = machine_read(w->machine, w->o.arena).peak;
    if (w->machine && !(w->o.peak > 0))
        diag_fatal(EXIT_USAGE, WHERE_FILE(w->machine),
                   "no line `peak = FLOPS', the most that a rank can do");
}

static void screen(WatchOptions *o)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    o->width = columns && atoi(columns) > 0 ? (uint32_t)atoi(columns) : 79;
    o->height = 12;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
        return;
    o->width = size.ws_col - 1u;
    if (size.ws_row > 20) /* two drawings with their titles and axes */
        o->height = (size.ws_row - 12u) * 2 / 3;
}

/* On a terminal each line takes the place of the one before. */
static void show(const char *text, bool over)
{
    if (over)
        fputs("\033[H", stdout);
    for (const char *end; over && (end = strchr(text, '\n')) != NULL; text = end + 1)
        printf("%.*s\033[K\n", (int)(end - text), text);
    printf("%s%s", text, over ? "\033[J" : "");
    fflush(stdout);
}

static int follow(Watch *w, bool terminal)
{
    if (terminal)
        fputs("\033[2J", stdout);
    for (;; sleep(w->seconds)) {
        w->o.arena = arena_new();
        screen(&w->o);
        int code = diag_run(watch_tell, &w->o);
        if (!code)
            show(w->o.text, terminal);
        arena_free(w->o.arena);
        if (code || !terminal || !w->o.goes_on)
            return code;
    }
}

int watch_main(int argc, char **argv)
{
    Watch w = {.o = {.arena = arena_new()}};
    const Strings log = read_arguments(&arguments, &w, 1, w.o.arena, argc, argv);
    w.o.log = log.n ? log.at[0] : NULL;
    if (!w.o.log)
        bad_usage("ppsplit watch", "missing operand: LOG.json, what a run writes with --log-json");
    operands_there(1, &w.o.log);
    int code = diag_run(prepare, &w);
    Arena *a = w.o.arena;
    code = code ? code : follow(&w, isatty(STDOUT_FILENO) && !w.once);
    arena_free(a);
    return code;
}
