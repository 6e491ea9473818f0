/*
 * v_block.c - the V family under a limit of microbatch-chunks alive: two chunks a rank, placed as
 * a V, F = I = W = 1.
 *
 * In: ranks, microbatches, the limit.  Out: rows, and their longest span.  A microbatch goes there
 * (F of the first chunks), back (F of the second), there again (I of the second) and home (I of the
 * first); the building block of Pipeline Parallelism with Controllable Memory (2405.15362) says in
 * which slot it does so on each rank, and repeats every six slots, W in the two that are left.
 *
 * No span is below 6 m + 6 p - 1 - 3 k: the last rank has its first I 2 p slots after its first F,
 * with at most k forwards in between; when its last F ends at most k chunks are alive, so it has
 * worked for 6 m - 2 k slots; and from there the last microbatch still goes back, there again and
 * home: 3 p slots, W among them.  Equality therefore needs blocks that just fill the memory: on
 * rank 0 the lives of both chunks add up to 6 k slots, or a few less.  These are gone through
 * (slow steps there, fast ones back), those first whose lives miss it least; warm-up, drain and
 * what stays empty are filled greedily, which the shape of a block does not say.  Two microbatches
 * a rank are enough for that: beyond them six slots of the steady state are repeated.  With
 * k = 2 p - 1 3 slots are left, not the bound's 2: so they are in every schedule of 2, 3, 4 ranks
 * (tests/schedule/test_v_least.c).
 */
#include "synth.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { THERE, BACK, AGAIN, HOME, LEGS, W = LEGS, INTERVAL = 6, NEVER = INT_MAX / 2 };

/* How a block becomes rows.  warm: before the first I of a rank as many forwards as fit, then one
   for each I until the first microbatch comes home (2: one I less).  turned: at the end I of the
   second chunk goes first. */
typedef struct {
    int warm, turned;
} Way;

static const Way ways[] = {{0, 1}, {1, 1}, {2, 1}, {0, 0}, {1, 0}};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct {
    int p, m, k, slots, room; /* slots: until all is done; room: for so many */
    Way way;
    int *place; /* [rank][leg]: the block's slot */
    int *step;  /* per rank: slots to the next one, there */
    int *end;   /* [leg][rank][microbatch]: NEVER: not done */
    int *alive; /* [rank][slot]: while it lasts */
    int *count; /* [rank][leg or W]: done */
    int *first; /* [rank][turn]: legs of the warm-up, n_first of them */
    int *n_first;
    int *empty; /* per rank: slots of its span that fill() leaves so */
    signed char *slot; /* [rank][slot]: leg, W or -1 */
} Grid;

static int *end_of(const Grid *g, int leg, int r, int mb)
{
    return &g->end[((size_t)leg * (size_t)g->p + (size_t)r) * (size_t)g->m + (size_t)mb];
}

static signed char *slot_of(const Grid *g, int r, int t)
{
    return &g->slot[(size_t)r * (size_t)g->room + (size_t)t];
}

static int *alive_of(const Grid *g, int r, int t)
{
    return &g->alive[(size_t)r * (size_t)g->room + (size_t)t];
}

static int *counts(const Grid *g, int r) { return g->count + (size_t)r * (LEGS + 1); }

static int forward(int leg) { return leg == THERE || leg == BACK; }

/* When the input of a leg's computation is there. */
static int ready(const Grid *g, int leg, int r, int mb)
{
    int turn = leg == THERE || leg == AGAIN ? r == 0 : r == g->p - 1;
    if (turn)
        return leg == THERE ? 0 : *end_of(g, leg - 1, r, mb);
    return *end_of(g, leg, leg == THERE || leg == AGAIN ? r - 1 : r + 1, mb);
}

/* ---- rows of a block ---- */

