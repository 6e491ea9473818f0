/*
 * walk.c - one walk over a rank's row: when each instance is born and dies, which messages an
 * action starts or waits for.  Two compute actions that run at the same time are one moment.
 */
#include "planner.h"

static void touch_inputs(Planner *p, int l, int m, int least)
{
    const PpStage *st = p->plan->stage[l].st;
    for (int i = 0; i < st->n_input; i++)
        if (st->input[i].stashed >= least)
            plan_touch(p, plan_in(p, l, i, m));
}

static void touch_forward(Planner *p, int l, int m, int type)
{
    const PpStage *st = p->plan->stage[l].st;
    touch_inputs(p, l, m, 0);
    for (int o = 0; o < st->n_output; o++)
        plan_touch(p, type == SA_R ? plan_kept_out(p, l, o, m) : plan_out(p, l, o, m));
    if (!p->plan->ask.train)
        return;
    plan_touch(p, type == SA_R ? plan_kept_stash(p, l, m) : plan_stash(p, l, m));
    for (int k = 0; k < st->n_again; k++)
        plan_touch(p, type == SA_R ? plan_kept_part(p, l, k, m) : plan_part(p, l, k, m));
}

/* Some parts of the stash again, from what else is kept. */
static void touch_parts(Planner *p, int l, int m, int32_t parts)
{
    const PpStage *st = p->plan->stage[l].st;
    for (int i = 0; i < st->n_input; i++)
        if (st->input[i].again & parts)
            plan_touch(p, plan_in(p, l, i, m));
    for (int o = 0; o < st->n_output; o++)
        if (st->output[o].again & parts)
            plan_touch(p, plan_out(p, l, o, m));
    plan_touch(p, plan_kept_stash(p, l, m));
    for (int k = 0; k < st->n_again; k++)
        if (parts >> k & 1)
            plan_touch(p, plan_kept_part(p, l, k, m));
}

static void touch_backward(Planner *p, int l, int m, int least)
{
    const PpStage *st = p->plan->stage[l].st;
    touch_inputs(p, l, m, least);
    for (int o = 0; o < st->n_output; o++)
        if (st->output[o].stashed >= least)
            plan_touch(p, plan_kept_out(p, l, o, m));
    plan_touch(p, plan_kept_stash(p, l, m));
    for (int k = 0; k < st->n_again; k++)
        plan_touch(p, plan_kept_part(p, l, k, m));
}

static void touch_gradients(Planner *p, int l, int m, int type)
{
    const PpStage *st = p->plan->stage[l].st;
    for (int j = 0; j < st->n_dy; j++)
        if (type != SA_W || st->dy[j].stashed == 2)
            plan_touch(p, plan_dy(p, l, j, m));
    for (int k = 0; k < st->n_dx && type != SA_W; k++)
        plan_touch(p, plan_dx(p, l, k, m));
    if (type != SA_B || plan_own_weight(st))
        plan_touch(p, plan_saved(p, l, m));
}

/* A device's outputs go to the host while it computes on: until the stage's next forward, or the
 * end of the step. */
static void touch_held(Planner *p, int l)
{
    const PpStage *st = p->plan->stage[l].st;
    if (p->held[l] >= 0)
        plan_touch(p, plan_whole(p, l));
    for (int o = 0; o < st->n_output && p->held[l] >= 0; o++)
        if (plan_host_takes(p->plan, st, o))
            plan_touch(p, plan_out(p, l, o, p->held[l]));
}

static PpStatus await(Planner *p, Op *op, int64_t id)
{
    Plan *plan = p->plan;
    if (id < 0 || p->brought[id] < 0)
        return PP_OK;
    op->await_count++;
    return pp_add(&plan->pool, &plan->await, &plan->n_await, &p->brought[id], sizeof(int));
}

static void touch_sent(Planner *p, const Op *op)
{
    for (int i = op->first; i < op->first + op->count; i++) {
        const Transfer *t = &p->plan->transfer[i];
        for (int k = t->first; k < t->first + t->count; k++) {
            const Spot *at = &p->plan->msg[k].at;
            plan_touch(p, at->kind == SPOT_INSTANCE ? at->offset : -1);
        }
    }
}

static PpStatus walk_wait(Planner *p, const Op *op)
{
    int64_t at = (int64_t)op->local * p->m + op->a.microbatch;
    for (int *s = &p->last_send[op->a.type == SA_WAIT_SEND_B][at]; *s >= 0; s = &p->next_send[*s]) {
        const Op *send = &p->plan->op[*s];
        if (send->a.peer != op->a.peer)
            continue;
        *s = p->next_send[*s]; /* waited for: no longer open */
        touch_sent(p, send);
        if (!send->count)
            return PP_OK;
        Transfer t = p->plan->transfer[send->first];
        t.kind = DO_FINISH;
        return add_transfer(p, t);
    }
    return PP_OK; /* a wait for nothing, on an edge without tensors */
}

