/*
 * options.c - the command line of `ppsplit MODEL.onnx`, `ppsplit ls`, `ppsplit plan` and `ppsplit
 * annotate`: help, and options into what the passes are given.
 */
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "base/cli/options.h"
#include "partition/print/print.h"

static const char usage[] =
    "Usage: ppsplit [OPTION]... MODEL.onnx... -o DIR    split, differentiate, generate\n"
    "  or:  ppsplit ls [OPTION]... MODEL.onnx           list the modules: where one can split\n"
    "  or:  ppsplit plan [OPTION]... MODEL.onnx         find the best way to train it on a "
    "machine\n"
    "  or:  ppsplit schedule NAME|FILE.csv [OPTION]...  generate, verify, simulate, draw a "
    "schedule\n"
    "  or:  ppsplit report OUT [LOG|TRACE]... -o FILE   draw a program and its runs on one page\n"
    "  or:  ppsplit watch LOG [OPTION]...               follow a run in the terminal\n"
    "  or:  ppsplit forecast OUT [OPTION]...            the least time of its step on a GPU\n"
    "  or:  ppsplit merge OUT CHECKPOINT -o M.onnx      put trained weights back into the model\n"
    "  or:  ppsplit annotate [OPTION]... MODEL.onnx -o M.onnx\n"
    "                                                   write the split into the model, or "
    "--check it\n"
    "  or:  ppsplit ops                                 list the operators that are supported\n"
    "  or:  ppsplit help [COMMAND]                      how to use a command\n"
    "Make a pipeline-parallel training program from an ONNX model.\n"
    "\n"
    "Where to cut:\n"
    "      --split=PATH:begin|end  cut before or after a module, a node or a value; several with\n"
    "                              commas; 'h.*:begin' cuts before each module that matches\n"
    "                              (repeatable)\n"
    "      --stages=N              find the best N stages, by estimated times; keeps the points\n"
    "                              of --split\n"
    "      --microbatches=M        with --stages: make a step of M microbatches short (default:\n"
    "                              make the slowest stage fast)\n"
    "      --schedule=NAME, --ranks=P\n"
    "                              with --stages and --memory: count the memory of this schedule\n"
    "                              (default 1f1b) on P ranks (default N)\n"
    "      --memory=BYTES          with --stages: limit each rank's parameters, optimizer and\n"
    "                              stash (K, M, G, T: times 1024)\n"
    "      --rates=LIST|FILE       with --stages: what a rank does in a second:\n"
    "                              products=90e9,link=1e9 (ppsplit(1) lists all)\n"
    "      --costs=TRACE           with --stages: use the times of a run, from its --trace\n"
    "      --costs-split=POINT     how the program of that run was cut, as with --split\n"
    "                              (repeatable)\n"
    "      --multi-use=[NAME=]transmit|replicate\n"
    "                              send a parameter that several stages use from the first of\n"
    "                              them (default), or keep a copy in each\n"
    "      --chunk=INPUT=DIM|replicate\n"
    "                              the batch dimension of an input, or none (default: found in\n"
    "                              the model)\n"
    "      --merge=OUTPUT=DIM|sum|mean\n"
    "                              how to join the microbatches' results of an output (default:\n"
    "                              its rows one after the other; without rows their mean)\n"
    "\n"
    "Divide stages among members:\n"
    "      --tensor=T              run each stage on T ranks, which divide its parameters,\n"
    "                              products and activations\n"
    "      --sequence=N            run each stage on N ranks, which have all its parameters and\n"
    "                              divide the sequences\n"
    "      --expert=N              as --sequence, and divide the experts among them\n"
    "      --chunks=C|AXIS=C[,AXIS=C]\n"
    "                              divide an axis (tensor, sequence, expert) into C chunks, T\n"
    "                              times a power of two (default T); programs with the same C\n"
    "                              have the same bits for every T\n"
    "      --shard=PATTERN=DIM[/GROUPS]|replicate\n"
    "                              say along which dimension to divide parameters (default: as\n"
    "                              sends the fewest bytes; repeatable)\n"
    "      --keep-parts            save memory: each member keeps only a part of norms, dropout\n"
    "                              and sums between divided products\n"
    "\n";
