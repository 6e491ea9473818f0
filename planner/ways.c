/*
 * ways.c - all ways to train, each with its estimate.
 *
 * A way is a mesh of members, a cut into S stages, P ranks for them, replicas of these and what they
 * divide, M microbatches of some rows, and what is computed again.  Cuts are made once for each S;
 * rows change what they cost, not where they are.  A mesh is costed once, which takes longer than
 * all the ways that it has.
 */
#include <stdlib.h>
#include <string.h>

#include "search.h"

enum { CHUNKS = 4, MOST_LOOPED = 256 };
/* beside the best estimate */
static const double NEAR_BEST = 1.1;

/* ---- cuts ------------------------------------------------------------------------------------ */

/* What the stages hold whatever else they do. */
static void weigh(const CutGraph *g, Cut *c, Arena *a)
{
    enum { STATES = 2 }; /* that the model of costs counts as owned */
    int64_t *held = arena_array(a, int64_t, c->stages),
            *trained = arena_array(a, int64_t, c->stages);
    double *summed = arena_array(a, double, c->stages);
    for (uint32_t i = 0; i < g->param.n; i++) {
        const CutParam *p = &g->param.at[i];
        for (uint32_t k = 0, last = NONE; k < p->read.n; k++) {
            uint32_t s = c->found->stage_of[p->read.at[k]];
            held[s] += s != last ? p->held : 0;
            trained[s] += last == NONE ? p->owned / STATES : 0;
            summed[s] += last == NONE ? p->summed : 0;
            last = s;
        }
    }
    c->held = held;
    c->trained = trained;
    c->summed = summed;
}

/* NULL: it is there already. */
Cut *cut_new(Search *x, Division *d, const AutoSearch *of, const StageCut *found)
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
    const AutoSearch *s = split_search_cuts(d->most.own);
    x->deep |= stages > MOST_STAGES && stages <= s->cut.nodes;
    if (stages < s->least || stages > s->cut.nodes || stages > MOST_STAGES)
        return NULL;
    plan_show("plan: a cut into %u stages%s", stages, plan_among(x, d));
    x->effort += SOLVED * (uint64_t)s->cut.nodes;
    StageCut found = auto_solve(s, &(CutProblem){.stages = stages}, x->a);
    return found.stage_of ? cut_new(x, d, s, &found) : NULL;
}

/* The first one's; what it says of the model holds for all. */
static const Program *any_program(Search *x)
{
    const Division *d = x->division.at[0];
    return d->most.forecast ? d->most.forecast : cut_program(x, d->cut.at[0]);
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Is there anything that is cheap to compute again? */
bool has_parts(const Program *p)
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
    bool again = o->only.recompute ? strcmp(o->only.recompute, again_name(c->again)) == 0
                                   : c->again == AGAIN_NEVER ||
                                         (o->memory > 0 &&
                                          (c->again != AGAIN_EXCEPT_LAST || c->microbatches > 1) &&
                                          (c->again != AGAIN_CHEAP || has_parts(any_program(x))));
    if (o->only.offload)
        return again && c->offload == (strcmp(o->only.offload, "stash") == 0);
    return again && (!c->offload || (o->memory > 0 && c->again <= AGAIN_CHEAP &&
                                     o->partition->automatic.rates.offload > 0));
}

/* The most that replicas divide.  What goes and comes is of use where memory binds, and a rank has
   several stages. */
static int zeros(const Search *x, const Candidate *c)
{
    int several = x->o->memory > 0 && (int)c->cut->stages > c->ranks;
    return c->replicas == 1       ? 0
           : x->o->only.zero >= 0 ? x->o->only.zero
           : !x->states           ? 0
           : several              ? 3
                                  : 1;
}

