/*
 * host_side.c - a rank on a device: what it has on the host beside its arena, and what goes there
 * and back in a step.
 *
 * The rank's thread runs ahead of the device.  Rows go in through pinned memory, microbatch by
 * microbatch, in the stream for that; those of the next step are laid out while this one runs.
 * Losses and outputs go out as soon as their forward is done; the plan keeps their buffers until
 * the stage's next forward.  The host waits once a step, in host_settle(): losses, norms and
 * outputs are then there, and failures show.
 */
#include "exec.h"

#include <inttypes.h>
#include <string.h>

struct HostSide {
    char *pinned; /* one block for all of the next five */
    char **out;   /* per model output: first microbatch's place, NULL: not wanted here */
    int64_t *out_stride;
    char *loss;   /* PP_ALIGN bytes a microbatch */
    double *norm; /* by parameter of the model, or by block of the rank's */
    char *room;   /* a tensor on its way from or to a file */
    int64_t room_bytes;
    double sent_scale;       /* the loss scale that the device has */
    DeviceEvent *fed, end;   /* per microbatch: its rows are there; the step is over */
    unsigned char *ran;      /* per microbatch: its loss is on the way */
    int64_t laid, sent;      /* passes whose rows are in pinned memory, on the device: -1 none */
    DeviceEvent *mark, zero; /* --trace: three per op; where the device's time begins, */
    double begins;           /* which was so long after the trace's */
};

/* ---- what is allocated before the first step ---- */

static char *part(char *block, int64_t *at, int64_t bytes)
{
    char *p = block ? block + *at : NULL;
    *at += align_up(bytes);
    return p;
}

static int64_t norms(const Rank *r)
{
    return r->plan.norm.blocks ? r->plan.norm.blocks : r->plan.norm.n;
}

/* Offsets first, with block NULL, for the bytes; then the places. */
static int64_t lay_out(Rank *r, char *block)
{
    const Run *run = r->run;
    const PpPlan *model = run->model;
    HostSide *s = r->host;
    int64_t at = 0;
    for (int i = 0; i < model->n_input; i++)
        if (r->plan.data.has_input[i])
            r->feed.host[i] =
                part(block, &at,
                     r->plan.data.stride[i] ? r->plan.data.stride[i] * run->data.microbatches
                                            : model->input[i].bytes);
    if (r->plan.data.scale_type)
        r->feed.scale = part(block, &at, (int64_t)PP_ALIGN * run->data.microbatches);
    for (int i = 0; i < model->n_output; i++) {
        s->out_stride[i] = align_up(model->output[i].bytes);
        if (r->plan.data.has_output[i])
            s->out[i] = part(block, &at, s->out_stride[i] * run->data.microbatches);
    }
    s->loss = part(block, &at, (int64_t)PP_ALIGN * run->data.microbatches);
    s->norm = (double *)(void *)part(block, &at, (int64_t)sizeof(double) * norms(r));
    s->room = part(block, &at, s->room_bytes);
    return at;
}

/* While the host waits for the device in an action: may that have an end? */
static int messages_go_on(void *of)
{
    Rank *r = of;
    for (int x = 0; x < AXES; x++) {
        Links *l = &r->links[x];
        if (links_poll(l) != PP_OK || (l->op && l->op->alive && !l->op->alive(l)))
            return 0;
    }
    return 1;
}

void host_begin(Rank *r)
{
    if (r->host)
        r->dev.op->meanwhile(&r->dev, messages_go_on, r);
}

