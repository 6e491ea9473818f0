/*
 * options.c - in: the command line of out/pipeline; out: Options, or one line that says what is
 * wrong and what was meant, exit 2.  One table drives the parser and --help.
 */
#include "options/spec.h"

#include "base/cli/options.h"
#include "base/cli/version.h"
#include "core/core.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* A row without one of its columns does not compile: whether ranks may differ in an option is said
 * of each. */
#define OPTION(name, kind, field, min, scope, value, help)                                         \
    {name, kind, AT(field), min, scope, value, help}
// clang-format off
static const Spec specs[] = {
    {.name = "Ranks and schedule", .kind = K_GROUP},
    OPTION("ranks", K_INT, machine.ranks, 1, SAME, "N",       "number of ranks, all replicas together, as threads of this process (default: one for each stage, or T for each with ppsplit --tensor T); mpirun sets it by its processes"),
    OPTION("dp", K_INT, machine.dp, 1, SAME, "N",       "number of replicas of the pipeline; each takes a share of a step's rows (default 1)"),
    OPTION("groups", K_INT | TRAINS, machine.groups, 1, NUMBERS, "D",   "cut a step's rows into D groups, and add their gradients in order: the same bits for every --dp N that divides D (default: as many groups as replicas, or as the checkpoint has)"),
    OPTION("bucket", K_BYTES | TRAINS, schedule.bucket, 1, SAME, "BYTES",   "bytes of gradients that replicas sum at a time (default 4M)"),
    OPTION("zero", K_INT | TRAINS, memory.zero, 0, SAME, "1|2|3", "save memory by dividing among replicas: 1 the optimizer's state, 2 also gradients, 3 also parameters; the results have the same bits"),
    OPTION("shard-optimizer", K_FLAG | TRAINS, memory.zero, 0, SAME, NULL, "the same as --zero 1"),
    OPTION("schedule", K_TEXT, schedule.name, 0, SAME, "NAME|FILE.csv", "a schedule by name (below), a file of actions, or auto, which chooses one (default 1f1b; gpipe with a loss over the minibatch)"),
    OPTION("costs", K_TEXT, schedule.costs, 0, GIVEN, "FILE.json", "for --schedule auto: times from the --trace of a run, or of several: FILE,FILE (default: estimated by the stages' operations)"),
    OPTION("placement", K_PLACEMENT, schedule.placement, 0, SAME, "loop|v", "which rank holds which stage: loop (ranks 0 1 2 0 1 2) or v (ranks 0 1 2 2 1 0) (default: as the schedule says)"),
    OPTION("microbatches", K_INT, schedule.microbatches, 1, NUMBERS, "M",       "number of microbatches in a step (default: the step's rows / the rows of the model's shapes)"),
    OPTION("buffers", K_INT, schedule.buffers, 0, SAME, "K",       "verify the schedule with K messages under way for each pair of ranks (default: any number)"),
    OPTION("send-budget", K_INT, schedule.send_budget, 1, SAME, "K",       "at most K sends of a rank are under way"),
    OPTION("defer", K_FLAG, schedule.defer, 0, SAME, NULL,      "receive as late as possible: less memory, less overlap"),
    OPTION("recompute", K_TEXT | TRAINS, memory.recompute, 0, SAME, "WHAT",    "save memory by computing parts of the forward again: never (default), cheap (what costs little for its bytes), except-last (all microbatches but the last), always, numbers of stages (0,2), or auto (as little as makes each rank fit --memory)"),
    OPTION("device", K_DEVICE, machine.device, 0, NUMBERS, "cpu|cuda", "run the stages there (default: cuda if the program was built with it)"),
    OPTION("transport", K_TRANSPORT, machine.transport, 0, SAME, "NAME",  "send tensors between ranks by local (threads), mpi or nccl; auto takes what the machine has (default)"),
    OPTION("tf32", K_FLAG, machine.tf32, 0, NUMBERS, NULL,      "cuda: products of float32 may round their factors to TF32"),
    OPTION("threads", K_INT, machine.threads, 1, OWN, "N",       "threads of each rank (default: the machine's cores / its ranks)"),
    {.name = "Memory", .kind = K_GROUP},
    OPTION("offload", K_OFFLOAD, memory.offload, 0, SAME, "stash|params", "save memory by moving data to a file, or with a GPU to host memory: stash moves activations that wait for their backward; params moves parameters, gradients and optimizer state, and keeps a few stages in memory (repeatable)"),
    OPTION("offload-dir", K_TEXT, memory.offload_dir, 0, OWN, "DIR",     "folder for the files of --offload, needed on CPUs; they have no names, and go when the process ends"),
    OPTION("unshard", K_TEXT, memory.unshard, 0, SAME, "WINDOW|auto", "with --offload params or --zero 3: N stages of a rank are in memory, for all ranks or one number for each, N,N,... (default 2); N:A brings a stage when it is among the next A; auto is 3, with A = R + 2 on rank R, at most 3; --zero 2 takes 1 alone: gradients of a stage are summed before the next one computes"),
    OPTION("offload-time", K_REAL | TRAINS, memory.offload_time, 0, SAME, "X",       "how long it takes to copy all activations out, as a part of the time of all forwards; no more are copied than there is time for (default 1)"),
    OPTION("memory", K_BYTES, memory.limit, 1, SAME, "BYTES",   "bytes that a rank's step may take (K, M, G, T: times 1024): --recompute auto does as little as makes it fit; --schedule auto chooses among schedules that fit"),
    {.name = "Data", .kind = K_GROUP},
    OPTION("data", K_PAIR, data.files, 0, GIVEN, "NAME=FILE", "rows for an input or the target, from a .npy or a TensorProto .pb; the first dimension is the rows; several files of an input follow one another (repeatable)"),
    OPTION("tokens", K_PAIR, data.tokens, 0, GIVEN, "NAME=FILE", "rows for an integer input, cut from a text: a .npy of rank 1, a .bin of llm.c or Megatron, a raw file with --dtype-of, or a pattern for several; the target is the same, one token later (repeatable)"),
    OPTION("dtype-of", K_PAIR, data.dtype_of, 0, SAME, "NAME=u8|u16|i32|i64", "files of --tokens NAME have no header, only numbers of this type (repeatable)"),
    OPTION("mix", K_PAIR | TRAINS, data.mixes, 0, NUMBERS, "NAME=W,W,...", "mix the rows of several --tokens or --data of one input in these shares"),
    OPTION("lengths", K_PAIR, data.lengths, 0, GIVEN, "NAME=FILE", "length of each row along dimension NAME, of a program made with --bind NAME=LEAST..MOST: a number for each row, or where each begins and the last one ends, in a .npy, or Megatron's .idx; --data and --tokens may then have rows one behind the other; a microbatch is as long as its longest row (default: all rows are as long as the files)"),
    OPTION("pad", K_PAIR, data.pads, 0, NUMBERS, "INPUT=VALUE", "fill this input with VALUE behind the end of each row (default: what the file has there; repeatable)"),
    OPTION("by-length", K_LONG | TRAINS, data.by_length, 1, NUMBERS, "STEPS", "with --lengths: put rows of similar length into one microbatch, among the rows of STEPS steps, and shuffle these microbatches by --shuffle"),
    OPTION("eval-data", K_PAIR, eval.files, 0, GIVEN, "NAME=FILE", "train: other rows, on which the loss is computed without training (repeatable)"),
    OPTION("eval-lengths", K_PAIR, eval.lengths, 0, GIVEN, "NAME=FILE", "the lengths of these rows"),
    OPTION("eval-tokens", K_PAIR, eval.tokens, 0, GIVEN, "NAME=FILE", "the same as --eval-data, from a text (repeatable)"),
    OPTION("eval-every", K_LONG, eval.every, 1, SAME, "N",       "compute this loss every N steps too (default: after the last step only)"),
    OPTION("output", K_PAIR, data.output, 0, SAME, "NAME=FILE.npy", "write an output of the model, rows in order; train: of the last step (repeatable)"),
    OPTION("negative-ids", K_FLAG, data.negative_ids, 0, SAME, NULL,      "negative indices in the data count from the end of their table, as in ONNX (default: they are refused, as in PyTorch)"),
    OPTION("batch", K_LONG, data.batch, 1, NUMBERS, "ROWS",    "rows of a step (default: all rows; train skips the rest at the end of an epoch); sample: number of texts (default 1)"),
    OPTION("shuffle", K_SEED, data.shuffle_seed, 0, NUMBERS, "SEED",    "take the rows in another order in each epoch"),
    OPTION("params", K_TEXT, save.params, 0, GIVEN, "DIR|FILE",     "start with the parameters in DIR, of the newest checkpoint there, or with a state_dict in FILE.safetensors or its index .json (MODULE=FILE: the state_dict of one module)"),
    OPTION("states", K_TEXT | TRAINS, save.states, 0, GIVEN, "FILE",     "start with the optimizer's states in FILE.safetensors, as ppsplit merge --states writes them (MODULE=FILE as with --params)"),
    OPTION("init", K_LIST | TRAINS, train.init, 0, SAME, "PATTERN=KIND", "start with new numbers for parameters that match: normal:STD, uniform:A (from -A to A), zeros, ones, xavier, kaiming, or default, as PyTorch's modules begin; drawn by --seed and the parameter's name (repeatable; the last that matches counts)"),
    OPTION("resume", K_TEXT, save.resume, 0, GIVEN, "DIR",     "continue from the newest checkpoint in DIR, until --steps in all are done"),
    OPTION("accept", K_LIST, save.accept, 0, SAME, "NAME",    "resume although this has changed since the checkpoint: data, or an option of ppsplit (loss, dtype, bind, ...); cpu: run although the ranks have different instructions or libraries (repeatable)"),
    {.name = "Training", .kind = K_GROUP},
    OPTION("steps", K_LONG, data.steps, 1, NUMBERS, "N",       "number of steps (default: train 1, eval and infer one pass over the data); sample: tokens to draw (default 200)"),
    OPTION("epochs", K_LONG, data.epochs, 1, SAME, "N",       "train for N passes over the data, instead of --steps"),
    OPTION("optimizer", K_OPTIMIZER | TRAINS, train.optimizer, 0, NUMBERS, "NAME",  "one of those below, with its options and defaults (default sgd)"),
#define REAL(field, option, about) OPTION(option, K_REAL | TRAINS, train.optim.field, 0, NUMBERS, "X", about),
#define FLAG(field, option, about) OPTION(option, K_FLAG | TRAINS, train.optim.field, 0, NUMBERS, NULL, about),
    OPTIM_REALS(REAL)
    OPTIM_FLAGS(FLAG)
    OPTION("lr-schedule", K_LR_SCHEDULE | TRAINS, train.lr.schedule, 0, NUMBERS, "NAME", "constant, linear, cosine, wsd or inverse-sqrt: how the rate changes over --steps (default: constant)"),
    OPTION("warmup", K_LONG | TRAINS, train.lr.warmup, 0, NUMBERS, "N", "the rate rises to --lr in the first N steps"),
    OPTION("min-lr-factor", K_REAL | TRAINS, train.lr.min, 0, NUMBERS, "X",    "the rate does not fall below this part of --lr (default 0)"),
    OPTION("decay-ratio", K_REAL | TRAINS, train.lr.decay_ratio, 0, NUMBERS, "X", "the rate falls in this part of the steps, the last ones (default: all after the warm-up; required for wsd)"),
    OPTION("no-decay", K_LIST | TRAINS, train.no_decay, 0, NUMBERS, "PATTERN", "no weight decay for parameters that match, such as '*.bias' (repeatable)"),
    OPTION("accumulate", K_INT, schedule.accumulate, 1, NUMBERS, "K", "run the schedule K times for each update: a step has K times --microbatches microbatches"),
    OPTION("clip-norm", K_REAL | TRAINS, train.clip_norm, 0, NUMBERS, "X",       "scale gradients down to this global norm"),
    OPTION("loss-scale", K_TEXT | TRAINS, train.scale_rule, 0, NUMBERS, "RULE|N", "multiply the loss before the backward, so that gradients of f16 do not vanish: dynamic (PyTorch's GradScaler; the default for f16), megatron, or N, a power of two"),
    OPTION("loss-scale-window", K_INT | TRAINS, train.scale_window, 1, NUMBERS, "N", "a dynamic scale doubles after N steps in a row without overflow (default 2000; megatron 1000)"),
    OPTION("loss-scale-initial", K_REAL | TRAINS, train.scale_initial, 0, NUMBERS, "X", "first value of a dynamic scale (default 65536; megatron 2^32)"),
    OPTION("on-nonfinite", K_NONFINITE, train.on_nonfinite, 0, NUMBERS, "stop|skip", "what to do if a loss or gradient is not finite: stop with exit status 4 (default), or skip the update"),
    OPTION("seed", K_SEED, data.seed, 0, NUMBERS, "SEED",    "seed of random numbers (default 0)"),
    {.name = "Sampling", .kind = K_GROUP},
    OPTION("prompt", K_TEXT | SAMPLES, sample.prompt, 0, SAME, "TEXT", "how the text begins, for models of bytes (default: a newline)"),
    OPTION("prompt-ids", K_TEXT | SAMPLES, sample.prompt_ids, 0, SAME, "N,N,...", "how the text begins, as numbers of tokens; the text is then written as numbers too"),
    OPTION("temperature", K_REAL | SAMPLES, sample.temperature, 0, SAME, "X", "divide logits by X (default 1); 0: always take the likeliest token"),
    OPTION("top-k", K_INT | SAMPLES, sample.top_k, 1, SAME, "K", "draw from the K likeliest tokens only (default: all)"),
    {.name = "Output", .kind = K_GROUP},
    OPTION("checkpoint", K_TEXT | TRAINS, save.checkpoint, 0, SAME, "DIR",     "write DIR/step_N after the last step: parameters, statistics, optimizer state"),
    OPTION("every", K_LONG | TRAINS, save.every, 1, SAME, "N",       "write a checkpoint every N steps too, during the next steps"),
    OPTION("keep", K_INT | TRAINS, save.keep, 1, SAME, "K",       "keep only the newest K checkpoints (default: all)"),
    OPTION("dump-grads", K_TEXT | TRAINS, report.dump_grads, 0, SAME, "DIR",     "write the gradients of the first step to DIR/stageN.safetensors"),
    OPTION("log-json", K_TEXT, report.log_json, 0, GIVEN, "FILE|-",  "write a line of JSON with the configuration, then one for each step; - is standard output, without its usual lines"),
    OPTION("tensorboard", K_TEXT | TRAINS, report.tensorboard, 0, GIVEN, "DIR", "write an event file there: loss, gradient norm, rate, tokens a second, memory, measured bubble, evaluations"),
    OPTION("trace", K_TEXT, report.trace, 0, GIVEN, "FILE.json", "write the actions of every rank as a Chrome trace"),
    OPTION("until", K_TEXT, report.until, 0, SAME, "ACTION",  "stop the first step after ACTION (1B3: stage 1, backward of microbatch 3), and print the state"),
    OPTION("watchdog", K_INT, report.watchdog, 0, SAME, "SECONDS", "with processes: end a job that has not moved on for so long and for 20 steps, and say where (default 25; 0: never)"),
    OPTION("save-timeout", K_INT, save.timeout, 0, SAME, "SECONDS", "with processes: end a job if a rank's checkpoint has not grown for so long (default 600; 0: never)"),
    OPTION("debug-mask-minibatches", K_FLAG, data.mask, 0, SAME, NULL,    "make each microbatch all rows of the step, with zeros in the rows of others: the same numbers if rows do not influence each other"),
    OPTION("verbose", K_FLAG, report.verbose, 0, SAME, NULL,      "print more about memory, messages and threads"),
    OPTION("quiet", K_FLAG, report.quiet, 0, OWN, NULL,      "print nothing to standard output; eval without --log-json: only the mean loss"),
};
// clang-format on
enum { N_SPECS = sizeof specs / sizeof *specs };
static_assert((int)N_SPECS <= (int)OPTIONS_MAX, "Options.given is too short");
static const char *const modes[] = {"train", "eval", "infer", "measure", "sample", "tokens"};
enum { N_MODES = sizeof modes / sizeof *modes };

