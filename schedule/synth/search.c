/*
 * search.c - the search for a policy: patterns of a microbatch, drawn from a family, and then
 * a walk through the neighbours of the best of them.
 *
 * In: a task.  Out: the best policy found, and its rows.  A pattern says how fast a microbatch goes
 * through each leg of its way (the stages of all ranks that come first on their rank, then those
 * that come second, and back), as the building blocks of Pipeline Parallelism with Controllable
 * Memory do (2405.15362): slow legs hold more memory and leave room for others.  Given schedules
 * are starts as well.  A neighbour moves the keys of some stages, for all microbatches or for the
 * first or last ones, so that warm-up and end may differ from what repeats in between.
 *
 * Nothing is drawn by chance: the sequence of numbers is fixed, effort is counted in decisions, so
 * the same task has the same schedule everywhere.
 */
#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEGS = 4, STARTS = 6, WAYS = 6, FEWEST = 10 };

typedef struct {
    const SynthTask *t;
    int span, m; /* microbatches */
    int whole;
    double bound, far; /* far: more than any key */
    int64_t left;      /* decisions that may still be looked at */
    uint64_t random;
} Search;

typedef struct {
    SynthPolicy policy[STARTS];
    SynthScore score[STARTS];
    int n;
} Best;

typedef struct {
    double leg[LEGS], turn; /* 1: as fast as it can */
    int caps, w, strict, tight, first;
    double patience;
} Pattern;

static uint32_t draw(Search *x, uint32_t n)
{
    x->random = x->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(x->random >> 33) % n;
}

/* ---- policies ---- */

static size_t keys(const SynthTask *t, int m) { return (size_t)t->stages * (size_t)m; }

static int policy_open(SynthPolicy *p, const SynthTask *t, int m)
{
    memset(p, 0, sizeof *p);
    p->key_f = malloc(3 * keys(t, m) * sizeof *p->key_f);
    p->cap = calloc((size_t)t->stages, sizeof *p->cap);
    if (!p->key_f || !p->cap)
        return 0;
    p->key_i = p->key_f + keys(t, m);
    p->key_w = p->key_i + keys(t, m);
    return 1;
}

void synth_policy_free(SynthPolicy *p)
{
    free(p->key_f);
    free(p->cap);
}

static void policy_copy(SynthPolicy *to, const SynthPolicy *from, const SynthTask *t, int m)
{
    SynthPolicy mine = *to;
    *to = *from;
    to->key_f = mine.key_f, to->key_i = mine.key_i, to->key_w = mine.key_w, to->cap = mine.cap;
    memcpy(to->key_f, from->key_f, 3 * keys(t, m) * sizeof *to->key_f);
    memcpy(to->cap, from->cap, (size_t)t->stages * sizeof *to->cap);
}

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

static void policy_of(const Search *x, const Pattern *a, SynthPolicy *p)
{
    const SynthTask *t = x->t;
    double at = 0;
    for (int s = 0; s < t->stages; s++) {
        int leg = chunk_of(t, s) > 0;
        for (int j = 0; j < x->m; j++)
            p->key_f[s * x->m + j] = at + j * t->period;
        at += t->f[s] * a->leg[leg];
        p->cap[s] = a->caps ? cap_of(t, s) : 0;
    }
    at += a->turn * t->period / 6;
    for (int s = t->stages; s-- > 0;) {
        int leg = chunk_of(t, s) > 0;
        for (int j = 0; j < x->m; j++) {
            int k = s * x->m + j;
            int late = j >= x->m - (a->w == 2 ? t->ranks : t->ranks / 2 + 1);
            p->key_i[k] = at + j * t->period - a->first * 2 * t->period;
            p->key_w[k] = a->w == 0   ? x->far + p->key_i[k]
                          : a->w == 1 ? p->key_i[k] + t->i[s]
                          : late      ? x->far + p->key_i[k]
                                      : p->key_i[k] - x->far;
        }
        at += t->i[s] * a->leg[2 + leg];
    }
    p->patience = a->strict ? HUGE_VAL : a->patience;
    p->tight = a->tight;
    p->whole = x->whole;
    p->bubble = 0;
}

/* ---- scores ---- */

static double value(const Search *x, const SynthScore *s)
{
    return x->span ? s->span : s->makespan;
}

