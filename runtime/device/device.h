/*
 * device.h - where a rank's tensors are, and what the runtime itself does with them: one interface
 * for the CPU and CUDA, and the list of devices in this program.
 *
 * Work goes into the streams of the rank, in order within each: one per stage for compute, one per
 * direction for copies.  An event orders streams among each other, and the host after them.  On the
 * CPU everything is done when a call returns, and streams and events do nothing.  Functions do not
 * return failures: the first one is kept (CUDA: per thread), and error() returns it.
 */
#ifndef PP_RUNTIME_DEVICE_H
#define PP_RUNTIME_DEVICE_H

#include "api/pp.h"
#include "core/status.h"
#include "optim/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From the host and from other ranks' staging; to them; both ways for what is kept on the host;
 * what members do together beside computations.  0, 1, ...: stages */
enum { STREAM_IN = -1, STREAM_OUT = -2, STREAM_STORE = -3, STREAM_MEMBERS = -4 };

typedef void *DeviceEvent;
typedef struct Device Device;

/* `outer` times `rows` runs of so many bytes, and on either side the bytes from one to the next. */
typedef struct {
    int64_t outer, rows, run, to_outer, to_row, from_outer, from_row;
} DeviceRuns;

typedef struct {
    int number;  /* which device of the machine; the rest by the number of them */
    int stages;  /* of the rank */
    int overlap; /* two stages may run at the same time */
    int tf32;
} DeviceWish;

typedef struct {
    /* Settings of the process that must come before the driver's first call and before any thread;
     * nccl: it may be used. */
    void (*prepare)(int nccl);
    /* Devices of this machine; 0: none, error() says why */
    int (*count)(void);
    int (*open)(Device *d, const DeviceWish *w); /* 0 after a failure; on the rank's own thread */
    void (*close)(Device *d);                    /* of a failed open too */
    void (*enter)(Device *d);                    /* the calling thread works for this device */
    struct {
        void *(*alloc)(Device *d, int64_t bytes); /* NULL: there is no more */
        void (*release)(Device *d, void *p);
        void *(*alloc_host)(Device *d, int64_t bytes); /* for which copies need not wait */
        void (*release_host)(Device *d, void *p);
        /* Bytes of its memory that are in use now and were not when it was opened, by whatever
         * program; -1: not known */
        int64_t (*taken)(const Device *d);
    } memory;
    /* Host or device, either side */
    void (*copy)(Device *d, int stream, void *to, const void *from, int64_t bytes);
    /* Access to that device's memory, where there is such; before copy_to */
    void (*enable_peer)(Device *d, int number);
    void (*copy_to)(Device *d, int stream, Device *other, void *to, const void *from,
                    int64_t bytes);
    void (*copy_runs)(Device *d, int stream, void *to, const void *from, const DeviceRuns *r);
    void (*zero)(Device *d, int stream, void *p, int64_t bytes);
    struct {
        void (*add)(Device *d, int stream, void *to, const void *from, int64_t n, int dtype);
        /* Of float32, to the nearest of a half type, PP_BF16 or PP_F16 */
        void (*round)(Device *d, int stream, void *to, const void *from, int64_t n, int type);
        /* What the next two are about; 0: no memory */
        int (*params)(Device *d, const DeviceParam *list, int n);
        /* Sums of squares; the order of additions is optim_cpu.c's */
        void (*norms)(Device *d, int stream, double *sum);
        void (*update)(Device *d, int stream, const DeviceUpdate *u);
    } math;
    DeviceEvent (*event)(Device *d, int timed);
    void (*event_free)(Device *d, DeviceEvent e);
    void (*record)(Device *d, int stream, DeviceEvent e);
    /* What the stream gets from now on runs after e */
    void (*wait)(Device *d, int stream, DeviceEvent e);
    int (*done)(Device *d, DeviceEvent e);
    void (*sync)(Device *d, DeviceEvent e);                         /* the host waits */
    double (*elapsed)(Device *d, DeviceEvent from, DeviceEvent to); /* seconds */
    void (*context)(Device *d, int stage, PpCtx *c);                /* fills in stream and blas */
    /* For a function that waits for a number from the device: calls `run` again and again
     * meanwhile, which returns 0 when the wait may never end */
    void (*meanwhile)(Device *d, int (*run)(void *of), void *of);
    struct {
        /* How products of a half type are computed, for a run's first line: "by oneDNN with AMX" */
        const char *(*half)(int type);
        /* What the bits of results depend on: the device's instructions, libraries and their
           versions */
        void (*arithmetic)(int number, char *to, int size);
        void (*name)(const Device *d, char *to, int size); /* unique in the machine */
    } says;
    const char *(*error)(void); /* "": no failure on this thread */
} DeviceOps;

struct Device {
    const DeviceOps *op;
    int number;
    int64_t library;  /* device memory taken beside alloc(): workspaces of libraries, tables */
    int64_t pinned;   /* host memory taken beside alloc_host() */
    int current;      /* the stream that new work goes to: all work so far comes before it */
    DeviceEvent turn; /* orders the next stream after the current one */
    void *impl;
};

/* devices.c: one row per kind of device. */
extern const DeviceOps device_cpu, device_cuda;
typedef struct {
    const char *name;
    int kind;             /* PP_CPU, PP_CUDA */
    const DeviceOps *ops; /* NULL: not in this program */
} DeviceRow;
const char *device_name(int i); /* NULL past the end */
const DeviceRow *device_of(int kind);
const DeviceRow *device_named(const char *name); /* NULL: there is no such */
/* opens the device for the rank with that number on its machine */
int device_number(const DeviceOps *op, int host_rank);
PpStatus device_check(const Device *d, int rank, const char *what); /* has anything failed */

/* streams.c: the order of streams among each other. */
/* `current` becomes `stream`, after all work so far */
void device_switch(Device *d, int stream);
/* Both come after all work so far; `current` becomes `first` */
void device_fork(Device *d, int first, int second);
void device_join(Device *d, int first, int second); /* `current` becomes `second`, after both */

/* NCCL where it was there at build: the few calls that transports need.  Functions return 0 after a
 * failure. */
typedef struct {
    int (*id)(void *to); /* NCCL_ID bytes */
    int (*processors)(Device *d); /* the device's multiprocessors */
    /* A communicator of so many ranks, and a stream for it; waits for the others.  blocks: what its
     * kernels may hold of the device while they wait. */
    void *(*join)(Device *d, const void *id, int rank, int ranks, int blocks);
    void (*leave)(void *comm, int broken);
    void (*begin)(void); /* what is posted up to end() is posted together */
    void (*end)(void);
    void (*post)(void *comm, int peer, int send, void *buf, int64_t bytes);
    void (*after)(void *comm, DeviceEvent e); /* its stream waits */
    void (*record)(void *comm, DeviceEvent e);
    int (*alive)(void *comm); /* 0: another rank of it has failed */
} NcclOps;
enum { NCCL_ID = 128 };
extern const NcclOps nccl_ops;
const NcclOps *device_nccl(void); /* NULL: not in this program */

#ifdef __cplusplus
}
#endif
#endif
