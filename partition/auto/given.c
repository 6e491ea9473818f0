/*
 * given.c - what the command line says for --stages, as numbers: the schedule's microbatches in
 * flight, a run's seconds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auto.h"
#include "base/cli/options.h"
#include "base/file/json.h"
#include "schedule/simulate/trace.h"
#include "schedule/tool/tool.h"

enum { MEASURED = 4096 }; /* stages of a run */

uint32_t given_number(const char *option, const char *text, uint32_t most)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (end == text || *end || *text == '-' || errno || n < 1 || n > most)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--%s wants a whole number from 1 to %u, not '%s'",
                   option, most, text);
    return (uint32_t)n;
}

int64_t given_bytes(const char *option, const char *text)
{
    int64_t bytes;
    if (!option_bytes(text, &bytes))
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--%s wants a number of bytes, with K, M, G or T: times 1024, not '%s'", option,
                   text);
    return bytes;
}

/* Of how many microbatches each stage holds the stash, and where it is, under a schedule. */
static void under_schedule(AutoOptions *o, const AutoText *t, Arena *a)
{
    const char *name = t->schedule ? t->schedule : "1f1b";
    uint32_t ranks = t->ranks ? given_number("ranks", t->ranks, o->stages) : o->stages;
    Schedule *s;
    SchedError e;
    if (sched_generate(name, (int)ranks, (int)o->stages, (int)o->microbatches, SCHED_PLACE_DEFAULT,
                       &s, &e))
        diag_fatal(e.status, WHERE_NONE, "--schedule %s: %s", name, e.text);
    uint32_t *live = arena_array(a, uint32_t, o->stages),
             *rank_of = arena_array(a, uint32_t, o->stages);
    for (uint32_t i = 0; i < o->stages; i++) {
        live[i] = (uint32_t)sched_live(s, (int)i);
        rank_of[i] = (uint32_t)s->rank_of[i];
    }
    sched_free(s);
    o->live = live;
    o->rank_of = rank_of;
}

/* What a run's trace says beside its costs: how its program was cut, and the steps that were timed,
   of the first file that says so. */
typedef struct {
    AutoOptions *o;
    Arena *a;
    int timed; /* that file; -1: none yet */
} Told;

/* ["a","b"] */
static Strings texts_of(const SchedEvent *f, Arena *a)
{
    Strings list = {0};
    POOL(pool);
    Json j = {.p = f->texts, .start = f->texts, .end = f->end, .pool = &pool};
    for (char *text; json_char(&j, *j.p == '[' ? '[' : ',') && (text = json_text(&j));)
        vec_push(a, &list, arena_strdup(a, text));
    return list;
}

static void tell_event(void *of, int file, const SchedEvent *f)
{
    Told *x = of;
    AutoOptions *o = x->o;
    if (f->texts && !strcmp(f->name, "split") && o->measured_split.n == 0)
        o->measured_split = texts_of(f, x->a);
    if (!f->texts || strcmp(f->name, "kernel") || !*f->part || !strchr("FIWB", *f->part) ||
        !(f->dur >= 0 && f->dur < 1e18) || !(f->stage >= 0 && f->stage < MEASURED))
        return;
    x->timed = x->timed < 0 ? file : x->timed;
    StepTime t = {.stage = (uint32_t)f->stage, .part = *f->part, .seconds = f->dur / 1e6};
    if (file == x->timed) {
        t.node = texts_of(f, x->a);
        vec_push(x->a, &o->measured_steps, t);
    }
}

/* By type of action, the mean over the stages that have it: what messages take. */
static const double *mean_actions(const SchedCosts *c, int stages, Arena *a)
{
    double *mean = arena_array(a, double, SA_TYPES);
    for (int type = 0; type < SA_TYPES; type++) {
        int n = 0;
        for (int s = 0; s < stages; s++) {
            double us = c->stage_time[(size_t)s * SA_TYPES + (size_t)type];
            mean[type] += us >= 0 ? us / 1e6 : 0;
            n += us >= 0;
        }
        mean[type] /= n ? n : 1;
    }
    return mean;
}

static void keep_by_length(AutoOptions *o, const SchedCosts *c, Arena *a)
{
    SchedVary *v = arena_new_of(a, SchedVary);
    *v = *c->vary;
    v->stages = (int)o->measured_stages;
    v->time = arena_array(a, SchedFit, v->stages * SA_TYPES + 1);
    memcpy(v->time, c->vary->time, (size_t)v->stages * SA_TYPES * sizeof *v->time);
    v->sent = NULL;
    o->measured_by_length = v;
}

