/*
 * transport.h - how ranks talk: nonblocking messages into planned buffers, and three small collectives.
 *
 * A message is named by (peer, tag); messages of one name arrive in the order in which they were sent.  A send's
 * buffer is the transport's until wait() returns for it; so is a receive's.  Functions return PP_ERR_PEER once any rank
 * has failed, so nobody waits for the dead.
 */
#ifndef PP_TRANSPORT_H
#define PP_TRANSPORT_H

#include "status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct PpRequest {
    union {
        void *pointer;
        char bytes[16];
    } native;               /* MPI_Request */
    struct PpRequest *next; /* local: in a mailbox */
    void *buf;
    int64_t bytes, tag;
    int peer, rank; /* local: sender and receiver by is_send */
    int is_send;
    int done; /* local: atomic */
    /* local: how the message gets from one to the other, where it is no copy of the host's */
    void (*carry)(struct PpRequest *send, struct PpRequest *recv);
    void *side;
} PpRequest;

typedef struct Transport Transport;

typedef struct {
    const char *name;
    PpStatus (*send)(Transport *t, int peer, int64_t tag, const void *buf, int64_t bytes, PpRequest *r);
    PpStatus (*recv)(Transport *t, int peer, int64_t tag, void *buf, int64_t bytes, PpRequest *r);
    PpStatus (*wait)(Transport *t, PpRequest *r);
    PpStatus (*test)(Transport *t, PpRequest *r, int *done); /* once it is done, neither this nor wait() again */
    void (*poll)(Transport *t);                              /* lets messages under way move on */
    PpStatus (*sum)(Transport *t, double *v,
                    int n); /* in place, every rank gets it; exact where one rank at most has a nonzero */
    PpStatus (*gather)(Transport *t, const void *mine, int64_t bytes,
                       void *all);            /* every rank gets all, in rank order */
    void (*fail)(Transport *t, PpStatus why); /* this rank gives up: all others stop (mpi: does not return) */
    int (*failed)(Transport *t);              /* another one has */
} TransportOps;

struct Transport {
    const TransportOps *op;
    int rank, ranks;
    int host_ranks; /* ranks on this machine */
    int host_rank;  /* this one's number among them */
    int64_t tag_max;
    void *impl;
};

/* transport_local.c: ranks are threads of this process. */
typedef struct LocalHub LocalHub;
LocalHub *local_hub_new(int ranks, int cores);
void local_hub_free(LocalHub *h);
void local_transport(LocalHub *h, int rank, Transport *t);
/* As send and recv, but the rank that posts second calls carry(send, recv) instead of copying. */
PpStatus local_carry(Transport *t, int send, int peer, int64_t tag, void *buf, int64_t bytes, PpRequest *r,
                     void (*carry)(PpRequest *send, PpRequest *recv), void *side);

/* transport_mpi.c */
int mpi_wanted(int *rank, int *ranks); /* started by mpirun, srun or alike? rank by the environment, 0 if unknown */
int mpi_built(void);
int mpi_device_pointers(void); /* may messages lie in CUDA memory? */
PpStatus mpi_transport(int *argc, char ***argv, Transport *t);
void mpi_close(void);

#endif
