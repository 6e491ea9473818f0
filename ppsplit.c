/*
 * ppsplit.c - the command.  In: ONNX models and options.  Out: a folder with a pipeline-parallel
 * program.
 *
 * passes[] is the whole compiler, a line a pass; everything else here reads the command line.  GNU
 * manners: long options with = or a space, data to stdout, diagnostics to stderr, exit codes 0, 1
 * (model refused), 2 (usage), 3 (I/O or resources), 70 (a bug of ours).
 */
#include "ppsplit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cli/options.h"
#include "base/file/hash.h"

typedef struct {
    Arena *arena;
    VEC(const char *) model;
    ImportOptions import;
    PartitionOptions partition;
    AutoText automatic;
    LossOptions loss;
    CodegenOptions codegen;
    Dtype dtype;                    /* --dtype; DT_NONE: as the model */
    /* --rows, --loss-over minibatch=ROWS; 0: as the model */
    int64_t rows, minibatch;
    const char *dump;
    bool quiet;
    bool ls;                        /* the command is ls */
} Options;

/* ---- the compiler ---- */

/* What the passes hand on: the Graph, then the Pipe, which owns it. */
typedef struct {
    Options *o;
    Graph *graph;
    Loss loss;
    Pipe *pipe;
} State;

static void import(State *s)
{
    auto_given(&s->o->partition.automatic, &s->o->automatic, s->o->arena);
    s->graph = import_models(s->o->arena, s->o->model.n, s->o->model.at, &s->o->import);
}

/* The model's shapes become those of the rows that were asked for: a microbatch's, or, where the
 * loss is one over a minibatch, for now that's. */
static void rows(State *s)
{
    Graph *g = s->graph;
    Options *o = s->o;
    int64_t own = g->batch > 0 ? g->batch : 1;
    if (!o->rows)
        o->rows = own;
    if (!o->minibatch)
        o->minibatch = own;
    int64_t wanted = o->loss.whole ? o->minibatch : o->rows;
    if (o->loss.whole && o->rows > o->minibatch)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "--loss-over minibatch: a minibatch of %lld rows is less than a microbatch of "
                   "%lld",
                   (long long)o->minibatch, (long long)o->rows);
    if (wanted == own)
        return;
    BatchNotes notes = {.target = NONE, .loss = NONE};
    batch_analyse(g, 0, &o->partition.batch, &notes);
    if (notes.uneven.n > 0) {
        diag_note("%s", notes.uneven.at[0]);
        diag_hint("export the model for %lld rows, or --bind its dimension", (long long)wanted);
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                   "the model computes with exactly %lld rows, not with %lld", (long long)own,
                   (long long)wanted);
    }
    Ids list = {0}, root = graph_results(g, g->arena);
    const bool *live = graph_live(g, g->arena, 0, &root, 1);
    for (NodeId n = 0; n < g->node.n; n++)
        if (live[n])
            vec_push(g->arena, &list, n);
    graph_resize(g, wanted, &list);
}

static void loss(State *s) { s->loss = loss_append(s->graph, &s->o->loss, &s->o->import); }

/* A model whose parameters are of a half type computes in that one. */
static void check_half(const Graph *g, Dtype asked)
{
    for (NodeId i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[i];
        if (n->op != OP_Cast || val(g, n->in[0])->kind != V_PARAM || n->attr.to == asked ||
            !dtype_is_half(n->attr.to))
            continue;
        diag_hint("leave out --dtype; or export the model in float32");
        diag_fatal(EXIT_MODEL, graph_where(g, n->origin, -1),
                   "--dtype %s: the model reads parameter '%s' in %s", dtype_name(asked),
                   val(g, n->in[0])->name, dtype_name(n->attr.to));
    }
}

/* Half precision, where it is asked for. */
static void autocast(State *s)
{
    if (s->o->dtype != DT_NONE)
        check_half(s->graph, s->o->dtype);
    if (s->o->dtype != DT_NONE && s->o->dtype != DT_F32)
        graph_autocast(s->graph, s->o->dtype);
}

static void partition(State *s) { s->pipe = pipe_build(s->graph, &s->o->partition, &s->loss); }
static void reverse(State *s) { reverse_stages(s->pipe); }