static void warm_up(Grid *g, int r)
{
    int *list = g->first + (size_t)r * (size_t)g->room, n = 0, p = g->p;
    int back = r + 1 < g->k / 2 ? r + 1 : g->k / 2, there = g->k - back, a = 0, b = 0, c = 0;
    back = back < g->m ? back : g->m;
    there = there < g->m ? there : g->m;
    for (int t = r; a < there || b < back; t++)
        if (b < back && (a >= there || 2 * p - 1 - r + 2 * b <= t))
            list[n++] = BACK, b++;
        else
            list[n++] = THERE, a++;
    int window = 2 * (p - r) - 1; /* from the first I to the first microbatch that comes home */
    for (int t = 0; t < window && c < b; t += 3) {
        list[n++] = AGAIN, c++;
        if (t + 3 >= window + g->way.warm)
            break;
        if (b < a)
            list[n++] = BACK, b++;
        else if (a < g->m)
            list[n++] = THERE, a++;
    }
    g->n_first[r] = n;
}

/* What a rank does next, were it there: the warm-up's, then what is first in the block. */
static int next_leg(const Grid *g, int r)
{
    const int *n = counts(g, r);
    int done = n[THERE] + n[BACK] + n[AGAIN] + n[HOME], best = -1, least = NEVER;
    if (done < g->n_first[r])
        return g->first[(size_t)r * (size_t)g->room + (size_t)done];
    for (int leg = 0; leg < LEGS; leg++) {
        int at = g->place[r * LEGS + leg] + INTERVAL * n[leg];
        if (n[leg] < g->m && at < least)
            best = leg, least = at;
    }
    return best;
}

static int can(const Grid *g, int leg, int r, int t)
{
    return counts(g, r)[leg] < g->m && ready(g, leg, r, counts(g, r)[leg]) <= t;
}

/* The computation of a rank in a slot, -1: none.  W has what nobody else can take. */
static int choose(const Grid *g, int r, int t)
{
    const int *n = counts(g, r);
    int alive = n[THERE] + n[BACK] - n[W];
    if (n[THERE] == g->m && n[BACK] == g->m) {
        int one = g->way.turned ? AGAIN : HOME, other = g->way.turned ? HOME : AGAIN;
        if (can(g, one, r, t))
            return one;
        if (can(g, other, r, t))
            return other;
    } else {
        int leg = next_leg(g, r);
        if (can(g, leg, r, t) && !(forward(leg) && alive >= g->k))
            return leg;
    }
    return n[AGAIN] + n[HOME] > n[W] ? W : -1;
}

static int play(Grid *g)
{
    int left = INTERVAL * g->p * g->m;
    memset(g->count, 0, (size_t)g->p * (LEGS + 1) * sizeof *g->count);
    for (int i = 0; i < LEGS * g->p * g->m; i++)
        g->end[i] = NEVER;
    for (int r = 0; r < g->p; r++) {
        g->n_first[r] = 0;
        if (g->way.warm)
            warm_up(g, r);
    }
    for (g->slots = 0; left > 0; g->slots++) {
        int t = g->slots;
        if (t == g->room)
            return 0;
        for (int r = 0; r < g->p; r++) {
            int leg = choose(g, r, t), *n = counts(g, r);
            *slot_of(g, r, t) = (signed char)leg;
            *alive_of(g, r, t) = n[THERE] + n[BACK] - n[W] + (leg >= 0 && forward(leg));
            if (leg < 0)
                continue;
            if (leg != W)
                *end_of(g, leg, r, n[leg]) = t + 1;
            n[leg]++;
            left--;
        }
    }
    return 1;
}

/* ---- empty slots ---- */

/* Is there room for one chunk more in slots [from, to)? */
static int fits(const Grid *g, int r, int from, int to)
{
    for (int t = from; t < to; t++)
        if (*alive_of(g, r, t) >= g->k)
            return 0;
    return 1;
}

