/*
 * ppsplit.c - the command.  In: ONNX models and options.  Out: a folder with a pipeline-parallel program.
 *
 * compile() is the whole compiler as a list of calls; everything else here reads the command line.  GNU manners:
 * long options with = or a space, data to stdout, diagnostics to stderr, exit codes 0, 1 (model refused), 2 (usage),
 * 3 (I/O or resources), 70 (a bug of ours).
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "ppsplit.h"

typedef struct {
    Arena *arena;
    VEC(const char *) model;
    ImportOptions import;
    PartitionOptions partition;
    LossOptions loss;
    CodegenOptions codegen;
    const char *dump;
    bool quiet;
    int argc;                                           /* of subcommands: what follows their name */
    char **argv;
} Options;

static bool dump_wanted(const Options *o, const char *pass)
{
    return o->dump && (!strcmp(o->dump, pass) || !strcmp(o->dump, "all"));
}

static void after(const Options *o, const char *pass, const Graph *g, const Pipe *p)
{
    if (g)
        graph_verify(g);
    if (p)
        pipe_verify(p);
    if (!dump_wanted(o, pass))
        return;
    printf("# after %s\n", pass);
    if (p)
        pipe_dump(p, stdout);
    else
        graph_dump(g, stdout);
}

/* ---- the compiler ---- */

static void compile(void *arg)
{
    Options *o = arg;
    Graph *g = import_models(o->arena, o->model.n, o->model.at, &o->import);
    after(o, "import", g, NULL);
    Loss loss = loss_append(g, &o->loss, &o->import);
    after(o, "loss", g, NULL);
    Pipe *p = pipe_build(g, &o->partition, &loss);
    after(o, "partition", g, p);
    autodiff(p);
    after(o, "autodiff", g, p);
    pipe_costs(p);
    if (o->codegen.dir)
        codegen_write(p, &o->codegen);
    if (!o->quiet)
        report_summary(p, stdout);
}

static void list_modules(void *arg)
{
    Options *o = arg;
    Graph *g = import_models(o->arena, o->model.n, o->model.at, &o->import);
    batch_analyse(g, 0, &o->partition.batch, NULL);
    report_ls(g, stdout);
}

/* ---- the command line ---- */

static const char usage[] =
    "Usage: ppsplit [OPTION]... MODEL.onnx... -o DIR    split, differentiate, generate\n"
    "  or:  ppsplit ls [OPTION]... MODEL.onnx           the module tree: where one can split\n"
    "  or:  ppsplit schedule NAME|FILE.csv [OPTION]...  generate, verify, simulate, draw a schedule\n"
    "  or:  ppsplit merge OUT CHECKPOINT -o M.onnx      put trained weights back into the model\n"
    "  or:  ppsplit ops                                 what is supported\n"
    "Make a pipeline-parallel program of a traced ONNX model.\n"
    "\n"
    "Where to cut:\n"
    "      --split=PATH:begin|end  cut before or after a module; also a node's or a value's name (repeatable)\n"
    "      --multi-use=[NAME=]transmit|replicate\n"
    "                              parameters used in several stages: sent from the first, or a copy in each\n"
    "      --chunk=INPUT=DIM|replicate\n"
    "                              the batch dimension of an input (default: 0 where it fits), or none\n"
    "      --merge=OUTPUT=DIM|sum|mean\n"
    "                              how the microbatches' results meet in one (default: its rows one after the other,\n"
    "                              without rows their mean)\n"
    "\n"
    "Training:\n"
    "      --loss=mse|l1|cross_entropy[:AXIS]|nll[:AXIS]|bce_with_logits|output:NAME|model:FILE.onnx\n"
    "                              adds an input `target'; without a loss the program only infers\n"
    "      --loss-reduction=mean|sum\n"
    "                              over the whole minibatch (default mean)\n"
    "      --freeze=PATTERN        parameters that do not train (repeatable)\n"
    "      --train=PATTERN         parameters that do, after --freeze (repeatable)\n"
    "      --stop-gradient=NAME    a value, or the results of a node, that send no gradient back (detach);\n"
    "                              the file's names, * and ? allowed (repeatable)\n"
    "\n"
    "The model:\n"
    "      --bind=NAME=N           the size of a symbolic dimension, for one microbatch (repeatable)\n"
    "      --param=NAME=FILE       a parameter that the export folded away: .npy or .safetensors (repeatable)\n"
    "      --params-from=FILE.safetensors\n"
    "                              the same, for all that it names\n"
    "      --limit=WHAT=N          raise a limit: bytes, messages, depth, nodes, unpacked\n"
    "\n"
    "Output:\n"
    "  -o, --output=DIR            the folder to write\n"
    "      --target=cpu|cuda       what the stages run on: stageN.c, stageN.cu, or both (repeatable; default cpu)\n"
    "      --params=copy|link      write the weights beside the program, or refer to the model's files\n"
    "      --dump=PASS             print the graph after import, loss, partition, autodiff, or all\n"
    "  -q, --quiet                 no report on standard output\n"
    "      --help                  this text\n"
    "      --version               the version\n"
    "\n"
    "Examples:\n"
    "  ppsplit model.onnx --split layers.1:begin --loss cross_entropy -o out && make -C out\n"
    "  ppsplit gpt2.onnx --bind batch=4 --split h.3:begin --split h.6:begin --loss cross_entropy -o out\n";

