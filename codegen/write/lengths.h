/*
 * lengths.h - one program of those that the model has with several lengths: lengths.c, checks.c,
 * constants.c, others.c.
 */
#ifndef PPSPLIT_LENGTHS_H
#define PPSPLIT_LENGTHS_H

#include "write.h"

/* checks.c */
/* "--bind seq=1..2048 --bind width=1..64" */
const char *lengths_option(Arena *a, const Lengths *l);
/* Leaves: not with these options; what to do instead is the hint. */
NORETURN void lengths_refuse(const Lengths *l, Where where, const char *what);
NORETURN void lengths_differ(const Lengths *l, const char *what);
/* "12 with seq of 43, 11 with seq of 41": a sample that differs from the first one */
const char *lengths_two(const Lengths *l, const int64_t *v);
/* What of the model may not vary, or not so, is fatal. */
void lengths_check(const Lengths *l);
/* Is it another model with other lengths?  Then it has other values, from one on that is named;
   end: so many are compared. */
void lengths_values(const Lengths *l, const Pipe *with, const int64_t *length, ValueId end);

/* lengths.c */
/* Prints with the lengths of sample k. */
typedef void LengthsPrint(void *of, int k, SizesMet *sizes, Text *t);
/* Adds the text that is printed with any lengths.  A function reads them from its PpCtx, or takes
   them; outside functions is what is so with the greatest ones.  file: its name; wide: kernels have
   lengths of 32 bits, products of them may be wider. */
void lengths_print(Arena *a, const Lengths *l, const char *file, bool wide, LengthsPrint *print,
                   void *of, Text *to);
/* A stage of any lengths, as it is with those of the first sample. */
StageGen *lengths_stage(Arena *a, const CodegenOptions *opt, uint32_t index, Target target,
                        OutsideFile *outside, Text *file, Text *tables);

/* constants.c */
/* Finds what a stage's constants are in the program of any lengths (StageConst.most); most: the
   stage with the greatest ones, sg: with those of each sample. */
void lengths_constants(Arena *a, const Lengths *l, const StageGen *most, StageGen **sg);
/* Is the constant `own`, with these lengths, what the program has for those of the samples? */
bool lengths_constant(const Lengths *l, ValueId id, const int64_t *length, const Value *own);

/* others.c: what is another model with lengths that are no samples is fatal. */
void lengths_others(const Lengths *l);

#endif
