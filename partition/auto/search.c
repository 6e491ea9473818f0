/*
 * search.c - the best chain of ideals: dynamic programming, a layer a stage.
 *
 * best[j][I]: the value of the best j stages that are together ideal I.  From each ideal that some
 * layer reached, all larger ones within the cap are visited, a group more at a time, and the load
 * of what is between is kept as it grows.  Time alone never falls along the way, so the cap prunes;
 * it also says how much j stages can have done at most and must have done at least.
 * (Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", 2020.)
 */
#include <string.h>

#include "dag.h"

typedef struct {
    uint32_t ideal, cover, group;
} Frame;

typedef struct {
    const Lattice *l;
    const Dag *d;
    uint32_t k;
    Ticks cap;            /* at most TICKS_CAP, so that products stay in range */
    uint64_t steps, most; /* ideals looked at; 0: any number */
    bool sum;             /* values are sums; else the largest */
    bool fewer;           /* than k stages may be all */
    Ticks *best;          /* [layer * n + ideal] */
    uint32_t *from;       /* the ideal before */
    uint32_t base;        /* the ideal that is being extended */
    Load load;
    uint32_t *visited; /* by ideal: base + 1 */
    Frame *stack;
} Search;

static bool in_base(const void *where, uint32_t group)
{
    const Search *s = where;
    const Lattice *l = s->l;
    if (l->place)
        return l->place[group] < s->base;
    return l->bits[(size_t)s->base * l->words + group / 64] >> (group % 64) & 1;
}

/* May the first j stages be ideal i?  The others must be able to do the rest. */
static bool in_window(const Search *s, uint32_t j, uint32_t i)
{
    const Lattice *l = s->l;
    if (l->size[i] == s->d->n)
        return l->size[i] >= j && (j == s->k || s->fewer);
    if (j == s->k || l->size[i] < j || s->d->n - l->size[i] < s->k - j)
        return false;
    return l->time[i] <= j * s->cap && s->d->total - l->time[i] <= (s->k - j) * s->cap;
}

static void relax(Search *s, uint32_t to)
{
    const size_t n = s->l->n;
    Ticks ticks = load_ticks(&s->load);
    if (ticks > s->cap || s->load.works == 0)
        return;
    for (uint32_t j = 0; j < s->k; j++) {
        Ticks was = s->best[j * n + s->base];
        if (was == TICKS_MOST || !in_window(s, j + 1, to) || !load_fits(&s->load, j))
            continue;
        Ticks is = s->sum ? was + ticks : was > ticks ? was : ticks;
        if (is < s->best[(j + 1) * n + to]) {
            s->best[(j + 1) * n + to] = is;
            s->from[(j + 1) * n + to] = s->base;
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

/* All ideals above the base that one stage can reach. */
static void extend(Search *s)
{
    const Lattice *l = s->l;
    uint32_t depth = 0;
    s->stack[depth++] = (Frame){s->base, l->first[s->base], NONE};
    while (depth > 0) {
        Frame *f = &s->stack[depth - 1];
        if (f->cover == l->first[f->ideal + 1]) {
            if (f->group != NONE)
                load_remove(&s->load, f->group);
            depth--;
            continue;
        }
        Cover c = l->cover[f->cover++];
        if (s->visited[c.ideal] == s->base + 1 || (depth > 1 && s->d->group[c.group].begins))
            continue;
        s->visited[c.ideal] = s->base + 1;
        s->steps++;
        load_add(&s->load, c.group);
        if (too_much(s)) {
            load_remove(&s->load, c.group);
            continue;
        }
        relax(s, c.ideal);
        s->stack[depth++] = (Frame){c.ideal, l->first[c.ideal], c.group};
    }
}

static Found backtrack(const Search *s, Arena *a)
{
    const Lattice *l = s->l;
    const size_t n = l->n;
    Found f = {.stage_of = NULL};
    uint32_t used = s->k;
    for (uint32_t j = s->k; j-- > 1;)
        if (s->best[j * n + n - 1] < s->best[used * n + n - 1])
            used = j;
    if (s->best[used * n + n - 1] == TICKS_MOST)
        return f;
    f.stage_of = arena_array(a, uint32_t, s->d->n + 1);
    uint32_t *end = arena_array(a, uint32_t, s->k + 1);
    end[used] = l->n - 1;
    for (uint32_t j = used; j > 0; j--)
        end[j - 1] = s->from[j * n + end[j]];
    for (uint32_t g = 0; g < s->d->n; g++)
        for (uint32_t j = used; j-- > 0;) { /* the first stage whose end holds it */
            bool in = l->place ? l->place[g] < end[j + 1]
                               : l->bits[(size_t)end[j + 1] * l->words + g / 64] >> (g % 64) & 1;
            if (!in)
                break;
            f.stage_of[g] = j;
        }
    found_measure(s->d, &f, a);
    return f;
}

static Found search(const Lattice *l, Ticks cap, bool sum, bool fewer, Arena *a)
{
    const Dag *d = l->d;
    Search s = {.l = l, .d = d, .k = d->p->stages, .sum = sum, .fewer = fewer};
    s.most = l->most_steps;
    s.cap = cap < TICKS_CAP ? cap : TICKS_CAP;
    const size_t n = l->n, cells = (s.k + 1) * n;
    if (d->n < s.k)
        return (Found){.stage_of = NULL};
    Arena *scratch = arena_within(a);
    s.best = arena_array(scratch, Ticks, cells);
    s.from = arena_array(scratch, uint32_t, cells);
    s.visited = arena_array(scratch, uint32_t, n);
    s.stack = arena_array(scratch, Frame, d->n + 2);
    s.load = load_new(d, scratch);
    s.load.earlier = in_base;
    s.load.where = &s;
    for (size_t i = 0; i < cells; i++)
        s.best[i] = TICKS_MOST;
    s.best[0] = 0;
    for (s.base = 0; s.base + 1 < l->n; s.base++) {
        bool reached = false;
        for (uint32_t j = 0; j < s.k && !reached; j++)
            reached = s.best[j * n + s.base] != TICKS_MOST;
        if (reached)
            extend(&s);
        if (s.most && s.steps > s.most)
            break;
    }
    bool whole = s.base + 1 == l->n;
    Found f = whole ? backtrack(&s, a) : (Found){.stage_of = NULL};
    f.given_up = !whole;
    arena_free(scratch);
    return f;
}

Found search_slowest(const Lattice *l, Ticks cap, Arena *a)
{
    Found f = search(l, cap, false, l->fewer, a);
    return f.stage_of ? search(l, f.slowest, true, f.stages < l->d->p->stages, a) : f;
}

Found search_sum(const Lattice *l, Ticks cap, Arena *a)
{
    return search(l, cap, true, l->fewer, a);
}
