/*
 * fail_alloc.c - preloaded, lets allocations of a program fail: those that the program's own code or
 * a library makes for it (malloc, calloc, realloc, aligned ones) after main has begun.
 *
 *   FAIL_ALLOC=N        allocation N fails.  FAIL_ALLOC_SAID: a file that gets how many there were.
 *   FAIL_ALLOC_EACH=DIR of one process, without threads: at an allocation the process forks, in the
 *                       child it fails, and when that has ended the parent goes on as if nothing had
 *                       been: a failure costs what comes after it, not what came before.  FAIL_ALLOC
 *                       is the first; after each the line "N STATUS LIVE" goes to descriptor 8, and
 *                       the next, a line too, comes from descriptor 9 (0: no other).
 *
 * STATUS is the child's exit status, 128 + the signal's number of one that a signal ended; LIVE, how
 * many allocations it had not freed at its exit (-1: it did not come there).  The child's current
 * folder is DIR/N, a copy of the parent's: files that are open for writing are copied, others are
 * links; and its standard error is DIR/N.err.  At its end the parent says "0 0 LIVE" of itself.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

enum { SAYS = 8, ASKED = 9 };

static long seen, live, fails_at = -1;
static const char *each;        /* DIR, in the parent */
static long *at_exit;           /* shared with a child: its LIVE */
static bool child, forking;     /* forking: what the copy takes is not the program's */

static _Noreturn void cannot(const char *what)
{
    perror(what);
    _exit(125);
}

/* After the constructors of the libraries: what those take is not the program's. */
__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_ALLOC");
    each = getenv("FAIL_ALLOC_EACH");
    if (each) {
        at_exit = mmap(NULL, sizeof *at_exit, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0);
        if (at_exit == MAP_FAILED)
            cannot("mmap");
    }
    seen = 0;
    fails_at = at ? atol(at) : 0;
}

/* ---- a folder of the child's own ---- */

static void copy_folder(int from, int to)
{
    DIR *d = fdopendir(from);
    if (!d)
        cannot("fdopendir");
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (e->d_type != DT_DIR) {
            if (linkat(from, e->d_name, to, e->d_name, 0))
                cannot(e->d_name);
            continue;
        }
        if (mkdirat(to, e->d_name, 0777))
            cannot(e->d_name);
        int below = openat(to, e->d_name, O_RDONLY | O_DIRECTORY);
        copy_folder(openat(from, e->d_name, O_RDONLY | O_DIRECTORY), below);
        close(below);
    }
    closedir(d);
}

/* Descriptor `fd` becomes one of the file at `path` below the current folder. */
static void reopen(int fd, const char *path)
{
    int flags = fcntl(fd, F_GETFL), from = fd, to;
    off_t at = lseek(fd, 0, SEEK_CUR), done = 0;
    struct stat s;
    if (fstat(fd, &s))
        cannot(path);
    if (!S_ISDIR(s.st_mode)) { /* a link so far */
        char own[64];
        snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
        from = open(own, O_RDONLY | O_CLOEXEC);
        if (from < 0 || unlink(path))
            cannot(path);
        to = open(path, O_WRONLY | O_CREAT | O_EXCL, s.st_mode & 0777);
        while (to >= 0 && done < s.st_size && sendfile(to, from, &done, (size_t)s.st_size) > 0)
            ;
        close(to);
        close(from);
    }
    to = open(path, flags & ~(O_CREAT | O_EXCL | O_TRUNC));
    if (to < 0 || (at > 0 && lseek(to, at, SEEK_SET) != at) ||
        dup3(to, fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
        cannot(path);
    close(to);
}

/* Folders, and files that are written. */
static void reopen_all(const char *before)
{
    size_t n = strlen(before);
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX];
        ssize_t length = readlinkat(dirfd(d), e->d_name, path, sizeof path - 1);
        int fd = atoi(e->d_name);
        path[length > 0 ? length : 0] = 0;
        if (fd == dirfd(d) || strncmp(path, before, n) || path[n] != '/')
            continue;
        struct stat s;
        if (!fstat(fd, &s) &&
            (S_ISDIR(s.st_mode) || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY))
            reopen(fd, path + n + 1);
    }
    closedir(d);
}

static void move_away(long n)
{
    char before[PATH_MAX], own[PATH_MAX];
    if (!getcwd(before, sizeof before))
        cannot("getcwd");
    snprintf(own, sizeof own, "%s/%ld.err", each, n);
    int err = open(own, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (err < 0 || dup2(err, 2) < 0 || close(err))
        cannot(own);
    *strrchr(own, '.') = 0;
    int to = mkdir(own, 0777) ? -1 : open(own, O_RDONLY | O_DIRECTORY);
    if (to < 0)
        cannot(own);
    copy_folder(open(before, O_RDONLY | O_DIRECTORY), to);
    close(to);
    if (chdir(own))
        cannot(own);
    reopen_all(before);
}

/* ---- one allocation ---- */

static void say(long n, int status, long left)
{
    char line[80];
    int length = snprintf(line, sizeof line, "%ld %d %ld\n", n, status, left);
    if (write(SAYS, line, (size_t)length) != length)
        cannot("descriptor 8");
}

static long ask(void)
{
    char line[24];
    ssize_t n = read(ASKED, line, sizeof line - 1);
    line[n > 0 ? n : 0] = 0;
    return atol(line);
}

/* Whether this process is the child, in which it fails. */
static bool fork_here(void)
{
    int status;
    forking = true;
    *at_exit = -1;
    pid_t pid = fork();
    if (pid < 0)
        cannot("fork");
    if (pid == 0) {
        move_away(fails_at);
        child = true;
        forking = false;
        return true;
    }
    waitpid(pid, &status, 0);
    say(fails_at, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), *at_exit);
    fails_at = ask();
    forking = false;
    return false;
}

static bool fails(void)
{
    if (forking)
        return false;
    bool now = fails_at >= 0 && __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) == fails_at;
    if (now && each && !child)
        now = fork_here();
    if (now)
        errno = ENOMEM;
    else
        __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
    return now;
}

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *aligned_alloc(size_t a, size_t n) { return fails() ? NULL : __libc_memalign(a, n); }
void *memalign(size_t a, size_t n) { return fails() ? NULL : __libc_memalign(a, n); }

void *realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    if (p && !forking)
        __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    return __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t a, size_t n)
{
    *out = fails() ? NULL : __libc_memalign(a, n);
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    if (p && !forking)
        __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
    __libc_free(p);
}

__attribute__((destructor)) static void report(void)
{
    const char *to = getenv("FAIL_ALLOC_SAID");
    char text[24];
    if (child) {
        *at_exit = live;
        return;
    }
    if (each)
        say(0, 0, live);
    int fd = to ? open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (fd < 0)
        return;
    int n = snprintf(text, sizeof text, "%ld\n", seen);
    if (write(fd, text, (size_t)n) < 0)
        fails_at = -1;
    close(fd);
}
