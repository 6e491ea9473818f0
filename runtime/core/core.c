/*
 * core.c - sizes of tensors, memory of pools, the clock.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

_Static_assert((int)PP_ALIGN == (int)PACK_ALIGN, "tensors begin alike everywhere");

int64_t tensor_dim(const PpTensor *t, int i, PpLength length)
{
    int64_t sum = 0;
    int any = 0;
    for (int k = 0; k < t->n_term; k++) {
        int64_t c = t->term[k].c;
        if (t->term[k].dim != i)
            continue;
        for (int v = 0; v < PP_LENGTHS; v++)
            for (int n = t->term[k].power[v]; n > 0; n--)
                c *= length.of[v];
        sum += c;
        any = 1;
    }
    return any ? sum : t->dim[i];
}

int tensor_varies(const PpTensor *t, int i, int64_t *of)
{
    for (int k = 0; k < t->n_term; k++)
        for (int v = 0; v < PP_LENGTHS && t->term[k].dim == i; v++)
            if (t->term[k].power[v]) {
                *of = t->term[k].c;
                return v;
            }
    return -1;
}

int tensor_any_varies(const PpTensor *t, int length)
{
    int any = 0;
    for (int k = 0; k < t->n_term; k++)
        any |= t->term[k].power[length] > 0;
    return any;
}

PpLength length_most(const PpPlan *p)
{
    PpLength most = {{0}};
    for (int v = 0; v < p->n_length; v++)
        most.of[v] = p->length[v].most;
    return most;
}

int64_t tensor_bytes(const PpPlan *p, const PpTensor *t, int64_t rows, PpLength length)
{
    int64_t bytes = t->bytes;
    for (int i = 0; i < t->rank && t->n_term; i++)
        bytes = t->dim[i] ? bytes / t->dim[i] * tensor_dim(t, i, length) : 0;
    return t->batch_dim < 0 ? bytes : bytes / p->rows * rows;
}

void *zeroed(int64_t n, size_t size) { return calloc((size_t)(n > 0 ? n : 1), size); }

/* And PP_ALIGN bytes more: a long message of MPI is a whole number of blocks of so many. */
PpStatus pp_take(Pool *p, void *to, int64_t n, size_t size)
{
    const int64_t more = size ? PP_ALIGN / (int64_t)size + 1 : 0;
    void *at = pool_take(p, n + more, size);
    memcpy(to, &at, sizeof at);
    return at ? PP_OK : pp_no_memory();
}

PpStatus pp_add(Pool *p, void *list, int *n, const void *one, size_t size)
{
    void *added = pool_added(p, list, n, size);
    if (!added)
        return pp_no_memory();
    memcpy(added, one, size);
    return PP_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pp_median(double *of, int n)
{
    qsort(of, (size_t)n, sizeof *of, by_value);
    return n ? of[n / 2] : 0;
}

double pp_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
