/*
 * divided.h - what a backward in two parts takes longer than one in one.  For programs that choose
 * a schedule by their operations, and for `ppsplit plan`.
 */
#ifndef PP_PLAN_DIVIDED_H
#define PP_PLAN_DIVIDED_H

#include "api/pp.h"

/* In a second. */
typedef struct {
    double quick, functions; /* elements: of additions and the like, of exponentials and the like */
    double traffic;          /* bytes that such loops read */
    double left;             /* bytes that I leaves and W finds where no cache has them */
} DividedRates;

/* Seconds that I and W take longer than their parts of a B; none where I has nothing to do. */
typedef struct {
    double input, weight;
} Divided;
Divided plan_divided(const PpStage *st, const DividedRates *r);

#endif
