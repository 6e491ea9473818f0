/*
 * beam.c - the search where there is little to schedule: a beam of partial schedules, all of the
 * same number of actions.
 *
 * In: a task.  Out: the rows of F, I, W (or B) with the smallest makespan, or span, that the beam
 * comes to.  The rank that is free first takes one of the computations that are there and fit, or
 * lets the others go first until something comes that is worth waiting for; microbatches are alike,
 * so each stage takes them in their order.  Of all that follows from a beam those stay that end
 * soonest by Jackson's bound of one machine (what is left on a rank, in the order of what has to
 * come after it elsewhere), of the ranks together; what is nowhere earlier than another one with
 * the same actions done goes, and of one set of actions done a few ways stay.  Wider beams follow
 * while there is effort left.
 *
 * No deadlock: a forward is taken only if all microbatches under way can still end.  They can if
 * the oldest one that lacks forwards has room for them: older ones come home without asking for
 * more, and then it does.
 */
#include "state.h"

#include <stdlib.h>

enum { NARROW = 32, WIDER = 4, CHILDREN = 8, ALIKE = 6, SKIPS = 3, MOST_BYTES = 1 << 25 };

/* A partial schedule; behind it in memory is its state. */
typedef struct {
    double least, sum; /* no end is sooner; of the bounds of all ranks */
    uint64_t done;     /* a hash of what is done */
    int from;          /* its place in the beam before */
    short stage, type; /* what was done last */
    int whole;         /* microbatches that have all their forwards */
} Node;

typedef struct {
    int from;
    short stage, type;
} Step;

typedef struct {
    const SynthTask *t;
    int m, span, whole, back; /* whole: backwards are undivided, `back`: of type B, else I */
    double *tail_f, *tail_i;  /* per stage: what comes after at least */
    int *by_tail;             /* per rank its (stage, F or I)s, those with the longest tail first */
    size_t size;              /* of a node with its arrays */
    char *now, *next,
        *packed;   /* nodes: a beam's, what follows from them, and room for those kept */
    char *scratch; /* two nodes */
    int n_now, n_next, width;
    int *chosen;              /* numbers of nodes of `next` */
    int *seen, *before, mask; /* by hash: the last chosen one; the one before it with this hash */
    Step *step;               /* [action][place in the beam] */
    double best;              /* what is to be beaten */
    int64_t left;             /* nodes that may still be made */
} Beam;

static Node *node(const Beam *x, char *beam, int k)
{
    return (Node *)(void *)(beam + (size_t)k * x->size);
}

static SynthState view(const Beam *x, Node *n) { return state_in(x->t, n + 1); }

/* ---- what can be done ---- */

/* Is there room for a forward, and for all that are under way to end? */
static int fits(const Beam *x, const SynthState *v, int r, int stage)
{
    const SynthTask *t = x->t;
    int oldest = x->m;
    double kept = 0, most = 0;
    for (int s = 0; s < t->stages; s++) {
        int f = v->f[s] + (s == stage);
        oldest = f < oldest ? f : oldest;
    }
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k], ahead = v->f[s] + (s == stage) - oldest;
        most = most_of(most, t->saved[s]);
        kept += t->stash[s] * (ahead > 1 || oldest == x->m ? ahead : 1);
    }
    double limit = t->limit[r] * (1 + 1e-12) - most;
    return v->live[r] + t->stash[stage] <= limit && kept <= limit;
}

/* ---- bounds ---- */

/* Jackson's bound of each rank. */
static void judge(const Beam *x, Node *n)
{
    const SynthTask *t = x->t;
    SynthState v = view(x, n);
    const int *list = x->by_tail;
    n->least = n->sum = 0;
    for (int r = 0; r < t->ranks; r++) {
        double at = v.at[r] < HUGE_VAL ? v.at[r] : v.clock[r], end = at, work = at, w = 0;
        int own = t->first[r + 1] - t->first[r];
        for (int k = 0; k < 2 * own; k++, list++) {
            int s = *list / 2, back = *list % 2, left = x->m - (back ? v.i[s] : v.f[s]);
            if (left == 0)
                continue;
            work += left * state_time(t, s, back ? x->back : SA_F);
            end = most_of(end, work + (back ? x->tail_i : x->tail_f)[s]);
        }
        for (int k = t->first[r]; k < t->first[r + 1] && !x->whole; k++)
            w += (x->m - v.w[t->own[k]]) * t->w[t->own[k]];
        end = most_of(end, work + w);
        if (x->span)
            end -= most_of(v.first[r], 0);
        n->least = most_of(n->least, end);
        n->sum += end;
    }
}