static void add(Search *x, Candidate c)
{
    for (int a = 0; a < AGAINS; a++)
        for (int offload = 0; offload < 2; offload++)
            for (int most = zeros(x, &c), zero = x->o->only.zero < 0 ? 0 : most; zero <= most;
                 zero++) {
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
    return p->loss.target_why ? p->loss.target_why : p->loss.why;
}

void add_microbatches(Search *x, Cut *cut, int ranks, int replicas)
{
    int64_t rows = x->o->batch / replicas;
    const char *why = alone(x);
    for (int64_t m = 1; m <= rows; m++) {
        if (rows % m || (x->o->only.microbatches && m != x->o->only.microbatches) ||
            (x->o->only.rows && rows / m != x->o->only.rows))
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
    if (o->only.stages || o->only.each) {
        const int64_t of_each = (int64_t)ranks * o->only.each,
                      stages = o->only.stages ? o->only.stages : of_each;
        const bool is_so =
            stages >= ranks && stages <= UINT32_MAX && (!o->only.each || stages == of_each);
        Cut *c = is_so ? cut_of(x, d, (uint32_t)stages) : NULL;
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
    return !o->only.dp && !o->only.stages && ranks > SHORT && ranks >= 2 * (o->batch / replicas);
}

/* All ways of so many members. */
void add_ways(Search *x, Division *d)
{
    const PlanOptions *o = x->o;
    const int ranks = o->ranks / d->members;
    for (int replicas = 1; replicas <= ranks; replicas++)
        if (ranks % replicas == 0 && o->batch % replicas == 0 &&
            (!o->only.dp || replicas == o->only.dp) &&
            (x->idle || !is_idle(o, ranks / replicas, replicas)))
            add_stages(x, d, ranks / replicas, replicas);
}

/* ---- meshes ---------------------------------------------------------------------------------- */

/* Does it divide anything? */
static bool add_division(Search *x, PlanMesh mesh)
{
    const uint32_t from = x->list.n;
    Division *d = x->o->ranks % plan_members_of(&mesh) == 0 ? division_open(x, mesh) : NULL;
    if (!d)
        return false;
    add_ways(x, d);
    d->best = 1e300;
    for (uint32_t i = from; i < x->list.n; i++) {
        const Candidate *c = &x->list.at[i];
        if (c->estimate < d->best && (!x->o->memory || candidate_even(x, c) < x->o->memory))
            d->best = c->estimate;
    }
    return true;
}

/* Does it double members of a mesh that is about the best of all, were there room for all but
   parameters? */
static bool is_promising(const Search *x, const int *members)
{
    double best = 1e300, half = 1e301;
    for (uint32_t i = 0; i < x->division.n; i++) {
        const Division *d = x->division.at[i];
        int others = 0, halves = 0;
        for (int k = 0; k < MESH_AXES; k++) {
            others += d->mesh.members[k] != members[k];
            halves += 2 * d->mesh.members[k] == members[k];
        }
        best = d->best < best ? d->best : best;
        half = others == 1 && halves == 1 && d->best < half ? d->best : half;
    }
    return half <= NEAR_BEST * best;
}

/* So many members along all axes; tensor's alone are always looked at, others while there is time,
   of which those that do not promise much have less.  none: by axis, so many divide nothing. */
static void add_members(Search *x, int all, int *none)
{
    for (int e = 1; e <= all; e *= 2)
        for (int s = 1; s * e <= all; s *= 2) {
            const PlanMesh mesh = {{all / s / e, s, e}, x->mesh.parts};
            const bool layers = mesh.members[MESH_TENSOR] == all;
            if (mesh.members[MESH_TENSOR] >= none[MESH_TENSOR] || s >= none[MESH_SEQUENCE] ||
                e >= none[MESH_EXPERT])
                continue;
            const bool late = x->effort > (is_promising(x, mesh.members) ? EFFORT / 4 : EFFORT / 8);
            x->narrow |= late && !layers;
            if ((layers || !late) && !add_division(x, mesh) && (layers || s == all || e == all))
                none[e == all ? MESH_EXPERT : s == all ? MESH_SEQUENCE : MESH_TENSOR] = all;
        }
}

/* Members are neighbours in a node.  Where memory is short, those that would be the fastest with
   more of it keep parts. */
void add_meshes(Search *x)
{
    const PlanOptions *o = x->o;
    const int node = o->network.node ? o->network.node : o->ranks,
              most = o->whole ? 1 : node < MOST_MEMBERS ? node : MOST_MEMBERS;
    int none[MESH_AXES] = {MESH_MOST + 1, MESH_MOST + 1, MESH_MOST + 1};
    if (x->mesh.members[MESH_TENSOR]) {
        add_division(x, x->mesh);
        return;
    }
    for (int members = 1; members <= most; members *= 2)
        add_members(x, members, none);
    const Candidate *short_of = NULL;
    for (uint32_t i = 0; i < x->list.n; i++) {
        const Candidate *c = &x->list.at[i];
        if (c->unlikely && c->cut->of->mesh.members[MESH_TENSOR] > 1 && !x->mesh.parts &&
            candidate_even(x, c) < o->memory && (!short_of || c->estimate < short_of->estimate))
            short_of = c;
    }
    if (short_of) {
        PlanMesh parts = short_of->cut->of->mesh;
        parts.parts = true;
        add_division(x, parts);
    }
}

/* What fits by the model of costs by its estimate; then what is nearest to fit. */
int by_estimate(const void *a, const void *b)
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
    const PlanMesh *m = &x->cut->of->mesh, *n = &y->cut->of->mesh;
    if (x->cut->of->members != y->cut->of->members)
        return x->cut->of->members - y->cut->of->members;
    for (int k = 0; k < MESH_AXES; k++)
        if (m->members[k] != n->members[k])
            return n->members[k] - m->members[k];
    return x->zero - y->zero;
}
