/*
 * optim.c - in: the options and a step's number; out: gradients' norm and new parameters, by PyTorch's formulas
 * (torch.optim.SGD, Adam, AdamW, torch.nn.utils.clip_grad_norm_).  The arithmetic is the device's; here are the numbers
 * of a step, and which parameters of the rank take part.
 */
#include "optim.h"

#include "base/file/safetensors.h"

#include <math.h>
#include <stdlib.h>

int optim_states(const Options *o)
{
    if (o->mode != MODE_TRAIN)
        return 0;
    switch (o->optimizer) {
    case OPT_ADAM:
    case OPT_ADAMW: return 2;
    case OPT_MOMENTUM:
    case OPT_SGD: return o->momentum > 0;
    }
    return 0;
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
        for (int k = 0; k < p->stage[l].st->n_param; k++) {
            const RankParam *q = &p->stage[l].rp[k];
            *list++ = (DeviceParam){.value = q->value,
                                    .grad = q->grad,
                                    .state = {q->state[0], q->state[1]},
                                    .n = q->p->t.bytes / st_dtype_size(q->p->t.dtype),
                                    .dtype = q->p->t.dtype,
                                    .norm = q->counts ? q->p->param : -1,
                                    .update = q->update};
        }
}

void optim_update(Device *d, const Options *o, int64_t step, double scale)
{
    double t = (double)step + 1, c1 = 1 - pow(o->beta1, t), c2 = 1 - pow(o->beta2, t);
    int decoupled = o->optimizer == OPT_ADAMW;
    DeviceUpdate u = {
        .adam = o->optimizer == OPT_ADAM || decoupled,
        .nesterov = o->nesterov,
        .first = step == 0,
        .scale = scale,
        .lr = o->lr,
        .momentum = o->momentum,
        .weight_decay = decoupled ? 0 : o->weight_decay,
        .rate = o->lr / c1,
        .root = sqrt(c2),
        .eps = o->eps,
        .beta2 = o->beta2,
        .less1 = 1 - o->beta1,
        .less2 = 1 - o->beta2,
        .keep = decoupled ? 1 - o->lr * o->weight_decay : 1,
    };
    d->op->update(d, d->current, &u);
}