static void whole(State *s) { pipe_whole(s->pipe, s->o->rows); }

static void attention(State *s)
{
    if (s->o->codegen.cuda)
        attention_fuse(s->pipe);
}

static void stash(State *s) { stash_minimize(s->pipe); }
static void divide(State *s) { divide_backward(s->pipe); }
static void again(State *s) { stash_again(s->pipe); }

/* What reports say of stages is of those that run. */
static void costs(State *s)
{
    Pipe *p = s->pipe;
    pipe_costs(p);
    if (p->whole) {
        pipe_costs(p->whole);
        p->stage.at[p->stage.n - 1].cost = p->whole->stage.at[p->stage.n - 1].cost;
    }
    if (s->o->codegen.cpu || !p->device)
        return;
    pipe_costs(p->device);
    for (uint32_t i = 0; i < p->stage.n; i++)
        if (!p->stage.at[i].elsewhere)
            p->stage.at[i].cost = p->device->stage.at[i].cost;
}

/* ---- what of the options changes numbers: checkpoints hold it ---- */

static void note(Options *o, const char *option, const char *value)
{
    vec_push(o->arena, &o->codegen.made, ((MadeWith){option, value}));
}

static void note_list(Options *o, const char *option, uint32_t n, const char *const *word)
{
    const char *all = n ? word[0] : "none";
    for (uint32_t i = 1; i < n; i++)
        all = arena_printf(o->arena, "%s %s", all, word[i]);
    note(o, option, all);
}

/* A loss in a file is its content, wherever that lies. */
static const char *loss_text(const Options *o)
{
    const char *loss = o->loss.loss ? o->loss.loss : "none";
    char block[4096];
    uint64_t hash = HASH_START;
    FILE *f = strncmp(loss, "model:", 6) ? NULL : fopen(loss + 6, "r");
    if (!f)
        return loss;
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        hash = hash_bytes(hash, block, n);
    fclose(f);
    return arena_printf(o->arena, "model:%016llx", (unsigned long long)hash);
}

static void note_options(Options *o)
{
    note(o, "loss", loss_text(o));
    note(o, "loss-reduction", o->loss.sum ? "sum" : "mean");
    note(o, "dtype", o->dtype == DT_NONE || o->dtype == DT_F32 ? "none" : dtype_name(o->dtype));
    note_list(o, "freeze", o->import.freeze.n, o->import.freeze.at);
    note_list(o, "train", o->import.train.n, o->import.train.at);
    note_list(o, "stop-gradient", o->import.stop.n, o->import.stop.at);
}

static void output(State *s)
{
    note_options(s->o);
    if (s->o->codegen.dir)
        codegen_write(s->pipe, &s->o->codegen);
}

static void summary(State *s)
{
    if (s->o->quiet)
        return;
    report_summary(s->pipe, stdout);
    if (s->pipe->automatic)
        report_automatic(s->pipe->automatic, stdout);
}

static const struct { void (*run)(State *s); const char *dump; } passes[] = {
    {import, "import"},         /* files to a Graph of core operations, shaped, folded, named */
    {rows, NULL},               /* --rows: shapes of another number of rows */
    {loss, "loss"},             /* the loss is appended, with its inputs target and loss_scale */
    {autocast, "autocast"},     /* --dtype: what computes in half precision, and the casts */
    {partition, "partition"},   /* a Pipe: nodes to stages, what crosses a cut, parameters */
    {reverse, "autodiff"},      /* every stage's backward */
    {whole, NULL},              /* --loss-over minibatch: the loss in the shapes of all its rows */
    {attention, NULL},          /* for CUDA: attention as one operation, in a Pipe of its own */
    {stash, "stash"},           /* what forward keeps for it, against what it computes again */
    {divide, "divide"},         /* backward divided into I (of inputs) and W (of weights) */
    /* parts of the stash that a run may compute again instead of keep */
    {again, NULL},
    {costs, NULL},              /* parameters, bytes, operations of each stage */
    {output, NULL},             /* stages lowered, fused, laid out, printed; the folder */
    {summary, NULL},
};
enum { N_PASSES = sizeof passes / sizeof *passes };

