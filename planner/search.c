/*
 * search.c - all ways to train, the shortest first.
 *
 * A way is a cut into S stages, P ranks for them, replicas of these, M microbatches of some rows,
 * and what is computed again.  Cuts are made once for each S; rows change what they cost, not where
 * they are.  Each way has a bound below its step: the work of the busiest rank, or that of the
 * slowest stage behind what comes before it.  They are looked at in the order of their bounds until
 * the next bound is above the last of the best ones; those that by the model of costs do not fit
 * come last, in the order of the bytes that they need.  What cannot fit with any schedule is not
 * looked at.  A cut is the fastest; where that does not fit, one for the memory is looked at, too.
 * Where nothing fits, the way that takes least is looked for.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cli/nearest.h"
#include "partition/print/print.h"
#include "runtime/optim/optim.h"
#include "search.h"

enum { CHUNKS = 4, MOST_LOOPED = 256 };
/* A node that is cut is as much work as so many actions that are planned. */
enum { SOLVED = 15 };

/* ---- cuts ------------------------------------------------------------------------------------ */

/* What the stages hold whatever else they do. */
static void weigh(const CutGraph *g, Cut *c, Arena *a)
{
    enum { STATES = 2 }; /* that the model of costs counts as owned */
    int64_t *held = arena_array(a, int64_t, c->stages),
            *trained = arena_array(a, int64_t, c->stages);
    for (uint32_t i = 0; i < g->param.n; i++) {
        const CutParam *p = &g->param.at[i];
        for (uint32_t k = 0, last = NONE; k < p->read.n; k++) {
            uint32_t s = c->found->stage_of[p->read.at[k]];
            held[s] += s != last ? p->held : 0;
            trained[s] += last == NONE ? p->owned / STATES : 0;
            last = s;
        }
    }
    c->held = held;
    c->trained = trained;
}

/* NULL: it is there already. */
static Cut *new_cut(Search *x, Division *d, const AutoSearch *of, const StageCut *found)
{
    for (uint32_t i = 0; i < d->cut.n; i++)
        if (d->cut.at[i]->stages == found->stages &&
            !memcmp(d->cut.at[i]->found->stage_of, found->stage_of,
                    of->cut.nodes * sizeof *found->stage_of))
            return NULL;
    Cut *c = arena_new_of(x->a, Cut);
    StageCut *own = arena_new_of(x->a, StageCut);
    *own = *found;
    c->of = d;
    c->stages = found->stages;
    c->found = own;
    weigh(&of->cut, c, x->a);
    vec_push(x->a, &d->cut, c);
    return c;
}

/* NULL: there is none. */
static Cut *cut_of(Search *x, Division *d, uint32_t stages)
{
    for (uint32_t i = 0; i < d->cut.n; i++)
        if (d->cut.at[i]->stages == stages)
            return d->cut.at[i];
    const AutoSearch *s = split_search_cuts(d->own);
    x->deep |= stages > MOST_STAGES && stages <= s->cut.nodes;
    if (stages < s->least || stages > s->cut.nodes || stages > MOST_STAGES)
        return NULL;
    plan_show("plan: a cut into %u stages%s", stages, plan_among(x, d));
    x->effort += SOLVED * (uint64_t)s->cut.nodes;
    StageCut found = auto_solve(s, &(AutoAsked){.stages = stages}, x->a);
    return found.stage_of ? new_cut(x, d, s, &found) : NULL;
}

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
                                    &(AutoAsked){.stages = stages,
                                                 .memory = (int64_t)((double)x->o->memory * part),
                                                 .live = live,
                                                 .rank_of = rank_of},
                                    x->a);
        cut = found.stage_of ? new_cut(x, c->cut->of, c->size->cuts, &found) : NULL;
    }
    free(e);
    return cut;
}

