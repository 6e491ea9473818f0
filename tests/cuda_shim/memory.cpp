/*
 * memory.cpp - device and pinned memory, copies, sets.
 *
 * Device memory is one reserved range; every allocation ends (to its 256-byte alignment) at a guard
 * page and its address never comes back, so use after cudaFree faults.  It can be touched only
 * while an operation runs: host code that follows a device pointer faults too.  The fault handler
 * says who and where.
 */
#include "shim.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace shim {

enum : size_t { PAGE = 4096, ALIGN = 256, NEAR = 1 << 20, HUGE_LEAST = 4 << 20 };

uintptr_t arena;
/* pinned memory: the second half of the reservation */
static uintptr_t arena_next, pinned_next;
static constexpr size_t PINNED_BYTES = size_t(8) << 30;
/* by address within each half; freed ones stay for the reports */
static std::vector<Allocation> &allocations(void) {
    static auto *all = new std::vector<Allocation>;
    return *all;
}
static int numbers;
/* device memory can be touched; an operation runs */
static bool opened, inside;
static size_t used[64];

static bool in_pinned_memory(uintptr_t a)
{
    return arena && a - (arena + ARENA_BYTES) < PINNED_BYTES;
}

static size_t device_bytes(void) {
    static const size_t n = strtoull(setting("SHIM_MEMORY", "4294967296"), nullptr, 10);
    return n;
}

/* ---- faults ---- */

static thread_local void *signal_stack;

static void catch_faults(void);

void prepare_thread(void) {
    static const bool catching = (catch_faults(), true);
    (void)catching;
    if (signal_stack)
        return;
    size_t bytes = 64 << 10;
    signal_stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (signal_stack == MAP_FAILED)
        return;
    stack_t s = {};
    s.ss_sp = signal_stack;
    s.ss_size = bytes;
    sigaltstack(&s, nullptr);
}

/* A fault in a kernel, or of the host in device memory, is a finding; any other is the program's
 * own and kills it. */
static void on_fault(int signal_number, siginfo_t *info, void *context) {
    uintptr_t a = reinterpret_cast<uintptr_t>(info->si_addr);
#if defined __x86_64__
    uintptr_t sp =
        static_cast<uintptr_t>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RSP]);
    void *pc = reinterpret_cast<void *>(
        static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP] + 1);
#elif defined __aarch64__
    uintptr_t sp = static_cast<ucontext_t *>(context)->uc_mcontext.sp;
    void *pc = reinterpret_cast<void *>(static_cast<ucontext_t *>(context)->uc_mcontext.pc + 1);
#else
    uintptr_t sp = reinterpret_cast<uintptr_t>(context);
    void *pc = nullptr;
#endif
    if (in_fiber_stack(sp)) {
        if (in_fiber_stack(a))
            report("fault", "stack overflow: %s%s", where().c_str(), source_line(pc).c_str());
        else
            report("fault", "illegal address: %s: touches %p: %s%s", where().c_str(), info->si_addr,
                   describe(info->si_addr).c_str(), source_line(pc).c_str());
        give_up();
    }
    if (in_device_memory(a)) {
        if (inside)
            report("fault", "illegal address: an operation touches %p: %s", info->si_addr,
                   describe(info->si_addr).c_str());
        else
            report("fault", "host code touches device memory: %p: %s%s", info->si_addr,
                   describe(info->si_addr).c_str(), source_line(pc).c_str());
        give_up();
    }
    signal(signal_number, SIG_DFL);
}

static void catch_faults(void) {
    struct sigaction s = {};
    s.sa_sigaction = on_fault;
    s.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &s, nullptr);
    sigaction(SIGBUS, &s, nullptr);
}

/* ---- the range ---- */

static bool reserve(void) {
    if (arena)
        return true;
    void *p = mmap(nullptr, ARENA_BYTES + PINNED_BYTES, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    arena = reinterpret_cast<uintptr_t>(p);
    arena_next = arena + PAGE;
    pinned_next = arena + ARENA_BYTES + PAGE;
    prepare_thread();
    at_exit_once();
    return true;
}

static int protect(const Allocation &a, int how) {
    return mprotect(reinterpret_cast<void *>(a.pages), a.pages_bytes, how);
}

/* Opening and closing takes the time of a kernel, so later on it is done now and then only. */
enum { CLOSE_ALWAYS = 100, CLOSE_EVERY = 64 };
static unsigned turns;

void memory_open(void) {
    inside = true;
    if (opened)
        return;
    for (const Allocation &a : allocations())
        if (a.live && !a.pinned && protect(a, PROT_READ | PROT_WRITE) != 0) {
            report("mprotect", "cannot open device memory: %s", strerror(errno));
            give_up();
        }
    opened = true;
}

void memory_close(void) {
    inside = false;
    if (!opened || (turns++ >= CLOSE_ALWAYS && turns % CLOSE_EVERY != 0))
        return;
    for (const Allocation &a : allocations())
        if (a.live && !a.pinned)
            protect(a, PROT_NONE);
    opened = false;
}

const Allocation *allocation_near(const void *p) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    const Allocation *best = nullptr;
    size_t distance = NEAR;
    for (const Allocation &x : allocations()) {
        size_t d = a < x.base ? x.base - a : a < x.base + x.bytes ? 0 : a - (x.base + x.bytes);
        if (d < distance) {
            distance = d;
            best = &x;
        }
        if (d == 0)
            break;
    }
    return best;
}

