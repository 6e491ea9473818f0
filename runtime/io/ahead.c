/*
 * ahead.c - a thread that reads the rows of the next step while this one runs.  Files are mapped
 * (data.c): it asks the system for the pages of these rows and touches them, so that feed.c, which
 * copies them later, waits for no disk.  It changes nothing that anyone reads: the bits are those
 * of a run without it.
 *
 * A request names rows; the newest one counts, and one that is not done when the next comes is
 * left.
 */
#include "ahead.h"

#include "base/file/safetensors.h"
#include "core/core.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct Ahead {
    const Data *data;
    const unsigned char *has_input; /* which inputs the rank reads */
    int64_t page, room;             /* bytes; rows that a request may have */
    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t asked;
    /* under the lock: rows of the newest request, which the thread takes by exchanging arrays */
    int64_t *row, n;
    int waiting, ends;
    int64_t *own; /* the thread's */
    int newer;    /* atomic: a request waits */
};

static int load(const int *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }

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
    for (int64_t i = 0; i < bytes; i += a->page)
        (void)*(const volatile char *)(at + i);
    if (bytes > 0)
        (void)*(const volatile char *)(at + bytes - 1);
}

/* Every piece of the rows, in order; pieces that follow one another in the file as one. */
static void each(const Ahead *a, int64_t n, void (*what)(const Ahead *, const char *, int64_t))
{
    const Data *d = a->data;
    for (int i = 0; i < d->model->n_input; i++) {
        const DataInput *in = &d->input[i];
        if (!in->n || !a->has_input[i] || d->model->input[i].batch_dim < 0)
            continue;
        for (int64_t o = 0; o < in->outer; o++) {
            const char *from = NULL, *end = NULL;
            for (int64_t k = 0; k < n && !load(&a->newer); k++) {
                int dtype;
                const char *at = data_piece(d, i, a->own[k], o, &dtype);
                int64_t bytes = in->inner * st_dtype_size(dtype);
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

static void *thread_main(void *p)
{
    Ahead *a = p;
    for (;;) {
        pthread_mutex_lock(&a->lock);
        while (!a->waiting && !a->ends)
            pthread_cond_wait(&a->asked, &a->lock);
        int64_t *rows = a->row, n = a->n;
        int ends = a->ends;
        a->row = a->own;
        a->own = rows;
        a->waiting = 0;
        __atomic_store_n(&a->newer, 0, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&a->lock);
        if (ends)
            return NULL;
        each(a, n, ask);
        each(a, n, touch);
    }
}

int64_t *ahead_rows(Ahead *a, int64_t n)
{
    if (!a || n > a->room)
        return NULL;
    pthread_mutex_lock(&a->lock);
    a->n = n;
    return a->row;
}

void ahead_start(Ahead *a)
{
    a->waiting = 1;
    __atomic_store_n(&a->newer, 1, __ATOMIC_RELAXED);
    pthread_cond_signal(&a->asked);
    pthread_mutex_unlock(&a->lock);
}

PpStatus ahead_open(Ahead **out, const Data *d, const unsigned char *has_input, int64_t rows)
{
    Ahead *a = *out = calloc(1, sizeof *a);
    if (!a)
        return pp_no_memory();
    *a = (Ahead){.data = d, .has_input = has_input, .page = sysconf(_SC_PAGESIZE), .room = rows};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->asked, NULL);
    a->row = zeroed(rows, sizeof *a->row);
    a->own = zeroed(rows, sizeof *a->own);
    if (!a->row || !a->own)
        return pp_no_memory();
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of a file that was cut short: base/file/map.c names it */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    a->has_thread = pthread_create(&a->thread, NULL, thread_main, a) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return a->has_thread ? PP_OK
                         : pp_fail(PP_ERR_IO, "no thread could be started that reads rows ahead");
}

void ahead_close(Ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->ends = 1;
    __atomic_store_n(&a->newer, 1, __ATOMIC_RELAXED);
    pthread_cond_signal(&a->asked);
    pthread_mutex_unlock(&a->lock);
    if (a->has_thread)
        pthread_join(a->thread, NULL);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->asked);
    free(a->row), free(a->own), free(a);
}
