/*
 * core.c - sizes of tensors, the clock, likely words.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core.h"

#include <stdlib.h>
#include <string.h>
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

/* ---- did you mean ---- */

static size_t least(size_t a, size_t b, size_t c) { return a < b ? (a < c ? a : c) : b < c ? b : c; }

/* Levenshtein distance of short words. */
static size_t distance(const char *a, const char *b)
{
    enum { N = 64 };
    size_t na = strlen(a), nb = strlen(b), row[N + 1];
    if (na > N || nb > N)
        return N;
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t up = row[j];
            row[j] = least(row[j - 1] + 1, up + 1, corner + (a[i - 1] != b[j - 1]));
            corner = up;
        }
    }
    return row[nb];
}

const char *nearest(const char *word, const char *const *list, int n)
{
    const char *best = NULL;
    size_t limit = strlen(word) / 3 + 2;
    for (int i = 0; i < n; i++) {
        size_t d = distance(word, list[i]);
        if (d < limit) {
            limit = d;
            best = list[i];
        }
    }
    return best;
}
