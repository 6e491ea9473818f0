/*
 * schedule_auto.c - --schedule auto.  In: what stages cost, by their operations or by a trace
 * (--costs); --memory; out: rows of computations, and a line that says why these.
 *
 * Every rank chooses by itself from the same numbers, and run_hash() compares the rows.  What
 * operations, actions, messages and collectives take without a trace is that of a usual core or
 * device: of a small stage the actions count, of a large one its operations.  With --memory a
 * schedule competes if each rank's planned step fits; --recompute auto makes it fit afterwards.
 */
#include "exec.h"

#include "schedule/synth/auto.h"

typedef struct {
    Run *run;
    const SchedNeeds *needs;
    int64_t memory; /* 0: any */
    SchedError *e;
} Chooser;

/* In a second, and the seconds of an action or message beside what it computes or carries;
 * divided: what W meets or makes a second time.  The CPU's: what `pipeline measure` finds on
 * one core of the machine that partition/auto/rates.c is about. */
typedef struct {
    double operations, action, bytes, message;
    DividedRates divided;
} Usual;
static const Usual usual_cpu = {180e9, 10e-6, 12e9, 20e-6, {30e9, 1.7e9, 57e9, 12e9}},
                   usual_device = {20e12, 50e-6, 20e9, 20e-6, {10e12, 2e12, 1e12, 1e12}};

/* Of an action: its operations, and what members tell one another. */
static double action_time(const PpPlan *p, const PpStage *st, const Usual *u, int64_t flops,
                          int part)
{
    const Exchanges x = plan_exchanges(p, st, part);
    return (double)flops / u->operations + u->action + x.messages * u->message + x.bytes / u->bytes;
}

/* A B is one action; I and W are two, and take longer. */
static int by_operations(const PpPlan *p, SchedCosts *c)
{
    const Usual *u = p->device == PP_CPU ? &usual_cpu : &usual_device;
    double all = 0;
    for (int s = 0; s < p->n_stage; s++)
        all += (double)p->stage[s]->flops.forward;
    for (int s = 0; s < p->n_stage; s++) {
        const PpStage *st = p->stage[s];
        double *t = c->stage_time + (ptrdiff_t)s * SA_TYPES;
        t[SA_F] = t[SA_R] = action_time(p, st, u, st->flops.forward, 'F');
        t[SA_I] = action_time(p, st, u, st->flops.input, 'I');
        t[SA_W] = action_time(p, st, u, st->flops.weight, 'W');
        t[SA_B] = t[SA_I] + t[SA_W] - u->action;
        const Divided more = plan_divided(st, &u->divided);
        t[SA_I] += more.input;
        t[SA_W] += more.weight;
    }
    if (all > 0) {
        c->latency = u->message;
        c->per_byte = 1 / u->bytes;
        return 1;
    }
    for (int k = 0; k < p->n_stage * SA_TYPES; k++)
        c->stage_time[k] = -1;
    return 0;
}

/* Does the planned step of each rank fit? */
static int allow(void *of, const Schedule *s, char *why, size_t size)
{
    Chooser *c = of;
    Run with = *c->run;
    with.sched = sched_clone(s);
    PpStatus st = with.sched ? recompute_insert(&with) : pp_no_memory();
    if (st == PP_OK && sched_lower_for(with.sched, c->needs, c->e)) {
        snprintf(why, size, "%.100s", c->e->text);
        st = PP_ERR_MODEL;
    }
    for (int r = 0; r < s->ranks && st == PP_OK && !why[0]; r++) {
        int64_t bytes;
        int moved;
        st = schedule_bytes(&with, with.sched, r, 1, &bytes, &moved);
        if (st == PP_OK && bytes > c->memory)
            snprintf(why, size, "rank %d takes %lld bytes", r, (long long)bytes);
    }
    if (st != PP_OK && !why[0])
        snprintf(why, size, "its memory cannot be planned");
    sched_free(with.sched);
    return !why[0];
}

/* How many with more chunks alive than these do not fit and would take less time. */
static int unfit(const SchedAutoReport *r, int chunks, double makespan)
{
    int n = 0;
    for (int i = 0; i < r->n; i++)
        n += r->tried[i].unfit && r->tried[i].peak > chunks && r->tried[i].makespan < makespan;
    return n;
}

/* Under --memory schedules are also made with no more alive than in the best one that fits.
   left_out: how many were shorter and do not fit. */
static int choose(const SchedAuto *a, Schedule **out, SchedAutoReport *report, int *left_out,
                  SchedError *e)
{
    int st = sched_auto(a, out, report, e);
    *left_out = st ? 0 : unfit(report, 0, report->tried[report->chosen].makespan);
    if (st || !a->allow)
        return st;
    SchedAuto less = *a;
    POOL(room);
    SchedAutoReport *again = pool_take(&room, 1, sizeof *again);
    Schedule *other = NULL;
    less.chunks = report->tried[report->chosen].peak;
    double best = report->tried[report->chosen].makespan * (1 - 1e-9);
    if (again && !sched_auto(&less, &other, again, e) &&
        again->tried[again->chosen].makespan < best) {
        Schedule *swap = *out;
        *out = other;
        other = swap;
        best = again->tried[again->chosen].makespan;
        *left_out = unfit(report, less.chunks, best) + unfit(again, 0, best);
        *report = *again;
    }
    sched_free(other);
    return SCHED_OK;
}

