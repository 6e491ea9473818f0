/*
 * options.c - in: the command line of out/pipeline; out: Options, or one line that says what is
 * wrong and what was meant, exit 2.  One table drives the parser and --help.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "options/spec.h"

#include "base/cli/options.h"
#include "base/cli/version.h"
#include "core/core.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* A row without one of its columns does not compile: whether ranks may differ in an option is said of
 * each. */
#define OPTION(name, kind, field, min, scope, value, help)                                         \
    {name, kind, AT(field), min, scope, value, help}
// clang-format off
static const Spec specs[] = {
    {.name = "Ranks and schedule", .kind = K_GROUP},
    OPTION("ranks", K_INT, ranks, 1, SAME, "N",       "threads of this process that act as ranks, of all replicas together (default: one per stage, of ppsplit --tensor T of them; under mpirun: its processes)"),
    OPTION("dp", K_INT, dp, 1, SAME, "N",       "replicas of the pipeline, each with its share of a step's rows (default 1)"),
    OPTION("groups", K_INT | TRAINS, groups, 1, NUMBERS, "D",   "into which a step's rows are cut, with --microbatches each: the sums of their gradients are added in their order, by --dp replicas, each with the same number of groups (default: one each, or as in the checkpoint to resume): the bits of --dp D"),
    OPTION("bucket", K_BYTES | TRAINS, bucket, 1, SAME, "BYTES",   "of gradients that replicas sum at a time (default 4M): four at most are under way, for which there is room"),
    OPTION("zero", K_INT | TRAINS, zero, 0, SAME, "1|2|3", "what replicas divide among them, the same bits in less memory: 1: the optimizer's state, each updates its share of the parameters, which all get then; 2: gradients too, once they are summed; 3: parameters too, which come before a stage's computations and go after (--unshard)"),
    OPTION("shard-optimizer", K_FLAG | TRAINS, zero, 0, SAME, NULL, "--zero 1"),
    OPTION("schedule", K_TEXT, schedule, 0, SAME, "NAME|FILE.csv", "one of those below (default 1f1b; gpipe with a loss over the minibatch), auto, which chooses, or rows of actions"),
    OPTION("costs", K_TEXT, costs, 0, GIVEN, "FILE.json", "schedule auto: by the times of a run's --trace, or of several, FILE,FILE (default: by the operations of the stages)"),
    OPTION("placement", K_PLACEMENT, placement, 0, SAME, "loop|v", "how stages go to ranks (default: the schedule's own)"),
    OPTION("microbatches", K_INT, microbatches, 1, NUMBERS, "M",       "chunks of a step (default: rows of a step / rows of the model's shapes)"),
    OPTION("buffers", K_INT, buffers, 0, SAME, "K",       "verify the schedule with K messages under way per pair of ranks (default: any number)"),
    OPTION("send-budget", K_INT, send_budget, 1, SAME, "K",       "at most K sends of a rank under way"),
    OPTION("defer", K_FLAG, defer, 0, SAME, NULL,      "post receives as late as possible: less memory, less overlap"),
    OPTION("recompute", K_TEXT | TRAINS, recompute, 0, SAME, "WHAT",    "computed again before a backward instead of kept: never (default), except-last (microbatch), always, cheap (what costs little per byte), STAGE,..., or auto (the least with which a rank fits --memory)"),
    OPTION("device", K_DEVICE, device, 0, NUMBERS, "cpu|cuda", "what the stages run on (default: cuda where it was built in)"),
    OPTION("transport", K_TRANSPORT, transport, 0, SAME, "NAME",  "between ranks: local (threads), mpi, nccl, or auto (default: what the machine has)"),
    OPTION("tf32", K_FLAG, tf32, 0, NUMBERS, NULL,      "cuda: products of float32 may round their factors to TF32"),
    OPTION("threads", K_INT, threads, 1, OWN, "N",       "threads of a rank (default: cores / ranks of the machine)"),
    {.name = "Memory", .kind = K_GROUP},
    OPTION("offload", K_OFFLOAD, offload, 0, SAME, "stash|params", "what is not in memory all the time (repeatable): activations that wait for their backward, in a file, or beside a GPU in host memory; parameters with gradients and optimizer state, there too, a few stages at a time in memory"),
    OPTION("offload-dir", K_TEXT, offload_dir, 0, OWN, "DIR",     "where such files are; they have no name and go with the process"),
    OPTION("unshard", K_TEXT, unshard, 0, SAME, "WINDOW|auto", "offload params, zero 3: stages of a rank that are in memory or on their way there, N or one number a rank, N,N,... (default 2); N:A: they come when they are among the next A; auto: 3, on rank R A is R + 2, at most 3"),
    OPTION("offload-time", K_REAL | TRAINS, offload_time, 0, SAME, "X",       "what copying all of them out takes beside all forwards: those for which there is time are copied (default 1)"),
    OPTION("memory", K_BYTES, memory, 1, SAME, "BYTES",   "of a rank's step: no more is recomputed (--recompute auto) or offloaded than it takes to fit, --schedule auto chooses among what fits; K, M, G, T: times 1024"),
    {.name = "Data", .kind = K_GROUP},
    OPTION("data", K_PAIR, data, 0, GIVEN, "NAME=FILE", "an input of the model: .npy or TensorProto .pb, rows are samples; the rows of several files of an input follow one another (repeatable)"),
    OPTION("tokens", K_PAIR, tokens, 0, GIVEN, "NAME=FILE", "an integer input of the model, cut from a text of tokens: .npy of rank 1, llm.c's or Megatron's .bin, a pattern of several; its windows are the rows, and the target is the same one token later (repeatable)"),
    OPTION("dtype-of", K_PAIR, dtype_of, 0, SAME, "NAME=u8|u16|i32|i64", "the files of --tokens NAME hold numbers of this type and nothing else (repeatable)"),
    OPTION("mix", K_PAIR | TRAINS, mixes, 0, NUMBERS, "NAME=W,W,...", "weights of the options that give this input its files: of the rows that come, each has its share at any time"),
    OPTION("lengths", K_PAIR, lengths, 0, GIVEN, "NAME=FILE.npy", "how many places of dimension NAME each row has, of a program made with --bind NAME=LEAST..MOST: a microbatch has those of its longest row (default: all that the inputs have)"),
    OPTION("pad", K_PAIR, pads, 0, NUMBERS, "INPUT=VALUE", "what stands in this input behind the places that --lengths says a row has (default: what its file has there; repeatable)"),
    OPTION("by-length", K_LONG | TRAINS, by_length, 1, NUMBERS, "STEPS", "of the rows of so many steps those of near lengths make a microbatch, and these come in another order, which --shuffle draws: with --lengths"),
    OPTION("eval-data", K_PAIR, eval_data, 0, GIVEN, "NAME=FILE", "train: an input of other rows, whose loss is computed without training on them, as eval does (repeatable)"),
    OPTION("eval-lengths", K_PAIR, eval_lengths, 0, GIVEN, "NAME=FILE.npy", "the same of --eval-data"),
    OPTION("eval-tokens", K_PAIR, eval_tokens, 0, GIVEN, "NAME=FILE", "the same, cut from a text of tokens (repeatable)"),
    OPTION("eval-every", K_LONG, eval_every, 1, SAME, "N",       "their loss after every N steps too (default: after the last one)"),
    OPTION("output", K_PAIR, output, 0, SAME, "NAME=FILE.npy", "write an output of the model, rows in order; train: of the last step (repeatable)"),
    OPTION("negative-ids", K_FLAG, negative_ids, 0, SAME, NULL,      "negative indices of data count from the end of their table, as in ONNX (default: they are refused, as in PyTorch)"),
    OPTION("batch", K_LONG, batch, 1, NUMBERS, "ROWS",    "rows of a step (default: all; train skips what is left over at the end of an epoch); sample: texts (default 1)"),
    OPTION("shuffle", K_SEED, shuffle_seed, 0, NUMBERS, "SEED",    "another order of the rows in each epoch"),
    OPTION("params", K_TEXT, params, 0, GIVEN, "DIR|FILE",     "start from the parameters in DIR, of a checkpoint for example: of the newest there; or in FILE.safetensors, a state_dict, or the index of several (MODULE=FILE: that of a module of the model)"),
    OPTION("states", K_TEXT | TRAINS, states, 0, GIVEN, "FILE",     "start with the optimizer's states in FILE.safetensors, as ppsplit merge --states writes it (MODULE=FILE as with --params)"),
    OPTION("init", K_LIST | TRAINS, init, 0, SAME, "PATTERN=KIND", "what parameters begin with, drawn by --seed and their names: normal:STD, uniform:A (from -A to A), zeros, ones, xavier, kaiming, or default, as PyTorch's Linear, Conv and norms begin (repeatable: the last that matches)"),
    OPTION("resume", K_TEXT, resume, 0, GIVEN, "DIR",     "go on where the newest checkpoint in DIR was written, up to --steps in all"),
    OPTION("accept", K_LIST, accept, 0, SAME, "NAME",    "resume although ppsplit was given another --NAME when the checkpoint was written (loss, dtype, bind, ...), or with other data (data); cpu: although the ranks compute with other instructions or libraries than each other (repeatable)"),
    {.name = "Training", .kind = K_GROUP},
    OPTION("steps", K_LONG, steps, 1, NUMBERS, "N",       "steps (default: 1 in train, one pass over the data in eval and infer); sample: tokens to draw (default 200)"),
    OPTION("epochs", K_LONG, epochs, 1, SAME, "N",       "as many steps as N passes over the data have, instead of --steps"),
    OPTION("optimizer", K_OPTIMIZER | TRAINS, optimizer, 0, NUMBERS, "NAME",  "sgd (default) or another of those below, which say their options and defaults"),
#define REAL(field, option, about) OPTION(option, K_REAL | TRAINS, optim.field, 0, NUMBERS, "X", about),
#define FLAG(field, option, about) OPTION(option, K_FLAG | TRAINS, optim.field, 0, NUMBERS, NULL, about),
    OPTIM_REALS(REAL)
    OPTIM_FLAGS(FLAG)
    OPTION("lr-schedule", K_LR_SCHEDULE | TRAINS, lr.schedule, 0, NUMBERS, "NAME", "constant (default), linear, cosine, wsd or inverse-sqrt, over --steps"),
    OPTION("warmup", K_LONG | TRAINS, lr.warmup, 0, NUMBERS, "N", "steps in which the rate rises to --lr"),
    OPTION("min-lr-factor", K_REAL | TRAINS, lr.min, 0, NUMBERS, "X",    "share of --lr that the rate does not fall below (default 0)"),
    OPTION("decay-ratio", K_REAL | TRAINS, lr.decay_ratio, 0, NUMBERS, "X", "share of the steps in which the rate falls, the last ones (default: all after the warm-up; wsd: to be given)"),
    OPTION("no-decay", K_LIST | TRAINS, no_decay, 0, NUMBERS, "PATTERN", "parameters without weight decay, '*.bias' for example (repeatable)"),
    OPTION("accumulate", K_INT, accumulate, 1, NUMBERS, "K", "passes of the schedule before an update: the rows of a step in K times --microbatches chunks"),
    OPTION("clip-norm", K_REAL | TRAINS, clip_norm, 0, NUMBERS, "X",       "scale the gradients down to this global norm"),
    OPTION("loss-scale", K_TEXT | TRAINS, loss_scale_rule, 0, NUMBERS, "RULE|N", "multiply the loss before backward: dynamic (PyTorch's GradScaler; default where a stage computes in f16), megatron, or N, a power of two"),
    OPTION("loss-scale-window", K_INT | TRAINS, loss_scale_window, 1, NUMBERS, "N", "steps in a row without overflow after which a dynamic scale doubles (default 2000; megatron 1000)"),
    OPTION("loss-scale-initial", K_REAL | TRAINS, loss_scale_initial, 0, NUMBERS, "X", "a dynamic scale's first value (default 65536; megatron 2^32)"),
    OPTION("on-nonfinite", K_NONFINITE, on_nonfinite, 0, NUMBERS, "stop|skip", "a loss or gradient that is not finite: stop (default, exit 4), or skip the update"),
    OPTION("seed", K_SEED, seed, 0, NUMBERS, "SEED",    "of random numbers (default 0)"),
    {.name = "Sampling", .kind = K_GROUP},
    OPTION("prompt", K_TEXT | SAMPLES, prompt, 0, SAME, "TEXT", "what the text begins with, byte by byte, for models of bytes (default: a line's end)"),
    OPTION("prompt-ids", K_TEXT | SAMPLES, prompt_ids, 0, SAME, "N,N,...", "the same as numbers of tokens; the text is then written as numbers, too"),
    OPTION("temperature", K_REAL | SAMPLES, temperature, 0, SAME, "X", "logits are divided by it (default 1); 0: always the likeliest token"),
    OPTION("top-k", K_INT | SAMPLES, top_k, 1, SAME, "K", "only the K likeliest tokens are drawn from (default: all)"),
    {.name = "What is written", .kind = K_GROUP},
    OPTION("checkpoint", K_TEXT | TRAINS, checkpoint, 0, SAME, "DIR",     "after the last step: DIR/step_N with parameters, statistics, optimizer state"),
    OPTION("every", K_LONG | TRAINS, every, 1, SAME, "N",       "a checkpoint every N steps too, written while the next steps run"),
    OPTION("keep", K_INT | TRAINS, keep, 1, SAME, "K",       "only the newest K checkpoints stay (default: all)"),
    OPTION("dump-grads", K_TEXT | TRAINS, dump_grads, 0, SAME, "DIR",     "after the first step: DIR/stageN.safetensors with the gradients"),
    OPTION("log-json", K_TEXT, log_json, 0, GIVEN, "FILE|-",  "a line of JSON with the configuration, then one a step; -: on standard output, instead of the lines there"),
    OPTION("tensorboard", K_TEXT | TRAINS, tensorboard, 0, GIVEN, "DIR", "loss, gradient norm, rate, tokens a second, memory, measured bubble and evaluations, in a file of events there"),
    OPTION("trace", K_TEXT, trace, 0, GIVEN, "FILE.json", "Chrome trace of the actions of every rank"),
    OPTION("until", K_TEXT, until, 0, SAME, "ACTION",  "stop in the first step when ACTION has run (1B3: stage 1, backward of microbatch 3), print the state"),
    OPTION("watchdog", K_INT, watchdog, 0, SAME, "SECONDS", "of processes: end a job that has not moved on for so long, or for 20 steps, and say where (default 25; 0: never)"),
    OPTION("save-timeout", K_INT, save_timeout, 0, SAME, "SECONDS", "of processes: end a job in which a rank's checkpoint has not grown for so long (default 600; 0: never)"),
    OPTION("debug-mask-minibatches", K_FLAG, mask, 0, SAME, NULL,    "a microbatch is all rows of the step, zeros where they are another's: the same numbers, for models that keep rows apart"),
    OPTION("verbose", K_FLAG, verbose, 0, SAME, NULL,      "also the activations' least possible bytes, messages, threads, microbatches alive, what a GPU has taken"),
    OPTION("quiet", K_FLAG, quiet, 0, OWN, NULL,      "no lines on standard output"),
};
// clang-format on
enum { N_SPECS = sizeof specs / sizeof *specs };
static_assert((int)N_SPECS <= (int)OPTIONS_MAX, "Options.given is too short");
static const char *const modes[] = {"train", "eval", "infer", "measure", "sample", "tokens"};
enum { N_MODES = sizeof modes / sizeof *modes };

