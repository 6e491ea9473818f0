/*
 * orders.c - where not all cuts can be looked at: several topological orders, a first cut in one,
 * and groups moved one at a time across the boundary of two stages.
 */
#include <string.h>

#include "dag.h"

/* ---- what a cut costs ------------------------------------------------------------------------ */

typedef struct {
    const uint32_t *stage_of;
    uint32_t stage;
} Part;

static bool is_earlier(const void *where, uint32_t group)
{
    const Part *w = where;
    return w->stage_of[group] < w->stage;
}

static Load *loads_of(const Dag *d, const uint32_t *stage_of, Part *where, Arena *a)
{
    Load *load = arena_array(a, Load, d->p->stages);
    for (uint32_t s = 0; s < d->p->stages; s++) {
        load[s] = load_new(d, a);
        where[s] = (Part){stage_of, s};
        load[s].earlier = is_earlier;
        load[s].where = &where[s];
    }
    for (uint32_t g = 0; g < d->n; g++)
        load_add(&load[stage_of[g]], g);
    return load;
}

void found_measure(const Dag *d, Found *f, Arena *a)
{
    Arena *scratch = arena_within(a);
    Load *load = loads_of(d, f->stage_of, arena_array(scratch, Part, d->p->stages), scratch);
    f->slowest = f->sum = 0;
    f->fits = true;
    f->stages = 0;
    for (uint32_t g = 0; g < d->n; g++)
        f->stages = f->stage_of[g] < f->stages ? f->stages : f->stage_of[g] + 1;
    for (uint32_t s = 0; s < d->p->stages; s++) {
        Ticks t = load_ticks(&load[s]);
        f->slowest = t > f->slowest ? t : f->slowest;
        f->sum += t;
        f->fits &= load_fits(&load[s], s) && (load[s].works > 0 || !d->p->in_order);
    }
    arena_free(scratch);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13; /* Marsaglia's xorshift */
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 11) % n);
}

/* Of the groups that may come next: the least, the newest (depth first), the oldest (breadth
 * first), or mostly the newest and else any. */
static uint32_t choose(const Ids *ready, uint32_t number, uint64_t *state)
{
    uint32_t least = 0;
    if (number == 1)
        return ready->n - 1;
    if (number == 2)
        return 0;
    if (number > 2)
        return random_below(state, 4) ? ready->n - 1 : random_below(state, ready->n);
    for (uint32_t i = 1; i < ready->n; i++)
        if (ready->at[i] < ready->at[least])
            least = i;
    return least;
}

uint32_t *order_number(const Dag *d, const uint32_t *stage_of, uint32_t number, Arena *a)
{
    uint32_t *order = arena_array(a, uint32_t, d->n + 1), done = 0;
    if (number == 0 && !stage_of) {
        for (uint32_t g = 0; g < d->n; g++)
            order[g] = g;
        return order;
    }
    Arena *scratch = arena_within(a);
    uint32_t *waits = arena_array(scratch, uint32_t, d->n + 1),
             stages = stage_of ? d->p->stages : 1;
    Ids *ready = arena_array(scratch, Ids, stages);
    uint64_t state = 0x2545f4914f6cdd1du + number;
    for (uint32_t g = 0; g < d->n; g++) {
        waits[g] = d->group[g].before.n;
        if (waits[g] == 0)
            vec_push(scratch, &ready[stage_of ? stage_of[g] : 0], g);
    }
    for (uint32_t s = 0; s < stages; s++)
        while (ready[s].n > 0) {
            uint32_t i = choose(&ready[s], number, &state), g = ready[s].at[i];
            memmove(ready[s].at + i, ready[s].at + i + 1, (ready[s].n - i - 1) * sizeof g);
            ready[s].n--;
            order[done++] = g;
            const Ids *after = &d->group[g].after;
            for (uint32_t k = after->n; k-- > 0;)
                if (--waits[after->at[k]] == 0)
                    vec_push(scratch, &ready[stage_of ? stage_of[after->at[k]] : 0], after->at[k]);
        }
    INSIST(done == d->n);
    arena_free(scratch);
    return order;
}

/* ---- a first cut ----------------------------------------------------------------------------- */

typedef struct {
    const Dag *d;
    const uint32_t *order;
    uint32_t *end; /* of stage s: order[end[s]..end[s + 1]) */
    Load load;
    uint32_t *stage_of;  /* of groups in the stages before the two: 0, else 1 */
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
        while (at < n && (at < s || done + x->d->group[x->order[at]].time / 2 < share))
            done += x->d->group[x->order[at++]].time;
        while (at > n - (k - s)) /* a group for each of the others */
            done -= x->d->group[x->order[--at]].time;
        if (at <= x->end[s - 1])
            done += x->d->group[x->order[at++]].time;
        x->end[s] = at;
    }
    x->end[k] = n;
}

