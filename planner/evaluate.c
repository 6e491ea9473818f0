/*
 * evaluate.c - one way to train: what its actions take, its best schedule, its bytes.
 *
 * In: a cut, rows of a microbatch, ranks, replicas, microbatches, what is computed again.  Out: the
 * schedule with the shortest step among those whose ranks fit, found by schedule/synth/auto.c; then
 * its rows as they would run, with R, messages and sums over replicas, simulated once more.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file/machine.h"
#include "codegen/tables.h"
#include "schedule/rows.h"
#include "schedule/synth/auto.h"
#include "search.h"

/* A candidate while it is looked at. */
typedef struct {
    Search *x;
    Candidate *c;
    Arena *a;
    const Program *program;
    const StageCut *cut; /* seconds of the stages */
    Crossing cross;
    SchedCosts costs;
    SchedNeeds needs;
    MemoryAsked memory;
    int64_t *of_rank;
    SchedError *e;
} Trial;

/* ---- seconds --------------------------------------------------------------------------------- */

/* R of parts: what they compute, or what they write. */
static double cheap_seconds(const Rates *r, const PpStage *st)
{
    double sum = 0;
    for (int k = 0; k < st->n_again; k++) {
        double work = (double)st->again[k].flops / r->functions,
               moved = (double)st->again[k].bytes / r->moves;
        sum += work > moved ? work : moved;
    }
    return sum;
}

/* What the actions of a stage are of: seconds of the stages, with means of the lengths or some; on
   a card the program with these; its activations beside those of the greatest; what each action
   takes in any case; the part of its far bytes that is met in memory; with the R before a backward in
   it (fill_costs) */
typedef struct {
    const StageCut *cut;
    const Program *launched;
    double part, begin, far;
    bool folded;
} Moment;

/* On a card: of the launches of one function of a stage. */
static double of_launches(const Trial *t, const Moment *at, int stage, int function)
{
    return launches_seconds(t->c->cut->of->card, &at->launched->launches[stage]->of[function],
                            (double)t->c->size->rows);
}

/* Seconds of an R of stage s; 0: there is none. */
static double again_seconds(const Trial *t, const Moment *at, int s)
{
    const double begin = at->begin;
    const Candidate *c = t->c;
    const PpStage *st = t->program->plan.stage[s];
    double parts = 0;
    if (c->again == AGAIN_NEVER || !st->has_backward)
        return 0;
    if (c->again != AGAIN_CHEAP)
        return begin + (t->x->o->card ? of_launches(t, at, s, F_FORWARD)
                                           : at->cut->stage[s].forward);
    for (int k = 0; k < st->n_again && t->x->o->card; k++)
        parts += of_launches(t, at, s, F_AGAIN + k);
    if (!t->x->o->card)
        parts = at->part * cheap_seconds(&t->x->o->partition->automatic.rates, st);
    return st->n_again > 0 ? parts + begin : 0;
}

/* Sums over replicas, as runtime/plan/replicas.c does them: all but a share go and come, copied at
   either end; what comes is added: two are read, one is written.  own: what of that the rank
   computes with the cores that its actions want, too. */
static double reduction_seconds(const Candidate *c, const Rates *r, const PpStage *st, double *own)
{
    double part = (double)(c->replicas - 1) / c->replicas, times = c->zero ? 1 : 2;
    double bytes = part * (double)st->bytes.grad, added = 3 * bytes / r->updates;
    double carried = times * (bytes / r->link + (c->replicas - 1) / r->messages) + added;
    *own = times * bytes / r->moves + added;
    return carried > *own ? carried : *own;
}

/* A stage's parameters from the other replicas. */
static double gather_seconds(const Candidate *c, const Rates *r, const PpStage *st)
{
    double bytes = (double)(c->replicas - 1) / c->replicas * (double)st->bytes.param;
    return bytes / fmin(r->link, r->moves) + (c->replicas - 1) / r->messages;
}

/* Of messages: what rates say, or a run, whose sends and receives are actions with times of their
   own.  folded: the rows hold computations only. */
