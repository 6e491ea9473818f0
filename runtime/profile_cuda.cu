/*
 * profile_cuda.cu - PP_PROFILE=FILE: what the device did and for how long, by kernel.  In: the launches, calls and copies that
 * pp_cuda.h marks.  Out: FILE, a line each, most time first:
 *
 *     kind  name  calls  seconds  operations  bytes           (tabs between them; operations and bytes 0: not told)
 *
 * An event goes into the stream before and after each one, so its time includes what the stream waited for its host: rows of
 * tiny kernels look slower than they are.  Events are read and used again when PENDING of them have gathered, and when the thread ends.
 * PP_PROFILE_SKIP=N leaves out each thread's first N records: the first step, which loads kernels and libraries.
 */
#include "pp_cuda.h"

#include <algorithm>
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
struct Record {
    const char *name, *kind;
    double operations, bytes;
    cudaEvent_t from, to;
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

/* The records of one thread whose events nobody has read yet. */
struct Pending {
    std::vector<Record> record;
    size_t used = 0;
    int skip = skip_of_thread();
    Record next = {"", "other", 0, 0, nullptr, nullptr};        /* what PP_WORK said of it */

    void read() {
        std::lock_guard<std::mutex> hold(lock);
        for (size_t i = 0; i < used; i++) {
            Record &r = record[i];
            float ms = 0;
            if (cudaEventSynchronize(r.to) != cudaSuccess || cudaEventElapsedTime(&ms, r.from, r.to) != cudaSuccess)
                continue;
            Sum &s = sums()[Key(r.kind, r.name)];
            s.calls++;
            s.seconds += static_cast<double>(ms) * 1e-3;
            s.operations += r.operations;
            s.bytes += r.bytes;
        }
        used = 0;
    }

    ~Pending() {
        read();
        for (Record &r : record) {
            cudaEventDestroy(r.from);
            cudaEventDestroy(r.to);
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
    p.next = Record{"", "other", 0, 0, nullptr, nullptr};
    if (p.skip > 0) {
        p.skip--;
        return -1;
    }
    if (p.used == PENDING)
        p.read();
    if (p.used == p.record.size()) {
        if (cudaEventCreate(&r.from) != cudaSuccess)
            return -1;
        if (cudaEventCreate(&r.to) != cudaSuccess) {
            cudaEventDestroy(r.from);
            return -1;
        }
        p.record.push_back(r);
    } else {
        r.from = p.record[p.used].from;
        r.to = p.record[p.used].to;
    }
    r.name = name;
    p.record[p.used] = r;
    if (cudaEventRecord(r.from, stream) != cudaSuccess)
        return -1;
    return static_cast<int>(p.used++);
}

void end(int record, cudaStream_t stream) { cudaEventRecord(pending().record[static_cast<size_t>(record)].to, stream); }

const PpProfiler profiler = {work, begin, end};

void write(void) {
    const char *path = getenv("PP_PROFILE");
    FILE *f = path ? fopen(path, "w") : nullptr;
    if (!f) {
        fprintf(stderr, "pipeline: PP_PROFILE: cannot write %s\n", path ? path : "it");
        return;
    }
    std::vector<std::pair<Key, Sum>> all(sums().begin(), sums().end());
    std::stable_sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.second.seconds > b.second.seconds; });
    for (const auto &s : all)
        fprintf(f, "%s\t%s\t%lld\t%.9f\t%.17g\t%.17g\n", s.first.first.c_str(), s.first.second.c_str(),
                static_cast<long long>(s.second.calls), s.second.seconds, s.second.operations, s.second.bytes);
    fclose(f);
}

/* Threads have ended, and the main thread's records are read, before what atexit() was told runs. */
const bool on = [] {
    const char *path = getenv("PP_PROFILE");
    if (!path || !*path)
        return false;
    pp_profiler = &profiler;
    atexit(write);
    return true;
}();

}   // namespace
