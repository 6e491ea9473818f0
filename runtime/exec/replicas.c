/*
 * replicas.c - what replicas of a pipeline tell one another beside gradients (plan/replicas.c): the
 * loss of a step, and after the last one the rows of outputs.  Sums are taken in the order of
 * replicas, whatever carries them.
 */
#include "exec.h"

#include "base/file/safetensors.h"

#include <stdlib.h>
#include <string.h>

PpStatus replicas_loss(Rank *r)
{
    int n = r->run->replicas;
    double *loss = &r->results.norm[0], *all;
    if (n == 1)
        return PP_OK;
    if (!(all = calloc((size_t)n, sizeof *all)))
        return pp_no_memory();
    PpStatus s = r->peers.op->gather(&r->peers, loss, sizeof *loss, all);
    *loss = 0;
    for (int k = 0; k < n && r->replica == 0; k++)
        *loss += all[k];
    free(all);
    return s;
}

/* Each has the sums of squares of its own blocks; they are added as those of one rank. */
PpStatus replicas_norms(Rank *r)
{
    const Plan *p = &r->plan;
    const double *square = r->results.square;
    if (!p->n_block)
        return PP_OK;
    TRY(r->peers.op->sum(&r->peers, r->results.square, (int)p->n_block));
    for (int l = 0; l < p->n_stage && r->replica == 0; l++)
        for (int k = 0; k < p->stage[l].st->n_param; k++) {
            const RankParam *q = &p->stage[l].rp[k];
            int64_t bytes = OPTIM_BLOCK * st_dtype_size(q->p->t.dtype);
            for (int64_t b = 0; q->block >= 0 && b * bytes < q->p->t.bytes; b++)
                r->results.norm[1 + q->p->param] += square[q->block + b];
        }
    return PP_OK;
}

/* What replica k has of an output joins what is there: its rows, or a sum; of an output that is the
 * last microbatch's it is all. */
static void join(const Rank *r, int output, char *to, const char *from, int k)
{
    const PpPlan *model = r->run->model;
    const PpTensor *t = &model->output[output];
    const int64_t m = data_chunks(&r->run->data), *row0 = r->run->data.row0 + k * m;
    int64_t size = st_dtype_size(t->dtype), n = t->bytes / size;
    if (t->batch_dim >= 0) {
        int64_t outer = 1, inner = size, rows = r->plan.ask.output_rows;
        for (int i = 0; i < t->batch_dim; i++)
            outer *= t->dim[i];
        for (int i = t->batch_dim + 1; i < t->rank; i++)
            inner *= t->dim[i];
        inner *= t->dim[t->batch_dim] / model->rows;
        for (int64_t o = 0; o < outer; o++)
            memcpy(to + (o * rows + row0[0]) * inner, from + (o * rows + row0[0]) * inner,
                   (size_t)((row0[m] - row0[0]) * inner));
        return;
    }
    int kind = model->output_merge ? model->output_merge[output] : PP_MERGE_LAST;
    if (kind == PP_MERGE_LAST || (t->dtype != PP_F32 && t->dtype != PP_F64))
        memcpy(to, from, (size_t)t->bytes);
    else
        optim_cpu_add(to, from, n, t->dtype);
}

PpStatus replicas_outputs(Rank *r)
{
    const PpPlan *model = r->run->model;
    PpStatus s = PP_OK;
    for (int i = 0; i < model->n_output && r->run->replicas > 1; i++) {
        char *own = r->results.output[i], *other = NULL;
        if (!own)
            continue;
        int64_t bytes = tensor_bytes(&model->output[i], r->plan.ask.output_rows, model->rows);
        if (r->replica > 0) {
            TRY(group_send(&r->peers, 0, own, bytes));
            continue;
        }
        if (!(other = malloc((size_t)bytes + PP_ALIGN)))
            return pp_no_memory();
        for (int k = 1; k < r->run->replicas && s == PP_OK; k++) {
            s = group_recv(&r->peers, k, other, bytes);
            if (s == PP_OK)
                join(r, i, own, other, k);
        }
        free(other);
        TRY(s);
    }
    return PP_OK;
}