std::string describe(const void *p) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    const Allocation *x = allocation_near(p);
    char text[160];
    if (!x)
        return a < PAGE              ? "a null pointer"
               : in_device_memory(a) ? "no allocation of the device"
                                     : "no memory of the device";
    const char *kind = x->pinned ? "pinned allocation" : "allocation";
    const char *freed = x->live ? "" : ", freed";
    if (a < x->base)
        snprintf(text, sizeof text, "%zu bytes before %s %d (%zu bytes%s)", size_t(x->base - a),
                 kind, x->number, x->bytes, freed);
    else if (a >= x->base + x->bytes)
        snprintf(text, sizeof text, "%zu bytes past the end of %s %d (%zu bytes%s)",
                 size_t(a - x->base - x->bytes), kind, x->number, x->bytes, freed);
    else
        snprintf(text, sizeof text, "byte %zu of %s %d (%zu bytes%s)", size_t(a - x->base), kind,
                 x->number, x->bytes, freed);
    return text;
}

static cudaError_t allocate(void **p, size_t bytes, bool pinned) {
    *p = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    if (!reserve() || bytes > ARENA_BYTES)
        return cudaErrorMemoryAllocation;
    if (!pinned && used[current_device] + bytes > device_bytes())
        return cudaErrorMemoryAllocation;
    size_t rounded = (bytes + ALIGN - 1) & ~(ALIGN - 1), pages = (rounded + PAGE - 1) & ~(PAGE - 1);
    uintptr_t *next = pinned ? &pinned_next : &arena_next;
    uintptr_t end = pinned ? arena + ARENA_BYTES + PINNED_BYTES : arena + ARENA_BYTES;
    if (pages + PAGE > end - *next)
        return cudaErrorMemoryAllocation;
    Allocation a = {};
    a.pages = *next;
    a.pages_bytes = pages;
    a.base = a.pages + pages - rounded;
    a.bytes = bytes;
    a.device = current_device;
    a.number = ++numbers;
    a.pinned = pinned;
    a.live = true;
    if (protect(a, PROT_READ | PROT_WRITE) != 0)
        return cudaErrorMemoryAllocation;
    /* opened, closed and filled by pages of 2 MiB, where there are such: cuBLAS's workspace has 16 */
    if (pages >= HUGE_LEAST)
        madvise(reinterpret_cast<void *>(a.pages), pages, MADV_HUGEPAGE);
    *next += pages + PAGE;
    *p = reinterpret_cast<void *>(a.base);
    /* NaN to whoever reads what nobody wrote */
    memset(reinterpret_cast<void *>(a.pages), 0xff, pages);
    if (!pinned) {
        used[current_device] += bytes;
        shadow_malloc(a.base, bytes);
        if (!opened)
            protect(a, PROT_NONE);
    }
    allocations().push_back(a);
    return cudaSuccess;
}

/* The bytes between the end asked for and the guard page still hold what they were filled with? */
static void check_slack(const Allocation &a) {
    uintptr_t end = a.pages + a.pages_bytes;
    for (uintptr_t i = a.pages; i < end; i = i + 1 == a.base ? a.base + a.bytes : i + 1) {
        if (i == a.base)                                /* nothing lies before it */
            i += a.bytes;
        if (i < end && *reinterpret_cast<const unsigned char *>(i) != 0xff) {
            report(("slack" + std::to_string(a.number)).c_str(),
                   "out of bounds: something wrote %s",
                   describe(reinterpret_cast<const void *>(i)).c_str());
            return;
        }
    }
}

