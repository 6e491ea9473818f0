/*
 * ragged.h - values whose size depends on the data.  Such a value has its largest possible size and
 * a mask of the elements that exist.  ragged.c decides what each operation makes of them.
 */
#ifndef PPSPLIT_IMPORT_RAGGED_H
#define PPSPLIT_IMPORT_RAGGED_H

#include "frontend/low/low.h"
#include "frontend/low/state.h"

typedef void Importer(Import *im);

/* A number computed from sizes: known + times[0] * (number of true elements of mask[0]) + ... */
typedef struct {
    int64_t known;
    uint32_t n;
    ValueId *mask;  /* ascending */
    int64_t *times; /* none is 0 */
} Extent;

/* dim: the dimension of the value, or COUNT: the value holds numbers computed from such sizes, and
 * is a constant with their largest possible values. */
enum { COUNT = -1 };
typedef struct {
    ValueId mask; /* which elements along dim exist; COUNT: NONE */
    int dim;
    int also;     /* 1 + another dim of the same places, in products of each with each; or 0 */
    bool packed;           /* existing elements come first, followed by zeros, */
    bool dirty;            /* or by whatever an importer's nodes make of these */
    bool grows;            /* COUNT: no number can be larger than the constant's */
    const Extent **number; /* COUNT: by element, the extent that it is; NULL: something else */
    struct Counted *made;  /* COUNT: how it was computed */
} Ragged;

/* Imports a node of the file by fn where it reads or makes sizes, or is a source of them; false:
 * not here, it is as any other. */
typedef bool Rule(ImportState *s, Import *im, Importer *fn);

/* A core node as an importer made it. */
typedef struct {
    ImportState *s;
    Import *im;
    NodeId id;
    Node n;
    ValueId *in;  /* what stands now for its operands */
    ValueId *out; /* and for its results; NONE: what the rule returns, and behind it */
    bool *ended;  /* to set where a result may be of known size */
} Core;
/* Its first result, marked, if it does not compute each place by itself; NONE: it does.  was: the
 * first operand whose size depends on the data. */
typedef ValueId CoreRule(Core *c, Ragged was);

/* ragged.c: calls fn(im), for operands whose sizes may depend on the data */
void ragged_import(ImportState *s, Import *im, Importer *fn);
/* Returns y, which was made from v by a node added to an operand or result, marked with v's size.
 * kept: zeros stay zeros */
ValueId ragged_passed(ImportState *s, ValueId v, ValueId y, bool kept);
/* v without gradient, with its size; v itself if it has none anyway */
ValueId import_stopped(ImportState *s, ValueId v);
/* For an output: packs *v and returns how many of its elements exist; NONE: its size is known */
ValueId ragged_output(ImportState *s, ValueId *v, Where w);
/* The actual value, in a run, of a number computed from such a size; v itself if it is not one */
ValueId ragged_actual(ImportState *s, ValueId v);
/* condition ? x : y, if at least one has such a size; false: neither has, or the sizes differ */
bool ragged_choose(ImportState *s, ValueId condition, ValueId x, ValueId y, ValueId *out);