/* ---- steps ---- */

/* Has a stage that reads it not taken the result yet? */
static int waited_for(const Beam *x, const SynthState *v, int stage, int mb, int back)
{
    const SchedGraph *g = x->t->g;
    const int *first = back ? g->in_first : g->out_first;
    for (int k = first[stage]; k < first[stage + 1]; k++)
        if (back ? v->i[g->edge[g->in[k]].from] <= mb : v->f[g->edge[k].to] <= mb)
            return 1;
    return 0;
}

/* How much of everything has been done. */
static void hash(const Beam *x, Node *n)
{
    SynthState v = view(x, n);
    n->done = 1;
    for (int k = 0; k < 3 * x->t->stages; k++) {
        n->done = (n->done ^ (uint64_t)v.f[k]) * 0x9e3779b97f4a7c15u;
        n->done ^= n->done >> 29;
    }
}

/* Has one, with the same done, all earlier than the other? */
static int dominates(const Beam *x, Node *one, Node *other)
{
    SynthState a = view(x, one), b = view(x, other);
    const SynthTask *t = x->t;
    if (memcmp(a.f, b.f, 3 * (size_t)t->stages * sizeof *a.f) != 0)
        return 0;
    for (int r = 0; r < t->ranks; r++)
        if (a.at[r] > b.at[r] || a.clock[r] > b.clock[r] || (x->span && a.first[r] < b.first[r]))
            return 0;
    for (int s = 0; s < t->stages; s++) {
        for (int j = 0; j < a.f[s]; j++)
            if (a.end_f[state_place(t, s, j)] > b.end_f[state_place(t, s, j)] &&
                waited_for(x, &a, s, j, 0))
                return 0;
        for (int j = 0; j < a.i[s]; j++)
            if (a.end_i[state_place(t, s, j)] > b.end_i[state_place(t, s, j)] &&
                waited_for(x, &a, s, j, 1))
                return 0;
    }
    return 1;
}

/* Of whoever waits for room that others give. */
static void wake_all(const Beam *x, SynthState *v, double now)
{
    for (int r = 0; r < x->t->ranks; r++)
        v->at[r] = least_of(v->at[r], most_of(v->clock[r], now));
}

static void act(const Beam *x, Node *n, int r, int stage, int type)
{
    SynthState v = view(x, n);
    double now = v.at[r];
    n->stage = (short)stage, n->type = (short)type;
    state_take(x->t, &v, stage, type, now);
    if (type != SA_F)
        return;
    int whole = x->m;
    for (int s = 0; s < x->t->stages; s++)
        whole = v.f[s] < whole ? v.f[s] : whole;
    if (whole > n->whole)
        wake_all(x, &v, now);
    n->whole = whole;
}

/* ---- the beam ---- */

static int sooner(const Node *a, const Node *b) { return a->least + a->sum < b->least + b->sum; }

/* Sorts numbers of nodes, the soonest first. */
static void sort(const Beam *x, int *list, int *room, int n)
{
    if (n < 2)
        return;
    int half = n / 2, a = 0, b = half;
    sort(x, list, room, half);
    sort(x, list + half, room, n - half);
    for (int k = 0; k < n; k++)
        room[k] =
            b == n || (a < half && !sooner(node(x, x->next, list[b]), node(x, x->next, list[a])))
                ? list[a++]
                : list[b++];
    memcpy(list, room, (size_t)n * sizeof *list);
}

/* Is there something chosen that dominates it, or enough of the same done? */
static int superfluous(const Beam *x, int k, int last)
{
    Node *n = node(x, x->next, k);
    int alike = 0;
    for (int c = last; c >= 0; c = x->before[c]) {
        Node *o = node(x, x->next, x->chosen[c]);
        if (o->done == n->done && (++alike == ALIKE || dominates(x, o, n)))
            return 1;
    }
    return 0;
}

/* The beam, of all that has been made for it. */
static void choose(Beam *x)
{
    int *list = x->chosen, n = 0;
    for (int k = 0; k < x->n_next; k++)
        list[k] = k;
    sort(x, list, x->before, x->n_next);
    memset(x->seen, -1, ((size_t)x->mask + 1) * sizeof *x->seen);
    for (int k = 0; k < x->n_next && n < x->width; k++) {
        int *slot = &x->seen[(int)(node(x, x->next, list[k])->done >> 40) & x->mask];
        if (superfluous(x, list[k], *slot))
            continue;
        list[n] = list[k];
        x->before[n] = *slot;
        *slot = n++;
    }
    char *kept = x->packed;
    for (int k = 0; k < n; k++)
        memcpy(node(x, kept, k), node(x, x->next, list[k]), x->size);
    x->packed = x->next;
    x->next = kept;
    x->n_next = n;
}

