/*
 * device_cuda.h - what device_cuda.cu and optim_cuda.cu share: a rank's streams, handles and the
 * table of its parameters.
 */
#ifndef PP_DEVICE_CUDA_H
#define PP_DEVICE_CUDA_H

#include "device/device.h"
#include "api/pp_cuda_calls.h"

struct CudaStage {
    cudaStream_t stream;
    PpBlas blas;
    /* its own; NULL: it shares the first stage's */
    void *workspace, *list;
};

/* The optimizer's view of the rank's parameters, in device memory; see optim_cuda.cu. */
struct OptimEntry;
struct Optim {
    OptimEntry *entry;
    /* sums of squares: by block of 4,096 elements, by parameter of the model */
    double *part, *sum;
    int64_t parts, chunks;
    int64_t sums;
    int n;
    void *memory;
};

struct Cuda {
    cudaStream_t in, out, store, members;
    PpCounting counting;
    CudaStage *stage;
    int stages;
    int64_t workspace;
    int64_t before; /* of the device's memory, in use when this was opened; -1: not known */
    Optim optim;
};

inline Cuda *cuda_of(const Device *d) { return static_cast<Cuda *>(d->impl); }

/* runs_cuda.cu */
void cuda_copy_runs(cudaStream_t s, void *to, const void *from, const DeviceRuns *r);

/* optim_cuda.cu */
void cuda_add(cudaStream_t s, void *to, const void *from, int64_t n, int dtype);
void cuda_round(cudaStream_t s, void *to, const void *from, int64_t n, int type);
int cuda_params(Device *d, const DeviceParam *list, int n);
void cuda_norms(Cuda *c, cudaStream_t s, double *sum);
void cuda_update(Cuda *c, cudaStream_t s, const DeviceUpdate *u);
void optim_close(Cuda *c);

#endif
