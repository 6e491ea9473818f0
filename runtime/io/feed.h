/*
 * feed.h - the rows of a rank's step on the host: chunks of its model inputs, the epoch's order,
 * the loss scale.
 */
#ifndef PP_FEED_H
#define PP_FEED_H

#include "io/data.h"
#include "io/totals.h"
#include "plan/plan.h"

typedef struct {
    const Data *data;
    const Plan *plan;
    /* Per model input: first microbatch's place, strides as in the plan; on the CPU the plan's own
     * places */
    char **host;
    char *scale;            /* loss_scale, PP_ALIGN bytes a microbatch */
    int64_t *order;         /* rows of the epoch; NULL: those of the files */
    PpLength *length;       /* of each microbatch of the pass, where lengths vary */
    int64_t epoch, targets; /* targets of the step that count */
    int filled, pass;
    Totals totals;
    double loss_scale;   /* the loss is multiplied by, beside the mean; 1 at first */
    double laid_scale;   /* what the numbers at `scale` were made with; 0: nothing yet */
    PpStatus status;     /* of the rows that were laid last: a file may have been cut short */
    unsigned char *seen; /* per file of an input, while they are looked at */
} Feed;

PpStatus feed_open(Feed *f, Pool *pool, const Data *d, const Plan *p);
void feed_fill(Feed *f, int64_t step, int pass); /* both from 0 */
void feed_scale(Feed *f, int64_t step);          /* of rows that are there, anew where it changed */
int feed_stays(const Feed *f, int64_t step);     /* the step sees the rows that are there */

#endif