static void message_costs(const AutoOptions *o, const Rates *r, bool folded, SchedCosts *c)
{
    const double *mean = o->measured ? o->measured_action : NULL;
    c->latency = mean ? 0 : 1 / r->messages;
    c->per_byte = mean ? 0 : 1 / r->link;
    for (int k = SA_SEND_F; mean && k < SA_TYPES; k++)
        c->time[k] = folded ? 0 : mean[k];
    if (mean && folded)
        c->latency = mean[SA_SEND_F] + mean[SA_RECV_F];
}

/* The part of its far bytes that a rank meets in memory: none where a cache has all that it goes
   over in a step, parameters, gradients and stashes.  s: how many stashes there are; NULL: one. */
static double far_part(const Trial *t, const Schedule *s)
{
    const PpPlan *plan = &t->program->plan;
    double bytes = 0;
    for (int i = 0; i < plan->n_stage; i++) {
        const PpStage *st = plan->stage[i];
        bytes += (double)(st->bytes.param + st->bytes.grad);
        if (t->c->again <= AGAIN_CHEAP)
            bytes += (double)memory_stored(st) * (s ? sched_live(s, i) : 1) *
                     lengths_part(t->x, t->c, (uint32_t)i, stage_stash);
    }
    return rates_part(bytes / t->c->ranks, RATES_NEAR, RATES_FAR);
}

/* What no rate knows of a stage alone: how much its rank goes over. */
static void add_far(const Rates *r, const CutStage *at, double part, double *time)
{
    time[SA_F] += part * at->far[0] / r->parameters;
    time[SA_B] += part * (at->far[1] + at->far[2]) / r->gradients;
    time[SA_I] += part * at->far[1] / r->gradients;
    time[SA_W] += part * at->far[2] / r->gradients;
}

/* part: of what I leaves, that no cache has. */
static MoreDivided more_divided(const Rates *r, const PpStage *st, double part)
{
    return divided_seconds(st, r->quick, r->functions, r->traffic, r->left / fmax(part, 1e-9));
}

/* I and W, where what is known is a B, or a B where they are; a run that had both knows all.  I of
   a stage that was sent nothing with a gradient is empty. */
static void divide(const AutoOptions *o, const PpStage *st, const Moment *at, double *time)
{
    MoreDivided more = more_divided(&o->rates, st, at->far);
    const double begin = at->begin;
    more.input *= at->part;
    more.weight *= at->part;
    if (!o->measured || !o->measured_divided) {
        bool empty = st->flops.input == 0;
        time[SA_I] = empty ? begin : time[SA_I] + more.input;
        time[SA_W] = empty ? time[SA_B] : time[SA_W] + more.weight;
    } else if (!o->measured_whole) {
        time[SA_B] -= fmin(more.input + more.weight, 0.5 * time[SA_B]);
    }
}

/* What the actions of a stage take by the model of costs, or by a run. */
static void modelled_times(const Trial *t, int s, const Moment *m, double *time)
{
    const AutoOptions *o = &t->x->o->partition->automatic;
    const CutStage *at = &m->cut->stage[s];
    time[SA_F] = at->forward + m->begin;
    time[SA_I] = at->input + m->begin;
    time[SA_W] = at->weight + m->begin;
    time[SA_B] = at->whole + m->begin;
    if (!o->measured)
        add_far(&o->rates, at, m->far, time);
    divide(o, t->program->plan.stage[s], m, time);
}

/* On a card: by what they launch. */
static void forecast_times(const Trial *t, int s, const Moment *m, double *time)
{
    time[SA_F] = of_launches(t, m, s, F_FORWARD) + m->begin;
    time[SA_I] = of_launches(t, m, s, F_INPUT) + m->begin;
    time[SA_W] = of_launches(t, m, s, F_WEIGHT) + m->begin;
    time[SA_B] = of_launches(t, m, s, F_BACKWARD) + m->begin;
}

