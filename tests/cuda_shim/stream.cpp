/*
 * stream.cpp - streams and events.
 *
 * An operation is queued when it is issued and runs when somebody must have its result: the host
 * thread that waits for a stream, an event or the device runs what that needs, in stream order, and
 * nothing else.  So work that no event orders is late, and who should have waited for it sees old
 * bytes.  SHIM_ORDER=eager runs everything at once, SHIM_ORDER=random:SEED a legal mixture. Clocks
 * (one counter per stream) say which operations are over for whom; shadow.cpp asks them.
 */
#include "shim.h"

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>

struct CUstream_st {
    int id = 0, device = 0, number = 0;
    bool blocking = true, destroyed = false;
    unsigned seq = 0;
    std::deque<shim::OpRef> queue;
    shim::OpRef last;
    shim::Clock clock;
    int polls = 0;
};

struct CUevent_st {
    shim::OpRef mark;
    int number = 0, device = 0, polls = 0;
    bool timing = true;
};

namespace shim {

std::recursive_mutex machine;
std::condition_variable_any changed;

/* All streams, the default one of each device first made when used; destroyed ones stay until their
 * work is done. */
struct World {
    std::vector<CUstream_st *> streams;
    std::map<int, CUstream_st *> default_of;
    std::set<CUstream_st *> live;
    std::set<CUevent_st *> events;
    Clock host;
    int ids = 0, stream_numbers = 0, event_numbers = 0;
};
static World &world(void) {
    static auto *w = new World;
    return *w;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int stream_id(const CUstream_st *s) { return s->id; }
int stream_device(const CUstream_st *s) { return s->device; }
Clock &stream_clock(CUstream_st *s) { return s->clock; }

void merge(Clock &into, const Clock &from) {
    if (into.size() < from.size())
        into.resize(from.size(), 0);
    for (size_t i = 0; i < from.size(); i++)
        if (into[i] < from[i])
            into[i] = from[i];
}

static CUstream_st *new_stream(bool blocking) {
    auto *s = new CUstream_st;
    s->id = world().ids++;
    s->device = current_device;
    s->blocking = blocking;
    world().streams.push_back(s);
    at_exit_once();
    return s;
}

CUstream_st *stream_of(cudaStream_t s) {
    if (s) {
        if (world().live.count(s))
            return s;
        report("stream", "stream: %p is no stream, or one that was destroyed",
               static_cast<void *>(s));
        return nullptr;
    }
    CUstream_st *&d = world().default_of[current_device];
    if (!d)
        d = new_stream(true);
    return d;
}

/* ---- order ---- */

enum Order { LAZY, EAGER, RANDOM };
static unsigned long seed;

static Order order(void) {
    static const Order o = [] {
        std::string s = setting("SHIM_ORDER", "lazy");
        if (s.compare(0, 6, "random") == 0) {
            seed = s.size() > 7 ? strtoul(s.c_str() + 7, nullptr, 10) : 1;
            return RANDOM;
        }
        return s == "eager" ? EAGER : LAZY;
    }();
    return o;
}

static unsigned long dice(void) {
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return seed >> 33;
}

/* What runs without being asked for. */
static void volunteer(CUstream_st *s) {
    std::vector<CUstream_st *> &all = world().streams;
    Driver d = {false, false, {}};
    if (order() == LAZY)
        return;
    memory_open();
    if (order() == EAGER) {
        while (!s->queue.empty() && complete_op(*OpRef(s->queue.front()), d))
            ;
    } else {
        while (dice() % 2) {
            CUstream_st *pick = all[dice() % all.size()];
            if (!pick->queue.empty())
                complete_op(*OpRef(pick->queue.front()), d);
        }
    }
    memory_close();
}

OpRef enqueue(CUstream_st *s, std::string what, std::function<bool(Driver &)> step, OpRef after) {
    OpRef op = std::make_shared<Op>();
    op->stream = s;
    op->what = std::move(what);
    op->seq = ++s->seq;
    op->step = std::move(step);
    op->host = world().host;
    if (after)
        op->deps.push_back(after);
    /* The default stream and the ordinary ones wait for each other. */
    if (s->blocking) {
        CUstream_st *d =
            world().default_of.count(s->device) ? world().default_of[s->device] : nullptr;
        for (CUstream_st *other : world().streams)
            if (other != s && other->blocking && other->device == s->device &&
                (s == d || other == d) && other->last)
                op->deps.push_back(other->last);
    }
    s->queue.push_back(op);
    s->last = op;
    s->polls = 0;
    changed.notify_all();
    prepare_thread();
    volunteer(s);
    return op;
}

/* ---- running ---- */

bool start_op(Op &op, Driver &d) {
    if (op.started)
        return true;
    CUstream_st *s = op.stream;
    while (s->queue.front().get() != &op)
        if (!complete_op(*OpRef(s->queue.front()), d))
            return false;
    for (const OpRef &dep : op.deps)
        if (!complete_op(*OpRef(dep), d))
            return false;
    if (op.started)                                     /* someone on the way came here first */
        return true;
    merge(s->clock, op.host);
    for (const OpRef &dep : op.deps)
        merge(s->clock, dep->keeps_clock ? dep->clock : dep->stream->clock);
    op.deps.clear();
    if (s->clock.size() <= static_cast<size_t>(s->id))
        s->clock.resize(static_cast<size_t>(s->id) + 1, 0);
    s->clock[static_cast<size_t>(s->id)] = op.seq;
    op.started = true;
    return true;
}

static void forget_stream(CUstream_st *s) {
    auto &all = world().streams;
    for (size_t i = 0; i < all.size(); i++)
        if (all[i] == s)
            all.erase(all.begin() + static_cast<long>(i));
    /* Operations point at their stream for as long as an event holds them: the object stays, it is
     * small. */
}

bool complete_op(Op &op, Driver &d) {
    if (op.done)
        return true;
    for (const Op *v : d.visiting)
        if (v == &op) {
            if (!d.deadlock)
                report("deadlock", "deadlock: %s waits for itself through other streams",
                       op.what.c_str());
            d.deadlock = true;
            sticky = cudaErrorLaunchFailure;
            return false;
        }
    d.visiting.push_back(&op);
    bool over = start_op(op, d) && !op.done && (sticky != cudaSuccess || op.step(d));
    d.visiting.pop_back();
    if (op.done)
        return true;
    if (!over)
        return false;
    CUstream_st *s = op.stream;
    if (op.keeps_clock)
        merge(op.clock, s->clock);
    op.time = now();
    op.done = true;
    op.step = nullptr;
    s->queue.pop_front();
    if (s->destroyed && s->queue.empty())
        forget_stream(s);
    changed.notify_all();
    return true;
}

bool drive(const OpRef &op, bool block, Lock &lock, bool over_for_host) {
    for (;;) {
        Driver d = {block, false, {}};
        prepare_thread();
        memory_open();
        bool over = complete_op(*op, d);
        memory_close();
        if (over) {
            if (over_for_host)
                merge(world().host, op->keeps_clock ? op->clock : op->stream->clock);
            return true;
        }
        if (d.deadlock)
            continue; /* the error is sticky now: what is left ends without effect */
        if (!block)
            return false;
        changed.wait(lock);
    }
}

void drive_all(Lock &lock) {
    for (;;) {
        /* looked for anew each time: the list changes meanwhile */
        OpRef pending;
        for (const CUstream_st *s : world().streams)
            if (s->last && !s->last->done)
                pending = s->last;
        if (!pending)
            return;
        drive(pending, true, lock);
    }
}

void report_stream_leaks(void) {
    for (const CUstream_st *s : world().live)
        report(("stream" + std::to_string(s->number)).c_str(), "leak: stream %d is never destroyed",
               s->number);
    for (const CUevent_st *e : world().events)
        report(("event" + std::to_string(e->number)).c_str(), "leak: event %d is never destroyed",
               e->number);
}

static CUevent_st *event_of(cudaEvent_t e) {
    if (world().events.count(e))
        return e;
    report("event", "event: %p is no event, or one that was destroyed", static_cast<void *>(e));
    return nullptr;
}

/* Is it over?  The first question is always answered no, as it may be on a GPU; a no is an error of
 * the thread until it asks. */
static cudaError_t query(const OpRef &op, int *polls, Lock &lock) {
    if (!op)
        return cudaSuccess;
    if (!op->done && (*polls)++ == 0)
        return set_error(cudaErrorNotReady);
    return set_error(drive(op, false, lock) ? sticky : cudaErrorNotReady);
}

/* ---- launches ---- */

/* A launch goes to the current device, an event is recorded on its own. */
static bool same_device(const std::string &what, const CUstream_st *s, int device) {
    if (s->device != device)
        report(("device" + what).c_str(), "device: %s for device %d in a stream of device %d",
               what.c_str(), device, s->device);
    return s->device == device;
}

static bool shape_fits(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared) {
    size_t threads = size_t(block.x) * block.y * block.z;
    const char *what = nullptr;
    if (threads == 0 || threads > 1024 || block.z > 64)
        what = "a block has 1 to 1024 threads";
    else if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
             grid.z > 65535)
        what = "a grid has 1 to 2147483647 x 65535 x 65535 blocks";
    else if (shared > static_cast<size_t>(shared_limit(kernel)))
        what = "more dynamic shared memory than cudaFuncSetAttribute allowed";
    if (what)
        report((std::string("shape") + name).c_str(),
               "launch: kernel %s grid (%u,%u,%u) block (%u,%u,%u) shared %zu: %s", name, grid.x,
               grid.y, grid.z, block.x, block.y, block.z, shared, what);
    return !what;
}

}   // namespace shim