static const char usage_more[] =
    "Training:\n"
    "      "
    "--loss=mse|l1|cross_entropy[:AXIS]|nll[:AXIS]|bce_with_logits|output:NAME|model:FILE.onnx\n"
    "                              the loss; adds an input `target'; without a loss the program\n"
    "                              only infers\n"
    "      --loss-reduction=mean|sum\n"
    "                              over the whole minibatch (default mean)\n"
    "      --loss-over=microbatch|minibatch[=ROWS]\n"
    "                              minibatch: compute the loss once a step, from the outputs of\n"
    "                              all microbatches, for ROWS rows (default: the model's)\n"
    "      --freeze=PATTERN        parameters that do not train (repeatable)\n"
    "      --train=PATTERN         parameters that train in spite of --freeze (repeatable)\n"
    "      --dropout=as-written|train\n"
    "                              a Dropout without a training mode, as in PyTorch's attention:\n"
    "                              never drop, or always in training (default: as the model's\n"
    "                              other Dropouts)\n"
    "      --stop-gradient=NAME    send no gradient back through this value, or this node's\n"
    "                              results, as detach() does; * and ? are allowed (repeatable)\n"
    "\n"
    "The model:\n"
    "      --bind=NAME=N           the size of a symbolic dimension in one microbatch, or the\n"
    "                              value of an input with one element; NAME=1..N: any size up to\n"
    "                              N, each microbatch its own; NAME=4*OTHER: a multiple of what\n"
    "                              OTHER is bound to (repeatable)\n"
    "      --rows=N                rows of a microbatch (default: the model's)\n"
    "      --dtype=f32|bf16|f16    compute products in this type; parameters and sums stay f32\n"
    "                              (default: the model's)\n"
    "      --ops=FILE              a table of your own operations and their C functions, see\n"
    "                              docs/custom.md (repeatable)\n"
    "      --params-from=[MODULE=]FILE\n"
    "                              take the parameters of the model, or of a module, from\n"
    "                              FILE.safetensors or its index .json (repeatable)\n"
    "      --limit=WHAT=N          raise a limit: bytes, messages, depth, nodes, unpacked\n"
    "\n"
    "Output:\n"
    "  -o, --output=DIR            the folder to write\n"
    "      --target=cpu|cuda       what the stages run on: stageN.c, stageN.cu, or both\n"
    "                              (repeatable; default cpu)\n"
    "      --params=copy|link|none copy the weights (default), refer to the model's files, or\n"
    "                              write none: the program then begins with --init, --params or\n"
    "                              --resume\n"
    "      --profile               make a program for CPUs that times each step of its code; its\n"
    "                              --trace has the model's nodes, for --costs\n"
    "      --dump=PASS             print the graph after import, loss, autocast, partition,\n"
    "                              autodiff, stash, divide, or all\n"
    "  -q, --quiet                 no report on standard output\n"
    "  -h, --help                  this text; `ppsplit help COMMAND' explains a command\n"
    "      --version               the version and the licence\n"
    "\n"
    "Exit status: 0 ok, 1 the model is refused, 2 usage, 3 input, output or memory.\n"
    "\n"
    "Examples:\n"
    "  ppsplit model.onnx --split layers.1:begin --loss cross_entropy -o out && make -C out\n"
    "  ppsplit gpt2.onnx --bind batch=4 --stages 3 --loss cross_entropy -o out\n";