static void verify(const State *s)
{
    graph_verify(s->graph);
    if (s->pipe)
        pipe_verify(s->pipe);
    Pipe *const others[] = {s->pipe ? s->pipe->device : NULL, s->pipe ? s->pipe->whole : NULL};
    for (int i = 0; i < 2; i++)
        if (others[i]) {
            graph_verify(others[i]->graph);
            pipe_verify(others[i]);
        }
}

static void dump(const State *s, const char *pass)
{
    printf("# after %s\n", pass);
    if (s->pipe)
        pipe_dump(s->pipe, stdout);
    else
        graph_dump(s->graph, stdout);
    if (s->pipe && s->pipe->device) {
        printf("# after %s, of CUDA\n", pass);
        pipe_dump(s->pipe->device, stdout);
    }
    if (s->pipe && s->pipe->whole) {
        printf("# after %s, of the loss over a minibatch\n", pass);
        pipe_dump(s->pipe->whole, stdout);
    }
}

static void compile(void *arg)
{
    State s = {.o = arg};
    for (int i = 0; i < N_PASSES; i++) {
        const char *name = passes[i].dump, *wanted = s.o->dump;
        passes[i].run(&s);
        if (name)
            verify(&s);
        if (name && wanted && (!strcmp(wanted, name) || !strcmp(wanted, "all")))
            dump(&s, name);
    }
}

static void list_modules(void *arg)
{
    State s = {.o = arg};
    import(&s);
    batch_analyse(s.graph, 0, &s.o->partition.batch, NULL);
    report_ls(s.graph, stdout);
}

/* ---- the command line ---- */

/* The end of every --help. */
static const char report[] = "\n" PPSPLIT_REPORT;

static const char usage[] =
    "Usage: ppsplit [OPTION]... MODEL.onnx... -o DIR    split, differentiate, generate\n"
    "  or:  ppsplit ls [OPTION]... MODEL.onnx           the module tree: where one can split\n"
    "  or:  ppsplit schedule NAME|FILE.csv [OPTION]...  generate, verify, simulate, draw a "
    "schedule\n"
    "  or:  ppsplit report OUT [LOG|TRACE]... -o FILE   pictures of a program and its runs: a page\n"
    "  or:  ppsplit merge OUT CHECKPOINT -o M.onnx      put trained weights back into the model\n"
    "  or:  ppsplit ops                                 what is supported\n"
    "  or:  ppsplit help [COMMAND]                      how a command is used\n"
    "Make a pipeline-parallel program of a traced ONNX model.\n"
    "\n"
    "Where to cut:\n"
    "      --split=PATH:begin|end  cut before or after a module; also a node's or a value's name; "
    "several\n"
    "                              with commas; 'h.*:begin' before each module that matches "
    "(repeatable)\n"
    "      --stages=N              cut into N stages, by what a model of costs says; --split points "
    "stay\n"
    "      --microbatches=M        for the shortest step of M microbatches; else the slowest stage "
    "counts\n"
    "      --schedule=NAME         whose memory --memory limits (default 1f1b), --ranks=P of it "
    "(default N)\n"
    "      --memory=BYTES          that a rank may take for parameters, optimizer and stash (k, M, "
    "G, T: times 1024)\n"
    "      --rates=LIST|FILE       what a rank does in a second: products=90e9,link=1e9 (ppsplit(1) "
    "has all)\n"
    "      --costs=TRACE           seconds of a run (its --trace) instead, of a program cut by "
    "--costs-split\n"
    "      --costs-split=POINT     as --split, of that program (repeatable)\n"
    "      --multi-use=[NAME=]transmit|replicate\n"
    "                              parameters used in several stages: sent from the first, or a "
    "copy in each\n"
    "      --chunk=INPUT=DIM|replicate\n"
    "                              the batch dimension of an input (default: 0 where it fits), or "
    "none\n"
    "      --merge=OUTPUT=DIM|sum|mean\n"
    "                              how the microbatches' results meet in one (default: its rows "
    "one after the other,\n"
    "                              without rows their mean)\n"
    "\n"
    "Training:\n"
    "      "
    "--loss=mse|l1|cross_entropy[:AXIS]|nll[:AXIS]|bce_with_logits|output:NAME|model:FILE.onnx\n"
    "                              adds an input `target'; without a loss the program only infers\n"
    "      --loss-reduction=mean|sum\n"
    "                              over the whole minibatch (default mean)\n"
    "      --loss-over=microbatch|minibatch[=ROWS]\n"
    "                              minibatch: computed once, when the outputs of all microbatches "
    "are there; of so\n"
    "                              many rows (default: the model's)\n"
    "      --freeze=PATTERN        parameters that do not train (repeatable)\n"
    "      --train=PATTERN         parameters that do, after --freeze (repeatable)\n"
    "      --stop-gradient=NAME    a value, or the results of a node, that send no gradient back "
    "(detach);\n"
    "                              the file's names, * and ? allowed (repeatable)\n"
    "\n";
