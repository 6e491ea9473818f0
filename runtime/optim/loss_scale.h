/*
 * loss_scale.h - what the loss is multiplied by before backward, so that gradients of f16 do not
 * vanish, and how that number follows from the steps so far.  A value of the run, the same on all
 * ranks; nothing here knows a rank.
 *
 * The rules are torch.amp.GradScaler's and Megatron's DynamicGradScaler, one function with other
 * numbers: after `window` clean steps in a row the scale grows by 2; a step with gradients that are
 * not finite uses up one of `hysteresis`, and once there are none left every such step halves the
 * scale. They come back when the scale grows.  Scales are powers of two, so dividing by them
 * changes no bit of a gradient that is not near float32's end.
 */
#ifndef PP_LOSS_SCALE_H
#define PP_LOSS_SCALE_H

#include "core/status.h"

typedef struct {
    double scale;
    /* clean steps in a row; steps that are not which it still bears */
    int clean, borne;
    /* The rule. window 0: the scale is fixed.  Below `least` it does not go. */
    int window, hysteresis;
    double least;
} LossScale;

/* --loss-scale TEXT: a rule's name, "dynamic" (PyTorch's) or "megatron", or a power of two, which
   is fixed; window, initial: 0 where not given.  PP_ERR_USAGE after a message. */
PpStatus loss_scale_of(LossScale *s, const char *text, int window, double initial);

/* A step is over: were there gradients that are not finite?  (Such a step changes no parameter.) */
void loss_scale_step(LossScale *s, int found_inf);

/* May the next step's gradients be finite although this one's were not? */
int loss_scale_may_fall(const LossScale *s);

#endif