/* What an option is called, and what it does in lines beside that, as wide as a terminal. */
static void help_row(const char *left, const char *text)
{
    enum { LEFT = 30, WIDTH = 79 };
    int at = printf("  %-*s", LEFT - 2, left);
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at + 1 + n > WIDTH)
            at = printf("\n%*s", LEFT, "") - 1;
        at += printf(" %.*s", n, text);
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

static void help(const PpPlan *plan)
{
    const char *x = plan->n_input ? plan->input[0].name : "x";
    printf("usage: pipeline train|eval|infer|sample|tokens|measure [options]; --help, --version\n\n%s in %d stages.\n  inputs: ",
           plan->model, plan->n_stage);
    for (int i = 0; i < plan->n_input; i++)
        printf("%s%s", i ? ", " : "", plan->input[i].name);
    printf("\n  outputs: ");
    for (int i = 0; i < plan->n_output; i++)
        printf("%s%s", i ? ", " : "", plan->output[i].name);
    putchar('\n');
    for (int i = 0; i < N_SPECS; i++) {
        if (specs[i].kind == K_GROUP) {
            printf("\n%s\n", specs[i].name);
            continue;
        }
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", specs[i].name, specs[i].value ? " " : "",
                 specs[i].value ? specs[i].value : "");
        help_row(left, specs[i].help);
    }
    printf("\nSchedules, or PyTorch's names of them\n");
    for (int i = 0; sched_kind(i); i++)
        help_row(sched_kind(i)->name, sched_kind(i)->about);
    help_row("auto", "the best of these and of schedules made for the stages' costs");
    printf("\nOptimizers, with their options and defaults\n");
    optim_help(stdout);
    printf("\nExamples\n"
           "  pipeline train --data %s=x.npy --data target=y.npy --microbatches 8 --steps 100\n"
           "  run -n %d infer --data %s=x.npy --output %s=y.npy\n"
           "  pipeline sample --params checkpoint --prompt 'Once upon' --temperature 0.8 --top-k 40\n"
           "  pipeline tokens --tokens %s=book.txt --dtype-of %s=u8 --output %s=x.npy\n"
           "  run -n 8 measure >machine\n"
           "                               what a rank does in a second, for `ppsplit plan'\n"
           "Exit status: 0 done, 1 refused, 2 usage, 3 input, output or memory, 4 a loss or gradient\n"
           "that is not finite, 75 saved at a signal: run again with --resume.\n"
           "Names of options may be cut short where one is meant.  run, beside the program, starts\n"
           "ranks as processes, also on fewer cores, and at Ctrl-C or SIGTERM sees to it that a step\n"
           "ends and is saved.\n"
           "\n" PPSPLIT_REPORT,
           x, plan->n_stage, x, plan->n_output ? plan->output[0].name : "y", x, x, x);
}