static PpStatus make_events(Rank *r)
{
    HostSide *s = r->host;
    Device *d = &r->dev;
    r->dev.turn = d->op->event(d, 0);
    s->end = d->op->event(d, 0);
    for (int m = 0; m < r->run->data.microbatches; m++)
        s->fed[m] = d->op->event(d, 0);
    for (int l = 0; l < r->plan.n_stage; l++) {
        r->stage[l].out_ready = d->op->event(d, 0);
        r->stage[l].out_done = d->op->event(d, 0);
        for (int k = 0; k < PP_AT_ONCE; k++)
            r->stage[l].mesh.done[k] =
                r->plan.stage[l].st->mesh.n_collective ? d->op->event(d, 0) : NULL;
        d->op->context(d, l, &r->stage[l].handles);
    }
    if (!r->report.trace.span)
        return PP_OK;
    TRY(pp_take(&r->pool, &s->mark, 3 * (int64_t)r->plan.n_op, sizeof *s->mark));
    s->zero = d->op->event(d, 1);
    for (int k = 0; k < 3 * r->plan.n_op; k++)
        s->mark[k] = d->op->event(d, 1);
    return PP_OK;
}

/* The largest parameter: one that is not finite is looked for when a loss or a gradient is not. */
static int64_t most_bytes(const Rank *r)
{
    int64_t most = 0;
    for (RankWalk i = {0}; r->run->opt->mode != MODE_INFER && plan_next(&r->plan, &i);)
        most = i.q->p->t.bytes > most ? i.q->p->t.bytes : most;
    return most;
}

PpStatus host_open(Rank *r)
{
    const Run *run = r->run;
    TRY(pp_take(&r->pool, &r->host, 1, sizeof(HostSide)));
    HostSide *s = r->host;
    s->laid = s->sent = -1;
    TRY(pp_take(&r->pool, &s->out, run->model->n_output, sizeof *s->out));
    TRY(pp_take(&r->pool, &s->out_stride, run->model->n_output, sizeof *s->out_stride));
    TRY(pp_take(&r->pool, &s->ran, run->data.microbatches, 1));
    TRY(pp_take(&r->pool, &s->fed, run->data.microbatches, sizeof *s->fed));
    s->room_bytes = most_bytes(r);
    r->report.memory.host = lay_out(r, NULL);
    s->pinned = r->dev.op->memory.alloc_host(&r->dev, r->report.memory.host);
    if (!s->pinned)
        return pp_fail(PP_ERR_IO, "%s: no %" PRId64 " bytes of pinned host memory: %s",
                       pp_rank(r->group.rank).text, r->report.memory.host, r->dev.op->error());
    memset(s->pinned, 0, (size_t)r->report.memory.host);
    lay_out(r, s->pinned);
    TRY(make_events(r));
    r->files.room = s->room;
    r->files.done = s->end;
    /* The arena is cleared, whatever stream comes next */
    r->dev.op->record(&r->dev, r->dev.current, s->end);
    r->dev.op->sync(&r->dev, s->end);
    return device_check(&r->dev, r->group.rank, "its streams and events");
}

void host_close(Rank *r)
{
    HostSide *s = r->host;
    Device *d = &r->dev;
    if (!s)
        return;
    DeviceEvent single[] = {r->dev.turn, s->end, s->zero};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        d->op->event_free(d, single[i]);
    for (int m = 0; s->fed && m < r->run->data.microbatches; m++)
        d->op->event_free(d, s->fed[m]);
    for (int l = 0; l < r->plan.n_stage; l++) {
        d->op->event_free(d, r->stage[l].out_ready);
        d->op->event_free(d, r->stage[l].out_done);
        for (int k = 0; k < PP_AT_ONCE; k++)
            d->op->event_free(d, r->stage[l].mesh.done[k]);
    }
    for (int k = 0; s->mark && k < 3 * r->plan.n_op; k++)
        d->op->event_free(d, s->mark[k]);
    if (s->pinned)
        d->op->memory.release_host(d, s->pinned);
    r->host = NULL;
}

/* ---- rows in ---- */

