/*
 * device_cuda.cu - CUDA as a device (device.h): memory, streams, events and cuBLAS handles of a
 * rank's stages.
 *
 * One stream and one cuBLAS handle per stage.  A handle keeps its stream and its workspace:
 * cublasSetStream would take the workspace away, products would then allocate one in a step, and
 * their bits could change from run to run.  Workspaces, and with them the lists of pointers
 * (PpBlas), are shared by the stages of a rank, which run one after the other, unless two of them
 * may run at the same time.
 */
#include "device_cuda.h"

#include <cublasLt.h>
#include <new>
#include <stdlib.h>
#include <string.h>
#ifdef PP_WITH_CUDNN
#include <cudnn.h>
#endif
#ifdef PP_WITH_NCCL
#include <nccl.h>
#endif

namespace {

/* NVIDIA's advice for sm_90; elsewhere 4 to 8 MiB do */
enum : int64_t { WORKSPACE = 8 << 20, WORKSPACE_HOPPER = 32 << 20 };
enum { MOST_STAGES = 1024 };

cudaStream_t stream_of(Device *d, int stream) {
    Cuda *c = cuda_of(d);
    return stream == STREAM_IN        ? c->in
           : stream == STREAM_OUT     ? c->out
           : stream == STREAM_STORE   ? c->store
           : stream == STREAM_MEMBERS ? c->members
                                      : c->stage[stream].stream;
}

cudaEvent_t event_of(DeviceEvent e) { return static_cast<cudaEvent_t>(e); }

/* ---- opening ---- */

/* CUDA reads the environment when it is first called.
   All queues that a device has, not the usual 8, and not the 1 that other programs of a cluster ask
   for in its environment: streams that share one wait for each other, and where NCCL's kernels wait
   for other ranks such a wait may have no end. A kernel's first launch may load it, and loading may
   wait for the device: where NCCL may be used all are loaded at the start. */
void prepare(int nccl) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    if (nccl)
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

int count(void) {
    int n = 0;
    return PP_CUDA(cudaGetDeviceCount(&n)) ? n : 0;
}

/* Sums of half products stay float32, also where a product's depth is divided among blocks. */
constexpr cublasMath_t MATH = static_cast<cublasMath_t>(
    CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);

bool open_stage(Device *d, CudaStage *s, const DeviceWish *w) {
    Cuda *c = cuda_of(d);
    if (!PP_CUDA(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking)))
        return false;
    if (s == c->stage || w->overlap) {
        if (!PP_CUDA(cudaMalloc(&s->workspace, static_cast<size_t>(c->workspace))) ||
            !PP_CUDA(cudaMalloc(&s->list, static_cast<size_t>(PP_BLAS_LIST_BYTES))))
            return false;
        d->library += c->workspace + PP_BLAS_LIST_BYTES;
    }
    const CudaStage *with = s->list ? s : c->stage;
    s->blas.list = with->list;
    s->blas.workspace = with->workspace;
    s->blas.bytes_workspace = c->workspace;
    s->blas.counting = &c->counting;
    cublasHandle_t *h = &s->blas.handle;
    return PP_BLAS(cublasCreate(h)) && PP_BLAS(cublasSetStream(*h, s->stream)) &&
           PP_BLAS(cublasSetWorkspace(*h, with->workspace, static_cast<size_t>(c->workspace))) &&
           PP_BLAS(cublasSetMathMode(*h, MATH));
}

/* -1: not known */
int64_t in_use() {
    size_t left = 0, all = 0;
    return PP_CUDA(cudaMemGetInfo(&left, &all)) ? static_cast<int64_t>(all - left) : -1;
}

int64_t taken(const Device *d) {
    const int64_t before = cuda_of(d)->before, now = in_use();
    return before < 0 || now < 0 ? -1 : now - before;
}

int open(Device *d, const DeviceWish *w) {
    Cuda *c = new (std::nothrow) Cuda();
    int major = 0;
    if (!c || w->stages > MOST_STAGES) {
        delete c;
        pp_cuda_note("open", "out of memory", __FILE__, __LINE__);
        return 0;
    }
    d->impl = c;
    d->number = w->number;
    if (!PP_CUDA(cudaSetDevice(d->number)) ||
        !PP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->number)))
        return 0;
    c->before = in_use();
    /* the same for all ranks */
    pp_cuda_tf32 = w->tf32;
    c->workspace = major >= 9 ? WORKSPACE_HOPPER : WORKSPACE;
    c->stages = w->stages;
    c->stage = new (std::nothrow) CudaStage[static_cast<size_t>(w->stages) + 1]();
    bool good = c->stage && PP_CUDA(cudaStreamCreateWithFlags(&c->in, cudaStreamNonBlocking)) &&
                PP_CUDA(cudaStreamCreateWithFlags(&c->out, cudaStreamNonBlocking)) &&
                PP_CUDA(cudaStreamCreateWithFlags(&c->store, cudaStreamNonBlocking)) &&
                PP_CUDA(cudaStreamCreateWithFlags(&c->members, cudaStreamNonBlocking)) &&
                PP_CUDA(cudaEventCreateWithFlags(&c->counting.event, cudaEventDisableTiming)) &&
                PP_CUDA(cudaMallocHost(reinterpret_cast<void **>(&c->counting.staged),
                                       PP_COUNTS * sizeof *c->counting.staged));
    d->pinned = PP_COUNTS * static_cast<int64_t>(sizeof *c->counting.staged);
    for (int l = 0; l < w->stages && good; l++)
        good = open_stage(d, &c->stage[l], w);
    return good;
}

