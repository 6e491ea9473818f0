/*
 * lengths.h - one program of those that the model has with several lengths; lengths.c and alike.c.
 */
#ifndef PPSPLIT_LENGTHS_H
#define PPSPLIT_LENGTHS_H

#include "write.h"

/* c[0] + c[1] length + c[2] length^2 + ...; of degree 0 it is the same with each length */
enum { DEGREES = 4 };
typedef struct {
    int64_t c[DEGREES];
    int degree;
} Polynomial;

/* lengths.c */
/* The polynomial of whole coefficients that has v[k] with length l->at[k], each of them; false:
   there is none. */
bool lengths_fit(const Lengths *l, const int64_t *v, Polynomial *p);
int64_t lengths_value(const Polynomial *p, int64_t length);
/* The stage in the Pipes of[k], planned for the greatest length; most: the Pipe of that one. */
void lengths_stage(Arena *a, const Lengths *l, Pipe *const *of, Pipe *most, uint32_t index,
                   StageGen **sg);
/* What of the model may not vary, or not so, is fatal. */
void lengths_check(const Lengths *l);

/* alike.c: the text of which text[k] is that with length l->at[k].  file: its name.  A function
   reads the length from its PpCtx, or takes it; outside functions is what is so with the greatest
   one, where `tables`, else nothing varies. */
const char *lengths_text(Arena *a, const Lengths *l, const Text *text, const char *file,
                         bool tables);

#endif
