/*
 * costs.c - the costs a simulation uses: unit costs, a list on the command line, or a run's own
 * Chrome trace.
 *
 * In: `F=1,I=1,W=1,B=2,c=0` (of one stage: `3F=2`), or JSON files of complete events named like
 * actions, durations in microseconds, and what their ranks did before and after them. Out:
 * SchedCosts.  What is not measured follows from what is: B = I + W, and I = W = B / 2.  In truth
 * I and W take longer than B, for what they share goes through memory, so two files know more than
 * one: a run's with whole backwards and a run's with divided ones.
 */
#include "schedule/rows.h"
#include "simulate.h"
#include "trace.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void sched_costs_default(SchedCosts *c)
{
    memset(c, 0, sizeof *c);
    c->time[SA_F] = c->time[SA_I] = c->time[SA_W] = c->time[SA_R] = 1;
    c->time[SA_OFFLOAD] = c->time[SA_FETCH] = 1;
    c->time[SA_B] = 2;
    c->overlap = -1;
    c->buffers = -1;
}

void sched_costs_free(SchedCosts *c)
{
    free(c->stage_time);
    free(c->stage_reduction);
    free(c->stage_beside);
    c->stage_time = c->stage_reduction = c->stage_beside = NULL;
    c->stages = 0;
}

int sched_costs_stages(SchedCosts *c, int stages, SchedError *e)
{
    if (stages <= c->stages)
        return SCHED_OK;
    double *p = stages > INT_MAX / SA_TYPES / 16
                    ? NULL
                    : realloc(c->stage_time, (size_t)stages * SA_TYPES * sizeof *p);
    if (!p)
        return sched_nomem(e);
    for (size_t i = (size_t)c->stages * SA_TYPES; i < (size_t)stages * SA_TYPES; i++)
        p[i] = -1;
    c->stage_time = p;
    double *q = realloc(c->stage_reduction, (size_t)stages * sizeof *q);
    if (!q)
        return sched_nomem(e);
    for (int i = c->stages; i < stages; i++)
        q[i] = -1;
    c->stage_reduction = q;
    double *b = realloc(c->stage_beside, (size_t)stages * sizeof *b);
    if (!b)
        return sched_nomem(e);
    for (int i = c->stages; i < stages; i++)
        b[i] = 0;
    c->stage_beside = b;
    c->stages = stages;
    return SCHED_OK;
}

/* The parts of a backward from the whole, or the whole from its parts; negative: unknown. */
static void complete(double *t)
{
    if (t[SA_B] >= 0 && t[SA_I] < 0 && t[SA_W] < 0)
        t[SA_I] = t[SA_W] = t[SA_B] / 2;
    else if (t[SA_B] >= 0 && t[SA_I] >= 0 && t[SA_W] < 0)
        t[SA_W] = t[SA_B] > t[SA_I] ? t[SA_B] - t[SA_I] : 0;
    else if (t[SA_B] >= 0 && t[SA_W] >= 0 && t[SA_I] < 0)
        t[SA_I] = t[SA_B] > t[SA_W] ? t[SA_B] - t[SA_W] : 0;
    else if (t[SA_B] < 0 && t[SA_I] >= 0 && t[SA_W] >= 0)
        t[SA_B] = t[SA_I] + t[SA_W];
    if (t[SA_R] < 0 && t[SA_F] >= 0)
        t[SA_R] = t[SA_F];
}

static int type_of(const char *name, size_t n)
{
    for (int t = 1; t < SA_TYPES; t++)
        if (strlen(sched_type_name(t)) == n && memcmp(sched_type_name(t), name, n) == 0)
            return t;
    return 0;
}