/* What may be accepted is what the program was made with, other data, and other CPUs. */
static PpStatus check_accepted(const Options *o, const PpPlan *plan)
{
    for (int k = 0; k < o->accept.n; k++) {
        const char *names[16];
        int n = 2, known = !strcmp("data", o->accept.at[k]) || !strcmp("cpu", o->accept.at[k]);
        names[0] = "data";
        names[1] = "cpu";
        for (; n < plan->n_made + 2 && n < 16; n++) {
            names[n] = plan->made[n - 2].option;
            known |= !strcmp(names[n], o->accept.at[k]);
        }
        if (!known)
            return option_unknown("option to accept", o->accept.at[k], names, n);
    }
    return PP_OK;
}

/* --epochs says how many steps there are: they are given. */
static void epochs_give_steps(Options *o)
{
    for (int i = 0; i < N_SPECS && o->epochs; i++)
        o->given[i] |= specs[i].kind != K_GROUP && specs[i].at == AT(steps);
}

static PpStatus check_zero(const Options *o)
{
    if (o->zero > 3)
        return pp_fail(PP_ERR_USAGE, "--zero %d: it is 1, 2 or 3", o->zero);
    if (o->zero >= 2 && (o->offload & OFFLOAD_PARAMS))
        return pp_fail(PP_ERR_USAGE,
                       "--zero %d and --offload params both say where gradients are: "
                       "--zero 1 divides the optimizer beside it",
                       o->zero);
    return PP_OK;
}

