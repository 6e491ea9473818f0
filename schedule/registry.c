/*
 * registry.c - the generators by name: one row each, and one lookup.  A new schedule is a row here,
 * its generator, and where there is a closed form for its memory, that.
 */
#include "base/cli/nearest.h"
#include "generate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LOOP = SCHED_PLACE_LOOP, V = SCHED_PLACE_V, BLOCK = SCHED_PLACE_BLOCK };

/* name       in lower case: what messages, options and Schedule.name say
   pytorch    torch.distributed.pipelining's name, whose class is Schedule<name>; NULL: it has none
   placement  stage s is on rank s mod p; there and back; or a block of neighbours on each rank
   chunks     stages per rank; 0: any number
   movable    another placement than its own may be asked for
   least      microbatches per rank that it needs
   rounds     microbatches m go in max(1, m / p) equal rounds
   peak       closed form of the memory, NULL: none
   about      one line for help */
// clang-format off
static const SchedKind kinds[] = {
    /* place, chunks, movable, least, rounds */
    {"gpipe",                 "GPipe",                 BLOCK, 0, 1, 0, 0, sched_gen_gpipe,
     sched_peak_all,            "all forwards, then all backwards"},
    {"1f1b",                  "1F1B",                  BLOCK, 0, 0, 0, 0, sched_gen_1f1b,
     sched_peak_1f1b,           "one forward, one backward in turn: gpipe's time, less memory"},
    {"interleaved1f1b",       "Interleaved1F1B",       LOOP,  0, 0, 0, 1, sched_gen_interleaved,
     sched_peak_interleaved,    "1f1b over several chunks a rank: less idle time, more messages"},
    {"loopedbfs",             "LoopedBFS",             LOOP,  0, 0, 0, 0, sched_gen_looped_bfs,
     sched_peak_all,            "gpipe over several chunks a rank, breadth first"},
    {"interleavedzerobubble", "InterleavedZeroBubble", LOOP,  0, 0, 0, 1, sched_gen_interleaved_zb,
     sched_peak_interleaved_zb, "interleaved1f1b, gradients of weights fill the gaps"},
    {"zbvzerobubble",         "ZBVZeroBubble",         V,     2, 0, 0, 0, sched_gen_zbv,
     sched_peak_zbv,            "two chunks a rank as a V: no idle time where F = I = W"},
    {"dualpipev",             "DualPipeV",             V,     2, 0, 2, 0, sched_gen_dualpipev,
     sched_peak_dualpipev,      "two chunks a rank as a V, forwards overlap backwards"},
    {"zb-h1",                 NULL,                    BLOCK, 0, 0, 0, 0, sched_gen_zbh1,
     sched_peak_zbh1,           "1f1b, gradients of weights fill the gaps: a third as idle"},
    {"zb-h2",                 NULL,                    BLOCK, 0, 0, 0, 0, sched_gen_zbh2,
     sched_peak_zbh2,           "zb-h1 with twice its memory and hardly any idle time"},
    {"forward-only",          NULL,                    BLOCK, 0, 1, 0, 0, sched_gen_forward,
     NULL,                      "inference"},
};
// clang-format on
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

const SchedKind *sched_kind(int i) { return i >= 0 && i < N_KINDS ? &kinds[i] : NULL; }

