/*
 * optimizer.c - which parameters of a rank the optimizer changes, and the numbers of a step.
 */
#include "exec.h"

#include "base/file/safetensors.h"

int optim_states(const Options *o)
{
    return o->mode == MODE_TRAIN ? optimizers[o->optimizer].states : 0;
}

int optim_count(const Plan *p)
{
    int n = 0;
    for (int l = 0; l < p->n_stage; l++)
        n += p->stage[l].st->n_param;
    return n;
}

/* The rank's parameters, once they have their places. */
void optim_list(const Plan *p, DeviceParam *list)
{
    for (int l = 0; l < p->n_stage; l++)
        for (int k = 0; k < p->stage[l].st->n_param; k++, list++) {
            const RankParam *q = &p->stage[l].rp[k];
            *list = (DeviceParam){.value = q->value,
                                  .grad = q->grad,
                                  .n = q->p->t.bytes / st_dtype_size(q->p->t.dtype),
                                  .dtype = q->p->t.dtype,
                                  .half = q->half,
                                  .half_type = p->stage[l].st->half_type,
                                  .norm = q->counts ? q->p->param : -1,
                                  .update = q->update};
            for (int j = 0; j < OPTIM_STATES; j++)
                list->state[j] = q->state[j];
        }
}

void optim_update(Device *d, const Options *o, int64_t step, double scale)
{
    DeviceUpdate u = {.optimizer = o->optimizer, .scale = scale};
    optimizers[o->optimizer].numbers(&o->optim, step, u.number);
    d->op->update(d, d->current, &u);
}
