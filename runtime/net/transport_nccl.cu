/*
 * transport_nccl.cu - NCCL's part of wire_nccl.c: a communicator of two ranks and a stream for each
 * directed edge.  Without PP_WITH_NCCL (no nccl.h when the program was built) this file is empty,
 * and the program says so when asked for it.
 */
#include "device/cuda/device_cuda.h"

#ifdef PP_WITH_NCCL
#include <new>
#include <string.h>

namespace {

struct NcclEdge {
    ncclComm_t comm;
    cudaStream_t stream;
    int peer;                                           /* 0 or 1: the other side's rank */
};

NcclEdge *edge_of(void *edge) { return static_cast<NcclEdge *>(edge); }

int id(void *to) {
    static_assert(sizeof(ncclUniqueId) == NCCL_ID, "an id has another size");
    ncclUniqueId made;
    if (!PP_NCCL(ncclGetUniqueId(&made)))
        return 0;
    memcpy(to, &made, sizeof made);
    return 1;
}

void leave(void *edge, int broken) {
    NcclEdge *e = edge_of(edge);
    if (e->comm && broken)
        PP_NCCL(ncclCommAbort(e->comm)); /* its kernels end, whatever the other side does */
    else if (e->comm)
        PP_NCCL(ncclCommDestroy(e->comm));
    if (e->stream)
        PP_CUDA(cudaStreamDestroy(e->stream));
    delete e;
}

void *join(Device *d, const void *from, int rank, int blocks) {
    NcclEdge *e = new (std::nothrow) NcclEdge();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId key;
    int least = 0, greatest = 0;
    if (!e)
        return nullptr;
    memcpy(&key, from, sizeof key);
    e->peer = 1 - rank;
    pp_cuda_waits = true;
    /* NCCL_MAX_CTAS in the environment comes first */
    config.maxCTAs = blocks;
    PP_CUDA(cudaSetDevice(d->number));
    /* Messages before kernels: whoever waits for one waits longer than its copy takes. */
    if (PP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest)) &&
        PP_CUDA(cudaStreamCreateWithPriority(&e->stream, cudaStreamNonBlocking, greatest)) &&
        PP_NCCL(ncclCommInitRankConfig(&e->comm, 2, key, rank, &config)))
        return e;
    e->comm = nullptr;
    leave(e, 1);
    return nullptr;
}

void begin(void) { PP_NCCL(ncclGroupStart()); }
void end(void) { PP_NCCL(ncclGroupEnd()); }

void post(void *edge, int send, void *buf, int64_t bytes) {
    NcclEdge *e = edge_of(edge);
    if (send)
        PP_NCCL(ncclSend(buf, static_cast<size_t>(bytes), ncclUint8, e->peer, e->comm, e->stream));
    else
        PP_NCCL(ncclRecv(buf, static_cast<size_t>(bytes), ncclUint8, e->peer, e->comm, e->stream));
}

void after(void *edge, DeviceEvent ready)
{
    PP_CUDA(cudaStreamWaitEvent(edge_of(edge)->stream, static_cast<cudaEvent_t>(ready), 0));
}

void record(void *edge, DeviceEvent done)
{
    PP_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(done), edge_of(edge)->stream));
}

int alive(void *edge) {
    ncclResult_t state = ncclSuccess;
    return PP_NCCL(ncclCommGetAsyncError(edge_of(edge)->comm, &state)) &&
           pp_cuda_ok(state, "a message under way", __FILE__, __LINE__);
}

}   // namespace

const NcclOps nccl_ops = {id, join, leave, begin, end, post, after, record, alive};
#endif
