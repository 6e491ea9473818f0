/*
 * choose.h - one choice for each of several items: enough bytes freed, at the least cost.
 */
#ifndef PP_CHOOSE_H
#define PP_CHOOSE_H

#include "core/core.h"

typedef struct {
    int64_t freed; /* bytes, >= 0 */
    double cost;
} Choice;

/* choice[0] frees nothing and costs nothing */
typedef struct {
    int n;
    const Choice *choice;
} ChoiceItem;

/* At least `need` bytes, rounded to one of CHOOSE_SLOTS of them: chosen[item], and what these cost;
 * HUGE_VAL: all items together do not free as much, and each has the choice that frees most. */
enum { CHOOSE_SLOTS = 4096 };
PpStatus choose_least(const ChoiceItem *item, int n, int64_t need, int *chosen, double *cost);

#endif
