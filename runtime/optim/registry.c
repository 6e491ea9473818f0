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

#define OPTIMIZER(id, rule, states, ...)                                                           \
    static_assert(states <= OPTIM_STATES, "DeviceParam.state is too short for " #id);
#include "optim/optimizers.h"

enum { NO = -1 };
const Optimizer optimizers[OPTIMIZERS] = {
#define OPTIMIZER(id, rule, states, first, second, about, ...)                                     \
    {#id, about, states, {first, second}, {__VA_ARGS__}, id##_numbers},
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
        fprintf(f, "  %-10s", optimizers[i].name);
#define REAL(field, name, help)                                                                    \
    if (d->field >= 0)                                                                             \
        fprintf(f, " --%s %g", name, d->field);
        OPTIM_REALS(REAL)
#define FLAG(field, name, help)                                                                    \
    if (d->field >= 0)                                                                             \
        fprintf(f, " --%s", name);
        OPTIM_FLAGS(FLAG)
        fprintf(f, "   (torch.optim.%s)\n", optimizers[i].about);
    }
}