static PpStatus check_offload(const Options *o)
{
    if ((o->offload & OFFLOAD_STASH) && o->mode != MODE_TRAIN)
        return pp_fail(PP_ERR_USAGE, "--offload stash: only training keeps activations");
    int automatic = o->recompute && !strcmp(o->recompute, "auto");
    if (automatic && !o->memory)
        return pp_fail(PP_ERR_USAGE, "--recompute auto: --memory BYTES says what a rank may take");
    if (automatic && o->offload)
        return pp_fail(PP_ERR_USAGE, "--recompute auto and --offload would both make a step fit "
                                     "--memory: name what to recompute, or leave one away");
    int chooses = o->schedule && !strcasecmp(o->schedule, "auto");
    if (o->memory && !(o->offload & OFFLOAD_STASH) && !automatic && !chooses)
        return pp_fail(PP_ERR_USAGE, "--memory: of what? --recompute auto, --offload stash or "
                                     "--schedule auto makes a step fit");
    if (o->costs && !chooses)
        return pp_fail(PP_ERR_USAGE, "--costs: for what? --schedule auto chooses by them");
    return PP_OK;
}

static PpStatus check_evaluation(const Options *o)
{
    int any = o->n_eval_data + o->n_eval_tokens;
    if (any && o->mode != MODE_TRAIN)
        return pp_fail(PP_ERR_USAGE, "--eval-%s is for train; here the rows are those of --%s",
                       o->n_eval_data ? "data" : "tokens", o->n_eval_data ? "data" : "tokens");
    if (o->eval_every && !any)
        return pp_fail(PP_ERR_USAGE, "--eval-every: of the rows of --eval-data, which is missing");
    return PP_OK;
}

