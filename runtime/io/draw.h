/*
 * draw.h - a token from the numbers that a model gives for all of them.
 */
#ifndef PP_DRAW_H
#define PP_DRAW_H

#include <stdint.h>

typedef struct {
    double temperature; /* 0: the likeliest */
    int64_t top_k;      /* 0: all */
    uint64_t seed;
} Draw;

/* logit: n numbers; room: for as many.  A number of 0 to n - 1, which depends on these, the row and
 * the step alone; of equal ones the first is the likelier.  -1: they are not all below infinity, or
 * none is above minus infinity. */
int64_t draw_token(const Draw *d, const double *logit, double *room, int64_t n, uint64_t row,
                   uint64_t step);

#endif