enum {
    OPT_SPLIT,
    OPT_STAGES,
    OPT_MICROBATCHES,
    OPT_SCHEDULE,
    OPT_RANKS,
    OPT_MEMORY,
    OPT_RATES,
    OPT_COSTS,
    OPT_COSTS_SPLIT,
    OPT_MULTI,
    OPT_CHUNK,
    OPT_MERGE,
    OPT_TENSOR,
    OPT_SEQUENCE,
    OPT_EXPERT,
    OPT_CHUNKS,
    OPT_SHARD,
    OPT_KEEP_PARTS,
    OPT_LOSS,
    OPT_REDUCTION,
    OPT_LOSS_OVER,
    OPT_FREEZE,
    OPT_TRAIN,
    OPT_DROPOUT,
    OPT_STOP,
    OPT_OPS,
    OPT_BIND,
    OPT_ROWS,
    OPT_DTYPE,
    OPT_PARAMS_FROM,
    OPT_LIMIT,
    OPT_OUTPUT,
    OPT_TARGET,
    OPT_PARAMS,
    OPT_PROFILE,
    OPT_DUMP,
    OPT_QUIET,
    OPT_HELP,
    OPT_VERSION,
    /* of ls alone */
    OPT_PARAMETERS,
    /* of plan alone */
    OPT_MACHINE,
    OPT_THREADS,
    OPT_BATCH,
    OPT_DP,
    OPT_OPTIMIZER,
    OPT_RECOMPUTE,
    OPT_OFFLOAD,
    OPT_CSV,
    /* of annotate alone */
    OPT_CHECK,
    OPT_VERBOSE
};

static const char ls_usage[] =
    "Usage: ppsplit ls [OPTION]... MODEL.onnx...\n"
    "List the modules with their parameters, operations and activations: where one can split.\n"
    "\n"
    "It takes the options of `ppsplit --help' that say how the model is read: --bind, --chunk,\n"
    "--params-from, --limit, --freeze, --train.  Nothing is written.\n"
    "\n"
    "      --parameters            list the arrays of floats instead: shape, whether it trains,\n"
    "                              and why\n"
    "\n"
    "Examples:\n"
    "  ppsplit ls model.onnx\n"
    "  ppsplit ls gpt2.onnx --bind batch=4\n"
    "  ppsplit ls --parameters model.onnx\n";