static void find_folder(Options *o, const char *argv0)
{
    ssize_t n = readlink("/proc/self/exe", o->folder, sizeof o->folder - 1);
    if (n <= 0)
        n = snprintf(o->folder, sizeof o->folder, "%s", argv0);
    o->folder[n] = 0;
    char *slash = strrchr(o->folder, '/');
    if (slash)
        *slash = 0;
    else
        strcpy(o->folder, ".");
}

/* Options but these are refused; 0 ends them. */
static PpStatus only(const Options *o, const size_t *taken, const char *by)
{
    for (int i = 0; i < N_SPECS; i++) {
        int takes = !o->given[i];
        for (int k = 0; taken[k]; k++)
            takes |= specs[i].at == taken[k];
        if (!takes)
            return pp_fail(PP_ERR_USAGE, "--%s is not for %s", specs[i].name, by);
    }
    return PP_OK;
}

static PpStatus check_mode(const Options *o)
{
    const char *mode = modes[o->samples ? MODE_SAMPLE : o->mode];
    for (int i = 0; i < N_SPECS; i++)
        if (o->given[i] && o->mode != MODE_TRAIN && (specs[i].kind & TRAINS))
            return pp_fail(PP_ERR_USAGE, "--%s is for train: %s changes no parameter",
                           specs[i].name, mode);
        else if (o->given[i] && !o->samples && (specs[i].kind & SAMPLES))
            return pp_fail(PP_ERR_USAGE, "--%s is for sample: %s draws no tokens", specs[i].name,
                           mode);
    static const size_t measure[] = {AT(ranks), AT(threads), AT(device), AT(offload_dir), 0};
    static const size_t tokens[] = {AT(tokens),       AT(dtype_of), AT(output),
                                    AT(negative_ids), AT(quiet),    0};
    if (o->mode == MODE_MEASURE)
        return only(o, measure, "measure: --ranks, --threads and --offload-dir are");
    return o->mode == MODE_TOKENS ? only(o, tokens, "tokens: --tokens, --dtype-of and --output are")
                                  : PP_OK;
}