/* The table as the reader of command lines has it, and behind it --help and --version. */
enum { O_HELP = N_SPECS, O_VERSION, N_NAMES };
static void name_options(OptionName *to)
{
    for (int i = 0; i < N_SPECS; i++)
        to[i] = specs[i].kind == K_GROUP
                    ? (OptionName){NULL, NULL, 0, specs[i].name}
                    : (OptionName){specs[i].name, specs[i].value, 0, specs[i].help};
    to[O_HELP] = (OptionName){"help", NULL, 'h', NULL};
    to[O_VERSION] = (OptionName){"version", NULL, 0, NULL};
}

static void help(const PpPlan *plan)
{
    const char *x = plan->n_input ? plan->input[0].name : "x";
    printf("usage: pipeline train|eval|infer|sample|tokens|measure [options]; --help, "
           "--version\n\n%s in %d stage%s.\n  inputs: ",
           plan->model, plan->n_stage, plan->n_stage == 1 ? "" : "s");
    for (int i = 0; i < plan->n_input; i++)
        printf("%s%s", i ? ", " : "", plan->input[i].name);
    printf("\n  outputs: ");
    for (int i = 0; i < plan->n_output; i++)
        printf("%s%s", i ? ", " : "", plan->output[i].name);
    putchar('\n');
    OptionName names[N_NAMES];
    name_options(names);
    option_help(names, N_NAMES, stdout);
    printf("\nSchedules, or PyTorch's names of them\n");
    for (int i = 0; sched_kind(i); i++)
        option_help_row(sched_kind(i)->name, sched_kind(i)->about, stdout);
    option_help_row("auto", "the best of these, and of schedules made for the stages' times",
                    stdout);
    printf("\nOptimizers, with their options and defaults\n");
    optim_help(stdout);
    printf(
        "\nExamples\n"
        "  pipeline train --data %s=x.npy --data target=y.npy --microbatches 8 --steps 100\n"
        "  run -n %d infer --data %s=x.npy --output %s=y.npy\n"
        "  pipeline sample --params checkpoint --prompt 'Once upon' --temperature 0.8 --top-k 40\n"
        "  pipeline tokens --tokens %s=book.txt --dtype-of %s=u8 --output %s=x.npy\n"
        "  run -n 8 measure >machine\n"
        "                               measures the machine for `ppsplit plan'\n"
        "Exit status: 0 done, 1 refused, 2 usage, 3 input, output or memory, 4 a loss or gradient\n"
        "is not finite, 75 ended by a signal and saved: run again with --resume.\n"
        "Names of options may be shortened if they stay unique.  run, beside the program, starts\n"
        "ranks as processes, also on fewer cores.  At Ctrl-C or SIGTERM it lets the step end, and\n"
        "saves it.\n"
        "\n" PPSPLIT_REPORT,
        x, plan->n_stage, x, plan->n_output ? plan->output[0].name : "y", x, x, x);
}