static const char usage_more[] =
    "The model:\n"
    "      --bind=NAME=N           the size of a symbolic dimension, for one microbatch "
    "(repeatable)\n"
    "      --rows=N                rows of a microbatch, where they are not to be the model's\n"
    "      --dtype=f32|bf16|f16    what products compute in; parameters and sums stay f32 "
    "(default: "
    "the model's)\n"
    "      --param=NAME=FILE       a parameter that the export folded away: .npy or .safetensors "
    "(repeatable)\n"
    "      --params-from=FILE.safetensors\n"
    "                              the same, for all that it names\n"
    "      --limit=WHAT=N          raise a limit: bytes, messages, depth, nodes, unpacked\n"
    "\n"
    "Output:\n"
    "  -o, --output=DIR            the folder to write\n"
    "      --target=cpu|cuda       what the stages run on: stageN.c, stageN.cu, or both "
    "(repeatable; default cpu)\n"
    "      --params=copy|link      write the weights beside the program, or refer to the model's "
    "files\n"
    "      --dump=PASS             print the graph after import, loss, autocast, partition, "
    "autodiff, stash, "
    "divide, or all\n"
    "  -q, --quiet                 no report on standard output\n"
    "  -h, --help                  this text; `ppsplit help COMMAND' that of a command\n"
    "      --version               the version and the licence\n"
    "\n"
    "Examples:\n"
    "  ppsplit model.onnx --split layers.1:begin --loss cross_entropy -o out && make -C out\n"
    "  ppsplit gpt2.onnx --bind batch=4 --split h.3:begin --split h.6:begin --loss cross_entropy "
    "-o out\n";

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
    OPT_LOSS,
    OPT_REDUCTION,
    OPT_LOSS_OVER,
    OPT_FREEZE,
    OPT_TRAIN,
    OPT_STOP,
    OPT_BIND,
    OPT_ROWS,
    OPT_DTYPE,
    OPT_PARAM,
    OPT_PARAMS_FROM,
    OPT_LIMIT,
    OPT_OUTPUT,
    OPT_TARGET,
    OPT_PARAMS,
    OPT_DUMP,
    OPT_QUIET,
    OPT_HELP,
    OPT_VERSION
};

static const char ls_usage[] =
    "Usage: ppsplit ls [OPTION]... MODEL.onnx...\n"
    "The tree of modules with parameters, operations and activations: where one can split.\n"
    "\n"
    "It takes the options of `ppsplit --help' that say how the model is read: --bind, --chunk,\n"
    "--param, --params-from, --limit.  Nothing is written.\n"
    "\n"
    "Examples:\n"
    "  ppsplit ls model.onnx\n"
    "  ppsplit ls gpt2.onnx --bind batch=4\n";

