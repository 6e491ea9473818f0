/*
 * transport_mpi.c - ranks are processes under mpirun: MPI_Isend and MPI_Irecv, one call at a time.
 *
 * MPI moves a large message only while somebody is in one of its calls: both sides meet first, and
 * without hardware that copies by itself the processor then carries every piece (MPI 4.1, 2.9 on
 * progress).  While a stage computes nobody is, so a second thread looks after large messages from
 * when they are posted until they are waited for; it has a turn whenever the first one calls
 * nothing.
 *
 * Without PP_MPI (no mpicc when the program was built) only mpi_wanted() does something, so that
 * the program can say what is missing.
 */
#ifdef PP_MPI
#include <mpi.h>
#if defined OPEN_MPI && defined __has_include
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif
#endif
#include "group.h"

#include "core/core.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The first of these variables of the environment that is there, as a number; -1: none is. */
static int number_of(const char *const *name)
{
    for (; *name; name++)
        if (getenv(*name))
            return atoi(getenv(*name));
    return -1;
}

int mpi_wanted(int *rank, int *ranks)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                        NULL};
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", NULL};
    int r = number_of(names), n = number_of(sizes);
    *rank = r > 0 ? r : 0;
    *ranks = n > 0 ? n : 0;
    return n > 0 || getenv("PMIX_RANK") != NULL;
}

/* What starts several processes without telling them of each other by MPI. */
static const struct {
    Launcher of;
    const char *mark, *size[3];
} launchers[] = {
    {{"Slurm",
      "srun --mpi=pmix, or mpirun, starts them as ranks; --ranks N in a job of one task runs "
      "threads",
      "SLURM_STEP_NUM_TASKS"},
     "SLURM_JOB_ID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
    {{"torchrun",
      "mpirun starts them as ranks: mpirun -n N --hostfile hosts out/pipeline train ...",
      "TORCHELASTIC_RUN_ID"},
     "TORCHELASTIC_RUN_ID",
     {"WORLD_SIZE"}},
};

int launcher_tasks(const Launcher **by)
{
    for (unsigned i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        int n = getenv(launchers[i].mark) ? number_of(launchers[i].size) : 0;
        *by = &launchers[i].of;
        if (n > 1)
            return n;
    }
    return 0;
}

#ifndef PP_MPI

const char *mpi_version(void) { return ""; }
int mpi_built(void) { return 0; }
int mpi_device_pointers(void) { return 0; }

PpStatus mpi_open(int *argc, char ***argv, Group *world)
{
    (void)argc, (void)argv, (void)world;
    return PP_ERR_USAGE;
}

void mpi_close(Group *world) { (void)world; }

PpStatus mpi_part(const Group *g, int color, Group *part)
{
    (void)g, (void)color, (void)part;
    return PP_ERR_BUG;
}

void mpi_part_close(Group *part) { (void)part; }

#else

/* Counts are ints: a large message is counted in blocks of 64 bytes, and every tensor's room is a
 * multiple of that. */
enum { LARGE = 1 << 30, BLOCK = 64 };

typedef struct {
    MPI_Comm comm;
    MPI_Datatype block;
} MpiGroup;

static const MpiGroup *of(const Group *g) { return g->impl; }

_Static_assert(sizeof(MPI_Request) <= 16, "Request.native is too small");

/* ---- calls, one at a time ---- */

/* Looking after shorter ones costs more than it hides: with messages of 1 MiB a step of 1.1 s took
 * 3 % longer (two ranks on two cores). */
enum { LOOKED_AFTER = 4 << 20 };

static struct {
    pthread_mutex_t turn; /* whoever has it may call MPI */
    pthread_cond_t posted;
    pthread_t thread;
    atomic_int wanted; /* the first thread waits for its turn: it comes before the second */
    int large;         /* requests of large messages posted and not waited for */
    int running, ends;
} calls = {.turn = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER};

static void take_turn(void)
{
    atomic_fetch_add(&calls.wanted, 1);
    pthread_mutex_lock(&calls.turn);
    atomic_fetch_sub(&calls.wanted, 1);
}

static PpStatus after_call(int e)
{
    char why[MPI_MAX_ERROR_STRING];
    int n;
    int said = e != MPI_SUCCESS && MPI_Error_string(e, why, &n) == MPI_SUCCESS;
    pthread_mutex_unlock(&calls.turn);
    if (e == MPI_SUCCESS)
        return PP_OK;
    return pp_fail(PP_ERR_IO, "MPI: %s", said ? why : "an error without a text");
}

/* A call of MPI by the first thread. */
#define checked(call) (take_turn(), after_call(call))

/* A request of so many bytes is posted (1) or over (-1). */
static void count(int64_t bytes, int change)
{
    if (bytes < LOOKED_AFTER)
        return;
    pthread_mutex_lock(&calls.turn);
    calls.large += change;
    pthread_cond_signal(&calls.posted);
    pthread_mutex_unlock(&calls.turn);
}

/* ---- the second thread ---- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Until the next look.  One that took long has moved something, and more of it follows; a message
 * that waits for its other side needs few. */
static void pause_after(int64_t took)
{
    enum { MOVES = 4000, NAP = 500000 };
    if (took > MOVES)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
}

static void *look_after(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&calls.turn);
    while (!calls.ends) {
        if (!calls.large) {
            pthread_cond_wait(&calls.posted, &calls.turn);
            continue;
        }
        int64_t begin = now_ns();
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        int64_t took = now_ns() - begin;
        pthread_mutex_unlock(&calls.turn);
        do
            pause_after(took);
        while (atomic_load(&calls.wanted));
        pthread_mutex_lock(&calls.turn);
    }
    pthread_mutex_unlock(&calls.turn);
    return NULL;
}