/* The last of what a microbatch is fed. */
static void feed_scale_of(Rank *r, int m)
{
    Device *d = &r->dev;
    if (r->plan.data.scale_type)
        d->op->copy(d, STREAM_IN, r->plan.at.scale + (int64_t)PP_ALIGN * m,
                    r->feed.scale + (int64_t)PP_ALIGN * m, PP_ALIGN);
    d->op->record(d, STREAM_IN, r->host->fed[m]);
}

static void feed_one(Rank *r, int m, int64_t rows)
{
    const PpPlan *model = r->run->model;
    Device *d = &r->dev;
    for (int i = 0; i < model->n_input; i++) {
        int64_t at = m * r->plan.data.stride[i];
        if (r->plan.data.has_input[i] && (r->plan.data.stride[i] || m == 0))
            d->op->copy(d, STREAM_IN, r->plan.data.input[i] + at, r->feed.host[i] + at,
                        tensor_bytes(model, &model->input[i], rows, r->feed.length[m]));
    }
    feed_scale_of(r, m);
}

/* The device has done with the last step's rows: its end has been waited for. */
void host_feed(Rank *r, int64_t step)
{
    HostSide *s = r->host;
    int64_t turn = exec_turn(r, step);
    if (turn == 0 && s->zero) {
        s->begins = pp_now() - r->report.trace.zero;
        r->dev.op->record(&r->dev, r->dev.current, s->zero);
    }
    if (s->laid != turn)
        feed_fill(&r->feed, step, r->now.pass);
    s->laid = turn;
    feed_scale(&r->feed, step); /* the last step may have changed it since the rows were laid */
    int scaled = s->sent_scale != r->feed.loss_scale;
    s->sent_scale = r->feed.loss_scale;
    if (s->sent >= 0 && feed_stays(&r->feed, step)) {
        for (int m = 0; scaled && m < r->run->data.microbatches; m++)
            feed_scale_of(r, m);
        return;
    }
    s->sent = turn;
    for (int m = 0; m < r->run->data.microbatches; m++)
        feed_one(r, m, data_computed(&r->data, step, exec_in_step(r, m)));
}

void host_fed(Rank *r, int m) { r->dev.op->wait(&r->dev, r->dev.current, r->host->fed[m]); }

/* Rows of the next pass, once this one's have left pinned memory. */
static void lay_next(Rank *r, int64_t step)
{
    HostSide *s = r->host;
    int pass = (r->now.pass + 1) % data_passes(&r->run->data);
    int64_t next = pass ? step : step + 1;
    /* what sample reads next is not drawn yet */
    if (next >= r->run->data.steps || feed_stays(&r->feed, next) || r->sampler)
        return;
    r->dev.op->sync(&r->dev, s->fed[r->run->data.microbatches - 1]);
    feed_fill(&r->feed, next, pass);
    s->laid = exec_turn(r, step) + 1;
}

/* ---- losses, norms, outputs: out ---- */

void host_held(Rank *r, int stage)
{
    r->dev.op->wait(&r->dev, r->dev.current, r->stage[stage].out_done);
}

void host_take(Rank *r, int stage, int m, int64_t step)
{
    const PpPlan *model = r->run->model;
    const StageRun *own = &r->stage[stage];
    const StagePlan *rs = &r->plan.stage[stage];
    const PpStage *st = rs->st;
    HostSide *s = r->host;
    Device *d = &r->dev;
    void *const *out = rs->out + (int64_t)m * st->n_output;
    int any = 0;
    for (int o = 0; o < st->n_output; o++) {
        const PpOutput *q = &st->output[o];
        if (!plan_host_takes(&r->plan, st, o))
            continue;
        if (!any++) {
            d->op->record(d, r->dev.current, own->out_ready);
            d->op->wait(d, STREAM_OUT, own->out_ready);
        }
        if (q->model_output >= 0 && s->out[q->model_output])
            d->op->copy(
                d, STREAM_OUT, s->out[q->model_output] + m * s->out_stride[q->model_output], out[o],
                tensor_bytes(model, &q->t, data_computed(&r->data, step, exec_in_step(r, m)),
                             r->feed.length[m]));
        if (st->index == model->loss.stage && o == model->loss.output) {
            d->op->copy(d, STREAM_OUT, s->loss + (int64_t)m * PP_ALIGN, out[o], q->t.bytes);
            s->ran[m] = 1;
        }
    }
    if (any)
        d->op->record(d, STREAM_OUT, own->out_done);
}

