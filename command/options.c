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
    "  or:  ppsplit forecast OUT [OPTION]...            the least time of its step on a GPU\n"
    "  or:  ppsplit merge OUT CHECKPOINT -o M.onnx      put trained weights back into the model\n"
    "  or:  ppsplit annotate [OPTION]... MODEL.onnx -o M.onnx\n"
    "                                                   write the split into the model, or "
    "--check it\n"
    "  or:  ppsplit ops                                 list the operators that are supported\n"
    "  or:  ppsplit help [COMMAND]                      how to use a command\n"
    "Make a pipeline-parallel training program from an ONNX model.\n";
static const char usage_end[] =
    "\n"
    "Exit status: 0 ok, 1 the model is refused, 2 usage, 3 input, output or memory.\n"
    "\n"
    "Examples:\n"
    "  ppsplit model.onnx --split layers.1:begin --loss cross_entropy -o out && make -C out\n"
    "  ppsplit gpt2.onnx --bind batch=4 --stages 3 --loss cross_entropy -o out\n";

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

static void set_members(Options *o, MeshAxis axis, const char *arg)
{
    o->mesh.members[axis] = (int)given_number(mesh_option[axis] + 2, arg, MESH_MOST);
}
static void set_tensor(Options *o, const char *arg) { set_members(o, MESH_TENSOR, arg); }
static void set_sequence(Options *o, const char *arg) { set_members(o, MESH_SEQUENCE, arg); }
static void set_expert(Options *o, const char *arg) { set_members(o, MESH_EXPERT, arg); }

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