static const char ops_usage[] =
    "Usage: ppsplit ops\n"
    "The table of operators: a line each, with the first opset, what it is (map: elementwise; view:\n"
    "costs nothing; composite: becomes others), whether it has a gradient, and its code.\n"
    "\n"
    "Example:\n"
    "  ppsplit ops | grep Norm\n";

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
    [OPT_LOSS] = {"loss", "LOSS", 0},
    [OPT_REDUCTION] = {"loss-reduction", "mean|sum", 0},
    [OPT_LOSS_OVER] = {"loss-over", "microbatch|minibatch[=ROWS]", 0},
    [OPT_FREEZE] = {"freeze", "PATTERN", 0},
    [OPT_TRAIN] = {"train", "PATTERN", 0},
    [OPT_STOP] = {"stop-gradient", "NAME", 0},
    [OPT_BIND] = {"bind", "NAME=N", 0},
    [OPT_ROWS] = {"rows", "N", 0},
    [OPT_DTYPE] = {"dtype", "f32|bf16|f16", 0},
    [OPT_PARAM] = {"param", "NAME=FILE", 0},
    [OPT_PARAMS_FROM] = {"params-from", "FILE.safetensors", 0},
    [OPT_LIMIT] = {"limit", "WHAT=N", 0},
    [OPT_OUTPUT] = {"output", "DIR", 'o'},
    [OPT_TARGET] = {"target", "cpu|cuda", 0},
    [OPT_PARAMS] = {"params", "copy|link", 0},
    [OPT_DUMP] = {"dump", "PASS", 0},
    [OPT_QUIET] = {"quiet", NULL, 'q'},
    [OPT_HELP] = {"help", NULL, 'h'},
    [OPT_VERSION] = {"version", NULL, 0},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static NORETURN void bad_usage(const char *command, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* command: of which one, "ppsplit" or "ppsplit merge". */
static NORETURN void bad_usage(const char *command, const char *fmt, ...)
{
    const char *sub = strchr(command, ' ');
    va_list ap;
    fprintf(stderr, "ppsplit: %s%s", sub ? sub + 1 : "", sub ? ": " : "");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry '%s --help' for more information.\n", command);
    exit(EXIT_USAGE);
}

/* The number of word among n words. */
static uint32_t one_of(const char *option, const char *word, const char *const *words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(word, words[i]))
            return i;
    fprintf(stderr, "ppsplit: invalid argument '%s' for '--%s'\nValid arguments are:", word,
            option);
    for (uint32_t i = 0; i < n; i++)
        fprintf(stderr, " %s", words[i]);
    fprintf(stderr, "\nTry 'ppsplit --help' for more information.\n");
    exit(EXIT_USAGE);
}
#define ONE_OF(option, word, ...)                                                   \
    one_of(option, word, (const char *const[]){__VA_ARGS__},                        \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

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
    switch (ONE_OF("limit", word, "bytes", "messages", "depth", "nodes", "unpacked")) {
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
        bad_usage("ppsplit", "--%s: '%s' is no number of rows", option, arg);
    return n;
}

static void set_loss_over(Options *o, const char *arg)
{
    const char *eq = strchr(arg, '=');
    char word[16];
    snprintf(word, sizeof word, "%.*s", eq ? (int)(eq - arg) : (int)sizeof word - 1, arg);
    o->loss.whole = ONE_OF("loss-over", word, "microbatch", "minibatch") == 1;
    o->minibatch = 0;
    if (eq && !o->loss.whole)
        bad_usage("ppsplit", "--loss-over microbatch: --rows says how many rows it has");
    if (eq)
        o->minibatch = row_count("loss-over minibatch", eq + 1);
}

static const char *dump_of(const char *arg)
{
    const char *names[N_PASSES + 1] = {"all"};
    uint32_t n = 1;
    for (int i = 0; i < N_PASSES; i++)
        if (passes[i].dump)
            names[n++] = passes[i].dump;
    return names[one_of("dump", arg, names, n)];
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
    case OPT_REDUCTION: o->loss.sum = ONE_OF("loss-reduction", arg, "mean", "sum") == 1; break;
    case OPT_LOSS_OVER: set_loss_over(o, arg); break;
    case OPT_FREEZE: vec_push(o->arena, &o->import.freeze, arg); break;
    case OPT_TRAIN: vec_push(o->arena, &o->import.train, arg); break;
    case OPT_STOP: vec_push(o->arena, &o->import.stop, arg); break;
    case OPT_BIND: vec_push(o->arena, &o->import.bind, arg); break;
    case OPT_ROWS: o->rows = row_count("rows", arg); break;
    case OPT_DTYPE: {
        static const Dtype types[] = {DT_F32, DT_BF16, DT_F16};
        o->dtype = types[ONE_OF("dtype", arg, "f32", "bf16", "f16")];
        break;
    }
    case OPT_PARAM: vec_push(o->arena, &o->import.given, arg); break;
    case OPT_PARAMS_FROM: vec_push(o->arena, &o->import.params_from, arg); break;
    case OPT_LIMIT: set_limit(&o->import.limits, arg); break;
    case OPT_OUTPUT: o->codegen.dir = arg; break;
    case OPT_TARGET:
        *(ONE_OF("target", arg, "cpu", "cuda") == 0 ? &o->codegen.cpu : &o->codegen.cuda) = true;
        break;
    case OPT_PARAMS: o->codegen.link = ONE_OF("params", arg, "copy", "link") == 1; break;
    case OPT_DUMP: o->dump = dump_of(arg); break;
    case OPT_QUIET: o->quiet = true; break;
    case OPT_HELP:
        printf("%s%s%s", o->ls ? ls_usage : usage, o->ls ? "" : usage_more, report);
        exit(0);
    case OPT_VERSION: version_print("ppsplit", stdout); exit(0);
    default: break;
    }
}

