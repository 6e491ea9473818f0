/*
 * mpi.c - run by mpi.t on two ranks: 64 MB go from one to the other while neither is in a call of
 * MPI; a call that fails is told and does not end the process.  usage: mpi FILE SECONDS, a file of
 * 4 zero bytes for what the two say to each other meanwhile, and their patience.
 */
#include "core/core.h"
#include "net/group.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 64 << 20, FULL = 7 };

int main(int argc, char **argv)
{
    Group world = {0};
    Request r;
    char *room = calloc(1, BYTES), *want = malloc(BYTES);
    if (!room || !want || mpi_open(&argc, &argv, &world) != PP_OK || argc < 3)
        return 1;
    atomic_int *over =
        mmap(NULL, sizeof *over, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[1], O_RDWR), 0);
    memset(want, FULL, BYTES);
    PpStatus s = world.rank == 0 ? world.op->send(&world, 1, 1, want, BYTES, &r)
                                 : world.op->recv(&world, 0, 1, room, BYTES, &r);
    double end = pp_now() + atof(argv[2]); /* they compute: */
    if (world.rank == 1) {
        while (*(volatile char *)(room + BYTES - 1) != FULL && pp_now() < end)
            ;
        printf("while they compute: %s\n", pp_now() < end ? "arrived" : "not arrived");
        atomic_store(over, 1);
    } else {
        while (!atomic_load(over) && pp_now() < end + 1)
            ;
    }
    s = s == PP_OK ? world.op->wait(&world, &r) : s;
    if (world.rank == 1) {
        printf("what arrived: %s\n", s == PP_OK && !memcmp(room, want, BYTES) ? "the same" : "not");
        s = world.op->send(&world, 99, 1, room, 8, &r);
        printf("to nobody: %d, %s\n", (int)s, pp_failure_text());
    }
    mpi_close(&world);
    return 0;
}
