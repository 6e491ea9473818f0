/*
 * evaluate.c - --eval-data: the loss of other rows while a model trains.  In: the training's rank
 * between two of its steps.  Out: the mean over all of these rows, to the bit what `eval --data
 * ... --batch` of the same numbers says of a checkpoint of that moment, with as many replicas as
 * the training has groups of rows: by whatever replicas these groups are taken.
 *
 * An evaluation is a run of its own with the mode, data and forward-only schedule of `eval`, on the
 * same ranks and with the same parameters, which its plan borrows.  It lies where the training has
 * its activations, which nobody needs between two steps; only what does not fit there is taken
 * beside it.  Parameters that are elsewhere (--offload params, --zero 3) come and go as in a
 * training.
 */
#include "exec.h"

#include "base/file/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- before the ranks start ---- */

static Options options_of(const Options *o)
{
    Options e = *o;
    e.mode = MODE_EVAL;
    e.eval.on = 1;
    e.data.files = o->eval.files;
    e.data.lengths = o->eval.lengths;
    e.data.tokens = o->eval.tokens;
    e.data.output.n = e.data.mixes.n = 0;
    e.data.by_length = 0;
    e.data.steps = e.data.epochs = 0;
    e.schedule.microbatches = e.schedule.accumulate = 0;
    e.data.shuffle = 0;
    e.memory.recompute = e.report.trace = e.report.until = e.save.checkpoint = NULL;
    e.memory.limit = 0;
    e.memory.offload &= OFFLOAD_PARAMS;
    e.train.scale = (LossScale){.scale = 1};
    return e;
}

/* Forwards of all microbatches, the stages of a rank in order: for any placement of them. */
static PpStatus forwards(Run *e, const Schedule *train)
{
    Memory text;
    SchedError err;
    FILE *f = memory_open(&text);
    for (int r = 0; f && r < train->ranks; r++, fputc('\n', f)) {
        const char *comma = "";
        for (int m = 0; m < e->data.microbatches; m++)
            for (int s = 0; s < train->stages; s++)
                if (train->rank_of[s] == r) {
                    fprintf(f, "%s%dF%d", comma, s, m);
                    comma = ",";
                }
    }
    if (memory_close(f, &text))
        return pp_no_memory();
    int bad = sched_parse(text.at, text.n, "evaluation", &e->sched, &err);
    free(text.at);
    if (bad)
        return pp_fail(PP_ERR_BUG, "%s", err.text);
    e->sched->infer = 1;
    e->sched->minibatch = train->minibatch;
    return PP_OK;
}

/* Stages stand where they stand in the training, for their parameters do. */
static PpStatus make_schedule(Run *e, const Schedule *train)
{
    size_t bytes = (size_t)train->stages * sizeof *train->rank_of;
    if (sched_find(e->opt->schedule.name)) {
        TRY(schedule_make(e));
        if (!memcmp(e->sched->rank_of, train->rank_of, bytes))
            return PP_OK;
        sched_free(e->sched);
        e->sched = NULL;
    }
    TRY(forwards(e, train));
    return schedule_make(e);
}

PpStatus evaluation_prepare(Run *run, int part, int parts)
{
    const Options *o = run->opt;
    if (!o->eval.files.n && !o->eval.tokens.n)
        return PP_OK;
    Options *own;
    TRY(pp_take(&run->pool, &own, 1, sizeof *own));
    TRY(pp_take(&run->pool, &run->evaluation, 1, sizeof *run->evaluation));
    Run *e = run->evaluation;
    *own = options_of(o);
    *e = (Run){.opt = own,
               .model = run->model,
               .ranks = run->ranks,
               .cores = run->cores,
               .replicas = run->replicas,
               .members = run->members};
    TRY(pp_take(&run->pool, &e->output_wanted, run->model->n_output, sizeof *e->output_wanted));
    for (int i = 0; i < run->model->n_output; i++)
        e->output_wanted[i] = -1;
    TRY(data_open(&e->data, e->model, own));
    TRY(data_check(&e->data, part, parts));
    return make_schedule(e, run->sched);
}

void evaluation_free(Run *run)
{
    Run *e = run->evaluation;
    if (!e)
        return;
    data_close(&e->data);
    sched_free(e->sched);
    run->evaluation = NULL;
}

/* ---- a rank's ---- */

static PpStatus place(Rank *r, Rank *e)
{
    PlanRequest ask = plan_request(e->run, r->along[AXIS_PIPE].rank, r->along[AXIS_PIPE].tag_max);
    ask.replica = r->replica;
    ask.member = r->member;
    ask.row0 = data_pass(&e->data, 0, 0);
    ask.lender = &r->plan;
    TRY(plan_build(&e->plan, &ask));
    int64_t bytes = e->plan.bytes.total;
    if (bytes <= r->plan.bytes.block)
        return plan_place(&e->plan, r->plan.at.slots, NULL);
    char *room = r->dev.op->memory.alloc(&r->dev, bytes);
    if (!room)
        return pp_fail(PP_ERR_IO, "%s: no memory for %lld bytes of --eval-data",
                       pp_rank(r->group.rank).text, (long long)bytes);
    r->report.memory.evaluation = bytes;
    return plan_place(&e->plan, room, NULL);
}

PpStatus evaluation_open(Rank *r)
{
    const Run *run = r->run->evaluation;
    if (!run)
        return PP_OK;
    TRY(pp_take(&r->pool, &r->evaluation, 1, sizeof *r->evaluation));
    Rank *e = r->evaluation;
    *e = (Rank){.run = run,
                .group = r->group,
                .replica = r->replica,
                .member = r->member,
                .data = data_of(&run->data, r->replica),
                .dev = r->dev,
                .threads = r->threads,
                .away.home = r->away.home,
                .now.scale = {.scale = 1}};
    memcpy(e->along, r->along, sizeof e->along);
    TRY(place(r, e));
    TRY(feed_open(&e->feed, &e->pool, &e->data, &e->plan));
    TRY(results_open(&e->results, &e->pool, &e->data, &e->plan));
    TRY(pp_take(&e->pool, &e->stage, e->plan.n_stage, sizeof *e->stage));
    for (int l = 0; l < e->plan.n_stage; l++)
        e->stage[l].state = r->stage[l].state;
    meshes_open(e);
    if (on_device(r))
        TRY(host_open(e));
    r->report.memory.host += e->report.memory.host;
    return PP_OK;
}

PpStatus evaluation_links(Rank *r)
{
    Rank *e = r->evaluation;
    if (!e)
        return PP_OK;
    for (int x = 0; x < AXES; x++)
        if (x == AXIS_PIPE || (x == AXIS_MEMBERS && e->along[AXIS_MEMBERS].ranks > 1) ||
            (x == AXIS_PEERS && e->plan.ask.zero))
            TRY(rank_links(e, r, x));
    return PP_OK;
}

void evaluation_close_links(Rank *r, int broken)
{
    for (int x = 0; x < AXES && r->evaluation; x++)
        links_close(&r->evaluation->links[x], broken);
}

void evaluation_close(Rank *r)
{
    Rank *e = r->evaluation;
    if (!e)
        return;
    if (r->away.home)
        store_follow(r->away.home, &r->dev);
    host_close(e);
    if (e->plan.at.arena && e->plan.at.arena != r->plan.at.slots)
        r->dev.op->memory.release(&r->dev, e->plan.at.arena);
    plan_free(&e->plan);
    pool_free(&e->pool);
    r->evaluation = NULL;
}
