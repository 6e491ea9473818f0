/*
 * optim.c - the options of an optimizer, completed by the registry's defaults.  The arithmetic is
 * the device's (optim_cpu.c, optim_cuda.cu).
 */
#include "optim/optim.h"

#include "core/core.h"

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