/* All that a microbatch takes in a stage. */
static void action_times(const Trial *t, int s, const Moment *m, double *time)
{
    const double stored = m->part * (double)memory_stored(t->program->plan.stage[s]);
    if (t->x->o->card)
        forecast_times(t, s, m, time);
    else
        modelled_times(t, s, m, time);
    double again = again_seconds(t, m, s), before = m->folded ? again : 0;
    time[SA_I] += before;
    time[SA_B] += before;
    time[SA_R] = again;
    time[SA_OFFLOAD] = time[SA_FETCH] =
        t->c->offload ? stored / t->x->o->partition->automatic.rates.offload : 0;
}

/* A stage at each knot. */
static void vary_stage(Trial *t, int s, Moment at)
{
    static const int type[] = {SA_F, SA_I, SA_W, SA_B, SA_R, SA_OFFLOAD, SA_FETCH};
    const Search *x = t->x;
    const StageCut *knot = candidate_knots(x, t->c);
    const CutStage *most = &t->cut->stage[s];
    SchedVary *v = t->costs.vary;
    double time[MOST_KNOTS * SA_TYPES], sent[MOST_KNOTS];
    for (uint32_t k = 0; k < x->n_knot; k++) {
        const CutStage *own = &knot[k].stage[s];
        at.cut = &knot[k];
        if (x->o->card)
            at.launched = cut_program_knot(t->x, t->c->cut, k);
        at.part = most->stash > 0 ? (double)own->stash / (double)most->stash : 1;
        action_times(t, s, &at, time + k * SA_TYPES);
        sent[k] = most->sent > 0 ? (double)own->sent / (double)most->sent : 1;
    }
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        v->time[s * SA_TYPES + type[i]] = lengths_fit(x, time + type[i], SA_TYPES);
    v->sent[s] = lengths_fit(x, sent, 1);
}

/* By the lengths that the microbatches of the data have; 0: e says why not. */
static int vary_costs(Trial *t, Moment at)
{
    const Candidate *c = t->c;
    const Lengths *l = t->x->o->ranges;
    SchedLengths of = c->size->lengths;
    of.replicas = c->replicas;
    of.microbatches = c->microbatches;
    if (sched_costs_by_length(&t->costs, l->symbols, (int)c->cut->stages, t->e))
        return 0;
    for (int v = 0; v < l->symbols; v++)
        snprintf(t->costs.vary->name[v], sizeof t->costs.vary->name[v], "%s", l->symbol[v].name);
    for (int s = 0; s < (int)c->cut->stages; s++)
        vary_stage(t, s, at);
    return !sched_costs_vary(&t->costs, &of, t->e);
}

/* of: the schedule, which is known; NULL: one is chosen by these, in whose rows an R is a part of
   the backward before which it stands. */
static int fill_costs(Trial *t, const Schedule *of)
{
    const Candidate *c = t->c;
    const AutoOptions *o = &t->x->o->partition->automatic;
    const Rates pipe = rates_of_pipe(t->x->o, c), peers = rates_of_replicas(t->x->o, c);
    const Moment now = {
        t->cut, t->program, 1, candidate_beginning(t->x), far_part(t, of), !of};
    int stages = (int)t->c->cut->stages;
    sched_costs_free(&t->costs);
    sched_costs_default(&t->costs);
    if (sched_costs_stages(&t->costs, stages, t->e))
        return 0;
    for (int s = 0; s < stages; s++) {
        const PpStage *st = t->program->plan.stage[s];
        double *time = t->costs.stage_time + (size_t)s * SA_TYPES;
        action_times(t, s, &now, time);
        time[SA_UNSHARD] = c->zero < 3 ? 0 : gather_seconds(c, &peers, st);
        t->costs.stage_reduction[s] = 0;
        if (t->c->replicas > 1)
            t->costs.stage_reduction[s] =
                reduction_seconds(t->c, &peers, st, &t->costs.stage_beside[s]);
    }
    message_costs(o, &pipe, now.folded, &t->costs);
    t->costs.edge = t->cross.edge;
    t->costs.n_edge = t->cross.n_edge;
    return t->x->n_knot == 0 || vary_costs(t, now);
}

