/*
 * lattice.c - the ideals of a graph: sets of groups that hold all that theirs come after.
 *
 * Of an order: its prefixes.  Of the graph: all of them, found from the empty one a group at a
 * time, until there are too many.
 */
#include <string.h>

#include "dag.h"

Lattice lattice_chain(const Dag *d, const uint32_t *order, Arena *a)
{
    Lattice l = {.d = d, .n = d->n + 1};
    uint32_t *place = arena_array(a, uint32_t, d->n + 1);
    l.time = arena_array(a, Ticks, l.n);
    l.size = arena_array(a, uint32_t, l.n);
    l.first = arena_array(a, uint32_t, l.n + 1);
    l.cover = arena_array(a, Cover, l.n);
    for (uint32_t i = 0; i < d->n; i++) {
        place[order[i]] = i;
        l.cover[i] = (Cover){order[i], i + 1};
        l.first[i] = i;
        l.time[i + 1] = l.time[i] + d->group[order[i]].time;
        l.size[i + 1] = i + 1;
    }
    l.first[d->n] = l.first[l.n] = d->n;
    l.place = place;
    return l;
}

typedef struct {
    Lattice l;
    Arena *a;
    VEC(Cover) cover;
    uint64_t *key;         /* by group */
    uint64_t *hash;        /* by ideal */
    uint32_t *slot, slots; /* ideal + 1 */
    uint32_t most;
} Ideals;

/* splitmix64: a number for each group, whose sum modulo 2^64 is an ideal's place in the table. */
static uint64_t scatter(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static const uint64_t *bits_of(const Lattice *l, uint32_t i)
{
    return l->bits + (size_t)i * l->words;
}

/* The ideal that is `from` and group; made where it is new, NONE where there are too many. */
static uint32_t with_group(Ideals *s, uint32_t from, uint32_t group)
{
    Lattice *l = &s->l;
    uint64_t *bits = l->bits + (size_t)l->n * l->words; /* room for one more */
    memcpy(bits, bits_of(l, from), l->words * sizeof *bits);
    bits[group / 64] |= (uint64_t)1 << (group % 64);
    uint64_t hash = s->hash[from] + s->key[group];
    uint32_t at = (uint32_t)(hash & (s->slots - 1));
    for (; s->slot[at]; at = (at + 1) & (s->slots - 1)) {
        uint32_t i = s->slot[at] - 1;
        if (s->hash[i] == hash && memcmp(bits_of(l, i), bits, l->words * sizeof *bits) == 0)
            return i;
    }
    if (l->n == s->most)
        return NONE;
    s->slot[at] = l->n + 1;
    s->hash[l->n] = hash;
    l->time[l->n] = l->time[from] + l->d->group[group].time;
    l->size[l->n] = l->size[from] + 1;
    return l->n++;
}

static bool holds(const uint64_t *bits, uint32_t group)
{
    return bits[group / 64] >> (group % 64) & 1;
}

static bool ready(const Dag *d, const uint64_t *bits, uint32_t group)
{
    const Ids *before = &d->group[group].before;
    for (uint32_t i = 0; i < before->n; i++)
        if (!holds(bits, before->at[i]))
            return false;
    return true;
}

/* Groups that may come next after ideal i: those after its parent, and what the last one let in. */
static void next_groups(Ideals *s, uint32_t i, uint32_t parent, uint32_t last, Ids *next)
{
    const Lattice *l = &s->l;
    next->n = 0;
    for (uint32_t k = l->first[parent]; k < l->first[parent + 1]; k++)
        if (s->cover.at[k].group != last)
            vec_push(s->a, next, s->cover.at[k].group);
    const Ids *after = &l->d->group[last].after;
    for (uint32_t k = 0; k < after->n; k++)
        if (ready(l->d, bits_of(l, i), after->at[k]))
            vec_push(s->a, next, after->at[k]);
}

bool lattice_all(const Dag *d, uint32_t most, Arena *a, Lattice *out)
{
    enum { COVERS = 1 << 22 }; /* of all: wide graphs have too many ideals anyway */
    Ideals s = {.a = a, .most = most};
    Lattice *l = &s.l;
    l->d = d;
    l->words = d->n / 64 + 1;
    l->bits = arena_array(a, uint64_t, (size_t)(most + 1) * l->words);
    l->time = arena_array(a, Ticks, most + 1);
    l->size = arena_array(a, uint32_t, most + 1);
    l->first = arena_array(a, uint32_t, most + 2);
    s.hash = arena_array(a, uint64_t, most + 1);
    s.key = arena_array(a, uint64_t, d->n + 1);
    for (s.slots = 64; s.slots < 2 * most; s.slots *= 2) {
    }
    s.slot = arena_array(a, uint32_t, s.slots);
    for (uint32_t k = 0; k < d->n; k++)
        s.key[k] = scatter(k);
    uint32_t *parent = arena_array(a, uint32_t, most + 1),
             *last = arena_array(a, uint32_t, most + 1);
    Ids next = {0};
    l->n = 1;
    s.slot[0] = 1;
    for (uint32_t i = 0; i < l->n; i++) {
        l->first[i] = s.cover.n;
        if (i == 0) {
            for (uint32_t k = 0; k < d->n; k++)
                if (d->group[k].before.n == 0)
                    vec_push(a, &next, k);
        } else {
            next_groups(&s, i, parent[i], last[i], &next);
        }
        for (uint32_t k = 0; k < next.n; k++) {
            uint32_t was = l->n, to = with_group(&s, i, next.at[k]);
            if (to == NONE || s.cover.n == COVERS)
                return false;
            if (to == was) {
                parent[to] = i;
                last[to] = next.at[k];
            }
            Cover c = {next.at[k], to};
            vec_push(a, &s.cover, c);
        }
        l->first[i + 1] = s.cover.n;
    }
    l->cover = s.cover.at;
    *out = *l;
    return true;
}