using namespace shim;

/* Copies stand at the alignment that any of them may need. */
ShimBody::ShimBody(ShimKernel k, ShimCall c, size_t n, const void *const *from,
                   const size_t *bytes)
    : kernel(k), call(c)
{
    size_t all = 0;
    auto units = [](size_t size) { return (size + sizeof(Unit) - 1) / sizeof(Unit); };
    for (size_t i = 0; i < n; i++)
        all += units(bytes[i]);
    kept.resize(all);
    Unit *to = kept.data();
    for (size_t i = 0; i < n; to += units(bytes[i++])) {
        memcpy(to, from[i], bytes[i]);
        argument.push_back(to);
    }
}

void shim_launch_kernel(const char *name, ShimKernel kernel, ShimCall call, dim3 grid, dim3 block,
                        size_t shared, cudaStream_t stream, size_t n, const void *const *argument,
                        const size_t *bytes)
{
    if (enter("launch", cudaErrorLaunchFailure) != cudaSuccess)
        return;
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    if (!s || !same_device(name, s, current_device)) {
        set_error(cudaErrorInvalidResourceHandle);
        return;
    }
    if (!shape_fits(name, reinterpret_cast<const void *>(kernel), grid, block, shared)) {
        set_error(cudaErrorInvalidConfiguration);
        return;
    }
    std::string label = name;
    auto body = std::make_shared<const ShimBody>(kernel, call, n, argument, bytes);
    enqueue(s, label, [label, grid, block, shared, body, s](Driver &) {
        if (inject("kernel")) {
            sticky = cudaErrorLaunchFailure;
            return true;
        }
        shadow_op(label, s);
        run_grid(label, grid, block, shared, *body);
        return true;
    });
}