/* On a card: of the rank that updates most; a share of it where replicas have one each. */
static double forecast_update(const Trial *t, const Schedule *s)
{
    const double part = candidate_share(t->c);
    double most = 0;
    for (int r = 0; r < s->ranks; r++) {
        double mine = 0;
        for (int i = 0; i < s->stages; i++)
            mine += s->rank_of[i] == r ? launches_update(t->x, t->program->launches[i], part) : 0;
        most = fmax(most, mine);
    }
    return most;
}

/* The end of a step: what members add up, the update, and of divided ones what comes of the others.
   Of a run's costs: what it took there, whatever its ranks. */
static double end_seconds(const Trial *t, const Schedule *s)
{
    const AutoOptions *o = &t->x->o->partition->automatic;
    int64_t gathered, bytes = memory_updated(&t->memory, s, &gathered);
    double update = o->measured_around > 0 ? o->measured_around
                    : t->x->o->card        ? forecast_update(t, s)
                                           : (double)bytes / o->rates.updates;
    const Rates members = rates_of_members(t->x->o, t->c->cut->of->members);
    double summed = o->measured_around > 0 ? 0
                                           : memory_summed(&t->program->plan, s, members.link,
                                                           members.messages);
    return update + summed + (double)gathered / rates_of_replicas(t->x->o, t->c).link;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Rows with copies, as many as there is time for. */
static Schedule *offloaded(Trial *t, const Schedule *s)
{
    double time = strtod(offload_time(t->x, t->c, t->a), NULL);
    return memory_offload(t->memory.model, s, &t->needs, time, t->e);
}

/* What of a microbatch's stash is computed again. */
static int32_t again_parts(const Candidate *c, const PpStage *st, int microbatch)
{
    if (!st->has_backward || c->again == AGAIN_NEVER)
        return 0;
    if (c->again == AGAIN_CHEAP)
        return (1 << st->n_again) - 1;
    return c->again == AGAIN_EXCEPT_LAST && microbatch == c->microbatches - 1 ? 0 : SCHED_WHOLE;
}

/* As the runtime lowers them; NULL: they cannot be, e says why. */
static Schedule *lowered(Trial *t, const Schedule *s)
{
    Schedule *rows = sched_clone(s);
    size_t n = (size_t)s->stages * (size_t)s->microbatches;
    int32_t *parts = calloc(n + 1, sizeof *parts);
    int bad = !rows || !parts;
    for (size_t i = 0; i < n && !bad; i++)
        parts[i] = again_parts(t->c, t->program->plan.stage[i / (size_t)s->microbatches],
                               (int)(i % (size_t)s->microbatches));
    bad = bad || (t->c->again != AGAIN_NEVER && sched_recompute(rows, parts, t->e));
    free(parts);
    if (!bad && t->c->offload) {
        Schedule *with = offloaded(t, rows);
        sched_free(rows);
        return with;
    }
    bad = bad || sched_lower_for(rows, &t->needs, t->e);
    if (!bad)
        return rows;
    sched_free(rows);
    return NULL;
}

static void remember_least(Trial *t, const Schedule *rows, int64_t bytes)
{
    Search *x = t->x;
    const Candidate *c = t->c;
    int most = 0, moved;
    if (x->least.bytes && bytes >= x->least.bytes)
        return;
    x->least.bytes = bytes;
    while (t->of_rank[most] < bytes)
        most++;
    memory_rank(&t->memory, rows, most, &moved, x->least.parts);
    snprintf(x->least.what, sizeof x->least.what,
             "%s%u stages on %d ranks, %d microbatches of %lld row%s, %s, --recompute %s%s%s",
             mesh_words(c, "", " ", t->a), c->cut->stages, c->ranks, c->microbatches,
             (long long)c->size->rows, c->size->rows == 1 ? "" : "s", rows->name,
             again_name(c->again), c->offload ? ", --offload stash" : "",
             c->zero ? arena_printf(t->a, ",%s", zero_words(c, t->a)) : "");
}

/* For sched_auto(): do all ranks fit? */
static int allow(void *of, const Schedule *s, char *why, size_t size)
{
    Trial *t = of;
    Search *x = t->x;
    int64_t floor = candidate_floor_of(x, t->c, s);
    if (floor > x->o->memory) {
        t->c->full = true;
        snprintf(why, size, "a rank takes %lld bytes and more", (long long)floor);
        if (!x->least.wanted || (x->least.bytes && floor >= x->least.bytes))
            return 0;
    }
    Schedule *rows = lowered(t, s);
    int64_t bytes = rows ? memory_of(&t->memory, rows, t->of_rank) : -1;
    if (bytes < 0)
        snprintf(why, size, "%.100s", rows ? "its memory cannot be planned" : t->e->text);
    else
        remember_least(t, rows, bytes);
    if (bytes > x->o->memory) {
        snprintf(why, size, "a rank takes %lld bytes", (long long)bytes);
        t->c->full = true;
    }
    sched_free(rows);
    return !why[0];
}

static void remember_why(const Trial *t)
{
    Search *x = t->x;
    const Candidate *c = t->c;
    if (!x->why[0] && t->e->text[0])
        snprintf(x->why, sizeof x->why, "%u stages on %d ranks, %d microbatches: %.100s",
                 c->cut->stages, c->ranks, c->microbatches, t->e->text);
}

/* The only one that is asked for. */
static Schedule *given(Trial *t)
{
    const Candidate *c = t->c;
    Schedule *s = NULL;
    char why[120] = "";
    if (sched_generate(t->x->o->only.schedule, c->ranks, (int)c->cut->stages, c->microbatches,
                       SCHED_PLACE_DEFAULT, &s, t->e)) {
        remember_why(t);
        return NULL;
    }
    sched_drop_idle(s);
    if (t->x->o->memory > 0 && !allow(t, s, why, sizeof why)) {
        sched_free(s);
        return NULL;
    }
    t->c->placement = SCHED_PLACE_DEFAULT;
    return s;
}

/* Decisions that making one may look at, where schedules are made. */
enum { MADE = SCHED_AUTO_WORK / 8 };

static Schedule *chosen(Trial *t)
{
    const Candidate *c = t->c;
    SchedAutoReport *report = calloc(1, sizeof *report);
    Schedule *s = NULL;
    SchedAuto ask = {.ranks = c->ranks,
                     .stages = (int)c->cut->stages,
                     .microbatches = c->microbatches,
                     .placement = SCHED_PLACE_DEFAULT,
                     .costs = &t->costs,
                     .work = t->x->made ? MADE : 0,
                     .param = t->cross.param,
                     .n_param = t->cross.n_param,
                     .buffers = t->needs.buffers,
                     .allow = t->x->o->memory > 0 ? allow : NULL,
                     .of = t};
    if (report && !sched_auto(&ask, &s, report, t->e)) {
        t->c->placement = report->tried[report->chosen].placement;
    } else {
        remember_why(t);
    }
    free(report);
    return s;
}

/* ---- the trial ------------------------------------------------------------------------------- */

static double crossing_bytes(const Trial *t, const Schedule *s)
{
    const Candidate *c = t->c;
    const int members = c->cut->of->members;
    double sum = 0, grads = 0, gathered = 0;
    for (int k = 0; k < t->cross.n_edge; k++) {
        const SchedEdge *edge = &t->cross.edge[k];
        if (s->rank_of[edge->from] != s->rank_of[edge->to])
            sum += c->microbatches * (edge->bytes_f + edge->bytes_b) *
                   lengths_part(t->x, c, (uint32_t)edge->from, stage_sent);
    }
    for (int i = 0; i < s->stages; i++) {
        const PpStage *st = t->program->plan.stage[i];
        grads += (double)st->bytes.grad;
        for (int k = 0; k < st->n_param; k++) {
            const PpParam *q = &st->param[k];
            if (q->use != PP_OWN && s->rank_of[q->from] != s->rank_of[i])
                sum += (double)q->t.bytes * (1 + (q->grad_offset >= 0));
        }
    }
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->row[r].n; i++)
            if (s->row[r].a[i].type == SA_UNSHARD)
                gathered += (double)t->program->plan.stage[s->row[r].a[i].stage]->bytes.param;
    for (int i = 0; i < s->stages; i++)
        sum += memory_exchanged(&t->program->plan, i, c->microbatches);
    return members *
           (c->replicas * sum + (c->replicas - 1) * (gathered + grads * (c->zero < 3 ? 2 : 1)));
}

