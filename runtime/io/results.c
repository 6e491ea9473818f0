/*
 * results.c - what steps yield on the host: losses, sums of squares, rows of the model's outputs in
 * their order.
 */
#include "results.h"

#include "api/pp_half.h"
#include "base/file/npy.h"
#include "base/file/safetensors.h"

#include <stdlib.h>
#include <string.h>

static int is_half(int dtype) { return dtype == PP_BF16 || dtype == PP_F16; }

static float from_half(uint16_t h, int dtype)
{
    return dtype == PP_BF16 ? pp_from_bf16(h) : pp_from_f16(h);
}

static uint16_t to_half(float x, int dtype)
{
    return dtype == PP_BF16 ? pp_to_bf16(x) : pp_to_f16(x);
}

PpStatus results_open(Results *r, const Data *d, const Plan *p)
{
    int n = d->model->n_output;
    *r = (Results){.data = d, .plan = p};
    r->output = zeroed(n, sizeof *r->output);
    r->loss = zeroed(data_chunks(d), sizeof *r->loss);
    r->share = zeroed((int64_t)(d->replicas + 1) * data_rounds(d), sizeof *r->share);
    r->norm = zeroed(p->n_norm + 1 + WORDS, sizeof *r->norm);
    r->square = zeroed(p->n_block, sizeof *r->square);
    r->sum = zeroed(n, sizeof *r->sum);
    if (!r->output || !r->loss || !r->share || !r->norm || !r->square || !r->sum)
        return pp_no_memory();
    for (int i = 0; i < n; i++) {
        const PpTensor *t = &d->model->output[i];
        if (!p->has_output[i] || t->batch_dim >= 0 || !is_half(t->dtype))
            continue;
        r->sum[i] = zeroed(t->bytes / 2, sizeof **r->sum);
        if (!r->sum[i])
            return pp_no_memory();
    }
    r->word = r->norm + 1 + p->n_norm;
    if (!p->ask.on_device)
        memcpy(r->output, p->output, (size_t)n * sizeof *r->output);
    for (int i = 0; i < n && p->ask.on_device; i++) /* nothing is copied there directly */
        if (p->has_output[i]) {
            r->output[i] =
                calloc(1, (size_t)tensor_bytes(d->model, &d->model->output[i], p->ask.output.rows,
                                               p->ask.output.length) +
                              1);
            if (!r->output[i])
                return pp_no_memory();
        }
    return PP_OK;
}

void results_close(Results *r)
{
    for (int i = 0; r->output && r->plan->ask.on_device && i < r->data->model->n_output; i++)
        free(r->output[i]);
    for (int i = 0; r->sum && i < r->data->model->n_output; i++)
        free(r->sum[i]);
    free(r->output), free(r->loss), free(r->share), free(r->norm), free(r->square), free(r->sum);
    *r = (Results){0};
}

static double scalar(const void *p, int dtype)
{
    if (dtype == PP_F64) {
        double v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    if (is_half(dtype)) {
        uint16_t h;
        memcpy(&h, p, sizeof h);
        return (double)from_half(h, dtype);
    }
    float f;
    memcpy(&f, p, sizeof f);
    return (double)f;
}

/* Adds what a microbatch yields, in float32, and rounds the sum so far. */
static void add_half(float *sum, uint16_t *to, const uint16_t *from, int64_t n, int dtype,
                     double weight)
{
    for (int64_t i = 0; i < n; i++) {
        sum[i] += (float)(weight * (double)from_half(from[i], dtype));
        to[i] = to_half(sum[i], dtype);
    }
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
    if (sum) {
        add_half(sum, (uint16_t *)(void *)to, (const uint16_t *)(const void *)src, n, t->dtype,
                 weight);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (t->dtype == PP_F64)
            ((double *)(void *)to)[i] += weight * ((const double *)(const void *)src)[i];
        else
            ((float *)(void *)to)[i] +=
                (float)(weight * (double)((const float *)(const void *)src)[i]);
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
    r->loss[m] = scalar(loss, plan->stage[plan->loss_stage]->output[plan->loss_output].t.dtype);
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
        int l = model->loss_stage >= 0 ? p->local_of[model->loss_stage] : -1;
        if (l >= 0 && p->stage[l].st->output[model->loss_output].model_output == i &&
            r->data->opt->mode != MODE_INFER) {
            float single = (float)r->norm[0];
            uint16_t half = to_half(single, t.dtype);
            memcpy(r->output[i],
                   t.dtype == PP_F64    ? (const void *)&r->norm[0]
                   : is_half(t.dtype) ? (const void *)&half
                                      : (const void *)&single,
                   (size_t)t.bytes);
        }
        const char *file = r->data->opt->output[wanted[i]].file;
        if (npy_write(file, t.dtype, t.rank, t.dim, r->output[i], err, sizeof err))
            return pp_fail(PP_ERR_IO, "--output %s", err);
    }
    return PP_OK;
}
