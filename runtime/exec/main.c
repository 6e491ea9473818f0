/*
 * main.c - the command out/pipeline: options, data, a verified schedule, then ranks as threads or
 * as processes of mpirun.
 */
#include "exec.h"

#include "core/signals.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cli/nearest.h"
#include "io/init.h"
#include "net/launch.h"
#include "net/wires.h"

static PpStatus wanted_outputs(Run *run)
{
    const PpPlan *p = run->model;
    const Options *o = run->opt;
    const char **names;
    POOL(room);
    TRY(pp_take(&run->pool, &run->output_wanted, p->n_output, sizeof *run->output_wanted));
    TRY(pp_take(&room, &names, p->n_output, sizeof *names));
    for (int i = 0; i < p->n_output; i++) {
        run->output_wanted[i] = -1;
        names[i] = p->output[i].name;
    }
    for (int k = 0; k < o->data.output.n; k++) {
        int at = -1;
        for (int i = 0; i < p->n_output; i++)
            if (!strcmp(names[i], o->data.output.at[k].name))
                at = i;
        char meant[200];
        nearest_text(o->data.output.at[k].name, names, (size_t)p->n_output, meant, sizeof meant);
        if (at < 0)
            return pp_fail(PP_ERR_USAGE, "--output %s: the model has no such output%s",
                           o->data.output.at[k].name, meant);
        run->output_wanted[at] = k;
    }
    return PP_OK;
}

/* Everything that needs no other rank; world: as of run_all(). */
static PpStatus prepare(Run *run, Options *o, const Group *world)
{
    TRY(schedule_read(run, o));
    TRY(optim_patterns(o, run->model));
    TRY(init_check(o, run->model));
    if (!run->ranks)
        run->ranks = schedule_stages(run->model);
    pp_rank_shape(run->ranks, run->members);
    if (!world)
        run->threads = rank_threads(run, run_ranks(run));
    TRY(wanted_outputs(run));
    TRY(data_open(&run->data, run->model, o));
    TRY(sample_output(run));
    TRY(data_check(&run->data, world ? world->rank : 0, world ? world->ranks : 1));
    o->data.batch = run->data.batch;
    o->schedule.microbatches = run->data.microbatches;
    o->schedule.accumulate = run->data.passes;
    o->machine.groups = run->data.groups;
    o->data.steps = run->data.steps;
    if (world || (o->mode == MODE_TRAIN && (o->save.checkpoint || o->save.resume)))
        data_digest(&run->data);
    TRY(save_resume(run, !world || world->rank == 0));
    TRY(schedule_make(run));
    TRY(evaluation_prepare(run, world ? world->rank : 0, world ? world->ranks : 1));
    if (world && run->evaluation)
        data_digest(&run->evaluation->data);
    TRY(destinations_apart(o, &run->from));
    if (save_wanted(o) && (!world || world->rank == 0))
        TRY(checkpoint_claim(o));
    if (o->report.until)
        TRY(until_plan(run));
    return PP_OK;
}

/* What must be right before MPI starts: all of it follows from the command line and the
 * environment. */
static PpStatus start(Options *o, int argc, char **argv, const PpPlan *model, PpPlan *chosen)
{
    int rank, ranks, mpi = mpi_wanted(&rank, &ranks);
    PpStatus parsed = options_parse(o, argc, argv, model);
    int saves = parsed == PP_OK && save_wanted(o);
    if (saves)
        signals_take();
    launch_begin(rank, saves);
    TRY(parsed);
    TRY(program_current(model, o->command.folder));
    TRY(devices_choose(o, model, chosen));
    o->machine.device = device_of(chosen->device)->name;
    if (mpi && !mpi_built() && ranks > 1)
        return pp_fail(PP_ERR_USAGE,
                       "started as %d processes, but built without MPI: put mpicc on PATH and run "
                       "make again, or use --ranks",
                       ranks);
    return PP_OK;
}

/* Started as several processes that do not know of each other: each would train by itself and write
 * over the others' files. */
static PpStatus alone(const Options *o, int mpi, int expected, const Group *world)
{
    if (mpi && world->ranks == 1 && expected > 1)
        return pp_fail(PP_ERR_USAGE,
                       "started as %d processes, but MPI (%s) sees one: the program was built with "
                       "another MPI than mpirun or srun: run make again with its mpicc",
                       expected, mpi_version());
    const Launcher *by;
    int tasks = launcher_tasks(&by);
    if (tasks > 1 && (!mpi || world->ranks == 1) && (!o->machine.ranks || getenv(by->each)))
        return pp_fail(PP_ERR_USAGE, "%s has %d tasks, but there is one process: %s", by->name,
                       tasks, by->remedy);
    return PP_OK;
}

/* Cores this process may use; a rank that mpirun has bound to some has those for itself. */
static int count_cores(const Group *world)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    const int online = (int)sysconf(_SC_NPROCESSORS_ONLN), /* the set has no room for any number */
        n = sched_getaffinity(0, sizeof set, &set) ? online : CPU_COUNT(&set);
    return world && n < online ? n * world->host_ranks : n;
}

/* What this process has in memory: of Linux' /proc; 0: not known. */
static int64_t resident_bytes(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    int known = f && fscanf(f, "%*s %lld", &pages) == 1;
    if (f)
        fclose(f);
    return known ? (int64_t)pages * sysconf(_SC_PAGESIZE) : 0;
}

/* Libraries take scratch memory in each product: it stays with the process instead of coming from
   the kernel, page by page, each time. */
static void keep_freed_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

