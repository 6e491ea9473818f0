/*
 * main.c - the command out/pipeline: options, data, a verified schedule, ranks as threads or as processes of mpirun,
 * the loop over steps.  Ranks agree on everything before the first step, and one rank speaks when something is wrong.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/cli/nearest.h"
#include "internal.h"

#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- the schedule ---- */

static PpStatus refused(const SchedError *e, const char *what)
{
    int named = strstr(e->text, what) != NULL;
    return pp_fail(e->status == SCHED_EUSAGE      ? PP_ERR_USAGE
                   : e->status == SCHED_ERESOURCE ? PP_ERR_IO
                                                  : PP_ERR_MODEL,
                   "%s%s%s", named ? "" : what, named ? "" : ": ", e->text);
}

/* Edges and shared parameters as the schedule's passes want them. */
static int edges(const PpPlan *p, SchedEdge *edge)
{
    int n = 0;
    for (int s = 0; s < p->n_stage; s++)
        for (int from = 0; from < s; from++) {
            SchedEdge e = {.from = from, .to = s};
            int any = 0;
            for (int i = 0; i < p->stage[s]->n_input; i++) {
                const PpInput *in = &p->stage[s]->input[i];
                if (in->from != from)
                    continue;
                any = 1;
                e.bytes_f += (double)in->t.bytes;
                e.bytes_b += (double)in->t.bytes * in->grads;
                e.gradient |= in->grads > 0;
            }
            if (any)
                edge[n++] = e;
        }
    return n;
}

static int shared(const PpPlan *p, SchedParam *list, int train)
{
    int n = 0;
    for (int s = 0; s < p->n_stage; s++)
        for (int from = 0; from < p->n_stage; from++)
            for (int replicate = 0; replicate < 2; replicate++) {
                SchedParam e = {.from = from, .to = s, .replicate = replicate};
                int any = 0;
                for (int k = 0; k < p->stage[s]->n_param; k++) {
                    const PpParam *q = &p->stage[s]->param[k];
                    if (q->from != from || from == s || q->use != (replicate ? PP_REPLICATE : PP_TRANSMIT))
                        continue;
                    any = 1;
                    e.gradient |= train && q->grad_offset >= 0;
                }
                if (any && (!replicate || e.gradient))
                    list[n++] = e;
            }
    return n;
}

/* Inference runs the forwards of a row only. */
static void forwards_only(Schedule *s)
{
    for (int r = 0; r < s->ranks; r++) {
        SchedRow *row = &s->row[r];
        int n = 0;
        for (int i = 0; i < row->n; i++)
            if (row->a[i].type == SA_F) {
                row->a[n] = row->a[i];
                row->a[n++].overlap = 0;
            }
        row->n = n;
    }
    s->infer = 1;
    s->complete = 0;
}

static PpStatus schedule_lower(Run *run)
{
    const PpPlan *p = run->plan;
    const Options *o = run->opt;
    SchedError *e = calloc(1, sizeof *e);
    if (e && sched_runnable(run->sched, e)) {
        PpStatus no = refused(e, o->schedule);
        free(e);
        return no;
    }
    SchedEdge *edge = calloc((size_t)p->n_stage * (size_t)p->n_stage + 1, sizeof *edge);
    SchedParam *param = calloc(2 * (size_t)p->n_stage * (size_t)p->n_stage + 1, sizeof *param);
    PpStatus s = e && edge && param ? PP_OK : pp_fail(PP_ERR_IO, "out of memory");
    if (s == PP_OK) {
        SchedNeeds needs = {.edge = edge,
                            .param = param,
                            .defer = o->defer,
                            .send_budget = o->send_budget,
                            .buffers = o->buffers < 0 ? 1 << 20 : o->buffers};
        needs.n_edge = edges(p, edge);
        needs.n_param = shared(p, param, o->mode == MODE_TRAIN);
        for (int i = 0; i < needs.n_edge && o->mode != MODE_TRAIN; i++)
            edge[i].gradient = 0;
        if (sched_lower_for(run->sched, &needs, e))
            s = refused(e, o->schedule);
    }
    free(e), free(edge), free(param);
    return s;
}

