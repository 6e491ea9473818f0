/*
 * events.h - --tensorboard DIR: numbers of steps in a file that TensorBoard reads.
 */
#ifndef PP_EVENTS_H
#define PP_EVENTS_H

#include <stdint.h>

#include "core/status.h"

typedef struct Events Events;
typedef struct {
    const char *tag;
    double value; /* is rounded to float32, as the format has it */
} Scalar;

/* A file of its own in the folder, which is made where it is not there.  first: the step that the
 * run begins with; what files of runs before say of it and of later ones counts no more. */
PpStatus events_open(Events **e, const char *folder, int64_t first);
PpStatus events_write(Events *e, int64_t step, const Scalar *s,
                      int n);     /* on disk when it returns */
PpStatus events_close(Events *e); /* NULL: nothing */

#endif