/* What may be accepted is what the program was made with, other data, and other CPUs. */
static PpStatus check_accepted(const Options *o, const PpPlan *plan)
{
    for (int k = 0; k < o->save.accept.n; k++) {
        const char *names[16];
        int n = 2, known = !strcmp("data", o->save.accept.at[k]) || !strcmp("cpu", o->save.accept.at[k]);
        names[0] = "data";
        names[1] = "cpu";
        for (; n < plan->program.n_made + 2 && n < 16; n++) {
            names[n] = plan->program.made[n - 2].option;
            known |= !strcmp(names[n], o->save.accept.at[k]);
        }
        if (!known)
            return option_unknown("option to accept", o->save.accept.at[k], names, n);
    }
    return PP_OK;
}

/* --epochs says how many steps there are: they are given. */
static void epochs_give_steps(Options *o)
{
    for (int i = 0; i < N_SPECS && o->data.epochs; i++)
        o->command.given[i] |= specs[i].kind != K_GROUP && specs[i].at == AT(data.steps);
}

static PpStatus check_zero(Options *o)
{
    if (o->memory.zero > 3)
        return pp_fail(PP_ERR_USAGE, "--zero %d: it must be 1, 2 or 3", o->memory.zero);
    const int comes = o->memory.zero == 3 || (o->memory.offload & OFFLOAD_PARAMS);
    if (o->memory.unshard && !comes && !(o->memory.zero == 2 && !strcmp(o->memory.unshard, "1")))
        return pp_fail(PP_ERR_USAGE,
                       "--unshard %s needs --offload params or --zero 3: else all stages of a rank "
                       "stay in memory%s",
                       o->memory.unshard,
                       o->memory.zero == 2 ? "; with --zero 2 it may be 1, which sums a stage's gradients "
                                      "before the next one computes"
                                    : "");
    o->memory.unshard = o->memory.unshard ? o->memory.unshard : "2";
    return PP_OK;
}

