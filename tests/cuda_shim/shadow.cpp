/*
 * shadow.cpp - what the last write and the last reads of every word of device and shared memory
 * were; every new access is compared.
 *
 * The .cu files are compiled with -fsanitize=thread, which makes the compiler call
 * __tsan_readN/__tsan_writeN before every access; these functions are ours, no sanitizer's library
 * is linked.  -fsanitize=alignment,bounds calls the two handlers at the end. Time is a counter of
 * ticks (one for each operation, block, barrier, __syncwarp), so an old access is ordered before a
 * new one when its tick lies before the last barrier of this block, or it is of the same warp and
 * before a __syncwarp of this thread, or it belongs to an earlier operation which streams and
 * events put before this one (vector clocks), and it is a race otherwise.  Blocks of one launch are
 * never ordered, except after __threadfence, of which no more is known. Reported besides: bytes
 * outside of any allocation, bytes nobody has written, host memory, misalignment.
 */
#include "shim.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace shim {

bool instrumented;
unsigned tick;

/* Readers: one thread, several threads of one warp, several warps. */
enum { MANY_OF_WARP = 1024, MANY = 2047 };

struct Cell {
    /* ticks; read_other: of another operation, not ordered before `read` */
    unsigned write, read, read_other;
    /* Readers of the lower two bytes and of the upper two, which may be elements of 16 bits.  Whole
     * bytes: what one store writes, one load reads, which a processor can hand on. */
    uint16_t write_thread, low_reader, high_reader;
    uint8_t write_mask : 4, atomic : 1;
    uint8_t read_mask;
};
enum { LOW = 3, HIGH = 12 };                            /* masks of bytes */

/* Per word of device memory; reserved whole, used where touched.  A state is two masks: bytes that
 * exist, bytes that are set. */
static Cell *cells;
static unsigned char *states;
static Cell *shared_cells;
static unsigned char *shared_states, *shared_fresh;     /* fresh: what a block begins with */
static size_t pp_shared_offset = ~size_t(0);

static bool off(const char *check) {
    static const std::string list = std::string(",") + setting("SHIM_OFF", "") + ",";
    return list.find(std::string(",") + check + ",") != std::string::npos;
}

static void *zeros(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        report("shadow", "no address space for the shadow memory");
        give_up();
    }
    return p;
}

/* These bytes exist, and nobody has written them. */
static void mark(unsigned char *all, size_t from, size_t bytes) {
    const size_t end = from + bytes, first = std::min((from + 3) / 4 * 4, end);
    const size_t last = std::max(end / 4 * 4, first);
    const auto one = [all](size_t i) {
        all[i / 4] = static_cast<unsigned char>(all[i / 4] | 1u << (i % 4));
    };
    for (size_t i = from; i < first; i++)
        one(i);
    memset(all + first / 4, 15, (last - first) / 4);
    for (size_t i = last; i < end; i++)
        one(i);
}

static void prepare(void) {
    if (cells)
        return;
    cells = static_cast<Cell *>(zeros(ARENA_BYTES / 4 * sizeof(Cell)));
    states = static_cast<unsigned char *>(zeros(ARENA_BYTES / 4));
    madvise(states, ARENA_BYTES / 4, MADV_HUGEPAGE);    /* marked by the megabyte: less faults */
    size_t words = shared_bytes() / 4 + 1;
    shared_cells = static_cast<Cell *>(calloc(words, sizeof(Cell)));
    shared_states = static_cast<unsigned char *>(calloc(words, 1));
    shared_fresh = static_cast<unsigned char *>(calloc(words, 1));
    for (const Variable &v : shared_variables()) {
        if (v.name == "pp_shared")
            pp_shared_offset = v.offset;
        else
            mark(shared_fresh, v.offset, v.bytes);
    }
    if (shared_variables().empty())                     /* stripped: all may be shared variables */
        mark(shared_fresh, 0, shared_bytes());
}

/* ---- operations, by the ticks they began at ---- */

