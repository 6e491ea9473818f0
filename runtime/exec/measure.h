/*
 * measure.h - what measure.c and measure_rates.c share.
 */
#ifndef PP_EXEC_MEASURE_H
#define PP_EXEC_MEASURE_H

#include "net/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *name, *what; /* as ppsplit calls it; in a line of the machine's file */
} MeasuredRate;
enum { MEASURED_RATES = 21 };
extern const MeasuredRate measured_rates[MEASURED_RATES];

/* rate[MEASURED_RATES] of this rank, while all ranks of g are at the same; threads: it has so many.
   PP_ERR_IO: memory. */
PpStatus measure_rates(Group *g, int threads, double *rate);

#ifdef __cplusplus
}
#endif
#endif
