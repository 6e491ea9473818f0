/*
 * solve.c - the best cut that can be found: which lattice, which objective, what memory allows.
 */
#include <string.h>

#include "dag.h"

/* Steps of a search over ideals before it gives up, and orders that are tried then. */
enum { ORDERS = 24, ROUNDS = 6 };
static const uint64_t STEPS = 60000000;

typedef struct {
    Dag *d;
    Arena *a;
    bool contracted;
    Found best;
    bool exact;
    uint32_t ideals;
} Solve;

static double value_of(const Solve *s, const Found *f)
{
    uint32_t m = s->d->p->microbatches;
    return m ? (double)f->sum + (double)(m - 1) * (double)f->slowest : (double)f->slowest;
}

/* Keeps the better one; returns whether it is f. */
static bool keep(Solve *s, Found f)
{
    if (!f.stage_of || !f.fits)
        return false;
    const Found *b = &s->best;
    double is = value_of(s, &f), was = b->stage_of ? value_of(s, b) : 0;
    bool worse = is > was || (is == was && (f.sum >= b->sum || f.stages < b->stages));
    if (b->stage_of && worse)
        return false;
    s->best = f;
    return true;
}

/*
 * Caps on the slowest stage from the highest that can still pay down to the least that is possible
 * (Alpa's sweep).  Each search finds the least sum under its cap, so what lies between is not
 * missed.  False: given up.
 */
static bool sweep(Solve *s, const Lattice *l, Ticks least)
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
            return true;
        Found f = search_sum(l, cap, s->a);
        if (f.given_up || !f.stage_of)
            return !f.given_up;
        keep(s, f);
        if ((double)f.sum + others * (double)least >= value_of(s, &s->best))
            return true;
        cap = f.slowest - 1;
    }
    return false;
}

/* The best cut of a lattice, unless a better one is known; false: given up. */
static bool search_all(Solve *s, const Lattice *l)
{
    Found f = search_slowest(l, s->best.stage_of ? s->best.slowest : TICKS_CAP, s->a);
    if (f.given_up || !f.stage_of)
        return !f.given_up;
    keep(s, f);
    return s->d->p->microbatches == 0 || sweep(s, l, f.slowest);
}

static void try_order(Solve *s, const uint32_t *order)
{
    Found f = order_first(s->d, order, s->a);
    if (f.fits)
        order_moves(s->d, &f, s->a);
    keep(s, f);
}

/* Orders, the best cut of each, and from there: moves, and orders of that cut again. */
static void solve_by_orders(Solve *s)
{
    for (uint32_t i = 0; i < ORDERS; i++) {
        const uint32_t *order = order_number(s->d, NULL, i, s->a);
        Lattice l = lattice_chain(s->d, order, s->a);
        try_order(s, order);
        search_all(s, &l);
    }
    bool better = s->best.stage_of;
    for (uint32_t round = 0; round < ROUNDS && better; round++) {
        better = false;
        Found f = s->best;
        order_moves(s->d, &f, s->a);
        better |= keep(s, f);
        for (uint32_t i = 0; i < ORDERS; i++) {
            Found was = s->best;
            const uint32_t *order = order_number(s->d, was.stage_of, i, s->a);
            Lattice l = lattice_chain(s->d, order, s->a);
            search_all(s, &l);
            better |= s->best.stage_of != was.stage_of;
        }
    }
}

static bool all_used(const Solve *s) { return s->best.stages == s->d->p->stages; }

/* False: fewer stages are better than so many, and of so many the best one may be lost. */
static bool solve_any(Solve *s)
{
    enum { FIRST = 4 };
    Lattice l;
    uint32_t most = s->d->p->ideals ? s->d->p->ideals : CUT_IDEALS;
    if (lattice_all(s->d, most, s->a, &l)) {
        s->ideals = l.n;
        l.most_steps = STEPS;
        l.fewer = s->contracted;
        for (uint32_t i = 0; i < FIRST; i++)
            try_order(s, order_number(s->d, NULL, i, s->a));
        s->exact = search_all(s, &l);
        if (s->best.stage_of && !all_used(s))
            return false;
    }
    if (!s->exact)
        solve_by_orders(s);
    return true;
}

