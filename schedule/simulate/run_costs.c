/*
 * run_costs.c - costs from Chrome traces of runs.
 *
 * In: JSON files of complete events named like actions, durations in microseconds, and what their
 * ranks did before and after them.  Out: SchedCosts, means over steps; where microbatches differ in
 * length, polynomials of it.  In truth I and W take longer
 * than B, for what they share goes through memory, so two files know more than one: a run's with
 * whole backwards and a run's with divided ones.
 *
 * A machine is not equally fast whenever it is asked, and the few per cent by which two runs differ
 * are more than what a divided backward costs.  So the times of each further run are brought onto
 * the first one's clock, by what both have: a stage's times by the quotient of the medians of its
 * F.
 */
#include "base/file/memory.h"
#include "schedule/rows.h"
#include "simulate.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    int stage, type; /* type 0: beside the actions, stage is the rank; REDUCTION: the stage's */
    double step, dur, beside;
    double length[ROW_LENGTHS];
} Event;
enum { MAX_RANKS = 1 << 16, REDUCTION = SA_TYPES };

/* The events of a file; those of the first step do not count where there are others: it warms
   caches and pages.  clock: by what its times are multiplied, per stage, and of all of it */
typedef struct {
    int from, to;
    double first, last, *clock, whole;
} File;

typedef struct {
    Event *e;
    int n;
    File *file;
    int files;
    size_t seen;         /* computations */
    int lengths, others; /* others: events have other ones, or none */
    char name[ROW_LENGTHS][40];
    const SchedAlso *also;
    Pool room;
} Events;

/* ---- reading ---- */

/* `2AR`: the stage; -1: it is no such name. */
static int reduction_of(const char *name)
{
    char *end = NULL;
    long stage = *name >= '0' && *name <= '9' ? strtol(name, &end, 10) : -1;
    return stage >= 0 && stage < 1 << 20 && !strcmp(end, "AR") ? (int)stage : -1;
}

/* All computations have the same dimensions, or none counts. */
static void note_lengths(Events *ev, const SchedEvent *f)
{
    if (!ev->seen++) {
        ev->lengths = f->lengths;
        memcpy(ev->name, f->dimension, sizeof ev->name);
    }
    ev->others |= f->lengths != ev->lengths || memcmp(ev->name, f->dimension, sizeof ev->name) != 0;
}

static int add_event(void *ctx, const SchedEvent *f)
{
    Events *ev = ctx;
    SchedAction a;
    int around = strcmp(f->cat, "step") == 0, sums = reduction_of(f->name);
    if (ev->also)
        ev->also->event(ev->also->of, ev->files - 1, f);
    if ((f->ph[0] && strcmp(f->ph, "X") != 0) ||
        (!around && sums < 0 && !sched_action_parse(f->name, &a)))
        return 1; /* waits, titles: not an action */
    if (sums >= 0)
        a = (SchedAction){.stage = sums, .type = REDUCTION};
    if (around) {
        if (!(f->tid >= 0 && f->tid < MAX_RANKS))
            return 1;
        a = (SchedAction){.stage = (int)f->tid, .type = SA_IDLE};
    }
    Event *v = memory_added(&ev->e, &ev->n, sizeof *v);
    if (!v)
        return 0;
    *v = (Event){a.stage, a.type, f->step, f->dur, f->beside, {0}};
    memcpy(v->length, f->length, sizeof v->length);
    if (sched_is_compute(a.type))
        note_lengths(ev, f);
    return 1;
}

static void find_steps(File *f, const Event *e)
{
    f->first = f->last = e[f->from].step;
    for (int i = f->from; i < f->to; i++) {
        f->first = e[i].step < f->first ? e[i].step : f->first;
        f->last = e[i].step > f->last ? e[i].step : f->last;
    }
}

static int counts(const File *f, const Event *e)
{
    return f->last <= f->first || e->step > f->first;
}

/* Of one file, whose name has n letters. */
static int load_events(const char *name, size_t n, Events *ev, SchedError *e)
{
    File *file = memory_added(&ev->file, &ev->files, sizeof *file);
    char *path = strndup(name, n);
    if (!path || !file) {
        free(path);
        return sched_nomem(e);
    }
    *file = (File){.from = ev->n, .whole = 1};
    int st = sched_trace_read(path, add_event, ev, e);
    file->to = ev->n;
    if (!st && file->to == file->from)
        st = sched_fail(
            e, SCHED_EREFUSED, -1, -1,
            "%s: no event is named like an action (0F0, 1SEND_F2, ..) and has a duration", path);
    if (!st)
        find_steps(file, ev->e);
    free(path);
    return st;
}

/* ---- one clock ---- */

typedef struct {
    int stage;
    double value;
} OfStage;

static int by_stage(const void *a, const void *b)
{
    const OfStage *x = a, *y = b;
    return x->stage != y->stage ? (x->stage > y->stage) - (x->stage < y->stage)
                                : (x->value > y->value) - (x->value < y->value);
}

