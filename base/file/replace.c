/*
 * replace.c - in: a path; out: what was there is gone, or replaced.  Every step goes by a
 * descriptor of the folder (openat, unlinkat) that was opened without following a link.
 */
#include "replace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *file_new(const char *path)
{
    if (unlink(path) && errno != ENOENT)
        return NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (fd >= 0 && !f)
        close(fd);
    return f;
}

/* As "-" and, where that is a file or a pipe, /dev/stdout. */
static int is_stdout(const char *path)
{
    struct stat to, out;
    return !strcmp(path, "-") || (!stat(path, &to) && !fstat(STDOUT_FILENO, &out) &&
                                  to.st_dev == out.st_dev && to.st_ino == out.st_ino);
}

int file_try(const char *path, char *why)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat sb;
    const int there = !stat(path, &sb);
    if (is_stdout(path))
        return 0;
    if (file_was_read(path)) {
        snprintf(why, FILE_WHY, "would overwrite what the command reads");
        return -1;
    }
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    errno = !*path ? ENOENT : there && S_ISDIR(sb.st_mode) ? EISDIR : 0;
    if (!errno && !access(there ? path : folder, W_OK))
        return 0;
    snprintf(why, FILE_WHY, "%s", strerror(errno));
    return -1;
}

int file_starts(const char *at, size_t n, const void *text)
{
    return n >= strlen(text) && !memcmp(at, text, strlen(text));
}

int file_spare(const char *path, const FileOurs *ours, char *why)
{
    struct stat st;
    int fd = is_stdout(path) ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int goes = fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size == 0;
    if (!goes) {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        goes = at != MAP_FAILED && ours->is(at, (size_t)st.st_size, ours->of);
        if (at != MAP_FAILED)
            munmap(at, (size_t)st.st_size);
    }
    if (fd >= 0)
        close(fd);
    snprintf(why, FILE_WHY, "%s%s", goes ? "" : "exists and is not ", goes ? "" : ours->what);
    return goes ? 0 : -1;
}

FILE *file_begin_ours(FileWhole *w, const char *path, const FileOurs *ours)
{
    *w = (FileWhole){.path = path};
    return file_spare(path, ours, w->why) ? NULL : file_begin(w, path);
}

/* Of the owner and mode of what is there; NULL: errno. */
static FILE *begin_beside(FileWhole *w, const struct stat *there)
{
    if (asprintf(&w->beside, "%s.tmp%ld", w->place, (long)getpid()) < 0) {
        w->beside = NULL;
        return NULL;
    }
    FILE *f = file_new(w->beside);
    if (f && (!there || (!fchown(fileno(f), there->st_uid, there->st_gid) &&
                         !fchmod(fileno(f), there->st_mode & 07777))))
        return f;
    const int e = errno;
    if (f) {
        fclose(f);
        unlink(w->beside);
    }
    free(w->beside);
    w->beside = NULL;
    errno = e;
    return NULL;
}

FILE *file_begin(FileWhole *w, const char *path)
{
    struct stat st;
    *w = (FileWhole){.path = path};
    if (file_try(path, w->why))
        return NULL;
    const int there = !lstat(path, &st);
    w->place = there ? realpath(path, NULL) : strdup(path);
    errno = 0;
    if (is_stdout(path))
        w->f = stdout;
    else if (w->place && (!there || (!stat(path, &st) && S_ISREG(st.st_mode) && st.st_nlink == 1)))
        w->f = begin_beside(w, there ? &st : NULL);
    if (!w->f && errno != ENOSPC && errno != EDQUOT)
        w->f = fopen(path, "wb");
    const int e = errno;
    if (!w->f)
        file_drop(w);
    snprintf(w->why, FILE_WHY, "%s", w->f ? "" : strerror(e));
    errno = 0;
    return w->f;
}

void file_drop(FileWhole *w)
{
    if (w->f && w->f != stdout)
        fclose(w->f);
    if (w->beside)
        unlink(w->beside);
    free(w->beside);
    free(w->place);
    w->f = NULL;
    w->beside = w->place = NULL;
}

static int fail(FileWhole *w, int e)
{
    file_drop(w);
    snprintf(w->why, FILE_WHY, "%s", strerror(e ? e : EIO));
    return -1;
}

int file_finish(FileWhole *w)
{
    if (ferror(w->f) || fflush(w->f) || (w->beside && fsync(fileno(w->f))))
        return fail(w, errno);
    FILE *f = w->f;
    w->f = NULL;
    return f != stdout && fclose(f) ? fail(w, errno) : 0;
}

int file_place(FileWhole *w)
{
    if (w->beside && rename(w->beside, w->place))
        return fail(w, errno);
    free(w->beside);
    w->beside = NULL;
    file_drop(w);
    return 0;
}

int file_end(FileWhole *w) { return file_finish(w) ? -1 : file_place(w); }

static int inner(int folder, const char *name)
{
    return openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int file_remove(const char *folder, const char *name)
{
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (const char *slash; at >= 0 && (slash = strchr(name, '/')) != NULL; name = slash + 1) {
        char part[NAME_MAX + 1];
        int n = snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        int next = n < (int)sizeof part && strcmp(part, "..") ? inner(at, part) : -1;
        int e = next < 0 && errno == ENOENT ? ENOENT : ENOTDIR;
        close(at);
        errno = e;
        at = next;
    }
    int bad = at < 0 || unlinkat(at, name, 0), e = errno;
    if (at >= 0)
        close(at);
    errno = e;
    return bad && e != ENOENT ? -1 : 0;
}

int folder_clear(const char *path)
{
    struct stat sb;
    if (lstat(path, &sb))
        return -1;
    if (S_ISLNK(sb.st_mode))
        return unlink(path);
    int fd = inner(AT_FDCWD, path), e;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        e = errno;
        if (fd >= 0)
            close(fd);
        errno = e;
        return -1;
    }
    for (struct dirent *f; (f = readdir(d)) != NULL;)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0)
            unlinkat(fd, f->d_name, 0);
    closedir(d);
    return rmdir(path);
}
