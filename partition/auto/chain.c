/*
 * chain.c - runs of groups as stages: a first cut, quickly; the best cut, by dynamic programming.
 *
 * best[j][i]: the value of the best j stages that are together the first i groups.  From each i that
 * some j reached, the groups behind it are added one by one, and the load of that stage is kept as
 * it grows.  Time alone never falls along the way, so the cap prunes; it also says how much j
 * stages can have done at most and must have done at least.
 */
#include "dag.h"

/* ---- what a cut costs ------------------------------------------------------------------------ */

static bool is_before(const void *where, uint32_t group)
{
    const uint32_t *first = where;
    return group < *first;
}

/* The load of groups [first, end), to which *first stands in where. */
static Load load_at(const Dag *d, uint32_t *first, Arena *a)
{
    Load l = load_new(d, a);
    l.earlier = is_before;
    l.where = first;
    return l;
}

static void found_measure(const Dag *d, Found *f, Arena *a)
{
    Arena *scratch = arena_within(a);
    uint32_t first = 0;
    Load load = load_at(d, &first, scratch);
    f->slowest = f->sum = 0;
    f->border = 0;
    f->fits = true;
    for (uint32_t s = 0; s < d->p->stages; s++) {
        first = f->end[s];
        for (uint32_t g = first; g < f->end[s + 1]; g++)
            load_add(&load, g);
        Ticks t = load_ticks(&load);
        f->slowest = t > f->slowest ? t : f->slowest;
        f->sum += t;
        f->border += s > 0 ? d->group[first].border : 0;
        f->fits &= load_fits(&load, s) && load.works > 0;
        for (uint32_t g = f->end[s + 1]; g-- > first;)
            load_remove(&load, g);
    }
    arena_free(scratch);
}

/* ---- a first cut ----------------------------------------------------------------------------- */

typedef struct {
    const Dag *d;
    uint32_t *end; /* stage s is groups [end[s], end[s + 1]) */
    uint32_t first;
    Load load;
    Ticks *left, *right; /* of the two stages beside a boundary, by its place */
    bool *fits;
} Prefixes;

/* Ends of stages where the time before them is nearest to an equal share. */
static void equal_shares(Prefixes *x)
{
    uint32_t k = x->d->p->stages, n = x->d->n, at = 0;
    Ticks done = 0;
    for (uint32_t s = 1; s < k; s++) {
        Ticks share = x->d->total / k * s;
        while (at < n && (at < s || done + x->d->group[at].time / 2 < share))
            done += x->d->group[at++].time;
        while (at > n - (k - s)) /* a group for each of the others */
            done -= x->d->group[--at].time;
        if (at <= x->end[s - 1])
            done += x->d->group[at++].time;
        x->end[s] = at;
    }
    x->end[k] = n;
}

/* Puts the boundary between stages s - 1 and s where the slower of the two is fastest. */
static bool place_boundary(Prefixes *x, uint32_t s)
{
    uint32_t low = x->end[s - 1], high = x->end[s + 1], was = x->end[s], best = was;
    x->first = 0;
    for (uint32_t at = low; at + 1 < high; at++) {
        load_add(&x->load, at);
        x->left[at + 1] = load_ticks(&x->load);
        x->fits[at + 1] = load_fits(&x->load, s - 1);
    }
    for (uint32_t at = high - 1; at-- > low;)
        load_remove(&x->load, at);
    for (uint32_t at = high; at-- > low + 1;) {
        load_add(&x->load, at);
        x->right[at] = load_ticks(&x->load);
        x->fits[at] &= load_fits(&x->load, s);
    }
    for (uint32_t at = low + 1; at < high; at++)
        load_remove(&x->load, at);
    for (uint32_t at = low + 1; at < high; at++) {
        Ticks is = x->left[at] > x->right[at] ? x->left[at] : x->right[at],
              old = x->left[best] > x->right[best] ? x->left[best] : x->right[best];
        bool better =
            is < old || (is == old && x->left[at] + x->right[at] < x->left[best] + x->right[best]);
        if (x->fits[at] > x->fits[best] || (x->fits[at] == x->fits[best] && better))
            best = at;
    }
    x->end[s] = best;
    return best != was;
}

Found chain_first(const Dag *d, Arena *a)
{
    enum { ROUNDS = 12 };
    uint32_t k = d->p->stages;
    Found f = {.end = arena_array(a, uint32_t, k + 1)};
    Arena *scratch = arena_within(a);
    Prefixes x = {.d = d, .end = f.end};
    x.load = load_at(d, &x.first, scratch);
    x.left = arena_array(scratch, Ticks, d->n + 1);
    x.right = arena_array(scratch, Ticks, d->n + 1);
    x.fits = arena_array(scratch, bool, d->n + 1);
    equal_shares(&x);
    bool moved = true;
    for (int round = 0; round < ROUNDS && moved; round++) {
        moved = false;
        for (uint32_t s = 1; s < k; s++)
            moved |= place_boundary(&x, s);
    }
    arena_free(scratch);
    found_measure(d, &f, a);
    return f;
}

