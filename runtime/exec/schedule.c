/*
 * schedule.c - in: --schedule and its kin, the model's edges and shared parameters; out: verified
 * rows.
 */
#include "exec.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

static PpStatus refused(const SchedError *e, const char *what)
{
    int named = strstr(e->text, what) != NULL;
    return pp_fail(e->status == SCHED_EUSAGE      ? PP_ERR_USAGE
                   : e->status == SCHED_ERESOURCE ? PP_ERR_IO
                                                  : PP_ERR_MODEL,
                   "%s%s%s", named ? "" : what, named ? "" : ": ", e->text);
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

/* Gradients are summed while they are in memory; beside the next stage's computations, if there is
 * room for both. */
static int sums_at_once(const Options *o)
{
    return (o->memory.offload & OFFLOAD_PARAMS) ||
           (o->memory.zero >= 2 && !strcmp(o->memory.unshard, "1"));
}

static PpStatus schedule_lower(Run *run)
{
    const PpPlan *p = run->model;
    const Options *o = run->opt;
    const int64_t pairs = (int64_t)p->n_stage * p->n_stage;
    SchedError e = {.status = 0};
    SchedEdge *edge;
    SchedParam *param;
    POOL(room);
    TRY(pp_take(&room, &edge, pairs, sizeof *edge));
    TRY(pp_take(&room, &param, 2 * pairs, sizeof *param));
    const int comes =
        (o->memory.offload & OFFLOAD_PARAMS) || (o->memory.zero == 3 && run->replicas > 1);
    const SchedNeeds needs = {.edge = edge,
                              .n_edge = plan_edges(p, edge),
                              .param = param,
                              .n_param = plan_shared(p, param, o->mode == MODE_TRAIN),
                              .defer = o->schedule.defer,
                              .deferred_reduce = run->replicas > 1 && !sums_at_once(o),
                              .send_budget = o->schedule.send_budget,
                              .unshard = comes ? o->memory.unshard : NULL,
                              .buffers = o->schedule.buffers < 0 ? 1 << 20 : o->schedule.buffers};
    for (int i = 0; i < needs.n_edge && o->mode != MODE_TRAIN; i++)
        edge[i].gradient = 0;
    PpStatus s = run->sched ? PP_OK : schedule_choose(run, &needs, &e);
    if (s == PP_OK)
        s = recompute_insert(run);
    if (s == PP_OK && recompute_is_auto(o))
        s = recompute_choose(run, &needs, &e);
    if (s == PP_OK && (o->memory.offload & OFFLOAD_STASH))
        s = offload_lower(run, &needs, &e);
    else if (s == PP_OK && sched_lower_for(run->sched, &needs, &e))
        s = PP_ERR_MODEL;
    return s != PP_OK && e.text[0] ? refused(&e, o->schedule.name) : s;
}

int schedule_is_auto(const Options *o) { return !strcasecmp(o->schedule.name, "auto"); }

/* A file says itself how many microbatches there are; a generator is told. */
PpStatus schedule_read(Run *run, Options *o)
{
    if (sched_find(o->schedule.name) || schedule_is_auto(o))
        return PP_OK;
    SchedError e;
    int file = strchr(o->schedule.name, '/') || strstr(o->schedule.name, ".csv") ||
               access(o->schedule.name, F_OK) == 0;
    if (file ? sched_load(o->schedule.name, &run->sched, &e)
             : sched_generate(o->schedule.name, 1, 1, 1, SCHED_PLACE_DEFAULT, &run->sched, &e))
        return refused(&e, o->schedule.name);
    const Schedule *f = run->sched;
    if (f->stages != schedule_stages(run->model))
        return pp_fail(PP_ERR_MODEL, "%s is a schedule of %d stages, the model has %d",
                       o->schedule.name, f->stages, schedule_stages(run->model));
    if (o->schedule.microbatches && o->schedule.microbatches != f->microbatches)
        return pp_fail(PP_ERR_MODEL,
                       "%s is a schedule of %d microbatches, not of --microbatches %d",
                       o->schedule.name, f->microbatches, o->schedule.microbatches);
    o->schedule.microbatches = f->microbatches;
    if (!run->ranks)
        run->ranks = f->ranks;
    if (f->ranks != run->ranks)
        return pp_fail(PP_ERR_MODEL, "%s is a schedule of %d ranks, but there are %d",
                       o->schedule.name, f->ranks, run->ranks);
    if (o->mode != MODE_TRAIN)
        forwards_only(run->sched);
    return PP_OK;
}

/* The loss over the whole minibatch, which schedules do not know. */
static PpStatus add_minibatch(Run *run)
{
    SchedError e;
    if (!run->model->minibatch.rows || run->sched->minibatch)
        return PP_OK;
    return sched_minibatch(run->sched, &e) ? refused(&e, run->opt->schedule.name) : PP_OK;
}

PpStatus schedule_make(Run *run)
{
    const Options *o = run->opt;
    int stages = schedule_stages(run->model);
    if (run->ranks > stages && run->members > 1)
        return pp_fail(PP_ERR_MODEL,
                       "%d ranks make pipelines of %d, which are more than the model's %d stages: "
                       "use %d, or --dp N for N times as many, or split into more stages",
                       run_ranks(run), run->ranks, stages, stages * run->members * run->replicas);
    if (run->ranks > stages)
        return pp_fail(PP_ERR_MODEL,
                       "%d ranks are more than the model's %d stage%s: use fewer, or --dp N for N "
                       "replicas, or split into more stages",
                       run->ranks, stages, stages == 1 ? "" : "s");
    int chooses = o->mode == MODE_TRAIN && schedule_is_auto(o);
    if (chooses && run->model->minibatch.rows)
        return pp_fail(PP_ERR_USAGE, "--schedule auto: a loss over the whole minibatch needs all "
                                     "forwards first; use --schedule gpipe, the default");
    if (!run->sched && !chooses) {
        SchedError e;
        const char *name = o->mode == MODE_TRAIN ? o->schedule.name : "forward-only";
        int place = o->schedule.placement;
        if (o->mode != MODE_TRAIN && place == SCHED_PLACE_DEFAULT && stages % run->ranks == 0 &&
            !schedule_is_auto(o))
            /* Parameters lie where they lay in training */
            place = sched_find(o->schedule.name)->placement;
        if (sched_generate(name, run->ranks, stages, run->data.microbatches, place, &run->sched,
                           &e))
            return refused(&e, name);
    }
    if (run->sched)
        TRY(add_minibatch(run));
    return schedule_lower(run);
}
