/*
 * runtime.c - where the runtime of this very ppsplit has been compiled, for the outputs that it
 * writes to link: by `make` beside build/ppsplit, by `make install` below the same PREFIX.
 */
#include "command.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *compiled_runtime(Arena *a)
{
    static const char *const prefix[] = {"/handed", "/.."};
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return NULL;
    exe[n] = '\0';
    *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++) {
        const char *place = arena_printf(a, "%s%s", exe, prefix[i]);
        if (access(arena_printf(a, "%s/lib/pkgconfig/ppsplit-runtime.pc", place), R_OK))
            continue;
        char *real = realpath(place, NULL);
        const char *found = real ? arena_strdup(a, real) : NULL;
        free(real);
        return found;
    }
    return NULL;
}