/* One `KEY=VALUE`; given[]: the types set for all stages. */
static int set_one(SchedCosts *c, const char *p, size_t n, double *given, SchedError *e)
{
    const char *eq = memchr(p, '=', n), *key = p, *key_end;
    char *end, number[64];
    long stage = -1;
    int type, st;
    if (!eq || n - (size_t)(eq - p) - 1 >= sizeof number || eq[1] == ',' ||
        n == (size_t)(eq - p) + 1)
        return sched_fail(e, SCHED_EUSAGE, -1, -1,
                          "'%.*s' is no cost; costs are like F=1,I=1,W=1,B=2,c=0",
                          (int)(n < 60 ? n : 60), p);
    memcpy(number, eq + 1, n - (size_t)(eq - p) - 1);
    number[n - (size_t)(eq - p) - 1] = 0;
    double v = strtod(number, &end);
    if (*end || !(v >= 0) || v > 1e300)
        return sched_fail(e, SCHED_EUSAGE, -1, -1,
                          "'%.60s' is no cost: a number that is not negative is expected", number);
    if (key < eq && *key >= '0' && *key <= '9') {
        stage = strtol(key, &end, 10);
        key = end;
    }
    key_end = eq;
    if (stage < 0 && key_end - key == 1 && *key == 'c') {
        c->latency = v;
        return SCHED_OK;
    }
    if (key_end - key == 2 && !memcmp(key, "AR", 2) && stage <= 1 << 20) {
        if (stage < 0) {
            c->reduction = v;
            return SCHED_OK;
        }
        if ((st = sched_costs_stages(c, (int)stage + 1, e)))
            return st;
        c->stage_reduction[stage] = v;
        return SCHED_OK;
    }
    if (!(type = type_of(key, (size_t)(key_end - key))) || stage > 1 << 20)
        return sched_fail(e, SCHED_EUSAGE, -1, -1,
                          "'%.*s' has no cost; F, I, W, B, R, another action, AR (sum over "
                          "replicas), or c (one message) do",
                          (int)(eq - p < 60 ? eq - p : 60), p);
    if (stage < 0) {
        given[type] = v;
        return SCHED_OK;
    }
    if ((st = sched_costs_stages(c, (int)stage + 1, e)))
        return st;
    c->stage_time[stage * SA_TYPES + type] = v;
    return SCHED_OK;
}

int sched_costs_set(SchedCosts *c, const char *list, SchedError *e)
{
    double given[SA_TYPES];
    for (int t = 0; t < SA_TYPES; t++)
        given[t] = -1;
    for (const char *p = list;;) {
        size_t n = strcspn(p, ",");
        int st = set_one(c, p, n, given, e);
        if (st)
            return st;
        if (!p[n])
            break;
        p += n + 1;
    }
    complete(given);
    for (int t = 0; t < SA_TYPES; t++)
        if (given[t] >= 0)
            c->time[t] = given[t];
    for (int s = 0; s < c->stages; s++)
        complete(&c->stage_time[(size_t)s * SA_TYPES]);
    return SCHED_OK;
}

/* ---- A run's trace ---- */

typedef struct {
    int stage, type; /* type 0: beside the actions, stage is the rank; REDUCTION: the stage's */
    double step, dur, beside;
} Event;
enum { MAX_RANKS = 1 << 16, REDUCTION = SA_TYPES };

typedef struct {
    Event *e;
    size_t n, cap;
    int files;
} Events;

/* `2AR`: the stage; -1: it is no such name. */
static int reduction_of(const char *name)
{
    char *end = NULL;
    long stage = *name >= '0' && *name <= '9' ? strtol(name, &end, 10) : -1;
    return stage >= 0 && stage < 1 << 20 && !strcmp(end, "AR") ? (int)stage : -1;
}

static int add_event(void *ctx, const SchedEvent *f)
{
    Events *ev = ctx;
    SchedAction a;
    int around = strcmp(f->cat, "step") == 0, sums = reduction_of(f->name);
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
    if (ev->n == ev->cap) {
        size_t cap = ev->cap ? ev->cap * 2 : 1024;
        Event *p = realloc(ev->e, cap * sizeof *p);
        if (!p)
            return 0;
        ev->e = p;
        ev->cap = cap;
    }
    ev->e[ev->n++] = (Event){a.stage, a.type, f->step, f->dur, f->beside};
    return 1;
}

