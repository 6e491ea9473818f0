/*
 * rates.h - what a rank does in a second: the table of built-in rates.
 *
 * The built-in ones are what `pipeline measure --ranks 2 --threads 1` finds on two cores of a
 * Xeon server (2 MB of cache a core, AVX-512 and AMX, oneDNN 2.6, gcc 12), both at work; link is
 * what one of them copies to the other, products16 bfloat16's, by AMX; those of loops have their
 * beginnings in them still; left is its moves.  Steps, and the ratio of exponentials to functions,
 * are those of an EPYC.  The times that an action and a message take to begin are estimates, the
 * latter for processes (threads take a microsecond).  For a cut, or for how values are divided,
 * only their ratios matter; --rates and --costs replace them.
 */
#ifndef PPSPLIT_RATES_H
#define PPSPLIT_RATES_H

#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name, builtin, what */
#define RATES(X)                                                                                   \
    X(products, 180e9, "FLOP/s of matrix products in float32")                                     \
    X(products64, 67e9, "of those in float64")                                                     \
    X(products16, 930e9, "of those in 16 bits")                                                    \
    X(operands, 110e9, "bytes/s of products' operands and results, beside their FLOP/s")           \
    X(transposed, 110e9, "bytes/s of parameters and their gradients there, backward")              \
    X(parameters, 40e9, "bytes/s of parameters and results there where no cache has them")         \
    X(gradients, 13e9, "bytes/s of parameters and their gradients there, backward")                \
    X(convolutions, 180e9, "FLOP/s of convolutions")                                               \
    X(batched, 100e9, "of many small ones of activations in float32")                              \
    X(quick, 30e9, "elements/s of additions, comparisons and the like, without memory")            \
    X(slow, 4.9e9, "of divisions and roots")                                                       \
    X(functions, 1.7e9, "of hyperbolic tangents, logarithms, random numbers")                      \
    X(exponentials, 2.9e9, "of exponentials")                                                      \
    X(softmax, 1.45e9, "of softmax")                                                               \
    X(rows, 19e6, "rows of softmax begun in a second")                                             \
    X(cached, 70e9, "bytes/s that loops read and write in a cache")                                \
    X(traffic, 57e9, "bytes/s that they read and write beyond it")                                 \
    X(left, 12e9, "bytes/s that are left for later and found where no cache has them")             \
    X(moves, 12e9, "bytes/s that are gathered, padded, joined")                                    \
    X(updates, 26e9, "bytes/s that the optimizer reads and writes")                                \
    X(actions, 100e3, "actions of a schedule begun in a second")                                   \
    X(steps, 2e6, "loops and products begun in a second")                                          \
    X(messages, 50e3, "messages begun in a second")                                                \
    X(link, 12e9, "bytes/s of a message")                                                          \
    X(offload, 0, "bytes/s of a stash on its way to --offload-dir or back; 0: not known")

typedef struct {
#define RATE(name, builtin, what) double name;
    RATES(RATE)
#undef RATE
} Rates;

static inline Rates rates_builtin(void)
{
    const Rates r = {
#define RATE(name, builtin, what) builtin,
        RATES(RATE)
#undef RATE
    };
    return r;
}

#ifdef __cplusplus
}
#endif

#endif
