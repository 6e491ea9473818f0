/*
 * search.c - all ways to train, the shortest first.
 *
 * Ways (ways.c) are looked at in the order of their estimates.  Each has a bound below its step: the
 * work of the busiest rank, or that of the slowest stage behind what comes before it; where that is
 * above the last of the best ones it is passed over.  Those that by the model of costs do not fit
 * come last, in the order of the bytes that they need.  What cannot fit with any schedule is not
 * looked at.  A cut is the fastest; where that does not fit, one for the memory is looked at, too.
 * Where nothing fits, the way that takes least is looked for.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cli/nearest.h"
#include "base/file/replace.h"
#include "partition/print/print.h"
#include "runtime/optim/optim.h"
#include "search.h"

/* beside an estimate: what has one so much longer than a step is hardly shorter */
static const double FAR_FROM_BEST = 1.2;

/* ---- cuts for the memory --------------------------------------------------------------------- */

/* Where the fastest cut does not fit: one whose stages' own bytes do, as 1f1b holds them. */
static Cut *tight_cut(Search *x, const Candidate *c, double part)
{
    Schedule *s;
    SchedError *e = calloc(1, sizeof *e);
    uint32_t stages = c->cut->stages, *live = arena_array(x->a, uint32_t, stages),
             *rank_of = arena_array(x->a, uint32_t, stages);
    Cut *cut = NULL;
    if (e && !sched_generate("1f1b", c->ranks, (int)stages, c->microbatches, SCHED_PLACE_DEFAULT,
                             &s, e)) {
        for (uint32_t i = 0; i < stages; i++) {
            live[i] = (uint32_t)sched_live(s, (int)i);
            rank_of[i] = (uint32_t)s->rank_of[i];
        }
        sched_free(s);
        plan_show("plan: a cut into %u stages for less memory", stages);
        x->effort += SOLVED * (uint64_t)c->size->cuts->cut.nodes;
        StageCut found = auto_solve(c->size->cuts,
                                    &(CutProblem){.stages = stages,
                                                 .memory = (int64_t)((double)x->o->memory * part),
                                                 .live = live,
                                                 .rank_of = rank_of},
                                    x->a);
        cut = found.stage_of ? cut_new(x, c->cut->of, c->size->cuts, &found) : NULL;
    }
    free(e);
    return cut;
}

/* ---- the best -------------------------------------------------------------------------------- */

static double worst(const Search *x)
{
    return x->n_best < PLANS_KEPT ? 1e300 : x->list.at[x->best[x->n_best - 1]].step;
}

static void keep(Search *x, uint32_t i)
{
    const Candidate *c = &x->list.at[i];
    for (uint32_t k = 0, n = x->n_best; k < n; k++) { /* it may be there */
        x->best[k - (n - x->n_best)] = x->best[k];
        x->n_best -= x->best[k] == i;
    }
    if (!c->fits || c->step >= worst(x))
        return;
    uint32_t at = x->n_best < PLANS_KEPT ? x->n_best++ : PLANS_KEPT - 1;
    for (; at > 0 && x->list.at[x->best[at - 1]].step > c->step; at--)
        x->best[at] = x->best[at - 1];
    x->best[at] = i;
}

/* What is computed again, or waits in a store, is of use where less of it does not fit. */
static bool is_of_use(const Search *x, uint32_t i)
{
    const Candidate *c = &x->list.at[i];
    for (uint32_t k = 0; k < i; k++) {
        const Candidate *b = &x->list.at[k];
        if (b->cut == c->cut && b->size == c->size && b->replicas == c->replicas &&
            b->zero == c->zero && b->again <= c->again && b->offload <= c->offload &&
            b->evaluated && !b->full)
            return false;
    }
    return true;
}

/* The best step so far. */
static double least(const Search *x)
{
    return x->n_best ? x->list.at[x->best[0]].step : 1e300;
}

/* What no schedule makes room for needs none. */
static bool is_large(Search *x, Candidate *c)
{
    if (x->o->memory > 0 && !c->large && candidate_floor(x, c) > x->o->memory) {
        c->full = c->large = true;
        x->ways.large++;
    }
    return c->large;
}

static bool is_the_same(Search *x, const Candidate *c)
{
    bool same =
        c->again == AGAIN_CHEAP && !x->o->only.recompute && !has_parts(cut_program(x, c->cut));
    x->ways.same += same;
    return same;
}

