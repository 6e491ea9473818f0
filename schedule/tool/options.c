/*
 * options.c - the command line of `ppsplit schedule`: help, and options into what command.c does.
 */
#include "options.h"
#include "base/cli/options.h"
#include "base/cli/version.h"
#include "base/file/memory.h"
#include "schedule/rows.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sched_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    option_usage("ppsplit schedule", fmt, ap);
    va_end(ap);
    return SCHED_EUSAGE;
}

/* How an option is read: a text, a number from `least` up, a flag, or by a function. */
typedef struct {
    OptionName is;
    enum { TITLE_IS, TEXT_IS, NUMBER_IS, FLAG_IS, SET_BY, HELP_IS } how;
    size_t at;
    int least;
    int (*set)(SchedOptions *o, const char *v); /* 0, or the exit status after a message */
} OptionRow;

static int set_placement(SchedOptions *o, const char *v)
{
    o->placement = sched_placement(v);
    return o->placement >= 0 ? 0
                             : sched_usage("'%.60s' is no placement; it is loop, v or block", v);
}

static int set_objective(SchedOptions *o, const char *v)
{
    o->span = strcmp(v, "span") == 0;
    return o->span || strcmp(v, "makespan") == 0
               ? 0
               : sched_usage("'%.60s' is no objective; it is makespan or span", v);
}

static int parse_number(const char *name, const char *text, int least, int *out)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < least || v > SCHED_MAX_CELLS)
        return sched_usage("--%s wants a whole number from %d to %d, not '%.60s'", name, least,
                           SCHED_MAX_CELLS, text);
    *out = (int)v;
    return 0;
}

static int set_offload(SchedOptions *o, const char *v)
{
    o->add.offload = INT_MAX;
    return strcmp(v, "all") == 0 ? 0 : parse_number("offload", v, 1, &o->add.offload);
}

static int set_edge(SchedOptions *o, const char *text)
{
    char *end;
    long from = strtol(text, &end, 10), to = -1;
    if (*end == ':' && end > text)
        to = strtol(end + 1, &end, 10);
    if (*end || from < 0 || to <= from || to > SCHED_MAX_CELLS)
        return sched_usage(
            "'%.60s' is no edge; an edge is like 0:2, from an earlier stage to a later one", text);
    SchedEdge *edge = memory_added(&o->edge, &o->n_edge, sizeof *edge);
    if (!edge)
        return SCHED_ERESOURCE;
    *edge = (SchedEdge){(int)from, (int)to, 1, 0, 0};
    return 0;
}

static int set_overlap(SchedOptions *o, const char *v)
{
    char *end;
    o->overlap = strtod(v, &end);
    return *end || end == v || !(o->overlap >= 0 && o->overlap <= 1)
               ? sched_usage("'%.60s' is no overlap; it is a number from 0 to 1", v)
               : 0;
}

static int set_lengths(SchedOptions *o, const char *text)
{
    SchedError e;
    return sched_rows_add(&o->rows, text, &e) ? sched_usage("%s", e.text) : 0;
}

static int set_large(const char *name, const char *text, int64_t *out)
{
    int n = 0, st = parse_number(name, text, 1, &n);
    *out = n;
    return st;
}

static int set_batch(SchedOptions *o, const char *v)
{
    return set_large("batch", v, &o->rows.batch);
}

static int set_by_length(SchedOptions *o, const char *v)
{
    return set_large("by-length", v, &o->rows.by_length);
}

static int set_shuffle(SchedOptions *o, const char *text)
{
    o->rows.shuffle = 1;
    return sched_rows_seed(&o->rows, text)
               ? 0
               : sched_usage("'%.60s' is no seed; it is a number", text);
}

