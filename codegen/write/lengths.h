/*
 * lengths.h - one program of those that the model has with several lengths; lengths.c, others.c and
 * alike.c.
 */
#ifndef PPSPLIT_LENGTHS_H
#define PPSPLIT_LENGTHS_H

#include "write.h"

/* lengths.c */
/* "--bind seq=1..2048 --bind width=1..64" */
const char *lengths_option(Arena *a, const Lengths *l);
/* Leaves: not with these options; what to do instead is the hint. */
NORETURN void lengths_refuse(const Lengths *l, Where where, const char *what);
/* A stage in the Pipe of each sample, planned for the greatest lengths, and its file. */
typedef struct {
    StageGen *sg[SAMPLES];
    Text text[SAMPLES];
} Samples;
void lengths_stage(Arena *a, const CodegenOptions *opt, uint32_t index, Target target, Samples *of);
/* What of the model may not vary, or not so, is fatal. */
void lengths_check(const Lengths *l);
/* Is the constant `own`, with these lengths, what the program has for those of the samples? */
bool lengths_constant(const Lengths *l, ValueId id, const int64_t *length, const Value *own);

/* others.c: what is another model with lengths that are no samples is fatal. */
void lengths_others(const Lengths *l);

/* alike.c: the text of which text[k] is that with lengths l->at[k].  file: its name.  A function
   reads the lengths from its PpCtx, or takes them; outside functions is what is so with the
   greatest ones: in pipeline.c, else nothing varies there. */
const char *lengths_text(Arena *a, const Lengths *l, const Text *text, const char *file);

#endif