/* ---- the interface ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    SHIM_ENTER();
    Lock lock(machine);
    *s = new_stream(!(flags & cudaStreamNonBlocking));
    (*s)->number = ++world().stream_numbers;
    world().live.insert(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    SHIM_ENTER();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    SHIM_ENTER();
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    if (!s || !stream)
        return set_error(cudaErrorInvalidResourceHandle);
    world().live.erase(s);
    s->destroyed = true;
    if (s->queue.empty())
        forget_stream(s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    SHIM_ENTER();
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    if (!s)
        return set_error(cudaErrorInvalidResourceHandle);
    if (s->last)
        drive(OpRef(s->last), true, lock);
    return set_error(sticky);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    SHIM_ENTER();
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    if (!s)
        return set_error(cudaErrorInvalidResourceHandle);
    return query(OpRef(s->last), &s->polls, lock);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    SHIM_ENTER();
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    CUevent_st *e = event_of(event);
    if (!s || !e)
        return set_error(cudaErrorInvalidResourceHandle);
    if (!e->mark)
        return cudaSuccess;                             /* never recorded: nothing to wait for */
    enqueue(s, "cudaStreamWaitEvent", [](Driver &) { return true; }, e->mark);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
    SHIM_ENTER();
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    if (!s)
        return set_error(cudaErrorInvalidResourceHandle);
    enqueue(s, "cudaLaunchHostFunc", [fn, data](Driver &) { fn(data); return true; });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    SHIM_ENTER();
    Lock lock(machine);
    *e = new CUevent_st;
    (*e)->number = ++world().event_numbers;
    (*e)->device = current_device;
    (*e)->timing = !(flags & cudaEventDisableTiming);
    world().events.insert(*e);
    at_exit_once();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    SHIM_ENTER();
    Lock lock(machine);
    CUevent_st *e = event_of(event);
    if (!e)
        return set_error(cudaErrorInvalidResourceHandle);
    world().events.erase(e);
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    SHIM_ENTER();
    Lock lock(machine);
    CUstream_st *s = stream_of(stream);
    CUevent_st *e = event_of(event);
    if (!s || !e || !same_device("cudaEventRecord", s, e->device))
        return set_error(cudaErrorInvalidResourceHandle);
    e->polls = 0;
    OpRef op = enqueue(s, "cudaEventRecord", [](Driver &) { return true; });
    op->keeps_clock = true;
    if (op->done)                                       /* it has run at once */
        merge(op->clock, s->clock);
    e->mark = op;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    SHIM_ENTER();
    Lock lock(machine);
    CUevent_st *e = event_of(event);
    if (!e)
        return set_error(cudaErrorInvalidResourceHandle);
    OpRef mark = e->mark;
    int polls = e->polls++;
    return query(mark, &polls, lock);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    SHIM_ENTER();
    Lock lock(machine);
    CUevent_st *e = event_of(event);
    if (!e)
        return set_error(cudaErrorInvalidResourceHandle);
    if (e->mark)
        drive(OpRef(e->mark), true, lock);
    return set_error(sticky);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    SHIM_ENTER();
    Lock lock(machine);
    CUevent_st *a = event_of(from), *b = event_of(to);
    if (!a || !b || !a->mark || !b->mark || !a->timing || !b->timing)
        return set_error(cudaErrorInvalidResourceHandle);
    if (!a->mark->done || !b->mark->done)
        return cudaErrorNotReady;
    *ms = static_cast<float>(1e3 * (b->mark->time - a->mark->time));
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    SHIM_ENTER();
    Lock lock(machine);
    drive_all(lock);
    return set_error(sticky);
}

cudaError_t cudaDeviceReset(void) {
    SHIM_ENTER();
    Lock lock(machine);
    drive_all(lock);
    return cudaSuccess;
}
