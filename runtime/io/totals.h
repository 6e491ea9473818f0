/*
 * totals.h - what the data of a step alone decide (PpPlan.totals): made on the host of all of its
 * rows, before its first action.
 */
#ifndef PP_TOTALS_H
#define PP_TOTALS_H

#include "io/data.h"
#include "plan/plan.h"

typedef struct {
    const Data *data;
    void **in, **out; /* of the stage; NULL: the rank reads no total */
    char *work;
    char **value;     /* per total, as the model reads it */
    char **sum;       /* and so far: int64_t or double */
} Totals;

PpStatus totals_open(Totals *t, Pool *pool, const Data *d, const Plan *p);
/* Of rows first to first + rows of the data, in this order (NULL: theirs). */
void totals_make(Totals *t, const int64_t *order, int64_t first, int64_t rows);
/* input's value to dst, if it is a total */
void totals_put(const Totals *t, int input, char *dst);

#endif
