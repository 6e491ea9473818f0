/*
 * stream.c - a rank on a device: what it has on the host beside its arena, and how its streams follow each other.
 *
 * The rank's thread runs ahead of the device.  Rank.at is the stream in which everything so far has its end: what is
 * enqueued there comes after all of it, and going to another stage's stream takes one event.  Rows go in through pinned
 * memory, microbatch by microbatch, in the stream for that; those of the next step are laid out while this one runs.
 * Losses and outputs go out as soon as their forward is done; plan.c keeps their buffers until the stage's next
 * forward.  The host waits once a step, in stream_settle(): losses, norms and outputs are then there, and failures
 * show.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Stream {
    char *pinned; /* one block for all of the next five */
    char **out;   /* per model output: first microbatch's place, NULL: not wanted here */
    int64_t *out_stride;
    char *loss;   /* PP_ALIGN bytes a microbatch */
    double *norm; /* by parameter of the model */
    char *room;   /* a tensor on its way from or to a file */
    int64_t room_bytes;
    DeviceEvent *fed, end;   /* per microbatch: its rows are there; the step is over */
    unsigned char *ran;      /* per microbatch: its loss is on the way */
    int64_t laid, sent;      /* steps whose rows are in pinned memory, on the device: -1 none */
    DeviceEvent *mark, zero; /* --trace: three per op; where time begins */
};

/* ---- what is allocated before the first step ---- */

int stream_takes(const Rank *r, const PpStage *st, int output)
{
    int model_output = st->output[output].model_output;
    return (model_output >= 0 && r->collect[model_output]) ||
           (st->index == r->run->plan->loss_stage && output == r->run->plan->loss_output);
}

static char *part(char *block, int64_t *at, int64_t bytes)
{
    char *p = block ? block + *at : NULL;
    *at += align_up(bytes);
    return p;
}

/* Offsets first, with block NULL, for the bytes; then the places. */
static int64_t lay_out(Rank *r, char *block)
{
    const Run *run = r->run;
    const PpPlan *plan = run->plan;
    Stream *s = r->stream;
    int64_t at = 0;
    for (int i = 0; i < plan->n_input; i++)
        if (r->chunk[i])
            r->chunk_host[i] =
                part(block, &at, r->chunk_stride[i] ? r->chunk_stride[i] * run->m : plan->input[i].bytes);
    if (r->uses_scale)
        r->scale_host = part(block, &at, (int64_t)PP_ALIGN * run->m);
    for (int i = 0; i < plan->n_output; i++) {
        s->out_stride[i] = align_up(plan->output[i].bytes);
        if (r->collect[i])
            s->out[i] = part(block, &at, s->out_stride[i] * run->m);
    }
    s->loss = part(block, &at, (int64_t)PP_ALIGN * run->m);
    s->norm = (double *)(void *)part(block, &at, (int64_t)sizeof(double) * plan->n_param);
    s->room = part(block, &at, s->room_bytes);
    return at;
}

/* All rows of the outputs, in memory of the host that nothing is copied to directly. */
static PpStatus make_collect(Rank *r)
{
    const PpPlan *plan = r->run->plan;
    PpStatus s = PP_OK;
    for (int i = 0; i < plan->n_output; i++)
        if (r->collect[i]) {
            int64_t bytes = tensor_bytes(&plan->output[i], r->collect_rows, plan->rows);
            r->collect[i] = calloc(1, (size_t)bytes + 1);
            if (!r->collect[i])
                s = pp_fail(PP_ERR_IO, "out of memory");
        }
    return s;
}

