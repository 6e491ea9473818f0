/*
 * map.c - in: a path; out: a regular file's bytes, mapped, or why not.  And SIGBUS: the mapping
 * that holds the address is looked for, and what is left of its file; one that is nobody's here
 * goes on to whoever had the signal before.
 *
 * The list of mappings is read in the handler: whoever changes it holds `busy`, touches no mapped
 * byte meanwhile and allocates nothing, so the handler may wait for it.
 */
#include "map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static FileMap *maps;
static int busy;
static void (*lost)(const char *text);
static struct sigaction before;

static void lock(void)
{
    while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
        ;
}

static void unlock(void) { __atomic_store_n(&busy, 0, __ATOMIC_RELEASE); }

/* ---- opening ---- */

const char *file_unfit(mode_t mode)
{
    return S_ISREG(mode)                       ? NULL
           : S_ISDIR(mode)                     ? "is a folder, not a file"
           : S_ISFIFO(mode)                    ? "is a pipe, not a file: its bytes are wanted in "
                                                 "any order, and again"
           : S_ISSOCK(mode)                    ? "is a socket, not a file"
           : S_ISCHR(mode) || S_ISBLK(mode)    ? "is a device, not a file"
                                               : "is not a regular file";
}

/* Looked at before it is opened, which by itself may do something to a device. */
int file_open(const char *path, char *why)
{
    struct stat sb;
    const char *bad = stat(path, &sb) ? strerror(errno) : file_unfit(sb.st_mode);
    int fd = bad ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (!bad)
        bad = fd < 0 || fstat(fd, &sb) ? strerror(errno) : file_unfit(sb.st_mode);
    if (!bad)
        return fd;
    if (fd >= 0)
        close(fd);
    snprintf(why, FILE_WHY, "%s", bad);
    return -1;
}

/* ---- what is said, in a signal handler too: no stdio ---- */

typedef struct {
    char *at, *end;
} Line;

static void put(Line *l, const char *s)
{
    while (*s && l->at < l->end)
        *l->at++ = *s++;
    *l->at = 0;
}

static void put_number(Line *l, uint64_t v)
{
    char digits[24], *p = digits + sizeof digits - 1;
    *p = 0;
    do {
        *--p = (char)('0' + v % 10);
    } while (v /= 10);
    put(l, p);
}

/* Bytes that its file has now, if they are fewer than were mapped. */
static int is_cut(const FileMap *m, uint64_t *left)
{
    struct stat sb;
    if (stat(m->path, &sb) || sb.st_dev != m->device || sb.st_ino != m->inode ||
        (size_t)sb.st_size >= m->bytes)
        return 0;
    *left = (uint64_t)sb.st_size;
    return 1;
}

/* offset: of the byte that was wanted. */
static void tell(const FileMap *m, size_t offset, char *to, size_t n)
{
    Line l = {to, to + n - 1};
    uint64_t left;
    put(&l, m->path);
    put(&l, m->piece && offset >= m->first ? ", row " : ", byte ");
    put_number(&l, m->piece && offset >= m->first ? (offset - m->first) / m->piece % m->rows
                                                  : offset);
    if (!is_cut(m, &left)) {
        put(&l, ": cannot be read any more: an error of its disk or file system");
        return;
    }
    put(&l, ": the file was cut short while it was being read: it had ");
    put_number(&l, m->bytes);
    put(&l, " bytes, now it has ");
    put_number(&l, left);
}

int file_whole(const FileMap *m, char *err, size_t nerr)
{
    uint64_t left;
    if (!m || !is_cut(m, &left))
        return 0;
    tell(m, (size_t)left, err, nerr);
    return -1;
}

int files_whole(char *err, size_t nerr)
{
    int bad = 0;
    lock();
    for (FileMap *m = maps; m && !bad; m = m->next)
        bad = file_whole(m, err, nerr);
    unlock();
    return bad;
}

/* ---- SIGBUS ---- */