/* On a card no reading has shown that there may be so many rows. */
static bool is_possible(Search *x, const Candidate *c)
{
    return !c->cut->of->card || has_rows(x, x->division.at[0], c->size->rows);
}

/* It would take longer than all others. */
static bool is_long(const Search *x, const Candidate *c)
{
    uint64_t cells = (uint64_t)c->microbatches * c->cut->stages;
    return cells > (x->o->only.schedule ? KINDS : 1) * (uint64_t)MOST_CELLS;
}

static void show_look(const Search *x, uint32_t i)
{
    char best[80] = "";
    if (x->n_best)
        snprintf(best, sizeof best, ", the best step takes %s", time_text(x->a, least(x)));
    plan_show("plan: %u of %u ways, %u looked at, %u too large%s", i + 1, x->list.n, x->ways.tried,
              x->ways.large, best);
}

static void look(Search *x, uint32_t from)
{
    for (uint32_t i = from; i < x->list.n; i++) {
        Candidate *c = &x->list.at[i];
        if (c->bound >= worst(x))
            continue;
        if (x->effort > (c->estimate > FAR_FROM_BEST * worst(x) ? EFFORT / 4 : EFFORT)) {
            x->stopped = true;
            continue; /* behind it there may be others whose estimates are nearer */
        }
        show_look(x, i);
        if (is_large(x, c) || !is_of_use(x, i) || is_the_same(x, c) || !is_possible(x, c))
            continue;
        if (is_long(x, c)) {
            x->ways.longer++;
            continue;
        }
        candidate_evaluate(x, c);
        keep(x, i);
    }
}

/* Candidates with cuts for so much memory, of all stages and ranks of which some schedule did not
   fit that could have been the best; how many. */
static uint32_t add_tight(Search *x, uint32_t n, double part)
{
    uint32_t from = x->list.n;
    for (uint32_t i = 0; i < n; i++) {
        Candidate c = x->list.at[i];
        bool first = c.full && c.bound < least(x) && !x->stopped &&
                     (double)candidate_even(x, &c) < part * (double)x->o->memory;
        for (uint32_t j = 0; j < i && first; j++)
            first = !x->list.at[j].full || x->list.at[j].cut->stages != c.cut->stages ||
                    x->list.at[j].ranks != c.ranks;
        Cut *cut = first ? tight_cut(x, &c, part) : NULL;
        if (cut)
            add_microbatches(x, cut, c.ranks, c.replicas);
    }
    if (x->list.n > from)
        qsort(x->list.at + from, x->list.n - from, sizeof *x->list.at, by_estimate);
    return x->list.n - from;
}

/* Once more with cuts for the memory, for what the fastest cut had no room for; and if none fits
   then, with those for a little more, to say what would. */
static void look_tighter(Search *x)
{
    static const double part[] = {0.95, 0.8, 1.05, 1.15, 1.3, 1.5, 1.8, 2.5, 4};
    enum { FIT = 2, PARTS = sizeof part / sizeof *part };
    const uint64_t until = x->effort + EFFORT / 8;
    uint32_t n = x->list.n, added = 0;
    bool fits = x->n_best > 0;
    for (int k = 0; k < PARTS && !x->stopped && x->effort < until; k++) {
        if (fits ? k >= FIT : x->n_best > 0 || (k >= FIT && added > 0))
            break;
        uint32_t from = x->list.n;
        added = add_tight(x, n, part[k]);
        look(x, from);
    }
}

/* ---- nothing fits ---------------------------------------------------------------------------- */

static int by_guess(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    return x->guess != y->guess ? x->guess < y->guess ? -1 : 1 : by_estimate(a, b);
}

/* The way that takes least; of ways that were passed over one may still fit. */
static void look_for_least(Search *x)
{
    x->least.wanted = true;
    x->effort = 0;
    if (x->list.n > 0)
        qsort(x->list.at, x->list.n, sizeof *x->list.at, by_guess);
    for (uint32_t i = 0; i < x->list.n && !x->least.stopped; i++) {
        Candidate *c = &x->list.at[i];
        plan_show("plan: nothing fits; %u of %u ways for what takes least", i + 1, x->list.n);
        if ((c->again == AGAIN_EXCEPT_LAST && !x->o->only.recompute) || /* always takes no more */
            (is_long(x, c) && !x->o->only.schedule) ||
            (x->least.bytes && candidate_floor(x, c) >= x->least.bytes))
            continue;
        candidate_evaluate(x, c);
        keep(x, i);
        x->least.stopped = x->effort > EFFORT / 3;
    }
}