/* A text stands on standard output, alone. */
static PpStatus check_sampling(Options *o)
{
    if (!o->samples)
        return PP_OK;
    if (o->n_output)
        return pp_fail(PP_ERR_USAGE, "--output %s: sample writes the text; infer writes outputs",
                       o->output[0].name);
    if (o->n_tokens || o->shuffle)
        return pp_fail(PP_ERR_USAGE, "--%s: the rows of sample are texts that begin with --prompt",
                       o->n_tokens ? "tokens" : "shuffle");
    if (o->prompt && o->prompt_ids)
        return pp_fail(PP_ERR_USAGE, "--prompt and --prompt-ids both say how the text begins");
    if (o->log_json && !strcmp(o->log_json, "-"))
        return pp_fail(PP_ERR_USAGE, "--log-json -: the text is there; name a file");
    if (o->mask)
        return pp_fail(PP_ERR_USAGE, "--debug-mask-minibatches is not for sample");
    o->quiet = 1;
    o->steps = o->steps ? o->steps : 200;
    return PP_OK;
}

static PpStatus check_checkpoints(const Options *o)
{
    if ((o->every || o->keep) && !o->checkpoint)
        return pp_fail(PP_ERR_USAGE, "--%s: of the checkpoints in --checkpoint DIR, which is missing",
                       o->every ? "every" : "keep");
    if (o->resume && o->mode != MODE_TRAIN)
        return pp_fail(PP_ERR_USAGE, "--resume is for train; --params %s takes its parameters",
                       o->resume);
    for (int i = 0; i < o->accept.n && !o->resume; i++)
        if (strcmp(o->accept.at[i], "cpu") != 0)
            return pp_fail(PP_ERR_USAGE,
                           "--accept %s: of the checkpoint of --resume, which is missing",
                           o->accept.at[i]);
    if (o->states && o->resume)
        return pp_fail(PP_ERR_USAGE, "--states and --resume both say what state the optimizer has");
    if (o->resume && o->params)
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
        return loss_scale_of(&o->loss_scale, "1", 0, 0);
    const char *rule = o->loss_scale_rule ? o->loss_scale_rule : f16 ? "dynamic" : "1";
    return loss_scale_of(&o->loss_scale, rule, o->loss_scale_window, o->loss_scale_initial);
}

