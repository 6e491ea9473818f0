/*
 * bound.c - what the slowest stage takes at least, whatever the cut, when not all can be looked at.
 *
 * In: a Dag.  Out: ticks.  The stages up to a boundary are an ideal: with a group it has all before
 * it, without it none after it.  So its time is at most total - after - own, or at least before +
 * own, and between the two there is no boundary: each group forbids such a gap, a wide one where
 * little stands beside it, as in a chain.  Boundaries anywhere outside of the gaps are then more
 * than there are, and among those the slowest stage is least that lets k stages, each as long as it
 * may be, reach the end.  Messages take nothing here.
 */
#include <stdlib.h>
#include <string.h>

#include "dag.h"

/* More groups would want more memory for this than a cut does. */
enum { GROUPS_MOST = 1 << 13 };

typedef struct {
    Ticks low, high; /* not above low, not below high */
} Gap;

/* By group, the time of those that it comes after, or of those that come after it. */
static Ticks *time_of_others(const Dag *d, bool after, Arena *a)
{
    const uint32_t words = (d->n + 63) / 64;
    Ticks *sum = arena_array(a, Ticks, d->n + 1);
    Arena *scratch = arena_within(a);
    uint64_t *set = arena_array(scratch, uint64_t, (size_t)d->n * words + 1);
    for (uint32_t i = 0; i < d->n; i++) {
        const uint32_t g = after ? d->n - 1 - i : i;
        const Ids *next = after ? &d->group[g].after : &d->group[g].before;
        uint64_t *own = set + (size_t)g * words;
        for (uint32_t k = 0; k < next->n; k++) {
            const uint32_t o = next->at[k];
            const uint64_t *others = set + (size_t)o * words;
            for (uint32_t w = 0; w < words; w++)
                own[w] |= others[w];
            own[o / 64] |= (uint64_t)1 << o % 64;
        }
        for (uint32_t o = 0; o < d->n; o++)
            sum[g] += own[o / 64] >> o % 64 & 1 ? d->group[o].time : 0;
    }
    arena_free(scratch);
    return sum;
}

static int by_low(const void *a, const void *b)
{
    const Gap *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

/* Ascending, none over another; their number. */
static uint32_t gaps_of(const Dag *d, Gap *gap, Arena *a)
{
    const Ticks *before = time_of_others(d, false, a), *after = time_of_others(d, true, a);
    uint32_t all = 0, n = 0;
    for (uint32_t g = 0; g < d->n; g++) {
        const Ticks own = d->group[g].time;
        const Gap x = {d->total - after[g] - own, before[g] + own};
        if (x.low < x.high)
            gap[all++] = x;
    }
    qsort(gap, all, sizeof *gap, by_low);
    for (uint32_t i = 0; i < all; i++) {
        if (n == 0 || gap[i].low >= gap[n - 1].high)
            gap[n++] = gap[i];
        else if (gap[i].high > gap[n - 1].high)
            gap[n - 1].high = gap[i].high;
    }
    return n;
}

/* Do k stages of at most so many ticks reach the end? */
static bool reaches(const Dag *d, const Gap *gap, uint32_t n, Ticks most)
{
    Ticks at = 0;
    uint32_t i = 0;
    for (uint32_t s = 0; s < d->p->stages && at < d->total; s++) {
        at += most;
        while (i < n && gap[i].high <= at)
            i++;
        if (i < n && gap[i].low < at)
            at = gap[i].low;
    }
    return at >= d->total;
}

Ticks dag_least(const Dag *d, Arena *a)
{
    const Ticks share = (d->total + d->p->stages - 1) / d->p->stages;
    Ticks least = share > d->largest ? share : d->largest, most = d->total;
    if (d->n > GROUPS_MOST)
        return least;
    Arena *scratch = arena_within(a);
    Gap *gap = arena_array(scratch, Gap, d->n + 1);
    const uint32_t n = gaps_of(d, gap, scratch);
    while (least < most) {
        const Ticks middle = least + (most - least) / 2;
        if (reaches(d, gap, n, middle))
            most = middle;
        else
            least = middle + 1;
    }
    arena_free(scratch);
    return least;
}
