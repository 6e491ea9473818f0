/*
 * box.h - a part of a tensor: of every `period` bytes of it, in the order in which a file holds it,
 * the `size` from `from` on are a box of it, cut along one axis, or along each of several equal
 * runs of one; of the box's bytes, in their order, those from `first` on, `bytes` of them.  In
 * memory `gap` bytes that are none of the tensor's may stand behind each run.
 *
 * [3, 4] of float32, its columns 2 and 3: period 16, from 8, size 8; all of it: first 0, bytes 24.
 */
#ifndef PP_BOX_H
#define PP_BOX_H

#include <stdint.h>

typedef struct {
    int64_t period, from, size, gap, first, bytes;
} Box;

/* All of a tensor of so many bytes */
Box box_whole(int64_t bytes);
/* Of a tensor `dim`, whose axis is `groups` runs, the `n` from `at` on of each run; size: an
 * element's bytes */
Box box_along(int rank, const int64_t *dim, int axis, int64_t groups, int64_t at, int64_t n,
              int64_t size);
/* The same bytes of the tensor without the gaps */
Box box_dense(const Box *x);
/* Bytes of a part, from `i` on, that lie in the tensor one beside the other: how many, and where;
 * -1: they are a gap */
int64_t box_run(const Box *x, int64_t i, int64_t *at);
/* The next bytes that are in both parts, from byte *i of x and *j of y on, which become theirs: how
 * many; 0: there are no more */
int64_t box_common(const Box *x, int64_t *i, const Box *y, int64_t *j);
/* Copies what is in both, and says how many bytes; to and from hold the parts alone. */
int64_t box_copy(const Box *x, void *to, const Box *y, const void *from);

#endif