static PpStatus check_offload(const Options *o)
{
    if ((o->memory.offload & OFFLOAD_STASH) && o->mode != MODE_TRAIN)
        return pp_fail(PP_ERR_USAGE, "--offload stash: only training keeps activations");
    int automatic = o->memory.recompute && !strcmp(o->memory.recompute, "auto");
    if (automatic && !o->memory.limit)
        return pp_fail(PP_ERR_USAGE, "--recompute auto: --memory BYTES says what a rank may take");
    if (automatic && o->memory.offload)
        return pp_fail(PP_ERR_USAGE, "--recompute auto and --offload both make a step fit "
                                     "--memory: use one of them, or name what to recompute");
    int chooses = o->schedule.name && !strcasecmp(o->schedule.name, "auto");
    if (o->memory.limit && !automatic && !chooses)
        return pp_fail(PP_ERR_USAGE,
                       "--memory needs --recompute auto or --schedule auto, which make a step fit");
    if (o->schedule.costs && !chooses)
        return pp_fail(PP_ERR_USAGE, "--costs needs --schedule auto");
    return PP_OK;
}

static PpStatus check_evaluation(const Options *o)
{
    int any = o->eval.files.n + o->eval.tokens.n;
    if (any && o->mode != MODE_TRAIN)
        return pp_fail(PP_ERR_USAGE, "--eval-%s is for train; here the rows are those of --%s",
                       o->eval.files.n ? "data" : "tokens", o->eval.files.n ? "data" : "tokens");
    if (o->eval.every && !any)
        return pp_fail(PP_ERR_USAGE, "--eval-every needs --eval-data");
    return PP_OK;
}

