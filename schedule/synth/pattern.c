/*
 * pattern.c - policies that repeat: what a microbatch does, and every other one a period later.
 *
 * In: a task, a number.  Out: a policy.  A pattern says how fast a microbatch goes through each leg
 * of its way (the stages of all ranks that come first on their rank, then those that come second,
 * and back), as the building blocks of Pipeline Parallelism with Controllable Memory do
 * (2405.15362): slow legs hold more memory and leave room for others.  With a warm-up it is the
 * automatic scheduler of Zero Bubble Pipeline Parallelism (2401.10241, section 3.1), for one stage
 * a rank: so many forwards, then a forward and a backward in turn.
 */
#include "state.h"

#include <stdlib.h>

enum { LEGS = 4 };

typedef struct {
    double leg[LEGS], turn; /* 1: as fast as it can */
    int w;                  /* fills gaps; 1: follows its I; 2, 3: at once, the last ones fill */
    int caps, strict, tight, first;
    int warm; /* forwards that end before the first backward arrives; 2: one may make it wait */
    int spare, fill;
    double patience;
} Pattern;

/* The number of a stage among those of its rank. */
static int chunk_of(const SynthTask *t, int stage)
{
    int r = t->rank_of[stage], k = t->first[r];
    while (t->own[k] != stage)
        k++;
    return k - t->first[r];
}

static int chunks_of(const SynthTask *t, int r) { return t->first[r + 1] - t->first[r]; }

/* How many microbatches of a chunk a rank holds when the first backward reaches it: later chunks
   half of what fits at most, as many as ranks come after. */
static int cap_of(const SynthTask *t, int stage)
{
    int r = t->rank_of[stage], v = chunks_of(t, r), c = chunk_of(t, stage), after = 0;
    double one = 0;
    for (int k = t->first[r]; k < t->first[r + 1]; k++)
        one = fmax(one, t->stash[t->own[k]]);
    int all = one > 0 && t->limit[r] < HUGE_VAL ? (int)(t->limit[r] / one) : 0;
    if (all < v || v == 1)
        return 0;
    for (int s = stage + 1; s < t->stages; s++)
        after += chunk_of(t, s) == c;
    int later = after + 1 < all / v ? after + 1 : all / v;
    if (c > 0)
        return later > 1 ? later : 1;
    int rest = all;
    for (int k = t->first[r] + 1; k < t->first[r + 1]; k++)
        rest -= cap_of(t, t->own[k]);
    return rest > 1 ? rest : 1;
}

/* How long a message of stage s - 1 to stage s takes, or of its gradient back. */
static double hop(const SynthTask *t, int s, const double *away)
{
    int k = s > 0 && s < t->stages ? sched_graph_edge(t->g, s - 1, s) : -1;
    return k < 0 ? 0 : away[k];
}

/* How many forwards come before the first backward, of each stage: those that end before it arrives
   and fit the memory, an earlier stage at least one more than a later one.  Microbatch 0 goes
   there, and back past them. */
static int warm_up(const SynthTask *t, int late, int *warm)
{
    double *end = malloc((size_t)t->stages * sizeof *end), back = 0;
    if (!end)
        return 0;
    for (int s = 0; s < t->stages; s++)
        end[s] = (s ? end[s - 1] : 0) + hop(t, s, t->away_f) + t->f[s];
    for (int s = t->stages; s-- > 0;) {
        double arrives = s + 1 < t->stages ? back + hop(t, s + 1, t->away_b) : 0;
        for (warm[s] = 1; warm[s] < t->microbatches; warm[s]++) {
            double need = (warm[s] + 1) * t->stash[s] + t->saved[s];
            if (need > t->limit[t->rank_of[s]] * (1 + 1e-12) ||
                (late ? end[s] >= arrives : end[s] + t->f[s] > arrives))
                break;
            end[s] += t->f[s];
        }
        back = fmax(end[s], arrives) + t->i[s];
    }
    for (int s = 1; s < t->stages; s++)
        while (warm[s] > 1 && warm[s] >= warm[s - 1])
            warm[s]--;
    free(end);
    return 1;
}

