/*
 * launch.c - in: the environment of a process that is a rank; out: lines for out/run, and what a
 * signal to the launcher will do.
 */
#include "launch.h"

#include "core/core.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_run, by_mpirun; /* as it was before MPI, which sets variables of its own */
static int hears;             /* out/run is told by rank 0, as all ranks know */

static int tell(const char *line)
{
    const char *path = getenv("PP_RUN");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0)
        return 0;
    size_t n = strlen(line);
    int told = write(fd, line, n) == (ssize_t)n;
    close(fd);
    return told;
}

void launch_begin(int rank, int saves)
{
    char line[80];
    by_run = getenv("PP_RUN") != NULL;
    by_mpirun = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
    snprintf(line, sizeof line, "rank %d %ld %s\n", rank, (long)getpid(), saves ? "saves" : "ends");
    tell(line);
}

PpStatus launch_joined(Group *world)
{
    double told = world->rank == 0 && tell("ready\n");
    TRY(world->op->sum(world, &told, 1));
    hears = told > 0;
    return PP_OK;
}

int launch_end(const Group *world, int status)
{
    char line[40];
    snprintf(line, sizeof line, "status %d\n", status);
    return hears && (world->rank != 0 || tell(line)) ? 0 : status;
}

const char *launch_signals(void)
{
    return by_run      ? "Ctrl-C, SIGTERM, SIGHUP"
           : by_mpirun ? "SIGUSR2 to mpirun"
                       : "SIGTERM or SIGUSR2, where the launcher passes it on";
}

const char *launch_warning(void)
{
    return by_run || !by_mpirun ? ""
                                : "; at Ctrl-C and SIGTERM mpirun kills the ranks after a second, "
                                  "and nothing is saved: start with out/run instead";
}
