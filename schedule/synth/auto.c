/*
 * auto.c - the comparison: every generator that takes these ranks, stages and microbatches, and for
 * each placement the schedules that a search makes to measure, with the backward divided and
 * undivided.
 *
 * In: sizes, costs, a limit of memory.  Out: the rows with the smallest makespan (or span) that fit
 * and are verified; of equals the one with the least alive, then the first.  All are scored by the
 * same simulator; whether a rank's planned step fits is asked from the shortest on.
 */
#include "auto.h"

#include "schedule/rows.h"
#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const SchedAuto *a;
    SchedGraph g;
    SchedAutoReport *report;
    SchedError *e;
    Schedule *seed[SCHED_AUTO_TRIED]; /* of the report's rows */
} Auto;

static double value(const SchedAuto *a, const SchedTried *t)
{
    return a->span ? t->span : t->makespan;
}

/* ---- one candidate ---- */

static void measure(const Auto *x, const Schedule *s, SchedTried *t)
{
    SchedSim sim;
    const SchedAuto *a = x->a;
    if (sched_simulate(s, a->costs, &sim, x->e)) {
        snprintf(t->why, sizeof t->why, "%.100s", x->e->text);
        return;
    }
    t->makespan = sim.makespan;
    t->span = sim.span;
    for (int r = 0; r < s->ranks; r++) {
        t->peak = sim.peak[r] > t->peak ? sim.peak[r] : t->peak;
        if (a->memory && sim.peak_bytes[r] > a->memory[r] * (1 + 1e-12) && !t->why[0])
            snprintf(t->why, sizeof t->why, "rank %d holds the memory of %.4g chunks", r,
                     sim.peak_bytes[r]);
    }
    if (a->chunks && t->peak > a->chunks)
        snprintf(t->why, sizeof t->why, "%d chunks alive", t->peak);
    sched_sim_free(&sim);
}

static int verified(const Auto *x, const Schedule *s, SchedTried *t)
{
    Schedule *c = sched_clone(s);
    SchedNeeds needs = {.edge = x->g.edge,
                        .n_edge = x->g.n,
                        .param = x->a->param,
                        .n_param = x->a->n_param,
                        .buffers = x->a->buffers};
    int st = c ? sched_lower_for(c, &needs, x->e) : sched_nomem(x->e);
    if (st)
        snprintf(t->why, sizeof t->why, "not verified: %.90s", x->e->text);
    sched_free(c);
    return !st;
}

/* Of those that are not left out the shortest, of equals the one with the least alive, then the
   first; -1: all are. */
static int shortest(const Auto *x)
{
    const SchedAutoReport *r = x->report;
    int best = -1;
    for (int i = 0; i < r->n; i++) {
        const SchedTried *t = &r->tried[i];
        double by = best < 0 ? -1 : value(x->a, t) / value(x->a, &r->tried[best]) - 1;
        if (!t->why[0] && (by < -1e-9 || (by <= 1e-9 && t->peak < r->tried[best].peak)))
            best = i;
    }
    return best;
}

/* Only what is the shortest needs to fit, and a proof. */
static void choose(Auto *x)
{
    const SchedAuto *a = x->a;
    for (int i; (i = shortest(x)) >= 0 && i != x->report->chosen;) {
        SchedTried *t = &x->report->tried[i];
        t->unfit = a->allow && !a->allow(a->of, x->seed[i], t->why, sizeof t->why);
        if (!t->unfit && verified(x, x->seed[i], t))
            x->report->chosen = i;
    }
}

/* Takes the schedule. */
static void compete(Auto *x, Schedule *s, int placement)
{
    SchedAutoReport *r = x->report;
    if (r->n == SCHED_AUTO_TRIED) {
        sched_free(s);
        return;
    }
    SchedTried *t = &r->tried[r->n];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", s->name);
    t->placement = placement;
    measure(x, s, t);
    x->seed[r->n++] = s;
}

/* ---- the generators ---- */

static int placements(const Auto *x, const SchedKind *k, int *list)
{
    int n = 0, only = x->a->placement;
    if (only == SCHED_PLACE_DEFAULT || only == k->placement || x->a->ranks == x->a->stages)
        list[n++] = k->placement;
    for (int p = SCHED_PLACE_LOOP; p <= SCHED_PLACE_V && k->movable; p++)
        if (p != k->placement && x->a->ranks < x->a->stages &&
            (only == SCHED_PLACE_DEFAULT || only == p))
            list[n++] = p;
    return n;
}

