/*
 * shim.h - what the shim's own files tell each other.  One machine lock guards everything: streams,
 * memory, shadow; an operation (a kernel, a copy) runs with it held, on the host thread that had to
 * have its result.
 */
#ifndef SHIM_H
#define SHIM_H

#include "cuda_runtime.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shim {

/* ---- report.cpp: one line each on stderr; a process that reported ends with exit code 97 ---- */

enum { EXIT_REPORTED = 97 };
enum { MULTIPROCESSORS = 108 }; /* of each device: those of an A100, fewer than later cards have */
/* once for each key */
void report(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* after a report from which nothing can go on */
[[noreturn]] void give_up(void);
const char *setting(const char *name, const char *otherwise);
/* SHIM_FAIL=NAME:N names this call of the function */
int inject(const char *api);
void at_exit_once(void);

/* ---- device.cpp: the error of the thread, and of the device, which stays ---- */

extern thread_local int current_device;
extern cudaError_t sticky;
cudaError_t set_error(cudaError_t e);
int device_count(void);
/* all kernels, before the first is launched */
bool loads_beforehand(void);
/* bytes of dynamic shared memory a launch may ask for */
int shared_limit(const void *kernel);

/* Every function of the interface begins with this: injected and sticky errors. */
cudaError_t enter(const char *api, cudaError_t injected = cudaErrorUnknown);
#define SHIM_ENTER_OR(injected)                                                                    \
    do {                                                                                           \
        cudaError_t shim_error = shim::enter(__func__, injected);                                  \
        if (shim_error != cudaSuccess)                                                             \
            return shim_error;                                                                     \
    } while (0)
#define SHIM_ENTER() SHIM_ENTER_OR(cudaErrorUnknown)

/* ---- memory.cpp ---- */

struct Allocation {
    uintptr_t base;
    size_t bytes, pages_bytes;
    uintptr_t pages;
    int device, number;
    bool pinned, live;
};
/* the one that holds p, or the nearest within a megabyte, living or freed; or null */
const Allocation *allocation_near(const void *p);
std::string describe(const void *p); /* "12 bytes past the end of allocation 3 (4096 bytes)" */
void memory_open(void);                                 /* device memory can be touched ... */
/* ... and no longer: host code that does so is caught */
void memory_close(void);
void report_leaks(void);
/* faults are caught, on a stack of their own */
void prepare_thread(void);
/* all device memory lies in [arena, arena + ARENA_BYTES) */
extern uintptr_t arena;
constexpr size_t ARENA_BYTES = size_t(16) << 30;
inline bool in_device_memory(uintptr_t a) { return arena && a - arena < ARENA_BYTES; }

/* ---- stream.cpp ---- */

/* per stream: how many of its operations are known to be over */
typedef std::vector<unsigned> Clock;
struct Driver;
struct Op {
    CUstream_st *stream = nullptr;
    std::string what;
    unsigned seq = 0;
    std::vector<std::shared_ptr<Op>> deps;
    Clock host;                                         /* what the host knew when it issued this */
    /* kept by marks and NCCL: what is over when this is */
    Clock clock;
    bool keeps_clock = false, started = false, done = false;
    /* true when it is over; false: it waits for another rank */
    std::function<bool(Driver &)> step;
    double time = 0;
};
typedef std::shared_ptr<Op> OpRef;

struct Driver {
    bool block;
    bool deadlock = false;
    std::vector<Op *> visiting;
};

extern std::recursive_mutex machine;
/* something was issued, finished or aborted */
extern std::condition_variable_any changed;
typedef std::unique_lock<std::recursive_mutex> Lock;
/* the default stream for 0; null: no such stream */
CUstream_st *stream_of(cudaStream_t s);
OpRef enqueue(CUstream_st *s, std::string what, std::function<bool(Driver &)> step,
              OpRef after = nullptr);
bool start_op(Op &op, Driver &d);                       /* everything before it is over */
bool complete_op(Op &op, Driver &d);
/* Runs what op needs, and op; false: not now.  The host then knows that it is over, unless it has
 * waited for less. */
bool drive(const OpRef &op, bool block, Lock &lock, bool over_for_host = true);
void drive_all(Lock &lock);
int stream_id(const CUstream_st *s);
int stream_device(const CUstream_st *s);
Clock &stream_clock(CUstream_st *s);
void merge(Clock &into, const Clock &from);
void report_stream_leaks(void);

/* ---- block.cpp ---- */

/* A kernel with copies of its arguments, as its launch gave them; not to be moved. */
struct ShimBody {
    typedef std::max_align_t Unit;
    ShimKernel kernel;
    ShimCall call;
    std::vector<Unit> kept;
    std::vector<const void *> argument;
    ShimBody(ShimKernel k, ShimCall c, size_t n, const void *const *from, const size_t *bytes);
    ShimBody(const ShimBody &) = delete;
    ShimBody &operator=(const ShimBody &) = delete;
    void run() const { call(kernel, argument.data()); }
};
void run_grid(const std::string &name, dim3 grid, dim3 block, size_t shared, const ShimBody &body);
/* is this the stack of a kernel's thread? */
/* the stacks of a block's threads, which lie side by side: none before the first launch */
extern uintptr_t stacks_from;
extern size_t stacks_bytes;
inline bool in_fiber_stack(uintptr_t a) { return a - stacks_from < stacks_bytes; }
inline bool in_kernel(const void *frame) {
    return in_fiber_stack(reinterpret_cast<uintptr_t>(frame));
}
std::string where(void); /* "kernel k block (0,0,0) thread (1,0,0)" */
/* from a kernel's thread: the launch ends here */
[[noreturn]] void kill_kernel(cudaError_t why);
struct Running {
    std::string name;
    unsigned thread;                                    /* number in the block */
    unsigned block_start, barrier, op_start;            /* ticks */
    /* tick of the last __syncwarp each thread took part in */
    unsigned warp_sync[1024];
    bool fenced;
    size_t dynamic;                                     /* bytes of pp_shared */
};
extern Running running;

/* ---- shadow.cpp: what every byte was last used for; only when the program was built with
 * -fsanitize=thread ---- */

extern bool instrumented;
/* grows at every operation, block, barrier and __syncwarp */
extern unsigned tick;
void shadow_op(const std::string &name, CUstream_st *s);
void shadow_block(void);
void shadow_unset(const void *p, size_t bytes); /* of shared memory: nobody has written it */
void shadow_malloc(uintptr_t base, size_t bytes);
void shadow_free(uintptr_t base, size_t bytes);
/* by a copy or a library; false: out of bounds */
bool shadow_range(const void *p, size_t bytes, bool write, bool may_be_unset);
/* device to device: what is set goes along */
void shadow_copy(void *to, const void *from, size_t bytes);

/* ---- tensor.cpp ---- */

void tensor_block(void); /* a block begins */

/* ---- symbols.cpp ---- */

struct Variable { size_t offset, bytes; std::string name; };
/* by offset in the program's thread-local block */
const std::vector<Variable> &shared_variables(void);
uintptr_t shared_base(void);                            /* of that block, for this host thread */
size_t shared_bytes(void);
bool in_program(uintptr_t a);
std::string source_line(const void *pc);                /* " at stage0.cu:12", or "" */

/* ---- nccl.cpp, cublas.cpp, cudnn.cpp ---- */

void report_nccl_leaks(void);
void report_blas_leaks(void);
void report_dnn_leaks(void);

}   // namespace shim

#endif