struct Run { unsigned first; int stream; unsigned seq; const std::string *name; };
static std::vector<Run> &runs(void) {
    static auto *all = new std::vector<Run>;
    return *all;
}
static CUstream_st *now_stream;
/* ranges of ticks known to lie before this operation */
static struct { unsigned from, to; } known[4];
static unsigned known_next;

static const std::string *interned(const std::string &name) {
    static auto *names = new std::map<std::string, std::string>;
    return &names->emplace(name, name).first->second;
}

void shadow_op(const std::string &name, CUstream_st *s) {
    running.name = name;
    running.op_start = running.block_start = running.barrier = ++tick;
    running.fenced = false;
    running.thread = 0;
    running.warp_sync[0] = 0;
    now_stream = s;
    if (!instrumented)
        return;
    prepare();
    memset(known, 0, sizeof known);
    unsigned seq = stream_clock(s)[static_cast<size_t>(stream_id(s))];
    runs().push_back(Run{tick, stream_id(s), seq, interned(name)});
}

void shadow_block(void) {
    if (!instrumented)
        return;
    size_t words = shared_bytes() / 4 + 1;
    memcpy(shared_states, shared_fresh, std::min(words, pp_shared_offset / 4));
    if (pp_shared_offset != ~size_t(0)) {
        size_t end = pp_shared_offset + 232448;
        static size_t before;                           /* the words that the last launch had */
        size_t bytes = (running.dynamic + 3) / 4;
        memset(shared_states + pp_shared_offset / 4, 15, running.dynamic / 4);
        if (bytes < before)
            memset(shared_states + pp_shared_offset / 4 + bytes, 0, before - bytes);
        if (running.dynamic % 4)
            shared_states[pp_shared_offset / 4 + bytes - 1] =
                static_cast<unsigned char>((1u << running.dynamic % 4) - 1);
        before = bytes;
        if (end / 4 < words)
            memcpy(shared_states + end / 4, shared_fresh + end / 4, words - end / 4);
    }
}

void shadow_unset(const void *p, size_t bytes) {
    const size_t at = reinterpret_cast<uintptr_t>(p) - shared_base();
    if (instrumented && at < shared_bytes())
        for (size_t w = at / 4; w < (at + bytes + 3) / 4; w++)
            shared_states[w] &= 15;
}

static const Run &run_at(unsigned t) {
    auto i = std::upper_bound(runs().begin(), runs().end(), t,
                              [](unsigned x, const Run &r) { return x < r.first; });
    return *(i - 1);
}

/* Was the operation of tick t over before this one could begin? */
static bool ordered(unsigned t) {
    for (const auto &k : known)
        if (t - k.from < k.to - k.from)
            return true;
    auto i = std::upper_bound(runs().begin(), runs().end(), t,
                              [](unsigned x, const Run &r) { return x < r.first; });
    const Run &r = *(i - 1);
    const Clock &clock = stream_clock(now_stream);
    if (static_cast<size_t>(r.stream) >= clock.size() ||
        clock[static_cast<size_t>(r.stream)] < r.seq)
        return false;
    auto &k = known[known_next++ % 4];
    k.from = r.first;
    /* the current operation, at least, follows */
    k.to = i->first;
    return true;
}

/* ---- findings ---- */

enum How { READ, WRITE, ATOMIC };
static const char *const verb[] = {"reads", "writes", "updates"};

struct Access {
    uintptr_t a;
    size_t bytes;
    How how;
    const void *pc;                                     /* null: a copy or a library call */
    bool may_be_unset;
};

static std::string who(const Access &x) { return x.pc ? where() : running.name; }

static std::string target(uintptr_t a) {
    if (in_device_memory(a))
        return describe(reinterpret_cast<const void *>(a));
    size_t offset = a - shared_base();
    const Variable *best = nullptr;
    for (const Variable &v : shared_variables())
        if (v.offset <= offset)
            best = &v;
    if (!best)
        return "shared memory";
    char text[64];
    snprintf(text, sizeof text,
             offset < best->offset + best->bytes ? "byte %zu of shared " : "%zu bytes past shared ",
             offset < best->offset + best->bytes ? offset - best->offset
                                                 : offset - best->offset - best->bytes);
    return text + best->name;
}