/* A file says itself how many microbatches there are; a generator is told. */
static PpStatus schedule_file(Run *run, Options *o)
{
    if (sched_find(o->schedule))
        return PP_OK;
    SchedError *e = calloc(1, sizeof *e);
    PpStatus s = e ? PP_OK : pp_fail(PP_ERR_IO, "out of memory");
    int file = strchr(o->schedule, '/') || strstr(o->schedule, ".csv") || access(o->schedule, F_OK) == 0;
    if (s == PP_OK && (file ? sched_load(o->schedule, &run->sched, e)
                            : sched_generate(o->schedule, 1, 1, 1, SCHED_PLACE_DEFAULT, &run->sched, e)))
        s = refused(e, o->schedule);
    free(e);
    TRY(s);
    const Schedule *f = run->sched;
    if (f->stages != run->plan->n_stage)
        return pp_fail(PP_ERR_MODEL, "%s is a schedule of %d stages, the model has %d", o->schedule, f->stages,
                       run->plan->n_stage);
    if (o->microbatches && o->microbatches != f->microbatches)
        return pp_fail(PP_ERR_MODEL, "%s is a schedule of %d microbatches, not of --microbatches %d", o->schedule,
                       f->microbatches, o->microbatches);
    o->microbatches = f->microbatches;
    if (!run->ranks)
        run->ranks = f->ranks;
    if (f->ranks != run->ranks)
        return pp_fail(PP_ERR_MODEL, "%s is a schedule of %d ranks, but there are %d", o->schedule, f->ranks,
                       run->ranks);
    if (o->mode != MODE_TRAIN)
        forwards_only(run->sched);
    return PP_OK;
}

static PpStatus schedule_make(Run *run)
{
    const Options *o = run->opt;
    int stages = run->plan->n_stage;
    if (run->ranks > stages)
        return pp_fail(PP_ERR_MODEL, "%d ranks are more than the model's %d stages", run->ranks, stages);
    if (!run->sched) {
        SchedError *e = calloc(1, sizeof *e);
        const char *name = o->mode == MODE_TRAIN ? o->schedule : "forward-only";
        int place = o->placement;
        if (o->mode != MODE_TRAIN && place == SCHED_PLACE_DEFAULT && stages % run->ranks == 0)
            place = sched_find(o->schedule)->placement; /* parameters lie where they lay in training */
        PpStatus s = e ? PP_OK : pp_fail(PP_ERR_IO, "out of memory");
        if (s == PP_OK && sched_generate(name, run->ranks, stages, run->m, place, &run->sched, e))
            s = refused(e, name);
        free(e);
        TRY(s);
    }
    return schedule_lower(run);
}

/* ---- what ranks must agree on ---- */