static void measure(Trial *t, Schedule *s)
{
    Candidate *c = t->c;
    SchedSim sim;
    Schedule *rows = fill_costs(t, s) ? lowered(t, s) : NULL;
    /* it would be the plan without a store once more */
    bool idle = rows && c->offload && !t->x->o->only.offload && !sched_has_type(rows, SA_OFFLOAD);
    if (rows && !idle && !sched_simulate(rows, &t->costs, &sim, t->e)) {
        c->step = sim.makespan + end_seconds(t, rows);
        c->bubble = sim.bubble;
        c->memory = memory_of(&t->memory, rows, t->of_rank);
        c->traffic = crossing_bytes(t, rows);
        c->fits = c->memory >= 0;
        sched_free(c->rows);
        c->rows = s;
        snprintf(c->schedule, sizeof c->schedule, "%s", s->name);
        sched_sim_free(&sim);
    } else if (!rows) {
        remember_why(t);
    }
    sched_free(rows);
    if (!c->fits)
        sched_free(s);
}

static bool open_trial(Trial *t)
{
    const Search *x = t->x;
    const Candidate *c = t->c;
    t->e = calloc(1, sizeof *t->e);
    t->program = program_resized(cut_program(t->x, c->cut), c->size->rows, t->a);
    t->cut = candidate_measured(x, c);
    t->cross = crossing_of(&t->program->plan, t->a);
    t->of_rank = arena_array(t->a, int64_t, c->ranks + 1);
    t->needs = (SchedNeeds){.edge = t->cross.edge,
                            .n_edge = t->cross.n_edge,
                            .param = t->cross.param,
                            .n_param = t->cross.n_param,
                            .deferred_reduce = c->replicas > 1 && c->zero < 2,
                            .unshard = c->zero == 3 ? "1" : NULL,
                            .buffers = 1 << 20};
    t->memory = (MemoryAsked){.model = &t->program->plan,
                              .microbatches = c->microbatches,
                              .replicas = c->replicas,
                              .rows = x->o->batch / c->replicas,
                              .threads = x->o->threads,
                              .states = x->states,
                              .zero = c->zero};
    return t->e && fill_costs(t, NULL);
}

