/*
 * interleaved.c - Interleaved1F1B (Narayanan et al., 2104.04473, with the flexible rounds
 * of Llama 3); InterleavedZeroBubble, which divides its backward into I and W (Qi et al.,
 * 2401.10241); and GIS, which has W right after I (PipeOffload, Wan et al., 2503.01328).
 *
 * Microbatches go in rounds of k = m / max(1, m / p).  Step i of a rank is a forward of chunk (i /
 * k) mod v; its backwards are counted by (i - w) / k from the last chunk down, w being its warm-up.
 * Zero bubble: I instead of B, and W of the oldest microbatch once r of them are pending.  Idle
 * cells are PyTorch's, so that files compare.
 *
 * GIS: rounds of k = p microbatches, or of fewer down to half of p: a rank then begins its second
 * chunk before the first has left the pipeline, waits p - k for it once a chunk, and holds so many
 * microbatches less of each chunk but one.  Rank r has (v - 1) k + p - r forwards before its first
 * I.
 */
#include "generate.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    SchedGen *g;
    int r, k, w, *f, *b, *weight, done_w;
    int lag; /* of W behind I; -1: B instead */
} Inter;

static int fwd_stage(const Inter *x, int i)
{
    return sched_gen_stage(x->g, x->r, (i / x->k) % x->g->chunks[x->r]);
}
static int bwd_stage(const Inter *x, int i)
{
    int v = x->g->chunks[x->r];
    return sched_gen_stage(x->g, x->r, v - 1 - ((i - x->w) / x->k) % v);
}

static void put_f(Inter *x, int i)
{
    int s = fwd_stage(x, i);
    sched_gen_one(x->g, x->r, SA_F, s, x->f[s]++);
}

static void put_w(Inter *x)
{
    int s = bwd_stage(x, x->w + x->done_w++);
    sched_gen_one(x->g, x->r, SA_W, s, x->weight[s]++);
}

static void put_b(Inter *x, int i)
{
    int s = bwd_stage(x, i);
    sched_gen_one(x->g, x->r, x->lag < 0 ? SA_B : SA_I, s, x->b[s]++);
    if (x->lag >= 0 && i - x->w >= x->lag)
        put_w(x);
}

static void inter_rank(Inter *x)
{
    SchedGen *g = x->g;
    int p = g->p, r = x->r, v = g->chunks[r], total = g->m * v, zb = x->lag >= 0,
        warm = (v - 1) * x->k + (zb ? 1 : 2) * (p - 1 - r);
    x->w = warm < total ? warm : total;
    sched_gen_idle(g, r, r);
    for (int i = 0; i < x->w; i++)
        put_f(x, i);
    if (x->w > 0)
        sched_gen_idle(g, r, zb ? p - r - 1 : v * p + 2 * (p - 1 - r) - (x->w + r));
    for (int i = x->w; i < total; i++) {
        put_f(x, i);
        put_b(x, i);
    }
    for (int i = total; i < total + x->w; i++) {
        if (!zb)
            sched_gen_idle(g, r, 1);
        put_b(x, i);
    }
    while (zb && x->done_w < total)
        put_w(x);
}

typedef enum { WHOLE, DELAYED, AT_ONCE } Backward;

static int make_rows(SchedGen *g, Backward kind)
{
    int S = g->s->stages, *count = malloc((size_t)S * 3 * sizeof *count);
    if (!count)
        return sched_nomem(g->e);
    for (int r = 0; r < g->p; r++) {
        memset(count, 0, (size_t)S * 3 * sizeof *count);
        Inter x = {g, r, g->round, 0, count, count + S, count + 2 * S, 0,
                   kind == WHOLE ? -1 : kind == DELAYED ? r : 0};
        inter_rank(&x);
    }
    free(count);
    return SCHED_OK;
}

/* ---- The idle cells of what comes too early ----
   Rows advance by one cell at a time, all together.  A forward whose input another cell of the same
   column, or a later one, would make waits an idle cell long: with fewer microbatches than ranks a
   rank reaches its second chunk before the first one is through the pipeline.  PyTorch does not ask
   this of I and W. */

typedef struct {
    int *cursor; /* per rank */
    int *done;   /* per stage: its forwards up to the column before */
    int *now;    /* per stage: with those of this column */
} Columns;

/* One column of all rows: the number of ranks that advanced, -1 when all rows have ended. */
static int column(const SchedGen *g, const Columns *c, SchedRow *out)
{
    int advanced = 0, open = 0;
    for (int r = 0; r < g->p; r++) {
        const SchedRow *row = &g->s->row[r];
        if (c->cursor[r] == row->n)
            continue;
        open = 1;
        const SchedAction *a = &row->a[c->cursor[r]];
        if (a->type == SA_F && a->stage > 0 && c->done[a->stage - 1] <= a->microbatch) {
            sched_push(&out[r], sched_act(SA_IDLE, -1, -1));
            continue;
        }
        if (a->type == SA_F)
            c->now[a->stage]++;
        sched_push(&out[r], *a);
        c->cursor[r]++;
        advanced++;
    }
    memcpy(c->done, c->now, (size_t)g->s->stages * sizeof *c->done);
    return open ? advanced : -1;
}

static int align(SchedGen *g)
{
    size_t stages = (size_t)g->s->stages;
    SchedRow *out = calloc((size_t)g->p, sizeof *out);
    Pool room = {0};
    Columns c = {sched_room(&room, (size_t)g->p, sizeof(int)),
                 sched_room(&room, stages, sizeof(int)), sched_room(&room, stages, sizeof(int))};
    int st = out && !room.lost ? SCHED_OK : sched_nomem(g->e), advanced = !st;
    while (advanced > 0)
        advanced = column(g, &c, out);
    pool_free(&room);
    if (!st && advanced == 0)
        st = sched_fail(g->e, SCHED_EREFUSED, -1, -1, "%s: its actions wait for one another",
                        g->s->name);
    return sched_take_rows(g->s, out, st, g->e);
}

int sched_gen_interleaved(SchedGen *g) { return make_rows(g, WHOLE); }

int sched_gen_interleaved_zb(SchedGen *g)
{
    int st = make_rows(g, DELAYED);
    if (!st)
        st = sched_rows_ok(g->s, g->e);
    return st ? st : align(g);
}

int sched_gen_gis(SchedGen *g)
{
    int st = make_rows(g, AT_ONCE);
    sched_drop_idle(g->s);
    return st;
}
