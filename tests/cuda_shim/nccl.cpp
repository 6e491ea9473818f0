/*
 * nccl.cpp - NCCL among the threads of a process.
 *
 * The calls of a group on one stream become one operation of that stream.  A transfer has two
 * halves, paired in the order in which each side named the other, and moves once both operations
 * have begun; an operation is over when all its transfers have moved.  Nothing is buffered: two
 * ranks that both send before they receive wait for each other, which is reported as a deadlock
 * (stream.cpp finds the circle).  An all-reduce adds in rank order.
 *
 * A kernel of NCCL holds its blocks while it waits.  What all communicators of a device may hold
 * together has to leave room for the others, and for the kernels that make what is sent; so it is
 * reported when it does not, on a device as large as an H100.  And a kernel's first launch may load
 * it, which may wait for the device, and so for a kernel that waits: who uses NCCL has to load all
 * beforehand.
 */
#include "nccl.h"
#include "shim.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace shim {

enum Collective { SEND, RECV, ALL_REDUCE, BROADCAST };
struct Channel;

/* One call of one rank; two or more of them meet in a Meeting. */
struct Meeting;
struct Call {
    Collective kind;
    ncclComm *comm;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    int peer;                                           /* or root */
    ncclRedOp_t reduction;
    cudaStream_t stream;
    std::shared_ptr<Meeting> meeting;
};

struct Meeting {
    std::vector<Call> calls;                            /* sender, receiver; or by rank */
    std::vector<OpRef> ops;
    bool moved = false;
};
typedef std::shared_ptr<Meeting> MeetingRef;

/* All ranks of one unique id. */
struct Group {
    int ranks = 0, joined = 0, left = 0;
    ncclResult_t error = ncclSuccess;
    std::set<int> devices;
    /* (sender, receiver): begun by sends, by receives */
    std::map<std::pair<int, int>, std::deque<MeetingRef>> half[2];
    std::vector<unsigned> next;                         /* number of each rank's next collective */
    std::map<unsigned, MeetingRef> collective;
};

}   // namespace shim

struct ncclComm {
    std::shared_ptr<shim::Group> group;
    int rank = 0, device = 0, number = 0, blocks = 0;
    bool aborted = false;
};

