/*
 * registry.c - the generators by name: one row each, and one lookup.  A new schedule is a row here,
 * and its generator.
 */
#include "base/cli/nearest.h"
#include "generate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LOOP = SCHED_PLACE_LOOP, V = SCHED_PLACE_V, BLOCK = SCHED_PLACE_BLOCK };
enum { NONE, EQUAL, GROUP, HALF, CHUNKS };

/* name       in lower case: what messages, options and Schedule.name say
   pytorch    torch.distributed.pipelining's name, whose class is Schedule<name>; NULL: it has none
   placement  stage s is on rank s mod p; there and back; or a block of neighbours on each rank
   chunks     stages per rank; 0: any number
   movable    another placement than its own may be asked for
   least      microbatches per rank that it needs
   rounds     of microbatches: none; max(1, m / p) equal ones; of a group that NAME:G gives, else p,
              or of half of p; or it has none, and NAME:K gives the most chunks alive, else 2 p
   about      one line for help */
// clang-format off
static const SchedKind kinds[] = {
    /* place, chunks, movable, least, rounds */
    {"gpipe",                 "GPipe",                 BLOCK, 0, 1, 0, NONE,  sched_gen_gpipe,
     "all forwards, then all backwards"},
    {"1f1b",                  "1F1B",                  BLOCK, 0, 0, 0, NONE,  sched_gen_1f1b,
     "one forward, one backward in turn: gpipe's time, less memory"},
    {"interleaved1f1b",       "Interleaved1F1B",       LOOP,  0, 0, 0, EQUAL, sched_gen_interleaved,
     "1f1b with several stages a rank: less idle time, more messages"},
    {"loopedbfs",             "LoopedBFS",             LOOP,  0, 0, 0, NONE,  sched_gen_looped_bfs,
     "gpipe with several stages a rank, breadth first"},
    {"interleavedzerobubble", "InterleavedZeroBubble", LOOP,  0, 0, 0, EQUAL,
     sched_gen_interleaved_zb, "interleaved1f1b; gradients of weights fill gaps"},
    {"zbvzerobubble",         "ZBVZeroBubble",         V,     2, 0, 0, NONE,  sched_gen_zbv,
     "two stages a rank as a V: no idle time if F = I = W"},
    {"dualpipev",             "DualPipeV",             V,     2, 0, 2, NONE,  sched_gen_dualpipev,
     "two stages a rank as a V: forwards overlap backwards"},
    {"zb-h1",                 NULL,                    BLOCK, 0, 0, 0, NONE,  sched_gen_zbh1,
     "1f1b; gradients of weights fill gaps: a third of its idle time"},
    {"zb-h2",                 NULL,                    BLOCK, 0, 0, 0, NONE,  sched_gen_zbh2,
     "zb-h1 with twice its memory: hardly any idle time"},
    {"zb-v",                  NULL,                    V,     2, 0, 0, NONE,  sched_gen_zbv,
     "zbvzerobubble by its paper's name: the memory of 1f1b"},
    {"v-half",                NULL,                    V,     2, 0, 0, NONE,  sched_gen_vhalf,
     "a V with half the memory of 1f1b, half its idle time"},
    {"v-min",                 NULL,                    V,     2, 0, 0, NONE,  sched_gen_vmin,
     "a V with a third of 1f1b's memory, two thirds its idle time"},
    {"v",                     NULL,                    V,     2, 0, 0, CHUNKS, sched_gen_v,
     "a V with any memory: v:K holds at most K microbatches of a stage"},
    {"1f1b-v",                NULL,                    V,     2, 0, 0, NONE,  sched_gen_1f1bv,
     "a V with undivided backwards: two thirds of the memory of 1f1b"},
    {"gis",                   NULL,                    LOOP,  0, 0, 0, GROUP, sched_gen_gis,
     "interleaved1f1b with less memory; gis:G has rounds of G"},
    {"gis-h",                 NULL,                    LOOP,  0, 0, 0, HALF,  sched_gen_gis,
     "gis with rounds of half as many microbatches as ranks"},
    {"forward-only",          NULL,                    BLOCK, 0, 1, 0, NONE,  sched_gen_forward,
     "inference"},
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

/* The number of `gis:3` and `v:9`, -1 where there is none; what stands before it is the kind's
   name. */
static int given_group(const char *name)
{
    const char *colon = strchr(name, ':');
    char *end;
    long g = colon ? strtol(colon + 1, &end, 10) : -1;
    return colon && end > colon + 1 && !*end && g > 0 && g < SCHED_MAX_CELLS ? (int)g : -1;
}

/* Microbatches of a round, or chunks. */
static int round_of(const SchedKind *k, const char *name, int p, int m)
{
    int g = given_group(name);
    if (k->rounds == CHUNKS)
        return g < 0 ? 2 * p : g;
    if (k->rounds == NONE || k->rounds == EQUAL)
        return k->rounds == NONE || m < p ? m : m / (m / p);
    if (g < 0)
        g = k->rounds == HALF ? (p + 1) / 2 : p;
    return g < m ? g : m;
}

const SchedKind *sched_find(const char *name)
{
    char before[32];
    const char *colon = strchr(name, ':');
    if (colon && given_group(name) > 0 && (size_t)(colon - name) < sizeof before) {
        memcpy(before, name, (size_t)(colon - name));
        before[colon - name] = 0;
        const SchedKind *k = sched_find(before);
        return k && (k->rounds == GROUP || k->rounds == CHUNKS) ? k : NULL;
    }
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
    const char *names[N_KINDS + 1];
    size_t n = 0;
    for (int i = 0; i <= N_KINDS; i++) {
        names[i] = i < N_KINDS ? kinds[i].name : "auto"; /* auto.c chooses among them */
        n += (size_t)snprintf(list + n, n < sizeof list ? sizeof list - n : 0, "%s%s",
                              i ? ", " : "", names[i]);
    }
    if (same_word(name, "auto"))
        return sched_fail(
            e, SCHED_EUSAGE, -1, -1,
            "'auto' works for training and in `ppsplit schedule'; name a schedule here");
    const char *near = nearest_name(name, names, N_KINDS + 1);
    return sched_fail(e, SCHED_EUSAGE, -1, -1, "unknown schedule '%.60s'%s%s%s (there are %s)",
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

static int check_group(int p, int m, int group, const SchedKind *k, SchedError *e)
{
    int least = (p + 1) / 2;
    if (k->rounds != GROUP && k->rounds != HALF)
        return SCHED_OK;
    if (group > 0 && (group < least || group > p))
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "%s:%d: with %d ranks a round has %d to %d microbatches", k->name, group,
                          p, least, p);
    if (group < 0)
        group = k->rounds == HALF ? least : p;
    return m <= group || m % group == 0
               ? SCHED_OK
               : sched_fail(e, SCHED_EREFUSED, -1, -1,
                            "%s with %d ranks has rounds of %d microbatches: %d is not a multiple "
                            "of %d%s",
                            k->name, p, group, m, group,
                            k->rounds == GROUP ? " (gis:G has rounds of G)" : "");
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
    if (k->rounds == EQUAL && m % rounds)
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
        (st = check_limits(ranks, stages, microbatches, placement, k, e)) ||
        (st = check_group(ranks, microbatches, given_group(name), k, e)))
        return st;
    if (stages == ranks) /* one stage a rank: all placements are the same */
        placement = k->placement;
    char own[40];
    snprintf(own, sizeof own, given_group(name) > 0 ? "%s:%d" : "%s", k->name, given_group(name));
    SchedGen g = {sched_new(own, ranks, stages, microbatches),
                  ranks,
                  microbatches,
                  round_of(k, name, ranks, microbatches),
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
    sched_number(g.s);
    *out = g.s;
    return SCHED_OK;
}
