/*
 * ragged.h - what is known of values whose size depends on the data; shared by ragged.c, which says
 * what becomes of them, and those who ask.
 */
#ifndef PPSPLIT_IMPORT_RAGGED_H
#define PPSPLIT_IMPORT_RAGGED_H

#include "state.h"

/* dim: of the value, or COUNT: numbers that were computed of its size. */
enum { COUNT = -1, ANY = -1 };
typedef struct {
    ValueId mask; /* which of its places are there */
    int dim;
    bool packed;  /* those that are there come first, zeros behind */
    int size;     /* of a COUNT: which of the numbers is the size, the others not; ANY */
} Ragged;

/* ragged_values.c */
const Ragged *ragged_find(const ImportState *s, ValueId v); /* NULL: it has a size of its own */
void ragged_mark(ImportState *s, ValueId v, Ragged r);      /* nothing where v is NONE */
/* The mask of such a value, itself packed: made once.  NONE: not yet. */
uint32_t *ragged_packed(ImportState *s, ValueId mask);
/* Masks whose places are in another order than the specification's. */
void ragged_shuffle(ImportState *s, ValueId mask);
bool ragged_shuffled(const ImportState *s, ValueId mask);

#endif
