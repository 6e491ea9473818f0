/*
 * optimizers.h - the optimizers: one row each.  A new one is a row here and a header with its rule,
 * which is compiled for every device and for every element type of parameters (per_type.h).
 * Without a guard: each inclusion expands the rows to what OPTIMIZER is.
 *
 *     OPTIMIZER(id, rule, states, name of state 1, of state 2, PyTorch's class,
 *               lr, momentum, beta1, beta2, eps, weight_decay, nesterov)
 *
 * id       what --optimizer says; id_numbers(), beside the rule, computes its numbers of a step
 * states   tensors per parameter, zeros at first; names are PyTorch's, and those in checkpoints
 * lr ...   default of each option that it takes (OPTIM_REALS and OPTIM_FLAGS of optim.h); NO: none
 */
#ifdef OPTIM_RULES
#include "optim/sgd.h"
#include "optim/adam.h"
#endif

// clang-format off
/*        id        rule     states                           class    lr     mom  b1   b2     eps   decay nest */
OPTIMIZER(sgd,      sgd,      0, NULL, NULL,              "SGD",   0.01,  0,   NO,  NO,    NO,   0,    0)
OPTIMIZER(momentum, momentum, 1, "momentum_buffer", NULL, "SGD",   0.01,  0.9, NO,  NO,    NO,   0,    0)
OPTIMIZER(adam,     adam,     2, "exp_avg", "exp_avg_sq", "Adam",  0.001, NO,  0.9, 0.999, 1e-8, 0,    NO)
OPTIMIZER(adamw,    adam,     2, "exp_avg", "exp_avg_sq", "AdamW", 0.001, NO,  0.9, 0.999, 1e-8, 0.01, NO)
// clang-format on
#undef OPTIMIZER
