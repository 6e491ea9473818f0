/*
 * exec.c - the interpreter: one rank, one step, one action after the other.
 *
 * There is no loop written for a schedule.  A compute action waits for the messages it needs and calls the stage's
 * function on the buffers plan.c chose; SEND and RECV only start messages; WAIT_SEND ends them.  Parameters used in
 * several stages: TRANSMIT values come at RECV_P, their gradients are added by the owner at REDUCE_GRAD; REPLICATE
 * gradients travel at REDUCE_GRAD and are added at the owner's WAIT_REDUCE_GRAD, which sends the sum back, so that
 * every copy has the same bits.
 *
 * On a device this thread only enqueues: actions go into their stage's stream, each after the one before (Rank.at), and
 * messages are ordered by events (a Wire); the host waits once a step, in stream.c.
 *
 * Under --until computations stop at an action, on every rank where what that action needs has run; the rest of the
 * step then only passes its messages on, so that nobody is left waiting.
 */
#include "internal.h"

#include <string.h>

static PpStatus failed(Rank *r, const Op *op, PpStatus s)
{
    char text[80], microbatch[32] = "";
    const char *why = r->dev.op->error();
    sched_action_text(text, sizeof text, &op->a);
    if (op->a.microbatch >= 0)
        snprintf(microbatch, sizeof microbatch, ", microbatch %d", op->a.microbatch);
    return pp_fail(s, "rank %d, action %s of stage %d%s failed%s%s", r->rank, text, op->a.stage, microbatch,
                   *why ? ": " : "", why);
}

static PpStatus start(Rank *r, int message, int receive)
{
    r->msg[message].pending = 1;
    return r->wire->post(r, message, 1, receive);
}

static PpStatus finish(Rank *r, Message *m)
{
    if (!m->pending)
        return PP_OK;
    m->pending = 0;
    return r->wire->finish(r, m);
}

static PpStatus start_all(Rank *r, const Op *op, int receive)
{
    for (int k = op->first; k < op->first + op->count; k++)
        r->msg[k].pending = 1;
    return op->count ? r->wire->post(r, op->first, op->count, receive) : PP_OK;
}

static PpStatus finish_all(Rank *r, const Op *op)
{
    for (int k = op->first; k < op->first + op->count; k++)
        TRY(finish(r, &r->msg[k]));
    return PP_OK;
}

/* ---- compute ---- */

static double scalar(const void *p, int dtype)
{
    if (dtype == PP_F64) {
        double v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    float f;
    memcpy(&f, p, sizeof f);
    return (double)f;
}

/* An output without rows: the microbatches' mean by rows, their sum, or the last of them. */
static void merge(const Rank *r, const PpOutput *o, char *to, const char *src, int m, int64_t step)
{
    const Run *run = r->run;
    const PpTensor *t = &o->t;
    const int64_t *row0 = data_rows(run, step);
    int kind = run->plan->output_merge ? run->plan->output_merge[o->model_output] : PP_MERGE_LAST;
    if (kind == PP_MERGE_LAST || (t->dtype != PP_F32 && t->dtype != PP_F64)) {
        memcpy(to, src, (size_t)t->bytes);
        return;
    }
    if (m == 0 && (run->opt->mode == MODE_TRAIN || step == 0))
        memset(to, 0, (size_t)t->bytes);
    double weight = kind == PP_MERGE_SUM ? 1 : (double)(row0[m + 1] - row0[m]) / (double)r->collect_rows;
    int64_t n = t->bytes / st_dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++)
        if (t->dtype == PP_F64)
            ((double *)(void *)to)[i] += weight * ((const double *)(const void *)src)[i];
        else
            ((float *)(void *)to)[i] += (float)(weight * (double)((const float *)(const void *)src)[i]);
}

/* Rows of a model output into their place among all rows of the minibatch (of all minibatches in eval and infer). */
void exec_outputs(Rank *r, const PpOutput *o, const char *src, int m, int64_t step)
{
    const Run *run = r->run;
    const PpTensor *t = &o->t;
    const int64_t *row0 = data_rows(run, step);
    char *to = r->collect[o->model_output];
    if (t->batch_dim < 0) {
        merge(r, o, to, src, m, step);
        return;
    }
    int64_t outer = 1, inner = st_dtype_size(t->dtype), rows = row0[m + 1] - row0[m];
    int64_t first = row0[m] + (run->opt->mode == MODE_TRAIN ? 0 : data_rows_before(run, step));
    for (int d = 0; d < t->batch_dim; d++)
        outer *= t->dim[d];
    for (int d = t->batch_dim + 1; d < t->rank; d++)
        inner *= t->dim[d];
    inner *= t->dim[t->batch_dim] / run->plan->rows;
    for (int64_t k = 0; k < outer; k++)
        memcpy(to + (k * r->collect_rows + first) * inner, src + k * rows * inner, (size_t)(rows * inner));
}