static cudaError_t release(void *p, bool pinned) {
    for (Allocation &a : allocations())
        if (a.live && a.pinned == pinned && a.base == reinterpret_cast<uintptr_t>(p)) {
            protect(a, PROT_READ | PROT_WRITE);
            check_slack(a);
            a.live = false;
            madvise(reinterpret_cast<void *>(a.pages), a.pages_bytes, MADV_DONTNEED);
            protect(a, PROT_NONE);
            if (!pinned) {
                used[a.device] -= a.bytes;
                shadow_free(a.base, a.bytes);
            }
            return cudaSuccess;
        }
    report("free", "free: %p is not what %s returned: %s", p,
           pinned ? "cudaMallocHost" : "cudaMalloc", describe(p).c_str());
    return cudaErrorInvalidValue;
}

void report_leaks(void) {
    for (const Allocation &a : allocations())
        if (a.live)
            report(("leak" + std::to_string(a.number)).c_str(),
                   "leak: %s %d (%zu bytes) is never freed",
                   a.pinned ? "pinned allocation" : "allocation", a.number, a.bytes);
}

/* ---- copies ---- */

enum Place { HOST, PINNED, DEVICE };

static Place place(const void *p) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    return in_device_memory(a) ? DEVICE : in_pinned_memory(a) ? PINNED : HOST;
}

/* Runs in the stream: is every byte inside an allocation, and is it this operation's turn with it?
 */
static bool may_touch(const void *p, size_t bytes, bool write) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    if (place(p) == HOST || bytes == 0)
        return true;
    const Allocation *x = allocation_near(p);
    if (!x || !x->live || a < x->base || bytes > x->bytes || a - x->base > x->bytes - bytes) {
        report(("copy" + running.name).c_str(), "out of bounds: %s of %zu bytes %s %p: %s",
               running.name.c_str(), bytes, write ? "to" : "from", p,
               describe(x && a >= x->base && x->live ? static_cast<const char *>(p) + bytes : p)
                   .c_str());
        sticky = cudaErrorIllegalAddress;
        return false;
    }
    return place(p) != DEVICE || shadow_range(p, bytes, write, true);
}

struct Copy2D {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
};

static void copy_rows(const Copy2D &c) {
    for (size_t row = 0; row < c.height; row++) {
        char *to = c.to + row * c.to_pitch;
        const char *from = c.from + row * c.from_pitch;
        if (!may_touch(from, c.width, false) || !may_touch(to, c.width, true))
            return;
        memmove(to, from, c.width);
        if (place(to) == DEVICE && place(from) == DEVICE)
            shadow_copy(to, from, c.width);
    }
}

static bool kind_fits(const void *to, const void *from, cudaMemcpyKind kind) {
    bool d = place(to) == DEVICE, s = place(from) == DEVICE;
    switch (kind) {
    case cudaMemcpyHostToHost: return !d && !s;
    case cudaMemcpyHostToDevice: return d && !s;
    case cudaMemcpyDeviceToHost: return !d && s;
    case cudaMemcpyDeviceToDevice: return d && s;
    case cudaMemcpyDefault: return true;
    }
    return false;
}

/* Pageable host memory makes the call wait, as in CUDA; pinned memory is touched when the copy's
   turn comes.  From pageable memory to the device CUDA waits only until the bytes are in a buffer
   of its own: for other streams the copy is under way still. */
static cudaError_t copy(const char *name, const Copy2D &c, cudaMemcpyKind kind, cudaStream_t stream,
                        bool wait)
{
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    if (!s)
        return set_error(cudaErrorInvalidResourceHandle);
    if (c.width == 0 || c.height == 0)
        return cudaSuccess;
    if (!c.to || !c.from || c.width > c.to_pitch || c.width > c.from_pitch)
        return set_error(cudaErrorInvalidValue);
    if (!kind_fits(c.to, c.from, kind)) {
        report((std::string("kind") + name).c_str(),
               "copy direction: %s to %p (%s) from %p (%s) with kind %d", name,
               static_cast<void *>(c.to), place(c.to) == DEVICE ? "device" : "host",
               static_cast<const void *>(c.from), place(c.from) == DEVICE ? "device" : "host",
               static_cast<int>(kind));
        return set_error(cudaErrorInvalidMemcpyDirection);
    }
    OpRef op = enqueue(s, name, [c, name, s](Driver &) {
        shadow_op(name, s);
        copy_rows(c);
        return true;
    });
    bool pageable = place(c.to) == HOST || place(c.from) == HOST,
         staged = place(c.from) == HOST && place(c.to) == DEVICE;
    if (wait || pageable)
        drive(op, true, lock, !staged);
    return set_error(sticky);
}