namespace shim {

static std::set<ncclComm *> &comms(void) {
    static auto *all = new std::set<ncclComm *>;
    return *all;
}
static std::map<std::string, std::shared_ptr<Group>> &groups(void) {
    static auto *all = new std::map<std::string, std::shared_ptr<Group>>;
    return *all;
}
static int numbers, ids;
static thread_local int depth;
static thread_local std::vector<Call> *pending;
static thread_local std::vector<ncclComm *> *joining;

void report_nccl_leaks(void) {
    for (const ncclComm *c : comms())
        report(("comm" + std::to_string(c->number)).c_str(),
               "leak: NCCL communicator %d (rank %d) is never destroyed", c->number,
               c->rank);
}

static size_t size_of(ncclDataType_t t) {
    switch (t) {
    case ncclInt8: case ncclUint8: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    }
    return 0;
}

/* ---- moving ---- */

static bool touch(const Call &c, const OpRef &op, const void *p, bool write) {
    size_t bytes = c.count * size_of(c.type);
    static const char *const names[] = {"ncclSend", "ncclRecv", "ncclAllReduce", "ncclBroadcast"};
    shadow_op(names[c.kind], op->stream);
    const Allocation *x = allocation_near(p);
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    if (bytes && (!x || !x->live || a < x->base || a - x->base + bytes > x->bytes)) {
        report("nccl bounds", "out of bounds: %s of %zu bytes at %p: %s", names[c.kind], bytes, p,
               describe(x && x->live && a >= x->base ? static_cast<const char *>(p) + bytes : p)
                   .c_str());
        sticky = cudaErrorIllegalAddress;
        return false;
    }
    return !bytes || x->pinned || shadow_range(p, bytes, write, false);
}

template <class T> static void reduce(Meeting &m) {
    const Call &first = m.calls[0];
    std::vector<T> sum(first.count);
    for (size_t i = 0; i < first.count; i++) {
        T s = static_cast<const T *>(first.from)[i];
        for (size_t r = 1; r < m.calls.size(); r++) {
            T v = static_cast<const T *>(m.calls[r].from)[i];
            switch (first.reduction) {
            case ncclSum: case ncclAvg: s = static_cast<T>(s + v); break;
            case ncclProd: s = static_cast<T>(s * v); break;
            case ncclMax: s = s < v ? v : s; break;
            case ncclMin: s = v < s ? v : s; break;
            }
        }
        sum[i] =
            first.reduction == ncclAvg ? static_cast<T>(s / static_cast<T>(m.calls.size())) : s;
    }
    for (const Call &c : m.calls)
        memcpy(c.to, sum.data(), sum.size() * sizeof(T));
}

static void all_reduce(Meeting &m) {
    switch (m.calls[0].type) {
    case ncclFloat32: reduce<float>(m); break;
    case ncclFloat64: reduce<double>(m); break;
    case ncclInt32: reduce<int>(m); break;
    case ncclInt64: reduce<long long>(m); break;
    case ncclUint8: reduce<unsigned char>(m); break;
    default:
        report("nccl type", "ncclAllReduce: the shim has no sums of type %d",
               static_cast<int>(m.calls[0].type));
    }
}

static void mismatch(Meeting &m, const Call &a, const Call &b) {
    report("nccl match", "NCCL: rank %d names %zu elements of type %d, rank %d %zu of type %d",
           a.comm->rank, a.count, static_cast<int>(a.type), b.comm->rank, b.count,
           static_cast<int>(b.type));
    a.comm->group->error = ncclInvalidUsage;
    m.moved = true;
    sticky = cudaErrorLaunchFailure;
}

/* All have begun: every rank reads what it gives, then writes what it gets; who gets knows what the
 * givers knew. */
static void move(Meeting &m) {
    for (const Call &c : m.calls)
        if (c.count != m.calls[0].count || c.type != m.calls[0].type ||
            (c.kind > RECV && c.kind != m.calls[0].kind)) {
            mismatch(m, m.calls[0], c);
            return;
        }
    Clock all;
    m.moved = true;
    for (size_t i = 0; i < m.calls.size(); i++) {
        const Call &c = m.calls[i];
        bool gives = c.kind == SEND || c.kind == ALL_REDUCE ||
                     (c.kind == BROADCAST && c.comm->rank == c.peer);
        if (gives && !touch(c, m.ops[i], c.from, false))
            return;
        if (gives)
            merge(all, stream_clock(m.ops[i]->stream));
    }
    for (size_t i = 0; i < m.calls.size(); i++)
        if (m.calls[i].kind != SEND) {
            merge(stream_clock(m.ops[i]->stream), all);
            if (!touch(m.calls[i], m.ops[i], m.calls[i].to, true))
                return;
        }
    const Call &first = m.calls[0];
    size_t bytes = first.count * size_of(first.type);
    if (first.kind == ALL_REDUCE) {
        all_reduce(m);
        return;
    }
    const void *from =
        first.kind == SEND ? first.from : m.calls[static_cast<size_t>(first.peer)].from;
    for (const Call &c : m.calls)
        if (c.kind != SEND && c.to != from)
            memmove(c.to, from, bytes);
}

/* The operation has begun: helps the others of each of its meetings to begin. */
static bool advance_calls(const std::vector<Call> &calls, Driver &d) {
    bool over = true;
    for (const Call &c : calls) {
        Meeting &m = *c.meeting;
        bool all = true;
        if (m.moved || c.comm->aborted)
            continue;
        for (size_t i = 0; i < m.ops.size() && !m.moved; i++)
            all = m.ops[i] && start_op(*OpRef(m.ops[i]), d) && all;
        if (all && !m.moved)
            move(m);
        over = over && m.moved;
    }
    return over;
}

/* ---- issuing ---- */

static MeetingRef join(Call &c, const OpRef &op) {
    Group &g = *c.comm->group;
    size_t mine;
    MeetingRef m;
    if (c.kind <= RECV) {
        mine = c.kind == SEND ? 0 : 1;
        auto key = c.kind == SEND ? std::make_pair(c.comm->rank, c.peer)
                                  : std::make_pair(c.peer, c.comm->rank);
        std::deque<MeetingRef> &other = g.half[1 - mine][key];
        if (other.empty()) {
            m = std::make_shared<Meeting>();
            m->calls.resize(2);
            m->ops.resize(2);
            g.half[mine][key].push_back(m);
        } else {
            m = other.front();
            other.pop_front();
        }
    } else {
        mine = static_cast<size_t>(c.comm->rank);
        unsigned number = g.next[mine]++;
        MeetingRef &slot = g.collective[number];
        if (!slot) {
            slot = std::make_shared<Meeting>();
            slot->calls.resize(static_cast<size_t>(g.ranks));
            slot->ops.resize(static_cast<size_t>(g.ranks));
        }
        m = slot;
        bool last = true;
        for (size_t r = 0; r < m->ops.size(); r++)
            last = last && (r == mine || m->ops[r]);
        if (last)
            g.collective.erase(number);
    }
    m->calls[mine] = c;
    m->ops[mine] = op;
    c.meeting = m;
    return m;
}

/* The operation exists before its calls join their meetings, and runs only afterwards. */
static ncclResult_t issue(const std::vector<Call> &calls) {
    std::map<cudaStream_t, std::vector<Call>> by_stream;
    for (const Call &c : calls)
        by_stream[c.stream].push_back(c);
    for (auto &i : by_stream) {
        CUstream_st *s = stream_of(i.first);
        if (!s)
            return ncclInvalidArgument;
        auto mine = std::make_shared<std::vector<Call>>(i.second);
        auto joined = std::make_shared<bool>(false);
        OpRef op = enqueue(
            s, "NCCL", [mine, joined](Driver &d) { return *joined && advance_calls(*mine, d); });
        op->keeps_clock = true;
        for (Call &c : *mine)
            join(c, op);
        *joined = true;
    }
    changed.notify_all();
    return ncclSuccess;
}

static ncclResult_t enter_nccl(const char *name)
{
    return enter(name) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

static ncclResult_t check_stream(const char *name, const Call &c) {
    const CUstream_st *s = stream_of(c.stream);
    if (!s)
        return ncclInvalidArgument;
    if (stream_device(s) == c.comm->device)
        return ncclSuccess;
    report("nccl device", "NCCL: %s by a communicator of device %d in a stream of device %d", name,
           c.comm->device, stream_device(s));
    return ncclUnhandledCudaError;
}

static ncclResult_t call(const char *name, Call c) {
    ncclResult_t e = enter_nccl(name);
    if (e != ncclSuccess)
        return e;
    Lock lock(machine);
    if (!comms().count(c.comm)) {
        report("nccl comm", "NCCL: %s: %p is no communicator, or one that was destroyed", name,
               static_cast<void *>(c.comm));
        return ncclInvalidArgument;
    }
    if (c.peer < 0 || c.peer >= c.comm->group->ranks || !size_of(c.type) ||
        (c.count && !c.from && !c.to))
        return ncclInvalidArgument;
    if (c.comm->aborted || c.comm->group->error != ncclSuccess)
        return ncclInvalidUsage;
    e = check_stream(name, c);
    if (e != ncclSuccess)
        return e;
    if (depth > 0) {
        if (!pending)
            pending = new std::vector<Call>;
        pending->push_back(c);
        return ncclSuccess;
    }
    return issue({c});
}

/* Waits until every rank of the communicator has come. */
static void wait_joined(ncclComm *c, Lock &lock) {
    while (c->group->joined < c->group->ranks && !c->aborted)
        changed.wait(lock);
}

enum { BLOCKS = 64 };                                      /* of a kernel that nothing limits */

static void check_room(int device) {
    int held = 0;
    for (const ncclComm *c : comms())
        held += c->device == device ? c->blocks : 0;
    if (held > MULTIPROCESSORS)
        report("nccl room",
               "NCCL: communicators of device %d may hold %d blocks while they wait: a device of "
               "%d multiprocessors is full",
               device, held, int{MULTIPROCESSORS});
}

}   // namespace shim

using namespace shim;

ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    ncclResult_t e = enter_nccl(__func__);
    Lock lock(machine);
    /* NCCL's begin with random bytes: these with zeros */
    memset(id, 0, sizeof *id);
    snprintf(id->internal + 8, sizeof id->internal - 8, "shim%d", ++ids);
    return e;
}