/* Puts the boundary between stages s - 1 and s where the slower of the two is fastest. */
static bool place_boundary(Prefixes *x, uint32_t s)
{
    uint32_t low = x->end[s - 1], high = x->end[s + 1], was = x->end[s], best = was;
    for (uint32_t at = low; at + 1 < high; at++) {
        load_add(&x->load, x->order[at]);
        x->left[at + 1] = load_ticks(&x->load);
        x->fits[at + 1] = load_fits(&x->load, s - 1);
    }
    for (uint32_t at = high - 1; at-- > low;)
        load_remove(&x->load, x->order[at]);
    for (uint32_t at = high; at-- > low + 1;) {
        load_add(&x->load, x->order[at]);
        x->right[at] = load_ticks(&x->load);
        x->fits[at] &= load_fits(&x->load, s);
    }
    for (uint32_t at = low + 1; at < high; at++)
        load_remove(&x->load, x->order[at]);
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

Found order_first(const Dag *d, const uint32_t *order, Arena *a)
{
    enum { ROUNDS = 12 };
    uint32_t k = d->p->stages;
    Found f = {.stage_of = arena_array(a, uint32_t, d->n + 1)};
    Arena *scratch = arena_within(a);
    Prefixes x = {.d = d, .order = order, .load = load_new(d, scratch)};
    x.end = arena_array(scratch, uint32_t, k + 1);
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
    for (uint32_t s = 0; s < k; s++)
        for (uint32_t at = x.end[s]; at < x.end[s + 1]; at++)
            f.stage_of[order[at]] = s;
    arena_free(scratch);
    found_measure(d, &f, a);
    return f;
}

/* ---- single groups across boundaries --------------------------------------------------------- */

typedef struct {
    const Dag *d;
    uint32_t *stage_of, *size;
    Load *load;
} Moves;

static bool may_go(const Moves *m, uint32_t g, uint32_t to)
{
    const Group *x = &m->d->group[g];
    uint32_t from = m->stage_of[g];
    if (m->size[from] == 1)
        return false;
    if (to > from) {
        for (uint32_t i = 0; i < x->after.n; i++)
            if (m->stage_of[x->after.at[i]] < to)
                return false;
    } else {
        for (uint32_t i = 0; i < x->before.n; i++)
            if (m->stage_of[x->before.at[i]] > to)
                return false;
    }
    return true;
}

/* Moves g there if the slower of the two stages gets faster, or neither slower and the sum less. */
static bool try_move(Moves *m, uint32_t g, uint32_t to)
{
    uint32_t from = m->stage_of[g];
    Load *a = &m->load[from], *b = &m->load[to];
    Ticks ta = load_ticks(a), tb = load_ticks(b), was = ta > tb ? ta : tb;
    load_remove(a, g);
    m->stage_of[g] = to;
    load_add(b, g);
    Ticks na = load_ticks(a), nb = load_ticks(b), is = na > nb ? na : nb;
    bool fits = load_fits(a, from) && load_fits(b, to);
    if (fits && (is < was || (is == was && na + nb < ta + tb))) {
        m->size[from]--;
        m->size[to]++;
        return true;
    }
    load_remove(b, g);
    m->stage_of[g] = from;
    load_add(a, g);
    return false;
}

void order_moves(const Dag *d, Found *f, Arena *a)
{
    enum { ROUNDS = 30 };
    Arena *scratch = arena_within(a);
    uint32_t k = d->p->stages;
    Moves m = {.d = d, .stage_of = arena_array(a, uint32_t, d->n + 1)};
    m.size = arena_array(scratch, uint32_t, k);
    memcpy(m.stage_of, f->stage_of, d->n * sizeof *m.stage_of);
    for (uint32_t g = 0; g < d->n; g++)
        m.size[m.stage_of[g]]++;
    m.load = loads_of(d, m.stage_of, arena_array(scratch, Part, k), scratch);
    bool moved = true;
    for (int round = 0; round < ROUNDS && moved; round++) {
        moved = false;
        for (uint32_t i = 0; i < d->n; i++) {
            uint32_t g = round % 2 ? i : d->n - 1 - i, s = m.stage_of[g];
            if (s + 1 < k && may_go(&m, g, s + 1) && try_move(&m, g, s + 1))
                moved = true;
            else if (s > 0 && may_go(&m, g, s - 1) && try_move(&m, g, s - 1))
                moved = true;
        }
    }
    Found is = {.stage_of = m.stage_of};
    found_measure(d, &is, a);
    bool better = is.slowest < f->slowest || (is.slowest == f->slowest && is.sum < f->sum);
    if (is.fits > f->fits || (is.fits == f->fits && better))
        *f = is;
    arena_free(scratch);
}
