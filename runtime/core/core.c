/*
 * core.c - sizes of tensors, the clock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core.h"

#include <stdlib.h>
#include <time.h>

int64_t tensor_dim(const PpPlan *p, const PpTensor *t, int i, int64_t length)
{
    return t->dim[i] - t->grow[i] * (p->length - length);
}

int64_t tensor_bytes(const PpPlan *p, const PpTensor *t, int64_t rows, int64_t length)
{
    int64_t bytes = t->bytes;
    for (int i = 0; i < t->rank; i++)
        if (t->grow[i])
            bytes = bytes / t->dim[i] * tensor_dim(p, t, i, length);
    return t->batch_dim < 0 ? bytes : bytes / p->rows * rows;
}

void *zeroed(int64_t n, size_t size) { return calloc((size_t)(n > 0 ? n : 1), size); }

double pp_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
