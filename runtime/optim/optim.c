/*
 * optim.c - the optimizer of a run: its options completed by the registry's defaults, which
 * parameters of a rank take part, and the numbers of a step.  The arithmetic is the device's
 * (optim_cpu.c, optim_cuda.cu).
 */
#include "internal.h"

#include <stddef.h>

static const struct {
    const char *name;
    size_t at;
} reals[] = {
    {"lr", offsetof(OptimOptions, lr)},
    {"momentum", offsetof(OptimOptions, momentum)},
    {"beta1", offsetof(OptimOptions, beta1)},
    {"beta2", offsetof(OptimOptions, beta2)},
    {"eps", offsetof(OptimOptions, eps)},
    {"weight-decay", offsetof(OptimOptions, weight_decay)},
};

static double real_of(const OptimOptions *o, size_t at)
{
    return *(const double *)((const char *)o + at);
}

PpStatus optim_options(OptimKind *kind, OptimOptions *o)
{
    const Optimizer *row = &optimizers[*kind];
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double *value = (double *)((char *)o + reals[i].at),
               standard = real_of(&row->defaults, reals[i].at);
        if (*value >= 0 && standard < 0)
            return pp_fail(PP_ERR_USAGE,
                           "--%s: %s takes no such option; --help lists those it takes",
                           reals[i].name, row->name);
        if (*value < 0)
            *value = standard;
    }
    if (o->nesterov && row->defaults.nesterov < 0)
        return pp_fail(PP_ERR_USAGE,
                       "--nesterov: %s takes no such option; --help lists those it takes",
                       row->name);
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