#define TEXT(field) .how = TEXT_IS, .at = offsetof(SchedOptions, field)
#define NUMBER(field, from) .how = NUMBER_IS, .at = offsetof(SchedOptions, field), .least = from
#define FLAG(field) .how = FLAG_IS, .at = offsetof(SchedOptions, field)
#define SET(by) .how = SET_BY, .set = set_##by
// clang-format off
static const OptionRow option[] = {
    {.is = {.help = "The schedule:"}},
    {{"ranks", "P", 0, "number of ranks"}, NUMBER(ranks, 1)},
    {{"stages", "S", 0, "number of stages (default: one a rank; two if the schedule is a V)"}, NUMBER(stages, 1)},
    {{"microbatches", "M", 0, "microbatches in a step"}, NUMBER(microbatches, 1)},
    {{"placement", "loop|v|block", 0, "loop: stage s is on rank s mod P; v: there and back; block: neighbours together (default: as the schedule has it)"}, SET(placement)},
    {{"memory-chunks", "K", 0, "auto: hold at most K microbatches of a stage on a rank"}, NUMBER(chunks, 1)},
    {{"objective", "makespan|span", 0, "auto: make the whole time short (default), or the longest span of a rank"}, SET(objective)},
    {.is = {.help = "Add to it, in this order; without any the rows have computations only:"}},
    {{"merge", NULL, 0, "turn neighbouring I and W into B"}, FLAG(add.merge)},
    {{"recompute", "WHAT", 0, "add R before backwards: never, cheap (parts of the stash), except-last (all microbatches but the last), always, or numbers of stages, 0,2"}, TEXT(add.recompute)},
    {{"lower", NULL, 0, "add sends, receives, waits for sends, UNSHARD and REDUCE_GRAD"}, FLAG(add.lower)},
    {{"unshard", "WINDOW|auto", 0, "keep N stages of a rank on the device, for all ranks or one number for each, N,N,...; N:A brings a stage when it is among the next A; auto is 3, with A = R + 2 on rank R, at most 3 (default with --lower: 3)"}, TEXT(add.unshard)},
    {{"defer-reduce", NULL, 0, "wait for a sum of gradients before the rank's next one, or at the end"}, FLAG(add.deferred_reduce)},
    {{"offload", "N|all", 0, "copy N stashes of each rank to the host between F and backward, those that wait longest; all: as many as --costs leave time for"}, SET(offload)},
    {{"comms", NULL, 0, "add sends and receives only"}, FLAG(add.comms)},
    {{"edge", "FROM:TO", 0, "stage FROM also feeds stage TO: a skip connection (repeatable)"}, SET(edge)},
    {{"defer", NULL, 0, "receive as late as possible (with --lower, unless --comms is given)"}, FLAG(add.defer)},
    {{"send-budget", "K", 0, "at most K sends of a rank are under way"}, NUMBER(add.budget, 1)},
    {.is = {.help = "What to do with it; without any of these the rows go to standard output:"}},
    {{"csv", "FILE|-", 0, "write the rows"}, TEXT(csv)},
    {{"verify", NULL, 0, "prove that it runs to the end, or show why it does not"}, FLAG(verify)},
    {{"buffers", "K", 0, "messages that an edge holds; 0, the default, is a rendezvous"}, NUMBER(buffers, 0)},
    {{"simulate", NULL, 0, "print makespan, span and bubble; for each rank its busy time, and the most microbatches alive"}, FLAG(simulate)},
    {{"costs", "LIST|FILE", 0, "times: F=1,I=1,W=1,B=2,c=0 (c: a message; 3F=2: of stage 3 only; AR: a sum over replicas; UNSHARD, OFFLOAD, FETCH: a copy; MW=0.4: the part of a microbatch's memory that W frees, I frees the rest); or the trace of a run, FILE.json, or of several, FILE,FILE"}, TEXT(costs)},
    {{"overlap", "X", 0, "an OVERLAP is one action that costs max + X * (sum - max); default: its parts, one after the other"}, SET(overlap)},
    {{"lengths", "NAME=FILE", 0, "with --batch: microbatches are as long as in a run with these rows: the mean over an epoch, by --costs TRACE of a run with --lengths"}, SET(lengths)},
    {{"batch", "ROWS", 0, "rows of a step of that run"}, SET(batch)},
    {{"by-length", "STEPS", 0, "with --lengths: the order of the rows, as in the run"}, SET(by_length)},
    {{"shuffle", "SEED", 0, "likewise"}, SET(shuffle)},
    {{"grid", NULL, 0, "draw it on the terminal"}, FLAG(grid)},
    {{"svg", "FILE", 0, "draw it as SVG; of TRACE.json the step of median length"}, TEXT(svg)},
    {{"trace", "FILE.json", 0, "write the simulation as a Chrome trace"}, TEXT(trace)},
    {{"help", NULL, 'h', "this text"}, .how = HELP_IS},
};
// clang-format on
enum { N_OPTIONS = sizeof option / sizeof *option };