static void find_folder(Options *o, const char *argv0)
{
    ssize_t n = readlink("/proc/self/exe", o->command.folder, sizeof o->command.folder - 1);
    if (n <= 0)
        n = snprintf(o->command.folder, sizeof o->command.folder, "%s", argv0);
    o->command.folder[n] = 0;
    char *slash = strrchr(o->command.folder, '/');
    if (slash)
        *slash = 0;
    else
        strcpy(o->command.folder, ".");
}

/* Options but these are refused; 0 ends them. */
static PpStatus only(const Options *o, const size_t *taken, const char *by)
{
    for (int i = 0; i < N_SPECS; i++) {
        int takes = !o->command.given[i];
        for (int k = 0; taken[k]; k++)
            takes |= specs[i].at == taken[k];
        if (!takes)
            return pp_fail(PP_ERR_USAGE, "--%s is not for %s", specs[i].name, by);
    }
    return PP_OK;
}

static PpStatus check_mode(const Options *o)
{
    const char *mode = modes[o->sample.on ? MODE_SAMPLE : o->mode];
    for (int i = 0; i < N_SPECS; i++)
        if (o->command.given[i] && o->mode != MODE_TRAIN && (specs[i].kind & TRAINS))
            return pp_fail(PP_ERR_USAGE, "--%s is for train: %s changes no parameter",
                           specs[i].name, mode);
        else if (o->command.given[i] && !o->sample.on && (specs[i].kind & SAMPLES))
            return pp_fail(PP_ERR_USAGE, "--%s is for sample: %s draws no tokens", specs[i].name,
                           mode);
    static const size_t measure[] = {AT(machine.ranks), AT(machine.threads), AT(machine.device), AT(memory.offload_dir), 0};
    static const size_t tokens[] = {AT(data.tokens),       AT(data.dtype_of), AT(data.output),
                                    AT(data.negative_ids), AT(report.quiet),    0};
    if (o->mode == MODE_MEASURE)
        return only(o, measure, "measure: --ranks, --threads and --offload-dir are");
    return o->mode == MODE_TOKENS ? only(o, tokens, "tokens: --tokens, --dtype-of and --output are")
                                  : PP_OK;
}

