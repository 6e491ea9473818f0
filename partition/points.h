/* points.h - the points of a --split option, between points.c and split.c. */
#ifndef PPSPLIT_POINTS_H
#define PPSPLIT_POINTS_H

#include "partition.h"

typedef struct {
    const char *text;   /* one point, without lists and patterns */
    bool of_pattern;    /* one of several: left out where nothing is computed before, or after it */
    bool named;         /* as it stands, the name of a node or a value */
} SplitPoint;
typedef VEC(SplitPoint) SplitPoints;

/* Appends those that text says; refuses an empty one and a pattern that matches nothing. */
void split_points(const Graph *g, Arena *a, const char *text, SplitPoints *out);

#endif
