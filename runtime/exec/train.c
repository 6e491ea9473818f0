/*
 * train.c - the loop over steps, and what comes after the last one.
 */
#include "exec.h"

#include <math.h>
#include <string.h>

static PpStatus dump_grads(Rank *r, const char *folder)
{
    PpStatus mine = PP_OK;
    if (!r->replica)
        mine =
            grads_write(&r->plan, &r->files, &r->along[AXIS_MEMBERS], folder, r->now.scale.scale);
    PpStatus all = group_agree(&r->group, mine);
    if (!r->replica && !r->member)
        mine = grads_settle(&r->plan, folder, all);
    return all != PP_OK ? all : group_agree(&r->group, mine);
}

/* After the actions: the rank's own parts of the gradients' norm. */
static PpStatus train_norms(Rank *r, int64_t step)
{
    const Options *o = r->run->opt;
    if (step == r->run->data.start.step && o->report.dump_grads)
        TRY(dump_grads(r, o->report.dump_grads));
    double t0 = pp_now();
    double *sum = r->plan.norm.blocks ? r->results.square : r->results.norm + 1;
    r->dev.op->math.norms(&r->dev, r->dev.current, r->host ? host_norms(r) : sum);
    trace_around(&r->report.trace, exec_turn(r, step), AROUND_NORM, t0, t0);
    return PP_OK;
}

/* The norm over all ranks, clipping, the update.  All ranks have the same sums, so all of them see
 * the same gradients that are not finite, and none steps.  Loss and norm are those of the unscaled
 * loss; gradients are divided by the scale where the optimizer reads them. */
static PpStatus train_end(Rank *r, int64_t step, StepLog *log)
{
    const Options *o = r->run->opt;
    int n = r->plan.norm.n;
    double total = 0, t0 = pp_now(), unscale = 1 / r->now.scale.scale;
    save_tell(r);
    r->results.word[WORD_BUSY] = r->report.busy;
    r->results.word[WORD_PASSES] = r->report.passes;
    TRY(r->group.op->sum(&r->group, r->results.norm, n + 1 + WORDS));
    double t1 = pp_now();
    for (int i = 1; i <= n; i++)
        total += r->results.norm[i];
    r->results.norm[0] *= unscale;
    const double *word = r->results.word;
    log->bubble = on_device(r) || word[WORD_PASSES] <= 0 ? (double)NAN
                                                         : 1 - word[WORD_BUSY] / word[WORD_PASSES];
    log->grad_norm = sqrt(total) * unscale;
    log->loss_scale = r->now.scale.scale;
    int finite = isfinite(log->grad_norm) != 0;
    double clip = o->train.clip_norm > 0 ? o->train.clip_norm / (log->grad_norm + 1e-6) : 1;
    if (finite && isfinite(r->results.norm[0])) {
        optim_update(r, r->save.updates++, log->lr, (clip < 1 ? clip : 1) * unscale);
        TRY(exec_gather(r));
    }
    log->skipped =
        !(finite && isfinite(r->results.norm[0])) && !strcmp(o->train.on_nonfinite, "skip");
    log->skipped |= !finite && !isnan(r->results.norm[0]) && loss_scale_may_fall(&r->now.scale);
    if (log->skipped)
        TRY(finite_statistics(r, 1));
    loss_scale_step(&r->now.scale, !finite);
    trace_around(&r->report.trace, exec_turn(r, step), AROUND_UPDATE, t0, t1);
    return PP_OK;
}

/* Messages of a microbatch carry what there is, which lengths say that all ranks find in the data:
 * where one found others the messages' headers tell. */
static void size_messages(Rank *r)
{
    const PpPlan *p = r->run->model;
    for (int k = 0; p->n_length && k < r->plan.n_msg; k++) {
        Message *x = &r->plan.msg[k];
        if (!x->t)
            continue;
        x->length = r->feed.length[x->microbatch];
        x->bytes = tensor_bytes(p, x->t, x->rows, x->length);
    }
}

/* All passes of a step, those of a replica's groups one after the other; r->now.pass stays at the
 * last one. */
static PpStatus run_passes(Rank *r, int64_t step)
{
    const Run *run = r->run;
    int last = data_passes(&run->data) - 1, train = run->opt->mode == MODE_TRAIN && !run->until;
    for (r->now.pass = 0; r->now.pass <= last; r->now.pass++) {
        double start = pp_now();
        if (r->host)
            host_feed(r, step);
        else
            feed_fill(&r->feed, step, r->now.pass);
        TRY(r->feed.status);
        size_messages(r);
        trace_lengths(&r->report.trace, exec_turn(r, step), r->feed.length);
        if (r->now.pass % run->data.passes == 0)
            exec_begin(r);
        trace_around(&r->report.trace, exec_turn(r, step), AROUND_BEGIN, start, start);
        TRY(exec_pass(r, step));
        if (r->now.pass == last) {
            memset(r->results.norm, 0,
                   (size_t)(r->plan.norm.n + 1 + WORDS) * sizeof *r->results.norm);
            memset(r->results.square, 0, (size_t)r->plan.norm.blocks * sizeof *r->results.square);
            if (train)
                TRY(train_norms(r, step));
        }
        if (r->host)
            TRY(host_settle(r, step));
        if (run->until || r->now.pass == last)
            break;
    }
    return PP_OK;
}

/* The mean over steps of other numbers of rows. */
typedef struct {
    double sum;
    int64_t rows;
} MeanLoss;