void exec_loss(Rank *r, const void *loss, int m)
{
    const PpPlan *plan = r->run->plan;
    r->loss[m] = scalar(loss, plan->stage[plan->loss_stage]->output[plan->loss_output].t.dtype);
}

static void after_forward(Rank *r, RankStage *rs, int m, int64_t step)
{
    const PpPlan *plan = r->run->plan;
    const PpStage *st = rs->st;
    void *const *out = rs->out + (int64_t)m * st->n_output;
    if (r->on_device) {
        stream_take(r, rs, m, step);
        return;
    }
    for (int o = 0; o < st->n_output; o++)
        if (st->output[o].model_output >= 0 && r->collect[st->output[o].model_output])
            exec_outputs(r, &st->output[o], out[o], m, step);
    if (st->index == plan->loss_stage)
        exec_loss(r, out[plan->loss_output], m);
}

static void copy(Rank *r, void *to, const void *from, int64_t bytes)
{
    r->dev.op->copy(&r->dev, r->at, to, from, bytes);
}

/* A forward once more, for the backward that comes: nothing leaves it, and running statistics have moved already. */
static void recompute(Rank *r, const RankStage *rs, const PpCtx *c)
{
    char *kept = r->stat_copy;
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->st->param[k].stat) {
            copy(r, kept, rs->rp[k].value, rs->st->param[k].t.bytes);
            kept += align_up(rs->st->param[k].t.bytes);
        }
    rs->st->forward(c);
    kept = r->stat_copy;
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->st->param[k].stat) {
            copy(r, rs->rp[k].value, kept, rs->st->param[k].t.bytes);
            kept += align_up(rs->st->param[k].t.bytes);
        }
}

static PpStatus compute(Rank *r, const Op *op, int64_t step, char *work)
{
    const Run *run = r->run;
    RankStage *rs = &r->stage[op->local];
    const PpStage *st = rs->st;
    const int64_t *row0 = data_rows(run, step);
    int m = op->a.microbatch, again = op->again;
    PpCtx c = {
        .rows = row0[m + 1] - row0[m],
        .stage = st->index,
        .microbatch = m,
        .param = rs->param,
        .grad = rs->grad,
        .konst = rs->konst,
        .stash = (again ? rs->stash_again : rs->stash)[m],
        .saved = rs->saved[m],
        .work = work,
        .in = rs->in + (int64_t)m * st->n_input,
        .out = (again ? rs->out_again : rs->out) + (int64_t)m * st->n_output,
        .dy = rs->dy + (int64_t)m * st->n_dy,
        .dx = rs->dx + (int64_t)m * st->n_dx,
        .seed = run->opt->seed,
        .step = (uint64_t)step,
        .row0 = (uint64_t)row0[m],
        .stream = rs->handles.stream,
        .blas = rs->handles.blas,
        .state = rs->state,
    };
    if (r->on_device && op->a.type == SA_F) {
        stream_fed(r, m);
        stream_held(r, rs);
    }
    if (c.rows == 0 || r->stopped) {
        r->loss[m] = op->a.type == SA_F && !r->stopped ? 0 : r->loss[m];
        return PP_OK;
    }
    switch (op->a.type) {
    case SA_R:
        if (st->has_backward)
            recompute(r, rs, &c);
        break;
    case SA_F:
        (run->opt->mode == MODE_TRAIN ? st->forward : st->infer)(&c);
        after_forward(r, rs, m, step);
        break;
    case SA_B:
        if (st->has_backward)
            st->backward(&c);
        break;
    case SA_I:
        if (st->has_backward)
            st->backward_input(&c);
        break;
    case SA_W:
        if (st->has_backward)
            st->backward_weight(&c);
        break;
    default: return PP_ERR_BUG;
    }
    return PP_OK;
}

/* ---- parameters used in several stages ---- */

static void add(Rank *r, char *to, const char *from, const PpTensor *t)
{
    r->dev.op->add(&r->dev, r->at, to, from, t->bytes / st_dtype_size(t->dtype), t->dtype);
}

/* Copies of transmitted parameters whose owner is a stage of this rank. */
static void share_here(Rank *r)
{
    for (int l = 0; l < r->n_stage; l++)
        for (int k = 0; k < r->stage[l].st->n_param; k++) {
            const PpParam *p = r->stage[l].rp[k].p;
            int owner = p->use == PP_TRANSMIT ? r->local_of[p->from] : -1;
            for (int j = 0; owner >= 0 && j < r->stage[owner].st->n_param; j++)
                if (r->stage[owner].rp[j].p->param == p->param)
                    copy(r, r->stage[l].rp[k].value, r->stage[owner].rp[j].value, p->t.bytes);
        }
}