/* A text stands on standard output, alone. */
static PpStatus check_sampling(Options *o)
{
    if (!o->sample.on)
        return PP_OK;
    if (o->data.output.n)
        return pp_fail(PP_ERR_USAGE, "--output %s: sample writes the text; infer writes outputs",
                       o->data.output.at[0].name);
    if (o->data.tokens.n || o->data.shuffle)
        return pp_fail(PP_ERR_USAGE, "--%s is not for sample, whose texts begin with --prompt",
                       o->data.tokens.n ? "tokens" : "shuffle");
    if (o->sample.prompt && o->sample.prompt_ids)
        return pp_fail(PP_ERR_USAGE, "--prompt and --prompt-ids both say how the text begins");
    if (o->report.log_json && !strcmp(o->report.log_json, "-"))
        return pp_fail(PP_ERR_USAGE, "--log-json -: standard output has the text; name a file");
    if (o->data.mask)
        return pp_fail(PP_ERR_USAGE, "--debug-mask-minibatches is not for sample");
    o->report.quiet = 1;
    o->data.steps = o->data.steps ? o->data.steps : 200;
    return PP_OK;
}

static PpStatus check_checkpoints(const Options *o)
{
    if ((o->save.every || o->save.keep) && !o->save.checkpoint)
        return pp_fail(PP_ERR_USAGE, "--%s needs --checkpoint DIR", o->save.every ? "every" : "keep");
    if (o->save.resume && o->mode != MODE_TRAIN)
        return pp_fail(PP_ERR_USAGE, "--resume is for train; --params %s takes its parameters",
                       o->save.resume);
    for (int i = 0; i < o->save.accept.n && !o->save.resume; i++)
        if (strcmp(o->save.accept.at[i], "cpu") != 0)
            return pp_fail(PP_ERR_USAGE, "--accept %s needs --resume", o->save.accept.at[i]);
    if (o->save.states && o->save.resume)
        return pp_fail(PP_ERR_USAGE, "--states and --resume both say what state the optimizer has");
    if (o->save.resume && o->save.params)
        return pp_fail(PP_ERR_USAGE, "--params and --resume both say where parameters come from");
    return PP_OK;
}