static uint64_t fnv(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

static PpStatus hash_run(Run *run)
{
    const Options *o = run->opt;
    size_t n;
    char *text = sched_text(run->sched, &n);
    if (!text)
        return pp_fail(PP_ERR_IO, "out of memory");
    const OptimOptions *q = &o->optim;
    const double real[] = {q->lr, q->momentum, q->beta1, q->beta2, q->eps, q->weight_decay, o->clip_norm};
    const int64_t whole[] = {o->mode,
                             (int)o->optimizer,
                             q->nesterov,
                             run->m,
                             run->batch,
                             run->steps,
                             run->data.rows,
                             o->shuffle,
                             (int64_t)o->shuffle_seed,
                             (int64_t)o->seed,
                             run->ranks,
                             o->trace != NULL,
                             o->until != NULL,
                             run->plan->device,
                             o->tf32,
                             o->checkpoint != NULL,
                             o->dump_grads != NULL};
    uint64_t h = fnv(0xcbf29ce484222325u, text, n);
    h = fnv(h, real, sizeof real);
    h = fnv(h, whole, sizeof whole);
    run->hash = fnv(h, &run->plan->hash, sizeof run->plan->hash);
    free(text);
    return PP_OK;
}

static PpStatus same_everywhere(Rank *r)
{
    uint64_t *all = malloc((size_t)r->t.ranks * sizeof *all);
    if (!all)
        return pp_fail(PP_ERR_IO, "out of memory");
    PpStatus s = r->t.op->gather(&r->t, &r->run->hash, sizeof *all, all);
    for (int k = 1; k < r->t.ranks && s == PP_OK; k++)
        if (all[k] != all[0])
            s = pp_fail(PP_ERR_MODEL, "rank %d was started with another plan, schedule or options than rank 0", k);
    free(all);
    return s;
}

static PpStatus wanted_outputs(Run *run)
{
    const PpPlan *p = run->plan;
    const Options *o = run->opt;
    run->output_wanted = malloc((size_t)(p->n_output + 1) * sizeof *run->output_wanted);
    const char **names = calloc((size_t)p->n_output + 1, sizeof *names);
    PpStatus s = run->output_wanted && names ? PP_OK : pp_fail(PP_ERR_IO, "out of memory");
    for (int i = 0; i < p->n_output && s == PP_OK; i++) {
        run->output_wanted[i] = -1;
        names[i] = p->output[i].name;
    }
    for (int k = 0; k < o->n_output && s == PP_OK; k++) {
        int at = -1;
        for (int i = 0; i < p->n_output; i++)
            if (!strcmp(names[i], o->output[k].name))
                at = i;
        const char *meant = nearest_name(o->output[k].name, names, (size_t)p->n_output);
        if (at >= 0)
            run->output_wanted[at] = k;
        else
            s = pp_fail(PP_ERR_MODEL, "--output %s: the model has no such output%s%s%s", o->output[k].name,
                        meant ? "; did you mean '" : "; --help lists them", meant ? meant : "", meant ? "'?" : "");
    }
    free(names);
    return s;
}

/* Everything that needs no other rank. */
static PpStatus prepare(Run *run, Options *o)
{
    TRY(schedule_file(run, o));
    if (!run->ranks)
        run->ranks = run->plan->n_stage;
    TRY(wanted_outputs(run));
    TRY(data_open(run));
    TRY(schedule_make(run));
    TRY(destinations_apart(run));
    if (o->until)
        TRY(until_plan(run));
    return hash_run(run);
}

/* ---- one rank ---- */

static int set_threads(const Rank *r)
{
    int n = r->run->opt->threads;
    if (!n)
        n = r->run->cores / r->t.host_ranks;
    if (n < 1)
        n = 1;
#ifdef _OPENMP
    omp_set_num_threads(n);
#endif
    return n;
}

static PpStatus set_up(Rank *r)
{
    r->threads = set_threads(r);
    TRY(devices_open(r));
    TRY(plan_rank(r));
    TRY(aside_open(r));
    pp_library_bytes = 0;
    for (int l = 0; l < r->n_stage; l++) {
        RankStage *rs = &r->stage[l];
        if (rs->st->open && aside_wanted(r))
            r->dev.op->separate();
        if (rs->st->open)
            rs->state = rs->st->open(r->threads);
    }
    TRY(device_check(r, "the libraries of its stages"));
    r->mem.library = pp_library_bytes + r->dev.library;
    r->mem.total += r->mem.library;
    if (r->on_device)
        TRY(stream_open(r));
    TRY(params_load(r));
    TRY(destinations_try(r));
    r->tokens = data_tokens(r->run);
    return PP_OK;
}

static void sum_loss(Rank *r)
{
    const Run *run = r->run;
    if (run->plan->loss_stage >= 0 && r->local_of[run->plan->loss_stage] >= 0)
        for (int m = 0; m < run->m; m++)
            r->norm[0] += r->loss[m];
}

/* After the actions: the rank's own parts of the gradients' norm. */
static PpStatus train_norms(Rank *r, int64_t step)
{
    const Options *o = r->run->opt;
    if (step == 0 && o->dump_grads)
        TRY(ranks_agree(r, grads_dump(r)));
    double t0 = pp_now();
    r->dev.op->norms(&r->dev, r->at, r->on_device ? stream_norms(r) : r->norm + 1);
    trace_around(r, step, AROUND_NORM, t0, t0);
    return PP_OK;
}

/* The norm over all ranks, clipping, the update. */
static PpStatus train_end(Rank *r, int64_t step, StepLog *log)
{
    const Options *o = r->run->opt;
    int n = r->run->plan->n_param;
    double total = 0, t0 = pp_now();
    TRY(r->t.op->sum(&r->t, r->norm, n + 1));
    double t1 = pp_now();
    for (int i = 1; i <= n; i++)
        total += r->norm[i];
    log->grad_norm = sqrt(total);
    double scale = o->clip_norm > 0 ? o->clip_norm / (log->grad_norm + 1e-6) : 1;
    if (isfinite(r->norm[0]) && isfinite(log->grad_norm))
        optim_update(r, step, scale < 1 ? scale : 1);
    trace_around(r, step, AROUND_UPDATE, t0, t1);
    return PP_OK;
}

static PpStatus steps(Rank *r)
{
    const Run *run = r->run;
    r->trace_zero = pp_now();
    for (int64_t step = 0; step < run->steps; step++) {
        StepLog log = {.step = step + 1};
        double start = pp_now();
        if (r->on_device)
            stream_feed(r, step);
        else
            data_fill(r, step);
        exec_begin(r);
        trace_around(r, step, AROUND_BEGIN, start, start);
        TRY(exec_step(r, step));
        memset(r->norm, 0, (size_t)(run->plan->n_param + 1) * sizeof *r->norm);
        if (run->opt->mode == MODE_TRAIN && !run->until)
            TRY(train_norms(r, step));
        if (r->on_device)
            TRY(stream_settle(r, step));
        if (run->until)
            return PP_OK;
        sum_loss(r);
        if (run->opt->mode == MODE_TRAIN)
            TRY(train_end(r, step, &log));
        else
            TRY(r->t.op->sum(&r->t, r->norm, 1));
        log.loss = r->norm[0];
        log.seconds = pp_now() - start;
        TRY(log_step(r, &log));
        if (run->opt->mode != MODE_INFER && !(isfinite(log.loss) && isfinite(log.grad_norm)))
            return finite_stop(r, &log);
    }
    return PP_OK;
}

static PpStatus finish(Rank *r)
{
    if (r->run->until) {
        until_print(r);
        PpStatus s = r->run->opt->dump_grads ? grads_dump(r) : PP_OK;
        TRY(ranks_agree(r, s));
        return ranks_agree(r, trace_write(r));
    }
    PpStatus s = outputs_write(r);
    TRY(ranks_agree(r, s));
    TRY(log_live(r));
    if (r->run->opt->checkpoint && r->run->opt->mode == MODE_TRAIN) {
        TRY(finite_parameters(r));
        TRY(checkpoint_write(r, r->run->steps));
    }
    s = trace_write(r);
    PpStatus closed = log_close(r);
    return ranks_agree(r, s != PP_OK ? s : closed);
}

static PpStatus rank_run(Rank *r, PpStatus prepared)
{
    TRY(ranks_agree(r, prepared));
    TRY(ranks_agree(r, same_everywhere(r)));
    PpStatus ready = ranks_agree(r, set_up(r));
    destinations_release(r);
    TRY(ready);
    TRY(ranks_agree(r, log_open(r)));
    TRY(devices_wire(r));
    TRY(log_memory(r));
    PpStatus s = steps(r);
    if (s != PP_OK && !pp_failure_told()) { /* in the middle of a step nobody can be asked */
        if (s != PP_ERR_PEER && pp_failure_first())
            pp_failure_print();
        r->t.op->fail(&r->t, s);
        return s;
    }
    TRY(s);
    return finish(r);
}

/* ---- ranks as threads ---- */

/* On each rank's own thread when all is well, for both sides may have to take part; else all wires before anything
   else: freeing memory waits for the device, and that for messages that may never come. */
static void close_wire(Rank *r, PpStatus s)
{
    r->dev.op->enter(&r->dev);
    if (r->wire)
        r->wire->close(r, s != PP_OK);
    r->wire = NULL;
}

static void close_rank(Rank *r)
{
    log_close(r);
    aside_close(r);
    r->dev.op->enter(&r->dev);
    stream_close(r);
    plan_free(r);
    r->dev.op->close(&r->dev);
}

typedef struct {
    Rank rank;
    PpStatus status;
    pthread_t thread;
} Thread;

static void *thread_main(void *p)
{
    Thread *t = p;
    t->status = rank_run(&t->rank, PP_OK);
    if (t->status == PP_OK)
        close_wire(&t->rank, PP_OK);
    return NULL;
}

static PpStatus run_local(Run *run)
{
    Thread *t = calloc((size_t)run->ranks, sizeof *t);
    run->hub = local_hub_new(run->ranks, run->cores);
    if (!t || !run->hub) {
        free(t);
        return pp_fail(PP_ERR_IO, "out of memory");
    }
    int started = 1;
    for (int k = 0; k < run->ranks; k++) {
        t[k].rank = (Rank){.run = run, .rank = k, .dev.op = device_of(run->plan->device)};
        local_transport(run->hub, k, &t[k].rank.t);
    }
    for (; started < run->ranks; started++)
        if (pthread_create(&t[started].thread, NULL, thread_main, &t[started]))
            break;
    PpStatus s = PP_OK;
    if (started < run->ranks) {
        s = pp_fail(PP_ERR_IO, "no more than %d threads could be started", started);
        pp_failure_print();
        t[0].rank.t.op->fail(&t[0].rank.t, s);
    } else {
        thread_main(&t[0]);
    }
    for (int k = 1; k < started; k++)
        pthread_join(t[k].thread, NULL);
    for (int k = 0; k < run->ranks; k++)
        if (t[k].status != PP_OK && (s == PP_OK || s == PP_ERR_PEER))
            s = t[k].status;
    for (int k = 0; k < run->ranks; k++)
        close_wire(&t[k].rank, s);
    for (int k = 0; k < run->ranks; k++)
        close_rank(&t[k].rank);
    local_hub_free(run->hub);
    free(t);
    return s;
}

static PpStatus run_mpi(Run *run, const Transport *t, PpStatus prepared)
{
    Rank r = {.run = run, .rank = t->rank, .t = *t, .dev.op = device_of(run->plan->device)};
    PpStatus s = rank_run(&r, prepared);
    close_wire(&r, s);
    close_rank(&r);
    return s;
}

/* ---- the command ---- */

/* Cores this process may use; a rank that mpirun has bound to some has those for itself. */
static int count_cores(int mpi, int host_ranks)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return mpi && n < (int)online ? n * host_ranks : n;
}

