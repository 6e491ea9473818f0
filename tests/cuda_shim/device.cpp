/*
 * device.cpp - devices, versions, errors.  SHIM_DEVICES=N devices of compute capability 9.0 share
 * the CPU's memory.
 *
 * An error of a call is the calling thread's until it asks; a fault of a kernel is the device's and
 * every later call returns it.
 */
#include "shim.h"

#include <cstdlib>
#include <cstring>
#include <set>

namespace shim {

thread_local int current_device;
cudaError_t sticky = cudaSuccess;
static thread_local cudaError_t last_error;
static std::map<const void *, int> dynamic_limit;
static std::set<std::pair<int, int>> peers;

enum { SHARED_PLAIN = 49152 };

cudaError_t set_error(cudaError_t e) {
    if (e != cudaSuccess)
        last_error = e;
    return e;
}

/* As the environment said when the program first came here. */
bool loads_beforehand(void) {
    static const bool eager = strcmp(setting("CUDA_MODULE_LOADING", "LAZY"), "EAGER") == 0;
    return eager;
}

cudaError_t enter(const char *api, cudaError_t injected) {
    loads_beforehand();
    if (inject(api))
        return set_error(injected);
    /* What has faulted can still be taken down. */
    if (sticky != cudaSuccess && !strstr(api, "Free") && !strstr(api, "Destroy") &&
        !strstr(api, "Get"))
        return set_error(sticky);
    return cudaSuccess;
}

int device_count(void) {
    static const int n = atoi(setting("SHIM_DEVICES", "1"));
    return n < 64 ? n : 64;
}

/* Those of an H100. */
static int shared_most(void) { return atoi(setting("SHIM_SHARED", "232448")); }

int shared_limit(const void *kernel) {
    auto i = dynamic_limit.find(kernel);
    return i == dynamic_limit.end() ? SHARED_PLAIN : i->second;
}

static const struct { cudaError_t e; const char *name, *text;
} texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

}   // namespace shim

using namespace shim;

cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error != cudaSuccess ? last_error : sticky;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void) { return last_error != cudaSuccess ? last_error : sticky; }

const char *cudaGetErrorString(cudaError_t e) {
    for (const auto &t : texts)
        if (t.e == e)
            return t.text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t e) {
    for (const auto &t : texts)
        if (t.e == e)
            return t.name;
    return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int *n) {
    SHIM_ENTER();
    *n = device_count();
    return *n ? cudaSuccess : set_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    SHIM_ENTER();
    if (device < 0 || device >= device_count())
        return set_error(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    SHIM_ENTER();
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    SHIM_ENTER();
    if (device < 0 || device >= device_count())
        return set_error(cudaErrorInvalidDevice);
    size_t total, unused;
    cudaMemGetInfo(&unused, &total);
    *p = cudaDeviceProp{};
    strcpy(p->name, "CUDA shim");
    p->totalGlobalMem = total;
    p->sharedMemPerBlock = SHARED_PLAIN;
    p->sharedMemPerBlockOptin = static_cast<size_t>(shared_most());
    p->sharedMemPerMultiprocessor = 233472;
    p->totalConstMem = 65536;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->multiProcessorCount = MULTIPROCESSORS;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = 9;
    p->l2CacheSize = 1 << 20;
    p->memoryBusWidth = 64;
    p->asyncEngineCount = 2;
    p->concurrentKernels = p->canMapHostMemory = p->unifiedAddressing = 1;
    p->pciDeviceID = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device) {
    SHIM_ENTER();
    if (device < 0 || device >= device_count())
        return set_error(cudaErrorInvalidDevice);
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = SHARED_PLAIN; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    case cudaDevAttrMultiProcessorCount: *value = MULTIPROCESSORS; break;
    case cudaDevAttrMemoryClockRate: *value = 1000000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 64; break;
    case cudaDevAttrL2CacheSize: *value = 1 << 20; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_most(); break;
    default: return set_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device) {
    SHIM_ENTER();
    if (n < 13 || device < 0 || device >= device_count())
        return set_error(cudaErrorInvalidValue);
    snprintf(id, static_cast<size_t>(n), "0000:00:%02x.0", static_cast<unsigned>(device) & 255u);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    SHIM_ENTER();
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    SHIM_ENTER();
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned) {
    SHIM_ENTER();
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    SHIM_ENTER();
    if (device < 0 || device >= device_count() || peer < 0 || peer >= device_count())
        return set_error(cudaErrorInvalidDevice);
    *can = device != peer && strcmp(setting("SHIM_PEER", "1"), "0") != 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    SHIM_ENTER();
    Lock lock(machine);
    if (peer < 0 || peer >= device_count() || peer == current_device)
        return set_error(cudaErrorInvalidDevice);
    bool fresh = peers.insert({current_device, peer}).second;
    return fresh ? cudaSuccess : set_error(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    SHIM_ENTER();
    Lock lock(machine);
    return peers.erase({current_device, peer}) ? cudaSuccess
                                               : set_error(cudaErrorPeerAccessNotEnabled);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attr, int value) {
    SHIM_ENTER();
    Lock lock(machine);
    if (attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > shared_most())
            return set_error(cudaErrorInvalidValue);
        dynamic_limit[kernel] = value;
    }
    return cudaSuccess;
}
