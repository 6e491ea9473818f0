/*
 * lengths.c - microbatches that differ in length.  In: lengths of rows.  Out: those of
 * microbatches, as a run groups rows; costs of such; the mean step.
 */
#include "schedule/rows.h"
#include "simulate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

int sched_rows_add(SchedRows *r, const char *text, SchedError *e)
{
    const char *eq = strchr(text, '=');
    size_t n = eq ? (size_t)(eq - text) : 0;
    if (n == 0 || n >= sizeof r->name[0] || !eq[1])
        return sched_fail(e, SCHED_EUSAGE, -1, -1, "--lengths wants NAME=FILE, not '%.60s'",
                          text);
    if (r->n == ROW_LENGTHS)
        return sched_fail(e, SCHED_EUSAGE, -1, -1, "--lengths: at most %d dimensions vary",
                          ROW_LENGTHS);
    memcpy(r->name[r->n], text, n);
    r->least[r->n] = 1;
    r->most[r->n] = INT32_MAX;
    r->file[r->n++] = eq + 1;
    return SCHED_OK;
}

int sched_rows_seed(SchedRows *r, const char *text)
{
    char *end;
    errno = 0;
    r->seed = strtoull(text, &end, 10);
    return !errno && end != text && !*end && *text >= '0' && *text <= '9';
}

int sched_rows_read(SchedRows *r, SchedError *e)
{
    char err[400];
    for (int v = 0; v < r->n; v++) {
        int64_t rows;
        int documents;
        r->length[v] =
            row_lengths(r->file[v], &rows, &documents, r->least[v], r->most[v], err, sizeof err);
        if (!r->length[v])
            return sched_fail(e, rows < 0 ? SCHED_ERESOURCE : SCHED_EREFUSED, -1, -1,
                              "--lengths %s=%s: %s", r->name[v], r->file[v], err);
        if (v && rows != r->rows)
            return sched_fail(e, SCHED_EREFUSED, -1, -1,
                              "--lengths %s=%s: it is of %lld rows, the one before it of %lld",
                              r->name[v], r->file[v], (long long)rows, (long long)r->rows);
        r->rows = rows;
    }
    return SCHED_OK;
}

void sched_rows_free(SchedRows *r)
{
    for (int v = 0; v < r->n; v++)
        free(r->length[v]);
}

/* ---- microbatches ---- */

static void put(SchedLengths *l, const RowOrder *o, const int64_t *order)
{
    double *at = l->length;
    for (int64_t s = 0; s < l->steps; s++)
        for (int64_t k = 0; k < o->n; k++)
            for (int v = 0; v < l->n; v++)
                *at++ = (double)row_longest(o->length[v], order + s * o->batch, o->row0[k],
                                            o->row0[k + 1]);
}

int sched_lengths(SchedLengths *l, const SchedRows *r, int replicas, int microbatches,
                  SchedError *e)
{
    RowOrder o = {.rows = r->rows,
                  .batch = r->batch,
                  .n = (int64_t)replicas * microbatches,
                  .by_length = r->by_length,
                  .shuffle = r->shuffle,
                  .seed = r->seed};
    *l = (SchedLengths){.n = r->n,
                        .steps = (int)(r->rows / r->batch),
                        .replicas = replicas,
                        .microbatches = microbatches};
    for (int v = 0; v < r->n; v++)
        l->name[v] = r->name[v], o.length[v] = r->length[v];
    if (l->steps == 0 || o.batch < o.n)
        return sched_fail(
            e, SCHED_EREFUSED, -1, -1,
            "too few rows: a step takes %lld in %lld microbatches, --lengths has %lld",
            (long long)o.batch, (long long)o.n, (long long)o.rows);
    int64_t *row0 = malloc((size_t)(o.n + 1) * sizeof *row0),
            *order = malloc((size_t)o.rows * sizeof *order);
    l->length = malloc((size_t)l->steps * (size_t)o.n * (size_t)l->n * sizeof *l->length);
    int done = row0 && order && l->length;
    if (done) {
        row_cut(o.batch, replicas, microbatches, row0);
        o.row0 = row0;
        for (int64_t i = 0; i < o.rows; i++)
            order[i] = i;
        done = row_order(&o, 0, order);
    }
    if (done)
        put(l, &o, order);
    free(row0);
    free(order);
    return done ? SCHED_OK : sched_nomem(e);
}

/* ---- costs ---- */

int sched_costs_by_length(SchedCosts *c, int n, int stages, SchedError *e)
{
    SchedVary *v = calloc(1, sizeof *v);
    if (v) {
        v->n = n;
        v->stages = stages;
        v->time = calloc((size_t)stages * SA_TYPES, sizeof *v->time);
        v->sent = calloc((size_t)stages, sizeof *v->sent);
        c->vary = v;
    }
    return v && v->time && v->sent ? SCHED_OK : sched_nomem(e);
}