int64_t host_room(const Rank *r)
{
    return r->host && r->host->room_bytes ? r->host->room_bytes : INT64_MAX;
}

double *host_norms(Rank *r)
{
    memset(r->host->norm, 0, (size_t)norms(r) * sizeof(double));
    return r->host->norm;
}

static void take_outputs(Rank *r, int64_t step)
{
    const Run *run = r->run;
    HostSide *s = r->host;
    const int before = r->now.pass * run->data.microbatches;
    const int64_t *row0 = data_pass(&r->data, step, r->now.pass);
    for (int l = 0; l < r->plan.n_stage; l++)
        for (int o = 0; o < r->plan.stage[l].st->n_output; o++) {
            const PpOutput *q = &r->plan.stage[l].st->output[o];
            if (q->model_output < 0 || !s->out[q->model_output])
                continue;
            for (int m = 0; m < run->data.microbatches; m++)
                if (row0[m + 1] > row0[m])
                    results_take(&r->results, q,
                                 s->out[q->model_output] + m * s->out_stride[q->model_output],
                                 before + m, r->feed.length[m], step);
        }
    for (int m = 0; m < run->data.microbatches; m++) {
        if (s->ran[m])
            results_loss(&r->results, s->loss + (int64_t)m * PP_ALIGN, before + m);
        s->ran[m] = 0;
    }
    memcpy(r->plan.norm.blocks ? r->results.square : r->results.norm + 1, s->norm,
           (size_t)norms(r) * sizeof(double));
}

/* ---- --trace: the device's own times ---- */

void host_mark(Rank *r, int64_t step, int k, int what)
{
    if (r->host && r->host->mark && trace_of(&r->report.trace, exec_turn(r, step)))
        r->dev.op->record(&r->dev, r->dev.current, r->host->mark[3 * k + what]);
}

static void read_marks(Rank *r, int64_t step)
{
    HostSide *s = r->host;
    double *span = trace_of(&r->report.trace, exec_turn(r, step));
    int n = r->run->until ? 0 : r->plan.n_op; /* all of a step, or none */
    for (int k = 0; span && s->mark && k < 3 * n; k++) {
        int type = r->plan.op[k / 3].a.type;
        DeviceEvent e = type == SA_OFFLOAD || type == SA_FETCH
                            ? store_event(r->away.stash, k / 3, k % 3 == 2)
                            : s->mark[k];
        span[k / 3 * SPAN + k % 3] = s->begins + r->dev.op->elapsed(&r->dev, s->zero, e);
    }
}

/* ---- the end of a step ---- */

PpStatus host_settle(Rank *r, int64_t step)
{
    HostSide *s = r->host;
    Device *d = &r->dev;
    for (int l = 0; l < r->plan.n_stage; l++)
        host_held(r, l);
    d->op->record(d, r->dev.current, s->end);
    lay_next(r, step);
    PpStatus status = links_await(r->links, s->end);
    if (*d->op->error()) /* it came later than the call that caused it */
        return pp_fail(
            PP_ERR_IO,
            "%s, end of step %" PRId64 ": %s (CUDA_LAUNCH_BLOCKING=1%s finds the action)",
            pp_rank(r->group.rank).text, step + 1, d->op->error(),
            /* Under NCCL it never ends */
            r->links[AXIS_PIPE].op && r->links[AXIS_PIPE].op->alive ? ", with another --transport,"
                                                                    : "");
    TRY(status);
    read_marks(r, step);
    take_outputs(r, step);
    return PP_OK;
}
