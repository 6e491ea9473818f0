/*
 * offload.c - OFFLOAD and FETCH: stashes that wait long for their backward spend that time on
 * the host (PipeOffload, Wan et al., 2503.01328).
 *
 * In: rows, with or without communication; what actions and copies take.  Out: the same rows; the
 * (stage, microbatch) pairs with the longest time from F to backward have OFFLOAD after F,
 * WAIT_OFFLOAD where the copy has left, FETCH so late that it ends just before the backward.
 *
 * A rank has one engine for copies, in the order of its row, beside its computations, whose times
 * are simulated.  A pair gets the earliest free time of the engine after its F and the latest one
 * before its backward; a copy is issued after the last computation that ends before its time.  As
 * no copy is then issued in another order or later than planned, none ends later, and no backward
 * waits for one.  A pair that does not fit so stays on the device.
 */
#include "schedule/graph.h"
#include "simulate.h"

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
    const SchedOffload *o;
    Cell **cell; /* per rank */
    int *cells;
    double slack; /* times closer than this are the same */
    Pool room;
} Offload;

/* When computations begin and end. */
static int find_cells(Offload *x, const SchedGraph *g, SchedError *e)
{
    SchedSim sim;
    SchedCosts c = *x->o->costs;
    c.edge = g->edge;
    c.n_edge = g->n;
    int st = sched_simulate_step(x->s, &c, NULL, &sim, e);
    if (st)
        return st;
    x->slack = 1e-9 * sim.makespan;
    for (int r = 0; r < x->s->ranks && !x->room.lost; r++) {
        const SchedRow *row = &x->s->row[r];
        x->cell[r] = sched_room(&x->room, (size_t)row->n, sizeof **x->cell);
        for (int i = 0, end; i < row->n && x->cell[r]; i = end) {
            end = sched_cell_end(row, i);
            if (sched_is_compute(row->a[i].type))
                x->cell[r][x->cells[r]++] = (Cell){i, end, sim.start[r][i], sim.end[r][end - 1]};
        }
    }
    sched_sim_free(&sim);
    return x->room.lost ? sched_nomem(e) : SCHED_OK;
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

/* How many cells have ended by t, or have begun before it. */
static int cells_by(const Offload *x, int r, double t, int ended)
{
    int low = 0, high = x->cells[r];
    while (low < high) {
        const int mid = low + (high - low) / 2;
        const Cell *c = &x->cell[r][mid];
        if (ended ? c->stop <= t + x->slack : c->start < t - x->slack)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Both copies of a pair, if the slot is away during one computation at least. */
static int move(const Offload *x, int r, Pair *p, int number, Copy *copy, int *n)
{
    double out = sched_cost(x->o->costs, p->stage, SA_OFFLOAD),
           in = sched_cost(x->o->costs, p->stage, SA_FETCH);
    Copy leave = {.pair = number, .start = x->cell[r][p->forward].stop};
    leave.start = earliest(copy, *n, leave.start, out, x->slack);
    leave.stop = leave.start + out;
    Copy back = {.pair = number, .fetch = 1, .stop = x->cell[r][p->backward].start};
    back.start = latest(copy, *n, back.stop, in, x->slack);
    back.stop = back.start + in;
    leave.cell = cells_by(x, r, leave.start, 1) - 1;
    back.cell = cells_by(x, r, back.start, 1) - 1;
    p->wait = cells_by(x, r, leave.stop, 0);
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
    size_t n = sched_pairs(x->s);
    Pool room = {0};
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
    pool_free(&room);
    return room.lost ? sched_nomem(e) : SCHED_OK;
}

int sched_offload_graph(Schedule *s, const SchedGraph *g, const SchedOffload *o, int *moved,
                        SchedError *e)
{
    const size_t ranks = (size_t)s->ranks;
    Offload x = {.s = s, .o = o};
    SchedRow *rows = calloc(ranks, sizeof *rows);
    x.cell = sched_room(&x.room, ranks, sizeof *x.cell);
    x.cells = sched_room(&x.room, ranks, sizeof *x.cells);
    int st = rows && !x.room.lost ? SCHED_OK : sched_nomem(e);
    if (!st && s->infer)
        st = sched_fail(e, SCHED_EREFUSED, -1, -1,
                        "forwards alone keep no stash: there is nothing to offload");
    if (!st && sched_has_type(s, SA_OFFLOAD))
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "the rows have OFFLOADs already");
    sched_drop_idle(s);
    if (!st)
        st = find_cells(&x, g, e);
    for (int r = 0; !st && r < s->ranks; r++)
        st = offload_row(&x, r, moved, &rows[r], e);
    pool_free(&x.room);
    return sched_take_rows(s, rows, st, e);
}
