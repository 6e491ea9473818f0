/*
 * group.h - a group of processes or threads and its communication: nonblocking messages into
 * planned buffers, and small collectives.  A rank is one number in each group that it belongs to:
 * the whole run, its pipeline, and the ranks of the same number in all replicas of the pipeline;
 * everything that concerns a group takes it as an argument.
 *
 * A message is named by (peer, tag); messages of one name arrive in the order in which they were
 * sent.  The buffer of a send or receive belongs to the transport until wait() returns for it.
 * Functions return PP_ERR_PEER once any rank has failed, so that nobody waits for a dead rank.
 */
#ifndef PP_GROUP_H
#define PP_GROUP_H

#include "core/status.h"
#include "base/file/memory.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Request {
    union {
        void *pointer;
        char bytes[16];
    } native; /* MPI_Request */
    int64_t bytes;
    struct Request *next; /* local: in a mailbox */
    void *buf;
    int64_t tag;
    int peer, rank; /* local: sender and receiver by is_send */
    int is_send;
    int done; /* local: atomic */
    /* local: how the message gets from one to the other, where it is no copy of the host's */
    void (*carry)(struct Request *send, struct Request *recv);
    void *side;
} Request;

typedef struct Group Group;

typedef struct {
    const char *name;
    PpStatus (*send)(Group *g, int peer, int64_t tag, const void *buf, int64_t bytes, Request *r);
    PpStatus (*recv)(Group *g, int peer, int64_t tag, void *buf, int64_t bytes, Request *r);
    PpStatus (*wait)(Group *g, Request *r);
    /* Once it is done, neither this nor wait() again */
    PpStatus (*test)(Group *g, Request *r, int *done);
    void (*poll)(Group *g); /* lets messages under way move on */
    /* In place, every rank gets it; exact where one rank at most has a nonzero. */
    PpStatus (*sum)(Group *g, double *v, int n);
    /* Every rank gets all, in rank order */
    PpStatus (*gather)(Group *g, const void *mine, int64_t bytes, void *all);
    /* This rank gives up: all others stop (mpi: does not return) */
    void (*fail)(Group *g, PpStatus why);
    int (*failed)(Group *g); /* another one has */
} GroupOps;

struct Group {
    const GroupOps *op;
    int rank, ranks;
    int processes;     /* its ranks are processes; else threads of this one */
    int host_ranks;    /* ranks on this machine */
    int host_rank;     /* this one's number among them */
    int first, stride; /* member i is number first + i * stride of the whole run */
    int64_t tag_max;
    void *impl; /* its communicator */
};

/* group.c */
/* Every rank hands in its status; if any failed, the first one's message is printed once and all
 * get a failure. */
PpStatus group_agree(Group *g, PpStatus mine);
/* *all, a pointer, becomes what every rank hands in, in rank order.  A rank that has no memory for
 * it gives up. */
PpStatus group_gather(Group *g, const void *mine, size_t bytes, Pool *pool, void *all);
/* One message of a name of its own, beside those of a step; all ranks of the two know that it
 * comes. */
PpStatus group_send(Group *g, int peer, const void *buf, int64_t bytes);
PpStatus group_recv(Group *g, int peer, void *buf, int64_t bytes);

/* group_local.c: ranks are threads of this process. */
typedef struct LocalHub LocalHub;
LocalHub *local_hub_new(int ranks, int cores); /* NULL: no memory */
void local_hub_free(LocalHub *h);
Group local_group(LocalHub *h, int rank); /* all of them */
/* Some of the whole run's: part->first, stride and so on are set.  Groups of one set have no rank in
 * common */
enum { LOCAL_SETS = 3 };
void local_part(const Group *g, int set, Group *part);
/* As send and recv of r's tag, buf and bytes, but the rank that posts second calls r->carry(send,
 * recv) instead of copying. */
PpStatus local_carry(Group *g, int send, int peer, Request *r);

/* transport_mpi.c: ranks are processes. */
/* Started by mpirun, srun or alike? rank by the environment, 0 if unknown */
int mpi_wanted(int *rank, int *ranks);
int mpi_built(void);
const char *mpi_version(void); /* "Open MPI v4.1.4, ..."; "" without */
/* Processes that a launcher other than mpirun has started together; 0: none, or one.  What a user
 * does instead. */
typedef struct {
    const char *name, *remedy;
    const char *each; /* a variable that is there where it has started this command several times */
} Launcher;
int launcher_tasks(const Launcher **by);
int mpi_device_pointers(void); /* may messages lie in CUDA memory? */
PpStatus mpi_open(int *argc, char ***argv, Group *world);
void mpi_close(Group *world);
/* Those that call it with the same color, in their order; all of the group call it.  part: as the
 * group, but for its ranks */
PpStatus mpi_part(const Group *g, int color, Group *part);
void mpi_part_close(Group *part);

#endif
