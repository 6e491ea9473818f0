/*
 * offload.c - OFFLOAD and FETCH: stashes that wait long for their backward spend that time on
 * the host (PipeOffload, Wan et al., 2503.01328).
 *
 * In: rows, with or without communication; what actions and copies take.  Out: the same rows; the
 * (stage, microbatch) pairs with the longest time from F to backward have OFFLOAD after F,
 * WAIT_OFFLOAD where the copy has left, FETCH so late that it ends just before the backward.
 *
 * A rank has one engine for copies, in the order of its row, beside its computations.  When
 * computations begin and end follows from the rows and their dependencies, as in the simulator.  A
 * pair gets the earliest free time of the engine
 * after its F and the latest one before its backward; a copy is issued after the last computation
 * that ends before its time.  As no copy is then issued in another order or later than planned,
 * none ends later, and no backward waits for one.  A pair that does not fit so stays on the device.
 */
#include "schedule/graph.h"

#include <stdlib.h>
#include <string.h>

/* A cell of computations, [first, end) of the row: its parts one after the other. */
typedef struct {
    int first, end;
    double start, stop;
} Cell;

typedef struct {
    double start, stop;
    int pair, fetch, cell; /* cell: issued after it */
} Copy;

typedef struct {
    int stage, microbatch, forward, backward; /* cells; backward: the first of R, B or I */
    double gap;
    int wait; /* WAIT_OFFLOAD comes before this cell */
} Pair;

typedef struct {
    const Schedule *s;
    const SchedGraph *g;
    const SchedOffload *o;
    Cell **cell; /* per rank */
    int *cells;
    double *forward, *backward; /* per (stage, microbatch): end, or -1 */
    double slack;               /* times closer than this are the same */
    SchedRoom room;
} Offload;

static double cost(const Offload *x, const SchedAction *a)
{
    double t = x->o->stage_time ? x->o->stage_time[a->stage * SA_TYPES + a->type] : -1;
    return t >= 0 ? t : x->o->time[a->type];
}

static double copy_cost(const Offload *x, int type, int stage)
{
    SchedAction a = sched_act(type, stage, -1);
    return cost(x, &a);
}

/* ---- when computations begin and end ---- */

static double *end_of(const Offload *x, int back, int stage, int mb)
{
    return &(back ? x->backward : x->forward)[(size_t)stage * (size_t)x->s->microbatches +
                                              (size_t)mb];
}

/* The end of all that an action needs; -1: not known yet. */
static double needed_at(const Offload *x, const SchedAction *a)
{
    double t = 0;
    for (SchedNeed n = sched_needs(x->g, a->type, a->stage); sched_next(x->g, &n);) {
        double end = *end_of(x, n.back, n.stage, a->microbatch);
        if (end < 0)
            return -1;
        if (x->s->rank_of[n.stage] != x->s->rank_of[a->stage])
            end += x->o->latency;
        t = end > t ? end : t;
    }
    return t;
}

/* 0: it waits for another rank.  Of a cell of several, what one needs is not made by the other. */
static int time_cell(Offload *x, int r, int k)
{
    Cell *c = &x->cell[r][k];
    double t = k ? x->cell[r][k - 1].stop : 0;
    for (int i = c->first; i < c->end; i++)
        if (needed_at(x, &x->s->row[r].a[i]) < 0)
            return 0;
    for (int i = c->first; i < c->end; i++) {
        const SchedAction *a = &x->s->row[r].a[i];
        double there = needed_at(x, a);
        t = there > t ? there : t;
        if (i == c->first)
            c->start = t;
        t += cost(x, a);
        if (a->type == SA_F)
            *end_of(x, 0, a->stage, a->microbatch) = t;
        if (a->type == SA_B || a->type == SA_I)
            *end_of(x, 1, a->stage, a->microbatch) = t;
    }
    c->stop = t;
    x->slack = 1e-9 * t > x->slack ? 1e-9 * t : x->slack;
    return 1;
}

static int time_all(Offload *x, SchedError *e)
{
    int *cursor = sched_room(&x->room, (size_t)x->s->ranks, sizeof *cursor), moved = 1, open = 0;
    if (!cursor)
        return sched_nomem(e);
    while (moved) {
        moved = 0;
        for (int r = 0; r < x->s->ranks; r++)
            for (; cursor[r] < x->cells[r] && time_cell(x, r, cursor[r]); cursor[r]++)
                moved = 1;
    }
    for (int r = 0; r < x->s->ranks; r++)
        open |= cursor[r] < x->cells[r];
    return open ? sched_fail(e, SCHED_EREFUSED, -1, -1,
                             "the computations of %s wait for one another", x->s->name)
                : SCHED_OK;
}