enum { OPT_SPLIT = 256, OPT_MULTI, OPT_CHUNK, OPT_MERGE, OPT_LOSS, OPT_REDUCTION, OPT_FREEZE, OPT_TRAIN, OPT_STOP, OPT_BIND,
       OPT_LIMIT, OPT_TARGET, OPT_PARAMS, OPT_PARAM, OPT_PARAMS_FROM, OPT_DUMP, OPT_HELP, OPT_VERSION };

static const struct option long_options[] = {
    {"split", required_argument, NULL, OPT_SPLIT},
    {"multi-use", required_argument, NULL, OPT_MULTI},
    {"chunk", required_argument, NULL, OPT_CHUNK},
    {"merge", required_argument, NULL, OPT_MERGE},
    {"loss", required_argument, NULL, OPT_LOSS},
    {"loss-reduction", required_argument, NULL, OPT_REDUCTION},
    {"freeze", required_argument, NULL, OPT_FREEZE},
    {"train", required_argument, NULL, OPT_TRAIN},
    {"stop-gradient", required_argument, NULL, OPT_STOP},
    {"bind", required_argument, NULL, OPT_BIND},
    {"limit", required_argument, NULL, OPT_LIMIT},
    {"output", required_argument, NULL, 'o'},
    {"target", required_argument, NULL, OPT_TARGET},
    {"params", required_argument, NULL, OPT_PARAMS},
    {"param", required_argument, NULL, OPT_PARAM},
    {"params-from", required_argument, NULL, OPT_PARAMS_FROM},
    {"dump", required_argument, NULL, OPT_DUMP},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static _Noreturn void bad_usage(const char *fmt, ...) PRINTF_LIKE(1, 2);

static _Noreturn void bad_usage(const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "ppsplit: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry 'ppsplit --help' for more information.\n");
    exit(EXIT_USAGE);
}

static const char *one_of(const char *option, const char *word, const char *const *words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(word, words[i]))
            return words[i];
    fprintf(stderr, "ppsplit: invalid argument '%s' for '--%s'\nValid arguments are:", word, option);
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
    static const char *const names[] = {"bytes", "messages", "depth", "nodes", "unpacked"};
    const char *eq = strchr(arg, '=');
    char *end = NULL;
    errno = 0;
    unsigned long long n = eq ? strtoull(eq + 1, &end, 10) : 0;
    if (!eq || end == eq + 1 || *end || errno)
        bad_usage("--limit wants WHAT=N, not '%s'", arg);
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)(eq - arg), arg);
    one_of("limit", word, names, 5);
    switch (word[0]) {
    case 'b': l->file_bytes = n; break;
    case 'm': l->messages = n; break;
    case 'd': l->depth = (uint32_t)n; break;
    case 'n': l->nodes = (uint32_t)n; break;
    default: l->unpacked_bytes = n; break;
    }
}

