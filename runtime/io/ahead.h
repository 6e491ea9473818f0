/*
 * ahead.h - the rows of the next step are read by a thread while this one runs.
 */
#ifndef PP_AHEAD_H
#define PP_AHEAD_H

#include "io/data.h"

typedef struct Ahead Ahead;

/* has_input: per model input, is it read; rows: of a request, at most.  Both stay the caller's. */
PpStatus ahead_open(Ahead **a, const Data *d, const unsigned char *has_input, int64_t rows);
void ahead_close(Ahead *a); /* NULL: nothing */
/* Room for the numbers of n rows of the data, to be filled before ahead_start(), which has to
 * follow; NULL: nothing is read ahead */
int64_t *ahead_rows(Ahead *a, int64_t n);
void ahead_start(Ahead *a);

#endif
