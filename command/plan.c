/*
 * plan.c - the command line of `ppsplit plan`: what it says beside that of a split.
 */
#include <stdlib.h>
#include <unistd.h>

#include "command.h"

const char plan_usage[] =
    "Usage: ppsplit plan [OPTION]... --ranks N --batch ROWS MODEL.onnx\n"
    "Find the best way to train a model on a machine: members of a stage, cuts, stages a rank,\n"
    "replicas, microbatches, schedule, recomputation.  Print the ten ways with the shortest\n"
    "steps, and the commands of the first.\n"
    "\n"
    "The machine:\n"
    "      --machine FILE          a file with lines NAME = NUMBER for ranks, memory, latency\n"
    "                              and the names of --rates, or card = h100; `pipeline measure'\n"
    "                              writes one\n"
    "      --ranks N               number of processes, all replicas together\n"
    "      --threads N             threads of each process (default: the file's, or this\n"
    "                              machine's cores / the ranks)\n"
    "      --memory BYTES          memory of each process (K, M, G, T: times 1024; default:\n"
    "                              unlimited)\n"
    "      --rates LIST|FILE       rates that replace the file's\n"
    "      --costs TRACE           use the times of a run, from its --trace\n"
    "      --costs-split POINT     how the program of that run was cut, if the trace does not\n"
    "                              say (repeatable)\n"
    "\n"
    "The training:\n"
    "      --batch ROWS            rows of a step, all replicas together\n"
    "      --loss LOSS             the loss, as for a split (default mse, with a note)\n"
    "      --lengths NAME=FILE     the length of each row, of a model with\n"
    "                              --bind NAME=LEAST..MOST\n"
    "                              (default: all rows have MOST); steps are means over an epoch\n"
    "                              (repeatable)\n"
    "      --by-length STEPS, --shuffle SEED\n"
    "                              the order of the rows, as the run will have it\n"
    "      --optimizer sgd|momentum|adam|adamw\n"
    "                              the optimizer, whose states take memory (default sgd)\n"
    "\n"
    "Look only at some ways:\n"
    "      --stages N              this number of stages\n"
    "      --rank-stages N         this number of stages of each rank\n"
    "      --microbatches M        this number of microbatches\n"
    "      --microbatch-rows N     microbatches of this number of rows\n"
    "      --dp N                  this number of replicas\n"
    "      --split POINT           this cut (repeatable)\n"
    "      --schedule NAME         this schedule\n"
    "      --tensor T              this number of members of a stage (1: none); one of these\n"
    "                              three options says that the others are 1\n"
    "      --sequence N, --expert N\n"
    "                              members that divide sequences, or sequences and experts\n"
    "      --recompute never|cheap|except-last|always\n"
    "                              this recomputation\n"
    "      --offload never|stash   with or without stashes in a file\n"
    "      --zero 0|1|2|3          replicas divide nothing, states, also gradients, also\n"
    "                              parameters\n"
    "\n"
    "      --csv FILE              also try schedules made for this case; if the first way has\n"
    "                              one, write its rows to FILE\n"
    "  -o, --output DIR            the folder in the commands (default out); nothing is written\n"
    "\n"
    "Options of `ppsplit --help' that say how the model is read (--bind, --chunk, --dtype,\n"
    "--freeze, --target, ...) are part of the command that is printed.\n"
    "\n"
    "Example:\n"
    "  ppsplit plan model.onnx --loss cross_entropy --ranks 8 --memory 16G --batch 256\n";

static int number(const char *option, const char *text)
{
    return text ? (int)given_number(option, text, 1 << 20) : 0;
}

void plan_check(Options *o)
{
    static const char command[] = "ppsplit plan";
    (void)number("ranks", o->automatic.ranks); /* a wrong one is named first */
    if (!o->plan.batch)
        bad_usage(command, "missing option: --batch=ROWS, the rows of a step");
    if (!o->plan.optimizer)
        o->plan.optimizer = "sgd";
    if (!o->loss.loss) {
        static const char any[] = "mse";
        fprintf(stderr,
                "ppsplit: note: no --loss is given: a plan is one of training, this one "
                "with %s, which its command names: put yours there\n",
                any);
        o->loss.loss = any;
        o->import.training = true;
        o->plan.words = arena_printf(o->arena, "%s --loss %s", o->plan.words, any);
    }
    if (o->loss.whole)
        bad_usage(
            command,
            "--loss-over minibatch allows only gpipe, so there is nothing to plan; use --stages");
    const SchedRows *data = &o->plan.data;
    if (!data->n && (data->by_length || data->shuffle))
        bad_usage(command, "--%s needs --lengths", data->by_length ? "by-length" : "shuffle");
    if (o->dump)
        bad_usage(command, "--dump is for a split, not for a plan");
}

/* As `pipeline' takes them. */
static int default_threads(int ranks)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > ranks ? (int)(cores / ranks) : 1;
}

/* A machine with GPUs runs programs for them. */
static void on_card(Options *o)
{
    if (!o->codegen.cuda)
        o->plan.words = arena_printf(o->arena, "%s --target cuda", o->plan.words);
    o->codegen.cuda = true;
}

PlanOptions plan_options(Options *o)
{
    AutoOptions *automatic = &o->partition.automatic;
    const AutoText t = o->automatic;
    Machine m = {.rates = rates_builtin()};
    if (o->plan.machine)
        m = machine_read(o->plan.machine, o->arena);
    if (m.card)
        on_card(o);
    automatic->rates = m.rates;
    for (uint32_t i = 0; i < t.rates.n; i++)
        rates_set(&automatic->rates, t.rates.at[i], o->arena);
    if (automatic->measured_split.n > 0 && !t.costs)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--costs-split needs --costs");
    if (t.costs)
        auto_of_run(automatic, t.costs, o->arena);
    PlanOptions p = {.arena = o->arena,
                     .partition = &o->partition,
                     .ranks = t.ranks ? number("ranks", t.ranks) : m.ranks,
                     .threads = o->plan.threads ? number("threads", o->plan.threads) : m.threads,
                     .memory = t.memory ? given_bytes("memory", t.memory) : m.memory,
                     .batch = number("batch", o->plan.batch),
                     .whole = t.costs != NULL,
                     .optimizer = o->plan.optimizer,
                     .device = m.card || (o->codegen.cuda && !o->codegen.cpu),
                     .network = m.network,
                     .card = t.costs ? NULL : m.card,
                     .only = {.stages = number("stages", t.stages),
                              .microbatches = number("microbatches", t.microbatches),
                              .rows = number("microbatch-rows", o->plan.microbatch_rows),
                              .each = number("rank-stages", o->plan.rank_stages),
                              .dp = number("dp", o->plan.dp),
                              .schedule = t.schedule,
                              .recompute = o->plan.recompute,
                              .offload = o->plan.offload,
                              .zero = o->plan.zero ? (int)strtol(o->plan.zero, NULL, 10) : -1},
                     .csv = o->plan.csv,
                     .ranges = &o->lengths,
                     .data = &o->plan.data,
                     .words = o->plan.words,
                     .out = o->codegen.dir ? o->codegen.dir : "out"};
    if (!p.ranks) {
        diag_hint("give --ranks N, or a line `ranks = N' in the file of --machine");
        diag_fatal(EXIT_USAGE, WHERE_NONE, "the number of ranks is missing");
    }
    p.given_threads = p.threads > 0;
    if (!p.given_threads)
        p.threads = default_threads(p.ranks);
    return p;
}