const StageTimes *auto_at_lengths(const AutoOptions *o, int n, const char *const *name,
                                  const int64_t *length, Arena *a)
{
    const SchedVary *v = o->measured_by_length;
    double x[ROW_LENGTHS];
    if (!v)
        return NULL;
    for (int i = 0; i < v->n; i++) {
        int k = 0;
        while (k < n && strcmp(name[k], v->name[i]) != 0)
            k++;
        if (k == n || v->n != n)
            diag_fatal(EXIT_MODEL, WHERE_NONE,
                       "--costs: in that run '%s' varied, and %d dimension%s in all: the model's "
                       "--bind has others",
                       v->name[i], v->n, v->n == 1 ? "" : "s");
        x[i] = (double)length[k];
    }
    StageTimes *t = arena_array(a, StageTimes, o->measured_stages + 1);
    for (uint32_t s = 0; s < o->measured_stages; s++) {
        static const int type[] = {SA_F, SA_I, SA_W, SA_B};
        double *const to[] = {&t[s].forward, &t[s].input, &t[s].weight, &t[s].whole};
        t[s] = o->measured[s];
        for (int i = 0; i < 4; i++)
            if (*to[i] >= 0)
                *to[i] = sched_fit_at(&v->time[s * SA_TYPES + (uint32_t)type[i]], v->n, x) / 1e6;
    }
    return t;
}

/* A run's trace. */
void auto_of_run(AutoOptions *o, const char *path, Arena *a)
{
    Told told = {o, a, -1};
    SchedCosts c;
    SchedError e;
    sched_costs_default(&c);
    if (sched_costs_measured(&c, path, MEASURED, &(SchedAlso){tell_event, &told}, &e)) {
        sched_costs_free(&c);
        diag_fatal(e.status, WHERE_NONE, "--costs: %s", e.text);
    }
    StageTimes *t = arena_array(a, StageTimes, MEASURED);
    for (int s = 0; s < MEASURED; s++) {
        const double *us = c.stage_time + (size_t)s * SA_TYPES;
        t[s] = (StageTimes){us[SA_F] / 1e6, us[SA_I] / 1e6, us[SA_W] / 1e6, us[SA_B] / 1e6};
        o->measured_divided |= us[SA_I] >= 0 && us[SA_W] >= 0;
        o->measured_whole |= us[SA_B] >= 0;
        if (us[SA_F] >= 0)
            o->measured_stages = (uint32_t)s + 1;
    }
    o->measured_around = c.around / 1e6;
    o->measured_action = mean_actions(&c, (int)o->measured_stages, a);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->measured_steps.n; i++)
        if (o->measured_steps.at[i].stage < o->measured_stages)
            o->measured_steps.at[kept++] = o->measured_steps.at[i];
    o->measured_steps.n = kept;
    if (c.vary)
        keep_by_length(o, &c, a);
    o->measured = t;
    size_t length;
    for (int k = 1; k < c.runs; k++) {
        const char *of = sched_costs_file(path, k, &length);
        vec_push(a, &o->measured_clock,
                 arena_printf(a, "%.*s: times x %.3f, by F, which is in the first run too",
                              (int)length, of, c.clock[k]));
    }
    sched_costs_free(&c);
}

void auto_given(AutoOptions *o, const AutoText *t, Arena *a)
{
    const char *alone = t->memory             ? "memory"
                        : t->schedule         ? "schedule"
                        : t->ranks            ? "ranks"
                        : t->costs            ? "costs"
                        : t->microbatches     ? "microbatches"
                        : o->measured_split.n ? "costs-split"
                                              : NULL;
    o->rates = rates_builtin();
    for (uint32_t i = 0; i < t->rates.n; i++)
        rates_set(&o->rates, t->rates.at[i], a);
    if (!t->stages) {
        if (alone || t->rates.n)
            diag_fatal(EXIT_USAGE, WHERE_NONE, "--%s needs --stages N", alone ? alone : "rates");
        return;
    }
    o->stages = given_number("stages", t->stages, 4096);
    if (t->microbatches)
        o->microbatches = given_number("microbatches", t->microbatches, 1 << 16);
    if ((t->schedule || t->ranks) && !t->memory)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--%s needs --memory",
                   t->schedule ? "schedule" : "ranks");
    if (t->memory) {
        o->memory = given_bytes("memory", t->memory);
        if (!t->microbatches)
            diag_fatal(EXIT_USAGE, WHERE_NONE,
                       "--memory needs --microbatches M, on which the number of stashes depends");
        under_schedule(o, t, a);
    }
    if (o->measured_split.n > 0 && !t->costs)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--costs-split needs --costs");
    if (t->costs)
        auto_of_run(o, t->costs, a);
}
