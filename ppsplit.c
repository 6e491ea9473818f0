/*
 * ppsplit.c - the command.  In: ONNX models and options.  Out: a folder with a pipeline-parallel
 * program.
 *
 * passes[] is the whole compiler, a line a pass (command/passes.c); commands[] are the others.  GNU
 * manners: long options with = or a space, data to stdout, diagnostics to stderr, exit codes 0, 1
 * (model refused), 2 (usage), 3 (I/O or resources), 70 (a bug of ours).
 */
#include "annotate/annotate.h"
#include "command/passes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cli/nearest.h"

/* ---- the compiler ---- */

static const struct { void (*run)(State *s); const char *dump; } passes[] = {
    {pass_import, "import"},         /* files to a Graph of core ops, shaped, folded, named */
    {pass_rows, NULL},               /* --rows: shapes of another number of rows */
    {pass_loss, "loss"},             /* the loss is appended, with inputs target and loss_scale */
    {pass_autocast, "autocast"},     /* --dtype: what computes in half precision, and the casts */
    {pass_attention, "attention"},   /* what lies between the two products of one: one operation */
    {pass_sizes, NULL},              /* --bind NAME=LEAST..MOST: lengths whose sizes decide */
    {pass_mesh, "mesh"},             /* --tensor, --sequence, --expert: the graph of one member */
    {pass_partition, "partition"},   /* a Pipe: nodes to stages, what crosses a cut, parameters */
    {pass_reverse, "autodiff"},      /* every stage's backward */
    {pass_whole, NULL},              /* --loss-over minibatch: the loss in shapes of all its rows */
    {pass_stash, "stash"},           /* what forward keeps for it, against what it computes again */
    {pass_divide, "divide"},         /* backward divided into I (of inputs) and W (of weights) */
    /* parts of the stash that a run may compute again instead of keep */
    {pass_again, NULL},
    {pass_costs, NULL},   /* parameters, bytes, operations of each stage */
    {pass_lengths, NULL}, /* --bind NAME=LEAST..MOST: the same with other lengths */
    {pass_output, NULL},  /* stages lowered, fused, laid out, printed; the folder */
    {pass_summary, NULL},
};
enum { N_PASSES = sizeof passes / sizeof *passes };

static void verify(const State *s)
{
    graph_verify(s->graph);
    if (s->pipe)
        pipe_verify(s->pipe);
    if (s->pipe && s->pipe->whole) {
        graph_verify(s->pipe->whole->graph);
        pipe_verify(s->pipe->whole);
    }
}

static void dump(const State *s, const char *pass)
{
    printf("# after %s\n", pass);
    if (s->pipe)
        pipe_dump(s->pipe, stdout);
    else
        graph_dump(s->graph, stdout);
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
    bool divided = false;
    pass_import(&s);
    if (s.o->parameters) {
        print_parameters(s.graph, stdout);
        return;
    }
    for (int x = 0; x < MESH_AXES; x++)
        divided |= mesh_has(&s.o->mesh, (MeshAxis)x);
    for (int i = 1; divided && passes[i].run != pass_partition; i++)
        passes[i].run(&s);
    batch_analyse(s.graph, 0, &s.o->partition.batch, NULL);
    diag_files();
    const Pipe *joint = divided ? autodiff_joint(s.graph, &s.o->partition, &s.loss) : NULL;
    print_ls(s.graph, divided ? s.loss.loss : NONE, joint, stdout);
}

/* ---- plan ---- */

static void plan(void *arg)
{
    Options *o = arg;
    PlanOptions p = plan_options(o);
    p.model = plan_model(o);
    plan_search(&p);
}

/* ---- annotate ---- */

static void annotate(void *arg)
{
    State s = {.o = arg};
    if (s.o->check) {
        annotate_checked(s.o);
        return;
    }
    pass_import(&s);
    uint32_t origins = s.graph->origin.n, stages;
    pass_rows(&s);
    pass_loss(&s);
    pass_autocast(&s);
    pass_attention(&s);
    pass_sizes(&s);
    Annotations all = {.whole = s.graph, .mesh = &s.o->mesh};
    if (!divide_mesh(&s, &all.plans))
        s.graph = graph_twin(all.whole, all.whole->arena);
    find_joint(&s);
    const uint32_t *stage_of = pipe_stages(s.graph, &s.o->partition, &s.loss, &stages);
    annotate_stages(s.graph, stage_of, stages, origins, &all);
    uint32_t n = annotate_write(all.whole, &all, s.o->codegen.dir);
    if (s.o->quiet)
        return;
    printf("%s: %u nodes in %u stage%s", s.o->codegen.dir, n, stages, stages == 1 ? "" : "s");
    for (uint32_t i = 0; i < all.plans.n; i++)
        printf("%s in %d chunks on %d members", i ? " and" : ", tensors", all.plans.at[i].chunks,
               all.plans.at[i].members);
    puts(all.plans.n && s.loss.loss == NONE ? ", as without --loss nothing trains" : "");
}

