/*
 * divided.h - what a backward in two parts takes longer than one in one.  For programs that choose a
 * schedule by their operations, and for `ppsplit plan`.
 */
#ifndef PP_PLAN_DIVIDED_H
#define PP_PLAN_DIVIDED_H

#include "api/pp.h"

/* In a second. */
typedef struct {
    double quick, functions; /* elements: of additions and the like, of exponentials and the like */
    double moves;            /* bytes that W finds where I left them */
} DividedRates;

/* Seconds that W takes longer than its part of a B; none where I has nothing to do. */
double plan_divided(const PpStage *st, const DividedRates *r);

#endif