/* MPI has to allow calls of two threads; else messages move between actions only. */
static void second_thread_starts(int level)
{
    calls.running =
        level >= MPI_THREAD_SERIALIZED && !pthread_create(&calls.thread, NULL, look_after, NULL);
}

static void second_thread_ends(void)
{
    if (!calls.running)
        return;
    pthread_mutex_lock(&calls.turn);
    calls.ends = 1;
    pthread_cond_signal(&calls.posted);
    pthread_mutex_unlock(&calls.turn);
    pthread_join(calls.thread, NULL);
    calls.running = 0;
}

/* ---- messages ---- */

static MPI_Datatype unit(const Group *g, int64_t bytes, int *blocks)
{
    *blocks = (int)(bytes < LARGE ? bytes : (bytes + BLOCK - 1) / BLOCK);
    return bytes < LARGE ? MPI_BYTE : of(g)->block;
}

static PpStatus posted(Request *r, MPI_Request q, int64_t bytes)
{
    memcpy(&r->native, &q, sizeof q);
    r->bytes = bytes;
    count(bytes, 1);
    return PP_OK;
}

static PpStatus send(Group *g, int peer, int64_t tag, const void *buf, int64_t bytes, Request *r)
{
    MPI_Request q;
    int blocks;
    MPI_Datatype type = unit(g, bytes, &blocks);
    TRY(checked(MPI_Isend(buf, blocks, type, peer, (int)tag, of(g)->comm, &q)));
    return posted(r, q, bytes);
}

static PpStatus recv(Group *g, int peer, int64_t tag, void *buf, int64_t bytes, Request *r)
{
    MPI_Request q;
    int blocks;
    MPI_Datatype type = unit(g, bytes, &blocks);
    TRY(checked(MPI_Irecv(buf, blocks, type, peer, (int)tag, of(g)->comm, &q)));
    return posted(r, q, bytes);
}

static PpStatus wait_for(Group *g, Request *r)
{
    MPI_Request q;
    (void)g;
    memcpy(&q, &r->native, sizeof q);
    count(r->bytes, -1);
    return checked(MPI_Wait(&q, MPI_STATUS_IGNORE));
}

static PpStatus test(Group *g, Request *r, int *done)
{
    MPI_Request q;
    (void)g;
    memcpy(&q, &r->native, sizeof q);
    PpStatus s = checked(MPI_Test(&q, done, MPI_STATUS_IGNORE));
    memcpy(&r->native, &q, sizeof q);
    if (*done)
        count(r->bytes, -1);
    return s;
}

static void poll(Group *g)
{
    int flag;
    (void)checked(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, of(g)->comm, &flag, MPI_STATUS_IGNORE));
}

