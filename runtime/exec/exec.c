/*
 * exec.c - the interpreter: one rank, one step, one action after the other.
 *
 * There is no loop written for a schedule, and nothing is decided here: an action waits for the
 * messages it needs, a computation calls the stage's function on the buffers that the plan chose,
 * and every other action goes through its list of transfers: messages started and waited for,
 * gradients added and copied.
 *
 * On a device this thread only enqueues: actions go into their stage's stream, each after the one
 * before (Device.current), and messages are ordered by events (links.h); the host waits once a
 * step, in host_side.c.
 *
 * Under --until computations stop at an action, on every rank where what that action needs has run;
 * the rest of the step then only passes its messages on, so that nobody is left waiting.
 */
#include "exec.h"

#include "base/file/safetensors.h"

static PpStatus failed(Rank *r, const Op *op, PpStatus s)
{
    char text[80], microbatch[32] = "";
    const char *why = r->dev.op->error();
    sched_action_text(text, sizeof text, &op->a);
    if (op->a.microbatch >= 0)
        snprintf(microbatch, sizeof microbatch, ", microbatch %d", op->a.microbatch);
    return pp_fail(s, "%s, action %s of stage %d%s failed%s%s", pp_rank(r->group.rank).text, text,
                   op->a.stage, microbatch, *why ? ": " : "", why);
}

/* Is it for this round of the step? */
static int in_round(const Rank *r, const Transfer *t)
{
    int round = exec_round(r), last = round == data_rounds(&r->run->data) - 1;
    return t->rounds == ROUND_LATER      ? round > 0
           : t->rounds == ROUND_LAST     ? last
           : t->rounds == ROUND_NOT_LAST ? !last
                                           : 1;
}

/* Once computations are over messages still flow, so that nobody is left waiting.  op: of which it
 * is, for its workspace. */
static PpStatus transfer(Rank *r, const Op *op, const Transfer *t)
{
    Device *d = &r->dev;
    int axis = t->count ? r->plan.msg[t->first].axis : AXIS_PIPE;
    Links *l = &r->links[axis];
    if (r->now.stopped && axis == AXIS_PEERS && t->kind != DO_FINISH)
        return PP_OK; /* the same rank of every replica stops here */
    if (!in_round(r, t))
        return PP_OK;
    switch (t->kind) {
    case DO_SEND: return links_start(l, t->first, t->count, 0);
    case DO_RECV: return links_start(l, t->first, t->count, 1);
    case DO_FINISH: return links_finish(l, t->first, t->count);
    case DO_ADD:
    case DO_ADD_OWN:
        if (!r->now.stopped || t->kind == DO_ADD_OWN)
            d->op->math.add(d, d->current, t->to, t->from, t->bytes / st_dtype_size(t->dtype),
                            t->dtype);
        return PP_OK;
    case DO_MEMBERS: return members_sum(r, t, r->plan.at.slots + op->work);
    case DO_COPY:
        if (!r->now.stopped)
            d->op->copy(d, d->current, t->to, t->from, t->bytes);
        return PP_OK;
    case DO_ROUND:
        if (!r->now.stopped)
            half_copy(r, t->local, t->param);
        return PP_OK;
    }
    return PP_ERR_BUG;
}

/* Starts it; the op that needs it done waits (await). */
static void copy_stash(Rank *r, const Op *op)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    const PpStage *st = rs->st;
    int m = op->a.microbatch, number = (int)(op - r->plan.op), out = op->a.type == SA_OFFLOAD;
    int64_t at = rs->stored[m];
    if (r->now.stopped)
        return;
    store_copy(r->away.stash, number, out, at, (out ? rs->stash : rs->stash_kept)[m],
               st->bytes.stash);
    at += align_up(st->bytes.stash);
    for (int k = 0; k < st->n_again; k++) {
        if (op->again >> k & 1)
            continue;
        store_copy(r->away.stash, number, out, at,
                   (out ? rs->part : rs->part_kept)[(int64_t)m * st->n_again + k],
                   st->again[k].bytes);
        at += align_up(st->again[k].bytes);
    }
}

