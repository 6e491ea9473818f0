/*
 * solve.c - the best cut: which objective, what memory allows, and what of nearly equal ones is
 * preferred.
 */
#include "dag.h"

typedef struct {
    Dag *d;
    Arena *a;
    Found best;
} Solve;

static double value_of(const Solve *s, const Found *f)
{
    uint32_t m = s->d->p->microbatches;
    return m ? (double)f->sum + (double)(m - 1) * (double)f->slowest : (double)f->slowest;
}

/* Keeps the better one. */
static void keep(Solve *s, Found f)
{
    const Found *b = &s->best;
    if (!f.end || !f.fits)
        return;
    double is = value_of(s, &f), was = b->end ? value_of(s, b) : 0;
    if (!b->end || is < was || (is == was && f.sum < b->sum))
        s->best = f;
}

/*
 * Caps on the slowest stage from the highest that can still pay down to the least that is possible
 * (Alpa's sweep).  Each search finds the least sum under its cap, so what lies between is not
 * missed.
 */
static void sweep(Solve *s, Ticks least)
{
    enum { CAPS = 256 };
    double others = s->d->p->microbatches - 1;
    Ticks cap = TICKS_CAP;
    for (int i = 0; i < CAPS; i++) {
        double pays =
            others > 0 ? (value_of(s, &s->best) - (double)s->d->total) / others : (double)TICKS_CAP;
        if ((double)cap > pays)
            cap = (Ticks)pays;
        if (cap <= least)
            return;
        Found f = chain_sum(s->d, cap, s->a);
        if (!f.end)
            return;
        keep(s, f);
        if ((double)f.sum + others * (double)least >= value_of(s, &s->best))
            return;
        cap = f.slowest - 1;
    }
}

/* The least sum, the slowest stage being so many thousandths above the best's. */
static Found slower(const Solve *s, const Found *best, int thousandths)
{
    enum { ALL = 1024 };
    return chain_sum(s->d, best->slowest + best->slowest * thousandths / ALL, s->a);
}

static Ticks worth(const Found *f) { return f->sum + (Ticks)f->border; }

/*
 * A slowest stage that is a little slower, within what no model of costs can tell apart, is worth
 * messages that are fewer by a quarter, or the same at borders of modules: of 405 billion
 * parameters in 8 stages the last 0.02 % cost 32 GiB a microbatch, cut through attention.  Of no
 * use is more than what reaches the same as the most.
 */
static void prefer_borders(Solve *s)
{
    enum { MOST = 16 }; /* 1/64 */
    const Found best = s->best, all = best.end ? slower(s, &best, MOST) : best;
    Found f = best;
    for (int by = 1; by <= MOST && all.end && worth(&f) > worth(&all); by *= 2) {
        f = by == MOST ? all : slower(s, &best, by);
        double link = (double)(f.sum - s->d->total), was = (double)(s->best.sum - s->d->total);
        if (link <= 0.75 * was - 1 || (link <= was && f.border < s->best.border))
            s->best = f;
    }
}

static void solve(Solve *s)
{
    s->best = (Found){.end = NULL};
    Found f = chain_slowest(s->d, s->a);
    keep(s, f);
    if (f.end && s->d->p->microbatches)
        sweep(s, f.slowest);
    prefer_borders(s);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint32_t rank_of(const CutProblem *p, uint32_t stage)
{
    return p->rank_of ? p->rank_of[stage] : stage;
}

static bool ranks_fit(const CutProblem *p, const StageCut *c)
{
    for (uint32_t s = 0; s < p->stages && p->memory; s++) {
        int64_t sum = 0;
        for (uint32_t t = 0; t < p->stages; t++)
            if (rank_of(p, t) == rank_of(p, s))
                sum += c->stage[t].memory;
        if (sum > p->memory)
            return false;
    }
    return true;
}

/* What a stage may have: its rank's memory less a part of what the rank's other stages share it
 * by. part 0: all of it; part 1: an equal share. */
static int64_t *memory_of(const CutProblem *p, double part, Arena *a)
{
    int64_t *most = arena_array(a, int64_t, p->stages);
    for (uint32_t s = 0; s < p->stages; s++) {
        uint32_t same = 0;
        for (uint32_t t = 0; t < p->stages; t++)
            same += rank_of(p, t) == rank_of(p, s);
        most[s] = (int64_t)((double)p->memory * (1 - part * (1 - 1.0 / same)));
    }
    return most;
}

/* Can a cut be too large for the memory? */
static bool is_limited(const CutGraph *g, const CutProblem *p)
{
    double sum = 0, live = 0;
    for (uint32_t s = 0; s < p->stages; s++)
        live += p->live ? p->live[s] : 1;
    for (uint32_t i = 0; i < g->param.n; i++)
        sum += (double)g->param.at[i].held * (double)g->param.at[i].read.n +
               (double)g->param.at[i].owned;
    for (uint32_t v = 0; v < g->value.n; v++)
        sum += (double)g->value.at[v].kept * live;
    return p->memory > 0 && sum > (double)p->memory;
}

static StageCut finish(Solve *s)
{
    StageCut c = {.stages = s->d->p->stages};
    if (!s->best.end)
        return c;
    uint32_t *stage_of = arena_array(s->a, uint32_t, s->d->g->nodes + 1);
    for (uint32_t n = 0, t = 0; n < s->d->g->nodes; n++) {
        while (s->d->group_of[n] >= s->best.end[t + 1])
            t++;
        stage_of[n] = t;
    }
    cut_measure(s->d->g, s->d->p, stage_of, s->a, &c);
    return c;
}

StageCut cut_solve(const CutGraph *g, const CutProblem *p, Arena *a)
{
    enum { PARTS = 8 }; /* steps from all memory to an equal share */
    StageCut c = {.stages = p->stages};
    if (p->stages == 0 || p->stages > STAGES_MOST)
        return c.why = "there are 1 to 4096 stages", c;
    bool limited = is_limited(g, p);
    Solve s = {.d = dag_of(g, p, a), .a = a};
    uint32_t most = 0;
    for (uint32_t k = 0; k < s.d->n; k++)
        most += s.d->group[k].works;
    if (most < p->stages)
        return c.why = arena_printf(a, "there are places for %u stages at most, each with a node "
                                       "that computes", most), c;
    for (int i = 0; i <= PARTS; i++) {
        if (limited)
            s.d->most = memory_of(p, (double)i / PARTS, a);
        solve(&s);
        c = finish(&s);
        if (!c.stage_of || !p->rank_of || ranks_fit(p, &c))
            break;
        c.stage_of = NULL;
    }
    if (!c.stage_of)
        c.why = "no cut found fits in the memory";
    return c;
}
