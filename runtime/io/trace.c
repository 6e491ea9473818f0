/*
 * trace.c - in: spans of every rank's actions; out: a Chrome trace.  They travel to rank 0 as
 * numbers.
 */
#include "trace.h"

#include "base/file/replace.h"

#include "core/core.h"
#include "plan/plan.h"

#include <string.h>

enum { MOST_STEPS = 20 };

PpStatus trace_open(Trace *t, Pool *pool, const Plan *plan, int64_t steps)
{
    int n_op = plan->n_op, stages = plan->model->n_stage;
    if (steps < 0)
        steps = 0;
    *t = (Trace){.n_op = n_op,
                 .stages = stages,
                 .steps = steps < MOST_STEPS ? (int)steps : MOST_STEPS,
                 .gathers = plan->ask.zero == 3};
    TRY(pp_take(pool, &t->bytes, n_op + 2 + (int64_t)t->steps * (n_op + AROUND + stages) * SPAN,
                sizeof *t->bytes));
    for (int k = 0; k <= n_op; k++)
        t->bytes[k] = (double)plan->live[k];
    t->bytes[n_op + 1] = (double)plan->bytes.total;
    t->span = t->bytes + n_op + 2;
    t->microbatches = plan->ask.microbatches;
    t->places.n = plan->model->n_length;
    for (int v = 0; v < t->places.n; v++)
        t->places.name[v] = plan->model->length[v].name;
    return t->places.n
               ? pp_take(pool, &t->length, (int64_t)t->steps * t->microbatches, sizeof *t->length)
               : PP_OK;
}

/* What this rank's clock says later than rank 0's: of several questions to rank 0 the one that was
 * answered soonest, whose answer was written halfway (Cristian 1989).  Rank 0 answers one rank
 * after the other. */
static PpStatus clock_ahead(Group *g, double *ahead)
{
    enum { QUESTIONS = 16 };
    double there = 0, soonest = 0;
    for (int k = 1; k < g->ranks; k++)
        for (int i = 0; i < QUESTIONS; i++) {
            double asked = pp_now();
            if (g->rank == 0) {
                TRY(group_recv(g, k, &there, sizeof there));
                there = pp_now();
                TRY(group_send(g, k, &there, sizeof there));
            } else if (g->rank == k) {
                TRY(group_send(g, 0, &asked, sizeof asked));
                TRY(group_recv(g, 0, &there, sizeof there));
                double took = pp_now() - asked;
                if (i == 0 || took < soonest) {
                    soonest = took;
                    *ahead = asked + took / 2 - there;
                }
            }
        }
    return PP_OK;
}

PpStatus trace_start(Trace *t, Group *g, int64_t beside)
{
    double ahead = 0, zero = g->rank == 0 ? pp_now() : 0;
    if (!t->span)
        return PP_OK;
    for (int k = 0; k < t->n_op + 2; k++)
        t->bytes[k] += (double)beside;
    TRY(g->op->sum(g, &zero, 1));
    if (g->host_ranks < g->ranks)
        TRY(clock_ahead(g, &ahead));
    t->zero = zero + ahead;
    return PP_OK;
}

int trace_times(const Trace *t, int64_t step)
{
    return t->profile.at && step < t->steps && (step > 0 || t->steps == 1);
}

double *trace_of(const Trace *t, int64_t step)
{
    return t->span && step < t->steps ? t->span + step * (t->n_op + AROUND + t->stages) * SPAN
                                      : NULL;
}

void trace_lengths(const Trace *t, int64_t step, const PpLength *length)
{
    if (t->length && step < t->steps)
        memcpy(t->length + step * t->microbatches, length,
               (size_t)t->microbatches * sizeof *length);
}

void trace_around(const Trace *t, int64_t step, int what, double waits, double starts)
{
    double *at = trace_of(t, step);
    if (!at)
        return;
    at += SPAN * (t->n_op + what);
    at[0] = waits - t->zero;
    at[1] = starts - t->zero;
    at[2] = pp_now() - t->zero;
}

void trace_sums(const Trace *t, int64_t step, int stage, double begin, double end, double beside)
{
    double *at = trace_of(t, step);
    if (!at)
        return;
    at += SPAN * (t->n_op + AROUND + stage);
    at[0] = beside;
    at[1] = begin - t->zero;
    at[2] = end - t->zero;
}

/* A rank's lines, as they are written. */
typedef struct {
    FILE *f;
    int rank, ranks, member, named[LINES]; /* member: of the rank */
    const PpLength *length;                /* of the microbatches of its step; NULL */
    SchedPlaces places;
} Lines;

static int line_of(Lines *l, int line)
{
    if (!l->named[line]++ && (line || l->member))
        sched_trace_name(l->f, l->rank, l->ranks, l->member, line);
    return sched_trace_line(l->rank, l->ranks, l->member, line);
}

static void trace_replicas(Lines *l, int line, int stage, int step, double from, double to,
                           double beside)
{
    sched_trace_replicas(l->f, line_of(l, line), line == LINE_SUMS ? "AR" : "gather", stage, step,
                         (SchedSpan){from * 1e6, (to - from) * 1e6, -1, 0, NULL}, beside * 1e6);
}

/* From UNSHARD, which starts a gather's messages, to the computation that waited for them. */
static void trace_gathers(Lines *l, const Schedule *s, int step, int n_op, const double *span)
{
    const SchedAction *a = s->row[l->rank].a;
    for (int i = 0; i < n_op; i++) {
        int k = a[i].type == SA_UNSHARD ? i + 1 : n_op;
        while (k < n_op && (a[k].stage != a[i].stage || a[k].type < SA_F || a[k].type > SA_R))
            k++;
        double begins = span[SPAN * i + 1];
        if (k < n_op && span[SPAN * k + 1] > begins)
            trace_replicas(l, LINE_GATHERS, a[i].stage, step, begins, span[SPAN * k + 1], 0);
    }
}

