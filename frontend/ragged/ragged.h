/*
 * ragged.h - what is known of values whose size depends on the data; shared by ragged.c, which says
 * what becomes of them, sizes.c and those who ask.
 */
#ifndef PPSPLIT_IMPORT_RAGGED_H
#define PPSPLIT_IMPORT_RAGGED_H

#include "frontend/low/low.h"
#include "frontend/low/state.h"

typedef void Importer(Import *im);

/* A number computed of sizes: known + times[0] x the places that mask[0] has + ... */
typedef struct {
    int64_t known;
    uint32_t n;
    ValueId *mask;  /* ascending */
    int64_t *times; /* none is 0 */
} Extent;

/* dim: of the value, or COUNT: numbers that were computed of such sizes, as a constant those of the
 * largest that they can have. */
enum { COUNT = -1 };
typedef struct {
    ValueId mask; /* which of its places are there; of a COUNT NONE */
    int dim;
    bool packed;           /* those that are there come first, zeros behind */
    bool grows;            /* of a COUNT: none of its numbers can be larger than the constant's */
    const Extent **number; /* of a COUNT: by element what it is; NULL: something else */
    struct Counted *made;  /* of a COUNT: how */
} Ragged;

typedef void Rule(ImportState *s, Import *im, Importer *fn);

/* ragged.c: fn(im), where sizes may depend on the data */
void ragged_import(ImportState *s, Import *im, void (*fn)(Import *));
/* y, made of v by what the graph adds to an operand or a result, is of v's size.  kept: zeros stay
 * zeros */
ValueId ragged_passed(ImportState *s, ValueId v, ValueId y, bool kept);
/* the same, no gradient passes; v itself where none would anyway */
ValueId import_stopped(ImportState *s, ValueId v);
/* An output: v packed, and how many of its places are there; NONE: its size is known */
ValueId ragged_output(ImportState *s, ValueId *v, Where w);
/* A number computed of such a size as it is in this run; v itself where it is none */
ValueId ragged_actual(ImportState *s, ValueId v);
/* condition ? x : y, of which at least one is of such a size; false: neither is, or they differ */
bool ragged_choose(ImportState *s, ValueId condition, ValueId x, ValueId y, ValueId *out);