/* Takes into an empty slot the next of the later computations that may come as early. */
static void fill_slot(Grid *g, int r, int t, int w)
{
    int *n = counts(g, r), best = -1, at = NEVER;
    if (n[AGAIN] + n[HOME] > n[W] && w < g->slots)
        best = W, at = w;
    for (int leg = 0; leg < LEGS; leg++) {
        if (n[leg] == g->m)
            continue;
        int was = *end_of(g, leg, r, n[leg]) - 1;
        if (was < at && ready(g, leg, r, n[leg]) <= t && (!forward(leg) || fits(g, r, t, was)))
            best = leg, at = was;
    }
    if (best < 0)
        return;
    *slot_of(g, r, t) = (signed char)best;
    *slot_of(g, r, at) = -1;
    if (best != W)
        *end_of(g, best, r, n[best]) = t + 1;
    for (int u = t; forward(best) && u < at; u++)
        ++*alive_of(g, r, u);
    for (int u = t + 1; best == W && u <= at; u++)
        --*alive_of(g, r, u);
}

/* 0: a rank that has begun and is not done has stayed empty in `most` slots, and its span is no
   shorter than with so many. */
static int fill(Grid *g, int most)
{
    memset(g->count, 0, (size_t)g->p * (LEGS + 1) * sizeof *g->count);
    int *w = g->n_first; /* per rank: where the next W is; the warm-up is over */
    memset(w, 0, (size_t)g->p * sizeof *w);
    memset(g->empty, 0, (size_t)g->p * sizeof *g->empty);
    for (int t = 0; t < g->slots; t++)
        for (int r = 0; r < g->p; r++) {
            int *n = counts(g, r);
            w[r] = w[r] < t ? t : w[r];
            while (w[r] < g->slots && *slot_of(g, r, w[r]) != W)
                w[r]++;
            if (*slot_of(g, r, t) < 0)
                fill_slot(g, r, t, w[r]);
            if (*slot_of(g, r, t) >= 0)
                n[*slot_of(g, r, t)]++;
            else if (n[THERE] > 0 && n[W] < 2 * g->m && ++g->empty[r] >= most)
                return 0;
        }
    return 1;
}

static int longest_span(const Grid *g)
{
    int longest = 0;
    for (int r = 0; r < g->p; r++) {
        int from = 0, to = g->slots;
        while (*slot_of(g, r, from) < 0)
            from++;
        while (*slot_of(g, r, to - 1) < 0)
            to--;
        longest = to - from > longest ? to - from : longest;
    }
    return longest;
}

/* The span of the block's rows; 0: it leads to none, or to one of `most` empty slots or more. */
static int span_of(Grid *g, int most)
{
    return play(g) && fill(g, most) ? longest_span(g) : 0;
}

/* ---- blocks ---- */

/* What a block is made of: steps there, and waits at its three turns.  moved: a computation whose
   slot is taken waits for a free one; else the block is none. */
typedef struct {
    int turn[3], moved;
} Turns;

static int put(Grid *g, int leg, int r, int *t, unsigned *used, int moved)
{
    while (used[r] >> *t % INTERVAL & 1) {
        if (!moved)
            return 0;
        ++*t;
    }
    used[r] |= 1u << *t % INTERVAL;
    g->place[r * LEGS + leg] = *t;
    return 1;
}

static int block(Grid *g, const Turns *b, unsigned *used)
{
    int good = 1, t = 0, p = g->p;
    memset(used, 0, (size_t)p * sizeof *used);
    for (int leg = 0; leg < LEGS && good; leg++) {
        int there = leg == THERE || leg == AGAIN;
        if (leg > 0)
            t = g->place[(there ? 0 : p - 1) * LEGS + leg - 1] + b->turn[leg - 1];
        for (int i = 0; i < p && good; i++) {
            int r = there ? i : p - 1 - i;
            good = put(g, leg, r, &t, used, b->moved);
            t += there ? g->step[r] : 1;
        }
    }
    return good;
}

/* How much of the memory the block leaves: 6 k less the lives of rank 0's chunks. */
static int slack(const Grid *g)
{
    const int *at = g->place;
    return INTERVAL * g->k - (at[HOME] - at[THERE] + at[AGAIN] - at[BACK] + 4);
}

/* ---- the search ---- */