void enter(Device *d) {
    if (d->impl)
        PP_CUDA(cudaSetDevice(d->number));
}

void close(Device *d) {
    Cuda *c = cuda_of(d);
    if (!c)
        return;
    for (int l = 0; l < c->stages; l++) {
        CudaStage *s = &c->stage[l];
        pp_cuda_forget_products(&s->blas);
        if (s->blas.handle)
            PP_BLAS(cublasDestroy(s->blas.handle));
        if (s->stream)
            PP_CUDA(cudaStreamDestroy(s->stream));
    }
    for (int l = 0; l < c->stages; l++) {
        PP_CUDA(cudaFree(c->stage[l].workspace));
        PP_CUDA(cudaFree(c->stage[l].list));
    }
    if (c->in)
        PP_CUDA(cudaStreamDestroy(c->in));
    if (c->out)
        PP_CUDA(cudaStreamDestroy(c->out));
    if (c->store)
        PP_CUDA(cudaStreamDestroy(c->store));
    if (c->members)
        PP_CUDA(cudaStreamDestroy(c->members));
    if (c->counting.event)
        PP_CUDA(cudaEventDestroy(c->counting.event));
    if (c->counting.staged)
        PP_CUDA(cudaFreeHost(c->counting.staged));
    optim_close(c);
    delete[] c->stage;
    delete c;
    d->impl = nullptr;
}

/* Which it is, and on which bus it is: the same GPU has the same text in every process. */
void text(const Device *d, char *to, int size) {
    cudaDeviceProp p;
    char bus[32] = "";
    to[0] = 0;
    if (PP_CUDA(cudaGetDeviceProperties(&p, d->number)) &&
        PP_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, d->number)))
        snprintf(to, static_cast<size_t>(size), "GPU %.16s (%.40s)", bus, p.name);
}

/* ---- memory ---- */

void *alloc(Device *, int64_t bytes) {
    void *p = nullptr;
    const cudaError_t e = cudaMalloc(&p, static_cast<size_t>(bytes));
    if (e == cudaErrorMemoryAllocation) {
        size_t left = 0, all = 0;
        char why[96];
        PP_CUDA(cudaMemGetInfo(&left, &all));
        snprintf(why, sizeof why, "out of memory: of %zu bytes %zu are free", all, left);
        pp_cuda_note("cudaMalloc", why, __FILE__, __LINE__);
        return nullptr;
    }
    return PP_CUDA(e) ? p : nullptr;
}

void release(Device *, void *p) { PP_CUDA(cudaFree(p)); }

void *alloc_host(Device *, int64_t bytes) {
    void *p = nullptr;
    return PP_CUDA(cudaMallocHost(&p, static_cast<size_t>(bytes > 0 ? bytes : 1))) ? p : nullptr;
}

void release_host(Device *, void *p) { PP_CUDA(cudaFreeHost(p)); }

void copy(Device *d, int stream, void *to, const void *from, int64_t bytes) {
    if (bytes <= 0)
        return;
    PP_WORK("transfer", 0, bytes);
    PP_TIMED("cudaMemcpyAsync", stream_of(d, stream));
    PP_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                            stream_of(d, stream)));
}

