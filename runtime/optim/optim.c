/*
 * optim.c - the options of an optimizer, completed by the registry's defaults.  The arithmetic is the device's
 * (optim_cpu.c, optim_cuda.cu).
 */
#include "optim/optim.h"

#include "core/core.h"

#include <stddef.h>

static const struct {
    const char *name;
    size_t at;
} reals[] = {
    {"lr", offsetof(OptimOptions, lr)},       {"momentum", offsetof(OptimOptions, momentum)},
    {"beta1", offsetof(OptimOptions, beta1)}, {"beta2", offsetof(OptimOptions, beta2)},
    {"eps", offsetof(OptimOptions, eps)},     {"weight-decay", offsetof(OptimOptions, weight_decay)},
};

static double real_of(const OptimOptions *o, size_t at) { return *(const double *)((const char *)o + at); }

PpStatus optim_options(OptimKind *kind, OptimOptions *o)
{
    const Optimizer *row = &optimizers[*kind];
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double *value = (double *)((char *)o + reals[i].at), standard = real_of(&row->defaults, reals[i].at);
        if (*value >= 0 && standard < 0)
            return pp_fail(PP_ERR_USAGE, "--%s: %s takes no such option; --help lists those it takes", reals[i].name,
                           row->name);
        if (*value < 0)
            *value = standard;
    }
    if (o->nesterov && row->defaults.nesterov < 0)
        return pp_fail(PP_ERR_USAGE, "--nesterov: %s takes no such option; --help lists those it takes", row->name);
    if (o->nesterov && o->momentum <= 0)
        return pp_fail(PP_ERR_USAGE, "--nesterov needs --momentum");
    /* PyTorch's SGD is two rows here: it has a state only where there is a momentum. */
    if (*kind == OPTIM_sgd || *kind == OPTIM_momentum)
        *kind = o->momentum > 0 ? OPTIM_momentum : OPTIM_sgd;
    return PP_OK;
}
