/*
 * box.c - in: two parts of one tensor; out: the bytes that are in both.  A part is a row of runs in
 * the tensor's order; two rows are walked side by side, each leaping to where the other one is.
 */
#include "box.h"

#include <string.h>

Box box_whole(int64_t bytes) { return (Box){bytes, 0, bytes, 0, 0, bytes}; }

Box box_along(int rank, const int64_t *dim, int axis, int64_t groups, int64_t at, int64_t n,
              int64_t size)
{
    int64_t outer = groups;
    for (int i = 0; i < axis; i++)
        outer *= dim[i];
    for (int i = axis + 1; i < rank; i++)
        size *= dim[i];
    return (Box){dim[axis] / groups * size, at * size, n * size, 0, 0, outer * n * size};
}

/* Bytes of the tensor before byte k of the box */
static int64_t without_gaps(const Box *x, int64_t k)
{
    int64_t each = x->size + x->gap, in = each ? k % each : 0;
    return each ? k / each * x->size + (in < x->size ? in : x->size) : k;
}

Box box_dense(const Box *x)
{
    Box y = *x;
    y.gap = 0;
    y.first = without_gaps(x, x->first);
    y.bytes = without_gaps(x, x->first + x->bytes) - y.first;
    return y;
}

int64_t box_run(const Box *x, int64_t i, int64_t *at)
{
    int64_t k = x->first + i, each = x->size + x->gap, in = k % each, left = x->bytes - i;
    int64_t n = (in < x->size ? x->size : each) - in;
    *at = in < x->size ? k / each * x->period + x->from + in : -1;
    return n < left ? n : left;
}

/* The first byte of the part, from `i` on, that lies at or behind `at` of the tensor. */
static int64_t leap(const Box *x, int64_t i, int64_t at)
{
    int64_t in = at % x->period - x->from, next;
    in = in < 0 ? 0 : in < x->size ? in : x->size;
    next = at / x->period * (x->size + x->gap) + in - x->first;
    return next > i ? next : i;
}

int64_t box_common(const Box *x, int64_t *i, const Box *y, int64_t *j)
{
    while (*i < x->bytes && *j < y->bytes) {
        int64_t at_x, at_y, n = box_run(x, *i, &at_x), m = box_run(y, *j, &at_y);
        if (at_x < 0)
            *i += n;
        else if (at_y < 0)
            *j += m;
        else if (at_x == at_y)
            return n < m ? n : m;
        else if (at_x < at_y)
            *i = leap(x, *i, at_y);
        else
            *j = leap(y, *j, at_x);
    }
    return 0;
}

int64_t box_copy(const Box *x, void *to, const Box *y, const void *from)
{
    int64_t sum = 0;
    for (int64_t i = 0, j = 0, n; (n = box_common(x, &i, y, &j)) > 0; i += n, j += n, sum += n)
        memcpy((char *)to + i, (const char *)from + j, (size_t)n);
    return sum;
}
