/*
 * replicas.c - what replicas of a pipeline tell one another beside gradients (plan/replicas.c): the
 * loss of a step, and after the last one the rows of outputs.  Sums are taken in the order of
 * replicas, whatever carries them.
 */
#include "exec.h"

#include "base/file/safetensors.h"

#include <string.h>

/* Of one of the replica's groups, where the loss is computed. */
static double group_loss(const Rank *r, int round)
{
    const PpPlan *model = r->run->model;
    int each = data_chunks(&r->data) / data_rounds(&r->data);
    double sum = 0;
    if (model->loss.stage >= 0 && r->plan.local_of[model->loss.stage] >= 0)
        for (int m = round * each; m < (round + 1) * each; m++)
            sum += r->results.loss[m];
    return sum;
}

PpStatus replicas_loss(Rank *r)
{
    int n = r->run->replicas, rounds = data_rounds(&r->data);
    double *loss = &r->results.norm[0], *all = r->results.share, *own = all + (ptrdiff_t)n * rounds;
    for (int j = 0; j < rounds; j++)
        own[j] = group_loss(r, j);
    if (n == 1)
        all = own;
    else
        TRY(r->along[AXIS_PEERS].op->gather(&r->along[AXIS_PEERS], own,
                                            rounds * (int64_t)sizeof *own, all));
    *loss = 0;
    for (int group = 0; group < n * rounds && speaks(r); group++)
        *loss += all[group % n * rounds + group / n];
    return PP_OK;
}

static PpStatus share_statistic(Rank *r, const RankParam *q)
{
    int64_t bytes = q->p->t.bytes;
    if (r->replica == 0) {
        const void *own = host_copy(&r->files, q->value, bytes);
        for (int k = 1; k < r->run->replicas; k++)
            TRY(group_send(&r->along[AXIS_PEERS], k, own, bytes));
        return PP_OK;
    }
    void *theirs;
    POOL(room);
    TRY(pp_take(&room, &theirs, bytes, 1));
    TRY(group_recv(&r->along[AXIS_PEERS], 0, theirs, bytes));
    host_upload(&r->files, q->value, theirs, bytes);
    return PP_OK;
}

PpStatus replicas_statistics(Rank *r)
{
    for (RankWalk i = {0}; r->run->replicas > 1 && plan_next(&r->plan, &i);)
        if (i.q->p->stat)
            TRY(share_statistic(r, i.q));
    return PP_OK;
}

/* Each has the sums of squares of its own blocks; they are added as those of one rank. */
PpStatus replicas_norms(Rank *r)
{
    const Plan *p = &r->plan;
    const double *square = r->results.square;
    if (!p->norm.blocks)
        return PP_OK;
    TRY(r->along[AXIS_PEERS].op->sum(&r->along[AXIS_PEERS], r->results.square,
                                     (int)p->norm.blocks));
    for (RankWalk i = {0}; r->replica == 0 && plan_next(p, &i);) {
        const RankParam *q = i.q;
        int64_t bytes = OPTIM_BLOCK * st_dtype_size(q->p->t.dtype);
        for (int64_t b = 0; q->block >= 0 && b * bytes < q->p->t.bytes; b++)
            r->results.norm[1 + q->norm] += square[q->block + b];
    }
    return PP_OK;
}

/* Rows of the step that replica k has had in a round: [row[0], row[1]) of the data, of a training
 * step. */
static void rows_of(const Data *all, int64_t step, int k, int round, int64_t row[2])
{
    const Data d = data_of(all, k);
    int64_t before = all->opt->mode == MODE_TRAIN ? 0 : data_rows_before(all, step);
    data_round(&d, step, round, row);
    row[0] += before;
    row[1] += before;
}

/* The rows that replica k has of an output, to their places. */
static void join_rows(const Rank *r, const PpTensor *t, char *to, const char *from, int k)
{
    const Data *d = &r->run->data;
    int64_t outer = 1, inner = st_dtype_size(t->dtype), rows = r->plan.ask.output.rows, row[2];
    for (int i = 0; i < t->batch_dim; i++)
        outer *= t->dim[i];
    for (int i = t->batch_dim + 1; i < t->rank; i++)
        inner *= tensor_dim(t, i, d->longest);
    inner *= t->dim[t->batch_dim] / r->run->model->rows;
    int64_t first = d->opt->mode == MODE_TRAIN ? d->steps - 1 : 0;
    for (int64_t step = first; step < d->steps; step++)
        for (int round = 0; round < data_rounds(d); round++) {
            rows_of(d, step, k, round, row);
            for (int64_t o = 0; o < outer; o++)
                memcpy(to + (o * rows + row[0]) * inner, from + (o * rows + row[0]) * inner,
                       (size_t)((row[1] - row[0]) * inner));
        }
}

static int merge_kind(const PpPlan *model, int output)
{
    return model->output_merge ? model->output_merge[output] : PP_MERGE_LAST;
}

/* What of an output replicas send: its sum before it was rounded, where that is of a half type. */
static char *sent(const Rank *r, int output, int *dtype, int64_t *bytes)
{
    const PpTensor *t = &r->run->model->output[output];
    float *sum = r->results.sum[output];
    *dtype = t->dtype;
    *bytes = tensor_bytes(r->run->model, t, r->plan.ask.output.rows, r->plan.ask.output.length);
    if (!sum || !r->results.output[output] || merge_kind(r->run->model, output) == PP_MERGE_LAST)
        return r->results.output[output];
    *bytes = *bytes / 2 * (int64_t)sizeof *sum;
    *dtype = PP_F32;
    return (char *)sum;
}

/* What replica k has of an output joins what is there: its rows, or a sum; of an output that is the
 * last microbatch's it is all, if it had one in the last step. */
static void join(const Rank *r, int output, const char *from, int k)
{
    const PpTensor *t = &r->run->model->output[output];
    int dtype, kind = merge_kind(r->run->model, output);
    int64_t row[2], bytes;
    char *to = sent(r, output, &dtype, &bytes);
    rows_of(&r->run->data, r->run->data.steps - 1, k, 0, row);
    if (t->batch_dim >= 0)
        join_rows(r, t, to, from, k);
    else if (kind != PP_MERGE_LAST && (dtype == PP_F32 || dtype == PP_F64))
        optim_cpu_add(to, from, bytes / st_dtype_size(dtype), dtype);
    else if (row[1] > row[0])
        memcpy(to, from, (size_t)bytes);
}

/* On replica 0. */
static PpStatus join_all(Rank *r, int output)
{
    const PpTensor *t = &r->run->model->output[output];
    int dtype;
    int64_t bytes;
    char *own = sent(r, output, &dtype, &bytes), *other;
    POOL(room);
    TRY(pp_take(&room, &other, bytes, 1));
    for (int k = 1; k < r->run->replicas; k++) {
        TRY(group_recv(&r->along[AXIS_PEERS], k, other, bytes));
        join(r, output, other, k);
    }
    if (own != r->results.output[output])
        optim_cpu_round((uint16_t *)(void *)r->results.output[output],
                        (const float *)(const void *)own, bytes / (int64_t)sizeof(float), t->dtype);
    return PP_OK;
}

PpStatus replicas_outputs(Rank *r)
{
    for (int i = 0; i < r->run->model->n_output && r->run->replicas > 1; i++) {
        int dtype;
        int64_t bytes;
        const char *own = sent(r, i, &dtype, &bytes);
        if (own)
            TRY(r->replica ? group_send(&r->along[AXIS_PEERS], 0, own, bytes) : join_all(r, i));
    }
    return PP_OK;
}
