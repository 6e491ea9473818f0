/*
 * sgd.h - torch.optim.SGD, without and with momentum (Sutskever et al., 2013).
 *
 *     g = grad + weight_decay p
 *     buf = momentum buf + g, in the first step g itself;  g = nesterov ? g + momentum buf : buf
 *     p -= lr g
 */
#ifndef PP_OPTIM_SGD_H
#define PP_OPTIM_SGD_H

#include "optim/optim.h"

enum { SGD_LR, SGD_DECAY, SGD_MOMENTUM, SGD_NESTEROV, SGD_FIRST, SGD_NUMBERS };
static_assert((int)SGD_NUMBERS <= (int)OPTIM_NUMBERS, "DeviceUpdate.number is too short");

static inline void momentum_numbers(const OptimOptions *o, int64_t step, double *k)
{
    k[SGD_LR] = o->lr;
    k[SGD_DECAY] = o->weight_decay;
    k[SGD_MOMENTUM] = o->momentum;
    k[SGD_NESTEROV] = o->nesterov;
    k[SGD_FIRST] = step == 0;
}

static inline void sgd_numbers(const OptimOptions *o, int64_t step, double *k)
{
    momentum_numbers(o, step, k);
}

#endif

#ifdef T
RULE T PER_TYPE(sgd)(const T *k, T p, T grad, T *state)
{
    (void)state;
    T g = grad + k[SGD_DECAY] * p;
    return p - k[SGD_LR] * g;
}

RULE T PER_TYPE(momentum)(const T *k, T p, T grad, T *buf)
{
    T g = grad + k[SGD_DECAY] * p;
    *buf = k[SGD_FIRST] != 0 ? g : k[SGD_MOMENTUM] * *buf + g;
    g = k[SGD_NESTEROV] != 0 ? g + k[SGD_MOMENTUM] * *buf : *buf;
    return p - k[SGD_LR] * g;
}
#endif