static int is_of_ppsplit(const PpPlan *plan, const char *name)
{
    int is = !strcmp(name, "split") || !strcmp(name, "stages");
    for (int k = 0; k < plan->n_made; k++)
        is |= !strcmp(name, plan->made[k].option);
    return is;
}

PpStatus options_parse(Options *o, int argc, char **argv, const PpPlan *plan)
{
    *o = (Options){.schedule = NULL,
                   .placement = SCHED_PLACE_DEFAULT,
                   .buffers = -1,
                   .on_nonfinite = "stop",
                   .watchdog = 25,
                   .save_timeout = 600,
                   .offload_time = 1,
                   .temperature = 1,
                   .lr = {.schedule = "constant", .decay_ratio = -1},
                   .dp = 1,
                   .bucket = 4 << 20,
                   .unshard = "2",
                   .optim = {
#define NOT_GIVEN(field, option, about) .field = -1,
                       OPTIM_REALS(NOT_GIVEN)}};
    find_folder(o, argv[0]);
    o->argc = argc;
    o->argv = argv;
    OptionName names[N_SPECS + 2];
    for (int i = 0; i < N_SPECS; i++)
        names[i] = (OptionName){specs[i].kind == K_GROUP ? NULL : specs[i].name, specs[i].value, 0};
    names[N_SPECS] = (OptionName){"help", NULL, 'h'};
    names[N_SPECS + 1] = (OptionName){"version", NULL, 0};
    OptionReader r = option_reader(argc, argv, names, N_SPECS + 2);
    int mode = -1;
    for (int k; (k = option_next(&r)) != OPTION_END;) {
        if (is_of_ppsplit(plan, r.unknown)) /* --dtype, which is not short for --dtype-of */
            return pp_fail(PP_ERR_USAGE,
                           "--%s is an option of ppsplit, which wrote this program: split again "
                           "with another one, and make",
                           r.unknown);
        if (k == OPTION_WRONG)
            return pp_fail(PP_ERR_USAGE, "%s", r.wrong);
        if (k == N_SPECS || (mode < 0 && k == OPTION_OPERAND && !strcmp(r.value, "help"))) {
            help(plan);
            exit(0);
        }
        if (k == N_SPECS + 1) {
            printf("%s, a program made by ", plan->model);
            version_print("ppsplit", stdout);
            exit(0);
        }
        if (k >= 0) {
            TRY(option_apply(o, &specs[k], r.value));
            o->given[k] = 1;
            continue;
        }
        if (mode >= 0)
            return pp_fail(PP_ERR_USAGE, "unexpected operand '%s'", r.value);
        for (int i = 0; i < N_MODES; i++)
            if (!strcmp(r.value, modes[i]))
                mode = i;
        if (mode < 0)
            return option_unknown("command", r.value, modes, N_MODES);
    }
    if (mode < 0)
        return pp_fail(PP_ERR_USAGE, "what to do? train, eval, infer, sample, tokens or measure (--help says more)");
    o->samples = mode == MODE_SAMPLE;
    o->mode = o->samples ? MODE_INFER : (Mode)mode;
    o->quiet |= o->log_json && !strcmp(o->log_json, "-");
    TRY(check_checkpoints(o));
    TRY(check_accepted(o, plan));
    epochs_give_steps(o);
    TRY(check_mode(o));
    TRY(check_sampling(o));
    if (o->epochs && o->steps)
        return pp_fail(PP_ERR_USAGE, "--epochs and --steps both say how many steps there are");
    TRY(optim_options(&o->optimizer, &o->optim));
    TRY(check_zero(o));
    TRY(check_offload(o));
    TRY(check_evaluation(o));
    TRY(lr_options(&o->lr));
    if (o->mode == MODE_TRAIN && plan->loss_stage < 0)
        return pp_fail(PP_ERR_MODEL,
                       "%s was split without a loss: it can infer only (ppsplit --loss ...)",
                       plan->model);
    if (o->mode == MODE_EVAL && plan->loss_stage < 0)
        return pp_fail(PP_ERR_MODEL, "%s was split without a loss: there is nothing to evaluate",
                       plan->model);
    TRY(choose_loss_scale(o, plan));
    if (!o->schedule)
        o->schedule = o->mode != MODE_TRAIN     ? "forward-only"
                      : plan->minibatch_rows ? "gpipe"
                                                : "1f1b";
    return PP_OK;
}

