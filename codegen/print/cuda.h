/*
 * cuda.h - what the files of the CUDA printer share.  cuda_element.c: elements one or four at a
 * time; cuda_row.c: rows, cuda_segments.c: few long ones; cuda_column.c: columns, and sums in two
 * steps; cuda_tile.c: copies between different orders of dimensions; cuda.c chooses among them.
 */
#ifndef PPSPLIT_PRINT_CUDA_H
#define PPSPLIT_PRINT_CUDA_H

#include "print.h"
#include "runtime/api/pp_order.h"

typedef struct {
    Print p;
    Nest *own;                                          /* p.n, with row buffers of our choice */
    /* rows of a full microbatch: decisions depend on them, never on the rows at hand */
    int64_t full;
    const char *index; /* "int", or "int64_t" from 2^31 elements on */
    /* elements that a thread takes at once: 4 or 1 */
    int vec;
    /* vec is 1, and four where this is true: a condition of lengths; NULL: none */
    const char *ask;
    int along;                                          /* the dimension in which they lie */
    bool tail;                                          /* whose last ones are fewer than four */
    bool *vector;                                       /* loads and stores of four at once */
    bool *still;                                        /* does not vary along that dimension */
    /* loads that go through a tile of shared memory */
    bool *tiled;
    /* how often a thread comes by in a row, when it keeps something; 0: any number */
    int chunks;
    const char *chunk;                                  /* the loop's variable */
    /* arguments whose memory another argument writes, or they another's */
    const bool *alias;
    const char *when;                                   /* of the kernels that come: CudaKernel */
    CudaNest *out;
} Cuda;

/* cuda_element.c */
const char *cuda_name(Print *p, uint32_t i);            /* of a statement */
/* Of full rows: a number, in the program of many lengths an expression of them; with the greatest.
 */
const char *cuda_number(const Cuda *c, Lin x);
int64_t cuda_most(const Cuda *c, Lin x);
bool cuda_varies(const Cuda *c, Lin x);                 /* lengths decide it */
/* How many a thread takes at once, for the order that a launch asks pp_order.h for: "4". */
const char *cuda_vec(const Cuda *c);
const char *cuda_sum(Cuda *c, const char *index, const char *more);             /* "j + k" */
void cuda_choose_vector(Cuda *c, int along);
void cuda_choose_one(Cuda *c);
Lin cuda_extent(const Cuda *c, int d);                  /* of all that threads take: whole fours */
/* What dimensions are called: the last one, NULL: as the others, which are base0, base1, .. or,
   where there is one, base. */
typedef struct { const char *base, *last; } CudaNames;
/* Prints const int i0 = e / 16; .. for the dimensions that loads, or stores, depend on. */
void cuda_decode(Cuda *c, const char *linear, int from, int to, CudaNames names, bool loads,
                 bool stores);
/* what is computed from here on at each element */
void cuda_enter_pass(Cuda *c, int pass);
/* what a pass does at `index` of the dimension `along` */
void cuda_element(Cuda *c, const char *index);
const char *cuda_grid(Cuda *c, const char *function, Lin n,
                      int64_t per); /* "pp_blocks(rows * 64, 256)" */
/* what is printed now is the next kernel of the nest */
void cuda_kernel(Cuda *c, int threads, const char *grid, const char *block);
/* Scratch memory for partial results of a reduction, which this kernel writes, and what it is
 * called; a later kernel of the nest reads them. */
const char *cuda_part(Cuda *c, uint32_t stmt, int64_t bytes);
const char *cuda_part_read(Cuda *c, uint32_t stmt);
const char *cuda_wide(const Cuda *c);                   /* "_wide" where indices have 64 bits */

/* cuda_tile.c, cuda_segments.c, cuda_column.c */
/* the dimension along which operands lie, other than the innermost; -1: none */
int cuda_tile_along(Cuda *c);
void cuda_tile(Cuda *c, int along);
void cuda_row(Cuda *c);
void cuda_column(Cuda *c);

#endif
