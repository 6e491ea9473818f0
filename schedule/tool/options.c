/*
 * options.c - the command line of `ppsplit schedule`: help, and options into what command.c does.
 */
#include "options.h"
#include "base/cli/options.h"
#include "base/cli/version.h"
#include "schedule/rows.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    O_HELP,
    O_RANKS,
    O_STAGES,
    O_MICROBATCHES,
    O_PLACEMENT,
    O_CHUNKS,
    O_OBJECTIVE,
    O_MERGE,
    O_RECOMPUTE,
    O_COMMS,
    O_LOWER,
    O_DEFER,
    O_UNSHARD,
    O_BUDGET,
    O_DEFERRED,
    O_OFFLOAD,
    O_EDGE,
    O_CSV,
    O_SIMULATE,
    O_COSTS,
    O_OVERLAP,
    O_LENGTHS,
    O_BATCH,
    O_BY_LENGTH,
    O_SHUFFLE,
    O_STEPS,
    O_VERIFY,
    O_BUFFERS,
    O_TRACE,
    O_SVG,
    O_GRID
};

// clang-format off
static const OptionName option[] = {
    [O_HELP] = {"help", NULL, 'h'},
    [O_RANKS] = {"ranks", "P", 0},
    [O_STAGES] = {"stages", "S", 0},
    [O_MICROBATCHES] = {"microbatches", "M", 0},
    [O_PLACEMENT] = {"placement", "loop|v|block", 0},
    [O_CHUNKS] = {"memory-chunks", "K", 0},
    [O_OBJECTIVE] = {"objective", "makespan|span", 0},
    [O_MERGE] = {"merge", NULL, 0},
    [O_RECOMPUTE] = {"recompute", "WHAT", 0},
    [O_COMMS] = {"comms", NULL, 0},
    [O_LOWER] = {"lower", NULL, 0},
    [O_DEFER] = {"defer", NULL, 0},
    [O_UNSHARD] = {"unshard", "WINDOW|auto", 0},
    [O_BUDGET] = {"send-budget", "K", 0},
    [O_DEFERRED] = {"defer-reduce", NULL, 0},
    [O_OFFLOAD] = {"offload", "N|all", 0},
    [O_EDGE] = {"edge", "FROM:TO", 0},
    [O_CSV] = {"csv", "FILE|-", 0},
    [O_SIMULATE] = {"simulate", NULL, 0},
    [O_COSTS] = {"costs", "LIST|FILE", 0},
    [O_OVERLAP] = {"overlap", "X", 0},
    [O_LENGTHS] = {"lengths", "NAME=FILE.npy", 0},
    [O_BATCH] = {"batch", "ROWS", 0},
    [O_BY_LENGTH] = {"by-length", "STEPS", 0},
    [O_SHUFFLE] = {"shuffle", "SEED", 0},
    [O_STEPS] = {"steps", NULL, 0},
    [O_VERIFY] = {"verify", NULL, 0},
    [O_BUFFERS] = {"buffers", "K", 0},
    [O_TRACE] = {"trace", "FILE.json", 0},
    [O_SVG] = {"svg", "FILE", 0},
    [O_GRID] = {"grid", NULL, 0},
};
// clang-format on

static const char help_text[] =
    "Usage: ppsplit schedule NAME|FILE.csv --ranks P --stages S --microbatches M [OPTION]...\n"
    "       ppsplit schedule TRACE.json --svg FILE\n"
    "Generate a pipeline schedule, or read one; then lower, verify, simulate or draw it.\n"
    "\n"
    "NAME is one of these, in upper or lower case, or PyTorch's name of a schedule or of its "
    "class:\n";