static PpStatus make_events(Rank *r)
{
    Stream *s = r->stream;
    Device *d = &r->dev;
    r->turn = d->op->event(d, 0);
    s->end = d->op->event(d, 0);
    for (int m = 0; m < r->run->m; m++)
        s->fed[m] = d->op->event(d, 0);
    for (int l = 0; l < r->n_stage; l++) {
        r->stage[l].out_ready = d->op->event(d, 0);
        r->stage[l].out_done = d->op->event(d, 0);
        d->op->context(d, l, &r->stage[l].handles);
    }
    if (!r->span)
        return PP_OK;
    s->mark = calloc(3 * (size_t)r->n_op + 1, sizeof *s->mark);
    s->zero = d->op->event(d, 1);
    if (!s->mark)
        return pp_fail(PP_ERR_IO, "out of memory");
    for (int k = 0; k < 3 * r->n_op; k++)
        s->mark[k] = d->op->event(d, 1);
    return PP_OK;
}

PpStatus stream_open(Rank *r)
{
    const Run *run = r->run;
    Stream *s = r->stream = calloc(1, sizeof *s);
    if (!s)
        return pp_fail(PP_ERR_IO, "out of memory");
    s->laid = s->sent = -1;
    s->out = calloc((size_t)run->plan->n_output + 1, sizeof *s->out);
    s->out_stride = calloc((size_t)run->plan->n_output + 1, sizeof *s->out_stride);
    s->fed = calloc((size_t)run->m + 1, sizeof *s->fed);
    s->ran = calloc((size_t)run->m + 1, 1);
    if (!s->out || !s->out_stride || !s->fed || !s->ran)
        return pp_fail(PP_ERR_IO, "out of memory");
    for (int l = 0; l < r->n_stage && (run->opt->dump_grads || run->opt->checkpoint); l++)
        for (int k = 0; k < r->stage[l].st->n_param; k++)
            if (r->stage[l].rp[k].p->t.bytes > s->room_bytes)
                s->room_bytes = r->stage[l].rp[k].p->t.bytes;
    r->mem.host = lay_out(r, NULL);
    s->pinned = r->dev.op->alloc_host(&r->dev, r->mem.host);
    if (!s->pinned)
        return pp_fail(PP_ERR_IO, "rank %d: no %" PRId64 " bytes of pinned host memory: %s", r->rank, r->mem.host,
                       r->dev.op->error());
    memset(s->pinned, 0, (size_t)r->mem.host);
    lay_out(r, s->pinned);
    TRY(make_collect(r));
    TRY(make_events(r));
    r->dev.op->record(&r->dev, r->at, s->end); /* the arena is cleared, whatever stream comes next */
    r->dev.op->sync(&r->dev, s->end);
    return device_check(r, "its streams and events");
}

void stream_close(Rank *r)
{
    Stream *s = r->stream;
    Device *d = &r->dev;
    if (!s)
        return;
    DeviceEvent single[] = {r->turn, s->end, s->zero};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        d->op->event_free(d, single[i]);
    for (int m = 0; s->fed && m < r->run->m; m++)
        d->op->event_free(d, s->fed[m]);
    for (int l = 0; l < r->n_stage; l++) {
        d->op->event_free(d, r->stage[l].out_ready);
        d->op->event_free(d, r->stage[l].out_done);
    }
    for (int k = 0; s->mark && k < 3 * r->n_op; k++)
        d->op->event_free(d, s->mark[k]);
    if (s->pinned)
        d->op->release_host(d, s->pinned);
    for (int i = 0; s->out && i < r->run->plan->n_output; i++)
        if (s->out[i])
            free(r->collect[i]);
    free(s->out), free(s->out_stride), free(s->fed), free(s->ran), free(s->mark), free(s);
    r->stream = NULL;
}

/* ---- one stream after another ---- */

void stream_go(Rank *r, int stream)
{
    if (r->at == stream)
        return;
    r->dev.op->record(&r->dev, r->at, r->turn);
    r->dev.op->wait(&r->dev, stream, r->turn);
    r->at = stream;
}

void stream_fork(Rank *r, int first, int second)
{
    int from = r->at;
    r->dev.op->record(&r->dev, from, r->turn);
    if (first != from)
        r->dev.op->wait(&r->dev, first, r->turn);
    if (second != from)
        r->dev.op->wait(&r->dev, second, r->turn);
    r->at = first;
}