/* Gradients of f16 vanish below 2^-24; those of float32 and bf16 have room enough. */
static PpStatus choose_loss_scale(Options *o, const PpPlan *plan)
{
    const PpStage *const *stage = plan->stage       ? plan->stage
                                  : plan->cpu_stage ? plan->cpu_stage
                                                    : plan->cuda_stage;
    int f16 = 0;
    for (int s = 0; s < plan->n_stage && stage; s++)
        f16 |= stage[s]->half_type == PP_F16;
    if (o->mode != MODE_TRAIN)
        return loss_scale_of(&o->train.scale, "1", 0, 0);
    const char *rule = o->train.scale_rule ? o->train.scale_rule : f16 ? "dynamic" : "1";
    return loss_scale_of(&o->train.scale, rule, o->train.scale_window, o->train.scale_initial);
}

static int is_of_ppsplit(const PpPlan *plan, const char *name)
{
    int is = !strcmp(name, "split") || !strcmp(name, "stages");
    for (int k = 0; k < plan->program.n_made; k++)
        is |= !strcmp(name, plan->program.made[k].option);
    return is;
}

/* The words, in order.  *mode: which command; -1: none. */
static PpStatus read_words(Options *o, const PpPlan *plan, int *mode)
{
    OptionName names[N_NAMES];
    name_options(names);
    OptionReader r = option_reader(o->command.argc, o->command.argv, names, N_NAMES);
    for (int k; (k = option_next(&r)) != OPTION_END;) {
        if (is_of_ppsplit(plan, r.unknown)) /* --dtype, which is not short for --dtype-of */
            return pp_fail(
                PP_ERR_USAGE,
                "--%s is an option of ppsplit: split the model again with it, then run make",
                r.unknown);
        if (k == OPTION_WRONG)
            return pp_fail(PP_ERR_USAGE, "%s", r.wrong);
        if (k == O_HELP || (*mode < 0 && k == OPTION_OPERAND && !strcmp(r.value, "help"))) {
            help(plan);
            exit(0);
        }
        if (k == O_VERSION) {
            printf("%s, a program made by ", plan->model);
            version_print("ppsplit", stdout);
            exit(0);
        }
        if (k >= 0) {
            TRY(option_apply(o, &specs[k], r.value));
            o->command.given[k] = 1;
            continue;
        }
        if (*mode >= 0)
            return pp_fail(PP_ERR_USAGE, "unexpected operand '%s'", r.value);
        for (int i = 0; i < N_MODES; i++)
            if (!strcmp(r.value, modes[i]))
                *mode = i;
        if (*mode < 0)
            return option_unknown("command", r.value, modes, N_MODES);
    }
    if (*mode < 0)
        return pp_fail(PP_ERR_USAGE,
                       "missing command: train, eval, infer, sample, tokens or measure");
    return PP_OK;
}

