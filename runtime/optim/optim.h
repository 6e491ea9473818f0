/*
 * optim.h - optimizers: the registry, and what devices are given for the end of a step.
 */
#ifndef PP_OPTIM_H
#define PP_OPTIM_H

#include "core/status.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most states that a row of optimizers.h has, the most numbers that a rule has; elements whose
 * squares are added by themselves before a norm adds these sums, one after the other. */
enum { OPTIM_STATES = 2, OPTIM_NUMBERS = 8, OPTIM_BLOCK = 4096 };

/* Groups of parameters with different numbers in their updates: all others, and those of
   --no-decay. */
enum { OPTIM_ALL, OPTIM_NO_DECAY, OPTIM_GROUPS };

/* The options of all optimizers: field, what the command line calls it, help. */
#define OPTIM_REALS(X)                                                                             \
    X(lr, "lr", "learning rate")                                                                   \
    X(momentum, "momentum", "part of the previous step that is added to the next")                 \
    X(beta1, "beta1", "decay of the running mean of gradients")                                    \
    X(beta2, "beta2", "decay of the running mean of their squares")                                \
    X(eps, "eps", "added to the square root of that mean")                                         \
    X(weight_decay, "weight-decay",                                                                \
      "add X times the parameter to its gradient; adamw: to its update")
#define OPTIM_FLAGS(X) X(nesterov, "nesterov", "Nesterov's momentum")

/* Negative: not given (in Options), not taken (in a row). */
typedef struct {
#define FIELD(field, name, help) double field;
    OPTIM_REALS(FIELD)
#undef FIELD
#define FIELD(field, name, help) int field;
    OPTIM_FLAGS(FIELD)
#undef FIELD
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

/* One parameter, or a piece of one that begins at a block, with its gradient and the optimizer's
 * state of it. */
typedef struct {
    void *value, *grad, *state[OPTIM_STATES];
    void *half; /* its copy of type half_type, PP_BF16 or PP_F16, made again after an update */
    int half_type;
    int64_t n;
    int dtype;
    int group;
    int64_t norm; /* where its sum of squares goes; -1: it does not count */
    int apart;    /* the sums of its blocks go there, one beside the other */
    int update; /* the optimizer changes it */
} DeviceParam;

/* What an update needs of its step. */
typedef struct {
    OptimKind optimizer;
    double scale;                 /* of gradients: clipping */
    double number[OPTIM_GROUPS][OPTIM_NUMBERS]; /* the rule's, as id_numbers() computes them */
} DeviceUpdate;

/* ---- optim.c ---- */
/* Defaults where none is given; PP_ERR_USAGE after a message. */
PpStatus optim_options(OptimKind *kind, OptimOptions *o);

/* ---- registry.c ---- */
extern const Optimizer optimizers[OPTIMIZERS];
int optim_find(const char *name, OptimKind *kind); /* 0: none is called so */
void optim_help(FILE *f); /* a line each: its options with their defaults */

/* ---- optim_cpu.c; the order of additions of a norm is the same on all devices ---- */
void optim_cpu_add(void *to, const void *from, int64_t n, int dtype);
double optim_cpu_sum_squares(const void *p, int64_t n, int dtype);
/* Of each block, the last one perhaps shorter */
void optim_cpu_block_squares(const void *p, int64_t n, int dtype, double *sum);
void optim_cpu_update(const DeviceParam *list, int n, const DeviceUpdate *u);
void optim_cpu_round(uint16_t *to, const float *from, int64_t n, int type); /* to a half type */

#ifdef __cplusplus
}
#endif
#endif