int options_next_number(const Options *o, int *i, NumberOption *n)
{
    while (*i < N_SPECS && specs[*i].scope != NUMBERS)
        ++*i;
    if (*i == N_SPECS)
        return 0;
    *n = (NumberOption){specs[*i].name, o->given[*i], kind_of(&specs[*i]) == K_FLAG,
                        option_text(o, &specs[*i])};
    ++*i;
    return 1;
}

int options_next_shared(const Options *o, int *i, NumberOption *n)
{
    while (*i < N_SPECS && (specs[*i].kind == K_GROUP || specs[*i].scope == OWN))
        ++*i;
    if (*i == N_SPECS)
        return 0;
    const Spec *s = &specs[*i];
    char *text = s->scope == GIVEN ? option_names(o, s) : option_text(o, s);
    *n = (NumberOption){s->name, o->given[*i], kind_of(s) == K_FLAG, text};
    ++*i;
    return 1;
}

static void free_pairs(NameFile *list, int n)
{
    for (int i = 0; i < n; i++) {
        union {
            const char *in;
            void *out;
        } any = {list[i].name};
        free(any.out);
    }
    free(list);
}

void options_free(Options *o)
{
    free_pairs(o->data, o->n_data);
    free_pairs(o->output, o->n_output);
    free_pairs(o->tokens, o->n_tokens);
    free_pairs(o->dtype_of, o->n_dtype_of);
    free_pairs(o->mixes, o->n_mixes);
    free_pairs(o->eval_data, o->n_eval_data);
    free_pairs(o->lengths, o->n_lengths);
    free_pairs(o->pads, o->n_pads);
    free_pairs(o->eval_lengths, o->n_eval_lengths);
    free_pairs(o->eval_tokens, o->n_eval_tokens);
    free(o->no_decay.at);
    free(o->init.at);
    free(o->accept.at);
}