static int no_worse(const Search *x, const SynthScore *a, const SynthScore *b)
{
    double u = value(x, a), v = value(x, b);
    return u < v || (u == v && a->sum <= b->sum);
}

/* most: what is worse is of no interest, and not followed to its end. */
static int try(Search *x, const SynthPolicy *p, double most, SynthScore *score)
{
    SynthStop stop = {.most = most, .span = x->span};
    int good = synth_run(x->t, p, &stop, score, NULL);
    x->left -= stop.looked;
    return good;
}

static int done(const Search *x, const SynthScore *s)
{
    return x->left <= 0 || value(x, s) <= x->bound * (1 + 1e-12);
}

/* ---- patterns ---- */

static Pattern draw_pattern(Search *x, int number)
{
    static const Pattern known[] = {
        {{1, 1, 1, 1}, 0, 0, 0, 1, 0, 0, 0}, {{1, 1, 1, 1}, 0, 0, 0, 0, 0, 0, 0},
        {{2, 1, 1, 2}, 0, 0, 0, 1, 0, 0, 0}, {{1, 1, 1, 1}, 0, 1, 0, 0, 0, 0, 0},
        {{1, 4, 1, 1}, 0, 0, 2, 0, 0, 0, 0}, {{4, 2, 2, 4}, 0, 0, 0, 1, 0, 0, 0},
        {{2, 2, 2, 2}, 0, 0, 0, 1, 0, 0, 0}, {{1, 1, 1, 1}, 2, 0, 0, 1, 0, 0, 0},
        {{1, 1, 1, 1}, 0, 0, 0, 0, 0, 0, 1}, {{1, 1, 1, 1}, 0, 0, 0, 0, 0, 1, 1},
    };
    if (number < (int)(sizeof known / sizeof *known))
        return known[number];
    Pattern a = {.turn = draw(x, 4),
                 .caps = draw(x, 2) == 0,
                 .w = (int)draw(x, 4),
                 .strict = draw(x, 3) == 0,
                 .tight = draw(x, 2) == 0,
                 .first = draw(x, 3) == 0,
                 .patience = draw(x, 3) * 0.5};
    for (int i = 0; i < LEGS; i++)
        a.leg[i] = 1 + draw(x, 4);
    return a;
}

/* Among the best, the best first; one like another does not count. */
static void keep(const Search *x, Best *list, const SynthPolicy *p, const SynthScore *s)
{
    int n = list->n;
    for (int i = 0; i < n; i++)
        if (value(x, &list->score[i]) == value(x, s) && list->score[i].sum == s->sum)
            return;
    if (n == STARTS && !no_worse(x, s, &list->score[n - 1]))
        return;
    int at = n < STARTS ? list->n++ : n - 1;
    SynthPolicy room = list->policy[at];
    for (; at > 0 && !no_worse(x, &list->score[at - 1], s); at--) {
        list->policy[at] = list->policy[at - 1];
        list->score[at] = list->score[at - 1];
    }
    list->policy[at] = room;
    policy_copy(&list->policy[at], p, x->t, x->m);
    list->score[at] = *s;
}

/* What the list's last one takes, if that is what another has to beat. */
static double worst(const Search *x, const Best *list)
{
    return list->n < STARTS ? HUGE_VAL : value(x, &list->score[list->n - 1]);
}

static int scan(Search *x, int64_t work, Best *list)
{
    SynthPolicy p;
    int64_t until = x->left - work;
    if (!policy_open(&p, x->t, x->m))
        return 0;
    for (int k = 0; (k < FEWEST || x->left > until) && x->left > 0; k++) {
        Pattern a = draw_pattern(x, k);
        SynthScore s;
        policy_of(x, &a, &p);
        if (try(x, &p, worst(x, list), &s))
            keep(x, list, &p, &s);
    }
    synth_policy_free(&p);
    return 1;
}

/* ---- neighbours ---- */

static void change_cap(Search *x, SynthPolicy *p)
{
    int s = (int)draw(x, (uint32_t)x->t->stages);
    p->cap[s] += p->cap[s] ? (int)draw(x, 3) - 1 : (int)draw(x, (uint32_t)x->m) + 1;
}

