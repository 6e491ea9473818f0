/*
 * optim.h - optimizers: the registry, and what devices are handed for the end of a step.
 */
#ifndef PP_OPTIM_H
#define PP_OPTIM_H

#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most states that a row of optimizers.h has, the most numbers that a rule has. */
enum { OPTIM_STATES = 2, OPTIM_NUMBERS = 8 };

/* The options of all optimizers.  Negative: not given (in Options), not taken (in a row). */
typedef struct {
    double lr, momentum;
    int nesterov;
    double beta1, beta2, eps, weight_decay;
} OptimOptions;

typedef enum {
#define OPTIMIZER(id, ...) OPTIM_##id,
#include "optim/optimizers.h"
    OPTIMIZERS
} OptimKind;

typedef struct {
    const char *name, *about;
    int states;
    const char *state[OPTIM_STATES]; /* names */
    OptimOptions defaults;
    void (*numbers)(const OptimOptions *o, int64_t step, double *number);
} Optimizer;

/* One parameter with its gradient and the optimizer's state of it. */
typedef struct {
    void *value, *grad, *state[OPTIM_STATES];
    int64_t n;
    int dtype;
    int norm;   /* where its sum of squares goes; -1: it does not count */
    int update; /* the optimizer changes it */
} DeviceParam;

/* What an update needs of its step. */
typedef struct {
    OptimKind optimizer;
    double scale;                 /* of gradients: clipping */
    double number[OPTIM_NUMBERS]; /* the rule's, as id_numbers() computes them */
} DeviceUpdate;

/* ---- registry.c ---- */
extern const Optimizer optimizers[OPTIMIZERS];
int optim_find(const char *name, OptimKind *kind); /* 0: none is called so */
void optim_help(FILE *f); /* a line each: its options with their defaults */

/* ---- optim_cpu.c; the order of additions of a norm is the same on all devices ---- */
void optim_cpu_add(void *to, const void *from, int64_t n, int dtype);
double optim_cpu_sum_squares(const void *p, int64_t n, int dtype);
void optim_cpu_update(const DeviceParam *list, int n, const DeviceUpdate *u);

#ifdef __cplusplus
}
#endif
#endif