void stream_join(Rank *r, int first, int second)
{
    r->at = first;
    stream_go(r, second);
}

/* ---- rows in ---- */

static void feed_one(Rank *r, int m, const int64_t *row0)
{
    const PpPlan *plan = r->run->plan;
    Device *d = &r->dev;
    int64_t rows = row0[m + 1] - row0[m];
    for (int i = 0; i < plan->n_input; i++) {
        int64_t at = m * r->chunk_stride[i];
        if (r->chunk[i] && (r->chunk_stride[i] || m == 0))
            d->op->copy(d, STREAM_IN, r->chunk[i] + at, r->chunk_host[i] + at,
                        tensor_bytes(&plan->input[i], rows, plan->rows));
    }
    if (r->uses_scale)
        d->op->copy(d, STREAM_IN, r->scale + (int64_t)PP_ALIGN * m, r->scale_host + (int64_t)PP_ALIGN * m, PP_ALIGN);
    d->op->record(d, STREAM_IN, r->stream->fed[m]);
}

/* The device has done with the last step's rows: its end has been waited for. */
void stream_feed(Rank *r, int64_t step)
{
    Stream *s = r->stream;
    if (step == 0 && s->zero)
        r->dev.op->record(&r->dev, r->at, s->zero);
    if (s->laid != step)
        data_fill(r, step);
    s->laid = step;
    if (s->sent >= 0 && data_stays(r, step))
        return;
    s->sent = step;
    for (int m = 0; m < r->run->m; m++)
        feed_one(r, m, data_rows(r->run, step));
}

void stream_fed(Rank *r, int m) { r->dev.op->wait(&r->dev, r->at, r->stream->fed[m]); }

/* Rows of the next step, once this one's have left pinned memory. */
static void lay_next(Rank *r, int64_t step)
{
    Stream *s = r->stream;
    if (step + 1 >= r->run->steps || data_stays(r, step + 1))
        return;
    r->dev.op->sync(&r->dev, s->fed[r->run->m - 1]);
    data_fill(r, step + 1);
    s->laid = step + 1;
}

/* ---- losses, norms, outputs: out ---- */

void stream_held(Rank *r, const RankStage *rs) { r->dev.op->wait(&r->dev, r->at, rs->out_done); }

void stream_take(Rank *r, RankStage *rs, int m, int64_t step)
{
    const PpPlan *plan = r->run->plan;
    const PpStage *st = rs->st;
    Stream *s = r->stream;
    Device *d = &r->dev;
    void *const *out = rs->out + (int64_t)m * st->n_output;
    int any = 0;
    for (int o = 0; o < st->n_output; o++) {
        const PpOutput *q = &st->output[o];
        if (!stream_takes(r, st, o))
            continue;
        if (!any++) {
            d->op->record(d, r->at, rs->out_ready);
            d->op->wait(d, STREAM_OUT, rs->out_ready);
        }
        if (q->model_output >= 0 && s->out[q->model_output]) {
            const int64_t *row0 = data_rows(r->run, step);
            d->op->copy(d, STREAM_OUT, s->out[q->model_output] + m * s->out_stride[q->model_output], out[o],
                        tensor_bytes(&q->t, row0[m + 1] - row0[m], plan->rows));
        }
        if (st->index == plan->loss_stage && o == plan->loss_output) {
            d->op->copy(d, STREAM_OUT, s->loss + (int64_t)m * PP_ALIGN, out[o], q->t.bytes);
            s->ran[m] = 1;
        }
    }
    if (any)
        d->op->record(d, STREAM_OUT, rs->out_done);
}

double *stream_norms(Rank *r)
{
    memset(r->stream->norm, 0, (size_t)r->run->plan->n_param * sizeof(double));
    return r->stream->norm;
}

