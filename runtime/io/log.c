/*
 * log.c - what a run says: failures (first one wins), the memory before the first step, one stable line a step or a
 * progress bar on a terminal, a line of JSON a step, and the trace of all actions.  Rank 0 speaks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "internal.h"
#include "schedule/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char failure[8400];
static _Thread_local int told; /* by this rank or, all having agreed, by another */

PpStatus pp_fail(PpStatus s, const char *fmt, ...)
{
    if (!failure[0]) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(failure, sizeof failure, fmt, ap);
        va_end(ap);
    }
    return s;
}

void pp_failure_print(void)
{
    if (!told)
        fprintf(stderr, "pipeline: error: %s\n", failure[0] ? failure : "unknown failure");
    told = 1;
}

void pp_failure_tell(void) { told = 1; }
int pp_failure_told(void) { return told; }

int pp_failure_first(void)
{
    static int spoken;
    return !__atomic_exchange_n(&spoken, 1, __ATOMIC_SEQ_CST);
}

void pp_trail(const char *file, int line, const char *call, PpStatus s)
{
    static int debug = -1;
    if (__atomic_load_n(&debug, __ATOMIC_RELAXED) < 0) {
        const char *e = getenv("PP_LOG");
        __atomic_store_n(&debug, e && !strcmp(e, "debug"), __ATOMIC_RELAXED);
    }
    if (__atomic_load_n(&debug, __ATOMIC_RELAXED) > 0)
        fprintf(stderr, "pipeline: %s:%d: %s: status %d\n", file, line, call, (int)s);
}

double pp_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

PpStatus log_open(Rank *r)
{
    const Options *o = r->run->opt;
    if (r->rank != 0 || !o->log_json)
        return PP_OK;
    r->json = fopen(o->log_json, "w");
    return r->json ? PP_OK : pp_fail(PP_ERR_IO, "--log-json %s: %s", o->log_json, strerror(errno));
}

static void print_memory(const Run *run, int rank, const MemoryPlan *m)
{
    const struct {
        const char *name;
        int64_t bytes;
    } part[] = {{"parameters", m->param}, {"gradients", m->grad},    {"optimizer", m->optimizer},
                {"constants", m->konst},  {"activations", m->slots}, {"work", m->work},
                {"data", m->data},        {"outputs", m->output},    {"communication", m->comm},
                {"library", m->library}};
    const char *comma = "";
    printf("rank %d memory: %" PRId64 " bytes (", rank, m->total);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].bytes) {
            printf("%s%s %" PRId64, comma, part[i].name, part[i].bytes);
            comma = ", ";
        }
    printf("), live microbatches %d", m->live);
    if (m->live_bound >= 0)
        printf(" of %d", m->live_bound);
    putchar('\n');
    if (!run->opt->verbose)
        return;
    if (m->where[0])
        printf("rank %d runs on %s, transport %s, %" PRId64 " bytes of pinned host memory\n", rank, m->where, m->wire,
               m->host);
    printf("rank %d plan: activations %" PRId64 " bytes, no placement needs less than %" PRId64
           "; %d messages, %d threads%s\n",
           rank, m->slots, m->slots_bound, m->messages, m->threads,
           m->aside ? ", halves of OVERLAP_F_B beside each other" : "");
}

PpStatus log_memory(Rank *r)
{
    MemoryPlan *all = malloc((size_t)r->t.ranks * sizeof *all);
    if (!all)
        return pp_fail(PP_ERR_IO, "out of memory");
    r->mem.messages = r->n_msg;
    r->mem.threads = r->threads;
    r->mem.aside = r->aside != NULL;
    PpStatus s = r->t.op->gather(&r->t, &r->mem, sizeof *all, all);
    for (int k = 0; s == PP_OK && r->rank == 0 && !r->run->opt->quiet && k < r->t.ranks; k++)
        print_memory(r->run, k, &all[k]);
    fflush(stdout);
    free(all);
    return s;
}

PpStatus log_live(Rank *r)
{
    const Run *run = r->run;
    if (!run->opt->verbose || run->opt->mode != MODE_TRAIN)
        return PP_OK;
    int64_t mine = r->live_most, *all = malloc((size_t)r->t.ranks * sizeof *all);
    if (!all)
        return pp_fail(PP_ERR_IO, "out of memory");
    PpStatus s = r->t.op->gather(&r->t, &mine, sizeof mine, all);
    for (int k = 0; s == PP_OK && r->rank == 0 && k < r->t.ranks; k++) {
        int bound = sched_peak_formula(run->sched->name, run->ranks, run->plan->n_stage, run->m, k);
        printf("rank %d live microbatches: %" PRId64 " at most", k, all[k]);
        if (bound >= 0)
            printf(", the schedule's closed form is %d", bound);
        putchar('\n');
    }
    free(all);
    return s;
}

