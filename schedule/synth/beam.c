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
#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NARROW = 32, WIDER = 4, CHILDREN = 8, ALIKE = 6, SKIPS = 3, MOST_BYTES = 1 << 25 };

/* A partial schedule; behind it in memory are the arrays of its View. */
typedef struct {
    double least, sum; /* no end is sooner; of the bounds of all ranks */
    uint64_t done;     /* a hash of what is done */
    int from;          /* its place in the beam before */
    short stage, type; /* what was done last */
    int whole;         /* microbatches that have all their forwards */
} Node;

typedef struct {
    double *clock, *at, *first, *live; /* per rank: it is free; it decides next; has begun; holds */
    double *end_f, *end_i;             /* per (stage, microbatch) */
    int *f, *i, *w;                    /* per stage: how many are done */
} View;

typedef struct {
    int from;
    short stage, type;
} Step;

typedef struct {
    const SynthTask *t;
    int m, span, whole;      /* whole: undivided backwards */
    double *tail_f, *tail_i; /* per stage: what comes after at least */
    int *by_tail;            /* per rank its (stage, F or I)s, those with the longest tail first */
    size_t size;             /* of a node with its arrays */
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

static View view(const Beam *x, Node *n)
{
    size_t P = (size_t)x->t->ranks, S = (size_t)x->t->stages, M = (size_t)x->m;
    View v;
    v.clock = (double *)(void *)(n + 1);
    v.at = v.clock + P, v.first = v.at + P, v.live = v.first + P;
    v.end_f = v.live + P, v.end_i = v.end_f + S * M;
    v.f = (int *)(void *)(v.end_i + S * M);
    v.i = v.f + S, v.w = v.i + S;
    return v;
}

static size_t place(const Beam *x, int stage, int mb)
{
    return (size_t)stage * (size_t)x->m + (size_t)mb;
}

/* ---- what can be done ---- */

/* fmin() and fmax() without their care for NaN, which costs a call. */
static double least_of(double a, double b) { return b < a ? b : a; }

static double most_of(double a, double b) { return b > a ? b : a; }

/* When the input of the stage's next F or I is there; HUGE_VAL: nobody has begun to make it. */
static double input_at(const Beam *x, const View *v, int stage, int type)
{
    const SchedGraph *g = x->t->g;
    double when = 0;
    if (type == SA_F) {
        for (int k = g->in_first[stage]; k < g->in_first[stage + 1]; k++) {
            int from = g->edge[g->in[k]].from;
            if (v->f[from] <= v->f[stage])
                return HUGE_VAL;
            when = most_of(when, v->end_f[place(x, from, v->f[stage])] + x->t->away_f[g->in[k]]);
        }
        return when;
    }
    for (int k = g->out_first[stage]; k < g->out_first[stage + 1]; k++) {
        int to = g->edge[k].to;
        if (!g->edge[k].gradient)
            continue;
        if (v->i[to] <= v->i[stage])
            return HUGE_VAL;
        when = most_of(when, v->end_i[place(x, to, v->i[stage])] + x->t->away_b[k]);
    }
    return when;
}

/* Is there room for a forward, and for all that are under way to end? */
static int fits(const Beam *x, const View *v, int r, int stage)
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

static double time_of(const Beam *x, int stage, int type)
{
    const SynthTask *t = x->t;
    return type == SA_F   ? t->f[stage]
           : type == SA_W ? t->w[stage]
           : x->whole     ? t->b[stage]
                          : t->i[stage];
}

/* ---- bounds ---- */

/* Jackson's bound of each rank. */
static void judge(const Beam *x, Node *n)
{
    const SynthTask *t = x->t;
    View v = view(x, n);
    const int *list = x->by_tail;
    n->least = n->sum = 0;
    for (int r = 0; r < t->ranks; r++) {
        double at = v.at[r] < HUGE_VAL ? v.at[r] : v.clock[r], end = at, work = at, w = 0;
        int own = t->first[r + 1] - t->first[r];
        for (int k = 0; k < 2 * own; k++, list++) {
            int s = *list / 2, back = *list % 2, left = x->m - (back ? v.i[s] : v.f[s]);
            if (left == 0)
                continue;
            work += left * time_of(x, s, back ? SA_I : SA_F);
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
static int waited_for(const Beam *x, const View *v, int stage, int mb, int back)
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
    View v = view(x, n);
    n->done = 1;
    for (int k = 0; k < 3 * x->t->stages; k++) {
        n->done = (n->done ^ (uint64_t)v.f[k]) * 0x9e3779b97f4a7c15u;
        n->done ^= n->done >> 29;
    }
}

/* Has one, with the same done, all earlier than the other? */
static int dominates(const Beam *x, Node *one, Node *other)
{
    View a = view(x, one), b = view(x, other);
    const SynthTask *t = x->t;
    if (memcmp(a.f, b.f, 3 * (size_t)t->stages * sizeof *a.f) != 0)
        return 0;
    for (int r = 0; r < t->ranks; r++)
        if (a.at[r] > b.at[r] || a.clock[r] > b.clock[r] || (x->span && a.first[r] < b.first[r]))
            return 0;
    for (int s = 0; s < t->stages; s++) {
        for (int j = 0; j < a.f[s]; j++)
            if (a.end_f[place(x, s, j)] > b.end_f[place(x, s, j)] && waited_for(x, &a, s, j, 0))
                return 0;
        for (int j = 0; j < a.i[s]; j++)
            if (a.end_i[place(x, s, j)] > b.end_i[place(x, s, j)] && waited_for(x, &a, s, j, 1))
                return 0;
    }
    return 1;
}

static void wake(const Beam *x, View *v, int stage, double at)
{
    int r = x->t->rank_of[stage];
    at = most_of(v->clock[r], at);
    if (at < v->at[r])
        v->at[r] = at;
}

/* Of whoever waits for room that others give. */
static void wake_all(const Beam *x, View *v, double now)
{
    for (int r = 0; r < x->t->ranks; r++)
        v->at[r] = least_of(v->at[r], most_of(v->clock[r], now));
}

static void act(const Beam *x, Node *n, int r, int stage, int type)
{
    const SynthTask *t = x->t;
    const SchedGraph *g = t->g;
    View v = view(x, n);
    double now = v.at[r], end = now + time_of(x, stage, type);
    if (v.first[r] < 0)
        v.first[r] = now;
    v.clock[r] = v.at[r] = end;
    n->stage = (short)stage, n->type = (short)type;
    if (type == SA_F) {
        v.end_f[place(x, stage, v.f[stage]++)] = end;
        v.live[r] += t->stash[stage];
        for (int k = g->out_first[stage]; k < g->out_first[stage + 1]; k++)
            wake(x, &v, g->edge[k].to, end + t->away_f[k]);
        int whole = x->m;
        for (int s = 0; s < t->stages; s++)
            whole = v.f[s] < whole ? v.f[s] : whole;
        if (whole > n->whole)
            wake_all(x, &v, now);
        n->whole = whole;
        return;
    }
    if (type == SA_W) {
        v.w[stage]++;
        v.live[r] -= t->late[stage] + t->saved[stage];
        return;
    }
    v.live[r] -= x->whole ? t->stash[stage] : t->stash[stage] - t->late[stage] - t->saved[stage];
    v.w[stage] += x->whole;
    v.end_i[place(x, stage, v.i[stage]++)] = end;
    for (int k = g->in_first[stage]; k < g->in_first[stage + 1]; k++)
        wake(x, &v, g->edge[g->in[k]].from, end + t->away_b[g->in[k]]);
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
static int like_an_earlier(const Beam *x, const View *v, int r, int k)
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
static double branch(Beam *x, const Node *parent, View v, int from, int r)
{
    const SynthTask *t = x->t;
    double now = v.at[r], soon = HUGE_VAL, least = HUGE_VAL;
    for (int k = t->first[r]; k < t->first[r + 1]; k++) {
        int s = t->own[k];
        if (v.f[s] < x->m) {
            double when = input_at(x, &v, s, SA_F);
            if (when > now)
                soon = least_of(soon, when);
            else if (fits(x, &v, r, s))
                follow(x, parent, from, r, s, SA_F);
        }
        if (v.i[s] < v.f[s]) {
            double when = input_at(x, &v, s, SA_I);
            if (when > now) {
                soon = least_of(soon, when);
            } else {
                least = least_of(least, time_of(x, s, SA_I));
                follow(x, parent, from, r, s, SA_I);
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
    View v = view(x, n);
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
    memset(start, 0, x->size);
    View v = view(x, start);
    for (int r = 0; r < x->t->ranks; r++)
        v.first[r] = -1;
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
                most = most_of(most, t->away_b[e] + time_of(x, from, SA_I) + x->tail_i[from]);
        }
        x->tail_i[s] = most;
    }
    for (int s = t->stages; s-- > 0;) {
        double most = time_of(x, s, SA_I) + x->tail_i[s];
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

static void print_rows(const SynthTask *t, int whole, const Step *done, int actions, SchedRow *rows)
{
    for (int k = 0; k < actions; k++) {
        SchedRow *row = &rows[t->rank_of[done[k].stage]];
        int type = whole && done[k].type == SA_I ? SA_B : done[k].type, mb = 0;
        for (int j = 0; j < row->n; j++)
            mb += row->a[j].type == type && row->a[j].stage == done[k].stage;
        sched_push(row, sched_act(type, done[k].stage, mb));
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
    size_t S = (size_t)t->stages, P = (size_t)t->ranks, M = (size_t)t->microbatches;
    int64_t actions = (int64_t)S * t->microbatches * (whole ? 2 : 3);
    size_t size = sizeof(Node) + (4 * P + 2 * S * M) * sizeof(double) + 3 * S * sizeof(int);
    Beam x = {
        .t = t, .m = t->microbatches, .span = span, .whole = whole, .best = best, .left = work};
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
            print_rows(t, whole, done, (int)actions, rows);
    }
    free(x.tail_f), free(x.by_tail), free(x.now), free(x.next), free(x.packed), free(x.scratch);
    free(x.chosen), free(x.seen), free(x.step), free(done);
    return found;
}
