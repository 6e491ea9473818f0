/*
 * store_file.c - the store of a rank on the CPU: a file without a name, and a thread that writes
 * and reads it while the rank computes.
 *
 * In: copies, in order.  Out: the same bytes in memory again.  A write or read that fails, or is
 * short, ends the run with what the system said; copies after it are not tried.
 */
#include "store.h"

#include "base/file/map.h"
#include "scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    int number, write;
    int64_t at, bytes;
    char *memory;
} Piece;

/* All copies of one number. */
typedef struct {
    int open; /* started and not done */
    double begin, end;
} Progress;

struct StoreFile {
    Pool pool;
    StoreWish wish;
    int fd, started; /* started: the thread */
    char *memory;    /* wish.shared: the file */
    FileMap *map;    /* which is named where the disk fails */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    /* A ring of wish.most pieces: `count` from `head` on are to be copied */
    Piece *piece;
    int head, count, quit;
    Progress *progress; /* per number */
    int error;          /* of the first copy that failed: errno, or -1 when it was cut short */
    Piece failed;
};

/* ---- the thread ---- */

/* errno, or -1 for a file that ends too early. */
static int copy_piece(int fd, const Piece *p)
{
    for (int64_t at = 0; at < p->bytes;) {
        size_t left = (size_t)(p->bytes - at), most = 1 << 30;
        ssize_t n = p->write
                        ? pwrite(fd, p->memory + at, left < most ? left : most, p->at + at)
                        : pread(fd, p->memory + at, left < most ? left : most, p->at + at);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n == 0)
            return -1;
        at += n > 0 ? n : 0;
    }
    return 0;
}

static void finish_piece(StoreFile *f, const Piece *p, double begin, int error)
{
    Progress *q = &f->progress[p->number];
    if (error && !f->error) {
        f->error = error;
        f->failed = *p;
    }
    if (q->begin < 0)
        q->begin = begin;
    q->end = pp_now();
    q->open--;
    f->head = (f->head + 1) % f->wish.most;
    f->count--;
    pthread_cond_broadcast(&f->done);
}

static void *file_main(void *arg)
{
    StoreFile *f = arg;
    pthread_mutex_lock(&f->lock);
    while (1) {
        while (!f->count && !f->quit)
            pthread_cond_wait(&f->work, &f->lock);
        if (!f->count)
            break;
        Piece p = f->piece[f->head];
        int error = f->error;
        pthread_mutex_unlock(&f->lock);
        double begin = pp_now();
        if (!error)
            error = copy_piece(f->fd, &p);
        pthread_mutex_lock(&f->lock);
        finish_piece(f, &p, begin, error);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- for the rank's thread ---- */

/* What is written to the file and to its mapping is the same at once.  Walks along it do not look
 * back. */
static PpStatus map_file(StoreFile *f)
{
    const StoreWish *w = &f->wish;
    char name[PATH_MAX + 64];
    if (!w->shared || !w->bytes)
        return PP_OK;
    void *p = mmap(NULL, (size_t)w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    if (p == MAP_FAILED)
        return pp_fail(PP_ERR_IO, "%s: %s %s: mapping %" PRId64 " bytes: %s", pp_rank(w->rank).text,
                       w->option, w->folder, w->bytes, strerror(errno));
    f->memory = p;
    madvise(p, (size_t)w->bytes, MADV_SEQUENTIAL);
    snprintf(name, sizeof name, "%s: %s %s", pp_rank(w->rank).text, w->option, w->folder);
    f->map = file_map_note(name, f->fd, p, (size_t)w->bytes);
    return f->map ? PP_OK : pp_no_memory();
}

char *store_file_memory(const StoreFile *f) { return f->memory; }

PpStatus store_file_open(StoreFile **to, const StoreWish *w)
{
    StoreFile *f = *to = zeroed(1, sizeof *f);
    if (!f)
        return pp_no_memory();
    f->wish = *w;
    f->fd = -1;
    if (f->wish.most < 1)
        f->wish.most = 1;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->done, NULL);
    TRY(pp_take(&f->pool, &f->piece, f->wish.most, sizeof *f->piece));
    TRY(pp_take(&f->pool, &f->progress, w->copies, sizeof *f->progress));
    TRY(scratch_open(&f->fd, w->bytes, w->rank, w->option, w->folder));
    TRY(map_file(f));
    if (pthread_create(&f->thread, NULL, file_main, f))
        return pp_fail(PP_ERR_IO, "%s: no thread for %s", pp_rank(w->rank).text,
                       w->option);
    f->started = 1;
    return PP_OK;
}

void store_file_close(StoreFile *f)
{
    if (!f)
        return;
    if (f->started) {
        pthread_mutex_lock(&f->lock);
        f->quit = 1;
        pthread_cond_signal(&f->work);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    file_forget(f->map);
    if (f->memory)
        munmap(f->memory, (size_t)f->wish.bytes);
    if (f->fd >= 0)
        close(f->fd);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->done);
    pthread_mutex_destroy(&f->lock);
    pool_free(&f->pool);
    free(f);
}

void store_file_start(StoreFile *f, int number, int write, int64_t at, void *memory, int64_t bytes)
{
    pthread_mutex_lock(&f->lock);
    while (f->count == f->wish.most)
        pthread_cond_wait(&f->done, &f->lock);
    Progress *q = &f->progress[number];
    if (!q->open++)
        q->begin = -1;
    f->piece[(f->head + f->count++) % f->wish.most] =
        (Piece){.number = number, .write = write, .at = at, .bytes = bytes, .memory = memory};
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
}

PpStatus store_file_wait(StoreFile *f, int number)
{
    pthread_mutex_lock(&f->lock);
    while (f->progress[number].open)
        pthread_cond_wait(&f->done, &f->lock);
    int error = f->error;
    Piece p = f->failed;
    pthread_mutex_unlock(&f->lock);
    if (!error)
        return PP_OK;
    return pp_fail(PP_ERR_IO, "%s: %s %s: %s %" PRId64 " bytes: %s", pp_rank(f->wish.rank).text,
                   f->wish.option, f->wish.folder, p.write ? "writing" : "reading", p.bytes,
                   error < 0 ? "cut short" : strerror(error));
}

void store_file_span(StoreFile *f, int number, double *begin, double *end)
{
    pthread_mutex_lock(&f->lock);
    *begin = f->progress[number].begin;
    *end = f->progress[number].end;
    pthread_mutex_unlock(&f->lock);
}