static const OptionName options[] = {
    [OPT_SPLIT] = {"split", "PATH:begin|end", 0},
    [OPT_STAGES] = {"stages", "N", 0},
    [OPT_MICROBATCHES] = {"microbatches", "M", 0},
    [OPT_SCHEDULE] = {"schedule", "NAME", 0},
    [OPT_RANKS] = {"ranks", "P", 0},
    [OPT_MEMORY] = {"memory", "BYTES", 0},
    [OPT_RATES] = {"rates", "LIST|FILE", 0},
    [OPT_COSTS] = {"costs", "TRACE", 0},
    [OPT_COSTS_SPLIT] = {"costs-split", "POINT", 0},
    [OPT_MULTI] = {"multi-use", "[NAME=]transmit|replicate", 0},
    [OPT_CHUNK] = {"chunk", "INPUT=DIM|replicate", 0},
    [OPT_MERGE] = {"merge", "OUTPUT=DIM|sum|mean", 0},
    [OPT_TENSOR] = {"tensor", "T", 0},
    [OPT_SEQUENCE] = {"sequence", "N", 0},
    [OPT_EXPERT] = {"expert", "N", 0},
    [OPT_CHUNKS] = {"chunks", "C", 0},
    [OPT_SHARD] = {"shard", "PATTERN=DIM|replicate", 0},
    [OPT_KEEP_PARTS] = {"keep-parts", NULL, 0},
    [OPT_LOSS] = {"loss", "LOSS", 0},
    [OPT_REDUCTION] = {"loss-reduction", "mean|sum", 0},
    [OPT_LOSS_OVER] = {"loss-over", "microbatch|minibatch[=ROWS]", 0},
    [OPT_FREEZE] = {"freeze", "PATTERN", 0},
    [OPT_TRAIN] = {"train", "PATTERN", 0},
    [OPT_DROPOUT] = {"dropout", "as-written|train", 0},
    [OPT_STOP] = {"stop-gradient", "NAME", 0},
    [OPT_OPS] = {"ops", "FILE", 0},
    [OPT_BIND] = {"bind", "NAME=N", 0},
    [OPT_ROWS] = {"rows", "N", 0},
    [OPT_DTYPE] = {"dtype", "f32|bf16|f16", 0},
    [OPT_PARAMS_FROM] = {"params-from", "[MODULE=]FILE", 0},
    [OPT_LIMIT] = {"limit", "WHAT=N", 0},
    [OPT_OUTPUT] = {"output", "DIR", 'o'},
    [OPT_TARGET] = {"target", "cpu|cuda", 0},
    [OPT_PARAMS] = {"params", "copy|link|none", 0},
    [OPT_PROFILE] = {"profile", NULL, 0},
    [OPT_DUMP] = {"dump", "PASS", 0},
    [OPT_QUIET] = {"quiet", NULL, 'q'},
    [OPT_HELP] = {"help", NULL, 'h'},
    [OPT_VERSION] = {"version", NULL, 0},
    [OPT_PARAMETERS] = {"parameters", NULL, 0},
    [OPT_MACHINE] = {"machine", "FILE", 0},
    [OPT_THREADS] = {"threads", "N", 0},
    [OPT_BATCH] = {"batch", "ROWS", 0},
    [OPT_DP] = {"dp", "N", 0},
    [OPT_OPTIMIZER] = {"optimizer", "NAME", 0},
    [OPT_RECOMPUTE] = {"recompute", "never|cheap|except-last|always", 0},
    [OPT_OFFLOAD] = {"offload", "never|stash", 0},
    [OPT_CSV] = {"csv", "FILE", 0},
    [OPT_CHECK] = {"check", NULL, 0},
    [OPT_VERBOSE] = {"verbose", NULL, 'v'},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static void set_members(MeshOptions *m, MeshAxis axis, const char *arg)
{
    m->members[axis] = (int)given_number(mesh_option[axis] + 2, arg, MESH_MOST);
}

/* C, or AXIS=C[,AXIS=C]; those without a name are in `any`. */
static void set_chunks(Options *o, const char *arg)
{
    char *list = arena_strdup(o->arena, arg), *rest = list;
    for (char *word; (word = strsep(&rest, ","));) {
        char *eq = strchr(word, '=');
        if (eq)
            *eq = 0;
        int *to = &o->chunks;
        if (eq)
            to = &o->mesh.chunks[ONE_OF("ppsplit", "chunks", word, "tensor", "sequence", "expert")];
        if (*to)
            bad_usage("ppsplit", "--chunks: %s has two numbers", eq ? word : "every axis");
        *to = (int)given_number("chunks", eq ? eq + 1 : word, MESH_MOST);
    }
}

static void set_limit(Limits *l, const char *arg)
{
    const char *eq = strchr(arg, '=');
    char *end = NULL;
    errno = 0;
    unsigned long long n = eq ? strtoull(eq + 1, &end, 10) : 0;
    if (!eq || end == eq + 1 || *end || errno)
        bad_usage("ppsplit", "--limit wants WHAT=N, not '%s'", arg);
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)(eq - arg), arg);
    switch (ONE_OF("ppsplit", "limit", word, "bytes", "messages", "depth", "nodes", "unpacked")) {
    case 0: l->file_bytes = n; break;
    case 1: l->messages = n; break;
    case 2: l->depth = (uint32_t)n; break;
    case 3: l->nodes = (uint32_t)n; break;
    default: l->unpacked_bytes = n; break;
    }
}

static int64_t row_count(const char *option, const char *arg)
{
    enum { MOST = 1 << 30 };
    char *end;
    errno = 0;
    long long n = strtoll(arg, &end, 10);
    if (end == arg || *end || errno || n < 1 || n > MOST)
        bad_usage("ppsplit", "--%s: '%s' is not a number of rows", option, arg);
    return n;
}