static ncclResult_t init_rank(const char *name, ncclComm_t *comm, int ranks, ncclUniqueId id,
                              int rank, int blocks)
{
    ncclResult_t e = enter_nccl(name);
    if (e != ncclSuccess)
        return e;
    if (ranks < 1 || rank < 0 || rank >= ranks || blocks < 1)
        return ncclInvalidArgument;
    if (ranks > 1 && !loads_beforehand())
        report("nccl loading", "NCCL: kernels are loaded when they are first launched, which may "
                               "wait for one that waits for another rank: "
                               "CUDA_MODULE_LOADING=EAGER, before the first call of CUDA");
    Lock lock(machine);
    std::shared_ptr<Group> &g =
        groups()[std::string(id.internal, sizeof id.internal)];
    if (!g)
        g = std::make_shared<Group>();
    if (g->ranks && g->ranks != ranks)
        return ncclInvalidUsage;
    g->ranks = ranks;
    g->next.resize(static_cast<size_t>(ranks), 0);
    g->joined++;
    if (!g->devices.insert(current_device).second)      /* "duplicate GPU detected" */
        g->error = ncclInvalidUsage;
    auto *c = new ncclComm;
    c->group = g;
    c->rank = rank;
    c->device = current_device;
    c->number = ++numbers;
    c->blocks = std::min(blocks, int{BLOCKS});
    comms().insert(c);
    check_room(c->device);
    at_exit_once();
    *comm = c;
    changed.notify_all();
    if (depth > 0) {
        if (!joining)
            joining = new std::vector<ncclComm *>;
        joining->push_back(c);
        return ncclSuccess;
    }
    wait_joined(c, lock);
    if (g->error == ncclSuccess)
        return ncclSuccess;
    comms().erase(c);
    *comm = nullptr;
    return g->error;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    return init_rank(__func__, comm, ranks, id, rank, BLOCKS);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (config && config->size != static_cast<int>(sizeof *config))
        return ncclInvalidArgument;
    return init_rank(__func__, comm, ranks, id, rank,
                     config && config->maxCTAs != NCCL_CONFIG_UNDEF_INT ? config->maxCTAs : BLOCKS);
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return enter_nccl(__func__); }