static int find_cells(Offload *x, SchedError *e)
{
    for (int r = 0; r < x->s->ranks; r++) {
        const SchedRow *row = &x->s->row[r];
        x->cell[r] = sched_room(&x->room, (size_t)row->n, sizeof **x->cell);
        if (!x->cell[r])
            return sched_nomem(e);
        for (int i = 0; i < row->n; i = sched_cell_end(row, i))
            if (sched_is_compute(row->a[i].type))
                x->cell[r][x->cells[r]++] = (Cell){.first = i, .end = sched_cell_end(row, i)};
    }
    return time_all(x, e);
}

/* ---- which pairs there are on a rank ---- */

static int longer(const void *a, const void *b)
{
    const Pair *x = a, *y = b;
    if (x->gap != y->gap)
        return x->gap > y->gap ? -1 : 1;
    return x->forward != y->forward ? x->forward - y->forward : x->stage - y->stage;
}

/* Those that may move, the longest gap first.  What an R makes again as a whole is not kept. */
static int find_pairs(const Offload *x, int r, Pair *pair)
{
    const SchedRow *row = &x->s->row[r];
    int m = x->s->microbatches, n = x->s->stages * m, count = 0;
    for (int k = 0; k < n; k++)
        pair[k] = (Pair){k / m, k % m, -1, -1, 0, 0};
    for (int c = 0; c < x->cells[r]; c++)
        for (int i = x->cell[r][c].first; i < x->cell[r][c].end; i++) {
            const SchedAction *a = &row->a[i];
            Pair *p = &pair[a->stage * m + a->microbatch];
            if (a->type == SA_F)
                p->forward = c;
            else if (p->backward < 0)
                p->backward = a->type == SA_R && a->peer == SCHED_WHOLE ? x->cells[r] : c;
        }
    for (int k = 0; k < n; k++) {
        Pair p = pair[k];
        if (p.forward < 0 || p.backward < 0 || p.backward == x->cells[r] ||
            (x->o->stays && x->o->stays[p.stage]))
            continue;
        p.gap = x->cell[r][p.backward].start - x->cell[r][p.forward].stop;
        pair[count++] = p;
    }
    qsort(pair, (size_t)count, sizeof *pair, longer);
    return count;
}

/* ---- the engine's time: copies in the order of their starts ---- */

static double earliest(const Copy *copy, int n, double from, double time, double slack)
{
    for (int k = 0; k < n && copy[k].start < from + time - slack; k++)
        if (copy[k].stop > from)
            from = copy[k].stop;
    return from;
}

static double latest(const Copy *copy, int n, double to, double time, double slack)
{
    for (int k = n; k-- > 0 && copy[k].stop > to - time + slack;)
        if (copy[k].start < to)
            to = copy[k].start;
    return to - time;
}

static void insert(Copy *copy, int *n, Copy c)
{
    int k = (*n)++;
    for (; k > 0 && copy[k - 1].start > c.start; k--)
        copy[k] = copy[k - 1];
    copy[k] = c;
}

/* The last cell that has ended by t; -1: none. */
static int cell_before(const Offload *x, int r, double t)
{
    int low = -1, high = x->cells[r];
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        *(x->cell[r][mid].stop <= t + x->slack ? &low : &high) = mid;
    }
    return low;
}

/* The first cell that does not begin before t. */
static int cell_after(const Offload *x, int r, double t)
{
    int low = -1, high = x->cells[r];
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        *(x->cell[r][mid].start < t - x->slack ? &low : &high) = mid;
    }
    return high;
}

/* Both copies of a pair, if the slot is away during one computation at least. */
static int move(const Offload *x, int r, Pair *p, int number, Copy *copy, int *n)
{
    double out = copy_cost(x, SA_OFFLOAD, p->stage), in = copy_cost(x, SA_FETCH, p->stage);
    Copy leave = {.pair = number, .start = x->cell[r][p->forward].stop};
    leave.start = earliest(copy, *n, leave.start, out, x->slack);
    leave.stop = leave.start + out;
    Copy back = {.pair = number, .fetch = 1, .stop = x->cell[r][p->backward].start};
    back.start = latest(copy, *n, back.stop, in, x->slack);
    back.stop = back.start + in;
    leave.cell = cell_before(x, r, leave.start);
    back.cell = cell_before(x, r, back.start);
    p->wait = cell_after(x, r, leave.stop);
    if (leave.cell < p->forward || back.cell < p->wait || back.cell >= p->backward)
        return 0;
    insert(copy, n, leave);
    insert(copy, n, back);
    return 1;
}

/* ---- rows ---- */

static void rewrite(const Offload *x, int r, const Pair *pair, const Copy *copy, int n,
                    SchedRow *out)
{
    const SchedRow *row = &x->s->row[r];
    for (int i = 0, c = 0, k = 0; i < row->n; i++) {
        int here = c < x->cells[r] && x->cell[r][c].first == i;
        for (int j = 0; here && j < n; j++)
            if (!copy[j].fetch && pair[copy[j].pair].wait == c)
                sched_push(out, sched_act(SA_WAIT_OFFLOAD, pair[copy[j].pair].stage,
                                          pair[copy[j].pair].microbatch));
        sched_push(out, row->a[i]);
        if (c == x->cells[r] || x->cell[r][c].end != i + 1)
            continue;
        for (; k < n && copy[k].cell == c; k++)
            sched_push(out, sched_act(copy[k].fetch ? SA_FETCH : SA_OFFLOAD,
                                      pair[copy[k].pair].stage, pair[copy[k].pair].microbatch));
        c++;
    }
}