static const double *trace_actions(Lines *l, const Schedule *s, int step, int n_op,
                                   const double *bytes, const double *span)
{
    const SchedRow *row = &s->row[l->rank];
    for (int i = 0; i < n_op; i++, span += SPAN) {
        const SchedAction *a = &row->a[i];
        int copy = a->type == SA_OFFLOAD || a->type == SA_FETCH;
        /* Lines of one thread must nest: a half that ran beside the next one has one of its own */
        int beside = i + 1 < n_op && plan_pair(row, i) && span[2] > span[SPAN];
        int line = line_of(l, beside ? LINE_BESIDE : copy ? LINE_COPIES : LINE_ACTIONS);
        if (span[1] > span[0])
            sched_trace_wait(l->f, line, a, step, span[0] * 1e6, (span[1] - span[0]) * 1e6);
        if (l->length && a->microbatch >= 0)
            l->places.of = l->length[a->microbatch].of;
        sched_trace_event(l->f, line, a, step,
                          (SchedSpan){span[1] * 1e6, (span[2] - span[1]) * 1e6, bytes[i],
                                      span[3] * 1e6, l->length ? &l->places : NULL});
    }
    return span;
}

static void trace_rank(FILE *f, const Trace *t, const Schedule *s, int rank, int member, int n_op,
                       const double *bytes)
{
    static const char *const around[AROUND] = {"begin", "norm", "update"};
    const double *span = bytes + n_op + 2;
    Lines l = {.f = f, .rank = rank, .ranks = s->ranks, .member = member, .places = t->places};
    sched_trace_memory(f, line_of(&l, LINE_ACTIONS), bytes[n_op + 1], bytes[n_op]);
    for (int k = 1; k <= t->steps; k++) {
        l.length = t->length ? t->length + (int64_t)(k - 1) * t->microbatches : NULL;
        if (t->gathers)
            trace_gathers(&l, s, k, n_op, span);
        span = trace_actions(&l, s, k, n_op, bytes, span);
        for (int i = 0; i < AROUND; i++, span += SPAN)
            if (span[2] > span[1])
                sched_trace_around(f, line_of(&l, LINE_ACTIONS), around[i], k, span[1] * 1e6,
                                   (span[2] - span[1]) * 1e6);
        for (int i = 0; i < s->stages; i++, span += SPAN)
            if (span[2] > span[1])
                trace_replicas(&l, LINE_SUMS, i, k, span[1], span[2], span[0]);
    }
}

/* Of all that a rank's Trace holds. */
static int64_t trace_bytes(const Schedule *s, int steps, int n_op)
{
    return (n_op + 2 + (int64_t)steps * (n_op + AROUND + s->stages) * SPAN) *
           (int64_t)sizeof(double);
}

/* Of rank k of the group, on rank 0.  Of members the first one's steps are written: a stage has its
 * functions once. */
static PpStatus gather_rank(FILE *f, const Trace *t, Group *g, const Schedule *s,
                            const PpPlan *plan, int k)
{
    const int members = plan_members(plan), rank = k / members, n = s->row[rank].n;
    const int64_t size = trace_bytes(s, t->steps, n),
                  steps = profile_size(plan, s, rank) * (int64_t)sizeof(double);
    char *bytes;
    POOL(room);
    TRY(pp_take(&room, &bytes, size + steps, 1));
    TRY(group_recv(g, k, bytes, size));
    if (steps)
        TRY(group_recv(g, k, bytes + size, steps));
    if (f)
        trace_rank(f, t, s, rank, k % members, n, (const double *)(const void *)bytes);
    if (f && steps && k % members == 0)
        profile_write(f, plan, s, rank, (const double *)(const void *)(bytes + size));
    return PP_OK;
}

/* Of this rank, to rank 0. */
static PpStatus hand_over(const Trace *t, Group *g, const Schedule *s)
{
    TRY(group_send(g, 0, t->bytes, trace_bytes(s, t->steps, t->n_op)));
    if (t->profile.n > 0)
        TRY(group_send(g, 0, t->profile.at, t->profile.n * (int64_t)sizeof *t->profile.at));
    return PP_OK;
}

PpStatus trace_write(const Trace *t, Group *g, const Schedule *s, const PpPlan *plan,
                     const char *path)
{
    if (!t->span || !t->steps)
        return PP_OK;
    if (g->rank != 0)
        return hand_over(t, g, s);
    FileWhole out;
    FILE *f = file_begin(&out, path);
    if (f) {
        sched_trace_open(f, plan->model, s->ranks);
        if (plan->program.n_split > 0)
            sched_trace_split(f, plan->program.split, plan->program.n_split);
        trace_rank(f, t, s, 0, 0, t->n_op, t->bytes);
        if (t->profile.n > 0)
            profile_write(f, plan, s, 0, t->profile.at);
    }
    PpStatus status = PP_OK;
    for (int k = 1; k < s->ranks * plan_members(plan) && status == PP_OK; k++)
        status = gather_rank(f, t, g, s, plan, k);
    if (f)
        sched_trace_close(f);
    if (status != PP_OK)
        file_drop(&out);
    else if (!f || file_end(&out))
        status = pp_fail(PP_ERR_IO, "--trace %s: %s", path, out.why);
    return status;
}
