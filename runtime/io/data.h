/*
 * data.h - the files of --data, and how their rows are cut into steps and microbatches: one per
 * process, the same on every rank.
 */
#ifndef PP_DATA_H
#define PP_DATA_H

#include "base/file/npy.h"
#include "options/options.h"

typedef struct {
    const PpPlan *model;
    const Options *opt;
    NpyFile *file;    /* per model input; dtype 0: not given */
    int64_t rows;     /* samples in the files */
    int microbatches; /* of a pass of the schedule, in each replica */
    int passes;       /* of a step: --accumulate */
    int replica;
    int64_t batch, steps, steps_per_pass;
    /* [passes * microbatches + 1]: first row of each microbatch in the minibatch; of the first
     * replica, and the others' behind it: where one ends the next one begins */
    int64_t *row0;
    /* Eval, infer: of the last step of a pass when the rows do not divide, or NULL */
    int64_t *row0_rest;
    /* where the run begins: steps done and rows seen by those before it, and the epoch's next row */
    struct {
        int64_t step, rows, epoch, row;
    } start;
} Data;

/* data.c */
PpStatus data_open(Data *d, const PpPlan *model, const Options *o);
void data_close(Data *d);

/* cut.c */
PpStatus data_cut(Data *d);
Data data_of(const Data *d, int replica); /* its microbatches; d keeps the memory */
const int64_t *data_rows(const Data *d, int64_t step); /* row0 of that step */
int data_chunks(const Data *d);                        /* microbatches of a step, in a replica */
int64_t data_step_rows(const Data *d, int64_t step);   /* of all replicas */
int64_t data_rows_before(const Data *d, int64_t step); /* rows of all steps before it, in a pass */
/* The epoch of a step and its first row there */
void data_position(const Data *d, int64_t step, int64_t *epoch, int64_t *row);
int64_t data_rows_seen(const Data *d, int64_t step); /* by all steps before it, of all runs */
int64_t data_tokens(const Data *d);                    /* tokens of a step */

#endif
