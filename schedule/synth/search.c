/*
 * search.c - the search for a policy: the patterns that are known, the schedules that are given,
 * patterns drawn from a family, and then a walk through the neighbours of the best of them.
 *
 * In: a task.  Out: the best policy found, and its rows.  A neighbour moves the keys of some
 * stages, for all microbatches or for the first or last ones, so that warm-up and end may differ
 * from what repeats in between.
 *
 * Nothing is drawn by chance: the sequence of numbers is fixed, effort is counted in decisions, so
 * the same task has the same schedule everywhere.
 */
#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STARTS = 6, WAYS = 6 };

typedef struct {
    const SynthTask *t;
    int span, m; /* microbatches */
    int whole;
    double bound;
    int64_t left; /* decisions that may still be looked at */
    uint64_t random;
} Search;

typedef struct {
    SynthPolicy policy[STARTS];
    SynthScore score[STARTS];
    int n;
} Best;

static uint32_t draw(Search *x, uint32_t n) { return synth_draw(&x->random, n); }

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

static void policy_free(SynthPolicy *p)
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

/* ---- starts ---- */

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

/* All patterns that are known, then drawn ones. */
static int scan(Search *x, int64_t work, Best *list)
{
    SynthPolicy p;
    int64_t until = x->left - work;
    if (!policy_open(&p, x->t, x->m))
        return 0;
    p.whole = x->whole;
    for (int k = 0; k < SYNTH_KNOWN || (x->left > until && x->left > 0); k++) {
        SynthScore s;
        if (synth_pattern(x->t, k, &x->random, &p) && try(x, &p, worst(x, list), &s))
            keep(x, list, &p, &s);
    }
    policy_free(&p);
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
                synth_far(x->t) / 2) /* a W that fills or comes at once takes its place */
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
    policy_free(&p);
    return 1;
}

/* ---- all of it ---- */

/* The policies that lead to given schedules, taken into the list of the best; and those that
   differ from them in that the last W only fill gaps: no F is left then to hide what waits for
   an I behind one. */
static int replay(Search *x, const Schedule *const *seed, int seeds, int64_t left, Best *list)
{
    SynthPolicy p;
    if (!policy_open(&p, x->t, x->m))
        return 0;
    p.whole = x->whole;
    for (int k = 0; k < WAYS * seeds && x->left > left; k++) {
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
                p.key_w[i] += synth_far(x->t);
        if (try(x, &p, worst(x, list), &s))
            keep(x, list, &p, &s);
    }
    policy_free(&p);
    return 1;
}

int synth_search(const SynthTask *t, const SynthAsk *ask, SchedRow *rows)
{
    int m = t->microbatches, good = 1, found = 0, at = 0;
    const int64_t third = ask->work / 3;
    Search x = {.t = t,
                .span = ask->span,
                .m = m,
                .whole = ask->whole,
                .left = ask->work,
                .random = 1};
    Best list = {.n = 0};
    x.bound = m * t->period;
    for (int i = 0; i < STARTS; i++)
        good &= policy_open(&list.policy[i], t, m);
    good = good && replay(&x, ask->seed, ask->seeds, third, &list) && scan(&x, third, &list);
    int64_t share = x.left / 2 / STARTS;
    for (int i = 0; i < list.n && good; i++)
        good = walk(&x, &list.policy[i], &list.score[i], share);
    for (int i = 1; i < list.n; i++)
        if (!no_worse(&x, &list.score[at], &list.score[i]))
            at = i;
    if (list.n > 0 && good)
        good = walk(&x, &list.policy[at], &list.score[at], x.left);
    if (list.n > 0 && good)
        found = synth_run(t, &list.policy[at], NULL, &list.score[at], rows);
    for (int i = 0; i < STARTS; i++)
        policy_free(&list.policy[i]);
    return found;
}
