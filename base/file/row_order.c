/*
 * row_order.c - in: rows in their places, the lengths of each.  Out: the order in which an epoch
 * takes them.
 *
 * --shuffle: a Fisher-Yates permutation per epoch, drawn from a counter-based generator (splitmix64
 * of seed, epoch, position), so it depends on nothing else.  --by-length: of the rows of some steps
 * the shortest fill a microbatch, the next ones another, and these microbatches are permuted: a
 * step has some of every length.  Microbatches are cut as torch.tensor_split does: the first
 * rows % n are one longer.
 */
#include "row_order.h"

#include "safetensors.h"
#include "token_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static int64_t places_of(const RowOrder *o, int64_t row)
{
    int64_t n = 0;
    for (int v = 0; v < ROW_LENGTHS; v++)
        n += o->length[v] ? o->length[v][row] : 0;
    return n;
}

/* The rows of so many steps; room for as many LongRows, and for a number for each microbatch. */
static void by_length(const RowOrder *o, int64_t steps, uint64_t key, int64_t *order, LongRow *row,
                      int64_t *slot)
{
    int64_t n = o->n, rows = steps * o->batch, next = 0;
    for (int64_t i = 0; i < rows; i++)
        row[i] = (LongRow){places_of(o, order[i]), i, order[i]};
    qsort(row, (size_t)rows, sizeof *row, shorter);
    for (int64_t i = 0; i < steps * n; i++)
        slot[i] = i;
    permute(slot, steps * n, key);
    for (int64_t i = 0; i < steps * n; i++) {
        const int64_t *row0 = &o->row0[slot[i] % n];
        for (int64_t r = row0[0]; r < row0[1]; r++)
            order[slot[i] / n * o->batch + r] = row[next++].row;
    }
}

/* A window of steps after the other. */
static int all_by_length(const RowOrder *o, uint64_t key, int64_t *order)
{
    int64_t steps = o->rows / o->batch, window = o->by_length < steps ? o->by_length : steps;
    LongRow *row = calloc((size_t)(window * o->batch + 1), sizeof *row);
    int64_t *slot = calloc((size_t)(window * o->n + 1), sizeof *slot);
    for (int64_t s = 0; row && slot && s < steps; s += window)
        by_length(o, steps - s < window ? steps - s : window, splitmix(key ^ (uint64_t)s),
                  order + s * o->batch, row, slot);
    int done = row && slot;
    free(row);
    free(slot);
    return done;
}

int row_order(const RowOrder *o, int64_t epoch, int64_t *order)
{
    uint64_t key = splitmix(splitmix(o->seed) ^ (uint64_t)epoch);
    if (o->shuffle)
        permute(order, o->rows, key);
    return !o->by_length || all_by_length(o, splitmix(key), order);
}

void row_cut(int64_t batch, int64_t groups, int64_t n, int64_t *row0)
{
    row0[0] = 0;
    for (int64_t i = 0; i < groups * n; i++) {
        int64_t rows = batch / groups + (i / n < batch % groups);
        row0[i + 1] = row0[i] + rows / n + (i % n < rows % n);
    }
}

int64_t row_longest(const int64_t *length, const int64_t *order, int64_t first, int64_t end)
{
    int64_t most = 0;
    for (int64_t i = first; i < end; i++) {
        int64_t n = length[order ? order[i] : i];
        most = n > most ? n : most;
    }
    return most;
}

/* ---- lengths ---- */

enum { U32 = 12, U64 = 13 }; /* TensorProto.DataType */
typedef enum { EACH, OFFSETS, INDEX } Kind; /* a number for each row; where it begins; Megatron's */

static int64_t number_at(const NpyFile *f, int64_t i)
{
    return npy_integer(f->data + i * st_dtype_size(f->dtype), f->dtype);
}

/* Of row i; 0: err says what is wrong.  Offsets before it have risen from 0. */
static int64_t read_length(const NpyFile *f, Kind kind, int64_t i, int64_t least, int64_t most,
                           char *err, size_t nerr)
{
    const int offsets = kind == OFFSETS;
    const int64_t from = offsets ? number_at(f, i) : 0, end = number_at(f, i + offsets);
    if (offsets && end < from)
        snprintf(err, nerr,
                 "it begins with 0, so it says where rows begin: row %" PRId64 " at %" PRId64
                 ", the next one before it, at %" PRId64,
                 i, from, end);
    else if (kind == INDEX && end == 0)
        snprintf(err, nerr, "sequence %" PRId64 " is empty", i);
    else if (end - from < least || end - from > most)
        snprintf(err, nerr,
                 "row %" PRId64 " has length %" PRId64 ", and may have %" PRId64 " to %" PRId64, i,
                 end - from, least, most);
    else
        return end - from;
    return 0;
}

static void no_lengths(const NpyFile *f, char *err, size_t nerr)
{
    char shape[200];
    dims_text(shape, sizeof shape, f->rank, f->dim, -1);
    snprintf(err, nerr,
             "it is %s %s: neither one whole number for each row nor one more, which say where "
             "rows begin and the last one ends",
             st_dtype_name(f->dtype) ? st_dtype_name(f->dtype) : "another type", shape);
}

int64_t *row_lengths(const char *path, int64_t *rows, int *documents, int64_t least, int64_t most,
                     char *err, size_t nerr)
{
    NpyFile f;
    int index;
    *rows = -1;
    if (token_lengths_open(&f, path, &index, err, nerr))
        return NULL;
    const int whole = npy_is_integer(f.dtype) || f.dtype == U32 || f.dtype == U64;
    int64_t *length = NULL, n = f.rank == 1 && whole ? f.dim[0] : 0;
    const Kind kind = index ? INDEX : n > 0 && number_at(&f, 0) == 0 ? OFFSETS : EACH;
    *documents = kind != EACH;
    *rows = n -= kind == OFFSETS;
    if (n == 0)
        no_lengths(&f, err, nerr);
    else if (!(length = malloc((size_t)n * sizeof *length)))
        snprintf(err, nerr, "no memory for the lengths of %" PRId64 " rows", n);
    for (int64_t i = 0; i < n && length; i++)
        if (!(length[i] = read_length(&f, kind, i, least, most, err, nerr)))
            free(length), length = NULL;
    npy_close(&f);
    return length;
}