static const char help_options[] =
    "A CSV file, such as PyTorch's, brings its own ranks, stages, microbatches and placement.\n"
    "\n"
    "The schedule:\n"
    "      --ranks P            number of ranks\n"
    "      --stages S           number of stages (default: one a rank; two if the schedule is a\n"
    "                           V)\n"
    "      --microbatches M     microbatches in a step\n"
    "      --placement loop|v|block\n"
    "                           loop: stage s is on rank s mod P; v: there and back; block:\n"
    "                           neighbours together (default: as the schedule has it)\n"
    "      --memory-chunks K    auto: hold at most K microbatches of a stage on a rank\n"
    "      --objective makespan|span\n"
    "                           auto: make the whole time short (default), or the longest span of\n"
    "                           a rank\n"
    "\n"
    "Add to it, in this order; without any the rows have computations only:\n"
    "      --merge              turn neighbouring I and W into B\n"
    "      --recompute WHAT     add R before backwards: never, cheap (parts of the stash),\n"
    "                           except-last (all microbatches but the last), always, or numbers\n"
    "                           of stages, 0,2\n"
    "      --lower              add sends, receives, waits for sends, UNSHARD and REDUCE_GRAD\n"
    "      --unshard WINDOW|auto\n"
    "                           keep N stages of a rank on the device, for all ranks or one\n"
    "                           number for each, N,N,...; N:A brings a stage when it is among the\n"
    "                           next A; auto is 3, with A = R + 2 on rank R, at most 3 (default\n"
    "                           with --lower: 3)\n"
    "      --defer-reduce       wait for a sum of gradients before the rank's next one, or at the\n"
    "                           end\n"
    "      --offload N|all      copy N stashes of each rank to the host between F and backward,\n"
    "                           those that wait longest; all: as many as --costs leave time for\n"
    "      --comms              add sends and receives only\n"
    "      --edge FROM:TO       stage FROM also feeds stage TO: a skip connection (repeatable)\n"
    "      --defer              receive as late as possible (with --lower, unless --comms is\n"
    "                           given)\n"
    "      --send-budget K      at most K sends of a rank are under way\n"
    "\n"
    "What to do with it; without any of these the rows go to standard output:\n"
    "      --csv FILE|-         write the rows\n"
    "      --verify             prove that it runs to the end, or show why it does not\n"
    "      --buffers K          messages that an edge holds; 0, the default, is a rendezvous\n"
    "      --simulate           print makespan, span and bubble; for each rank its busy time, and\n"
    "                           the most microbatches alive\n"
    "      --costs LIST|FILE    times: F=1,I=1,W=1,B=2,c=0 (c: a message; 3F=2: of stage 3 only;\n"
    "                           AR: a sum over replicas; UNSHARD, OFFLOAD, FETCH: a copy; MW=0.4:\n"
    "                           the part of a microbatch's memory that W frees, I frees the\n"
    "                           rest); or the trace of a run, FILE.json, or of several, FILE,FILE\n"
    "      --overlap X          an OVERLAP is one action that costs max + X * (sum - max);\n"
    "                           default: its parts, one after the other\n"
    "      --lengths NAME=FILE.npy, --batch ROWS\n"
    "                           microbatches are as long as in a run with these rows: the mean\n"
    "                           over an epoch, by --costs TRACE of a run with --lengths\n"
    "      --by-length STEPS, --shuffle SEED\n"
    "                           the order of the rows, as in the run\n"
    "      --steps              print the length of a lock-step run\n"
    "      --grid               draw it on the terminal\n"
    "      --svg FILE           draw it as SVG; of TRACE.json the step of median length\n"
    "      --trace FILE.json    write the simulation as a Chrome trace\n"
    "      --help               this text\n"
    "\n"
    "Exit status: 0 ok, 1 the schedule is refused, 2 usage, 3 input, output or memory.\n"
    "\n"
    "Examples:\n"
    "  ppsplit schedule 1f1b --ranks 4 --microbatches 8 --simulate --grid\n"
    "  ppsplit schedule zbvzerobubble --ranks 4 --microbatches 8 --lower --csv zbv.csv --verify\n";

static void help(void)
{
    fputs(help_text, stdout);
    for (int i = 0; sched_kind(i); i++)
        printf("  %-22s  %s\n", sched_kind(i)->name, sched_kind(i)->about);
    printf("  %-22s  %s\n", "auto", "the best of these, and of schedules made for --costs");
    fputs(help_options, stdout);
    fputs("\n" PPSPLIT_REPORT, stdout);
}

int sched_usage(const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "ppsplit schedule: error: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry 'ppsplit schedule --help' for more information.\n");
    return SCHED_EUSAGE;
}

static int parse_number(int id, const char *text, int least, int *out)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < least || v > SCHED_MAX_CELLS)
        return sched_usage("--%s wants a whole number from %d to %d, not '%.60s'", option[id].name,
                           least, SCHED_MAX_CELLS, text);
    *out = (int)v;
    return 0;
}

static int parse_edge(SchedOptions *o, const char *text)
{
    char *end;
    long from = strtol(text, &end, 10), to = -1;
    if (*end == ':')
        to = strtol(end + 1, &end, 10);
    if (*end || from < 0 || to <= from || to > SCHED_MAX_CELLS)
        return sched_usage(
            "'%.60s' is no edge; an edge is like 0:2, from an earlier stage to a later one", text);
    SchedEdge *p = realloc(o->edge, ((size_t)o->n_edge + 1) * sizeof *p);
    if (!p)
        return SCHED_ERESOURCE;
    o->edge = p;
    o->edge[o->n_edge++] = (SchedEdge){(int)from, (int)to, 1, 0, 0};
    return 0;
}

