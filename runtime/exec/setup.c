/*
 * setup.c - everything that a rank allocates, before the first step, and its end.
 */
#include "exec.h"

#include "core/team.h"

#include <inttypes.h>
#include <stdlib.h>

int rank_threads(const Run *run, int host_ranks)
{
    int n = run->opt->machine.threads ? run->opt->machine.threads : run->cores / host_ranks;
    return n < 1 ? 1 : n;
}

static int set_threads(const Rank *r)
{
    int n = rank_threads(r->run, r->group.host_ranks);
    team_set(n);
    return n;
}

/* ---- the plan and its arena ---- */

PlanRequest plan_request(const Run *run, int rank, int64_t tags)
{
    const Data *d = &run->data;
    int device = run->model->device != PP_CPU, train = run->opt->mode == MODE_TRAIN;
    return (PlanRequest){
        .model = run->model,
        .schedule = run->sched,
        .rank = rank,
        .threads = run->threads,
        .replicas = run->replicas,
        .bucket = run->opt->schedule.bucket,
        .zero =
            run->replicas == 1 || (!train && run->opt->memory.zero < 3) ? 0 : run->opt->memory.zero,
        .passes = d->passes,
        .whole_grads = run->opt->report.dump_grads != NULL,
        .microbatches = d->microbatches,
        .rounds = data_rounds(d),
        .row0 = data_pass(d, 0, 0),
        .masked = run->opt->data.mask,
        .train = train,
        .on_device = device,
        .overlap = train && device && plan_overlaps(&run->sched->row[rank]),
        .states = optim_states(run->opt),
        .output.wanted = run->output_wanted,
        .output.rows = data_keeps_outputs(d) ? data_rows_before(d, d->steps) : d->batch,
        .output.length = d->longest,
        .tags = tags,
        .away = (run->opt->memory.offload & OFFLOAD_PARAMS) != 0,
    };
}

/* A device's slots and work are written before they are read, unless --until sends what was never
 * computed. */
static void clear_arena(Rank *r)
{
    Device *d = &r->dev;
    const Plan *p = &r->plan;
    if (on_device(r) && !r->run->until) {
        d->op->zero(d, d->current, p->at.arena, p->at.slots - p->at.arena);
        d->op->zero(d, d->current, p->at.statistics,
                    p->at.arena + p->bytes.total - p->at.statistics);
    } else {
        d->op->zero(d, d->current, p->at.arena, p->bytes.total);
    }
}

static PpStatus allocate(Rank *r)
{
    Plan *p = &r->plan;
    int64_t bytes = p->bytes.total;
    /* a stage whose nodes all run in others has none, and buffers of no bytes still have places */
    char *arena = r->dev.op->memory.alloc(&r->dev, bytes ? bytes : 1);
    if (!arena)
        return pp_fail(PP_ERR_IO, "%s: no memory for %" PRId64 " bytes of tensors%s%s",
                       pp_rank(r->group.rank).text, bytes, on_device(r) ? " on the device: " : "",
                       r->dev.op->error());
    if (p->ask.away)
        TRY(home_open(r));
    TRY(plan_place(p, arena, r->away.home ? store_memory(r->away.home) : NULL));
    clear_arena(r);
    return PP_OK;
}

static PpStatus list_params(Rank *r)
{
    int n = r->params.n = optim_count(&r->plan);
    TRY(pp_take(&r->pool, &r->params.at, n, sizeof *r->params.at));
    optim_list(&r->plan, r->run->opt, r->params.at);
    if (!r->dev.op->math.params(&r->dev, r->params.at, n))
        return pp_fail(PP_ERR_IO, "%s: no memory for the optimizer: %s",
                       pp_rank(r->group.rank).text, r->dev.op->error());
    return PP_OK;
}

/* ---- stages ---- */

static PpStatus open_stages(Rank *r)
{
    const char *failure = NULL;
    r->report.memory.library = 0;
    for (int l = 0; l < r->plan.n_stage; l++) {
        const PpStage *st = r->plan.stage[l].st;
        if (!st->call.open)
            continue;
        PpLibrary *library = pp_library = &r->library[r->plan.ask.overlap ? l : 0];
        r->stage[l].state = st->call.open(r->threads);
        pp_library = NULL;
        if (!r->stage[l].state || library->failure)
            failure = library->failure ? library->failure : "out of memory";
    }
    for (int l = 0; l < r->plan.n_stage; l++)
        r->report.memory.library += r->library[l].bytes;
    r->report.memory.library += r->dev.library;
    TRY(device_check(&r->dev, r->group.rank, "the libraries of its stages"));
    return failure ? pp_fail(PP_ERR_IO, "%s, the libraries of its stages: %s",
                             pp_rank(r->group.rank).text, failure)
                   : PP_OK;
}

static void close_stages(Rank *r)
{
    for (int l = 0; r->stage && l < r->plan.n_stage; l++) {
        const PpStage *st = r->plan.stage[l].st;
        if (r->stage[l].state && st->call.close)
            st->call.close(r->stage[l].state);
    }
    for (int l = 0; r->library && l < r->plan.n_stage; l++)
        pp_library_close(&r->library[l]);
}

