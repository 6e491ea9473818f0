/*
 * lr.h - schedules of the learning rate: what --lr is multiplied by in each step.
 *
 * With W steps of warm-up of N, step s from 0 (TorchTitan's build_lr_schedulers):
 *     s < W: (s + 1) / W
 *     then 1, up to the decay over the last D steps, q from 1 / D to 1 in these:
 *     min + (1 - min) f(q)    linear: 1 - q    cosine: (1 + cos(pi q)) / 2    wsd: 1 - sqrt(q)
 * D is all that warm-up leaves, or --decay-ratio of N (Hu et al., 2404.06395: warm-up, stable,
 * decay). inverse-sqrt: max(min, sqrt(W / (s + 1))), Vaswani et al., 1706.03762, without an end.
 */
#ifndef PP_OPTIM_LR_H
#define PP_OPTIM_LR_H

#include "core/status.h"

#include <stdint.h>

typedef struct {
    const char *schedule; /* one of lr_schedule_name() */
    int64_t warmup;
    double min;         /* share of --lr */
    double decay_ratio; /* below 0: not given */
} LrOptions;

const char *lr_schedule_name(int i); /* NULL past the end */
PpStatus lr_options(const LrOptions *o);
/* step from 0, of `steps` in all */
double lr_factor(const LrOptions *o, int64_t step, int64_t steps);

#endif
