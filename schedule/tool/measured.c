/*
 * measured.c - a run's trace as a schedule with times, for all that draws a simulation.
 *
 * In: the Chrome trace of a run.  Out: the actions of one step as rows, in the order in which they
 * ran, and when each began and ended, in microseconds from the step's first action.  The step is
 * that of median length, the first one apart where there are others: it warms caches and pages.
 * Of several replicas of the pipeline it is the first, and of the members of a rank.
 */
#include "base/file/memory.h"
#include "schedule/graph.h"
#include "schedule/rows.h"
#include "schedule/simulate/trace.h"
#include "tool.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    SchedAction a;
    int step, line;
    double start, end, bytes;
} Event;

typedef struct {
    int step;
    double start, end;
} Step;

/* Bytes of a rank; -1: not said */
typedef struct {
    double planned, always;
} Planned;

typedef struct {
    Event *at;
    int n, ranks, lines, nomem;
    Planned *memory; /* of `plans' ranks */
    int plans;
} Events;

enum { MOST_RANKS = 1 << 16 };

static int add_memory(Events *ev, int rank, int always, double bytes)
{
    while (rank >= ev->plans) {
        Planned *p = memory_added(&ev->memory, &ev->plans, sizeof *p);
        if (!p)
            return ev->nomem = 1, 0;
        *p = (Planned){-1, -1};
    }
    *(always ? &ev->memory[rank].always : &ev->memory[rank].planned) = bytes;
    return 1;
}

static int add_event(void *ctx, const SchedEvent *f)
{
    Events *ev = ctx;
    SchedAction a;
    int rank = -1, end = 0;
    if (!strcmp(f->ph, "M")) {
        if (!strcmp(f->name, "thread_name") && sscanf(f->of, "rank %d%n", &rank, &end) == 1 &&
            end && !f->of[end] && rank >= ev->ranks && rank < MOST_RANKS)
            ev->ranks = rank + 1;
        int always = !strcmp(f->name, "memory always");
        if ((always || !strcmp(f->name, "memory planned")) && f->bytes >= 0 && f->tid >= 0 &&
            f->tid < MOST_RANKS)
            return add_memory(ev, (int)f->tid, always, f->bytes);
        return 1;
    }
    if ((f->ph[0] && strcmp(f->ph, "X") != 0) || !sched_action_parse(f->name, &a) ||
        !(f->tid >= 0 && f->tid < 3.0 * MOST_RANKS) || !(fabs(f->step) < INT_MAX) ||
        !(fabs(f->ts) < 1e300) || !(f->dur < 1e300))
        return 1;
    Event *at = memory_added(&ev->at, &ev->n, sizeof *at);
    if (!at)
        return ev->nomem = 1, 0;
    int line = (int)f->tid;
    ev->lines = line >= ev->lines ? line + 1 : ev->lines;
    *at = (Event){a, (int)f->step, line, f->ts, f->ts + f->dur, f->bytes};
    return 1;
}

/* Of the members of a rank the first one's lines. */
static void keep_first_members(Events *ev)
{
    int n = 0;
    for (int i = 0; i < ev->n; i++)
        if (ev->at[i].line < LINES * ev->ranks)
            ev->at[n++] = ev->at[i];
    ev->n = n;
}

static int by_length(const void *x, const void *y)
{
    const Step *a = x, *b = y;
    double p = a->end - a->start, q = b->end - b->start;
    return p != q ? (p > q) - (p < q) : (a->step > b->step) - (a->step < b->step);
}

static int by_number(const void *x, const void *y)
{
    const Step *a = x, *b = y;
    return (a->step > b->step) - (a->step < b->step);
}

/* The step of median length.  Events of a step need not stand together. */
static int median_step(const Events *ev, Step *out, int *steps, SchedError *e)
{
    Step *step = malloc((size_t)ev->n * sizeof *step);
    size_t n = 0;
    if (!step)
        return sched_nomem(e);
    for (int i = 0; i < ev->n; i++)
        step[i] = (Step){ev->at[i].step, ev->at[i].start, ev->at[i].end};
    qsort(step, (size_t)ev->n, sizeof *step, by_number);
    for (int i = 0; i < ev->n; i++) {
        if (n && step[n - 1].step == step[i].step) {
            step[n - 1].start = fmin(step[n - 1].start, step[i].start);
            step[n - 1].end = fmax(step[n - 1].end, step[i].end);
        } else {
            step[n++] = step[i];
        }
    }
    *steps = (int)n;
    size_t first = n > 1;
    qsort(step + first, n - first, sizeof *step, by_length);
    *out = step[first + (n - first - 1) / 2];
    free(step);
    return SCHED_OK;
}

static int rank_of(const Events *ev, const Event *v) { return v->line % ev->ranks; }