static void close_trial(Trial *t)
{
    sched_costs_free(&t->costs);
    free(t->e);
    arena_free(t->a);
}

void candidate_evaluate(Search *x, Candidate *c)
{
    Trial t = {.x = x, .c = c, .a = arena_new()};
    x->ways.tried += !c->evaluated;
    c->evaluated = true;
    c->fits = false;
    x->effort += (uint64_t)c->cut->stages * (uint64_t)c->microbatches *
                 (x->o->only.schedule ? 1 : KINDS) * (x->n_knot ? STEPS : 1);
    x->effort += x->made ? MADE : 0;
    if (open_trial(&t)) {
        Schedule *s = x->o->only.schedule ? given(&t) : chosen(&t);
        if (s)
            measure(&t, s);
    }
    close_trial(&t);
}

const int64_t *candidate_exact(Search *x, Candidate *c)
{
    Trial t = {.x = x, .c = c, .a = arena_new()};
    int64_t *of_rank = arena_array(x->a, int64_t, c->ranks + 1);
    bool fits = open_trial(&t);
    if (fits) {
        t.program = cut_program_rows(x, c->cut, c->size->rows);
        t.cross = crossing_of(&t.program->plan, t.a);
        t.needs.edge = t.cross.edge;
        t.needs.param = t.cross.param;
        t.memory.model = &t.program->plan;
        t.memory.placed = true;
        Schedule *rows = lowered(&t, c->rows);
        t.of_rank = of_rank;
        c->memory = rows ? memory_of(&t.memory, rows, of_rank) : -1;
        fits = c->memory >= 0 && (x->o->memory == 0 || c->memory <= x->o->memory);
        if (c->memory >= 0 && !fits)
            remember_least(&t, rows, c->memory);
        sched_free(rows);
    }
    close_trial(&t);
    return fits ? of_rank : NULL;
}
