/*
 * results.h - what steps yield on the host: losses, sums of squares of gradients, rows of the
 * model's outputs.
 */
#ifndef PP_RESULTS_H
#define PP_RESULTS_H

#include "io/data.h"
#include "plan/plan.h"

/* What ranks tell each other at the end of a step, added over all of them. */
typedef enum {
    WORD_WRITTEN,
    WORD_SAVE,
    WORD_END,
    WORD_BUSY, /* seconds of the passes, and those of them that were computations */
    WORD_PASSES,
    WORDS
} Word;

typedef struct {
    const Data *data;
    const Plan *plan;
    char **output; /* per model output: room for all rows, or NULL */
    float **sum;   /* of an output of a half type without rows, before it is rounded; or NULL */
    double *loss;  /* per microbatch of a step, of all its passes */
    double *share; /* [(replicas + 1) * rounds]: losses of groups, all replicas' and the own ones */
    double *norm;  /* [1 + Plan.n_norm]: loss, then sums of squares of gradients in their order */
    double *word;  /* [WORDS], behind them */
    double *square; /* --zero: [blocks] sums of squares of the rank's gradients */
} Results;

PpStatus results_open(Results *r, Pool *pool, const Data *d, const Plan *p);
/* Rows to their place; m: of the step's microbatches */
void results_take(Results *r, const PpOutput *o, const char *src, int m, PpLength length,
                  int64_t step);
void results_loss(Results *r, const void *loss, int m);
/* --output: per model output its number there */
PpStatus results_write(Results *r, const int *wanted);

#endif