static void set_limit(Options *o, const char *arg)
{
    Limits *l = &o->import.limits;
    const char *eq = strchr(arg, '=');
    char *end = NULL;
    errno = 0;
    unsigned long long n = eq ? strtoull(eq + 1, &end, 10) : 0;
    if (!eq || end == eq + 1 || *end || errno)
        bad_usage("ppsplit", "--limit wants WHAT=N, not '%s'", arg);
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)(eq - arg), arg);
    const uint32_t what =
        ONE_OF("ppsplit", "limit", word, "bytes", "messages", "depth", "nodes", "unpacked");
    if ((what == 2 || what == 3) && n > UINT32_MAX)
        bad_usage("ppsplit", "--limit %s: at most %u", arg, UINT32_MAX);
    switch (what) {
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

static void set_params(Options *o, const char *arg)
{
    enum { COPY, LINK, NONE_AT_ALL };
    const uint32_t form = ONE_OF("ppsplit", "params", arg, "copy", "link", "none");
    o->codegen.link = form == LINK;
    o->codegen.bare = o->import.limits.absent = form == NONE_AT_ALL;
}

static void set_chunk(Options *o, const char *arg)
{
    vec_push(o->arena, &o->partition.batch.chunk, arg);
    vec_push(o->arena, &o->import.chunk, arg);
}

static void set_loss(Options *o, const char *arg)
{
    o->loss.loss = arg;
    o->import.training = true;
}

static void set_reduction(Options *o, const char *arg)
{
    o->loss.sum = ONE_OF("ppsplit", "loss-reduction", arg, "mean", "sum") == 1;
}

static void set_dropout(Options *o, const char *arg)
{
    static const DropoutMode modes[] = {DROPOUT_AS_WRITTEN, DROPOUT_TRAIN};
    o->import.dropout = modes[ONE_OF("ppsplit", "dropout", arg, "as-written", "train")];
}

static void set_rows(Options *o, const char *arg) { o->rows = row_count("rows", arg); }

static void set_dtype(Options *o, const char *arg)
{
    static const Dtype types[] = {DT_F32, DT_BF16, DT_F16};
    o->dtype = types[ONE_OF("ppsplit", "dtype", arg, "f32", "bf16", "f16")];
}

static void set_target(Options *o, const char *arg)
{
    bool *const of[] = {&o->codegen.cpu, &o->codegen.cuda};
    *of[ONE_OF("ppsplit", "target", arg, "cpu", "cuda")] = true;
}

static void set_parameters(Options *o, const char *arg)
{
    (void)arg;
    o->parameters = o->import.training = o->import.listing = true;
}

static void set_recompute(Options *o, const char *arg)
{
    ONE_OF("ppsplit plan", "recompute", arg, "never", "cheap", "except-last", "always");
    o->plan.recompute = arg;
}

static void set_offload(Options *o, const char *arg)
{
    ONE_OF("ppsplit plan", "offload", arg, "never", "stash");
    o->plan.offload = arg;
}

static void set_zero(Options *o, const char *arg)
{
    ONE_OF("ppsplit plan", "zero", arg, "0", "1", "2", "3");
    o->plan.zero = arg;
}

static void set_lengths(Options *o, const char *arg)
{
    SchedError e;
    if (sched_rows_add(&o->plan.data, arg, &e))
        bad_usage("ppsplit plan", "%s", e.text);
}

static void set_by_length(Options *o, const char *arg)
{
    o->plan.data.by_length = row_count("by-length", arg);
}

static void set_shuffle(Options *o, const char *arg)
{
    o->plan.data.shuffle = sched_rows_seed(&o->plan.data, arg);
    if (!o->plan.data.shuffle)
        bad_usage("ppsplit plan", "--shuffle: '%s' is no seed", arg);
}

static void show_version(Options *o, const char *arg)
{
    (void)o, (void)arg;
    version_print("ppsplit", stdout);
    exit(0);
}

static void show_help(Options *o, const char *arg);

/* ---- the table ---- */

/* Whose an option is: 0: all commands have it; else these; RUN_TOO: so has the program. */
enum {
    OF_LS = 1 << COMMAND_LS,
    OF_PLAN = 1 << COMMAND_PLAN,
    OF_ANNOTATE = 1 << COMMAND_ANNOTATE,
    RUN_TOO = 1 << 8
};

/* at: where Options have its text, the list that it is added to, or what becomes true; or set */
typedef struct {
    OptionName is;
    enum { TEXT_IS, LIST_IS, TRUE_IS, SET_BY } how;
    size_t at;
    void (*set)(Options *o, const char *arg);
    unsigned of;
    bool planned; /* it says what a plan decides, or plan itself */
} OptionRow;
#define TEXT(field) .how = TEXT_IS, .at = offsetof(Options, field)
#define LIST(field) .how = LIST_IS, .at = offsetof(Options, field)
#define TRUE(field) .how = TRUE_IS, .at = offsetof(Options, field)
#define SET(by) .how = SET_BY, .set = set_##by

// clang-format off
static const OptionRow options[] = {
    {.is = {.help = "Where to cut:"}},
    {{"split", "PATH:begin|end", 0,
      "cut before or after a module, a node or a value; several with commas; 'h.*:begin' cuts "
      "before each module that matches (repeatable)"}, LIST(partition.split), .planned = true},
    {{"stages", "N", 0,
      "find the best N stages, by estimated times; keeps the points of --split"},
     TEXT(automatic.stages), .planned = true},
    {{"microbatches", "M", 0,
      "with --stages: make a step of M microbatches short (default: make the slowest stage fast)"},
     TEXT(automatic.microbatches), .planned = true},
    {{"schedule", "NAME", 0,
      "with --stages and --memory: count the memory of this schedule (default 1f1b), on --ranks"},
     TEXT(automatic.schedule), .planned = true},
    {{"ranks", "P", 0,
      "with --stages and --memory: ranks of the schedule (default: as many as stages)"},
     TEXT(automatic.ranks), .planned = true},
    {{"memory", "BYTES", 0,
      "with --stages: limit each rank's parameters, optimizer and stash (K, M, G, T: times 1024)"},
     TEXT(automatic.memory), .planned = true},
    {{"rates", "LIST|FILE", 0,
      "with --stages: what a rank does in a second: products=90e9,link=1e9 (ppsplit(1) lists all)"},
     LIST(automatic.rates), .planned = true},
    {{"costs", "TRACE", 0,
      "with --stages: use the times of a run, from its --trace"},
     TEXT(automatic.costs), .planned = true},
    {{"costs-split", "POINT", 0,
      "how the program of that run was cut, as with --split (repeatable)"},
     LIST(partition.automatic.measured_split), .planned = true},
    {{"multi-use", "[NAME=]transmit|replicate", 0,
      "send a parameter that several stages use from the first of them (default), or keep a copy "
      "in each"}, LIST(partition.multi_use)},
    {{"chunk", "INPUT=DIM|replicate", 0,
      "the batch dimension of an input, or none (default: found in the model)"}, SET(chunk)},
    {{"merge", "OUTPUT=DIM|sum|mean", 0,
      "how to join the microbatches' results of an output (default: its rows one after the other; "
      "without rows their mean)"}, LIST(partition.batch.merge)},
    {.is = {.help = "Divide stages among members:"}},
    {{"tensor", "T", 0,
      "run each stage on T ranks, which divide its parameters, products and activations"},
     SET(tensor), .planned = true},
    {{"sequence", "N", 0,
      "run each stage on N ranks, which have all its parameters and divide the sequences"},
     SET(sequence), .planned = true},
    {{"expert", "N", 0,
      "as --sequence, and divide the experts among them"}, SET(expert), .planned = true},
    {{"chunks", "C|AXIS=C[,AXIS=C]", 0,
      "divide an axis (tensor, sequence, expert) into C chunks, T times a power of two (default "
      "T); programs with the same C have the same bits for every T"}, SET(chunks)},
    {{"shard", "PATTERN=DIM[/GROUPS]|replicate", 0,
      "say along which dimension to divide parameters (default: as sends the fewest bytes; "
      "repeatable)"}, LIST(mesh.shard)},
    {{"keep-parts", NULL, 0,
      "save memory: what members gather for a product is gathered once more in backward, not kept"},
     TRUE(mesh.parts), .planned = true},
    {.is = {.help = "Training:"}},
    {{"loss",
      "mse|l1|cross_entropy[:AXIS]|nll[:AXIS]|bce_with_logits|output:NAME|model:FILE.onnx", 0,
      "the loss; adds an input `target'; without a loss the program only infers"}, SET(loss)},
    {{"loss-reduction", "mean|sum", 0, "over the whole minibatch (default mean)"}, SET(reduction)},
    {{"loss-over", "microbatch|minibatch[=ROWS]", 0,
      "minibatch: compute the loss once a step, from the outputs of all microbatches, for ROWS "
      "rows (default: the model's)"}, SET(loss_over)},
    {{"freeze", "PATTERN", 0, "parameters that do not train (repeatable)"}, LIST(import.freeze)},
    {{"train", "PATTERN", 0,
      "parameters that train in spite of --freeze (repeatable)"}, LIST(import.train)},
    {{"dropout", "as-written|train", 0,
      "a Dropout without a training mode, as in PyTorch's attention: never drop, or always in "
      "training (default: as the model's other Dropouts)"}, SET(dropout)},
    {{"stop-gradient", "NAME", 0,
      "send no gradient back through this value, or this node's results, as detach() does; * and ? "
      "are allowed (repeatable)"}, LIST(import.stop)},
    {.is = {.help = "The model:"}},
    {{"bind", "NAME=N", 0,
      "the size of a symbolic dimension in one microbatch, or the value of an input with one "
      "element; NAME=1..N: any size up to N, each microbatch its own; NAME=4*OTHER: a multiple of "
      "what OTHER is bound to (repeatable)"}, LIST(import.bind)},
    {{"rows", "N", 0, "rows of a microbatch (default: the model's)"}, SET(rows), .planned = true},
    {{"dtype", "f32|bf16|f16", 0,
      "compute products in this type; parameters and sums stay f32 (default: the model's)"},
     SET(dtype)},
    {{"ops", "FILE", 0,
      "a table of your own operations and their C functions, see docs/custom.md (repeatable)"},
     LIST(ops)},
    {{"params-from", "[MODULE=]FILE", 0,
      "take the parameters of the model, or of a module, from FILE.safetensors or its index .json "
      "(repeatable)"}, LIST(import.params_from)},
    {{"limit", "WHAT=N", 0, "raise a limit: bytes, messages, depth, nodes, unpacked"}, SET(limit)},
    {.is = {.help = "Output:"}},
    {{"output", "DIR", 'o', "the folder to write"}, TEXT(codegen.dir), .planned = true},
    {{"target", "cpu|cuda", 0,
      "what the stages run on: stageN.c, stageN.cu, or both (repeatable; default cpu)"},
     SET(target)},
    {{"params", "copy|link|none", 0,
      "copy the weights (default), refer to the model's files, or write none: the program then "
      "begins with --init, --params or --resume"}, SET(params)},
    {{"profile", NULL, 0,
      "make a program for CPUs that times each step of its code; its --trace has the model's "
      "nodes, for --costs"}, TRUE(codegen.profile)},
    {{"dump", "PASS", 0,
      "print the graph after import, loss, autocast, attention, mesh, partition, autodiff, stash, "
      "divide, or all"},
     TEXT(dump), .planned = true},
    {{"quiet", NULL, 'q', "no report on standard output"}, TRUE(quiet)},
    {{"help", NULL, 'h',
      "this text; `ppsplit help COMMAND' explains a command"}, .how = SET_BY, .set = show_help},
    {{"version", NULL, 0, "the version and the licence"}, .how = SET_BY, .set = show_version},
    {{"parameters", NULL, 0, NULL}, SET(parameters), OF_LS},
    {{"machine", "FILE", 0, NULL}, TEXT(plan.machine), .of = OF_PLAN, .planned = true},
    {{"threads", "N", 0, NULL}, TEXT(plan.threads), .of = OF_PLAN | RUN_TOO, .planned = true},
    {{"batch", "ROWS", 0, NULL}, TEXT(plan.batch), .of = OF_PLAN | RUN_TOO, .planned = true},
    {{"dp", "N", 0, NULL}, TEXT(plan.dp), .of = OF_PLAN | RUN_TOO, .planned = true},
    {{"optimizer", "NAME", 0, NULL},
     TEXT(plan.optimizer), .of = OF_PLAN | RUN_TOO, .planned = true},
    {{"recompute", "never|cheap|except-last|always", 0, NULL},
     SET(recompute), OF_PLAN | RUN_TOO, true},
    {{"offload", "never|stash", 0, NULL}, SET(offload), OF_PLAN | RUN_TOO, true},
    {{"rank-stages", "N", 0, NULL}, TEXT(plan.rank_stages), .of = OF_PLAN, .planned = true},
    {{"microbatch-rows", "N", 0, NULL}, TEXT(plan.microbatch_rows), .of = OF_PLAN, .planned = true},
    {{"zero", "0|1|2|3", 0, NULL}, SET(zero), OF_PLAN | RUN_TOO, true},
    {{"lengths", "NAME=FILE.npy", 0, NULL}, SET(lengths), OF_PLAN | RUN_TOO, true},
    {{"by-length", "STEPS", 0, NULL}, SET(by_length), OF_PLAN | RUN_TOO, true},
    {{"shuffle", "SEED", 0, NULL}, SET(shuffle), OF_PLAN | RUN_TOO, true},
    {{"csv", "FILE", 0, NULL}, TEXT(plan.csv), .of = OF_PLAN, .planned = true},
    {{"check", NULL, 0, NULL}, TRUE(check), .of = OF_ANNOTATE},
    {{"verbose", NULL, 'v', NULL}, TRUE(verbose), .of = OF_ANNOTATE},
};
// clang-format on
enum { N_OPTIONS = sizeof options / sizeof *options };

static void name_options(Command c, OptionName *to)
{
    for (int i = 0; i < N_OPTIONS; i++)
        to[i] = !options[i].of || options[i].of & 1u << c ? options[i].is : (OptionName){0};
    for (int i = 0; c == COMMAND_ANNOTATE && i < N_OPTIONS; i++)
        if (to[i].letter == 'o')
            to[i].value = "M.onnx";
}

static void show_help(Options *o, const char *arg)
{
    static const char *const of[] = {usage, ls_usage, plan_usage, annotate_usage};
    OptionName names[N_OPTIONS];
    (void)arg;
    fputs(of[o->command], stdout);
    if (o->command == COMMAND_SPLIT) {
        name_options(o->command, names);
        option_help(names, N_OPTIONS, stdout);
        fputs(usage_end, stdout);
    }
    fputs(report_to, stdout);
    exit(0);
}

static void read_option(Options *o, const OptionRow *row, const char *arg)
{
    void *at = (char *)o + row->at;
    switch (row->how) {
    case TEXT_IS: *(const char **)at = arg; break;
    case LIST_IS: vec_push(o->arena, (Strings *)at, arg); break;
    case TRUE_IS: *(bool *)at = true; break;
    case SET_BY: row->set(o, arg); break;
    }
}

/* For the command that makes a plan's program. */
static void note_word(Options *o, int option, const char *arg)
{
    const char *more;
    if (option == OPTION_OPERAND)
        more = shell_word(o->arena, arg);
    else if (options[option].planned)
        return;
    else
        more = arena_printf(o->arena, "--%s%s%s", options[option].is.name, arg ? " " : "",
                            arg ? shell_word(o->arena, arg) : "");
    o->plan.words = o->plan.words ? arena_printf(o->arena, "%s %s", o->plan.words, more) : more;
}

/* Who takes an option that this command has not; NULL: nobody. */
static const char *taken_by(const char *name)
{
    static const char *const run[] = {"data", "tokens",     "steps", "epochs",
                                      "lr",   "checkpoint", "resume"};
    if (!strcmp(name, "measure"))
        return "a program measures the machine that it runs on, DIR/pipeline measure >FILE, for "
               "`ppsplit plan --machine=FILE'";
    for (size_t i = 0; i < sizeof run / sizeof *run; i++)
        if (!strcmp(name, run[i]))
            return "it is an option of the program, DIR/pipeline";
    for (int i = 0; i < N_OPTIONS; i++)
        if (options[i].is.name && !strcmp(name, options[i].is.name))
            return options[i].of == OF_LS         ? "it is an option of `ppsplit ls'"
                   : options[i].of == OF_ANNOTATE ? "it is an option of `ppsplit annotate'"
                   : options[i].of == OF_PLAN     ? "it is an option of `ppsplit plan'"
                   : options[i].of & RUN_TOO
                       ? "it is an option of `ppsplit plan' and of the program, DIR/pipeline"
                       : NULL;
    return NULL;
}

static _Noreturn void wrong_option(Command c, const OptionReader *r)
{
    static const char *const command[] = {"ppsplit", "ppsplit ls", "ppsplit plan",
                                          "ppsplit annotate"};
    const char *taken = taken_by(r->unknown);
    if (taken)
        bad_usage(command[c], "unrecognized option '--%s'; %s", r->unknown, taken);
    bad_usage(command[c], "%s", r->wrong);
}

/* Of each axis members and chunks, one of which may be left out; both 1: there is no such axis; all
 * 0: the model's annotations may have one.  Chunks without a name are those of every axis that is
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
    if (!mesh_has(m, MESH_TENSOR) && m->shard.n &&
        (mesh_has(m, MESH_SEQUENCE) || mesh_has(m, MESH_EXPERT)))
        bad_usage("ppsplit", "--shard with %s: its members divide no parameters but experts",
                  mesh_option[mesh_has(m, MESH_EXPERT) ? MESH_EXPERT : MESH_SEQUENCE]);
}

void read_command_line(Options *o, int argc, char **argv)
{
    o->import.limits = limits_default();
    o->import.gradient = grad_nodes;
    bool plans = o->command == COMMAND_PLAN;
    OptionName table[N_OPTIONS];
    name_options(o->command, table);
    OptionReader r = option_reader(argc, argv, table, N_OPTIONS);
    for (int k; (k = option_next(&r)) != OPTION_END;) {
        if (k == OPTION_WRONG)
            wrong_option(o->command, &r);
        if (k == OPTION_OPERAND)
            vec_push(o->arena, &o->model, r.value);
        else
            read_option(o, &options[k], r.value);
        if (plans)
            note_word(o, k, r.value);
    }
    mesh_complete(o);
    if (!o->codegen.cuda)
        o->codegen.cpu = true;
    if (o->codegen.profile && !o->codegen.cpu)
        bad_usage("ppsplit", "--profile needs --target cpu: it times the CPU's program");
}