/* Forwards between backwards: the first after the warm-up between the first two. */
static int after_warm_up(const SynthTask *t, int late, SynthPolicy *p)
{
    const int m = t->microbatches;
    int *warm = malloc((size_t)t->stages * sizeof *warm), good = warm && warm_up(t, late, warm);
    for (int k = 0; good && k < t->stages * m; k++)
        p->key_f[k] = p->key_i[k] - (warm[k / m] - 0.5) * t->period;
    free(warm);
    return good;
}

static int policy_of(const SynthTask *t, const Pattern *a, SynthPolicy *p)
{
    const int m = t->microbatches;
    const double far = synth_far(t);
    double at = 0;
    for (int s = 0; s < t->stages; s++) {
        int leg = chunk_of(t, s) > 0;
        for (int j = 0; j < m; j++)
            p->key_f[s * m + j] = at + j * t->period;
        at += t->f[s] * a->leg[leg];
        p->cap[s] = a->caps ? cap_of(t, s) : 0;
    }
    at += a->turn * t->period / 6;
    for (int s = t->stages; s-- > 0;) {
        int leg = chunk_of(t, s) > 0;
        for (int j = 0; j < m; j++) {
            int k = s * m + j;
            int late = j >= m - (a->w == 2 ? t->ranks : t->ranks / 2 + 1);
            p->key_i[k] = at + j * t->period - a->first * 2 * t->period;
            p->key_w[k] = a->w == 0   ? far + p->key_i[k]
                          : a->w == 1 ? p->key_i[k] + t->i[s]
                          : late      ? far + p->key_i[k]
                                      : p->key_i[k] - far;
        }
        at += t->i[s] * a->leg[2 + leg];
    }
    p->patience = a->strict ? HUGE_VAL : a->patience;
    p->tight = a->tight;
    p->room = a->warm > 0;
    p->spare = a->spare;
    p->fill = a->fill;
    return !a->warm || after_warm_up(t, a->warm == 2, p);
}

#define EVEN                                                                                       \
    {                                                                                              \
        1, 1, 1, 1                                                                                 \
    }

static const Pattern known[SYNTH_KNOWN] = {
    {.leg = EVEN, .strict = 1},
    {.leg = EVEN},
    {.leg = {2, 1, 1, 2}, .strict = 1},
    {.leg = EVEN, .caps = 1},
    {.leg = {1, 4, 1, 1}, .w = 2},
    {.leg = {4, 2, 2, 4}, .strict = 1},
    {.leg = {2, 2, 2, 2}, .strict = 1},
    {.leg = EVEN, .turn = 2, .strict = 1},
    {.leg = EVEN, .patience = 1},
    {.leg = EVEN, .first = 1, .patience = 1},
    {.leg = EVEN, .strict = 1, .warm = 1},
    {.leg = EVEN, .strict = 1, .warm = 2},
    {.leg = EVEN, .strict = 1, .warm = 1, .spare = 1},
    {.leg = EVEN, .strict = 1, .warm = 2, .spare = 1},
    {.leg = EVEN, .strict = 1, .warm = 1, .fill = 1},
    {.leg = EVEN, .strict = 1, .warm = 2, .fill = 1},
    {.leg = EVEN, .strict = 1, .warm = 1, .spare = 1, .fill = 1},
    {.leg = EVEN, .strict = 1, .warm = 2, .spare = 1, .fill = 1},
};

uint32_t synth_draw(uint64_t *random, uint32_t n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33) % n;
}

static Pattern draw_pattern(uint64_t *random)
{
    Pattern a = {.turn = synth_draw(random, 4),
                 .caps = synth_draw(random, 2) == 0,
                 .w = (int)synth_draw(random, 4),
                 .strict = synth_draw(random, 3) == 0,
                 .tight = synth_draw(random, 2) == 0,
                 .first = synth_draw(random, 3) == 0,
                 .patience = synth_draw(random, 3) * 0.5};
    for (int i = 0; i < LEGS; i++)
        a.leg[i] = 1 + synth_draw(random, 4);
    return a;
}

int synth_pattern(const SynthTask *t, int number, uint64_t *random, SynthPolicy *p)
{
    Pattern a = number < SYNTH_KNOWN ? known[number] : draw_pattern(random);
    return !(a.warm && t->stages > t->ranks) && policy_of(t, &a, p);
}