static void set_loss_over(Options *o, const char *arg)
{
    const char *eq = strchr(arg, '=');
    char word[16];
    snprintf(word, sizeof word, "%.*s", eq ? (int)(eq - arg) : (int)sizeof word - 1, arg);
    o->loss.whole = ONE_OF("ppsplit", "loss-over", word, "microbatch", "minibatch") == 1;
    o->minibatch = 0;
    if (eq && !o->loss.whole)
        bad_usage("ppsplit", "--loss-over microbatch takes no number of rows; use --rows");
    if (eq)
        o->minibatch = row_count("loss-over minibatch", eq + 1);
}

static const char *usage_of(Command c)
{
    static const char *const of[] = {usage, ls_usage, plan_usage, annotate_usage};
    return of[c];
}

static void set_params(Options *o, uint32_t form)
{
    enum { COPY, LINK, NONE_AT_ALL };
    o->codegen.link = form == LINK;
    o->codegen.bare = o->import.limits.absent = form == NONE_AT_ALL;
}

static void read_option(Options *o, int option, const char *arg)
{
    switch (option) {
    case OPT_SPLIT: vec_push(o->arena, &o->partition.split, arg); break;
    case OPT_STAGES: o->automatic.stages = arg; break;
    case OPT_MICROBATCHES: o->automatic.microbatches = arg; break;
    case OPT_SCHEDULE: o->automatic.schedule = arg; break;
    case OPT_RANKS: o->automatic.ranks = arg; break;
    case OPT_MEMORY: o->automatic.memory = arg; break;
    case OPT_RATES: vec_push(o->arena, &o->automatic.rates, arg); break;
    case OPT_COSTS: o->automatic.costs = arg; break;
    case OPT_COSTS_SPLIT:
        vec_push(o->arena, &o->partition.automatic.measured_split, arg);
        break;
    case OPT_MULTI: vec_push(o->arena, &o->partition.multi_use, arg); break;
    case OPT_CHUNK:
        vec_push(o->arena, &o->partition.batch.chunk, arg);
        vec_push(o->arena, &o->import.chunk, arg);
        break;
    case OPT_MERGE: vec_push(o->arena, &o->partition.batch.merge, arg); break;
    case OPT_LOSS:
        o->loss.loss = arg;
        o->import.training = true;
        break;
    case OPT_REDUCTION:
        o->loss.sum = ONE_OF("ppsplit", "loss-reduction", arg, "mean", "sum") == 1;
        break;
    case OPT_LOSS_OVER: set_loss_over(o, arg); break;
    case OPT_FREEZE: vec_push(o->arena, &o->import.freeze, arg); break;
    case OPT_TENSOR: set_members(&o->mesh, MESH_TENSOR, arg); break;
    case OPT_SEQUENCE: set_members(&o->mesh, MESH_SEQUENCE, arg); break;
    case OPT_EXPERT: set_members(&o->mesh, MESH_EXPERT, arg); break;
    case OPT_CHUNKS: set_chunks(o, arg); break;
    case OPT_SHARD: vec_push(o->arena, &o->mesh.shard, arg); break;
    case OPT_KEEP_PARTS: o->mesh.parts = true; break;
    case OPT_TRAIN: vec_push(o->arena, &o->import.train, arg); break;
    case OPT_DROPOUT: {
        static const DropoutMode modes[] = {DROPOUT_AS_WRITTEN, DROPOUT_TRAIN};
        o->import.dropout = modes[ONE_OF("ppsplit", "dropout", arg, "as-written", "train")];
        break;
    }
    case OPT_STOP: vec_push(o->arena, &o->import.stop, arg); break;
    case OPT_OPS: vec_push(o->arena, &o->ops, arg); break;
    case OPT_BIND: vec_push(o->arena, &o->import.bind, arg); break;
    case OPT_ROWS: o->rows = row_count("rows", arg); break;
    case OPT_DTYPE: {
        static const Dtype types[] = {DT_F32, DT_BF16, DT_F16};
        o->dtype = types[ONE_OF("ppsplit", "dtype", arg, "f32", "bf16", "f16")];
        break;
    }
    case OPT_PARAMS_FROM: vec_push(o->arena, &o->import.params_from, arg); break;
    case OPT_LIMIT: set_limit(&o->import.limits, arg); break;
    case OPT_OUTPUT: o->codegen.dir = arg; break;
    case OPT_TARGET:
        *(ONE_OF("ppsplit", "target", arg, "cpu", "cuda") == 0 ? &o->codegen.cpu
                                                                : &o->codegen.cuda) = true;
        break;
    case OPT_PARAMS: set_params(o, ONE_OF("ppsplit", "params", arg, "copy", "link", "none")); break;
    case OPT_PROFILE: o->codegen.profile = true; break;
    case OPT_DUMP: o->dump = arg; break;
    case OPT_QUIET: o->quiet = true; break;
    case OPT_HELP:
        printf("%s%s%s", usage_of(o->command), o->command == COMMAND_SPLIT ? usage_more : "",
               report_to);
        exit(0);
    case OPT_VERSION: version_print("ppsplit", stdout); exit(0);
    case OPT_PARAMETERS: o->parameters = o->import.training = true; break;
    case OPT_MACHINE: o->machine = arg; break;
    case OPT_THREADS: o->threads = arg; break;
    case OPT_BATCH: o->batch = arg; break;
    case OPT_DP: o->dp = arg; break;
    case OPT_OPTIMIZER: o->optimizer = arg; break;
    case OPT_RECOMPUTE:
        ONE_OF("ppsplit plan", "recompute", arg, "never", "cheap", "except-last", "always");
        o->recompute = arg;
        break;
    case OPT_OFFLOAD:
        ONE_OF("ppsplit plan", "offload", arg, "never", "stash");
        o->offload = arg;
        break;
    case OPT_CSV: o->csv = arg; break;
    case OPT_CHECK: o->check = true; break;
    case OPT_VERBOSE: o->verbose = true; break;
    default: break;
    }
}