static PpStatus check_loss(const Options *o, const PpPlan *plan)
{
    if (o->mode == MODE_TRAIN && plan->loss.stage < 0)
        return pp_fail(PP_ERR_MODEL,
                       "%s was split without a loss: it can infer only (ppsplit --loss ...)",
                       plan->model);
    if (o->mode == MODE_EVAL && plan->loss.stage < 0)
        return pp_fail(PP_ERR_MODEL, "%s was split without a loss: there is nothing to evaluate",
                       plan->model);
    return PP_OK;
}

PpStatus options_parse(Options *o, int argc, char **argv, const PpPlan *plan)
{
    *o = (Options){
        .machine.dp = 1,
        .schedule = {.placement = SCHED_PLACE_DEFAULT, .buffers = -1, .bucket = 4 << 20},
        .memory.offload_time = 1,
        .train = {.on_nonfinite = "stop",
                  .lr = {.schedule = "constant", .decay_ratio = -1},
                  .optim = {
#define NOT_GIVEN(field, option, about) .field = -1,
                      OPTIM_REALS(NOT_GIVEN)}},
        .save.timeout = 600,
        .report.watchdog = 25,
        .sample.temperature = 1};
    find_folder(o, argv[0]);
    o->command.argc = argc;
    o->command.argv = argv;
    int mode = -1;
    TRY(read_words(o, plan, &mode));
    o->sample.on = mode == MODE_SAMPLE;
    o->mode = o->sample.on ? MODE_INFER : (Mode)mode;
    o->report.quiet |= o->report.log_json && !strcmp(o->report.log_json, "-");
    TRY(check_checkpoints(o));
    TRY(check_accepted(o, plan));
    epochs_give_steps(o);
    TRY(check_mode(o));
    TRY(check_sampling(o));
    if (o->data.epochs && o->data.steps)
        return pp_fail(PP_ERR_USAGE, "--epochs and --steps both say how many steps there are");
    TRY(optim_options(&o->train.optimizer, &o->train.optim));
    TRY(check_zero(o));
    TRY(check_offload(o));
    TRY(check_evaluation(o));
    TRY(lr_options(&o->train.lr));
    TRY(check_loss(o, plan));
    TRY(choose_loss_scale(o, plan));
    if (!o->schedule.name)
        o->schedule.name = o->mode != MODE_TRAIN     ? "forward-only"
                      : plan->minibatch.rows ? "gpipe"
                                                : "1f1b";
    return PP_OK;
}

static int next(const Options *o, int *i, int shared, NumberOption *n, Pool *pool)
{
    const Spec *s = &specs[*i];
    while (s < specs + N_SPECS &&
           (shared ? s->kind == K_GROUP || s->scope == OWN : s->scope != NUMBERS))
        s++;
    *i = (int)(s - specs) + 1;
    if (s == specs + N_SPECS)
        return 0;
    *n = (NumberOption){s->name, o->command.given[s - specs], kind_of(s) == K_FLAG,
                        option_text(o, s, shared && s->scope == GIVEN, pool)};
    return 1;
}

int options_next_number(const Options *o, int *i, NumberOption *n, Pool *pool)
{
    return next(o, i, 0, n, pool);
}

PpStatus options_put_numbers(const Options *o, JsonOut *to)
{
    NumberOption n;
    POOL(pool);
    for (int i = 0; options_next_number(o, &i, &n, &pool);) {
        if (!n.value)
            return pp_no_memory();
        json_put_text(to, n.name, n.value);
    }
    return PP_OK;
}

int options_next_shared(const Options *o, int *i, NumberOption *n, Pool *pool)
{
    return next(o, i, 1, n, pool);
}

void options_free(Options *o) { pool_free(&o->pool); }