/* `height` rows of `width` bytes, the next one `pitch` bytes further on. */
static cudaError_t set_bytes(const char *name, void *p, size_t pitch, int value, size_t width,
                             size_t height, cudaStream_t stream, bool wait)
{
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    if (!s)
        return set_error(cudaErrorInvalidResourceHandle);
    if (width == 0 || height == 0)
        return cudaSuccess;
    if (place(p) == HOST || (height > 1 && pitch < width))
        return set_error(cudaErrorInvalidValue);
    OpRef op = enqueue(s, name, [p, pitch, value, width, height, name, s](Driver &) {
        shadow_op(name, s);
        for (size_t row = 0; row < height; row++) {
            char *at = static_cast<char *>(p) + row * pitch;
            if (may_touch(at, width, true))
                memset(at, value, width);
        }
        return true;
    });
    if (wait)
        drive(op, true, lock);
    return set_error(sticky);
}

}   // namespace shim

using namespace shim;

cudaError_t cudaMalloc(void **p, size_t bytes) {
    SHIM_ENTER_OR(cudaErrorMemoryAllocation);
    Lock lock(machine);
    return set_error(allocate(p, bytes, false));
}

cudaError_t cudaMallocHost(void **p, size_t bytes) {
    SHIM_ENTER_OR(cudaErrorMemoryAllocation);
    Lock lock(machine);
    return set_error(allocate(p, bytes, true));
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
    SHIM_ENTER_OR(cudaErrorMemoryAllocation);
    Lock lock(machine);
    return set_error(allocate(p, bytes, true));
}

/* Freeing waits for the device. */
static cudaError_t free_after_all(void *p, bool pinned) {
    Lock lock(machine);
    if (!p)
        return cudaSuccess;
    drive_all(lock);
    return set_error(release(p, pinned));
}

cudaError_t cudaFree(void *p) {
    SHIM_ENTER();
    return free_after_all(p, false);
}

cudaError_t cudaFreeHost(void *p) {
    SHIM_ENTER();
    return free_after_all(p, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    SHIM_ENTER();
    Lock lock(machine);
    *total = device_bytes();
    *free_bytes = *total - used[current_device];
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
    SHIM_ENTER();
    Lock lock(machine);
    const Allocation *x = place(p) == HOST ? nullptr : allocation_near(p);
    a->type = !x          ? cudaMemoryTypeUnregistered
              : x->pinned ? cudaMemoryTypeHost
                          : cudaMemoryTypeDevice;
    a->device = x ? x->device : -2;
    a->devicePointer = x ? const_cast<void *>(p) : nullptr;
    a->hostPointer = x && x->pinned ? const_cast<void *>(p) : nullptr;
    return cudaSuccess;
}

static Copy2D flat(void *to, const void *from, size_t bytes) {
    return Copy2D{static_cast<char *>(to), static_cast<const char *>(from), bytes, bytes, bytes, 1};
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    SHIM_ENTER();
    return copy(__func__, flat(to, from, bytes), kind, nullptr, true);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    SHIM_ENTER();
    return copy(__func__, flat(to, from, bytes), kind, s, false);
}

/* Each side lies on the device that is named for it. */
static bool peers_fit(const char *name, const void *to, int to_device, const void *from,
                      int from_device)
{
    Lock lock(machine);
    const Allocation *t = allocation_near(to), *f = allocation_near(from);
    const bool fit = (!t || t->device == to_device) && (!f || f->device == from_device);
    if (!fit)
        report(
            name,
            "device: %s to device %d of memory of device %d, from device %d of memory of device %d",
            name, to_device, t ? t->device : -1, from_device, f ? f->device : -1);
    return fit;
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    SHIM_ENTER();
    if (!peers_fit(__func__, to, to_device, from, from_device))
        return set_error(cudaErrorInvalidValue);
    return copy(__func__, flat(to, from, bytes), cudaMemcpyDeviceToDevice, nullptr, true);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t s)
{
    SHIM_ENTER();
    if (!peers_fit(__func__, to, to_device, from, from_device))
        return set_error(cudaErrorInvalidValue);
    return copy(__func__, flat(to, from, bytes), cudaMemcpyDeviceToDevice, s, false);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    SHIM_ENTER();
    return copy(__func__,
                Copy2D{static_cast<char *>(to), static_cast<const char *>(from), to_pitch,
                       from_pitch, width, height},
                kind, s, false);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    SHIM_ENTER();
    return set_bytes(__func__, p, bytes, value, bytes, 1, nullptr, true);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) {
    SHIM_ENTER();
    return set_bytes(__func__, p, bytes, value, bytes, 1, s, false);
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t s)
{
    SHIM_ENTER();
    return set_bytes(__func__, p, pitch, value, width, height, s, false);
}