/* Does it say what a plan decides, or plan itself? */
static bool is_planned(int option)
{
    switch (option) {
    case OPT_SPLIT:
    case OPT_STAGES:
    case OPT_MICROBATCHES:
    case OPT_SCHEDULE:
    case OPT_RANKS:
    case OPT_MEMORY:
    case OPT_RATES:
    case OPT_COSTS:
    case OPT_COSTS_SPLIT:
    case OPT_ROWS:
    case OPT_TENSOR:
    case OPT_SEQUENCE:
    case OPT_EXPERT:
    case OPT_KEEP_PARTS:
    case OPT_OUTPUT:
    case OPT_DUMP: return true;
    default: return option >= OPT_MACHINE;
    }
}

/* Has the command this option? */
static bool has_option(Command c, int option)
{
    if (option >= OPT_CHECK)
        return c == COMMAND_ANNOTATE;
    if (option >= OPT_MACHINE)
        return c == COMMAND_PLAN;
    return option != OPT_PARAMETERS || c == COMMAND_LS || c == COMMAND_PLAN;
}

/* For the command that makes a plan's program. */
static void note_word(Options *o, int option, const char *arg)
{
    const char *more;
    if (option == OPTION_OPERAND)
        more = shell_word(o->arena, arg);
    else if (is_planned(option))
        return;
    else
        more = arena_printf(o->arena, "--%s%s%s", options[option].name, arg ? " " : "",
                            arg ? shell_word(o->arena, arg) : "");
    o->words = o->words ? arena_printf(o->arena, "%s %s", o->words, more) : more;
}