static void solve_in_order(Solve *s)
{
    const uint32_t *order = order_number(s->d, NULL, 0, s->a);
    bool free = true;
    for (uint32_t g = 0; g < s->d->n; g++)
        free &= !s->d->group[g].begins;
    Lattice l = lattice_chain(s->d, order, s->a);
    if (free)
        keep(s, order_first(s->d, order, s->a));
    s->ideals = l.n;
    s->exact = search_all(s, &l);
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

/* Without a cut. */
static double least_of(const Solve *s)
{
    const CutProblem *p = s->d->p;
    const Ticks least = dag_least(s->d, s->a);
    return s->d->tick * (p->microbatches
                             ? (double)s->d->total + (p->microbatches - 1.0) * (double)least
                             : (double)least);
}

static StageCut finish(Solve *s)
{
    const CutProblem *p = s->d->p;
    StageCut c = {.stages = p->stages};
    if (s->best.stage_of) {
        uint32_t *stage_of = arena_array(s->a, uint32_t, s->d->g->nodes + 1);
        for (uint32_t n = 0; n < s->d->g->nodes; n++)
            stage_of[n] = s->best.stage_of[s->d->group_of[n]];
        cut_measure(s->d->g, p, stage_of, s->a, &c);
    }
    if (s->exact && s->best.stage_of)
        c.bound = p->microbatches ? c.step : c.slowest;
    else
        c.bound = least_of(s);
    c.exact = s->exact;
    c.ideals = s->ideals;
    return c;
}

/* The groups, as few as they may be. */
static Solve contracted(const CutGraph *g, const CutProblem *p, bool limited, Arena *a)
{
    CutGraph *own = arena_new_of(a, CutGraph);
    *own = *g;
    own->together.cap = own->together.n; /* what is added moves it */
    Solve s = {.d = dag_of(own, p, a), .a = a};
    while (!limited && contract(s.d, own)) {
        s.d = dag_of(own, p, a);
        s.contracted = true;
    }
    return s;
}

static void solve(Solve *s, const CutGraph *g, const CutProblem *p)
{
    s->best = (Found){.stage_of = NULL};
    s->exact = false;
    if (p->in_order) {
        solve_in_order(s);
    } else if (!solve_any(s)) {
        *s = (Solve){.d = dag_of(g, p, s->a), .a = s->a};
        solve_any(s);
    }
}

StageCut cut_solve(const CutGraph *g, const CutProblem *p, Arena *a)
{
    enum { PARTS = 8 }; /* steps from all memory to an equal share */
    StageCut c = {.stages = p->stages};
    if (p->stages == 0 || p->stages > STAGES_MOST)
        return c.why = "there are 1 to 4096 stages", c;
    bool limited = is_limited(g, p);
    Solve s = contracted(g, p, limited, a);
    uint32_t most = 0;
    for (uint32_t k = 0; k < s.d->n; k++)
        most += s.d->group[k].works;
    if (most < p->stages)
        return c.why = arena_printf(a, "there are places for %u stages at most, each with a node "
                                       "that computes", most), c;
    for (int i = 0; i <= PARTS; i++) {
        if (limited)
            s.d->most = memory_of(p, (double)i / PARTS, a);
        solve(&s, g, p);
        double bound = c.bound;
        c = finish(&s);
        if (i > 0) { /* less memory than there is: what holds of it is no bound */
            c.bound = bound;
            c.exact = false;
        }
        if (!c.stage_of || ranks_fit(p, &c))
            break;
        c.stage_of = NULL;
    }
    if (!c.stage_of)
        c.why = "no cut found fits in the memory";
    return c;
}

/* The best of any order, as good as `known` or better; false: given up. */
static bool solve_below(Solve *s, const StageCut *known)
{
    static const uint64_t FEW = 4000000;
    const CutGraph *g = s->d->g;
    const CutProblem *p = s->d->p;
    Lattice l;
    if (s->d->n < p->stages || !lattice_all(s->d, p->ideals ? p->ideals : CUT_IDEALS, s->a, &l))
        return false;
    l.most_steps = FEW;
    l.fewer = s->contracted;
    Ticks rounding = (Ticks)g->nodes + 4 * (Ticks)g->value.n + (Ticks)g->param.n + 1;
    Found f = search_slowest(&l, (Ticks)(known->slowest / s->d->tick) + rounding, s->a);
    if (f.given_up || !f.stage_of)
        return false;
    s->best = f;
    return p->microbatches == 0 || sweep(s, &l, f.slowest);
}

double cut_bound(const CutGraph *g, const CutProblem *in, const StageCut *known, Arena *a,
                 bool *exact)
{
    CutProblem p = *in;
    p.in_order = false;
    p.memory = 0; /* a bound without it is one with it */
    Solve s = contracted(g, &p, false, a);
    double least = least_of(&s), is = p.microbatches ? known->step : known->slowest;
    *exact = solve_below(&s, known);
    if (*exact && !all_used(&s)) { /* of fewer stages, and more are slower: not by how much */
        double fewer = value_of(&s, &s.best) * s.d->tick;
        least = fewer < is ? fewer : is;
        s = (Solve){.d = dag_of(g, &p, a), .a = a};
        *exact = solve_below(&s, known);
    }
    if (!*exact)
        return least;
    double found = value_of(&s, &s.best) * s.d->tick;
    return found < is ? found : is;
}