static void name_options(OptionName *to)
{
    for (int i = 0; i < N_OPTIONS; i++)
        to[i] = option[i].is;
}

static int show_help(void)
{
    OptionName names[N_OPTIONS];
    name_options(names);
    fputs(
        "Usage: ppsplit schedule NAME|FILE.csv --ranks P --stages S --microbatches M [OPTION]...\n"
        "       ppsplit schedule TRACE.json --svg FILE\n"
        "Generate a pipeline schedule, or read one; then lower, verify, simulate or draw it.\n"
        "\n"
        "NAME is one of these, in upper or lower case, or PyTorch's name of a schedule or of its "
        "class:\n",
        stdout);
    for (int i = 0; sched_kind(i); i++)
        option_help_row(sched_kind(i)->name, sched_kind(i)->about, stdout);
    option_help_row("auto", "the best of these, and of schedules made for --costs", stdout);
    puts(
        "A CSV file, such as PyTorch's, brings its own ranks, stages, microbatches and placement.");
    option_help(names, N_OPTIONS, stdout);
    fputs("\n"
          "Exit status: 0 ok, 1 the schedule is refused, 2 usage, 3 input, output or memory.\n"
          "\n"
          "Examples:\n"
          "  ppsplit schedule 1f1b --ranks 4 --microbatches 8 --simulate --grid\n"
          "  ppsplit schedule zbvzerobubble --ranks 4 --microbatches 8 --lower --csv zbv.csv "
          "--verify\n"
          "\n" PPSPLIT_REPORT,
          stdout);
    return -1;
}

static int set_option(SchedOptions *o, const OptionRow *row, const char *v)
{
    char *at = (char *)o + row->at;
    switch (row->how) {
    case TEXT_IS: memcpy(at, &v, sizeof v); return 0;
    case NUMBER_IS: return parse_number(row->is.name, v, row->least, (int *)(void *)at);
    case FLAG_IS: *(int *)(void *)at = 1; return 0;
    case SET_BY: return row->set(o, v);
    case HELP_IS: return show_help();
    case TITLE_IS: break;
    }
    return 0;
}

int sched_options(SchedOptions *o, int argc, char **argv)
{
    OptionName names[N_OPTIONS];
    name_options(names);
    OptionReader r = option_reader(argc, argv, names, N_OPTIONS);
    for (int k, st; (k = option_next(&r)) != OPTION_END;) {
        if (k == OPTION_WRONG)
            return sched_usage("%s", r.wrong);
        if (k == OPTION_OPERAND && o->name)
            return sched_usage("one schedule at a time: '%.60s' is too much", r.value);
        if (k == OPTION_OPERAND)
            o->name = r.value;
        else if ((st = set_option(o, &option[k], r.value)))
            return st;
        o->others += k != OPTION_OPERAND && strcmp(option[k].is.name, "svg") &&
                     strcmp(option[k].is.name, "grid");
    }
    if (!o->rows.n != !o->rows.batch || (!o->rows.n && (o->rows.by_length || o->rows.shuffle)))
        return sched_usage("%s", "--lengths and --batch go together, --by-length and --shuffle "
                                 "with them");
    if (o->rows.n && (!o->costs || (strchr(o->costs, '=') && access(o->costs, R_OK) != 0)))
        return sched_usage("%s", "--lengths needs --costs TRACE.json, of a run with --lengths: it "
                                 "says what lengths take");
    return o->name ? 0 : sched_usage("%s", "missing operand: a schedule's name or file");
}
