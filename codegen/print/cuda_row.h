/*
 * cuda_row.h - what cuda_row.c and cuda_segments.c share: who takes a row, and the texts of a pass
 * over it.
 */
#ifndef PPSPLIT_PRINT_CUDA_ROW_H
#define PPSPLIT_PRINT_CUDA_ROW_H

#include "cuda.h"

typedef struct {
    Cuda *c;
    Lin rows, length;               /* rows of the nest; elements of one */
    int lanes;                      /* threads of a row: a part of a warp; 0: a block's */
    int threads;                    /* of a block */
    const char *lane;               /* of the thread in its row */
    bool segments;                  /* blocks share a row, each has a segment */
    int64_t sums;                   /* of all segments, of one reduction */
    bool counted;                   /* a block has as many threads as the launch says */
    PpRows of;                      /* at full rows */
} Row;

/* The row that this thread works on, and its place among the row's threads. */
void row_open(Row *r);
/* The row's elements of this thread, at `begin` steps of a whole row of threads: chunk c, or all of
 * a loop's. */
void row_elements(Row *r, const char *begin, const char *end);
void row_open_sums(Cuda *c);
/* part: of a segment of the row, not rounded yet. */
void row_close_sums(Row *r, bool part);
/* A scalar of the row, written once the passes before `pass` are done. */
bool row_is_stored(const Nest *n, uint32_t stmt, int pass);
/* They are written by the row's first thread; where one may stand in an operand's place, all have
 * read that before. */
void row_store_scalars(Row *r, int pass);

/* One kernel: a block, or a part of one, takes a row.  threads: of the order; 0: what it says when
   it is launched. */
void row_by_one(Row *r, int threads);
/* Registers that an element keeps. */
int row_words(const Nest *n);
void row_keep_nothing(Cuda *c);                         /* from pass to pass in registers */
/* Are neighbours in memory the same element of neighbouring rows? */
bool row_is_beside(const Nest *n);

#endif