/* All ranks plan the schedule for themselves, and have to come to the same. */
static PpStatus agree_threads(Run *run, Group *world)
{
    run->threads = rank_threads(run, world->host_ranks);
    int *all;
    POOL(room);
    TRY(group_gather(world, &run->threads, sizeof *all, &room, &all));
    for (int k = 0; k < world->ranks; k++)
        run->threads = all[k] > run->threads ? all[k] : run->threads;
    return PP_OK;
}

/* The pipeline's ranks; 0: one per stage. */
static PpStatus count_ranks(Run *run, const Options *o, int ranks)
{
    int each = o->machine.dp * run->members, pipe = (ranks + each - 1) / each;
    int stages = schedule_stages(run->model);
    run->replicas = o->machine.dp;
    run->ranks = ranks / each;
    pp_rank_shape(run->ranks ? run->ranks : stages, run->members);
    if (ranks % each == 0)
        return PP_OK;
    if (run->members == 1)
        return pp_fail(PP_ERR_USAGE, "--dp %d: %d ranks cannot be divided into that many pipelines",
                       o->machine.dp, ranks);
    char replicas[40] = "";
    pipe = pipe < stages ? pipe : stages;
    if (o->machine.dp > 1)
        snprintf(replicas, sizeof replicas, ", and --dp %d", o->machine.dp);
    return pp_fail(
        PP_ERR_USAGE,
        "%d ranks: each stage is divided among %d members (ppsplit --tensor, --sequence, "
        "--expert)%s, so their number must be a multiple of %d: use %d for a pipeline of %d rank%s",
        ranks, run->members, replicas, each, pipe * each, pipe, pipe > 1 ? "s" : "");
}

/* world: the processes of mpirun; NULL: there is this one. */
static PpStatus run_all(Run *run, Options *o, Group *world)
{
    int ranks = world ? world->ranks : o->machine.ranks;
    run->members = plan_members(run->model);
    PpStatus counted = count_ranks(run, o, ranks);
    run->cores = count_cores(world);
    run->process_bytes = resident_bytes();
    PpStatus s = world ? same_start(run, world) : PP_OK;
    if (s == PP_OK)
        s = same_arithmetic(run, world);
    if (s == PP_OK && world && o->machine.ranks && o->machine.ranks != world->ranks)
        s = pp_fail(PP_ERR_USAGE, "--ranks %d, but there are %d processes", o->machine.ranks,
                    world->ranks);
    if (s == PP_OK)
        s = counted;
    if (s == PP_OK)
        s = transport_check(o->machine.transport, world != NULL, run->model->device);
    s = begin_from(run, o, world, s);
    PpStatus agreed = world ? agree_threads(run, world) : PP_OK;
    if (s == PP_OK)
        s = agreed;
    if (s == PP_OK)
        s = prepare(run, o, world);
    if (world)
        return run_process(run, world, s);
    if (s == PP_OK)
        return run_threads(run);
    pp_failure_print();
    return s;
}

/* mpi, expected: how the processes were started; chosen devices and data follow. */
static PpStatus run_mode(Run *run, Options *o, Group *world, int mpi, int expected)
{
    PpStatus s = alone(o, mpi, expected, world);
    if (s == PP_OK && o->mode != MODE_MEASURE && o->mode != MODE_TOKENS)
        return run_all(run, o, world);
    if (s == PP_OK && o->mode == MODE_TOKENS)
        s = world && world->rank ? PP_OK : tokens_write(&run->data, run->model, o);
    else if (s == PP_OK)
        s = measure_machine(o, run->model, world, count_cores(world));
    if (s != PP_OK)
        pp_failure_print();
    return s;
}

/* Without MPI. Of several processes all are refused; the launcher ends the job at the first status
 * that is not 0, which has to be that of the one that speaks. */
static int refused(PpStatus s, int rank)
{
    if (rank > 0)
        return 0;
    pp_failure_print();
    return (int)s;
}

int pp_main(int argc, char **argv, const PpPlan *plan)
{
    pp_machine_check();
    keep_freed_memory();
    signal(SIGXFSZ, SIG_IGN); /* a file past its limit is an error of the write */
    file_lost(pp_failure_lost);
    file_remember();
    Options o;
    PpPlan chosen = *plan;
    Run run = {.opt = &o, .model = &chosen};
    Group world = {0};
    int rank, ranks, mpi = mpi_wanted(&rank, &ranks) && mpi_built();
    PpStatus s = start(&o, argc, argv, plan, &chosen);
    if (s != PP_OK && !mpi) {
        options_free(&o);
        return refused(s, rank);
    }
    if (mpi && mpi_open(&argc, &argv, &world) != PP_OK)
        return refused(PP_ERR_IO, rank);
    /* A process that ends before the one that speaks has spoken ends that one too, silently. */
    if (mpi) {
        PpStatus joined = launch_joined(&world);
        s = group_agree(&world, s != PP_OK ? s : joined);
    }
    if (s == PP_OK)
        s = run_mode(&run, &o, mpi ? &world : NULL, mpi, ranks);
    if (mpi)
        mpi_close(&world);
    index_close(&run.from);
    index_close(&run.given);
    evaluation_free(&run);
    data_close(&run.data);
    sched_free(run.sched);
    pool_free(&run.pool);
    options_free(&o);
    if (s == PP_OK && signals_were_obeyed())
        s = PP_SAVED; /* also where the terminal is gone */
    if ((fflush(stdout) || ferror(stdout)) && s == PP_OK) {
        fprintf(stderr, "pipeline: error: standard output cannot be written\n");
        s = PP_ERR_IO;
    }
    return mpi ? launch_end(&world, (int)s) : (int)s;
}