/* --dump names a pass, or all. */
static void check_dump(const char *word)
{
    const char *names[N_PASSES + 1] = {"all"};
    uint32_t n = 1;
    for (int i = 0; i < N_PASSES; i++)
        if (passes[i].dump)
            names[n++] = passes[i].dump;
    one_of("ppsplit", "dump", word, names, n);
}

/* ---- the commands ---- */

typedef struct { Options *o; int argc; char **argv; } CommandLine;

static void read_options(void *arg)
{
    CommandLine *c = arg;
    read_command_line(c->o, c->argc, c->argv);
    read_lengths(c->o);
    if (c->o->dump)
        check_dump(c->o->dump);
}

static void check_first(const Strings *model);

static int compile_main(int argc, char **argv, Command command)
{
    static void (*const run[])(void *) = {compile, list_modules, plan, annotate};
    static const char *const name[] = {"ppsplit", "ppsplit ls", "ppsplit plan", "ppsplit annotate"};
    Options o = {.arena = arena_new(), .command = command};
    int code = diag_run(read_options, &(CommandLine){&o, argc, argv});
    if (code) {
        arena_free(o.arena);
        return code;
    }
    if (o.model.n == 0)
        bad_usage(name[command], "missing operand: a MODEL.onnx");
    if (command == COMMAND_SPLIT)
        check_first(&o.model);
    operands_there(o.model.n, o.model.at);
    if (command == COMMAND_SPLIT && !o.codegen.dir && !o.dump)
        bad_usage("ppsplit", "missing option: -o DIR, the folder to write");
    if (o.loss.whole && !o.loss.loss)
        bad_usage("ppsplit", "--loss-over minibatch without --loss");
    if (command == COMMAND_PLAN)
        plan_check(&o);
    if (command == COMMAND_ANNOTATE)
        annotate_options(&o);
    code = diag_run(run[command], &o);
    arena_free(o.arena);
    return code;
}

static int split_main(int argc, char **argv) { return compile_main(argc, argv, COMMAND_SPLIT); }
static int ls_main(int argc, char **argv) { return compile_main(argc, argv, COMMAND_LS); }
static int plan_main(int argc, char **argv) { return compile_main(argc, argv, COMMAND_PLAN); }
static int annotate_main(int argc, char **argv)
{
    return compile_main(argc, argv, COMMAND_ANNOTATE);
}

static const struct { const char *name; int (*run)(int argc, char **argv); } commands[] = {
    {"ls", ls_main},
    {"plan", plan_main},
    {"schedule", schedule_main},
    {"report", report_main},
    {"merge", merge_main},
    {"forecast", forecast_main},
    {"annotate", annotate_main},
    {"ops", ops_main},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* A command that stands behind options. */
static void check_first(const Strings *model)
{
    for (uint32_t i = 0; i < model->n; i++)
        for (int k = 0; k < N_COMMANDS; k++)
            if (!strcmp(model->at[i], commands[k].name) && access(model->at[i], F_OK))
                bad_usage("ppsplit", "the command comes first: `ppsplit %s ...'", commands[k].name);
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

/* A first word that is no option and no file, and has no dot or slash as files have: a command that
 * was meant, of ours or of the program that is written. */
static void check_command(const char *word)
{
    enum { OURS = 2 + N_COMMANDS };
    const char *names[OURS + 4] = {"help", "--version"}, *near;
    static const char *const written[] = {"train", "eval", "infer", "measure"};
    bool theirs = false;
    if (word[0] == '-' || strpbrk(word, "./") || !access(word, F_OK))
        return;
    for (int i = 0; i < N_COMMANDS; i++)
        names[i + 2] = commands[i].name;
    for (int i = 0; i < 4; i++)
        names[OURS + i] = written[i];
    near = nearest_name(word, names, OURS + 4);
    for (int i = 0; i < 4; i++)
        theirs |= near == written[i];
    if (theirs)
        bad_usage("ppsplit",
                  "'%s' is not a command of ppsplit; the program has it: `DIR/pipeline %s'", word,
                  near);
    bad_usage("ppsplit", "'%s' is neither a file nor a command%s%s%s", word,
              near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int main(int argc, char **argv)
{
    bool one = argc > 2 && strcmp(argv[2], "help") != 0;
    char help[] = "--help", *asked[] = {argv[0], one ? argv[2] : help, help, NULL};
    file_remember();
    signal(SIGXFSZ, SIG_IGN); /* a file past its limit is an error of the write */
    if (argc > 1 && !strcmp(argv[1], "help")) {         /* help [COMMAND] */
        argc = one ? 3 : 2;
        argv = asked;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (argc > 1 && !strcmp(argv[1], commands[i].name))
            return finish(commands[i].run(argc - 1, argv + 1));
    if (argc > 1)
        check_command(argv[1]);
    return finish(split_main(argc, argv));
}