/* The first one's; what it says of the model holds for all. */
static const Program *any_program(Search *x)
{
    const Division *d = x->division.at[0];
    return d->forecast ? d->forecast : cut_program(x, d->cut.at[0]);
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Is there anything that is cheap to compute again? */
static bool has_parts(const Program *p)
{
    for (int s = 0; s < p->plan.n_stage; s++)
        if (p->plan.stage[s]->n_again > 0)
            return true;
    return false;
}

/* Of what is only of use where memory binds, or is asked for. */
static bool is_tried(Search *x, const Candidate *c)
{
    const PlanOptions *o = x->o;
    bool again = o->recompute ? strcmp(o->recompute, again_name(c->again)) == 0
                              : c->again == AGAIN_NEVER ||
                                    (o->memory > 0 &&
                                     (c->again != AGAIN_EXCEPT_LAST || c->microbatches > 1) &&
                                     (c->again != AGAIN_CHEAP || has_parts(any_program(x))));
    if (o->offload)
        return again && c->offload == (strcmp(o->offload, "stash") == 0);
    return again && (!c->offload || (o->memory > 0 && c->again <= AGAIN_CHEAP &&
                                     o->partition->automatic.rates.offload > 0));
}

/* What goes and comes is of use where memory binds, and a rank has several stages. */
static int zeros(const Search *x, const Candidate *c)
{
    int several = x->o->memory > 0 && (int)c->cut->stages > c->ranks;
    return c->replicas == 1 || !x->states ? 0 : several ? 3 : 1;
}

static void add(Search *x, Candidate c)
{
    for (int a = 0; a < AGAINS; a++)
        for (int offload = 0; offload < 2; offload++)
            for (int zero = 0; zero <= zeros(x, &c); zero++) {
                c.again = (Again)a;
                c.offload = offload;
                c.zero = zero;
                if (!is_tried(x, &c))
                    continue;
                candidate_estimate(x, &c);
                c.unlikely = x->o->memory > 0 && c.guess > (double)x->o->memory;
                vec_push(x->a, &x->list, c);
            }
}

/* Why a run refuses more than one microbatch, those of replicas among them; NULL: it does not. */
static const char *alone(Search *x)
{
    const PpPlan *p = &any_program(x)->plan;
    return p->target_why ? p->target_why : p->loss_why;
}

static void add_microbatches(Search *x, Cut *cut, int ranks, int replicas)
{
    int64_t rows = x->o->batch / replicas;
    const char *why = alone(x);
    for (int64_t m = 1; m <= rows; m++) {
        if (rows % m || (x->o->microbatches && m != x->o->microbatches))
            continue;
        if (why && m * replicas > 1) {
            x->alone = why;
            continue;
        }
        const Sized *size = size_of(x, cut->of, rows / m);
        if (size)
            add(x, (Candidate){.cut = cut,
                               .size = size,
                               .ranks = ranks,
                               .replicas = replicas,
                               .microbatches = (int)m});
    }
}

static void add_stages(Search *x, Division *d, int ranks, int replicas)
{
    const PlanOptions *o = x->o;
    if (o->stages) {
        Cut *c = o->stages >= ranks ? cut_of(x, d, (uint32_t)o->stages) : NULL;
        if (c)
            add_microbatches(x, c, ranks, replicas);
        return;
    }
    for (int v = 1; v <= (ranks == 1 ? 1 : CHUNKS) && (v == 1 || ranks * v <= MOST_LOOPED); v++) {
        Cut *c = cut_of(x, d, (uint32_t)(ranks * v));
        if (c)
            add_microbatches(x, c, ranks, replicas);
    }
}

/* A long pipeline with a microbatch for two ranks idles for two thirds of a step. */
static bool is_idle(const PlanOptions *o, int ranks, int replicas)
{
    enum { SHORT = 8 };
    return !o->dp && !o->stages && ranks > SHORT && ranks >= 2 * (o->batch / replicas);
}

/* All ways of so many members. */
static void add_ways(Search *x, Division *d)
{
    const PlanOptions *o = x->o;
    const int ranks = o->ranks / d->members;
    for (int replicas = 1; replicas <= ranks; replicas++)
        if (ranks % replicas == 0 && o->batch % replicas == 0 && (!o->dp || replicas == o->dp) &&
            (x->idle || !is_idle(o, ranks / replicas, replicas)))
            add_stages(x, d, ranks / replicas, replicas);
}

static void add_division(Search *x, PlanMesh mesh)
{
    Division *d = x->o->ranks % plan_members_of(&mesh) == 0 ? division_open(x, mesh) : NULL;
    if (d)
        add_ways(x, d);
}

/* Members are neighbours in a node.  Where memory is short, those that would be the fastest with
   more of it keep parts. */
static void add_meshes(Search *x)
{
    const PlanOptions *o = x->o;
    const int node = o->network.node ? o->network.node : o->ranks,
              most = o->whole ? 1 : node < MOST_MEMBERS ? node : MOST_MEMBERS;
    if (x->mesh.members[MESH_TENSOR]) {
        add_division(x, x->mesh);
        return;
    }
    for (int members = 1; members <= most; members *= 2)
        add_division(x, (PlanMesh){{members, 1, 1}, x->mesh.parts});
    const Candidate *short_of = NULL;
    for (uint32_t i = 0; i < x->list.n; i++) {
        const Candidate *c = &x->list.at[i];
        if (c->unlikely && c->cut->of->members > 1 && !x->mesh.parts &&
            candidate_even(x, c) < o->memory && (!short_of || c->estimate < short_of->estimate))
            short_of = c;
    }
    if (short_of)
        add_division(x, (PlanMesh){{short_of->cut->of->members, 1, 1}, true});
}

/* What fits by the model of costs by its estimate; then what is nearest to fit. */
static int by_estimate(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->unlikely != y->unlikely)
        return x->unlikely - y->unlikely;
    if (x->unlikely && x->guess != y->guess)
        return x->guess < y->guess ? -1 : 1;
    if (x->estimate != y->estimate)
        return x->estimate < y->estimate ? -1 : 1;
    if (x->again != y->again)
        return x->again < y->again ? -1 : 1;
    if (x->offload != y->offload)
        return x->offload - y->offload;
    if (x->replicas != y->replicas)
        return x->replicas < y->replicas ? -1 : 1;
    if (x->cut->stages != y->cut->stages)
        return x->cut->stages < y->cut->stages ? -1 : 1;
    if (x->cut->of != y->cut->of)
        return x->cut->of->members - y->cut->of->members;
    return x->zero - y->zero;
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
        x->large++;
    }
    return c->large;
}