/* The node with one action more, into the next beam; what cannot be better than the best goes. */
static void follow(Beam *x, const Node *parent, int from, int r, int stage, int type)
{
    Node *child = node(x, x->scratch, 1);
    memcpy(child, parent, x->size);
    child->from = from;
    act(x, child, r, stage, type);
    judge(x, child);
    x->left--;
    if (child->least >= x->best * (1 - 1e-9))
        return;
    hash(x, child);
    memcpy(node(x, x->next, x->n_next++), child, x->size);
    if (x->n_next == CHILDREN * x->width)
        choose(x);
}

/* Is there another W of the rank that does the same? */
static int like_an_earlier(const Beam *x, const SynthState *v, int r, int k)
{
    const SynthTask *t = x->t;
    int s = t->own[k];
    for (int q = t->first[r]; q < k; q++) {
        int o = t->own[q];
        if (v->w[o] < v->i[o] && t->w[o] == t->w[s] && t->late[o] == t->late[s] &&
            t->saved[o] == t->saved[s])
            return 1;
    }
    return 0;
}

/* All that the rank may do now.  Until when it may wait instead, HUGE_VAL: for what others do; -1:
   it need not, for an I or W that is there is done by then. */
static double branch(Beam *x, const Node *parent, SynthState v, int from, int r)
{
    const SynthTask *t = x->t;
    double now = v.at[r], soon = HUGE_VAL, least = HUGE_VAL;
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k];
        if (v.f[s] < x->m) {
            double when = state_ready(t, &v, s, SA_F);
            if (when > now)
                soon = least_of(soon, when);
            else if (fits(x, &v, r, s))
                follow(x, parent, from, r, s, SA_F);
        }
        if (v.i[s] < v.f[s]) {
            double when = state_ready(t, &v, s, SA_I);
            if (when > now) {
                soon = least_of(soon, when);
            } else {
                least = least_of(least, state_time(t, s, x->back));
                follow(x, parent, from, r, s, x->back);
            }
        }
        if (v.w[s] < v.i[s] && !like_an_earlier(x, &v, r, k)) {
            least = least_of(least, t->w[s]);
            follow(x, parent, from, r, s, SA_W);
        }
    }
    return least < HUGE_VAL && soon >= now + least ? -1 : soon;
}

static void expand(Beam *x, int from)
{
    Node *n = node(x, x->scratch, 0);
    memcpy(n, node(x, x->now, from), x->size);
    SynthState v = view(x, n);
    for (int skipped = 0; skipped <= SKIPS * x->t->ranks; skipped++) {
        int r = 0;
        for (int q = 1; q < x->t->ranks; q++)
            r = v.at[q] < v.at[r] ? q : r;
        double until = v.at[r] < HUGE_VAL ? branch(x, n, v, from, r) : -1;
        if (until < 0)
            return;
        v.at[r] = until;
    }
}

/* A beam of a width to the end; 1: it has come to something better. */
static int sweep(Beam *x, int actions, Step *done)
{
    Node *start = node(x, x->now, 0);
    *start = (Node){.from = 0};
    state_begin(x->t, start + 1);
    x->n_now = 1;
    for (int k = 0; k < actions; k++) {
        x->n_next = 0;
        for (int i = 0; i < x->n_now && x->left > 0; i++)
            expand(x, i);
        if (x->n_next == 0 || x->left <= 0)
            return 0;
        choose(x);
        for (int i = 0; i < x->n_next; i++) {
            const Node *n = node(x, x->next, i);
            x->step[(size_t)k * (size_t)x->width + (size_t)i] = (Step){n->from, n->stage, n->type};
        }
        char *swap = x->now;
        x->now = x->next, x->next = swap;
        x->n_now = x->n_next;
    }
    int at = 0;
    for (int i = 1; i < x->n_now; i++)
        if (node(x, x->now, i)->least < node(x, x->now, at)->least)
            at = i;
    x->best = node(x, x->now, at)->least;
    for (int k = actions; k-- > 0; at = done[k].from)
        done[k] = x->step[(size_t)k * (size_t)x->width + (size_t)at];
    return 1;
}

/* ---- all of it ---- */

