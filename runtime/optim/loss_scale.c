/*
 * loss_scale.c - the rules of loss_scale.h, and what --loss-scale says.
 */
#include "optim/loss_scale.h"

#include "core/core.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Defaults of torch.amp.GradScaler and of Megatron's DynamicGradScaler.  GradScaler has no least
 * scale: 2^-24 is where f16's largest and smallest numbers have changed places. */
static const struct {
    const char *name;
    double initial, least;
    int window, hysteresis;
} rules[] = {
    {"dynamic", 0x1p16, 0x1p-24, 2000, 1},
    {"megatron", 0x1p32, 1, 1000, 2},
};
static const double most = 0x1p127; /* float32 has no larger power of two */

static int power_of_two(double x)
{
    int exponent;
    return x > 0 && x <= most && x >= 0x1p-126 && frexp(x, &exponent) == 0.5;
}

PpStatus loss_scale_of(LossScale *s, const char *text, int window, double initial)
{
    if (initial != 0 && !power_of_two(initial))
        return pp_fail(PP_ERR_USAGE, "--loss-scale-initial: expected a power of two, not %g",
                       initial);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(text, rules[i].name)) {
            *s = (LossScale){.scale = initial != 0 ? initial : rules[i].initial,
                             .window = window ? window : rules[i].window,
                             .hysteresis = rules[i].hysteresis,
                             .borne = rules[i].hysteresis,
                             .least = rules[i].least};
            return PP_OK;
        }
    char *end;
    errno = 0;
    double fixed = strtod(text, &end);
    if (!*text || *end || errno || !power_of_two(fixed))
        return pp_fail(PP_ERR_USAGE,
                       "--loss-scale: '%s' is neither 'dynamic' nor 'megatron' nor a power of two "
                       "(other factors would round the gradients)",
                       text);
    if (window || initial != 0)
        return pp_fail(PP_ERR_USAGE, "--loss-scale %s is fixed: it takes no --loss-scale-%s", text,
                       window ? "window" : "initial");
    *s = (LossScale){.scale = fixed, .least = fixed};
    return PP_OK;
}

void loss_scale_step(LossScale *s, int found_inf)
{
    if (!s->window)
        return;
    if (found_inf) {
        s->clean = 0;
        s->borne -= s->borne > 0;
        if (!s->borne)
            s->scale = s->scale / 2 > s->least ? s->scale / 2 : s->least;
        return;
    }
    if (++s->clean < s->window)
        return;
    s->clean = 0;
    s->borne = s->hysteresis;
    s->scale *= s->scale < most ? 2 : 1;
}

int loss_scale_may_fall(const LossScale *s) { return s->window && s->scale > s->least; }