/* 17 digits read back exactly; what is not finite, which JSON has no number for, is a string that parsers of numbers know. */
static void json_number(FILE *f, const char *key, double v)
{
    if (isfinite(v))
        fprintf(f, ", \"%s\": %.17g", key, v);
    else
        fprintf(f, ", \"%s\": \"%s\"", key, isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
}

static void progress(const Run *run, const StepLog *s, double rate)
{
    enum { WIDTH = 30 };
    int full = (int)(WIDTH * s->step / run->steps);
    printf("\r[%.*s%*s] %" PRId64 "/%" PRId64 "  loss %.6f  grad_norm %.4g  %.0f tokens/s\033[K", full,
           "##############################", WIDTH - full, "", s->step, run->steps, s->loss, s->grad_norm, rate);
    if (s->step == run->steps || !isfinite(s->loss) || !isfinite(s->grad_norm))
        putchar('\n');
    fflush(stdout);
}

PpStatus log_step(Rank *r, const StepLog *step)
{
    const Run *run = r->run;
    StepLog signless = *step, *s = &signless; /* a NaN's sign says nothing, and is not always the same */
    if (r->rank != 0)
        return PP_OK;
    if (isnan(s->loss))
        s->loss = fabs(s->loss);
    if (isnan(s->grad_norm))
        s->grad_norm = fabs(s->grad_norm);
    double rate = s->seconds > 0 ? (double)r->tokens / s->seconds : 0;
    Mode mode = run->opt->mode;
    if (r->json) {
        fprintf(r->json, "{\"step\": %" PRId64, s->step);
        if (mode != MODE_INFER)
            json_number(r->json, "loss", s->loss);
        if (mode == MODE_TRAIN)
            json_number(r->json, "grad_norm", s->grad_norm);
        json_number(r->json, "seconds", s->seconds);
        json_number(r->json, "tokens_per_second", rate);
        fputs("}\n", r->json);
        if (fflush(r->json))
            return pp_fail(PP_ERR_IO, "--log-json %s: %s", run->opt->log_json, strerror(errno));
    }
    if (run->opt->quiet)
        return PP_OK;
    if (mode == MODE_TRAIN && run->hub && isatty(1)) { /* mpirun shows its processes a terminal that is none */
        progress(run, s, rate);
        return PP_OK;
    }
    printf("step %" PRId64, s->step);
    if (mode != MODE_INFER)
        printf(" loss %.6f", s->loss);
    if (mode == MODE_TRAIN)
        printf(" grad_norm %.4g", s->grad_norm);
    printf(" tokens/s %.0f\n", rate);
    fflush(stdout);
    return PP_OK;
}

PpStatus log_close(Rank *r)
{
    if (!r->json)
        return PP_OK;
    int bad = ferror(r->json) | fclose(r->json);
    r->json = NULL;
    return bad ? pp_fail(PP_ERR_IO, "--log-json %s: write error", r->run->opt->log_json) : PP_OK;
}

/* ---- --trace: every rank's spans travel to rank 0 as text-free numbers ---- */

double *trace_of(const Rank *r, int64_t step)
{
    return r->span && step < r->trace_steps ? r->span + step * (r->n_op + AROUND) * 3 : NULL;
}

void trace_around(const Rank *r, int64_t step, int what, double waits, double starts)
{
    double *at = trace_of(r, step);
    if (!at)
        return;
    at += 3 * (r->n_op + what);
    at[0] = waits - r->trace_zero;
    at[1] = starts - r->trace_zero;
    at[2] = pp_now() - r->trace_zero;
}

static void trace_rank(FILE *f, const Schedule *s, int rank, int n_op, int steps, const double *span)
{
    int second = 0; /* lines of one thread must nest: a half that ran beside the next one has a line of its own */
    static const char *const around[AROUND] = {"begin", "norm", "update"};
    for (int k = 0; k < steps; k++) {
        for (int i = 0; i < n_op; i++, span += 3) {
            const SchedAction *a = &s->row[rank].a[i];
            int beside = i + 1 < n_op && aside_pair(&s->row[rank], i) && span[2] > span[3],
                line = beside ? s->ranks + rank : rank;
            if (beside && !second++)
                sched_trace_overlap_thread(f, rank, s->ranks);
            if (span[1] > span[0])
                sched_trace_wait(f, line, a, k + 1, span[0] * 1e6, (span[1] - span[0]) * 1e6);
            sched_trace_event(f, line, a, k + 1, span[1] * 1e6, (span[2] - span[1]) * 1e6);
        }
        for (int i = 0; i < AROUND; i++, span += 3)
            if (span[2] > span[1])
                sched_trace_around(f, rank, around[i], k + 1, span[1] * 1e6, (span[2] - span[1]) * 1e6);
    }
}

PpStatus trace_write(Rank *r)
{
    const Run *run = r->run;
    const char *path = run->opt->trace;
    if (!path || !r->trace_steps)
        return PP_OK;
    PpRequest q;
    int64_t tag = r->t.tag_max;
    int64_t steps = run->steps < r->trace_steps ? run->steps : r->trace_steps,
            bytes = steps * (r->n_op + AROUND) * 3 * (int64_t)sizeof(double);
    if (r->rank != 0) {
        TRY(r->t.op->send(&r->t, 0, tag, r->span, bytes, &q));
        return r->t.op->wait(&r->t, &q);
    }
    FILE *f = fopen(path, "w");
    if (f)
        sched_trace_open(f, run->plan->model, run->ranks);
    for (int k = 0; k < run->ranks; k++) {
        int n = run->sched->row[k].n;
        double *span = r->span;
        if (k > 0) {
            bytes = steps * (n + AROUND) * 3 * (int64_t)sizeof(double);
            span = malloc((size_t)bytes + 64);
            if (!span)
                return pp_fail(PP_ERR_IO, "out of memory");
            TRY(r->t.op->recv(&r->t, k, tag, span, bytes, &q));
            TRY(r->t.op->wait(&r->t, &q));
        }
        if (f)
            trace_rank(f, run->sched, k, n, (int)steps, span);
        if (k > 0)
            free(span);
    }
    if (f)
        sched_trace_close(f);
    return f && !fclose(f) ? PP_OK : pp_fail(PP_ERR_IO, "--trace %s: %s", path, strerror(errno));
}