/* The mean of a step's begin, norm and update, of the rank that takes longest. */
static int average_around(SchedCosts *c, const Events *ev, double first, double last, SchedError *e)
{
    double *sum = calloc(MAX_RANKS, sizeof *sum);
    double steps = ev->files * (last > first ? last - first : 1);
    if (!sum)
        return sched_nomem(e);
    for (size_t i = 0; i < ev->n; i++)
        if (ev->e[i].type == SA_IDLE && (last <= first || ev->e[i].step > first))
            sum[ev->e[i].stage] += ev->e[i].dur / steps;
    for (int r = 0; r < MAX_RANKS; r++)
        c->around = sum[r] > c->around ? sum[r] : c->around;
    free(sum);
    return SCHED_OK;
}

/* Means per (stage, type), without the first step where there are others: it warms caches and
 * pages. */
static int average(SchedCosts *c, const Events *ev, int stages, SchedError *e)
{
    double first = ev->e[0].step, last = first, *sum;
    int *count, st = sched_costs_stages(c, stages, e);
    if (st)
        return st;
    /* behind the actions: sums, and what of them is beside */
    size_t n = (size_t)stages * SA_TYPES, all = n + (size_t)stages;
    sum = calloc(all + (size_t)stages, sizeof *sum);
    count = calloc(all, sizeof *count);
    if (!sum || !count) {
        free(sum);
        free(count);
        return sched_nomem(e);
    }
    for (size_t i = 0; i < ev->n; i++) {
        first = ev->e[i].step < first ? ev->e[i].step : first;
        last = ev->e[i].step > last ? ev->e[i].step : last;
    }
    for (size_t i = 0; i < ev->n; i++) {
        size_t stage = (size_t)ev->e[i].stage, type = (size_t)ev->e[i].type;
        size_t at = type == REDUCTION ? n + stage : stage * SA_TYPES + type;
        if (ev->e[i].type == SA_IDLE || ev->e[i].stage >= stages ||
            (last > first && ev->e[i].step <= first))
            continue;
        sum[at] += ev->e[i].dur;
        sum[all + stage] += type == REDUCTION ? ev->e[i].beside : 0;
        count[at]++;
    }
    for (size_t i = 0; i < n; i++)
        c->stage_time[i] = count[i] ? sum[i] / count[i] : -1;
    for (size_t i = n; i < all; i++) {
        c->stage_reduction[i - n] = count[i] ? sum[i] / count[i] : 0;
        c->stage_beside[i - n] = count[i] ? sum[i + (size_t)stages] / count[i] : 0;
    }
    for (int s = 0; s < stages; s++)
        complete(&c->stage_time[(size_t)s * SA_TYPES]);
    free(sum);
    free(count);
    return average_around(c, ev, first, last, e);
}

/* Of one file, whose name has n letters. */
static int load_events(const char *name, size_t n, Events *ev, SchedError *e)
{
    size_t before = ev->n;
    char *path = malloc(n + 1);
    if (!path)
        return sched_nomem(e);
    memcpy(path, name, n);
    path[n] = 0;
    int st = sched_trace_read(path, add_event, ev, e);
    if (!st && ev->n == before)
        st = sched_fail(
            e, SCHED_EREFUSED, -1, -1,
            "%s: no event is named like an action (0F0, 1SEND_F2, ..) and has a duration", path);
    ev->files++;
    free(path);
    return st;
}

int sched_costs_load(SchedCosts *c, const char *path, int stages, SchedError *e)
{
    Events ev = {.e = NULL};
    int st = SCHED_OK, list = access(path, F_OK) != 0 && strchr(path, ',');
    for (const char *at = path; !st && at;) {
        size_t n = list ? strcspn(at, ",") : strlen(at);
        st = load_events(at, n, &ev, e);
        at = at[n] ? at + n + 1 : NULL;
    }
    if (!st)
        st = average(c, &ev, stages, e);
    free(ev.e);
    return st;
}
