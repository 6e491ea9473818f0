/*
 * profile_cuda.cu - PP_PROFILE=FILE: what the device did and for how long, by kernel.  In: the
 * launches, calls and copies that pp_cuda.h marks.  Out: FILE, a line each, most time first:
 *
 *     kind  name  calls  seconds  operations  bytes           (tabs between them; operations and
 * bytes 0: not told)
 *
 * An event goes into the stream before and after each one, so its time includes what the stream
 * waited for its host: rows of tiny kernels look slower than they are.  Events are read and used
 * again when PENDING of them have gathered, and when the thread ends. They belong to a device, and
 * a thread may work for two: a copy between GPUs is timed on the sender's by whoever enqueues it.
 * PP_PROFILE_SKIP=N leaves out each thread's first N records: the first step, which loads kernels
 * and libraries.
 */
#include "api/pp_cuda.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <stdlib.h>
#include <string>
#include <utility>
#include <vector>

namespace {

enum { PENDING = 4096 };

struct Sum {
    int64_t calls = 0;
    double seconds = 0, operations = 0, bytes = 0;
};
struct Events {
    int device;
    cudaEvent_t from, to;
};
struct Record {
    const char *name, *kind;
    double operations, bytes;
    Events event;
};
typedef std::pair<std::string, std::string> Key;        /* kind, name */

std::mutex lock;
std::map<Key, Sum> &sums(void) {
    static auto *all = new std::map<Key, Sum>;          /* outlives every thread's records */
    return *all;
}

int skip_of_thread(void) {
    const char *n = getenv("PP_PROFILE_SKIP");
    return n ? atoi(n) : 0;
}

/* What fails here is nobody's error: a launch that asks afterwards must not find it. */
bool fine(cudaError_t e) {
    if (e != cudaSuccess)
        cudaGetLastError();
    return e == cudaSuccess;
}

const Record NONE = {"", "other", 0, 0, {-1, nullptr, nullptr}};

/* The records of one thread whose events nobody has read yet. */
struct Pending {
    std::vector<Record> record;
    std::vector<Events> spare;
    int open = 0;                                       /* records that have begun and not ended */
    int skip = skip_of_thread();
    Record next = NONE;                                 /* what PP_WORK said of it */

    /* At the thread's end without waiting: after a failure the device may wait for another rank for
     * ever. */
    void read(bool wait) {
        std::lock_guard<std::mutex> hold(lock);
        for (const Record &r : record) {
            float ms = 0;
            spare.push_back(r.event);
            if (!fine(wait ? cudaEventSynchronize(r.event.to) : cudaEventQuery(r.event.to)) ||
                !fine(cudaEventElapsedTime(&ms, r.event.from, r.event.to)))
                continue;
            Sum &s = sums()[Key(r.kind, r.name)];
            s.calls++;
            s.seconds += static_cast<double>(ms) * 1e-3;
            s.operations += r.operations;
            s.bytes += r.bytes;
        }
        record.clear();
    }

    bool take(Events *e) {
        if (!fine(cudaGetDevice(&e->device)))
            return false;
        for (size_t i = spare.size(); i-- > 0;)
            if (spare[i].device == e->device) {
                *e = spare[i];
                spare.erase(spare.begin() + static_cast<std::ptrdiff_t>(i));
                return true;
            }
        if (!fine(cudaEventCreate(&e->from)))
            return false;
        if (fine(cudaEventCreate(&e->to)))
            return true;
        cudaEventDestroy(e->from);
        return false;
    }

    ~Pending() {
        read(false);
        for (const Events &e : spare) {
            cudaEventDestroy(e.from);
            cudaEventDestroy(e.to);
        }
    }
};

Pending &pending(void) {
    static thread_local Pending mine;
    return mine;
}

void work(const char *kind, double operations, double bytes) {
    Record &next = pending().next;
    next.kind = kind;
    next.operations = operations;
    next.bytes = bytes;
}

int begin(const char *name, cudaStream_t stream) {
    Pending &p = pending();
    Record r = p.next;
    p.next = NONE;
    if (p.skip > 0) {
        p.skip--;
        return -1;
    }
    if (p.open == 0 && p.record.size() >= PENDING)
        p.read(true);
    if (!p.take(&r.event))
        return -1;
    r.name = name;
    if (!fine(cudaEventRecord(r.event.from, stream))) {
        p.spare.push_back(r.event);
        return -1;
    }
    p.open++;
    p.record.push_back(r);
    return static_cast<int>(p.record.size() - 1);
}

void end(int record, cudaStream_t stream) {
    Pending &p = pending();
    p.open--;
    fine(cudaEventRecord(p.record[static_cast<size_t>(record)].event.to, stream));
}

const PpProfiler profiler = {work, begin, end};

void write(void) {
    const char *path = getenv("PP_PROFILE");
    FILE *f = path ? fopen(path, "w") : nullptr;
    if (!f) {
        fprintf(stderr, "pipeline: PP_PROFILE: cannot write %s\n", path ? path : "it");
        return;
    }
    std::vector<std::pair<Key, Sum>> all(sums().begin(), sums().end());
    std::stable_sort(all.begin(), all.end(), [](const auto &a, const auto &b) {
        return a.second.seconds > b.second.seconds;
    });
    for (const auto &s : all)
        fprintf(f, "%s\t%s\t%lld\t%.9f\t%.17g\t%.17g\n", s.first.first.c_str(),
                s.first.second.c_str(), static_cast<long long>(s.second.calls), s.second.seconds,
                s.second.operations, s.second.bytes);
    fclose(f);
}

/* Threads have ended, and the main thread's records are read, before what atexit() was told runs.
 */
const bool on = [] {
    const char *path = getenv("PP_PROFILE");
    if (!path || !*path)
        return false;
    pp_profiler = &profiler;
    atexit(write);
    return true;
}();

}   // namespace