static int same_word(const char *a, const char *b)
{
    while (*a && tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

const SchedKind *sched_find(const char *name)
{
    static const char prefix[] = "schedule"; /* of PyTorch's classes */
    size_t n = 0;
    while (prefix[n] && tolower((unsigned char)name[n]) == prefix[n])
        n++;
    for (int i = 0; i < N_KINDS; i++) {
        const char *torch = kinds[i].pytorch;
        if (same_word(name, kinds[i].name) || (torch && same_word(name, torch)) ||
            (torch && !prefix[n] && same_word(name + n, torch)))
            return &kinds[i];
    }
    return NULL;
}

static int unknown_name(const char *name, SchedError *e)
{
    char list[400] = "";
    const char *names[N_KINDS];
    size_t n = 0;
    for (int i = 0; i < N_KINDS; i++) {
        names[i] = kinds[i].name;
        n += (size_t)snprintf(list + n, n < sizeof list ? sizeof list - n : 0, "%s%s",
                              i ? ", " : "", kinds[i].name);
    }
    const char *near = nearest_name(name, names, N_KINDS);
    return sched_fail(e, SCHED_EUSAGE, -1, -1, "no schedule is called '%.60s'%s%s%s (there are %s)",
                      name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                      list);
}

static int check_size(int p, int S, int m, const SchedKind *k, SchedError *e)
{
    if (p < 1 || S < 1 || m < 1)
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "%s needs at least one rank, one stage and one microbatch", k->name);
    if (S < p)
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "%d stages are too few for %d ranks: each rank needs one", S, p);
    if ((int64_t)S * m > SCHED_MAX_CELLS / 4 || (int64_t)p * p > SCHED_MAX_CELLS)
        return sched_fail(e, SCHED_ERESOURCE, -1, -1,
                          "%d stages with %d microbatches are more actions than this program holds",
                          S, m);
    return SCHED_OK;
}

static int check_limits(int p, int S, int m, int placement, const SchedKind *k, SchedError *e)
{
    int rounds = m / p > 1 ? m / p : 1;
    if (k->chunks && S != p * k->chunks)
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "%s needs %d stages a rank: %d for %d ranks, not %d", k->name, k->chunks,
                          p * k->chunks, p, S);
    if (placement != BLOCK && S % p)
        return sched_fail(
            e, SCHED_EREFUSED, -1, -1,
            "%s needs the same number of stages on every rank: %d is not a multiple of %d", k->name,
            S, p);
    if (placement != k->placement && S != p && !k->movable)
        return sched_fail(
            e, SCHED_EREFUSED, -1, -1, "%s has a placement of its own; leave --placement out%s",
            k->name,
            k->generate == sched_gen_1f1b ? " (1f1b over looped stages is interleaved1f1b)" : "");
    if (m < k->least * p)
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "%s needs at least %d microbatches a rank: %d for %d ranks, not %d",
                          k->name, k->least, k->least * p, p, m);
    if (k->rounds && m % rounds)
        return sched_fail(
            e, SCHED_EREFUSED, -1, -1,
            "%s with %d ranks cuts %d microbatches into %d rounds: %d is not a multiple of %d",
            k->name, p, m, rounds, m, rounds);
    return SCHED_OK;
}

int sched_generate(const char *name, int ranks, int stages, int microbatches, int placement,
                   Schedule **out, SchedError *e)
{
    const SchedKind *k = sched_find(name);
    int st;
    *out = NULL;
    if (!k)
        return unknown_name(name, e);
    if (placement == SCHED_PLACE_DEFAULT)
        placement = k->placement;
    if ((st = check_size(ranks, stages, microbatches, k, e)) ||
        (st = check_limits(ranks, stages, microbatches, placement, k, e)))
        return st;
    if (stages == ranks) /* one stage a rank: all placements are the same */
        placement = k->placement;
    SchedGen g = {sched_new(k->name, ranks, stages, microbatches),
                  ranks,
                  microbatches,
                  placement,
                  calloc((size_t)ranks, sizeof(int)),
                  e};
    if (!g.s || !g.chunks) {
        st = sched_nomem(e);
    } else {
        sched_gen_place(&g);
        st = k->generate(&g);
        if (!st)
            st = sched_rows_ok(g.s, e);
    }
    free(g.chunks);
    if (st) {
        sched_free(g.s);
        return st;
    }
    *out = g.s;
    return SCHED_OK;
}

int sched_peak_formula(const char *name, int ranks, int stages, int microbatches, int rank)
{
    const SchedKind *k = sched_find(name);
    if (!k || !k->peak || ranks < 1 || (stages % ranks && k->placement != BLOCK))
        return -1;
    int v = stages / ranks + (rank < stages % ranks), n = k->peak(ranks, v, microbatches, rank);
    return n < microbatches * v ? n : microbatches * v;
}