static int offload_row(const Offload *x, int r, int *moved, SchedRow *out, SchedError *e)
{
    size_t n = (size_t)x->s->stages * (size_t)x->s->microbatches;
    SchedRoom room = {0};
    Pair *pair = sched_room(&room, n, sizeof *pair);
    Copy *copy = sched_room(&room, 2 * n, sizeof *copy);
    int copies = 0, most = x->o->most ? x->o->most[r] : (int)n;
    if (!room.lost) {
        int pairs = find_pairs(x, r, pair);
        for (int k = 0; k < pairs && copies / 2 < most; k++)
            move(x, r, &pair[k], k, copy, &copies);
        rewrite(x, r, pair, copy, copies, out);
    }
    if (moved)
        moved[r] = copies / 2;
    sched_room_free(&room);
    return room.lost ? sched_nomem(e) : SCHED_OK;
}

int sched_offload_graph(Schedule *s, const SchedGraph *g, const SchedOffload *o, int *moved,
                        SchedError *e)
{
    const size_t ranks = (size_t)s->ranks, pairs = (size_t)s->stages * (size_t)s->microbatches;
    Offload x = {.s = s, .g = g, .o = o};
    SchedRow *rows = calloc(ranks, sizeof *rows);
    x.cell = sched_room(&x.room, ranks, sizeof *x.cell);
    x.cells = sched_room(&x.room, ranks, sizeof *x.cells);
    x.forward = sched_room_unknown(&x.room, pairs);
    x.backward = sched_room_unknown(&x.room, pairs);
    int st = rows && !x.room.lost ? SCHED_OK : sched_nomem(e);
    if (!st && s->infer)
        st = sched_fail(e, SCHED_EREFUSED, -1, -1,
                        "forwards alone keep no stash: there is nothing to offload");
    if (!st && sched_has_type(s, SA_OFFLOAD))
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "the rows have OFFLOADs already");
    sched_drop_idle(s);
    if (!st)
        st = find_cells(&x, e);
    for (int r = 0; !st && r < s->ranks; r++)
        st = offload_row(&x, r, moved, &rows[r], e);
    sched_room_free(&x.room);
    return sched_take_rows(s, rows, st, e);
}

int sched_offload(Schedule *s, const SchedOffload *o, int *moved, SchedError *e)
{
    SchedGraph g;
    int st = sched_graph(&g, s->stages, o->edge, o->n_edge, NULL, 0, e);
    if (!st)
        st = sched_offload_graph(s, &g, o, moved, e);
    sched_graph_free(&g);
    return st;
}

/* ---- rows that do not say when a slot is free ---- */

static int waits_for(const SchedRow *row, const SchedAction *offload)
{
    for (int i = 0; i < row->n; i++)
        if (row->a[i].type == SA_WAIT_OFFLOAD && row->a[i].stage == offload->stage &&
            row->a[i].microbatch == offload->microbatch)
            return 1;
    return 0;
}

/* Of the copies that are under way those that `next`, at a cell's begin, must wait for. */
static int close_copies(SchedRow *out, SchedAction *open, int n, const SchedAction *next)
{
    int left = 0;
    for (int k = 0; k < n; k++) {
        int beside = sched_is_compute(next->type) && open[k].mark++ > 0;
        if (beside || (next->type == SA_FETCH && next->stage == open[k].stage &&
                       next->microbatch == open[k].microbatch)) {
            sched_push(out, sched_act(SA_WAIT_OFFLOAD, open[k].stage, open[k].microbatch));
        } else {
            open[left++] = open[k];
        }
    }
    return left;
}

int sched_wait_offload(Schedule *s, SchedError *e)
{
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int st = rows ? SCHED_OK : sched_nomem(e);
    for (int r = 0; !st && r < s->ranks; r++) {
        const SchedRow *row = &s->row[r];
        SchedAction *open = malloc(((size_t)row->n + 1) * sizeof *open);
        int n = 0;
        st = open ? SCHED_OK : sched_nomem(e);
        for (int i = 0; !st && i < row->n; i++) {
            if (!i || sched_cell_end(row, i - 1) == i)
                n = close_copies(&rows[r], open, n, &row->a[i]);
            sched_push(&rows[r], row->a[i]);
            if (row->a[i].type == SA_OFFLOAD && !waits_for(row, &row->a[i]))
                open[n++] = row->a[i];
        }
        free(open);
    }
    return sched_take_rows(s, rows, st, e);
}