/* marks.c */
const Ragged *ragged_find(const ImportState *s, ValueId v); /* NULL: its size is known */
void ragged_mark(ImportState *s, ValueId v, Ragged r);      /* nothing where v is NONE */
/* Where the value made under this name is kept, so that it is made once. */
uint32_t *ragged_made(ImportState *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The first value asked for that is computed as v is, to use in its place; v itself if there is
   none. */
ValueId ragged_first_alike(ImportState *s, ValueId v);
/* What is known of a mask, each of which has one. */
typedef struct {
    ValueId mask;
    ValueId packed;       /* the mask of what is packed by it; NONE: not made yet */
    ValueId count;        /* i64[1], how many elements are true; NONE: not made yet */
    const Extent *extent; /* the same as a sum; NULL: not asked for yet */
    bool shuffled;        /* its elements are in another order than the specification's */
} RaggedMask;
RaggedMask *ragged_mask(ImportState *s, ValueId mask);
bool ragged_same_extent(const Extent *a, const Extent *b); /* false where one is NULL */
/* The first mask that has it; NONE: none */
ValueId ragged_with_extent(ImportState *s, const Extent *e);

/* values.c */
/* the node, of its operands as they are now */
ValueId ragged_node(const Core *c);
ValueId ragged_pack(ImportState *s, Op op, ValueId x, ValueId mask, int dim);
ValueId ragged_packed(ImportState *s, ValueId mask); /* the mask of what is packed by it */
/* Notes of a new mask that its true elements come first, how many they are (NULL: nothing is
 * known), and that they are of places in another order. */
void ragged_comes_first(ImportState *s, ValueId mask, const Extent *e, bool shuffled);
/* v, packed where it is of such a size; what stands behind may be dirty */
ValueId ragged_in_order(ImportState *s, ValueId v);
/* x where its elements exist (it is packed), else a number. */
ValueId ragged_only_there(ImportState *s, const Ragged *r, ValueId x, double otherwise);
/* Operand `input` with as many elements along dim as the mask has, marked; runs in which the
 * numbers differ get NaN. */
ValueId ragged_fitted(ImportState *s, const Import *im, int input, int dim, ValueId mask);
/* i64[1]: number of true elements */
ValueId ragged_count(ImportState *s, ValueId mask);
ValueId ragged_first(ImportState *s, ValueId count, int64_t n); /* a mask: that many of n */
_Noreturn void ragged_refuse(const Import *im, int input, const char *why);
/* A result of the ONNX node as others read it: packed, but for a constant, and not dirty. */
ValueId ragged_settled(ImportState *s, ValueId v, Ragged r);
/* Marks v, a constant, as a COUNT of these numbers; c: it is result `out` of that, NULL: of Shape
   or Size. */
void ragged_mark_count(ImportState *s, ValueId v, const Core *c, uint32_t out,
                       const Extent **number, bool grows);

/* Element i of a COUNT as it is in this run, [1] */
ValueId ragged_actual_at(ImportState *s, ValueId v, int64_t i);
/* A COUNT of the shape of v, whose elements are these. */
ValueId ragged_computed(ImportState *s, ValueId v, const Extent **number, int n);

/* Result `out`: of x, which has its largest possible size, those along dim for which the line
   `there` is true, or (packed) as many first ones; the size may depend on the data. */
void ragged_set_picked(Import *im, uint32_t out, ValueId x, ValueId there, int dim, bool packed);
/* x packed, where each part along dim has a bool that says whether it exists (NONE: it does). */
ValueId ragged_of_trips(ImportState *s, ValueId x, const Ids *there, int dim);

/* true.c */
Rule ragged_non_zero;
/* notes that its result may be the sum of a mask */
void ragged_note_true(ImportState *s, const Import *im);
/* v as a COUNT, if it is computed from such sums, else NONE. */
ValueId ragged_size_of_true(ImportState *s, const Import *im, ValueId v);

/* extent.c: sizes as sums */
const Extent *ragged_extent(ImportState *s, ValueId mask); /* how many elements exist */
/* k a + l b, NULL: one is NULL, or it is too large */
const Extent *ragged_sum(ImportState *s, const Extent *a, int64_t k, const Extent *b, int64_t l);
const Extent *ragged_known(ImportState *s, int64_t known);
int64_t ragged_most(ImportState *s, const Extent *e); /* the largest value it can have */
bool ragged_is_known(const Extent *e);

/* numbers.c */
/* A mask of n elements with that extent (element `at` of the COUNT `sizes`): another value's, or
 * the first ones; NONE: not possible. */
ValueId ragged_of_extent(ImportState *s, const Extent *e, ValueId sizes, int64_t at, int64_t n);
/* The mask common to what is packed by either; NONE: they differ. */
ValueId ragged_common(ImportState *s, ValueId a, ValueId b);
/* The extent of element i; NULL if it is not known. */
const Extent *ragged_element(ImportState *s, ValueId v, int64_t i);
/* The numbers of result `out`, the constant y, of a core node of such operands. */
const Extent **ragged_numbers(const Core *c, uint32_t out, ValueId y);

/* counts.c: sizes as numbers, and values made with such a size */
Rule ragged_measure, ragged_fill;
/* of numbers that were computed from sizes, and known ones */
ValueId ragged_counted(Core *c);

/* scatter.c */
CoreRule ragged_scatter;

/* parts.c: splits a value of known size into parts whose sizes depend on the data */
bool ragged_is_split(const ImportState *s, const Import *im);
void ragged_split(ImportState *s, Import *im);
/* A Concat of the results of all parts, in order; NONE: it is something else. */
ValueId ragged_join(const Core *c, int axis);

/* sizes.c: operations that change such sizes, or remove them */
/* How many elements x has along these axes, as its type is; r: what is known of its size, or
 * NULL */
ValueId ragged_along(ImportState *s, ValueId x, int n, const int64_t *axes, const Ragged *r);
Rule ragged_slice, ragged_topk, ragged_suppress;
CoreRule ragged_reduce, ragged_softmax, ragged_concat, ragged_part, ragged_gather, ragged_matmul,
    ragged_reshape;

#endif