/* Microbatch-chunks that fit on every rank, 0: there is no limit. */
static int chunks_that_fit(const SchedAuto *a)
{
    double most = a->chunks, stash = 0;
    for (int s = 0; a->memory && s < a->stages; s++)
        stash = fmax(stash, a->costs->bytes_stash[s]);
    for (int r = 0; stash > 0 && r < a->ranks; r++)
        if (most == 0 || a->memory[r] / stash < most)
            most = a->memory[r] / stash;
    return (int)fmin(most, SCHED_MAX_CELLS);
}

static void generators(Auto *x)
{
    const SchedAuto *a = x->a;
    int chunks = chunks_that_fit(a);
    for (int i = 0; sched_kind(i); i++) {
        int list[4], n = placements(x, sched_kind(i), list);
        char name[40];
        snprintf(name, sizeof name, "%s", sched_kind(i)->name);
        if (!strcmp(name, "forward-only"))
            continue;
        if (!strcmp(name, "v")) { /* as much as there is room for; with more it is zb-v's */
            if (chunks < 1 || chunks >= 2 * a->ranks)
                continue;
            snprintf(name, sizeof name, "v:%d", chunks);
        }
        for (int k = 0; k < n; k++) {
            Schedule *s;
            if (sched_generate(name, a->ranks, a->stages, a->microbatches, list[k], &s, x->e))
                continue; /* not of these sizes */
            sched_drop_idle(s);
            compete(x, s, list[k]);
        }
    }
}

/* ---- made to measure ---- */

static void costs_of(const Auto *x, SynthTask *t)
{
    const SchedCosts *c = x->a->costs;
    for (int s = 0; s < t->stages; s++) {
        t->f[s] = sched_cost(c, s, SA_F);
        t->i[s] = sched_cost(c, s, SA_I);
        t->w[s] = sched_cost(c, s, SA_W);
        t->b[s] = sched_cost(c, s, SA_B);
        t->stash[s] = x->a->memory ? c->bytes_stash[s] : 1;
        t->late[s] = !x->a->memory ? 1 : c->bytes_late ? c->bytes_late[s] : 0;
        t->saved[s] = x->a->memory && c->bytes_saved ? c->bytes_saved[s] : 0;
    }
    for (int k = 0; k < x->g.n; k++) {
        const SchedEdge *edge = &x->g.edge[k];
        if (t->rank_of[edge->from] == t->rank_of[edge->to])
            continue;
        t->away_f[k] = c->latency + c->per_byte * edge->bytes_f;
        t->away_b[k] = c->latency + c->per_byte * edge->bytes_b;
    }
}

static void limits_of(const Auto *x, SynthTask *t)
{
    for (int r = 0; r < t->ranks; r++)
        t->limit[r] = x->a->memory ? x->a->memory[r] : x->a->chunks ? x->a->chunks : HUGE_VAL;
}

static Schedule *empty_rows(const SynthTask *t, const char *name)
{
    Schedule *s = sched_new(name, t->ranks, t->stages, t->microbatches);
    if (s)
        memcpy(s->rank_of, t->rank_of, (size_t)t->stages * sizeof *s->rank_of);
    return s;
}

/* Takes what was found, if anything was. */
static int take(Auto *x, Schedule *s, int found, int placement)
{
    const int st = found ? sched_rows_ok(s, x->e) : SCHED_OK;
    if (!found || st)
        sched_free(s);
    else
        compete(x, s, placement);
    return st;
}

static int made(Auto *x, SynthTask *t, int placement, int whole)
{
    Schedule *s = empty_rows(t, whole ? "made" : "made-zb");
    if (!s)
        return sched_nomem(x->e);
    const Schedule *seed[SCHED_AUTO_TRIED];
    int n = 0;
    for (int i = 0; i < x->report->n; i++)
        if (!memcmp(x->seed[i]->rank_of, t->rank_of, (size_t)t->stages * sizeof(int)))
            seed[n++] = x->seed[i];
    const SynthAsk ask = {x->a->span, whole, x->a->work / (whole ? 4 : 1), seed, n};
    return take(x, s, synth_search(t, &ask, s->row), placement);
}

