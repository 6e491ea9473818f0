/*
 * registry.c - the optimizers by name: optimizers.h as a table.
 */
#include "optim/optim.h"

#include <stddef.h>
#include <string.h>

#define OPTIM_RULES
#define OPTIMIZER(...)
#include "optim/optimizers.h" /* of the rules their numbers only */
#undef OPTIM_RULES

enum { NO = -1 };
const Optimizer optimizers[OPTIMIZERS] = {
#define OPTIMIZER(id, rule, states, first, second, about, lr, momentum, nesterov, beta1, beta2,    \
                  eps, decay)                                                                      \
    {#id,                                                                                          \
     about,                                                                                        \
     states,                                                                                       \
     {first, second},                                                                              \
     {lr, momentum, nesterov, beta1, beta2, eps, decay},                                           \
     id##_numbers},
#include "optim/optimizers.h"
};

int optim_find(const char *name, OptimKind *kind)
{
    for (int i = 0; i < OPTIMIZERS; i++)
        if (!strcmp(name, optimizers[i].name)) {
            *kind = (OptimKind)i;
            return 1;
        }
    return 0;
}

void optim_help(FILE *f)
{
    for (int i = 0; i < OPTIMIZERS; i++) {
        const OptimOptions *d = &optimizers[i].defaults;
        const struct {
            const char *name;
            double value;
        } real[] = {{"lr", d->lr},       {"momentum", d->momentum},
                    {"beta1", d->beta1}, {"beta2", d->beta2},
                    {"eps", d->eps},     {"weight-decay", d->weight_decay}};
        fprintf(f, "  %-10s", optimizers[i].name);
        for (size_t k = 0; k < sizeof real / sizeof *real; k++)
            if (real[k].value >= 0)
                fprintf(f, " --%s %g", real[k].name, real[k].value);
        fprintf(f, "%s   (torch.optim.%s)\n", d->nesterov >= 0 ? " --nesterov" : "", optimizers[i].about);
    }
}
