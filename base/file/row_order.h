/*
 * row_order.h - rows of different lengths: the file that says them, the order in which an epoch
 * takes rows, and how long microbatches are.
 */
#ifndef PP_ROW_ORDER_H
#define PP_ROW_ORDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ROW_LENGTHS = 3 }; /* dimensions of a model that vary, at the most */

typedef struct {
    int64_t rows, batch; /* of the data; of a step */
    int64_t n;           /* microbatches of a step, of all groups */
    const int64_t *row0; /* [n + 1]: first row of each in the step */
    /* of each row, along each dimension; NULL: all alike */
    const int64_t *length[ROW_LENGTHS];
    int64_t by_length; /* --by-length: steps; 0: no */
    int shuffle;
    uint64_t seed;
} RowOrder;

/* Which row is the i-th of an epoch: order[rows] is put in its order, from that of the files or of
 * --mix.  0: no memory. */
int row_order(const RowOrder *o, int64_t epoch, int64_t *order);

/* First row of each microbatch of a step, n of them in each of so many groups, and where the last
 * one ends. */
void row_cut(int64_t batch, int64_t groups, int64_t n, int64_t *row0);

/* Of rows first to end; order: which row stands for each, NULL: itself */
int64_t row_longest(const int64_t *length, const int64_t *order, int64_t first, int64_t end);

/* How long rows are, from least to most, of a file that says it: a whole number for each; or one
 * more, the first of them 0: where each row begins and where the last one ends; or Megatron's
 * index.  *rows: how many there are, -1: there is no such file; *documents: it is of the last two
 * kinds.  NULL: err says what is wrong; else free() it. */
int64_t *row_lengths(const char *path, int64_t *rows, int *documents, int64_t least, int64_t most,
                     char *err, size_t nerr);

#ifdef __cplusplus
}
#endif
#endif