typedef struct {
    Grid *probe;    /* of few microbatches */
    int m;          /* all of them: more than the probe's: its rows are to repeat */
    unsigned *used; /* per rank, for block() */
    int *step;      /* of the best block */
    Turns turns;
    Way way;
    int idle, bound; /* its span less 6 m, NEVER: none; the least there can be */
    int want;        /* slack of the blocks that are looked at */
    int64_t left;    /* slots that may still be filled */
} Search;

static int over(const Search *x) { return x->idle <= x->bound || x->left <= 0; }

/* Six slots in which each rank has all legs once, and two W: they may stand there any number of
   times, each for one microbatch more, for whatever an action needs has then come one more time
   as well.  -1: there are none. */
static int repeats_at(const Grid *g)
{
    int t = 0;
    for (int r = 0; r < g->p && t + INTERVAL <= g->slots; r++) {
        int n[LEGS + 1] = {0};
        for (int u = t; u < t + INTERVAL; u++)
            if (*slot_of(g, r, u) >= 0)
                n[*slot_of(g, r, u)]++;
        if (n[THERE] != 1 || n[BACK] != 1 || n[AGAIN] != 1 || n[HOME] != 1 || n[W] != 2)
            t++, r = -1;
    }
    return t + INTERVAL <= g->slots ? t : -1;
}

/* What is found does not depend on how many microbatches there are beyond the probe's. */
static void consider(Search *x, const Turns *b)
{
    Grid *g = x->probe;
    x->left -= g->p;
    if (!block(g, b, x->used) || slack(g) != x->want)
        return;
    for (int i = 0; i < WAYS && !over(x); i++) {
        g->way = ways[i];
        int span = span_of(g, x->idle), idle = span ? span - INTERVAL * g->m : NEVER;
        x->left -= (int64_t)g->p * g->slots;
        if (idle < x->idle && (x->m <= g->m || repeats_at(g) >= 0)) {
            x->idle = idle;
            x->turns = *b;
            x->way = ways[i];
            memcpy(x->step, g->step, (size_t)g->p * sizeof *x->step);
        }
    }
}

/* All waits at the turns that leave the wanted slack. */
static void turn(Search *x, int moved)
{
    const Grid *g = x->probe;
    int steps = 0;
    for (int r = 0; r + 1 < g->p; r++)
        steps += g->step[r];
    for (int y = 1; y <= INTERVAL; y++)
        for (int z = 1; z <= INTERVAL; z++) {
            int most = INTERVAL * g->k - x->want - 2 * (steps + g->p + 1) - y - 2 * z;
            for (int c = moved ? 1 : most; c >= 1 && c <= most && c <= INTERVAL && !over(x); c++)
                consider(x, &(Turns){{y, z, c}, moved});
        }
}

enum { STEPS = INTERVAL - 1 }; /* one of six is like none */

/* One step for the first ranks, another for the rest. */
static void two_steps(Search *x, int moved)
{
    int p = x->probe->p, *step = x->probe->step;
    for (int d = 0; d < STEPS * STEPS && !over(x); d++) {
        int one = 1 + d / STEPS, other = 1 + d % STEPS, same = one == other || p < 3;
        for (int n = same ? p - 1 : 1; n < p - !same && !over(x); n++) {
            for (int r = 0; r < p; r++)
                step[r] = r < n ? one : other;
            turn(x, moved);
        }
    }
}

/* One step everywhere but in two places. */
static void two_bumps(Search *x, int moved)
{
    int p = x->probe->p, *step = x->probe->step;
    for (int a = 0; a < p - 1; a++)
        for (int b = a + 1; b < p - 1; b++)
            for (int d = 0; d < STEPS * STEPS && !over(x); d++) {
                for (int r = 0; r < p; r++)
                    step[r] = r == a ? 1 + d / STEPS : r == b ? 1 + d % STEPS : 1;
                turn(x, moved);
            }
}