/* Libraries take scratch memory in each product: it stays with the process instead of coming from the kernel, page by
   page, each time. */
static void keep_freed_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

int pp_main(int argc, char **argv, const PpPlan *plan)
{
    pp_machine_check();
    keep_freed_memory();
    signal(SIGXFSZ, SIG_IGN); /* a file past its limit is an error of the write */
    Options o;
    PpPlan chosen = *plan;
    Run run = {.opt = &o, .plan = &chosen};
    Transport t = {0};
    int env_rank, env_ranks, mpi = mpi_wanted(&env_rank, &env_ranks);
    PpStatus s = options_parse(&o, argc, argv, plan);
    if (s == PP_OK)
        s = devices_choose(&o, plan, &chosen);
    if (s == PP_OK && mpi && !mpi_built() && env_ranks > 1)
        s = pp_fail(
            PP_ERR_USAGE,
            "started as %d processes, but built without MPI: put mpicc on PATH and run make again, or use --ranks",
            env_ranks);
    if (s != PP_OK) {
        if (env_rank == 0)
            pp_failure_print();
        options_free(&o);
        return (int)s;
    }
    mpi = mpi && mpi_built();
    if (mpi && mpi_transport(&argc, &argv, &t) != PP_OK) {
        fprintf(stderr, "pipeline: error: MPI does not start\n");
        return PP_ERR_IO;
    }
    run.ranks = mpi ? t.ranks : o.ranks;
    run.cores = count_cores(mpi, t.host_ranks);
    if (mpi && o.ranks && o.ranks != t.ranks)
        s = pp_fail(PP_ERR_USAGE, "--ranks %d, but there are %d processes", o.ranks, t.ranks);
    run.mpi = mpi;
    if (s == PP_OK)
        s = devices_check(&run);
    if (s == PP_OK)
        s = prepare(&run, &o);
    if (mpi) {
        s = run_mpi(&run, &t, s);
        mpi_close();
    } else if (s != PP_OK) {
        pp_failure_print();
    } else {
        s = run_local(&run);
    }
    data_close(&run);
    sched_free(run.sched);
    free(run.output_wanted);
    free(run.until);
    options_free(&o);
    if ((fflush(stdout) || ferror(stdout)) && s == PP_OK) {
        fprintf(stderr, "pipeline: error: standard output cannot be written\n");
        s = PP_ERR_IO;
    }
    return (int)s;
}