/* Of n sorted ones; 0: of none. */
static double median(const OfStage *list, size_t n)
{
    return n == 0 ? 0 : (list[(n - 1) / 2].value + list[n / 2].value) / 2;
}

/* Per stage, 0 where there is none; list: room for all events. */
static void median_forwards(const Events *ev, const File *f, int stages, OfStage *list, double *out)
{
    size_t n = 0;
    for (int i = f->from; i < f->to; i++)
        if (ev->e[i].type == SA_F && ev->e[i].stage < stages && counts(f, &ev->e[i]))
            list[n++] = (OfStage){ev->e[i].stage, ev->e[i].dur};
    qsort(list, n, sizeof *list, by_stage);
    for (int s = 0; s < stages; s++)
        out[s] = 0;
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i; next < n && list[next].stage == list[i].stage;)
            next++;
        out[list[i].stage] = median(list + i, next - i);
    }
}

/* there: medians of the first file.  A stage whose F one of them lacks has the median of the
   others' quotients, and so what is of no stage; where none is in both, clocks are taken for
   equal. */
static void set_clock(const Events *ev, File *f, int stages, const double *there, OfStage *list)
{
    size_t known = 0;
    median_forwards(ev, f, stages, list, f->clock);
    for (int s = 0; s < stages; s++) {
        f->clock[s] = f->clock[s] > 0 ? there[s] / f->clock[s] : 0;
        if (f->clock[s] > 0)
            list[known++] = (OfStage){0, f->clock[s]};
    }
    qsort(list, known, sizeof *list, by_stage);
    f->whole = known ? median(list, known) : 1;
    for (int s = 0; s < stages; s++)
        f->clock[s] = f->clock[s] > 0 ? f->clock[s] : f->whole;
}

static int set_clocks(Events *ev, int stages, SchedError *e)
{
    Pool room = {0};
    double *there = sched_room(&room, (size_t)stages, sizeof *there);
    OfStage *list = sched_room(&room, (size_t)ev->n + (size_t)stages, sizeof *list);
    int st = room.lost ? sched_nomem(e) : SCHED_OK;
    for (int k = 0; k < ev->files && !st; k++) {
        File *f = &ev->file[k];
        f->clock = sched_room(&ev->room, (size_t)stages, sizeof *f->clock);
        if (!f->clock)
            st = sched_nomem(e);
        for (int s = 0; s < stages && !st && k == 0; s++)
            f->clock[s] = 1;
        if (!st && k == 0 && ev->files > 1)
            median_forwards(ev, f, stages, list, there);
        if (!st && k > 0)
            set_clock(ev, f, stages, there, list);
    }
    pool_free(&room);
    return st;
}

/* ---- means ---- */

/* Of a step's begin, norm and update, of the rank that takes longest. */
static int average_around(SchedCosts *c, const Events *ev, SchedError *e)
{
    double *sum = calloc(MAX_RANKS, sizeof *sum);
    if (!sum)
        return sched_nomem(e);
    for (int k = 0; k < ev->files; k++) {
        const File *f = &ev->file[k];
        double steps = ev->files * (f->last > f->first ? f->last - f->first : 1);
        for (int i = f->from; i < f->to; i++)
            if (ev->e[i].type == SA_IDLE && counts(f, &ev->e[i]))
                sum[ev->e[i].stage] += ev->e[i].dur * f->whole / steps;
    }
    for (int r = 0; r < MAX_RANKS; r++)
        c->around = sum[r] > c->around ? sum[r] : c->around;
    free(sum);
    return SCHED_OK;
}

/* Per (stage, type); behind the actions sums, and what of them is beside: sum[] and count[]. */
static void add_up(const Events *ev, int stages, double *sum, int *count)
{
    size_t n = (size_t)stages * SA_TYPES, all = n + (size_t)stages;
    for (int k = 0; k < ev->files; k++) {
        const File *f = &ev->file[k];
        for (int i = f->from; i < f->to; i++) {
            const Event *v = &ev->e[i];
            size_t stage = (size_t)v->stage, type = (size_t)v->type;
            size_t at = type == REDUCTION ? n + stage : stage * SA_TYPES + type;
            if (v->type == SA_IDLE || v->stage >= stages || !counts(f, v))
                continue;
            sum[at] += v->dur * f->clock[stage];
            sum[all + stage] += type == REDUCTION ? v->beside * f->clock[stage] : 0;
            count[at]++;
        }
    }
}

static int average(SchedCosts *c, const Events *ev, int stages, SchedError *e)
{
    size_t n = (size_t)stages * SA_TYPES, all = n + (size_t)stages;
    Pool room = {0};
    double *sum = sched_room(&room, all + (size_t)stages, sizeof *sum);
    int *count = sched_room(&room, all, sizeof *count), st = room.lost ? sched_nomem(e) : SCHED_OK;
    if (!st)
        add_up(ev, stages, sum, count);
    for (size_t i = 0; !st && i < n; i++)
        c->stage_time[i] = count[i] ? sum[i] / count[i] : -1;
    for (size_t i = n; !st && i < all; i++) {
        c->stage_reduction[i - n] = count[i] ? sum[i] / count[i] : 0;
        c->stage_beside[i - n] = count[i] ? sum[i + (size_t)stages] / count[i] : 0;
    }
    pool_free(&room);
    return st ? st : average_around(c, ev, e);
}