/* ---- the best -------------------------------------------------------------------------------- */

typedef struct {
    const Dag *d;
    uint32_t k;
    Ticks cap;            /* at most TICKS_CAP, so that products stay in range */
    bool sum;             /* values are sums; else the largest */
    const Ticks *time;    /* [n + 1] of the groups before */
    Ticks *best;          /* [stages * (n + 1) + groups] */
    uint32_t *from;       /* groups before the last stage */
    uint32_t base;
    Load load;
} Search;

static uint32_t at_least(Ticks time, Ticks cap)
{
    return cap > 0 ? (uint32_t)((time + cap - 1) / cap) : time > 0 ? UINT32_MAX / 2 : 0;
}

/* The stage of groups [base, to), behind j others: the others must be able to do the rest. */
static void relax(Search *s, uint32_t to)
{
    const Dag *d = s->d;
    const size_t n = d->n + 1;
    Ticks ticks = load_ticks(&s->load);
    if (ticks > s->cap || s->load.works == 0)
        return;
    uint32_t low = at_least(s->time[to], s->cap), rest = at_least(d->total - s->time[to], s->cap),
             high = s->k;
    low = to == d->n ? s->k : low > 1 ? low : 1;
    if (to < d->n)
        rest = rest > 1 ? rest : 1;
    high = rest > s->k ? 0 : s->k - rest;
    for (uint32_t j = low; j <= high; j++) {
        Ticks was = s->best[(j - 1) * n + s->base];
        if (was == TICKS_MOST || d->n - to < s->k - j || !load_fits(&s->load, j - 1))
            continue;
        Ticks is = s->sum ? was + ticks + (s->base ? d->group[s->base].border : 0)
                          : was > ticks ? was : ticks;
        if (is < s->best[j * n + to]) {
            s->best[j * n + to] = is;
            s->from[j * n + to] = s->base;
        }
    }
}

static bool too_much(const Search *s)
{
    if (s->load.time > s->cap)
        return true;
    if (!s->d->most)
        return false;
    for (uint32_t j = 0; j < s->k; j++)
        if (load_fits(&s->load, j))
            return false;
    return true;
}

/* All stages that begin at the base. */
static void extend(Search *s)
{
    uint32_t to = s->base;
    while (to < s->d->n && (to == s->base || !s->d->group[to].begins)) {
        load_add(&s->load, to++);
        if (too_much(s))
            break;
        relax(s, to);
    }
    while (to > s->base)
        load_remove(&s->load, --to);
}

static Found backtrack(const Search *s, Arena *a)
{
    const size_t n = s->d->n + 1;
    Found f = {.end = NULL};
    if (s->best[s->k * n + s->d->n] == TICKS_MOST)
        return f;
    f.end = arena_array(a, uint32_t, s->k + 1);
    f.end[s->k] = s->d->n;
    for (uint32_t j = s->k; j > 0; j--)
        f.end[j - 1] = s->from[j * n + f.end[j]];
    found_measure(s->d, &f, a);
    return f;
}

static Found search(const Dag *d, Ticks cap, bool sum, Arena *a)
{
    Search s = {.d = d, .k = d->p->stages, .sum = sum};
    s.cap = cap < TICKS_CAP ? cap : TICKS_CAP;
    const size_t n = d->n + 1, cells = (s.k + 1) * n;
    if (d->n < s.k)
        return (Found){.end = NULL};
    Arena *scratch = arena_within(a);
    Ticks *time = arena_array(scratch, Ticks, n);
    for (uint32_t g = 0; g < d->n; g++)
        time[g + 1] = time[g] + d->group[g].time;
    s.time = time;
    s.best = arena_array(scratch, Ticks, cells);
    s.from = arena_array(scratch, uint32_t, cells);
    s.load = load_at(d, &s.base, scratch);
    for (size_t i = 0; i < cells; i++)
        s.best[i] = TICKS_MOST;
    s.best[0] = 0;
    for (s.base = 0; s.base < d->n; s.base++) {
        bool reached = s.base == 0;
        for (uint32_t j = at_least(time[s.base], s.cap); j < s.k && !reached; j++)
            reached = s.best[j * n + s.base] != TICKS_MOST;
        if (reached)
            extend(&s);
    }
    Found f = backtrack(&s, a);
    arena_free(scratch);
    return f;
}

Found chain_slowest(const Dag *d, Ticks cap, Arena *a)
{
    Found f = search(d, cap, false, a);
    return f.end ? search(d, f.slowest, true, a) : f;
}

Found chain_sum(const Dag *d, Ticks cap, Arena *a) { return search(d, cap, true, a); }
