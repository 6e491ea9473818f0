/*
 * block.cpp - runs a grid: blocks one after the other, the threads of a block as fibers.
 *
 * One fiber runs thread after thread for as long as none has to wait: a kernel that never
 * synchronises is a plain loop.  A thread that waits at a barrier or a warp operation keeps its
 * fiber, and another one goes on with the threads not yet begun, then with those that may run
 * again.  Everything here runs under the machine lock.
 */
#include "shim.h"
#include "switch.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

ShimCoordinates shim_at;

namespace shim {

Running running;

enum { THREADS = 1024, WARP = 32, STACK = 128 << 10, GUARD = 4 << 10 };
enum State : unsigned char { FRESH, RUNNABLE, AT_BARRIER, AT_WARP, OVER };

struct Fiber { void *sp; char *stack; };

/* What a thread waits for. */
struct Wait {
    ShimBarrier barrier;
    ShimWarp kind;
    unsigned mask;
    uint64_t value;
    int arg, width, line;
};

static struct {
    const ShimBody *body;
    dim3 shape, grid;
    /* threads of the block, not yet begun, finished */
    unsigned count, next, over;
    bool killed;
    State state[THREADS];
    Fiber *fiber[THREADS];
    Wait wait[THREADS];
    /* lanes at a warp operation; lanes not finished */
    unsigned waiting[THREADS / WARP], alive[THREADS / WARP];
    unsigned arrived;                                   /* at the barrier */
    int sum;                                            /* of the predicates */
    int barrier_result;
    unsigned queue[THREADS], head, tail;                /* threads that may run again: a ring */
    unsigned queued;
} b;

uintptr_t stacks_from;
size_t stacks_bytes;
static char *stacks;
static Fiber fibers[THREADS + 1];
static Fiber *idle[THREADS + 1], *current;
static int idles;
static void *scheduler;                                 /* the stack of run_grid */

static void fiber_main(void);

static void fresh_fibers(void) {
    idles = 0;
    for (int i = THREADS; i >= 0; i--) {
        fibers[i].stack = stacks + static_cast<size_t>(i) * (STACK + GUARD) + GUARD;
        fibers[i].sp = nullptr;
        idle[idles++] = &fibers[i];
    }
}

static void make_fibers(void) {
    stacks_bytes = static_cast<size_t>(THREADS + 1) * (STACK + GUARD);
    void *p = mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        report("stacks", "no memory for the stacks of a block");
        give_up();
    }
    stacks = static_cast<char *>(p);
    stacks_from = reinterpret_cast<uintptr_t>(p);
    for (int i = 0; i <= THREADS; i++)
        mprotect(stacks + static_cast<size_t>(i) * (STACK + GUARD), GUARD, PROT_NONE);
    fresh_fibers();
}

static void set_thread(unsigned t) {
    running.thread = t;
    shim_at.thread.x = t % b.shape.x;
    shim_at.thread.y = t / b.shape.x % b.shape.y;
    shim_at.thread.z = t / b.shape.x / b.shape.y;
}

std::string where(void) {
    char text[160];
    snprintf(text, sizeof text, " block (%u,%u,%u) thread (%u,%u,%u)", shim_at.block.x,
             shim_at.block.y, shim_at.block.z, shim_at.thread.x, shim_at.thread.y,
             shim_at.thread.z);
    return "kernel " + running.name + text;
}

/* ---- who runs next ---- */

static Fiber *take_idle(void) {
    Fiber *f = idle[--idles];
    if (!f->sp)
        f->sp = shim_fresh(f->stack, STACK, fiber_main);
    return f;
}

/* The stack to go on with: of a thread to begin, of one that may run again, or the scheduler's. */
static void *pick(void) {
    if (b.killed)
        return scheduler;
    if (b.next < b.count) {
        current = take_idle();
        return current->sp;
    }
    if (b.queued) {
        unsigned t = b.queue[b.head++ % THREADS];
        b.queued--;
        b.state[t] = FRESH;
        set_thread(t);
        current = b.fiber[t];
        return current->sp;
    }
    return scheduler;
}

static void leave(Fiber *f) {
    shim_switch(&f->sp, pick());
}

static void make_runnable(unsigned t) {
    b.state[t] = RUNNABLE;
    b.queue[b.tail++ % THREADS] = t;
    b.queued++;
}

/* Threads, one after the other, until none is left to begin; then the fiber waits to be used again.
 */
static void fiber_main(void) {
    for (;;) {
        while (b.next < b.count) {
            unsigned t = b.next++;
            set_thread(t);
            b.body->run();
            t = running.thread;
            b.state[t] = OVER;
            b.over++;
            b.alive[t / WARP] &= ~(1u << (t % WARP));
        }
        Fiber *me = current;
        idle[idles++] = me;
        leave(me);
    }
}