/* A computation: what it touches, and what it waits for. */
static PpStatus walk_compute(Planner *p, Op *op, const PpStage *st)
{
    Plan *plan = p->plan;
    const int l = op->local, m = op->a.microbatch, type = op->a.type;
    TRY(unshard_end(p, l));
    switch (type) {
    case SA_R:
        stored_reader(p, op);
        if (op->again == SCHED_WHOLE)
            touch_forward(p, l, m, type);
        else if (op->again)
            touch_parts(p, l, m, op->again);
        break;
    case SA_F:
        if (st->minibatch)
            gathered_walk(p, l, m, type);
        else
            touch_forward(p, l, m, type);
        touch_held(p, l);
        p->held[l] = plan->ask.on_device ? m : -1;
        for (int i = 0; i < st->n_input; i++)
            TRY(await(p, op, plan_in(p, l, i, m)));
        break;
    default: /* B, I, W */
        stored_reader(p, op);
        if (!st->has_backward)
            break;
        if (st->minibatch) {
            gathered_walk(p, l, m, type);
            break;
        }
        touch_backward(p, l, m, type == SA_W ? 2 : 1);
        touch_gradients(p, l, m, type);
        for (int j = 0; j < st->n_dy && type != SA_W; j++)
            TRY(await(p, op, plan_dy(p, l, j, m)));
        break;
    }
    return PP_OK;
}

static PpStatus walk_op(Planner *p, Op *op)
{
    Plan *plan = p->plan;
    const SchedAction *a = &op->a;
    int l = op->local, m = a->microbatch, type = a->type;
    const PpStage *st = l >= 0 ? plan->stage[l].st : NULL;
    op->first = plan->n_transfer;
    op->await_first = plan->n_await;
    op->copy = -1;
    if (!st)
        return PP_OK;
    const int computes = sched_is_compute(type);
    op->again = computes ? plan_again(p, l, m) : 0;
    block_walk(p, op);
    if (computes)
        TRY(walk_compute(p, op, st));
    switch (type) {
    case SA_OFFLOAD:
    case SA_WAIT_OFFLOAD:
    case SA_FETCH: stored_op(p, op); break;
    case SA_SEND_F:
    case SA_SEND_B: {
        int64_t at = (int64_t)l * p->m + m;
        TRY(plan_edge(p, a, l));
        p->next_send[p->at] = p->last_send[type == SA_SEND_B][at];
        p->last_send[type == SA_SEND_B][at] = p->at;
        break;
    }
    case SA_RECV_F:
    case SA_RECV_B: TRY(plan_edge(p, a, l)); break;
    case SA_WAIT_SEND_F:
    case SA_WAIT_SEND_B: TRY(walk_wait(p, op)); break;
    case SA_UNSHARD: TRY(unshard_begin(p, l)); break;
    case SA_RESHARD: TRY(unshard_drop(p, l)); break;
    case SA_SEND_P:
    case SA_RECV_P:
    case SA_SEND_GP: TRY(plan_params(p, a)); break;
    case SA_RECV_GP:
    case SA_REDUCE_GRAD:
    case SA_WAIT_REDUCE_GRAD: TRY(plan_reduction(p, a)); break;
    default: break;
    }
    op->count = plan->n_transfer - op->first;
    return PP_OK;
}

PpStatus plan_walk(Planner *p)
{
    Plan *plan = p->plan;
    int64_t n = (int64_t)plan->n_stage * p->m;
    TRY(pp_take(&p->pool, &p->last_send[0], n, sizeof(int)));
    TRY(pp_take(&p->pool, &p->last_send[1], n, sizeof(int)));
    TRY(pp_take(&p->pool, &p->next_send, plan->n_op, sizeof(int)));
    TRY(pp_take(&p->pool, &p->held, plan->n_stage, sizeof(int)));
    TRY(pp_take(&p->pool, &p->coming, plan->n_stage, sizeof(int)));
    for (int l = 0; l < plan->n_stage; l++)
        p->held[l] = p->coming[l] = -1;
    for (int64_t i = 0; i < n; i++)
        p->last_send[0][i] = p->last_send[1][i] = -1;
    for (p->at = 0; p->at < plan->n_op; p->at++) {
        p->begin = p->at - (p->at > 0 && plan->op[p->at - 1].together);
        p->end = p->at + plan->op[p->at].together;
        TRY(walk_op(p, &plan->op[p->at]));
    }
    p->begin = p->end = plan->n_op;
    /* sends that no action waits for are waited for at the end of the step */
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n; i++)
            for (int s = p->last_send[k][i]; s >= 0; s = p->next_send[s])
                touch_sent(p, &plan->op[s]);
    for (int l = 0; l < plan->n_stage; l++)
        touch_held(p, l);
    return PP_OK;
}
