/*
 * transport_nccl.cu - NCCL's part of wire_nccl.c: communicators, each with a stream.  Without
 * PP_WITH_NCCL (no nccl.h when the program was built) this file is empty, and the program says so
 * when asked for it.
 */
#include "device/cuda/device_cuda.h"

#ifdef PP_WITH_NCCL
#include <new>
#include <string.h>

namespace {

struct Comm {
    ncclComm_t comm;
    cudaStream_t stream;
};

Comm *comm_of(void *comm) { return static_cast<Comm *>(comm); }

int id(void *to) {
    static_assert(sizeof(ncclUniqueId) == NCCL_ID, "an id has another size");
    ncclUniqueId made;
    if (!PP_NCCL(ncclGetUniqueId(&made)))
        return 0;
    memcpy(to, &made, sizeof made);
    return 1;
}

int processors(Device *d) {
    int n = 0;
    return PP_CUDA(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, d->number)) ? n : 0;
}

void leave(void *comm, int broken) {
    Comm *e = comm_of(comm);
    if (e->comm && broken)
        PP_NCCL(ncclCommAbort(e->comm)); /* its kernels end, whatever the other side does */
    else if (e->comm)
        PP_NCCL(ncclCommDestroy(e->comm));
    if (e->stream)
        PP_CUDA(cudaStreamDestroy(e->stream));
    delete e;
}

void *join(Device *d, const void *from, int rank, int ranks, int blocks) {
    Comm *e = new (std::nothrow) Comm();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId key;
    int least = 0, greatest = 0;
    if (!e)
        return nullptr;
    memcpy(&key, from, sizeof key);
    pp_cuda_waits = true;
    /* NCCL_MAX_CTAS in the environment comes first */
    config.maxCTAs = blocks;
    PP_CUDA(cudaSetDevice(d->number));
    /* Messages before kernels: whoever waits for one waits longer than its copy takes. */
    if (PP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest)) &&
        PP_CUDA(cudaStreamCreateWithPriority(&e->stream, cudaStreamNonBlocking, greatest)) &&
        PP_NCCL(ncclCommInitRankConfig(&e->comm, ranks, key, rank, &config)))
        return e;
    e->comm = nullptr;
    leave(e, 1);
    return nullptr;
}

void begin(void) { PP_NCCL(ncclGroupStart()); }
void end(void) { PP_NCCL(ncclGroupEnd()); }

void post(void *comm, int peer, int send, void *buf, int64_t bytes) {
    Comm *e = comm_of(comm);
    if (send)
        PP_NCCL(ncclSend(buf, static_cast<size_t>(bytes), ncclUint8, peer, e->comm, e->stream));
    else
        PP_NCCL(ncclRecv(buf, static_cast<size_t>(bytes), ncclUint8, peer, e->comm, e->stream));
}

void after(void *comm, DeviceEvent ready)
{
    PP_CUDA(cudaStreamWaitEvent(comm_of(comm)->stream, static_cast<cudaEvent_t>(ready), 0));
}

void record(void *comm, DeviceEvent done)
{
    PP_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(done), comm_of(comm)->stream));
}

int alive(void *comm) {
    ncclResult_t state = ncclSuccess;
    return PP_NCCL(ncclCommGetAsyncError(comm_of(comm)->comm, &state)) &&
           pp_cuda_ok(state, "a message under way", __FILE__, __LINE__);
}

}   // namespace

const NcclOps nccl_ops = {id,  processors, join,  leave,  begin,
                          end, post,       after, record, alive};
#endif