static PpStatus add_contribution(Rank *r, Contribution *c)
{
    if (r->stopped)
        return c->user >= 0 ? PP_OK : finish(r, &r->msg[c->message]);
    const RankParam *o = &r->stage[c->owner].rp[c->owner_param];
    const char *from = c->buf;
    if (c->user >= 0)
        from = r->stage[c->user].rp[c->user_param].grad;
    else
        TRY(finish(r, &r->msg[c->message]));
    add(r, o->grad, from, &o->p->t);
    return PP_OK;
}

static PpStatus reduce_begin(Rank *r, int stage)
{
    for (int i = 0; i < r->n_contrib; i++) {
        Contribution *c = &r->contrib[i];
        if (!c->replicate && c->owner_stage == stage && c->owner >= 0)
            TRY(add_contribution(r, c));
        else if (c->replicate && c->owner_stage == stage && c->user < 0)
            TRY(start(r, c->message, 1));
        else if (c->replicate && c->user_stage == stage && c->owner < 0)
            TRY(start(r, c->message, 0));
    }
    return PP_OK;
}

/* As owner first: add everything, then hand the sums back; as user then: the sum replaces the own gradient. */
static PpStatus reduce_end(Rank *r, int stage)
{
    for (int i = 0; i < r->n_contrib; i++)
        if (r->contrib[i].replicate && r->contrib[i].owner_stage == stage && r->contrib[i].owner >= 0)
            TRY(add_contribution(r, &r->contrib[i]));
    for (int i = 0; i < r->n_contrib; i++) {
        Contribution *c = &r->contrib[i];
        if (!c->replicate || c->owner_stage != stage || c->owner < 0)
            continue;
        const RankParam *o = &r->stage[c->owner].rp[c->owner_param];
        if (c->user >= 0 && r->stopped)
            continue;
        if (c->user >= 0)
            copy(r, r->stage[c->user].rp[c->user_param].grad, o->grad, o->p->t.bytes);
        else
            TRY(start(r, c->back, 0));
    }
    for (int i = 0; i < r->n_contrib; i++) {
        Contribution *c = &r->contrib[i];
        if (!c->replicate || c->user_stage != stage || c->owner >= 0)
            continue;
        TRY(finish(r, &r->msg[c->message])); /* it is sent from the buffer that the sum comes to */
        TRY(start(r, c->back, 1));
        TRY(finish(r, &r->msg[c->back]));
    }
    return PP_OK;
}

static PpStatus receive_gradients(Rank *r, const SchedAction *a)
{
    for (int i = 0; i < r->n_contrib; i++) {
        Contribution *c = &r->contrib[i];
        if (!c->replicate && c->owner_stage == a->stage && c->user_stage == a->peer && c->user < 0)
            TRY(start(r, c->message, 1));
    }
    return PP_OK;
}

/* ---- the step ---- */

static PpStatus run_op(Rank *r, const Op *op, int64_t step)
{
    switch (op->a.type) {
    case SA_F:
    case SA_B:
    case SA_I:
    case SA_W:
    case SA_R: return compute(r, op, step, r->work);
    case SA_RECV_F:
    case SA_RECV_B: return start_all(r, op, 1);
    case SA_SEND_F:
    case SA_SEND_B:
    case SA_SEND_P:
    case SA_SEND_GP: return start_all(r, op, 0);
    case SA_WAIT_SEND_F:
    case SA_WAIT_SEND_B: return finish_all(r, op);
    case SA_RECV_P: TRY(start_all(r, op, 1)); return finish_all(r, op);
    case SA_RECV_GP: return receive_gradients(r, &op->a);
    case SA_REDUCE_GRAD: return reduce_begin(r, op->a.stage);
    case SA_WAIT_REDUCE_GRAD: return reduce_end(r, op->a.stage);
    default: return PP_OK; /* idle; UNSHARD, RESHARD: a stage holds its parameters all the time */
    }
}

static PpStatus await(Rank *r, const Op *op)
{
    for (int i = op->await_first; i < op->await_first + op->await_count; i++)
        TRY(finish(r, &r->msg[r->await[i]]));
    return PP_OK;
}

/* Microbatch-chunks alive, as they really come and go. */
static void count_live(Rank *r, const Op *op)
{
    if (r->stopped)
        return;
    r->live += op->a.type == SA_F;
    r->live_most = r->live > r->live_most ? r->live : r->live_most;
    r->live -= op->a.type == SA_B || op->a.type == SA_W;
}