static void read_command_line(Options *o, int argc, char **argv)
{
    o->import.limits = limits_default();
    OptionReader r = option_reader(argc, argv, options, N_OPTIONS);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage("ppsplit", "%s", r.wrong);
        else if (k == OPTION_OPERAND)
            vec_push(o->arena, &o->model, r.value);
        else
            read_option(o, k, r.value);
    if (!o->codegen.cuda)
        o->codegen.cpu = true;
}

/* ---- the commands ---- */

static int compile_main(int argc, char **argv, bool ls)
{
    Options o = {.arena = arena_new(), .ls = ls};
    read_command_line(&o, argc, argv);
    if (o.model.n == 0)
        bad_usage(ls ? "ppsplit ls" : "ppsplit", "missing operand: a MODEL.onnx");
    if (!ls && !o.codegen.dir && !o.dump)
        bad_usage("ppsplit", "missing option: -o DIR, the folder to write");
    if (o.loss.whole && !o.loss.loss)
        bad_usage("ppsplit", "--loss-over minibatch without --loss");
    int code = diag_run(ls ? list_modules : compile, &o);
    arena_free(o.arena);
    return code;
}

static const char merge_usage[] = "Usage: ppsplit merge OUT CHECKPOINT -o M.onnx\n"
                                  "Put trained weights back into the model.\n"
                                  "\n"
                                  "OUT is the folder that ppsplit wrote, CHECKPOINT a folder that "
                                  "its program wrote with --checkpoint\n"
                                  "(or one step_N in it).  M.onnx opens in any ONNX runtime and "
                                  "computes what the pipeline computed.\n"
                                  "Of several models in sequence the first is M.onnx, the next "
                                  "ones M1.onnx, M2.onnx, ..., a model named twice once.\n"
                                  "\n"
                                  "Examples:\n"
                                  "  ppsplit merge out checkpoints -o trained.onnx\n"
                                  "  ppsplit merge out checkpoints/step_200 -o step200.onnx\n";

typedef struct { Arena *arena; const char *out, *checkpoint, *target; } MergeOptions;

static void merge(void *arg)
{
    MergeOptions *o = arg;
    Merged m = merge_weights(o->arena, o->out, o->checkpoint, o->target);
    printf("merged %u parameters into ", m.parameters);
    for (uint32_t i = 0; i < m.file.n; i++)
        printf("%s%s", i ? ", " : "", m.file.at[i]);
    printf("\n");
}