static std::string key(const char *kind, const Access &x) {
    char pc[32];
    snprintf(pc, sizeof pc, " %p", x.pc);
    return kind + running.name + pc;
}

[[noreturn]] static void fatal_access(const char *kind, const Access &x, uintptr_t at,
                                      cudaError_t e)
{
    report(key(kind, x).c_str(), "%s: %s: %s %zu bytes at %p: %s%s", kind, who(x).c_str(),
           verb[x.how], x.bytes, reinterpret_cast<const void *>(x.a), target(at).c_str(),
           source_line(x.pc).c_str());
    kill_kernel(e);
}

static void unset(const Access &x, uintptr_t a) {
    report(key("unset", x).c_str(), "read before written: %s: reads %zu bytes at %p: %s%s",
           who(x).c_str(), x.bytes, reinterpret_cast<const void *>(a), target(a).c_str(),
           source_line(x.pc).c_str());
}

static void race(const Access &x, uintptr_t a, const char *earlier, unsigned other_thread) {
    char thread[64] = "another thread";
    if (other_thread < 1024) {
        unsigned w = blockDim.x, h = blockDim.y;
        snprintf(thread, sizeof thread, "thread (%u,%u,%u)", other_thread % w, other_thread / w % h,
                 other_thread / w / h);
    }
    report(key("race", x).c_str(), "race: %s: %s %s, which %s %s, without a barrier between%s",
           who(x).c_str(), verb[x.how], target(a).c_str(), thread, earlier,
           source_line(x.pc).c_str());
}

static void race_between_blocks(const Access &x, uintptr_t a, const char *earlier) {
    report(key("blocks", x).c_str(), "race between blocks: %s: %s %s, which another block %s%s",
           who(x).c_str(), verb[x.how], target(a).c_str(), earlier, source_line(x.pc).c_str());
}

static void hazard(const Access &x, uintptr_t a, unsigned t, const char *earlier) {
    const Run &r = run_at(t);
    report(("order" + running.name + " " + *r.name).c_str(),
           "missing wait: %s (stream %d): %s %s, which %s (stream %d) %s, and no event or "
           "synchronisation orders them%s",
           who(x).c_str(), stream_id(now_stream), verb[x.how], target(a).c_str(), r.name->c_str(),
           r.stream, earlier, source_line(x.pc).c_str());
}

/* ---- one word ---- */

/* The earlier access at tick t by `thread` (or several): must it have been ordered, and was it not?
 */
static inline void compare(const Access &x, uintptr_t a, unsigned t, unsigned thread,
                           const char *earlier)
{
    if (t < running.op_start) {
        if (in_device_memory(a) && !ordered(t))         /* shared memory is each launch's own */
            hazard(x, a, t, earlier);
    } else if (t < running.block_start) {
        if (!running.fenced && in_device_memory(a))
            race_between_blocks(x, a, earlier);
    } else if (t >= running.barrier && thread != running.thread) {
        unsigned warp = thread < 1024 ? thread / 32 : thread - MANY_OF_WARP;
        bool same_warp = thread != MANY && warp == running.thread / 32;
        if (!(same_warp && t < running.warp_sync[running.thread]))
            race(x, a, earlier, thread);
    }
}

/* Was this read certainly before the thread that runs now, so that it may be forgotten for it? */
static inline bool past(unsigned t, unsigned thread) {
    if (t < running.barrier)
        return true;
    unsigned warp = thread < 1024 ? thread / 32 : thread - MANY_OF_WARP;
    return thread != MANY && warp == running.thread / 32 && t < running.warp_sync[running.thread];
}

/* Who has read a half of a word, when thread `me` has too. */
static inline unsigned readers(unsigned before, unsigned me)
{
    unsigned warp = before < 1024 ? before / 32 : before - MANY_OF_WARP;
    bool same_warp = before != MANY && warp == me / 32;
    return before == me ? me : same_warp ? MANY_OF_WARP + me / 32 : static_cast<unsigned>(MANY);
}