static void unknown_option(char *const *argv)
{
    const char *names[sizeof long_options / sizeof *long_options], *word = argv[optind - 1];
    uint32_t n = 0;
    for (; long_options[n].name; n++)
        names[n] = long_options[n].name;
    if (optopt && optopt < 128 && strncmp(word, "--", 2)) {
        char letter[2] = {(char)optopt, 0};
        bad_usage("invalid option -- '%s'", letter);
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *near = diag_nearest(name, names, n);
    if (near && strcmp(near, name))
        bad_usage("unrecognized option '%s'; did you mean '--%s'?", word, near);
    bad_usage("bad option or missing argument: '%s'", word);
}

static void read_option(Options *o, int c, const char *arg)
{
    switch (c) {
    case OPT_SPLIT: vec_push(o->arena, &o->partition.split, arg); break;
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
    case OPT_REDUCTION: o->loss.sum = *ONE_OF("loss-reduction", arg, "mean", "sum") == 's'; break;
    case OPT_FREEZE: vec_push(o->arena, &o->import.freeze, arg); break;
    case OPT_TRAIN: vec_push(o->arena, &o->import.train, arg); break;
    case OPT_STOP: vec_push(o->arena, &o->import.stop, arg); break;
    case OPT_BIND: vec_push(o->arena, &o->import.bind, arg); break;
    case OPT_PARAM: vec_push(o->arena, &o->import.given, arg); break;
    case OPT_PARAMS_FROM: vec_push(o->arena, &o->import.params_from, arg); break;
    case OPT_LIMIT: set_limit(&o->import.limits, arg); break;
    case 'o': o->codegen.dir = arg; break;
    case OPT_TARGET: *(ONE_OF("target", arg, "cpu", "cuda")[1] == 'p' ? &o->codegen.cpu : &o->codegen.cuda) = true; break;
    case OPT_PARAMS: o->codegen.link = *ONE_OF("params", arg, "copy", "link") == 'l'; break;
    case OPT_DUMP: o->dump = ONE_OF("dump", arg, "all", "import", "loss", "partition", "autodiff"); break;
    case 'q': o->quiet = true; break;
    default: break;
    }
}

static void read_command_line(Options *o, int argc, char **argv)
{
    o->import.limits = limits_default();
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "o:q", long_options, NULL)) != -1;) {
        if (c == OPT_HELP) {
            fputs(usage, stdout);
            exit(0);
        }
        if (c == OPT_VERSION) {
            puts("ppsplit " PPSPLIT_VERSION);
            exit(0);
        }
        if (c == '?')
            unknown_option(argv);
        read_option(o, c, optarg);
    }
    for (int i = optind; i < argc; i++)
        vec_push(o->arena, &o->model, argv[i]);
    if (!o->codegen.cuda)
        o->codegen.cpu = true;
}

/* Flushes stdout and turns a failed write (a full disk, a closed pipe) into exit code 3. */
static int finish(int code)
{
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "ppsplit: standard output: %s\n", strerror(errno));
        return code ? code : EXIT_IO;
    }
    return code;
}

static int ops_main(int argc)
{
    if (argc > 1)
        bad_usage("'ops' takes no operands");
    ops_print(stdout);
    return finish(0);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (!strcmp(word, "ops"))
        return ops_main(argc - 1);
    if (!strcmp(word, "schedule"))
        return finish(schedule_main(argc - 1, argv + 1));
    if (!strcmp(word, "merge"))
        return finish(merge_main(argc - 1, argv + 1));
    bool ls = !strcmp(word, "ls");

    Options o = {.arena = arena_new()};
    read_command_line(&o, argc - ls, argv + ls);
    if (o.model.n == 0)
        bad_usage("missing operand: a MODEL.onnx");
    if (!ls && !o.codegen.dir && !o.dump)
        bad_usage("missing option: -o DIR, the folder to write");
    int code = diag_run(ls ? list_modules : compile, &o);
    arena_free(o.arena);
    return finish(code);
}
