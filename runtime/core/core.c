/*
 * core.c - sizes of tensors, the clock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core.h"

#include <stdlib.h>
#include <time.h>

int64_t tensor_bytes(const PpTensor *t, int64_t rows, int64_t full_rows)
{
    return t->batch_dim < 0 ? t->bytes : t->bytes / full_rows * rows;
}

void *zeroed(int64_t n, size_t size) { return calloc((size_t)(n > 0 ? n : 1), size); }

double pp_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
