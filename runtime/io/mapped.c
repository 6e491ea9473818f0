/*
 * mapped.c - memory that is a file (mmap, shared): in, what is needed and what is not; out, advice
 * to the system.  Advice changes no byte: what has been dropped is read again when it is touched.
 */
#include "mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

PpStatus mapped_open(Mapped *m, int64_t bytes, int rank, const char *option, const char *folder)
{
    *m = (Mapped){.bytes = bytes, .fd = -1};
    if (!bytes)
        return PP_OK; /* a rank whose stages have no parameters */
    TRY(scratch_open(&m->fd, bytes, rank, option, folder));
    /* Addresses are looked for first, so that the file begins at a multiple of MAPPED_ALIGN */
    size_t room = (size_t)bytes + MAPPED_ALIGN;
    char *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
        m->reserved = p;
        p += (MAPPED_ALIGN - (uintptr_t)p % MAPPED_ALIGN) % MAPPED_ALIGN;
        p = mmap(p, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m->fd, 0);
    }
    if (p == MAP_FAILED)
        return pp_fail(PP_ERR_IO, "%s: %s %s: mapping %" PRId64 " bytes: %s",
                       pp_rank(rank).text, option, folder, bytes, strerror(errno));
    char name[PATH_MAX + 64];
    snprintf(name, sizeof name, "%s: %s %s", pp_rank(rank).text, option, folder);
    m->base = p;
    m->map = file_map_note(name, m->fd, p, (size_t)bytes);
    return m->map ? PP_OK : pp_no_memory();
}

void mapped_close(Mapped *m)
{
    file_forget(m->map);
    if (m->reserved)
        munmap(m->reserved, (size_t)m->bytes + MAPPED_ALIGN);
    if (m->fd > 0)
        close(m->fd);
    *m = (Mapped){.fd = -1};
}

int mapped_holds(const Mapped *m, const void *p)
{
    return m->base && (const char *)p >= m->base && (const char *)p < m->base + m->bytes;
}

typedef struct {
    char *at;
    size_t bytes;
    off_t offset;
} Pages;

/* All pages that hold a part of it, and those that the system maps with them. */
static Pages pages(const Mapped *m, const void *p, int64_t bytes)
{
    int64_t page = MAPPED_ALIGN, from = (const char *)p - m->base, first = from / page * page,
            last = (from + bytes + page - 1) / page * page;
    last = last < m->bytes ? last : m->bytes;
    return (Pages){m->base + first, (size_t)(last - first), (off_t)first};
}

void mapped_apart(const Mapped *m, const void *p, int64_t bytes)
{
    if (bytes <= 0 || !mapped_holds(m, p))
        return;
    Pages g = pages(m, p, bytes);
#ifdef MADV_DONTDUMP
    madvise(g.at, g.bytes, MADV_DONTDUMP); /* a dump has no pages of files in it anyway */
#endif
}

void mapped_need(const Mapped *m, const void *p, int64_t bytes)
{
    if (bytes <= 0 || !mapped_holds(m, p))
        return;
    Pages g = pages(m, p, bytes);
    madvise(g.at, g.bytes, MADV_WILLNEED);
}

void mapped_drop(const Mapped *m, const void *p, int64_t bytes)
{
    if (bytes <= 0 || !mapped_holds(m, p))
        return;
    Pages g = pages(m, p, bytes);
    madvise(g.at, g.bytes, MADV_DONTNEED);
#ifdef SYNC_FILE_RANGE_WRITE
    sync_file_range(m->fd, g.offset, (off_t)g.bytes, SYNC_FILE_RANGE_WRITE);
#endif
}

void mapped_drop_behind(const Mapped *m, const void *p, int64_t bytes)
{
    if (bytes <= 0 || !mapped_holds(m, p))
        return;
    int64_t before = (const char *)p - m->base;
    before = before < MAPPED_AROUND ? before : MAPPED_AROUND;
    mapped_drop(m, (const char *)p - before, bytes + before);
}

int64_t mapped_resident(const Mapped *m)
{
    FILE *f = m->base ? fopen("/proc/self/smaps", "r") : NULL;
    char line[600];
    int64_t sum = -1, kib;
    int mine = 0;
    while (f && fgets(line, sizeof line, f)) {
        uint64_t from, to;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2)
            mine = from >= (uint64_t)(uintptr_t)m->base &&
                   to <= (uint64_t)(uintptr_t)m->base + (uint64_t)m->bytes;
        else if (mine && sscanf(line, "Rss: %" SCNd64 " kB", &kib) == 1)
            sum = (sum < 0 ? 0 : sum) + 1024 * kib;
    }
    if (f)
        fclose(f);
    return sum;
}
