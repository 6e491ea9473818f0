/*
 * profile.c - seconds of the steps of stages' functions.  In: pp_time_step(), which generated code
 * calls before each step and at the end of a function.  Out: sums for each step; events of a trace.
 *
 * A thread has the function that it runs: threads of a rank run different ones at a time.
 */
#include "profile.h"

#include "schedule/simulate/trace.h"

typedef struct {
    double *seconds; /* of the function's steps; NULL: it is not timed */
    int n, next;
    double since;
} Running;

static _Thread_local Running running;

void pp_time_step(void)
{
    Running *r = &running;
    if (!r->seconds)
        return;
    double now = pp_now();
    if (r->next > 0 && r->next <= r->n)
        r->seconds[r->next - 1] += now - r->since;
    r->next++;
    r->since = pp_now();
}

static int64_t stage_size(const PpStage *st)
{
    int64_t n = 0;
    for (int k = 0; st->look.steps && k < PP_TIMED; k++)
        n += 1 + st->look.steps[k].n;
    return n;
}

int64_t profile_size(const PpPlan *model, const Schedule *s, int rank)
{
    int64_t n = 0;
    for (int i = 0; i < s->stages && i < model->n_stage; i++)
        n += s->rank_of[i] == rank ? stage_size(model->stage[i]) : 0;
    return n;
}

PpStatus profile_open(Profile *p, Pool *pool, const PpPlan *model, const Schedule *s, int rank)
{
    *p = (Profile){.n = profile_size(model, s, rank)};
    if (p->n == 0)
        return PP_OK;
    TRY(pp_take(pool, &p->at, p->n, sizeof *p->at));
    TRY(pp_take(pool, &p->first, model->n_stage, sizeof *p->first));
    int64_t n = 0;
    for (int i = 0; i < model->n_stage; i++) {
        int here = i < s->stages && s->rank_of[i] == rank;
        p->first[i] = here ? n : -1;
        n += here ? stage_size(model->stage[i]) : 0;
    }
    return PP_OK;
}

void profile_begin(const Profile *p, const PpStage *st, int function)
{
    if (!p->at || !st->look.steps || p->first[st->index] < 0)
        return;
    double *at = p->at + p->first[st->index];
    for (int k = 0; k < function; k++)
        at += 1 + st->look.steps[k].n;
    at[0]++;
    running = (Running){.seconds = at + 1, .n = st->look.steps[function].n};
}

void profile_end(void) { running.seconds = NULL; }

static void write_function(FILE *f, int stage, const PpSteps *steps, int line, const double *at)
{
    double ts = 0;
    for (int i = 0; i < steps->n && at[0] > 0; i++) {
        double us = at[1 + i] / at[0] * 1e6;
        sched_trace_kernel(f, line, stage, steps->step[i].part, steps->step[i].nodes, ts, us);
        ts += us;
    }
}

void profile_write(FILE *f, const PpPlan *model, const Schedule *s, int rank, const double *at)
{
    static const char *const name[PP_TIMED] = {"forward", "backward", "backward, I",
                                               "backward, W"};
    for (int i = 0; i < s->stages && i < model->n_stage; i++) {
        const PpSteps *steps = model->stage[i]->look.steps;
        for (int k = 0; s->rank_of[i] == rank && steps && k < PP_TIMED; k++) {
            int line = PP_TIMED * i + k;
            if (at[0] > 0)
                sched_trace_kernels(f, line, i, name[k]);
            write_function(f, i, &steps[k], line, at);
            at += 1 + steps[k].n;
        }
    }
}
