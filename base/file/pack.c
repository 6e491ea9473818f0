/*
 * pack.c - in: what is alive from one step to another; out: offsets in one block, and its length.
 *
 * Greedy by size (Pisarchyk and Lee, 2001.03288): the largest first, each at the lowest offset
 * where it fits between those already placed that live at the same time.  So in other orders too,
 * each followed by a climb: the first that reaches the block's end goes half the way to the front.
 * The best one counts.  That is quadratic: very many are placed only as they begin, which looks at
 * nothing but what is alive.
 */
#include "pack.h"

#include "memory.h"

#include <stdlib.h>

enum { SEARCH_MOST = 30000 };

typedef struct {
    double key[PACK_KEYS];
    int64_t number;
} Turn;

typedef struct {
    Packed *at;
    int64_t n, *order; /* order: numbers of those that are alive at all */
    int as_they_begin; /* the order is that, and stays so */
    const Packed **placed;
    int64_t *best, least, most; /* best: offsets of the shortest block; most: alive at once */
    Turn *turn;
} Packing;

static double key_of(const Packed *x, PackKey key)
{
    switch (key) {
    case PACK_SIZE: return -(double)x->bytes;
    case PACK_AREA: return -(double)x->bytes * (x->last - x->first + 1);
    case PACK_LENGTH: return x->first - x->last;
    case PACK_FIRST: return x->first;
    case PACK_LAST: return -x->last;
    case PACK_NUMBER: break;
    }
    return 0;
}

static int by_keys(const void *a, const void *b)
{
    const Turn *x = a, *y = b;
    for (int k = 0; k < PACK_KEYS; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] < y->key[k] ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static void sort(Packing *p, const PackKey *keys)
{
    for (int64_t i = 0; i < p->n; i++) {
        p->turn[i].number = p->order[i];
        for (int k = 0; k < PACK_KEYS; k++)
            p->turn[i].key[k] = key_of(&p->at[p->order[i]], keys[k]);
    }
    qsort(p->turn, (size_t)p->n, sizeof *p->turn, by_keys);
    for (int64_t i = 0; i < p->n; i++)
        p->order[i] = p->turn[i].number;
}

/* placed[] is kept in the order of offsets: one look along it finds the first gap.  Returns where x
 * ends. */
static int64_t place_one(const Packed **placed, int64_t n, Packed *x)
{
    int64_t at = 0, size = align_up(x->bytes), k = 0;
    for (; k < n; k++) {
        const Packed *y = placed[k];
        if (y->last < x->first || x->last < y->first)
            continue;
        if (y->offset - at >= size)
            break;
        if (y->offset + align_up(y->bytes) > at)
            at = y->offset + align_up(y->bytes);
    }
    x->offset = at;
    for (k = n; k > 0 && placed[k - 1]->offset > at; k--)
        placed[k] = placed[k - 1];
    placed[k] = x;
    return at + size;
}

/* Those that are dead when x begins: nothing behind it meets them. */
static int64_t drop_dead(const Packed **placed, int64_t n, const Packed *x)
{
    int64_t left = 0;
    for (int64_t k = 0; k < n; k++)
        if (placed[k]->last >= x->first)
            placed[left++] = placed[k];
    return left;
}

static int64_t place_in_order(Packing *p)
{
    int64_t bytes = 0, n = 0;
    for (int64_t i = 0; i < p->n; i++) {
        Packed *x = &p->at[p->order[i]];
        n = p->as_they_begin ? drop_dead(p->placed, n, x) : n;
        const int64_t end = place_one(p->placed, n++, x);
        bytes = end > bytes ? end : bytes;
    }
    for (int64_t i = 0; i < p->n && bytes < p->least; i++)
        p->best[p->order[i]] = p->at[p->order[i]].offset;
    p->least = bytes < p->least ? bytes : p->least;
    return bytes;
}

/* The first that reaches the block's end goes half the way to the front. */
static void promote(Packing *p, int64_t bytes)
{
    int64_t k = 0;
    while (p->at[p->order[k]].offset + align_up(p->at[p->order[k]].bytes) < bytes)
        k++;
    const int64_t it = p->order[k];
    for (int64_t to = k / 2; k > to; k--)
        p->order[k] = p->order[k - 1];
    p->order[k] = it;
}

/* From the order that stands. */
static void climb(Packing *p, int64_t rounds)
{
    for (int64_t r = 0; r <= rounds && p->least > p->most; r++)
        promote(p, place_in_order(p));
}

/* An order drawn at random, the same in every run. */
static void shuffle(Packing *p, uint64_t *state)
{
    for (int64_t i = p->n; i > 1; i--) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        const int64_t j = (int64_t)((*state >> 33) % (uint64_t)i), it = p->order[j];
        p->order[j] = p->order[i - 1];
        p->order[i - 1] = it;
    }
}

static void search(Packing *p, const PackSearch *how)
{
    const int many = p->n > SEARCH_MOST;
    int64_t rounds = how->work / (p->n * p->n);
    uint64_t state = 1;
    rounds = rounds > how->rounds ? how->rounds : rounds;
    for (int k = 0; k < how->orders; k++) {
        p->as_they_begin = many && how->order[k][0] == PACK_FIRST;
        if (many && !p->as_they_begin)
            continue;
        sort(p, how->order[k]);
        climb(p, rounds);
    }
    for (int d = 0; d < how->draws && rounds == how->rounds && p->least * 50 > p->most * 51; d++) {
        shuffle(p, &state);
        climb(p, rounds);
    }
}

int pack_most(const Packed *of, int64_t n, int steps, int64_t *most, int64_t *live)
{
    int64_t now = 0;
    POOL(room);
    int64_t *change = pool_take(&room, (int64_t)steps + 2, sizeof *change);
    *most = 0;
    if (!change)
        return 0;
    for (int64_t i = 0; i < n; i++)
        if (of[i].first >= 0) {
            change[of[i].first] += align_up(of[i].bytes);
            change[of[i].last + 1] -= align_up(of[i].bytes);
        }
    for (int k = 0; k <= steps; k++) {
        now += change[k];
        *most = now > *most ? now : *most;
        if (live && k < steps)
            live[k] += now;
    }
    return 1;
}

int pack_place(Packed *of, int64_t n, int steps, const PackSearch *how, int64_t *bytes)
{
    POOL(room);
    Packing p = {.at = of, .least = INT64_MAX};
    p.order = pool_take(&room, n, sizeof *p.order);
    p.placed = pool_take(&room, n, sizeof *p.placed);
    p.best = pool_take(&room, n, sizeof *p.best);
    p.turn = pool_take(&room, n, sizeof *p.turn);
    if (room.lost || !pack_most(of, n, steps, &p.most, NULL))
        return 0;
    for (int64_t i = 0; i < n; i++)
        if (of[i].first >= 0 && of[i].bytes > 0)
            p.order[p.n++] = i;
    if (p.n)
        search(&p, how);
    for (int64_t i = 0; i < n; i++)
        of[i].offset = p.best[i];
    *bytes = p.n ? p.least : 0;
    return 1;
}
