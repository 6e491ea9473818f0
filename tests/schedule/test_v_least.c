/*
 * test_v_least.c - how little the V family can idle: all schedules of a few ranks, gone through.
 *
 * Two chunks a rank, placed as a V, F = I = W = 1, messages at once, at most k microbatch-chunks
 * alive.  Microbatches are alike, so each rank's take their turns; what is then left of a schedule
 * is how often each rank has done what, slot by slot.  These states are gone through breadth first,
 * for ranks that idle no more than so much between their first slot and their last.
 */
#include "schedule/generate/generate.h"
#include "schedule/simulate/simulate.h"
#include "tap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { THERE, BACK, AGAIN, HOME, W, IDLE, KINDS, RANKS = 4 };

typedef struct {
    uint8_t done[RANKS][KINDS];
} State;

typedef struct {
    State *state;
    size_t n, room;
    size_t *slot, slots; /* by hash: 1 + a number, 0: free */
} States;

typedef struct {
    int p, m, k, idle;
    States now, next;
} Walk;

static size_t slot_of(const States *s, const State *x)
{
    const unsigned char *byte = (const unsigned char *)x;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *x; i++)
        h = (h ^ byte[i]) * 1099511628211u;
    size_t at = (size_t)(h ^ h >> 29) & (s->slots - 1);
    while (s->slot[at] && memcmp(&s->state[s->slot[at] - 1], x, sizeof *x) != 0)
        at = (at + 1) & (s->slots - 1);
    return at;
}

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static void add(States *s, const State *x)
{
    if (2 * s->n >= s->slots) {
        s->slots = s->slots ? 2 * s->slots : 1024;
        s->slot = must(realloc(s->slot, s->slots * sizeof *s->slot));
        memset(s->slot, 0, s->slots * sizeof *s->slot);
        for (size_t i = 0; i < s->n; i++)
            s->slot[slot_of(s, &s->state[i])] = i + 1;
    }
    size_t at = slot_of(s, x);
    if (s->slot[at])
        return;
    if (s->n == s->room)
        s->state = must(realloc(s->state, (s->room += s->room + 64) * sizeof *s->state));
    s->state[s->n++] = *x;
    s->slot[at] = s->n;
}

static void clear(States *s)
{
    s->n = 0;
    memset(s->slot, 0, s->slots * sizeof *s->slot);
}

/* Is the input of a rank's next computation there, by what was done before this slot? */
static int ready(const Walk *w, const State *x, int r, int kind)
{
    int n = x->done[r][kind], last = w->p - 1;
    switch (kind) {
    case THERE: return r == 0 || x->done[r - 1][THERE] > n;
    case BACK: return (r == last ? x->done[r][THERE] : x->done[r + 1][BACK]) > n;
    case AGAIN: return (r == 0 ? x->done[r][BACK] : x->done[r - 1][AGAIN]) > n;
    default: return (r == last ? x->done[r][AGAIN] : x->done[r + 1][HOME]) > n;
    }
}

static int may(const Walk *w, const State *x, int r, int kind)
{
    const uint8_t *n = x->done[r];
    if (kind == W)
        return n[AGAIN] + n[HOME] > n[W];
    if (kind == IDLE) /* before its first slot and behind its last one it is none */
        return n[THERE] > 0 && n[W] < 2 * w->m && n[IDLE] < w->idle;
    int forward = kind == THERE || kind == BACK;
    return n[kind] < w->m && !(forward && n[THERE] + n[BACK] - n[W] >= w->k) &&
           ready(w, x, r, kind);
}

/* Everything that ranks from r on may do in this slot. */
static void slot(Walk *w, const State *before, State *after, int r, int moved)
{
    if (r == w->p) {
        if (moved)
            add(&w->next, after);
        return;
    }
    for (int kind = 0; kind < KINDS; kind++)
        if (may(w, before, r, kind)) {
            after->done[r][kind]++;
            slot(w, before, after, r + 1, 1);
            after->done[r][kind]--;
        }
    if (before->done[r][THERE] == 0 || before->done[r][W] == 2 * w->m)
        slot(w, before, after, r + 1, moved);
}

static int ended(const Walk *w, const State *x)
{
    int n = 0;
    for (int r = 0; r < w->p; r++)
        n += x->done[r][W] == 2 * w->m;
    return n == w->p;
}

/* Is there a schedule whose ranks idle no more? */
static int exists(int p, int m, int k, int idle)
{
    Walk w = {.p = p, .m = m, .k = k, .idle = idle};
    State none = {{{0}}};
    int found = 0;
    add(&w.now, &none);
    add(&w.next, &none);
    while (w.now.n > 0 && !found) {
        clear(&w.next);
        for (size_t i = 0; i < w.now.n && !found; i++) {
            State after = w.now.state[i];
            found = ended(&w, &w.now.state[i]);
            slot(&w, &w.now.state[i], &after, 0, 0);
        }
        States t = w.now;
        w.now = w.next;
        w.next = t;
    }
    free(w.now.state), free(w.now.slot), free(w.next.state), free(w.next.slot);
    return found;
}

/* What v:K's schedule idles, or -1. */
static int idle_of(int p, int m, int k)
{
    Schedule *s;
    SchedSim sim;
    SchedCosts c;
    SchedError err;
    char name[16];
    int idle = -1;
    sched_costs_default(&c);
    snprintf(name, sizeof name, "v:%d", k);
    if (sched_generate(name, p, 2 * p, m, -1, &s, &err))
        return -1;
    if (!sched_simulate(s, &c, &sim, &err)) {
        idle = (int)sim.span - 6 * m;
        sched_sim_free(&sim);
    }
    sched_free(s);
    return idle;
}

int main(void)
{
    static const struct {
        int p, m, k;
    } row[] = {{2, 4, 3}, {2, 7, 3}, {2, 4, 4}, {3, 6, 4}, {3, 6, 5}, {3, 7, 5}, {3, 6, 6},
               {4, 8, 7}};
    int bad = 0;
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        int p = row[i].p, m = row[i].m, k = row[i].k, idle = idle_of(p, m, k);
        if (idle < 0 || (idle > 0 && exists(p, m, k, idle - 1)) ||
            (p < 4 && !exists(p, m, k, idle))) {
            printf("# p %d m %d k %d: v:%d idles %d\n", p, m, k, k, idle);
            bad++;
        }
    }
    ok(bad == 0, "no schedule of 2, 3 or 4 ranks idles less than v:K's");
    return tap_done();
}