static void mean_add(MeanLoss *m, const Rank *r, int64_t step)
{
    int64_t rows = data_step_rows(&r->run->data, step);
    m->sum += r->results.norm[0] * (double)rows;
    m->rows += rows;
}

/* A step that only evaluates: results.norm[0] is its loss, on all ranks. */
static PpStatus step_loss(Rank *r, int64_t step)
{
    TRY(run_passes(r, step));
    TRY(replicas_loss(r));
    return r->group.op->sum(&r->group, r->results.norm, 1);
}

/* ---- --eval-data ---- */

static int is_due(const Rank *r, int64_t done)
{
    int64_t every = r->run->opt->eval.every;
    return done == r->run->data.steps || (every && done % every == 0);
}

/* All of its rows, between two steps of the training. */
static PpStatus evaluate(Rank *r, int64_t done)
{
    Rank *e = r->evaluation;
    double start = pp_now();
    if (!e || !is_due(r, done))
        return PP_OK;
    MeanLoss mean = {0, 0};
    TRY(replicas_statistics(r));
    e->dev.current = r->dev.current;
    if (r->away.home)
        store_follow(r->away.home, &e->dev);
    e->watch.dog = r->watch.dog;
    e->watch.first = r->plan.n_op + 1;
    for (int64_t step = 0; step < e->run->data.steps; step++) {
        watchdog_step(r->watch.dog, done - 1);
        TRY(step_loss(e, step));
        watchdog_step(r->watch.dog, -1);
        mean_add(&mean, e, step);
    }
    r->dev.current = e->dev.current;
    if (r->away.home)
        store_follow(r->away.home, &r->dev);
    return log_evaluation(&r->report.log, done, mean.sum / (double)mean.rows, mean.rows,
                          pp_now() - start);
}

/* The step has changed no parameter: once more, it takes the same way, and is looked at. */
static PpStatus not_finite(Rank *r, int64_t step, const StepLog *log)
{
    int again = 0;
    TRY(finite_again(r, log, &again));
    if (again) {
        watchdog_step(r->watch.dog, step);
        TRY(run_passes(r, step));
        watchdog_step(r->watch.dog, -1);
    }
    return finite_stop(r, log);
}

PpStatus steps_run(Rank *r)
{
    const Run *run = r->run;
    MeanLoss mean = {0, 0}; /* eval */
    TRY(trace_start(&r->report.trace, &r->group,
                    memory_total(&r->report.memory) - r->plan.bytes.total));
    for (int64_t step = run->data.start.step; step < run->data.steps; step++) {
        StepLog log = {.step = step + 1, .lr = optim_rate(run->opt, step, run->data.steps)};
        double start = pp_now();
        r->feed.loss_scale = r->now.scale.scale;
        r->report.busy = r->report.passes = 0;
        watchdog_step(r->watch.dog, step);
        if (run->opt->mode == MODE_TRAIN) {
            TRY(finite_statistics(r, 0));
            TRY(run_passes(r, step));
            if (run->until)
                return PP_OK;
            TRY(replicas_loss(r));
            TRY(replicas_norms(r));
            TRY(train_end(r, step, &log));
        } else {
            TRY(step_loss(r, step));
            if (run->until)
                return PP_OK;
            TRY(sample_step(r, step));
        }
        watchdog_step(r->watch.dog, -1);
        log.loss = r->results.norm[0];
        log.seconds = pp_now() - start;
        TRY(log_step(&r->report.log, &log));
        mean_add(&mean, r, step);
        if (run->opt->mode != MODE_INFER && !(isfinite(log.loss) && isfinite(log.grad_norm)) &&
            !(log.skipped && strcmp(run->opt->train.on_nonfinite, "skip")))
            TRY(not_finite(r, step, &log));
        TRY(save_step(r, step + 1));
        TRY(evaluate(r, step + 1));
        if (r->save.ends)
            break;
    }
    if (run->opt->mode == MODE_EVAL && mean.rows > 0)
        return log_mean(&r->report.log, mean.sum / (double)mean.rows, mean.rows);
    return PP_OK;
}

static PpStatus write_trace(Rank *r)
{
    const Run *run = r->run;
    return r->replica ? PP_OK
                      : trace_write(&r->report.trace, &r->group, run->sched, run->model,
                                    run->opt->report.trace);
}

static PpStatus finish_until(Rank *r)
{
    const char *dump = r->run->opt->report.dump_grads;
    if (r->group.rank == 0)
        until_print(r->run);
    if (dump)
        TRY(dump_grads(r, dump));
    return group_agree(&r->group, write_trace(r));
}

PpStatus steps_finish(Rank *r)
{
    const Run *run = r->run;
    if (run->until)
        return finish_until(r);
    if (run->data.start.step >= run->data.steps)
        return log_close(&r->report.log);
    if (!r->save.ends && !r->sampler) {
        TRY(group_agree(&r->group, replicas_outputs(r)));
        TRY(group_agree(&r->group,
                        speaks(r) ? results_write(&r->results, run->output_wanted) : PP_OK));
    }
    RunReport after = {.planned = memory_total(&r->report.memory),
                       .taken = r->dev.op->memory.taken(&r->dev),
                       .live = r->now.live_most,
                       .shards = r->away.count};
    members_count(r, &after.calls, &after.sent);
    TRY(log_after(&r->report.log, &r->group, run->members, &after));
    TRY(save_end(r));
    PpStatus s = write_trace(r), closed = log_close(&r->report.log);
    TRY(group_agree(&r->group, s != PP_OK ? s : closed));
    log_end(&r->report.log, r->save.step);
    return PP_OK;
}
