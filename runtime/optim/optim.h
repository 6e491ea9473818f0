/*
 * optim.h - the optimizer: how many tensors of state, which parameters, the numbers of a step.
 */
#ifndef PP_OPTIM_H
#define PP_OPTIM_H

#include "device/device.h"
#include "options/options.h"
#include "plan/plan.h"

/* optim.c */
int optim_states(const Options *o); /* state tensors per parameter */
int optim_count(const Plan *p);     /* parameters of the rank's stages */
void optim_list(const Plan *p, DeviceParam *list);
void optim_update(Device *d, const Options *o, int64_t step, double scale);

#endif