static PpStatus sum(Group *g, double *v, int n)
{
    return checked(MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_DOUBLE, MPI_SUM, of(g)->comm));
}

static PpStatus gather(Group *g, const void *mine, int64_t bytes, void *all)
{
    return checked(
        MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, of(g)->comm));
}

static void fail(Group *g, PpStatus why)
{
    (void)g;
    MPI_Abort(MPI_COMM_WORLD, (int)why);
}

/* The others of a job that is aborted are ended from outside. */
static int failed(Group *g)
{
    (void)g;
    return 0;
}

int mpi_built(void) { return 1; }

const char *mpi_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    if (!text[0] && MPI_Get_library_version(text, &n) == MPI_SUCCESS)
        text[strcspn(text, "\n")] = 0;
    return text;
}

/* Open MPI says so at run time; MPICH and its kin are told by the user, in the environment, and
 * believed. */
int mpi_device_pointers(void)
{
#if defined MPIX_CUDA_AWARE_SUPPORT
    return MPIX_Query_cuda_support() == 1;
#else
    const char *mpich = getenv("MPICH_GPU_SUPPORT_ENABLED"), *mvapich = getenv("MV2_USE_CUDA");
    return (mpich && !strcmp(mpich, "1")) || (mvapich && !strcmp(mvapich, "1"));
#endif
}

/* The tags that the communicator has, and which of its ranks are on this machine. */
static PpStatus describe(Group *g)
{
    int flag, *tag_ub = NULL;
    MPI_Comm host;
    const MpiGroup *m = of(g);
    TRY(checked(MPI_Comm_rank(m->comm, &g->rank)));
    TRY(checked(MPI_Comm_size(m->comm, &g->ranks)));
    TRY(checked(MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host)));
    TRY(checked(MPI_Comm_size(host, &g->host_ranks)));
    TRY(checked(MPI_Comm_rank(host, &g->host_rank)));
    TRY(checked(MPI_Comm_free(&host)));
    TRY(checked(MPI_Comm_get_attr(m->comm, MPI_TAG_UB, &tag_ub, &flag)));
    g->tag_max = flag ? *tag_ub : 32767;
    return PP_OK;
}

PpStatus mpi_open(int *argc, char ***argv, Group *world)
{
    static const GroupOps ops = {"mpi", send, recv,   wait_for, test,
                                 poll,  sum,  gather, fail,     failed};
    int level;
    MpiGroup *m = calloc(1, sizeof *m);
    if (!m)
        return PP_ERR_IO;
    *world = (Group){.op = &ops, .processes = 1, .stride = 1, .impl = m};
    m->comm = MPI_COMM_WORLD;
    TRY(checked(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level)));
    if (level < MPI_THREAD_FUNNELED)
        return pp_fail(PP_ERR_IO,
                       "this MPI (%s) allows no threads in a process, and a rank has some: build "
                       "the program with an MPI that does",
                       mpi_version());
    /* Else a call that fails ends the process in MPI, before it can be said here. */
    TRY(checked(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)));
    second_thread_starts(level);
    TRY(checked(MPI_Type_contiguous(BLOCK, MPI_BYTE, &m->block)));
    TRY(checked(MPI_Type_commit(&m->block)));
    return describe(world);
}

PpStatus mpi_part(const Group *g, int color, Group *part)
{
    MpiGroup *m = calloc(1, sizeof *m);
    if (!m)
        return pp_no_memory();
    part->impl = m;
    m->block = of(g)->block;
    TRY(checked(MPI_Comm_split(of(g)->comm, color, g->rank, &m->comm)));
    TRY(checked(MPI_Comm_rank(m->comm, &part->rank)));
    return checked(MPI_Comm_size(m->comm, &part->ranks));
}

void mpi_part_close(Group *part)
{
    MpiGroup *m = part->impl;
    if (m)
        (void)checked(MPI_Comm_free(&m->comm));
    free(m);
    part->impl = NULL;
}

void mpi_close(Group *world)
{
    MpiGroup *m = world->impl;
    second_thread_ends();
    MPI_Type_free(&m->block);
    MPI_Finalize();
    free(m);
}

#endif
