/*
 * slots.c - in: tensors with a birth and a death along a row of actions; out: their offsets in one
 * block, and its length, with the least any placement could do beside it.
 *
 * Greedy by size (Pisarchyk and Lee, 2001.03288): the largest first, each at the lowest offset
 * where it fits between those already placed that live at the same time; by size times lifetime and
 * by birth too, each followed by a climb, and the best one counts.  That is quadratic, so very long
 * rows take free lists instead, one per size, last freed first: what was touched last is used again
 * first.
 */
#include "planner.h"

#include <stdlib.h>

enum { GREEDY_MOST = 30000, MOST_ROUNDS = 100, WORK = 20000000 };

/* ---- free lists ---- */

typedef struct {
    int64_t offset;
    int next;
} Slot;

typedef struct {
    int64_t bytes;
    int free;
} SizeClass;

typedef struct {
    Pool *pool;
    Slot *slot;
    int n_slot;
    SizeClass *class;
    int n_class;
    int64_t bytes;
} Slots;

static PpStatus find_class(Slots *p, int64_t bytes, int *c)
{
    for (*c = 0; *c < p->n_class; ++*c)
        if (p->class[*c].bytes == bytes)
            return PP_OK;
    return pp_add(p->pool, &p->class, &p->n_class, &(SizeClass){bytes, -1}, sizeof *p->class);
}

static PpStatus take_slot(Slots *p, SizeClass *c, int *s)
{
    *s = c->free;
    if (*s >= 0) {
        c->free = p->slot[*s].next;
        return PP_OK;
    }
    *s = p->n_slot;
    p->bytes += c->bytes;
    return pp_add(p->pool, &p->slot, &p->n_slot, &(Slot){p->bytes - c->bytes, -1},
                  sizeof *p->slot);
}

/* Instances by birth and by death (counting sort), then one walk over the ops. */
static PpStatus free_lists(Instance *inst, int64_t n_inst, int n_op, int64_t *bytes)
{
    POOL(pool);
    Slots all = {.pool = &pool}, *p = &all;
    int64_t *born, *dead, *by_birth, *by_death, b = 0, d = 0;
    int *slot_of, *class_of;
    TRY(pp_take(&pool, &born, n_op + 2, sizeof *born));
    TRY(pp_take(&pool, &dead, n_op + 3, sizeof *dead));
    TRY(pp_take(&pool, &by_birth, n_inst, sizeof *by_birth));
    TRY(pp_take(&pool, &by_death, n_inst, sizeof *by_death));
    TRY(pp_take(&pool, &slot_of, n_inst, sizeof *slot_of));
    TRY(pp_take(&pool, &class_of, n_inst, sizeof *class_of));
    for (int64_t i = 0; i < n_inst; i++)
        if (inst[i].birth >= 0) {
            born[inst[i].birth + 1]++;
            dead[inst[i].death + 1]++;
        }
    for (int k = 0; k <= n_op; k++) {
        born[k + 1] += born[k];
        dead[k + 1] += dead[k];
    }
    for (int64_t i = 0; i < n_inst; i++)
        if (inst[i].birth >= 0) {
            by_birth[born[inst[i].birth]++] = i;
            by_death[dead[inst[i].death]++] = i;
        }
    for (int k = 0; k < n_op; k++) {
        for (; b < born[k]; b++) {
            const int64_t i = by_birth[b];
            TRY(find_class(p, align_up(inst[i].bytes), &class_of[i]));
            TRY(take_slot(p, &p->class[class_of[i]], &slot_of[i]));
            inst[i].offset = p->slot[slot_of[i]].offset;
        }
        for (; d < dead[k]; d++) {
            SizeClass *c = &p->class[class_of[by_death[d]]];
            int at = slot_of[by_death[d]];
            p->slot[at].next = c->free;
            c->free = at;
        }
    }
    *bytes = p->bytes;
    return PP_OK;
}

/* ---- greedy by size ---- */

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

static int64_t place_all(Greedy *g, const Instance *inst)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < g->n; i++)
        place_one(g->placed, i, g->order[i], &bytes);
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
    for (size_t k = 0; k < sizeof orders / sizeof *orders && g->least > bound; k++) {
        qsort(g->order, (size_t)g->n, sizeof *g->order, orders[k]);
        int64_t bytes = place_all(g, inst);
        for (int64_t i = 0; i < rounds && g->least > bound; i++) {
            promote(g, bytes);
            bytes = place_all(g, inst);
        }
    }
}

static PpStatus greedy(Instance *inst, int64_t n_inst, int64_t bound, int64_t *bytes)
{
    POOL(pool);
    Greedy g = {.least = INT64_MAX};
    TRY(pp_take(&pool, &g.order, n_inst, sizeof *g.order));
    TRY(pp_take(&pool, &g.placed, n_inst, sizeof *g.placed));
    TRY(pp_take(&pool, &g.best, n_inst, sizeof *g.best));
    for (int64_t i = 0; i < n_inst; i++)
        if (inst[i].birth >= 0 && inst[i].bytes > 0)
            g.order[g.n++] = &inst[i];
    *bytes = 0;
    if (!g.n)
        return PP_OK;
    search(&g, inst, bound);
    for (int64_t i = 0; i < n_inst; i++)
        inst[i].offset = g.best[i];
    *bytes = g.least;
    return PP_OK;
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
    int64_t n = 0;
    for (int64_t i = 0; i < n_inst; i++)
        n += inst[i].birth >= 0 && inst[i].bytes > 0;
    TRY(slots_bound(inst, n_inst, n_op, bound, live));
    return n <= GREEDY_MOST ? greedy(inst, n_inst, *bound, bytes)
                            : free_lists(inst, n_inst, n_op, bytes);
}