static PpStatus open_store(Rank *r)
{
    const Plan *p = &r->plan;
    StoreWish w = {.bytes = p->bytes.store,
                   .copies = p->n_op,
                   .most = 2 * p->work.offloaded,
                   .rank = r->group.rank,
                   .timed = r->run->opt->report.trace != NULL,
                   .option = on_device(r) ? "--offload" : "--offload-dir",
                   .folder = r->run->opt->memory.offload_dir};
    r->report.memory.host += r->away.home && on_device(r) ? p->bytes.home : 0;
    if (!p->work.offloaded)
        return PP_OK;
    if (!on_device(r) && !w.folder)
        return pp_fail(
            PP_ERR_USAGE,
            "%s: the schedule has OFFLOADs: give a folder for their file with --offload-dir",
            pp_rank(w.rank).text);
    TRY(store_open(&r->away.stash, &r->dev, on_device(r), &w));
    r->report.memory.host += on_device(r) ? w.bytes : 0;
    return PP_OK;
}

/* ---- all of it ---- */

static PpStatus plan_memory(Rank *r)
{
    const Schedule *s = r->run->sched;
    PlanRequest ask = plan_request(r->run, r->along[AXIS_PIPE].rank, r->along[AXIS_PIPE].tag_max);
    ask.replica = r->replica;
    ask.member = r->member;
    ask.threads = r->threads;
    ask.row0 = data_pass(&r->data, 0, 0);
    TRY(devices_open(r, ask.overlap));
    TRY(plan_build(&r->plan, &ask));
    r->report.memory.bytes = r->plan.bytes;
    r->report.memory.process = r->run->process_bytes;
    r->report.memory.snapshot = saver_bytes(&r->plan, r->run->opt);
    r->report.memory.live = sched_live_rank(s, ask.rank);
    for (int l = 0; l < r->plan.n_stage; l++)
        if (r->plan.stage[l].st->half_type)
            r->report.memory.half_type = r->plan.stage[l].st->half_type;
    if (r->report.memory.half_type)
        snprintf(r->report.memory.half, sizeof r->report.memory.half, "%s",
                 r->dev.op->says.half(r->report.memory.half_type));
    r->report.memory.messages = r->plan.n_msg;
    r->report.memory.offloaded = r->plan.work.offloaded;
    r->report.memory.operations = r->plan.work.operations;
    r->report.memory.recomputed = r->plan.work.recomputed;
    r->report.memory.threads = r->threads;
    TRY(allocate(r));
    TRY(pp_take(&r->pool, &r->stage, r->plan.n_stage, sizeof *r->stage));
    TRY(pp_take(&r->pool, &r->library, r->plan.n_stage, sizeof *r->library));
    return list_params(r);
}

/* Of all parameters that stand here from the start; an update makes those of what it changes anew.
 */
static void make_half_copies(Rank *r)
{
    for (RankWalk i = {0}; plan_next(&r->plan, &i);)
        if (i.q->p->use != PP_TRANSMIT)
            half_copy(r, i.local, i.param);
}

PpStatus rank_open(Rank *r)
{
    const Options *o = r->run->opt;
    const Data *d = &r->data;
    char own[sizeof o->command.folder + 16];
    r->threads = set_threads(r);
    TRY(sample_open(r));
    TRY(plan_memory(r));
    TRY(feed_open(&r->feed, &r->pool, d, &r->plan));
    TRY(results_open(&r->results, &r->pool, d, &r->plan));
    if (o->report.trace) {
        TRY(trace_open(&r->report.trace, &r->pool, &r->plan,
                       (d->steps - d->start.step) * data_passes(d)));
        TRY(profile_open(&r->report.trace.profile, &r->pool, r->run->model, r->run->sched,
                         r->along[AXIS_PIPE].rank));
    }
    TRY(open_stages(r));
    meshes_open(r);
    r->files = (HostCopy){.dev = &r->dev, .links = r->links};
    if (on_device(r))
        TRY(host_open(r));
    r->report.memory.host += r->dev.pinned;
    TRY(open_store(r));
    snprintf(own, sizeof own, "%s/params", o->command.folder);
    const ParamsFrom from = {.own = own,
                             .given = r->run->given.path ? r->run->given.path : o->save.params,
                             .resume = r->run->from.path,
                             .states = r->run->from.path ? NULL : o->save.states};
    TRY(params_load(&r->plan, &r->files, &from, o));
    make_half_copies(r);
    TRY(save_open(r));
    return destinations_try(&r->save.held, &r->plan, o, d->steps);
}

void rank_close(Rank *r)
{
    log_close(&r->report.log);
    watchdog_close(r->watch.dog);
    saver_close(r->save.saver);
    r->dev.op->enter(&r->dev);
    store_close(r->away.stash);
    store_close(r->away.home);
    host_close(r);
    close_stages(r);
    if (r->plan.at.arena)
        r->dev.op->memory.release(&r->dev, r->plan.at.arena);
    plan_free(&r->plan);
    r->dev.op->close(&r->dev);
    pool_free(&r->pool);
}
