/*
 * extent.c - sizes that depend on the data as sums: known + how many places masks have, so
 * that two that were computed in different ways are seen to be one.  In: masks and how they were
 * made.  Out: an Extent of each.
 *
 * A graph layer that adds self loops joins the edges that are none with one for each node, and
 * makes weights of 10 + edges.shape[1] ones for them: the mask of the one and the number of the
 * other are the same sum.
 */
#include "ragged.h"


const Extent *ragged_known(ImportState *s, int64_t known)
{
    Extent *e = arena_new_of(s->g->arena, Extent);
    e->known = known;
    return e;
}

static bool total(int64_t a, int64_t k, int64_t b, int64_t l, int64_t *y)
{
    int64_t p, q;
    return !__builtin_mul_overflow(a, k, &p) && !__builtin_mul_overflow(b, l, &q) &&
           !__builtin_add_overflow(p, q, y);
}

/* Is it a number, and so is that times -1, whichever places are taken? */
static bool fits(ImportState *s, const Extent *e)
{
    int64_t end[2] = {e->known, e->known}; /* the least, the most */
    for (uint32_t i = 0; i < e->n; i++) {
        int64_t *to = &end[e->times[i] > 0];
        if (!total(*to, 1, e->times[i], low_shape(s->g, e->mask[i]).d[0], to))
            return false;
    }
    return end[0] > INT64_MIN;
}

const Extent *ragged_sum(ImportState *s, const Extent *a, int64_t k, const Extent *b, int64_t l)
{
    Extent *e = arena_new_of(s->g->arena, Extent);
    if (!a || !b || !total(a->known, k, b->known, l, &e->known))
        return NULL;
    e->mask = arena_array(s->g->arena, ValueId, a->n + b->n + 1);
    e->times = arena_array(s->g->arena, int64_t, a->n + b->n + 1);
    for (uint32_t i = 0, j = 0; i < a->n || j < b->n;) {
        bool left = j == b->n || (i < a->n && a->mask[i] <= b->mask[j]),
             right = i == a->n || (j < b->n && b->mask[j] <= a->mask[i]);
        e->mask[e->n] = left ? a->mask[i] : b->mask[j];
        if (!total(left ? a->times[i] : 0, k, right ? b->times[j] : 0, l, &e->times[e->n]))
            return NULL;
        e->n += e->times[e->n] != 0;
        i += left, j += right;
    }
    return fits(s, e) ? e : NULL;
}

int64_t ragged_most(ImportState *s, const Extent *e)
{
    int64_t most = e->known;
    for (uint32_t i = 0; i < e->n; i++)
        most += e->times[i] * low_shape(s->g, e->mask[i]).d[0];
    return most;
}

bool ragged_is_known(const Extent *e) { return e && e->n == 0; }

const Extent *ragged_extent(ImportState *s, ValueId mask)
{
    RaggedMask *m = ragged_mask(s, mask);
    if (!m->extent) {
        Extent *e = arena_new_of(s->g->arena, Extent);
        *e = (Extent){0, 1, arena_new_of(s->g->arena, ValueId), arena_new_of(s->g->arena, int64_t)};
        *e->mask = mask;
        *e->times = 1;
        m->extent = e;
    }
    return m->extent;
}