/* Those of vary, in its order; NULL: no memory, or, as e says, others. */
static double *in_order(const SchedVary *v, const SchedLengths *l, SchedError *e)
{
    size_t n = (size_t)l->steps * (size_t)l->replicas * (size_t)l->microbatches;
    double *out = malloc(n * (size_t)v->n * sizeof *out);
    if (!out)
        return sched_nomem(e), NULL;
    for (int i = 0; i < v->n; i++) {
        int k = 0;
        while (k < l->n && strcmp(l->name[k], v->name[i]) != 0)
            k++;
        if (k == l->n || l->n != v->n) {
            sched_fail(e, SCHED_EREFUSED, -1, -1,
                       "the times depend on %d length%s, '%s' among them: --lengths has to give %s",
                       v->n, v->n == 1 ? "" : "s", v->name[i], v->n == 1 ? "it" : "just these");
            free(out);
            return NULL;
        }
        for (size_t j = 0; j < n; j++)
            out[j * (size_t)v->n + (size_t)i] = l->length[j * (size_t)l->n + (size_t)k];
    }
    return out;
}

static double mean(const SchedFit *f, const SchedLengths *l)
{
    size_t n = (size_t)l->steps * (size_t)l->replicas * (size_t)l->microbatches;
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += sched_fit_at(f, l->n, l->length + k * (size_t)l->n);
    return sum / (double)n;
}

static int is_known(const SchedFit *f)
{
    int any = 0;
    for (int i = 0; i < SCHED_TERMS; i++)
        any |= f->c[i] > 0;
    return any;
}

/* What a run or a model says nothing of is as its like. */
static SchedFit like(const SchedFit *time, int type)
{
    static const int from[SA_TYPES] = {[SA_B] = SA_I, [SA_I] = SA_B, [SA_W] = SA_B, [SA_R] = SA_F};
    SchedFit f = time[type];
    if (!is_known(&f) && from[type])
        f = time[from[type]];
    for (int i = 0; i < SCHED_TERMS && type == SA_B && !is_known(&time[SA_B]); i++)
        f.c[i] += time[SA_W].c[i];
    if (!is_known(&f))
        f.c[0] = 1;
    return f;
}

/* So many steps, evenly apart. */
static int some_steps(SchedLengths *to, const SchedLengths *l)
{
    enum { MOST = 16 };
    int most = MOST / l->replicas > 2 ? MOST / l->replicas : 2;
    size_t each = (size_t)l->replicas * (size_t)l->microbatches * (size_t)l->n;
    *to = *l;
    to->steps = l->steps < most ? l->steps : most;
    to->length = malloc((size_t)to->steps * each * sizeof *to->length);
    for (int s = 0; s < to->steps && to->length; s++)
        memcpy(to->length + (size_t)s * each,
               l->length + (size_t)((int64_t)s * l->steps / to->steps) * each,
               each * sizeof *to->length);
    return to->length != NULL;
}

int sched_costs_vary(SchedCosts *c, const SchedLengths *given, SchedError *e)
{
    SchedVary *v = c->vary;
    SchedFit own[SA_TYPES];
    SchedLengths all = *given, *l = &all;
    int st = sched_costs_stages(c, v->stages, e);
    if (st)
        return st;
    if (!(all.length = in_order(v, given, e)))
        return e->status;
    st = some_steps(&v->of, l) ? SCHED_OK : sched_nomem(e);
    for (int s = 0; s < v->stages && !st; s++) {
        SchedFit *time = v->time + (size_t)s * SA_TYPES;
        memcpy(own, time, sizeof own);
        for (int t = 0; t < SA_TYPES; t++) {
            double *of = &c->stage_time[(size_t)s * SA_TYPES + (size_t)t];
            if (is_known(&own[t]) && *of >= 0)
                *of = mean(&own[t], l);
            time[t] = like(own, t);
            double some = mean(&time[t], &v->of);
            for (int i = 0; i < SCHED_TERMS; i++)
                time[t].c[i] /= some;
        }
        if (!is_known(&v->sent[s]))
            v->sent[s].c[0] = 1;
    }
    free(all.length);
    return st;
}

/* ---- steps ---- */

int sched_simulate(const Schedule *s, const SchedCosts *c, SchedSim *out, SchedError *e)
{
    const SchedLengths *l = c->vary ? &c->vary->of : NULL;
    if (!l || !l->length)
        return sched_simulate_step(s, c, NULL, out, e);
    if (l->microbatches != s->microbatches)
        return sched_fail(e, SCHED_EUSAGE, -1, -1,
                          "the schedule has %d microbatches, --lengths are of %d", s->microbatches,
                          l->microbatches);
    size_t each = (size_t)l->microbatches * (size_t)l->n;
    double makespan = 0, span = 0, bubble = 0, bubble_span = 0;
    const double *length = l->length;
    for (int k = 0; k < l->steps; k++) {
        double longest = 0;
        SchedSim worst = {0};
        for (int r = 0; r < l->replicas; r++, length += each) {
            if (k + r > 0)
                sched_sim_free(out);
            int st = sched_simulate_step(s, c, length, out, e);
            if (st)
                return st;
            if (out->makespan >= longest)
                longest = out->makespan, worst = *out;
        }
        makespan += longest / l->steps;
        span += worst.span / l->steps;
        bubble += worst.bubble / l->steps;
        bubble_span += worst.bubble_span / l->steps;
    }
    out->makespan = makespan;
    out->span = span;
    out->bubble = bubble;
    out->bubble_span = bubble_span;
    return SCHED_OK;
}
