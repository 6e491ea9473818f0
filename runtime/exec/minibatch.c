/*
 * minibatch.c - a loss over the whole minibatch (ppsplit --loss-over minibatch): the last stage
 * runs once a step.
 *
 * F of a microbatch copies its rows into tensors of all rows, and the last of them computes the
 * loss; the first B computes the gradients of these tensors, and each copies its microbatch's rows
 * out of them.  The rows lie as in one tensor of the whole minibatch, whatever the microbatches
 * were and in whatever order they came: the bits do not depend on it.
 */
#include "exec.h"

#include "base/file/safetensors.h"

/* Between a microbatch's tensor and the minibatch's, whose rows may lie in another dimension than
 * the first. */
typedef struct {
    const PpTensor *t; /* the minibatch's */
    int64_t capacity, all, first, rows; /* rows of t, of this step, of the microbatch */
    int64_t there, before; /* rows of its tensor, and of these before its own */
} Rows;

static void copy_rows(Rank *r, const Rows *w, char *whole, char *one, int gather)
{
    const PpTensor *t = w->t;
    int64_t outer = 1, each = 0, bytes = t->bytes;
    if (t->batch_dim >= 0) {
        for (int i = 0; i < t->batch_dim; i++)
            outer *= t->dim[i];
        each = t->bytes / outer / w->capacity;
        bytes = each * w->rows;
    }
    for (int64_t k = 0; k < outer && bytes > 0; k++) {
        char *at = whole + (k * w->all + w->first) * each,
             *beside = one + (k * w->there + w->before) * each;
        r->dev.op->copy(&r->dev, r->dev.current, gather ? at : beside, gather ? beside : at, bytes);
    }
}

static PpCtx context(Rank *r, const Op *op, int64_t step, int64_t rows)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    const Gathered *g = rs->whole;
    PpCtx c = stage_context(r, op, step);
    c.rows = rows;
    c.stash = g->stash;
    c.in = g->in;
    c.out = g->out;
    c.dx = g->dx;
    for (int k = 0; k < rs->st->minibatch->n_again; k++)
        c.again[k] = g->part[k];
    return c;
}

/* A step that only infers has no rows for it, unless what it puts out is asked for. */
static int wanted(const Rank *r, const PpStage *st)
{
    int any = r->run->opt->mode != MODE_INFER;
    for (int o = 0; o < st->n_output; o++)
        any |=
            st->output[o].model_output >= 0 && r->plan.data.has_output[st->output[o].model_output];
    return any;
}

static void bring(Rank *r, const Op *op, const Rows *step_rows)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    Rows w = *step_rows;
    for (int i = 0; i < rs->st->n_input; i++) {
        w.t = &rs->st->minibatch->input[i].t;
        copy_rows(r, &w, rs->whole->in[i],
                  rs->in[(int64_t)op->a.microbatch * rs->st->n_input + i], 1);
    }
}

/* What has no rows gets its gradient with the first microbatch that is taken, zeros after it. */
static void take(Rank *r, const Op *op, const Rows *step_rows, int is_first)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    const PpStage *st = rs->st->minibatch;
    void *const *dx = rs->dx + (int64_t)op->a.microbatch * st->n_dx;
    Rows w = *step_rows;
    for (int i = 0, k = 0; i < st->n_input; i++)
        for (int g = 0; g < st->input[i].grads; g++, k++) {
            w.t = &st->input[i].t;
            if (w.t->batch_dim >= 0 && w.there > w.rows) /* rows of others have none here */
                r->dev.op->zero(&r->dev, r->dev.current, dx[k],
                                w.t->bytes / w.capacity * w.there);
            if (w.t->batch_dim >= 0 || is_first)
                copy_rows(r, &w, rs->whole->dx[k], dx[k], 0);
            else
                r->dev.op->zero(&r->dev, r->dev.current, dx[k], w.t->bytes);
        }
}

PpStatus minibatch_compute(Rank *r, const Op *op, int64_t step)
{
    const Run *run = r->run;
    const PpStage *st = r->plan.stage[op->local].st->minibatch;
    const int64_t *row0 = data_pass(&r->data, step, 0);
    int m = op->a.microbatch, last = run->data.microbatches - 1;
    Rows rows = {NULL,
                 run->model->minibatch.rows,
                 row0[last + 1],
                 row0[m],
                 row0[m + 1] - row0[m],
                 data_computed(&r->data, step, m),
                 data_before(&r->data, step, m)};
    PpCtx c = context(r, op, step, rows.all);
    if (r->host && op->a.type == SA_F) {
        host_fed(r, m);
        host_held(r, op->local);
    }
    if (r->now.stopped || !wanted(r, st))
        return PP_OK;
    if (op->a.type == SA_F) {
        bring(r, op, &rows);
        if (r->now.gathered++ < last)
            return PP_OK;
        (run->opt->mode == MODE_TRAIN ? st->call.forward : st->call.infer)(&c);
        forward_done(r, op->local, last, step);
    } else if (op->a.type == SA_B && st->has_backward) {
        if (r->now.taken == 0)
            st->call.backward(&c);
        take(r, op, &rows, r->now.taken++ == 0);
    }
    return r->stage[op->local].mesh.status;
}
