/*
 * lr.c - in: a schedule of the learning rate and a step; out: the factor.
 */
#include "optim/lr.h"

#include "core/core.h"

#include <math.h>
#include <string.h>

static double linear(double q) { return 1 - q; }
static double cosine(double q) { return 0.5 * (1 + cos(3.14159265358979323846 * q)); }
static double root(double q) { return 1 - sqrt(q); }

static const struct {
    const char *name;
    double (*decay)(double q); /* NULL: it does not end */
} schedules[] = {
    {"constant", NULL}, {"linear", linear},     {"cosine", cosine},
    {"wsd", root},      {"inverse-sqrt", NULL},
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

const char *lr_schedule_name(int i) { return i < SCHEDULES ? schedules[i].name : NULL; }

static int find(const LrOptions *o)
{
    int i = 0;
    while (i < SCHEDULES - 1 && strcmp(o->schedule, schedules[i].name) != 0)
        i++;
    return i;
}

PpStatus lr_options(const LrOptions *o)
{
    int i = find(o), decays = schedules[i].decay != NULL;
    const char *name = schedules[i].name;
    if (o->decay_ratio > 1)
        return pp_fail(PP_ERR_USAGE,
                       "--decay-ratio %g: it must be a fraction of the steps, at most 1",
                       o->decay_ratio);
    if (o->min > 1)
        return pp_fail(PP_ERR_USAGE, "--min-lr-factor %g: it must be a fraction of --lr, at most 1",
                       o->min);
    if (o->decay_ratio >= 0 && !decays)
        return pp_fail(PP_ERR_USAGE, "--decay-ratio: --lr-schedule %s has no such part", name);
    if (o->min > 0 && i == 0)
        return pp_fail(PP_ERR_USAGE, "--min-lr-factor: --lr-schedule %s does not fall", name);
    if (schedules[i].decay == root && o->decay_ratio < 0)
        return pp_fail(PP_ERR_USAGE, "--lr-schedule wsd: --decay-ratio is missing, the fraction of "
                                     "the steps in which it falls");
    return PP_OK;
}

double lr_factor(const LrOptions *o, int64_t step, int64_t steps)
{
    int i = find(o);
    int64_t warmup = o->warmup;
    if (schedules[i].decay && warmup > steps)
        warmup = steps;
    if (step < warmup)
        return (double)(step + 1) / (double)warmup;
    if (!strcmp(schedules[i].name, "inverse-sqrt")) {
        double x = sqrt(warmup > 1 ? (double)warmup : 1) / sqrt((double)(step + 1));
        return x > o->min ? x : o->min;
    }
    if (!schedules[i].decay)
        return 1;
    int64_t decay = o->decay_ratio < 0 ? steps - warmup
                                       : (int64_t)nearbyint((double)steps * o->decay_ratio);
    if (warmup + decay > steps)
        decay = steps - warmup;
    int64_t stable = steps + 1 - warmup - decay;
    if (step < warmup + stable || decay == 0)
        return 1;
    double q = (double)(step + 1 - warmup - stable) / (double)decay;
    return o->min + (1 - o->min) * schedules[i].decay(q < 1 ? q : 1);
}