static void handler(int signal, siginfo_t *info, void *context)
{
    char text[4600];
    const char *at = info->si_addr;
    (void)signal, (void)context;
    lock();
    const FileMap *m = maps;
    while (m && !(m->bytes && at >= m->at && at - m->at < (ptrdiff_t)((m->bytes | 4095) + 1)))
        m = m->next;
    if (m)
        tell(m, (size_t)(at - m->at), text, sizeof text);
    unlock();
    if (!m) { /* the access is tried again, and is theirs */
        sigaction(SIGBUS, &before, NULL);
        return;
    }
    if (lost)
        lost(text);
    _exit(3);
}

static void take_signal(void)
{
    struct sigaction s = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&s.sa_mask);
    sigaction(SIGBUS, &s, &before);
}

void file_lost(void (*then)(const char *text)) { lost = then; }

/* ---- what was read ---- */

typedef struct Read {
    struct Read *next;
    char path[];
} Read;
static Read *were_read;
static int remembers;

void file_remember(void)
{
    remembers = 1;
    for (Read *r = were_read, *after; r; r = after) {
        after = r->next;
        free(r);
    }
    were_read = NULL;
}

void file_note_read(const char *path)
{
    const size_t n = strlen(path) + 1;
    Read *r = remembers ? malloc(sizeof *r + n) : NULL, *known;
    if (!r)
        return;
    memcpy(r->path, path, n);
    lock();
    for (known = were_read; known && strcmp(known->path, path) != 0;)
        known = known->next;
    if (!known) {
        r->next = were_read;
        were_read = r;
    }
    unlock();
    if (known)
        free(r);
}

int file_was_read(const char *path)
{
    struct stat to, of;
    if (stat(path, &to) || !S_ISREG(to.st_mode))
        return 0;
    for (const Read *r = were_read; r; r = r->next)
        if (!stat(r->path, &of) && of.st_dev == to.st_dev && of.st_ino == to.st_ino)
            return 1;
    return 0;
}

/* ---- mappings ---- */

FileMap *file_map_note(const char *path, int fd, const void *at, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stat sb;
    FileMap *m = calloc(1, sizeof *m);
    if (!m || !(m->path = strdup(path)) || fstat(fd, &sb)) {
        int e = errno;
        if (m)
            free(m->path);
        free(m);
        errno = e;
        return NULL;
    }
    file_note_read(path);
    m->at = at;
    m->bytes = n;
    m->device = sb.st_dev;
    m->inode = sb.st_ino;
    pthread_once(&once, take_signal);
    lock();
    m->next = maps;
    maps = m;
    unlock();
    return m;
}

FileMap *file_map_open(const char *path, int fd, size_t n)
{
    void *p = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0) : NULL;
    FileMap *m = p == MAP_FAILED ? NULL : file_map_note(path, fd, n ? p : "", n);
    if (!m && p && p != MAP_FAILED) {
        int e = errno;
        munmap(p, n);
        errno = e;
    }
    return m;
}

FileMap *file_map(const char *path, char *why)
{
    struct stat sb;
    int fd = file_open(path, why);
    if (fd < 0)
        return NULL;
    FileMap *m = fstat(fd, &sb) ? NULL : file_map_open(path, fd, (size_t)sb.st_size);
    if (!m)
        snprintf(why, FILE_WHY, "%s", strerror(errno));
    close(fd);
    return m;
}

void file_forget(FileMap *m)
{
    if (!m)
        return;
    lock();
    FileMap **at = &maps;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    unlock();
    free(m->path);
    free(m);
}

void file_unmap(FileMap *m)
{
    void *at = m ? (void *)(uintptr_t)m->at : NULL;
    size_t n = m ? m->bytes : 0;
    file_forget(m);
    if (n)
        munmap(at, n);
}

void file_advise(const FileMap *m, int advice)
{
    if (m && m->bytes)
        madvise((void *)(uintptr_t)m->at, m->bytes, advice);
}

void file_rows(FileMap *m, size_t first, size_t piece, size_t rows)
{
    m->first = first;
    m->piece = rows ? piece : 0;
    m->rows = rows;
}

size_t file_put(const void *at, size_t n, FILE *f)
{
    size_t done = n ? fwrite(at, 1, n, f) : 0;
    if (done < n && errno == EFAULT)
        for (const char *p = at; p < (const char *)at + n; p += 512)
            (void)*(const volatile char *)p;
    return done;
}