/* The thread that runs waits for others: its fiber is kept. */
static void suspend(State s) {
    unsigned t = running.thread;
    Fiber *me = current;
    b.state[t] = s;
    b.fiber[t] = me;
    leave(me);
}

void kill_kernel(cudaError_t why) {
    sticky = why;
    b.killed = true;
    void *lost;
    shim_switch(&lost, scheduler);
    abort();
}

/* ---- barriers ---- */

static void open_barrier(void) {
    running.barrier = ++tick;
    b.arrived = 0;
    b.barrier_result = b.sum;
    b.sum = 0;
}

static int barrier_value(ShimBarrier kind, unsigned threads) {
    switch (kind) {
    case SHIM_COUNT: return b.barrier_result;
    case SHIM_AND: return b.barrier_result == static_cast<int>(threads);
    case SHIM_OR: return b.barrier_result > 0;
    case SHIM_PLAIN: break;
    }
    return 0;
}

static std::string thread_name(unsigned t) {
    char text[64];
    snprintf(text, sizeof text, "thread (%u,%u,%u)", t % b.shape.x, t / b.shape.x % b.shape.y,
             t / b.shape.x / b.shape.y);
    return text;
}

static void release_barrier(void) {
    open_barrier();
    for (unsigned t = 0; t < b.count; t++)
        if (b.state[t] == AT_BARRIER)
            make_runnable(t);
}

/* All have arrived: was it the same barrier? */
static void compare_barriers(int line) {
    for (unsigned t = 0; t < b.count; t++)
        if (b.state[t] == AT_BARRIER && b.wait[t].line != line) {
            report(("lines" + running.name).c_str(),
                   "barrier divergence: %s waits at the __syncthreads of line %d, %s at that of "
                   "line %d",
                   where().c_str(), line, thread_name(t).c_str(), b.wait[t].line);
            return;
        }
}

}   // namespace shim

using namespace shim;

int shim_barrier(ShimBarrier kind, int predicate, int line) {
    b.sum += predicate;
    if (++b.arrived < b.count) {
        b.wait[running.thread].line = line;
        suspend(AT_BARRIER);
    } else {
        compare_barriers(line);
        release_barrier();
    }
    return barrier_value(kind, b.count);
}

/* ---- warp operations ---- */

namespace shim {

/* The lane whose value lane gets; itself when the source is outside its segment. */
static unsigned source_lane(const Wait &w, unsigned lane) {
    unsigned width = static_cast<unsigned>(w.width), first = lane & ~(width - 1),
             arg = static_cast<unsigned>(w.arg);
    switch (w.kind) {
    case SHIM_INDEX: return first + (arg & (width - 1));
    case SHIM_UP: return lane - first >= arg ? lane - arg : lane;
    case SHIM_DOWN: return lane - first + arg < width ? lane + arg : lane;
    case SHIM_XOR: return (lane ^ arg) < first + width ? lane ^ arg : lane;
    default: return lane;
    }
}

/* The group of lanes that `mask` names has arrived in full: give every lane its value, let all but
 * `self` run. */
static void resolve_warp(unsigned warp, unsigned mask, unsigned self) {
    unsigned base = warp * WARP, group = mask & b.waiting[warp], ballot = 0;
    uint64_t value[WARP];
    const Wait &first = b.wait[base + static_cast<unsigned>(__builtin_ctz(group))];
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(group >> lane & 1))
            continue;
        const Wait &w = b.wait[base + lane];
        value[lane] = w.value;
        ballot |= static_cast<unsigned>(w.value != 0) << lane;
        if (w.kind != first.kind || w.mask != mask)
            report(("warp" + running.name).c_str(),
                   "warp divergence: %s: lanes of one mask %08x wait at different warp operations "
                   "(lines %d and %d)",
                   where().c_str(), mask, first.line, w.line);
    }
    if (first.kind == SHIM_SYNC)
        ++tick;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(group >> lane & 1))
            continue;
        Wait &w = b.wait[base + lane];
        unsigned from = source_lane(w, lane);
        if (w.kind == SHIM_BALLOT)
            w.value = ballot;
        else if (w.kind == SHIM_SYNC)
            running.warp_sync[base + lane] = tick;
        else if (group >> from & 1)
            w.value = value[from];
        else
            report(("lane" + running.name).c_str(),
                   "undefined shuffle: kernel %s block (%u,%u,%u) %s reads lane %u, which takes no "
                   "part (line %d)",
                   running.name.c_str(), shim_at.block.x, shim_at.block.y, shim_at.block.z,
                   thread_name(base + lane).c_str(), from, w.line);
        if (base + lane != self)
            make_runnable(base + lane);
    }
    b.waiting[warp] &= ~group;
}

}   // namespace shim