static ncclResult_t forget_comm(ncclComm *c) {
    if (!comms().erase(c)) {
        report("nccl comm", "NCCL: %p is no communicator, or one that was destroyed",
               static_cast<void *>(c));
        return ncclInvalidArgument;
    }
    /* operations may still point at it: it stays, it is small */
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    ncclResult_t e = enter_nccl(__func__);
    Lock lock(machine);
    ncclResult_t forgotten = forget_comm(comm);
    return e == ncclSuccess ? forgotten : e;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    Lock lock(machine);
    ncclResult_t e = forget_comm(comm);
    if (e != ncclSuccess)
        return e;
    comm->aborted = true;
    comm->group->error = ncclRemoteError;
    changed.notify_all();
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *e) {
    ncclResult_t entered = enter_nccl(__func__);
    Lock lock(machine);
    *e = comm->group->error;
    return entered;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    *count = comm->group->ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    *device = comm->device;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t e) {
    switch (e) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    }
    return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart(void) {
    ncclResult_t e = enter_nccl(__func__);
    if (e == ncclSuccess)
        depth++;
    return e;
}

ncclResult_t ncclGroupEnd(void) {
    ncclResult_t e = enter_nccl(__func__);
    if (depth == 0)
        return ncclInvalidUsage;
    if (--depth > 0)
        return e;
    Lock lock(machine);
    if (joining) {
        std::vector<ncclComm *> all = std::move(*joining);
        joining->clear();
        for (ncclComm *c : all)
            wait_joined(c, lock);
    }
    if (!pending)
        return e;
    std::vector<Call> calls = std::move(*pending);
    pending->clear();
    return e == ncclSuccess ? issue(calls) : e;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t s)
{
    return call(__func__, Call{SEND, comm, from, nullptr, count, type, peer, ncclSum, s, nullptr});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t s)
{
    return call(__func__, Call{RECV, comm, nullptr, to, count, type, peer, ncclSum, s, nullptr});
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t s)
{
    return call(__func__, Call{ALL_REDUCE, comm, from, to, count, type, 0, op, s, nullptr});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t s)
{
    return call(__func__, Call{BROADCAST, comm, from, to, count, type, root, ncclSum, s, nullptr});
}
