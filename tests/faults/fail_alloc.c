/*
 * fail_alloc.c - preloaded, lets one allocation of a program fail: the one number $FAIL_ALLOC, of
 * those that the program's own code or a library makes for it (malloc, calloc, realloc, aligned
 * ones) after main has begun.  $FAIL_ALLOC_SAID: a file that gets how many there were.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static long seen, fails_at = -1;

/* After the constructors of the libraries: what those take is not the program's. */
__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_ALLOC");
    seen = 0;
    fails_at = at ? atol(at) : 0;
}

static int fails(void)
{
    if (fails_at < 0 || __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) != fails_at)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { return fails() ? NULL : __libc_memalign(a, n); }
void *memalign(size_t a, size_t n) { return fails() ? NULL : __libc_memalign(a, n); }
int posix_memalign(void **out, size_t a, size_t n)
{
    *out = fails() ? NULL : __libc_memalign(a, n);
    return *out ? 0 : ENOMEM;
}

__attribute__((destructor)) static void report(void)
{
    const char *to = getenv("FAIL_ALLOC_SAID");
    char text[24];
    int fd = to ? open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (fd < 0)
        return;
    int n = snprintf(text, sizeof text, "%ld\n", seen);
    if (write(fd, text, (size_t)n) < 0)
        fails_at = -1;
    close(fd);
}
