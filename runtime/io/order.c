/*
 * order.c - in: the rows of the data, in their places.  Out: the order in which an epoch takes
 * them.
 *
 * --mix puts them in their order (mix.c).  --shuffle: a Fisher-Yates permutation per epoch, drawn
 * from a counter-based generator (splitmix64 of seed, epoch, position), so it depends on nothing
 * else.  --by-length: of the rows of some steps the shortest fill a microbatch, the next ones
 * another, and these microbatches are permuted: a step has some of every length.
 */
#include "data.h"

#include "core/core.h"

#include <stdlib.h>

static uint64_t splitmix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void permute(int64_t *at, int64_t n, uint64_t key)
{
    for (int64_t i = n - 1; i > 0; i--) {
        /* a number below i + 1: the high half of a 64 x 64 bit product */
        uint64_t x = splitmix(key + (uint64_t)i), b = (uint64_t)i + 1;
        uint64_t lo = (x & 0xffffffffu) * b, hi = (x >> 32) * b + (lo >> 32);
        int64_t j = (int64_t)(hi >> 32), t = at[i];
        at[i] = at[j];
        at[j] = t;
    }
}

typedef struct {
    int64_t length, place, row;
} LongRow;

/* Of rows of one length the first comes first. */
static int shorter(const void *a, const void *b)
{
    const LongRow *x = a, *y = b;
    return x->length != y->length ? (x->length > y->length) - (x->length < y->length)
                                  : (x->place > y->place) - (x->place < y->place);
}

/* Of all lengths that differ by row. */
static int64_t places_of(const Data *d, int64_t row)
{
    int64_t n = 0;
    for (int v = 0; v < PP_LENGTHS; v++)
        n += d->row_length[v] ? d->row_length[v][row] : 0;
    return n;
}

/* The rows of so many steps; room for as many LongRows, and for a number for each microbatch. */
static void by_length(const Data *d, int64_t steps, uint64_t key, int64_t *order, LongRow *row,
                      int64_t *slot)
{
    int64_t n = (int64_t)data_chunks(d) * d->replicas, rows = steps * d->batch, next = 0;
    for (int64_t i = 0; i < rows; i++)
        row[i] = (LongRow){places_of(d, order[i]), i, order[i]};
    qsort(row, (size_t)rows, sizeof *row, shorter);
    for (int64_t i = 0; i < steps * n; i++)
        slot[i] = i;
    permute(slot, steps * n, key);
    for (int64_t i = 0; i < steps * n; i++) {
        const int64_t *row0 = &d->row0[slot[i] % n];
        for (int64_t r = row0[0]; r < row0[1]; r++)
            order[slot[i] / n * d->batch + r] = row[next++].row;
    }
}

/* A window of steps after the other. */
static PpStatus all_by_length(const Data *d, uint64_t key, int64_t *order)
{
    int64_t steps = d->rows / d->batch, window = d->opt->by_length;
    window = window < steps ? window : steps;
    LongRow *row = calloc((size_t)(window * d->batch + 1), sizeof *row);
    int64_t n = (int64_t)data_chunks(d) * d->replicas,
            *slot = calloc((size_t)(window * n + 1), sizeof *slot);
    for (int64_t s = 0; row && slot && s < steps; s += window)
        by_length(d, steps - s < window ? steps - s : window, splitmix(key ^ (uint64_t)s),
                  order + s * d->batch, row, slot);
    PpStatus status = row && slot ? PP_OK : pp_no_memory();
    free(row);
    free(slot);
    return status;
}

int order_by_length(const Data *d) { return d->opt->by_length && d->opt->n_lengths; }

int order_is_own(const Data *d) { return d->opt->shuffle || d->n_mix || order_by_length(d); }

PpStatus order_rows(const Data *d, int64_t epoch, int64_t *order)
{
    uint64_t key = splitmix(splitmix(d->opt->shuffle_seed) ^ (uint64_t)epoch);
    for (int64_t i = 0; i < d->rows; i++)
        order[i] = i;
    if (d->n_mix)
        TRY(mix_order(d, epoch, order));
    if (d->opt->shuffle)
        permute(order, d->rows, key);
    return order_by_length(d) ? all_by_length(d, splitmix(key), order) : PP_OK;
}
