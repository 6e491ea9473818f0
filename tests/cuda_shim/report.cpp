/*
 * report.cpp - findings: one line each on stderr, the same finding once; exit code 97; settings;
 * errors on demand.
 *
 *     SHIM_FAIL=cudaMalloc:3,cublasSgemm:1    the third cudaMalloc and the first cublasSgemm of the
 * process fail; `kernel:2`: the second kernel that runs faults
 */
#include "shim.h"

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <set>
#include <unistd.h>

namespace shim {

static std::set<std::string> &seen(void) {
    static auto *s = new std::set<std::string>;
    return *s;
}
static bool reported;
static std::mutex report_mutex;

static void last_words(int status, void *) {
    /* A program that failed leaves much behind; what it has to say is its own message. */
    if (status == 0 && sticky == cudaSuccess) {
        report_stream_leaks();
        report_leaks();
        report_blas_leaks();
        report_dnn_leaks();
        report_nccl_leaks();
    }
    if (reported) {
        fflush(nullptr);
        _exit(EXIT_REPORTED);
    }
}

void at_exit_once(void) {
    static bool done = (on_exit(last_words, nullptr), true);
    (void)done;
}

void report(const char *key, const char *format, ...) {
    std::lock_guard<std::mutex> lock(report_mutex);
    at_exit_once();
    reported = true;
    if (seen().size() >= 100 || !seen().insert(key).second)
        return;
    char line[1200];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line - 1, format, ap);
    va_end(ap);
    size_t len = n < 0                                      ? 0
                 : static_cast<size_t>(n) < sizeof line - 2 ? static_cast<size_t>(n)
                                                            : sizeof line - 2;
    line[len] = '\n';
    if (write(STDERR_FILENO, "shim: ", 6) < 0 || write(STDERR_FILENO, line, len + 1) < 0)
        return;
}

void give_up(void) {
    fflush(nullptr);
    _exit(EXIT_REPORTED);
}

const char *setting(const char *name, const char *otherwise) {
    const char *v = getenv(name);
    return v && *v ? v : otherwise;
}

/* SHIM_FAIL, read once: for every name which calls fail, and how many there were. */
struct Injection { std::set<long> at; long calls = 0; };
static std::map<std::string, Injection> read_injections(void) {
    std::map<std::string, Injection> all;
    std::string text = setting("SHIM_FAIL", "");
    for (size_t at = 0; at < text.size();) {
        size_t end = text.find(',', at);
        if (end == std::string::npos)
            end = text.size();
        std::string item = text.substr(at, end - at);
        size_t colon = item.find(':');
        all[item.substr(0, colon)].at.insert(
            colon == std::string::npos ? 1 : atol(item.c_str() + colon + 1));
        at = end + 1;
    }
    return all;
}

int inject(const char *api) {
    static auto *all = new std::map<std::string, Injection>(read_injections());
    static std::mutex mutex;
    if (all->empty())
        return 0;
    std::lock_guard<std::mutex> lock(mutex);
    auto i = all->find(api);
    return i != all->end() && i->second.at.count(++i->second.calls);
}

}   // namespace shim