static void change_keys(Search *x, SynthPolicy *p)
{
    const SynthTask *t = x->t;
    uint32_t m = (uint32_t)x->m, S = (uint32_t)t->stages, which = draw(x, 3);
    double *key = which == 0 ? p->key_f : which == 1 ? p->key_i : p->key_w;
    double by = ((int)draw(x, 13) - 6) * t->period / 6;
    uint32_t low = draw(x, S), high = draw(x, 2) ? low + 1 : low + 1 + draw(x, S - low);
    uint32_t from = 0, to = m;
    switch (draw(x, 8)) {
    case 0: to = 1 + draw(x, m); break;
    case 1: from = draw(x, m); break;
    case 2:
        from = draw(x, m);
        to = from + 1 + draw(x, m - from < 3 ? m - from : 3);
        break;
    default: break;
    }
    for (uint32_t s = low; s < high; s++)
        for (uint32_t j = from; j < to; j++) {
            if (fabs(key[s * m + j]) >
                x->far / 2) /* a W that fills or comes at once takes its place */
                key[s * m + j] = p->key_i[s * m + j];
            key[s * m + j] += by;
        }
}

static int walk(Search *x, SynthPolicy *best, SynthScore *score, int64_t work)
{
    SynthPolicy p;
    int64_t until = x->left - work;
    if (!policy_open(&p, x->t, x->m))
        return 0;
    while (x->left > until && !done(x, score)) {
        SynthScore s;
        policy_copy(&p, best, x->t, x->m);
        for (int n = 1 + (int)draw(x, 2); n > 0; n--)
            if (draw(x, 12) == 0)
                change_cap(x, &p);
            else
                change_keys(x, &p);
        if (try(x, &p, value(x, score), &s) && no_worse(x, &s, score)) {
            *score = s;
            policy_copy(best, &p, x->t, x->m);
        }
    }
    synth_policy_free(&p);
    return 1;
}

/* ---- all of it ---- */

/* The policies that lead to given schedules, taken into the list of the best; and those that
   differ from them in that the last W only fill gaps: no F is left then to hide what waits for
   an I behind one. */
static int replay(Search *x, const Schedule *const *seed, int seeds, Best *list)
{
    SynthPolicy p;
    if (!policy_open(&p, x->t, x->m))
        return 0;
    p.whole = x->whole;
    for (int k = 0; k < WAYS * seeds; k++) {
        static const struct {
            int strict, tight, late; /* late: W of the last ranks / late microbatches */
        } way[WAYS] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {1, 0, 1}, {1, 1, 1}, {1, 0, 2}};
        int late = way[k % WAYS].late;
        SynthScore s;
        p.patience = way[k % WAYS].strict ? HUGE_VAL : 0;
        p.tight = way[k % WAYS].tight;
        if ((late && x->whole) || !synth_replay(x->t, seed[k / WAYS], &p))
            continue;
        for (int i = 0; late && i < x->t->stages * x->m; i++)
            if (i % x->m >= x->m - x->t->ranks / late)
                p.key_w[i] += x->far;
        if (try(x, &p, worst(x, list), &s))
            keep(x, list, &p, &s);
    }
    synth_policy_free(&p);
    return 1;
}

int synth_search(const SynthTask *t, int span, int whole, int64_t work, const Schedule *const *seed,
                 int seeds, SynthScore *score, SchedRow *rows)
{
    int m = t->microbatches, good = 1, found = 0, at = 0;
    Search x = {.t = t, .span = span, .m = m, .whole = whole, .left = work, .random = 1};
    Best list = {.n = 0};
    x.bound = m * t->period;
    x.far = 1024 * t->period * (m + t->stages);
    for (int i = 0; i < STARTS; i++)
        good &= policy_open(&list.policy[i], t, m);
    good = good && replay(&x, seed, seeds, &list) && scan(&x, work / 3, &list);
    int64_t share = x.left / 2 / STARTS;
    for (int i = 0; i < list.n && good; i++)
        good = walk(&x, &list.policy[i], &list.score[i], share);
    for (int i = 1; i < list.n; i++)
        if (!no_worse(&x, &list.score[at], &list.score[i]))
            at = i;
    if (list.n > 0 && good)
        good = walk(&x, &list.policy[at], &list.score[at], x.left);
    if (list.n > 0 && good)
        found = synth_run(t, &list.policy[at], NULL, score, rows);
    for (int i = 0; i < STARTS; i++)
        synth_policy_free(&list.policy[i]);
    return found;
}
