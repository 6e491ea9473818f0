/*
 * compute.c - one computation: a stage's function on the buffers that the plan chose for the
 * microbatch.
 */
#include "exec.h"

static void copy(Rank *r, void *to, const void *from, int64_t bytes)
{
    r->dev.op->copy(&r->dev, r->dev.current, to, from, bytes);
}

/* A forward that leaves running statistics as they are: once more, for the backward that comes,
 * they have moved already; of a replica's later groups, they are those of the first one. */
static void forward_aside(Rank *r, const StagePlan *rs, const PpCtx *c)
{
    char *kept = r->plan.stat_copy;
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->st->param[k].stat) {
            copy(r, kept, c->param + rs->st->param[k].offset, rs->st->param[k].t.bytes);
            kept += align_up(rs->st->param[k].t.bytes);
        }
    rs->st->forward(c);
    kept = r->plan.stat_copy;
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->st->param[k].stat) {
            copy(r, c->param + rs->st->param[k].offset, kept, rs->st->param[k].t.bytes);
            kept += align_up(rs->st->param[k].t.bytes);
        }
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
    if (trace_times(&r->trace, exec_turn(r, (int64_t)c->step)))
        profile_begin(&r->trace.profile, st, function);
    run(c);
    profile_end();
}

/* B: in one, but where a user's own function is its second half. */
static void backward(Rank *r, const PpStage *st, const PpCtx *c)
{
    if (!plan_own_weight(st)) {
        timed(r, st, PP_TIMED_BACKWARD, st->backward, c);
        return;
    }
    timed(r, st, PP_TIMED_INPUT, st->backward_input, c);
    (*st->own_weight)(c);
}

/* What a stage's function is handed for a microbatch: its blocks, its messages, which rows it is.
 */
static PpCtx context(Rank *r, const Op *op, int64_t step)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    StageRun *own = &r->stage[op->local];
    const PpStage *st = rs->st;
    const ParamBlock here = param_block(r, op->local);
    const int64_t *row0 = data_pass(&r->data, step, r->pass);
    int m = op->a.microbatch, is_forward = op->a.type == SA_F;
    PpCtx c = {
        .rows = row0[m + 1] > row0[m] ? data_computed(&r->data, step, exec_in_step(r, m)) : 0,
        .length = r->feed.length[m],
        .stage = st->index,
        .microbatch = m,
        .param = here.param,
        .grad = here.grad,
        .constants = rs->constants,
        .half = here.half,
        .stash = (is_forward ? rs->stash : rs->stash_kept)[m],
        .saved = rs->saved[m],
        .work = r->plan.slots + op->work,
        .in = rs->in + (int64_t)m * st->n_input,
        .out = (is_forward ? rs->out : rs->out_kept) + (int64_t)m * st->n_output,
        .dy = rs->dy + (int64_t)m * st->n_dy,
        .dx = rs->dx + (int64_t)m * st->n_dx,
        .seed = r->run->opt->seed,
        .step = (uint64_t)step,
        .row0 = (uint64_t)(row0[m] - data_before(&r->data, step, exec_in_step(r, m))),
        .stream = own->handles.stream,
        .blas = own->handles.blas,
        .state = own->state,
        .mesh = &own->mesh,
    };
    members_number(r, &c);
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
    int looks = r->seek.on && exec_in_step(r, op->a.microbatch) == r->seek.microbatch;
    if (looks)
        seek_begin(r, st, c);
    if (r->run->opt->mode != MODE_TRAIN)
        st->infer(c);
    else if (exec_round(r) > 0)
        forward_aside(r, rs, c);
    else
        timed(r, st, PP_TIMED_FORWARD, st->forward, c);
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
    if (c.rows == 0 || r->stopped) {
        double *loss = &r->results.loss[exec_in_step(r, m)];
        *loss = op->a.type == SA_F && !r->stopped ? 0 : *loss;
        return PP_OK;
    }
    if (op->a.type == SA_B || op->a.type == SA_I || op->a.type == SA_W)
        await_outputs(r, op->local);
    switch (op->a.type) {
    case SA_F: forward(r, op, &c, step); break;
    case SA_R:
        if (st->has_backward)
            recompute(r, rs, op->again, &c);
        break;
    case SA_B:
        if (st->has_backward)
            backward(r, st, &c);
        break;
    case SA_I:
        if (st->has_backward)
            timed(r, st, PP_TIMED_INPUT, st->backward_input, &c);
        break;
    case SA_W:
        if (st->has_backward && plan_own_weight(st))
            (*st->own_weight)(&c);
        else if (st->has_backward)
            timed(r, st, PP_TIMED_WEIGHT, st->backward_weight, &c);
        break;
    default: return PP_ERR_BUG;
    }
    if (r->seek.on && r->seek.microbatch < 0 && st->has_backward &&
        (op->a.type == SA_B || op->a.type == SA_I || op->a.type == SA_W))
        seek_backward(r, op, &c, data_pass(&r->data, step, r->pass)[m]);
    return r->stage[op->local].mesh.status;
}