typedef struct {
    double *at; /* three numbers: waits, starts, ends; NULL: no trace */
    double zero;
} Span;

static double stamp(const Span *s) { return s->at ? pp_now() - s->zero : 0; }

static void span_set(Span *s, double waits, double starts, double ends)
{
    if (s->at) {
        s->at[0] = waits;
        s->at[1] = starts;
        s->at[2] = ends;
    }
}

static PpStatus run_one(Rank *r, const Op *op, int64_t step, Span *span)
{
    int k = (int)(op - r->op);
    double t0 = stamp(span), t1 = t0;
    if (r->on_device && op->local >= 0)
        stream_go(r, op->local);
    stream_mark(r, step, k, 0);
    TRY(await(r, op));
    if (op->await_count)
        t1 = stamp(span);
    stream_mark(r, step, k, 1);
    TRY(run_op(r, op, step));
    stream_mark(r, step, k, 2);
    span_set(span, t0, t1, stamp(span));
    count_live(r, op);
    return PP_OK;
}

typedef struct {
    Rank *r;
    const Op *op;
    int64_t step;
    PpStatus status;
    double starts, ends;
    Span span;
} Half;

static void run_half(void *p)
{
    Half *h = p;
    h->starts = stamp(&h->span);
    h->status = compute(h->r, h->op, h->step, h->r->work_aside);
    h->ends = stamp(&h->span);
}

/* A compound: its first half on the thread beside this one as soon as its own messages are there. */
static PpStatus run_both(Rank *r, const Op *op, int64_t step, Span *first, Span *second)
{
    Half half = {r, &op[0], step, PP_OK, 0, 0, *first};
    double t0 = stamp(first);
    TRY(await(r, &op[0]));
    aside_start(r->aside, run_half, &half);
    double t1 = stamp(second), t2 = t1;
    PpStatus s = await(r, &op[1]);
    if (op[1].await_count)
        t2 = stamp(second);
    if (s == PP_OK)
        s = run_op(r, &op[1], step);
    double t3 = stamp(second);
    aside_join(r->aside);
    TRY(s);
    TRY(half.status);
    span_set(first, t0, half.starts, half.ends);
    span_set(second, t1, t2, t3);
    count_live(r, &op[0]);
    count_live(r, &op[1]);
    return PP_OK;
}

/* The same on a device: two streams, each after what came before both. */
static PpStatus run_forked(Rank *r, const Op *op, int64_t step)
{
    int k = (int)(op - r->op);
    stream_fork(r, op[0].local, op[1].local);
    for (int half = 0; half < 2; half++) {
        r->at = op[half].local;
        stream_mark(r, step, k + half, 0);
        PpStatus s = await(r, &op[half]);
        stream_mark(r, step, k + half, 1);
        if (s == PP_OK)
            s = compute(r, &op[half], step, half ? r->work : r->work_aside);
        if (s != PP_OK || *r->dev.op->error())
            return failed(r, &op[half], s != PP_OK ? s : PP_ERR_IO);
        stream_mark(r, step, k + half, 2);
        count_live(r, &op[half]);
    }
    stream_join(r, op[0].local, op[1].local);
    return PP_OK;
}

void exec_begin(Rank *r)
{
    for (int l = 0; l < r->n_stage; l++)
        if (r->stage[l].grad)
            r->dev.op->zero(&r->dev, r->at, r->stage[l].grad, r->stage[l].st->bytes_grad);
    share_here(r);
}

static PpStatus run(Rank *r, const Op *op, int64_t step, double *span, int both)
{
    Span at = {span, r->trace_zero}, next = {span ? span + 3 : NULL, r->trace_zero};
    if (both)
        TRY(r->on_device ? run_forked(r, op, step) : run_both(r, op, step, &at, &next));
    else
        TRY(run_one(r, op, step, &at));
    TRY(r->wire->poll(r));
    return *r->dev.op->error() ? PP_ERR_IO : PP_OK;
}

PpStatus exec_step(Rank *r, int64_t step)
{
    double *span = r->on_device ? NULL : trace_of(r, step); /* a device's times come from its events */
    for (int k = 0; k < r->n_op; k++) {
        const Op *op = &r->op[k];
        if (r->run->until && k >= r->run->until[r->rank])
            r->stopped = 1;
        int both = op->together && (r->aside || r->on_device) && !r->stopped;
        PpStatus s = run(r, op, step, span ? span + 3 * k : NULL, both);
        if (s != PP_OK)
            return failed(r, op, s);
        k += both;
    }
    for (int i = 0; i < r->n_msg; i++)
        TRY(finish(r, &r->msg[i]));
    return PP_OK;
}
