/*
 * slots.c - in: tensors with a birth and a death along a row of actions; out: their offsets in one
 * block, and its length, with the least any placement could do beside it.
 *
 * Greedy by size (Pisarchyk and Lee, 2001.03288): the largest first, each at the lowest offset
 * where it fits between those already placed that live at the same time; by size times lifetime and
 * by birth too, each followed by a climb, and the best one counts.  That is quadratic: very long
 * rows take the order of birth alone, in which only what is alive is looked at.
 */
#include "planner.h"

#include <stdlib.h>

enum { SEARCH_MOST = 30000, MOST_ROUNDS = 100, WORK = 20000000 };

static int as_they_come(const Instance *x, const Instance *y)
{
    return x->birth != y->birth ? (x->birth < y->birth ? -1 : 1) : (x > y) - (x < y);
}

/* Larger first, then longer-lived, then as they come. */
static int by_size(const void *a, const void *b)
{
    const Instance *x = *(Instance *const *)a, *y = *(Instance *const *)b;
    int lx = x->death - x->birth, ly = y->death - y->birth;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (lx != ly)
        return lx > ly ? -1 : 1;
    return as_they_come(x, y);
}

static int by_area(const void *a, const void *b)
{
    const Instance *x = *(Instance *const *)a, *y = *(Instance *const *)b;
    double ax = (double)x->bytes * (x->death - x->birth + 1),
           ay = (double)y->bytes * (y->death - y->birth + 1);
    return ax != ay ? (ax > ay ? -1 : 1) : as_they_come(x, y);
}

static int by_birth(const void *a, const void *b)
{
    return as_they_come(*(Instance *const *)a, *(Instance *const *)b);
}

/* placed[] is kept in the order of offsets: one look along it finds the first gap. */
static void place_one(Instance **placed, int64_t n, Instance *it, int64_t *bytes)
{
    int64_t at = 0, size = align_up(it->bytes), k = 0;
    for (; k < n; k++) {
        const Instance *q = placed[k];
        if (q->death < it->birth || q->birth > it->death)
            continue;
        if (q->offset - at >= size)
            break;
        if (q->offset + align_up(q->bytes) > at)
            at = q->offset + align_up(q->bytes);
    }
    it->offset = at;
    for (k = n; k > 0 && placed[k - 1]->offset > at; k--)
        placed[k] = placed[k - 1];
    placed[k] = it;
    if (at + size > *bytes)
        *bytes = at + size;
}

typedef struct {
    Instance **order, **placed;
    int64_t n, *best, least; /* best: offsets of the best placement so far */
} Greedy;

/* Those that are dead when this one is born: where all come by birth nothing meets them any more. */
static int64_t drop_dead(Instance **placed, int64_t n, const Instance *it)
{
    int64_t left = 0;
    for (int64_t k = 0; k < n; k++)
        if (placed[k]->death >= it->birth)
            placed[left++] = placed[k];
    return left;
}

static int64_t place_all(Greedy *g, const Instance *inst)
{
    int64_t bytes = 0, n = 0;
    for (int64_t i = 0; i < g->n; i++) {
        n = g->n > SEARCH_MOST ? drop_dead(g->placed, n, g->order[i]) : n;
        place_one(g->placed, n++, g->order[i], &bytes);
    }
    if (bytes < g->least) {
        g->least = bytes;
        for (int64_t i = 0; i < g->n; i++)
            g->best[g->order[i] - inst] = g->order[i]->offset;
    }
    return bytes;
}

/* The first tensor that reaches the peak goes half the way to the front. */
static void promote(Greedy *g, int64_t bytes)
{
    int64_t k = 0;
    while (g->order[k]->offset + align_up(g->order[k]->bytes) < bytes)
        k++;
    Instance *it = g->order[k];
    for (int64_t to = k / 2; k > to; k--)
        g->order[k] = g->order[k - 1];
    g->order[k] = it;
}

static void search(Greedy *g, const Instance *inst, int64_t bound)
{
    static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_birth};
    int64_t rounds = g->n ? WORK / (g->n * g->n) : 0;
    rounds = rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    for (int k = g->n > SEARCH_MOST ? 2 : 0; k < 3 && g->least > bound; k++) {
        qsort(g->order, (size_t)g->n, sizeof *g->order, orders[k]);
        int64_t bytes = place_all(g, inst);
        for (int64_t i = 0; i < rounds && g->least > bound; i++) {
            promote(g, bytes);
            bytes = place_all(g, inst);
        }
    }
}

/* The most bytes alive at one action; live: at each. */
PpStatus slots_bound(const Instance *inst, int64_t n_inst, int n_op, int64_t *bound,
                     int64_t *live)
{
    int64_t *change, now = 0;
    POOL(pool);
    TRY(pp_take(&pool, &change, n_op + 2, sizeof *change));
    for (int64_t i = 0; i < n_inst; i++)
        if (inst[i].birth >= 0) {
            change[inst[i].birth] += align_up(inst[i].bytes);
            change[inst[i].death + 1] -= align_up(inst[i].bytes);
        }
    *bound = 0;
    for (int k = 0; k <= n_op; k++) {
        now += change[k];
        *bound = now > *bound ? now : *bound;
        if (live && k < n_op)
            live[k] += now;
    }
    return PP_OK;
}

PpStatus slots_place(Instance *inst, int64_t n_inst, int n_op, int64_t *bytes, int64_t *bound,
                     int64_t *live)
{
    POOL(pool);
    Greedy g = {.least = INT64_MAX};
    TRY(slots_bound(inst, n_inst, n_op, bound, live));
    TRY(pp_take(&pool, &g.order, n_inst, sizeof *g.order));
    TRY(pp_take(&pool, &g.placed, n_inst, sizeof *g.placed));
    TRY(pp_take(&pool, &g.best, n_inst, sizeof *g.best));
    for (int64_t i = 0; i < n_inst; i++)
        if (inst[i].birth >= 0 && inst[i].bytes > 0)
            g.order[g.n++] = &inst[i];
    *bytes = 0;
    if (!g.n)
        return PP_OK;
    search(&g, inst, *bound);
    for (int64_t i = 0; i < n_inst; i++)
        inst[i].offset = g.best[i];
    *bytes = g.least;
    return PP_OK;
}