/* marks.c */
const Ragged *ragged_find(const ImportState *s, ValueId v); /* NULL: it has a size of its own */
void ragged_mark(ImportState *s, ValueId v, Ragged r);      /* nothing where v is NONE */
/* Where a value made of others by such a name is kept: the same ones give the same. */
uint32_t *ragged_made(ImportState *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The first value that was asked for and is computed as v is, which then stands for it; v itself
 * where there is none. */
ValueId ragged_first_alike(ImportState *s, ValueId v);
/* Masks whose places are in another order than the specification's. */
void ragged_shuffle(ImportState *s, ValueId mask);
bool ragged_shuffled(const ImportState *s, ValueId mask);
/* What ragged_set_extent() said of a mask; NULL: nothing. */
const Extent *ragged_extent_noted(const ImportState *s, ValueId mask);
void ragged_note_extent(ImportState *s, ValueId mask, const Extent *e);

/* values.c */
ValueId ragged_pack(ImportState *s, Op op, ValueId x, ValueId mask, int dim);
ValueId ragged_packed(ImportState *s, ValueId mask); /* the mask of what is packed by it */
ValueId ragged_in_order(ImportState *s, ValueId v);  /* v, packed where it is of such a size */
/* x where its places are there (it is packed), else a number. */
ValueId ragged_only_there(ImportState *s, const Ragged *r, ValueId x, double otherwise);
/* Operand `input`, of as many places along dim as are there in every run that the model has: others
 * end with NaN. */
ValueId ragged_fitted(ImportState *s, const Import *im, int input, int dim, ValueId mask);
ValueId ragged_count(ImportState *s, ValueId mask);              /* i64[1]: places that are there */
ValueId ragged_first(ImportState *s, ValueId count, int64_t n);  /* a mask: that many of n */
_Noreturn void ragged_refuse(const Import *im, int input, const char *why);
/* A result of such a size: known ones keep their places, others are packed from now on.  kept: its
 * places behind those that are there are zeros. */
void ragged_settle(ImportState *s, Import *im, uint32_t out, Ragged r, bool kept);
/* One that the importer made of such a size (Import.sized). */
void ragged_settle_sized(ImportState *s, Import *im, uint32_t out);
/* A COUNT: result `out` of fn(im), whose operands may be such; fn NULL: of Shape or Size. */
void ragged_mark_count(ImportState *s, const Import *im, Importer *fn, uint32_t out, Ragged r);

/* Element i of a COUNT as it is in this run, [1] */
ValueId ragged_actual_at(ImportState *s, ValueId v, int64_t i);
/* A COUNT of the shape of v, whose elements are these. */
ValueId ragged_computed(ImportState *s, ValueId v, const Extent **number, int n);

/* x, in whose dim each part has its bool that says if it is there, NONE: it is; packed. */
ValueId ragged_of_trips(ImportState *s, ValueId x, const Ids *there, int dim);

/* true.c */
Rule ragged_non_zero;
void ragged_note_true(ImportState *s, const Import *im); /* its result may be the sum of a mask */
/* v, computed of such sums, as a COUNT; NONE: of something else. */
ValueId ragged_size_of_true(ImportState *s, const Import *im, ValueId v);

/* extent.c: sizes as sums */
const Extent *ragged_extent(ImportState *s, ValueId mask); /* how many places are there */
void ragged_set_extent(ImportState *s, ValueId mask, const Extent *e);
uint32_t *ragged_with_extent(ImportState *s, const Extent *e); /* the first mask that has it */
/* k a + l b, NULL: one is NULL, or it is too large */
const Extent *ragged_sum(ImportState *s, const Extent *a, int64_t k, const Extent *b, int64_t l);
const Extent *ragged_known(ImportState *s, int64_t known);
int64_t ragged_most(ImportState *s, const Extent *e); /* with all places that can be */
bool ragged_is_known(const Extent *e);
bool ragged_same_extent(const Extent *a, const Extent *b); /* false where one is NULL */

/* numbers.c */
/* A mask with that many places, element `at` of the COUNT sizes, of n: another value's, or the
 * first ones of n; NONE: not of n. */
ValueId ragged_of_extent(ImportState *s, const Extent *e, ValueId sizes, int64_t at, int64_t n);
/* Of what is packed by either; NONE: of two sizes. */
ValueId ragged_common(ImportState *s, ValueId a, ValueId b);
/* By element what a whole number is; NULL where that is not known. */
const Extent *ragged_element(ImportState *s, ValueId v, int64_t i);
/* The numbers of result `out`, a constant, of fn(im). */
const Extent **ragged_numbers(ImportState *s, const Import *im, Importer *fn, uint32_t out);

/* counts.c: sizes as numbers, what is made of such a size */
Rule ragged_measure, ragged_counted, ragged_fill;

/* scatter.c */
Rule ragged_scatter;

/* parts.c: a value of known size in parts of sizes that depend on the data */
bool ragged_is_split(const ImportState *s, const Import *im);
void ragged_split(ImportState *s, Import *im);
/* A Concat of all parts, in order, of what was made of them; false: it is something else. */
bool ragged_join(ImportState *s, Import *im, int axis);

/* sizes.c: what makes other sizes of them, or none */
Rule ragged_concat, ragged_slice, ragged_topk, ragged_reduce, ragged_gather_nd, ragged_suppress,
    ragged_regions, ragged_expand;
/* Rows by places of the operand's own axis. */
void ragged_pick(ImportState *s, Import *im, Importer *fn, int axis);

#endif