static int parse_lengths(SchedRows *r, const char *text)
{
    SchedError e;
    return sched_rows_add(r, text, &e) ? sched_usage("%s", e.text) : 0;
}

static int parse_large(int id, const char *text, int64_t *out)
{
    int n = 0, st = parse_number(id, text, 1, &n);
    *out = n;
    return st;
}

static int parse_seed(SchedRows *r, const char *text)
{
    r->shuffle = 1;
    return sched_rows_seed(r, text) ? 0 : sched_usage("'%.60s' is no seed; it is a number", text);
}

static int set_option(SchedOptions *o, int id, const char *v)
{
    char *end;
    switch (id) {
    case O_RANKS: return parse_number(id, v, 1, &o->ranks);
    case O_STAGES: return parse_number(id, v, 1, &o->stages);
    case O_MICROBATCHES: return parse_number(id, v, 1, &o->microbatches);
    case O_PLACEMENT:
        o->placement = sched_placement(v);
        return o->placement >= 0
                   ? 0
                   : sched_usage("'%.60s' is no placement; it is loop, v or block", v);
    case O_CHUNKS: return parse_number(id, v, 1, &o->chunks);
    case O_OBJECTIVE:
        o->span = strcmp(v, "span") == 0;
        return o->span || strcmp(v, "makespan") == 0
                   ? 0
                   : sched_usage("'%.60s' is no objective; it is makespan or span", v);
    case O_MERGE: return o->merge = 1, 0;
    case O_RECOMPUTE: return o->recompute = v, 0;
    case O_COMMS: return o->comms = 1, 0;
    case O_LOWER: return o->lower = 1, 0;
    case O_DEFER: return o->defer = 1, 0;
    case O_UNSHARD: return o->unshard = v, 0;
    case O_BUDGET: return parse_number(id, v, 1, &o->budget);
    case O_DEFERRED: return o->deferred_reduce = 1, 0;
    case O_OFFLOAD:
        return strcmp(v, "all") == 0 ? (o->offload = INT_MAX, 0)
                                     : parse_number(id, v, 1, &o->offload);
    case O_EDGE: return parse_edge(o, v);
    case O_CSV: return o->csv = v, 0;
    case O_SIMULATE: return o->simulate = 1, 0;
    case O_COSTS: return o->costs = v, 0;
    case O_OVERLAP:
        o->overlap = strtod(v, &end);
        return *end || end == v || !(o->overlap >= 0 && o->overlap <= 1)
                   ? sched_usage("'%.60s' is no overlap; it is a number from 0 to 1", v)
                   : 0;
    case O_LENGTHS: return parse_lengths(&o->rows, v);
    case O_BATCH: return parse_large(id, v, &o->rows.batch);
    case O_BY_LENGTH: return parse_large(id, v, &o->rows.by_length);
    case O_SHUFFLE: return parse_seed(&o->rows, v);
    case O_STEPS: return o->steps = 1, 0;
    case O_VERIFY: return o->verify = 1, 0;
    case O_BUFFERS: return parse_number(id, v, 0, &o->buffers);
    case O_TRACE: return o->trace = v, 0;
    case O_SVG: return o->svg = v, 0;
    case O_GRID: return o->grid = 1, 0;
    default: return 0;
    }
}

int sched_options(SchedOptions *o, int argc, char **argv)
{
    OptionReader r = option_reader(argc, argv, option, sizeof option / sizeof *option);
    for (int k, st; (k = option_next(&r)) != OPTION_END;) {
        if (k == OPTION_WRONG)
            return sched_usage("%s", r.wrong);
        if (k == O_HELP)
            return help(), -1;
        if (k == OPTION_OPERAND && o->name)
            return sched_usage("one schedule at a time: '%.60s' is too much", r.value);
        if (k == OPTION_OPERAND)
            o->name = r.value;
        else if ((st = set_option(o, k, r.value)))
            return st;
    }
    if (!o->rows.n != !o->rows.batch || (!o->rows.n && (o->rows.by_length || o->rows.shuffle)))
        return sched_usage("%s", "--lengths and --batch go together, --by-length and --shuffle "
                                 "with them");
    if (o->rows.n && (!o->costs || (strchr(o->costs, '=') && access(o->costs, R_OK) != 0)))
        return sched_usage("%s", "--lengths needs --costs TRACE.json, of a run with --lengths: it "
                                 "says what lengths take");
    return o->name ? 0 : sched_usage("%s", "a schedule's name or file is missing");
}
