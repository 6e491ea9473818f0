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
#include "worker.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* All copies of one number. */
typedef struct {
    int open;     /* started and not waited for */
    int64_t last; /* the worker's number of the last one */
    double begin, end;
} Progress;

typedef struct {
    StoreFile *f;
    Progress *of;
    int write, first; /* first: of its number */
    int64_t at, bytes;
    char *memory;
} Piece;

struct StoreFile {
    Pool pool;
    StoreWish wish;
    int fd;
    char *memory; /* wish.shared: the file */
    FileMap *map; /* which is named where the disk fails */
    Worker *worker;
    Piece *piece;       /* a ring, one for each thing that the worker may have */
    int64_t pieces;     /* so far */
    Progress *progress; /* per number */
    int error;          /* atomic: of the first copy that failed: errno, or -1: it was cut short */
    Piece failed;
};

/* ---- the thread ---- */

/* errno, or -1 for a file that ends too early. */
static int copy_piece(int fd, const Piece *p)
{
    for (int64_t at = 0; at < p->bytes;) {
        size_t left = (size_t)(p->bytes - at), most = 1 << 30;
        ssize_t n = p->write ? pwrite(fd, p->memory + at, left < most ? left : most, p->at + at)
                             : pread(fd, p->memory + at, left < most ? left : most, p->at + at);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n == 0)
            return -1;
        at += n > 0 ? n : 0;
    }
    return 0;
}

/* Has somebody cut it short?  Writing would make it as long again, with zeros in it. */
static int is_cut(const StoreFile *f)
{
    struct stat sb;
    return fstat(f->fd, &sb) || sb.st_size < f->wish.bytes;
}

static void work_piece(void *piece)
{
    const Piece *p = piece;
    StoreFile *f = p->f;
    if (p->first)
        p->of->begin = pp_now();
    if (!f->error) {
        const int error = is_cut(f) ? -1 : copy_piece(f->fd, p);
        f->failed = error ? *p : f->failed;
        __atomic_store_n(&f->error, error, __ATOMIC_RELEASE);
    }
    p->of->end = pp_now();
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
    TRY(pp_take(&f->pool, &f->piece, f->wish.most, sizeof *f->piece));
    TRY(pp_take(&f->pool, &f->progress, w->copies, sizeof *f->progress));
    TRY(scratch_open(&f->fd, w->bytes, w->rank, w->option, w->folder));
    TRY(map_file(f));
    f->worker = worker_open(f->wish.most);
    return f->worker ? PP_OK
                     : pp_fail(PP_ERR_IO, "%s: no thread for %s", pp_rank(w->rank).text, w->option);
}

void store_file_close(StoreFile *f)
{
    if (!f)
        return;
    worker_close(f->worker);
    file_forget(f->map);
    if (f->memory)
        munmap(f->memory, (size_t)f->wish.bytes);
    if (f->fd >= 0)
        close(f->fd);
    pool_free(&f->pool);
    free(f);
}

void store_file_start(StoreFile *f, int number, int write, int64_t at, void *memory, int64_t bytes)
{
    Progress *q = &f->progress[number];
    Piece *p = &f->piece[f->pieces++ % f->wish.most];
    worker_await(f->worker, f->pieces - f->wish.most); /* the one whose place it takes */
    *p = (Piece){f, q, write, !q->open, at, bytes, memory};
    q->open = 1;
    q->last = worker_give(f->worker, work_piece, p);
}

PpStatus store_file_wait(StoreFile *f, int number)
{
    Progress *q = &f->progress[number];
    worker_await(f->worker, q->last);
    q->open = 0;
    const int error = __atomic_load_n(&f->error, __ATOMIC_ACQUIRE);
    if (!error)
        return PP_OK;
    const Piece *p = &f->failed;
    return pp_fail(PP_ERR_IO, "%s: %s %s: %s %" PRId64 " bytes: %s", pp_rank(f->wish.rank).text,
                   f->wish.option, f->wish.folder, p->write ? "writing" : "reading", p->bytes,
                   error < 0 ? "cut short" : strerror(error));
}

void store_file_span(StoreFile *f, int number, double *begin, double *end)
{
    *begin = f->progress[number].begin;
    *end = f->progress[number].end;
}