static inline void note_read(Cell &c, unsigned mask) {
    unsigned me = running.thread;
    if (c.read && c.read < running.op_start) {
        if (!ordered(c.read))
            c.read_other = c.read;
        c.read = 0;
    }
    /* whoever is ordered after this read is after the earlier ones */
    unsigned seen = c.read_mask;
    if (!c.read || ((!(seen & LOW) || past(c.read, c.low_reader)) &&
                    (!(seen & HIGH) || past(c.read, c.high_reader))))
        seen = 0;
    if (mask & LOW)
        c.low_reader = static_cast<uint16_t>(seen & LOW ? readers(c.low_reader, me) : me);
    if (mask & HIGH)
        c.high_reader = static_cast<uint16_t>(seen & HIGH ? readers(c.high_reader, me) : me);
    c.read_mask = static_cast<uint8_t>(seen | mask);
    c.read = tick;
}

/* Words that the same earlier operations touched lie side by side: the last one's ticks, found to
 * be before this operation. */
static struct { unsigned op, write, read; } alike;

static inline void set_write(const Access &x, Cell &c, unsigned mask, unsigned char &state) {
    c.write = tick;
    c.write_mask = mask & 15;
    c.write_thread = static_cast<uint16_t>(running.thread);
    c.atomic = x.how == ATOMIC;
    c.read = c.read_other = 0;
    state = static_cast<unsigned char>(state | mask << 4);
}

static inline bool like_the_last(const Access &x, unsigned mask, Cell &c, unsigned char &state) {
    if (alike.op != running.op_start || c.write != alike.write || c.read != alike.read ||
        c.read_other || (state & mask) != mask ||
        (x.how != WRITE && ((state >> 4) & mask) != mask && !x.may_be_unset))
        return false;
    if (x.how == READ) {
        c.read = tick;
        c.low_reader = c.high_reader = static_cast<uint16_t>(running.thread);
        c.read_mask = static_cast<uint8_t>(mask);
    } else {
        set_write(x, c, mask, state);
    }
    return true;
}

static inline void word(const Access &x, uintptr_t a, unsigned mask, Cell &c, unsigned char &state)
{
    if (like_the_last(x, mask, c, state))
        return;
    if ((state & mask) != mask)
        fatal_access("out of bounds", x, a + static_cast<unsigned>(__builtin_ctz(mask & ~state)),
                     cudaErrorIllegalAddress);
    if (x.how != WRITE && ((state >> 4) & mask) != mask && !x.may_be_unset && !off("unset")) {
        unset(x, a);
        state = static_cast<unsigned char>(state | mask << 4);      /* once is enough */
    }
    if (c.write && (c.write_mask & mask) && !(x.how == ATOMIC && c.atomic))
        compare(x, a, c.write, c.write_thread, c.atomic ? "updates" : "has written");
    bool whole = (!c.write || c.write_mask == 15) && (!c.read || c.read_mask == 15);
    bool earlier =
        whole && c.write < running.op_start && c.read < running.op_start && !c.read_other;
    unsigned write = c.write, read = c.read;
    if (x.how == READ) {
        note_read(c, mask);
        if (earlier && !c.read_other)
            alike = {running.op_start, write, read};
        return;
    }
    if (c.read && (c.read_mask & mask & LOW))
        compare(x, a, c.read, c.low_reader, "has read");
    if (c.read && (c.read_mask & mask & HIGH) &&
        (!(c.read_mask & mask & LOW) || c.high_reader != c.low_reader))
        compare(x, a, c.read, c.high_reader, "has read");
    if (c.read_other)
        compare(x, a, c.read_other, MANY, "has read");
    if (earlier)
        alike = {running.op_start, write, read};
    if (c.write == tick && c.write_thread == running.thread)
        set_write(x, c, c.write_mask | mask, state);
    else
        set_write(x, c, mask, state);
}

static void words(const Access &x, uintptr_t base, Cell *all, unsigned char *state) {
    size_t at = x.a - base, end = at + x.bytes;
    if (x.bytes == 4 && at % 4 == 0) {                  /* nearly all are */
        word(x, x.a, 15, all[at / 4], state[at / 4]);
        return;
    }
    for (size_t w = at / 4; w * 4 < end; w++) {
        unsigned mask = 15;
        if (w * 4 < at)
            mask &= 15u << (at - w * 4);
        if (w * 4 + 4 > end)
            mask &= 15u >> (w * 4 + 4 - end);
        word(x, base + w * 4, mask, all[w], state[w]);
    }
}