static PpStatus transfers(Rank *r, const Op *op, int from)
{
    for (int i = from; i < op->first + op->count; i++)
        TRY(transfer(r, op, &r->plan.transfer[i]));
    return PP_OK;
}

/* What is done once the gradients of all microbatches are there: in the last pass of a group. */
static int adds_up(const SchedAction *a)
{
    return a->type == SA_SEND_GP || a->type == SA_RECV_GP || a->type == SA_REDUCE_GRAD ||
           a->type == SA_WAIT_REDUCE_GRAD;
}

static int computes(const Op *op) { return sched_is_compute(op->a.type); }

static int last_pass(const Rank *r) { return (r->now.pass + 1) % r->run->data.passes == 0; }

/* ---- sums over replicas (plan/replicas.c) ---- */

static void begin_sums(Rank *r, int local)
{
    StageRun *own = &r->stage[local];
    own->summing = 1;
    own->turns = 0;
    own->began = pp_now();
    own->beside = 0;
}

/* Sums of a rank follow one another: one's time begins where that of the one before it ends. */
static void end_sums(Rank *r, int local, int64_t step)
{
    StageRun *own = &r->stage[local];
    double now = pp_now();
    own->summing = 0;
    if (!r->host) /* a device's turns are only enqueued here */
        trace_sums(&r->report.trace, exec_turn(r, step), r->plan.stage[local].st->index, own->began,
                   now, own->beside);
    for (int l = 0; l < r->plan.n_stage; l++)
        if (r->stage[l].summing)
            r->stage[l].began = now;
}

/* between: actions, whose rank's time it takes. */
static PpStatus take_turn(Rank *r, int local, int64_t step, int between)
{
    double start = pp_now();
    const StagePlan *rs = &r->plan.stage[local];
    const int *turn = &r->plan.turns.at[rs->turn + r->stage[local].turns++];
    for (int i = turn[0]; i < turn[1]; i++)
        TRY(transfer(r, NULL, &r->plan.transfer[i]));
    r->stage[local].beside += between ? pp_now() - start : 0;
    if (r->stage[local].turns == rs->n_turn)
        end_sums(r, local, step);
    return PP_OK;
}

/* Is all there that the stage's next turn waits for? */
static PpStatus may_take(Rank *r, int local, int *may)
{
    const int *turn = &r->plan.turns.at[r->plan.stage[local].turn + r->stage[local].turns];
    *may = 1;
    for (int i = turn[0]; i < turn[1] && *may; i++) {
        const Transfer *t = &r->plan.transfer[i];
        if (t->kind != DO_FINISH)
            break;
        if (in_round(r, t))
            TRY(links_over(&r->links[AXIS_PEERS], t->first, t->count, may));
    }
    return PP_OK;
}

/* Between two actions.  Under --until what has run follows from the rows alone. */
static PpStatus take_turns(Rank *r, int64_t step)
{
    for (int l = 0; l < r->plan.n_stage && !r->run->until; l++)
        for (int may = 1; r->stage[l].summing && may;) {
            TRY(may_take(r, l, &may));
            if (may)
                TRY(take_turn(r, l, step, 1));
        }
    return PP_OK;
}

/* ---- actions ---- */

/* UNSHARD and RESHARD have nothing to do where a stage holds its parameters all the time.  What a
 * computation needs before await() has done. */
static PpStatus run_op(Rank *r, const Op *op, int64_t step)
{
    int from = op->first;
    if (!last_pass(r) && adds_up(&op->a))
        return PP_OK;
    if (op->shard || op->a.type == SA_UNSHARD || op->a.type == SA_RESHARD ||
        (r->away.home && computes(op)))
        shards_op(r, op);
    else if (op->count && adds_up(&op->a) && op->a.type != SA_RECV_GP)
        TRY(home_settle(r, op));
    if (computes(op))
        return compute(r, op, step);
    if (op->a.type == SA_OFFLOAD || op->a.type == SA_FETCH)
        copy_stash(r, op);
    const StagePlan *rs = op->local >= 0 ? &r->plan.stage[op->local] : NULL;
    if (op->a.type == SA_WAIT_REDUCE_GRAD && rs->n_turn) /* await() has taken them */
        from = r->plan.turns.at[rs->turn + rs->n_turn];
    TRY(r->away.home && op->a.type == SA_UNSHARD ? home_transfers(r, op, transfers)
                                                 : transfers(r, op, from));
    if (op->a.type == SA_REDUCE_GRAD && rs->n_turn)
        begin_sums(r, op->local);
    return PP_OK;
}