static void take_outputs(Rank *r, int64_t step)
{
    const Run *run = r->run;
    Stream *s = r->stream;
    const int64_t *row0 = data_rows(run, step);
    for (int l = 0; l < r->n_stage; l++)
        for (int o = 0; o < r->stage[l].st->n_output; o++) {
            const PpOutput *q = &r->stage[l].st->output[o];
            if (q->model_output < 0 || !s->out[q->model_output])
                continue;
            for (int m = 0; m < run->m; m++)
                if (row0[m + 1] > row0[m])
                    exec_outputs(r, q, s->out[q->model_output] + m * s->out_stride[q->model_output], m, step);
        }
    for (int m = 0; m < run->m; m++) {
        if (s->ran[m])
            exec_loss(r, s->loss + (int64_t)m * PP_ALIGN, m);
        s->ran[m] = 0;
    }
    memcpy(r->norm + 1, s->norm, (size_t)run->plan->n_param * sizeof(double));
}

/* ---- --trace: the device's own times ---- */

void stream_mark(Rank *r, int64_t step, int k, int what)
{
    if (r->stream && r->stream->mark && trace_of(r, step))
        r->dev.op->record(&r->dev, r->at, r->stream->mark[3 * k + what]);
}

static void read_marks(Rank *r, int64_t step)
{
    Stream *s = r->stream;
    double *span = trace_of(r, step);
    int n = r->run->until ? 0 : r->n_op; /* all of a step, or none */
    for (int k = 0; span && s->mark && k < 3 * n; k++)
        span[k] = r->dev.op->elapsed(&r->dev, s->zero, s->mark[k]);
}

/* ---- the end of a step ---- */

/* Waits for an event in a way that ends when another rank has failed and the event may never come. */
static PpStatus patient(Rank *r, DeviceEvent e)
{
    enum { SPINS = 2000, NAP = 20 };
    for (int i = 0; r->wire && r->wire->alive; i++) {
        if (r->dev.op->done(&r->dev, e))
            return PP_OK;
        if (!r->wire->alive(r))
            return PP_ERR_PEER;
        if (i > SPINS)
            usleep(NAP);
    }
    r->dev.op->sync(&r->dev, e);
    return PP_OK;
}

PpStatus stream_settle(Rank *r, int64_t step)
{
    Stream *s = r->stream;
    Device *d = &r->dev;
    for (int l = 0; l < r->n_stage; l++)
        stream_held(r, &r->stage[l]);
    d->op->record(d, r->at, s->end);
    lay_next(r, step);
    PpStatus status = patient(r, s->end);
    if (*d->op->error()) /* it came later than the call that caused it */
        return pp_fail(PP_ERR_IO, "rank %d, end of step %" PRId64 ": %s (CUDA_LAUNCH_BLOCKING=1%s finds the action)",
                       r->rank, step + 1, d->op->error(),
                       r->wire && r->wire->alive ? ", with another --transport," : ""); /* under NCCL it never ends */
    TRY(status);
    read_marks(r, step);
    take_outputs(r, step);
    return PP_OK;
}

/* ---- tensors of files ---- */

const void *stream_host(Rank *r, const void *p, int64_t bytes)
{
    Stream *s = r->stream;
    if (!s)
        return p;
    r->dev.op->copy(&r->dev, r->at, s->room, p, bytes);
    r->dev.op->record(&r->dev, r->at, s->end);
    if (patient(r, s->end) != PP_OK)
        pp_fail(PP_ERR_PEER, "another rank has failed");
    return s->room;
}

/* Before the first step; `from` may be any memory. */
void stream_upload(Rank *r, void *to, const void *from, int64_t bytes)
{
    r->dev.op->copy(&r->dev, r->at, to, from, bytes);
    r->dev.op->record(&r->dev, r->at, r->stream->end);
    r->dev.op->sync(&r->dev, r->stream->end);
}