/* ---- from kernels ---- */

static void check(uintptr_t a, size_t bytes, How how, const void *pc) {
    Access x = {a, bytes, how, pc, false};
    if (in_device_memory(a)) {
        if (in_device_memory(a + bytes - 1))
            words(x, arena, cells, states);
        else
            fatal_access("out of bounds", x, a, cudaErrorIllegalAddress);
        return;
    }
    if (in_fiber_stack(a) || in_program(a))
        return;
    size_t offset = a - shared_base();
    if (offset < shared_bytes()) {
        words(x, shared_base(), shared_cells, shared_states);
        return;
    }
    const Allocation *pinned = allocation_near(reinterpret_cast<const void *>(a));
    if (pinned && pinned->live && a >= pinned->base && a - pinned->base + bytes <= pinned->bytes)
        return;
    report(key("illegal", x).c_str(), "illegal address: %s: %s %zu bytes at %p: %s%s",
           where().c_str(), verb[how], bytes, reinterpret_cast<const void *>(a),
           describe(reinterpret_cast<const void *>(a)).c_str(), source_line(pc).c_str());
    kill_kernel(cudaErrorIllegalAddress);
}

/* ---- from copies and libraries ---- */

/* A fault here ends no fiber: nothing runs but the operation itself. */
bool shadow_range(const void *p, size_t bytes, bool write, bool may_be_unset) {
    if (!instrumented || bytes == 0)
        return true;
    Access x = {reinterpret_cast<uintptr_t>(p), bytes, write ? WRITE : READ, nullptr, may_be_unset};
    for (uintptr_t i = x.a; i < x.a + bytes; i = (i | 3) + 1) {
        size_t w = (i - arena) / 4;
        unsigned lanes =
            15u << (i % 4) &
            (x.a + bytes - (i & ~uintptr_t(3)) >= 4 ? 15u : 15u >> (4 - (x.a + bytes) % 4));
        if (!in_device_memory(i) || (states[w] & lanes) != lanes) {
            report(key("range", x).c_str(), "out of bounds: %s: %s %zu bytes at %p: %s",
                   running.name.c_str(), verb[x.how], bytes, p,
                   describe(reinterpret_cast<const void *>(i)).c_str());
            sticky = cudaErrorIllegalAddress;
            return false;
        }
    }
    words(x, arena, cells, states);
    return true;
}

void shadow_copy(void *to, const void *from, size_t bytes) {
    if (!instrumented)
        return;
    uintptr_t t = reinterpret_cast<uintptr_t>(to) - arena,
              f = reinterpret_cast<uintptr_t>(from) - arena;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char &state = states[(t + i) / 4];
        if ((t + i) % 4 == 0 && (f + i) % 4 == 0 && i + 4 <= bytes) {
            state = static_cast<unsigned char>((state & 15) | (states[(f + i) / 4] & 0xf0));
            i += 3;
            continue;
        }
        unsigned set = states[(f + i) / 4] >> (4 + (f + i) % 4) & 1, bit = 1u << (4 + (t + i) % 4);
        state = static_cast<unsigned char>(set ? state | bit : state & ~bit);
    }
}

void shadow_malloc(uintptr_t base, size_t bytes) {
    if (!instrumented)
        return;
    prepare();
    mark(states, base - arena, bytes);
}

void shadow_free(uintptr_t base, size_t bytes) {
    if (instrumented)
        memset(states + (base - arena) / 4, 0, (bytes + 3) / 4);
}

}   // namespace shim

using namespace shim;

void shim_atomic(const void *p, size_t bytes) {
    if (instrumented && in_kernel(__builtin_frame_address(0)))
        check(reinterpret_cast<uintptr_t>(p), bytes, ATOMIC, __builtin_return_address(0));
}