static int waits_for_sums(const Rank *r, const Op *op)
{
    return op->a.type == SA_WAIT_REDUCE_GRAD && last_pass(r) && r->stage[op->local].summing;
}

/* Does it wait for anything? */
static int waits(const Rank *r, const Op *op)
{
    return op->await_count || op->copy >= 0 || waits_for_sums(r, op) || (computes(op) && op->count);
}

static PpStatus await(Rank *r, const Op *op, int64_t step)
{
    while (waits_for_sums(r, op))
        TRY(take_turn(r, op->local, step, 0));
    for (int i = op->await_first; i < op->await_first + op->await_count; i++)
        TRY(links_finish(&r->links[AXIS_PIPE], r->plan.await[i], 1));
    if (computes(op) && r->away.home && !r->now.stopped)
        TRY(home_await(r, op));
    if (computes(op))
        TRY(transfers(r, op, op->first));
    return op->copy >= 0 && !r->now.stopped ? store_wait(r->away.stash, op->copy) : PP_OK;
}

/* Microbatch-chunks alive, as they really come and go. */
static void count_live(Rank *r, const Op *op)
{
    if (r->now.stopped || (op->local >= 0 && r->plan.stage[op->local].st->minibatch))
        return;
    int whole = op->again == SCHED_WHOLE;
    r->now.live += op->a.type == SA_F || (op->a.type == SA_R && whole) || op->a.type == SA_FETCH;
    r->now.live_most = r->now.live > r->now.live_most ? r->now.live : r->now.live_most;
    r->now.live -= op->a.type == SA_B || op->a.type == SA_W || (op->a.type == SA_F && whole) ||
                   op->a.type == SA_WAIT_OFFLOAD;
}

static double waited_for_members(const Rank *r, const Op *op)
{
    return op->local >= 0 ? r->stage[op->local].mesh.waited : 0;
}

/* span: SPAN numbers; NULL: no trace */
static PpStatus run_one(Rank *r, const Op *op, int64_t step, double *span)
{
    int k = (int)(op - r->plan.op), waited = waits(r, op);
    const double asked = pp_now(), zero = r->report.trace.zero;
    if (r->host && op->local >= 0)
        device_switch(&r->dev, op->local);
    host_mark(r, step, k, 0);
    watchdog_note(r->watch.dog, r->watch.first + k, WATCH_WAITS);
    TRY(await(r, op, step));
    watchdog_note(r->watch.dog, r->watch.first + k, WATCH_RUNS);
    host_mark(r, step, k, 1);
    const double begun = pp_now(), met = waited_for_members(r, op);
    TRY(run_op(r, op, step));
    const double ended = pp_now();
    r->report.busy += computes(op) ? ended - begun : 0;
    watchdog_note(r->watch.dog, r->watch.first + k, WATCH_DONE);
    host_mark(r, step, k, 2);
    if (span) {
        span[0] = asked - zero;
        span[1] = (waited ? begun : asked) - zero;
        span[2] = ended - zero;
        span[3] = waited_for_members(r, op) - met;
    }
    count_live(r, op);
    return PP_OK;
}

/* A compound on a device: two streams, each after what came before both. */
static PpStatus run_forked(Rank *r, const Op *op, int64_t step)
{
    int k = (int)(op - r->plan.op);
    device_fork(&r->dev, op[0].local, op[1].local);
    for (int half = 0; half < 2; half++) {
        r->dev.current = op[half].local;
        host_mark(r, step, k + half, 0);
        PpStatus s = await(r, &op[half], step);
        host_mark(r, step, k + half, 1);
        shards_op(r, &op[half]);
        if (s == PP_OK)
            s = compute(r, &op[half], step);
        if (s != PP_OK || *r->dev.op->error())
            return failed(r, &op[half], s != PP_OK ? s : PP_ERR_IO);
        host_mark(r, step, k + half, 2);
        count_live(r, &op[half]);
    }
    device_join(&r->dev, op[0].local, op[1].local);
    return PP_OK;
}