static int merge_main(int argc, char **argv)
{
    static const OptionName table[] = {{"output", "M.onnx", 'o'}, {"help", NULL, 'h'}};
    MergeOptions o = {0};
    OptionReader r = option_reader(argc, argv, table, 2);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage("ppsplit merge", "%s", r.wrong);
        else if (k == 0)
            o.target = r.value;
        else if (k == 1)
            return printf("%s%s", merge_usage, report), 0;
        else if (o.checkpoint)
            bad_usage("ppsplit merge", "unexpected operand '%s'", r.value);
        else
            *(o.out ? &o.checkpoint : &o.out) = r.value;
    if (!o.checkpoint)
        bad_usage("ppsplit merge", "missing operand: %s", o.out ? "CHECKPOINT" : "OUT");
    if (!o.target)
        bad_usage("ppsplit merge", "missing option: -o M.onnx");
    o.arena = arena_new();
    int code = diag_run(merge, &o);
    arena_free(o.arena);
    return code;
}

static const char report_usage[] =
    "Usage: ppsplit report OUT [LOG.json|TRACE.json]... -o report.html\n"
    "One page with what ppsplit made and what its runs measured; it needs no network, no scripts.\n"
    "\n"
    "OUT is the folder that ppsplit wrote, LOG.json what its program wrote with --log-json,\n"
    "TRACE.json with --trace; of each several, in any order.  Of OUT alone: the stages, their\n"
    "balance, what crosses.  Of logs: loss, gradient norm, throughput, learning rate.  Of traces:\n"
    "the schedule as simulated above the schedule as measured, idle time, the stages'\n"
    "milliseconds, the stash over the step, and what other schedules would take.\n"
    "\n"
    "  -o, --output=FILE    the page; -: standard output\n"
    "      --svg=DIR        its figures as files, too\n"
    "  -h, --help           this text\n"
    "\n"
    "Example:\n"
    "  ppsplit report out log.json trace.json -o report.html\n";

static int report_main(int argc, char **argv)
{
    static const OptionName table[] = {
        {"output", "FILE", 'o'}, {"svg", "DIR", 0}, {"help", NULL, 'h'}};
    ReportOptions o = {.arena = arena_new()};
    OptionReader r = option_reader(argc, argv, table, 3);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage("ppsplit report", "%s", r.wrong);
        else if (k == 0)
            o.target = r.value;
        else if (k == 1)
            o.svg = r.value;
        else if (k == 2)
            return printf("%s%s", report_usage, report), 0;
        else if (!o.out)
            o.out = r.value;
        else
            vec_push(o.arena, &o.run, r.value);
    if (!o.out)
        bad_usage("ppsplit report", "missing operand: OUT, a folder that ppsplit wrote");
    if (!o.target)
        bad_usage("ppsplit report", "missing option: -o FILE, the page to write");
    int code = diag_run(report_page, &o);
    arena_free(o.arena);
    return code;
}

static int ops_main(int argc, char **argv)
{
    static const OptionName table[] = {{"help", NULL, 'h'}};
    OptionReader r = option_reader(argc, argv, table, 1);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage("ppsplit ops", "%s", r.wrong);
        else if (k == OPTION_OPERAND)
            bad_usage("ppsplit ops", "unexpected operand '%s'", r.value);
        else
            return printf("%s%s", ops_usage, report), 0;
    ops_print(stdout);
    return 0;
}

/* Flushes stdout and turns a failed write (a full disk, a closed pipe) into exit code 3. */
static int finish(int code)
{
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "ppsplit: error: standard output: %s\n", strerror(errno));
        return code ? code : EXIT_IO;
    }
    return code;
}

int main(int argc, char **argv)
{
    char help[] = "--help", *asked[] = {argv[0], argc > 2 ? argv[2] : help, help, NULL};
    if (argc > 1 && !strcmp(argv[1], "help")) {         /* help [COMMAND] */
        argc = argc > 2 ? 3 : 2;
        argv = asked;
    }
    const char *word = argc > 1 ? argv[1] : "";
    if (!strcmp(word, "ops"))
        return finish(ops_main(argc - 1, argv + 1));
    if (!strcmp(word, "schedule"))
        return finish(schedule_main(argc - 1, argv + 1));
    if (!strcmp(word, "report"))
        return finish(report_main(argc - 1, argv + 1));
    if (!strcmp(word, "merge"))
        return finish(merge_main(argc - 1, argv + 1));
    bool ls = !strcmp(word, "ls");
    return finish(compile_main(argc - ls, argv + ls, ls));
}