uint64_t shim_warp(ShimWarp kind, unsigned mask, uint64_t value, int arg, int width, int line) {
    unsigned t = running.thread, warp = t / WARP, lane = t % WARP;
    if (!(mask >> lane & 1))
        report(("mask" + running.name).c_str(),
               "warp mask: %s: its mask %08x does not name itself (line %d)", where().c_str(), mask,
               line);
    mask |= 1u << lane;
    b.wait[t] = Wait{SHIM_PLAIN, kind, mask, value, arg, width, line};
    b.waiting[warp] |= 1u << lane;
    if ((b.waiting[warp] & mask) == (b.alive[warp] & mask))
        resolve_warp(warp, mask, t);
    else
        suspend(AT_WARP);
    return b.wait[t].value;
}

unsigned shim_active(void) { return b.alive[running.thread / WARP]; }

void shim_fence(void) { running.fenced = true; }

namespace shim {

/* ---- the block ---- */

/* Nobody can run, some wait.  Lanes wait for lanes that have finished since: fine.  A barrier that
   finished threads will never reach: reported, and opened as the hardware would.  Else no one would
   ever go on: the launch fails. */
static bool unblock(void) {
    bool moved = false;
    for (unsigned warp = 0; warp * WARP < b.count; warp++)
        for (unsigned left = b.waiting[warp]; left; left &= left - 1) {
            unsigned t = warp * WARP + static_cast<unsigned>(__builtin_ctz(left)),
                     mask = b.wait[t].mask;
            if (b.waiting[warp] >> (t % WARP) & 1 &&
                (b.waiting[warp] & mask) == (b.alive[warp] & mask)) {
                set_thread(t);
                resolve_warp(warp, mask, THREADS);
                moved = true;
            }
        }
    if (moved)
        return true;
    unsigned absent = THREADS, present = THREADS, lane = THREADS;
    for (unsigned t = b.count; t-- > 0;) {
        if (b.state[t] == OVER)
            absent = t;
        else if (b.state[t] == AT_BARRIER)
            present = t;
        else if (b.state[t] == AT_WARP)
            lane = t;
    }
    if (present < THREADS)
        set_thread(present);
    else
        set_thread(lane);
    if (lane == THREADS) {
        report(
            ("barrier" + running.name).c_str(),
            "barrier divergence: %s waits at the __syncthreads of line %d, which %s never reaches",
            where().c_str(), b.wait[present].line, thread_name(absent).c_str());
        release_barrier();
        return true;
    }
    if (present < THREADS)
        report(("stuck" + running.name).c_str(),
               "barrier divergence: %s waits at the __syncthreads of line %d while %s waits at the "
               "warp operation "
               "of line %d: the kernel hangs",
               where().c_str(), b.wait[present].line, thread_name(lane).c_str(), b.wait[lane].line);
    else
        report(("stuck" + running.name).c_str(),
               "warp divergence: %s waits at the warp operation of line %d for lanes that never "
               "come (mask %08x): "
               "the kernel hangs",
               where().c_str(), b.wait[lane].line, b.wait[lane].mask);
    sticky = cudaErrorLaunchFailure;
    return false;
}

static bool run_block(void) {
    unsigned warps = (b.count + WARP - 1) / WARP;
    b.next = b.over = b.arrived = b.head = b.tail = b.queued = 0;
    b.sum = 0;
    b.killed = false;
    memset(b.state, FRESH, b.count);
    memset(b.waiting, 0, warps * sizeof b.waiting[0]);
    for (unsigned w = 0; w < warps; w++) {
        unsigned lanes = b.count - w * WARP;
        b.alive[w] = lanes >= WARP ? 0xffffffffu : (1u << lanes) - 1;
    }
    running.block_start = running.barrier = ++tick;
    memset(running.warp_sync, 0, b.count * sizeof running.warp_sync[0]);
    shadow_block();
    tensor_block();
    while (b.over < b.count) {
        void *to = pick();
        if (to == scheduler) {
            if (!unblock())
                b.killed = true;
        } else {
            shim_switch(&scheduler, to);
        }
        if (b.killed) {
            fresh_fibers();
            return false;
        }
    }
    return true;
}

void run_grid(const std::string &name, dim3 grid, dim3 block, size_t shared, const ShimBody &body) {
    if (!stacks)
        make_fibers();
    b.body = &body;
    b.shape = block;
    b.count = block.x * block.y * block.z;
    b.grid = grid;
    running.name = name;
    running.fenced = false;
    running.dynamic = shared;
    shim_at.block_dim = block;
    shim_at.grid_dim = grid;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                shim_at.block = uint3{x, y, z};
                if (!run_block())
                    return;
            }
}

}   // namespace shim