static bool is_the_same(Search *x, const Candidate *c)
{
    bool same = c->again == AGAIN_CHEAP && !x->o->recompute && !has_parts(cut_program(x, c->cut));
    x->same += same;
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
    return cells > (x->o->schedule ? KINDS : 1) * (uint64_t)MOST_CELLS;
}

static void show_look(const Search *x, uint32_t i)
{
    char best[80] = "";
    if (x->n_best)
        snprintf(best, sizeof best, ", the best step takes %s", time_text(x->a, least(x)));
    plan_show("plan: %u of %u ways, %u looked at, %u too large%s", i + 1, x->list.n, x->tried,
              x->large, best);
}

static void look(Search *x, uint32_t from)
{
    for (uint32_t i = from; i < x->list.n; i++) {
        Candidate *c = &x->list.at[i];
        if (c->bound >= worst(x))
            continue;
        if (x->effort > EFFORT) {
            x->stopped = true;
            break;
        }
        show_look(x, i);
        if (is_large(x, c) || !is_of_use(x, i) || is_the_same(x, c) || !is_possible(x, c))
            continue;
        if (is_long(x, c)) {
            x->longer++;
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
        if ((c->again == AGAIN_EXCEPT_LAST && !x->o->recompute) || /* always takes no more */
            (is_long(x, c) && !x->o->schedule) ||
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

    if (o->schedule)
        check_schedule(o->schedule);
    if (o->offload && !strcmp(o->offload, "stash") && o->partition->automatic.rates.offload <= 0) {
        diag_hint("measure it with `pipeline measure --offload-dir DIR', or add a line `offload = "
                  "BYTES/S' to the file of --machine");
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--offload stash: the machine has no `offload', the speed of the store");
    }
    if (o->ranks % members)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "%d members of each stage do not divide %d ranks",
                   members, o->ranks);
    if (o->dp && o->ranks / members % o->dp)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--dp: %d replicas do not divide %d ranks", o->dp,
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
    x.own_rows = o->model.rows(o->model.of, &x.mesh);
    check(&x);
    begin_rows(&x);
    lengths_open(&x);
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
    if (o->csv && !o->schedule)
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