void enable_peer(Device *d, int number) {
    int can = 0;
    if (number == d->number || !PP_CUDA(cudaDeviceCanAccessPeer(&can, d->number, number)) || !can)
        return;
    cudaError_t e = cudaDeviceEnablePeerAccess(number, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError(); /* by an earlier message, or another rank of this device */
    else
        pp_cuda_ok(e, "cudaDeviceEnablePeerAccess", __FILE__, __LINE__);
}

/* Pinned memory is no device's. */
bool is_pinned(const void *p) {
    cudaPointerAttributes a = {};
    return PP_CUDA(cudaPointerGetAttributes(&a, p)) && a.type == cudaMemoryTypeHost;
}

/* Between GPUs without peer access the driver goes through the host. */
void copy_to(Device *d, int stream, Device *other, void *to, const void *from, int64_t bytes) {
    if (other->number == d->number || is_pinned(to) || is_pinned(from)) {
        copy(d, stream, to, from, bytes);
        return;
    }
    if (bytes <= 0)
        return;
    PP_WORK("transfer", 0, bytes);
    PP_TIMED("cudaMemcpyPeerAsync", stream_of(d, stream));
    PP_CUDA(cudaMemcpyPeerAsync(to, other->number, from, d->number, static_cast<size_t>(bytes),
                                stream_of(d, stream)));
}

void copy_runs(Device *d, int stream, void *to, const void *from, const DeviceRuns *r) {
    cuda_copy_runs(stream_of(d, stream), to, from, r);
}

void zero(Device *d, int stream, void *p, int64_t bytes) {
    if (bytes <= 0)
        return;
    PP_WORK("fill", 0, bytes);
    PP_TIMED("cudaMemsetAsync", stream_of(d, stream));
    PP_CUDA(cudaMemsetAsync(p, 0, static_cast<size_t>(bytes), stream_of(d, stream)));
}

void add_here(Device *d, int stream, void *to, const void *from, int64_t n, int dtype) {
    cuda_add(stream_of(d, stream), to, from, n, dtype);
}

void round_here(Device *d, int stream, void *to, const void *from, int64_t n, int type)
{
    cuda_round(stream_of(d, stream), to, from, n, type);
}

void norms_here(Device *d, int stream, double *sum)
{
    cuda_norms(cuda_of(d), stream_of(d, stream), sum);
}

void update_here(Device *d, int stream, const DeviceUpdate *u)
{
    cuda_update(cuda_of(d), stream_of(d, stream), u);
}

/* ---- events ---- */

DeviceEvent event(Device *, int timed) {
    cudaEvent_t e = nullptr;
    PP_CUDA(cudaEventCreateWithFlags(&e, timed ? cudaEventDefault : cudaEventDisableTiming));
    return e;
}

void event_free(Device *, DeviceEvent e) {
    if (e)
        PP_CUDA(cudaEventDestroy(event_of(e)));
}

void record(Device *d, int stream, DeviceEvent e)
{
    PP_CUDA(cudaEventRecord(event_of(e), stream_of(d, stream)));
}

void wait(Device *d, int stream, DeviceEvent e)
{
    PP_CUDA(cudaStreamWaitEvent(stream_of(d, stream), event_of(e), 0));
}

int done(Device *, DeviceEvent e) {
    cudaError_t state = cudaEventQuery(event_of(e));
    if (state == cudaErrorNotReady) {
        cudaGetLastError();
        return 0;
    }
    pp_cuda_ok(state, "cudaEventQuery", __FILE__, __LINE__);
    return 1;
}

void sync(Device *, DeviceEvent e) { PP_CUDA(cudaEventSynchronize(event_of(e))); }

double elapsed(Device *, DeviceEvent from, DeviceEvent to) {
    float ms = 0;
    PP_CUDA(cudaEventElapsedTime(&ms, event_of(from), event_of(to)));
    return 1e-3 * static_cast<double>(ms);
}

void context(Device *d, int stage, PpCtx *c) {
    CudaStage *s = &cuda_of(d)->stage[stage];
    c->stream = s->stream;
    c->blas = &s->blas;
}

void meanwhile(Device *d, int (*run)(void *of), void *of)
{
    cuda_of(d)->counting.meanwhile = run;
    cuda_of(d)->counting.of = of;
}

void add_version(char *to, int size, const char *library, long long version) {
    size_t n = strlen(to);
    if (version > 0)
        snprintf(to + n, static_cast<size_t>(size) - n, ", %s %lld", library, version);
}

/* The model of the GPU and the versions of the libraries that are there at run time, as they number
 * them.  Where there is no GPU, who opens it says so. */
void arithmetic(int number, char *to, int size) {
    cudaDeviceProp p;
    to[0] = 0;
    if (cudaGetDeviceProperties(&p, number) != cudaSuccess) {
        cudaGetLastError();
        return;
    }
    snprintf(to, static_cast<size_t>(size), "%.60s, CUDA %d", p.name, CUDART_VERSION);
    add_version(to, size, "cuBLAS", static_cast<long long>(cublasLtGetVersion()));
#ifdef PP_WITH_CUDNN
    add_version(to, size, "cuDNN", static_cast<long long>(cudnnGetVersion()));
#endif
#ifdef PP_WITH_NCCL
    int nccl = 0;
    if (ncclGetVersion(&nccl) == ncclSuccess)
        add_version(to, size, "NCCL", nccl);
#endif
}

const char *half_text(int) { return "by cuBLAS, summed in float32"; }

}   // namespace

/* The struct's fields in order: C++17 has no names here. */
const DeviceOps device_cuda = {
    prepare,       count,
    open,          close,
    enter,         {alloc, release, alloc_host, release_host, taken},
    copy,          enable_peer,
    copy_to,       copy_runs,
    zero,          {add_here, round_here, cuda_params, norms_here, update_here},
    event,         event_free,
    record,        wait,
    done,          sync,
    elapsed,       context,
    meanwhile,     {half_text, arithmetic, text},
    pp_cuda_error,
};
