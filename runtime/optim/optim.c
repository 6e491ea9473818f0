/*
 * optim.c - the optimizer of a run: its options completed by the registry's defaults, which
 * parameters of a rank take part, and the numbers of a step.  The arithmetic is the device's
 * (optim_cpu.c, optim_cuda.cu).
 */
#include "internal.h"

static PpStatus not_taken(const char *option, const Optimizer *row)
{
    return pp_fail(PP_ERR_USAGE, "--%s: %s takes no such option; --help lists those it takes",
                   option, row->name);
}

PpStatus optim_options(OptimKind *kind, OptimOptions *o)
{
    const Optimizer *row = &optimizers[*kind];
#define REAL(field, name, help)                                                                    \
    if (o->field >= 0 && row->defaults.field < 0)                                                  \
        return not_taken(name, row);                                                               \
    if (o->field < 0)                                                                              \
        o->field = row->defaults.field;
    OPTIM_REALS(REAL)
#define FLAG(field, name, help)                                                                    \
    if (o->field > 0 && row->defaults.field < 0)                                                   \
        return not_taken(name, row);
    OPTIM_FLAGS(FLAG)
    if (o->nesterov && o->momentum <= 0)
        return pp_fail(PP_ERR_USAGE, "--nesterov needs --momentum");
    /* PyTorch's SGD is two rows here: it has a state only where there is a momentum. */
    if (*kind == OPTIM_sgd || *kind == OPTIM_momentum)
        *kind = o->momentum > 0 ? OPTIM_momentum : OPTIM_sgd;
    return PP_OK;
}

int optim_states(const Options *o)
{
    return o->mode == MODE_TRAIN ? optimizers[o->optimizer].states : 0;
}

int optim_count(const Rank *r)
{
    int n = 0;
    for (int l = 0; l < r->n_stage; l++)
        n += r->stage[l].st->n_param;
    return n;
}

/* The rank's parameters, once they have their places. */
void optim_list(const Rank *r, DeviceParam *list)
{
    for (int l = 0; l < r->n_stage; l++)
        for (int k = 0; k < r->stage[l].st->n_param; k++, list++) {
            const RankParam *q = &r->stage[l].rp[k];
            *list = (DeviceParam){.value = q->value,
                                  .grad = q->grad,
                                  .n = q->p->t.bytes / st_dtype_size(q->p->t.dtype),
                                  .dtype = q->p->t.dtype,
                                  .norm = q->counts ? q->p->param : -1,
                                  .update = q->update};
            for (int j = 0; j < OPTIM_STATES; j++)
                list->state[j] = q->state[j];
        }
}

void optim_update(Rank *r, int64_t step, double scale)
{
    const Options *o = r->run->opt;
    DeviceUpdate u = {.optimizer = o->optimizer, .scale = scale};
    optimizers[o->optimizer].numbers(&o->optim, step, u.number);
    r->dev.op->update(&r->dev, r->at, &u);
}
