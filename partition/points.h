/* points.h - the points of a --split option, between points.c and split.c. */
#ifndef PPSPLIT_POINTS_H
#define PPSPLIT_POINTS_H

#include "partition.h"

typedef struct {
    const char *text;   /* one point, without lists and patterns */
    bool of_pattern;    /* a pattern gave it: it is left out where nothing would be computed before
                           or after it */
    bool named;         /* the text as a whole is the name of a node or a value */
} SplitPoint;
typedef VEC(SplitPoint) SplitPoints;

/* Appends the points in text; refuses an empty point and a pattern that matches nothing. */
void split_points(const Graph *g, Arena *a, const char *text, SplitPoints *out);

#endif