/* ---- made to measure ------------------------------------------------------------------------- */

/* Once more, of what was looked at, with schedules that are made. */
static void look_made(Search *x)
{
    x->made = true;
    x->effort = 0;
    for (uint32_t i = 0; i < x->list.n && x->effort <= EFFORT / 2; i++) {
        Candidate *c = &x->list.at[i];
        if (!c->evaluated || c->bound >= least(x))
            continue;
        plan_show("plan: %u of %u ways, schedules are made to measure", i + 1, x->list.n);
        candidate_evaluate(x, c);
        keep(x, i);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

int optimizer_states(const char *name)
{
    char names[400] = "";
    OptimKind kind;
    if (optim_find(name, &kind))
        return optimizers[kind].states;
    for (int i = 0, n = 0; i < OPTIMIZERS && n < (int)sizeof names; i++)
        n += snprintf(names + n, sizeof names - (size_t)n, "%s%s", i ? ", " : "",
                      optimizers[i].name);
    diag_fatal(EXIT_USAGE, WHERE_NONE, "--optimizer: unknown optimizer '%s'; there are %s", name,
               names);
}

static void check_schedule(const char *name)
{
    enum { MOST = 40 };
    const char *names[MOST];
    char meant[400];
    size_t n = 0;
    if (sched_find(name))
        return;
    if (!strcmp(name, "auto")) {
        diag_hint("leave it out: a plan compares all schedules, and with --csv FILE also some that "
                  "are made to measure");
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--schedule: 'auto' is not a single schedule");
    }
    for (; n < MOST && sched_kind((int)n); n++)
        names[n] = sched_kind((int)n)->name;
    nearest_text(name, names, n, meant, sizeof meant);
    diag_fatal(EXIT_USAGE, WHERE_NONE, "--schedule: unknown schedule '%s'%s", name, meant);
}

static void check(const Search *x)
{
    const PlanOptions *o = x->o;
    const int members = plan_members_of(&x->mesh);

    if (o->only.schedule)
        check_schedule(o->only.schedule);
    if (o->only.offload && !strcmp(o->only.offload, "stash") &&
        o->partition->automatic.rates.offload <= 0) {
        diag_hint("measure it with `pipeline measure --offload-dir DIR', or add a line `offload = "
                  "BYTES/S' to the file of --machine");
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--offload stash: the machine has no `offload', the speed of the store");
    }
    if (o->ranks % members)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "%d members of each stage do not divide %d ranks",
                   members, o->ranks);
    if (o->only.dp && o->ranks / members % o->only.dp)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--dp: %d replicas do not divide %d ranks", o->only.dp,
                   o->ranks / members);
}

/* What launches take is known by rows (PerRows), but of a program for one row. */
static void begin_rows(Search *x)
{
    Division *whole = arena_new_of(x->a, Division);
    vec_push(x->a, &x->seen, x->own_rows);
    whole->mesh = (PlanMesh){.members = {1, 1, 1}};
    if (x->o->card && x->own_rows == 1 && has_rows(x, whole, 2))
        x->own_rows = 2;
}

void plan_search(void *options)
{
    const PlanOptions *o = options;
    Search x = {.o = o, .a = o->arena, .states = optimizer_states(o->optimizer)};
    char why[FILE_WHY];
    x.own_rows = o->model.rows(o->model.of, &x.mesh);
    check(&x);
    begin_rows(&x);
    lengths_open(&x);
    if (o->csv && file_try(o->csv, why))
        diag_fatal(EXIT_IO, WHERE_FILE(o->csv), "--csv: %s", why);
    add_meshes(&x);
    x.idle = true;
    for (uint32_t i = 0; i < x.division.n && x.list.n == 0; i++)
        add_ways(&x, x.division.at[i]);
    x.effort = 0;
    if (x.list.n > 0)
        qsort(x.list.at, x.list.n, sizeof *x.list.at, by_estimate);
    look(&x, 0);
    if (o->memory)
        look_tighter(&x);
    if (o->csv && !o->only.schedule)
        look_made(&x);
    if (o->memory && x.n_best == 0)
        look_for_least(&x);
    plan_show("%s", "");
    if (x.n_best == 0)
        plans_none(&x);
    plans_tell(&x);
    for (uint32_t i = 0; i < x.list.n; i++)
        sched_free(x.list.at[i].rows);
}
