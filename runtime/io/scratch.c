/*
 * scratch.c - files without a name for what a run keeps on a disk while it lasts: nothing is left
 * behind however it ends.  All the room is taken at once, so that a full disk is found before the
 * first step.
 */
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Room for all of it, or why there is none; where the file system cannot say, its free space. */
static int take_room(int fd, int64_t bytes)
{
    struct statvfs disk;
    int e;
    do
        e = bytes > 0 && fallocate(fd, 0, 0, bytes) ? errno : 0;
    while (e == EINTR);
    if (e != EOPNOTSUPP && e != ENOSYS)
        return e;
    if (!fstatvfs(fd, &disk) && (double)disk.f_bavail * (double)disk.f_frsize < (double)bytes)
        return ENOSPC;
    return ftruncate(fd, bytes) ? errno : 0;
}

int scratch_file(int *fd, int64_t bytes, const char *folder)
{
    char name[PATH_MAX];
    *fd = -1;
    if (snprintf(name, sizeof name, "%s/.ppsplit.XXXXXX", folder) >= (int)sizeof name)
        return ENAMETOOLONG;
    *fd = mkostemp(name, O_CLOEXEC);
    if (*fd < 0)
        return errno;
    unlink(name);
    return take_room(*fd, bytes);
}

PpStatus scratch_open(int *fd, int64_t bytes, int rank, const char *option, const char *folder)
{
    int e = scratch_file(fd, bytes, folder);
    if (!e)
        return PP_OK;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return pp_fail(PP_ERR_IO, "%s: %s %s: %s%s%" PRId64 " bytes", pp_rank(rank).text, option,
                   folder, strerror(e),
                   e == ENOSPC || e == EFBIG || e == EDQUOT ? ": it takes " : ", for ", bytes);
}