[[noreturn]] static void misaligned(const Access &x) {
    report(key("align", x).c_str(), "misaligned: %s: %s %zu bytes at %p%s", where().c_str(),
           verb[x.how], x.bytes, reinterpret_cast<const void *>(x.a), source_line(x.pc).c_str());
    kill_kernel(cudaErrorMisalignedAddress);
}

static void from_host(uintptr_t a, const void *pc) {
    const void *p = reinterpret_cast<const void *>(a);
    report("host", "host code touches device memory: %p: %s%s", p, describe(p).c_str(),
           source_line(pc).c_str());
}

/* Most of what a kernel touches is its thread's own stack, of which there is nothing to say. */
static inline void hook(const void *p, size_t bytes, How how, bool aligned, const void *pc) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    if (!in_kernel(__builtin_frame_address(0))) {
        if (in_device_memory(a))
            from_host(a, pc);
    } else if (aligned && a % bytes != 0) {
        misaligned(Access{a, bytes, how, pc, false});
    } else if (!in_fiber_stack(a)) {
        check(a, bytes, how, pc);
    }
}

#define HOOK(name, bytes, how, aligned)                                                            \
    void name(const void *p);                                                                      \
    void name(const void *p) { hook(p, bytes, how, aligned, __builtin_return_address(0)); }
#define RANGE(name, how)                                                                           \
    void name(const void *p, unsigned long bytes);                                                 \
    void name(const void *p, unsigned long bytes)                                                  \
    {                                                                                              \
        if (bytes)                                                                                 \
            hook(p, bytes, how, false, __builtin_return_address(0));                               \
    }
#define HOOKS(n)                                                                                   \
    HOOK(__tsan_read##n, n, READ, true)                                                            \
    HOOK(__tsan_write##n, n, WRITE, true)                                                          \
    HOOK(__tsan_volatile_read##n, n, READ, true)                                                   \
    HOOK(__tsan_volatile_write##n, n, WRITE, true)                                                 \
    HOOK(__tsan_unaligned_read##n, n, READ, false)                                                 \
    HOOK(__tsan_unaligned_write##n, n, WRITE, false)

/* What a compiler with -fsanitize=alignment,bounds calls: GCC's and Clang's layout of the data. */
struct SourceLocation { const char *file; unsigned line, column; };
struct MismatchData { SourceLocation at; const void *type; unsigned char log_align, kind; };
struct BoundsData { SourceLocation at; const void *array_type, *index_type; };

static const char *base_name(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
RANGE(__tsan_read_range, READ)
RANGE(__tsan_write_range, WRITE)
void __tsan_init(void);
void __tsan_init(void) { instrumented = true; }
void __tsan_func_entry(void *);
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void __tsan_vptr_read(void **);
void __tsan_vptr_read(void **) {}
void __tsan_vptr_update(void **, void *);
void __tsan_vptr_update(void **, void *) {}

void __ubsan_handle_type_mismatch_v1(MismatchData *d, uintptr_t p);
void __ubsan_handle_type_mismatch_v1(MismatchData *d, uintptr_t p) {
    if (!in_kernel(__builtin_frame_address(0)) || p == 0)
        return; /* a null pointer is the access' own finding */
    report((std::string("align") + d->at.file + std::to_string(d->at.line)).c_str(),
           "misaligned: %s: address %p is no multiple of %u: %s at %s:%u", where().c_str(),
           reinterpret_cast<void *>(p), 1u << d->log_align, target(p).c_str(),
           base_name(d->at.file), d->at.line);
    kill_kernel(cudaErrorMisalignedAddress);
}

void __ubsan_handle_out_of_bounds(BoundsData *d, uintptr_t index);
void __ubsan_handle_out_of_bounds(BoundsData *d, uintptr_t index) {
    if (!in_kernel(__builtin_frame_address(0)))
        return;
    report((std::string("index") + d->at.file + std::to_string(d->at.line)).c_str(),
           "out of bounds: %s: index %lld of an array at %s:%u",
           where().c_str(), static_cast<long long>(index), base_name(d->at.file), d->at.line);
    kill_kernel(cudaErrorIllegalAddress);
}
}
