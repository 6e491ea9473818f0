/*
 * text.h - text of generated programs, and the C names of element types.
 */
#ifndef PPSPLIT_TEXT_H
#define PPSPLIT_TEXT_H

#include "ir/ir.h"

/* ---- emit.c: text ---------------------------------------------------------------------------- */

/* A Text (base.h) of lines: indented, with a newline */
void text_line(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* a line that begins a block, whose lines are indented; its "}" */
void text_open(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_close(Text *t);
/* In a text before a name that is to be replaced, once all is printed (print/argument.c): a line
   that has one is cut by text_lines(), which adds lines that were indented before. */
enum { TEXT_LATER = '\1' };
void text_lines(Text *t, const char *lines);
bool text_has(const char *code, const char *name); /* the word, but for comments and members */
/* one more of a list: ", x" behind others */
void text_item(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
const char *text_numbers(Arena *a, const int64_t *x, int n);            /* "2, 3, 4" */
/* what two names have in common but for numbers, "/h.#/attn"; x itself: they differ in more */
const char *text_pattern(Arena *a, const char *x, const char *y);
/* code, and from the column on a comment: where it is too long for 120 columns its first word and
   the end of the rest, where names differ; behind code that leaves no room it stands before it */
void text_noted(Text *t, int column, const char *code, const char *note);
/* a model's string inside a comment: printable, no end of comment */
const char *cg_comment(Arena *a, const char *s);
const char *cg_string(Arena *a, const char *s);         /* a C string literal, quotes included */
const char *cg_node_text(const Graph *g,
                         NodeId n); /* "Softmax /h.0/attn/Softmax" for comments, escaped */

/* ---- type.c: element types in generated code; a type that is not computed with is an internal
 * error ------------ */

const char *cg_ctype(Dtype t); /* of elements: "float", "uint8_t" for bool */
const char *type_local(Dtype t);                        /* of variables: a bool is an int */
const char *type_narrowing(Dtype t); /* the cast with which a variable is stored; "" */
const char *type_suffix(Dtype t);                       /* of pp_math.h's functions */
const char *type_lowest(Dtype t);
const char *type_highest(Dtype t);
/* the C type in which elements are added up */
const char *type_sum(Dtype t);
const char *type_library(Dtype t);                      /* "s", "d": BLAS's letter; NULL: none */
const char *type_runtime(Dtype t);                      /* "PP_F32" */
/* of a half, which is a float while it is computed with: pp_from_bf16(x), what an element holds;
   pp_round_bf16(x), what a value of the type is; pp_to_bf16(x), what is stored; rounded: x is one
   already, pp_pack_bf16(x).  x itself for other types.  nearest: of bf16 alone, pp_half.h */
const char *type_read(Arena *a, Dtype t, const char *x);
const char *type_rounded(Arena *a, Dtype t, const char *x);
const char *type_nearest(Arena *a, Dtype t, const char *x);
const char *type_written(Arena *a, Dtype t, const char *x, bool rounded);
/* a literal that reads back to the same value in any locale; stored: as an element in memory */
const char *cg_number(Arena *a, Dtype t, double f, int64_t i);
const char *cg_stored_number(Arena *a, Dtype t, double f, int64_t i);

#endif