static void tails(Beam *x)
{
    const SynthTask *t = x->t;
    const SchedGraph *g = t->g;
    for (int s = 0; s < t->stages; s++) {
        double most = x->whole ? 0 : t->w[s];
        for (int k = g->in_first[s]; k < g->in_first[s + 1]; k++) {
            int e = g->in[k], from = g->edge[e].from;
            if (g->edge[e].gradient)
                most = most_of(most, t->away_b[e] + state_time(t, from, x->back) + x->tail_i[from]);
        }
        x->tail_i[s] = most;
    }
    for (int s = t->stages; s-- > 0;) {
        double most = state_time(t, s, x->back) + x->tail_i[s];
        for (int k = g->out_first[s]; k < g->out_first[s + 1]; k++) {
            int to = g->edge[k].to;
            most = most_of(most, t->away_f[k] + t->f[to] + x->tail_f[to]);
        }
        x->tail_f[s] = most;
    }
}

static double tail_of(const Beam *x, int entry)
{
    return (entry % 2 ? x->tail_i : x->tail_f)[entry / 2];
}

static void order_by_tail(Beam *x)
{
    const SynthTask *t = x->t;
    int *list = x->by_tail;
    for (int r = 0; r < t->ranks; r++) {
        int n = 0;
        for (int k = 2 * t->first[r]; k < 2 * t->first[r + 1]; k++) {
            int at = n++, entry = 2 * t->own[k / 2] + k % 2;
            for (; at > 0 && tail_of(x, list[at - 1]) < tail_of(x, entry); at--)
                list[at] = list[at - 1];
            list[at] = entry;
        }
        list += n;
    }
}

static void print_rows(const SynthTask *t, const Step *done, int actions, SchedRow *rows)
{
    for (int k = 0; k < actions; k++) {
        SchedRow *row = &rows[t->rank_of[done[k].stage]];
        int mb = 0;
        for (int j = 0; j < row->n; j++)
            mb += row->a[j].type == done[k].type && row->a[j].stage == done[k].stage;
        sched_push(row, sched_act(done[k].type, done[k].stage, mb));
    }
}

static int open_beam(Beam *x, int actions, int most)
{
    size_t S = (size_t)x->t->stages, all = (size_t)most * CHILDREN;
    x->mask = 4 * most - 1;
    x->tail_f = malloc(2 * S * sizeof *x->tail_f);
    x->by_tail = malloc(2 * S * sizeof *x->by_tail);
    x->now = malloc(x->size * all);
    x->next = malloc(x->size * all);
    x->packed = malloc(x->size * all);
    x->scratch = malloc(x->size * 2);
    x->chosen = malloc(2 * all * sizeof *x->chosen);
    x->seen = malloc(((size_t)x->mask + 1) * sizeof *x->seen);
    x->step = malloc((size_t)most * (size_t)actions * sizeof *x->step);
    if (!x->tail_f || !x->by_tail || !x->now || !x->next || !x->packed || !x->scratch ||
        !x->chosen || !x->seen || !x->step)
        return 0;
    x->tail_i = x->tail_f + S;
    x->before = x->chosen + all;
    return 1;
}

int synth_beam(const SynthTask *t, int span, int whole, double best, int64_t work, SchedRow *rows)
{
    int64_t actions = (int64_t)t->stages * t->microbatches * (whole ? 2 : 3);
    size_t size = sizeof(Node) + state_size(t);
    Beam x = {.t = t,
              .m = t->microbatches,
              .span = span,
              .whole = whole,
              .back = whole ? SA_B : SA_I,
              .best = best,
              .left = work};
    int found = 0, most = NARROW;
    x.size = (size + 15) / 16 * 16;
    while (most * WIDER * actions * t->ranks <= work &&
           (size_t)most * WIDER * CHILDREN * x.size < MOST_BYTES)
        most *= WIDER;
    if (most == NARROW) /* too much for a beam to see anything */
        return 0;
    Step *done = malloc((size_t)actions * sizeof *done);
    if (open_beam(&x, (int)actions, most) && done) {
        tails(&x);
        order_by_tail(&x);
        for (x.width = NARROW; x.width <= most && x.left > 0; x.width *= WIDER)
            found |= sweep(&x, (int)actions, done);
        if (found)
            print_rows(t, done, (int)actions, rows);
    }
    free(x.tail_f), free(x.by_tail), free(x.now), free(x.next), free(x.packed), free(x.scratch);
    free(x.chosen), free(x.seen), free(x.step), free(done);
    return found;
}
