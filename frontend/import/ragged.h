/*
 * ragged.h - what is known of values whose size depends on the data; shared by ragged.c, which says
 * what becomes of them, ragged_sizes.c and those who ask.
 */
#ifndef PPSPLIT_IMPORT_RAGGED_H
#define PPSPLIT_IMPORT_RAGGED_H

#include "state.h"

typedef void Importer(Import *im);

/* dim: of the value, or COUNT: numbers that were computed of its size, as a constant those of the
 * largest that it can have. */
enum { COUNT = -1, ANY = -1 };
typedef struct {
    ValueId mask; /* which of its places are there */
    int dim;
    bool packed;  /* those that are there come first, zeros behind */
    int size;     /* of a COUNT: which of the numbers is the size, the others not; ANY */
    bool exact;   /* of a COUNT: of its numbers each is the size, or known */
    struct Counted *made; /* of a COUNT: how */
} Ragged;

typedef void Rule(ImportState *s, Import *im, Importer *fn);

/* ragged_values.c */
const Ragged *ragged_find(const ImportState *s, ValueId v); /* NULL: it has a size of its own */
void ragged_mark(ImportState *s, ValueId v, Ragged r);      /* nothing where v is NONE */
/* Where a value made of others by such a name is kept: the same ones give the same. */
uint32_t *ragged_made(ImportState *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
ValueId ragged_pack(ImportState *s, Op op, ValueId x, ValueId mask, int dim);
ValueId ragged_packed(ImportState *s, ValueId mask); /* the mask of what is packed by it */
ValueId ragged_in_order(ImportState *s, ValueId v);  /* v, packed where it is of such a size */
/* x where its places are there (it is packed), else a number. */
ValueId ragged_only_there(ImportState *s, const Ragged *r, ValueId x, double otherwise);
ValueId ragged_count(ImportState *s, ValueId mask);              /* i64[1]: places that are there */
ValueId ragged_first(ImportState *s, ValueId count, int64_t n);  /* a mask: that many of n */
/* Masks whose places are in another order than the specification's. */
void ragged_shuffle(ImportState *s, ValueId mask);
bool ragged_shuffled(const ImportState *s, ValueId mask);
_Noreturn void ragged_refuse(const Import *im, int input, const char *why);
/* A result of such a size: known ones keep their places, others are packed from now on.  kept: its
 * places behind those that are there are zeros. */
void ragged_settle(ImportState *s, Import *im, uint32_t out, Ragged r, bool kept);
/* One that the importer made of such a size (Import.sized). */
void ragged_settle_sized(ImportState *s, Import *im, uint32_t out);
/* A COUNT: result `out` of fn(im), whose operands may be such; fn NULL: of Shape or Size. */
void ragged_mark_count(ImportState *s, const Import *im, Importer *fn, uint32_t out, Ragged r);

/* x, in whose dim each part has its bool that says if it is there, NONE: it is; packed. */
ValueId ragged_of_trips(ImportState *s, ValueId x, const Ids *there, int dim);

/* ragged_counts.c: sizes as numbers, what is made of such a size */
Rule ragged_measure, ragged_counted, ragged_fill;

/* ragged_scatter.c */
Rule ragged_scatter;

/* ragged_sizes.c: what makes other sizes of them, or none */
Rule ragged_concat, ragged_slice, ragged_topk, ragged_reduce, ragged_gather_nd, ragged_suppress,
    ragged_regions, ragged_expand;
/* Rows by places of the operand's own axis. */
void ragged_pick(ImportState *s, Import *im, Importer *fn, int axis);

#endif
