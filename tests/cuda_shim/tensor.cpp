/*
 * tensor.cpp - what instructions of a whole warp and asynchronous copies keep between fibers
 * (shim_tensor.h).  Everything here runs under the machine lock.
 */
#include "shim.h"

#include <cstring>
#include <deque>

namespace shim
{

enum { THREADS = 1024, WARP = 32 };

/* What lanes brought: two rounds, because the first lane that goes on may bring the next before the
 * last has read this one. */
static ShimFragment brought[2][THREADS];
static unsigned char turn[THREADS];

/* Copies under way, by thread; group: how many were committed before it. */
struct Pending {
    ShimCopy copy;
    unsigned group;
};
static std::deque<Pending> pending[THREADS];
static unsigned committed[THREADS];
static unsigned used; /* threads that may have some */

void tensor_block(void)
{
    memset(turn, 0, sizeof turn);
    memset(committed, 0, sizeof committed);
    for (unsigned t = 0; t < used; t++)
        pending[t].clear();
    used = 0;
}

} // namespace shim

using namespace shim;

const ShimFragment *shim_meet(ShimWarp kind, const ShimFragment &mine, int line)
{
    const unsigned t = running.thread, round = turn[t] ^= 1;
    if (shim_active() != 0xffffffffu)
        report(("lanes" + running.name).c_str(),
               "warp divergence: %s: an instruction of all 32 lanes, of which some are not there "
               "(line %d)",
               where().c_str(), line);
    brought[round][t] = mine;
    shim_warp(kind, 0xffffffffu, 0, 0, WARP, line);
    return &brought[round][t / WARP * WARP];
}

void shim_must_align(const void *p, unsigned bytes, const char *instruction, int line)
{
    if (reinterpret_cast<uintptr_t>(p) % bytes == 0)
        return;
    report(("align" + running.name + std::to_string(line)).c_str(),
           "misaligned: %s: %s at %p, which is no multiple of %u (line %d)", where().c_str(),
           instruction, p, bytes, line);
    kill_kernel(cudaErrorMisalignedAddress);
}

void shim_copy_begins(const ShimCopy &c)
{
    const unsigned t = running.thread;
    shadow_unset(c.to, static_cast<size_t>(c.bytes));
    pending[t].push_back(Pending{c, committed[t]});
    used = t + 1 > used ? t + 1 : used;
}

void shim_cp_commit(void) { committed[running.thread]++; }

const ShimCopy *shim_copy_over(int groups, ShimCopy *room)
{
    std::deque<Pending> &mine = pending[running.thread];
    if (mine.empty() ||
        mine.front().group + static_cast<unsigned>(groups) >= committed[running.thread])
        return nullptr;
    *room = mine.front().copy;
    mine.pop_front();
    return room;
}