void half_copy(Rank *r, int local, int param)
{
    const PpStage *st = r->plan.stage[local].st;
    const PpParam *q = &st->param[param];
    const ParamBlock here = param_block(r, local);
    if (here.half && q->half_offset >= 0)
        r->dev.op->math.round(&r->dev, r->dev.current, here.half + q->half_offset,
                              here.param + q->offset, q->t.bytes / st_dtype_size(q->t.dtype),
                              st->half_type);
}

/* Copies of transmitted parameters whose owner is a stage of this rank. */
static void share_here(Rank *r)
{
    const Plan *p = &r->plan;
    for (RankWalk i = {0}; plan_next(p, &i);) {
        const PpParam *q = i.q->p;
        int owner = q->use == PP_TRANSMIT ? p->local_of[q->from] : -1;
        for (int j = 0; owner >= 0 && j < p->stage[owner].st->n_param; j++)
            if (p->stage[owner].rp[j].p->param == q->param) {
                r->dev.op->copy(&r->dev, r->dev.current, i.q->value, p->stage[owner].rp[j].value,
                                q->t.bytes);
                half_copy(r, i.local, i.param);
            }
    }
}

void exec_begin(Rank *r)
{
    for (int l = 0; l < r->plan.n_stage; l++)
        /* else before the first backward */
        if (r->plan.stage[l].grad && !r->plan.ask.away && !r->plan.grads_go)
            r->dev.op->zero(&r->dev, r->dev.current, r->plan.stage[l].grad,
                            r->plan.stage[l].st->bytes.grad);
    for (int l = 0; l < r->plan.n_stage; l++)
        r->stage[l].bad = 0;
    if (r->now.pass == 0)
        share_here(r);
}

static PpStatus run(Rank *r, const Op *op, int64_t step, double *span, int both)
{
    TRY(both ? run_forked(r, op, step) : run_one(r, op, step, span));
    for (int x = 0; x < AXES; x++)
        TRY(links_poll(&r->links[x]));
    TRY(take_turns(r, step));
    return *r->dev.op->error() ? PP_ERR_IO : PP_OK;
}

/* Copies beside the computations: when they ran, not when they were started. */
static void trace_copies(Rank *r, double *span)
{
    for (int k = 0; span && k < r->plan.n_op; k++) {
        int type = r->plan.op[k].a.type;
        if (type != SA_OFFLOAD && type != SA_FETCH)
            continue;
        double begin, end, *at = span + SPAN * (ptrdiff_t)k;
        store_span(r->away.stash, k, &begin, &end);
        at[0] = at[1] = begin - r->report.trace.zero;
        at[2] = end - r->report.trace.zero;
        at[3] = 0;
    }
}

PpStatus exec_gather(Rank *r)
{
    for (int i = r->plan.gather.first; i < r->plan.gather.first + r->plan.gather.n; i++)
        TRY(transfer(r, NULL, &r->plan.transfer[i]));
    return PP_OK;
}

PpStatus exec_pass(Rank *r, int64_t step)
{
    const Plan *p = &r->plan;
    double begun = pp_now();
    r->now.gathered = r->now.taken = 0;
    host_begin(r);
    /* A device's times come from its events */
    double *span = r->host ? NULL : trace_of(&r->report.trace, exec_turn(r, step));
    for (int k = 0; k < p->n_op; k++) {
        const Op *op = &p->op[k];
        if (r->run->until && k >= r->run->until[r->along[AXIS_PIPE].rank])
            r->now.stopped = 1;
        int both = op->together && !r->now.stopped;
        PpStatus s = run(r, op, step, span ? span + SPAN * k : NULL, both);
        if (s != PP_OK)
            return failed(r, op, s);
        k += both;
    }
    TRY(home_settle(r, p->op + p->n_op));
    watchdog_note(r->watch.dog, r->watch.first + p->n_op, WATCH_WAITS);
    trace_copies(r, r->now.stopped ? NULL : span);
    for (int x = 0; x < AXES; x++)
        if (r->links[x].op)
            TRY(links_finish_all(&r->links[x]));
    r->report.passes += pp_now() - begun;
    return PP_OK;
}
