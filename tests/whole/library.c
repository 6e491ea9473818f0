/*
 * library.c - a user of libppsplit, in C: reads a model, lists its modules, splits it and writes
 * the program, survives a model that is refused, and generates, verifies and simulates a schedule.
 * library.t compiles it against an installed tree. library MODEL.onnx SPLIT LOSS OUT
 */
#include <stdlib.h>
#include <string.h>

#include <ppsplit/ppsplit.h>

typedef struct {
    Arena *arena;
    const char *path;
    ImportOptions import;
    PartitionOptions partition;
    LossOptions loss;
    CodegenOptions codegen;
} Job;

static void list(void *arg)
{
    Job *job = arg;
    Graph *g = import_models(job->arena, 1, &job->path, &job->import);
    batch_analyse(g, 0, &job->partition.batch, NULL);
    print_ls(g, NONE, NULL, stdout);
    int64_t weights = 0;
    for (uint32_t i = 0; i < g->param.n; i++)
        weights += shape_elements(&g->param.at[i].shape);
    printf("weights %lld\n", (long long)weights);
}

static void split(void *arg)
{
    Job *job = arg;
    Graph *g = import_models(job->arena, 1, &job->path, &job->import);
    Loss loss = loss_append(g, &job->loss, &job->import);
    attention_fuse(g, &job->partition.batch, loss.loss, loss.target);
    Pipe *p = pipe_build(g, &job->partition, &loss);
    autodiff(p);
    pipe_costs(p);
    job->codegen.page = report_program(p, job->arena);
    codegen_write(p, &job->codegen);
    printf("stages %u\n", p->stage.n);
}

/* Runs f on a fresh copy of job; what was said goes to standard output, as one line. */
static void run(const char *name, void (*f)(void *), Job job)
{
    char *said = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&said, &length);
    FILE *before = diag_to(text);
    job.arena = arena_new();
    int status = diag_run(f, &job);
    arena_free(job.arena);
    diag_to(before);
    fclose(text);
    if (said[0])
        said[strcspn(said, "\n")] = 0;
    printf("%s: %d%s%s\n", name, status, said[0] ? ": " : "", said);
    free(said);
}

static int schedule(const char *name, int ranks, int microbatches)
{
    static SchedError e;
    Schedule *s = NULL, *whole = NULL;
    SchedCosts costs;
    SchedSim sim;
    int status = sched_generate(name, ranks, ranks, microbatches, SCHED_PLACE_DEFAULT, &s, &e);
    sched_costs_default(&costs);
    if (!status)
        status = sched_simulate(s, &costs, &sim, &e);
    if (!status) {
        printf("%s: makespan %g bubble %.6f peaks", name, sim.makespan, sim.bubble);
        for (int r = 0; r < ranks; r++)
            printf(" %d", sim.peak[r]);
        printf("\n");
        sched_sim_free(&sim);
        whole = sched_clone(s);
        status = sched_lower(whole, 3, &e);
    }
    if (!status)
        status = sched_verify(whole, NULL, 0, NULL, 0, 0, &e);
    if (!status) {
        whole->row[0].n /= 2;                           /* half a row: others wait for ever */
        printf("%s: verified; cut short: %d\n", name, sched_verify(whole, NULL, 0, NULL, 0, 0, &e));
    }
    sched_costs_free(&costs);
    sched_free(whole);
    sched_free(s);
    if (status)
        printf("%s: %s\n", name, e.text);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return EXIT_USAGE;
    Arena *options = arena_new();
    Job job = {.path = argv[1], .import.limits = limits_default()};
    run("list", list, job);
    vec_push(options, &job.partition.split, argv[2]);
    job.import.training = true;
    job.loss.loss = argv[3];
    job.codegen.dir = argv[4];
    job.codegen.cpu = true;
    run("split", split, job);

    Job wrong = job;
    wrong.path = "nowhere.onnx";
    run("no file", split, wrong);
    wrong = job;
    wrong.loss.loss = "crossentropy";
    run("no such loss", split, wrong);
    run("again", list, job);
    arena_free(options);
    return schedule("1f1b", 4, 8);
}