/* Does B take less than I and W?  Else rows of these are never longer. */
static int whole_is_shorter(const SynthTask *t)
{
    for (int s = 0; s < t->stages; s++)
        if (t->b[s] < t->i[s] + t->w[s])
            return 1;
    return 0;
}

/* What a beam finds that is better than all so far. */
static int beamed(Auto *x, const SynthTask *t, int placement, int whole)
{
    const SchedAutoReport *r = x->report;
    choose(x);
    double best = r->chosen < 0 ? HUGE_VAL : value(x->a, &r->tried[r->chosen]);
    Schedule *s = empty_rows(t, whole ? "beam" : "beam-zb");
    if (!s)
        return sched_nomem(x->e);
    return take(x, s, synth_beam(t, x->a->span, whole, best, x->a->work / 2, s->row), placement);
}

static int place(Auto *x, int placement)
{
    const SchedAuto *a = x->a;
    int *rank_of = malloc((size_t)a->stages * sizeof *rank_of), st = SCHED_OK;
    SynthTask t;
    if (!rank_of)
        return sched_nomem(x->e);
    for (int s = 0; s < a->stages; s++)
        rank_of[s] = sched_placed(placement, a->ranks, a->stages, s);
    if (synth_task(&t, &x->g, a->ranks, a->microbatches, rank_of)) {
        costs_of(x, &t);
        limits_of(x, &t);
        synth_task_ready(&t);
        for (int whole = 0; whole < 2 && !st; whole++)
            st = made(x, &t, placement, whole);
        for (int whole = 0; whole < 1 + whole_is_shorter(&t) && !st; whole++)
            st = beamed(x, &t, placement, whole);
    } else {
        st = sched_nomem(x->e);
    }
    synth_task_free(&t);
    free(rank_of);
    return st;
}

static int all_made(Auto *x)
{
    const SchedAuto *a = x->a;
    int st = SCHED_OK;
    for (int p = SCHED_PLACE_LOOP; p <= SCHED_PLACE_BLOCK && !st; p++) {
        int same = a->ranks == a->stages; /* all placements are */
        if ((same && p != SCHED_PLACE_LOOP) || (!same && a->placement >= 0 && a->placement != p) ||
            (p != SCHED_PLACE_BLOCK && a->stages % a->ranks))
            continue;
        st = place(x, p);
    }
    return st;
}

static int nothing(const Auto *x)
{
    const SchedAutoReport *r = x->report;
    int least = -1;
    for (int i = 0; i < r->n; i++)
        if (r->tried[i].peak > 0 && (least < 0 || r->tried[i].peak < r->tried[least].peak))
            least = i;
    return sched_fail(x->e, SCHED_EREFUSED, -1, -1,
                      "no schedule of %d stages on %d ranks fits the memory%s%s%s%s", x->a->stages,
                      x->a->ranks, least < 0 ? "" : ": the one that takes least, ",
                      least < 0 ? "" : r->tried[least].name,
                      least < 0 ? "" : ", does not: ", least < 0 ? "" : r->tried[least].why);
}

int sched_auto(const SchedAuto *a, Schedule **out, SchedAutoReport *report, SchedError *e)
{
    Auto x = {.a = a, .report = report, .e = e};
    *out = NULL;
    memset(report, 0, sizeof *report);
    report->chosen = -1;
    if (a->stages < a->ranks)
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "%d stages are too few for %d ranks: each rank needs one", a->stages,
                          a->ranks);
    if (a->memory && !a->costs->bytes_stash)
        return sched_fail(e, SCHED_EUSAGE, -1, -1, "a limit of bytes needs the stages' bytes");
    int st =
        sched_graph(&x.g, a->stages, a->costs->edge, a->costs->n_edge, a->param, a->n_param, e);
    if (st)
        return st;
    generators(&x);
    st = a->work > 0 ? all_made(&x) : SCHED_OK;
    choose(&x);
    if (!st && report->chosen < 0)
        st = nothing(&x);
    for (int i = 0; i < report->n; i++)
        if (st || i != report->chosen)
            sched_free(x.seed[i]);
    sched_graph_free(&x.g);
    if (st)
        return st;
    *out = x.seed[report->chosen];
    sched_number(*out);
    return SCHED_OK;
}