static void look(Search *x)
{
    static const int slacks[] = {0, 2, 1, 4, 3, -2, -1, 6, 5, 8};
    for (int family = 0; family < 4; family++)
        for (size_t i = 0; i < sizeof slacks / sizeof *slacks && !over(x); i++) {
            x->want = slacks[i];
            if (family % 2)
                two_bumps(x, family / 2);
            else
                two_steps(x, family / 2);
        }
}

/* ---- memory and rows ---- */

enum { MOST_SLOTS = 1 << 26 }; /* of all ranks */

static int grid_open(Grid *g, int p, int m, int k)
{
    size_t P = (size_t)p, M = (size_t)m, R = 6 * M + 8 * P + 8;
    *g = (Grid){.p = p, .m = m, .k = k, .room = (int)R};
    if (P * R > MOST_SLOTS)
        return 0;
    int *n = malloc((LEGS * P * M + 2 * P * R + P * (2 * LEGS + 4)) * sizeof *n);
    g->slot = malloc(P * R);
    if (!n || !g->slot) {
        free(n);
        return 0;
    }
    g->place = n;
    g->step = g->place + P * LEGS;
    g->end = g->step + P;
    g->alive = g->end + LEGS * P * M;
    g->count = g->alive + P * R;
    g->first = g->count + P * (LEGS + 1);
    g->n_first = g->first + P * R;
    g->empty = g->n_first + P;
    return 1;
}

static void grid_close(Grid *g)
{
    free(g->place);
    free(g->slot);
}

/* Of all microbatches: the slots that repeat stand there for those that the grid does not have. */
static void print_rows(const Grid *g, int m, SchedRow *rows)
{
    int from = m > g->m ? repeats_at(g) : 0, more = m > g->m ? INTERVAL * (m - g->m) : 0;
    for (int r = 0; r < g->p; r++) {
        int n[LEGS + 1] = {0}, w = 0;
        for (int t = 0; t < g->slots + more; t++) {
            int u = t < from ? t : t < from + more ? from + (t - from) % INTERVAL : t - more;
            int leg = *slot_of(g, r, u), stage = leg == THERE || leg == HOME ? r : 2 * g->p - 1 - r;
            if (leg == W) { /* of the oldest I */
                while (rows[r].a[w].type != SA_I)
                    w++;
                sched_push(&rows[r], sched_act(SA_W, rows[r].a[w].stage, rows[r].a[w].microbatch));
                w++;
            } else if (leg >= 0) {
                sched_push(&rows[r], sched_act(forward(leg) ? SA_F : SA_I, stage, n[leg]++));
            }
        }
    }
}

/* Goes through the blocks by what becomes of `few` microbatches. */
static int search(int p, int m, int few, int k, int64_t work, SchedRow *rows)
{
    Grid probe;
    int found = -1;
    if (!grid_open(&probe, p, few, k))
        return -1;
    Search x = {.probe = &probe,
                .m = m,
                .idle = NEVER,
                .bound = k == 2 * p - 1 ? 3
                         : k < 2 * p    ? 6 * p - 1 - 3 * k
                                        : 0,
                .left = work};
    x.used = malloc((size_t)p * sizeof *x.used);
    x.step = malloc((size_t)p * sizeof *x.step);
    if (x.used && x.step) {
        look(&x);
        found = 0;
        if (x.idle < NEVER) {
            memcpy(probe.step, x.step, (size_t)p * sizeof *x.step);
            probe.way = x.way;
            found = block(&probe, &x.turns, x.used) && span_of(&probe, NEVER);
        }
        if (found)
            print_rows(&probe, m, rows);
    }
    free(x.used);
    free(x.step);
    grid_close(&probe);
    return found;
}

/* Where nothing repeats, as under 2 p / 3 chunks, all microbatches are looked at. */
int synth_v(int ranks, int microbatches, int chunks, int64_t work, SchedRow *rows)
{
    int p = ranks, m = microbatches, k = chunks < 2 * p ? chunks : 2 * p,
        few = m < 2 * p ? m : 2 * p;
    int found = search(p, m, few, k, work, rows);
    return found || m == few ? found : search(p, m, m, k, work, rows);
}