/* The name, how many there were, and the best of those that take longer. */
static void explain(Run *run, const SchedAutoReport *r, int left_out, int known)
{
    const Options *o = run->opt;
    const SchedTried *best = &r->tried[r->chosen], *next = NULL;
    char *text = run->chosen;
    size_t size = sizeof run->chosen, n = 0;
    int compared = 0;
    for (int i = 0; i < r->n; i++) {
        const SchedTried *t = &r->tried[i];
        compared += !t->why[0];
        if (!t->why[0] && t->makespan > best->makespan * (1 + 1e-9) &&
            (!next || t->makespan < next->makespan))
            next = t;
    }
    n += (size_t)snprintf(text, size, "schedule auto: %s (%s), the shortest of %d compared by ",
                          best->name, sched_placement_name(best->placement), compared);
    n += (size_t)snprintf(text + n, n < size ? size - n : 0, "%s%.120s: %.6g %s",
                          o->schedule.costs ? "the times in "
                          : known           ? "their operations"
                                            : "their actions",
                          o->schedule.costs ? o->schedule.costs : "",
                          known ? 1e6 * best->makespan : best->makespan,
                          o->schedule.costs || known ? "us" : "actions");
    if (next && n < size)
        n += (size_t)snprintf(text + n, size - n, "; next %s: %.6g (%+.1f %%)", next->name,
                              known ? 1e6 * next->makespan : next->makespan,
                              100 * (next->makespan / best->makespan - 1));
    if (left_out && n < size)
        snprintf(text + n, size - n, "; %d that were shorter do not fit --memory", left_out);
}

/* Of all microbatches of an epoch, as the data have them. */
static PpStatus lengths_of_data(const Data *d, Pool *pool, SchedLengths *l)
{
    const int chunks = data_chunks(d) * d->replicas, n = d->model->n_length;
    int64_t *order;
    TRY(pp_take(pool, &order, d->rows, sizeof *order));
    TRY(order_rows(d, 0, order));
    *l = (SchedLengths){.n = n,
                        .steps = (int)(d->rows / d->batch),
                        .replicas = chunks / d->microbatches,
                        .microbatches = d->microbatches};
    TRY(pp_take(pool, &l->length, (int64_t)l->steps * chunks * n, sizeof *l->length));
    for (int v = 0; v < n; v++)
        l->name[v] = d->model->length[v].name;
    double *to = l->length;
    for (int64_t step = 0; step < l->steps; step++)
        for (int k = 0; k < chunks; k++) {
            const PpLength of = data_length(d, order + step * d->batch, d->row0[k], d->row0[k + 1]);
            for (int v = 0; v < n; v++)
                *to++ = (double)of.of[v];
        }
    return PP_OK;
}

static int by_trace(const Run *run, SchedCosts *c, SchedError *e)
{
    SchedLengths l = {.n = 0};
    const int vary = run->opt->data.lengths.n > 0;
    POOL(pool);
    if (vary && lengths_of_data(&run->data, &pool, &l) != PP_OK)
        return SCHED_ERESOURCE;
    return sched_costs_load(c, run->opt->schedule.costs, run->model->n_stage, vary ? &l : NULL, e);
}

PpStatus schedule_choose(Run *run, const SchedNeeds *needs, SchedError *e)
{
    const Options *o = run->opt;
    Chooser c = {run, needs, recompute_is_auto(o) ? 0 : o->memory.limit, e};
    SchedCosts costs;
    POOL(room);
    SchedAutoReport *report = pool_take(&room, 1, sizeof *report);
    int stages = run->model->n_stage, known = 0, left_out;
    e->text[0] = 0;
    sched_costs_default(&costs);
    int st = !report             ? SCHED_ERESOURCE
             : o->schedule.costs ? by_trace(run, &costs, e)
                                 : sched_costs_stages(&costs, stages, e);
    if (!st && !o->schedule.costs)
        known = by_operations(run->model, &costs);
    costs.edge = needs->edge;
    costs.n_edge = needs->n_edge;
    SchedAuto a = {.ranks = run->ranks,
                   .stages = stages,
                   .microbatches = run->data.microbatches,
                   .placement = o->schedule.placement,
                   .costs = &costs,
                   .work = SCHED_AUTO_WORK,
                   .param = needs->param,
                   .n_param = needs->n_param,
                   .buffers = needs->buffers,
                   .allow = c.memory ? allow : NULL,
                   .of = &c};
    if (!st)
        st = choose(&a, &run->sched, report, &left_out, e);
    if (!st)
        explain(run, report, left_out, known), e->text[0] = 0;
    sched_costs_free(&costs);
    return st == SCHED_OK ? PP_OK : st == SCHED_ERESOURCE ? PP_ERR_IO : PP_ERR_MODEL;
}
