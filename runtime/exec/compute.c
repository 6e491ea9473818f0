/*
 * compute.c - one computation: a stage's function on the buffers that the plan chose for the
 * microbatch.
 */
#include "exec.h"

/* Running statistics of a stage to where they are kept aside, or back. */
static void copy_statistics(Rank *r, const PpStage *st, char *param, int back)
{
    char *kept = r->plan.at.statistics;
    for (const PpParam *q = st->param; q < st->param + st->n_param; q++)
        if (q->stat) {
            char *at = param + q->offset;
            r->dev.op->copy(&r->dev, r->dev.current, back ? at : kept, back ? kept : at,
                            q->t.bytes);
            kept += align_up(q->t.bytes);
        }
}

/* A forward that leaves running statistics as they are: once more, for the backward that comes,
 * they have moved already; of a replica's later groups, they are those of the first one. */
static void forward_aside(Rank *r, const StagePlan *rs, const PpCtx *c)
{
    copy_statistics(r, rs->st, c->param, 0);
    rs->st->call.forward(c);
    copy_statistics(r, rs->st, c->param, 1);
}

/* parts: as of an R */
static void recompute(Rank *r, const StagePlan *rs, int32_t parts, const PpCtx *c)
{
    if (parts == SCHED_WHOLE) {
        forward_aside(r, rs, c);
        return;
    }
    for (int k = 0; k < rs->st->n_again; k++)
        if (parts >> k & 1)
            rs->st->again[k].make(c);
}

/* A function of which --profile has the steps. */
static void timed(Rank *r, const PpStage *st, int function, void (*run)(const PpCtx *c),
                  const PpCtx *c)
{
    if (trace_times(&r->report.trace, exec_turn(r, (int64_t)c->step)))
        profile_begin(&r->report.trace.profile, st, function);
    run(c);
    profile_end();
}

/* B: in one, but where a user's own function is its second half; I, W. */
static void backward(Rank *r, const PpStage *st, int type, const PpCtx *c)
{
    const int own = plan_own_weight(st);
    if (type == SA_B && !own)
        timed(r, st, PP_TIMED_BACKWARD, st->call.backward, c);
    else if (type != SA_W)
        timed(r, st, PP_TIMED_INPUT, st->call.backward_input, c);
    if (type != SA_I && own)
        (*st->call.own_weight)(c);
    else if (type == SA_W)
        timed(r, st, PP_TIMED_WEIGHT, st->call.backward_weight, c);
}

/* Of a microbatch: and its messages, which rows it is. */
static PpCtx context(Rank *r, const Op *op, int64_t step)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    const PpStage *st = rs->st;
    const int64_t *row0 = data_pass(&r->data, step, r->now.pass);
    int m = op->a.microbatch, is_forward = op->a.type == SA_F;
    PpCtx c = stage_context(r, op, step);
    c.rows = row0[m + 1] > row0[m] ? data_computed(&r->data, step, exec_in_step(r, m)) : 0;
    c.row0 = (uint64_t)(row0[m] - data_before(&r->data, step, exec_in_step(r, m)));
    c.length = r->feed.length[m];
    c.microbatch = m;
    c.stash = (is_forward ? rs->stash : rs->stash_kept)[m];
    c.saved = rs->saved[m];
    c.in = rs->in + (int64_t)m * st->n_input;
    c.out = (is_forward ? rs->out : rs->out_kept) + (int64_t)m * st->n_output;
    c.dy = rs->dy + (int64_t)m * st->n_dy;
    c.dx = rs->dx + (int64_t)m * st->n_dx;
    for (int k = 0; k < st->n_again; k++)
        c.again[k] = (is_forward ? rs->part : rs->part_kept)[(int64_t)m * st->n_again + k];
    return c;
}

/* A backward may leave a gradient in the place of an output, which may be on its way to the host.
 */
static void await_outputs(Rank *r, int stage)
{
    const PpStage *st = r->plan.stage[stage].st;
    for (int o = 0; r->host && o < st->n_output; o++)
        if (st->output[o].stashed && plan_host_takes(&r->plan, st, o)) {
            host_held(r, stage);
            return;
        }
}

/* F: under the mode, or as one of a step that is looked through for what is not finite. */
static void forward(Rank *r, const Op *op, const PpCtx *c, int64_t step)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    const PpStage *st = rs->st;
    int looks = r->now.seek.on && exec_in_step(r, op->a.microbatch) == r->now.seek.microbatch;
    if (looks)
        seek_begin(r, st, c);
    if (r->run->opt->mode != MODE_TRAIN)
        st->call.infer(c);
    else if (exec_round(r) > 0)
        forward_aside(r, rs, c);
    else
        timed(r, st, PP_TIMED_FORWARD, st->call.forward, c);
    if (looks)
        seek_end(r, st, c);
    forward_done(r, op->local, op->a.microbatch, step);
}

PpStatus compute(Rank *r, const Op *op, int64_t step)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    const PpStage *st = rs->st;
    int m = op->a.microbatch;
    if (st->minibatch)
        return minibatch_compute(r, op, step);
    PpCtx c = context(r, op, step);
    if (r->host && op->a.type == SA_F) {
        host_fed(r, m);
        host_held(r, op->local);
    }
    if (c.rows == 0 || r->now.stopped) {
        double *loss = &r->results.loss[exec_in_step(r, m)];
        *loss = op->a.type == SA_F && !r->now.stopped ? 0 : *loss;
        return PP_OK;
    }
    const int goes_back = op->a.type != SA_F && op->a.type != SA_R;
    if (goes_back)
        await_outputs(r, op->local);
    if (op->a.type == SA_F)
        forward(r, op, &c, step);
    else if (st->has_backward && !goes_back)
        recompute(r, rs, op->again, &c);
    else if (st->has_backward)
        backward(r, st, op->a.type, &c);
    if (r->now.seek.on && r->now.seek.microbatch < 0 && st->has_backward && goes_back)
        seek_backward(r, op, &c, data_pass(&r->data, step, r->now.pass)[m]);
    return r->stage[op->local].mesh.status;
}
