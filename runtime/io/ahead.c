/*
 * ahead.c - a thread that reads the rows of the next step while this one runs.  Files are mapped
 * (data.c): it asks the system for the pages of these rows and touches them, so that feed.c, which
 * copies them later, waits for no disk.  It changes nothing that anyone reads: the bits are those
 * of a run without it.
 *
 * A request names rows; one that is not done when the next comes is left.
 */
#include "ahead.h"

#include "base/file/safetensors.h"
#include "core/core.h"
#include "io/worker.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct Ahead {
    const Data *data;
    const unsigned char *has_input; /* which inputs the rank reads */
    int64_t page, room;             /* bytes; rows that a request may have */
    Worker *worker;
    int64_t *row, n; /* of the request */
    int newer;       /* atomic: another one comes, or none any more */
};

static int left(const Ahead *a) { return __atomic_load_n(&a->newer, __ATOMIC_RELAXED); }

/* Whole pages around some bytes. */
static void ask(const Ahead *a, const char *at, int64_t bytes)
{
    uintptr_t begin = (uintptr_t)at / (uintptr_t)a->page * (uintptr_t)a->page;
    union {
        uintptr_t number;
        void *p;
    } page = {begin};
    madvise(page.p, (uintptr_t)at - begin + (size_t)bytes, MADV_WILLNEED);
}

static void touch(const Ahead *a, const char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes && !left(a); i += a->page)
        (void)*(const volatile char *)(at + i);
    if (bytes > 0)
        (void)*(const volatile char *)(at + bytes - 1);
}

/* Every piece of the rows, in order; pieces that follow one another in the file as one. */
static void each(const Ahead *a, void (*what)(const Ahead *, const char *, int64_t))
{
    const Data *d = a->data;
    for (int i = 0; i < d->model->n_input; i++) {
        const DataInput *in = &d->input[i];
        if (!in->n || !a->has_input[i] || d->model->input[i].batch_dim < 0)
            continue;
        for (int64_t o = 0; o < in->outer; o++) {
            const char *from = NULL, *end = NULL;
            for (int64_t k = 0; k < a->n && !left(a); k++) {
                int dtype;
                const char *at = data_piece(d, i, a->row[k], o, &dtype);
                int64_t bytes = data_piece_size(d, i, a->row[k]) * st_dtype_size(dtype);
                if (at != end) {
                    if (from)
                        what(a, from, end - from);
                    from = at;
                }
                end = at + bytes;
            }
            if (from)
                what(a, from, end - from);
        }
    }
}

static void read_rows(void *ahead)
{
    each(ahead, ask);
    each(ahead, touch);
}

int64_t *ahead_rows(Ahead *a, int64_t n)
{
    if (!a || n > a->room)
        return NULL;
    __atomic_store_n(&a->newer, 1, __ATOMIC_RELAXED);
    worker_await(a->worker);
    a->n = n;
    return a->row;
}

void ahead_start(Ahead *a)
{
    __atomic_store_n(&a->newer, 0, __ATOMIC_RELAXED);
    worker_give(a->worker, read_rows, a);
}

PpStatus ahead_open(Ahead **out, const Data *d, const unsigned char *has_input, int64_t rows)
{
    Ahead *a = *out = calloc(1, sizeof *a);
    if (!a)
        return pp_no_memory();
    *a = (Ahead){.data = d, .has_input = has_input, .page = sysconf(_SC_PAGESIZE), .room = rows};
    a->row = zeroed(rows, sizeof *a->row);
    if (!a->row)
        return pp_no_memory();
    a->worker = worker_open();
    return a->worker ? PP_OK
                     : pp_fail(PP_ERR_IO, "no thread could be started that reads rows ahead");
}

void ahead_close(Ahead *a)
{
    if (!a)
        return;
    __atomic_store_n(&a->newer, 1, __ATOMIC_RELAXED);
    worker_close(a->worker);
    free(a->row), free(a);
}
