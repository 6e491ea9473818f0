/*
 * folders.c - names of files and folders; folders made with their parents, made durable.
 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void folder_above(char *path)
{
    char *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/')
        *--end = 0;
    char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path] = 0;
}

int files_same(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino &&
           !S_ISCHR(x.st_mode);
}

PpStatus folder_make(const char *option, const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof part)
        return pp_fail(PP_ERR_IO, "%s %s: name too long", option, path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        struct stat sb;
        if (mkdir(part, 0777) && (errno != EEXIST || stat(part, &sb) || !S_ISDIR(sb.st_mode)))
            return pp_fail(PP_ERR_IO, "%s %s: %s", option, part,
                           strerror(errno == EEXIST ? ENOTDIR : errno));
    }
    return PP_OK;
}

int folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || fsync(fd), e = errno;
    if (fd >= 0)
        close(fd);
    errno = e;
    return bad;
}
