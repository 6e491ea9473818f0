/*
 * index_steps.c - in: a folder of checkpoints; out: which are there, and the newest that is whole.
 */
#include "index.h"
#include "memory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* any: whether it has an index or not */
static int is_step(const char *folder, const char *name, int any, int64_t *step)
{
    char *end;
    POOL(room);
    if (strncmp(name, "step_", 5) != 0 || name[5] < '0' || name[5] > '9')
        return 0;
    errno = 0;
    *step = strtoll(name + 5, &end, 10);
    if (*end || errno)
        return 0;
    const char *path = pool_print(&room, "%s/%s", folder, name);
    return path && (any || index_there(path));
}

int64_t *index_steps(const char *folder, int any, int *n)
{
    int64_t *list = NULL, step, *at;
    DIR *d = opendir(folder);
    *n = d ? 0 : -1;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (is_step(folder, e->d_name, any, &step) && (at = memory_added(&list, n, sizeof *list)))
            *at = step;
    if (d)
        closedir(d);
    if (list)
        qsort(list, (size_t)*n, sizeof *list, ascending);
    return list;
}

int index_newest(Index *x, const char *folder, int64_t below, char *err, size_t nerr)
{
    int n, found = 0;
    int64_t own;
    char other[INDEX_ERR];
    const char *slash = strrchr(folder, '/');
    *x = (Index){0};
    err[0] = 0;
    if (index_there(folder))
        return !index_open(x, folder, err, nerr);
    int64_t *step = index_steps(folder, 1, &n);
    if (n < 0 && errno != ENOENT && errno != ENOTDIR)
        snprintf(err, nerr, "%s: %s", folder, strerror(errno));
    if (!n && is_step("", slash ? slash + 1 : folder, 1, &own))
        return !index_open(x, folder, err, nerr); /* which says what it lacks */
    while (n-- > 0 && !found) {
        POOL(room);
        const char *path = pool_print(&room, "%s/step_%" PRId64, folder, step[n]);
        found = step[n] < below && path &&
                !index_open(x, path, err[0] ? other : err, err[0] ? sizeof other : nerr);
    }
    free(step);
    return found;
}