/* Who takes an option that this command has not; NULL: nobody. */
static const char *taken_by(const char *name)
{
    static const char *const run[] = {"data", "tokens", "steps", "epochs", "lr", "checkpoint",
                                      "resume"};
    if (!strcmp(name, "measure"))
        return "a program measures the machine that it runs on, DIR/pipeline measure >FILE, for "
               "`ppsplit plan --machine=FILE'";
    for (size_t i = 0; i < sizeof run / sizeof *run; i++)
        if (!strcmp(name, run[i]))
            return "it is an option of the program, DIR/pipeline";
    if (!strcmp(name, options[OPT_PARAMETERS].name))
        return "it is an option of `ppsplit ls'";
    for (int i = OPT_MACHINE; i < N_OPTIONS; i++)
        if (i >= OPT_CHECK && !strcmp(name, options[i].name))
            return "it is an option of `ppsplit annotate'";
        else if (!strcmp(name, options[i].name))
            return i == OPT_MACHINE || i == OPT_CSV
                       ? "it is an option of `ppsplit plan'"
                       : "it is an option of `ppsplit plan' and of the program, DIR/pipeline";
    return NULL;
}

static _Noreturn void wrong_option(Command c, const OptionReader *r)
{
    static const char *const command[] = {"ppsplit", "ppsplit ls", "ppsplit plan", "ppsplit annotate"};
    const char *taken = taken_by(r->unknown);
    if (taken)
        bad_usage(command[c], "unrecognized option '--%s'; %s", r->unknown, taken);
    bad_usage(command[c], "%s", r->wrong);
}

/* Of each axis members and chunks, one of which may be left out; both 1: there is no such axis; all 0:
 * the model's annotations may have one.  Chunks without a name are those of every axis that is
 * given, or of --tensor. */
static void mesh_complete(Options *o)
{
    MeshOptions *m = &o->mesh;
    bool given = false;
    for (int x = 0; x < MESH_AXES; x++)
        given |= m->members[x] || m->chunks[x];
    if (!given && !o->chunks)
        return;
    for (int x = 0; x < MESH_AXES; x++) {
        const bool is = m->members[x] || m->chunks[x] || (!given && x == MESH_TENSOR);
        if (is && !m->chunks[x])
            m->chunks[x] = o->chunks;
        m->members[x] = m->members[x] ? m->members[x] : 1;
        m->chunks[x] = m->chunks[x] ? m->chunks[x] : m->members[x];
        int each = m->chunks[x] / m->members[x];
        if (m->chunks[x] % m->members[x] || each & (each - 1))
            bad_usage("ppsplit", "--chunks %d with %s %d: it must be %d times a power of two",
                      m->chunks[x], mesh_option[x], m->members[x], m->members[x]);
    }
    if (!mesh_has(m, MESH_TENSOR) && m->shard.n && (mesh_has(m, MESH_SEQUENCE) || mesh_has(m, MESH_EXPERT)))
        bad_usage("ppsplit", "--shard with %s: its members divide no parameters but experts",
                  mesh_option[mesh_has(m, MESH_EXPERT) ? MESH_EXPERT : MESH_SEQUENCE]);
}

void read_command_line(Options *o, int argc, char **argv)
{
    o->import.limits = limits_default();
    o->import.gradient = grad_nodes;
    bool plans = o->command == COMMAND_PLAN;
    OptionName table[N_OPTIONS];
    for (int i = 0; i < N_OPTIONS; i++)
        table[i] = has_option(o->command, i) ? options[i] : (OptionName){0};
    OptionReader r = option_reader(argc, argv, table, N_OPTIONS);
    for (int k; (k = option_next(&r)) != OPTION_END;) {
        if (k == OPTION_WRONG)
            wrong_option(o->command, &r);
        if (k == OPT_PARAMETERS && plans)
            bad_usage("ppsplit plan", "%s", "--parameters is an option of `ppsplit ls'");
        if (k == OPTION_OPERAND)
            vec_push(o->arena, &o->model, r.value);
        else
            read_option(o, k, r.value);
        if (plans)
            note_word(o, k, r.value);
    }
    mesh_complete(o);
    if (!o->codegen.cuda)
        o->codegen.cpu = true;
    if (o->codegen.profile && !o->codegen.cpu)
        bad_usage("ppsplit", "--profile needs --target cpu: it times the CPU's program");
}