/* How many stages, microbatches, and on which rank a stage is first seen. */
static int make_schedule(const Events *ev, int step, Schedule **out, SchedError *e)
{
    int stages = 0, microbatches = 0, ranks = 0, st = SCHED_OK;
    size_t n = 0;
    for (int i = 0; i < ev->n; i++) {
        const SchedAction *a = &ev->at[i].a;
        if (ev->at[i].step != step)
            continue;
        n++;
        stages = a->stage >= stages ? a->stage + 1 : stages;
        microbatches = a->microbatch >= microbatches ? a->microbatch + 1 : microbatches;
    }
    if ((double)stages * (microbatches ? microbatches : 1) > (double)n)
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "step %d has %zu actions, fewer than its %d stages take for %d "
                          "microbatches",
                          step, n, stages, microbatches);
    Schedule *s = sched_new("measured", ev->ranks, stages, microbatches);
    if (!s)
        return sched_nomem(e);
    for (int i = 0; i < ev->n; i++) {
        const Event *v = &ev->at[i];
        int r = rank_of(ev, v), *owner = v->a.stage < 0 ? NULL : &s->rank_of[v->a.stage];
        if (v->step == step && owner && sched_is_compute(v->a.type) && (*owner < 0 || r < *owner))
            *owner = r;
    }
    for (int k = 0; k < stages; k++) {
        ranks = s->rank_of[k] >= ranks ? s->rank_of[k] + 1 : ranks;
        if (s->rank_of[k] < 0 && !st)
            st = sched_fail(e, SCHED_EREFUSED, -1, -1, "step %d has no computation of stage %d",
                            step, k);
    }
    if (st) {
        sched_free(s);
        return st;
    }
    s->ranks = ranks;
    *out = s;
    return SCHED_OK;
}

static int fill(const Events *ev, const Step *step, SchedMeasured *m, SchedError *e)
{
    Schedule *s = m->s;
    SchedSim *sim = &m->sim;
    const size_t ranks = (size_t)s->ranks;
    for (int i = 0; i < ev->n; i++)
        if (ev->at[i].step == step->step && rank_of(ev, &ev->at[i]) < s->ranks)
            sched_push(&s->row[rank_of(ev, &ev->at[i])], ev->at[i].a);
    if (sched_rows_ok(s, e) || !sched_sim_open(s, sim))
        return sched_nomem(e);
    m->bytes = sched_room(&sim->room, ranks, sizeof *m->bytes);
    m->planned = sched_room_unknown(&sim->room, ranks);
    m->always = sched_room_unknown(&sim->room, ranks);
    int *n = sched_room(&sim->room, ranks, sizeof *n); /* actions so far */
    for (int r = 0; r < s->ranks && !sim->room.lost; r++) {
        m->bytes[r] = sched_room(&sim->room, (size_t)s->row[r].n, sizeof **m->bytes);
        if (r < ev->plans)
            m->planned[r] = ev->memory[r].planned, m->always[r] = ev->memory[r].always;
    }
    if (sim->room.lost)
        return sched_nomem(e);
    for (int i = 0; i < ev->n; i++) {
        const Event *v = &ev->at[i];
        const int r = rank_of(ev, v);
        if (v->step != step->step || r >= s->ranks)
            continue;
        sim->start[r][n[r]] = v->start - step->start;
        sim->end[r][n[r]] = v->end - step->start;
        m->bytes[r][n[r]++] = v->bytes;
        sim->busy[r] += sched_is_compute(v->a.type) ? v->end - v->start : 0;
        sim->makespan = fmax(sim->makespan, v->end - step->start);
    }
    s->complete = sched_has_type(s, SA_SEND_F) || sched_has_type(s, SA_SEND_B);
    s->infer = !sched_has_type(s, SA_B) && !sched_has_type(s, SA_I);
    for (int r = 0; r < s->ranks; r++)
        sim->bubble += sim->makespan > 0 ? (1 - sim->busy[r] / sim->makespan) / s->ranks : 0;
    return SCHED_OK;
}

int sched_measured(const char *path, SchedMeasured *m, SchedError *e)
{
    Events ev = {.ranks = 0};
    Step step = {0};
    memset(m, 0, sizeof *m);
    int st = sched_trace_read(path, add_event, &ev, e);
    if (ev.nomem)
        st = sched_nomem(e);
    if (!ev.ranks)
        ev.ranks = ev.lines;
    keep_first_members(&ev);
    if (!st && !ev.n)
        st = sched_fail(e, SCHED_EREFUSED, -1, -1,
                        "%s: no event is named like an action (0F0, 1SEND_F2, ..) and has a "
                        "duration; a run writes such a file with --trace",
                        path);
    if (!st)
        st = median_step(&ev, &step, &m->steps, e);
    if (!st)
        st = make_schedule(&ev, step.step, &m->s, e);
    if (!st)
        st = fill(&ev, &step, m, e);
    m->step = step.step;
    free(ev.at);
    free(ev.memory);
    if (st)
        sched_measured_free(m);
    return st;
}

void sched_measured_free(SchedMeasured *m)
{
    sched_sim_free(&m->sim);
    sched_free(m->s);
    *m = (SchedMeasured){.s = NULL};
}

/* The same rows, by the means of all steps of the trace. */
int sched_measured_simulate(const SchedMeasured *m, const char *path, SchedSim *out, SchedError *e)
{
    SchedCosts c;
    SchedGraph g;
    sched_costs_default(&c);
    int st = sched_validate(m->s, e);
    if (!st)
        st = sched_graph_of(&g, m->s, NULL, 0, NULL, 0, e);
    if (st)
        return st;
    c.edge = g.edge;
    c.n_edge = g.n;
    st = sched_costs_load(&c, path, m->s->stages, NULL, e);
    if (!st)
        st = sched_simulate(m->s, &c, out, e);
    sched_costs_free(&c);
    sched_graph_free(&g);
    return st;
}
