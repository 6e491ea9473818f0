/*
 * transport_mpi.c - ranks are processes under mpirun: MPI_Isend and MPI_Irecv, all calls from one thread.
 * Without PP_MPI (no mpicc when the program was built) only mpi_wanted() does something, so that the
 * program can say what is missing.
 */
#ifdef PP_MPI
#include <mpi.h>
#if defined OPEN_MPI && defined __has_include
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif
#endif
#include "transport.h"

#include <stdlib.h>
#include <string.h>

int mpi_wanted(int *rank, int *ranks)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    *rank = 0;
    *ranks = 0;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) {
            *rank = atoi(getenv(names[i]));
            break;
        }
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (getenv(sizes[i])) {
            *ranks = atoi(getenv(sizes[i]));
            break;
        }
    return *ranks > 0 || getenv("PMIX_RANK") != NULL;
}

#ifndef PP_MPI

int mpi_built(void) { return 0; }
int mpi_device_pointers(void) { return 0; }

PpStatus mpi_transport(int *argc, char ***argv, Transport *t)
{
    (void)argc, (void)argv, (void)t;
    return PP_ERR_USAGE;
}

void mpi_close(void) {}

#else

/* Counts are ints: a large message is counted in blocks of 64 bytes, and every tensor's room is a multiple of that. */
enum { LARGE = 1 << 30, BLOCK = 64 };
static MPI_Datatype block_type; /* made once, by the only thread that calls MPI */

_Static_assert(sizeof(MPI_Request) <= 16, "PpRequest.native is too small");

static PpStatus checked(int e) { return e == MPI_SUCCESS ? PP_OK : PP_ERR_IO; }

static MPI_Datatype unit(int64_t bytes, int *count)
{
    *count = (int)(bytes < LARGE ? bytes : (bytes + BLOCK - 1) / BLOCK);
    return bytes < LARGE ? MPI_BYTE : block_type;
}

static PpStatus send(Transport *t, int peer, int64_t tag, const void *buf, int64_t bytes, PpRequest *r)
{
    MPI_Request q;
    int count;
    (void)t;
    MPI_Datatype type = unit(bytes, &count);
    TRY(checked(MPI_Isend(buf, count, type, peer, (int)tag, MPI_COMM_WORLD, &q)));
    memcpy(&r->native, &q, sizeof q);
    return PP_OK;
}

static PpStatus recv(Transport *t, int peer, int64_t tag, void *buf, int64_t bytes, PpRequest *r)
{
    MPI_Request q;
    int count;
    (void)t;
    MPI_Datatype type = unit(bytes, &count);
    TRY(checked(MPI_Irecv(buf, count, type, peer, (int)tag, MPI_COMM_WORLD, &q)));
    memcpy(&r->native, &q, sizeof q);
    return PP_OK;
}

static PpStatus wait_for(Transport *t, PpRequest *r)
{
    MPI_Request q;
    (void)t;
    memcpy(&q, &r->native, sizeof q);
    return checked(MPI_Wait(&q, MPI_STATUS_IGNORE));
}

static PpStatus test(Transport *t, PpRequest *r, int *done)
{
    MPI_Request q;
    (void)t;
    memcpy(&q, &r->native, sizeof q);
    PpStatus s = checked(MPI_Test(&q, done, MPI_STATUS_IGNORE));
    memcpy(&r->native, &q, sizeof q);
    return s;
}

static void poll(Transport *t)
{
    int flag;
    (void)t;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

static PpStatus sum(Transport *t, double *v, int n)
{
    (void)t;
    return checked(MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
}

static PpStatus gather(Transport *t, const void *mine, int64_t bytes, void *all)
{
    (void)t;
    return checked(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD));
}

static void fail(Transport *t, PpStatus why)
{
    (void)t;
    MPI_Abort(MPI_COMM_WORLD, (int)why);
}

/* The others of a job that is aborted are ended from outside. */
static int failed(Transport *t)
{
    (void)t;
    return 0;
}

int mpi_built(void) { return 1; }

/* Open MPI says so at run time; MPICH and its kin are told by the user, in the environment, and believed. */
int mpi_device_pointers(void)
{
#if defined MPIX_CUDA_AWARE_SUPPORT
    return MPIX_Query_cuda_support() == 1;
#else
    const char *mpich = getenv("MPICH_GPU_SUPPORT_ENABLED"), *mvapich = getenv("MV2_USE_CUDA");
    return (mpich && !strcmp(mpich, "1")) || (mvapich && !strcmp(mvapich, "1"));
#endif
}

PpStatus mpi_transport(int *argc, char ***argv, Transport *t)
{
    static const TransportOps ops = {"mpi", send, recv, wait_for, test, poll, sum, gather, fail, failed};
    int level, flag, *tag_ub = NULL;
    MPI_Comm host;
    TRY(checked(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level)));
    *t = (Transport){.op = &ops};
    MPI_Comm_rank(MPI_COMM_WORLD, &t->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t->ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &t->host_ranks);
    MPI_Comm_rank(host, &t->host_rank);
    MPI_Comm_free(&host);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &flag);
    t->tag_max = flag ? *tag_ub : 32767;
    MPI_Type_contiguous(BLOCK, MPI_BYTE, &block_type);
    MPI_Type_commit(&block_type);
    return PP_OK;
}

void mpi_close(void)
{
    MPI_Type_free(&block_type);
    MPI_Finalize();
}

#endif
