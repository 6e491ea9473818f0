/*
 * model.h - what model.c, seconds.c and stash.c share.  Private to them.
 */
#ifndef PPSPLIT_AUTO_MODEL_H
#define PPSPLIT_AUTO_MODEL_H

#include "auto.h"

/* Of a node of the differentiated model: its seconds; bytes of parameters, their gradients and
   results, which are slower where no cache has them. */
typedef enum { PART_F, PART_I, PART_W, PARTS } Part;
typedef struct {
    Part part;
    double seconds, far;
} NodeCost;

/* seconds.c: by node of the Pipe's graph */
NodeCost *joint_seconds(const Pipe *joint, const Rates *r, Arena *a);

/* stash.c: what backward reads of what forward keeps, as values that cost no message. */
void add_stash(AutoModel *m, const Pipe *joint, Arena *a);

#endif
