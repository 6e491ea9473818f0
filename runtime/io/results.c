/*
 * results.c - what steps yield on the host: losses, sums of squares, rows of the model's outputs in
 * their order.
 */
#include "results.h"

#include "base/file/npy.h"
#include "base/file/safetensors.h"
#include "core/number.h"

#include <string.h>

static int is_half(int dtype) { return dtype == PP_BF16 || dtype == PP_F16; }

PpStatus results_open(Results *r, Pool *pool, const Data *d, const Plan *p)
{
    int n = d->model->n_output;
    *r = (Results){.data = d, .plan = p};
    TRY(pp_take(pool, &r->output, n, sizeof *r->output));
    TRY(pp_take(pool, &r->sum, n, sizeof *r->sum));
    TRY(pp_take(pool, &r->loss, data_chunks(d), sizeof *r->loss));
    TRY(pp_take(pool, &r->share, (int64_t)(d->replicas + 1) * data_rounds(d), sizeof *r->share));
    TRY(pp_take(pool, &r->norm, p->norm.n + 1 + WORDS, sizeof *r->norm));
    TRY(pp_take(pool, &r->square, p->norm.blocks, sizeof *r->square));
    r->word = r->norm + 1 + p->norm.n;
    memcpy(r->output, p->data.output, (size_t)n * sizeof *r->output);
    for (int i = 0; i < n; i++) {
        const PpTensor *t = &d->model->output[i];
        if (!p->data.has_output[i])
            continue;
        if (t->batch_dim < 0 && is_half(t->dtype))
            TRY(pp_take(pool, &r->sum[i], t->bytes / 2, sizeof **r->sum));
        if (p->ask.on_device) /* nothing is copied there directly */
            TRY(pp_take(pool, &r->output[i],
                        tensor_bytes(d->model, t, p->ask.output.rows, p->ask.output.length), 1));
    }
    return PP_OK;
}

/* An output without rows: the microbatches' mean by rows, their sum, or the last of them. */
static void merge(const Results *r, const PpOutput *o, char *to, const char *src, int m,
                  int64_t step)
{
    const Data *d = r->data;
    const PpTensor *t = &o->t;
    const int64_t *row0 = data_chunk(d, step, m);
    int kind = d->model->output_merge ? d->model->output_merge[o->model_output] : PP_MERGE_LAST;
    if (kind == PP_MERGE_LAST || (t->dtype != PP_F32 && t->dtype != PP_F64 && !is_half(t->dtype))) {
        memcpy(to, src, (size_t)t->bytes);
        return;
    }
    float *sum = r->sum[o->model_output];
    if (m == 0 && (d->opt->mode == MODE_TRAIN || step == 0)) {
        memset(to, 0, (size_t)t->bytes);
        if (sum)
            memset(sum, 0, (size_t)t->bytes * 2);
    }
    double weight = kind == PP_MERGE_SUM
                        ? 1
                        : (double)(row0[1] - row0[0]) / (double)r->plan->ask.output.rows;
    int64_t n = t->bytes / st_dtype_size(t->dtype);
    /* what a microbatch yields is added in the sum's type; a half is the sum so far, rounded */
    for (int64_t i = 0; i < n; i++) {
        const double one = weight * number_at(src, i, t->dtype);
        if (t->dtype == PP_F64)
            ((double *)(void *)to)[i] += one;
        else if (!sum)
            ((float *)(void *)to)[i] += (float)one;
        else
            number_put(to, i, t->dtype, (double)(sum[i] += (float)one));
    }
}

/* Of dimensions `dim` and those behind it. */
static int64_t bytes_from(const PpTensor *t, int dim, PpLength length)
{
    int64_t bytes = st_dtype_size(t->dtype);
    for (int i = dim; i < t->rank; i++)
        bytes *= tensor_dim(t, i, length);
    return bytes;
}

/* What there is of a row, into one of the longest. */
static void put(const Data *d, const PpTensor *t, int dim, PpLength length, char *to,
                const char *from)
{
    int64_t bytes = bytes_from(t, dim, length), room = bytes_from(t, dim, d->longest);
    if (room == bytes) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    int64_t n = tensor_dim(t, dim, length),
            most = tensor_dim(t, dim, d->longest);
    for (int64_t i = 0; i < n; i++)
        put(d, t, dim + 1, length, to + i * (room / most), from + i * (bytes / n));
}

/* Rows of a model output into their place among all rows of the minibatch (of all minibatches in
 * eval and infer). */
void results_take(Results *r, const PpOutput *o, const char *src, int m, PpLength length,
                  int64_t step)
{
    const Data *d = r->data;
    const PpTensor *t = &o->t;
    const int64_t *row0 = data_chunk(d, step, m);
    char *to = r->output[o->model_output];
    if (t->batch_dim < 0) {
        merge(r, o, to, src, m, step);
        return;
    }
    int64_t outer = 1, rows = row0[1] - row0[0];
    int64_t there = data_computed(d, step, m), before = data_before(d, step, m);
    int64_t first = row0[0] + (data_keeps_outputs(d) ? data_rows_before(d, step) : 0);
    for (int i = 0; i < t->batch_dim; i++)
        outer *= t->dim[i];
    int64_t each = t->dim[t->batch_dim] / d->model->rows,
            inner = bytes_from(t, t->batch_dim + 1, d->longest),
            from = bytes_from(t, t->batch_dim + 1, length);
    for (int64_t k = 0; k < outer; k++) {
        char *row = to + (k * r->plan->ask.output.rows + first) * each * inner;
        const char *is = src + (k * there + before) * each * from;
        if (from == inner) {
            memcpy(row, is, (size_t)(rows * each * inner));
            continue;
        }
        memset(row, 0, (size_t)(rows * each * inner));
        for (int64_t i = 0; i < rows * each; i++)
            put(d, t, t->batch_dim + 1, length, row + i * inner, is + i * from);
    }
}

void results_loss(Results *r, const void *loss, int m)
{
    const PpPlan *plan = r->data->model;
    r->loss[m] =
        number_at(loss, 0, plan->stage[plan->loss.stage]->output[plan->loss.output].t.dtype);
}

PpStatus results_write(Results *r, const int *wanted)
{
    const PpPlan *model = r->data->model;
    const Plan *p = r->plan;
    char err[600];
    for (int i = 0; i < model->n_output; i++) {
        if (!r->output[i])
            continue;
        PpTensor t = model->output[i];
        for (int k = 0; k < t.rank; k++)
            t.dim[k] = tensor_dim(&model->output[i], k, r->data->longest);
        if (t.batch_dim >= 0)
            t.dim[t.batch_dim] = t.dim[t.batch_dim] / model->rows * p->ask.output.rows;
        /* the loss as an output is the minibatch's, not the last microbatch's */
        int l = model->loss.stage >= 0 ? p->local_of[model->loss.stage] : -1;
        if (l >= 0 && p->stage[l].st->output[model->loss.output].model_output == i &&
            r->data->opt->mode != MODE_INFER)
            number_put(r->output[i], 0, t.dtype, r->norm[0]);
        const char *file = r->data->opt->data.output.at[wanted[i]].file;
        if (npy_write(file, t.dtype, t.rank, t.dim, r->output[i], err, sizeof err))
            return pp_fail(PP_ERR_IO, "--output %s", err);
    }
    return PP_OK;
}