/* ---- by length ---- */

typedef struct {
    const Event *e;
    double dur; /* on the first run's clock */
} Timed;

static int by_stage_and_type(const void *a, const void *b)
{
    const Event *x = ((const Timed *)a)->e, *y = ((const Timed *)b)->e;
    return x->stage != y->stage ? (x->stage > y->stage) - (x->stage < y->stage)
           : x->type != y->type ? (x->type > y->type) - (x->type < y->type)
                                : (x > y) - (x < y);
}

/* Computations that count, by stage and type; how many */
static size_t sort_timed(const Events *ev, int stages, Timed *to)
{
    size_t n = 0;
    for (int k = 0; k < ev->files; k++) {
        const File *f = &ev->file[k];
        for (int i = f->from; i < f->to; i++) {
            const Event *e = &ev->e[i];
            if (e->type < SA_TYPES && sched_is_compute(e->type) && e->stage < stages &&
                counts(f, e))
                to[n++] = (Timed){e, e->dur * f->clock[e->stage]};
        }
    }
    qsort(to, n, sizeof *to, by_stage_and_type);
    return n;
}

static int average_by_length(SchedCosts *c, const Events *ev, int stages, SchedError *e)
{
    if (ev->lengths == 0 || ev->others)
        return SCHED_OK;
    int st = sched_costs_by_length(c, ev->lengths, stages, e);
    const size_t all = (size_t)ev->n, dims = (size_t)ev->lengths;
    Pool room = {0};
    Timed *v = sched_room(&room, all, sizeof *v);
    double *x = sched_room(&room, all, ROW_LENGTHS * sizeof *x),
           *t = sched_room(&room, all, sizeof *t);
    size_t n = 0;
    if (!st && !room.lost) {
        memcpy(c->vary->name, ev->name, sizeof ev->name);
        n = sort_timed(ev, stages, v);
    } else if (!st) {
        st = sched_nomem(e);
    }
    for (size_t i = 0, next = 0; i < n; i = next) {
        const Event *first = v[i].e;
        for (; next < n && v[next].e->stage == first->stage && v[next].e->type == first->type;
             next++) {
            memcpy(x + (next - i) * dims, v[next].e->length, dims * sizeof *x);
            t[next - i] = v[next].dur;
        }
        c->vary->time[first->stage * SA_TYPES + first->type] =
            sched_fit(ev->lengths, x, t, next - i);
    }
    pool_free(&room);
    return st;
}

static int remember_clocks(SchedCosts *c, const Events *ev, SchedError *e)
{
    free(c->clock);
    c->clock = malloc((size_t)ev->files * sizeof *c->clock);
    if (!c->clock)
        return sched_nomem(e);
    for (c->runs = 0; c->runs < ev->files; c->runs++)
        c->clock[c->runs] = ev->file[c->runs].whole;
    return SCHED_OK;
}

/* ---- all of it ---- */

const char *sched_costs_file(const char *path, int k, size_t *n)
{
    int list = access(path, F_OK) != 0 && strchr(path, ',');
    for (const char *at = path; at;) {
        *n = list ? strcspn(at, ",") : strlen(at);
        if (k-- == 0)
            return at;
        at = at[*n] ? at + *n + 1 : NULL;
    }
    return NULL;
}

int sched_costs_measured(SchedCosts *c, const char *path, int stages, const SchedAlso *also,
                         SchedError *e)
{
    Events ev = {.also = also};
    int st = SCHED_OK;
    size_t n;
    for (const char *at; !st && (at = sched_costs_file(path, ev.files, &n));)
        st = load_events(at, n, &ev, e);
    if (!st)
        st = sched_costs_stages(c, stages, e);
    if (!st)
        st = set_clocks(&ev, stages, e);
    if (!st)
        st = average(c, &ev, stages, e);
    if (!st)
        st = average_by_length(c, &ev, stages, e);
    if (!st)
        st = remember_clocks(c, &ev, e);
    pool_free(&ev.room);
    free(ev.file);
    free(ev.e);
    return st;
}

int sched_costs_load(SchedCosts *c, const char *path, int stages, const SchedLengths *l,
                     SchedError *e)
{
    int st = sched_costs_measured(c, path, stages, NULL, e);
    if (!st && l && !c->vary)
        st = sched_fail(e, SCHED_EUSAGE, -1, -1,
                        "%s: its actions have no lengths: --lengths needs the trace of a program "
                        "made with --bind NAME=LEAST..MOST, and run with --lengths",
                        path);
    if (!st && l)
        st = sched_costs_vary(c, l, e);
    for (int s = 0; s < stages && !st; s++)
        sched_costs_complete(&c->stage_time[(size_t)s * SA_TYPES]);
    return st;
}
