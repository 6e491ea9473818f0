/*
 * chain.c - runs of groups as stages: the best cut, by dynamic programming.
 *
 * best[i][j]: the value of the best j stages that are together the first i groups.  From each i that
 * some j reached, the groups behind it are added one by one, and the load of that stage is kept as
 * it grows.  Time alone never falls along the way, so the cap prunes; it also says how much j
 * stages can have done at most and must have done at least: a few j for each i, which lie together.
 */
#include "dag.h"

/* ---- what a cut costs ------------------------------------------------------------------------ */

static void found_measure(const Dag *d, Found *f, Arena *a)
{
    Arena *scratch = arena_within(a);
    uint32_t first = 0;
    Load load = load_new(d, &first, scratch);
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

/* ---- the best -------------------------------------------------------------------------------- */

/* What is known where the first groups are done: of low .. high stages, which the cap leaves, the
   best value, and where the last of them begins; in row. */
typedef struct {
    uint32_t low, high;
    size_t row;
} Place;

typedef struct {
    const Dag *d;
    uint32_t k;
    Ticks cap;      /* at most TICKS_CAP, so that products stay in range */
    bool sum;       /* values are sums; else the largest */
    Place *place;   /* [n + 1] by groups before it */
    Ticks *best;    /* [place.row + stages - place.low] */
    uint32_t *from;
    uint32_t base;
    Load load;
} Search;

static uint32_t at_least(Ticks time, Ticks cap)
{
    return cap > 0 ? (uint32_t)((time + cap - 1) / cap) : time > 0 ? UINT32_MAX / 2 : 0;
}

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
static Ticks larger_ticks(Ticks a, Ticks b) { return a > b ? a : b; }
static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* How many stages there can be before each place: each has a group and no more time than the cap,
   and so have those behind it. Returns how many values that are. */
static size_t find_places(Search *s)
{
    const Dag *d = s->d;
    Ticks before = 0;
    size_t row = 0;
    for (uint32_t i = 0; i <= d->n; i++) {
        Place *x = &s->place[i];
        uint32_t some = i > 0, rest = i < d->n, left = d->n - i;
        uint32_t behind = larger(rest, at_least(d->total - before, s->cap));
        x->row = row;
        x->low = larger(larger(some, at_least(before, s->cap)), s->k > left ? s->k - left : 0);
        x->high = behind > s->k ? 0 : smaller(s->k - behind, i);
        row += x->high >= x->low ? x->high - x->low + 1 : 0;
        before += rest ? d->group[i].time : 0;
    }
    return row;
}

/* The stage of groups [base, to), behind j - 1 others. */
static void relax(Search *s, uint32_t to)
{
    const Dag *d = s->d;
    const Place *x = &s->place[s->base], *y = &s->place[to];
    const Ticks ticks = load_ticks(&s->load), border = s->base ? d->group[s->base].border : 0;
    if (ticks > s->cap || s->load.works == 0)
        return;
    const uint32_t low = larger(x->low + 1, y->low), high = smaller(x->high + 1, y->high);
    for (uint32_t j = low; j <= high; j++) {
        const Ticks was = s->best[x->row + (j - 1 - x->low)];
        const size_t at = y->row + (j - y->low);
        if (was == TICKS_MOST || (d->most && !load_fits(&s->load, j - 1)))
            continue;
        Ticks is = s->sum ? was + ticks + border : larger_ticks(was, ticks);
        if (is < s->best[at]) {
            s->best[at] = is;
            s->from[at] = s->base;
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

static bool is_reached(const Search *s)
{
    const Place *x = &s->place[s->base];
    for (uint32_t j = x->low; j <= x->high; j++)
        if (s->best[x->row + (j - x->low)] != TICKS_MOST)
            return true;
    return false;
}

static Found backtrack(const Search *s, Arena *a)
{
    const Place *last = &s->place[s->d->n];
    Found f = {.end = NULL};
    if (last->low > last->high || s->best[last->row] == TICKS_MOST)
        return f;
    f.end = arena_array(a, uint32_t, s->k + 1);
    f.end[s->k] = s->d->n;
    for (uint32_t j = s->k; j > 0; j--) {
        const Place *x = &s->place[f.end[j]];
        f.end[j - 1] = s->from[x->row + (j - x->low)];
    }
    found_measure(s->d, &f, a);
    return f;
}

static Found search(const Dag *d, Ticks cap, bool sum, Arena *a)
{
    Search s = {.d = d, .k = d->p->stages, .sum = sum};
    s.cap = cap < TICKS_CAP ? cap : TICKS_CAP;
    if (d->n < s.k)
        return (Found){.end = NULL};
    Arena *scratch = arena_within(a);
    s.place = arena_array(scratch, Place, d->n + 1);
    const size_t cells = find_places(&s);
    s.best = arena_array(scratch, Ticks, cells + 1);
    s.from = arena_array(scratch, uint32_t, cells + 1);
    s.load = load_new(d, &s.base, scratch);
    for (size_t i = 0; i < cells; i++)
        s.best[i] = TICKS_MOST;
    s.best[0] = 0; /* no stage before the first group */
    for (s.base = 0; s.base < d->n; s.base++)
        if (is_reached(&s))
            extend(&s);
    Found f = backtrack(&s, a);
    arena_free(scratch);
    return f;
}

/* What no number of stages has all of its stages below, where one group alone takes more than an
   equal share; an equal share. */
static Ticks least_slowest(const Dag *d, Arena *a)
{
    Arena *scratch = arena_within(a);
    Ticks *best = arena_array(scratch, Ticks, d->n + 1), even = d->total / d->p->stages, alone = 0;
    uint32_t base, to;
    Load load = load_new(d, &base, scratch);
    for (base = 0; base < d->n; base++) {
        load_add(&load, base);
        alone = larger_ticks(alone, load_ticks(&load));
        load_remove(&load, base);
    }
    for (to = 1; to <= d->n; to++)
        best[to] = alone;
    for (base = 0; base < d->n && alone > even; base++) {
        for (to = base; to < d->n && load.time < alone && best[base] < alone;) {
            load_add(&load, to++);
            Ticks is = larger_ticks(best[base], load_ticks(&load));
            best[to] = is < best[to] ? is : best[to];
        }
        while (to > base)
            load_remove(&load, --to);
    }
    even = larger_ticks(even, best[d->n]);
    arena_free(scratch);
    return even;
}

Found chain_slowest(const Dag *d, Arena *a)
{
    const Ticks least = least_slowest(d, a);
    Found f = search(d, least, true, a);
    for (Ticks more = least / 16 + 1; !f.end && more < TICKS_CAP; more *= 4) {
        more = more < d->total ? more : TICKS_CAP;
        f = search(d, least + more, false, a);
        if (f.end)
            f = search(d, f.slowest, true, a);
    }
    return f;
}

Found chain_sum(const Dag *d, Ticks cap, Arena *a) { return search(d, cap, true, a); }
