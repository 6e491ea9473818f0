/*
 * init.h - numbers that parameters begin with: --init.
 */
#ifndef PP_INIT_H
#define PP_INIT_H

#include "io/files.h"

typedef struct {
    int given; /* an --init matches; else the rest says nothing */
    int normal, uniform;
    double spread, value; /* deviation, bound; of all elements where it is neither */
    uint64_t seed, name;
} Init;

/* Of a parameter of the plan: what the last --init says that matches its name */
PpStatus init_of(const Options *o, const PpPlan *plan, const PpParam *p, const char *name,
                 Init *to);
/* All of --init: what is wrong with one, and that each matches a name */
PpStatus init_check(const Options *o, const PpPlan *plan);
/* The part of a parameter's elements, of PP_F32 or PP_F64 */
void init_fill(const Init *x, int dtype, const Box *part, char *to);

#endif
