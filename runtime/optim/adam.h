/*
 * adam.h - torch.optim.Adam (Kingma and Ba, 1412.6980) and AdamW (Loshchilov and Hutter,
 * 1711.05101), whose decay does not go through the moments.
 *
 *     g = grad + weight_decay p                  AdamW: g = grad, keep = 1 - lr weight_decay
 *     m += (1 - beta1) (g - m)                   exp_avg
 *     v = beta2 v + (1 - beta2) g g              exp_avg_sq
 *     p = keep p - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 */
#ifndef PP_OPTIM_ADAM_H
#define PP_OPTIM_ADAM_H

#include "optim/optim.h"

#include <math.h>

enum {
    ADAM_DECAY, ADAM_KEEP, ADAM_LESS1, ADAM_BETA2, ADAM_LESS2, ADAM_RATE, ADAM_ROOT, ADAM_EPS,
    ADAM_NUMBERS
};
static_assert((int)ADAM_NUMBERS <= (int)OPTIM_NUMBERS, "DeviceUpdate.number is too short");

static inline void adam_numbers(const OptimOptions *o, int64_t step, double *k)
{
    double t = (double)step + 1;
    k[ADAM_DECAY] = o->weight_decay;
    k[ADAM_KEEP] = 1;
    k[ADAM_LESS1] = 1 - o->beta1;
    k[ADAM_BETA2] = o->beta2;
    k[ADAM_LESS2] = 1 - o->beta2;
    k[ADAM_RATE] = o->lr / (1 - pow(o->beta1, t));
    k[ADAM_ROOT] = sqrt(1 - pow(o->beta2, t));
    k[ADAM_EPS] = o->eps;
}

static inline void adamw_numbers(const OptimOptions *o, int64_t step, double *k)
{
    adam_numbers(o, step, k);
    k[ADAM_DECAY] = 0;
    k[ADAM_KEEP] = 1 - o->lr * o->weight_decay;
}

#endif

#ifdef T
RULE T PER_TYPE(adam)(const T *k, T p, T grad, T *state)
{
    T x = p * k[ADAM_KEEP], g = grad + k[ADAM_DECAY] * p;
    T m = state[0] + k[ADAM_LESS1] * (g - state[0]),
      v = k[ADAM_BETA2] * state[1] + k[ADAM_LESS2] * g * g;
    state[0] = m;
    state[1] = v;
    return x - k[ADAM_RATE] * (m / (SQRT(v) / k[ADAM_ROOT] + k[ADAM_EPS]));
}
#endif
